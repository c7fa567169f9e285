//! A place in messages whose text names something, such as their group or tenant: an attribute that
//! the sender sets, or a place in the body. Pure.

use crate::json::{self, Token, Tokens};
use crate::message::{AttributeValue, Message};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The prefix of hashes of keys.
pub const HASH: &str = "sha256:";
/// The most bytes of a key. A longer one is replaced by its hash.
pub const LONGEST_KEY: usize = 128;

/// A place in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessagePlace {
    /// The sender's attribute of this name.
    Attribute(String),
    /// The place in the body at this JSON pointer (RFC 6901).
    Pointer(String),
}

impl MessagePlace {
    /// Returns the text at this place of a message; `None` if there is none, or the body is not JSON.
    pub fn text(&self, message: &Message) -> Option<String> {
        match self {
            Self::Attribute(name) => {
                let mut attributes = message.attributes.iter();
                let attribute = attributes.find(|attribute| attribute.name == *name)?;
                match &attribute.value {
                    AttributeValue::Text(text) => Some(text.clone()),
                    AttributeValue::Binary(_) => None,
                }
            }
            Self::Pointer(pointer) => {
                let found = json::find(&message.body, pointer)?;
                match Tokens::new(found).next()?.ok()? {
                    Token::Null => None,
                    Token::Text(text) => {
                        Some(text.decode(char::REPLACEMENT_CHARACTER).into_owned())
                    }
                    // The same number has the same text, however it is written.
                    Token::Number(number) => Some(json::canonical(number)),
                    _ => {
                        let value =
                            serde_json::from_str(found).map(|value: Value| value.to_string());
                        Some(value.unwrap_or_else(|_| found.to_owned()))
                    }
                }
            }
        }
    }
}

/// Where a message names what it belongs to: a key of a limit, or a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageKey {
    /// The message group.
    Group,
    /// A place in the message.
    Place(MessagePlace),
}

impl MessageKey {
    /// Returns the key of a message whose group is `group`.
    pub fn text(&self, message: &Message, group: Option<&str>) -> Option<String> {
        match self {
            Self::Group => group.map(str::to_owned),
            Self::Place(place) => place.text(message),
        }
    }
}

/// Returns the text that stands for a private key.
#[must_use]
pub fn hash(key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{HASH}{hex}")
}

/// Returns the text that stands for a key of any length.
#[must_use]
pub fn bounded(key: String) -> String {
    if key.len() > LONGEST_KEY {
        hash(&key)
    } else {
        key
    }
}

impl std::fmt::Display for MessageKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Group => write!(out, "group"),
            Self::Place(place) => write!(out, "{place}"),
        }
    }
}

impl std::fmt::Display for MessagePlace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Attribute(name) => write!(out, "{name}"),
            Self::Pointer(pointer) => write!(out, "{pointer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Attribute, samples};

    #[test]
    fn text_is_read_from_an_attribute_or_a_json_pointer() {
        let mut message = samples::message("m");
        message.body = r#"{"order":{"customer":"c1","number":7,"nobody":null}}"#.into();
        message.attributes = vec![Attribute::text("tenant", "t1")];
        for (pointer, group) in [
            ("/order/customer", Some("c1")),
            ("/order/number", Some("7")),
            ("/order/nobody", None),
            ("/order/other", None),
        ] {
            let found = MessagePlace::Pointer(pointer.into()).text(&message);
            assert_eq!(found.as_deref(), group, "{pointer}");
        }
        for (name, group) in [("tenant", Some("t1")), ("other", None)] {
            let found = MessagePlace::Attribute(name.into()).text(&message);
            assert_eq!(found.as_deref(), group, "{name}");
        }
        message.body =
            r#"{"a":7.0,"b":12345678901234567890123,"c":[1, true],"d":"\ud83d","e":1e400}"#.into();
        for (pointer, group) in [
            ("/a", "7"),
            ("/b", "12345678901234567890123"),
            ("/c", "[1,true]"),
            ("/d", "\u{fffd}"),
            ("/e", "0.1e401"),
        ] {
            let found = MessagePlace::Pointer(pointer.into()).text(&message);
            assert_eq!(found.as_deref(), Some(group), "{pointer}");
        }
        message.body = "not JSON".into();
        assert_eq!(MessagePlace::Pointer("/order".into()).text(&message), None);
    }
}
