//! Metrics that the semantic conventions of OpenTelemetry for messaging name (version 1.44), with their
//! attributes as labels and with the queue as people write it. Knows no backend.

use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use std::collections::HashMap;

/// What is known of a queue from its name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct QueueFact {
    /// `messaging.system`.
    pub system: &'static str,
    /// Whether its depth is asked for unless that is turned off.
    pub has_cheap_depth: bool,
    /// What a million calls cost in US dollars, where they are billed.
    pub dollars_per_million_calls: Option<f64>,
}

/// What is known of queues from their names.
pub(crate) type QueueFacts = HashMap<String, QueueFact>;

const CONSUMED: Metric = Metric::counter(
    "messaging_client_consumed_messages",
    Unit::Messages,
    "Messages that were delivered to this program, redeliveries included.",
)
.of_convention();

const PROCESS: Metric = Metric::histogram(
    "messaging_process_duration_seconds",
    "How long the attempt of a message took, with the traces of some messages as exemplars.",
)
.of_convention();

const LABELS: &[&str] = &[
    "queue",
    "messaging_system",
    "messaging_destination_name",
    "messaging_operation_name",
];

/// These metrics of all queues since the start.
pub(crate) fn families(meters: &Meters, facts: &QueueFacts) -> Vec<MetricFamily> {
    let family = |metric: Metric, operation: &str, value: fn(&Meter) -> MetricValue| {
        let sample = |(queue, meter): (&std::sync::Arc<str>, &std::sync::Arc<Meter>)| {
            let system = facts.get(&**queue).map(|fact| fact.system);
            let queue = &**queue;
            // The destination is named as in spans.
            let labels = [queue, system.unwrap_or_default(), queue, operation];
            MetricSample::new(labels, value(meter))
        };
        metric.family(LABELS, meters.iter().map(sample))
    };
    vec![
        family(CONSUMED, "receive", |meter| {
            MetricValue::Count(meter.received.get())
        }),
        family(PROCESS, "process", |meter| {
            MetricValue::Times(meter.durations(), meter.exemplars())
        }),
    ]
}
