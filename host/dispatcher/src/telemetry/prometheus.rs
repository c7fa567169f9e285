//! Writes metrics for Prometheus: OpenMetrics text, version 1.0.0. Knows no metric.

use dispatcher_core::telemetry::metrics::histogram::Samples;
use dispatcher_core::telemetry::metrics::registry::{
    MetricFamily, MetricKind, MetricSample, MetricValue, Unit,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as NamedUnit};
use std::fmt;

/// The type of the text, for whoever serves it.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All that have a sample, in lines.
pub fn text(families: Vec<MetricFamily>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[derive(Debug)]
struct Families(Vec<MetricFamily>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let families = self.0.iter();
        families
            .filter(|family| !family.samples.is_empty())
            .try_for_each(|family| encode(family, &mut encoder))
    }
}

fn encode(family: &MetricFamily, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let metric = &family.metric;
    let name = format!("dispatcher_{}", metric.name);
    // The format adds the unit to the name itself.
    let (unit, suffix) = match metric.unit {
        Unit::Seconds => (Some(NamedUnit::Seconds), "_seconds"),
        Unit::Bytes => (Some(NamedUnit::Bytes), "_bytes"),
        _ => (None, ""),
    };
    let name = name.strip_suffix(suffix).unwrap_or(&name);
    let kind = match metric.kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    };
    let mut encoder = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
    for MetricSample { labels, value } in &family.samples {
        if labels.is_empty() {
            write(value, &mut encoder)?;
        } else {
            let named = family.labels.iter().copied().zip(labels.iter().cloned());
            let labels: Vec<(&str, String)> = named.collect();
            write(value, &mut encoder.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn write(value: &MetricValue, encoder: &mut MetricEncoder) -> fmt::Result {
    match value {
        MetricValue::Count(count) => encoder.encode_counter::<NoLabelSet, _, u64>(count, None),
        // Most are whole numbers, which read better as such.
        MetricValue::Level(level) if level.fract() == 0.0 => encoder.encode_gauge(&whole(*level)),
        MetricValue::Level(level) => encoder.encode_gauge(level),
        MetricValue::Times(samples) => {
            let (sum, count) = (samples.sum().as_secs_f64(), samples.count());
            encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets(samples), None)
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "it has no fraction, and none is anywhere near 2^63"
)]
fn whole(level: f64) -> i64 {
    level as i64
}

/// The upper edge of each bucket in seconds, and what is in it alone.
fn buckets(samples: &Samples) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut bucket = |edge: f64, until: u64| {
        let count = until.saturating_sub(below);
        below = until;
        (edge, count)
    };
    let edges = samples.cumulative();
    let mut buckets: Vec<(f64, u64)> = edges
        .map(|(edge, until)| bucket(edge.as_secs_f64(), until))
        .collect();
    buckets.push(bucket(f64::INFINITY, samples.count()));
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::registry::Registry;
    use dispatcher_core::telemetry::counters::Counters;
    use dispatcher_core::telemetry::events::{EventKind, ReasonKind};
    use dispatcher_core::telemetry::metrics::Meters;
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn every_count_has_a_line() {
        let meters = Meters::new(["local:a\"b"]);
        let meter = meters.of("local:a\"b").expect("it was named");
        meter.received.many(2);
        meter.took(Duration::from_micros(3_250));
        meter
            .events
            .add(EventKind::Retried, Some(ReasonKind::Timeout), 4);
        let _held = meter.hold(1);
        let counters = Counters::default();
        counters.received.many(2);
        let _running = counters.running.hold();
        let registry = Registry {
            meters: Arc::new(meters),
            ..Registry::default()
        };
        let families = [counters.families(), registry.families()].concat();
        let text = text(families);
        for line in [
            "dispatcher_received_total 2",
            "dispatcher_running 1",
            "dispatcher_failed_calls_total 0",
            "dispatcher_queue_received_total{queue=\"local:a\\\"b\"} 2",
            "dispatcher_queue_in_flight{queue=\"local:a\\\"b\"} 1",
            "dispatcher_queue_events_total{queue=\"local:a\\\"b\",event=\"retried\",reason=\"timeout\"} 4",
            "# UNIT dispatcher_queue_attempt_seconds seconds",
            "dispatcher_queue_attempt_seconds_bucket{le=\"0.000001\",queue=\"local:a\\\"b\"} 0",
            "dispatcher_queue_attempt_seconds_bucket{le=\"+Inf\",queue=\"local:a\\\"b\"} 1",
            "dispatcher_queue_attempt_seconds_sum{queue=\"local:a\\\"b\"} 0.00325",
            "dispatcher_queue_age_seconds_count{queue=\"local:a\\\"b\"} 0",
        ] {
            assert!(
                text.lines().any(|other| other == line),
                "{line} not in\n{text}"
            );
        }
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }
}
