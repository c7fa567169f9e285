//! Jobs in a DynamoDB table, in the format of Shoryuken::Waiter: this program sends jobs that the
//! Waiter's processes wrote, and the Waiter sends jobs of this program. The only place of the
//! schedule that names the SDK.
//!
//! `item` defines the format, `json` a part of it, and `table` the table itself.

mod item;
mod json;
mod table;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use dispatcher_aws as aws;
use dispatcher_aws::SdkConfig;
use dispatcher_aws::failure::{About, CallName};
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::schedule::{
    Claim, JobCancellation, JobOutcome, JobPage, ScheduleStore, ScheduledJob, StoreError,
    Unreadable, decide,
};
use dispatcher_core::tasks::Group;
use item::{ADDED, CLAIM, CLAIM_UNTIL, INDEX, ItemKey, JOB_ID, OWN, PERFORM_AT, SCHEDULER, WAITER};
use item::{DEAD_PERFORM_AT, DEAD_REASON, DEAD_SINCE};
use std::collections::HashMap;
use std::sync::Arc;
pub use table::TableCreation;

/// The maximum number of concurrent calls on single items.
const CALLS: usize = 32;
/// The maximum number of items in one page. DynamoDB also ends a page at 1 MiB (Query in its API
/// reference).
const PAGE: i32 = 500;

/// A DynamoDB client for one configuration. Cheap to create and to clone; makes no call by itself.
#[derive(Debug, Clone)]
pub struct DynamoDb {
    client: Client,
    /// The endpoint or region, for error messages.
    place: String,
}

impl DynamoDb {
    /// Creates a client from the configuration of `aws::configuration`.
    pub fn connect(config: &SdkConfig) -> Self {
        Self {
            client: Client::new(config),
            place: aws::place(config, "DYNAMODB"),
        }
    }

    /// Returns the jobs of a table. With `queue`, all go to this queue; without it, each goes to
    /// the queue that it names.
    pub fn table(&self, table: &str, queue: Option<&str>) -> Table {
        Table {
            at: Arc::new(TableSchedule {
                dynamodb: self.clone(),
                table: table.to_owned(),
                queue: queue.map(str::to_owned),
            }),
        }
    }
}

/// A table with jobs.
#[derive(Debug, Clone)]
pub struct Table {
    at: Arc<TableSchedule>,
}

#[derive(Debug)]
struct TableSchedule {
    dynamodb: DynamoDb,
    table: String,
    queue: Option<String>,
}

impl TableSchedule {
    fn call(&self, step: &'static str) -> CallName<'_> {
        CallName {
            step,
            about: About::Table(&self.table),
            place: &self.dynamodb.place,
        }
    }

    fn client(&self) -> &Client {
        &self.dynamodb.client
    }

    /// Reads the job of an item. The error describes an item that is not a job.
    fn job(&self, item: &HashMap<String, AttributeValue>) -> Result<ScheduledJob, Unreadable> {
        let queue = self.queue.as_deref();
        item::read(item, queue).map_err(|why| item::unreadable(item, queue, why))
    }

    /// Takes an item out of the index, which only lists items that have a `perform_at`. Everything
    /// else of the item stays.
    async fn set_aside(
        &self,
        job: &Unreadable,
        reason: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let ItemKey { scheduler, at } = item::key_of(&job.id, &job.stamp)?;
        let free = format!(
            "(attribute_not_exists({CLAIM_UNTIL}) OR NOT attribute_type({CLAIM_UNTIL}, :number) OR {CLAIM_UNTIL} < :now)"
        );
        let asked = self
            .client()
            .update_item()
            .table_name(&self.table)
            .key(SCHEDULER, AttributeValue::S(scheduler))
            .key(JOB_ID, AttributeValue::S(job.id.clone()))
            .update_expression(format!(
                "SET {DEAD_REASON} = :reason, {DEAD_SINCE} = :now, {DEAD_PERFORM_AT} = {PERFORM_AT} REMOVE {PERFORM_AT}, {CLAIM}, {CLAIM_UNTIL}"
            ))
            .condition_expression(format!("{PERFORM_AT} = :at AND {free}"))
            .expression_attribute_values(":at", AttributeValue::N(at))
            .expression_attribute_values(":reason", AttributeValue::S(reason.to_owned()))
            .expression_attribute_values(":number", AttributeValue::S("N".to_owned()))
            .expression_attribute_values(":now", item::seconds(now))
            .send()
            .await;
        self.call("UpdateItem").held(asked)
    }

    async fn claim(
        &self,
        job: &ScheduledJob,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let ItemKey { scheduler, at } = item::key(job)?;
        let asked = self
            .client()
            .update_item()
            .table_name(&self.table)
            .key(SCHEDULER, AttributeValue::S(scheduler))
            .key(JOB_ID, AttributeValue::S(job.id.clone()))
            .update_expression(format!("SET {CLAIM} = :token, {CLAIM_UNTIL} = :until"))
            .condition_expression(format!("{PERFORM_AT} = :at AND {}", free_or_ours()))
            .expression_attribute_values(":token", AttributeValue::S(claim.token.clone()))
            .expression_attribute_values(":until", item::seconds(claim.until))
            .expression_attribute_values(":at", AttributeValue::N(at))
            .expression_attribute_values(":now", item::seconds(now))
            .send()
            .await;
        self.call("UpdateItem").held(asked)
    }

    /// Claims an item at any time before or after its due time, so that it can be cancelled.
    async fn hold(
        &self,
        half: &str,
        id: &str,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<ClaimState, StoreError> {
        let asked = self
            .client()
            .update_item()
            .table_name(&self.table)
            .key(SCHEDULER, AttributeValue::S(half.to_owned()))
            .key(JOB_ID, AttributeValue::S(id.to_owned()))
            .update_expression(format!("SET {CLAIM} = :token, {CLAIM_UNTIL} = :until"))
            .condition_expression(format!("attribute_exists({JOB_ID}) AND {}", free_or_ours()))
            .expression_attribute_values(":token", AttributeValue::S(claim.token.clone()))
            .expression_attribute_values(":until", item::seconds(claim.until))
            .expression_attribute_values(":now", item::seconds(now))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let is_there = match asked.as_ref().err().and_then(SdkError::as_service_error) {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                failed.item().is_some()
            }
            _ => false,
        };
        let is_ours = self.call("UpdateItem").held(asked)?;
        Ok(match (is_ours, is_there) {
            (true, _) => ClaimState::Ours,
            (false, true) => ClaimState::Others,
            (false, false) => ClaimState::None,
        })
    }

    /// Deletes an item that this claim holds.
    async fn delete(
        &self,
        half: &str,
        id: &str,
        claim: &Claim,
    ) -> Result<JobCancellation, StoreError> {
        let asked = self
            .client()
            .delete_item()
            .table_name(&self.table)
            .key(SCHEDULER, AttributeValue::S(half.to_owned()))
            .key(JOB_ID, AttributeValue::S(id.to_owned()))
            .condition_expression(format!("{CLAIM} = :token"))
            .expression_attribute_values(":token", AttributeValue::S(claim.token.clone()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let is_there = match asked.as_ref().err().and_then(SdkError::as_service_error) {
            Some(DeleteItemError::ConditionalCheckFailedException(failed)) => {
                failed.item().is_some()
            }
            _ => false,
        };
        // Another process can hold the item only if this claim expired meanwhile.
        if !self.call("DeleteItem").held(asked)? && is_there {
            Ok(JobCancellation::BeingSent)
        } else {
            Ok(JobCancellation::Yes)
        }
    }

    async fn end(&self, ending: &JobOutcome) -> Result<(), StoreError> {
        let JobOutcome { job, token, next } = ending;
        let ItemKey { scheduler, .. } = item::key(job)?;
        let (scheduler, id) = (
            AttributeValue::S(scheduler),
            AttributeValue::S(job.id.clone()),
        );
        let ours = format!("{CLAIM} = :token");
        let token = AttributeValue::S(token.clone());
        // A job that this process no longer holds does not need to be ended here.
        match next {
            None => {
                let asked = self
                    .client()
                    .delete_item()
                    .table_name(&self.table)
                    .key(SCHEDULER, scheduler)
                    .key(JOB_ID, id)
                    .condition_expression(ours)
                    .expression_attribute_values(":token", token)
                    .send()
                    .await;
                self.call("DeleteItem").held(asked).map(drop)
            }
            Some(next) => {
                let mut update = format!("REMOVE {CLAIM}, {CLAIM_UNTIL}");
                let mut asked = self
                    .client()
                    .update_item()
                    .table_name(&self.table)
                    .key(SCHEDULER, scheduler)
                    .key(JOB_ID, id)
                    .condition_expression(ours)
                    .expression_attribute_values(":token", token);
                // A released job keeps the exact digits that its producer wrote.
                if *next != job.due {
                    update = format!("SET {PERFORM_AT} = :next {update}");
                    asked = asked.expression_attribute_values(":next", item::seconds(*next));
                }
                let asked = asked.update_expression(update).send().await;
                self.call("UpdateItem").held(asked).map(drop)
            }
        }
    }
}

/// The holder of an item.
enum ClaimState {
    Ours,
    Others,
    /// The item does not exist.
    None,
}

/// Returns the condition that no other process holds a claim on the item beyond `:now`. The
/// caller's own claim is allowed, because the SDK repeats a call whose response is lost.
fn free_or_ours() -> String {
    format!("(attribute_not_exists({CLAIM_UNTIL}) OR {CLAIM_UNTIL} < :now OR {CLAIM} = :token)")
}

/// Runs calls, up to [`CALLS`] at once, and returns the results in the order of the items.
async fn each<I, T, F>(items: Vec<I>, call: impl Fn(I) -> F) -> Vec<Result<T, StoreError>>
where
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
    T: Send + 'static,
{
    let mut answers: Vec<Option<Result<T, StoreError>>> = Vec::new();
    answers.resize_with(items.len(), || None);
    let mut calls = Group::new();
    for (number, item) in items.into_iter().enumerate() {
        if calls.len() >= CALLS {
            let (number, answer): (usize, Result<T, StoreError>) = calls.next().await;
            answers[number] = Some(answer);
        }
        let call = call(item);
        calls.spawn(async move { (number, call.await) });
    }
    while !calls.is_empty() {
        let (number, answer) = calls.next().await;
        answers[number] = Some(answer);
    }
    let answers = answers.into_iter();
    answers
        .map(|answer| answer.expect("every call was awaited"))
        .collect()
}

#[async_trait::async_trait]
impl ScheduleStore for Table {
    fn place(&self) -> String {
        format!("dynamodb table {}", self.at.table)
    }

    async fn make(&self) -> Result<bool, StoreError> {
        Ok(Table::make(self).await? == TableCreation::New)
    }

    /// Returns the id in the body of an Active Job job for the queue with the table's name. The
    /// Waiter expects the id in the body and in the key.
    fn own_id(&self, job: &ScheduledJob) -> Option<String> {
        let plain = job.message.group.is_none() && job.every.is_none();
        plain
            .then(|| item::own_id(&job.message.body, &self.at.table))
            .flatten()
    }

    async fn add(&self, job: &ScheduledJob) -> Result<bool, StoreError> {
        let call = self.at.call("PutItem");
        let mut item = item::write(job, &self.at.table).map_err(|why| call.refused(&why))?;
        let ours = AttributeValue::S(uuid::Uuid::new_v4().to_string());
        item.insert(ADDED.to_owned(), ours.clone());
        let asked = self
            .at
            .client()
            .put_item()
            .table_name(&self.at.table)
            .set_item(Some(item))
            .condition_expression(format!("attribute_not_exists({JOB_ID})"))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let found = match asked.as_ref().err().and_then(SdkError::as_service_error) {
            Some(PutItemError::ConditionalCheckFailedException(failed)) => failed.item(),
            _ => None,
        };
        // The response to the SDK's first attempt was lost, and its second attempt met the item of
        // the first.
        if found.is_some_and(|item| item.get(ADDED) == Some(&ours)) {
            return Ok(true);
        }
        call.held(asked)
    }

    /// Reads one half of the table after the other: first the Waiter's jobs, then those that only
    /// this program can read. Reads are consistent, which a local index supports.
    async fn due(&self, until: Timestamp, after: Option<&str>) -> Result<JobPage, StoreError> {
        let call = self.at.call("Query");
        let (half, start) = item::start(after).map_err(|why| call.refused(&why))?;
        let asked = self
            .at
            .client()
            .query()
            .table_name(&self.at.table)
            .index_name(INDEX)
            .consistent_read(true)
            .limit(PAGE)
            .key_condition_expression(format!("{SCHEDULER} = :half AND {PERFORM_AT} <= :until"))
            .expression_attribute_values(":half", AttributeValue::S(half.to_owned()))
            .expression_attribute_values(":until", item::seconds(until))
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|error| call.failed(&error))?;
        let mut page = JobPage {
            next: item::next(half, asked.last_evaluated_key()),
            ..JobPage::default()
        };
        for item in asked.items() {
            match self.at.job(item) {
                Ok(job) => page.jobs.push(job),
                Err(unreadable) => page.unreadable.push(unreadable),
            }
        }
        Ok(page)
    }

    async fn claim(
        &self,
        jobs: &[ScheduledJob],
        claim: &Claim,
        now: Timestamp,
    ) -> Vec<Result<bool, StoreError>> {
        each(jobs.to_vec(), |job| {
            let (at, claim) = (self.at.clone(), claim.clone());
            async move { at.claim(&job, &claim, now).await }
        })
        .await
    }

    async fn end(&self, endings: &[JobOutcome]) -> Vec<Result<(), StoreError>> {
        each(endings.to_vec(), |ending| {
            let at = self.at.clone();
            async move { at.end(&ending).await }
        })
        .await
    }

    async fn set_aside(
        &self,
        job: &Unreadable,
        reason: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.at.set_aside(job, reason, now).await
    }

    /// Claims the job, then deletes it. No other process ends a claimed job, so if the job is then
    /// missing, an earlier attempt deleted it and its response was lost.
    async fn cancel(&self, id: &str, now: Timestamp) -> Result<JobCancellation, StoreError> {
        let claim = decide::claim(uuid::Uuid::new_v4().to_string(), now);
        for half in [OWN, WAITER] {
            match self.at.hold(half, id, &claim, now).await? {
                ClaimState::Ours => return self.at.delete(half, id, &claim).await,
                ClaimState::Others => return Ok(JobCancellation::BeingSent),
                ClaimState::None => {}
            }
        }
        Ok(JobCancellation::Unknown)
    }
}

/// Returns until when to wait for a new table.
fn patience(now: BootInstant) -> BootInstant {
    now + std::time::Duration::from_secs(60)
}
