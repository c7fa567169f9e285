//! What is refused before SQS is asked, and how entries are made.

use super::*;
use crate::queue::tests::target;

fn outgoing(body: &str) -> OutgoingMessage {
    OutgoingMessage {
        body: body.into(),
        ..OutgoingMessage::default()
    }
}

fn refusal(outgoing: &OutgoingMessage, fifo: bool) -> Option<String> {
    let target = target(fifo);
    SendEntry::of(outgoing, &target).refusal(&target)
}

#[test]
fn messages_sqs_would_refuse_are_refused_with_the_limit() {
    assert_eq!(refusal(&outgoing("x"), false), None);
    assert!(refusal(&outgoing(""), false).is_some());
    assert_eq!(refusal(&outgoing(&"x".repeat(MOST_BYTES)), false), None);
    let mut big = outgoing(&"x".repeat(MOST_BYTES - 12));
    big.attributes = vec![Attribute::text("name", "v12")];
    let words = refusal(&big, false).expect("an attribute's type counts as well");
    assert!(words.contains("1048577"), "{words}");
}

#[test]
fn character_that_sqs_refuses_is_named_with_its_position() {
    let words = refusal(&outgoing("a\tb\u{0}"), false).expect("NUL is none of XML's");
    assert!(
        words.starts_with("the body contains U+0000 at byte 3"),
        "{words}"
    );
    let mut attributed = outgoing("\u{10ffff}\u{fffd}\r\n");
    assert_eq!(refusal(&attributed, false), None);
    attributed.attributes = vec![Attribute::text("name", "\u{fffe}")];
    let words = refusal(&attributed, false).expect("nor is this");
    assert!(
        words.starts_with("attribute `name` contains U+FFFE"),
        "{words}"
    );
}

#[test]
fn delays_are_capped_at_fifteen_minutes_and_refused_on_fifo() {
    let delayed = |s: u64, ms: u64| {
        let mut outgoing = outgoing("x");
        outgoing.delay = Duration::from_millis(s * 1_000 + ms);
        outgoing.group = Some("g".into());
        outgoing
    };
    assert_eq!(refusal(&delayed(900, 0), false), None);
    assert!(refusal(&delayed(900, 1), false).is_some());
    assert_eq!(refusal(&delayed(0, 0), true), None);
    assert!(refusal(&delayed(1, 0), true).is_some());
}

#[test]
fn fifo_queue_requires_a_group() {
    assert!(refusal(&outgoing("x"), true).is_some());
}

#[test]
fn entry_carries_every_field_of_the_message() {
    let mut parcel = SendEntry {
        body: "hello".into(),
        attributes: vec![Attribute {
            name: "photo".into(),
            data_type: "Binary.jpeg".into(),
            value: AttributeValue::Binary(vec![0, 255]),
        }],
        delay: Duration::from_millis(1_500),
        exact: false,
        group: Some("g".into()),
        deduplication: Some("d".into()),
        trace_header: Some("Root=1".into()),
    };
    let entry = parcel.entry("3".into(), &target(false));
    assert_eq!((entry.id(), entry.message_body()), ("3", "hello"));
    assert_eq!(entry.delay_seconds(), Some(2));
    assert_eq!(entry.message_group_id(), Some("g"));
    assert_eq!(entry.message_deduplication_id(), None);
    assert_eq!(entry.message_system_attributes().map(|m| m.len()), Some(1));
    let photo = &entry.message_attributes().expect("one")["photo"];
    assert_eq!(photo.data_type(), "Binary.jpeg");
    assert_eq!(photo.binary_value().map(AsRef::as_ref), Some(&[0, 255][..]));
    parcel.delay = Duration::ZERO;
    let entry = parcel.entry("0".into(), &target(true));
    assert_eq!(entry.delay_seconds(), None);
    assert_eq!(entry.message_deduplication_id(), Some("d"));
}

#[test]
fn fifo_queue_without_content_deduplication_gets_an_id_per_message() {
    let mut fifo = target(true);
    let first = SendEntry::of(&outgoing("x"), &fifo).deduplication;
    assert!(first.is_some());
    assert_ne!(first, SendEntry::of(&outgoing("x"), &fifo).deduplication);
    fifo.content_deduplication = true;
    assert_eq!(SendEntry::of(&outgoing("x"), &fifo).deduplication, None);
    assert_eq!(
        SendEntry::of(&outgoing("x"), &target(false)).deduplication,
        None
    );
}

#[test]
fn scheduled_message_keeps_its_deduplication_id_across_sends() {
    let tick = |name: &str| OutgoingMessage {
        scheduled: Some(name.into()),
        ..outgoing("the same body")
    };
    for content_deduplication in [false, true] {
        let mut fifo = target(true);
        fifo.content_deduplication = content_deduplication;
        let id = |name: &str| SendEntry::of(&tick(name), &fifo).deduplication;
        assert_eq!(id("job/1"), id("job/1"));
        assert_ne!(id("job/1"), id("job/2"));
        let odd = id(&"\u{e9} ".repeat(400)).expect("one of any name");
        assert!(odd.len() <= 128 && odd.chars().all(|c| c.is_ascii_alphanumeric()));
    }
    let standard = SendEntry::of(&tick("job/1"), &target(false));
    assert_eq!(standard.deduplication, None);
}

#[test]
fn scheduled_message_overrides_the_default_delay_of_its_queue() {
    let late = OutgoingMessage {
        scheduled: Some("job/1".into()),
        group: Some("g".into()),
        ..outgoing("x")
    };
    let delay = |outgoing: &OutgoingMessage, fifo| {
        let target = target(fifo);
        let entry = SendEntry::of(outgoing, &target).entry("0".into(), &target);
        entry.delay_seconds()
    };
    assert_eq!(delay(&late, false), Some(0));
    // SQS refuses it there.
    assert_eq!(delay(&late, true), None);
    assert_eq!(delay(&outgoing("x"), false), None);
}
