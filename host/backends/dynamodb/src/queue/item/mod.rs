//! The columns of a task: those of the sample, and the additional ones. Pure: `now` is an argument.

use super::body;
use super::receipt::TaskDelivery;
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, ContentError, Message};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// A task as an item of the table.
pub(super) type TaskItem = HashMap<String, AttributeValue>;

/// The sample's columns.
pub(super) const TASK_ID: &str = "taskId";
pub(super) const STATUS: &str = "taskStatus";
pub(super) const CREATED: &str = "taskCreated";
pub(super) const UPDATED: &str = "taskUpdated";
pub(super) const TTL: &str = "ttl";

/// The fence token of the last delivery. It stays when the delivery ends, so that a second end is
/// detected.
pub(super) const TOKEN: &str = "dispatcherToken";
/// The end of the lease, in ms since the Unix epoch. Only tasks that a dispatcher has taken have
/// it: a `TAKEN` task without it was taken by another program.
pub(super) const UNTIL: &str = "dispatcherUntil";
/// The number of receives.
pub(super) const RECEIVES: &str = "dispatcherReceives";
/// The time of the first receive, in ms since the Unix epoch.
pub(super) const FIRST: &str = "dispatcherFirstReceived";
/// The earliest time at which it may be taken, in ms since the Unix epoch.
pub(super) const NOT_BEFORE: &str = "dispatcherNotBefore";
/// The sender's `ttl`, if `ttl` was moved past the end of a lease: DynamoDB deletes an item after
/// its `ttl`, even while a worker handles the task.
pub(super) const EXPIRES: &str = "dispatcherTtl";
/// The reason of the failure.
pub(super) const REASON: &str = "dispatcherReason";
/// The table to which its dead letter was copied.
pub(super) const MOVED: &str = "dispatcherMoved";
/// The body, if it is not stored in columns of the task.
pub(super) const BODY: &str = "dispatcherBody";
/// The sender's attributes, as JSON.
pub(super) const ATTRIBUTES: &str = "dispatcherAttributes";

/// The prefix of the additional columns.
const OURS: &str = "dispatcher";

/// The limit between seconds (below) and milliseconds: the year 5138, or 1973. DynamoDB's time to
/// live needs seconds; the sample writes milliseconds, which never expire.
pub(super) const SECONDS_END: u64 = 100_000_000_000;

/// Whether a column is not part of the task's own content.
pub(super) fn is_reserved(name: &str) -> bool {
    [TASK_ID, STATUS, CREATED, UPDATED, TTL].contains(&name) || name.starts_with(OURS)
}

/// The format of `taskCreated` and `taskUpdated` in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dates {
    /// A number of milliseconds since the Unix epoch, as in the sample.
    Number,
    /// A text like `2026-01-31T12:00:00.000Z`, which sorts by time.
    Text,
}

impl Dates {
    /// Formats a date for this table.
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

/// Returns a number as an attribute value.
pub(super) fn number(value: impl Into<u64>) -> AttributeValue {
    AttributeValue::N(value.into().to_string())
}

/// Converts a date to DynamoDB's time to live: whole seconds, rounded up.
pub(super) fn ttl(at: Timestamp) -> u64 {
    at.0.div_ceil(1_000)
}

/// Returns a text as an attribute value.
pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// Returns a column that is a text.
pub(super) fn string<'a>(item: &'a TaskItem, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

/// Returns a column that is a number, without its fraction.
pub(super) fn whole(item: &TaskItem, name: &str) -> Option<u64> {
    let digits = item.get(name)?.as_n().ok()?;
    let whole = digits.split('.').next().unwrap_or(digits);
    whole.parse().ok()
}

/// Returns a column that is a date: a number of seconds or milliseconds, or a text of RFC 3339.
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
    /// It may be taken now.
    Ready,
    /// It may be taken from this time on.
    Later(Timestamp),
    /// Its time to live has passed. DynamoDB deletes it within about two days.
    Expired,
}

/// Returns when a task expires: the sender's time to live.
pub(super) fn expiry(item: &TaskItem) -> Option<Timestamp> {
    date(item, EXPIRES).or_else(|| date(item, TTL))
}

/// Returns whether a waiting task may be taken now.
pub(super) fn readiness(item: &TaskItem, now: Timestamp) -> Readiness {
    if expiry(item).is_some_and(|end| end <= now) {
        return Readiness::Expired;
    }
    match whole(item, NOT_BEFORE).map(Timestamp) {
        Some(at) if at > now => Readiness::Later(at),
        _ => Readiness::Ready,
    }
}

/// The settings for reading the items of a table.
#[derive(Debug, Clone)]
pub(super) struct ItemFormat {
    /// The queue's name in the configuration.
    pub queue: String,
    /// The table's ARN.
    pub source: String,
    /// The column that is the body. `None`: the body is all of the task's own columns.
    pub body: Option<String>,
}

impl ItemFormat {
    /// Converts an item to a message; `delivery` is set if it was received. Returns `None` for an
    /// item without an id.
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
        let system = [CREATED, UPDATED]
            .map(|name| (name, item.get(name)))
            .into_iter()
            .chain([(TTL, ttl)])
            .filter_map(|(name, value)| Some((name.to_owned(), plain(value?)?)));
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

    /// Returns the body. The error says why there is none.
    fn body(&self, item: &TaskItem) -> Result<String, String> {
        if let Some(value) = self.body.as_ref().and_then(|name| item.get(name)) {
            return Ok(match value.as_s() {
                Ok(text) => text.clone(),
                Err(other) => body::of_value(other),
            });
        }
        match (item.get(BODY), &self.body) {
            (Some(value), _) => value.as_s().cloned().map_err(|other| {
                format!("its body cannot be read: `{BODY}` is not a string but {other:?}")
            }),
            (None, Some(name)) => Err(format!("no body: the item has no attribute `{name}`")),
            (None, None) => Ok(body::of_columns(item)),
        }
    }

    /// Returns the columns of a new task except those of its state. The error says why it cannot be
    /// stored.
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

/// Returns the sender's attributes. The error says why they cannot be read.
fn attributes(item: &TaskItem) -> Result<Vec<Attribute>, String> {
    let Some(value) = item.get(ATTRIBUTES) else {
        return Ok(Vec::new());
    };
    let text = value
        .as_s()
        .map_err(|_| format!("`{ATTRIBUTES}` is not a string"));
    text.and_then(|text| serde_json::from_str(text).map_err(|error| error.to_string()))
        .map_err(|why| format!("its attributes cannot be read: {why}"))
}

fn plain(value: &AttributeValue) -> Option<String> {
    match value {
        AttributeValue::S(text) | AttributeValue::N(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
