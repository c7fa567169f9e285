//! Maps the end of a delivery, once the queue has accepted its outcome, to its log event and
//! counters. Pure.

use crate::job::JobEnding;
use crate::message::{Outcome, Verdict};
use crate::telemetry::events::{EventKind, Reason, ReasonKind};
use std::time::Duration;

/// How a delivery ends, with what its event needs.
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
    /// It was released at its last permitted receive.
    DeadLetteredByPolicy {
        max_receive_count: u32,
        reason: Reason,
    },
    /// Too old: deleted, or dead-lettered.
    Shed {
        deleted: bool,
        reason: Reason,
    },
    /// No filter matched: deleted, or dead-lettered.
    Filtered {
        deleted: bool,
        reason: Reason,
    },
    /// Released without a completed attempt.
    Released {
        reason: Reason,
    },
}

impl DeliveryEnd {
    /// The event that it is.
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
            Self::Released { .. } => EventKind::Released,
        }
    }
}

/// Whether an attempt was made, and failed, or none was completed.
enum AttemptFailure {
    OfAttempt(Reason),
    WithoutAttempt(Reason),
}

/// How a delivery ends that settlement ends with `outcome`, at its attempt number `attempt`.
/// `last_receive`: what the queue's redrive policy permits, where no receive is left.
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
        JobEnding::Returned => without_attempt("no attempt was completed"),
        JobEnding::Behind(_) => {
            without_attempt("no attempt was started: others of its group are ahead of it")
        }
        JobEnding::Stopped(_) => AttemptFailure::WithoutAttempt(Reason::new(
            ReasonKind::Stopped,
            "the attempt was stopped with the process",
        )),
        // Its event is emitted when it is noticed, and nothing is settled.
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
        Outcome::DeadLetter(why) => {
            // What the dead letter says, so that one can be found by the other.
            let reason = Reason::new(reason.kind, why);
            match ending {
                JobEnding::Shed => DeliveryEnd::Shed {
                    deleted: false,
                    reason,
                },
                JobEnding::Filtered => DeliveryEnd::Filtered {
                    deleted: false,
                    reason,
                },
                _ => DeliveryEnd::DeadLettered {
                    attempts: attempt,
                    reason,
                },
            }
        }
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
            None => DeliveryEnd::Released { reason },
        },
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

    /// Every ending, with every outcome that may follow it.
    fn all() -> Vec<(JobEnding, Outcome)> {
        let release = || Outcome::Release(Duration::from_secs(5));
        let dead = || Outcome::DeadLetter("why".into());
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
            (JobEnding::Stopped(Duration::ZERO), release()),
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
                (EventKind::Released, Some(ReasonKind::Stopped)),
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
        let outcome = Outcome::DeadLetter("not handled in 2 attempts; in the last, x".into());
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
