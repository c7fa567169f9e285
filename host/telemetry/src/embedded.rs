//! Formats reports as lines of CloudWatch's Embedded Metric Format, for CloudWatch Logs. Pure,
//! except for the sink at the end, which writes the lines.

use super::publish::{PublishedRow, SendError, Sink, rows};
use async_trait::async_trait;
use dispatcher_core::tasks;
use dispatcher_core::telemetry::metrics::Report;
use dispatcher_core::telemetry::metrics::queue::Datapoint;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::Arc;

/// The maximum number of values per metric and line in this format.
const MOST_VALUES: u64 = 100;

/// Returns one JSON object per queue and route, and one for all of them, whose metrics have no
/// dimension. The format has values but no counts. Up to 100 samples are written one by one; more
/// are represented by 100 of them at even ranks. Percentiles stay accurate to a hundredth. The
/// metric's `SampleCount` and `Sum` do not; use `Messages` instead.
pub fn lines(namespace: &str, resolution_s: u8, report: &Report) -> Vec<String> {
    let rows = rows(report).into_iter();
    rows.map(|row| line(namespace, resolution_s, report.at.0, &row))
        .collect()
}

fn line(namespace: &str, resolution_s: u8, at_ms: u64, row: &PublishedRow<'_>) -> String {
    let PublishedRow { dimension, points } = row;
    let dimensions: Vec<&str> = dimension.iter().map(|(name, _)| *name).collect();
    let mut members = Map::new();
    members.insert(
        "_aws".into(),
        json!({
            "Timestamp": at_ms,
            "CloudWatchMetrics": [{
                "Namespace": namespace,
                "Dimensions": [dimensions],
                "Metrics": points.iter().map(|metric: &Datapoint| json!({"Name": metric.name, "Unit": metric.unit.name(), "StorageResolution": resolution_s})).collect::<Vec<_>>(),
            }],
        }),
    );
    if let Some((name, value)) = dimension {
        members.insert((*name).into(), (*value).into());
    }
    for metric in points {
        members.insert(metric.name.into(), value(&metric.values));
    }
    Value::Object(members).to_string()
}

/// Returns one value as a number, several as an array.
fn value(values: &[(f64, u64)]) -> Value {
    match values {
        [(value, 1)] => json!(value),
        _ => json!(spread(values)),
    }
}

/// Returns each value as often as it occurred, up to 100 samples in total, or else 100 samples at
/// even ranks. `values` must be in ascending order.
fn spread(values: &[(f64, u64)]) -> Vec<f64> {
    let samples: u64 = values.iter().map(|(_, count)| count).sum();
    let wanted = samples.min(MOST_VALUES);
    let mut spread = Vec::new();
    let mut seen = 0;
    let mut next = 0;
    for (value, count) in values {
        seen += count;
        // The middle of the next hundredth or, with fewer samples, the next sample.
        while next < wanted && rank(next, wanted, samples) < seen {
            spread.push(*value);
            next += 1;
        }
    }
    spread
}

/// Returns the index of the sample that represents the part `index` of `parts`.
fn rank(index: u64, parts: u64, samples: u64) -> u64 {
    let middle = u128::from(2 * index + 1) * u128::from(samples) / u128::from(2 * parts);
    u64::try_from(middle).unwrap_or(u64::MAX)
}

/// A sink that writes reports as such lines.
#[derive(Debug)]
pub struct EmbeddedMetrics<W> {
    namespace: String,
    resolution_s: u8,
    out: Arc<Mutex<W>>,
}

impl<W: Write> EmbeddedMetrics<W> {
    /// Creates a sink for a namespace. `out` is stdout except in tests.
    pub fn new(namespace: impl Into<String>, resolution_s: u8, out: W) -> Self {
        Self {
            namespace: namespace.into(),
            resolution_s,
            out: Arc::new(Mutex::new(out)),
        }
    }
}

#[async_trait]
impl<W: Write + Send + Sync + 'static> Sink for EmbeddedMetrics<W> {
    type Part = String;

    fn parts(&self, report: Report) -> Vec<String> {
        // One write, so that no other line comes in between.
        let lines = lines(&self.namespace, self.resolution_s, &report);
        vec![lines.join("\n") + "\n"]
    }

    async fn send(&self, part: &String) -> Result<(), SendError> {
        let (out, part) = (Arc::clone(&self.out), part.clone());
        // The write is on a separate thread, so that a slow reader does not delay the extension of
        // leases.
        let written = tasks::blocking(move || {
            let mut out = out.lock();
            out.write_all(part.as_bytes()).and_then(|()| out.flush())
        });
        // A retry would repeat a line that was partly written.
        written
            .finished()
            .await
            .map_err(|error| SendError::Refused(format!("cannot write metrics: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::clock::Timestamp;
    use dispatcher_core::telemetry::metrics::Meters;
    use proptest::prelude::*;
    use std::time::Duration;

    #[tokio::test]
    async fn embedded_metrics_have_a_line_per_queue_and_one_in_total() {
        let meters = Meters::new(["sqs:a"]);
        let meter = meters.of("sqs:a").expect("a");
        meter.received.many(2);
        meter.calls.one();
        meter.took(Duration::ZERO, None, None);
        meter.took(Duration::ZERO, None, None);
        let sink = EmbeddedMetrics::new("Dispatcher-test", 60, Vec::new());
        let parts = sink.parts(meters.drain(Timestamp(5)));
        sink.send(&parts[0]).await.expect("memory takes it");
        let text = String::from_utf8(sink.out.lock().clone()).expect("JSON");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 2);
        let directive = &lines[0]["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(lines[0]["_aws"]["Timestamp"], 5);
        assert_eq!(directive["Namespace"], "Dispatcher-test");
        assert_eq!(directive["Dimensions"], json!([["Queue"]]));
        assert_eq!(
            directive["Metrics"][0],
            json!({"Name": "Messages", "Unit": "Count", "StorageResolution": 60})
        );
        assert_eq!(lines[0]["Queue"], "sqs:a");
        assert_eq!(lines[0]["Messages"], 2.0);
        assert_eq!(lines[0]["CallsPerMessage"], 0.5);
        assert_eq!(lines[0]["Duration"], json!([0.0, 0.0]));
        let total = &lines[1];
        assert_eq!(
            total["_aws"]["CloudWatchMetrics"][0]["Dimensions"],
            json!([[]])
        );
        assert!(total.get("Queue").is_none());
    }

    proptest! {
        #[test]
        fn large_samples_are_thinned_evenly(counts in proptest::collection::vec(1_u64..1_000_000, 1..150)) {
            let values: Vec<(f64, u64)> = counts.iter().enumerate().map(|(at, count)| (at as f64, *count)).collect();
            let samples: u64 = counts.iter().sum();
            let spread = spread(&values);
            prop_assert_eq!(spread.len() as u64, samples.min(100));
            prop_assert!(spread.is_sorted());
            // No value's share is off by more than the one sample that it may begin or end with.
            for (value, count) in &values {
                let shown = spread.iter().filter(|shown| (*shown - value).abs() < 0.5).count() as f64;
                let wanted = *count as f64 * spread.len() as f64 / samples as f64;
                prop_assert!((shown - wanted).abs() <= 1.0, "{} instead of {}", shown, wanted);
            }
        }
    }

    #[test]
    fn small_samples_are_written_completely() {
        assert_eq!(spread(&[(1.0, 2), (7.0, 1)]), [1.0, 1.0, 7.0]);
    }
}
