//! The metrics of one queue, each declared once: for `/metrics` and, where it has a name there, for
//! CloudWatch. Pure; the same for every exporter.

use super::histogram::Samples;
use super::meter::{Interval, Totals};
use super::registry::{Metric, MetricFamily, MetricSample, MetricValue, Unit};
use super::{Meters, meter::Meter};
use crate::telemetry::events::EventKind;
use std::sync::atomic::Ordering::Relaxed;

/// The unit of a metric, as CloudWatch names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudWatchUnit {
    /// So many.
    Count,
    /// A time.
    Milliseconds,
    /// A ratio.
    None,
}

impl CloudWatchUnit {
    /// CloudWatch's word.
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
    /// Its declaration; its name has `queue_` before it.
    pub metric: Metric,
    /// CloudWatch's name for what was measured in an interval.
    pub cloudwatch: Option<&'static str>,
    read: Read,
}

/// Where a metric's values are.
#[derive(Debug)]
enum Read {
    Count(fn(&Totals) -> u64),
    Times(fn(&Totals) -> &Samples),
    /// How many there are now; of an interval, the most there were.
    InFlight,
    /// Whether it is paused.
    Paused,
    /// Each end of a delivery, by reason.
    Events,
    /// Of an interval alone: of all time, it is a ratio of two counters.
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
            read: Read::Count(read),
        }
    }

    const fn renamed_from(self, former: &'static str) -> Self {
        Self {
            metric: self.metric.renamed_from(former),
            ..self
        }
    }

    const fn times(
        name: &'static str,
        cloudwatch: &'static str,
        help: &'static str,
        read: fn(&Totals) -> &Samples,
    ) -> Self {
        Self {
            metric: Metric::histogram(name, help),
            cloudwatch: Some(cloudwatch),
            read: Read::Times(read),
        }
    }

    /// CloudWatch's unit for it.
    pub const fn cloudwatch_unit(&self) -> CloudWatchUnit {
        match self.read {
            Read::Times(_) => CloudWatchUnit::Milliseconds,
            Read::CallsPerMessage => CloudWatchUnit::None,
            Read::Count(_) | Read::InFlight | Read::Paused | Read::Events => CloudWatchUnit::Count,
        }
    }

    /// Whether `/metrics` has it.
    pub const fn is_exposed(&self) -> bool {
        !matches!(self.read, Read::CallsPerMessage)
    }

    fn samples(&self, queue: &str, meter: &Meter, totals: &Totals) -> Vec<MetricSample> {
        let one = |value| vec![MetricSample::new([queue], value)];
        match self.read {
            Read::Count(read) => one(MetricValue::Count(read(totals))),
            Read::Times(read) => one(MetricValue::Times(read(totals).clone(), Vec::new())),
            Read::InFlight => one(MetricValue::Level(meter.in_flight() as f64)),
            Read::Paused => {
                let paused = meter.paused.load(Relaxed);
                one(MetricValue::Level(f64::from(u8::from(paused))))
            }
            // What did not happen has no sample.
            Read::Events => {
                let counted = meter.events.counted();
                let sample = |(event, reason, count): (EventKind, &str, u64)| {
                    MetricSample::new([queue, event.label(), reason], MetricValue::Count(count))
                };
                counted.map(sample).collect()
            }
            Read::CallsPerMessage => Vec::new(),
        }
    }

    /// Values of an interval, each with how often it was seen.
    fn values(&self, interval: &Interval) -> Vec<(f64, u64)> {
        let counts = &interval.counts;
        match self.read {
            Read::Count(read) => vec![(read(counts) as f64, 1)],
            Read::Times(read) => read(counts).values(),
            Read::InFlight => vec![(interval.in_flight as f64, 1)],
            Read::CallsPerMessage if counts.received > 0 => {
                vec![(counts.calls as f64 / counts.received as f64, 1)]
            }
            Read::CallsPerMessage | Read::Paused | Read::Events => Vec::new(),
        }
    }
}

/// All metrics of a queue, in the order in which they are published.
pub const QUEUE_METRICS: [QueueMetric; 14] = [
    QueueMetric::count(
        "queue_messages_received",
        Some("Messages"),
        "Messages received, redeliveries included.",
        |of| of.received,
    )
    .renamed_from("queue_received"),
    QueueMetric::count(
        "queue_messages_failed",
        Some("Failures"),
        "Messages whose attempt failed.",
        |of| of.failed,
    )
    .renamed_from("queue_failed"),
    QueueMetric::count(
        "queue_messages_throttled",
        Some("Throttles"),
        "Messages that had to wait because the handler's dependency was busy.",
        |of| of.throttled,
    )
    .renamed_from("queue_throttled"),
    QueueMetric::count(
        "queue_messages_shed",
        Some("Shed"),
        "Messages that were too old to be started: deleted, or counted as dead as well.",
        |of| of.shed,
    )
    .renamed_from("queue_shed"),
    QueueMetric {
        metric: Metric::gauge(
            "queue_messages_running",
            Unit::Messages,
            "Messages in running attempts of this process; in CloudWatch, the maximum.",
        )
        .renamed_from("queue_in_flight"),
        cloudwatch: Some("InFlight"),
        read: Read::InFlight,
    },
    QueueMetric::times(
        "queue_attempt_seconds",
        "Duration",
        "How long the attempt of a message took; deprecated in `/metrics`, where \
         `messaging_process_duration_seconds` has the same.",
        |of| &of.duration,
    ),
    QueueMetric::times(
        "queue_message_age_seconds",
        "Age",
        "How long ago a message had been sent when it was received.",
        |of| &of.age,
    )
    .renamed_from("queue_age_seconds"),
    QueueMetric {
        metric: Metric::gauge(
            "queue_calls_per_message",
            Unit::Calls,
            "Calls to the queue for each message received.",
        ),
        cloudwatch: Some("CallsPerMessage"),
        read: Read::CallsPerMessage,
    },
    QueueMetric::count(
        "queue_messages_done",
        None,
        "Messages that were handled and deleted.",
        |of| of.done,
    )
    .renamed_from("queue_done"),
    QueueMetric::count(
        "queue_messages_dead_lettered",
        None,
        "Messages that were dead-lettered, by this program or by the queue's redrive policy.",
        |of| of.dead,
    )
    .renamed_from("queue_dead"),
    QueueMetric::count(
        "queue_leases_lost",
        None,
        "Leases that expired, or were taken away, before their message was settled.",
        |of| of.lost,
    )
    .renamed_from("queue_lost"),
    QueueMetric {
        metric: Metric::counter(
            "queue_calls",
            Unit::Calls,
            "Calls to receive, settle and extend.",
        ),
        cloudwatch: None,
        read: Read::Count(|of| of.calls),
    },
    QueueMetric {
        metric: Metric::gauge(
            "queue_paused",
            Unit::Switch,
            "Whether nothing is received from the queue because an operator has paused it.",
        ),
        cloudwatch: None,
        read: Read::Paused,
    },
    QueueMetric {
        metric: Metric::counter(
            "queue_events",
            Unit::Messages,
            "Deliveries by outcome and reason.",
        ),
        cloudwatch: None,
        read: Read::Events,
    },
];

/// The metrics of all queues since the start.
pub fn families(meters: &Meters) -> Vec<MetricFamily> {
    let queues = meters.iter();
    let queues: Vec<_> = queues
        .map(|(name, meter)| (name, meter, meter.totals()))
        .collect();
    let exposed = QUEUE_METRICS.iter().filter(|one| one.is_exposed());
    let family = |one: &QueueMetric| {
        let labels: &[_] = match one.read {
            Read::Events => &["queue", "event", "reason"],
            _ => &["queue"],
        };
        let queues = queues.iter();
        let samples = queues.flat_map(|(name, meter, totals)| one.samples(name, meter, totals));
        one.metric.family(labels, samples)
    };
    exposed.map(family).collect()
}

/// One metric of one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Datapoint {
    /// CloudWatch's name of it.
    pub name: &'static str,
    /// How it is counted.
    pub unit: CloudWatchUnit,
    /// Values, each with how often it was seen. At least one; all finite; no count is 0.
    pub values: Vec<(f64, u64)>,
}

/// What CloudWatch is sent of one interval. Counts are there also if they are 0, so that an alarm can
/// tell a queue without messages from a program that has stopped; what has no value is left out.
pub fn datapoints(interval: &Interval) -> Vec<Datapoint> {
    let point = |one: &QueueMetric| {
        let values = one.values(interval);
        Some(Datapoint {
            name: one.cloudwatch?,
            unit: one.cloudwatch_unit(),
            values,
        })
    };
    let points = QUEUE_METRICS.iter().filter_map(point);
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
            ["Messages", "Failures", "Throttles", "Shed", "InFlight"]
        );
    }

    #[test]
    fn calls_are_per_message() {
        let meter = Arc::new(Meter::default());
        meter.received.many(10);
        meter.calls.many(2);
        let metrics = datapoints(&meter.drain());
        let calls = metrics.last().expect("the ratio comes last");
        assert_eq!(
            (calls.name, calls.unit),
            ("CallsPerMessage", CloudWatchUnit::None)
        );
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
