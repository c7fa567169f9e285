//! Taking a message from one queue of the file to another: a dead letter, one that is given up,
//! one that is moved back. Pure steps on a connection that are told `now`.

use super::content::content;
use super::deliver::{NewEntry, encode, encode_system, insert};
use super::look::{known_id, queue_id};
use super::settings::{self, Redrive, arn};
use super::settle::remove;
use super::time::StoreTime;
use super::turn::{QueueId, Turn};
use crate::message::{Attribute, AttributeValue};
use crate::queue::{DEAD_LETTER_REASON, DEAD_LETTER_SOURCE};
use rusqlite::params;

/// The system attribute of a dead letter that says where it came from: SQS's name for it.
const FROM: &str = "DeadLetterQueueSourceArn";

/// All of a message that outlives a move.
pub struct Parcel {
    /// Its id.
    pub id: String,
    /// Its payload.
    pub body: String,
    /// The sender's attributes.
    pub attributes: Vec<Attribute>,
    /// The queue's own attributes, by name.
    pub system: Vec<(String, String)>,
    /// When it was sent.
    pub sent_at: StoreTime,
    /// Its group.
    pub group: Option<String>,
}

impl Parcel {
    /// Names the queue that it is taken from.
    pub fn say_where_from(&mut self, name: &str) {
        self.system.retain(|(known, _)| known != FROM);
        self.system.push((FROM.into(), arn(name)));
    }

    /// The queue that it was taken from, whichever of our two marks says so.
    fn came_from(&self) -> Option<&str> {
        let marked = self.system.iter().find(|(name, _)| name == FROM);
        if let Some(name) = marked.and_then(|(_, arn)| settings::named_by(arn)) {
            return Some(name);
        }
        let mut attributes = self.attributes.iter();
        let marked = attributes.find(|attribute| attribute.name == DEAD_LETTER_SOURCE)?;
        match &marked.value {
            AttributeValue::Text(text) => text.strip_prefix("local:"),
            AttributeValue::Binary(_) => None,
        }
    }

    /// Takes off what made it a dead letter.
    fn revive(&mut self, now: StoreTime) {
        self.system.retain(|(known, _)| known != FROM);
        self.attributes.retain(|attribute| {
            attribute.name != DEAD_LETTER_REASON && attribute.name != DEAD_LETTER_SOURCE
        });
        self.sent_at = now;
    }
}

/// A message as it lies in the file.
pub fn unpack(turn: &Turn<'_>, seq: i64) -> rusqlite::Result<Parcel> {
    turn.connection
        .prepare_cached(
            "SELECT p.id, p.body, p.attributes, p.system, e.sent_at, e.message_group
             FROM entries e LEFT JOIN payloads p ON p.seq = e.seq WHERE e.seq = ?1",
        )?
        .query_row(params![seq], |row| {
            let content = content(row, seq, [0, 1, 2, 3])?;
            Ok(Parcel {
                id: content.id,
                body: content.body,
                attributes: content.attributes,
                system: content.system,
                sent_at: row.get(4)?,
                group: row.get(5)?,
            })
        })
}

/// Puts it at the end of a queue: visible at once, never received there. `moved_from` is the
/// receipt with which it was taken.
pub fn post(
    turn: &mut Turn<'_>,
    target: QueueId,
    parcel: &Parcel,
    moved_from: Option<&str>,
) -> rusqlite::Result<()> {
    let unwritable = |why: String| rusqlite::Error::ToSqlConversionFailure(why.into());
    let attributes = encode(&parcel.attributes).map_err(unwritable)?;
    let system = encode_system(&parcel.system).map_err(unwritable)?;
    let new = NewEntry {
        queue: target,
        visible_at: turn.now,
        sent_at: parcel.sent_at,
        group: parcel.group.as_deref(),
        moved_from,
        system: system.as_deref(),
    };
    let (id, body) = (&parcel.id, &parcel.body);
    insert(turn, &new, id, body, attributes.as_deref()).map(drop)
}

/// Gives up a message that has been received often enough: body and attributes stay as they are.
pub fn give_up(
    turn: &mut Turn<'_>,
    queue: QueueId,
    name: &str,
    seq: i64,
    redrive: &Redrive,
) -> rusqlite::Result<()> {
    let mut parcel = unpack(turn, seq)?;
    parcel.say_where_from(name);
    let target = queue_id(turn.connection, &redrive.grave)?;
    remove(turn, queue, seq, parcel.group.as_deref())?;
    post(turn, target, &parcel, None)
}

/// Takes a dead letter to a queue, or to the one that it came from, as if it were sent now. False
/// if that one is not known any more: then it stays.
pub fn move_back(
    turn: &mut Turn<'_>,
    queue: QueueId,
    seq: i64,
    target: Option<&str>,
) -> rusqlite::Result<bool> {
    let mut parcel = unpack(turn, seq)?;
    let target = match target.or_else(|| parcel.came_from()) {
        Some(name) => known_id(turn.connection, name)?,
        None => None,
    };
    let Some(target) = target else {
        return Ok(false);
    };
    parcel.revive(turn.now);
    remove(turn, queue, seq, parcel.group.as_deref())?;
    post(turn, target, &parcel, None)?;
    Ok(true)
}
