//! The OTLP messages of metrics, which are cumulative since the start.

use super::{
    AnyValueKind, KeyValue, ResourceAttributes, ResourceMessage, Scope, entry, own_scope, resource,
};
use dispatcher_core::clock::Timestamp;
use dispatcher_core::telemetry::metrics::exemplar::Exemplar;
use dispatcher_core::telemetry::metrics::histogram::Samples;
use dispatcher_core::telemetry::metrics::of_plugins::PluginMetric;
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricKind, MetricValue, Unit,
};
use prost::{Message, Oneof};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: i32 = 2;
/// The prefix of the names of metrics and labels of the messaging conventions.
const CONVENTION: &str = "messaging_";

#[derive(Clone, PartialEq, Message)]
struct ExportMetrics {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<MetricMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct MetricMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(oneof = "MetricData", tags = "5, 7, 9")]
    data: Option<MetricData>,
}

#[derive(Clone, PartialEq, Oneof)]
enum MetricData {
    #[prost(message, tag = "5")]
    Gauge(GaugeMessage),
    #[prost(message, tag = "7")]
    Sum(SumMessage),
    #[prost(message, tag = "9")]
    Histogram(HistogramMessage),
}

#[derive(Clone, PartialEq, Message)]
struct GaugeMessage {
    #[prost(message, repeated, tag = "1")]
    points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct SumMessage {
    #[prost(message, repeated, tag = "1")]
    points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramMessage {
    #[prost(message, repeated, tag = "1")]
    points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
struct NumberPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(oneof = "Number", tags = "4, 6")]
    value: Option<Number>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
enum Number {
    #[prost(double, tag = "4")]
    Fraction(f64),
    #[prost(sfixed64, tag = "6")]
    Whole(i64),
}

#[derive(Clone, PartialEq, Message)]
struct HistogramPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "8")]
    exemplars: Vec<ExemplarMessage>,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ExemplarMessage {
    #[prost(fixed64, tag = "2")]
    time_unix_nano: u64,
    #[prost(double, tag = "3")]
    value: f64,
    #[prost(bytes = "vec", tag = "4")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    trace_id: Vec<u8>,
}

/// The start and the end of the counted time, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct CountedFor {
    began_ns: u64,
    now_ns: u64,
}

impl CountedFor {
    /// Creates the time span from `began` to `now`.
    pub(in super::super) fn new(began: Timestamp, now: Timestamp) -> Self {
        Self {
            began_ns: nanoseconds(began),
            now_ns: nanoseconds(now),
        }
    }
}

fn nanoseconds(at: Timestamp) -> u64 {
    at.0.saturating_mul(1_000_000)
}

/// Encodes all metrics that have a value, and those of plugins, as the body of a request.
pub(in super::super) fn request(
    attributes: &ResourceAttributes,
    counted: CountedFor,
    families: Vec<MetricFamily>,
    of_plugins: Vec<PluginMetric>,
) -> Vec<u8> {
    let families = families
        .into_iter()
        .filter(|family| !family.samples.is_empty());
    let own = families.map(|family| message(family, counted));
    let of_plugins = of_plugins
        .into_iter()
        .map(|metric| of_plugin(metric, counted));
    let request = ExportMetrics {
        resource_metrics: vec![ResourceMetrics {
            resource: resource(attributes),
            scope_metrics: vec![ScopeMetrics {
                scope: own_scope(),
                metrics: own.chain(of_plugins).collect(),
            }],
        }],
    };
    request.encode_to_vec()
}

fn message(family: MetricFamily, counted: CountedFor) -> MetricMessage {
    let MetricFamily {
        metric,
        labels,
        samples,
    } = family;
    let (mut numbers, mut histograms) = (Vec::new(), Vec::new());
    for sample in samples {
        // An empty label is omitted, for example `error.type` after a success.
        let labels = labels
            .iter()
            .zip(sample.labels)
            .filter(|(_, value)| !value.is_empty());
        let attributes = labels
            .map(|(label, value)| text(&convention_name(label), value))
            .collect();
        let value = match sample.value {
            MetricValue::Count(count) => Number::Whole(i64::try_from(count).unwrap_or(i64::MAX)),
            MetricValue::Sum(value) | MetricValue::Level(value) => Number::Fraction(value),
            MetricValue::Times(samples, exemplars) => {
                histograms.push(histogram(
                    (metric.edges, &samples),
                    &exemplars,
                    attributes,
                    counted,
                ));
                continue;
            }
        };
        numbers.push(number(value, attributes, counted));
    }
    let data = match metric.kind {
        MetricKind::Counter => MetricData::Sum(sum(numbers)),
        MetricKind::Gauge => MetricData::Gauge(GaugeMessage { points: numbers }),
        MetricKind::Histogram => MetricData::Histogram(HistogramMessage {
            points: histograms,
            temporality: CUMULATIVE,
        }),
    };
    MetricMessage {
        name: name(&metric),
        description: metric.help.to_owned(),
        unit: unit(&metric).to_owned(),
        data: Some(data),
    }
}

fn of_plugin(metric: PluginMetric, counted: CountedFor) -> MetricMessage {
    let samples = metric.samples.into_iter();
    let points = samples
        .map(|(labels, value)| {
            let attributes = labels.into_iter().map(|(label, value)| text(&label, value));
            number(Number::Fraction(value), attributes.collect(), counted)
        })
        .collect();
    MetricMessage {
        name: format!("plugin_{}", metric.name),
        description: "Measured by plugins.".to_owned(),
        unit: String::new(),
        data: Some(match metric.kind {
            MetricKind::Counter => MetricData::Sum(sum(points)),
            MetricKind::Gauge | MetricKind::Histogram => MetricData::Gauge(GaugeMessage { points }),
        }),
    }
}

fn sum(points: Vec<NumberPoint>) -> SumMessage {
    SumMessage {
        points,
        temporality: CUMULATIVE,
        is_monotonic: true,
    }
}

fn number(value: Number, attributes: Vec<KeyValue>, counted: CountedFor) -> NumberPoint {
    NumberPoint {
        start_time_unix_nano: counted.began_ns,
        time_unix_nano: counted.now_ns,
        value: Some(value),
        attributes,
    }
}

fn histogram(
    (edges, samples): (&[f64], &Samples),
    exemplars: &[Exemplar],
    attributes: Vec<KeyValue>,
    counted: CountedFor,
) -> HistogramPoint {
    let count = samples.count();
    let mut before = 0;
    let below = samples.cumulative(edges).chain([count]);
    let buckets = below.map(|below| below - std::mem::replace(&mut before, below));
    let exemplars = exemplars.iter().map(|exemplar| ExemplarMessage {
        time_unix_nano: nanoseconds(exemplar.at),
        value: exemplar.value_s,
        span_id: exemplar
            .trace
            .span_id
            .map(|id| id.0.to_vec())
            .unwrap_or_default(),
        trace_id: exemplar.trace.trace_id.0.to_vec(),
    });
    HistogramPoint {
        start_time_unix_nano: counted.began_ns,
        time_unix_nano: counted.now_ns,
        count,
        sum: Some(samples.sum().as_secs_f64()),
        bucket_counts: buckets.collect(),
        explicit_bounds: edges.to_vec(),
        exemplars: exemplars.collect(),
        attributes,
    }
}

fn text(key: &str, value: String) -> KeyValue {
    entry(key, AnyValueKind::Text(value))
}

/// Returns the name of a metric as on the admin address. Names of the messaging conventions have
/// dots and no unit: `messaging.process.duration`. A collector that writes for Prometheus converts
/// them to the same names.
fn name(metric: &Metric) -> String {
    let name = metric.base_name();
    let is_of_messaging = name.starts_with(CONVENTION);
    match name.strip_suffix("_seconds") {
        Some(name) if is_of_messaging => convention_name(name),
        _ => convention_name(&name),
    }
}

fn convention_name(name: &str) -> String {
    if name.starts_with(CONVENTION) || name == "error_type" {
        name.replace('_', ".")
    } else {
        name.to_owned()
    }
}

/// Returns the unit in UCUM, as the conventions require. A collector that writes for Prometheus
/// adds `_ratio` to a gauge with the unit `1`, so only names that end with it have that unit.
fn unit(metric: &Metric) -> &'static str {
    match metric.unit {
        Unit::Seconds => "s",
        Unit::Bytes => "By",
        Unit::Ratio if metric.name.ends_with("_ratio") => "1",
        Unit::Ratio | Unit::Switch => "",
        Unit::Attempts => "{attempt}",
        Unit::Builds => "{build}",
        Unit::Calls => "{call}",
        Unit::Dollars => "{USD}",
        Unit::Files => "{file}",
        Unit::Instances => "{instance}",
        Unit::Invocations => "{invocation}",
        Unit::Messages => "{message}",
        Unit::Polls => "{poll}",
        Unit::Processes => "{process}",
        Unit::Tasks => "{task}",
        Unit::Threads => "{thread}",
        Unit::Versions => "{version}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[tokio::test]
    async fn names_are_those_of_the_page_or_of_the_conventions() {
        for MetricFamily { metric, .. } in Registry::default().families() {
            let (sent, shown) = (name(&metric), metric.base_name());
            if shown.starts_with(CONVENTION) {
                assert_eq!(sent.replace('.', "_"), shown.trim_end_matches("_seconds"))
            } else {
                assert_eq!(sent, shown)
            }
        }
    }

    /// The name that a collector writes for Prometheus, by the compatibility specification of
    /// OpenTelemetry.
    fn translated(metric: &Metric) -> String {
        let mut name = name(metric).replace('.', "_");
        let suffix = match (unit(metric), metric.kind) {
            ("s", _) => "_seconds",
            ("By", _) => "_bytes",
            ("1", MetricKind::Gauge) => "_ratio",
            _ => "",
        };
        if !name.ends_with(suffix) {
            name += suffix;
        }
        match metric.kind {
            MetricKind::Counter => name + "_total",
            _ => name,
        }
    }

    #[tokio::test]
    async fn collector_makes_the_names_of_the_page_of_them() {
        for MetricFamily { metric, .. } in Registry::default().families() {
            assert_eq!(translated(&metric), metric.full_name());
        }
    }

    #[test]
    fn buckets_of_a_histogram_are_counted_apart() {
        let histogram_of = dispatcher_core::telemetry::metrics::histogram::Histogram::default();
        for ms in [1, 1, 40, 86_400_000] {
            histogram_of.record(std::time::Duration::from_millis(ms));
        }
        let counted = CountedFor::new(Timestamp(1), Timestamp(2));
        let point = histogram(
            (&[0.0005, 0.001, 1.0], &histogram_of.samples()),
            &[],
            Vec::new(),
            counted,
        );
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), 4);
        assert_eq!(point.bucket_counts, [0, 2, 1, 1]);
        assert_eq!(
            (point.start_time_unix_nano, point.time_unix_nano),
            (1_000_000, 2_000_000)
        );
    }
}
