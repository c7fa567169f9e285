//! Values that the core operations share: one transaction's view of the world, and how a delivery
//! is named. `now` and the connection are arguments of the core; it starts no transaction.

use super::time::StoreTime;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::Receipt;
use dispatcher_core::queue::ItemError;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;

/// The key of a queue within one file.
pub type QueueId = i64;

/// One transaction: what the core reads and writes, and what it tells of it.
pub(super) struct Turn<'a> {
    /// The database, inside a transaction.
    pub connection: &'a Connection,
    /// The store's time, the same for the whole transaction.
    pub now: StoreTime,
    /// How far the date is ahead of the store's time, in milliseconds.
    pub ahead: i64,
    /// Queues of which something can be received now, or sooner than before.
    pub stirred: BTreeSet<QueueId>,
}

impl<'a> Turn<'a> {
    /// A turn in which nothing has happened yet.
    pub(super) fn new(connection: &'a Connection, now: StoreTime) -> Self {
        Self {
            connection,
            now,
            ahead: 0,
            stirred: BTreeSet::new(),
        }
    }

    /// The date of a moment of the store's time, by the wall clock of now. A date that was set since
    /// is not the one that a clock on the wall showed then; but an age counted from it, as a
    /// route's `max-age` is, is the time that has passed.
    pub(super) fn date(&self, at: StoreTime) -> Timestamp {
        Timestamp(u64::try_from(at.0.saturating_add(self.ahead)).unwrap_or(0))
    }
}

/// One delivery: the row, and how often it had been received. The count is the fence: a receive
/// raises it, and every older receipt is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalDelivery {
    /// The row.
    pub seq: i64,
    /// The row's receive count at this delivery.
    pub count: i64,
}

impl LocalDelivery {
    /// As the port carries it: `SEQ.COUNT`.
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

/// What a delivery's row says, as far as extending and settling need it.
pub(super) struct DeliveryRow {
    /// Received and not released since.
    pub in_flight: bool,
    /// When it can be received next.
    pub visible_at: StoreTime,
    /// When it was received last.
    pub received_at: StoreTime,
    /// Its group.
    pub group: Option<String>,
}

/// Why there is no entry for a delivery.
pub(super) enum NoEntry {
    /// The message is not in the file any more.
    Vanished,
    /// The receipt is void, or of another queue.
    Void(ItemError),
}

/// The row that a delivery names, if its receipt still holds.
pub(super) fn entry(
    turn: &Turn<'_>,
    queue: QueueId,
    delivery: LocalDelivery,
) -> rusqlite::Result<Result<DeliveryRow, NoEntry>> {
    let mut find = turn.connection.prepare_cached(
        "SELECT queue, receive_count, in_flight, visible_at, received_at, message_group
         FROM entries WHERE seq = ?1",
    )?;
    let row = find
        .query_row(params![delivery.seq], |row| {
            let entry = DeliveryRow {
                in_flight: row.get(2)?,
                visible_at: row.get(3)?,
                received_at: row.get::<_, Option<_>>(4)?.unwrap_or_default(),
                group: row.get(5)?,
            };
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, entry))
        })
        .optional()?;
    let gone = |why: &str| Ok(Err(NoEntry::Void(ItemError::Gone(why.into()))));
    match row {
        None => Ok(Err(NoEntry::Vanished)),
        Some((of, ..)) if of != queue => gone("the receipt is of another queue"),
        Some((_, count, _)) if count != delivery.count => {
            gone("the message has been received again since")
        }
        Some((.., entry)) => Ok(Ok(entry)),
    }
}

/// The group of a row, if it has one.
pub(super) fn group_of(turn: &Turn<'_>, seq: i64) -> rusqlite::Result<Option<String>> {
    let group = turn
        .connection
        .prepare_cached("SELECT message_group FROM entries WHERE seq = ?1")?
        .query_row(params![seq], |row| row.get(0))
        .optional()?;
    Ok(group.flatten())
}
