//! Texts that are JSON and others, numbers by value, and places in texts.

use super::*;
use proptest::prelude::*;
use std::cmp::Ordering;

#[test]
fn all_that_the_grammar_allows_is_json() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for text in [
        "null",
        " true ",
        "\t\r\n{ } ",
        "[]",
        r#"[1,{"a":[]},"",false]"#,
        r#""\ud83d \udE00 \ud83d\ude00 \" \\ \/ \b \f \n \r \t \u0000""#,
        "1e400",
        "-0",
        "-0.00E-999999999999999999999999999999999999999999",
        "123456789012345678901234567890",
        r#"{"a":1,"a":2}"#,
        "\"\u{7f}\u{2028}\"",
        &deep,
    ] {
        assert!(is_valid(text), "{text:.60}");
    }
}

#[test]
fn all_else_is_not_json() {
    let open = "[".repeat(1_000_000);
    for text in [
        "",
        " ",
        "nul",
        "nullx",
        "True",
        "{",
        "[1",
        "[1,]",
        "[,1]",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{a:1}"#,
        r#"{1:1}"#,
        "[1}",
        "{}{}",
        "1 2",
        "'a'",
        "\"a",
        "\"a\nb\"",
        r#""\x""#,
        r#""\u12g4""#,
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "-",
        "NaN",
        "0x1",
        "// a\n1",
        "\u{a0}1",
        "\u{feff}1",
        "]",
        ",",
        &open,
    ] {
        assert!(!is_valid(text), "{text:.60}");
    }
}

#[test]
fn error_says_where_the_text_is_not_json() {
    let error = |text: &str| match Json::read(text) {
        Err(Unreadable::NotJson(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(error("{"), "the text ends too early at line 1 column 2");
    assert_eq!(
        error("{\n \"é\": x}"),
        "unexpected character at line 2 column 7"
    );
    let deep = "[".repeat(129) + &"]".repeat(129);
    assert_eq!(Json::read(&deep).err(), Some(Unreadable::TooDeep));
}

#[test]
fn texts_are_what_their_escapes_stand_for() {
    let decoded = |text: &str| match Tokens::new(text).next() {
        Some(Ok(Token::Text(text))) => text.decode('?').into_owned(),
        other => panic!("{other:?}"),
    };
    for (text, wanted) in [
        (r#""a\u00e9\n""#, "aé\n"),
        (r#""\ud83d\ude00""#, "😀"),
        (r#""\uD83D\uDE00""#, "😀"),
        (r#""\ud83d""#, "?"),
        (r#""\ude00\ud83d""#, "??"),
        (r#""\ud83d\ud83d\ude00x""#, "?😀x"),
        (r#""\ud83d\n""#, "?\n"),
        (r#""\ud83d\u0041""#, "?A"),
    ] {
        assert_eq!(decoded(text), wanted, "{text}");
    }
}

#[test]
fn numbers_are_compared_by_value_at_any_length() {
    use Ordering::{Equal, Greater, Less};
    let long = "1".repeat(10_000);
    let longer = format!("{long}1");
    for (one, other, wanted) in [
        ("300", "3.0e2", Equal),
        ("300", "300.0", Equal),
        ("0", "-0", Equal),
        (
            "0.000",
            "-0e99999999999999999999999999999999999999999999",
            Equal,
        ),
        ("0.1", "1e-1", Equal),
        ("0.1", "0.10000000000000000000000001", Less),
        ("9007199254740993", "9007199254740992", Greater),
        (
            "123456789012345678901234567890",
            "123456789012345678901234567891",
            Less,
        ),
        ("-2", "-1", Less),
        ("-1", "0", Less),
        ("-1", "1", Less),
        ("1e400", "10e399", Equal),
        ("1e400", "1e401", Less),
        ("-1e400", "-1e401", Greater),
        ("1e-400", "0", Greater),
        ("1e-400", "1e-401", Greater),
        ("5", "10", Less),
        ("5.5", "5.05", Greater),
        ("1E+2", "100", Equal),
        (
            "1e99999999999999999999999999999999999999999999",
            "1",
            Greater,
        ),
        ("1e-99999999999999999999999999999999999999999999", "1", Less),
        (&long, &longer, Less),
        (&long, &long, Equal),
    ] {
        assert_eq!(compare(one, other), wanted, "{one:.50} {other:.50}");
        assert_eq!(
            compare(other, one),
            wanted.reverse(),
            "{other:.50} {one:.50}"
        );
    }
    assert!(is_exact("1e9999999999999999999999999999999999999"));
    assert!(!is_exact("1e99999999999999999999999999999999999999999999"));
    assert!(is_exact("0e99999999999999999999999999999999999999999999"));
}

#[test]
fn numbers_of_the_same_value_have_one_form() {
    for (number, wanted) in [
        ("7", "7"),
        ("7.0", "7"),
        ("70e-1", "7"),
        ("-0", "0"),
        ("-70", "-70"),
        ("1.50", "1.5"),
        (
            "123456789012345678901234567891",
            "123456789012345678901234567891",
        ),
        ("0.05", "0.5e-1"),
        ("1e400", "0.1e401"),
    ] {
        assert_eq!(canonical(number), wanted, "{number}");
    }
}

#[test]
fn place_is_found_wherever_the_rest_is_json() {
    let text = r#"{"a":{"b":[1,"2",{"c":[]}],"b/c":3,"":4},"x":["\ud83d",1e400]}"#;
    for (pointer, wanted) in [
        ("", Some(text)),
        ("/a/b/0", Some("1")),
        ("/a/b/1", Some("\"2\"")),
        ("/a/b/2", Some("{\"c\":[]}")),
        ("/a/b/2/c", Some("[]")),
        ("/a/b", Some("[1,\"2\",{\"c\":[]}]")),
        ("/a/b~1c", Some("3")),
        ("/a/", Some("4")),
        ("/x/1", Some("1e400")),
        ("/a/b/3", None),
        ("/a/b/00", None),
        ("/a/b/+1", None),
        ("/a/b/-", None),
        ("/a/c", None),
        ("/b", None),
        ("/c", None),
        ("/x/0/1", None),
    ] {
        assert_eq!(find(text, pointer), wanted, "{pointer}");
    }
    assert_eq!(find("{\"a\":1", "/a"), None);
    assert_eq!(find("{\"a\":1}x", "/a"), None);
    assert_eq!(find("[[1,2],[3,4]]", "/1/0"), Some("3"));
    assert_eq!(find("{\"\\u0061\":1}", "/a"), Some("1"));
}

#[test]
fn last_of_two_members_of_one_name_counts() {
    for (text, wanted) in [
        (r#"{"a":{"b":1},"a":{"b":2}}"#, Some("2")),
        (r#"{"a":{"b":1},"a":{}}"#, None),
        (r#"{"a":{"b":1},"a":7}"#, None),
        (r#"{"a":7,"a":{"b":1}}"#, Some("1")),
    ] {
        assert_eq!(find(text, "/a/b"), wanted, "{text}");
    }
}

#[test]
fn values_are_the_same_in_any_form() {
    let same = |one: &str, other: &str| {
        let (one, other) = (Json::read(one).unwrap(), Json::read(other).unwrap());
        assert_eq!(one.is_same(&other), other.is_same(&one));
        one.is_same(&other)
    };
    for (one, other) in [
        (r#"{"a":1,"b":[2.0]}"#, r#"{ "b":[2], "\u0061":1e0}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#""\ud83d""#, r#""\uD83D""#),
        (r#""\u0061""#, r#""a""#),
        ("null", "null"),
    ] {
        assert!(same(one, other), "{one} {other}");
    }
    for (one, other) in [
        (r#"{"a":1}"#, r#"{"a":1,"b":2}"#),
        ("[1,2]", "[2,1]"),
        ("[1]", "[1,1]"),
        (r#""\ud83d""#, r#""\ud83e""#),
        ("1", "\"1\""),
        ("true", "false"),
        ("0", "null"),
    ] {
        assert!(!same(one, other), "{one} {other}");
    }
}

proptest! {
    #[test]
    fn all_that_serde_json_reads_is_json(text in "[\\[\\]{}:,\"a\\\\u0-9dD8e.+ -]{0,24}") {
        if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
            prop_assert!(is_valid(&text));
        }
        // It need not represent a value that it skips.
        let skipped = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(is_valid(&text), skipped);
    }

    #[test]
    fn integers_are_ordered_as_integers(one in any::<i128>(), other in any::<i128>()) {
        prop_assert_eq!(compare(&one.to_string(), &other.to_string()), one.cmp(&other));
        prop_assert_eq!(canonical(&one.to_string()), one.to_string());
    }

    #[test]
    fn floats_are_ordered_as_floats(one in any::<f64>(), other in any::<f64>()) {
        prop_assume!(one.is_finite() && other.is_finite());
        let (text, other_text) = (format!("{one:e}"), format!("{other}"));
        prop_assert_eq!(Some(compare(&text, &other_text)), one.partial_cmp(&other));
    }

    #[test]
    fn place_is_that_of_serde_json(seed in 0..10_000_u64, pointer in "(/[ab01]){0,3}") {
        let value = any_value(seed, 3);
        let text = value.to_string();
        let found = find(&text, &pointer).map(|found| serde_json::from_str(found).expect("JSON"));
        prop_assert_eq!(found.as_ref(), value.pointer(&pointer));
    }
}

/// Some value, made of a number.
fn any_value(seed: u64, levels: u32) -> serde_json::Value {
    let part = |index: u64| any_value(seed / 5 + index * 7, levels - 1);
    match seed % 5 {
        _ if levels == 0 => seed.into(),
        0 | 1 => serde_json::json!({"a": part(1), "b": part(2)}),
        2 | 3 => serde_json::json!([part(3), part(4)]),
        _ => "text".into(),
    }
}
