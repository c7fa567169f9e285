//! Digests as SQS has them, characters, names and sizes.

use super::*;
use crate::input;

fn given(data_type: &str, text: Option<&str>, base64: Option<&str>) -> input::Attribute {
    input::Attribute {
        data_type: Some(data_type.into()),
        string_value: text.map(Into::into),
        binary_value: base64.map(Into::into),
    }
}

#[test]
fn digests_match_those_of_sqs() {
    assert_eq!(md5(b"Test message."), "e4e68fb7bd0e697a0ae8f1bb342846b3");
    let one = attribute(
        "timestamp".into(),
        given("Number", Some("1493147359900"), None),
    )
    .unwrap();
    // Recorded from SQS.
    assert_eq!(
        attributes_md5(&[one]).as_deref(),
        Some("235c5c510d26fb653d073faed50ae77c")
    );
    let binary = attribute("b".into(), given("Binary", None, Some("AP8="))).unwrap();
    let text = attribute("a".into(), given("String.custom", Some("€"), None)).unwrap();
    // By Python's hashlib and struct, as the developer guide describes it.
    assert_eq!(
        attributes_md5(&[binary, text]).as_deref(),
        Some("bded96baf320a4e03987a7ee4b682f4e")
    );
    assert_eq!(attributes_md5(&[]), None);
}

#[test]
fn body_contains_only_xml_characters() {
    for good in ["x", "\t\r\n", "\u{d7ff}\u{e000}\u{fffd}\u{10ffff}"] {
        assert_eq!(body(Some(good.into())).unwrap(), good);
    }
    for bad in ["\0", "a\u{b}", "\u{fffe}", "\u{ffff}"] {
        let fault = body(Some(bad.into())).unwrap_err();
        assert_eq!(fault.kind, FaultKind::InvalidMessageContents);
    }
    for nothing in [None, Some(String::new())] {
        assert_eq!(body(nothing).unwrap_err().kind, FaultKind::MissingParameter);
    }
}

#[test]
fn attributes_are_validated_one_by_one() {
    let text = || given("String", Some("x"), None);
    for name in ["a", "a.b", "A-b_c", "attr.1øßä", &"x".repeat(256)] {
        assert!(attribute(name.into(), text()).is_ok(), "{name}");
    }
    for name in [
        "",
        ".a",
        "a.",
        "a..b",
        "a b",
        "a§b",
        "a!b",
        "AWS.x",
        "amazon.x",
        &"x".repeat(257),
    ] {
        assert!(attribute(name.into(), text()).is_err(), "{name}");
    }
    for value in [
        given("", Some("x"), None),
        given("Float", Some("1"), None),
        given("String", None, None),
        given("String", Some(""), None),
        given("String", Some("\u{1}"), None),
        given("Number", Some("many"), None),
        given("Number", Some("NaN"), None),
        given("Number", Some("inf"), None),
        given("Number", Some("-infinity"), None),
        given("Number", Some("1 2"), None),
        given(&format!("Number.{}", "L".repeat(256)), Some("1"), None),
        given("Binary", Some("x"), None),
        given("Binary", None, Some("no base 64")),
    ] {
        assert!(attribute("a".into(), value).is_err());
    }
    for number in ["1", "-1.5", "1e400", "+.5E-3"] {
        assert!(attribute("a".into(), given("Number", Some(number), None)).is_ok());
    }
    let empty = attribute("a".into(), given("String", Some(""), None)).unwrap_err();
    let wanted = "Message (user) attribute 'a' must contain a non-empty value of type 'String'.";
    assert_eq!(empty.message, wanted);
    let many = |count: usize| (0..count).map(|n| (format!("a{n}"), text())).collect();
    assert!(attributes(Some(many(10))).is_ok());
    assert!(attributes(Some(many(11))).is_err());
}

#[test]
fn message_size_counts_names_types_and_values() {
    let text = attribute("ab".into(), given("String", Some("xyz"), None)).unwrap();
    assert_eq!(
        dispatcher_core::message::bytes("12345", &[text]),
        5 + 2 + 6 + 3
    );
}
