//! Converts a verdict into an outcome of the message. Pure: the caller supplies the random number.

use crate::backoff;
use crate::job::JobEnding;
use crate::message::{Outcome, Verdict};
use crate::queue::VISIBILITY_CEILING;
use std::time::Duration;

/// The policy on messages that are too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShedPolicy {
    /// The age above which a message is too old, counted from when it was sent: 1 s to a year.
    pub max_age: Duration,
    /// The action on these messages.
    pub shed: ShedAction,
}

/// The action on a message that is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShedAction {
    /// The message is dead-lettered.
    #[default]
    DeadLetter,
    /// The message is deleted.
    Drop,
}

/// The action on a message that no filter of its route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnmatchedAction {
    /// The message is deleted, as by Lambda's event source mappings.
    #[default]
    Delete,
    /// The message is dead-lettered.
    DeadLetter,
}

/// The policy of a route on one of its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The pause after the first attempt; it doubles with each further attempt.
    pub first: Duration,
    /// The maximum pause.
    pub most: Duration,
    /// The number of attempts after which a message is dead-lettered; `None` leaves that to the
    /// backend.
    pub attempts: Option<u32>,
    /// Whether the queue has a target for dead letters.
    pub dead_letters: bool,
    /// Whether the queue keeps groups in order, and the route does not take them as tenants.
    pub ordered_groups: bool,
    /// The number of receives that the redrive policy allows, on a queue that keeps its groups in
    /// order and has such a policy, whose target takes dead letters from here. It then limits the
    /// attempts, of which several may be in one delivery. The message is dead-lettered here before
    /// the queue would do it, because the queue would also dead-letter the messages that wait
    /// behind it in its group.
    pub receives: Option<u32>,
    /// The policy on messages that are too old, if there is one.
    pub shedding: Option<ShedPolicy>,
    /// The action on messages that no filter matches.
    pub unmatched: UnmatchedAction,
}

impl Policy {
    /// Returns the number of attempts that a message has, if they are limited here.
    pub fn limit(&self) -> Option<u32> {
        let own = if self.dead_letters {
            self.attempts
        } else {
            None
        };
        own.into_iter().chain(self.receives).min()
    }

    /// Whether a message can be dead-lettered from here.
    fn takes_dead_letters(&self) -> bool {
        self.dead_letters || self.receives.is_some()
    }

    /// Returns the maximum number of attempts if this many reach it.
    fn exhausted(&self, made: u32) -> Option<u32> {
        self.limit().filter(|&attempts| made >= attempts)
    }

    /// Returns the outcome of a message that is too old; `None` if it has nowhere to go.
    fn shed(&self) -> Option<Outcome> {
        let ShedPolicy { max_age, shed } = self.shedding?;
        match shed {
            ShedAction::Drop => Some(Outcome::Delete),
            ShedAction::DeadLetter => self.dead_letters.then(|| {
                let age = humantime::format_duration(max_age);
                Outcome::DeadLetter(format!("older than {age}"))
            }),
        }
    }

    /// Returns the outcome of a message that no filter matches; `None` if it has nowhere to go.
    fn filtered(&self) -> Option<Outcome> {
        match self.unmatched {
            UnmatchedAction::Delete => Some(Outcome::Delete),
            UnmatchedAction::DeadLetter => self
                .dead_letters
                .then(|| Outcome::DeadLetter("no filter of the route matches".to_owned())),
        }
    }

    /// Whether a message that is released at its attempt number `attempt` would get no further
    /// attempt in its next delivery, so that it should be finished rather than released.
    pub(crate) fn next_receive_is_fatal(&self, attempt: u32) -> bool {
        self.exhausted(attempt).is_some()
    }

    /// Returns the ending of a message that arrives although it has had all its attempts: they
    /// killed the process or outlived their leases, another program received it, or more attempts
    /// were allowed then. Only its receive count is known.
    pub fn on_arrival(&self, attempt: u32) -> Option<JobEnding> {
        let made = attempt.saturating_sub(1);
        let attempts = self.exhausted(made)?;
        let why =
            format!("received {made} times before and not done; {attempts} attempts are allowed");
        Some(JobEnding::Exhausted(why))
    }
}

/// Returns the outcome of a message at its attempt number `attempt`; `None` if its lease is lost.
pub fn decide(ending: &JobEnding, attempt: u32, policy: &Policy, random: u64) -> Option<Outcome> {
    let pause = backoff::full_jitter(policy.first, policy.most, attempt, random);
    match ending {
        JobEnding::Lost => None,
        // The scheduler holds messages whose downstream is busy; those that arrive here are being
        // released.
        JobEnding::Returned
        | JobEnding::Interrupted
        | JobEnding::Verdict(Verdict::Busy { .. } | Verdict::Closed(_)) => {
            Some(Outcome::Release(Duration::ZERO))
        }
        JobEnding::Behind(left) | JobEnding::Deferred(left) | JobEnding::Abandoned(left) => {
            Some(Outcome::Release((*left).min(VISIBILITY_CEILING)))
        }
        JobEnding::AlreadyDone | JobEnding::Cancelled | JobEnding::Verdict(Verdict::Done) => {
            Some(Outcome::Delete)
        }
        JobEnding::Shed => Some(policy.shed().unwrap_or(Outcome::Release(pause))),
        JobEnding::Filtered => Some(policy.filtered().unwrap_or(Outcome::Release(pause))),
        JobEnding::Verdict(Verdict::Reject(why)) if policy.dead_letters => {
            Some(Outcome::DeadLetter(why.clone()))
        }
        JobEnding::Exhausted(why) if policy.takes_dead_letters() => {
            Some(Outcome::DeadLetter(why.clone()))
        }
        JobEnding::Unreadable(error) if policy.takes_dead_letters() => {
            Some(Outcome::DeadLetter(error.to_string()))
        }
        JobEnding::Exhausted(_) | JobEnding::Unreadable(_) => Some(Outcome::Release(pause)),
        // Never delete it silently: it has the attempts that its queue's redrive policy allows.
        JobEnding::Verdict(Verdict::Reject(why)) => match policy.exhausted(attempt) {
            Some(attempts) => Some(Outcome::DeadLetter(format!(
                "{why}; rejected in {attempts} attempts"
            ))),
            None => Some(Outcome::Release(pause)),
        },
        JobEnding::Verdict(Verdict::Retry { after, why }) => match policy.exhausted(attempt) {
            Some(attempts) => Some(Outcome::DeadLetter(format!(
                "{why}; not handled in {attempts} attempts"
            ))),
            None => Some(Outcome::Release(
                after.unwrap_or(pause).min(VISIBILITY_CEILING),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FailureReason;
    use proptest::prelude::*;

    fn policy(attempts: Option<u32>, dead_letters: bool) -> Policy {
        Policy {
            ordered_groups: false,
            first: Duration::from_secs(1),
            most: Duration::from_secs(900),
            attempts,
            dead_letters,
            receives: None,
            shedding: None,
            unmatched: UnmatchedAction::Delete,
        }
    }

    fn retry(after: Option<Duration>) -> JobEnding {
        JobEnding::Verdict(Verdict::Retry {
            after,
            why: FailureReason::Requested,
        })
    }

    fn any_ending() -> impl Strategy<Value = JobEnding> {
        prop_oneof![
            Just(JobEnding::Lost),
            Just(JobEnding::Returned),
            Just(JobEnding::Interrupted),
            Just(JobEnding::Abandoned(Duration::from_secs(9))),
            Just(JobEnding::Behind(Duration::from_secs(9))),
            Just(JobEnding::Deferred(Duration::from_secs(9))),
            Just(JobEnding::AlreadyDone),
            Just(JobEnding::Shed),
            Just(JobEnding::Verdict(Verdict::Done)),
            Just(JobEnding::Verdict(Verdict::Reject("no".into()))),
            Just(JobEnding::Exhausted("no answer".into())),
            prop::option::of(0_u64..100_000).prop_map(|ms| retry(ms.map(Duration::from_millis))),
        ]
    }

    proptest! {
        #[test]
        fn only_done_and_dropped_messages_are_deleted(ending in any_ending(), count in 1_u32..50, attempts in prop::option::of(1_u32..20), dead: bool, shedding in any_shedding(), random: u64) {
            let policy = Policy { shedding, ..policy(attempts, dead) };
            let outcome = decide(&ending, count, &policy, random);
            let drops = shedding.is_some_and(|shedding| shedding.shed == ShedAction::Drop);
            let done = matches!(ending, JobEnding::AlreadyDone | JobEnding::Verdict(Verdict::Done))
                || (ending == JobEnding::Shed && drops);
            prop_assert_eq!(outcome == Some(Outcome::Delete), done);
            prop_assert_eq!(outcome.is_none(), ending == JobEnding::Lost);
            if !dead {
                prop_assert!(!matches!(outcome, Some(Outcome::DeadLetter(_))));
            }
        }
    }

    fn any_shedding() -> impl Strategy<Value = Option<ShedPolicy>> {
        let shed = prop_oneof![Just(ShedAction::DeadLetter), Just(ShedAction::Drop)];
        let max_age = Duration::from_secs(600);
        prop::option::of(shed.prop_map(move |shed| ShedPolicy { max_age, shed }))
    }

    #[test]
    fn expired_messages_go_where_the_route_says() {
        let max_age = Duration::from_secs(600);
        let letter = Outcome::DeadLetter("older than 10m".into());
        for (shed, dead_letters, outcome) in [
            (ShedAction::DeadLetter, true, letter),
            (ShedAction::Drop, true, Outcome::Delete),
            // Never deleted in silence.
            (
                ShedAction::DeadLetter,
                false,
                Outcome::Release(Duration::ZERO),
            ),
        ] {
            let policy = Policy {
                shedding: Some(ShedPolicy { max_age, shed }),
                ..policy(None, dead_letters)
            };
            let decided = decide(&JobEnding::Shed, 1, &policy, 0);
            assert_eq!(decided, Some(outcome), "{shed:?} {dead_letters}");
        }
    }

    #[test]
    fn lesson_24_handler_decides_when_to_retry() {
        let outcome = decide(
            &retry(Some(Duration::from_millis(1_500))),
            3,
            &policy(None, true),
            0,
        );
        assert_eq!(
            outcome,
            Some(Outcome::Release(Duration::from_millis(1_500)))
        );
    }

    #[test]
    fn what_no_filter_matches_is_deleted_or_dead_lettered() {
        let dead = Outcome::DeadLetter("no filter of the route matches".into());
        for (unmatched, dead_letters, outcome) in [
            (UnmatchedAction::Delete, false, Outcome::Delete),
            (UnmatchedAction::DeadLetter, true, dead),
            // Never deleted where dead letters are wanted.
            (
                UnmatchedAction::DeadLetter,
                false,
                Outcome::Release(Duration::ZERO),
            ),
        ] {
            let policy = Policy {
                unmatched,
                ..policy(Some(3), dead_letters)
            };
            let decided = decide(&JobEnding::Filtered, 9, &policy, 0);
            assert_eq!(decided, Some(outcome), "{unmatched:?} {dead_letters}");
        }
    }

    #[test]
    fn last_attempt_is_the_maximum() {
        let last = decide(&retry(None), 3, &policy(Some(3), true), 0);
        assert!(matches!(last, Some(Outcome::DeadLetter(_))));
        assert!(matches!(
            decide(&retry(None), 2, &policy(Some(3), true), 0),
            Some(Outcome::Release(_))
        ));
    }

    #[test]
    fn finding_02_smaller_limit_counts_where_dead_lettering_is_possible() {
        for (attempts, dead_letters, receives, limit) in [
            (Some(10), true, Some(3), Some(3)),
            (Some(2), true, Some(3), Some(2)),
            (None, false, Some(3), Some(3)),
            // Without a dead-letter queue of the route its own limit can have no effect.
            (Some(2), false, Some(3), Some(3)),
            (Some(2), false, None, None),
        ] {
            let policy = Policy {
                receives,
                ..policy(attempts, dead_letters)
            };
            assert_eq!(policy.limit(), limit, "{attempts:?} {receives:?}");
        }
    }

    #[test]
    fn finding_02_rejected_message_gets_the_attempts_of_its_queues_redrive_policy() {
        let policy = Policy {
            receives: Some(2),
            ..policy(None, false)
        };
        let rejected = JobEnding::Verdict(Verdict::Reject("no".into()));
        let first = decide(&rejected, 1, &policy, 0);
        assert!(matches!(first, Some(Outcome::Release(_))));
        let last = decide(&rejected, 2, &policy, 0);
        let reason = "no; rejected in 2 attempts";
        assert_eq!(last, Some(Outcome::DeadLetter(reason.into())));
    }

    #[test]
    fn message_that_kills_the_process_is_dead_lettered_by_its_receive_count() {
        assert_eq!(policy(Some(3), true).on_arrival(3), None);
        let why = "received 3 times before and not done; 3 attempts are allowed";
        assert_eq!(
            policy(Some(3), true).on_arrival(4),
            Some(JobEnding::Exhausted(why.into()))
        );
        assert_eq!(policy(Some(3), false).on_arrival(4), None);
    }
}
