//! Calls one table: makes the conditional updates of tasks, reads pages of its index and counts
//! consumed units. Decides nothing about tasks.

use super::Completion;
use super::item::{self, Dates, ItemFormat, STATUS, TASK_ID, TaskItem, UPDATED};
use super::recent::Recent;
use super::status::Shards;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConsumedCapacity, ReturnConsumedCapacity, ReturnValue,
    ReturnValuesOnConditionCheckFailure,
};
use dispatcher_aws::failure::{About, CallName};
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::queue::QueueError;
use dispatcher_core::tasks::Group;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The maximum by which `taskCreated` may run ahead of the clock so that no two tasks of one
/// process share it.
const MOST_AHEAD: Duration = Duration::from_millis(100);

/// The minimum lifetime of dead letters: the longest retention period of SQS ("Amazon SQS message
/// quotas" in its developer guide).
const DEAD_LETTER_LIFETIME: Duration = Duration::from_secs(14 * 24 * 3_600);

/// A table of tasks.
#[derive(Debug)]
pub(super) struct Table {
    pub client: Client,
    /// The name without the backend's prefix.
    pub name: String,
    /// The endpoint or region, for error messages.
    pub place: String,
    /// The name of the index on status and created.
    pub index: String,
    pub dates: Dates,
    pub shards: Shards,
    /// The lifetime of a task that this process sends.
    pub time_to_live: Duration,
    /// Whether completed tasks are kept.
    pub completed: Completion,
    pub reading: ItemFormat,
    /// The notifier, which changes when a task becomes available.
    pub notifier: watch::Sender<u64>,
    pub spent: ConsumedUnits,
    /// The tasks that this process has just tried to take.
    pub recent: Recent,
    /// The newest `taskCreated` that this process has written.
    pub newest: AtomicU64,
}

/// The units that the calls to one table have consumed so far, as reported by DynamoDB.
#[derive(Debug, Default)]
pub(super) struct ConsumedUnits {
    reads: AtomicU64,
    writes: AtomicU64,
    calls: AtomicU64,
    conflicts: AtomicU64,
}

/// The units that the calls of one process to one table have consumed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TableUnits {
    /// The read units of the table and its index.
    pub reads: f64,
    /// The write units of the table and its index. DynamoDB also charges for a write whose
    /// condition did not hold, but does not report its units.
    pub writes: f64,
    /// The number of calls.
    pub calls: u64,
    /// The number of writes whose condition did not hold because another process was faster.
    pub conflicts: u64,
}

impl ConsumedUnits {
    fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn add(to: &AtomicU64, capacity: Option<&ConsumedCapacity>) {
        let units = capacity.and_then(ConsumedCapacity::capacity_units);
        // DynamoDB reports halves of units; they are stored in thousandths.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "units of one call are few and not negative"
        )]
        let thousandths = (units.unwrap_or_default() * 1e3) as u64;
        to.fetch_add(thousandths, Ordering::Relaxed);
    }

    pub(super) fn read(&self, capacity: Option<&ConsumedCapacity>) {
        self.called();
        Self::add(&self.reads, capacity);
    }

    pub(super) fn wrote(&self, capacity: Option<&ConsumedCapacity>) {
        self.called();
        Self::add(&self.writes, capacity);
    }

    pub(super) fn conflict(&self) {
        self.called();
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> TableUnits {
        TableUnits {
            reads: Self::units(&self.reads),
            writes: Self::units(&self.writes),
            calls: self.calls.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn units(of: &AtomicU64) -> f64 {
        of.load(Ordering::Relaxed) as f64 / 1e3
    }
}

/// The query for one page of the index.
#[derive(Debug, Clone)]
pub(super) struct Seek {
    /// The key: a status or a shard of one.
    pub key: String,
    pub newest_first: bool,
    /// The maximum number of items; without it, as many as DynamoDB returns, up to 1 MB.
    pub limit: Option<usize>,
    /// The last item of the previous page.
    pub after: Option<TaskItem>,
    /// The `taskCreated` after which to read.
    pub above: Option<AttributeValue>,
    /// The columns to read; empty reads all.
    pub columns: &'static [&'static str],
}

impl Seek {
    /// Returns the query for the first page of a key, the newest first, with all columns.
    pub(super) fn newest(key: String, limit: usize) -> Self {
        Self {
            key,
            newest_first: true,
            limit: Some(limit),
            after: None,
            above: None,
            columns: &[],
        }
    }
}

/// A page of the index.
#[derive(Debug, Default)]
pub(super) struct IndexPage {
    pub items: Vec<TaskItem>,
    /// The last item, unless the page is the last of the key.
    pub next: Option<TaskItem>,
}

/// A conditional step of one task.
#[derive(Debug)]
pub(super) struct ConditionalStep {
    pub task: String,
    /// `SET … REMOVE …`; `#status`, `#updated`, `#token`, … name the columns.
    pub update: &'static str,
    pub condition: &'static str,
    /// All names that the update and the condition use.
    pub names: &'static [(&'static str, &'static str)],
    pub values: Vec<(&'static str, AttributeValue)>,
}

/// The conditional removal of one task.
#[derive(Debug)]
pub(super) struct ConditionalRemoval<'a> {
    pub task: &'a str,
    /// The condition. `#status` is the column of the status; `names` has the others.
    pub condition: &'static str,
    pub names: &'static [(&'static str, &'static str)],
    pub values: Vec<(&'static str, AttributeValue)>,
}

/// The placeholders of an expression: names of columns, and values.
pub(super) type ExpressionParts = (HashMap<String, String>, HashMap<String, AttributeValue>);

impl ConditionalStep {
    /// Returns the names and values of this step and those that all steps share.
    pub(super) fn expression_parts(&mut self, table: &Table) -> ExpressionParts {
        let shared = [("#status", STATUS), ("#updated", UPDATED)];
        let names = shared
            .iter()
            .chain(self.names)
            .map(|(name, column)| ((*name).to_owned(), (*column).to_owned()));
        let date = (":date", table.dates.write(clock::wall_clock_now()));
        let values = std::mem::take(&mut self.values)
            .into_iter()
            .chain([date])
            .map(|(name, value)| (name.to_owned(), value));
        (names.collect(), values.collect())
    }
}

/// The result of a step that DynamoDB answered.
#[derive(Debug)]
pub(super) enum StepResult {
    /// The step was made. The item has its new attributes; it is empty if it was removed.
    Done(TaskItem),
    /// The condition did not hold. The item as it is, if it exists.
    Not(Option<TaskItem>),
}

impl Table {
    pub(super) fn call(&self, step: &'static str) -> CallName<'_> {
        CallName {
            step,
            about: About::Table(&self.name),
            place: &self.place,
        }
    }

    /// Returns the lifetime of dead letters, which does not depend on a short lifetime of tasks.
    pub(super) fn dead_letter_lifetime(&self) -> Duration {
        self.time_to_live.max(DEAD_LETTER_LIFETIME)
    }

    /// Wakes the receivers of this process.
    pub(super) fn notify(&self) {
        self.notifier
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns a `taskCreated` for a new task: later than all that this process wrote, but at most
    /// 100 ms ahead of the clock. Otherwise, tasks of the same millisecond would have no order.
    pub(super) fn created(&self) -> Timestamp {
        let now = clock::wall_clock_now().0;
        let most = (Timestamp(now) + MOST_AHEAD).0;
        let next = |newest: u64| Some((newest + 1).clamp(now, most));
        let before = self
            .newest
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        Timestamp(next(before.unwrap_or_default()).unwrap_or(now))
    }

    pub(super) async fn page(&self, seek: &Seek) -> Result<IndexPage, QueueError> {
        let condition = match seek.above {
            None => "#status = :key",
            Some(_) => "#status = :key AND #created > :above",
        };
        let mut query = self
            .client
            .query()
            .table_name(&self.name)
            .index_name(&self.index)
            .key_condition_expression(condition)
            .expression_attribute_names("#status", STATUS)
            .expression_attribute_values(":key", item::text(&seek.key))
            .scan_index_forward(!seek.newest_first)
            .set_limit(seek.limit.and_then(|limit| i32::try_from(limit).ok()))
            .set_exclusive_start_key(seek.after.clone())
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        if let Some(above) = &seek.above {
            query = query
                .expression_attribute_names("#created", item::CREATED)
                .expression_attribute_values(":above", above.clone());
        }
        if !seek.columns.is_empty() {
            let names: Vec<String> = (0..seek.columns.len())
                .map(|at| format!("#c{at}"))
                .collect();
            query = query.projection_expression(names.join(", "));
            for (name, column) in names.into_iter().zip(seek.columns) {
                query = query.expression_attribute_names(name, *column);
            }
        }
        let answer = query
            .send()
            .await
            .map_err(|error| self.call("Query").failed(&error))?;
        self.spent.read(answer.consumed_capacity());
        Ok(IndexPage {
            next: answer.last_evaluated_key,
            items: answer.items.unwrap_or_default(),
        })
    }

    /// Reads the current state of a task, with all columns.
    pub(super) async fn task(&self, id: &str) -> Result<Option<TaskItem>, QueueError> {
        let get = self.client.get_item().table_name(&self.name);
        let answer = get
            .key(TASK_ID, item::text(id))
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|error| self.call("GetItem").failed(&error))?;
        self.spent.read(answer.consumed_capacity());
        Ok(answer.item)
    }

    /// Makes one step if its condition holds.
    pub(super) async fn step(&self, mut step: ConditionalStep) -> Result<StepResult, QueueError> {
        let (names, values) = step.expression_parts(self);
        let update = self
            .client
            .update_item()
            .table_name(&self.name)
            .key(TASK_ID, item::text(step.task))
            .update_expression(step.update)
            .condition_expression(step.condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        match update.send().await {
            Ok(answer) => {
                self.spent.wrote(answer.consumed_capacity());
                Ok(StepResult::Done(answer.attributes.unwrap_or_default()))
            }
            Err(SdkError::ServiceError(answer))
                if answer.err().is_conditional_check_failed_exception() =>
            {
                self.spent.conflict();
                let item = match answer.into_err() {
                    UpdateItemError::ConditionalCheckFailedException(failed) => failed.item,
                    _ => None,
                };
                Ok(StepResult::Not(item))
            }
            Err(error) => Err(self.call("UpdateItem").failed(&error)),
        }
    }

    /// Removes one task if the condition holds.
    pub(super) async fn remove(
        &self,
        removal: ConditionalRemoval<'_>,
    ) -> Result<StepResult, QueueError> {
        let names = [("#status", STATUS)];
        let mut delete = self
            .client
            .delete_item()
            .table_name(&self.name)
            .key(TASK_ID, item::text(removal.task))
            .condition_expression(removal.condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        for (name, column) in names.iter().chain(removal.names) {
            delete = delete.expression_attribute_names(*name, *column);
        }
        for (name, value) in removal.values {
            delete = delete.expression_attribute_values(name, value);
        }
        match delete.send().await {
            Ok(answer) => {
                self.spent.wrote(answer.consumed_capacity());
                Ok(StepResult::Done(TaskItem::new()))
            }
            Err(SdkError::ServiceError(answer))
                if answer.err().is_conditional_check_failed_exception() =>
            {
                self.spent.conflict();
                Ok(StepResult::Not(match answer.into_err() {
                    DeleteItemError::ConditionalCheckFailedException(failed) => failed.item,
                    _ => None,
                }))
            }
            Err(error) => Err(self.call("DeleteItem").failed(&error)),
        }
    }
}

/// Runs the futures concurrently and returns the results in their order. The only conditional batch
/// of DynamoDB is the transaction, which fails as a whole and costs twice as much.
pub(super) async fn side_by_side<T, F>(futures: Vec<F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let count = futures.len();
    let mut group = Group::new();
    for (at, future) in futures.into_iter().enumerate() {
        group.spawn(async move { (at, future.await) });
    }
    let mut answers: Vec<Option<T>> = (0..count).map(|_| None).collect();
    for _ in 0..count {
        let (at, answer) = group.next().await;
        answers[at] = Some(answer);
    }
    answers.into_iter().flatten().collect()
}

/// Makes the steps of many tasks concurrently.
pub(super) async fn steps(
    table: &Arc<Table>,
    steps: Vec<ConditionalStep>,
) -> Vec<Result<StepResult, QueueError>> {
    let futures = steps.into_iter().map(|step| {
        let table = table.clone();
        async move { table.step(step).await }
    });
    side_by_side(futures.collect()).await
}
