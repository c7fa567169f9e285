//! Lists the waiting tasks without taking them, takes chosen ones and empties a table. The order is
//! the oldest first, one index key after the other.

use super::DynamoQueue;
use super::claim::{Candidate, ClaimPass, candidate};
use super::item::{self, CREATED, Readiness, STATUS, TASK_ID, TTL, TaskItem};
use super::purge::{self, PURGED_AT_ONCE, PurgeSource, purge_some};
use super::status::{self, PENDING, SUCCESS};
use super::table::{
    ConditionalRemoval, ConditionalStep, IndexPage, Seek, StepResult, Table, side_by_side,
};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use dispatcher_core::clock;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::{BrowseCursor, BrowsePage, ErrorKind, PurgeStep, QueueError};
use std::sync::Arc;
use std::time::Duration;

/// The position that a cursor encodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The index of the key among the keys of the status.
    pub key: usize,
    /// The last item of the previous page: id, status, created, and whether created is a number.
    after: Option<(String, String, String, bool)>,
    /// The `taskCreated` after which to read, and whether it is a number.
    above: Option<(String, bool)>,
}

fn date_value(text: &str, is_number: bool) -> AttributeValue {
    if is_number {
        AttributeValue::N(text.to_owned())
    } else {
        AttributeValue::S(text.to_owned())
    }
}

fn date_text(value: &AttributeValue) -> Option<(String, bool)> {
    match value {
        AttributeValue::N(text) => Some((text.clone(), true)),
        AttributeValue::S(text) => Some((text.clone(), false)),
        _ => None,
    }
}

impl Place {
    /// Parses a cursor from `cursor`; without a cursor, returns the beginning.
    pub(super) fn read(cursor: Option<&BrowseCursor>) -> Option<Self> {
        let Some(cursor) = cursor else {
            return Some(Self::default());
        };
        let (key, after, above) = serde_json::from_str(&cursor.0).ok()?;
        Some(Self { key, after, above })
    }

    /// Returns the position after all tasks that were created until now.
    pub(super) fn end(table: &Table) -> Self {
        let now = table.dates.write(clock::wall_clock_now());
        Self {
            above: date_text(&now),
            ..Self::default()
        }
    }

    /// Returns the cursor as the port uses it.
    pub(super) fn cursor(&self) -> BrowseCursor {
        let parts = serde_json::json!([self.key, self.after, self.above]);
        BrowseCursor(parts.to_string())
    }

    /// Returns the query for the page of a key that begins at this position.
    pub(super) fn seek(&self, key: String, max: usize) -> Seek {
        let after = self.after.as_ref();
        let above = self.above.as_ref();
        Seek {
            newest_first: false,
            after: after.map(|(id, status, created, is_number)| {
                TaskItem::from([
                    (TASK_ID.to_owned(), item::text(id)),
                    (STATUS.to_owned(), item::text(status)),
                    (CREATED.to_owned(), date_value(created, *is_number)),
                ])
            }),
            above: above.map(|(created, is_number)| date_value(created, *is_number)),
            ..Seek::newest(key, max)
        }
    }

    /// Returns the position after a page, or `None` at the end of the last of `keys` keys.
    pub(super) fn following(&self, end: Option<TaskItem>, keys: usize) -> Option<Self> {
        let after = end.and_then(|end| {
            let id = item::string(&end, TASK_ID)?.to_owned();
            let status = item::string(&end, STATUS)?.to_owned();
            let (created, is_number) = date_text(end.get(CREATED)?)?;
            Some((id, status, created, is_number))
        });
        let key = self.key + usize::from(after.is_none());
        (key < keys).then(|| Self {
            key,
            after,
            above: self.above.clone(),
        })
    }
}

impl DynamoQueue {
    /// Lists the waiting tasks of a page of one index key.
    pub(super) async fn list(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        let (items, next) = page(&self.table, PENDING, &self.identity.name, after, max).await?;
        let today = clock::wall_clock_now();
        let waiting = items
            .iter()
            .filter(|item: &&TaskItem| item::readiness(item, today) == Readiness::Ready);
        Ok(BrowsePage {
            messages: waiting.filter_map(|item| self.listed(item)).collect(),
            next,
        })
    }

    fn listed(&self, item: &TaskItem) -> Option<Message> {
        let mut message = self.table.reading.message(item, None)?;
        message.receipt = Receipt(message.id.clone());
        Some(message)
    }

    /// Returns the task of an id if it is waiting.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Message>, QueueError> {
        let found = self.table.task(id).await?;
        let today = clock::wall_clock_now();
        Ok(found
            .filter(|item: &TaskItem| {
                let is_pending =
                    item::string(item, STATUS).is_some_and(|key| status::is(key, PENDING));
                is_pending && item::readiness(item, today) == Readiness::Ready
            })
            .and_then(|item| self.listed(&item)))
    }

    /// Returns the cursor after all tasks that were created until now.
    pub(super) fn end_of_list(&self) -> Result<BrowseCursor, QueueError> {
        Ok(Place::end(&self.table).cursor())
    }

    /// Takes those of these tasks that are waiting.
    pub(super) async fn take_listed(
        &self,
        listed: &[Receipt],
        visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        let max = self.identity.batch;
        let futures = listed.iter().take(max).cloned().map(|receipt| {
            let table = self.table.clone();
            async move { waiting(&table, &receipt.0).await }
        });
        let mut candidates = Vec::new();
        for found in side_by_side(futures.collect()).await {
            candidates.extend(found?);
        }
        let mut pass = ClaimPass::default();
        match self.take(candidates, max, visibility, &mut pass).await {
            Err(error) if pass.messages.is_empty() => Err(error),
            _ => Ok(pass.messages),
        }
    }

    /// Ends a delayed task as `SUCCESS`; returns false if there is no delayed task with this id.
    pub(super) async fn end_later(&self, task: &str) -> Result<bool, QueueError> {
        let step = ConditionalStep {
            task: task.to_owned(),
            update: "SET #status = :to, #updated = :date",
            condition: "begins_with(#status, :pending) AND #not_before > :now",
            names: &[("#not_before", item::NOT_BEFORE)],
            values: vec![
                (":to", item::text(self.table.shards.key(SUCCESS, task))),
                (":pending", item::text(PENDING)),
                (":now", item::number(clock::wall_clock_now().0)),
            ],
        };
        Ok(matches!(self.table.step(step).await?, StepResult::Done(_)))
    }

    /// Removes some of the waiting tasks. A task that the index still lists but that is gone is not
    /// counted.
    pub(super) async fn remove_some(&self) -> Result<PurgeStep, QueueError> {
        let seeks = self.table.shards.keys(PENDING).into_iter().map(|key| Seek {
            newest_first: false,
            columns: &[TASK_ID, STATUS],
            ..Seek::newest(key, PURGED_AT_ONCE)
        });
        purge_some(&WaitingTasks(&self.table), seeks.collect()).await
    }
}

/// The waiting tasks of a table, for a purge.
struct WaitingTasks<'a>(&'a Arc<Table>);

#[async_trait::async_trait]
impl PurgeSource for WaitingTasks<'_> {
    async fn page(&self, seek: &Seek) -> Result<IndexPage, QueueError> {
        self.0.page(seek).await
    }

    async fn remove(&self, items: Vec<TaskItem>) -> Result<u64, QueueError> {
        let removals = items.iter().filter_map(|item| {
            let task = item::string(item, TASK_ID)?.to_owned();
            let key = item::string(item, STATUS)?.to_owned();
            let table = self.0.clone();
            Some(async move { remove(&table, task, key).await })
        });
        purge::removed(removals.collect()).await
    }
}

/// Reads a page of one key of a status. Returns its items and the cursor of the next page; `queue`
/// is the name for errors.
pub(super) async fn page(
    table: &Table,
    status: &str,
    queue: &str,
    after: Option<&BrowseCursor>,
    max: usize,
) -> Result<(Vec<TaskItem>, Option<BrowseCursor>), QueueError> {
    let keys = table.shards.keys(status);
    let place = Place::read(after).and_then(|place| Some((keys.get(place.key)?, place)));
    let Some((key, place)) = place else {
        return Err(QueueError {
            kind: ErrorKind::Invalid,
            message: format!("`{queue}`: the cursor is of another queue"),
        });
    };
    let seek = place.seek(key.clone(), max.clamp(1, 1_000));
    let page = table.page(&seek).await?;
    let next = place.following(page.next, keys.len());
    Ok((page.items, next.map(|next| next.cursor())))
}

/// Returns the task if it can be taken now.
async fn waiting(table: &Arc<Table>, task: &str) -> Result<Option<Candidate>, QueueError> {
    let answer = table
        .client
        .get_item()
        .table_name(&table.name)
        .key(TASK_ID, item::text(task))
        .consistent_read(true)
        .projection_expression("#id, #status, #created, #ttl, #not_before, #expires")
        .expression_attribute_names("#id", TASK_ID)
        .expression_attribute_names("#status", STATUS)
        .expression_attribute_names("#created", CREATED)
        .expression_attribute_names("#ttl", TTL)
        .expression_attribute_names("#not_before", item::NOT_BEFORE)
        .expression_attribute_names("#expires", item::EXPIRES)
        .return_consumed_capacity(ReturnConsumedCapacity::Total)
        .send()
        .await
        .map_err(|error| table.call("GetItem").failed(&error))?;
    table.spent.read(answer.consumed_capacity());
    let Some(found) = answer.item else {
        return Ok(None);
    };
    let ready = item::readiness(&found, clock::wall_clock_now()) == Readiness::Ready;
    let key = item::string(&found, STATUS).filter(|key| ready && status::is(key, PENDING));
    Ok(key.and_then(|key| candidate(&found, key)))
}

/// Removes a task that is still waiting; returns false if it is not.
async fn remove(table: &Arc<Table>, task: String, key: String) -> Result<bool, QueueError> {
    let removal = ConditionalRemoval {
        task: &task,
        condition: "#status = :key",
        names: &[],
        values: vec![(":key", item::text(key))],
    };
    Ok(matches!(table.remove(removal).await?, StepResult::Done(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_goes_through_every_key_and_keeps_its_bound() {
        let start = Place {
            above: Some(("5".to_owned(), true)),
            ..Place::default()
        };
        let end = TaskItem::from([
            (TASK_ID.to_owned(), item::text("t")),
            (STATUS.to_owned(), item::text("PENDING#1")),
            (CREATED.to_owned(), item::number(7_u64)),
        ]);
        let second = start.following(Some(end.clone()), 2).unwrap();
        assert_eq!((second.key, &second.above), (0, &start.above));
        let read = Place::read(Some(&second.cursor())).unwrap();
        assert_eq!(read, second);
        assert_eq!(read.seek("PENDING#1".into(), 9).after, Some(end));
        let third = second.following(None, 2).unwrap();
        assert_eq!((third.key, &third.after), (1, &None));
        assert_eq!(third.following(None, 2), None);
        assert_eq!(Place::read(Some(&BrowseCursor("x".into()))), None);
    }
}
