//! A compact histogram of durations: counts in logarithmic buckets. Knows no metric and no sink.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The maximum number of buckets. CloudWatch accepts at most 150 values with counts at once.
pub(crate) const BUCKETS: usize = 150;

/// The edges of buckets in charts, in seconds. A metric shows some of them. Handlers in WebAssembly
/// may take less than a millisecond, and a message can be in flight for at most 12 hours.
const CHART_EDGES_S: [f64; 20] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0, 900.0, 3_600.0, 43_200.0,
];
/// The edges that show how long attempts take. Those from 5 ms to 10 s are among the ones that the
/// semantic conventions of OpenTelemetry advise: each series costs its reader.
pub const ATTEMPT_EDGES_S: [f64; 18] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0, 900.0,
];
/// The edges that show how long calls to backends take. Each queue has several kinds of calls.
pub const CALL_EDGES_S: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0];
/// The edges that show the ages of messages.
pub const AGE_EDGES_S: [f64; 11] = [
    0.01, 0.1, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 43_200.0,
];

/// The longest duration that counts as 0.
const SHORTEST_S: f64 = 0.000_000_999;
/// The maximum ratio of the end of a bucket to its beginning, between these edges.
const STEP: f64 = 1.2;

/// The maximum error of a value that the histogram returns, relative to the recorded value.
#[cfg(test)]
const RELATIVE_ERROR: f64 = 0.096;

/// The end of each bucket in seconds, which belongs to the bucket. The last bucket also has all
/// longer durations.
static EDGES: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let mut edges = vec![SHORTEST_S];
    let mut from = SHORTEST_S;
    for to in CHART_EDGES_S {
        let parts = ((to / from).ln() / STEP.ln()).ceil();
        let mut part = 1.0;
        while part < parts {
            edges.push(from * (to / from).powf(part / parts));
            part += 1.0;
        }
        edges.push(to);
        from = to;
    }
    edges
});

/// Counts of durations since the start, from below 1 µs to 12 h. A write is one atomic addition for
/// the count and one for the sum.
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
        // Rounded, so that durations below a microsecond do not always count as 0.
        let rounded = duration.saturating_add(Duration::from_nanos(500));
        let us = u64::try_from(rounded.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// Adds everything since the start to `sum`. Each count is read independently.
    pub(super) fn add_to(&self, sum: &mut Samples) {
        sum.add(&self.samples());
    }

    /// Returns everything since the start. Each count is read independently.
    pub fn samples(&self) -> Samples {
        Samples {
            counts: up_to_the_last(self.counts.iter().map(|count| count.load(Relaxed))),
            sum_us: self.sum_us.load(Relaxed),
        }
    }
}

/// Removes the zeros at the end. Most of thousands of queues have only zeros.
fn up_to_the_last(all: impl Iterator<Item = u64> + Clone) -> Vec<u64> {
    let numbered = all.clone().enumerate();
    let last = numbered.filter(|(_, count)| *count > 0).last();
    all.take(last.map_or(0, |(at, _)| at + 1)).collect()
}

/// The counts of a histogram, at some moment or within some time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    /// One count per bucket, up to the last that is not 0.
    counts: Vec<u64>,
    sum_us: u64,
}

impl Samples {
    /// Returns the samples since `earlier`, which must be of the same histogram.
    pub fn since(&self, earlier: &Samples) -> Samples {
        let before = earlier.counts.iter().chain(std::iter::repeat(&0));
        let both = self.counts.iter().zip(before);
        Samples {
            counts: up_to_the_last(both.map(|(now, then)| now.saturating_sub(*then))),
            sum_us: self.sum_us.wrapping_sub(earlier.sum_us),
        }
    }

    /// Adds the samples of another histogram.
    pub fn add(&mut self, other: &Samples) {
        let buckets = self.counts.len().max(other.counts.len());
        self.counts.resize(buckets, 0);
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        self.sum_us = self.sum_us.wrapping_add(other.sum_us);
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the exact sum of the samples, each rounded to a microsecond.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// Returns values in milliseconds in rising order, each with its number of samples, which is
    /// never 0. There are at most `BUCKETS` values. A value differs from the recorded duration by
    /// at most `RELATIVE_ERROR` if that was from 1 µs to 12 h; a shorter one is 0.
    pub fn values(&self) -> Vec<(f64, u64)> {
        let numbered = self.counts.iter().enumerate();
        numbered
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| (value(bucket), *count))
            .collect()
    }

    /// Returns the duration that the share `of` (0 to 1) of the samples does not exceed, in
    /// seconds; `None` without samples.
    pub fn quantile(&self, of: f64) -> Option<f64> {
        let wanted = (self.count() as f64 * of).ceil().max(1.0);
        let mut seen = 0.0;
        let found = self.values().into_iter().find(|(_, count)| {
            seen += *count as f64;
            seen >= wanted
        });
        found.map(|(ms, _)| ms / 1_000.0)
    }

    /// Returns how many samples were not longer than each of these edges of charts.
    pub fn cumulative(&self, edges: &[f64]) -> impl Iterator<Item = u64> {
        let mut below = 0;
        let mut counts = EDGES.iter().zip(&self.counts);
        edges.iter().map(move |edge| {
            for (end, count) in counts.by_ref() {
                below += count;
                if end >= edge {
                    break;
                }
            }
            below
        })
    }
}

fn bucket(duration: Duration) -> usize {
    let seconds = duration.as_secs_f64();
    let before = EDGES.partition_point(|end| *end < seconds);
    before.min(EDGES.len() - 1)
}

/// Returns the value of a bucket in milliseconds: its middle on a logarithmic scale.
fn value(bucket: usize) -> f64 {
    match bucket {
        0 => 0.0,
        _ => (EDGES[bucket - 1] * EDGES[bucket]).sqrt() * 1_000.0,
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
    fn nothing_is_kept_of_what_did_not_happen() {
        let histogram = Histogram::default();
        assert_eq!(histogram.samples().counts.capacity(), 0);
        histogram.record(Duration::ZERO);
        let then = histogram.samples();
        assert_eq!(then.counts, [1]);
        histogram.record(Duration::from_micros(1));
        let since = histogram.samples().since(&then);
        assert_eq!(since.counts, [0, 1]);
        let now = histogram.samples();
        assert_eq!(now.since(&now), Samples::default());
    }

    #[test]
    fn a_quantile_is_the_value_of_its_rank() {
        let histogram = Histogram::default();
        assert_eq!(histogram.samples().quantile(0.5), None);
        for ms in 1..=100 {
            histogram.record(Duration::from_millis(ms));
        }
        let mut samples = Samples::default();
        histogram.add_to(&mut samples);
        for (of, seconds) in [(0.0, 0.001), (0.5, 0.05), (0.99, 0.099), (1.0, 0.1)] {
            let given = samples.quantile(of).expect("there are samples");
            assert!(
                (given - seconds).abs() <= seconds * RELATIVE_ERROR,
                "{given} for {seconds}"
            );
        }
    }

    #[test]
    fn values_beyond_the_range_fall_into_the_outer_buckets() {
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::from_nanos(999)), 0);
        assert_eq!(bucket(Duration::from_micros(1)), 1);
        let last = EDGES.len() - 1;
        assert_eq!(bucket(Duration::from_secs(12 * 3_600)), last);
        assert_eq!(bucket(Duration::MAX), last);
    }

    #[test]
    fn every_edge_of_a_chart_is_the_end_of_a_bucket() {
        assert!(EDGES.len() <= BUCKETS, "{} buckets", EDGES.len());
        assert!(EDGES.is_sorted_by(|one, next| one < next));
        let shown = [&ATTEMPT_EDGES_S[..], &CALL_EDGES_S, &AGE_EDGES_S].concat();
        assert!(shown.iter().all(|edge| CHART_EDGES_S.contains(edge)));
        for edge in CHART_EDGES_S {
            let at = EDGES.iter().position(|end| *end == edge).expect("an edge");
            assert_eq!(bucket(Duration::from_secs_f64(edge)), at, "{edge}");
        }
    }

    #[test]
    fn cumulative_counts_include_what_equals_the_edge() {
        let histogram = Histogram::default();
        for ms in [0, 1, 10, 100, 1_000, 100_000_000] {
            histogram.record(Duration::from_millis(ms));
        }
        let edges = [0.0005, 0.001, 0.05, 0.1, 10.0];
        let steps = histogram.samples().cumulative(&edges).collect::<Vec<_>>();
        assert_eq!(steps, [1, 2, 3, 4, 5]);
    }
}
