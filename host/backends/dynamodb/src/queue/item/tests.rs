//! What the columns of an item mean.

use super::*;
use proptest::prelude::*;

/// An item in the very shape of the sample's `CreateTasksFunction`.
fn sample() -> TaskItem {
    TaskItem::from([
        (TASK_ID.to_owned(), text("6d0b8f7e")),
        (STATUS.to_owned(), text("PENDING")),
        (CREATED.to_owned(), number(1_620_000_000_123_u64)),
        (UPDATED.to_owned(), number(1_620_000_000_123_u64)),
        (TTL.to_owned(), number(1_620_003_600_123_u64)),
    ])
}

fn reading(body: Option<&str>) -> ItemFormat {
    ItemFormat {
        queue: "dynamodb:QueueTable".into(),
        source: "arn".into(),
        body: body.map(Into::into),
    }
}

#[test]
fn sample_task_becomes_a_message() {
    let message = reading(None)
        .message(&sample(), None)
        .expect("it has an id");
    assert_eq!((&*message.id, &*message.body), ("6d0b8f7e", "{}"));
    assert_eq!(message.sent_at, Some(Timestamp(1_620_000_000_123)));
    assert_eq!(message.receive_count, 0);
    let ttl = ("ttl".to_owned(), "1620003600123".to_owned());
    assert!(message.system_attributes.contains(&ttl));
}

#[test]
fn time_to_live_is_read_in_seconds_and_in_the_samples_format() {
    let mut item = sample();
    let at = |ms| Timestamp(ms);
    assert_eq!(readiness(&item, at(1_620_003_600_122)), Readiness::Ready);
    assert_eq!(readiness(&item, at(1_620_003_600_123)), Readiness::Expired);
    item.insert(TTL.into(), number(1_620_003_600_u64));
    assert_eq!(readiness(&item, at(1_620_003_599_999)), Readiness::Ready);
    assert_eq!(readiness(&item, at(1_620_003_600_000)), Readiness::Expired);
    item.remove(TTL);
    assert_eq!(readiness(&item, at(u64::MAX)), Readiness::Ready);
}

#[test]
fn delayed_task_is_not_ready_before_its_time() {
    let mut item = sample();
    item.insert(NOT_BEFORE.into(), number(1_620_000_005_000_u64));
    let later = Readiness::Later(Timestamp(1_620_000_005_000));
    assert_eq!(readiness(&item, Timestamp(1_620_000_004_999)), later);
    assert_eq!(
        readiness(&item, Timestamp(1_620_000_005_000)),
        Readiness::Ready
    );
}

#[test]
fn body_is_the_configured_column_or_the_whole_item() {
    let mut item = sample();
    item.insert("ip".into(), text("10.0.0.1"));
    item.insert("port".into(), number(8080_u64));
    let body = |named| reading(named).message(&item, None).expect("an id").body;
    assert_eq!(body(None), r#"{"ip":"10.0.0.1","port":8080}"#);
    assert_eq!(body(Some("ip")), "10.0.0.1");
    assert_eq!(body(Some("port")), "8080");
}

#[test]
fn finding_03_item_without_body_or_with_invalid_attributes_is_unreadable() {
    let mut item = sample();
    item.insert("ip".into(), text("10.0.0.1"));
    let unreadable = |item: &TaskItem, named| {
        let message = reading(named).message(item, None).expect("an id");
        let error = message.unreadable.as_ref();
        error.map(ToString::to_string).unwrap_or_default()
    };
    assert_eq!(unreadable(&item, None), "");
    assert_eq!(
        unreadable(&item, Some("other")),
        "content missing or unreadable: no body: the item has no attribute `other`"
    );
    for strange in [text("{"), number(7_u64)] {
        item.insert(ATTRIBUTES.into(), strange.clone());
        let why = unreadable(&item, None);
        assert!(why.contains("its attributes cannot be read"), "{why}");
        item.remove(ATTRIBUTES);
    }
    item.insert(BODY.into(), number(7_u64));
    let why = unreadable(&item, None);
    assert!(why.contains("its body cannot be read"), "{why}");
}

proptest! {
    #[test]
    fn dates_round_trip_in_both_forms(ms in SECONDS_END..4_000_000_000_000) {
        for dates in [Dates::Number, Dates::Text] {
            let item = TaskItem::from([(CREATED.to_owned(), dates.write(Timestamp(ms)))]);
            prop_assert_eq!(date(&item, CREATED), Some(Timestamp(ms)));
        }
    }

    #[test]
    fn date_strings_sort_chronologically(a in SECONDS_END..4_000_000_000_000, b in SECONDS_END..4_000_000_000_000) {
        let written = |ms| Dates::Text.write(Timestamp(ms)).as_s().cloned().expect("a text");
        prop_assert_eq!(written(a).cmp(&written(b)), a.cmp(&b));
    }

    #[test]
    fn bodies_and_attributes_round_trip(body in ".*", value in ".*", named: bool) {
        let reading = reading(named.then_some("payload"));
        let attributes = vec![Attribute::text("a", value)];
        let mut item = reading.columns(&body, &attributes).expect("texts are JSON");
        item.extend(sample());
        let message = reading.message(&item, None).expect("an id");
        prop_assert_eq!(message.body, body);
        prop_assert_eq!(message.attributes, attributes);
    }
}

#[test]
fn time_to_live_moved_behind_a_lease_still_expires_the_task_and_is_reported() {
    let mut item = sample();
    item.insert(TTL.into(), number(1_700_000_000_u64));
    item.insert(EXPIRES.into(), number(1_620_003_600_u64));
    assert_eq!(
        readiness(&item, Timestamp(1_620_003_600_000)),
        Readiness::Expired
    );
    let message = reading(None).message(&item, None).expect("it has an id");
    let ttl = ("ttl".to_owned(), "1620003600".to_owned());
    assert!(message.system_attributes.contains(&ttl));
    assert_eq!(message.body, "{}");
}
