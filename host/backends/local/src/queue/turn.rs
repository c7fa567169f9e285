//! Values that the core operations share: the state of one transaction, and the name of a delivery.
//! `now` and the connection are arguments of the core, which begins no transaction.

use super::sharing::{AssignmentRules, SharingSlot};
use super::time::StoreTime;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::Receipt;
use dispatcher_core::queue::ItemError;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The key of a queue within one file.
pub type QueueId = i64;

/// One transaction: the input of the core's operations and what they report.
pub(super) struct Turn<'a> {
    /// The database, inside a transaction.
    pub connection: &'a Connection,
    /// The store's time, the same for the whole transaction.
    pub now: StoreTime,
    /// The milliseconds by which the date is ahead of the store's time.
    pub ahead: i64,
    /// The queues from which a message can be received now, or sooner than before.
    pub stirred: BTreeSet<QueueId>,
    /// The queues that were deleted. Receives that wait for them get nothing from the next queue of
    /// the name.
    pub deleted: BTreeSet<QueueId>,
    /// The rules that are in the file once the transaction is committed, and who has set them.
    pub written: Vec<(Arc<SharingSlot>, AssignmentRules)>,
}

impl<'a> Turn<'a> {
    /// Creates a turn without reports.
    pub(super) fn new(connection: &'a Connection, now: StoreTime) -> Self {
        Self {
            connection,
            now,
            ahead: 0,
            stirred: BTreeSet::new(),
            deleted: BTreeSet::new(),
            written: Vec::new(),
        }
    }

    /// Returns the date of a moment of the store's time, by the current wall clock. If the date was
    /// set since, the wall clock showed another one then; but an age counted from the returned
    /// date, such as a route's `max-age`, is the time that has passed.
    pub(super) fn date(&self, at: StoreTime) -> Timestamp {
        Timestamp(u64::try_from(at.0.saturating_add(self.ahead)).unwrap_or(0))
    }
}

/// A delivery: the row, and its number of receives. The count is the fence: a receive raises it,
/// which voids every older receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalDelivery {
    /// The row.
    pub seq: i64,
    /// The row's receive count at this delivery.
    pub count: i64,
}

impl LocalDelivery {
    /// Returns the receipt for the port: `SEQ.COUNT`.
    pub(super) fn receipt(self) -> Receipt {
        Receipt(format!("{}.{}", self.seq, self.count))
    }

    /// Reads a receipt that `receipt` wrote.
    pub(super) fn parse(receipt: &Receipt) -> Result<Self, ItemError> {
        let text = &receipt.0;
        text.split_once('.')
            .and_then(|(seq, count)| {
                Some(Self {
                    seq: seq.parse().ok()?,
                    count: count.parse().ok()?,
                })
            })
            .ok_or_else(|| {
                ItemError::Refused(format!("`{text}` is not a receipt of the local queue"))
            })
    }
}

/// The part of a delivery's row that extending and settling need.
pub(super) struct DeliveryRow {
    /// The queue of the message.
    pub queue: QueueId,
    /// The number of receives in this queue.
    pub count: i64,
    /// Whether it was received and not released since.
    pub in_flight: bool,
    /// The time at which it can be received next.
    pub visible_at: StoreTime,
    /// The time of the last receive.
    pub received_at: StoreTime,
    /// The message group.
    pub group: Option<String>,
}

/// The reason why there is no entry for a delivery.
pub(super) enum NoEntry {
    /// The message is no longer in the file.
    Vanished,
    /// The receipt is void, or belongs to another queue.
    Void(ItemError),
}

/// Returns the row of a delivery if its receipt is still valid.
pub(super) fn entry(
    turn: &Turn<'_>,
    queue: QueueId,
    delivery: LocalDelivery,
) -> rusqlite::Result<Result<DeliveryRow, NoEntry>> {
    match row(turn, delivery.seq)? {
        None => Ok(Err(NoEntry::Vanished)),
        Some(row) if row.queue != queue => Ok(Err(void("the receipt is of another queue"))),
        Some(row) if row.count != delivery.count => {
            Ok(Err(void("the message has been received again since")))
        }
        Some(row) => Ok(Ok(row)),
    }
}

fn void(why: &str) -> NoEntry {
    NoEntry::Void(ItemError::Gone(why.into()))
}

/// Returns the row of a message, for any of its receipts.
pub(super) fn row(turn: &Turn<'_>, seq: i64) -> rusqlite::Result<Option<DeliveryRow>> {
    let mut find = turn.connection.prepare_cached(
        "SELECT queue, receive_count, in_flight, visible_at, received_at, message_group
         FROM entries WHERE seq = ?1",
    )?;
    find.query_row(params![seq], |row| {
        Ok(DeliveryRow {
            queue: row.get(0)?,
            count: row.get(1)?,
            in_flight: row.get(2)?,
            visible_at: row.get(3)?,
            received_at: row.get::<_, Option<_>>(4)?.unwrap_or_default(),
            group: row.get(5)?,
        })
    })
    .optional()
}

/// Returns the group of a row, if it has one.
pub(super) fn group_of(turn: &Turn<'_>, seq: i64) -> rusqlite::Result<Option<String>> {
    let group = turn
        .connection
        .prepare_cached("SELECT message_group FROM entries WHERE seq = ?1")?
        .query_row(params![seq], |row| row.get(0))
        .optional()?;
    Ok(group.flatten())
}
