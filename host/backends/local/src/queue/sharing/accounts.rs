//! Counts what lanes pay. Of a priority, the lane that has paid least goes first; its sum is then
//! the virtual time of that priority. A lane counts as having paid at least the virtual time, so
//! that one without messages saves up nothing.

use super::LaneKey;
use crate::queue::turn::{QueueId, Turn};
use dispatcher_core::queue::sharing::{PRIORITIES, Priority};
use rusqlite::params;
use std::collections::BTreeMap;

/// The largest price of one message: more than 12 hours at weight 1.
const LARGEST_PRICE: i64 = 1 << 46;
/// The virtual time at which all sums of a priority are reduced, so that none overflows.
const TOO_LATE: i64 = 1 << 61;

/// The virtual time of each priority, and the sums of the lanes that have paid.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneAccounts {
    times: [i64; PRIORITIES],
    /// The sums of the lanes that have paid since the accounts were read.
    pub passes: BTreeMap<LaneKey, i64>,
}

impl LaneAccounts {
    /// Reads the virtual times of a queue.
    pub(super) fn read(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<Self> {
        let mut accounts = Self::default();
        let mut find = turn
            .connection
            .prepare_cached("SELECT priority, pass FROM lane_times WHERE queue = ?1")?;
        let mut rows = find.query(params![queue])?;
        while let Some(row) = rows.next()? {
            if let Some(priority) = Priority::new(row.get::<_, i64>(0)?.unsigned_abs()) {
                accounts.times[priority.index()] = row.get(1)?;
            }
        }
        Ok(accounts)
    }

    /// Returns the sum by which a lane is compared with others. `stored` is its sum in the file.
    pub(super) fn sum(&self, lane: &LaneKey, stored: i64) -> i64 {
        let pass = self.passes.get(lane).copied().unwrap_or(stored);
        pass.max(self.times[lane.priority.index()])
    }

    /// Lets a lane pay for a message. Unless it was preferred to other lanes, the virtual time is
    /// then the sum that it had.
    pub(super) fn pay(&mut self, lane: &LaneKey, stored: i64, price: u64, is_overdue: bool) {
        let sum = self.sum(lane, stored);
        if !is_overdue {
            self.times[lane.priority.index()] = sum;
        }
        let price = i64::try_from(price).map_or(LARGEST_PRICE, |price| price.min(LARGEST_PRICE));
        self.passes.insert(lane.clone(), sum.saturating_add(price));
    }

    /// Writes the virtual times of the priorities whose lanes have paid.
    pub(super) fn write_times(&self, turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<()> {
        let mut last = None;
        for lane in self.passes.keys() {
            if last.replace(lane.priority) == Some(lane.priority) {
                continue;
            }
            let mut time = self.times[lane.priority.index()];
            let number = lane.priority.number();
            if time > TOO_LATE {
                turn.connection.execute(
                    "UPDATE lanes SET pass = max(pass - ?3, 0) WHERE queue = ?1 AND priority = ?2",
                    params![queue, number, time],
                )?;
                time = 0;
            }
            turn.connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO lane_times (queue, priority, pass) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![queue, number, time])?;
        }
        Ok(())
    }
}
