//! The message that a handler gets, and the attempt that it belongs to.

use crate::attempt::{self, NEVER};
use crate::bindings::imports::dispatcher::plugin::types as wire;
use crate::{Attribute, AttributeValue, Failure};
use std::fmt::Display;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One delivery of a message. Every date is in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The backend's ID of the message. It is the same on every redelivery.
    pub id: String,
    /// The queue's name as the configuration writes it, without the weight, such as
    /// `local:default`.
    pub queue: String,
    /// The payload, unchanged. It is empty if [`bytes`](Self::bytes) holds the payload.
    pub body: String,
    /// The payload if it is not UTF-8. The current backends deliver text only.
    pub bytes: Option<Vec<u8>>,
    /// The source of the message: an ARN, or the backend's own name for the queue.
    pub source: String,
    /// The token of this delivery, for display and for events that carry it.
    pub receipt: String,
    /// The number of times that the message has been received, including this one: 1 on the first
    /// delivery.
    pub receive_count: u32,
    /// The number of this attempt at the message, from 1. Every earlier delivery counts as one
    /// attempt. So does every earlier attempt of this delivery: the host may try a message again
    /// while it still holds it.
    pub attempt: u32,
    /// A key of 32 hexadecimal digits that is the same for every attempt at this message, and
    /// different for every other message. Send it to services that carry out a request with a known
    /// key only once.
    pub idempotency_key: String,
    /// The trace that the message belongs to, if its sender named one.
    pub trace: Option<TraceContext>,
    /// The date when this attempt is stopped and counted as timed out. [`extend`](Self::extend)
    /// moves it.
    pub deadline: u64,
    /// The date when the message was sent. `None` if the backend does not tell.
    pub sent_at: Option<u64>,
    /// The date when the message was received for the first time. `None` if the backend does not
    /// tell.
    pub first_received_at: Option<u64>,
    /// The FIFO group, or the key that the route groups by.
    pub group: Option<String>,
    /// The backend's attributes, with the backend's names.
    pub system_attributes: Vec<(String, String)>,
    /// The attributes that the sender set.
    pub attributes: Vec<Attribute>,
    /// The MD5 of the body in hexadecimal. `None` if the backend does not tell.
    pub body_md5: Option<String>,
    /// The MD5 of the sender's attributes in hexadecimal. `None` if the backend does not tell.
    pub attributes_md5: Option<String>,
}

/// A position in a trace, as W3C Trace Context defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace and the span: `00-TRACE-SPAN-FLAGS`.
    pub traceparent: String,
    /// The data of tracing vendors.
    pub tracestate: Option<String>,
}

impl From<wire::Message> for Message {
    fn from(message: wire::Message) -> Self {
        let (body, bytes) = match message.body {
            wire::Body::Text(text) => (text, None),
            wire::Body::Bytes(bytes) => (String::new(), Some(bytes)),
        };
        Self {
            id: message.id,
            queue: message.queue,
            body,
            bytes,
            source: message.source,
            receipt: message.receipt,
            receive_count: message.receive_count,
            attempt: message.attempt,
            idempotency_key: message.idempotency_key,
            trace: message.trace.map(|trace| TraceContext {
                traceparent: trace.traceparent,
                tracestate: trace.tracestate,
            }),
            deadline: message.deadline,
            sent_at: message.sent_at,
            first_received_at: message.first_received_at,
            group: message.group,
            system_attributes: message.system_attributes,
            attributes: message.attributes,
            body_md5: message.body_md5,
            attributes_md5: message.attributes_md5,
        }
    }
}

/// Returns whether the host ignores the outcome of the attempt on this message: the lease is lost,
/// or the host's grace period is over. The handler can stop then.
///
/// In native builds it returns true if the test cancels the attempt with
/// [`testing::Granted::cancelled`](crate::testing::Granted::cancelled).
#[must_use]
pub fn cancelled(message: &Message) -> bool {
    #[cfg(target_family = "wasm")]
    return crate::bindings::imports::dispatcher::plugin::context::cancelled(&message.id);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::cancelled(&message.id);
}

/// Reads the sender's attributes and the deadline of the attempt.
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
///     println!("{kind} of {size}, attempt {}", message.attempt);
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

    /// Returns the sender's attribute with this name, if there is one and it is text or a number.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Binary(_) => None,
        }
    }

    /// Returns the sender's attribute with this name as a number, or as another type that can be
    /// parsed from text. `None` if there is no attribute with this name.
    ///
    /// # Errors
    /// Returns [`Failure::Reject`] if the attribute is binary or cannot be parsed as a `T`.
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

    /// Returns the sender's attribute with this name, if there is one and it is binary.
    #[must_use]
    pub fn binary(&self, name: &str) -> Option<&[u8]> {
        match self.value(name)? {
            AttributeValue::Text(_) => None,
            AttributeValue::Binary(bytes) => Some(bytes),
        }
    }

    /// Returns the time until the attempt is stopped and counted as timed out. It is zero if the
    /// deadline is past, and centuries if there is no deadline.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        attempt::left(self.deadline)
    }

    /// Returns the date when the attempt is stopped. `None` if there is no deadline.
    #[must_use]
    pub fn ends_at(&self) -> Option<SystemTime> {
        let ends = (self.deadline != NEVER).then_some(self.deadline)?;
        UNIX_EPOCH.checked_add(Duration::from_millis(ends))
    }

    /// Returns the date when the message was sent. `None` if the backend does not tell.
    #[must_use]
    pub fn sent(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.sent_at?))
    }

    /// Requests that the attempt may take this long from now, and moves
    /// [`deadline`](Self::deadline) to the end that the host allows: at most the plugin's
    /// `max-timeout`, and never earlier than before. Does nothing in native builds.
    pub fn extend(&mut self, by: Duration) {
        #[cfg(target_family = "wasm")]
        if self.deadline != NEVER
            && let Some(deadline) = crate::bindings::imports::dispatcher::plugin::context::extend(
                &self.id,
                u64::try_from(by.as_millis()).unwrap_or(u64::MAX),
            )
        {
            self.deadline = deadline;
        }
        #[cfg(not(target_family = "wasm"))]
        let _ = by;
    }

    /// Returns whether the host ignores the handler's outcome; see [`cancelled`].
    #[must_use]
    pub fn cancelled(&self) -> bool {
        cancelled(self)
    }
}

/// Creates an empty message, received once and without a deadline, as a base for a test's message.
impl Default for Message {
    fn default() -> Self {
        Self {
            id: String::new(),
            queue: String::new(),
            body: String::new(),
            bytes: None,
            source: String::new(),
            receipt: String::new(),
            receive_count: 1,
            attempt: 1,
            idempotency_key: String::new(),
            trace: None,
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
