//! Why a message is not done, in version 0.2: a retry has a reason.

use super::bindings::imports::dispatcher::plugin::types as wire;
use crate::failure::with_causes;
use crate::{http, lambda, queues, store};
use std::error::Error;
use std::time::Duration;

/// Why a message is not done. Any `std::error::Error` becomes a retry by policy with the error as its
/// reason, by `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Again later.
    Retry(Retry),
    /// Never again, and why: the message goes to the dead-letter queue with this reason.
    Reject(String),
    /// Nothing was done for it, since something is busy: the host keeps its lease and tries it again.
    Busy {
        /// How long to wait at least (whole milliseconds); without it, as the host's back-off says.
        after: Option<Duration>,
        /// What is busy, for the log.
        reason: String,
    },
    /// Nothing was done for it, and no message will fare better until somebody acts, and why.
    Closed(String),
}

/// A wish to be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Retry {
    /// How long to wait (whole milliseconds); without it, as the route's policy says.
    pub after: Option<Duration>,
    /// Why, for the log and the dead letter.
    pub reason: Option<String>,
}

impl Retry {
    /// Again when the route's policy says.
    pub fn by_policy() -> Self {
        Self::default()
    }

    /// Again after this long.
    pub fn after(delay: Duration) -> Self {
        Self {
            after: Some(delay),
            reason: None,
        }
    }

    /// And why.
    pub fn because(self, reason: impl Into<String>) -> Self {
        Self {
            reason: Some(reason.into()),
            ..self
        }
    }
}

impl Failure {
    /// Never again, and why.
    #[must_use]
    pub fn reject(why: impl Into<String>) -> Self {
        Self::Reject(why.into())
    }
}

impl From<Retry> for Failure {
    fn from(retry: Retry) -> Self {
        Self::Retry(retry)
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Retry::by_policy().because(with_causes(&error)).into()
    }
}

impl From<crate::Failure> for Failure {
    fn from(failure: crate::Failure) -> Self {
        match failure {
            crate::Failure::Retry(after) => Self::Retry(Retry {
                after,
                reason: None,
            }),
            crate::Failure::Reject(why) => Self::Reject(why),
            crate::Failure::Busy { after, reason } => Self::Busy { after, reason },
            crate::Failure::Closed(why) => Self::Closed(why),
        }
    }
}

/// What is granted fails as in 0.1; its errors say what each of them means for the message.
macro_rules! as_before {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                crate::Failure::from(error).into()
            }
        })+
    };
}
as_before!(queues::SendError, lambda::InvokeError, store::Error);

/// As in 0.1, with the error as the reason.
impl From<http::Error> for Failure {
    fn from(error: http::Error) -> Self {
        let why = error.to_string();
        match error {
            http::Error::Invalid(_) => Self::Reject(why),
            http::Error::Busy(_) => Self::Busy {
                after: None,
                reason: why,
            },
            _ => Retry::by_policy().because(why).into(),
        }
    }
}

/// One failed message of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The id of a message of the batch.
    pub id: String,
    /// Why it is not done.
    pub failure: Failure,
}

impl From<Failure> for wire::Failure {
    fn from(failure: Failure) -> Self {
        let ms = |after: Option<Duration>| {
            after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
        };
        match failure {
            Failure::Retry(retry) => Self::Retry(wire::Retry {
                after: ms(retry.after),
                reason: retry.reason,
            }),
            Failure::Reject(why) => Self::Reject(why),
            Failure::Busy { after, reason } => Self::Busy(wire::Busy {
                after: ms(after),
                reason,
            }),
            Failure::Closed(why) => Self::Closed(why),
        }
    }
}

impl From<Failed> for wire::Failed {
    fn from(failed: Failed) -> Self {
        Self {
            id: failed.id,
            failure: failed.failure.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_becomes_a_retry_with_its_causes_as_the_reason() {
        let error = std::io::Error::other("x".parse::<u8>().unwrap_err());
        let Failure::Retry(retry) = Failure::from(error) else {
            panic!("it is a retry");
        };
        assert_eq!(retry.after, None);
        assert!(
            retry
                .reason
                .is_some_and(|why| why.contains("invalid digit"))
        );
        let refused = queues::SendError::Refused("too long".into());
        assert_eq!(Failure::from(refused), Failure::reject("too long"));
    }

    #[test]
    fn failures_are_those_of_the_contract_in_whole_milliseconds() {
        let delay = Duration::from_micros(2_900);
        let retry = wire::Failure::from(Failure::from(Retry::after(delay).because("soon")));
        let wanted = wire::Retry {
            after: Some(2),
            reason: Some("soon".into()),
        };
        assert_eq!(retry, wire::Failure::Retry(wanted));
    }
}
