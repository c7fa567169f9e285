//! Formats reports as lines of CloudWatch's Embedded Metric Format, to be shipped to CloudWatch
//! Logs. Pure, except for the sink at the end, which writes them.

use super::publish::{SendError, Sink};
use async_trait::async_trait;
use dispatcher_core::tasks;
use dispatcher_core::telemetry::metrics::Report;
use dispatcher_core::telemetry::metrics::meter::Interval;
use dispatcher_core::telemetry::metrics::queue::{Datapoint, datapoints};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// The format's maximum of values per metric and line.
const MOST_VALUES: u64 = 100;

/// One JSON object per queue, and one for all of them, whose metrics have no dimension. The format
/// has values but no counts of them: up to 100 samples are written one by one, more are represented
/// by 100 of them at even ranks. Percentiles then stay true to a hundredth; the metric's
/// `SampleCount` and `Sum` do not, for which there is `Messages`.
pub(crate) fn lines(namespace: &str, resolution_s: u8, report: &Report) -> Vec<String> {
    let rows = report.rows();
    rows.map(|(queue, interval)| {
        let queue = queue.map(|name| &**name);
        line(namespace, resolution_s, report.at.0, queue, interval)
    })
    .collect()
}

fn line(
    namespace: &str,
    resolution_s: u8,
    at_ms: u64,
    queue: Option<&str>,
    interval: &Interval,
) -> String {
    let metrics = datapoints(interval);
    let definition = |metric: &Datapoint| json!({"Name": metric.name, "Unit": metric.unit.name(), "StorageResolution": resolution_s});
    let dimensions: Vec<&str> = queue.iter().map(|_| "Queue").collect();
    let mut members = Map::new();
    members.insert(
        "_aws".into(),
        json!({
            "Timestamp": at_ms,
            "CloudWatchMetrics": [{
                "Namespace": namespace,
                "Dimensions": [dimensions],
                "Metrics": metrics.iter().map(definition).collect::<Vec<_>>(),
            }],
        }),
    );
    if let Some(queue) = queue {
        members.insert("Queue".into(), queue.into());
    }
    for metric in &metrics {
        members.insert(metric.name.into(), value(&metric.values));
    }
    Value::Object(members).to_string()
}

/// One value as a number, more as an array.
fn value(values: &[(f64, u64)]) -> Value {
    match values {
        [(value, 1)] => json!(value),
        _ => json!(spread(values)),
    }
}

/// Each value as often as it was seen, if that is 100 times together at most; else 100 samples at
/// even ranks. `values` rise.
fn spread(values: &[(f64, u64)]) -> Vec<f64> {
    let samples: u64 = values.iter().map(|(_, count)| count).sum();
    let wanted = samples.min(MOST_VALUES);
    let mut spread = Vec::new();
    let mut seen = 0;
    let mut next = 0;
    for (value, count) in values {
        seen += count;
        // The middle of the next hundredth; with fewer samples, the next of them.
        while next < wanted && rank(next, wanted, samples) < seen {
            spread.push(*value);
            next += 1;
        }
    }
    spread
}

/// Which sample, counted from 0, represents the part `index` of `parts`.
fn rank(index: u64, parts: u64, samples: u64) -> u64 {
    let middle = u128::from(2 * index + 1) * u128::from(samples) / u128::from(2 * parts);
    u64::try_from(middle).unwrap_or(u64::MAX)
}

/// Writes reports as such lines.
#[derive(Debug)]
pub(crate) struct Embedded<W> {
    namespace: String,
    resolution_s: u8,
    out: Arc<Mutex<W>>,
}

impl<W: Write> Embedded<W> {
    /// For a namespace; to `out`, which is stdout but for tests.
    pub(crate) fn new(namespace: impl Into<String>, resolution_s: u8, out: W) -> Self {
        Self {
            namespace: namespace.into(),
            resolution_s,
            out: Arc::new(Mutex::new(out)),
        }
    }
}

#[async_trait]
impl<W: Write + Send + Sync + 'static> Sink for Embedded<W> {
    type Part = String;

    fn parts(&self, report: Report) -> Vec<String> {
        // One write, so that no other line can come between.
        let lines = lines(&self.namespace, self.resolution_s, &report);
        vec![lines.join("\n") + "\n"]
    }

    async fn send(&self, part: &String) -> Result<(), SendError> {
        let (out, part) = (Arc::clone(&self.out), part.clone());
        // A reader that does not read delays its own thread, and no lease.
        let write = move || {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            out.write_all(part.as_bytes()).and_then(|()| out.flush())
        };
        // A line that was written in part would be written twice.
        let refused = |error| SendError::Refused(format!("cannot write metrics: {error}"));
        tasks::blocking(write).finished().await.map_err(refused)
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
        let sink = Embedded::new("Dispatcher-test", 60, Vec::new());
        let parts = sink.parts(meters.drain(Timestamp(5)));
        sink.send(&parts[0]).await.expect("memory takes it");
        let text = String::from_utf8(sink.out.lock().expect("no panic").clone()).expect("JSON");
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
