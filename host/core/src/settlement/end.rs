//! How a delivery ends once the queue has accepted its outcome: what the log and the counters say of
//! it. Pure.

use crate::job::Ending;
use crate::message::{Outcome, Verdict};
use crate::telemetry::events::{EventKind, Reason, ReasonKind};
use std::time::Duration;

/// How a delivery ends, with what its event needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Duplicate,
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
    /// Given back without a completed attempt.
    Released {
        reason: Reason,
    },
}

impl End {
    /// The event that it is.
    pub(super) fn kind(&self) -> EventKind {
        match self {
            Self::Done => EventKind::Done,
            Self::Duplicate => EventKind::Duplicate,
            Self::Retried { .. } => EventKind::Retried,
            Self::DeadLettered { .. } => EventKind::DeadLettered,
            Self::DeadLetteredByPolicy { .. } => EventKind::DeadLetteredByPolicy,
            Self::Shed { .. } => EventKind::Shed,
            Self::Released { .. } => EventKind::Released,
        }
    }
}

/// Whether an attempt was made, and failed, or none was completed.
enum Failure {
    OfAttempt(Reason),
    WithoutAttempt(Reason),
}

/// How a delivery ends that settlement ends with `outcome`, at its attempt number `attempt`.
/// `last_receive`: what the queue's redrive policy permits, where no receive is left.
pub(super) fn end(
    ending: &Ending,
    outcome: &Outcome,
    attempt: u32,
    last_receive: Option<u32>,
) -> End {
    let failure = match ending {
        Ending::Verdict(Verdict::Done) => return End::Done,
        Ending::AlreadyDone => return End::Duplicate,
        Ending::Verdict(verdict) => of_verdict(verdict),
        Ending::Exhausted(why) => Failure::OfAttempt(Reason::new(ReasonKind::NoAnswer, why)),
        Ending::Unreadable(error) => {
            Failure::OfAttempt(Reason::new(error.kind(), &error.to_string()))
        }
        Ending::Shed => Failure::OfAttempt(Reason::new(ReasonKind::TooOld, "older than max-age")),
        Ending::Returned => without_attempt("no attempt was completed"),
        Ending::Behind(_) => {
            without_attempt("no attempt was started: others of its group are ahead of it")
        }
        Ending::Stopped(_) => Failure::WithoutAttempt(Reason::new(
            ReasonKind::Stopped,
            "the attempt was stopped with the process",
        )),
        // Its event is emitted when it is noticed, and nothing is settled.
        Ending::Lost => without_attempt("the lease was lost"),
    };
    let (made, reason) = match failure {
        Failure::OfAttempt(reason) => (true, reason),
        Failure::WithoutAttempt(reason) => (false, reason),
    };
    match outcome {
        Outcome::Delete => End::Shed {
            deleted: true,
            reason,
        },
        Outcome::DeadLetter(why) => {
            // What the dead letter says, so that one can be found by the other.
            let reason = Reason::new(reason.kind, why);
            match ending {
                Ending::Shed => End::Shed {
                    deleted: false,
                    reason,
                },
                _ => End::DeadLettered {
                    attempts: attempt,
                    reason,
                },
            }
        }
        Outcome::Release(delay) => match last_receive {
            Some(max_receive_count) => End::DeadLetteredByPolicy {
                max_receive_count,
                reason,
            },
            None if made => End::Retried {
                attempt,
                delay: *delay,
                reason,
            },
            None => End::Released { reason },
        },
    }
}

fn without_attempt(why: &str) -> Failure {
    Failure::WithoutAttempt(Reason::new(ReasonKind::NotAttempted, why))
}

fn of_verdict(verdict: &Verdict) -> Failure {
    match verdict {
        // Handled above.
        Verdict::Done => without_attempt(""),
        Verdict::Retry { why, .. } => Failure::OfAttempt(Reason::new(why.kind(), &why.to_string())),
        Verdict::Reject(why) => Failure::OfAttempt(Reason::new(ReasonKind::Rejected, why)),
        Verdict::Busy { why, .. } => without_attempt(&format!("busy: {why}")),
        Verdict::Closed(why) => without_attempt(&format!("closed: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Mishap;

    fn retry(why: Mishap) -> Ending {
        Ending::Verdict(Verdict::Retry { after: None, why })
    }

    /// Every ending, with every outcome that may follow it.
    fn all() -> Vec<(Ending, Outcome)> {
        let release = || Outcome::Release(Duration::from_secs(5));
        let dead = || Outcome::DeadLetter("why".into());
        let busy = Verdict::Busy {
            after: None,
            why: "full".into(),
        };
        vec![
            (Ending::Verdict(Verdict::Done), Outcome::Delete),
            (Ending::AlreadyDone, Outcome::Delete),
            (retry(Mishap::Asked), release()),
            (retry(Mishap::Trapped("t".into())), dead()),
            (Ending::Verdict(Verdict::Reject("no".into())), dead()),
            (Ending::Verdict(Verdict::Reject("no".into())), release()),
            (Ending::Verdict(busy), release()),
            (Ending::Verdict(Verdict::Closed("shut".into())), release()),
            (Ending::Exhausted("3 times".into()), dead()),
            (Ending::Exhausted("3 times".into()), release()),
            (Ending::Shed, Outcome::Delete),
            (Ending::Shed, dead()),
            (Ending::Shed, release()),
            (Ending::Returned, release()),
            (Ending::Behind(Duration::ZERO), release()),
            (Ending::Stopped(Duration::ZERO), release()),
        ]
    }

    /// Which event it is, and why.
    fn named(end: &End) -> (EventKind, Option<ReasonKind>) {
        let reason = match end {
            End::Done | End::Duplicate => None,
            End::Retried { reason, .. }
            | End::DeadLettered { reason, .. }
            | End::DeadLetteredByPolicy { reason, .. }
            | End::Shed { reason, .. }
            | End::Released { reason } => Some(reason.kind),
        };
        (end.kind(), reason)
    }

    #[test]
    fn finding_05_every_ending_has_its_event() {
        let ends: Vec<_> = all()
            .iter()
            .map(|(ending, outcome)| named(&end(ending, outcome, 2, None)))
            .collect();
        assert_eq!(
            ends,
            [
                (EventKind::Done, None),
                (EventKind::Duplicate, None),
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
                (EventKind::Released, Some(ReasonKind::NotAttempted)),
                (EventKind::Released, Some(ReasonKind::NotAttempted)),
                (EventKind::Released, Some(ReasonKind::Stopped)),
            ]
        );
    }

    #[test]
    fn finding_05_whatever_is_released_at_its_last_receive_is_left_to_the_redrive_policy() {
        for (ending, outcome) in all() {
            let ended = end(&ending, &outcome, 2, Some(3));
            let is_released = matches!(outcome, Outcome::Release(_));
            let is_by_policy = matches!(
                ended,
                End::DeadLetteredByPolicy {
                    max_receive_count: 3,
                    ..
                }
            );
            assert_eq!(is_by_policy, is_released, "{ending:?}");
        }
    }

    #[test]
    fn finding_05_a_dead_letter_and_its_line_have_the_same_reason() {
        let outcome = Outcome::DeadLetter("not handled in 2 attempts; in the last, x".into());
        let ended = end(&retry(Mishap::Host("x".into())), &outcome, 2, None);
        let End::DeadLettered {
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
