//! Walking over the tasks that wait without taking them, taking what was chosen on the way, and
//! emptying a table: the oldest first, one key of the index after the other.

use super::DynamoQueue;
use super::claim::{Candidate, ClaimPass, candidate};
use super::item::{self, CREATED, Readiness, STATUS, TASK_ID, TTL, TaskItem};
use super::purge::{self, PURGED_AT_ONCE, PurgeSource, purge_some};
use super::status::{self, PENDING, SUCCESS};
use super::table::{
    ConditionalRemoval, ConditionalStep, IndexPage, Seek, Stepped, Table, side_by_side,
};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use dispatcher_core::clock;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::{BrowseCursor, BrowsePage, ErrorKind, PurgeStep, QueueError};
use std::sync::Arc;
use std::time::Duration;

/// What a cursor says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Which of the keys of the status.
    pub key: usize,
    /// The last item of the page before: id, status, created, and whether that is a number.
    after: Option<(String, String, String, bool)>,
    /// Only what was created after this, in the same shape as `created`.
    above: Option<(String, bool)>,
}

fn date_value(text: &str, is_number: bool) -> AttributeValue {
    match is_number {
        true => AttributeValue::N(text.to_owned()),
        false => AttributeValue::S(text.to_owned()),
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
    /// What `cursor` made; the beginning without one.
    pub(super) fn read(cursor: Option<&BrowseCursor>) -> Option<Self> {
        let Some(cursor) = cursor else {
            return Some(Self::default());
        };
        let (key, after, above) = serde_json::from_str(&cursor.0).ok()?;
        Some(Self { key, after, above })
    }

    /// The place behind what was created until now.
    pub(super) fn end(table: &Table) -> Self {
        let now = table.dates.write(clock::wall_clock_now());
        Self {
            above: date_text(&now),
            ..Self::default()
        }
    }

    /// As the port knows it.
    pub(super) fn cursor(&self) -> BrowseCursor {
        let parts = serde_json::json!([self.key, self.after, self.above]);
        BrowseCursor(parts.to_string())
    }

    /// The page of a key that begins here.
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

    /// The place after a page, of so many keys; `None` at the end of the last.
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
    /// A page of one key of the index.
    pub(super) async fn list(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        let (items, next) = page(&self.table, PENDING, &self.identity.name, after, max).await?;
        let today = clock::wall_clock_now();
        let waits = |item: &&TaskItem| item::readiness(item, today) == Readiness::Ready;
        let waiting = items.iter().filter(waits);
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

    /// The task of an id, if it waits.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Message>, QueueError> {
        let found = self.table.task(id).await?;
        let today = clock::wall_clock_now();
        let waits = |item: &TaskItem| {
            let is_pending = item::string(item, STATUS).is_some_and(|key| status::is(key, PENDING));
            is_pending && item::readiness(item, today) == Readiness::Ready
        };
        Ok(found.filter(waits).and_then(|item| self.listed(&item)))
    }

    /// The place behind what was created until now.
    pub(super) fn end_of_list(&self) -> Result<BrowseCursor, QueueError> {
        Ok(Place::end(&self.table).cursor())
    }

    /// Takes these tasks, as far as they wait.
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

    /// Ends a task that may not be taken yet, as one that is done; false if there is none of the id.
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
        Ok(matches!(self.table.step(step).await?, Stepped::Done(_)))
    }

    /// Removes some of the tasks that wait. What the index still lists and is gone counts as nothing.
    pub(super) async fn remove_some(&self) -> Result<PurgeStep, QueueError> {
        let seek = |key| Seek {
            newest_first: false,
            columns: &[TASK_ID, STATUS],
            ..Seek::newest(key, PURGED_AT_ONCE)
        };
        let seeks = self.table.shards.keys(PENDING).into_iter().map(seek);
        purge_some(&WaitingTasks(&self.table), seeks.collect()).await
    }
}

/// The tasks of a table that wait, to be removed.
struct WaitingTasks<'a>(&'a Arc<Table>);

#[async_trait::async_trait]
impl PurgeSource for WaitingTasks<'_> {
    async fn page(&self, seek: &Seek) -> Result<IndexPage, QueueError> {
        self.0.page(seek).await
    }

    async fn remove(&self, items: Vec<TaskItem>) -> Result<u64, QueueError> {
        let task = |item: &TaskItem| {
            let task = item::string(item, TASK_ID)?.to_owned();
            Some((task, item::string(item, STATUS)?.to_owned()))
        };
        let removals = items.iter().filter_map(task).map(|(task, key)| {
            let table = self.0.clone();
            async move { remove(&table, task, key).await }
        });
        purge::removed(removals.collect()).await
    }
}

/// A page of one key of a status, and where the next one begins; `queue` names who asks in an error.
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

/// A task that can be taken now.
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

/// Removes a task that still waits; false if it does not.
async fn remove(table: &Arc<Table>, task: String, key: String) -> Result<bool, QueueError> {
    let removal = ConditionalRemoval {
        task: &task,
        condition: "#status = :key",
        names: &[],
        values: vec![(":key", item::text(key))],
    };
    Ok(matches!(table.remove(removal).await?, Stepped::Done(_)))
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
