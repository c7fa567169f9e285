//! Whole events against texts that were made by other means, and against the types that programs
//! in Rust read them with.

use super::*;
use crate::split::{Step, plan};
use aws_lambda_events::event::sqs::SqsEvent;
use proptest::prelude::*;

const SQS: &str = "arn:aws:sqs:us-east-2:123456789012:payments";

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn text(name: &str, data_type: &str, value: &str) -> Attribute {
    Attribute {
        name: name.into(),
        data_type: data_type.into(),
        value: AttributeValue::Text(value.into()),
    }
}

fn binary(name: &str, data_type: &str, value: &[u8]) -> Attribute {
    Attribute {
        name: name.into(),
        data_type: data_type.into(),
        value: AttributeValue::Binary(value.into()),
    }
}

fn message(id: &str, receipt: &str, body: &str, source: &str) -> Message {
    Message {
        id: id.into(),
        receipt: receipt.into(),
        body: body.into(),
        source: source.into(),
        ..Message::default()
    }
}

fn event(messages: Vec<Message>) -> String {
    let mut steps = plan(messages, NoDigest::Absent, usize::MAX, usize::MAX);
    match (steps.pop(), steps.pop()) {
        (Some(Step::Invoke(part)), None) => String::from_utf8(part.payload).expect("JSON is UTF-8"),
        other => panic!("not one event: {other:?}"),
    }
}

/// The event is this text, and the public types read it and find what it says.
fn is_golden(golden: &str, messages: Vec<Message>) -> SqsEvent {
    let bodies: Vec<_> = messages
        .iter()
        .map(|message| message.body.clone())
        .collect();
    let event = event(messages);
    assert_eq!(event, golden.trim_end());
    let read: SqsEvent = serde_json::from_str(&event).expect("an SQS event");
    let read_bodies: Vec<_> = read
        .records
        .iter()
        .flat_map(|record| record.body.clone())
        .collect();
    assert_eq!(read_bodies, bodies);
    read
}

#[test]
fn event_of_a_standard_queue() {
    let trace = "Root=1-5759e988-bd862e3fe1be46a994272793";
    let first = Message {
        receive_count: 3,
        sent_at: Some(1),
        group: Some("a key of the route's".into()),
        // As no particular order: SQS has none.
        system_attributes: pairs(&[
            ("Brand", "new"),
            ("DeadLetterQueueSourceArn", &format!("{SQS}-source")),
            ("SenderId", "AIDAIENQZJOLO23YVJ4VO"),
            ("ApproximateFirstReceiveTimestamp", "1545082649185"),
            ("ApproximateReceiveCount", "3"),
            ("SentTimestamp", "1545082649183"),
            ("AWSTraceHeader", trace),
            ("Another", "one"),
        ]),
        attributes: vec![
            text("colour", "String", "ein schönes Rot"),
            text("price", "Number.float", "12.50"),
            binary("seal", "Binary.png", &[0, 1, 254, 255]),
        ],
        body_md5: Some("e4e68fb7bd0e697a0ae8f1bb342846b3".into()),
        ..message(
            "059f36b4-87a3-44ab-83d2-661975830a7d",
            "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a==",
            "Test message.",
            SQS,
        )
    };
    assert!(is_ordered(&first));
    // What SQS told of the second is only in its fields.
    let second = Message {
        sent_at: Some(1_545_082_650_636),
        first_received_at: Some(1_545_082_650_649),
        system_attributes: pairs(&[("SenderId", "AIDAIENQZJOLO23YVJ4VO")]),
        ..message(
            "2e1424d4-f796-459a-8184-9c92662be6da",
            "AQEBzWwaftRI0KuVm4tP",
            "quotes \" back \\ slash / tab\t line\n nul\0 bell\u{7} del\u{7f} \u{2028} 😀 ünï",
            SQS,
        )
    };
    let golden = include_str!("../../golden/standard.json");
    let read = is_golden(golden, vec![first, second]);
    let first = &read.records[0];
    let attribute = |name: &str| &first.message_attributes[name];
    assert_eq!(attribute("price").string_value.as_deref(), Some("12.50"));
    assert_eq!(
        attribute("price").data_type.as_deref(),
        Some("Number.float")
    );
    let seal = attribute("seal").binary_value.as_ref().expect("binary");
    assert_eq!(seal.0, [0, 1, 254, 255]);
    assert_eq!(first.attributes["AWSTraceHeader"], trace);
    assert_eq!(first.event_source_arn.as_deref(), Some(SQS));
}

#[test]
fn event_of_a_fifo_queue() {
    let first = Message {
        group: Some("customer-1".into()),
        system_attributes: pairs(&[
            ("ApproximateReceiveCount", "1"),
            ("SentTimestamp", "1573251510774"),
            ("SequenceNumber", "18849496460467696128"),
            ("MessageGroupId", "customer-1"),
            ("SenderId", "AIDAIO23YVJENQZJOL4VO"),
            ("MessageDeduplicationId", "1"),
            ("ApproximateFirstReceiveTimestamp", "1573251510774"),
        ]),
        ..message(
            "11d6ee51-4cc7-4302-9e22-7cd8afdaadf5",
            "AQEBBX8nesZEXmkhsmZeyIE8iQAMig7qw",
            "{\"order\":1}",
            "arn:aws-cn:sqs:cn-north-1:123456789012:orders.fifo",
        )
    };
    assert!(is_ordered(&first));
    is_golden(include_str!("../../golden/fifo.json"), vec![first]);
}

#[test]
fn group_on_a_standard_queue_is_in_the_event_without_order() {
    let first = Message {
        group: Some("tenant-7".into()),
        system_attributes: pairs(&[
            ("ApproximateReceiveCount", "1"),
            ("SentTimestamp", "1700000000000"),
            ("MessageGroupId", "tenant-7"),
            ("SenderId", "AROA:me"),
            ("ApproximateFirstReceiveTimestamp", "1700000000001"),
        ]),
        ..message("fa1", "r-fa1", "tenant's", SQS)
    };
    assert!(!is_ordered(&first));
    is_golden(include_str!("../../golden/fair.json"), vec![first]);
}

#[test]
fn event_of_another_backend() {
    let first = Message {
        receive_count: 2,
        sent_at: Some(1_700_000_000_000),
        first_received_at: Some(1_700_000_000_500),
        group: Some("g".into()),
        attributes: vec![
            text("colour", "String", "red"),
            binary("seal", "Binary", &[0, 255]),
        ],
        ..message("0199-1", "17:2", "hello", "local:default")
    };
    assert!(is_ordered(&first));
    let second = message("0199-2", "18:1", "", "local:default");
    is_golden(include_str!("../../golden/local.json"), vec![first, second]);
}

#[test]
fn absent_digest_is_null_where_lambda_waits_for_a_window() {
    let written = |attributes: Vec<Attribute>, no_digest| {
        let mut out = Vec::new();
        let message = Message {
            attributes,
            ..message("m", "r", "b", SQS)
        };
        write(&message, no_digest, &mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    };
    let null = r#""messageAttributes":{},"md5OfMessageAttributes":null,"md5OfBody""#;
    assert!(written(Vec::new(), NoDigest::Null).contains(null));
    assert!(!written(Vec::new(), NoDigest::Absent).contains("md5OfMessageAttributes"));
    let some = || vec![text("a", "String", "b")];
    assert_eq!(
        written(some(), NoDigest::Null),
        written(some(), NoDigest::Absent)
    );
}

#[test]
fn attributes_digest_matches_sqs() {
    // A value that SQS's clients are tested with.
    let attribute = text("timestamp", "Number", "1493147359900");
    let digest = crate::digest::of_attributes(&[attribute]);
    assert_eq!(digest, "235c5c510d26fb653d073faed50ae77c");
}

proptest! {
    #[test]
    fn any_text_round_trips(body in any::<String>(), name in any::<String>(), value in any::<String>(), source in any::<String>()) {
        let sent = Message {
            attributes: vec![text(&name, "String", &value)],
            ..message("id", "receipt", &body, &source)
        };
        let read: SqsEvent = serde_json::from_str(&event(vec![sent])).expect("an SQS event");
        let record = &read.records[0];
        prop_assert_eq!(record.body.as_deref(), Some(body.as_str()));
        prop_assert_eq!(record.message_attributes[&name].string_value.as_deref(), Some(value.as_str()));
    }
}
