//! Converts a verdict into an outcome of the message. Pure: the caller supplies the random number.

use crate::backoff;
use crate::job::JobEnding;
use crate::message::{Outcome, Verdict};
use crate::queue::VISIBILITY_CEILING;
use std::time::Duration;

/// What happens to messages that are too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shedding {
    /// Sent longer ago than this, 1 s to a year.
    pub max_age: Duration,
    /// What becomes of them.
    pub shed: Shed,
}

/// What becomes of a message that is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shed {
    /// It goes to the dead letters.
    #[default]
    DeadLetter,
    /// It is deleted.
    Drop,
}

/// What becomes of a message that no filter of its route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmatched {
    /// It is deleted, as by Lambda's event source mappings.
    #[default]
    Delete,
    /// It goes to the dead letters.
    DeadLetter,
}

/// A route's policy on one of its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The pause after the first attempt; doubles from there.
    pub first: Duration,
    /// The longest pause of all.
    pub most: Duration,
    /// A message is dead-lettered after this many attempts; `None` leaves that to the backend.
    pub attempts: Option<u32>,
    /// Whether the queue has somewhere to put dead letters.
    pub dead_letters: bool,
    /// On a queue that keeps its groups in order and has a redrive policy whose target takes dead
    /// letters from here: how many receives that policy allows. They are the attempts then, some of
    /// them perhaps in one delivery; the message is dead-lettered here before the queue would do it,
    /// since with it the queue would dead-letter what waits behind it in its group.
    pub receives: Option<u32>,
    /// What is too old, if anything ever is.
    pub shedding: Option<Shedding>,
    /// What becomes of what no filter matches.
    pub unmatched: Unmatched,
}

impl Policy {
    /// How many attempts a message has, if they are limited here.
    pub fn limit(&self) -> Option<u32> {
        let own = self.attempts.filter(|_| self.dead_letters);
        own.into_iter().chain(self.receives).min()
    }

    /// Whether a message can be dead-lettered from here.
    fn takes_dead_letters(&self) -> bool {
        self.dead_letters || self.receives.is_some()
    }

    /// Whether this many attempts are all that a message has.
    fn exhausted(&self, made: u32) -> Option<u32> {
        self.limit().filter(|&attempts| made >= attempts)
    }

    /// What becomes of a message that is too old; `None` if it has nowhere to go.
    fn shed(&self) -> Option<Outcome> {
        let Shedding { max_age, shed } = self.shedding?;
        let why = || format!("older than {}", humantime::format_duration(max_age));
        match shed {
            Shed::Drop => Some(Outcome::Delete),
            Shed::DeadLetter => self.dead_letters.then(|| Outcome::DeadLetter(why())),
        }
    }

    /// What becomes of a message that no filter matches; `None` if it has nowhere to go.
    fn filtered(&self) -> Option<Outcome> {
        let why = || "no filter of the route matches".to_owned();
        match self.unmatched {
            Unmatched::Delete => Some(Outcome::Delete),
            Unmatched::DeadLetter => self.dead_letters.then(|| Outcome::DeadLetter(why())),
        }
    }

    /// Whether releasing a message that is at its attempt number `attempt` would make its next
    /// delivery its last word: it is better finished than released.
    pub(crate) fn next_receive_is_fatal(&self, attempt: u32) -> bool {
        self.exhausted(attempt).is_some()
    }

    /// The verdict on a message that has had all its attempts and comes back all the same: they
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
    let pause = || backoff::full_jitter(policy.first, policy.most, attempt, random);
    match ending {
        JobEnding::Lost => None,
        // What is busy is held by the scheduler; what still comes here is on its way out.
        JobEnding::Returned | JobEnding::Verdict(Verdict::Busy { .. } | Verdict::Closed(_)) => {
            Some(Outcome::Release(Duration::ZERO))
        }
        JobEnding::Behind(left) | JobEnding::Stopped(left) => {
            Some(Outcome::Release((*left).min(VISIBILITY_CEILING)))
        }
        JobEnding::AlreadyDone | JobEnding::Cancelled | JobEnding::Verdict(Verdict::Done) => {
            Some(Outcome::Delete)
        }
        JobEnding::Shed => Some(policy.shed().unwrap_or_else(|| Outcome::Release(pause()))),
        JobEnding::Filtered => Some(
            policy
                .filtered()
                .unwrap_or_else(|| Outcome::Release(pause())),
        ),
        JobEnding::Verdict(Verdict::Reject(why)) if policy.dead_letters => {
            Some(Outcome::DeadLetter(why.clone()))
        }
        JobEnding::Exhausted(why) if policy.takes_dead_letters() => {
            Some(Outcome::DeadLetter(why.clone()))
        }
        JobEnding::Unreadable(error) if policy.takes_dead_letters() => {
            Some(Outcome::DeadLetter(error.to_string()))
        }
        JobEnding::Exhausted(_) | JobEnding::Unreadable(_) => Some(Outcome::Release(pause())),
        // Never deleted in silence: it has the attempts that its queue's redrive policy allows.
        JobEnding::Verdict(Verdict::Reject(why)) => match policy.exhausted(attempt) {
            Some(attempts) => Some(Outcome::DeadLetter(format!(
                "rejected in {attempts} attempts; in the last: {why}"
            ))),
            None => Some(Outcome::Release(pause())),
        },
        JobEnding::Verdict(Verdict::Retry { after, why }) => match policy.exhausted(attempt) {
            Some(attempts) => Some(Outcome::DeadLetter(format!(
                "not handled in {attempts} attempts; in the last, {why}"
            ))),
            None => Some(Outcome::Release(
                after.unwrap_or_else(pause).min(VISIBILITY_CEILING),
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
            first: Duration::from_secs(1),
            most: Duration::from_secs(900),
            attempts,
            dead_letters,
            receives: None,
            shedding: None,
            unmatched: Unmatched::Delete,
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
            Just(JobEnding::Behind(Duration::from_secs(9))),
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
            let drops = shedding.is_some_and(|shedding| shedding.shed == Shed::Drop);
            let done = matches!(ending, JobEnding::AlreadyDone | JobEnding::Verdict(Verdict::Done))
                || (ending == JobEnding::Shed && drops);
            prop_assert_eq!(outcome == Some(Outcome::Delete), done);
            prop_assert_eq!(outcome.is_none(), ending == JobEnding::Lost);
            if !dead {
                prop_assert!(!matches!(outcome, Some(Outcome::DeadLetter(_))));
            }
        }
    }

    fn any_shedding() -> impl Strategy<Value = Option<Shedding>> {
        let shed = prop_oneof![Just(Shed::DeadLetter), Just(Shed::Drop)];
        let max_age = Duration::from_secs(600);
        prop::option::of(shed.prop_map(move |shed| Shedding { max_age, shed }))
    }

    #[test]
    fn expired_messages_go_where_the_route_says() {
        let old = |shed, dead_letters| {
            let max_age = Duration::from_secs(600);
            let policy = Policy {
                shedding: Some(Shedding { max_age, shed }),
                ..policy(None, dead_letters)
            };
            decide(&JobEnding::Shed, 1, &policy, 0)
        };
        let letter = Outcome::DeadLetter("older than 10m".into());
        assert_eq!(old(Shed::DeadLetter, true), Some(letter));
        assert_eq!(old(Shed::Drop, true), Some(Outcome::Delete));
        let released = Some(Outcome::Release(Duration::ZERO));
        assert_eq!(
            old(Shed::DeadLetter, false),
            released,
            "never deleted in silence"
        );
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
        let outcome = |unmatched, dead_letters| {
            let policy = Policy {
                unmatched,
                ..policy(Some(3), dead_letters)
            };
            decide(&JobEnding::Filtered, 9, &policy, 0)
        };
        assert_eq!(outcome(Unmatched::Delete, false), Some(Outcome::Delete));
        let dead = Outcome::DeadLetter("no filter of the route matches".into());
        assert_eq!(outcome(Unmatched::DeadLetter, true), Some(dead));
        // Never deleted where dead letters are wanted.
        assert!(matches!(
            outcome(Unmatched::DeadLetter, false),
            Some(Outcome::Release(_))
        ));
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
        let limited = |attempts, dead_letters, receives| {
            let policy = Policy {
                receives,
                ..policy(attempts, dead_letters)
            };
            policy.limit()
        };
        assert_eq!(limited(Some(10), true, Some(3)), Some(3));
        assert_eq!(limited(Some(2), true, Some(3)), Some(2));
        assert_eq!(limited(None, false, Some(3)), Some(3));
        // Without a dead-letter queue of the route its own limit can have no effect.
        assert_eq!(limited(Some(2), false, Some(3)), Some(3));
        assert_eq!(limited(Some(2), false, None), None);
    }

    #[test]
    fn finding_02_rejected_message_gets_the_attempts_of_its_queues_redrive_policy() {
        let policy = Policy {
            receives: Some(2),
            ..policy(None, false)
        };
        let rejected = JobEnding::Verdict(Verdict::Reject("no".into()));
        let outcome = |attempt| decide(&rejected, attempt, &policy, 0);
        assert!(matches!(outcome(1), Some(Outcome::Release(_))));
        let reason = "rejected in 2 attempts; in the last: no";
        assert_eq!(outcome(2), Some(Outcome::DeadLetter(reason.into())));
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
