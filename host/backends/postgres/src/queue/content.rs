//! How a message is written to the columns `message` and `headers`, and read from them. Pure.
//!
//! A body that is a JSON object or array is stored as such, so that every client of pgmq reads it; any
//! other text is a JSON string. A header is an attribute. The types of attributes that are not
//! `String` are in one more header.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_core::message::{Attribute, AttributeValue, Message, OutgoingMessage};
use dispatcher_core::queue::{DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, ItemError, origin};
use serde_json::{Map, Value};

/// The header with the group of a message, as pgmq has it.
const GROUP: &str = "x-pgmq-group";
/// The header with the types of attributes that are not `String`, by their names.
const TYPES: &str = "x-dispatcher-types";
/// The header with the time of the first receipt, in microseconds since 1970.
const FIRST_READ: &str = "x-dispatcher-first-read";

/// The two columns of a message, as JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub message: String,
    pub headers: Option<String>,
}

impl Columns {
    /// Returns the columns of a message that is sent.
    pub(super) fn of(item: &OutgoingMessage) -> Result<Self, ItemError> {
        let mut headers = Map::new();
        let mut types = Map::new();
        for attribute in item.attributes_with_trace() {
            if [GROUP, TYPES, FIRST_READ].contains(&&*attribute.name) {
                let why = format!(
                    "the attribute `{}` has a meaning of its own",
                    attribute.name
                );
                return Err(ItemError::Refused(why));
            }
            let value = match attribute.value {
                AttributeValue::Text(text) => text,
                AttributeValue::Binary(bytes) => STANDARD.encode(bytes),
            };
            if attribute.data_type != "String" {
                types.insert(attribute.name.clone(), attribute.data_type.into());
            }
            headers.insert(attribute.name, value.into());
        }
        if !types.is_empty() {
            headers.insert(TYPES.to_owned(), types.into());
        }
        if let Some(group) = &item.group {
            headers.insert(GROUP.to_owned(), group.clone().into());
        }
        let is_json = item.body.trim_start().starts_with(['{', '['])
            && serde_json::from_str::<Value>(&item.body).is_ok();
        let message = if is_json {
            item.body.clone()
        } else {
            Value::from(item.body.as_str()).to_string()
        };
        Ok(Self {
            message,
            headers: (!headers.is_empty()).then(|| Value::Object(headers).to_string()),
        })
    }
}

/// The content of the column `headers`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    pub attributes: Vec<Attribute>,
    pub group: Option<String>,
    /// The time of the first receipt, in microseconds since 1970.
    pub first_read: Option<i64>,
}

impl Headers {
    /// Reads the column. A value that is not a text becomes one, as JSON.
    pub(super) fn read(column: &str) -> Self {
        let Ok(mut headers) = serde_json::from_str::<Map<String, Value>>(column) else {
            return Self::default();
        };
        let types = headers.remove(TYPES).unwrap_or_default();
        let group = headers.remove(GROUP).filter(|group| !group.is_null());
        let first_read = headers.remove(FIRST_READ);
        let attributes = headers.into_iter().map(|(name, value)| {
            let data_type = types.get(&name).and_then(Value::as_str);
            attribute(name, value, data_type)
        });
        Self {
            attributes: attributes.collect(),
            group: group.map(text),
            first_read: first_read.and_then(|time| time.as_i64()),
        }
    }
}

fn attribute(name: String, value: Value, data_type: Option<&str>) -> Attribute {
    let is_number = value.is_number();
    let value = text(value);
    if data_type.is_some_and(|name| name.starts_with("Binary"))
        && let Ok(bytes) = STANDARD.decode(&value)
    {
        return Attribute {
            name,
            data_type: data_type.unwrap_or("Binary").to_owned(),
            value: AttributeValue::Binary(bytes),
        };
    }
    let usual = if is_number { "Number" } else { "String" };
    Attribute {
        name,
        data_type: data_type.unwrap_or(usual).to_owned(),
        value: AttributeValue::Text(value),
    }
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Returns the headers that a dead letter gets, as JSON: why it is one, and its id and time of first
/// receipt before it was moved.
pub(super) fn of_dead_letter(message: &Message, reason: &str) -> String {
    // The server's texts have no NUL.
    let reason = reason.replace('\0', "\u{fffd}");
    let mut added = Map::new();
    for mark in origin::of_copy(message, None) {
        if let AttributeValue::Text(text) = mark.value {
            added.insert(mark.name, text.into());
        }
    }
    added.insert(DEAD_LETTER_REASON.to_owned(), reason.into());
    added.insert(
        DEAD_LETTER_SOURCE.to_owned(),
        message.source.as_str().into(),
    );
    Value::Object(added).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(body: &str) -> String {
        let item = OutgoingMessage {
            body: body.into(),
            ..OutgoingMessage::default()
        };
        Columns::of(&item).expect("it can be sent").message
    }

    #[test]
    fn only_objects_and_arrays_are_json() {
        for json in [r#"{"a": [1]}"#, " [1, 2]\n", "{}"] {
            assert_eq!(columns(json), json);
        }
        for text in [
            "",
            "5",
            "null",
            "\"x\"",
            "{broken",
            "{} {}",
            "[1",
            "grüße",
            r#"["\ud800"]"#,
        ] {
            assert_eq!(columns(text), Value::from(text).to_string(), "{text}");
        }
    }

    #[test]
    fn headers_of_other_clients_are_attributes() {
        let headers = r#"{"a":"x","n":1.50,"o":{"b":[true]},"z":null,"x-pgmq-group":7}"#;
        let read = Headers::read(headers);
        assert_eq!(read.group.as_deref(), Some("7"));
        let found: Vec<_> = read
            .attributes
            .iter()
            .map(|one| (&*one.name, &*one.data_type, &one.value))
            .collect();
        fn value(text: &str) -> AttributeValue {
            AttributeValue::Text(text.into())
        }
        assert_eq!(
            found,
            [
                ("a", "String", &value("x")),
                ("n", "Number", &value("1.5")),
                ("o", "String", &value(r#"{"b":[true]}"#)),
                ("z", "String", &value("null")),
            ]
        );
        for odd in ["null", "[1]", "\"x\""] {
            assert_eq!(Headers::read(odd), Headers::default());
        }
    }

    #[test]
    fn attribute_with_a_meaning_of_its_own_is_refused() {
        let item = OutgoingMessage {
            attributes: vec![Attribute::text(GROUP, "g")],
            ..OutgoingMessage::default()
        };
        assert!(matches!(Columns::of(&item), Err(ItemError::Refused(_))));
    }
}
