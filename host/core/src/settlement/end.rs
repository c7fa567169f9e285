//! Maps the end of a delivery, once the queue has accepted its outcome, to its log event and
//! counters. Pure.

use crate::job::JobEnding;
use crate::message::{Outcome, Verdict};
use crate::telemetry::events::{EventKind, Reason, ReasonKind};
use std::time::Duration;

/// The end of a delivery, with the details for its event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeliveryEnd {
    Done,
    Duplicate,
    Cancelled,
    Retried {
        attempt: u32,
        delay: Duration,
        reason: Reason,
    },
    DeadLettered {
        attempts: u32,
        reason: Reason,
    },
    /// The message was released at its last permitted receive.
    DeadLetteredByPolicy {
        max_receive_count: u32,
        reason: Reason,
    },
    /// The message was too old, and was deleted or dead-lettered.
    Shed {
        deleted: bool,
        reason: Reason,
    },
    /// No filter matched the message, and it was deleted or dead-lettered.
    Filtered {
        deleted: bool,
        reason: Reason,
    },
    /// The message was released after a stop cut its attempt off.
    Abandoned {
        attempt: u32,
        delay: Duration,
        may_have_been_handled: bool,
        reason: Reason,
    },
    /// The message was released without an attempt.
    Released {
        reason: Reason,
    },
}

impl DeliveryEnd {
    /// Returns the kind of its event.
    pub(super) fn kind(&self) -> EventKind {
        match self {
            Self::Done => EventKind::Done,
            Self::Duplicate => EventKind::Duplicate,
            Self::Cancelled => EventKind::Cancelled,
            Self::Retried { .. } => EventKind::Retried,
            Self::DeadLettered { .. } => EventKind::DeadLettered,
            Self::DeadLetteredByPolicy { .. } => EventKind::DeadLetteredByPolicy,
            Self::Shed { .. } => EventKind::Shed,
            Self::Filtered { .. } => EventKind::Filtered,
            Self::Abandoned { .. } => EventKind::Abandoned,
            Self::Released { .. } => EventKind::Released,
        }
    }
}

/// The failure of an attempt, or the reason why none was completed.
enum AttemptFailure {
    OfAttempt(Reason),
    WithoutAttempt(Reason),
}

/// Returns how a delivery ends that settlement ends with `outcome`, at its attempt number
/// `attempt`. `last_receive` is the number of receives that the queue's redrive policy permits, if
/// none is left.
pub(super) fn end(
    ending: &JobEnding,
    outcome: &Outcome,
    attempt: u32,
    last_receive: Option<u32>,
) -> DeliveryEnd {
    let failure = match ending {
        JobEnding::Verdict(Verdict::Done) => return DeliveryEnd::Done,
        JobEnding::AlreadyDone => return DeliveryEnd::Duplicate,
        JobEnding::Cancelled => return DeliveryEnd::Cancelled,
        JobEnding::Verdict(verdict) => of_verdict(verdict),
        JobEnding::Exhausted(why) => {
            AttemptFailure::OfAttempt(Reason::new(ReasonKind::NoAnswer, why))
        }
        JobEnding::Unreadable(error) => {
            AttemptFailure::OfAttempt(Reason::new(error.kind(), &error.to_string()))
        }
        JobEnding::Shed => {
            AttemptFailure::OfAttempt(Reason::new(ReasonKind::TooOld, "older than max-age"))
        }
        JobEnding::Filtered => AttemptFailure::WithoutAttempt(Reason::new(
            ReasonKind::Filtered,
            "no filter of the route matches",
        )),
        JobEnding::Returned => without_attempt("no attempt was started"),
        JobEnding::Behind(_) => {
            without_attempt("no attempt was started: others of its group are ahead of it")
        }
        JobEnding::Deferred(_) => {
            without_attempt("no attempt was started: too many messages wait for limits")
        }
        JobEnding::Interrupted => AttemptFailure::WithoutAttempt(Reason::new(
            ReasonKind::Interrupted,
            "the handler was stopped before its end; what it did before is not undone",
        )),
        JobEnding::Abandoned(_) => AttemptFailure::WithoutAttempt(Reason::new(
            ReasonKind::Stopped,
            "its answer was not awaited; the message may have been handled",
        )),
        // The event is emitted when the loss is noticed, and nothing is settled.
        JobEnding::Lost => without_attempt("the lease was lost"),
    };
    let (made, reason) = match failure {
        AttemptFailure::OfAttempt(reason) => (true, reason),
        AttemptFailure::WithoutAttempt(reason) => (false, reason),
    };
    match outcome {
        Outcome::Delete if *ending == JobEnding::Filtered => DeliveryEnd::Filtered {
            deleted: true,
            reason,
        },
        Outcome::Delete => DeliveryEnd::Shed {
            deleted: true,
            reason,
        },
        // The event has the reason of the dead letter, so that one can be found from the other.
        Outcome::DeadLetter(why) => dead_letter(ending, attempt, Reason::new(reason.kind, why)),
        Outcome::Release(delay) => match last_receive {
            Some(max_receive_count) => DeliveryEnd::DeadLetteredByPolicy {
                max_receive_count,
                reason,
            },
            None if made => DeliveryEnd::Retried {
                attempt,
                delay: *delay,
                reason,
            },
            None if reason.kind.is_of_a_stop() => DeliveryEnd::Abandoned {
                attempt,
                delay: *delay,
                may_have_been_handled: reason.kind == ReasonKind::Stopped,
                reason,
            },
            None => DeliveryEnd::Released { reason },
        },
    }
}

fn dead_letter(ending: &JobEnding, attempts: u32, reason: Reason) -> DeliveryEnd {
    let deleted = false;
    match ending {
        JobEnding::Shed => DeliveryEnd::Shed { deleted, reason },
        JobEnding::Filtered => DeliveryEnd::Filtered { deleted, reason },
        _ => DeliveryEnd::DeadLettered { attempts, reason },
    }
}

fn without_attempt(why: &str) -> AttemptFailure {
    AttemptFailure::WithoutAttempt(Reason::new(ReasonKind::NotAttempted, why))
}

fn of_verdict(verdict: &Verdict) -> AttemptFailure {
    match verdict {
        // Handled above.
        Verdict::Done => without_attempt(""),
        Verdict::Retry { why, .. } => {
            AttemptFailure::OfAttempt(Reason::new(why.kind(), &why.to_string()))
        }
        Verdict::Reject(why) => AttemptFailure::OfAttempt(Reason::new(ReasonKind::Rejected, why)),
        Verdict::Busy { why, .. } => without_attempt(&format!("busy: {why}")),
        Verdict::Closed(why) => without_attempt(&format!("closed: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FailureReason;

    fn retry(why: FailureReason) -> JobEnding {
        JobEnding::Verdict(Verdict::Retry { after: None, why })
    }

    fn release() -> Outcome {
        Outcome::Release(Duration::from_secs(5))
    }

    fn dead() -> Outcome {
        Outcome::DeadLetter("why".into())
    }

    /// Every ending, with every outcome that may follow it.
    fn all() -> Vec<(JobEnding, Outcome)> {
        let busy = Verdict::Busy {
            after: None,
            why: "full".into(),
        };
        vec![
            (JobEnding::Verdict(Verdict::Done), Outcome::Delete),
            (JobEnding::AlreadyDone, Outcome::Delete),
            (JobEnding::Cancelled, Outcome::Delete),
            (retry(FailureReason::Requested), release()),
            (retry(FailureReason::Trapped("t".into())), dead()),
            (JobEnding::Verdict(Verdict::Reject("no".into())), dead()),
            (JobEnding::Verdict(Verdict::Reject("no".into())), release()),
            (JobEnding::Verdict(busy), release()),
            (
                JobEnding::Verdict(Verdict::Closed("shut".into())),
                release(),
            ),
            (JobEnding::Exhausted("3 times".into()), dead()),
            (JobEnding::Exhausted("3 times".into()), release()),
            (JobEnding::Shed, Outcome::Delete),
            (JobEnding::Shed, dead()),
            (JobEnding::Shed, release()),
            (JobEnding::Filtered, Outcome::Delete),
            (JobEnding::Filtered, dead()),
            (JobEnding::Filtered, release()),
            (JobEnding::Returned, release()),
            (JobEnding::Behind(Duration::ZERO), release()),
            (JobEnding::Deferred(Duration::ZERO), release()),
            (JobEnding::Interrupted, release()),
            (JobEnding::Abandoned(Duration::ZERO), release()),
        ]
    }

    /// Which event it is, and why.
    fn named(end: &DeliveryEnd) -> (EventKind, Option<ReasonKind>) {
        let reason = match end {
            DeliveryEnd::Done | DeliveryEnd::Duplicate | DeliveryEnd::Cancelled => None,
            DeliveryEnd::Retried { reason, .. }
            | DeliveryEnd::DeadLettered { reason, .. }
            | DeliveryEnd::DeadLetteredByPolicy { reason, .. }
            | DeliveryEnd::Shed { reason, .. }
            | DeliveryEnd::Filtered { reason, .. }
            | DeliveryEnd::Abandoned { reason, .. }
            | DeliveryEnd::Released { reason } => Some(reason.kind),
        };
        (end.kind(), reason)
    }

    #[test]
    fn finding_05_every_outcome_has_its_event() {
        let ends: Vec<_> = all()
            .iter()
            .map(|(ending, outcome)| named(&end(ending, outcome, 2, None)))
            .collect();
        assert_eq!(
            ends,
            [
                (EventKind::Done, None),
                (EventKind::Duplicate, None),
                (EventKind::Cancelled, None),
                (EventKind::Retried, Some(ReasonKind::RetryRequested)),
                (EventKind::DeadLettered, Some(ReasonKind::Trap)),
                (EventKind::DeadLettered, Some(ReasonKind::Rejected)),
                (EventKind::Retried, Some(ReasonKind::Rejected)),
                (EventKind::Released, Some(ReasonKind::NotAttempted)),
                (EventKind::Released, Some(ReasonKind::NotAttempted)),
                (EventKind::DeadLettered, Some(ReasonKind::NoAnswer)),
                (EventKind::Retried, Some(ReasonKind::NoAnswer)),
                (EventKind::Shed, Some(ReasonKind::TooOld)),
                (EventKind::Shed, Some(ReasonKind::TooOld)),
                (EventKind::Retried, Some(ReasonKind::TooOld)),
                (EventKind::Filtered, Some(ReasonKind::Filtered)),
                (EventKind::Filtered, Some(ReasonKind::Filtered)),
                (EventKind::Released, Some(ReasonKind::Filtered)),
                (EventKind::Released, Some(ReasonKind::NotAttempted)),
                (EventKind::Released, Some(ReasonKind::NotAttempted)),
                (EventKind::Released, Some(ReasonKind::NotAttempted)),
                (EventKind::Abandoned, Some(ReasonKind::Interrupted)),
                (EventKind::Abandoned, Some(ReasonKind::Stopped)),
            ]
        );
    }

    #[test]
    fn finding_05_release_at_the_last_receive_is_left_to_the_redrive_policy() {
        for (ending, outcome) in all() {
            let ended = end(&ending, &outcome, 2, Some(3));
            let is_released = matches!(outcome, Outcome::Release(_));
            let is_by_policy = matches!(
                ended,
                DeliveryEnd::DeadLetteredByPolicy {
                    max_receive_count: 3,
                    ..
                }
            );
            assert_eq!(is_by_policy, is_released, "{ending:?}");
        }
    }

    #[test]
    fn finding_05_dead_letter_and_its_log_line_have_the_same_reason() {
        let outcome = Outcome::DeadLetter("x; not handled in 2 attempts".into());
        let ended = end(&retry(FailureReason::Host("x".into())), &outcome, 2, None);
        let DeliveryEnd::DeadLettered {
            attempts: 2,
            reason,
        } = ended
        else {
            panic!("{ended:?}");
        };
        let Outcome::DeadLetter(why) = outcome else {
            unreachable!("made above");
        };
        assert_eq!((reason.kind, reason.text()), (ReasonKind::HostError, &*why));
    }
}
