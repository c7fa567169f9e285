//! Sends to and receives from a queue, as pure steps on a connection that take `now` as an
//! argument. Independent of threads and transactions.

use super::content::content;
use super::schema;
use super::sharing::{self, LanePicks, QueueLanes, SharingSlot};
use super::time::StoreTime;
use super::turn::{LocalDelivery, QueueId, Turn};
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{
    Attribute, ContentError, Message, OutgoingMessage, Receipt, TRACE_HEADER,
};
use dispatcher_core::queue::sharing::SharingRules;
use dispatcher_core::queue::{Ask, GroupShare, ItemError};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The maximum bytes of a body with its attributes: what a row of SQLite holds (1,000,000,000),
/// less some room for the rest of the row.
const LONGEST: usize = 999_000_000;

/// The maximum number of messages that a receive brings behind others of their groups from a queue
/// with a redrive policy: as many as a route keeps in hand while the first of their group fails.
const MOST_COUNTED: usize = 50;
/// The number of receives that a redrive policy must allow before a message is received behind
/// others of its group. Such a message loses at most one receive without an attempt: if it goes
/// back with a message that failed, or its holder dies, it is next received as the first of its
/// group.
const ENOUGH_RECEIVES: u32 = 3;

/// Selects the columns of an entry that decide whether it is delivered. The size is known without
/// reading the content.
macro_rules! candidates {
    ($from:literal, $rest:literal) => {
        concat!(
            "SELECT e.seq, e.message_group, e.receive_count, e.in_flight, e.visible_at,
                    e.sent_at, e.first_received_at, coalesce(octet_length(p.body), 0)
                    + coalesce(octet_length(e.attributes), octet_length(p.attributes), 0)
                    + coalesce(octet_length(e.system), octet_length(p.system), 0)
             FROM entries e ",
            $from,
            " LEFT JOIN payloads p ON p.seq = coalesce(e.payload, e.seq) WHERE ",
            $rest
        )
    };
}

/// The messages that can be received, one of each group, in the order of becoming visible, then of
/// sending.
pub(super) const READY: &str = candidates!(
    "",
    "e.queue = ?1 AND e.head = 1 AND e.visible_at <= ?2 ORDER BY e.visible_at, e.seq LIMIT ?3"
);
/// The messages behind the first of their groups that are visible.
pub(super) const BEHIND: &str = candidates!(
    "",
    "e.queue = ?1 AND e.head = 0 AND e.visible_at <= ?2 ORDER BY e.visible_at, e.seq LIMIT ?3"
);
/// The messages that can be received, one of each group, the last sent first. The query walks past
/// newer messages that are in flight or delayed.
pub(super) const NEWEST: &str = candidates!(
    "INDEXED BY newest",
    "e.queue = ?1 AND e.head = 1 AND e.visible_at <= ?2
     ORDER BY e.sent_at DESC, e.seq DESC LIMIT ?3"
);
/// The messages without a group whose visibility timeout ended without an answer, the first to end
/// first.
pub(super) const UNANSWERED: &str = candidates!(
    "INDEXED BY unanswered",
    "e.queue = ?1 AND e.in_flight = 1 AND e.message_group IS NULL AND e.visible_at <= ?2
     ORDER BY e.visible_at, e.seq LIMIT ?3"
);
/// The first messages of a group.
pub(super) const MEMBERS: &str = candidates!(
    "",
    "e.queue = ?1 AND e.message_group = ?2 ORDER BY e.seq LIMIT ?3"
);
/// A message, unless it waits behind the first of its group and groups are kept in order.
pub(super) const ELIGIBLE: &str = candidates!("", "e.seq = ?1 AND (?2 OR e.head = 1)");
/// One message, without its body if that has more than so many bytes.
const READ_WITHIN: &str = "SELECT e.seq, p.id,
            CASE WHEN octet_length(p.body) <= ?2 THEN p.body ELSE '' END,
            coalesce(e.attributes, p.attributes),
            e.receive_count, e.sent_at, e.first_received_at, e.message_group,
            coalesce(e.system, p.system)
     FROM entries e LEFT JOIN payloads p ON p.seq = coalesce(e.payload, e.seq) WHERE e.seq = ?1";
/// One message with its content.
pub(super) const READ_ONE: &str =
    "SELECT e.seq, p.id, p.body, coalesce(e.attributes, p.attributes),
            e.receive_count, e.sent_at, e.first_received_at, e.message_group,
            coalesce(e.system, p.system)
     FROM entries e LEFT JOIN payloads p ON p.seq = coalesce(e.payload, e.seq) WHERE e.seq = ?1";
/// The time at which the next message of `READY` becomes visible.
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

/// Puts messages into a queue. Returns the new message's id for each item.
pub(super) fn send(
    turn: &mut Turn<'_>,
    queue: QueueId,
    items: &[OutgoingMessage],
) -> rusqlite::Result<Vec<Result<String, ItemError>>> {
    items
        .iter()
        .map(|item: &OutgoingMessage| match encode_system(&trace(item)) {
            Ok(system) => Ok(put(turn, queue, item, system.as_deref())?.map(|(id, _)| id)),
            Err(why) => Ok(Err(ItemError::Refused(why))),
        })
        .collect()
}

/// Returns the system attributes that a sender sets.
pub(super) fn trace(item: &OutgoingMessage) -> Vec<(String, String)> {
    let header = item.trace_header.iter();
    header
        .map(|header| (TRACE_HEADER.to_owned(), header.clone()))
        .collect()
}

/// Puts one message into a queue, with system attributes as `encode_system` writes them. Returns
/// its id and its row.
pub(super) fn put(
    turn: &mut Turn<'_>,
    queue: QueueId,
    item: &OutgoingMessage,
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

/// The values of a new row of `entries`.
pub(super) struct NewEntry<'a> {
    /// The queue that gets the message.
    pub queue: QueueId,
    /// The time from which it may be received.
    pub visible_at: StoreTime,
    /// The time at which it was first sent.
    pub sent_at: StoreTime,
    /// The message group.
    pub group: Option<&'a str>,
    /// The parts taken over from another queue, whose payload is kept.
    pub moved: Option<MovedPayload<'a>>,
}

/// The parts of a message that a new row takes over from another queue.
pub(super) struct MovedPayload<'a> {
    /// The key of the payload.
    pub payload: i64,
    /// The receipt with which it was received there, if it was.
    pub receipt: Option<&'a str>,
    /// The sender's attributes from now on, as `encode` writes them.
    pub attributes: &'a str,
    /// The system attributes, as `encode_system` writes them.
    pub system: &'a str,
}

/// Adds a message at the end of its queue and of its group, without its payload. Returns its row.
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
    if head || sharing::is_by_group(turn, new.queue)? {
        turn.stirred.insert(new.queue);
    }
    Ok(seq)
}

/// A message as a receive knows it before delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its row.
    pub seq: i64,
    /// The message group.
    pub group: Option<String>,
    /// The number of receives.
    pub receives: u32,
    /// Whether it was received and neither deleted nor released since. If it can be received again,
    /// its last consumer did not answer in time.
    pub in_flight: bool,
    /// The time from which it can be received.
    visible_at: StoreTime,
    sent_at: StoreTime,
    first_received_at: Option<StoreTime>,
    /// The bytes of the body and the attributes.
    pub bytes: u64,
}

impl Candidate {
    /// Returns its position in the order of a receive: by the time of becoming visible, then of
    /// sending. A message without a group whose delivery ended without an answer takes the position
    /// at which it was sent.
    fn place(&self) -> (StoreTime, i64) {
        let is_back = self.in_flight && self.group.is_none();
        (
            if is_back {
                self.sent_at
            } else {
                self.visible_at
            },
            self.seq,
        )
    }

    /// Whether the retention `kept` is over, counted from the time at which the message could first
    /// be received.
    pub(super) fn is_older_than(&self, kept: Duration, now: StoreTime) -> bool {
        let since = self.first_received_at.unwrap_or(self.visible_at);
        since.max(self.sent_at) + kept <= now
    }
}

/// Reads a row of a query for candidates.
pub(super) fn candidate(row: &Row<'_>) -> rusqlite::Result<Candidate> {
    Ok(Candidate {
        seq: row.get(0)?,
        group: row.get(1)?,
        receives: u32::try_from(row.get::<_, i64>(2)?).unwrap_or(u32::MAX),
        in_flight: row.get(3)?,
        visible_at: row.get(4)?,
        sent_at: row.get(5)?,
        first_received_at: row.get(6)?,
        bytes: u64::try_from(row.get::<_, i64>(7)?).unwrap_or(0),
    })
}

/// The limits of a consumer, and the destination of messages that are not delivered to it.
#[derive(Debug, Clone, Default)]
pub(super) struct DeliveryTerms {
    /// The queue of the same file that takes messages that are not delivered.
    pub dead_letter: Option<String>,
    /// The number of receives after which a message is not delivered if the last one was not
    /// answered.
    pub attempts: Option<u32>,
    /// The budget of bytes that the consumer may hold.
    pub budget: Option<Arc<Budget>>,
    /// Whether the answer reports dead-lettered messages. Otherwise the log reports them.
    pub reports: bool,
    /// The incarnation of the queue that the caller knows, if it is an SQS client. A queue of
    /// another incarnation delivers nothing to it. Receives in earlier queues count for such a
    /// client.
    pub client_of: Option<u32>,
    /// The rules by which messages are shared out.
    pub sharing: Option<Arc<SharingSlot>>,
}

impl DeliveryTerms {
    /// Returns the rules by which messages are shared out now, if they change the delivery.
    pub(super) fn sharing(&self) -> Option<Arc<SharingRules>> {
        self.sharing.as_ref()?.sharing()
    }
}

/// Receives one message, regardless of its position.
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

/// The messages that a receive would take.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// The messages in the order of the receive.
    pub candidates: Vec<Candidate>,
    /// Whether nothing more can be received once these are taken.
    pub all: bool,
    /// The lanes of the messages, if the receive shares messages out.
    pub picks: Option<LanePicks>,
}

/// The messages that a receive with `GroupShare::Spread` may bring behind others of their groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupFollowers {
    /// Any messages.
    Any,
    /// Messages that were never received, at most `MOST_COUNTED`, since a redrive policy counts
    /// receives.
    Fresh,
    /// No messages.
    None,
}

impl GroupFollowers {
    /// Returns the rule for a redrive policy with this maximum of receives.
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

    /// Returns how many of a group's first messages may come together.
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

/// Returns the first message of each group that can be received, and messages without a group, in
/// the order of a receive.
fn ready(turn: &Turn<'_>, queue: QueueId, ask: Ask) -> rusqlite::Result<Vec<Candidate>> {
    let most = i64::try_from(ask.max).unwrap_or(i64::MAX);
    let select = |sql: &str| -> rusqlite::Result<Vec<Candidate>> {
        turn.connection
            .prepare_cached(sql)?
            .query_map(params![queue, turn.now, most], candidate)?
            .collect()
    };
    if ask.newest_first {
        schema::index_by_age(turn.connection)?;
        return select(NEWEST);
    }
    let mut ready = select(READY)?;
    let unanswered = select(UNANSWERED)?;
    if !unanswered.is_empty() {
        ready.extend(unanswered);
        ready.sort_by_key(Candidate::place);
        ready.dedup_by_key(|one| one.seq);
        ready.truncate(ask.max);
    }
    Ok(ready)
}

/// Returns the messages that a receive would take, in its order: the visible ones of each group, as
/// many as `ask` allows.
pub(super) fn find(
    turn: &Turn<'_>,
    queue: QueueId,
    ask: Ask,
    following: GroupFollowers,
) -> rusqlite::Result<Candidates> {
    let candidates = ready(turn, queue, ask)?;
    let all = candidates.len() < ask.max;
    let ready = Candidates {
        candidates,
        all,
        picks: None,
    };
    follow(turn, queue, ask, following, ready)
}

/// Returns visible messages that wait for the first of their groups, for queues that keep no groups
/// in order.
pub(super) fn find_behind(
    turn: &Turn<'_>,
    queue: QueueId,
    max: usize,
) -> rusqlite::Result<Vec<Candidate>> {
    let most = i64::try_from(max).unwrap_or(i64::MAX);
    turn.connection
        .prepare_cached(BEHIND)?
        .query_map(params![queue, turn.now, most], candidate)?
        .collect()
}

/// Returns the messages that a receive would take from these lanes, in its order.
pub(super) fn find_shared(
    turn: &Turn<'_>,
    lanes: &QueueLanes,
    ask: Ask,
    following: GroupFollowers,
) -> rusqlite::Result<Candidates> {
    let ready = sharing::search(turn, lanes, ask)?;
    if lanes.by_group {
        return Ok(ready);
    }
    follow(turn, lanes.queue, ask, following, ready)
}

/// Adds to the first messages of groups those that may come behind them.
fn follow(
    turn: &Turn<'_>,
    queue: QueueId,
    ask: Ask,
    following: GroupFollowers,
    ready: Candidates,
) -> rusqlite::Result<Candidates> {
    let Candidates {
        candidates: ready,
        all,
        picks,
    } = ready;
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
        return Ok(Candidates {
            all: all && candidates.len() < ask.max,
            candidates,
            picks,
        });
    }
    // One message of each group comes first; the remaining places go to the first groups.
    let mut spare = spare;
    for set in &mut sets {
        let more = following.together(set).saturating_sub(1).min(spare);
        spare -= more;
        set.truncate(1 + more);
    }
    Ok(Candidates {
        candidates: sets.into_iter().flatten().collect(),
        all,
        picks,
    })
}

/// Returns the visible messages at the beginning of a group.
fn members(
    turn: &Turn<'_>,
    queue: QueueId,
    group: &str,
    most: usize,
) -> rusqlite::Result<Vec<Candidate>> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut find = turn.connection.prepare_cached(MEMBERS)?;
    let rows = find.query_map(params![queue, group, most], candidate)?;
    rows.take_while(|row: &rusqlite::Result<Candidate>| {
        row.as_ref().map_or(true, |one| one.visible_at <= turn.now)
    })
    .collect()
}

/// Reads a message, and its number of receives in queues whose redrive policies moved it on.
pub(super) fn message(
    turn: &Turn<'_>,
    row: &Row<'_>,
    name: &str,
) -> rusqlite::Result<(Message, u32)> {
    let mut content = content(row, row.get(0)?, [1, 2, 3, 8])?;
    let before = take_received_before(&mut content.system);
    let message = Message {
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
    };
    Ok((message, before))
}

/// The system attribute in which a moved message keeps its number of receives in earlier queues.
/// Consumers do not see it.
pub(super) const RECEIVED_BEFORE: &str = "ReceivedBefore";

/// Removes `RECEIVED_BEFORE` from the system attributes and returns its number.
pub(super) fn take_received_before(system: &mut Vec<(String, String)>) -> u32 {
    let at = system.iter().position(|(name, _)| name == RECEIVED_BEFORE);
    at.and_then(|at| system.remove(at).1.parse().ok())
        .unwrap_or(0)
}

/// Reads a waiting message, unchanged and without a receipt.
pub(super) fn look_at(turn: &Turn<'_>, seq: i64, name: &str) -> rusqlite::Result<Message> {
    let mut read = turn.connection.prepare_cached(READ_ONE)?;
    read.query_row(params![seq], |row| Ok(message(turn, row, name)?.0))
}

/// Reads a waiting message, without its body if that has more than `longest` bytes.
pub(super) fn look_within(turn: &Turn<'_>, seq: i64, longest: u64) -> rusqlite::Result<Message> {
    let longest = i64::try_from(longest).unwrap_or(i64::MAX);
    let mut read = turn.connection.prepare_cached(READ_WITHIN)?;
    read.query_row(params![seq, longest], |row| Ok(message(turn, row, "")?.0))
}

/// Returns the message of a valid delivery, as its receive returned it to an SQS client.
pub(super) fn handed_out(
    turn: &Turn<'_>,
    delivery: LocalDelivery,
    name: &str,
) -> rusqlite::Result<Message> {
    let mut read = turn.connection.prepare_cached(READ_ONE)?;
    let (mut one, before) =
        read.query_row(params![delivery.seq], |row| message(turn, row, name))?;
    one.receipt = delivery.receipt();
    one.receive_count += before;
    Ok(one)
}

/// Returns the queues that have messages, received or not.
pub(super) fn holding(connection: &Connection) -> rusqlite::Result<BTreeSet<QueueId>> {
    let mut select = connection.prepare_cached(HOLDING)?;
    let rows = select.query_map([], |row| row.get(0))?;
    rows.collect()
}

/// Returns when the next message of the queue can be received if no more are sent: now or in the
/// past if one can be received already.
pub(super) fn next_due(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<Option<StoreTime>> {
    turn.connection
        .prepare_cached(NEXT_DUE)?
        .query_row(params![queue], |row| row.get(0))
        .optional()
}

/// Encodes the sender's attributes for `payloads`; `None` if there are none.
pub(super) fn encode(attributes: &[Attribute]) -> Result<Option<String>, String> {
    if attributes.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(attributes)
        .map(Some)
        .map_err(|error| format!("the attributes cannot be written as JSON: {error}"))
}

/// Decodes what `encode` wrote. The error names `column`.
pub(super) fn decode(text: Option<&str>, column: usize) -> rusqlite::Result<Vec<Attribute>> {
    parse(text, column)
}

/// Encodes the system attributes for `payloads`; `None` if there are none.
pub(super) fn encode_system(attributes: &[(String, String)]) -> Result<Option<String>, String> {
    if attributes.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(attributes)
        .map(Some)
        .map_err(|error| format!("the system attributes cannot be written as JSON: {error}"))
}

/// Decodes what `encode_system` wrote. The error names `column`.
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

/// Returns a UUID of version 7. It sorts by time in logs, regardless of the system's date, and is
/// unique without reading the file.
fn fresh_id(now: StoreTime) -> String {
    let random: [u8; 16] = fastrand::u128(..).to_le_bytes();
    let tail = random.first_chunk().expect("16 bytes have a first 10");
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(now.0).unwrap_or(0), tail)
        .into_uuid()
        .to_string()
}
