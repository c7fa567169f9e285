//! Which of two versions takes an attempt, and when the newer one has proved worse. Pure.

use crate::message::{Message, Verdict};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Before the canary has answered about so many messages, nothing is concluded from them.
const LEAST: u64 = 20;
/// Nor from fewer failures of the canary's: where hardly any message fails, one alone looks like many.
const LEAST_FAILED: u64 = 5;
/// The canary falls back once two rates explain what both answered so much better than one does:
/// twice the logarithm of how many times likelier. It is looked at after every attempt, so chance gets
/// many tries; the tests below count how often it wins.
const EVIDENCE: f64 = 20.0;
/// Once both together have answered about so many messages, what they answered is halved: a
/// version is judged by what it does now.
const MEMORY: u64 = 100_000;

/// A part of all messages: above 0, at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(f64);

// It is never NaN.
impl Eq for Share {}

impl Share {
    /// All messages.
    pub const ALL: Self = Self(1.0);

    /// None outside of its bounds.
    pub fn new(share: f64) -> Option<Self> {
        (share > 0.0 && share <= 1.0).then_some(Self(share))
    }

    /// As a fraction.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Whether a message belongs to the part. The same delivery always does or does not, and the
    /// next delivery of a message may fall otherwise: what fails with one version is soon tried
    /// with the other. What one `purpose` takes says nothing of what another does.
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

/// What a version answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages.
    pub messages: u64,
    /// Those that were neither done nor busy.
    pub failed: u64,
}

impl Tally {
    /// Counts verdicts. What was busy or closed says nothing about the version: it was not begun.
    pub fn count(&mut self, verdicts: &[Verdict]) {
        for verdict in verdicts {
            match verdict {
                Verdict::Done => self.messages += 1,
                Verdict::Retry { .. } | Verdict::Reject(_) => {
                    self.messages += 1;
                    self.failed += 1;
                }
                Verdict::Busy { .. } | Verdict::Closed(_) => {}
            }
        }
    }

    /// Counts an attempt that was given up when its time was over.
    pub fn count_given_up(&mut self, messages: usize) {
        self.messages += messages as u64;
        self.failed += messages as u64;
    }

    /// The part that failed, 0 to 1.
    pub fn rate(self) -> f64 {
        match self.messages {
            0 => 0.0,
            messages => self.failed as f64 / messages as f64,
        }
    }

    /// The logarithm of how likely its answers are at its own rate.
    fn likelihood(self) -> f64 {
        let term = |part: u64| match part {
            0 => 0.0,
            part => part as f64 * (part as f64 / self.messages as f64).ln(),
        };
        term(self.failed) + term(self.messages.saturating_sub(self.failed))
    }

    fn halve(&mut self) {
        self.messages /= 2;
        self.failed /= 2;
    }
}

/// Both versions since the canary began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Race {
    /// The version that takes most messages.
    pub current: Tally,
    /// The one that is tried.
    pub canary: Tally,
}

impl Race {
    /// Whether the canary fails more often than chance explains: a likelihood ratio test (Wilks) of
    /// two rates against one. Without answers of the other version half of them failing is too many.
    pub fn is_lost(&self) -> bool {
        let (current, canary) = (self.current, self.canary);
        if canary.messages < LEAST || canary.failed < LEAST_FAILED {
            return false;
        }
        if current.messages == 0 {
            return canary.rate() > 0.5;
        }
        let both = Tally {
            messages: current.messages + canary.messages,
            failed: current.failed + canary.failed,
        };
        let evidence = 2.0 * (current.likelihood() + canary.likelihood() - both.likelihood());
        canary.rate() > current.rate() && evidence > EVIDENCE
    }

    /// Forgets half once there is much.
    pub fn age(&mut self) {
        if self.current.messages + self.canary.messages >= MEMORY {
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
            let (tally, rate) = match on_canary {
                true => (&mut race.canary, canary),
                false => (&mut race.current, current),
            };
            tally.messages += 1;
            tally.failed += u64::from(dice.f64() < rate);
            race.age();
            if race.is_lost() {
                return Some(round);
            }
        }
        None
    }

    #[test]
    fn equal_versions_are_rarely_told_apart() {
        for (share, rate) in [(0.1, 0.001), (0.1, 0.05), (0.5, 0.3)] {
            let mistaken = (0..100)
                .filter(|seed| race(*seed, share, rate, rate, 20_000).is_some())
                .count();
            assert!(mistaken <= 1, "{mistaken} of 100 at {share}, {rate}");
        }
    }

    #[test]
    fn a_better_version_is_never_given_up_for_its_luck() {
        let lost = (0..50).filter(|seed| race(*seed, 0.1, 0.2, 0.05, 20_000).is_some());
        assert_eq!(lost.count(), 0);
    }

    #[test]
    fn a_worse_version_falls_back_soon() {
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
    fn a_canary_of_all_messages_is_judged_alone() {
        assert!(race(1, 1.0, 0.0, 0.9, 1_000).is_some());
        assert!(race(1, 1.0, 0.0, 0.1, 10_000).is_none());
    }

    #[test]
    fn a_share_takes_its_part_and_the_next_delivery_may_fall_otherwise() {
        let share = Share::new(0.1).expect("a share");
        let taken = (0..10_000).filter(|id| share.takes(&message(*id, 1), "a"));
        let taken: Vec<u64> = taken.collect();
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
        fn no_count_breaks_the_judgement(current: (u32, u32), canary: (u32, u32)) {
            let tally = |(messages, failed): (u32, u32)| Tally {
                messages: u64::from(messages),
                failed: u64::from(failed.min(messages)),
            };
            let race = Race { current: tally(current), canary: tally(canary) };
            if race.canary.failed == 0 {
                prop_assert!(!race.is_lost());
            }
        }
    }
}
