//! Writes metrics for Prometheus: OpenMetrics text, version 1.0.0, with exemplars, or the text
//! format of Prometheus, version 0.0.4, as the client prefers. Knows no metric.

use dispatcher_core::telemetry::metrics::exemplar::Exemplar;
use dispatcher_core::telemetry::metrics::histogram::Samples;
use dispatcher_core::telemetry::metrics::of_plugins::PluginMetric;
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricKind, MetricSample, MetricValue, Unit,
};
use std::fmt::{Display, Write};

/// The approximate size of a piece of text in bytes.
const PIECE: usize = 256 << 10;

/// The text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus 0.0.4, which has no exemplars and no units.
    Prometheus,
}

impl TextFormat {
    /// Returns the format that the `Accept` headers of a request prefer. It is OpenMetrics only if
    /// the headers contain it with the highest quality, or else the format of Prometheus.
    pub fn accepted<'a>(headers: impl Iterator<Item = &'a str>) -> Self {
        let ranges = headers.flat_map(|header| header.split(','));
        let mut best = (Self::Prometheus, 0.0);
        for range in ranges {
            let mut parts = range.split(';').map(str::trim);
            let format = match parts.next().unwrap_or_default() {
                "application/openmetrics-text" => Self::OpenMetrics,
                "text/plain" | "text/*" | "*/*" => Self::Prometheus,
                _ => continue,
            };
            let (mut quality, mut is_known) = (1.0, true);
            for part in parts {
                if let Some(given) = part.strip_prefix("q=") {
                    quality = given.parse().unwrap_or(0.0);
                } else if let Some(version) = part.strip_prefix("version=") {
                    is_known = format.versions().contains(&version);
                }
            }
            let is_better = quality > best.1 || quality == best.1 && format == Self::OpenMetrics;
            if is_known && quality > 0.0 && is_better {
                best = (format, quality);
            }
        }
        best.0
    }

    /// Returns the versions that are compatible with the written text.
    fn versions(self) -> &'static [&'static str] {
        match self {
            Self::OpenMetrics => &["1.0.0", "0.0.1"],
            Self::Prometheus => &["0.0.4"],
        }
    }

    /// Returns the media type of the text.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns the text of all metrics with a sample, and of those of plugins, in pieces.
    pub fn pieces(self, families: Vec<MetricFamily>, of_plugins: Vec<PluginMetric>) -> TextPieces {
        let mut families = families;
        families.retain(|family| !family.samples.is_empty());
        TextPieces {
            format: self,
            families: families.into_iter(),
            under_way: None,
            of_plugins: Some(of_plugins),
        }
    }

    /// Returns the whole text.
    #[cfg(test)]
    pub fn text(self, families: &[MetricFamily], of_plugins: &[PluginMetric]) -> String {
        self.pieces(families.to_vec(), of_plugins.to_vec())
            .collect()
    }
}

/// The text of all metrics in pieces. With thousands of queues it has hundreds of megabytes, which
/// should not be in memory at once.
pub struct TextPieces {
    format: TextFormat,
    /// The metrics that are not begun.
    families: std::vec::IntoIter<MetricFamily>,
    /// The current metric and the number of its written samples.
    under_way: Option<(MetricFamily, usize)>,
    /// The metrics of plugins, which come last.
    of_plugins: Option<Vec<PluginMetric>>,
}

impl TextPieces {
    /// Whether the whole text is written.
    pub fn is_at_end(&self) -> bool {
        self.of_plugins.is_none()
    }

    /// Writes more samples of the current metric, begins the next one, or writes the end.
    fn write_some(&mut self, text: &mut MetricText) {
        if let Some((family, written)) = &mut self.under_way {
            for sample in &family.samples[*written..] {
                text.of_family(&family.metric, family.labels, sample);
                *written += 1;
                if text.out.len() >= PIECE {
                    return;
                }
            }
        }
        self.under_way = self.families.next().map(|family| {
            text.begin(&family.metric, family.metric.help);
            (family, 0)
        });
        if self.under_way.is_none() {
            for metric in self.of_plugins.take().iter().flatten() {
                text.of_plugins(metric);
            }
            if self.format == TextFormat::OpenMetrics {
                text.out += "# EOF\n";
            }
        }
    }
}

impl Iterator for TextPieces {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut text = MetricText {
            format: self.format,
            out: String::new(),
        };
        while !self.is_at_end() && text.out.len() < PIECE {
            self.write_some(&mut text);
        }
        (!text.out.is_empty()).then_some(text.out)
    }
}

/// The text of a piece.
struct MetricText {
    format: TextFormat,
    out: String,
}

impl MetricText {
    fn begin(&mut self, metric: &Metric, help: &str) {
        let name = metric.base_name();
        self.describe(&name, metric.kind, help);
        let unit = match metric.unit {
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            _ => "",
        };
        if self.format == TextFormat::OpenMetrics && !unit.is_empty() {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
    }

    fn of_family(&mut self, metric: &Metric, labels: &[&str], sample: &MetricSample) {
        let pairs = labels.iter().zip(&sample.labels);
        let labels = labels_text(pairs.map(|(label, value)| (*label, &**value)));
        match &sample.value {
            MetricValue::Count(count) => self.sample(&metric.full_name(), &labels, count),
            MetricValue::Sum(value) | MetricValue::Level(value) => {
                self.sample(&metric.full_name(), &labels, value);
            }
            MetricValue::Times(samples, exemplars) => {
                self.histogram(metric, &labels, samples, exemplars);
            }
        }
    }

    fn of_plugins(&mut self, metric: &PluginMetric) {
        let name = format!("plugin_{}", metric.name);
        self.describe(&name, metric.kind, "Measured by plugins.");
        let suffix = match metric.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        for (labels, value) in &metric.samples {
            let labels = labels_text(labels.iter().map(|(label, value)| (&**label, &**value)));
            self.sample(&format!("{name}{suffix}"), &labels, value);
        }
    }

    /// Writes the description of a metric. In the format of Prometheus, a counter is described by
    /// its full name.
    fn describe(&mut self, name: &str, kind: MetricKind, help: &str) {
        let is_full = self.format == TextFormat::Prometheus && kind == MetricKind::Counter;
        let suffix = if is_full { "_total" } else { "" };
        let help = escaped(help);
        self.line(format_args!("# HELP {name}{suffix} {help}"));
        self.line(format_args!("# TYPE {name}{suffix} {}", kind.label()));
    }

    fn histogram(
        &mut self,
        metric: &Metric,
        labels: &str,
        samples: &Samples,
        exemplars: &[Exemplar],
    ) {
        let name = metric.base_name();
        let count = samples.count();
        let below = samples.cumulative(metric.edges);
        let finite = metric.edges.iter().map(|edge| format!("{edge:?}"));
        let edges = finite.chain(["+Inf".to_owned()]);
        let comma = if labels.is_empty() { "" } else { "," };
        let buckets = edges.zip(below.chain([count])).enumerate();
        let shown = if self.format == TextFormat::OpenMetrics {
            exemplars
        } else {
            &[]
        };
        for (bucket, (edge, below)) in buckets {
            let exemplar = shown.iter().find(|one| one.bucket() == bucket);
            let traced = exemplar.map(traced_value).unwrap_or_default();
            self.line(format_args!(
                "{name}_bucket{{le=\"{edge}\"{comma}{labels}}} {below}{traced}"
            ));
        }
        self.sample(&format!("{name}_sum"), labels, samples.sum().as_secs_f64());
        self.sample(&format!("{name}_count"), labels, count);
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        if labels.is_empty() {
            self.line(format_args!("{name} {value}"));
        } else {
            self.line(format_args!("{name}{{{labels}}} {value}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.out, "{line}");
    }
}

/// Returns the text of an exemplar after a value.
fn traced_value(exemplar: &Exemplar) -> String {
    let Exemplar { trace, value_s, at } = exemplar;
    let at_s = at.0 as f64 / 1_000.0;
    let span = trace.span_id.map(|id| format!(",span_id=\"{id}\""));
    let (trace, span) = (trace.trace_id, span.unwrap_or_default());
    format!(" # {{trace_id=\"{trace}\"{span}}} {value_s} {at_s:.3}")
}

/// Returns the text of labels between braces.
fn labels_text<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (label, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing into a string cannot fail.
        let _ = if value.contains(['\\', '\n', '"']) {
            let value = escaped(value).replace('"', "\\\"");
            write!(text, "{comma}{label}=\"{value}\"")
        } else {
            write!(text, "{comma}{label}=\"{value}\"")
        };
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messaging;
    use crate::registry::Registry;
    use dispatcher_core::telemetry::counters::Counters;
    use dispatcher_core::telemetry::events::{EventKind, ReasonKind};
    use dispatcher_core::telemetry::metrics::Meters;
    use dispatcher_core::telemetry::metrics::exemplar::ExemplarTrace;
    use dispatcher_core::telemetry::metrics::of_plugins::PluginMeter;
    use dispatcher_core::telemetry::trace::{SpanId, TraceId};
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn every_count_has_a_line() {
        let meters = Meters::new(["local:a\"b"]);
        let meter = meters.of("local:a\"b").expect("it was named");
        meter.received.many(2);
        meter.took(Duration::from_micros(3_250), None, None);
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
        let meter = PluginMeter::new(counters.of_plugins.clone(), "orders");
        let of = vec![("kind".to_owned(), "new".to_owned())];
        meter.add("priced", of, 2.5).expect("it is sound");
        meter.set("stock", Vec::new(), -3.0).expect("it is sound");
        let of_plugins = counters.of_plugins.all();
        let text = TextFormat::OpenMetrics.text(&families, &of_plugins);
        for line in [
            "dispatcher_messages_received_total 2",
            "dispatcher_attempts_running 1",
            "dispatcher_failed_calls_total 0",
            "dispatcher_queue_messages_received_total{queue=\"local:a\\\"b\"} 2",
            "dispatcher_queue_messages_running{queue=\"local:a\\\"b\"} 1",
            "dispatcher_queue_events_total{queue=\"local:a\\\"b\",event=\"retried\",reason=\"timeout\"} 4",
            "# UNIT messaging_process_duration_seconds seconds",
            "messaging_process_duration_seconds_bucket{le=\"0.0025\",queue=\"local:a\\\"b\",messaging_system=\"\",messaging_destination_name=\"local:a\\\"b\",messaging_operation_name=\"process\",error_type=\"\"} 0",
            "messaging_process_duration_seconds_bucket{le=\"0.005\",queue=\"local:a\\\"b\",messaging_system=\"\",messaging_destination_name=\"local:a\\\"b\",messaging_operation_name=\"process\",error_type=\"\"} 1",
            "messaging_process_duration_seconds_bucket{le=\"+Inf\",queue=\"local:a\\\"b\",messaging_system=\"\",messaging_destination_name=\"local:a\\\"b\",messaging_operation_name=\"process\",error_type=\"\"} 1",
            "messaging_process_duration_seconds_sum{queue=\"local:a\\\"b\",messaging_system=\"\",messaging_destination_name=\"local:a\\\"b\",messaging_operation_name=\"process\",error_type=\"\"} 0.00325",
            "dispatcher_queue_message_age_seconds_count{queue=\"local:a\\\"b\"} 0",
            "plugin_priced_total{kind=\"new\",plugin=\"orders\"} 2.5",
            "plugin_stock{plugin=\"orders\"} -3",
        ] {
            assert!(
                text.lines().any(|other| other == line),
                "{line} not in\n{text}"
            );
        }
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn exemplars_follow_the_bucket_of_their_value() {
        let meters = Meters::new(["local:a"]);
        let meter = meters.of("local:a").expect("it was named");
        let trace = ExemplarTrace {
            trace_id: TraceId::read("5759e988bd862e3fe1be46a994272793").expect("an id"),
            span_id: SpanId::read("53995c3f42cd8ad8"),
        };
        for (ms, trace) in [(3, None), (40, Some(trace))] {
            meter.took(Duration::from_millis(ms), None, trace);
        }
        let families = messaging::families(&meters, &[], |_| "");
        let text = TextFormat::OpenMetrics.text(&families, &[]);
        let lines = text.lines().filter(|line| line.contains("trace_id"));
        let found: Vec<&str> = lines.collect();
        assert_eq!(found.len(), 1, "{found:?}");
        let start = "messaging_process_duration_seconds_bucket{le=\"0.05\",queue=\"local:a\",";
        let exemplar = "} 2 # {trace_id=\"5759e988bd862e3fe1be46a994272793\",span_id=\"53995c3f42cd8ad8\"} 0.04 ";
        assert!(
            found[0].starts_with(start) && found[0].contains(exemplar),
            "{found:?}"
        );
        let plain = TextFormat::Prometheus.text(&families, &[]);
        assert!(!plain.contains("trace_id"), "{plain}");
    }

    #[test]
    fn pieces_of_many_queues_are_small_and_end_between_lines() {
        let names: Vec<String> = (0..500).map(|at| format!("local:queue-{at}")).collect();
        let meters = Meters::new(names.iter().map(String::as_str));
        let families = messaging::families(&meters, &[], |_| "");
        let pieces: Vec<String> = TextFormat::OpenMetrics
            .pieces(families, Vec::new())
            .collect();
        assert!(pieces.len() > 10, "{}", pieces.len());
        for piece in &pieces {
            assert!(piece.len() < 2 * PIECE, "{}", piece.len());
            assert!(piece.ends_with('\n'));
        }
        let text = pieces.concat();
        let count = "messaging_process_duration_seconds_count{";
        let counts = text.lines().filter(|line| line.starts_with(count));
        assert_eq!(counts.count(), names.len());
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn text_for_prometheus_has_full_names_and_no_extensions() {
        let families = Counters::default().families();
        let text = TextFormat::Prometheus.text(&families, &[]);
        assert!(
            text.contains("# TYPE dispatcher_attempts_total counter\n"),
            "{text}"
        );
        assert!(text.contains("\ndispatcher_attempts_total 0\n"), "{text}");
        for extension in ["# EOF", "# UNIT"] {
            assert!(!text.contains(extension), "{extension}");
        }
    }

    #[test]
    fn clients_get_the_format_that_they_prefer() {
        use TextFormat::{OpenMetrics, Prometheus};
        let of_prometheus = "application/openmetrics-text;version=1.0.0,\
            application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, wanted) in [
            (&[][..], Prometheus),
            (&["*/*"], Prometheus),
            (&["text/html", "*/*;q=0.8"], Prometheus),
            (&[of_prometheus], OpenMetrics),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["text/plain", "application/openmetrics-text"], OpenMetrics),
            (
                &["application/openmetrics-text;q=0.3, text/plain"],
                Prometheus,
            ),
            (&["application/openmetrics-text; version=2.0.0"], Prometheus),
            (&["application/openmetrics-text;q=0"], Prometheus),
            (&["application/openmetrics-text; q=x"], Prometheus),
        ] {
            let accepted = TextFormat::accepted(accept.iter().copied());
            assert_eq!(accepted, wanted, "{accept:?}");
        }
    }
}
