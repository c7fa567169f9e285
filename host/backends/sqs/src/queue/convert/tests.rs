//! Round trips and orders of the shapes.

use super::*;
use proptest::prelude::*;

fn delivery() -> sdk::builders::MessageBuilder {
    sdk::Message::builder()
        .message_id("id-1")
        .receipt_handle("handle-1")
        .body("hello")
        .md5_of_body("5d41402abc4b2a76b9719d911017c592")
}

fn system(name: &str) -> sdk::MessageSystemAttributeName {
    sdk::MessageSystemAttributeName::from(name)
}

#[test]
fn converted_message_keeps_all_fields_of_sqs() {
    let sent = delivery()
        .attributes(system("SenderId"), "AIDA")
        .attributes(system("ApproximateFirstReceiveTimestamp"), "1700000000123")
        .attributes(system("ApproximateReceiveCount"), "3")
        .attributes(system("SentTimestamp"), "1700000000001")
        .attributes(system("MessageGroupId"), "g")
        .attributes(system("ANewOne"), "n")
        .attributes(system("AnotherNewOne"), "a")
        .md5_of_message_attributes("00ff")
        .build();
    let message = message(sent, "orders", "arn:q").expect("it has id and receipt");
    assert_eq!(message.id, "id-1");
    assert_eq!((&*message.queue, &*message.source), ("orders", "arn:q"));
    assert_eq!(message.receipt, Receipt("handle-1".into()));
    assert_eq!(message.receive_count, 3);
    assert_eq!(message.sent_at, Some(Timestamp(1_700_000_000_001)));
    assert_eq!(
        message.first_received_at,
        Some(Timestamp(1_700_000_000_123))
    );
    assert_eq!(message.group.as_deref(), Some("g"));
    assert_eq!(message.attributes_md5.as_deref(), Some("00ff"));
    assert!(message.body_md5.is_some());
    let names: Vec<&str> = message
        .system_attributes
        .iter()
        .map(|(name, _)| &**name)
        .collect();
    let order = [
        "ApproximateReceiveCount",
        "SentTimestamp",
        "MessageGroupId",
        "SenderId",
        "ApproximateFirstReceiveTimestamp",
        "ANewOne",
        "AnotherNewOne",
    ];
    assert_eq!(names, order);
}

#[test]
fn message_without_id_or_receipt_is_dropped() {
    let mut nameless = delivery().build();
    nameless.message_id = None;
    assert_eq!(message(nameless, "q", "s"), None);
    let mut tokenless = delivery().build();
    tokenless.receipt_handle = None;
    assert_eq!(message(tokenless, "q", "s"), None);
}

#[test]
fn missing_receive_count_counts_as_first_delivery() {
    for count in ["", "0", "many", "99999999999"] {
        let sent = delivery()
            .attributes(system("ApproximateReceiveCount"), count)
            .build();
        let message = message(sent, "q", "s").expect("it has id and receipt");
        assert_eq!(message.receive_count, 1, "{count:?}");
    }
}

fn any_value() -> impl Strategy<Value = AttributeValue> {
    prop_oneof![
        any::<String>().prop_map(AttributeValue::Text),
        any::<Vec<u8>>().prop_map(AttributeValue::Binary),
    ]
}

proptest! {
    #[test]
    fn attributes_round_trip(values in prop::collection::btree_map("[A-Za-z0-9_.-]{1,20}", any_value(), 0..10)) {
        let list: Vec<Attribute> = values
            .into_iter()
            .map(|(name, value)| {
                let data_type = match value {
                    AttributeValue::Text(_) => "String.custom",
                    AttributeValue::Binary(_) => "Binary",
                };
                Attribute { name, data_type: data_type.into(), value }
            })
            .collect();
        let there = list.iter().map(|a| (a.name.clone(), attribute(a))).collect();
        prop_assert_eq!(attributes(there), Ok(list));
    }

    #[test]
    fn seconds_are_rounded_up(ms in 0_u64..100_000_000, most in 0_u16..=43_200) {
        let asked = Duration::from_millis(ms);
        let given = Duration::from_secs(seconds(asked, most).unsigned_abs().into());
        let limit = Duration::from_secs(most.into());
        prop_assert!(given <= limit);
        prop_assert!(given >= asked.min(limit));
        prop_assert!(given < asked + Duration::from_secs(1));
    }
}

#[test]
fn seconds_saturate() {
    assert_eq!(seconds(Duration::MAX, 43_200), 43_200);
    assert_eq!(seconds(Duration::ZERO, 20), 0);
    assert_eq!(seconds(Duration::from_nanos(1), 20), 1);
}

#[test]
fn finding_03_message_without_body_is_unreadable() {
    let bare = sdk::Message::builder().message_id("m").receipt_handle("r");
    let without = message(bare.clone().build(), "orders", "arn:q").expect("it has id and receipt");
    let unreadable = |why: &str| Some(ContentError::Unreadable(why.to_owned()));
    assert_eq!(without.unreadable, unreadable("no body in SQS's answer"));
    let empty = MessageAttributeValue::builder().data_type("String").build();
    let strange = bare
        .body("b")
        .message_attributes("tenant", empty.expect("it has a type"));
    let strange = message(strange.build(), "orders", "arn:q").expect("it has id and receipt");
    let why = unreadable("its attribute `tenant` has no value");
    assert_eq!(strange.unreadable, why);
}
