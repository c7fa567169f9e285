//! A report as the metrics of it: names, units and values. Pure; the same for every sink.

use super::meter::Interval;

/// How a metric is counted, as CloudWatch names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// So many.
    Count,
    /// A time.
    Milliseconds,
    /// A ratio.
    None,
}

impl Unit {
    /// CloudWatch's word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Milliseconds => "Milliseconds",
            Self::None => "None",
        }
    }
}

/// One metric of one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// CloudWatch's name of it.
    pub name: &'static str,
    /// How it is counted.
    pub unit: Unit,
    /// Values, each with how often it was seen. At least one; all finite; no count is 0.
    pub values: Vec<(f64, u64)>,
}

/// The metrics of one interval. Counts are there also if they are 0, so that an alarm can tell a
/// queue without messages from a program that has stopped; what has no value is left out.
pub fn metrics(interval: &Interval) -> Vec<Metric> {
    let counts = &interval.counts;
    let mut metrics = vec![
        count("Messages", counts.received),
        count("Failures", counts.failed),
        count("Throttles", counts.throttled),
        count("Shed", counts.shed),
        count("InFlight", interval.in_flight),
    ];
    for (name, samples) in [("Duration", &counts.duration), ("Age", &counts.age)] {
        if samples.count() > 0 {
            metrics.push(Metric {
                name,
                unit: Unit::Milliseconds,
                values: samples.values(),
            });
        }
    }
    if counts.received > 0 {
        metrics.push(Metric {
            name: "CallsPerMessage",
            unit: Unit::None,
            values: vec![(counts.calls as f64 / counts.received as f64, 1)],
        });
    }
    metrics
}

fn count(name: &'static str, count: u64) -> Metric {
    Metric {
        name,
        unit: Unit::Count,
        values: vec![(count as f64, 1)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::meter::Meter;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn an_idle_queue_has_its_counts_and_nothing_else() {
        let names: Vec<&str> = metrics(&Interval::default())
            .iter()
            .map(|metric| metric.name)
            .collect();
        assert_eq!(
            names,
            ["Messages", "Failures", "Throttles", "Shed", "InFlight"]
        );
    }

    #[test]
    fn calls_are_per_message() {
        let meter = Arc::new(Meter::default());
        meter.received.many(10);
        meter.calls.many(2);
        let metrics = metrics(&meter.drain());
        let calls = metrics.last().expect("the ratio comes last");
        assert_eq!((calls.name, calls.unit), ("CallsPerMessage", Unit::None));
        assert_eq!(calls.values, [(0.2, 1)]);
    }

    proptest! {
        #[test]
        fn every_value_is_finite_and_stands_for_something(received in 0_usize..9, calls in 0_usize..9, durations in proptest::collection::vec(0_u64..u64::MAX, 0..200)) {
            let meter = Arc::new(Meter::default());
            meter.received.many(received);
            meter.calls.many(calls);
            durations.iter().for_each(|us| meter.took(Duration::from_micros(*us)));
            for metric in metrics(&meter.drain()) {
                prop_assert!(!metric.values.is_empty());
                prop_assert!(metric.values.len() <= 150);
                prop_assert!(metric.values.iter().all(|(value, count)| value.is_finite() && *count > 0));
            }
        }
    }
}
