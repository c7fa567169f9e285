//! The queues that the configuration grants to this plugin. Calling anything here makes the
//! component import `dispatcher:plugin/queues`; knows nothing of the message at hand.
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
//! The configuration grants queues by `--allow-send`. Any other is [`SendError::Forbidden`].

use crate::Failure;
use crate::bindings::imports::dispatcher::plugin as wire;
use crate::lambda::written;
use crate::{Attribute, AttributeValue};
use serde::Serialize;
use std::borrow::Borrow;
use std::fmt;
use std::time::{Duration, SystemTime};

pub use wire::queues_types::Outgoing;

/// A message that was not sent.
///
/// `?` makes of it what [`Failure::of_sending`] does. For that it is no [`std::error::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The configuration does not grant this queue to this plugin.
    Forbidden(String),
    /// The backend refused it for good, and why.
    Refused(String),
    /// The backend could not be reached or was busy; sending again may help.
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

impl From<wire::queues_types::SendError> for SendError {
    fn from(error: wire::queues_types::SendError) -> Self {
        use wire::queues_types::SendError as Wire;
        match error {
            Wire::Forbidden(why) => Self::Forbidden(why),
            Wire::Refused(why) => Self::Refused(why),
            Wire::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

impl Failure {
    /// What it means for the message at hand that another could not be sent. What the queue refuses for
    /// good is rejected; a queue that could not be reached or is not granted is a retry by policy, with the
    /// reason on stderr: the queue's name may be the message's own, and no message may stop the others
    /// of its route.
    #[must_use]
    pub fn of_sending(error: SendError) -> Self {
        match error {
            SendError::Refused(why) => Self::Reject(why),
            SendError::Forbidden(_) | SendError::Unavailable(_) => {
                eprintln!("{error}");
                Self::retry()
            }
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        Self::of_sending(error)
    }
}

/// Sends one message, returns its id, and holds the instance until there is one.
///
/// An attempt that fails after it has sent is run again, and sends again.
///
/// # Errors
/// Why it was not sent; see [`SendError`].
pub fn send(queue: impl AsRef<str>, message: impl Borrow<Outgoing>) -> Result<String, SendError> {
    #[cfg(target_family = "wasm")]
    return wire::queues::send(queue.as_ref(), message.borrow()).map_err(SendError::from);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::send(queue.as_ref(), message.borrow());
}

/// The same for `async` callers: an instance that awaits it can handle other messages meanwhile.
///
/// # Errors
/// As with [`send`].
pub async fn send_async(queue: impl Into<String>, message: Outgoing) -> Result<String, SendError> {
    let queue = queue.into();
    #[cfg(target_family = "wasm")]
    return wire::queues_async::send(queue, message)
        .await
        .map_err(SendError::from);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::send(&queue, &message);
}

/// A message to be sent, put together.
impl Outgoing {
    /// A message of this body: no attributes, no delay, no group.
    pub fn new(body: impl Into<String>) -> Self {
        Self {
            body: body.into(),
            attributes: Vec::new(),
            delay: 0,
            group: None,
        }
    }

    /// A message whose body is this value, as JSON.
    ///
    /// # Errors
    /// [`Failure::Reject`], where the value cannot be written as JSON.
    pub fn json(value: &(impl Serialize + ?Sized)) -> Result<Self, Failure> {
        let body = String::from_utf8(written(value)?);
        Ok(Self::new(body.expect("JSON is UTF-8")))
    }

    /// It may be received only after so long, of any length; in whole milliseconds, the rest counted
    /// as one.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        let ms = delay.as_nanos().div_ceil(1_000_000);
        self.delay = u64::try_from(ms).unwrap_or(u64::MAX);
        self
    }

    /// It may be received only at this date; at once where that is past. What is sent is the delay
    /// from now, by the host's clock.
    #[must_use]
    pub fn at(self, date: SystemTime) -> Self {
        let delay = date.duration_since(SystemTime::now());
        self.delay(delay.unwrap_or_default())
    }

    /// The FIFO group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// An attribute that is text; at most ten of all kinds on SQS. One of the same name is replaced.
    #[must_use]
    pub fn attribute(self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.with(name.into(), "String", AttributeValue::Text(text.into()))
    }

    /// An attribute that is a number.
    #[must_use]
    pub fn number(self, name: impl Into<String>, number: impl fmt::Display) -> Self {
        let number = AttributeValue::Text(number.to_string());
        self.with(name.into(), "Number", number)
    }

    /// An attribute that is bytes.
    #[must_use]
    pub fn binary(self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.with(name.into(), "Binary", AttributeValue::Binary(bytes.into()))
    }

    fn with(mut self, name: String, data_type: &str, value: AttributeValue) -> Self {
        put(&mut self.attributes, name, data_type, value);
        self
    }
}

/// Sets an attribute, and takes the place of one of the same name.
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
        assert_eq!(of(SendError::Forbidden(why())), Failure::retry());
        assert_eq!(of(SendError::Refused(why())), Failure::reject("why"));
        assert_eq!(of(SendError::Unavailable(why())), Failure::retry());
    }
}
