//! A compact histogram of durations: counts in logarithmic buckets. Knows no metric and no sink.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many buckets there are. CloudWatch takes at most 150 values with their counts at once.
pub const BUCKETS: usize = 150;

/// Where the logarithmic buckets begin and where they end: what is shorter counts as 0, what is
/// longer as if it were in the last bucket. Handlers in WebAssembly take microseconds; a message can
/// be in flight for 12 hours at most.
const SHORTEST_MS: f64 = 0.001;
const LONGEST_MS: f64 = 12.0 * 3_600_000.0;

/// The largest error of a value that the histogram releases, relative to what was recorded.
pub const RELATIVE_ERROR: f64 = 0.086;

/// How many buckets lie between two edges that charts get: each edge is about four times the one
/// before.
const EDGES_APART: usize = 8;

/// Where each bucket but the first begins, in milliseconds, and where the last one ends.
static EDGES: LazyLock<[f64; BUCKETS]> = LazyLock::new(|| {
    let last = (BUCKETS - 1) as f64;
    std::array::from_fn(|edge| SHORTEST_MS * (LONGEST_MS / SHORTEST_MS).powf(edge as f64 / last))
});

/// Counts of durations since the start, from below 1 µs to 12 h. Written with one atomic addition
/// for the count and one for the sum; read at leisure.
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_us: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        self.counts[bucket(duration)].fetch_add(1, Relaxed);
        // Rounded, so that what took less than a microsecond does not always count as nothing.
        let us = duration
            .saturating_add(Duration::from_nanos(500))
            .as_micros();
        let us = u64::try_from(us).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// Everything since the start. Each count is read by itself.
    pub fn samples(&self) -> Samples {
        Samples {
            counts: self
                .counts
                .iter()
                .map(|count| count.load(Relaxed))
                .collect(),
            sum_us: self.sum_us.load(Relaxed),
        }
    }
}

/// The counts of a histogram, as of some moment or of some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Samples {
    /// One per bucket.
    counts: Vec<u64>,
    sum_us: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            sum_us: 0,
        }
    }
}

impl Samples {
    /// What was added since `earlier`, which must be of the same histogram.
    pub fn since(&self, earlier: &Samples) -> Samples {
        let both = self.counts.iter().zip(&earlier.counts);
        Samples {
            counts: both.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum_us: self.sum_us.wrapping_sub(earlier.sum_us),
        }
    }

    /// Adds those of another histogram.
    pub fn add(&mut self, other: &Samples) {
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        self.sum_us = self.sum_us.wrapping_add(other.sum_us);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What they sum up to, exactly.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// Values in milliseconds, rising, each with how many samples it stands for: never 0. At most
    /// `BUCKETS` of them. A value differs from what was recorded by at most `RELATIVE_ERROR` if
    /// that was from 1 µs to 12 h; what was shorter is 0.
    pub fn values(&self) -> Vec<(f64, u64)> {
        let numbered = self.counts.iter().enumerate();
        numbered
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| (value(bucket), *count))
            .collect()
    }

    /// How many were shorter than each of a few durations, for charts that want it so: each is
    /// about four times the one before.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut below = 0;
        let numbered = self.counts.iter().enumerate();
        let each = numbered.map(move |(bucket, count)| {
            below += count;
            (Duration::from_secs_f64(EDGES[bucket] / 1_000.0), below)
        });
        each.step_by(EDGES_APART)
    }
}

fn bucket(duration: Duration) -> usize {
    let ms = duration.as_secs_f64() * 1_000.0;
    let begun = EDGES.partition_point(|edge| *edge <= ms);
    begun.min(BUCKETS - 1)
}

/// What stands for a bucket: the middle of it, as logarithms have it.
fn value(bucket: usize) -> f64 {
    match bucket {
        0 => 0.0,
        _ => (EDGES[bucket - 1] * EDGES[bucket]).sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn histogram_counts_are_exact_and_values_close(all in proptest::collection::vec(0_u64..50_000_000_000, 0..300)) {
            let histogram = Histogram::default();
            for us in &all {
                histogram.record(Duration::from_micros(*us));
            }
            let samples = histogram.samples();
            let values = samples.values();
            prop_assert_eq!(samples.count(), all.len() as u64);
            prop_assert!(values.len() <= BUCKETS);
            prop_assert!(values.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(values.iter().all(|(value, count)| value.is_finite() && *count > 0));
            let total: u64 = values.iter().map(|(_, count)| count).sum();
            prop_assert_eq!(total, all.len() as u64);
            prop_assert_eq!(samples.sum(), Duration::from_micros(all.iter().sum()));
        }

        #[test]
        fn finding_09_value_is_within_the_documented_error(power in 1_f64..13.6, part in 1_f64..10.0) {
            // As many below a millisecond as above it.
            let seconds = (10_f64.powf(power) * part).clamp(1_000.0, 43_200e9) / 1e9;
            let ns = u64::try_from(Duration::from_secs_f64(seconds).as_nanos()).unwrap_or(u64::MAX);
            let ms = ns as f64 / 1e6;
            let given = value(bucket(Duration::from_nanos(ns)));
            prop_assert!((given - ms).abs() <= ms * RELATIVE_ERROR, "{} for {}", given, ms);
        }

        #[test]
        fn intervals_add_up_to_the_total(first in proptest::collection::vec(0_u64..100_000_000, 0..50), second in proptest::collection::vec(0_u64..100_000_000, 0..50)) {
            let histogram = Histogram::default();
            first.iter().for_each(|us| histogram.record(Duration::from_micros(*us)));
            let then = histogram.samples();
            second.iter().for_each(|us| histogram.record(Duration::from_micros(*us)));
            let mut sum = histogram.samples().since(&then);
            prop_assert_eq!(sum.count(), second.len() as u64);
            sum.add(&then);
            prop_assert_eq!(sum, histogram.samples());
        }
    }

    #[test]
    fn finding_09_duration_below_a_millisecond_is_not_zero() {
        let histogram = Histogram::default();
        for us in [2, 40, 700] {
            histogram.record(Duration::from_micros(us));
        }
        let values = histogram.samples().values();
        assert_eq!(values.len(), 3, "{values:?}");
        for ((given, count), ms) in values.into_iter().zip([0.002, 0.04, 0.7]) {
            assert!(
                (given - ms).abs() <= ms * RELATIVE_ERROR,
                "{given} for {ms}"
            );
            assert_eq!(count, 1);
        }
    }

    #[test]
    fn values_beyond_the_range_fall_into_the_outer_buckets() {
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::from_nanos(999)), 0);
        assert_eq!(bucket(Duration::from_micros(1)), 1);
        assert_eq!(bucket(Duration::from_secs(12 * 3_600)), BUCKETS - 1);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn cumulative_counts_end_with_nearly_all() {
        let histogram = Histogram::default();
        for ms in [0, 1, 10, 100, 1_000] {
            histogram.record(Duration::from_millis(ms));
        }
        let samples = histogram.samples();
        let steps: Vec<(Duration, u64)> = samples.cumulative().collect();
        assert_eq!(steps.len(), 19);
        assert_eq!(steps[0], (Duration::from_micros(1), 1));
        assert_eq!(steps.last().map(|step| step.1), Some(5));
        assert!(steps.is_sorted());
    }
}
