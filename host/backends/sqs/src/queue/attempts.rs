//! The ids of receives on FIFO queues. For five minutes, SQS answers a receive that has the id of
//! an earlier one with the same messages and receipts (SQS API reference, ReceiveMessage). So a
//! receive whose response was lost is repeated, and its groups are not blocked until their
//! visibility timeout ends. Pure: `now` is an argument; all decisions about ids are made here.

use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::ErrorKind;
use parking_lot::Mutex;
use std::time::Duration;

/// The time for which an id can be used again; the limit of SQS is five minutes.
const USABLE: Duration = Duration::from_secs(280);

/// The receives whose responses were lost.
#[derive(Debug, Default)]
pub struct LostReceives(Mutex<Vec<Attempt>>);

/// A receive, which may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The `ReceiveRequestAttemptId`.
    pub id: String,
    /// The maximum number of messages. It is the same in each repetition, since it is the same
    /// receive.
    pub max: usize,
    began: BootInstant,
    again: bool,
}

impl LostReceives {
    /// Returns the next receive: one whose response was lost, if SQS still knows it, or else a new
    /// one for `max` messages with the id `fresh`.
    pub fn next(&self, max: usize, fresh: impl FnOnce() -> String, now: BootInstant) -> Attempt {
        let mut lost = self.0.lock();
        lost.retain(|attempt| now.since(attempt.began) < USABLE);
        let first = (!lost.is_empty()).then(|| lost.remove(0));
        first.unwrap_or_else(|| Attempt {
            id: fresh(),
            max,
            began: now,
            again: false,
        })
    }

    /// Registers a failed receive for repetition, unless SQS refused it: its response may have been
    /// lost.
    pub fn failed(&self, attempt: Attempt, trouble: ErrorKind) {
        if matches!(trouble, ErrorKind::Transient | ErrorKind::Unreachable) {
            let mut lost = self.0.lock();
            lost.push(Attempt {
                again: true,
                ..attempt
            });
        }
    }
}

impl Attempt {
    /// Whether the response shows the current state of the queue. A repeated response does not show
    /// which other messages the queue has by now.
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
