//! Jobs as scripts take and give them. Pure.

use crate::clock::Timestamp;
use crate::message::{Attribute, Outgoing};
use crate::schedule::cron::Periodic;
use crate::schedule::{Claim, Job, Page};
use redis::Value;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// The last millisecond that is written: 15 digits reach beyond the year 9999.
const LAST: u64 = 999_999_999_999_999;
/// The values of one job in an answer.
const FIELDS: usize = 3;

/// What of a job never changes.
#[derive(Serialize, Deserialize)]
struct Record<'a> {
    body: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "<[Attribute]>::is_empty")]
    attributes: Cow<'a, [Attribute]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<Cow<'a, str>>,
}

/// A job without its id, its date and its claim.
pub fn write(job: &Job) -> serde_json::Result<String> {
    let message = &job.message;
    let every = job.every.as_ref();
    serde_json::to_string(&Record {
        body: Cow::Borrowed(&message.body),
        attributes: Cow::Borrowed(&message.attributes),
        group: message.group.as_deref().map(Cow::Borrowed),
        cron: every.map(|every| Cow::Borrowed(every.pattern.as_str())),
        zone: every.map(|every| Cow::Borrowed(every.zone.as_str())),
    })
}

/// A date such that the order of texts is that of dates.
pub fn digits(date: Timestamp) -> String {
    format!("{:015}", date.0.min(LAST))
}

/// Reads an answer of `due`; `None` if it is not one. `queue` is the queue's name as people write it.
pub fn page(answer: &[Value], queue: &str) -> Option<Page> {
    let (first, rest) = answer.split_first()?;
    let more = *first == Value::Int(1);
    let jobs: Vec<Job> = rest
        .chunks(FIELDS)
        .map(|fields| job(fields, queue))
        .collect::<Option<_>>()?;
    let last = jobs.last().filter(|_| more);
    Some(Page {
        next: last.map(|job| format!("{} {}", job.stamp, job.id)),
        jobs,
    })
}

fn job(fields: &[Value], queue: &str) -> Option<Job> {
    let text = |at: usize| match fields.get(at)? {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    };
    let (stamp, id) = text(0)?.split_once(' ')?;
    let record: Record<'_> = serde_json::from_str(text(1)?).ok()?;
    let claim = match text(2)? {
        "" => None,
        claim => {
            let (until, token) = claim.split_once(' ')?;
            Some(Claim {
                token: token.to_owned(),
                until: Timestamp(until.parse().ok()?),
            })
        }
    };
    let every = record.cron.zip(record.zone);
    Some(Job {
        id: id.to_owned(),
        queue: queue.to_owned(),
        due: Timestamp(stamp.parse().ok()?),
        message: Outgoing {
            body: record.body.into_owned(),
            attributes: record.attributes.into_owned(),
            delay: Duration::ZERO,
            group: record.group.map(Cow::into_owned),
            scheduled: None,
        },
        every: every.map(|(pattern, zone)| Periodic {
            pattern: pattern.into_owned(),
            zone: zone.into_owned(),
        }),
        claim,
        stamp: stamp.to_owned(),
    })
}
