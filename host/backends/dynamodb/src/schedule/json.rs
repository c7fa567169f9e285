//! Converts between JSON and the attribute values of DynamoDB. Pure.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Map, Number, Value};

/// The maximum number of digits of a number (DynamoDB developer guide, "Naming rules and data
/// types"). A longer number would come back with another value.
const DIGITS: usize = 38;
/// The maximum depth of a document: DynamoDB allows 32 levels, including its own.
const LEVELS: usize = 30;

/// Converts a JSON text to a value that DynamoDB stores without loss; `None` for any other text.
pub(super) fn value(text: &str) -> Option<AttributeValue> {
    from(&serde_json::from_str(text).ok()?, LEVELS)
}

fn from(value: &Value, levels: usize) -> Option<AttributeValue> {
    let levels = levels.checked_sub(1)?;
    Some(match value {
        Value::Null => AttributeValue::Null(true),
        Value::Bool(bool) => AttributeValue::Bool(*bool),
        Value::String(text) => AttributeValue::S(text.clone()),
        Value::Number(number) => {
            let text = number.to_string();
            // Accepts only numbers without an exponent: others may be out of range.
            let plain = text.len() <= DIGITS && !text.contains(['e', 'E']);
            AttributeValue::N(plain.then_some(text)?)
        }
        Value::Array(list) => {
            let list = list.iter().map(|value| from(value, levels));
            AttributeValue::L(list.collect::<Option<_>>()?)
        }
        Value::Object(map) => {
            let fields = map
                .iter()
                .map(|(name, value)| Some((name.clone(), from(value, levels)?)));
            AttributeValue::M(fields.collect::<Option<_>>()?)
        }
    })
}

/// Converts a document to JSON, with its names in alphabetical order; `None` if it has a type that
/// JSON does not have.
pub(super) fn text(value: &AttributeValue) -> Option<String> {
    into(value).map(|value| value.to_string())
}

fn into(value: &AttributeValue) -> Option<Value> {
    Some(match value {
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::Bool(bool) => Value::Bool(*bool),
        AttributeValue::S(text) => Value::String(text.clone()),
        AttributeValue::N(digits) => Value::Number(number(digits)?),
        AttributeValue::L(list) => Value::Array(list.iter().map(into).collect::<Option<_>>()?),
        AttributeValue::M(map) => {
            let mut names: Vec<&String> = map.keys().collect();
            names.sort();
            let mut fields = Map::new();
            for name in names {
                fields.insert(name.clone(), into(map.get(name)?)?);
            }
            Value::Object(fields)
        }
        _ => return None,
    })
}

fn number(digits: &str) -> Option<Number> {
    if let Ok(whole) = digits.parse::<i64>() {
        return Some(whole.into());
    }
    match digits.parse::<u64>() {
        Ok(whole) => Some(whole.into()),
        Err(_) => Number::from_f64(digits.parse().ok()?),
    }
}
