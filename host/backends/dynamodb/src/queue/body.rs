//! Converts between the columns of an item and a body: a JSON object of the task's columns. A body
//! is split into columns only if the conversion is exact in both directions. Pure.

use super::item::{TaskItem, is_reserved};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_types::base64;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// The maximum nesting depth; DynamoDB allows 32 levels (quotas in its developer guide).
const DEEPEST: usize = 30;

/// Returns the task's own columns as a JSON object: compact, members sorted by name, binary values
/// in base64, sets as lists, numbers as DynamoDB writes them.
pub(super) fn of_columns(item: &TaskItem) -> String {
    let own: BTreeMap<&String, &AttributeValue> =
        item.iter().filter(|(name, _)| !is_reserved(name)).collect();
    let mut text = String::new();
    object(own.into_iter(), &mut text);
    text
}

/// Returns one column's value as JSON.
pub(super) fn of_value(value: &AttributeValue) -> String {
    let mut text = String::new();
    json(value, &mut text);
    text
}

/// Returns the columns for a body if reading them back gives exactly the same text. Any other body
/// is stored as a text.
pub(super) fn to_columns(body: &str) -> Option<TaskItem> {
    let Value::Object(members) = serde_json::from_str(body).ok()? else {
        return None;
    };
    let mut columns = TaskItem::new();
    for (name, value) in members {
        if name.is_empty() || is_reserved(&name) {
            return None;
        }
        columns.insert(name, to_value(value, 1)?);
    }
    (!columns.is_empty() && of_columns(&columns) == body).then_some(columns)
}

/// Returns `None` for fractions, which DynamoDB may return in another notation, and for values that
/// are nested too deep.
fn to_value(value: Value, depth: usize) -> Option<AttributeValue> {
    if depth > DEEPEST {
        return None;
    }
    Some(match value {
        Value::Null => AttributeValue::Null(true),
        Value::Bool(flag) => AttributeValue::Bool(flag),
        Value::Number(number) if number.is_i64() || number.is_u64() => {
            AttributeValue::N(number.to_string())
        }
        Value::Number(_) => return None,
        Value::String(text) => AttributeValue::S(text),
        Value::Array(items) => {
            let items = items.into_iter().map(|item| to_value(item, depth + 1));
            AttributeValue::L(items.collect::<Option<_>>()?)
        }
        Value::Object(members) => {
            let members = members
                .into_iter()
                .map(|(name, value)| Some((name, to_value(value, depth + 1)?)));
            AttributeValue::M(members.collect::<Option<HashMap<_, _>>>()?)
        }
    })
}

fn json(value: &AttributeValue, out: &mut String) {
    match value {
        AttributeValue::S(text) => string(text, out),
        AttributeValue::N(number) => numeral(number, out),
        AttributeValue::Bool(flag) => {
            let _ = write!(out, "{flag}"); // a string takes any text
        }
        AttributeValue::B(blob) => string(&base64::encode(blob.as_ref()), out),
        AttributeValue::L(items) => list(items, out, json),
        AttributeValue::Ss(items) => list(items, out, |text, out| string(text, out)),
        AttributeValue::Ns(items) => list(items, out, |text, out| numeral(text, out)),
        AttributeValue::Bs(items) => list(items, out, |blob, out| {
            string(&base64::encode(blob.as_ref()), out);
        }),
        AttributeValue::M(members) => {
            let sorted: BTreeMap<_, _> = members.iter().collect();
            object(sorted.into_iter(), out);
        }
        // `Null`, and kinds that are newer than this program.
        _ => out.push_str("null"),
    }
}

fn object<'a>(members: impl Iterator<Item = (&'a String, &'a AttributeValue)>, out: &mut String) {
    out.push('{');
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            out.push(',');
        }
        string(name, out);
        out.push(':');
        json(value, out);
    }
    out.push('}');
}

fn list<T>(items: &[T], out: &mut String, each: impl Fn(&T, &mut String)) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        each(item, out);
    }
    out.push(']');
}

fn string(text: &str, out: &mut String) {
    out.push_str(&Value::from(text).to_string());
}

/// Writes a number with all its digits, or as a string if JSON cannot represent it.
fn numeral(number: &str, out: &mut String) {
    match serde_json::from_str::<serde_json::Number>(number) {
        Ok(_) => out.push_str(number),
        Err(_) => string(number, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodb::primitives::Blob;
    use proptest::prelude::*;

    #[test]
    fn every_attribute_value_converts_to_json() {
        let number = "1234567890123456789012345678.5";
        let item = TaskItem::from([
            ("taskId".to_owned(), AttributeValue::S("1".into())),
            ("ttl".to_owned(), AttributeValue::N("1".into())),
            ("dispatcherToken".to_owned(), AttributeValue::S("t".into())),
            ("n".to_owned(), AttributeValue::N(number.into())),
            ("b".to_owned(), AttributeValue::B(Blob::new([1, 2]))),
            ("s".to_owned(), AttributeValue::Ss(vec!["a\"b".into()])),
            (
                "m".to_owned(),
                AttributeValue::M(HashMap::from([
                    ("z".to_owned(), AttributeValue::Null(true)),
                    ("a".to_owned(), AttributeValue::Bool(true)),
                ])),
            ),
        ]);
        let wanted =
            format!(r#"{{"b":"AQI=","m":{{"a":true,"z":null}},"n":{number},"s":["a\"b"]}}"#);
        assert_eq!(of_columns(&item), wanted);
    }

    #[test]
    fn body_is_split_into_columns_only_if_it_round_trips_exactly() {
        for body in [r#"{"a":1,"b":{"c":[true,null,"x"]}}"#, r#"{"amount":-5}"#] {
            let columns = to_columns(body).expect(body);
            assert_eq!(of_columns(&columns), body);
        }
        for body in [
            "hello",
            "[1]",
            "{}",
            r#"{"b":1,"a":2}"#,
            r#"{ "a":1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"taskId":"x"}"#,
            r#"{"dispatcherToken":"x"}"#,
            r#"{"":1}"#,
        ] {
            assert_eq!(to_columns(body), None, "{body}");
        }
    }

    proptest! {
        #[test]
        fn bodies_round_trip_unchanged(body in r#"\{("[a-e\\u00e9]{0,3}":(-?[0-9]{1,4}|"[^\\"\x00-\x1f]{0,4}"|null),?){0,4}\}"#) {
            if let Some(columns) = to_columns(&body) {
                prop_assert_eq!(of_columns(&columns), body);
            }
        }
    }
}
