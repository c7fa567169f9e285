//! Every edge of `batchItemFailures`.

use super::*;
use proptest::prelude::*;

fn slips() -> Vec<Slip> {
    let slip = |id: &str| Slip {
        id: id.into(),
        group: None,
        deadline: 0,
    };
    ["a", "b", "c"].map(slip).into()
}

fn failed(payload: &str) -> Option<Vec<bool>> {
    match read(payload.as_bytes(), &slips()) {
        Reading::Each(failed) => Some(failed),
        Reading::Unreadable(_) => None,
    }
}

#[test]
fn response_without_failures_is_a_success() {
    for answer in [
        "",
        "  \n",
        "null",
        "{}",
        r#"{"batchItemFailures":[]}"#,
        r#"{"batchItemFailures":null}"#,
        r#"{"statusCode":200,"body":"{\"batchItemFailures\":1}"}"#,
        r#""done""#,
        r#""""#,
        "17",
        "true",
        "[]",
        r#"[{"itemIdentifier":"a"}]"#,
    ] {
        assert_eq!(failed(answer), Some(vec![false; 3]), "{answer:?}");
    }
}

#[test]
fn unparseable_response_fails_all() {
    for answer in [
        "{",
        "done",
        "{}{}",
        "{'batchItemFailures':[]}",
        r#"{"batchItemFailures":"a"}"#,
        r#"{"batchItemFailures":{"itemIdentifier":"a"}}"#,
        r#"{"batchItemFailures":["a"]}"#,
        r#"{"batchItemFailures":[null]}"#,
        r#"{"batchItemFailures":[{}]}"#,
        r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#,
        r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#,
        r#"{"batchItemFailures":[{"itemIdentifier":1}]}"#,
        r#"{"batchItemFailures":[{"foo":"notvalid"}]}"#,
        r#"{"batchItemFailures":[{"itemidentifier":"a"}]}"#,
        r#"{"batchItemFailures":[{"itemIdentifier":"unknown"}]}"#,
        r#"{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"unknown"}]}"#,
        r#"{"batchItemFailures":[{"itemIdentifier":"a"},{"foo":"b"}]}"#,
    ] {
        assert_eq!(failed(answer), None, "{answer:?}");
    }
}

#[test]
fn exactly_the_listed_messages_failed() {
    let twice = r#"{"batchItemFailures":[{"itemIdentifier":"b"},{"itemIdentifier":"b","more":1}]}"#;
    assert_eq!(failed(twice), Some(vec![false, true, false]));
    let all = r#"{"batchItemFailures":[{"itemIdentifier":"c"},{"itemIdentifier":"a"},{"itemIdentifier":"b"}]}"#;
    assert_eq!(failed(all), Some(vec![true; 3]));
}

#[test]
fn members_that_are_not_looked_at_may_be_any_json() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for other in [
        r#""\ud83d""#,
        "1e400",
        "-0.0e-999999999999",
        "123456789012345678901",
        &deep,
    ] {
        let answer = format!(
            r#"{{"x":{other},"\ud83d":{other},"batchItemFailures":[{{"itemIdentifier":"b","x":{other}}}]}}"#
        );
        assert_eq!(
            failed(&answer),
            Some(vec![false, true, false]),
            "{other:.40}"
        );
        assert_eq!(failed(other), Some(vec![false; 3]), "{other:.40}");
    }
    let twice = r#"{"batchItemFailures":1,"batchItemFailures":[{"itemIdentifier":"a"}]}"#;
    assert_eq!(failed(twice), Some(vec![true, false, false]));
}

proptest! {
    #[test]
    fn parser_accepts_any_bytes(payload in prop::collection::vec(any::<u8>(), 0..200)) {
        read(&payload, &slips());
    }

    #[test]
    fn parser_accepts_any_items(items in "[\\[\\]{}:,\"a-cnul0-9]{0,60}") {
        read(format!("{{\"batchItemFailures\":{items}}}").as_bytes(), &slips());
    }
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    assert_eq!(failed(&"[".repeat(100_000)), None);
}
