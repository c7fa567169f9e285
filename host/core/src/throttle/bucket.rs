//! A token bucket: how many messages may start now under a rate limit. Pure.

use super::{as_float, whole};
use crate::clock::BootInstant;
use std::time::Duration;

/// A limit on the starts per second, with a burst after a pause.
#[derive(Debug, Clone)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: BootInstant,
}

impl Bucket {
    /// The time ahead for which it is worth holding messages.
    pub const SOON: Duration = Duration::from_millis(100);

    /// Creates a full bucket. At least `together` messages may start at once: as many as one
    /// attempt takes.
    pub fn new(per_second: f64, together: usize) -> Self {
        // At least the tokens that a late timer would miss, so that it costs no throughput.
        let burst = (per_second * Self::SOON.as_secs_f64())
            .max(as_float(together))
            .max(1.0);
        Self {
            per_second,
            burst,
            tokens: burst,
            at: BootInstant::default(),
        }
    }

    /// Changes the rate and keeps the tokens.
    pub fn change(&mut self, per_second: f64, together: usize, now: BootInstant) {
        let tokens = self.tokens(now);
        *self = Self::new(per_second, together);
        self.tokens = tokens.min(self.burst);
        self.at = now;
    }

    /// Returns how many messages may start now.
    pub fn available(&self, now: BootInstant) -> usize {
        whole(self.tokens(now))
    }

    /// Returns how many messages may have started soon, if nothing else starts: the number worth
    /// holding.
    pub fn soon(&self, now: BootInstant) -> usize {
        whole(self.tokens(now) + self.per_second * Self::SOON.as_secs_f64()).max(1)
    }

    /// Takes tokens for this many starts.
    pub fn take(&mut self, count: usize, now: BootInstant) {
        self.tokens = self.tokens(now) - as_float(count);
        self.at = now;
    }

    /// Returns when the next message may start.
    pub fn next(&self, now: BootInstant) -> BootInstant {
        let missing = (1.0 - self.tokens(now)).max(0.0);
        now + Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX)
    }

    fn tokens(&self, now: BootInstant) -> f64 {
        let earned = now.since(self.at).as_secs_f64() * self.per_second;
        (self.tokens + earned).min(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
    }

    proptest! {
        #[test]
        fn lesson_24_no_interval_exceeds_the_rate_plus_one_burst(rate in 0.5_f64..2_000.0, together in 1_usize..11, steps in prop::collection::vec(0_u64..500, 1..300)) {
            let mut bucket = Bucket::new(rate, together);
            let (mut now, mut started) = (0, 0);
            for step in steps {
                now += step;
                let count = bucket.available(at(now)).min(together);
                bucket.take(count, at(now));
                started += count;
                let allowed = rate * Duration::from_millis(now).as_secs_f64() + bucket.burst;
                prop_assert!(as_float(started) <= allowed + 0.01, "{started} of {allowed}");
            }
        }

        #[test]
        fn next_token_is_available_when_predicted(rate in 0.01_f64..100_000.0, taken in 0_usize..20) {
            let mut bucket = Bucket::new(rate, 1);
            bucket.take(taken, at(0));
            prop_assert!(bucket.available(bucket.next(at(0))) >= 1);
        }
    }

    #[test]
    fn rate_change_keeps_the_used_tokens() {
        let mut bucket = Bucket::new(10.0, 1);
        bucket.take(1, at(0));
        bucket.change(1_000.0, 1, at(0));
        assert_eq!(bucket.available(at(0)), 0);
        assert_eq!(bucket.available(at(10)), 10);
    }
}
