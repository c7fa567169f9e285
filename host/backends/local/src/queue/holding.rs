//! Operations on a delivery for which SQS differs from the port: a late delete, an expired
//! visibility timeout, and the repetition of a receive. Pure steps on a connection that take `now`
//! as an argument.

use super::deliver::handed_out;
use super::settle::{postpone, remove};
use super::time::StoreTime;
use super::turn::{LocalDelivery, NoEntry, QueueId, Turn, entry, row};
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::VISIBILITY_CEILING;
use rusqlite::params;
use std::time::Duration;

/// The reason why a delivery could not be deleted, or its visibility not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleRefusal {
    /// The receipt is not valid, or belongs to another queue.
    Unreadable,
    /// The delivery is over: its visibility timeout ended, or the message has been received again.
    Expired,
    /// The message no longer exists.
    Vanished,
    /// The message is visible to all consumers.
    Visible,
    /// The message would be invisible for more than 12 hours.
    BeyondCeiling,
}

/// Ends a delivery. On a standard queue, a delivery that is over is not an error; its message is
/// deleted unless it was received again. On a FIFO queue it is an error.
pub(super) fn delete(
    turn: &mut Turn<'_>,
    queue: QueueId,
    receipt: &Receipt,
    ordered: bool,
) -> rusqlite::Result<Result<(), SettleRefusal>> {
    let Ok(delivery) = LocalDelivery::parse(receipt) else {
        return Ok(Err(SettleRefusal::Unreadable));
    };
    if of_another(turn, queue, delivery)? {
        return Ok(Err(SettleRefusal::Unreadable));
    }
    match entry(turn, queue, delivery)? {
        Ok(entry) if ordered && entry.visible_at <= turn.now => Ok(Err(SettleRefusal::Expired)),
        Ok(entry) => {
            remove(turn, queue, delivery.seq, entry.group.as_deref())?;
            Ok(Ok(()))
        }
        Err(NoEntry::Void(_)) if ordered => Ok(Err(SettleRefusal::Expired)),
        Err(_) => Ok(Ok(())),
    }
}

/// Whether the message is in another queue of the file.
fn of_another(turn: &Turn<'_>, queue: QueueId, delivery: LocalDelivery) -> rusqlite::Result<bool> {
    turn.connection
        .prepare_cached("SELECT 1 FROM entries WHERE seq = ?1 AND queue <> ?2")?
        .exists(params![delivery.seq, queue])
}

/// Makes a delivery invisible for `more` from now; zero releases it. A standard queue accepts any
/// receipt of the message, also after its visibility timeout, but changes nothing while a newer
/// delivery holds the message. A FIFO queue accepts only the latest receipt, and only until its
/// timeout ends.
pub(super) fn change_visibility(
    turn: &mut Turn<'_>,
    queue: QueueId,
    receipt: &Receipt,
    more: Duration,
    ordered: bool,
) -> rusqlite::Result<Result<(), SettleRefusal>> {
    let Ok(delivery) = LocalDelivery::parse(receipt) else {
        return Ok(Err(SettleRefusal::Unreadable));
    };
    if of_another(turn, queue, delivery)? {
        return Ok(Err(SettleRefusal::Unreadable));
    }
    let Some(entry) = row(turn, delivery.seq)? else {
        return Ok(Err(SettleRefusal::Vanished));
    };
    if entry.count < delivery.count {
        return Ok(Err(SettleRefusal::Unreadable));
    }
    if ordered && entry.count != delivery.count {
        return Ok(Err(SettleRefusal::Expired));
    }
    if ordered && (!entry.in_flight || entry.visible_at <= turn.now) {
        return Ok(Err(SettleRefusal::Visible));
    }
    let is_held_by_another = entry.in_flight && entry.visible_at > turn.now;
    if entry.count != delivery.count && is_held_by_another {
        // SQS accepts the older receipt; the newer delivery keeps its timeout.
        return Ok(Ok(()));
    }
    let until = turn.now + more;
    if until > entry.received_at + VISIBILITY_CEILING {
        return Ok(Err(SettleRefusal::BeyondCeiling));
    }
    // The message stays in flight: until another consumer receives it, this receipt may delete it.
    postpone(turn, queue, delivery, true, until)?;
    if until < entry.visible_at {
        turn.stirred.insert(queue);
    }
    Ok(Ok(()))
}

/// Makes these deliveries invisible for `visibility` from now, as if they were received now, if all
/// of them are as their receive left them, invisible until `until`: none deleted, changed or over.
/// Returns their messages and the new `until`, in the store's time.
pub(super) fn take_again(
    turn: &mut Turn<'_>,
    (queue, name): (QueueId, &str),
    receipts: &[Receipt],
    until: StoreTime,
    visibility: Duration,
) -> rusqlite::Result<Option<(Vec<Message>, StoreTime)>> {
    let mut deliveries = Vec::new();
    for receipt in receipts {
        let Ok(delivery) = LocalDelivery::parse(receipt) else {
            return Ok(None);
        };
        match entry(turn, queue, delivery)? {
            Ok(entry) if entry.in_flight && entry.visible_at == until && until > turn.now => {
                deliveries.push(delivery);
            }
            _ => return Ok(None),
        }
    }
    let until = turn.now + visibility;
    let mut messages = Vec::new();
    for delivery in deliveries {
        messages.push(handed_out(turn, delivery, name)?);
        postpone(turn, queue, delivery, true, until)?;
    }
    Ok(Some((messages, until)))
}

/// Returns until when a delivery is invisible, or `None` if it is over.
pub(super) fn until(
    turn: &Turn<'_>,
    queue: QueueId,
    receipt: &Receipt,
) -> rusqlite::Result<Option<StoreTime>> {
    let Ok(delivery) = LocalDelivery::parse(receipt) else {
        return Ok(None);
    };
    Ok(entry(turn, queue, delivery)?
        .ok()
        .map(|entry| entry.visible_at))
}
