//! Extends and settles a delivery after its receive: extend, delete, release, dead-letter. Pure
//! steps on a connection that take `now` as an argument. Independent of threads and transactions.

use super::carry;
use super::groups::set_head;
use super::time::StoreTime;
use super::turn::{LocalDelivery, NoEntry, QueueId, Turn, entry, group_of};
use dispatcher_core::message::Outcome;
use dispatcher_core::queue::{ItemError, VISIBILITY_CEILING};
use rusqlite::{OptionalExtension, params};
use std::time::Duration;

/// Whether a delivery was dead-lettered before.
pub(super) const MOVED: &str = "SELECT 1 FROM entries WHERE moved_from = ?1";

/// The answer to one item of a call.
pub(super) type SettleResult = Result<(), ItemError>;

/// The queue whose deliveries are settled, and its dead-letter queue.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// The key of the queue.
    pub id: QueueId,
    /// The name of the queue, as the configuration writes it.
    pub name: String,
    /// The dead-letter queue's name within the same file.
    pub dead_letter: Option<String>,
}

/// Makes a delivery invisible for `more` from now.
pub(super) fn extend(
    turn: &mut Turn<'_>,
    queue: QueueId,
    delivery: LocalDelivery,
    more: Duration,
) -> rusqlite::Result<SettleResult> {
    let entry = match entry(turn, queue, delivery)? {
        Ok(entry) if entry.in_flight => entry,
        Ok(_) => return Ok(released()),
        Err(lost) => return Ok(Err(gone(lost))),
    };
    let until = turn.now + more;
    if until > entry.received_at + VISIBILITY_CEILING {
        return Ok(Err(ItemError::Refused(format!(
            "{more:?} more would keep the message invisible beyond {} h after its receive",
            VISIBILITY_CEILING.as_secs() / 3600
        ))));
    }
    postpone(turn, queue, delivery, true, until)?;
    if until < entry.visible_at {
        turn.stirred.insert(queue);
    }
    Ok(Ok(()))
}

/// Ends a delivery.
pub(super) fn settle(
    turn: &mut Turn<'_>,
    origin: &Origin,
    delivery: LocalDelivery,
    outcome: &Outcome,
) -> rusqlite::Result<SettleResult> {
    let entry = match entry(turn, origin.id, delivery)? {
        Ok(entry) => entry,
        Err(NoEntry::Vanished) => return vanished(turn, delivery, outcome),
        Err(lost) => return Ok(Err(gone(lost))),
    };
    match outcome {
        Outcome::Release(_) if !entry.in_flight => return Ok(Ok(())),
        _ if !entry.in_flight => return Ok(released()),
        Outcome::Delete => remove(turn, origin.id, delivery.seq, entry.group.as_deref())?,
        Outcome::Release(after) => {
            postpone(turn, origin.id, delivery, false, turn.now + *after)?;
            turn.stirred.insert(origin.id);
        }
        Outcome::DeadLetter(reason) => {
            let Some(target) = &origin.dead_letter else {
                return Ok(Err(ItemError::Refused(format!(
                    "`{}` has no dead-letter queue",
                    origin.name
                ))));
            };
            carry::dead_letter(turn, (origin.id, &origin.name), target, delivery, reason)?;
        }
    }
    Ok(Ok(()))
}

/// Settles a message that no longer exists: harmless if this delivery was settled with this outcome
/// before.
fn vanished(
    turn: &Turn<'_>,
    delivery: LocalDelivery,
    outcome: &Outcome,
) -> rusqlite::Result<SettleResult> {
    let done = match outcome {
        Outcome::Delete => true,
        Outcome::Release(_) => false,
        Outcome::DeadLetter(_) => turn
            .connection
            .prepare_cached(MOVED)?
            .exists(params![delivery.receipt().0])?,
    };
    Ok(if done {
        Ok(())
    } else {
        Err(gone(NoEntry::Vanished))
    })
}

fn gone(lost: NoEntry) -> ItemError {
    match lost {
        NoEntry::Vanished => ItemError::Gone("the message has been settled and is gone".into()),
        NoEntry::Void(error) => error,
    }
}

fn released() -> SettleResult {
    Err(ItemError::Gone("the message has been released".into()))
}

/// Sets the time from which a message can be received.
pub(super) fn postpone(
    turn: &mut Turn<'_>,
    queue: QueueId,
    delivery: LocalDelivery,
    in_flight: bool,
    until: StoreTime,
) -> rusqlite::Result<()> {
    turn.connection
        .prepare_cached("UPDATE entries SET in_flight = ?2, visible_at = ?3 WHERE seq = ?1")?
        .execute(params![delivery.seq, in_flight, until])?;
    let group = group_of(turn, delivery.seq)?;
    regroup(turn, queue, group.as_deref())
}

/// Deletes a message from the file. The next message of its group moves up.
pub(super) fn remove(
    turn: &mut Turn<'_>,
    queue: QueueId,
    seq: i64,
    group: Option<&str>,
) -> rusqlite::Result<()> {
    let payload: Option<i64> = turn
        .connection
        .prepare_cached("SELECT coalesce(payload, seq) FROM entries WHERE seq = ?1")?
        .query_row(params![seq], |row| row.get(0))
        .optional()?;
    turn.connection
        .prepare_cached("DELETE FROM payloads WHERE seq = ?1")?
        .execute(params![payload])?;
    take_out(turn, queue, seq, group)
}

/// Takes a message out of its queue. The next message of its group moves up; the payload stays.
pub(super) fn take_out(
    turn: &mut Turn<'_>,
    queue: QueueId,
    seq: i64,
    group: Option<&str>,
) -> rusqlite::Result<()> {
    turn.connection
        .prepare_cached("DELETE FROM entries WHERE seq = ?1")?
        .execute(params![seq])?;
    regroup(turn, queue, group)
}

fn regroup(turn: &mut Turn<'_>, queue: QueueId, group: Option<&str>) -> rusqlite::Result<()> {
    if let Some(group) = group
        && set_head(turn, queue, group)?
    {
        turn.stirred.insert(queue);
    }
    Ok(())
}
