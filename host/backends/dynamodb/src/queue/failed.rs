//! The failed tasks of a table as a dead-letter queue: the tasks in `FAILURE`, which can be listed,
//! taken for a redrive and removed. As for a running task, a lease is a token and a date, but the
//! status stays `FAILURE`. So a crash never makes a failed task run.

use super::browse::{self, Place};
use super::item::{self, MOVED, REASON, Readiness, STATUS, TASK_ID, TOKEN, TaskItem, UNTIL};
use super::item_errors::of_item;
use super::purge::{self, PURGED_AT_ONCE, PurgeSource, purge_some};
use super::receipt::TaskDelivery;
use super::settle::{LEASE, extension, gone, held, remove_held};
use super::status::{self, FAILURE};
use super::table::{
    ConditionalRemoval, ConditionalStep, IndexPage, Seek, StepResult, Table, side_by_side,
};
use super::{BATCH, DynamoQueue};
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::{
    Ask, BrowseCursor, BrowsePage, DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, Depth, Identity,
    ItemError, PurgeStep, Queue, QueueError, QueueFacts, ReceivedMessages, VISIBILITY_CEILING,
};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The suffix of this queue's name, after the table's name and a slash.
pub const FAILED: &str = FAILURE;

/// The condition that a task has failed and has no lease.
const FREE: &str =
    "begins_with(#status, :failure) AND (attribute_not_exists(#until) OR #until < :now)";

/// The failed tasks of an open table.
#[derive(Debug)]
pub struct FailedTasks {
    identity: Identity,
    table: Arc<Table>,
}

/// The end or extension of a lease.
enum LeaseEnd {
    Extended(Duration),
    GivenBack,
    Removed,
}

impl FailedTasks {
    /// Returns the failed tasks of this table.
    pub(super) fn of(queue: &DynamoQueue) -> Self {
        let identity = Identity {
            name: name(&queue.table),
            source: format!("{}/{FAILED}", queue.identity.source),
            dead_letters: false,
            ..queue.identity.clone()
        };
        Self {
            identity,
            table: Arc::clone(&queue.table),
        }
    }

    /// Returns a failed task as a dead letter, with its reason and its source, like a copy in a
    /// dead-letter table.
    fn letter(&self, item: &TaskItem, delivery: Option<&TaskDelivery>) -> Option<Message> {
        let mut message = self.table.reading.message(item, delivery)?;
        if delivery.is_none() {
            message.receipt = Receipt(message.id.clone());
        }
        message.queue.clone_from(&self.identity.name);
        let attributes = &mut message.attributes;
        attributes.retain(|one| one.name != DEAD_LETTER_REASON && one.name != DEAD_LETTER_SOURCE);
        let reason = item::string(item, REASON).filter(|reason| !reason.is_empty());
        attributes.extend(reason.map(|reason| Attribute::text(DEAD_LETTER_REASON, reason)));
        attributes.push(Attribute::text(DEAD_LETTER_SOURCE, &message.source));
        Some(message)
    }

    async fn listed(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<(Vec<TaskItem>, Option<BrowseCursor>), QueueError> {
        browse::page(&self.table, FAILURE, &self.identity.name, after, max).await
    }

    /// Takes a failed task that has no lease.
    async fn lease(&self, task: String, lease: Duration) -> Result<Option<Message>, QueueError> {
        let now = clock::wall_clock_now();
        let delivery = TaskDelivery {
            token: uuid::Uuid::new_v4().to_string(),
            taken: now,
            task: task.clone(),
        };
        let until = now + lease.min(VISIBILITY_CEILING);
        let step = ConditionalStep {
            task,
            update: "SET #token = :token, #until = :until, #updated = :date",
            condition: FREE,
            names: LEASE,
            values: vec![
                (":failure", item::text(FAILURE)),
                (":now", item::number(now.0)),
                (":token", item::text(delivery.token.clone())),
                (":until", item::number(until.0)),
            ],
        };
        let taken = match self.table.step(step).await? {
            StepResult::Done(item) => Some(item),
            // The response to the SDK's first attempt was lost, and its second attempt met this
            // lease.
            StepResult::Not(Some(item)) if item::string(&item, TOKEN) == Some(&delivery.token) => {
                Some(item)
            }
            StepResult::Not(_) => None,
        };
        Ok(taken.and_then(|item| self.letter(&item, Some(&delivery))))
    }

    async fn end_all(&self, items: Vec<(Receipt, LeaseEnd)>) -> Vec<Result<(), ItemError>> {
        let futures = items.into_iter().map(|(receipt, end)| {
            let table = self.table.clone();
            async move {
                let delivery = TaskDelivery::parse(&receipt)?;
                match end {
                    LeaseEnd::Removed => remove_held(&table, &delivery, FAILURE).await,
                    LeaseEnd::Extended(more) => extend_held(&table, &delivery, more).await,
                    LeaseEnd::GivenBack => give_back(&table, &delivery).await,
                }
            }
        });
        side_by_side(futures.collect()).await
    }

    fn no_sends(&self) -> ItemError {
        let table = &self.table.reading.queue;
        ItemError::Refused(format!(
            "nothing is sent to `{}`: tasks are in it because they failed; wanted `{table}`",
            self.identity.name
        ))
    }
}

/// Returns the name of the queue of a table's failed tasks.
pub(super) fn name(table: &Table) -> String {
    format!("{}/{FAILED}", table.reading.queue)
}

/// Whether a failed task is a dead letter of this queue. A task that was copied to a dead-letter
/// table is a dead letter there; DynamoDB will soon delete an expired task.
fn is_letter(item: &TaskItem, now: Timestamp) -> bool {
    !item.contains_key(MOVED) && item::readiness(item, now) != Readiness::Expired
}

fn is_held(item: &TaskItem, now: Timestamp) -> bool {
    item::whole(item, UNTIL).is_some_and(|until| Timestamp(until) >= now)
}

async fn extend_held(
    table: &Table,
    delivery: &TaskDelivery,
    more: Duration,
) -> Result<(), ItemError> {
    let step = extension(delivery, FAILURE, more)?;
    match table.step(step).await.map_err(of_item)? {
        StepResult::Done(_) => Ok(()),
        StepResult::Not(found) => Err(gone(found.as_ref())),
    }
}

/// Ends the lease. Succeeds also if the task has this delivery's token and no lease: an earlier
/// call released it, and its response was lost.
async fn give_back(table: &Table, delivery: &TaskDelivery) -> Result<(), ItemError> {
    let update = "SET #updated = :date REMOVE #until";
    let step = held(delivery, FAILURE, update, LEASE, Vec::new());
    match table.step(step).await.map_err(of_item)? {
        StepResult::Done(_) => Ok(()),
        StepResult::Not(Some(item))
            if !item.contains_key(UNTIL) && item::string(&item, TOKEN) == Some(&delivery.token) =>
        {
            Ok(())
        }
        StepResult::Not(found) => Err(gone(found.as_ref())),
    }
}

/// Removes a failed task that has no lease; returns false if there is no such task.
async fn remove_free(table: &Table, task: &str) -> Result<bool, QueueError> {
    let removal = ConditionalRemoval {
        task,
        condition: FREE,
        names: &[("#until", UNTIL)],
        values: vec![
            (":failure", item::text(FAILURE)),
            (":now", item::number(clock::wall_clock_now().0)),
        ],
    };
    Ok(matches!(table.remove(removal).await?, StepResult::Done(_)))
}

#[async_trait::async_trait]
impl Queue for FailedTasks {
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

    /// Takes the oldest dead letters, for a redrive. Does not wait.
    async fn receive(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        let mut received = ReceivedMessages::default();
        let mut after = None;
        loop {
            let page = self.browse(after.as_ref(), BATCH).await?;
            let listed: Vec<Receipt> = page.messages.into_iter().map(|one| one.receipt).collect();
            let room = ask.max.clamp(1, BATCH) - received.messages.len();
            let listed = &listed[..listed.len().min(room)];
            let taken = self.receive_these(listed, ask.visibility).await?;
            received.messages.extend(taken);
            after = page.next;
            let is_full = received.messages.len() >= ask.max.clamp(1, BATCH);
            if is_full || after.is_none() || hurry.is_cancelled() {
                received.drained = !is_full && after.is_none();
                return Ok(received);
            }
        }
    }

    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        let ends = items.iter().cloned().map(|(receipt, more)| {
            let end = match more {
                Duration::ZERO => LeaseEnd::GivenBack,
                more => LeaseEnd::Extended(more),
            };
            (receipt, end)
        });
        self.end_all(ends.collect()).await
    }

    /// A released or dead-lettered message stays a dead letter: both outcomes only end its lease.
    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let ends = items.iter().map(|(message, outcome)| {
            let end = match outcome {
                Outcome::Delete => LeaseEnd::Removed,
                Outcome::Release(_) | Outcome::DeadLetter(_) => LeaseEnd::GivenBack,
            };
            (message.receipt.clone(), end)
        });
        self.end_all(ends.collect()).await
    }

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        items.iter().map(|_| Err(self.no_sends())).collect()
    }

    async fn would_take(&self, _item: &OutgoingMessage) -> Result<(), ItemError> {
        Err(self.no_sends())
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let now = clock::wall_clock_now();
        let mut depth = Depth::default();
        let mut oldest = None;
        let mut after = None;
        loop {
            let (items, next) = self.listed(after.as_ref(), 1_000).await?;
            for item in items.iter().filter(|item| is_letter(item, now)) {
                if is_held(item, now) {
                    depth.in_flight += 1;
                    continue;
                }
                depth.waiting += 1;
                let created = item::date(item, item::CREATED);
                oldest = oldest.into_iter().chain(created).min();
            }
            after = next;
            if after.is_none() {
                depth.oldest = oldest.map(|created: Timestamp| now.since(created));
                return Ok(depth);
            }
        }
    }

    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        let mut messages = Vec::new();
        let mut after = None;
        loop {
            let page = self.browse(after.as_ref(), max.max(1)).await?;
            messages.extend(page.messages);
            after = page.next;
            if messages.len() >= max || after.is_none() {
                messages.truncate(max);
                return Ok(messages);
            }
        }
    }

    async fn browse(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        let (items, next) = self.listed(after, max).await?;
        let now = clock::wall_clock_now();
        let letters = items
            .iter()
            .filter(|item: &&TaskItem| is_letter(item, now) && !is_held(item, now));
        Ok(BrowsePage {
            messages: letters.filter_map(|item| self.letter(item, None)).collect(),
            next,
        })
    }

    async fn find_waiting(&self, id: &str) -> Result<Option<Message>, QueueError> {
        let found = self.table.task(id).await?;
        let now = clock::wall_clock_now();
        Ok(found
            .filter(|item: &TaskItem| {
                let is_failed =
                    item::string(item, STATUS).is_some_and(|key| status::is(key, FAILURE));
                is_failed && is_letter(item, now) && !is_held(item, now)
            })
            .and_then(|item| self.letter(&item, None)))
    }

    async fn browse_end(&self) -> Result<BrowseCursor, QueueError> {
        Ok(Place::end(&self.table).cursor())
    }

    async fn receive_these(
        &self,
        listed: &[Receipt],
        visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        let tasks = listed.iter().take(BATCH).map(|receipt| receipt.0.clone());
        let queue = Self {
            identity: self.identity.clone(),
            table: self.table.clone(),
        };
        let queue = Arc::new(queue);
        let futures = tasks.map(|task| {
            let queue = Arc::clone(&queue);
            async move { queue.lease(task, visibility).await }
        });
        let answers = side_by_side(futures.collect()).await;
        let failed = answers
            .iter()
            .find_map(|answer| answer.as_ref().err())
            .cloned();
        let taken: Vec<Message> = answers.into_iter().flatten().flatten().collect();
        match failed {
            Some(error) if taken.is_empty() => Err(error),
            _ => Ok(taken),
        }
    }

    async fn purge(&self) -> Result<PurgeStep, QueueError> {
        let seeks = self.table.shards.keys(FAILURE).into_iter().map(|key| Seek {
            newest_first: false,
            columns: &[TASK_ID, STATUS, UNTIL, MOVED, item::TTL, item::EXPIRES],
            ..Seek::newest(key, PURGED_AT_ONCE)
        });
        purge_some(self, seeks.collect()).await
    }
}

#[async_trait::async_trait]
impl PurgeSource for FailedTasks {
    async fn page(&self, seek: &Seek) -> Result<IndexPage, QueueError> {
        let now = clock::wall_clock_now();
        let mut page = self.table.page(seek).await?;
        page.items
            .retain(|item| is_letter(item, now) && !is_held(item, now));
        Ok(page)
    }

    async fn remove(&self, items: Vec<TaskItem>) -> Result<u64, QueueError> {
        let tasks = items.iter().filter_map(|item| item::string(item, TASK_ID));
        let removals = tasks.map(str::to_owned).map(|task| {
            let table = self.table.clone();
            async move { remove_free(&table, &task).await }
        });
        purge::removed(removals.collect()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn failed(more: &[(&str, u64)]) -> TaskItem {
        let mut item = TaskItem::from([
            (TASK_ID.to_owned(), item::text("t")),
            (STATUS.to_owned(), item::text("FAILURE#1")),
        ]);
        item.extend(
            more.iter()
                .map(|(name, value)| ((*name).to_owned(), item::number(*value))),
        );
        item
    }

    #[test]
    fn a_failed_task_is_a_letter_until_its_life_is_over_or_it_was_copied() {
        assert!(is_letter(&failed(&[]), NOW));
        assert!(is_letter(&failed(&[(item::TTL, NOW.0 / 1_000 + 1)]), NOW));
        assert!(!is_letter(&failed(&[(item::TTL, NOW.0 / 1_000)]), NOW));
        let mut copied = failed(&[]);
        copied.insert(MOVED.to_owned(), item::text("dead"));
        assert!(!is_letter(&copied, NOW));
    }

    #[test]
    fn a_lease_that_is_over_holds_nothing() {
        assert!(!is_held(&failed(&[]), NOW));
        assert!(is_held(&failed(&[(UNTIL, NOW.0)]), NOW));
        assert!(!is_held(&failed(&[(UNTIL, NOW.0 - 1)]), NOW));
        assert!(status::is("FAILURE#1", FAILURE));
    }
}
