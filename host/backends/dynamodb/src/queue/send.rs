//! Sends tasks with one conditional put for each message, concurrently. A batch write has no
//! conditions: repeated after a lost response, it would reset tasks that were taken meanwhile.

use super::DynamoQueue;
use super::item::{self, CREATED, NOT_BEFORE, STATUS, TASK_ID, TTL, TaskItem, UPDATED};
use super::item_errors::of_item;
use super::status::PENDING;
use super::table::{Table, side_by_side};
use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use dispatcher_aws::failure::is_unmet;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message;
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::ItemError;
use std::time::Duration;

/// The maximum size in bytes of a body and its attributes: the limit of a DynamoDB item, less the
/// other columns and those that taking and ending the task add.
const MOST_BYTES: usize = 400 * 1024 - 1024;

/// A new task.
#[derive(Debug)]
pub(super) struct NewTask<'a> {
    pub id: String,
    pub created: Timestamp,
    pub delay: Duration,
    /// The lifetime, counted from the time at which the task may be taken.
    pub life: Duration,
    pub body: &'a str,
    pub attributes: &'a [Attribute],
}

/// Returns the item of a new task. The error says why it cannot be stored.
pub(super) fn fresh(table: &Table, task: &NewTask<'_>) -> Result<TaskItem, String> {
    let mut item = table.reading.columns(task.body, task.attributes)?;
    let status = table.shards.key(PENDING, &task.id);
    let created = table.dates.write(task.created);
    let today = dispatcher_core::clock::wall_clock_now();
    if !task.delay.is_zero() {
        item.insert(NOT_BEFORE.to_owned(), item::number((today + task.delay).0));
    }
    let end = item::ttl(today + task.delay + task.life);
    item.insert(TTL.to_owned(), item::number(end));
    item.insert(STATUS.to_owned(), item::text(status));
    item.insert(CREATED.to_owned(), created.clone());
    item.insert(UPDATED.to_owned(), created);
    item.insert(TASK_ID.to_owned(), item::text(&task.id));
    Ok(item)
}

/// Checks that a message can be stored as a task.
fn check(
    table: &Table,
    outgoing: &OutgoingMessage,
    attributes: &[Attribute],
) -> Result<(), ItemError> {
    if outgoing.group.is_some() {
        return Err(ItemError::Refused(format!(
            "`{}` does not support groups: it delivers the newest first; send without a group",
            table.reading.queue
        )));
    }
    let bytes = message::bytes(&outgoing.body, attributes);
    if bytes > MOST_BYTES {
        return Err(ItemError::Refused(format!(
            "the message has {bytes} bytes with its attributes, wanted at most {MOST_BYTES}: an item of DynamoDB has up to 400 KB, including later additions"
        )));
    }
    Ok(())
}

impl DynamoQueue {
    pub(super) fn takes(&self, outgoing: &OutgoingMessage) -> Result<(), ItemError> {
        check(&self.table, outgoing, &outgoing.attributes_with_trace())
    }

    pub(super) async fn send_all(
        &self,
        items: &[OutgoingMessage],
    ) -> Vec<Result<String, ItemError>> {
        let futures = items.iter().cloned().map(|outgoing| {
            let table = self.table.clone();
            let created = table.created();
            async move {
                let attributes = outgoing.attributes_with_trace();
                check(&table, &outgoing, &attributes)?;
                let id = uuid::Uuid::new_v4().to_string();
                let task = NewTask {
                    id: id.clone(),
                    created,
                    delay: outgoing.delay,
                    life: table.time_to_live,
                    body: &outgoing.body,
                    attributes: &attributes,
                };
                let item = fresh(&table, &task).map_err(ItemError::Refused)?;
                put(&table, item).await.map(|()| id)
            }
        });
        let answers = side_by_side(futures.collect()).await;
        if answers.iter().any(Result::is_ok) {
            self.table.notify();
        }
        answers
    }
}

async fn put(table: &Table, item: TaskItem) -> Result<(), ItemError> {
    let sent = table
        .client
        .put_item()
        .table_name(&table.name)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(#id)")
        .expression_attribute_names("#id", TASK_ID)
        .return_consumed_capacity(ReturnConsumedCapacity::Total)
        .send()
        .await;
    match sent {
        Ok(answer) => {
            table.spent.wrote(answer.consumed_capacity());
            Ok(())
        }
        // The id is unique, so an earlier attempt of the SDK has written it and its response was
        // lost.
        Err(error) if is_unmet(&error) => Ok(()),
        Err(error) => Err(of_item(table.call("PutItem").failed(&error))),
    }
}
