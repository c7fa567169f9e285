//! Conveniences on the contract's message: its attributes, and what a handler may ask about its
//! attempt. Knows nothing of failures beyond how to reject, or of how a handler is exported.

use crate::attempt::{self, NEVER};
use crate::{AttributeValue, Failure, Message};
use std::fmt::Display;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whether the attempt on this message is over for the outside world: its lease is lost or the
/// host is past its grace. What it still answers is ignored, so it may stop.
///
/// Off WebAssembly it is what [`testing::Granted::cancelled`](crate::testing::Granted::cancelled) says, and
/// false where nothing is granted.
#[must_use]
pub fn cancelled(message: &Message) -> bool {
    #[cfg(target_family = "wasm")]
    return crate::bindings::imports::dispatcher::plugin::context::cancelled(&message.id);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::cancelled(&message.id);
}

/// What the sender set, and when the attempt ends.
///
/// ```
/// use dispatcher_guest::{Failure, Message, OrFailure, testing};
/// use std::time::Duration;
///
/// fn handle(message: Message) -> Result<(), Failure> {
///     let kind = message.text("kind").ok_or("no attribute `kind`").or_reject()?;
///     let size = message.number::<u64>("size")?.unwrap_or(1);
///     if message.time_left() < Duration::from_secs(5) {
///         return Err(Failure::busy("too little time for another one"));
///     }
///     println!("{kind} of {size}, attempt {}", message.attempt());
///     Ok(())
/// }
///
/// let message = testing::message("").attribute("kind", "parcel");
/// assert_eq!(testing::run(handle, message), Ok(()));
/// let message = testing::message("").attribute("kind", "parcel").number("size", "big");
/// let why = "the attribute `size`: invalid digit found in string: `big`";
/// assert_eq!(testing::run(handle, message), Err(Failure::reject(why)));
/// ```
impl Message {
    fn value(&self, name: &str) -> Option<&AttributeValue> {
        let found = self.attributes.iter().find(|found| found.name == name)?;
        Some(&found.value)
    }

    /// The sender's attribute of this name, if there is one and it is a text or a number.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Binary(_) => None,
        }
    }

    /// The same, by an earlier name.
    #[must_use]
    pub fn text_attribute(&self, name: &str) -> Option<&str> {
        self.text(name)
    }

    /// The sender's attribute of this name as a number, or as whatever else can be read from text.
    /// None where there is none of this name.
    ///
    /// # Errors
    /// [`Failure::Reject`], where there is one and it is no such number.
    pub fn number<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Failure> {
        let rejected =
            |why: &dyn Display| Failure::reject(format!("the attribute `{name}`: {why}"));
        match self.value(name) {
            None => Ok(None),
            Some(AttributeValue::Binary(_)) => Err(rejected(&"wanted text, found bytes")),
            Some(AttributeValue::Text(text)) => match text.trim().parse() {
                Ok(number) => Ok(Some(number)),
                Err(error) => Err(rejected(&format_args!("{error}: `{text}`"))),
            },
        }
    }

    /// The sender's attribute of this name, if there is one and it is binary.
    #[must_use]
    pub fn binary(&self, name: &str) -> Option<&[u8]> {
        match self.value(name)? {
            AttributeValue::Text(_) => None,
            AttributeValue::Binary(bytes) => Some(bytes),
        }
    }

    /// Which attempt this is: how often the message has been received, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.receive_count
    }

    /// How long until the attempt is stopped and counted as timed out; nothing where that is past,
    /// and centuries where there is no such date.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        attempt::left(self.deadline)
    }

    /// When that is. None where there is no such date.
    #[must_use]
    pub fn ends_at(&self) -> Option<SystemTime> {
        let ends = (self.deadline != NEVER).then_some(self.deadline)?;
        UNIX_EPOCH.checked_add(Duration::from_millis(ends))
    }

    /// When the sender's call was accepted, where the backend tells.
    #[must_use]
    pub fn sent(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.sent_at?))
    }

    /// Whether what the handler answers still counts; see [`cancelled`].
    #[must_use]
    pub fn cancelled(&self) -> bool {
        cancelled(self)
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
            deadline: NEVER,
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
    use crate::testing;

    #[test]
    fn attribute_kinds_are_read_as_their_types() {
        let message = testing::message("")
            .attribute("colour", "red")
            .number("size", -3)
            .binary("seal", [1])
            .build();
        assert_eq!(message.text("colour"), Some("red"));
        assert_eq!(message.text("seal"), None);
        assert_eq!(message.text("absent"), None);
        assert_eq!(message.binary("seal"), Some(&[1][..]));
        assert_eq!(message.binary("colour"), None);
        assert_eq!(message.number("size"), Ok(Some(-3)));
        assert_eq!(message.number::<u8>("absent"), Ok(None));
        for bad in ["size", "seal", "colour"] {
            assert!(matches!(message.number::<u8>(bad), Err(Failure::Reject(_))));
        }
    }

    #[test]
    fn missing_deadline_is_no_date_and_past_deadline_leaves_no_time() {
        let mut message = Message::default();
        assert_eq!(message.ends_at(), None);
        message.deadline = 1_000;
        assert_eq!(message.ends_at(), Some(UNIX_EPOCH + Duration::from_secs(1)));
        assert_eq!(message.time_left(), Duration::ZERO);
    }
}
