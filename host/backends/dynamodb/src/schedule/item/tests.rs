//! The shape of items: the Waiter's own as a fixture, and that ours come back as they went.

use crate::schedule::item::{own_id, read, seconds, start, write};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, AttributeValue as Value, OutgoingMessage};
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::samples::job;
use dispatcher_core::schedule::{ScheduledJob, decide};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn m<const N: usize>(fields: [(&str, AttributeValue); N]) -> AttributeValue {
    AttributeValue::M(fields.map(|(name, value)| (name.to_owned(), value)).into())
}

/// What the gem's adapter puts for a job of Active Job.
fn waiters() -> HashMap<String, AttributeValue> {
    let body = m([
        ("job_class", s("ReminderJob")),
        ("job_id", s("6b5d1f0e-2d3c-4b1e-9a57-0c8f4d1b2a3e")),
        ("queue_name", s("reminders")),
        (
            "arguments",
            AttributeValue::L(vec![s("a@b.c"), AttributeValue::N("42".into())]),
        ),
        ("locale", s("en")),
    ]);
    let class = m([
        (
            "string_value",
            s("ActiveJob::QueueAdapters::ShoryukenAdapter::JobWrapper"),
        ),
        ("data_type", s("String")),
    ]);
    let fields = [
        ("scheduler", s("shoryuken-waiter")),
        ("job_id", s("6b5d1f0e-2d3c-4b1e-9a57-0c8f4d1b2a3e")),
        ("perform_at", AttributeValue::N("1764000000.1234567".into())),
        ("sqs_message_body", body),
        ("sqs_message_attributes", m([("shoryuken_class", class)])),
    ];
    fields.map(|(name, value)| (name.to_owned(), value)).into()
}

#[test]
fn item_of_shoryuken_waiter_round_trips_unchanged() {
    let job = read(&waiters(), None).expect("it is a job");
    assert_eq!(
        (job.queue.as_str(), job.due),
        ("reminders", Timestamp(1_764_000_000_123))
    );
    assert_eq!(job.stamp, "shoryuken-waiter 1764000000.1234567");
    let body = r#"{"arguments":["a@b.c",42],"job_class":"ReminderJob","job_id":"6b5d1f0e-2d3c-4b1e-9a57-0c8f4d1b2a3e","locale":"en","queue_name":"reminders"}"#;
    assert_eq!(job.message.body, body);
    let wanted = Attribute::text(
        "shoryuken_class",
        "ActiveJob::QueueAdapters::ShoryukenAdapter::JobWrapper",
    );
    assert_eq!(job.message.attributes, [wanted]);
    let mut written = write(&job, "reminders").expect("it fits");
    assert_eq!(written.remove("dispatcher_queue"), Some(s("reminders")));
    let mut own = waiters();
    own.insert(
        "perform_at".into(),
        AttributeValue::N("1764000000.123".into()),
    );
    assert_eq!(written, own);
}

#[test]
fn written_job_has_every_field_that_shoryuken_waiter_reads() {
    let text = r#"{ "queue_name": "reminders", "job_id": "x-1", "arguments": [] }"#;
    assert_eq!(own_id(text, "reminders").as_deref(), Some("x-1"));
    assert_eq!(own_id(text, "other"), None);
    let mut one = job("x-1", Timestamp(5_000));
    one.message.body = text.into();
    let item = write(&one, "reminders").expect("it fits");
    assert_eq!(item["scheduler"], s("shoryuken-waiter"));
    assert_eq!(
        item["sqs_message_body"].as_m().expect("a map")["job_id"],
        s("x-1")
    );
    assert!(item["sqs_message_attributes"].is_m());
    // Ours is sent in the very letters that it was given.
    assert_eq!(read(&item, None).expect("a job").message.body, text);
}

/// The Waiter's poller would die of them: it reads `["queue_name"]` of a body.
#[test]
fn jobs_shoryuken_waiter_cannot_send_are_hidden_from_its_poller() {
    let fifo = OutgoingMessage {
        group: Some("g".into()),
        body: r#"{"job_id":"x","queue_name":"q"}"#.into(),
        ..OutgoingMessage::default()
    };
    let cases = [
        ("plain text", "q"),
        (r#"{"job_id":"x"}"#, "q"),
        (r#"{"job_id":"y","queue_name":"q"}"#, "q"),
        (r#"{"job_id":"x","queue_name":"q"}"#, "shared"),
    ];
    for (body, table) in cases {
        let mut one = job("x", Timestamp(1));
        one.message.body = body.into();
        let item = write(&one, table).expect("it fits");
        assert_eq!(item["scheduler"], s("dispatcher"), "{body}");
        assert_eq!(item["sqs_message_body"], s(body));
    }
    let one = ScheduledJob {
        message: fifo,
        ..job("x", Timestamp(1))
    };
    assert_eq!(
        write(&one, "q").expect("it fits")["scheduler"],
        s("dispatcher")
    );
}

#[test]
fn invalid_job_item_names_the_reason() {
    for (field, wanted) in [
        ("perform_at", "has no perform_at"),
        ("sqs_message_body", "has no sqs_message_body"),
    ] {
        let mut item = waiters();
        item.remove(field);
        let why = read(&item, None).expect_err(field);
        assert!(why.contains(wanted) && why.contains("6b5d1f0e"), "{why}");
    }
    let mut item = waiters();
    item.insert("perform_at".into(), AttributeValue::N("-1".into()));
    assert!(
        read(&item, None)
            .expect_err("a date")
            .contains("not a date")
    );
}

#[test]
fn oversized_item_is_refused_before_the_call() {
    let mut one = job("x", Timestamp(1));
    one.message.body = "x".repeat(400 * 1_024);
    let why = write(&one, "q").expect_err("too long");
    assert!(
        why.contains("at most 409600") && why.contains("shorter body"),
        "{why}"
    );
}

#[test]
fn dates_are_seconds_with_as_few_digits_as_needed() {
    for (ms, text) in [(0, "0"), (1_500, "1.5"), (1_001, "1.001"), (7_000, "7")] {
        assert_eq!(seconds(Timestamp(ms)), AttributeValue::N(text.into()));
    }
    assert!(start(Some("nonsense")).is_err());
}

proptest! {
    #[test]
    fn job_round_trips_unchanged(
        body in ".{0,80}", names in proptest::collection::btree_set("[a-z]{1,9}", 0..5),
        bytes: Vec<u8>, due in 0..4_000_000_000_000_u64, group in proptest::option::of("[a-z]{1,5}"),
        periodic: bool,
    ) {
        let attributes = names.iter().enumerate().map(|(at, name)| Attribute {
            name: name.clone(),
            data_type: if at % 2 == 0 { "String" } else { "Binary.x" }.into(),
            value: match at % 2 {
                0 => Value::Text(body.clone()),
                _ => Value::Binary(bytes.clone()),
            },
        });
        let mut one = job("x", Timestamp(due));
        one.message = OutgoingMessage {
            body: body.clone(),
            attributes: attributes.collect(),
            group,
            ..OutgoingMessage::default()
        };
        one.every = periodic.then(|| Periodic::new("0 9 * * *", "UTC").unwrap());
        let item = write(&one, "table").unwrap();
        let back = read(&item, None).unwrap();
        one.stamp = back.stamp.clone();
        prop_assert_eq!(back, one);
    }

    #[test]
    fn json_values_round_trip(text in "[\\[\\]{}\":,0-9a-z .-]{0,40}") {
        let body = format!(r#"{{"job_id":"x","queue_name":"q","arguments":["{}",1.5,-3,null,true]}}"#,
            text.replace(['"', '\\'], ""));
        let mut one = job("x", Timestamp(1));
        one.message.body = body.clone();
        let item = write(&one, "q").unwrap();
        prop_assert_eq!(item["scheduler"].as_s().unwrap(), "shoryuken-waiter");
        let mut theirs = item.clone();
        theirs.remove("dispatcher_body");
        let read = read(&theirs, None).unwrap().message.body;
        let same = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        prop_assert_eq!(same(&read), same(&body));
    }

    #[test]
    fn binary_attributes_round_trip(bytes: Vec<u8>) {
        let mut item = waiters();
        let value = m([("binary_value", AttributeValue::B(Blob::new(bytes.clone()))), ("data_type", s("Binary"))]);
        item.insert("sqs_message_attributes".into(), m([("b", value)]));
        let attributes = read(&item, None).unwrap().message.attributes;
        prop_assert_eq!(&attributes[0].value, &Value::Binary(bytes));
    }
}

#[test]
fn claim_outlives_the_last_call_made_under_it() {
    let one_call =
        dispatcher_aws::ATTEMPTS * (dispatcher_aws::CONNECT_TIMEOUT + dispatcher_aws::READ_TIMEOUT);
    let spare = decide::LEASE - decide::SEND_WITHIN - one_call;
    assert!(spare >= Duration::from_secs(45), "{spare:?}");
}
