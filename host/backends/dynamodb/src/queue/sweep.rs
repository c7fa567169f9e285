//! Background work: releases the tasks of dead workers, and counts those that expired before they
//! were received.

use super::census::{Counted, KeyCount, PAGE};
use super::item::{self, CREATED, EXPIRES, STATUS, TASK_ID, TOKEN, TTL, TaskItem, UNTIL};
use super::status::{PENDING, TAKEN};
use super::table::{ConditionalStep, IndexPage, Seek, Stepped, Table, steps};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::queue::QueueError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often `TAKEN` tasks are looked at where no lease is known to expire earlier.
const EVERY: Duration = Duration::from_secs(10);
/// How often at most.
const SELDOM: Duration = Duration::from_millis(500);
/// How long after its end a lease is taken over. Clocks of several machines are compared here. If
/// they differ by more than this and by what a healthy worker has left (half of its visibility at
/// least), a task may run twice at once; it is never settled twice, since settling asks for the
/// fence token and for no time.
pub(super) const MARGIN: Duration = Duration::from_secs(2);
/// The most pages of 1 MB that one look reads.
const MOST_PAGES: usize = 10;
/// Put back at once.
const AT_ONCE: usize = 25;
/// How often it is asked over how many keys others spread their tasks.
const AGREE: Duration = Duration::from_secs(60);

const PUT_BACK: &str = "SET #status = :pending, #updated = :date REMOVE #until";
const ORPHANED: &str = "#status = :from AND #token = :token AND #until <= :limit";
const NAMES: &[(&str, &str)] = &[("#token", TOKEN), ("#until", UNTIL)];

/// The sweep of one table by one process.
#[derive(Debug)]
pub(super) struct Sweeper {
    table: Arc<Table>,
    state: Mutex<SweepState>,
    /// Held by the sweep that is running.
    under_way: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct SweepState {
    /// When `TAKEN` tasks are looked at next.
    next: BootInstant,
    /// When old `PENDING` tasks are looked at next.
    next_old: BootInstant,
    /// When it is asked next who writes to which keys.
    next_agreement: BootInstant,
    /// Where the last look at `TAKEN` tasks of a key ended that could not see them all.
    rests: HashMap<String, TaskItem>,
    censuses: HashMap<String, KeyCount>,
    expired: u64,
}

impl Sweeper {
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self {
            state: Mutex::new(SweepState {
                // They agreed when it was opened.
                next_agreement: clock::now() + AGREE,
                ..SweepState::default()
            }),
            table,
            under_way: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, SweepState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it is due.
    pub(super) fn due(&self) -> BootInstant {
        self.state().next
    }

    /// A lease ends then, unless it is extended.
    pub(super) fn note(&self, until: Timestamp) {
        let wait = (until + MARGIN).since(clock::wall_clock_now()).max(SELDOM);
        let at = clock::now() + wait;
        let mut state = self.state();
        state.next = state.next.min(at);
    }

    /// Sweeps if it is due; others who ask meanwhile need not wait for it. Fails only where nothing
    /// can be read; what cannot be put back is for the log and the next sweep.
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

    /// Puts back what was taken under this key by one of us whose lease has expired. Where there is
    /// more than one sweep may read the next continues from there.
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
            let orphans = page.items.iter().filter_map(|item| {
                let until = item::whole(item, UNTIL).map(Timestamp)?;
                if until + MARGIN > today {
                    self.note(until);
                    return None;
                }
                self.orphan(item, &seek.key, today)
            });
            let mut orphans: Vec<ConditionalStep> = orphans.collect();
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
                Ok(Stepped::Done(item)) => {
                    count += 1;
                    let task = item::string(&item, TASK_ID).unwrap_or_default();
                    self.table.recent.forget(task);
                }
                // Its worker lives after all, or another sweep was faster.
                Ok(Stepped::Not(_)) => {}
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

    /// Counts the tasks at the old end of this key whose time to live has passed, each once by this
    /// process. They are left for DynamoDB to delete.
    async fn count_expired(&self, key: String) -> Result<(), QueueError> {
        let census = self.state().censuses.get(&key).cloned();
        let mut census = census.unwrap_or_default();
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
            let Counted { news, goes_on } = census.page(&items, next.clone());
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

    /// How many tasks this process has counted whose time to live passed while they waited.
    pub(super) fn expired(&self) -> u64 {
        self.state().expired
    }
}

/// Whether it is time again for what is done so often; if so, sets the next time.
fn again(next: &mut BootInstant, every: Duration, now: BootInstant) -> bool {
    let due = now >= *next;
    if due {
        *next = now + every;
    }
    due
}
