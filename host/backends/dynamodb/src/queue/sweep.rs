//! Background work: releases the tasks of dead workers, and counts those that expired before they
//! were received.

use super::census::{KeyCount, PAGE, PageCount};
use super::item::{self, CREATED, EXPIRES, STATUS, TASK_ID, TOKEN, TTL, TaskItem, UNTIL};
use super::status::{PENDING, TAKEN};
use super::table::{ConditionalStep, IndexPage, Seek, StepResult, Table, steps};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::queue::QueueError;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The interval between two checks of `TAKEN` tasks if no lease is known to expire earlier.
const EVERY: Duration = Duration::from_secs(10);
/// The shortest interval between two checks.
const SELDOM: Duration = Duration::from_millis(500);
/// The time after the end of a lease at which another process takes the task over. It allows for
/// clocks that differ between machines. If they differ by more than this margin plus the rest of a
/// healthy worker's lease (at least half of the visibility timeout), a task may run twice at once.
/// It is never settled twice, since settling checks the fence token and no time.
pub(super) const MARGIN: Duration = Duration::from_secs(2);
/// The maximum number of pages of 1 MB that one sweep reads for each key.
const MOST_PAGES: usize = 10;
/// The maximum number of tasks that are put back concurrently.
const AT_ONCE: usize = 25;
/// The interval between two reads of the number of index keys that other processes use.
const AGREE: Duration = Duration::from_secs(60);

const PUT_BACK: &str = "SET #status = :pending, #updated = :date REMOVE #until";
const ORPHANED: &str = "#status = :from AND #token = :token AND #until <= :limit";
const NAMES: &[(&str, &str)] = &[("#token", TOKEN), ("#until", UNTIL)];

/// The sweep of one table by one process.
#[derive(Debug)]
pub(super) struct Sweeper {
    table: Arc<Table>,
    state: Mutex<SweepState>,
    /// The lock that a running sweep holds.
    under_way: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct SweepState {
    /// The time of the next check of `TAKEN` tasks.
    next: BootInstant,
    /// The time of the next check for expired `PENDING` tasks.
    next_old: BootInstant,
    /// The time of the next read of the number of index keys.
    next_agreement: BootInstant,
    /// For each key, the position after the last check of `TAKEN` tasks that did not read all of
    /// them.
    rests: HashMap<String, TaskItem>,
    censuses: HashMap<String, KeyCount>,
    expired: u64,
}

impl Sweeper {
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self {
            state: Mutex::new(SweepState {
                // Opening the table has just read it.
                next_agreement: clock::now() + AGREE,
                ..SweepState::default()
            }),
            table,
            under_way: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, SweepState> {
        self.state.lock()
    }

    /// Returns when the next sweep is due.
    pub(super) fn due(&self) -> BootInstant {
        self.state().next
    }

    /// Notes a time at which a lease ends, unless it is extended.
    pub(super) fn note(&self, until: Timestamp) {
        let wait = (until + MARGIN).since(clock::wall_clock_now()).max(SELDOM);
        let at = clock::now() + wait;
        let mut state = self.state();
        state.next = state.next.min(at);
    }

    /// Sweeps if a sweep is due. Returns at once while another sweep runs. Fails only if the table
    /// cannot be read; a task that cannot be put back is logged, and the next sweep retries it.
    pub(super) async fn run(&self) -> Result<(), QueueError> {
        let Ok(_one) = self.under_way.try_lock() else {
            return Ok(());
        };
        let now = clock::now();
        let (old, agree) = {
            let mut state = self.state();
            if now < state.next {
                return Ok(());
            }
            state.next = now + EVERY;
            let SweepState {
                next_old,
                next_agreement,
                ..
            } = &mut *state;
            (
                again(next_old, EVERY, now),
                again(next_agreement, AGREE, now),
            )
        };
        if agree {
            self.table.agree().await?;
        }
        for key in self.table.shards.keys(TAKEN) {
            self.put_back(key).await?;
        }
        if old {
            for key in self.table.shards.keys(PENDING) {
                self.count_expired(key).await?;
            }
        }
        Ok(())
    }

    /// Puts back the tasks of this key whose lease has expired. If there are more pages than one
    /// sweep may read, the next sweep continues there.
    async fn put_back(&self, key: String) -> Result<(), QueueError> {
        let mut seek = Seek {
            limit: None,
            columns: &[TASK_ID, STATUS, TOKEN, UNTIL],
            after: self.state().rests.remove(&key),
            ..Seek::newest(key, 1)
        };
        for _ in 0..MOST_PAGES {
            let page = self.table.page(&seek).await?;
            let today = clock::wall_clock_now();
            let found = page.items.iter().filter_map(|item| {
                let until = item::whole(item, UNTIL).map(Timestamp)?;
                if until + MARGIN > today {
                    self.note(until);
                    return None;
                }
                self.orphan(item, &seek.key, today)
            });
            let mut orphans: Vec<ConditionalStep> = found.collect();
            while !orphans.is_empty() {
                let rest = orphans.split_off(orphans.len().min(AT_ONCE));
                self.put_back_some(orphans).await;
                orphans = rest;
            }
            match page.next {
                Some(next) => seek.after = Some(next),
                None => return Ok(()),
            }
        }
        let rest = seek.after.map(|after| (seek.key, after));
        self.state().rests.extend(rest);
        Ok(())
    }

    fn orphan(&self, item: &TaskItem, key: &str, today: Timestamp) -> Option<ConditionalStep> {
        let task = item::string(item, TASK_ID)?;
        let limit = today
            .0
            .saturating_sub(u64::try_from(MARGIN.as_millis()).ok()?);
        Some(ConditionalStep {
            task: task.to_owned(),
            update: PUT_BACK,
            condition: ORPHANED,
            names: NAMES,
            values: vec![
                (":from", item::text(key)),
                (":pending", item::text(self.table.shards.key(PENDING, task))),
                (":token", item::text(item::string(item, TOKEN)?)),
                (":limit", item::number(limit)),
            ],
        })
    }

    async fn put_back_some(&self, orphans: Vec<ConditionalStep>) {
        let queue = self.table.reading.queue.as_str();
        let mut count = 0;
        let mut failed = None;
        for answer in steps(&self.table, orphans).await {
            match answer {
                Ok(StepResult::Done(item)) => {
                    count += 1;
                    let task = item::string(&item, TASK_ID).unwrap_or_default();
                    self.table.recent.forget(task);
                }
                // The worker extended its lease, or another sweep was faster.
                Ok(StepResult::Not(_)) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            tracing::warn!(
                queue,
                %error,
                "cannot release tasks of dead workers; the next sweep retries"
            );
        }
        if count > 0 {
            tracing::info!(queue, count, "released tasks of dead workers");
            self.table.notify();
        }
    }

    /// Counts the expired tasks at the old end of this key. This process counts each task once.
    /// DynamoDB deletes them.
    async fn count_expired(&self, key: String) -> Result<(), QueueError> {
        let mut census = self.state().censuses.get(&key).cloned().unwrap_or_default();
        let (above, after) = census.begin(clock::wall_clock_now());
        let mut seek = Seek {
            newest_first: false,
            above,
            after,
            columns: &[CREATED, TTL, EXPIRES],
            ..Seek::newest(key.clone(), PAGE)
        };
        let mut count = 0_u64;
        for _ in 0..MOST_PAGES {
            let IndexPage { items, next } = self.table.page(&seek).await?;
            let PageCount { news, goes_on } = census.page(&items, next.clone());
            count += news;
            if !goes_on {
                break;
            }
            seek.after = next;
        }
        let mut state = self.state();
        state.censuses.insert(key, census);
        state.expired += count;
        if count > 0 {
            let (queue, total) = (self.table.reading.queue.as_str(), state.expired);
            tracing::info!(
                queue,
                count,
                total,
                "tasks expired before they were received"
            );
        }
        Ok(())
    }

    /// Returns the number of tasks that this process has counted that expired while they waited.
    pub(super) fn expired(&self) -> u64 {
        self.state().expired
    }
}

/// Returns whether the next time is reached; if so, sets the one after it.
fn again(next: &mut BootInstant, every: Duration, now: BootInstant) -> bool {
    let due = now >= *next;
    if due {
        *next = now + every;
    }
    due
}
