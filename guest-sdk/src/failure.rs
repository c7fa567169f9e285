//! The failures that a handler can return, and shorthands for them.

use crate::bindings::imports::dispatcher::plugin::types as wire;
use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

/// The reason why a message is not done, and what happens to it next.
///
/// `?` converts any error to a retry, with the error and its causes as the reason. The host logs
/// the reason and, after the last attempt, adds it to the dead letter:
///
/// ```
/// use dispatcher_guest::{Failure, Message};
///
/// fn handle(message: Message) -> Result<(), Failure> {
///     let seconds: u64 = message.body.parse()?;
///     println!("{seconds} s");
///     Ok(())
/// }
/// # let why = "invalid digit found in string";
/// # assert_eq!(handle(Message { body: "x".into(), ..Message::default() }), Err(Failure::retry_because(why)));
/// ```
///
/// `Failure` does not implement [`std::error::Error`]. If your error type does not implement it
/// either, it can define what each of its cases means:
///
/// ```
/// use dispatcher_guest::Failure;
/// use std::time::Duration;
///
/// enum Trouble { OutOfStock, NoSuchArticle(u32) }
///
/// impl From<Trouble> for Failure {
///     fn from(trouble: Trouble) -> Self {
///         match trouble {
///             Trouble::OutOfStock => Failure::retry_after(Duration::from_secs(3600)),
///             Trouble::NoSuchArticle(number) => Failure::reject(format!("no article {number}")),
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The message is tried again later.
    Retry(Retry),
    /// The message is not tried again. It goes to the dead-letter queue with this reason.
    Reject(String),
    /// Nothing was done for the message, because something that it needs is busy. The host keeps
    /// the lease, runs fewer attempts at once and tries again. Unlike a retry, this costs no
    /// receive.
    Busy {
        /// The minimum delay, in whole milliseconds. Without it, the host's back-off decides.
        after: Option<Duration>,
        /// The reason for the log, which says what is busy.
        reason: String,
    },
    /// Nothing was done for the message, and no message can succeed until someone acts. The text
    /// says why. The host keeps the lease, receives nothing more for the route, and tries again
    /// less and less often.
    Closed(String),
}

/// A request to try the message again.
///
/// ```
/// use dispatcher_guest::{Failure, Message, Retry};
/// use std::time::Duration;
///
/// fn handle(message: Message) -> Result<(), Failure> {
///     if message.attempt == 1 {
///         return Err(Retry::after(Duration::from_secs(60)).because("not approved yet").into());
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Retry {
    /// The delay, in whole milliseconds. Without it, the route's policy decides.
    pub after: Option<Duration>,
    /// The reason, for the log and the dead letter.
    pub reason: Option<String>,
}

impl Retry {
    /// Creates a retry whose delay the route's policy decides.
    pub fn by_policy() -> Self {
        Self::default()
    }

    /// Creates a retry after this delay.
    pub fn after(delay: Duration) -> Self {
        Self {
            after: Some(delay),
            reason: None,
        }
    }

    /// Sets the reason.
    pub fn because(self, reason: impl Into<String>) -> Self {
        Self {
            reason: Some(reason.into()),
            ..self
        }
    }
}

impl From<Retry> for Failure {
    fn from(retry: Retry) -> Self {
        Self::Retry(retry)
    }
}

impl Failure {
    /// Creates a retry whose delay the route's policy decides.
    #[must_use]
    pub fn retry() -> Self {
        Self::Retry(Retry::by_policy())
    }

    /// Creates a retry with a reason. The route's policy decides the delay.
    #[must_use]
    pub fn retry_because(reason: impl Into<String>) -> Self {
        Self::Retry(Retry::by_policy().because(reason))
    }

    /// Creates a retry after `delay`, in whole milliseconds.
    #[must_use]
    pub fn retry_after(delay: Duration) -> Self {
        Self::Retry(Retry::after(delay))
    }

    /// Creates a rejection: the message is not tried again and goes to the dead-letter queue with
    /// this reason.
    #[must_use]
    pub fn reject(why: impl Into<String>) -> Self {
        Self::Reject(why.into())
    }

    /// Creates a failure that says that something is busy and nothing was done for the message.
    /// `reason` says what is busy. The host's back-off decides the delay.
    #[must_use]
    pub fn busy(reason: impl Into<String>) -> Self {
        Self::Busy {
            after: None,
            reason: reason.into(),
        }
    }

    /// Creates a failure like [`busy`](Self::busy), with a minimum delay in whole milliseconds.
    #[must_use]
    pub fn busy_for(delay: Duration, reason: impl Into<String>) -> Self {
        Self::Busy {
            after: Some(delay),
            reason: reason.into(),
        }
    }

    /// Creates a failure that says that nothing was done for the message and no message can succeed
    /// until someone acts. `why` is the reason.
    #[must_use]
    pub fn closed(why: impl Into<String>) -> Self {
        Self::Closed(why.into())
    }
}

impl<E: Error> From<E> for Failure {
    /// Converts an error to a retry by policy, with the error and its causes as the reason.
    fn from(error: E) -> Self {
        Self::retry_because(with_causes(&error))
    }
}

/// Returns the error and its causes in one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}

/// Converts an error to a failure, if the retry of a plain `?` is not the right one. It works for
/// every error that can be displayed, including strings.
///
/// ```
/// use dispatcher_guest::{Failure, OrFailure};
///
/// let number: Result<u8, Failure> = "x".parse::<u8>().or_reject();
/// assert_eq!(number, Err(Failure::reject("invalid digit found in string")));
/// ```
pub trait OrFailure<T> {
    /// Converts an error to a retry by policy, with the error as the reason.
    ///
    /// # Errors
    /// Returns [`Failure::Retry`] if the result is an error.
    fn or_retry(self) -> Result<T, Failure>;

    /// Converts an error to a retry after `delay`, with the error as the reason.
    ///
    /// # Errors
    /// Returns [`Failure::Retry`] if the result is an error.
    fn or_retry_after(self, delay: Duration) -> Result<T, Failure>;

    /// Converts an error to a rejection, with the error as the reason.
    ///
    /// # Errors
    /// Returns [`Failure::Reject`] if the result is an error.
    fn or_reject(self) -> Result<T, Failure>;
}

impl<T, E: Display> OrFailure<T> for Result<T, E> {
    fn or_retry(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::retry_because(error.to_string()))
    }

    fn or_retry_after(self, delay: Duration) -> Result<T, Failure> {
        self.map_err(|error| Retry::after(delay).because(error.to_string()).into())
    }

    fn or_reject(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::reject(error.to_string()))
    }
}

/// An error that a retry cannot fix. `?` on it rejects the message, with the error and its causes
/// as the reason.
///
/// ```
/// use dispatcher_guest::{Failure, Message, Reject};
///
/// fn handle(message: Message) -> Result<(), Failure> {
///     let count: u32 = message.body.parse().map_err(Reject)?;
///     std::fs::write("count", count.to_string())?; // an error here means a retry
///     Ok(())
/// }
/// # let answer = handle(Message { body: "x".into(), ..Message::default() });
/// # assert_eq!(answer, Err(Failure::reject("invalid digit found in string")));
/// ```
///
/// `Reject` does not implement [`std::error::Error`]. [`OrFailure::or_reject`] rejects a message
/// for any error that can be displayed, including strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject<E>(
    /// The error.
    pub E,
);

impl<E: Error> From<Reject<E>> for Failure {
    fn from(Reject(error): Reject<E>) -> Self {
        Self::Reject(with_causes(&error))
    }
}

impl From<Failure> for wire::Failure {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Retry(retry) => Self::Retry(wire::Retry {
                after: retry.after.map(whole_milliseconds),
                reason: retry.reason,
            }),
            Failure::Reject(why) => Self::Reject(why),
            Failure::Busy { after, reason } => Self::Busy(wire::Busy {
                after: after.map(whole_milliseconds),
                reason,
            }),
            Failure::Closed(why) => Self::Closed(why),
        }
    }
}

/// Returns the delay in whole milliseconds, or `u64::MAX` if it is longer than that.
fn whole_milliseconds(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_converted_to_milliseconds_and_saturates() {
        let wire = |delay| wire::Failure::from(Failure::retry_after(delay));
        let after = |ms| {
            wire::Failure::Retry(wire::Retry {
                after: ms,
                reason: None,
            })
        };
        assert_eq!(wire(Duration::from_micros(1_500_999)), after(Some(1500)));
        assert_eq!(wire(Duration::MAX), after(Some(u64::MAX)));
        assert_eq!(wire::Failure::from(Failure::retry()), after(None));
    }

    #[test]
    fn error_becomes_a_retry_with_its_causes_as_the_reason() {
        let error = std::io::Error::other("x".parse::<u8>().unwrap_err());
        let why = "invalid digit found in string";
        assert_eq!(Failure::from(error), Failure::retry_because(why));
    }

    #[test]
    fn busy_and_closed_keep_their_reason() {
        let busy = wire::Failure::from(Failure::busy_for(Duration::from_millis(40), "the printer"));
        let expected = wire::Busy {
            after: Some(40),
            reason: "the printer".into(),
        };
        assert_eq!(busy, wire::Failure::Busy(expected));
        let busy = wire::Failure::from(Failure::busy("the printer"));
        assert!(matches!(busy, wire::Failure::Busy(busy) if busy.after.is_none()));
        let closed = wire::Failure::from(Failure::closed("no printer"));
        assert_eq!(closed, wire::Failure::Closed("no printer".into()));
    }

    #[test]
    fn a_string_error_can_reject_or_retry() {
        let failed: Result<(), &str> = Err("no stock");
        assert_eq!(failed.or_reject(), Err(Failure::reject("no stock")));
        let why = "no stock";
        assert_eq!(failed.or_retry(), Err(Failure::retry_because(why)));
        let soon = Duration::from_millis(5);
        let later = Retry::after(soon).because(why);
        assert_eq!(failed.or_retry_after(soon), Err(later.into()));
    }
}
