//! Decides which of two versions handles an attempt, and when the newer one is significantly worse.
//! Pure.

use dispatcher_core::message::{Message, Verdict};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The minimum number of canary attempts for a conclusion.
const LEAST: u64 = 20;
/// The minimum number of canary failures for a conclusion: where failures are rare, a single one
/// looks like many.
const LEAST_FAILED: u64 = 5;
/// The evidence at which the canary is rolled back: twice the logarithm of how many times likelier
/// the results of both versions are with two failure rates than with one. It is checked after every
/// attempt, so chance gets many tries; the tests below count how often chance wins.
const EVIDENCE: f64 = 20.0;
/// The number of canary attempts after which the counts of both versions are halved, so that both
/// are judged by their recent results over the same time span.
const MEMORY: u64 = 10_000;

/// A share of all messages: above 0, at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(f64);

// It is never NaN.
impl Eq for Share {}

impl Share {
    /// All messages.
    pub const ALL: Self = Self(1.0);

    /// Returns `None` if the value is out of bounds.
    pub fn new(share: f64) -> Option<Self> {
        (share > 0.0 && share <= 1.0).then_some(Self(share))
    }

    /// Returns the share as a fraction.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Whether a message belongs to the share. The result is always the same for one delivery and
    /// may differ for the next, so that a message that fails with one version is soon tried with
    /// the other. The results for different values of `purpose` are independent.
    pub fn takes(self, message: &Message, purpose: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        (purpose, &message.id, message.receive_count).hash(&mut hasher);
        let high = u32::try_from(hasher.finish() >> 32).unwrap_or(u32::MAX);
        f64::from(high) < self.0 * f64::from(u32::MAX)
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// The results of a version's attempts. A batch is one attempt: if all of its messages fail, that
/// is one failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of attempts.
    pub attempts: u64,
    /// The number of attempts in which at least one message failed.
    pub failed: u64,
}

/// Whether the version has started on the message. It has not if the verdict is busy or closed.
pub(crate) fn is_begun(verdict: &Verdict) -> bool {
    !matches!(verdict, Verdict::Busy { .. } | Verdict::Closed(_))
}

impl Tally {
    /// Counts an attempt, unless all of its messages were busy or closed: those were not started.
    pub fn count(&mut self, verdicts: &[Verdict]) {
        if verdicts.iter().any(is_begun) {
            let is_failure =
                |verdict: &Verdict| is_begun(verdict) && !matches!(verdict, Verdict::Done);
            self.attempts += 1;
            self.failed += u64::from(verdicts.iter().any(is_failure));
        }
    }

    /// Counts an attempt that failed as a whole.
    pub(crate) fn count_failed(&mut self) {
        self.attempts += 1;
        self.failed += 1;
    }

    /// Returns the fraction of attempts that failed, 0 to 1.
    pub fn rate(self) -> f64 {
        match self.attempts {
            0 => 0.0,
            attempts => self.failed as f64 / attempts as f64,
        }
    }

    /// Returns the logarithm of the likelihood of these results at their own failure rate.
    fn likelihood(self) -> f64 {
        self.term(self.failed) + self.term(self.attempts.saturating_sub(self.failed))
    }

    fn term(self, part: u64) -> f64 {
        match part {
            0 => 0.0,
            part => part as f64 * (part as f64 / self.attempts as f64).ln(),
        }
    }

    fn halve(&mut self) {
        self.attempts /= 2;
        self.failed /= 2;
    }
}

/// The results of both versions since the canary began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Race {
    /// The results of the version that takes most messages.
    pub current: Tally,
    /// The results of the version that is tried.
    pub canary: Tally,
}

impl Race {
    /// Whether the canary fails more often than chance explains: a likelihood ratio test (Wilks) of
    /// two rates against one. Without results of the current version, the canary loses if more than
    /// half of its attempts fail.
    pub(crate) fn is_lost(&self) -> bool {
        let (current, canary) = (self.current, self.canary);
        if canary.attempts < LEAST || canary.failed < LEAST_FAILED {
            return false;
        }
        if current.attempts == 0 {
            return canary.rate() > 0.5;
        }
        let both = Tally {
            attempts: current.attempts + canary.attempts,
            failed: current.failed + canary.failed,
        };
        let evidence = 2.0 * (current.likelihood() + canary.likelihood() - both.likelihood());
        canary.rate() > current.rate() && evidence > EVIDENCE
    }

    /// Halves the counts of both once the canary has many attempts.
    pub fn age(&mut self) {
        if self.canary.attempts >= MEMORY {
            self.current.halve();
            self.canary.halve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(id: u64, receive_count: u32) -> Message {
        Message {
            id: id.to_string(),
            receive_count,
            ..Message::default()
        }
    }

    /// After how many messages the canary falls back, of `most`.
    fn race(seed: u64, share: f64, current: f64, canary: f64, most: u64) -> Option<u64> {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut race = Race::default();
        for round in 0..most {
            let on_canary = dice.f64() < share;
            let (tally, rate) = if on_canary {
                (&mut race.canary, canary)
            } else {
                (&mut race.current, current)
            };
            tally.attempts += 1;
            tally.failed += u64::from(dice.f64() < rate);
            race.age();
            if race.is_lost() {
                return Some(round);
            }
        }
        None
    }

    #[test]
    fn equal_versions_are_rarely_judged_different() {
        for (share, rate) in [(0.1, 0.001), (0.1, 0.05), (0.5, 0.3)] {
            let mistaken = (0..100)
                .filter(|seed| race(*seed, share, rate, rate, 20_000).is_some())
                .count();
            assert!(mistaken <= 1, "{mistaken} of 100 at {share}, {rate}");
        }
    }

    #[test]
    fn better_version_is_never_rolled_back_by_chance() {
        let lost = (0..50).filter(|seed| race(*seed, 0.1, 0.2, 0.05, 20_000).is_some());
        assert_eq!(lost.count(), 0);
    }

    #[test]
    fn worse_version_is_rolled_back_soon() {
        // One in a hundred fails, and one in five of the canary's.
        for seed in 0..100 {
            let after = race(seed, 0.1, 0.01, 0.2, 100_000).expect("it is worse");
            assert!(after < 3_000, "after {after} messages");
        }
        // All of its messages fail: after its first twenty.
        let after = race(1, 0.1, 0.0, 1.0, 100_000).expect("it is worse");
        assert!(after < 1_000, "after {after} messages");
    }

    #[test]
    fn small_share_is_judged_as_well() {
        let after = race(1, 0.0001, 0.01, 1.0, 3_000_000).expect("it is worse");
        assert!(after < 1_000_000, "after {after} messages");
    }

    #[test]
    fn batch_counts_as_one_attempt() {
        let retry = Verdict::Retry {
            after: None,
            why: dispatcher_core::message::FailureReason::Requested,
        };
        let closed = Verdict::Closed("gone".into());
        let mut tally = Tally::default();
        tally.count(&vec![retry.clone(); 10]);
        tally.count(&[Verdict::Done, Verdict::Done]);
        tally.count(&[Verdict::Done, closed.clone()]);
        tally.count(&[closed.clone(), closed]);
        let (attempts, failed) = (3, 1);
        assert_eq!(tally, Tally { attempts, failed });
    }

    #[test]
    fn canary_of_all_messages_is_judged_without_a_baseline() {
        assert!(race(1, 1.0, 0.0, 0.9, 1_000).is_some());
        assert!(race(1, 1.0, 0.0, 0.1, 10_000).is_none());
    }

    #[test]
    fn share_takes_its_fraction_and_redeliveries_are_drawn_again() {
        let share = Share::new(0.1).expect("a share");
        let taken: Vec<u64> = (0..10_000)
            .filter(|id| share.takes(&message(*id, 1), "a"))
            .collect();
        assert!((900..1_100).contains(&taken.len()), "{}", taken.len());
        let again = taken
            .iter()
            .filter(|id| share.takes(&message(**id, 2), "a"));
        assert!(again.count() < taken.len() / 5);
        let other = taken
            .iter()
            .filter(|id| share.takes(&message(**id, 1), "b"));
        assert!((1..taken.len() / 5).contains(&other.count()));
        assert!((0..1_000).all(|id| Share::ALL.takes(&message(id, 1), "a")));
        assert!(Share::new(0.0).is_none() && Share::new(1.1).is_none());
        assert!(Share::new(f64::NAN).is_none());
    }

    proptest! {
        #[test]
        fn canary_without_failures_is_never_judged_lost(attempts: u32, failed: u32, canary: u32) {
            let current = Tally {
                attempts: u64::from(attempts),
                failed: u64::from(failed.min(attempts)),
            };
            let canary = Tally { attempts: u64::from(canary), failed: 0 };
            let race = Race { current, canary };
            prop_assert!(!race.is_lost());
        }
    }
}
