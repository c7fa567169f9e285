//! What nobody would do otherwise: put back the tasks of workers that are gone, and count those
//! whose time to live passed before anybody came to them.

use super::item::{self, CREATED, EXPIRES, Item, Readiness, STATUS, TASK_ID, TOKEN, TTL, UNTIL};
use super::status::{PENDING, TAKEN};
use super::table::{Seek, Step, Stepped, Table, steps};
use crate::clock::{self, Moment, Timestamp};
use crate::queue::QueueError;
use aws_sdk_dynamodb::types::AttributeValue;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often `TAKEN` tasks are looked at where no lease is known to run out earlier.
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
/// Pages of old tasks; small ones until there is something to count.
const OLD: (usize, usize) = (10, 100);
/// How long what is known to have expired is passed over, until all is looked through again: a task
/// that was put back may be older and live longer.
const FORGET: Duration = Duration::from_secs(300);

const PUT_BACK: &str = "SET #status = :pending, #updated = :date REMOVE #until";
const ORPHANED: &str = "#status = :from AND #token = :token AND #until <= :limit";
const NAMES: &[(&str, &str)] = &[("#token", TOKEN), ("#until", UNTIL)];

/// The sweep of one table by one process.
#[derive(Debug)]
pub(super) struct Sweeper {
    table: Arc<Table>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When `TAKEN` tasks are looked at next.
    next: Moment,
    /// When old `PENDING` tasks are looked at next.
    next_old: Moment,
    floors: HashMap<String, Floor>,
    expired: u64,
}

/// What is known of the old end of one key.
#[derive(Debug, Clone, Default)]
struct Floor {
    /// All created until then have expired.
    passed: Option<AttributeValue>,
    /// When that is forgotten.
    until: Moment,
    /// All expired ones created until then were counted.
    counted: Option<Timestamp>,
}

impl Sweeper {
    pub fn new(table: Arc<Table>) -> Self {
        Self {
            table,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it is due.
    pub fn due(&self) -> Moment {
        self.state().next
    }

    /// A lease ends then, unless it is extended.
    pub fn note(&self, until: Timestamp) {
        let wait = (until + MARGIN).since(clock::today()).max(SELDOM);
        let at = clock::now() + wait;
        let mut state = self.state();
        state.next = state.next.min(at);
    }

    /// Sweeps if it is due; others who ask meanwhile need not wait for it.
    pub async fn run(&self) -> Result<(), QueueError> {
        let now = clock::now();
        let old = {
            let mut state = self.state();
            if now < state.next {
                return Ok(());
            }
            state.next = now + EVERY;
            let old = now >= state.next_old;
            if old {
                state.next_old = now + EVERY;
            }
            old
        };
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

    /// Puts back what was taken under this key by one of us whose lease has run out.
    async fn put_back(&self, key: String) -> Result<(), QueueError> {
        let mut seek = Seek {
            limit: None,
            columns: &[TASK_ID, STATUS, TOKEN, UNTIL],
            ..Seek::newest(key, 1)
        };
        for _ in 0..MOST_PAGES {
            let page = self.table.page(&seek).await?;
            let today = clock::today();
            let orphans = page.items.iter().filter_map(|item| {
                let until = item::whole(item, UNTIL).map(Timestamp)?;
                if until + MARGIN > today {
                    self.note(until);
                    return None;
                }
                self.orphan(item, &seek.key, today)
            });
            let mut orphans: Vec<Step> = orphans.collect();
            while !orphans.is_empty() {
                let rest = orphans.split_off(orphans.len().min(AT_ONCE));
                self.put_back_some(orphans).await?;
                orphans = rest;
            }
            match page.next {
                Some(next) => seek.after = Some(next),
                None => break,
            }
        }
        Ok(())
    }

    fn orphan(&self, item: &Item, key: &str, today: Timestamp) -> Option<Step> {
        let task = item::string(item, TASK_ID)?;
        let limit = today
            .0
            .saturating_sub(u64::try_from(MARGIN.as_millis()).ok()?);
        Some(Step {
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

    async fn put_back_some(&self, orphans: Vec<Step>) -> Result<(), QueueError> {
        let answers = steps(&self.table, orphans).await;
        let answers: Vec<Stepped> = answers.into_iter().collect::<Result<_, _>>()?;
        let mut count = 0;
        for answer in &answers {
            if let Stepped::Done(item) = answer {
                count += 1;
                let task = item::string(item, TASK_ID).unwrap_or_default();
                self.table.recent.forget(task);
            }
        }
        if count > 0 {
            let queue = self.table.reading.queue.as_str();
            tracing::info!(queue, count, "put back what workers held that are gone");
            self.table.ring();
        }
        Ok(())
    }

    /// Counts the tasks at the old end of this key whose time to live has passed, each once by this
    /// process. They are left for DynamoDB to delete.
    async fn count_expired(&self, key: String) -> Result<(), QueueError> {
        let now = clock::now();
        let mut floor = self.state().floors.get(&key).cloned().unwrap_or_default();
        if floor.until <= now {
            floor.passed = None;
            floor.until = now + FORGET;
        }
        let mut seek = Seek {
            newest_first: false,
            limit: Some(OLD.0),
            above: floor.passed.clone(),
            columns: &[CREATED, TTL, EXPIRES],
            ..Seek::newest(key.clone(), OLD.0)
        };
        let mut count = 0_u64;
        for _ in 0..MOST_PAGES {
            let page = self.table.page(&seek).await?;
            let today = clock::today();
            let is_expired = |item: &&Item| item::readiness(item, today) == Readiness::Expired;
            let expired: Vec<&Item> = page.items.iter().take_while(is_expired).collect();
            count += expired.iter().filter(|item| floor.is_news(item)).count() as u64;
            if let Some(last) = expired.last() {
                floor.pass(last);
            }
            let all = expired.len() == page.items.len();
            match page.next {
                Some(next) if all => {
                    seek.after = Some(next);
                    seek.limit = Some(OLD.1);
                }
                _ => break,
            }
        }
        let mut state = self.state();
        state.floors.insert(key, floor);
        state.expired += count;
        if count > 0 {
            let (queue, total) = (self.table.reading.queue.as_str(), state.expired);
            tracing::info!(
                queue,
                count,
                total,
                "tasks passed their time to live before anybody came to them"
            );
        }
        Ok(())
    }

    /// How many tasks this process has counted whose time to live passed while they waited.
    pub fn expired(&self) -> u64 {
        self.state().expired
    }
}

impl Floor {
    fn is_news(&self, item: &Item) -> bool {
        let created = item::date(item, CREATED);
        self.counted.is_none_or(|counted| created > Some(counted))
    }

    fn pass(&mut self, last: &Item) {
        self.passed = last.get(CREATED).cloned();
        self.counted = self.counted.max(item::date(last, CREATED));
    }
}
