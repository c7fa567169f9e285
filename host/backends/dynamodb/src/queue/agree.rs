//! The settings on which all dispatchers of a table must agree, stored in the table itself. One is
//! the number of index keys that its tasks have ever used: a dispatcher that writes to fewer keys
//! reads the others too, so that no task is hidden. The other is the format of its items. Knows
//! nothing of tasks.

use super::item::{self, TASK_ID, TaskItem};
use super::table::{ConditionalStep, StepResult, Table};
use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use dispatcher_aws::failure::is_unmet;
use dispatcher_core::backend::newer_format;
use dispatcher_core::queue::{ErrorKind, QueueError};

/// The id of the item with these settings. It has no status, so it is in no index.
const RECORD: &str = "dispatcher-shards";
/// The column with the largest number of keys ever used. Without the item it is one.
const COUNT: &str = "dispatcherShards";

/// The column with the format of the table's items. Only formats later than the first are written.
const FORMAT_COLUMN: &str = "dispatcherFormat";
/// The format that this version writes. It is the first format, for which no column is written. A
/// version that changes it must write its number before anything else.
const FORMAT: u32 = 1;

const GROW: &str = "SET #count = :count, #updated = :date";
const GROWS: &str = "attribute_not_exists(#status) \
    AND (attribute_not_exists(#count) OR #count < :count)";
/// The condition under which a put may replace the item. An item with a format is never replaced.
const GROWS_OR_NEW: &str = "attribute_not_exists(#format) \
    AND (attribute_not_exists(#count) OR #count < :count)";

impl Table {
    /// Refuses a table that only a later version can read. Learns the number of keys that other
    /// dispatchers use and, if this one uses more than ever before, records its number before it
    /// writes the first task. A caller that may not read the table can only send to it, and does
    /// not need the number.
    pub(super) async fn agree(&self) -> Result<(), QueueError> {
        let known = match self.recorded().await {
            Ok(record) => {
                self.refuse_newer(record.as_ref())?;
                self.learn(record.as_ref())
            }
            Err(error) if error.kind == ErrorKind::AccessDenied => 1,
            Err(error) => return Err(error),
        };
        if self.shards.own() <= known {
            return Ok(());
        }
        match self.grow().await {
            // A role that may only send cannot update the item either.
            Err(error) if error.kind == ErrorKind::AccessDenied => self.put().await,
            answer => answer,
        }
    }

    fn refuse_newer(&self, record: Option<&TaskItem>) -> Result<(), QueueError> {
        let found = record.and_then(|item| item::whole(item, FORMAT_COLUMN));
        match found {
            Some(found) if found > u64::from(FORMAT) => {
                let why = newer_format(found, FORMAT);
                Err(self.call("opening").refused(&why))
            }
            _ => Ok(()),
        }
    }

    fn learn(&self, record: Option<&TaskItem>) -> u16 {
        let count = record
            .and_then(|item| item::whole(item, COUNT))
            .and_then(|count| u16::try_from(count).ok());
        self.shards.learn(count.unwrap_or(1));
        count.unwrap_or(1)
    }

    /// Uses a query instead of `GetItem`, so that a run needs no more permissions than for its
    /// tasks.
    async fn recorded(&self) -> Result<Option<TaskItem>, QueueError> {
        let query = self.client.query().table_name(&self.name);
        let answer = query
            .key_condition_expression("#id = :id")
            .expression_attribute_names("#id", TASK_ID)
            .expression_attribute_values(":id", item::text(RECORD))
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|error| self.call("Query").failed(&error))?;
        self.spent.read(answer.consumed_capacity());
        Ok(answer.items.unwrap_or_default().into_iter().next())
    }

    async fn grow(&self) -> Result<(), QueueError> {
        let step = ConditionalStep {
            task: RECORD.to_owned(),
            update: GROW,
            condition: GROWS,
            names: &[("#count", COUNT)],
            values: vec![(":count", item::number(self.shards.own()))],
        };
        if let StepResult::Not(item) = self.step(step).await? {
            self.learn(item.as_ref());
        }
        Ok(())
    }

    async fn put(&self) -> Result<(), QueueError> {
        let count = item::number(self.shards.own());
        let put = self.client.put_item().table_name(&self.name);
        let sent = put
            .item(TASK_ID, item::text(RECORD))
            .item(COUNT, count.clone())
            .condition_expression(GROWS_OR_NEW)
            .expression_attribute_names("#count", COUNT)
            .expression_attribute_names("#format", FORMAT_COLUMN)
            .expression_attribute_values(":count", count)
            .send()
            .await;
        match sent {
            Ok(_) => Ok(()),
            Err(error) if is_unmet(&error) => Ok(()),
            Err(error) => Err(self.call("PutItem").failed(&error)),
        }
    }
}
