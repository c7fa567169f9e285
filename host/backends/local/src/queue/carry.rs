//! Moves a message from one queue of the file to another: a dead letter, an exhausted message, a
//! redriven one. Its body stays where it is and is not read. Pure steps on a connection that take
//! `now` as an argument.

use super::content;
use super::deliver::{MovedPayload, NewEntry, encode, encode_system, insert};
use super::look::{known_id, queue_id};
use super::settings::{self, Redrive, arn};
use super::settle::take_out;
use super::time::StoreTime;
use super::turn::{LocalDelivery, QueueId, Turn};
use dispatcher_core::message::{Attribute, AttributeValue};
use dispatcher_core::queue::{DEAD_LETTER_REASON, DEAD_LETTER_SOURCE};
use rusqlite::params;

/// The system attribute of a dead letter that says where it came from: SQS's name for it.
const FROM: &str = "DeadLetterQueueSourceArn";

/// All of a message that outlives a move, without its body.
pub(super) struct MovedMessage {
    /// The key of its payload.
    payload: i64,
    /// The sender's attributes.
    pub attributes: Vec<Attribute>,
    /// The queue's own attributes, by name.
    pub system: Vec<(String, String)>,
    /// When it was sent.
    pub sent_at: StoreTime,
    /// Its group.
    pub group: Option<String>,
}

impl MovedMessage {
    /// Names the queue that it is taken from.
    pub(super) fn say_where_from(&mut self, name: &str) {
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

/// A message as it is in the file.
fn unpack(turn: &Turn<'_>, seq: i64) -> rusqlite::Result<MovedMessage> {
    turn.connection
        .prepare_cached(
            "SELECT coalesce(e.payload, e.seq), coalesce(e.attributes, p.attributes),
                    coalesce(e.system, p.system), e.sent_at, e.message_group
             FROM entries e LEFT JOIN payloads p ON p.seq = coalesce(e.payload, e.seq)
             WHERE e.seq = ?1",
        )?
        .query_row(params![seq], |row| {
            Ok(MovedMessage {
                payload: row.get(0)?,
                attributes: content::attributes(row, 1)?.unwrap_or_default(),
                system: content::system(row, 2)?.unwrap_or_default(),
                sent_at: row.get(3)?,
                group: row.get(4)?,
            })
        })
}

/// Takes a message out of its queue and puts it at the end of another: visible at once, never
/// received there. `receipt` is the one with which it was taken.
fn carry(
    turn: &mut Turn<'_>,
    (queue, seq): (QueueId, i64),
    target: QueueId,
    parcel: &MovedMessage,
    receipt: Option<&str>,
) -> rusqlite::Result<()> {
    let unwritable = |why: String| rusqlite::Error::ToSqlConversionFailure(why.into());
    // An empty list is written too: nothing would mean that the payload's own still count.
    let none = || "[]".to_owned();
    let attributes = encode(&parcel.attributes).map_err(unwritable)?;
    let system = encode_system(&parcel.system).map_err(unwritable)?;
    take_out(turn, queue, seq, parcel.group.as_deref())?;
    let new = NewEntry {
        queue: target,
        visible_at: turn.now,
        sent_at: parcel.sent_at,
        group: parcel.group.as_deref(),
        moved: Some(MovedPayload {
            payload: parcel.payload,
            receipt,
            attributes: &attributes.unwrap_or_else(none),
            system: &system.unwrap_or_else(none),
        }),
    };
    insert(turn, &new).map(drop)
}

/// Takes a message to a dead-letter queue, with the reason.
pub(super) fn dead_letter(
    turn: &mut Turn<'_>,
    (queue, name): (QueueId, &str),
    target: &str,
    delivery: LocalDelivery,
    reason: &str,
) -> rusqlite::Result<()> {
    let mut parcel = unpack(turn, delivery.seq)?;
    parcel.say_where_from(name);
    let attributes = &mut parcel.attributes;
    attributes.retain(|one| one.name != DEAD_LETTER_REASON && one.name != DEAD_LETTER_SOURCE);
    attributes.push(Attribute::text(DEAD_LETTER_REASON, reason));
    attributes.push(Attribute::text(DEAD_LETTER_SOURCE, format!("local:{name}")));
    let target = queue_id(turn.connection, target)?;
    let receipt = delivery.receipt();
    carry(
        turn,
        (queue, delivery.seq),
        target,
        &parcel,
        Some(&receipt.0),
    )
}

/// Gives up a message that has been received often enough: body and attributes stay as they are.
pub(super) fn give_up(
    turn: &mut Turn<'_>,
    queue: QueueId,
    name: &str,
    seq: i64,
    redrive: &Redrive,
) -> rusqlite::Result<()> {
    let mut parcel = unpack(turn, seq)?;
    parcel.say_where_from(name);
    let target = queue_id(turn.connection, &redrive.dead_letter_queue)?;
    carry(turn, (queue, seq), target, &parcel, None)
}

/// Takes a dead letter to a queue, or to the one that it came from, as if it were sent now. False
/// if that one is not known any more: then it stays.
pub(super) fn move_back(
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
    carry(turn, (queue, seq), target, &parcel, None)?;
    Ok(true)
}
