//! The number of index keys that the tasks of a table have ever used, stored in the table itself: a
//! dispatcher that writes to fewer reads the others too, so that no task is hidden. Knows nothing
//! of tasks.

use super::item::{self, TASK_ID, TaskItem};
use super::table::{ConditionalStep, Stepped, Table};
use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use dispatcher_aws::failure::is_unmet;
use dispatcher_core::queue::{ErrorKind, QueueError};

/// The id of the item that remembers. It has no status, so it is in no index.
const RECORD: &str = "dispatcher-shards";
/// Its column: the most that there ever were. Without the item it is one.
const COUNT: &str = "dispatcherShards";

const GROW: &str = "SET #count = :count, #updated = :date";
const GROWS: &str = "attribute_not_exists(#status) \
    AND (attribute_not_exists(#count) OR #count < :count)";
const GROWS_OR_NEW: &str = "attribute_not_exists(#count) OR #count < :count";

impl Table {
    /// Learns over how many keys others have spread the tasks, and has remembered over how many we
    /// do before the first is written, if that is more than ever. Who may not read the table can
    /// only send to it, and need not know.
    pub(super) async fn agree_on_shards(&self) -> Result<(), QueueError> {
        let known = match self.recorded().await {
            Ok(record) => self.learn(record.as_ref()),
            Err(error) if error.kind == ErrorKind::AccessDenied => 1,
            Err(error) => return Err(error),
        };
        if self.shards.own() <= known {
            return Ok(());
        }
        match self.grow().await {
            // A role that only sends may not update either.
            Err(error) if error.kind == ErrorKind::AccessDenied => self.put().await,
            answer => answer,
        }
    }

    fn learn(&self, record: Option<&TaskItem>) -> u16 {
        let count = record.and_then(|item| item::whole(item, COUNT));
        let count = count.and_then(|count| u16::try_from(count).ok());
        self.shards.learn(count.unwrap_or(1));
        count.unwrap_or(1)
    }

    /// A query, not a read of one item: a run needs no more permissions than for its tasks.
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
        if let Stepped::Not(item) = self.step(step).await? {
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
