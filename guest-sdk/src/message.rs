//! Conveniences on the contract's message. Knows nothing of failures or of how a handler is
//! exported.

use crate::bindings::imports::dispatcher::plugin::context;
use crate::{AttributeValue, Message};

/// Whether the attempt on this message is over for the outside world: its lease is lost or the
/// host is past its grace. What it still answers is ignored, so it may stop.
#[must_use]
pub fn cancelled(message: &Message) -> bool {
    context::cancelled(&message.id)
}

impl Message {
    /// The value of the sender's attribute of this name, if there is one and it is text.
    #[must_use]
    pub fn text_attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|found| found.name == name)?;
        match &found.value {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Binary(_) => None,
        }
    }
}

/// An empty message, received once and without a deadline: the start of a message for a test.
impl Default for Message {
    fn default() -> Self {
        Self {
            id: String::new(),
            queue: String::new(),
            body: String::new(),
            source: String::new(),
            receipt: String::new(),
            receive_count: 1,
            deadline: u64::MAX,
            sent_at: None,
            first_received_at: None,
            group: None,
            system_attributes: Vec::new(),
            attributes: Vec::new(),
            body_md5: None,
            attributes_md5: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attribute;

    #[test]
    fn only_text_is_text() {
        let attribute = |name: &str, value| Attribute {
            name: name.into(),
            data_type: String::new(),
            value,
        };
        let message = Message {
            attributes: vec![
                attribute("colour", AttributeValue::Text("red".into())),
                attribute("seal", AttributeValue::Binary(vec![1])),
            ],
            ..Message::default()
        };
        assert_eq!(message.text_attribute("colour"), Some("red"));
        assert_eq!(message.text_attribute("seal"), None);
        assert_eq!(message.text_attribute("size"), None);
    }
}
