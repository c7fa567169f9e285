//! The columns of a task: the sample's, and the additional ones. Pure: `now` is an argument.

use super::body;
use super::receipt::TaskDelivery;
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, ContentError, Message};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// A task as DynamoDB knows it.
pub(super) type TaskItem = HashMap<String, AttributeValue>;

/// The sample's columns.
pub(super) const TASK_ID: &str = "taskId";
pub(super) const STATUS: &str = "taskStatus";
pub(super) const CREATED: &str = "taskCreated";
pub(super) const UPDATED: &str = "taskUpdated";
pub(super) const TTL: &str = "ttl";

/// The fence token of the last delivery. Stays when it ends, so that ending it twice is noticed.
pub(super) const TOKEN: &str = "dispatcherToken";
/// Until when it is ours, ms since the Unix epoch. Only while one of us has taken the task: without
/// it, a `TAKEN` task is somebody else's.
pub(super) const UNTIL: &str = "dispatcherUntil";
/// How often it was received.
pub(super) const RECEIVES: &str = "dispatcherReceives";
/// When it was received first, ms since the Unix epoch.
pub(super) const FIRST: &str = "dispatcherFirstReceived";
/// Not to be taken before, ms since the Unix epoch.
pub(super) const NOT_BEFORE: &str = "dispatcherNotBefore";
/// Its sender's `ttl`, where that was moved behind a lease: DynamoDB deletes what has passed its
/// `ttl`, also while somebody works on it.
pub(super) const EXPIRES: &str = "dispatcherTtl";
/// Why it failed.
pub(super) const REASON: &str = "dispatcherReason";
/// The table that holds its dead letter, where it was copied to one.
pub(super) const MOVED: &str = "dispatcherMoved";
/// A body without a column.
pub(super) const BODY: &str = "dispatcherBody";
/// The sender's attributes, as JSON.
pub(super) const ATTRIBUTES: &str = "dispatcherAttributes";

/// What the names of our columns begin with.
const OURS: &str = "dispatcher";

/// A number below this counts seconds, one above milliseconds: the year 5138, or 1973. DynamoDB's
/// own time to live wants seconds; the sample writes milliseconds there, which never expire.
pub(super) const SECONDS_END: u64 = 100_000_000_000;

/// Whether a column is not the task's own.
pub(super) fn is_reserved(name: &str) -> bool {
    [TASK_ID, STATUS, CREATED, UPDATED, TTL].contains(&name) || name.starts_with(OURS)
}

/// How a table writes `taskCreated` and `taskUpdated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dates {
    /// A number of milliseconds since the Unix epoch, as the sample.
    Number,
    /// A text as in `2026-01-31T12:00:00.000Z`, which sorts like the time it names.
    Text,
}

impl Dates {
    /// A date as this table writes it.
    pub(super) fn write(self, at: Timestamp) -> AttributeValue {
        match self {
            Self::Number => number(at.0),
            Self::Text => {
                let date = SystemTime::UNIX_EPOCH + Duration::from_millis(at.0);
                AttributeValue::S(humantime::format_rfc3339_millis(date).to_string())
            }
        }
    }
}

/// A number.
pub(super) fn number(value: impl Into<u64>) -> AttributeValue {
    AttributeValue::N(value.into().to_string())
}

/// A date as DynamoDB's time to live wants it: whole seconds, none too early.
pub(super) fn ttl(at: Timestamp) -> u64 {
    at.0.div_ceil(1_000)
}

/// A text.
pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// A column that is a text.
pub(super) fn string<'a>(item: &'a TaskItem, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

/// A column that is a whole number, or a fraction whose whole part is meant.
pub(super) fn whole(item: &TaskItem, name: &str) -> Option<u64> {
    let digits = item.get(name)?.as_n().ok()?;
    let whole = digits.split('.').next().unwrap_or(digits);
    whole.parse().ok()
}

/// A column that is a date: a number of seconds or milliseconds, or a text of RFC 3339.
pub(super) fn date(item: &TaskItem, name: &str) -> Option<Timestamp> {
    if let Some(number) = whole(item, name) {
        let ms = if number < SECONDS_END {
            number.saturating_mul(1_000)
        } else {
            number
        };
        return Some(Timestamp(ms));
    }
    let date = humantime::parse_rfc3339_weak(string(item, name)?).ok()?;
    let since = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok().map(Timestamp)
}

/// Whether a waiting task may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// At once.
    Ready,
    /// Not before then.
    Later(Timestamp),
    /// Never again: its time to live has passed. DynamoDB deletes it within two days or so.
    Expired,
}

/// When a task is too old to be begun: the end that its sender gave it.
pub(super) fn expiry(item: &TaskItem) -> Option<Timestamp> {
    date(item, EXPIRES).or_else(|| date(item, TTL))
}

/// What the columns of a waiting task say about taking it now.
pub(super) fn readiness(item: &TaskItem, now: Timestamp) -> Readiness {
    if expiry(item).is_some_and(|end| end <= now) {
        return Readiness::Expired;
    }
    match whole(item, NOT_BEFORE).map(Timestamp) {
        Some(at) if at > now => Readiness::Later(at),
        _ => Readiness::Ready,
    }
}

/// What a table's items are read with.
#[derive(Debug, Clone)]
pub(super) struct ItemFormat {
    /// As the configuration names the queue.
    pub queue: String,
    /// The table's ARN.
    pub source: String,
    /// The column that is the body; without it all of the task's own.
    pub body: Option<String>,
}

impl ItemFormat {
    /// A task as the program knows it; `delivery` where it was received. `None` without an id.
    pub(super) fn message(
        &self,
        item: &TaskItem,
        delivery: Option<&TaskDelivery>,
    ) -> Option<Message> {
        let (body, mut unreadable) = match self.body(item) {
            Ok(body) => (body, None),
            Err(why) => (String::new(), Some(why)),
        };
        let attributes = attributes(item).unwrap_or_else(|why| {
            unreadable.get_or_insert(why);
            Vec::new()
        });
        let ttl = item.get(EXPIRES).or_else(|| item.get(TTL));
        let system = [CREATED, UPDATED].map(|name| (name, item.get(name)));
        let system = system.into_iter().chain([(TTL, ttl)]);
        let system = system.filter_map(|(name, value)| Some((name.to_owned(), plain(value?)?)));
        let receives = whole(item, RECEIVES).unwrap_or_default();
        Some(Message {
            id: string(item, TASK_ID)?.to_owned(),
            queue: self.queue.clone(),
            body,
            source: self.source.clone(),
            receipt: delivery.map_or_else(
                || dispatcher_core::message::Receipt(String::new()),
                TaskDelivery::receipt,
            ),
            receive_count: u32::try_from(receives).unwrap_or(u32::MAX),
            sent_at: date(item, CREATED),
            first_received_at: whole(item, FIRST).map(Timestamp),
            group: None,
            system_attributes: system.collect(),
            attributes,
            body_md5: None,
            attributes_md5: None,
            unreadable: unreadable.map(ContentError::Unreadable),
        })
    }

    /// The error is why there is none.
    fn body(&self, item: &TaskItem) -> Result<String, String> {
        if let Some(value) = self.body.as_ref().and_then(|name| item.get(name)) {
            return Ok(match value.as_s() {
                Ok(text) => text.clone(),
                Err(other) => body::of_value(other),
            });
        }
        match (item.get(BODY), &self.body) {
            (Some(value), _) => value.as_s().cloned().map_err(|other| {
                format!("its body cannot be read: `{BODY}` is no string but {other:?}")
            }),
            (None, Some(name)) => Err(format!("no body: the item has no attribute `{name}`")),
            (None, None) => Ok(body::of_columns(item)),
        }
    }

    /// The columns of a new task besides those of its state. An error is why it cannot be.
    pub(super) fn columns(&self, text: &str, attributes: &[Attribute]) -> Result<TaskItem, String> {
        let mut item = match &self.body {
            Some(name) => TaskItem::from([(name.clone(), self::text(text))]),
            None => body::to_columns(text)
                .unwrap_or_else(|| TaskItem::from([(BODY.to_owned(), self::text(text))])),
        };
        if !attributes.is_empty() {
            let json = serde_json::to_string(attributes)
                .map_err(|error| format!("the attributes cannot be written as JSON: {error}"))?;
            item.insert(ATTRIBUTES.to_owned(), self::text(json));
        }
        Ok(item)
    }
}

/// The sender's attributes. The error is why they cannot be read.
fn attributes(item: &TaskItem) -> Result<Vec<Attribute>, String> {
    let Some(value) = item.get(ATTRIBUTES) else {
        return Ok(Vec::new());
    };
    let unreadable = |why: String| format!("its attributes cannot be read: {why}");
    let text = value
        .as_s()
        .map_err(|_| unreadable(format!("`{ATTRIBUTES}` is no string")))?;
    serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))
}

fn plain(value: &AttributeValue) -> Option<String> {
    match value {
        AttributeValue::S(text) | AttributeValue::N(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "item_tests.rs"]
mod tests;
