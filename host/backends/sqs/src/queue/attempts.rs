//! The ids of receives on FIFO queues. SQS answers a receive that names the id of an earlier one
//! with the same messages and receipts for five minutes (SQS API reference, ReceiveMessage), so a
//! receive with a lost answer is repeated and its groups are not blocked until their visibility
//! timeout ends. Pure: `now` is an argument; all decisions about ids are made here.

use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::ErrorKind;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long an id can be used again; SQS says five minutes.
const USABLE: Duration = Duration::from_secs(280);

/// Ids whose answers were lost.
#[derive(Debug, Default)]
pub struct LostReceives(Mutex<Vec<Attempt>>);

/// One receive, perhaps made several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// As `ReceiveRequestAttemptId` wants it.
    pub id: String,
    /// How many messages it asks for: always as many as at first, since it is the same receive.
    pub max: usize,
    began: BootInstant,
    again: bool,
}

impl LostReceives {
    /// The next receive: one whose answer was lost, if there is one that SQS still knows, or else
    /// one for `max` messages with the id `fresh`.
    pub fn next(&self, max: usize, fresh: impl FnOnce() -> String, now: BootInstant) -> Attempt {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lost.retain(|attempt| now.since(attempt.began) < USABLE);
        let first = (!lost.is_empty()).then(|| lost.remove(0));
        first.unwrap_or_else(|| Attempt {
            id: fresh(),
            max,
            began: now,
            again: false,
        })
    }

    /// The receive failed: its answer may have been lost, unless SQS has said no to it.
    pub fn failed(&self, attempt: Attempt, trouble: ErrorKind) {
        if matches!(trouble, ErrorKind::Transient | ErrorKind::Unreachable) {
            let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lost.push(Attempt {
                again: true,
                ..attempt
            });
        }
    }
}

impl Attempt {
    /// Whether its answer tells of the present: what is told again does not say what else the
    /// queue holds by now.
    pub fn is_first_try(&self) -> bool {
        !self.again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn lost_receive_attempt_id_is_reused_while_sqs_remembers_it() {
        let lost = LostReceives::default();
        let first = lost.next(10, || "a".into(), at(0));
        assert_eq!(lost.next(10, || "b".into(), at(1)).id, "b");
        lost.failed(first, ErrorKind::Unreachable);
        assert_eq!(lost.next(10, || "c".into(), at(2)).id, "a");
        let late = lost.next(10, || "d".into(), at(3));
        lost.failed(late, ErrorKind::Transient);
        assert_eq!(lost.next(10, || "e".into(), at(290)).id, "e");
    }

    #[test]
    fn repeated_receive_is_identical_and_is_not_counted_as_new() {
        let lost = LostReceives::default();
        let first = lost.next(10, || "a".into(), at(0));
        assert!(first.is_first_try());
        lost.failed(first, ErrorKind::Unreachable);
        let again = lost.next(2, || "b".into(), at(1));
        assert_eq!(
            (&*again.id, again.max, again.is_first_try()),
            ("a", 10, false)
        );
    }

    #[test]
    fn refused_receive_is_not_repeated() {
        let lost = LostReceives::default();
        let first = lost.next(10, || "a".into(), at(0));
        lost.failed(first, ErrorKind::AccessDenied);
        assert_eq!(lost.next(10, || "b".into(), at(1)).id, "b");
    }
}
