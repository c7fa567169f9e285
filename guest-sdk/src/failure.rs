//! Why a message is not done, and the short ways of saying so. Knows nothing of how a handler is
//! exported.

use crate::bindings::imports::dispatcher::plugin::types as wire;
use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

/// Why a message is not done.
///
/// Any error turns into a retry by `?`, and is printed to stderr on the way, so that it can be
/// read in the plugin's log:
///
/// ```
/// use dispatcher_guest::{Failure, Message};
///
/// fn handle(message: Message) -> Result<(), Failure> {
///     let seconds: u64 = message.body.parse()?;
///     println!("{seconds} s");
///     Ok(())
/// }
/// # assert_eq!(handle(Message { body: "no number".into(), ..Message::default() }), Err(Failure::Retry(None)));
/// ```
///
/// `Failure` is deliberately not a [`std::error::Error`]: it is the answer to one. An error type of
/// your own that is none either may say what each of its cases means:
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
    /// Again after this long (whole milliseconds); without a duration, as the route's policy says.
    Retry(Option<Duration>),
    /// Never again, and why: the message goes to the dead-letter queue with this reason.
    Reject(String),
    /// Nothing was done for it, since something that it needs is busy: the host keeps its lease,
    /// has fewer attempts at once, and tries it again. Spends no receive, unlike a retry.
    Busy {
        /// How long to wait at least (whole milliseconds); without it, as the host's back-off says.
        after: Option<Duration>,
        /// What is busy, for the log.
        reason: String,
    },
    /// Nothing was done for it, and no message will fare better until somebody acts, and why. The
    /// host keeps its lease, receives nothing more for its route, and tries again ever more rarely.
    Closed(String),
}

impl Failure {
    /// Again, when the route's policy says.
    #[must_use]
    pub fn retry() -> Self {
        Self::Retry(None)
    }

    /// Again after `delay`, in whole milliseconds.
    #[must_use]
    pub fn retry_after(delay: Duration) -> Self {
        Self::Retry(Some(delay))
    }

    /// Never again, and why.
    #[must_use]
    pub fn reject(why: impl Into<String>) -> Self {
        Self::Reject(why.into())
    }

    /// Not begun, since something is busy, and what: again when the host's back-off says.
    #[must_use]
    pub fn busy(reason: impl Into<String>) -> Self {
        Self::Busy {
            after: None,
            reason: reason.into(),
        }
    }

    /// The same, and not before `delay` is over, in whole milliseconds.
    #[must_use]
    pub fn busy_for(delay: Duration, reason: impl Into<String>) -> Self {
        Self::Busy {
            after: Some(delay),
            reason: reason.into(),
        }
    }

    /// Not begun, and nothing would be until somebody acts, and why.
    #[must_use]
    pub fn closed(why: impl Into<String>) -> Self {
        Self::Closed(why.into())
    }
}

impl<E: Error> From<E> for Failure {
    /// Prints the error and its causes to stderr and asks for a retry by policy.
    fn from(error: E) -> Self {
        eprintln!("{}", with_causes(&error));
        Self::retry()
    }
}

/// The error and what it came from, in one line.
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

/// Says what an error means for the message, where the plain `?` (a retry) is not it. Works for
/// every error that can be displayed, strings included.
///
/// ```
/// use dispatcher_guest::{Failure, OrFailure};
///
/// let number: Result<u8, Failure> = "x".parse::<u8>().or_reject();
/// assert_eq!(number, Err(Failure::reject("invalid digit found in string")));
/// ```
pub trait OrFailure<T> {
    /// Prints the error to stderr and asks for a retry by policy.
    ///
    /// # Errors
    /// [`Failure::Retry`], where there was an error.
    fn or_retry(self) -> Result<T, Failure>;

    /// Prints the error to stderr and asks for a retry after `delay`.
    ///
    /// # Errors
    /// [`Failure::Retry`], where there was an error.
    fn or_retry_after(self, delay: Duration) -> Result<T, Failure>;

    /// Rejects the message; the error is the reason.
    ///
    /// # Errors
    /// [`Failure::Reject`], where there was an error.
    fn or_reject(self) -> Result<T, Failure>;
}

impl<T, E: Display> OrFailure<T> for Result<T, E> {
    fn or_retry(self) -> Result<T, Failure> {
        self.map_err(|error| {
            eprintln!("{error}");
            Failure::retry()
        })
    }

    fn or_retry_after(self, delay: Duration) -> Result<T, Failure> {
        self.map_err(|error| {
            eprintln!("{error}");
            Failure::retry_after(delay)
        })
    }

    fn or_reject(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::reject(error.to_string()))
    }
}

/// An error that no retry will mend: `?` on it rejects the message, with the error and its causes as
/// the reason.
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
/// It is not an error itself, as [`Failure`] is none. [`OrFailure::or_reject`] does the same for
/// whatever can be displayed, strings included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject<E>(
    /// What went wrong.
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
            Failure::Retry(delay) => Self::Retry(delay.map(whole_milliseconds)),
            Failure::Reject(why) => Self::Reject(why),
            Failure::Busy { after, reason } => Self::Busy(wire::Busy {
                after: after.map(whole_milliseconds),
                reason,
            }),
            Failure::Closed(why) => Self::Closed(why),
        }
    }
}

/// Saturates: a delay that does not fit 64 bits of milliseconds is for ever anyway.
fn whole_milliseconds(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_converted_to_milliseconds_and_saturates() {
        let wire = |delay| wire::Failure::from(Failure::retry_after(delay));
        assert_eq!(
            wire(Duration::from_micros(1_500_999)),
            wire::Failure::Retry(Some(1500))
        );
        assert_eq!(wire(Duration::MAX), wire::Failure::Retry(Some(u64::MAX)));
        assert_eq!(
            wire::Failure::from(Failure::retry()),
            wire::Failure::Retry(None)
        );
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
        assert_eq!(failed.or_retry(), Err(Failure::Retry(None)));
        let soon = Duration::from_millis(5);
        assert_eq!(failed.or_retry_after(soon), Err(Failure::Retry(Some(soon))));
    }
}
