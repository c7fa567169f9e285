//! Decides which messages a route handles, by patterns as Lambda's event source mappings have them
//! in their `FilterCriteria`. Pure; what becomes of the others is settlement's to decide.

mod pattern;
mod rule;
#[cfg(test)]
mod tests;

use crate::message::{AttributeValue, Message};
pub use pattern::PatternError;
use pattern::{Fields, Reader};
use serde_json::{Map, Value};

/// The parts of a message that a pattern may name, with Lambda's names.
const PARTS: [&str; 5] = [
    "body",
    "messageId",
    "attributes",
    "messageAttributes",
    "eventSourceARN",
];

/// One pattern, with the text that it was read from.
#[derive(Debug, Clone)]
pub struct Filter {
    text: String,
    fields: Fields,
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Filter {}

impl std::fmt::Display for Filter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

impl Filter {
    /// Reads a pattern such as `{"body": {"kind": ["order", "return"]}}`.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(text: &str) -> Result<Self, Vec<PatternError>> {
        let pattern: Value = serde_json::from_str(text)
            .map_err(|error| vec![PatternError::new("", format!("no JSON: {error}"), WANTED)])?;
        let mut reader = Reader::default();
        let fields = reader.fields("", &pattern);
        for key in fields.keys() {
            if !PARTS.contains(&key) {
                let error = PatternError::new("", format!("`{key}` is no part of a message"), PART);
                reader.errors.push(error.nearest_of(key, &PARTS));
            }
        }
        if reader.errors.is_empty() {
            let text = text.trim().to_owned();
            return Ok(Self { text, fields });
        }
        Err(reader.errors)
    }

    fn matches(&self, event: &Value) -> bool {
        self.fields.match_value(Some(event))
    }
}

const WANTED: &str = "a pattern such as {\"body\": {\"kind\": [\"order\"]}}";
const PART: &str = "body, messageId, attributes, messageAttributes or eventSourceARN; a field of the \
                    body is written {\"body\": {\"FIELD\": [VALUE]}}";

/// Whether any of the filters matches a message; or there are none.
pub fn accepts(filters: &[Filter], message: &Message) -> bool {
    if filters.is_empty() {
        return true;
    }
    let event = event(filters, message);
    filters.iter().any(|filter| filter.matches(&event))
}

/// As much of a message as the filters look at, as Lambda shows it.
fn event(filters: &[Filter], message: &Message) -> Value {
    let is_used = |part: &str| {
        filters
            .iter()
            .any(|one| one.fields.keys().any(|key| key == part))
    };
    let used = PARTS.into_iter().filter(|part| is_used(part));
    let event = used.map(|part| {
        let value = match part {
            "body" => body(&message.body),
            "messageId" => Value::from(message.id.as_str()),
            "attributes" => system_attributes(message),
            "messageAttributes" => attributes(message),
            _ => Value::from(message.source.as_str()),
        };
        (part.to_owned(), value)
    });
    Value::Object(event.collect())
}

/// A body that is a JSON object or array is one, any other is a text.
fn body(text: &str) -> Value {
    let json = serde_json::from_str(text).ok();
    let json = json.filter(|json: &Value| json.is_object() || json.is_array());
    json.unwrap_or_else(|| Value::from(text))
}

fn system_attributes(message: &Message) -> Value {
    let named = message.system_attributes.iter();
    let mut all: Map<String, Value> = named
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
        .collect();
    all.insert(
        "ApproximateReceiveCount".to_owned(),
        Value::from(message.receive_count.to_string()),
    );
    if let Some(group) = &message.group {
        all.insert("MessageGroupId".to_owned(), Value::from(group.as_str()));
    }
    Value::Object(all)
}

fn attributes(message: &Message) -> Value {
    let all = message.attributes.iter().map(|attribute| {
        let mut shown = Map::new();
        if let AttributeValue::Text(text) = &attribute.value {
            shown.insert("stringValue".to_owned(), Value::from(text.as_str()));
        }
        let data_type = Value::from(attribute.data_type.as_str());
        shown.insert("dataType".to_owned(), data_type);
        (attribute.name.clone(), Value::Object(shown))
    });
    Value::Object(all.collect())
}
