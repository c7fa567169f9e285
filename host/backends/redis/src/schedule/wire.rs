//! Converts jobs to and from the arguments and answers of scripts. Pure.

use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::{Claim, JobPage, ScheduledJob, Unreadable};
use redis::Value;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// The last millisecond that can be written: 15 digits reach beyond the year 9999.
const LAST: u64 = 999_999_999_999_999;
/// The number of values of one job in an answer.
const FIELDS: usize = 3;

/// The parts of a job that never change.
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

/// Encodes a job without its id, its date and its claim.
pub(super) fn write(job: &ScheduledJob) -> serde_json::Result<String> {
    let message = &job.message;
    let every = job.every.as_ref();
    serde_json::to_string(&Record {
        body: Cow::Borrowed(&message.body),
        attributes: Cow::Owned(message.attributes_with_trace()),
        group: message.group.as_deref().map(Cow::Borrowed),
        cron: every.map(|every| Cow::Borrowed(every.pattern.as_str())),
        zone: every.map(|every| Cow::Borrowed(every.zone.as_str())),
    })
}

/// Encodes a date so that the texts sort like the dates.
pub(super) fn digits(date: Timestamp) -> String {
    format!("{:015}", date.0.min(LAST))
}

/// Reads an answer of `due`; `None` if it is not one. `queue` is the queue's name as people write
/// it.
pub(super) fn page(answer: &[Value], queue: &str) -> Option<JobPage> {
    let (first, rest) = answer.split_first()?;
    let more = *first == Value::Int(1);
    let (mut jobs, mut unreadable, mut last) = (Vec::new(), Vec::new(), None);
    for fields in rest.chunks(FIELDS) {
        let [place, record, _] = fields else {
            return None;
        };
        let Value::BulkString(place) = place else {
            return None;
        };
        let place = std::str::from_utf8(place).ok()?.to_owned();
        match job(fields, queue) {
            Some(job) => jobs.push(job),
            None => unreadable.push(Unreadable {
                id: place.get(16..).unwrap_or_default().to_owned(),
                queue: Some(queue.to_owned()),
                why: match record {
                    Value::Nil => "its message is missing".to_owned(),
                    _ => "its message, its date or its claim cannot be read".to_owned(),
                },
                stamp: place.clone(),
            }),
        }
        last = Some(place);
    }
    let next = if more { last } else { None };
    Some(JobPage {
        next,
        jobs,
        unreadable,
    })
}

fn job(fields: &[Value], queue: &str) -> Option<ScheduledJob> {
    let (stamp, id) = text_at(fields, 0)?.split_once(' ')?;
    let record: Record<'_> = serde_json::from_str(text_at(fields, 1)?).ok()?;
    let claim = match text_at(fields, 2)? {
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
    Some(ScheduledJob {
        id: id.to_owned(),
        queue: queue.to_owned(),
        due: Timestamp(stamp.parse().ok()?),
        message: OutgoingMessage {
            body: record.body.into_owned(),
            attributes: record.attributes.into_owned(),
            delay: Duration::ZERO,
            group: record.group.map(Cow::into_owned),
            ..OutgoingMessage::default()
        },
        every: every.map(|(pattern, zone)| Periodic {
            pattern: pattern.into_owned(),
            zone: zone.into_owned(),
        }),
        claim,
        stamp: stamp.to_owned(),
    })
}

fn text_at(fields: &[Value], at: usize) -> Option<&str> {
    match fields.get(at)? {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn any_job() -> impl Strategy<Value = ScheduledJob> {
        let group = proptest::option::of(any::<String>());
        let every = proptest::option::of(("[*0-9 ]{1,9}", "[A-Z][a-z]{1,9}"));
        let claim = proptest::option::of(("[a-z0-9-]{0,9}", any::<u32>()));
        let attributes = proptest::collection::vec(("[a-z]{1,4}", any::<String>()), 0..3);
        let parts = (0..=LAST, any::<String>(), attributes, group, every, claim);
        parts.prop_map(
            |(due, body, attributes, group, every, claim)| ScheduledJob {
                id: "0197a3b2-8f0c".into(),
                queue: "redis:q".into(),
                due: Timestamp(due),
                message: OutgoingMessage {
                    body,
                    attributes: attributes
                        .iter()
                        .map(|(name, value)| Attribute::text(name, value))
                        .collect(),
                    group,
                    ..OutgoingMessage::default()
                },
                every: every.map(|(pattern, zone)| Periodic { pattern, zone }),
                claim: claim.map(|(token, until)| Claim {
                    token,
                    until: Timestamp(until.into()),
                }),
                stamp: digits(Timestamp(due)),
            },
        )
    }

    fn fields(job: &ScheduledJob) -> [Value; 3] {
        let claim = job
            .claim
            .as_ref()
            .map(|claim| format!("{} {}", claim.until.0, claim.token));
        [
            text(&format!("{} {}", digits(job.due), job.id)),
            text(&write(job).expect("JSON")),
            text(&claim.unwrap_or_default()),
        ]
    }

    fn page_of(more: i64, fields: &[Value]) -> Option<JobPage> {
        page(&[&[Value::Int(more)], fields].concat(), "q")
    }

    #[test]
    fn page_continues_only_if_the_answer_says_so() {
        let one = ["000000000000005 a", r#"{"body":"x"}"#, ""].map(text);
        for (more, next) in [(1, Some("000000000000005 a")), (0, None)] {
            let page = page_of(more, &one).expect("a page");
            assert_eq!(page.next.as_deref(), next);
        }
        assert_eq!(page_of(0, &[]), Some(JobPage::default()));
        assert_eq!(page_of(0, &one[..2]), None);
        assert_eq!(page(&[], "q"), None);
    }

    #[test]
    fn unreadable_job_is_skipped_and_reported() {
        let good = ["000000000000005 a", r#"{"body":"x"}"#, ""];
        for bad in [
            ["000000000000006 b", "{", ""],
            ["000000000000006 b", r#"{"body":"x"}"#, "soon"],
            ["tomorrow b", r#"{"body":"x"}"#, ""],
            ["nothing", r#"{"body":"x"}"#, ""],
        ] {
            for answer in [[good, bad], [bad, good]] {
                let last = answer[1][0].to_owned();
                let fields = answer.concat().into_iter().map(text);
                let answer: Vec<_> = std::iter::once(Value::Int(1)).chain(fields).collect();
                let page = page(&answer, "q").expect("a page");
                let ids: Vec<_> = page.jobs.iter().map(|job| job.id.as_str()).collect();
                assert_eq!(ids, ["a"]);
                let passed = page.unreadable.iter().map(|one| one.stamp.as_str());
                assert_eq!(passed.collect::<Vec<_>>(), [bad[0]]);
                assert_eq!(page.next, Some(last));
            }
        }
    }

    #[test]
    fn finding_03_job_without_its_message_is_reported() {
        let answer = [
            Value::Int(0),
            text("000000000000006 b"),
            Value::Nil,
            text(""),
        ];
        let page = page(&answer, "q").expect("a page");
        assert!(page.jobs.is_empty());
        let bad = &page.unreadable[0];
        assert_eq!((&*bad.id, &*bad.stamp), ("b", "000000000000006 b"));
        assert_eq!(bad.why, "its message is missing");
    }

    proptest! {
        #[test]
        fn jobs_round_trip(jobs in proptest::collection::vec(any_job(), 0..4)) {
            let values = jobs.iter().flat_map(fields);
            let answer: Vec<_> = std::iter::once(Value::Int(0)).chain(values).collect();
            prop_assert_eq!(page(&answer, "redis:q").expect("a page").jobs, jobs);
        }

        #[test]
        fn date_strings_sort_like_dates(one in 0..=LAST, other in 0..=LAST) {
            let texts = digits(Timestamp(one)).cmp(&digits(Timestamp(other)));
            prop_assert_eq!(texts, one.cmp(&other));
        }
    }
}
