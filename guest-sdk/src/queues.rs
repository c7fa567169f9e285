//! The queues that the configuration grants to this plugin. A component that calls this module
//! imports `dispatcher:plugin/queues`, or `dispatcher:plugin/queues-async`.
//!
//! ```
//! use dispatcher_guest::queues::{Outgoing, send};
//! use dispatcher_guest::{Failure, Message, handler, testing};
//! use std::time::Duration;
//!
//! fn handle(order: Message) -> Result<(), Failure> {
//!     let reminder = Outgoing::new(format!("was {} paid for?", order.body))
//!         .delay(Duration::from_secs(36 * 3600))
//!         .attribute("kind", "reminder");
//!     let id = send("local:reminders", reminder)?;
//!     println!("reminder {id}");
//!     Ok(())
//! }
//!
//! handler!(handle);
//! # fn main() {
//! let granted = testing::grant().queue("local:reminders");
//! assert_eq!(testing::run(handle, testing::message("o-17")), Ok(()));
//! assert_eq!(granted.sent("local:reminders")[0].body, "was o-17 paid for?");
//! # }
//! ```
//!
//! The configuration grants queues with `--allow-send`. Sending to another queue fails with
//! [`SendError::Forbidden`].

use crate::Failure;
#[cfg(target_family = "wasm")]
use crate::bindings::imports::dispatcher::plugin as contract;
use crate::bindings::imports::dispatcher::plugin::{queues_types as wire, types};
use crate::lambda::written;
use crate::{Attribute, AttributeValue};
use serde::Serialize;
use std::borrow::Borrow;
use std::fmt;
use std::time::{Duration, SystemTime};

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Outgoing {
    /// The payload.
    pub body: String,
    /// The attributes; at most ten on SQS.
    pub attributes: Vec<Attribute>,
    /// The delay before the message can be received, in milliseconds. It can have any length.
    pub delay: u64,
    /// The FIFO group.
    pub group: Option<String>,
    /// The ID by which a queue that drops duplicates identifies this message, instead of by its
    /// body.
    pub deduplication_id: Option<String>,
}

impl From<Outgoing> for wire::Outgoing {
    fn from(message: Outgoing) -> Self {
        Self {
            body: types::Body::Text(message.body),
            attributes: message.attributes,
            delay: message.delay,
            group: message.group,
            deduplication_id: message.deduplication_id,
        }
    }
}

/// The reason why a message was not sent.
///
/// `?` converts it with [`Failure::of_sending`]. For this reason the type does not implement
/// [`std::error::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The configuration does not grant this queue to this plugin.
    Forbidden(String),
    /// The backend refused the message permanently. The text says why.
    Refused(String),
    /// The backend could not be reached or was busy. Sending again may succeed.
    Unavailable(String),
}

impl fmt::Display for SendError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(why) => out.write_str(why),
            Self::Refused(why) => write!(out, "the queue refuses the message: {why}"),
            Self::Unavailable(why) => write!(out, "the queue could not be reached: {why}"),
        }
    }
}

impl From<wire::SendError> for SendError {
    fn from(error: wire::SendError) -> Self {
        match error {
            wire::SendError::Forbidden(why) => Self::Forbidden(why),
            wire::SendError::Refused(why) => Self::Refused(why),
            wire::SendError::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

impl Failure {
    /// Converts a send error to the failure of the message that the handler works on.
    /// [`SendError::Refused`] rejects it. [`SendError::Unavailable`] and [`SendError::Forbidden`]
    /// are retries by policy: the queue's name may come from the message, and one message must not
    /// stop the others of its route.
    #[must_use]
    pub fn of_sending(error: SendError) -> Self {
        match error {
            SendError::Refused(why) => Self::Reject(why),
            SendError::Forbidden(_) | SendError::Unavailable(_) => {
                Self::retry_because(error.to_string())
            }
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        Self::of_sending(error)
    }
}

/// Sends a message and returns its ID. It blocks the instance until the message is sent.
///
/// If an attempt fails after it has sent a message, the next attempt sends the message again.
///
/// # Errors
/// Returns a [`SendError`] if the message was not sent.
pub fn send(queue: impl AsRef<str>, message: impl Borrow<Outgoing>) -> Result<String, SendError> {
    #[cfg(target_family = "wasm")]
    return contract::queues::send(queue.as_ref(), &message.borrow().clone().into())
        .map_err(SendError::from);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::send(queue.as_ref(), message.borrow());
}

/// Like [`send`], for `async` handlers: while it waits, the instance can handle other messages.
///
/// # Errors
/// Returns a [`SendError`] if the message was not sent, like [`send`].
pub async fn send_async(queue: impl Into<String>, message: Outgoing) -> Result<String, SendError> {
    let queue = queue.into();
    #[cfg(target_family = "wasm")]
    return contract::queues_async::send(queue, message.into())
        .await
        .map_err(SendError::from);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::send(&queue, &message);
}

/// Builds a message.
impl Outgoing {
    /// Creates a message with this body, without attributes, a delay or a group.
    pub fn new(body: impl Into<String>) -> Self {
        Self {
            body: body.into(),
            ..Self::default()
        }
    }

    /// Creates a message whose body is this value as JSON.
    ///
    /// # Errors
    /// Returns [`Failure::Reject`] if the value cannot be written as JSON.
    pub fn json(value: &(impl Serialize + ?Sized)) -> Result<Self, Failure> {
        let body = String::from_utf8(written(value)?);
        Ok(Self::new(body.expect("JSON is UTF-8")))
    }

    /// Sets the delay before the message can be received. It can have any length, and is rounded up
    /// to whole milliseconds.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        let ms = delay.as_nanos().div_ceil(1_000_000);
        self.delay = u64::try_from(ms).unwrap_or(u64::MAX);
        self
    }

    /// Sets the date from which the message can be received. If the date is past, it can be
    /// received at once. The message is sent with the delay from now until then, by the host's
    /// clock.
    #[must_use]
    pub fn at(self, date: SystemTime) -> Self {
        let delay = date.duration_since(SystemTime::now());
        self.delay(delay.unwrap_or_default())
    }

    /// Sets the FIFO group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets the ID by which a queue that drops duplicates identifies this message, instead of by
    /// its body.
    #[must_use]
    pub fn deduplication_id(mut self, id: impl Into<String>) -> Self {
        self.deduplication_id = Some(id.into());
        self
    }

    /// Adds a text attribute. It replaces an attribute with the same name. On SQS, a message has at
    /// most ten attributes of all kinds.
    #[must_use]
    pub fn attribute(self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.with(name.into(), "String", AttributeValue::Text(text.into()))
    }

    /// Adds a number attribute. It replaces an attribute with the same name.
    #[must_use]
    pub fn number(self, name: impl Into<String>, number: impl fmt::Display) -> Self {
        let number = AttributeValue::Text(number.to_string());
        self.with(name.into(), "Number", number)
    }

    /// Adds a binary attribute. It replaces an attribute with the same name.
    #[must_use]
    pub fn binary(self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.with(name.into(), "Binary", AttributeValue::Binary(bytes.into()))
    }

    fn with(mut self, name: String, data_type: &str, value: AttributeValue) -> Self {
        put(&mut self.attributes, name, data_type, value);
        self
    }
}

/// Adds an attribute and removes one with the same name.
pub(crate) fn put(
    attributes: &mut Vec<Attribute>,
    name: String,
    data_type: &str,
    value: AttributeValue,
) {
    attributes.retain(|attribute| attribute.name != name);
    attributes.push(Attribute {
        name,
        data_type: data_type.into(),
        value,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn delay_is_rounded_up_and_past_date_means_no_delay() {
        let ms = |delay| Outgoing::new("").delay(delay).delay;
        assert_eq!(ms(Duration::from_micros(1_001)), 2);
        assert_eq!(ms(Duration::from_secs(2)), 2_000);
        assert_eq!(ms(Duration::MAX), u64::MAX);
        assert_eq!(Outgoing::new("").at(UNIX_EPOCH).delay, 0);
        let ahead = SystemTime::now() + Duration::from_secs(3600);
        let delay = Outgoing::new("").at(ahead).delay;
        assert!((1..=3_600_000).contains(&delay), "{delay}");
    }

    #[test]
    fn attributes_keep_their_types_and_duplicates_are_refused() {
        let outgoing = Outgoing::new("").attribute("a", "1").number("b", 2);
        let outgoing = outgoing.binary("c", [3]).number("a", 4);
        let types = outgoing.attributes.iter();
        let types: Vec<_> = types.map(|it| (&*it.name, &*it.data_type)).collect();
        assert_eq!(types, [("b", "Number"), ("c", "Binary"), ("a", "Number")]);
    }

    #[test]
    fn permanent_send_error_is_a_rejection_and_others_are_retries() {
        let of = |error| Failure::from(error);
        let why = || "why".to_owned();
        assert_eq!(
            of(SendError::Forbidden(why())),
            Failure::retry_because("why")
        );
        assert_eq!(of(SendError::Refused(why())), Failure::reject("why"));
        let unavailable = Failure::retry_because("the queue could not be reached: why");
        assert_eq!(of(SendError::Unavailable(why())), unavailable);
    }
}
