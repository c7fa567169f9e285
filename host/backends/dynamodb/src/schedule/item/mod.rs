//! One job as an item of the table. Pure; calls nothing.
//!
//! Shoryuken::Waiter 0.x writes (`lib/shoryuken/waiter/extensions/active_job_adapter.rb` of
//! farski/shoryuken-waiter): `scheduler` "shoryuken-waiter", `job_id`, `perform_at` in seconds with
//! fractions, `sqs_message_body` the job as a map, `sqs_message_attributes` a map of maps with
//! `string_value` and `data_type`. Its poller reads the queue and the key from the map of the body,
//! and crashes if the body is not a map. So only jobs that it can send are in its half of the
//! table; all others have another `scheduler`, which it never queries.

use super::json;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, AttributeValue as Value, OutgoingMessage};
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::{Claim, ErrorKind, ScheduledJob, StoreError, Unreadable};
use std::collections::HashMap;
use std::time::Duration;

pub(super) const SCHEDULER: &str = "scheduler";
pub(super) const JOB_ID: &str = "job_id";
pub(super) const PERFORM_AT: &str = "perform_at";
pub(super) const INDEX: &str = "scheduler-perform_at-index";
/// The value of `scheduler` for jobs in the Waiter's format.
pub(super) const WAITER: &str = "shoryuken-waiter";
/// The value of `scheduler` for all other jobs.
pub(super) const OWN: &str = "dispatcher";
const BODY: &str = "sqs_message_body";
const ATTRIBUTES: &str = "sqs_message_attributes";
/// Additional columns, which the Waiter ignores.
const TEXT: &str = "dispatcher_body";
const QUEUE: &str = "dispatcher_queue";
const GROUP: &str = "dispatcher_group";
const PATTERN: &str = "dispatcher_cron";
const ZONE: &str = "dispatcher_zone";
pub(super) const CLAIM: &str = "dispatcher_claim";
pub(super) const CLAIM_UNTIL: &str = "dispatcher_claim_until";
/// A unique value that distinguishes the item that one call added from the same job added by
/// another.
pub(super) const ADDED: &str = "dispatcher_added";

/// The maximum size of an item in bytes, names included: 400 KB ("Quotas", DynamoDB developer
/// guide).
const MOST_BYTES: usize = 400 * 1_024;
/// The bytes that a claim and [`ADDED`] add.
const SPARE: usize = 192;

/// The reason why an unreadable item was taken out of the index, the time at which it was, and its
/// `perform_at`.
pub(super) const DEAD_REASON: &str = "dispatcher_dead_reason";
pub(super) const DEAD_SINCE: &str = "dispatcher_dead_since";
pub(super) const DEAD_PERFORM_AT: &str = "dispatcher_dead_perform_at";

pub(super) type JobItem = HashMap<String, AttributeValue>;

/// Describes an item that `read` refused for this reason.
pub(super) fn unreadable(item: &JobItem, queue: Option<&str>, why: String) -> Unreadable {
    let id = string(item, JOB_ID).unwrap_or_default();
    let scheduler = string(item, SCHEDULER).unwrap_or_default();
    let at = number(item, PERFORM_AT).unwrap_or_default();
    Unreadable {
        id: id.to_owned(),
        queue: string(item, QUEUE).or(queue).map(str::to_owned),
        why,
        stamp: format!("{scheduler} {at}"),
    }
}

/// The key of the item that a job was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ItemKey {
    pub scheduler: String,
    /// `perform_at`, in the exact digits that were read.
    pub at: String,
}

/// Returns the key that `read` stored in the job's stamp.
pub(super) fn key(job: &ScheduledJob) -> Result<ItemKey, StoreError> {
    key_of(&job.id, &job.stamp)
}

/// Returns the key in the stamp of a job with this id.
pub(super) fn key_of(id: &str, stamp: &str) -> Result<ItemKey, StoreError> {
    let (scheduler, at) = stamp.split_once(' ').ok_or_else(|| StoreError {
        kind: ErrorKind::Invalid,
        message: format!("job `{id}` was not read from a table"),
    })?;
    Ok(ItemKey {
        scheduler: scheduler.to_owned(),
        at: at.to_owned(),
    })
}

/// Converts a date to the format of `perform_at`: seconds with up to three decimal places, without
/// trailing zeros.
pub(super) fn seconds(date: Timestamp) -> AttributeValue {
    let (whole, rest) = (date.0 / 1_000, date.0 % 1_000);
    AttributeValue::N(match rest {
        0 => whole.to_string(),
        rest => format!("{whole}.{rest:03}")
            .trim_end_matches('0')
            .to_owned(),
    })
}

fn date(number: &str) -> Option<Timestamp> {
    let seconds = number.parse::<f64>().ok()?;
    // Also refuses negative and infinite values and NaN.
    let since = Duration::try_from_secs_f64(seconds).ok()?;
    let ms = (since + Duration::from_micros(500)).as_millis();
    Some(Timestamp(u64::try_from(ms).ok()?))
}

/// Returns the item of a job. The error says why it cannot be stored.
pub(super) fn write(job: &ScheduledJob, table: &str) -> Result<JobItem, String> {
    let theirs = waiters(job, table);
    let scheduler = if theirs.is_some() { WAITER } else { OWN };
    let mut item = HashMap::from([
        (SCHEDULER.to_owned(), text(scheduler)),
        (JOB_ID.to_owned(), text(&job.id)),
        (PERFORM_AT.to_owned(), seconds(job.due)),
        (QUEUE.to_owned(), text(&job.queue)),
        (
            ATTRIBUTES.to_owned(),
            attributes(&job.message.attributes_with_trace()),
        ),
    ]);
    let mut set = |name: &str, value| item.insert(name.to_owned(), value);
    let body = &job.message.body;
    match theirs {
        Some(map) => {
            // A map keeps neither the order of its names nor white space.
            if json::text(&map).as_deref() != Some(&**body) {
                set(TEXT, text(body));
            }
            set(BODY, map);
        }
        None => {
            set(BODY, text(body));
        }
    }
    if let Some(group) = &job.message.group {
        set(GROUP, text(group));
    }
    if let Some(Periodic { pattern, zone }) = &job.every {
        set(PATTERN, text(pattern));
        set(ZONE, text(zone));
    }
    let bytes = item
        .iter()
        .map(|(name, value)| name.len() + size(value))
        .sum::<usize>()
        + SPARE;
    if bytes > MOST_BYTES {
        Err(format!(
            "the message has {bytes} bytes as an item, and an item of DynamoDB at most {MOST_BYTES}; wanted a shorter body"
        ))
    } else {
        Ok(item)
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// Returns the body as a map if the Waiter can send the job from this table: the body contains the
/// job's id and the queue whose name the table has.
fn waiters(job: &ScheduledJob, table: &str) -> Option<AttributeValue> {
    let plain = job.message.group.is_none() && job.every.is_none();
    if !plain {
        return None;
    }
    let map = json::value(&job.message.body)?;
    let AttributeValue::M(fields) = &map else {
        return None;
    };
    let is_sent_by_it =
        string(fields, JOB_ID) == Some(&*job.id) && string(fields, "queue_name") == Some(table);
    is_sent_by_it.then_some(map)
}

/// Returns the id in the body if the job is an Active Job job for this queue.
pub(super) fn own_id(body: &str, table: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(body).ok()?;
    let id = value.get(JOB_ID)?.as_str()?;
    let queue = value.get("queue_name")?.as_str()?;
    let good = queue == table && !id.is_empty() && !id.contains('/');
    good.then(|| id.to_owned())
}

/// Reads the job of an item, for `queue` or, without it, for the queue that the item names.
pub(super) fn read(item: &JobItem, queue: Option<&str>) -> Result<ScheduledJob, String> {
    let id = string(item, JOB_ID).ok_or("it has no job_id")?;
    read_job(item, id, queue).map_err(|why| format!("job `{id}` {why}"))
}

/// Reads the job with this id. The error says what is wrong with it.
fn read_job(item: &JobItem, id: &str, queue: Option<&str>) -> Result<ScheduledJob, String> {
    let scheduler = string(item, SCHEDULER).ok_or("has no scheduler")?;
    let at = number(item, PERFORM_AT).ok_or("has no perform_at")?;
    let due = date(at).ok_or("has a perform_at that is not a date")?;
    let body = item.get(BODY).ok_or("has no sqs_message_body")?;
    let body_text = match (string(item, TEXT), body) {
        (Some(text), _) => text.to_owned(),
        (None, AttributeValue::S(text)) => text.clone(),
        (None, other) => json::text(other).ok_or("has a body that is not JSON")?,
    };
    // Queues of other regions or accounts may share the table's name.
    let queue = string(item, QUEUE)
        .or(queue)
        .or_else(|| match body {
            AttributeValue::M(fields) => string(fields, "queue_name"),
            _ => None,
        })
        .ok_or("names no queue")?;
    let every = match (string(item, PATTERN), string(item, ZONE)) {
        (Some(pattern), Some(zone)) => Some(Periodic {
            pattern: pattern.to_owned(),
            zone: zone.to_owned(),
        }),
        _ => None,
    };
    let claim = match (
        string(item, CLAIM),
        number(item, CLAIM_UNTIL).and_then(date),
    ) {
        (Some(token), Some(until)) => Some(Claim {
            token: token.to_owned(),
            until,
        }),
        _ => None,
    };
    Ok(ScheduledJob {
        id: id.to_owned(),
        queue: queue.to_owned(),
        due,
        message: OutgoingMessage {
            body: body_text,
            attributes: read_attributes(item)?,
            delay: Duration::ZERO,
            group: string(item, GROUP).map(str::to_owned),
            ..OutgoingMessage::default()
        },
        every,
        claim,
        stamp: format!("{scheduler} {at}"),
    })
}

fn string<'a>(item: &'a JobItem, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

fn number<'a>(item: &'a JobItem, name: &str) -> Option<&'a str> {
    item.get(name)?.as_n().ok().map(String::as_str)
}

fn attributes(list: &[Attribute]) -> AttributeValue {
    let map = list.iter().map(|attribute| {
        let value = match &attribute.value {
            Value::Text(text) => ("string_value", AttributeValue::S(text.clone())),
            Value::Binary(bytes) => ("binary_value", AttributeValue::B(Blob::new(bytes.clone()))),
        };
        let data_type = AttributeValue::S(attribute.data_type.clone());
        let fields =
            [("data_type", data_type), value].map(|(name, value)| (name.to_owned(), value));
        (attribute.name.clone(), AttributeValue::M(fields.into()))
    });
    AttributeValue::M(map.collect())
}

fn read_attributes(item: &JobItem) -> Result<Vec<Attribute>, String> {
    let map = match item.get(ATTRIBUTES) {
        None | Some(AttributeValue::Null(_)) => return Ok(Vec::new()),
        Some(AttributeValue::M(map)) => map,
        Some(_) => return Err("has sqs_message_attributes that are not a map".into()),
    };
    let read = map.iter().map(|(name, value)| {
        let fields = value.as_m().ok()?;
        let value = match fields.get("binary_value") {
            Some(AttributeValue::B(bytes)) => Value::Binary(bytes.as_ref().to_vec()),
            _ => Value::Text(string(fields, "string_value")?.to_owned()),
        };
        Some(Attribute {
            name: name.clone(),
            data_type: string(fields, "data_type")?.to_owned(),
            value,
        })
    });
    let mut list = read
        .collect::<Option<Vec<Attribute>>>()
        .ok_or("has an attribute without data_type or value")?;
    list.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(list)
}

/// Returns an upper bound of the size of a value ("Item sizes and formats", DynamoDB developer
/// guide).
fn size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(digits) => digits.len() / 2 + 2,
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::M(map) => {
            let fields = map.iter();
            3 + fields
                .map(|(name, value)| 1 + name.len() + size(value))
                .sum::<usize>()
        }
        AttributeValue::L(list) => 3 + list.iter().map(|value| 1 + size(value)).sum::<usize>(),
        _ => 1,
    }
}

/// Returns the half to which a page belongs, and the key after which it begins.
pub(super) fn start(after: Option<&str>) -> Result<(&'static str, Option<JobItem>), String> {
    let Some(after) = after else {
        return Ok((WAITER, None));
    };
    let mut parts = after.splitn(3, ' ');
    let named = parts.next().unwrap_or_default();
    let half = [WAITER, OWN]
        .into_iter()
        .find(|half| *half == named)
        .ok_or_else(|| format!("`{after}` is not a position in a table"))?;
    Ok(match (parts.next(), parts.next()) {
        (Some(at), Some(id)) => {
            let key = [
                (SCHEDULER, text(half)),
                (JOB_ID, text(id)),
                (PERFORM_AT, AttributeValue::N(at.to_owned())),
            ]
            .map(|(name, value)| (name.to_owned(), value));
            (half, Some(key.into()))
        }
        _ => (half, None),
    })
}

/// Returns the position of the next page.
pub(super) fn next(half: &str, last: Option<&JobItem>) -> Option<String> {
    match last {
        Some(key) => {
            let (at, id) = (number(key, PERFORM_AT)?, string(key, JOB_ID)?);
            Some(format!("{half} {at} {id}"))
        }
        None => (half == WAITER).then(|| OWN.to_owned()),
    }
}

#[cfg(test)]
mod tests;
