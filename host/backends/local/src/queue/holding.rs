//! What SQS lets a consumer do with a delivery, where it differs from the port: a late delete, an
//! expired visibility timeout, and the repetition of a receive. Pure steps on a connection that
//! take `now` as an argument.

use super::deliver::handed_out;
use super::settle::{postpone, remove};
use super::time::StoreTime;
use super::turn::{LocalDelivery, NoEntry, QueueId, Turn, entry};
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::VISIBILITY_CEILING;
use rusqlite::params;
use std::time::Duration;

/// Why a delivery could not be deleted or kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleRefusal {
    /// The receipt is not ours, or of another queue.
    Unreadable,
    /// The delivery is over: its time expired, or the message has been received again.
    Expired,
    /// The message is not there any more.
    Vanished,
    /// It can be received by anybody.
    Visible,
    /// It would be invisible for more than 12 hours.
    BeyondCeiling,
}

/// Ends a delivery. On a queue without order one that is over is no error, and its message is
/// deleted unless it was received again; on one with order it is one.
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

/// Whether the message is in the file, and not in this queue.
fn of_another(turn: &Turn<'_>, queue: QueueId, delivery: LocalDelivery) -> rusqlite::Result<bool> {
    turn.connection
        .prepare_cached("SELECT 1 FROM entries WHERE seq = ?1 AND queue <> ?2")?
        .exists(params![delivery.seq, queue])
}

/// Keeps a delivery invisible for this long from now; for no time gives it back.
pub(super) fn change_visibility(
    turn: &mut Turn<'_>,
    queue: QueueId,
    receipt: &Receipt,
    more: Duration,
) -> rusqlite::Result<Result<(), SettleRefusal>> {
    let Ok(delivery) = LocalDelivery::parse(receipt) else {
        return Ok(Err(SettleRefusal::Unreadable));
    };
    if of_another(turn, queue, delivery)? {
        return Ok(Err(SettleRefusal::Unreadable));
    }
    let entry = match entry(turn, queue, delivery)? {
        Ok(entry) => entry,
        Err(NoEntry::Vanished) => return Ok(Err(SettleRefusal::Vanished)),
        Err(NoEntry::Void(_)) => return Ok(Err(SettleRefusal::Expired)),
    };
    if !entry.in_flight || entry.visible_at <= turn.now {
        return Ok(Err(SettleRefusal::Visible));
    }
    let until = turn.now + more;
    if until > entry.received_at + VISIBILITY_CEILING {
        return Ok(Err(SettleRefusal::BeyondCeiling));
    }
    // Still received: until somebody else receives it, this receipt may delete it.
    postpone(turn, queue, delivery, true, until)?;
    if until < entry.visible_at {
        turn.stirred.insert(queue);
    }
    Ok(Ok(()))
}

/// Keeps these deliveries for this long from now as if they were received now, if all of them are as
/// their receive left them, invisible until `until`: nothing deleted, nothing changed, nothing
/// over. Their messages, and the new `until`, a moment of the store's time.
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

/// Until when a delivery is invisible, if it is not over.
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
