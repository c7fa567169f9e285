//! A DynamoDB table as a queue that gives the newest first, in the layout of AWS's LIFO sample. The
//! only place that names its SDK; knows no other backend.
//!
//! `item` and `body` say what columns mean, `status` how a status is written, `agree` over how many
//! keys; `claim` takes, `settle` and `dead_letter` end, `send` begins, `sweep` puts back what workers left
//! that are gone, `failed` is what was given up, `census` counts what nobody came to in time, `look` what there is, `browse` walks over it,
//! `purge` empties it.
//! Every change is one conditional write on the item itself: the index is only where tasks are found.

mod agree;
mod body;
mod browse;
mod census;
mod claim;
mod controls;
mod dead_letter;
mod failed;
mod item;
mod item_errors;
mod look;
mod open;
mod pace;
mod purge;
mod receipt;
mod recent;
mod send;
mod settle;
mod status;
mod sweep;
mod table;

pub use failed::{FAILED, FailedTasks};
pub use open::Dynamo;
pub use table::Consumed;

use claim::{ClaimPass, Spread};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::memory::{Budget, HeldBytes};
use dispatcher_core::message::{Message, Outcome, Outgoing, Receipt};
use dispatcher_core::queue::{
    Ask, BrowseCursor, BrowsePage, Depth, Identity, ItemError, PurgeStep, Queue, QueueError,
    Received, VISIBILITY_CEILING,
};
use pace::Pace;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use sweep::Sweeper;
use table::{Seek, Table};
use tokio_util::sync::CancellationToken;

/// Maximum items of one call of the port: the sample's page.
const BATCH: usize = 10;
/// Maximum bytes of one item (DynamoDB developer guide, quotas).
const LARGEST_ITEM: u64 = 400 * 1024;

/// The longest `wait` of one receive; the same as SQS, so that routes behave alike.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// What may be chosen about tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The column that is the body; without it all columns of the task's own, as JSON.
    pub body_attribute: Option<String>,
    /// Over how many keys of the index each status is spread; 1 is the sample's table.
    pub shards: u16,
    /// How long a task that is sent from here may live from when it may be taken.
    pub time_to_live: Duration,
    /// The longest pause between two looks at a table that has nothing.
    pub idle_poll: Duration,
    /// What becomes of a task that is done.
    pub completed: Completed,
}

/// What becomes of a task that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completed {
    /// It stays as `SUCCESS` until its `ttl`, as in the sample.
    Keep,
    /// It is deleted at once.
    Delete,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_attribute: None,
            shards: 1,
            // As SQS keeps its messages, unless told otherwise.
            time_to_live: Duration::from_secs(4 * 24 * 3_600),
            idle_poll: Duration::from_secs(2),
            completed: Completed::Keep,
        }
    }
}

/// An open table.
#[derive(Debug)]
pub struct DynamoQueue {
    identity: Identity,
    table: Arc<Table>,
    dead_letter_queue: Option<Arc<Table>>,
    sweeper: Sweeper,
    pace: Mutex<Pace>,
    spread: Spread,
    /// Where the last look ended that found nothing and had more to read.
    rest: Mutex<Option<Vec<Seek>>>,
    /// The bytes that the process may hold.
    budget: Option<Arc<Budget>>,
}

impl DynamoQueue {
    /// The same for a process that may hold so many bytes.
    #[must_use]
    pub fn within(self, budget: Option<Arc<Budget>>) -> Self {
        Self { budget, ..self }
    }

    /// What its calls have consumed so far.
    pub fn consumed(&self) -> Consumed {
        self.table.spent.total()
    }

    /// How many tasks were seen here whose time to live passed while they waited.
    pub fn expired(&self) -> u64 {
        self.sweeper.expired()
    }

    /// When to look again after a look that found nothing, unless it is notified.
    fn again(&self, look: &ClaimPass, end: BootInstant) -> BootInstant {
        let now = clock::now();
        let pause = self
            .pace
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .empty();
        let today = clock::wall_clock_now();
        let due = |at: Timestamp| now + at.since(today);
        let due = look.next.map_or(end, due);
        (now + pause).min(due).min(self.sweeper.due()).min(end)
    }

    fn found(&self) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.found();
    }
}

#[async_trait::async_trait]
impl Queue for DynamoQueue {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn dead_letter_queue(&self) -> Option<String> {
        Some(match &self.dead_letter_queue {
            Some(other) => other.reading.queue.clone(),
            None => failed::name(&self.table),
        })
    }

    /// DynamoDB has no long polls: it looks again and again, less and less often while nothing
    /// comes, and at once when something was sent or released in this process. What it brings is
    /// always the newest first, asked for or not.
    async fn receive(&self, ask: Ask, hurry: &CancellationToken) -> Result<Received, QueueError> {
        if ask.visibility > VISIBILITY_CEILING {
            return Err(self.table.call("receiving").refused(&format!(
                "a visibility of {:?} is too long; wanted 0 s to 12 h",
                ask.visibility
            )));
        }
        let max = ask.max.clamp(1, BATCH);
        let end = clock::now() + ask.wait.min(LONGEST_WAIT);
        let mut notifier = self.table.notifier.subscribe();
        loop {
            notifier.borrow_and_update();
            // As many as there is room for if each has the largest size, and one in any case.
            let budget = self.budget.as_ref();
            let affordable = budget.map(|budget| budget.free() / LARGEST_ITEM);
            let most = affordable.and_then(|fit| usize::try_from(fit).ok());
            let most = most.map_or(max, |fit| fit.clamp(1, max));
            let reserved = budget.map(|budget| budget.take(most as u64 * LARGEST_ITEM));
            let look = self.look(most, ask.visibility, hurry).await?;
            let held: Option<Vec<HeldBytes>> = budget.map(|budget| {
                let bytes = look.messages.iter().map(Message::held_bytes);
                bytes.map(|bytes| budget.take(bytes)).collect()
            });
            drop(reserved);
            if !look.messages.is_empty() {
                self.found();
            }
            let over = clock::now() >= end || hurry.is_cancelled();
            if !look.messages.is_empty() || over {
                return Ok(Received {
                    messages: look.messages,
                    drained: look.drained,
                    taken: look.taken,
                    held: held.unwrap_or_default(),
                    ..Received::default()
                });
            }
            let again = self.again(&look, end);
            tokio::select! {
                biased; // for simulations
                () = hurry.cancelled() => {
                    return Ok(Received { drained: look.drained, ..Received::default() });
                }
                // The sender lives as long as the table.
                _ = notifier.changed() => self.found(),
                () = clock::sleep_until(Some(again)) => {}
            }
        }
    }

    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        self.extend_all(items).await
    }

    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        self.settle_all(items).await
    }

    async fn send(&self, items: &[Outgoing]) -> Vec<Result<String, ItemError>> {
        self.send_all(items).await
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        self.count().await
    }

    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        self.show(max).await
    }

    async fn would_take(&self, item: &Outgoing) -> Result<(), ItemError> {
        self.takes(item)
    }

    fn can_browse(&self) -> bool {
        true
    }

    async fn browse(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        self.list(after, max).await
    }

    /// Puts back first what others held that are gone: whoever walks to take may be the only one that
    /// ever takes anything here.
    async fn browse_end(&self) -> Result<BrowseCursor, QueueError> {
        self.sweeper.run().await?;
        self.end_of_list()
    }

    async fn receive_these(
        &self,
        listed: &[Receipt],
        visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        self.take_listed(listed, visibility.min(VISIBILITY_CEILING))
            .await
    }

    fn finds_by_id(&self) -> bool {
        true
    }

    async fn find_waiting(&self, id: &str) -> Result<Option<Message>, QueueError> {
        self.find(id).await
    }

    async fn cancel_delayed(&self, id: &str) -> Result<bool, QueueError> {
        self.end_later(id).await
    }

    async fn purge(&self) -> Result<PurgeStep, QueueError> {
        self.remove_some().await
    }
}
