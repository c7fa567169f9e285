//! The way in and out of a queue: send and receive, as pure steps on a connection that are told
//! `now`. Knows no threads and no transactions.

use super::carry::give_up;
use super::content::content;
use super::schema;
use super::settings::redrive;
use super::time::StoreTime;
use super::turn::{Delivery, QueueId, Turn};
use crate::message::{Attribute, Message, Outgoing, Receipt};
use crate::queue::{Ask, ItemError, Received};
use rusqlite::{OptionalExtension, Row, params};

/// The longest body with its attributes, in bytes: what a row of SQLite holds (1,000,000,000),
/// less some room for the rest of the row.
const LONGEST: usize = 999_000_000;

/// So many messages are given up in one receive, and some more of one look: others wait meanwhile,
/// and a limit that was lowered may have a million of them.
const MOST_GIVEN_UP: usize = 100;

/// Waiting messages in the order of becoming visible, then of sending.
pub const READ: &str = "SELECT e.seq, p.id, p.body, p.attributes, e.receive_count, e.sent_at,
            e.first_received_at, e.message_group, p.system
     FROM entries e LEFT JOIN payloads p ON p.seq = e.seq
     WHERE e.queue = ?1 AND e.head = ?2 AND e.visible_at <= ?3
     ORDER BY e.visible_at, e.seq LIMIT ?4";
/// The same, what was sent last first. Walks past what is newer and cannot be received: what is
/// being handled, and what is delayed.
pub const READ_NEWEST: &str =
    "SELECT e.seq, p.id, p.body, p.attributes, e.receive_count, e.sent_at,
            e.first_received_at, e.message_group, p.system
     FROM entries e INDEXED BY newest LEFT JOIN payloads p ON p.seq = e.seq
     WHERE e.queue = ?1 AND e.head = ?2 AND e.visible_at <= ?3
     ORDER BY e.sent_at DESC, e.seq DESC LIMIT ?4";
/// One message.
const READ_ONE: &str = "SELECT e.seq, p.id, p.body, p.attributes, e.receive_count, e.sent_at,
            e.first_received_at, e.message_group, p.system
     FROM entries e LEFT JOIN payloads p ON p.seq = e.seq WHERE e.seq = ?1";
/// When the first of them becomes visible.
pub const NEXT_DUE: &str =
    "SELECT visible_at FROM entries WHERE queue = ?1 AND head = 1 ORDER BY visible_at LIMIT 1";
/// Whether a group has messages.
pub const GROUP_HAS: &str = "SELECT 1 FROM entries WHERE queue = ?1 AND message_group = ?2 LIMIT 1";

/// Puts messages into a queue; one answer per item, the new message's id.
pub fn send(
    turn: &mut Turn<'_>,
    queue: QueueId,
    items: &[Outgoing],
) -> rusqlite::Result<Vec<Result<String, ItemError>>> {
    items
        .iter()
        .map(|item| Ok(put(turn, queue, item, None)?.map(|(id, _)| id)))
        .collect()
}

/// Puts one message into a queue, with the queue's own attributes as `encode_system` writes them;
/// its id and its row.
pub fn put(
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
        moved_from: None,
        system,
    };
    let seq = insert(turn, &entry, &id, &item.body, attributes.as_deref())?;
    Ok(Ok((id, seq)))
}

/// What a new row says of itself.
pub struct NewEntry<'a> {
    /// Where it goes.
    pub queue: QueueId,
    /// From when it may be received.
    pub visible_at: StoreTime,
    /// When it was sent first.
    pub sent_at: StoreTime,
    /// Its group.
    pub group: Option<&'a str>,
    /// The receipt with which it was taken from another queue.
    pub moved_from: Option<&'a str>,
    /// The queue's own attributes, as `encode_system` writes them.
    pub system: Option<&'a str>,
}

/// Adds one message at the end of its queue and of its group; its row.
pub fn insert(
    turn: &mut Turn<'_>,
    new: &NewEntry<'_>,
    id: &str,
    body: &str,
    attributes: Option<&str>,
) -> rusqlite::Result<i64> {
    let head = match new.group {
        None => true,
        Some(group) => !turn
            .connection
            .prepare_cached(GROUP_HAS)?
            .exists(params![new.queue, group])?,
    };
    turn.connection
        .prepare_cached(
            "INSERT INTO entries (queue, head, visible_at, in_flight, receive_count, sent_at,
                                  message_group, moved_from)
             VALUES (?1, ?2, ?3, 0, 0, ?4, ?5, ?6)",
        )?
        .execute(params![
            new.queue,
            head,
            new.visible_at,
            new.sent_at,
            new.group,
            new.moved_from
        ])?;
    let seq = turn.connection.last_insert_rowid();
    turn.connection
        .prepare_cached(
            "INSERT INTO payloads (seq, id, body, attributes, system) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![seq, id, body, attributes, new.system])?;
    if head {
        turn.stirred.insert(new.queue);
    }
    Ok(seq)
}

/// Takes up to `ask.max` messages. Order: of becoming visible, then of sending; or by age, as
/// `ask.newest_first` says. What has been received as often as the queue's settings let it goes to
/// their dead-letter queue instead, a hundred at a time: then there may be more than was found, and
/// `next_due` says so. `wait` is the caller's affair.
pub fn receive(
    turn: &mut Turn<'_>,
    queue: QueueId,
    name: &str,
    ask: Ask,
) -> rusqlite::Result<Received> {
    let limit = redrive(turn, queue)?;
    let mut given_up = 0;
    let mut messages = loop {
        let found = find(turn, queue, name, ask)?;
        let Some(limit) = &limit else { break found };
        let (spent, good): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|(_, message)| message.receive_count >= limit.most_receives);
        if spent.is_empty() || given_up >= MOST_GIVEN_UP {
            break good;
        }
        for (seq, _) in spent {
            let bare = name.strip_prefix("local:").unwrap_or(name);
            give_up(turn, queue, bare, seq, limit)?;
            given_up += 1;
        }
    };
    let mut take = turn.connection.prepare_cached(
        "UPDATE entries SET in_flight = 1, visible_at = ?2, receive_count = ?3, received_at = ?4,
                            first_received_at = COALESCE(first_received_at, ?4)
         WHERE seq = ?1",
    )?;
    for (seq, message) in &mut messages {
        let count = i64::from(message.receive_count) + 1;
        take.execute(params![*seq, turn.now + ask.visibility, count, turn.now])?;
        message.receipt = Delivery { seq: *seq, count }.receipt();
        message.receive_count = message.receive_count.saturating_add(1);
        message.first_received_at.get_or_insert(turn.date(turn.now));
    }
    let messages: Vec<_> = messages.into_iter().map(|(_, message)| message).collect();
    Ok(Received {
        drained: messages.len() < ask.max && given_up < MOST_GIVEN_UP,
        taken: None,
        messages,
    })
}

/// What a receive would take.
fn find(
    turn: &Turn<'_>,
    queue: QueueId,
    name: &str,
    ask: Ask,
) -> rusqlite::Result<Vec<(i64, Message)>> {
    match ask.newest_first {
        false => read(turn, queue, name, true, ask.max),
        true => {
            schema::index_by_age(turn.connection)?;
            read_by(READ_NEWEST, turn, queue, name, true, ask.max)
        }
    }
}

/// Waiting messages with their rows, unchanged and without receipts: heads of their groups, or
/// those that wait behind one.
pub fn read(
    turn: &Turn<'_>,
    queue: QueueId,
    name: &str,
    head: bool,
    max: usize,
) -> rusqlite::Result<Vec<(i64, Message)>> {
    read_by(READ, turn, queue, name, head, max)
}

fn read_by(
    sql: &str,
    turn: &Turn<'_>,
    queue: QueueId,
    name: &str,
    head: bool,
    max: usize,
) -> rusqlite::Result<Vec<(i64, Message)>> {
    turn.connection
        .prepare_cached(sql)?
        .query_map(
            params![
                queue,
                head,
                turn.now,
                i64::try_from(max).unwrap_or(i64::MAX)
            ],
            |row| message(turn, row, name),
        )?
        .collect()
}

fn message(turn: &Turn<'_>, row: &Row<'_>, name: &str) -> rusqlite::Result<(i64, Message)> {
    let seq = row.get(0)?;
    let content = content(row, seq, [1, 2, 3, 8])?;
    Ok((
        seq,
        Message {
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
            unreadable: content.unreadable,
        },
    ))
}

/// The message of a delivery that holds, as its receive handed it out.
pub fn handed_out(turn: &Turn<'_>, delivery: Delivery, name: &str) -> rusqlite::Result<Message> {
    let mut find = turn.connection.prepare_cached(READ_ONE)?;
    let row = params![delivery.seq];
    let (_, mut one) = find.query_row(row, |row| message(turn, row, name))?;
    one.receipt = delivery.receipt();
    Ok(one)
}

/// When something of the queue can be received next, unless more is sent: now or in the past if
/// there is something already.
pub fn next_due(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<Option<StoreTime>> {
    turn.connection
        .prepare_cached(NEXT_DUE)?
        .query_row(params![queue], |row| row.get(0))
        .optional()
}

/// The sender's attributes as `payloads` holds them; nothing for none.
pub fn encode(attributes: &[Attribute]) -> Result<Option<String>, String> {
    if attributes.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(attributes)
        .map(Some)
        .map_err(|error| format!("the attributes cannot be written as JSON: {error}"))
}

/// What `encode` wrote; `column` is named in the error.
pub fn decode(text: Option<&str>, column: usize) -> rusqlite::Result<Vec<Attribute>> {
    parse(text, column)
}

/// The queue's own attributes as `payloads` holds them; nothing for none.
pub fn encode_system(attributes: &[(String, String)]) -> Result<Option<String>, String> {
    if attributes.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(attributes)
        .map(Some)
        .map_err(|error| format!("the system attributes cannot be written as JSON: {error}"))
}

/// What `encode_system` wrote; `column` is named in the error.
pub fn decode_system(text: Option<&str>, column: usize) -> rusqlite::Result<Vec<(String, String)>> {
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
