//! Sends to and receives from a queue, as pure steps on a connection that take `now` as an
//! argument. Knows no threads and no transactions.

use super::content::content;
use super::groups::set_gate;
use super::refusal::{Refused, Rules};
use super::schema;
use super::settings::redrive;
use super::time::StoreTime;
use super::turn::{LocalDelivery, QueueId, Turn};
use dispatcher_core::memory::{Budget, HeldBytes};
use dispatcher_core::message::{Attribute, ContentError, Message, Outgoing, Receipt, TRACE_HEADER};
use dispatcher_core::queue::{Ask, GroupShare, ItemError};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The longest body with its attributes, in bytes: what a row of SQLite holds (1,000,000,000),
/// less some room for the rest of the row.
const LONGEST: usize = 999_000_000;

/// Maximum messages that a receive brings behind others of their groups from a queue with a redrive
/// policy: as many as a route keeps in hand while the first of their group fails.
const MOST_COUNTED: usize = 50;
/// How many receives a redrive policy must allow before a message is received behind others of its
/// group. That costs it one receive at most without an attempt: if it goes back with one that failed,
/// or its holder dies, it is next received as the first of its group.
const ENOUGH_RECEIVES: u32 = 3;

/// This many messages are moved away in one receive, and some more of one look: others wait meanwhile,
/// and a limit that was lowered may have a million of them.
const MOST_MOVED: usize = 100;

/// What of an entry is asked before it is decided whether it is delivered. Its size is known
/// without reading it.
macro_rules! candidates {
    ($from:literal, $rest:literal) => {
        concat!(
            "SELECT e.seq, e.message_group, e.receive_count, e.in_flight, e.visible_at,
                    coalesce(octet_length(p.body), 0)
                    + coalesce(octet_length(e.attributes), octet_length(p.attributes), 0)
                    + coalesce(octet_length(e.system), octet_length(p.system), 0)
             FROM entries e ",
            $from,
            " LEFT JOIN payloads p ON p.seq = coalesce(e.payload, e.seq) WHERE ",
            $rest
        )
    };
}

/// What can be received, one of each group, in the order of becoming visible, then of sending.
pub(super) const READY: &str = candidates!(
    "",
    "e.queue = ?1 AND e.head = 1 AND e.visible_at <= ?2 ORDER BY e.visible_at, e.seq LIMIT ?3"
);
/// The same, what was sent last first. Walks past what is newer and cannot be received: what is
/// being handled, and what is delayed.
pub(super) const NEWEST: &str = candidates!(
    "INDEXED BY newest",
    "e.queue = ?1 AND e.head = 1 AND e.visible_at <= ?2
     ORDER BY e.sent_at DESC, e.seq DESC LIMIT ?3"
);
/// The first messages of a group.
pub(super) const MEMBERS: &str = candidates!(
    "",
    "e.queue = ?1 AND e.message_group = ?2 ORDER BY e.seq LIMIT ?3"
);
/// One message.
pub(super) const READ_ONE: &str =
    "SELECT e.seq, p.id, p.body, coalesce(e.attributes, p.attributes),
            e.receive_count, e.sent_at, e.first_received_at, e.message_group,
            coalesce(e.system, p.system)
     FROM entries e LEFT JOIN payloads p ON p.seq = coalesce(e.payload, e.seq) WHERE e.seq = ?1";
/// When the first of them becomes visible.
pub(super) const NEXT_DUE: &str =
    "SELECT visible_at FROM entries WHERE queue = ?1 AND head = 1 ORDER BY visible_at LIMIT 1";
/// The queues that have entries, each found by one step in the index.
pub(super) const HOLDING: &str = "WITH RECURSIVE holding (queue) AS (
         SELECT min(queue) FROM entries
         UNION ALL
         SELECT (SELECT min(e.queue) FROM entries e WHERE e.queue > h.queue)
           FROM holding h WHERE h.queue IS NOT NULL)
     SELECT queue FROM holding WHERE queue IS NOT NULL";
/// Whether a group has messages.
pub(super) const GROUP_HAS: &str =
    "SELECT 1 FROM entries WHERE queue = ?1 AND message_group = ?2 LIMIT 1";

/// Puts messages into a queue; one answer per item, the new message's id.
pub(super) fn send(
    turn: &mut Turn<'_>,
    queue: QueueId,
    items: &[Outgoing],
) -> rusqlite::Result<Vec<Result<String, ItemError>>> {
    let one = |item: &Outgoing| match encode_system(&trace(item)) {
        Ok(system) => Ok(put(turn, queue, item, system.as_deref())?.map(|(id, _)| id)),
        Err(why) => Ok(Err(ItemError::Refused(why))),
    };
    items.iter().map(one).collect()
}

/// What a sender sets of the queue's own attributes.
pub(super) fn trace(item: &Outgoing) -> Vec<(String, String)> {
    let header = item.trace_header.iter();
    header
        .map(|header| (TRACE_HEADER.to_owned(), header.clone()))
        .collect()
}

/// Puts one message into a queue, with the queue's own attributes as `encode_system` writes them;
/// its id and its row.
pub(super) fn put(
    turn: &mut Turn<'_>,
    queue: QueueId,
    item: &Outgoing,
    system: Option<&str>,
) -> rusqlite::Result<Result<(String, i64), ItemError>> {
    let attributes = match encode(&item.attributes) {
        Ok(text) if text.as_ref().map_or(0, String::len) + item.body.len() <= LONGEST => text,
        Ok(_) => {
            return Ok(Err(ItemError::Refused(format!(
                "the message has {} bytes, at most {LONGEST} fit",
                item.body.len()
            ))));
        }
        Err(why) => return Ok(Err(ItemError::Refused(why))),
    };
    let id = fresh_id(turn.now);
    let entry = NewEntry {
        queue,
        visible_at: turn.now + item.delay,
        sent_at: turn.now,
        group: item.group.as_deref(),
        moved: None,
    };
    let seq = insert(turn, &entry)?;
    turn.connection
        .prepare_cached(
            "INSERT INTO payloads (seq, id, body, attributes, system) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![seq, id, item.body, attributes, system])?;
    Ok(Ok((id, seq)))
}

/// What a new row says of itself.
pub(super) struct NewEntry<'a> {
    /// Where it goes.
    pub queue: QueueId,
    /// From when it may be received.
    pub visible_at: StoreTime,
    /// When it was sent first.
    pub sent_at: StoreTime,
    /// Its group.
    pub group: Option<&'a str>,
    /// What is known of it if it comes from another queue; then its payload is there already.
    pub moved: Option<MovedPayload<'a>>,
}

/// What a new row takes over from another queue.
pub(super) struct MovedPayload<'a> {
    /// The key of its payload.
    pub payload: i64,
    /// The receipt with which it was taken there, if it was.
    pub receipt: Option<&'a str>,
    /// The sender's attributes from now on, as `encode` writes them.
    pub attributes: &'a str,
    /// The queue's own, as `encode_system` writes them.
    pub system: &'a str,
}

/// Adds one message at the end of its queue and of its group, without its payload; its row.
pub(super) fn insert(turn: &mut Turn<'_>, new: &NewEntry<'_>) -> rusqlite::Result<i64> {
    let head = match new.group {
        None => true,
        Some(group) => !turn
            .connection
            .prepare_cached(GROUP_HAS)?
            .exists(params![new.queue, group])?,
    };
    let moved = new.moved.as_ref();
    turn.connection
        .prepare_cached(
            "INSERT INTO entries (queue, head, visible_at, in_flight, receive_count, sent_at,
                                  message_group, moved_from, payload, attributes, system)
             VALUES (?1, ?2, ?3, 0, 0, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            new.queue,
            head,
            new.visible_at,
            new.sent_at,
            new.group,
            moved.and_then(|moved| moved.receipt),
            moved.map(|moved| moved.payload),
            moved.map(|moved| moved.attributes),
            moved.map(|moved| moved.system),
        ])?;
    let seq = turn.connection.last_insert_rowid();
    if head {
        turn.stirred.insert(new.queue);
    }
    Ok(seq)
}

/// What a receive knows of a message before it is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its row.
    pub seq: i64,
    /// Its group.
    pub group: Option<String>,
    /// How often it has been received.
    pub receives: u32,
    /// Received and neither deleted nor released since: where it can be received again, whoever
    /// had it has not answered in time.
    pub in_flight: bool,
    /// From when it can be received.
    visible_at: StoreTime,
    /// Body and attributes.
    pub bytes: u64,
}

fn candidate(row: &Row<'_>) -> rusqlite::Result<Candidate> {
    Ok(Candidate {
        seq: row.get(0)?,
        group: row.get(1)?,
        receives: u32::try_from(row.get::<_, i64>(2)?).unwrap_or(u32::MAX),
        in_flight: row.get(3)?,
        visible_at: row.get(4)?,
        bytes: u64::try_from(row.get::<_, i64>(5)?).unwrap_or(0),
    })
}

/// To whom messages of a queue are delivered, and which are not.
#[derive(Debug, Clone, Default)]
pub(super) struct DeliveryTerms {
    /// The queue of the same file that takes what is not delivered.
    pub dead_letter: Option<String>,
    /// What was received so often, the last time without an answer, is not delivered.
    pub attempts: Option<u32>,
    /// The bytes that may be held.
    pub budget: Option<Arc<Budget>>,
    /// Whether the answer reports what is dead-lettered instead of being delivered; else the log
    /// does.
    pub reports: bool,
}

/// One message that is delivered, before it is read.
#[derive(Debug)]
pub(super) struct Claim {
    delivery: LocalDelivery,
    held: Option<HeldBytes>,
}

/// What a receive takes, and what it moved away instead.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    /// In order.
    pub claims: Vec<Claim>,
    /// The queue has nothing more that could be received.
    pub drained: bool,
    /// The next message has so many bytes, which are not free.
    pub short_of: Option<u64>,
    /// What was not delivered.
    pub refused: Vec<Refused>,
}

/// Takes up to `ask.max` messages, without reading them: what was taken counts as received before
/// anything is read. Order: of becoming visible, then of sending; or by age, as `ask.newest_first`
/// says. What may not be delivered is moved away, a hundred at a time: then there may be more than
/// was found, and `next_due` says so. `wait` is the caller's affair.
pub(super) fn claim(
    turn: &mut Turn<'_>,
    queue: QueueId,
    name: &str,
    ask: Ask,
    terms: &DeliveryTerms,
) -> rusqlite::Result<Claimed> {
    let rules = Rules {
        redrive: redrive(turn, queue)?,
        name: name.strip_prefix("local:").unwrap_or(name),
        terms,
    };
    let mut claimed = Claimed::default();
    let good = loop {
        let found = find(turn, queue, ask, rules.following())?;
        claimed.drained = found.all;
        let (spent, good): (Vec<_>, Vec<_>) = found
            .candidates
            .into_iter()
            .map(|candidate| (rules.refusal(&candidate), candidate))
            .partition(|(refusal, _)| refusal.is_some());
        let mut good: Vec<Candidate> = good.into_iter().map(|(_, good)| good).collect();
        if spent.is_empty() {
            break good;
        }
        if claimed.refused.len() >= MOST_MOVED {
            // Nothing overtakes what is still ahead of it in its group.
            let stopped = |group: &String| {
                spent
                    .iter()
                    .any(|(_, one)| one.group.as_ref() == Some(group))
            };
            good.retain(|one| !one.group.as_ref().is_some_and(stopped));
            break good;
        }
        for (refusal, candidate) in spent {
            if let Some(refusal) = refusal {
                let refused = rules.refuse(turn, queue, &candidate, refusal)?;
                claimed.refused.push(refused);
            }
        }
    };
    let mut groups: Vec<String> = Vec::new();
    for candidate in good {
        let Some(held) = hold(&candidate, terms, ask.overdraw && claimed.claims.is_empty()) else {
            claimed.short_of = Some(candidate.bytes);
            break;
        };
        let count = i64::from(candidate.receives) + 1;
        take(turn, candidate.seq, count, ask.visibility)?;
        claimed.claims.push(Claim {
            delivery: LocalDelivery {
                seq: candidate.seq,
                count,
            },
            held,
        });
        groups.extend(candidate.group.filter(|group| groups.last() != Some(group)));
    }
    for group in groups {
        set_gate(turn, queue, &group)?;
    }
    claimed.drained &= claimed.refused.len() < MOST_MOVED && claimed.short_of.is_none();
    Ok(claimed)
}

/// The bytes of a message, if there are any limits; `None` if they are not free.
#[allow(
    clippy::option_option,
    reason = "no bytes to hold is not the same as none free"
)]
fn hold(candidate: &Candidate, terms: &DeliveryTerms, overdraw: bool) -> Option<Option<HeldBytes>> {
    let Some(budget) = &terms.budget else {
        return Some(None);
    };
    let held = budget.try_take(candidate.bytes);
    let beyond = || budget.overdraw(candidate.bytes).filter(|_| overdraw);
    held.or_else(beyond).map(Some)
}

/// Receives one message, whatever its place.
pub(super) fn take(
    turn: &Turn<'_>,
    seq: i64,
    count: i64,
    visibility: Duration,
) -> rusqlite::Result<()> {
    turn.connection
        .prepare_cached(
            "UPDATE entries SET in_flight = 1, visible_at = ?2, receive_count = ?3,
                    received_at = ?4, first_received_at = COALESCE(first_received_at, ?4)
             WHERE seq = ?1",
        )?
        .execute(params![seq, turn.now + visibility, count, turn.now])
        .map(drop)
}

/// Reads what was taken. What somebody else has deleted meanwhile is left out.
pub(super) fn load(
    turn: &Turn<'_>,
    claimed: Claimed,
    name: &str,
) -> rusqlite::Result<(Vec<Message>, Vec<HeldBytes>)> {
    let mut messages = Vec::with_capacity(claimed.claims.len());
    let mut held = Vec::new();
    let mut find = turn.connection.prepare_cached(READ_ONE)?;
    for claim in claimed.claims {
        let row = params![claim.delivery.seq];
        let found = find.query_row(row, |row| message(turn, row, name));
        let Some(mut one) = found.optional()? else {
            continue;
        };
        one.receipt = claim.delivery.receipt();
        one.receive_count = u32::try_from(claim.delivery.count).unwrap_or(u32::MAX);
        messages.push(one);
        held.extend(claim.held);
    }
    Ok((messages, held))
}

/// Takes and reads in one transaction.
#[cfg(any(test, fuzzing))]
pub(super) fn receive(
    turn: &mut Turn<'_>,
    queue: QueueId,
    name: &str,
    ask: Ask,
) -> rusqlite::Result<dispatcher_core::queue::Received> {
    let claimed = claim(turn, queue, name, ask, &DeliveryTerms::default())?;
    let drained = claimed.drained;
    let (messages, _) = load(turn, claimed, name)?;
    Ok(dispatcher_core::queue::Received {
        messages,
        drained,
        ..Default::default()
    })
}

/// What a receive would take.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// In the receive's order.
    pub candidates: Vec<Candidate>,
    /// Once these are taken, nothing can be received.
    pub all: bool,
}

/// Which messages a receive that spreads over the groups brings behind others of their groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Following {
    /// Any.
    Any,
    /// Those that were never received, and no more than `MOST_COUNTED`: a redrive policy counts
    /// receives.
    Fresh,
    /// None.
    None,
}

impl Following {
    /// What a redrive policy of so many receives allows.
    pub(super) fn under(most_receives: Option<u32>) -> Self {
        match most_receives {
            None => Self::Any,
            Some(most) if most >= ENOUGH_RECEIVES => Self::Fresh,
            Some(_) => Self::None,
        }
    }

    fn most(self, wanted: usize) -> usize {
        match self {
            Self::Any => wanted,
            Self::Fresh => wanted.min(MOST_COUNTED),
            Self::None => 0,
        }
    }

    /// How many of a group's first messages may come together.
    fn together(self, group: &[Candidate]) -> usize {
        match self {
            Self::Any => group.len(),
            Self::Fresh => {
                let behind = group.iter().skip(1);
                1 + behind.take_while(|one| one.receives == 0).count()
            }
            Self::None => 1,
        }
    }
}

/// What a receive would take, in its order: what is open of each group, as far as `ask` wants it.
pub(super) fn find(
    turn: &Turn<'_>,
    queue: QueueId,
    ask: Ask,
    following: Following,
) -> rusqlite::Result<Candidates> {
    let sql = match ask.newest_first {
        false => READY,
        true => {
            schema::index_by_age(turn.connection)?;
            NEWEST
        }
    };
    let most = i64::try_from(ask.max).unwrap_or(i64::MAX);
    let ready: Vec<Candidate> = turn
        .connection
        .prepare_cached(sql)?
        .query_map(params![queue, turn.now, most], candidate)?
        .collect::<rusqlite::Result<_>>()?;
    let all = ready.len() < ask.max;
    let spare = match (ask.groups, ask.max.saturating_sub(ready.len())) {
        (GroupShare::Spread(beyond), spare @ 1..) if !ask.newest_first => {
            following.most(spare + beyond)
        }
        _ => 0,
    };
    let of_one = match ask.groups {
        GroupShare::Fill if !ask.newest_first => ask.max,
        _ => 1 + spare,
    };
    let mut sets = Vec::with_capacity(ready.len());
    for ready in ready {
        sets.push(match &ready.group {
            None => vec![ready],
            Some(group) => members(turn, queue, group, of_one)?,
        });
    }
    if ask.groups == GroupShare::Fill {
        let candidates: Vec<_> = sets.into_iter().flatten().take(ask.max).collect();
        let all = candidates.len() < ask.max;
        return Ok(Candidates { candidates, all });
    }
    // One of each group first; what is left goes to the first groups.
    let mut spare = spare;
    for set in &mut sets {
        let more = following.together(set).saturating_sub(1).min(spare);
        spare -= more;
        set.truncate(1 + more);
    }
    Ok(Candidates {
        candidates: sets.into_iter().flatten().collect(),
        all,
    })
}

/// What is visible at the beginning of a group.
fn members(
    turn: &Turn<'_>,
    queue: QueueId,
    group: &str,
    most: usize,
) -> rusqlite::Result<Vec<Candidate>> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut find = turn.connection.prepare_cached(MEMBERS)?;
    let rows = find.query_map(params![queue, group, most], candidate)?;
    let visible = |row: &rusqlite::Result<Candidate>| {
        row.as_ref().map_or(true, |one| one.visible_at <= turn.now)
    };
    rows.take_while(visible).collect()
}

fn message(turn: &Turn<'_>, row: &Row<'_>, name: &str) -> rusqlite::Result<Message> {
    let content = content(row, row.get(0)?, [1, 2, 3, 8])?;
    Ok(Message {
        id: content.id,
        queue: name.to_owned(),
        body: content.body,
        source: name.to_owned(),
        receipt: Receipt(String::new()),
        receive_count: u32::try_from(row.get::<_, i64>(4)?).unwrap_or(u32::MAX),
        sent_at: Some(turn.date(row.get(5)?)),
        first_received_at: row.get::<_, Option<_>>(6)?.map(|at| turn.date(at)),
        group: row.get(7)?,
        system_attributes: content.system,
        attributes: content.attributes,
        body_md5: None,
        attributes_md5: None,
        unreadable: content.unreadable.map(ContentError::Unreadable),
    })
}

/// A waiting message, unchanged and without a receipt.
pub(super) fn look_at(turn: &Turn<'_>, seq: i64, name: &str) -> rusqlite::Result<Message> {
    turn.connection
        .prepare_cached(READ_ONE)?
        .query_row(params![seq], |row| message(turn, row, name))
}

/// The message of a delivery that holds, as its receive handed it out.
pub(super) fn handed_out(
    turn: &Turn<'_>,
    delivery: LocalDelivery,
    name: &str,
) -> rusqlite::Result<Message> {
    let mut one = look_at(turn, delivery.seq, name)?;
    one.receipt = delivery.receipt();
    Ok(one)
}

/// The queues that hold something, received or not.
pub(super) fn holding(connection: &Connection) -> rusqlite::Result<BTreeSet<QueueId>> {
    let mut select = connection.prepare_cached(HOLDING)?;
    let rows = select.query_map([], |row| row.get(0))?;
    rows.collect()
}

/// When something of the queue can be received next, unless more is sent: now or in the past if
/// there is something already.
pub(super) fn next_due(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<Option<StoreTime>> {
    turn.connection
        .prepare_cached(NEXT_DUE)?
        .query_row(params![queue], |row| row.get(0))
        .optional()
}

/// The sender's attributes as `payloads` holds them; nothing for none.
pub(super) fn encode(attributes: &[Attribute]) -> Result<Option<String>, String> {
    if attributes.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(attributes)
        .map(Some)
        .map_err(|error| format!("the attributes cannot be written as JSON: {error}"))
}

/// What `encode` wrote; `column` is named in the error.
pub(super) fn decode(text: Option<&str>, column: usize) -> rusqlite::Result<Vec<Attribute>> {
    parse(text, column)
}

/// The queue's own attributes as `payloads` holds them; nothing for none.
pub(super) fn encode_system(attributes: &[(String, String)]) -> Result<Option<String>, String> {
    if attributes.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(attributes)
        .map(Some)
        .map_err(|error| format!("the system attributes cannot be written as JSON: {error}"))
}

/// What `encode_system` wrote; `column` is named in the error.
pub(super) fn decode_system(
    text: Option<&str>,
    column: usize,
) -> rusqlite::Result<Vec<(String, String)>> {
    parse(text, column)
}

fn parse<T: serde::de::DeserializeOwned>(
    text: Option<&str>,
    column: usize,
) -> rusqlite::Result<Vec<T>> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })
}

/// A UUID of version 7: sorts by time in logs, whatever the date is set to, and needs no look at
/// the file to be unique.
fn fresh_id(now: StoreTime) -> String {
    let random: [u8; 16] = fastrand::u128(..).to_le_bytes();
    let tail = random.first_chunk().expect("16 bytes have a first 10");
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(now.0).unwrap_or(0), tail)
        .into_uuid()
        .to_string()
}
