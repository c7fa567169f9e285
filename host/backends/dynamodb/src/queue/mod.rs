//! A DynamoDB table as a queue that delivers the newest task first, in the layout of AWS's LIFO
//! sample. The only place that names its SDK; knows no other backend.
//!
//! `item` and `body` define the columns, `status` the values of the status column, and `agree` the
//! number of index keys. `claim` takes tasks, `settle` and `dead_letter` end them, and `send`
//! creates them. `sweep` puts back the tasks of dead workers. `failed` reads the failed tasks, and
//! `census` counts the tasks that expired while they waited. `look` counts and shows tasks,
//! `browse` lists them, and `purge` empties the table.
//! Every change is one conditional write on the item itself: the index only serves to find tasks.

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
pub use table::TableUnits;

use claim::{ClaimPass, Spread};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::memory::{Budget, HeldBytes};
use dispatcher_core::message::{Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::{
    Ask, BrowseCursor, BrowsePage, Depth, Identity, ItemError, PurgeStep, Queue, QueueError,
    QueueFacts, ReceivedMessages, VISIBILITY_CEILING,
};
use pace::Pace;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use sweep::Sweeper;
use table::{Seek, Table};
use tokio_util::sync::CancellationToken;

/// The maximum number of items in one call of the port: the sample's page.
const BATCH: usize = 10;
/// The maximum size of one item in bytes (DynamoDB developer guide, quotas).
const LARGEST_ITEM: u64 = 400 * 1024;

/// The longest `wait` of one receive, as on SQS, so that all routes behave alike.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The options of a DynamoDB queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The column that is the body. `None`: the body is all of the task's columns, as JSON.
    pub body_attribute: Option<String>,
    /// The number of index keys for each status; 1 is the sample's table.
    pub shards: u16,
    /// The lifetime of a task that this process sends, counted from the time at which it may be
    /// taken.
    pub time_to_live: Duration,
    /// The longest pause between two polls of an empty table.
    pub idle_poll: Duration,
    /// Whether completed tasks are kept.
    pub completed: Completion,
}

/// The end of a completed task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The task stays as `SUCCESS` until its `ttl`, as in the sample.
    Keep,
    /// The task is deleted at once.
    Delete,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_attribute: None,
            shards: 1,
            // The default retention period of SQS.
            time_to_live: Duration::from_secs(4 * 24 * 3_600),
            idle_poll: Duration::from_secs(2),
            completed: Completion::Keep,
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
    /// The position after the last pass that found nothing and did not read all pages.
    rest: Mutex<Option<Vec<Seek>>>,
    /// The memory budget of the process.
    budget: Option<Arc<Budget>>,
}

impl DynamoQueue {
    /// Sets the memory budget of the process.
    #[must_use]
    pub fn within(self, budget: Option<Arc<Budget>>) -> Self {
        Self { budget, ..self }
    }

    /// Returns the units that the calls to this table have consumed so far.
    pub fn consumed(&self) -> TableUnits {
        self.table.spent.total()
    }

    /// Returns the number of tasks that this process saw expire while they waited.
    pub fn expired(&self) -> u64 {
        self.sweeper.expired()
    }

    /// Returns when to poll again after a pass that found nothing, unless a notification comes
    /// earlier.
    fn again(&self, look: &ClaimPass, end: BootInstant) -> BootInstant {
        let now = clock::now();
        let pause = self.pace.lock().empty();
        let today = clock::wall_clock_now();
        let due = |at: Timestamp| now + at.since(today);
        let due = look.next.map_or(end, due);
        (now + pause).min(due).min(self.sweeper.due()).min(end)
    }

    fn found(&self) {
        let mut pace = self.pace.lock();
        pace.found();
    }
}

#[async_trait::async_trait]
impl Queue for DynamoQueue {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn facts(&self) -> QueueFacts {
        QueueFacts {
            can_browse: true,
            finds_by_id: true,
            ..QueueFacts::default()
        }
    }

    fn dead_letter_queue(&self) -> Option<String> {
        Some(match &self.dead_letter_queue {
            Some(other) => other.reading.queue.clone(),
            None => failed::name(&self.table),
        })
    }

    /// DynamoDB has no long polling. This polls repeatedly, less and less often while the table is
    /// empty, and at once when this process sends or releases a task. It always returns the newest
    /// tasks first, even if the caller does not ask for that order.
    async fn receive(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
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
            // Takes as many messages as fit into the budget if each has the largest size, but at
            // least one.
            let budget = self.budget.as_ref();
            let affordable = budget.map(|budget| budget.free() / LARGEST_ITEM);
            let most = affordable
                .and_then(|fit| usize::try_from(fit).ok())
                .map_or(max, |fit| fit.clamp(1, max));
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
                return Ok(ReceivedMessages {
                    messages: look.messages,
                    drained: look.drained,
                    taken: look.taken,
                    held: held.unwrap_or_default(),
                    ..ReceivedMessages::default()
                });
            }
            let again = self.again(&look, end);
            tokio::select! {
                biased; // for simulations
                () = hurry.cancelled() => {
                    return Ok(ReceivedMessages { drained: look.drained, ..ReceivedMessages::default() });
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

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        self.send_all(items).await
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        self.count().await
    }

    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        self.show(max).await
    }

    async fn would_take(&self, item: &OutgoingMessage) -> Result<(), ItemError> {
        self.takes(item)
    }

    async fn browse(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        self.list(after, max).await
    }

    /// First puts back the tasks of dead workers: the process that browses may be the only one that
    /// ever takes tasks from this table.
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
