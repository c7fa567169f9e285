//! Counters and meters as Prometheus reads them: its text format, version 0.0.4. Pure.

use dispatcher_core::telemetry::counters::Snapshot;
use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::histogram::Samples;
use dispatcher_core::telemetry::metrics::meter::{Meter, Totals};
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::Arc;

/// The type of the text, for whoever serves it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A count by queue: its name, what it is, and how it is read.
type Count = (&'static str, &'static str, fn(&Totals) -> u64);

const COUNTS: [Count; 8] = [
    (
        "received",
        "Messages received, redeliveries included.",
        |of| of.received,
    ),
    ("done", "Messages that were handled and deleted.", |of| {
        of.done
    }),
    ("failed", "Messages whose attempt failed.", |of| of.failed),
    (
        "throttled",
        "Messages that what stands behind the handler had no room for.",
        |of| of.throttled,
    ),
    (
        "dead",
        "Messages that were dead-lettered, by this program or by the queue's redrive policy.",
        |of| of.dead,
    ),
    (
        "shed",
        "Messages that were too old to be started: deleted, or among the dead as well.",
        |of| of.shed,
    ),
    (
        "lost",
        "Leases that ran out, or were taken away, before their message was settled.",
        |of| of.lost,
    ),
    ("calls", "Calls to receive, settle and extend.", |of| {
        of.calls
    }),
];

/// A histogram by queue.
type Times = (&'static str, &'static str, fn(&Totals) -> &Samples);

const TIMES: [Times; 2] = [
    (
        "attempt_seconds",
        "How long the attempt of a message took.",
        |of| &of.duration,
    ),
    (
        "age_seconds",
        "How long ago a message had been sent when it was received.",
        |of| &of.age,
    ),
];

/// Everything that is counted, in lines. Names begin with `dispatcher_`, those of single queues
/// with `dispatcher_queue_`; times are in seconds. `tasks`: how many are alive.
pub fn text(snapshot: &Snapshot, meters: &Meters, tasks: usize) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = process(&mut out, snapshot)
        .and_then(|()| {
            writeln!(
                out,
                "# HELP dispatcher_tasks Tasks that are alive on the control runtime.\n\
                 # TYPE dispatcher_tasks gauge\ndispatcher_tasks {tasks}"
            )
        })
        .and_then(|()| queues(&mut out, meters));
    out
}

fn process(out: &mut String, snapshot: &Snapshot) -> std::fmt::Result {
    // The snapshot names its own members, so that none can be forgotten here.
    let members = serde_json::to_value(snapshot).unwrap_or_default();
    let members = members.as_object().into_iter().flatten();
    for (name, count) in members.filter_map(|(name, value)| Some((name, Value::as_u64(value)?))) {
        match name.as_str() {
            "running" => writeln!(
                out,
                "# TYPE dispatcher_running gauge\ndispatcher_running {count}"
            )?,
            _ => writeln!(
                out,
                "# TYPE dispatcher_{name}_total counter\ndispatcher_{name}_total {count}"
            )?,
        }
    }
    Ok(())
}

fn queues(out: &mut String, meters: &Meters) -> std::fmt::Result {
    let queues: Vec<(String, &Arc<Meter>, Totals)> = meters
        .iter()
        .map(|(name, meter)| (escaped(name), meter, meter.totals()))
        .collect();
    for (name, help, count) in COUNTS {
        let name = format!("dispatcher_queue_{name}_total");
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter")?;
        for (queue, _, totals) in &queues {
            writeln!(out, "{name}{{queue=\"{queue}\"}} {}", count(totals))?;
        }
    }
    events(out, &queues)?;
    let name = "dispatcher_queue_in_flight";
    writeln!(
        out,
        "# HELP {name} Messages in flight now.\n# TYPE {name} gauge"
    )?;
    for (queue, meter, _) in &queues {
        writeln!(out, "{name}{{queue=\"{queue}\"}} {}", meter.in_flight())?;
    }
    for (name, help, samples) in TIMES {
        let name = format!("dispatcher_queue_{name}");
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram")?;
        for (queue, _, totals) in &queues {
            histogram(out, &name, queue, samples(totals))?;
        }
    }
    Ok(())
}

/// Each end of a delivery, by reason. What did not happen has no line.
fn events(out: &mut String, queues: &[(String, &Arc<Meter>, Totals)]) -> std::fmt::Result {
    let name = "dispatcher_queue_events_total";
    writeln!(
        out,
        "# HELP {name} Deliveries by how they ended and why.\n# TYPE {name} counter"
    )?;
    for (queue, meter, _) in queues {
        for (event, reason, count) in meter.events.counted() {
            let event = event.label();
            writeln!(
                out,
                "{name}{{queue=\"{queue}\",event=\"{event}\",reason=\"{reason}\"}} {count}"
            )?;
        }
    }
    Ok(())
}

fn histogram(out: &mut String, name: &str, queue: &str, samples: &Samples) -> std::fmt::Result {
    for (edge, below) in samples.cumulative() {
        let edge = edge.as_secs_f64();
        writeln!(
            out,
            "{name}_bucket{{queue=\"{queue}\",le=\"{edge:.9}\"}} {below}"
        )?;
    }
    let (count, sum) = (samples.count(), samples.sum().as_secs_f64());
    writeln!(
        out,
        "{name}_bucket{{queue=\"{queue}\",le=\"+Inf\"}} {count}"
    )?;
    writeln!(out, "{name}_sum{{queue=\"{queue}\"}} {sum}")?;
    writeln!(out, "{name}_count{{queue=\"{queue}\"}} {count}")
}

/// A label's value, as the format wants it between its quotes.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::telemetry::events::{EventKind, ReasonKind};
    use std::time::Duration;

    #[test]
    fn every_count_has_a_line() {
        let meters = Meters::new(["local:a\"b"]);
        let meter = meters.of("local:a\"b").expect("it was named");
        meter.received.many(2);
        meter.took(Duration::from_micros(3_250));
        meter
            .events
            .add(EventKind::Retried, Some(ReasonKind::Timeout), 4);
        let _held = meter.hold(1);
        let snapshot = Snapshot {
            received: 2,
            running: 1,
            ..Snapshot::default()
        };
        let text = text(&snapshot, &meters, 5);
        for line in [
            "dispatcher_received_total 2",
            "dispatcher_running 1",
            "dispatcher_tasks 5",
            "dispatcher_failed_calls_total 0",
            "dispatcher_queue_received_total{queue=\"local:a\\\"b\"} 2",
            "dispatcher_queue_in_flight{queue=\"local:a\\\"b\"} 1",
            "dispatcher_queue_events_total{queue=\"local:a\\\"b\",event=\"retried\",reason=\"timeout\"} 4",
            "dispatcher_queue_attempt_seconds_bucket{queue=\"local:a\\\"b\",le=\"0.000001000\"} 0",
            "dispatcher_queue_attempt_seconds_bucket{queue=\"local:a\\\"b\",le=\"+Inf\"} 1",
            "dispatcher_queue_attempt_seconds_sum{queue=\"local:a\\\"b\"} 0.00325",
            "dispatcher_queue_age_seconds_count{queue=\"local:a\\\"b\"} 0",
        ] {
            assert!(
                text.lines().any(|other| other == line),
                "{line} not in\n{text}"
            );
        }
    }

    #[test]
    fn each_name_is_declared_once_and_before_its_values() {
        let text = text(&Snapshot::default(), &Meters::new(["a", "b"]), 0);
        let declared: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        let mut sorted = declared.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), declared.len());
    }
}
