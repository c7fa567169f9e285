//! One job as an item of the table. Pure; calls nothing.
//!
//! Shoryuken::Waiter 0.x writes (`lib/shoryuken/waiter/extensions/active_job_adapter.rb` of
//! farski/shoryuken-waiter): `scheduler` "shoryuken-waiter", `job_id`, `perform_at` in seconds with
//! fractions, `sqs_message_body` the job as a map, `sqs_message_attributes` a map of maps with
//! `string_value` and `data_type`. Its poller takes the queue and the key from the map of the body,
//! and dies of a body that is none. So only a job that it can send is in its half of the table;
//! all others stand under another `scheduler`, which it never asks for.

use super::json;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, AttributeValue as Value, Outgoing};
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::{Claim, ErrorKind, ScheduledJob, StoreError, Unreadable};
use std::collections::HashMap;
use std::time::Duration;

pub(super) const SCHEDULER: &str = "scheduler";
pub(super) const JOB_ID: &str = "job_id";
pub(super) const PERFORM_AT: &str = "perform_at";
pub(super) const INDEX: &str = "scheduler-perform_at-index";
/// The value of `scheduler` for jobs of the Waiter's own shape.
pub(super) const WAITER: &str = "shoryuken-waiter";
/// The value of `scheduler` for all others.
pub(super) const OWN: &str = "dispatcher";
const BODY: &str = "sqs_message_body";
const ATTRIBUTES: &str = "sqs_message_attributes";
/// What the Waiter does not know and passes over.
const TEXT: &str = "dispatcher_body";
const QUEUE: &str = "dispatcher_queue";
const GROUP: &str = "dispatcher_group";
const PATTERN: &str = "dispatcher_cron";
const ZONE: &str = "dispatcher_zone";
pub(super) const CLAIM: &str = "dispatcher_claim";
pub(super) const CLAIM_UNTIL: &str = "dispatcher_claim_until";
/// What tells an item that one call has added from the same job added by another.
pub(super) const ADDED: &str = "dispatcher_added";

/// Maximum bytes of an item, names included: 400 KB ("Quotas", DynamoDB developer guide).
const MOST_BYTES: usize = 400 * 1_024;
/// What a claim adds, and what tells who has added it.
const SPARE: usize = 192;

/// Why an item that could not be read is in no index any more, since when, and its `perform_at`.
pub(super) const DEAD_REASON: &str = "dispatcher_dead_reason";
pub(super) const DEAD_SINCE: &str = "dispatcher_dead_since";
pub(super) const DEAD_PERFORM_AT: &str = "dispatcher_dead_perform_at";

pub(super) type JobItem = HashMap<String, AttributeValue>;

/// An item that `read` refused for this reason.
pub(super) fn unreadable(item: &JobItem, queue: Option<&str>, why: String) -> Unreadable {
    let text = |name| string(item, name).unwrap_or_default();
    let at = number(item, PERFORM_AT).unwrap_or_default();
    Unreadable {
        id: text(JOB_ID).to_owned(),
        queue: string(item, QUEUE).or(queue).map(str::to_owned),
        why,
        stamp: format!("{} {at}", text(SCHEDULER)),
    }
}

/// Which item a job was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ItemKey {
    pub scheduler: String,
    /// `perform_at`, in the digits that were read.
    pub at: String,
}

/// The key that `read` noted in the job's stamp.
pub(super) fn key(job: &ScheduledJob) -> Result<ItemKey, StoreError> {
    key_of(&job.id, &job.stamp)
}

/// The key that is noted in the stamp of a job of this id.
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

/// A date as `perform_at` has it: seconds, with what is left of a millisecond's three digits.
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
    // Also refuses what is negative, infinite or no number.
    let since = Duration::try_from_secs_f64(seconds).ok()?;
    let ms = (since + Duration::from_micros(500)).as_millis();
    Some(Timestamp(u64::try_from(ms).ok()?))
}

/// The item of a job that is to be added to a table. An error says why there can be none.
pub(super) fn write(job: &ScheduledJob, table: &str) -> Result<JobItem, String> {
    let text = |text: &str| AttributeValue::S(text.to_owned());
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
            // A map has no order and no blanks.
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
    let bytes = item.iter().map(|(name, value)| name.len() + size(value));
    let bytes = bytes.sum::<usize>() + SPARE;
    match bytes > MOST_BYTES {
        true => Err(format!(
            "the message has {bytes} bytes as an item, and an item of DynamoDB at most {MOST_BYTES}; wanted a shorter body"
        )),
        false => Ok(item),
    }
}

/// The body as a map, if the Waiter can send the job from a table: it names its own id, and the
/// queue whose name the table has.
fn waiters(job: &ScheduledJob, table: &str) -> Option<AttributeValue> {
    let plain = job.message.group.is_none() && job.every.is_none();
    let map = json::value(&job.message.body).filter(|_| plain)?;
    let AttributeValue::M(fields) = &map else {
        return None;
    };
    let is =
        |name: &str, wanted: &str| fields.get(name) == Some(&AttributeValue::S(wanted.to_owned()));
    (is(JOB_ID, &job.id) && is("queue_name", table)).then_some(map)
}

/// The id that a body gives its job, where it is one of Active Job for this queue.
pub(super) fn own_id(body: &str, table: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(body).ok()?;
    let field = |name: &str| value.get(name)?.as_str();
    let id = field(JOB_ID)?;
    let good = field("queue_name") == Some(table) && !id.is_empty() && !id.contains('/');
    good.then(|| id.to_owned())
}

/// The job of an item, for `queue` or, without it, for the queue that it names.
pub(super) fn read(item: &JobItem, queue: Option<&str>) -> Result<ScheduledJob, String> {
    let id = string(item, JOB_ID).ok_or("it has no job_id")?;
    let wrong = |what: &str| format!("job `{id}` {what}");
    let scheduler = string(item, SCHEDULER).ok_or_else(|| wrong("has no scheduler"))?;
    let at = number(item, PERFORM_AT).ok_or_else(|| wrong("has no perform_at"))?;
    let due = date(at).ok_or_else(|| wrong("has a perform_at that is no date"))?;
    let body = item
        .get(BODY)
        .ok_or_else(|| wrong("has no sqs_message_body"))?;
    let body_text = match (string(item, TEXT), body) {
        (Some(text), _) => text.to_owned(),
        (None, AttributeValue::S(text)) => text.clone(),
        (None, other) => json::text(other).ok_or_else(|| wrong("has a body that is no JSON"))?,
    };
    let named = || match body {
        AttributeValue::M(fields) => string(fields, "queue_name"),
        _ => None,
    };
    // Queues of other regions or accounts may share the table's name.
    let queue = string(item, QUEUE).or(queue).or_else(named);
    let queue = queue.ok_or_else(|| wrong("names no queue"))?;
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
        message: Outgoing {
            body: body_text,
            attributes: read_attributes(item).map_err(|why| wrong(&why))?,
            delay: Duration::ZERO,
            group: string(item, GROUP).map(str::to_owned),
            ..Outgoing::default()
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
    let one = |attribute: &Attribute| {
        let value = match &attribute.value {
            Value::Text(text) => ("string_value", AttributeValue::S(text.clone())),
            Value::Binary(bytes) => ("binary_value", AttributeValue::B(Blob::new(bytes.clone()))),
        };
        let data_type = AttributeValue::S(attribute.data_type.clone());
        let fields = [("data_type", data_type), value];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        (attribute.name.clone(), AttributeValue::M(fields.into()))
    };
    AttributeValue::M(list.iter().map(one).collect())
}

fn read_attributes(item: &JobItem) -> Result<Vec<Attribute>, String> {
    let map = match item.get(ATTRIBUTES) {
        None | Some(AttributeValue::Null(_)) => return Ok(Vec::new()),
        Some(AttributeValue::M(map)) => map,
        Some(_) => return Err("has sqs_message_attributes that are no map".into()),
    };
    let one = |(name, value): (&String, &AttributeValue)| {
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
    };
    let list: Option<Vec<Attribute>> = map.iter().map(one).collect();
    let mut list = list.ok_or("has an attribute without data_type or value")?;
    list.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(list)
}

/// What a value counts for, from above ("Item sizes and formats", DynamoDB developer guide).
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

/// Which half a page is of, and the key that it begins after.
pub(super) fn start(after: Option<&str>) -> Result<(&'static str, Option<JobItem>), String> {
    let Some(after) = after else {
        return Ok((WAITER, None));
    };
    let mut parts = after.splitn(3, ' ');
    let named = parts.next().unwrap_or_default();
    let half = [WAITER, OWN].into_iter().find(|half| *half == named);
    let half = half.ok_or_else(|| format!("`{after}` is not a position in a table"))?;
    Ok(match (parts.next(), parts.next()) {
        (Some(at), Some(id)) => {
            let text = |text: &str| AttributeValue::S(text.to_owned());
            let key = [
                (SCHEDULER, text(half)),
                (JOB_ID, text(id)),
                (PERFORM_AT, AttributeValue::N(at.to_owned())),
            ];
            let key = key.map(|(name, value)| (name.to_owned(), value));
            (half, Some(key.into()))
        }
        _ => (half, None),
    })
}

/// Where the page after this one begins.
pub(super) fn next(half: &str, last: Option<&JobItem>) -> Option<String> {
    match last {
        Some(key) => {
            let (at, id) = (number(key, PERFORM_AT)?, string(key, JOB_ID)?);
            Some(format!("{half} {at} {id}"))
        }
        None => (half == WAITER).then(|| OWN.to_owned()),
    }
}
