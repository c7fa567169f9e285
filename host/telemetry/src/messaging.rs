//! The metrics of OpenTelemetry's semantic conventions for messaging (version 1.44), with their
//! attributes as labels and with the queue's name in the configuration. Knows no backend.

use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::durations::{DurationSeries, SentSeries};
use dispatcher_core::telemetry::metrics::histogram::{ATTEMPT_EDGES_S, CALL_EDGES_S};
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};

const OPERATION: Metric = Metric::histogram(
    "messaging_client_operation_duration_seconds",
    "How long calls to receive, settle, extend and send took; `error_type` is why they failed, or why \
     the first of their messages did.",
    &CALL_EDGES_S,
)
.of_convention();

const SENT: Metric = Metric::counter(
    "messaging_client_sent_messages",
    Unit::Messages,
    "Messages that this program sent, for handlers, schedules and redrives; `error_type` is why they \
     were not sent.",
)
.of_convention();

const CONSUMED: Metric = Metric::counter(
    "messaging_client_consumed_messages",
    Unit::Messages,
    "Messages that were delivered to this program, redeliveries included.",
)
.of_convention();

const PROCESS: Metric = Metric::histogram(
    "messaging_process_duration_seconds",
    "How long the attempt of a message took, with the traces of some messages as exemplars; \
     `error_type` is why it failed.",
    &ATTEMPT_EDGES_S,
)
.of_convention();

const LABELS: &[&str] = &[
    "queue",
    "messaging_system",
    "messaging_destination_name",
    "messaging_operation_name",
];

const LABELS_WITH_ERROR: &[&str] = &[
    "queue",
    "messaging_system",
    "messaging_destination_name",
    "messaging_operation_name",
    "error_type",
];

/// Returns these metrics of all queues since the start. `system` returns the name of a queue's
/// messaging system.
pub fn families(
    meters: &Meters,
    sent: &[SentSeries],
    system: impl Fn(&str) -> &'static str,
) -> Vec<MetricFamily> {
    // The destination has the same name as in spans.
    let sample = |queue: &str, operation: &str, error: &str, value| {
        MetricSample::new([queue, system(queue), queue, operation, error], value)
    };
    let times = |queue: &str, operation: &str, series: Vec<DurationSeries>| {
        series
            .into_iter()
            .map(|one: DurationSeries| {
                let value = MetricValue::Times(one.samples, one.exemplars);
                sample(queue, operation, one.error, value)
            })
            .collect::<Vec<_>>()
    };
    let queues = meters.all();
    let calls = queues.iter().flat_map(|(queue, meter)| {
        let kinds = [
            ("receive", &meter.receives),
            ("settle", &meter.settlements),
            ("extend", &meter.extensions),
        ];
        kinds
            .into_iter()
            .flat_map(|(operation, durations)| times(queue, operation, durations.series()))
    });
    // All other entries only count calls that did not send.
    let sending = sent.iter().filter(|sent| !sent.messages.is_empty());
    let sends = sending.flat_map(|sent| times(&sent.queue, "send", sent.calls.clone()));
    let sent = sent.iter().flat_map(|sent| {
        let counts = sent.messages.iter();
        counts.map(|(error, count)| sample(&sent.queue, "send", error, MetricValue::Count(*count)))
    });
    let consumed = queues.iter().map(|(queue, meter)| {
        let labels = [&**queue, system(queue), &**queue, "receive"];
        MetricSample::new(labels, MetricValue::Count(meter.received.get()))
    });
    let processed = queues
        .iter()
        .flat_map(|(queue, meter)| times(queue, "process", meter.attempts.series()));
    vec![
        OPERATION.family(LABELS_WITH_ERROR, calls.chain(sends)),
        SENT.family(LABELS_WITH_ERROR, sent),
        CONSUMED.family(LABELS, consumed),
        PROCESS.family(LABELS_WITH_ERROR, processed),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::telemetry::metrics::durations::SentMessages;
    use std::time::Duration;

    /// Queue, operation, error and count of the samples of a family that are not 0.
    fn counts(family: &MetricFamily) -> Vec<String> {
        let samples = family.samples.iter().filter_map(|sample| {
            let count = match &sample.value {
                MetricValue::Count(count) => *count,
                MetricValue::Times(samples, _) => samples.count(),
                other => panic!("{other:?}"),
            };
            assert_eq!(sample.labels.len(), family.labels.len());
            assert_eq!(sample.labels[1], "dispatcher_local");
            let [queue, .., operation, error] = &sample.labels[..] else {
                panic!("{sample:?}");
            };
            (count > 0).then(|| format!("{queue} {operation} {error} {count}"))
        });
        samples.collect()
    }

    #[test]
    fn operations_and_attempts_have_the_labels_of_the_conventions() {
        let meters = Meters::new(["local:a"]);
        let meter = meters.of("local:a").expect("it was named");
        let ms = Duration::from_millis(1);
        meter.receives.record(ms, Some("unreachable"));
        meter.settlements.record(ms, None);
        meter.took(ms, Some("timeout"), None);
        let sent = SentMessages::default();
        sent.record("local:b", 1, ms, &[None, Some("refused")]);
        let families = families(&meters, &sent.all(), |_| "dispatcher_local");
        assert_eq!(
            counts(&families[0]),
            [
                "local:a receive unreachable 1",
                "local:a settle  1",
                "local:b send refused 1"
            ]
        );
        assert_eq!(
            counts(&families[1]),
            ["local:b send  1", "local:b send refused 1"]
        );
        assert_eq!(counts(&families[3]), ["local:a process timeout 1"]);
    }
}
