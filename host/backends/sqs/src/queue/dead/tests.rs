//! What reaches the dead-letter queue.

use super::*;
use crate::queue::tests::{delivery, target};
use dispatcher_core::clock::Timestamp;
use dispatcher_core::queue::origin::{FIRST_ID, FIRST_RECEIVED};
use proptest::prelude::*;

fn text<'a>(parcel: &'a SendEntry, name: &str) -> Option<&'a str> {
    let attribute = parcel.attributes.iter().find(|a| a.name == name)?;
    match &attribute.value {
        AttributeValue::Text(text) => Some(text),
        AttributeValue::Binary(_) => None,
    }
}

#[test]
fn dead_letter_carries_reason_and_source() {
    let mut message = delivery("a", 3);
    message.attributes = vec![
        Attribute::text("tenant", "7"),
        Attribute::text(REASON, "old"),
    ];
    message.system_attributes = vec![("AWSTraceHeader".into(), "Root=1".into())];
    let (parcel, left_out) = parcel(&message, "it burnt", &target(false));
    assert!(left_out.is_empty());
    assert_eq!(text(&parcel, "tenant"), Some("7"));
    assert_eq!(text(&parcel, REASON), Some("it burnt"));
    assert_eq!(text(&parcel, SOURCE), Some(&*message.source));
    assert_eq!(text(&parcel, FIRST_ID), Some("a"));
    assert_eq!(parcel.attributes.len(), 4);
    assert_eq!(parcel.trace_header.as_deref(), Some("Root=1"));
    assert_eq!(parcel.group, None);
}

#[test]
fn attributes_of_the_sender_are_never_dropped() {
    let marks = [FIRST_ID, REASON, SOURCE, FIRST_RECEIVED];
    for own in 6..=10 {
        let mut message = delivery("a", 1);
        message.first_received_at = Some(Timestamp(1_000));
        message.attributes = (0..own)
            .map(|n| Attribute::text(format!("a{n}"), "v"))
            .collect();
        let (parcel, left_out) = parcel(&message, "why", &target(false));
        assert_eq!(left_out, marks[10 - own..]);
        assert_eq!(parcel.attributes.len(), 10);
        assert_eq!(parcel.attributes[..own], message.attributes);
    }
    let mut full = delivery("a", 1);
    full.body = "x".repeat(MOST_BYTES);
    let left_out = parcel(&full, "why", &target(false)).1;
    assert_eq!(left_out, [FIRST_ID, REASON, SOURCE]);
}

#[test]
fn message_that_is_dead_lettered_again_keeps_its_first_id_date_and_queue() {
    let mut message = delivery("copy", 1);
    message.first_received_at = Some(Timestamp(9_000));
    message.attributes = vec![
        Attribute::text("tenant", "7"),
        Attribute::text(FIRST_ID, "first"),
        Attribute::text(FIRST_SOURCE, "arn:first"),
        Attribute::text(FIRST_RECEIVED, "1970-01-01T00:00:01.000Z"),
    ];
    let (parcel, left_out) = parcel(&message, "why", &target(false));
    assert!(left_out.is_empty());
    let wanted = [
        ("tenant", "7"),
        (FIRST_ID, "first"),
        (REASON, "why"),
        (SOURCE, &message.source),
        (FIRST_SOURCE, "arn:first"),
        (FIRST_RECEIVED, "1970-01-01T00:00:01.000Z"),
    ];
    let wanted = wanted.map(|(name, value)| Attribute::text(name, value));
    assert_eq!(parcel.attributes, wanted);
}

#[test]
fn fifo_dead_letter_has_a_group_and_a_deduplication_id() {
    let mut message = delivery("a", 1);
    let (alone, _) = parcel(&message, "why", &target(true));
    assert_eq!(alone.group.as_deref(), Some("a"));
    assert_eq!(alone.deduplication.as_deref(), Some("a"));
    message.group = Some("g".into());
    let (grouped, _) = parcel(&message, "why", &target(true));
    assert_eq!(grouped.group.as_deref(), Some("g"));
}

#[test]
fn dead_letter_reason_is_made_printable() {
    assert_eq!(legible(""), "no reason given");
    assert_eq!(legible("a\0b\u{fffe}c\td"), "a\u{fffd}b\u{fffd}c\td");
}

proptest! {
    #[test]
    fn dead_letter_reason_is_never_empty_nor_too_long(reason in any::<String>(), times in 1_usize..300) {
        let text = legible(&reason.repeat(times));
        prop_assert!(!text.is_empty());
        prop_assert!(text.len() <= LONGEST_REASON);
        prop_assert_eq!(legible(&text), text);
    }
}

#[test]
fn remembered_dead_letters_are_bounded() {
    let dead_lettered = DeadLetteredIds::default();
    for n in 0..=MOST_BURIED {
        dead_lettered.add(&n.to_string(), format!("copy-{n}"));
    }
    assert!(!dead_lettered.contains("0"), "the oldest has gone");
    assert!(dead_lettered.contains("1"));
    dead_lettered.forget("1");
    assert!(!dead_lettered.contains("1"));
    assert_eq!(dead_lettered.copy_of("1").as_deref(), Some("copy-1"));
    assert!(dead_lettered.contains(&MOST_BURIED.to_string()));
}
