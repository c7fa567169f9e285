//! The metrics of one queue, each declared once, for `/metrics` and, if it has a name there, for
//! CloudWatch. Pure; the same for every exporter.

use super::histogram::{AGE_EDGES_S, ATTEMPT_EDGES_S, Samples};
use super::meter::{Interval, Totals};
use super::registry::{Metric, MetricFamily, MetricSample, MetricValue, Unit};
use super::{Meters, meter::Meter};
use crate::telemetry::events::EventKind;
use std::sync::atomic::Ordering::Relaxed;

/// The unit of a metric in CloudWatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudWatchUnit {
    /// A number of things.
    Count,
    /// A duration.
    Milliseconds,
    /// A ratio.
    None,
}

impl CloudWatchUnit {
    /// Returns CloudWatch's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Milliseconds => "Milliseconds",
            Self::None => "None",
        }
    }
}

/// A metric of one queue.
#[derive(Debug)]
pub struct QueueMetric {
    /// The declaration; the name begins with `queue_`.
    pub metric: Metric,
    /// CloudWatch's name for the measurements of an interval.
    pub cloudwatch: Option<&'static str>,
    read: MetricSource,
}

/// The source of a metric's values.
#[derive(Debug)]
enum MetricSource {
    Count(fn(&Totals) -> u64),
    Times(fn(&Totals) -> &Samples),
    /// The duration of attempts. `/metrics` has it under the name of a convention.
    Attempts,
    /// The current number; for an interval, the maximum.
    InFlight,
    /// Whether the queue is paused.
    Paused,
    /// The outcomes of deliveries, by reason.
    Events,
    /// A ratio, only for an interval. For all time, it is the ratio of two counters.
    CallsPerMessage,
}

impl QueueMetric {
    const fn count(
        name: &'static str,
        cloudwatch: Option<&'static str>,
        help: &'static str,
        read: fn(&Totals) -> u64,
    ) -> Self {
        Self {
            metric: Metric::counter(name, Unit::Messages, help),
            cloudwatch,
            read: MetricSource::Count(read),
        }
    }

    const fn times(
        name: &'static str,
        cloudwatch: &'static str,
        help: &'static str,
        read: fn(&Totals) -> &Samples,
    ) -> Self {
        Self {
            metric: Metric::histogram(name, help, &AGE_EDGES_S),
            cloudwatch: Some(cloudwatch),
            read: MetricSource::Times(read),
        }
    }

    /// Returns CloudWatch's unit for the metric.
    pub const fn cloudwatch_unit(&self) -> CloudWatchUnit {
        match self.read {
            MetricSource::Times(_) | MetricSource::Attempts => CloudWatchUnit::Milliseconds,
            MetricSource::CallsPerMessage => CloudWatchUnit::None,
            MetricSource::Count(_)
            | MetricSource::InFlight
            | MetricSource::Paused
            | MetricSource::Events => CloudWatchUnit::Count,
        }
    }

    /// Whether `/metrics` has the metric.
    pub const fn is_exposed(&self) -> bool {
        !matches!(
            self.read,
            MetricSource::Attempts | MetricSource::CallsPerMessage
        )
    }

    fn samples(&self, queue: &str, meter: &Meter, totals: &Totals) -> Vec<MetricSample> {
        let value = match self.read {
            MetricSource::Count(read) => MetricValue::Count(read(totals)),
            MetricSource::Times(read) => MetricValue::Times(read(totals).clone(), Vec::new()),
            MetricSource::InFlight => MetricValue::Level(meter.in_flight() as f64),
            MetricSource::Paused => {
                let paused = meter.paused.load(Relaxed);
                MetricValue::Level(f64::from(u8::from(paused)))
            }
            // Events that did not happen have no sample.
            MetricSource::Events => {
                let counted = meter.events.counted();
                return counted
                    .map(|(event, reason, count): (EventKind, &str, u64)| {
                        MetricSample::new([queue, event.label(), reason], MetricValue::Count(count))
                    })
                    .collect();
            }
            MetricSource::Attempts | MetricSource::CallsPerMessage => return Vec::new(),
        };
        vec![MetricSample::new([queue], value)]
    }

    /// Returns the values of an interval, each with its number of samples.
    fn values(&self, interval: &Interval) -> Vec<(f64, u64)> {
        let counts = &interval.counts;
        match self.read {
            MetricSource::Count(read) => vec![(read(counts) as f64, 1)],
            MetricSource::Times(read) => read(counts).values(),
            MetricSource::Attempts => counts.duration.values(),
            MetricSource::InFlight => vec![(interval.in_flight as f64, 1)],
            MetricSource::CallsPerMessage if counts.received > 0 => {
                vec![(counts.calls as f64 / counts.received as f64, 1)]
            }
            MetricSource::CallsPerMessage | MetricSource::Paused | MetricSource::Events => {
                Vec::new()
            }
        }
    }
}

/// All metrics of a queue, in the order in which they are published.
pub const QUEUE_METRICS: [QueueMetric; 16] = [
    QueueMetric::count(
        "queue_messages_received",
        Some("Messages"),
        "Messages received, redeliveries included.",
        |of| of.received,
    ),
    QueueMetric::count(
        "queue_messages_failed",
        Some("Failures"),
        "Messages whose attempt failed.",
        |of| of.failed,
    ),
    QueueMetric::count(
        "queue_messages_throttled",
        Some("Throttles"),
        "Messages that had to wait because the handler's dependency was busy.",
        |of| of.throttled,
    ),
    QueueMetric::count(
        "queue_messages_deferred",
        None,
        "Messages that went back to the queue for a few seconds because too many waited for limits.",
        |of| of.deferred,
    ),
    QueueMetric::count(
        "queue_messages_hastened",
        None,
        "Messages that went before all others because they had waited for the max-wait of their priority.",
        |of| of.hastened,
    ),
    QueueMetric::count(
        "queue_messages_shed",
        Some("Shed"),
        "Messages that were too old to be started: deleted, or counted as dead as well.",
        |of| of.shed,
    ),
    QueueMetric {
        metric: Metric::gauge(
            "queue_messages_running",
            Unit::Messages,
            "Messages in running attempts of this process; in CloudWatch, the maximum.",
        ),
        cloudwatch: Some("InFlight"),
        read: MetricSource::InFlight,
    },
    QueueMetric {
        metric: Metric::histogram(
            "queue_attempt_seconds",
            "How long the attempt of a message took: `messaging_process_duration_seconds` of `/metrics`.",
            &ATTEMPT_EDGES_S,
        ),
        cloudwatch: Some("Duration"),
        read: MetricSource::Attempts,
    },
    QueueMetric::times(
        "queue_message_age_seconds",
        "Age",
        "How long ago a message had been sent when it was received.",
        |of| &of.age,
    ),
    QueueMetric {
        metric: Metric::gauge(
            "queue_calls_per_message",
            Unit::Calls,
            "Calls to the queue for each message received.",
        ),
        cloudwatch: Some("CallsPerMessage"),
        read: MetricSource::CallsPerMessage,
    },
    QueueMetric::count(
        "queue_messages_done",
        None,
        "Messages that were handled and deleted.",
        |of| of.done,
    ),
    QueueMetric::count(
        "queue_messages_dead_lettered",
        Some("DeadLetters"),
        "Messages that were dead-lettered, by this program or by the queue's redrive policy.",
        |of| of.dead,
    ),
    QueueMetric::count(
        "queue_leases_lost",
        None,
        "Leases that expired, or were taken away, before their message was settled.",
        |of| of.lost,
    ),
    QueueMetric {
        metric: Metric::counter(
            "queue_calls",
            Unit::Calls,
            "Calls to receive, settle and extend.",
        ),
        cloudwatch: None,
        read: MetricSource::Count(|of| of.calls),
    },
    QueueMetric {
        metric: Metric::gauge(
            "queue_paused",
            Unit::Switch,
            "Whether nothing is received from the queue because an operator has paused it.",
        ),
        cloudwatch: None,
        read: MetricSource::Paused,
    },
    QueueMetric {
        metric: Metric::counter(
            "queue_events",
            Unit::Messages,
            "Deliveries by outcome and reason.",
        ),
        cloudwatch: None,
        read: MetricSource::Events,
    },
];

/// Returns the metrics of all queues since the start.
pub fn families(meters: &Meters) -> Vec<MetricFamily> {
    let queues: Vec<_> = meters
        .all()
        .into_iter()
        .map(|(name, meter)| {
            let totals = meter.totals();
            (name, meter, totals)
        })
        .collect();
    let exposed = QUEUE_METRICS.iter().filter(|one| one.is_exposed());
    exposed
        .map(|one: &QueueMetric| {
            let labels: &[_] = match one.read {
                MetricSource::Events => &["queue", "event", "reason"],
                _ => &["queue"],
            };
            let queues = queues.iter();
            let samples = queues.flat_map(|(name, meter, totals)| one.samples(name, meter, totals));
            one.metric.family(labels, samples)
        })
        .collect()
}

/// One metric of one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Datapoint {
    /// The name in CloudWatch.
    pub name: &'static str,
    /// The unit in CloudWatch.
    pub unit: CloudWatchUnit,
    /// The values, each with its number of samples. There is at least one value; all are finite; no
    /// number of samples is 0.
    pub values: Vec<(f64, u64)>,
}

/// Returns the data points of one interval for CloudWatch. Counts are included even if they are 0,
/// so that an alarm can tell a queue without messages from a stopped program. Metrics without a
/// value are left out.
pub fn datapoints(interval: &Interval) -> Vec<Datapoint> {
    let points = QUEUE_METRICS.iter().filter_map(|one| {
        Some(Datapoint {
            name: one.cloudwatch?,
            unit: one.cloudwatch_unit(),
            values: one.values(interval),
        })
    });
    points.filter(|point| !point.values.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::meter::Meter;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn idle_queue_reports_only_its_counts() {
        let names: Vec<&str> = datapoints(&Interval::default())
            .iter()
            .map(|metric| metric.name)
            .collect();
        assert_eq!(
            names,
            [
                "Messages",
                "Failures",
                "Throttles",
                "Shed",
                "InFlight",
                "DeadLetters"
            ]
        );
    }

    #[test]
    fn calls_are_per_message() {
        let meter = Arc::new(Meter::default());
        meter.received.many(10);
        meter.calls.many(2);
        let metrics = datapoints(&meter.drain());
        let found = metrics.iter().find(|one| one.name == "CallsPerMessage");
        let calls = found.expect("messages were received");
        assert_eq!(calls.unit, CloudWatchUnit::None);
        assert_eq!(calls.values, [(0.2, 1)]);
    }

    proptest! {
        #[test]
        fn every_value_is_finite_and_defined(received in 0_usize..9, calls in 0_usize..9, durations in proptest::collection::vec(0_u64..u64::MAX, 0..200)) {
            let meter = Arc::new(Meter::default());
            meter.received.many(received);
            meter.calls.many(calls);
            durations.iter().for_each(|us| meter.took(Duration::from_micros(*us), None, None));
            for metric in datapoints(&meter.drain()) {
                prop_assert!(!metric.values.is_empty());
                prop_assert!(metric.values.len() <= 150);
                prop_assert!(metric.values.iter().all(|(value, count)| value.is_finite() && *count > 0));
            }
        }
    }
}
