//! Determines the group of a message where the queue has none: an attribute of the sender, or a
//! place in the body. Pure.

use crate::message::{AttributeValue, Message};
use serde_json::Value;

/// Where a message says which group it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    /// In the sender's attribute of this name.
    Attribute(String),
    /// In the body, at this JSON pointer (RFC 6901).
    Pointer(String),
}

impl GroupBy {
    /// The group of a message. One that does not say, or whose body is no JSON, belongs to none and
    /// is kept in order with no other.
    pub fn group(&self, message: &Message) -> Option<String> {
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
                let body: Value = serde_json::from_str(&message.body).ok()?;
                match body.pointer(pointer)? {
                    Value::Null => None,
                    Value::String(text) => Some(text.clone()),
                    other => Some(other.to_string()),
                }
            }
        }
    }
}

impl std::fmt::Display for GroupBy {
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
    fn group_is_read_from_an_attribute_or_a_json_pointer() {
        let mut message = samples::message("m");
        message.body = r#"{"order":{"customer":"c1","number":7,"nobody":null}}"#.into();
        message.attributes = vec![Attribute::text("tenant", "t1")];
        let by = |pointer: &str| GroupBy::Pointer(pointer.into()).group(&message);
        assert_eq!(by("/order/customer").as_deref(), Some("c1"));
        assert_eq!(by("/order/number").as_deref(), Some("7"));
        assert_eq!((by("/order/nobody"), by("/order/other")), (None, None));
        let by = |name: &str| GroupBy::Attribute(name.into()).group(&message);
        assert_eq!((by("tenant").as_deref(), by("other")), (Some("t1"), None));
        message.body = "not JSON".into();
        assert_eq!(GroupBy::Pointer("/order".into()).group(&message), None);
    }
}
