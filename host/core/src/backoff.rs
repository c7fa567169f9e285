//! Computes how long to wait before a retry. Pure: the caller supplies the random number.

use std::time::Duration;

/// Returns a capped exponential back-off with full jitter: a uniform choice from 0 to `first *
/// 2^(tries-1)`, never above `most` (Brooker, "Exponential Backoff And Jitter"). `tries` counts
/// from 1; `random` is any uniform number.
pub(crate) fn full_jitter(first: Duration, most: Duration, tries: u32, random: u64) -> Duration {
    let ceiling = ceiling(first, most, tries);
    let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
    // The product's upper half is uniform over 0..=nanos.
    let scaled = (u128::from(random) * (u128::from(nanos) + 1)) >> 64;
    Duration::from_nanos(u64::try_from(scaled).unwrap_or(nanos))
}

/// Returns the maximum that `full_jitter` may return.
pub fn ceiling(first: Duration, most: Duration, tries: u32) -> Duration {
    let doubled = 2_u32.checked_pow(tries.saturating_sub(1));
    doubled
        .and_then(|factor| first.checked_mul(factor))
        .map_or(most, |wait| wait.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn backoff_never_exceeds_the_maximum(first in 0_u64..100_000, most in 0_u64..100_000_000, tries in 0_u32..=u32::MAX, random: u64) {
            let (first, most) = (Duration::from_millis(first), Duration::from_millis(most));
            let wait = full_jitter(first, most, tries, random);
            prop_assert!(wait <= ceiling(first, most, tries));
            prop_assert!(wait <= most);
        }
    }

    #[test]
    fn jitter_covers_its_whole_range() {
        // A jitter that is always 0 for a few seconds is a fault seen elsewhere.
        let wait =
            |random| full_jitter(Duration::from_secs(1), Duration::from_secs(900), 1, random);
        assert_eq!(wait(0), Duration::ZERO);
        assert_eq!(wait(u64::MAX), Duration::from_secs(1));
        assert!((wait(u64::MAX / 2).as_secs_f64() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn backoff_doubles_until_the_maximum() {
        let (first, most) = (Duration::from_secs(1), Duration::from_secs(10));
        let pauses = [1, 2, 3, 4, 5, 6].map(|tries| ceiling(first, most, tries).as_secs());
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
    }
}
