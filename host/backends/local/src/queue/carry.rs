//! Moves a message from one queue of the file to another: a dead letter, a message that was
//! received too often, or a redriven one. The body is neither moved nor read. Pure steps on a
//! connection that take `now` as an argument.

use super::content;
use super::deliver::{
    MovedPayload, NewEntry, RECEIVED_BEFORE, encode, encode_system, insert, take_received_before,
};
use super::look::{known_id, queue_id};
use super::settings::{self, Redrive, arn};
use super::settle::take_out;
use super::time::StoreTime;
use super::turn::{LocalDelivery, QueueId, Turn};
use dispatcher_core::message::{Attribute, AttributeValue};
use dispatcher_core::queue::{DEAD_LETTER_REASON, DEAD_LETTER_SOURCE};
use rusqlite::params;

/// The system attribute that names the source queue of a dead letter, as SQS calls it.
const FROM: &str = "DeadLetterQueueSourceArn";

/// The parts of a message that a move preserves, except its body.
pub(super) struct MovedMessage {
    /// The key of its payload.
    payload: i64,
    /// The sender's attributes.
    pub attributes: Vec<Attribute>,
    /// The system attributes, by name.
    pub system: Vec<(String, String)>,
    /// The time at which it was sent.
    pub sent_at: StoreTime,
    /// The message group.
    pub group: Option<String>,
    /// The number of receives, in this queue and in those whose redrive policies moved it here.
    receives: u32,
}

impl MovedMessage {
    /// Records the queue from which the message is taken.
    pub(super) fn say_where_from(&mut self, name: &str) {
        self.system.retain(|(known, _)| known != FROM);
        self.system.push((FROM.into(), arn(name)));
    }

    /// Returns the queue from which the message was taken, according to the system attribute or
    /// else the message attribute.
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

    /// Removes the marks of a dead letter and sets the time of sending to `now`.
    fn revive(&mut self, now: StoreTime) {
        self.system.retain(|(known, _)| known != FROM);
        self.attributes.retain(|attribute| {
            attribute.name != DEAD_LETTER_REASON && attribute.name != DEAD_LETTER_SOURCE
        });
        self.sent_at = now;
    }
}

/// Reads a message from the file, without its body.
fn unpack(turn: &Turn<'_>, seq: i64) -> rusqlite::Result<MovedMessage> {
    turn.connection
        .prepare_cached(
            "SELECT coalesce(e.payload, e.seq), coalesce(e.attributes, p.attributes),
                    coalesce(e.system, p.system), e.sent_at, e.message_group, e.receive_count
             FROM entries e LEFT JOIN payloads p ON p.seq = coalesce(e.payload, e.seq)
             WHERE e.seq = ?1",
        )?
        .query_row(params![seq], |row| {
            let mut system = content::system(row, 2)?.unwrap_or_default();
            let before = take_received_before(&mut system);
            Ok(MovedMessage {
                payload: row.get(0)?,
                attributes: content::attributes(row, 1)?.unwrap_or_default(),
                system,
                sent_at: row.get(3)?,
                group: row.get(4)?,
                receives: before.saturating_add(row.get(5)?),
            })
        })
}

/// Takes a message out of its queue and puts it at the end of another, where it is visible at once
/// and counts as never received. `receipt` is the receipt with which it was received.
fn carry(
    turn: &mut Turn<'_>,
    (queue, seq): (QueueId, i64),
    target: QueueId,
    parcel: &MovedMessage,
    receipt: Option<&str>,
) -> rusqlite::Result<()> {
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
            // An empty list is written too: NULL would mean that the payload's attributes still
            // apply.
            attributes: attributes.as_deref().unwrap_or("[]"),
            system: system.as_deref().unwrap_or("[]"),
        }),
    };
    insert(turn, &new).map(drop)
}

fn unwritable(why: String) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(why.into())
}

/// Moves a message to a dead-letter queue, with the reason.
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

/// Dead-letters a message that was received too often. Its body and attributes stay as they are.
/// SQS clients see the sum of its receives in both queues.
pub(super) fn give_up(
    turn: &mut Turn<'_>,
    queue: QueueId,
    name: &str,
    seq: i64,
    redrive: &Redrive,
) -> rusqlite::Result<()> {
    let mut parcel = unpack(turn, seq)?;
    parcel.say_where_from(name);
    let receives = parcel.receives.to_string();
    parcel.system.push((RECEIVED_BEFORE.into(), receives));
    let target = queue_id(turn.connection, &redrive.dead_letter_queue)?;
    carry(turn, (queue, seq), target, &parcel, None)
}

/// The reasons why a dead letter cannot be moved, in SQS's words.
pub(super) const NO_QUEUE: &str = "AWS.SimpleQueueService.NonExistentQueue";
const NO_SOURCE: &str = "CouldNotDetermineMessageSource";

/// Moves a dead letter to `target`, or else to the queue that it came from, as if it were sent now.
/// If that queue does not exist, or the message does not name it, the message stays and the error
/// says why.
pub(super) fn move_back(
    turn: &mut Turn<'_>,
    queue: QueueId,
    seq: i64,
    target: Option<&str>,
) -> rusqlite::Result<Result<(), &'static str>> {
    let mut parcel = unpack(turn, seq)?;
    let Some(name) = target.or_else(|| parcel.came_from()) else {
        return Ok(Err(NO_SOURCE));
    };
    let Some(target) = known_id(turn.connection, name)? else {
        return Ok(Err(NO_QUEUE));
    };
    parcel.revive(turn.now);
    carry(turn, (queue, seq), target, &parcel, None)?;
    Ok(Ok(()))
}
