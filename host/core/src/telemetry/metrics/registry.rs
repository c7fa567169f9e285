//! Metric families and their values at one moment. Every exporter reads these families and adds
//! nothing to them. A metric is declared once, beside its count. Knows no format.

use super::exemplar::Exemplar;
use super::histogram::Samples;

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Durations.
    Histogram,
}

impl MetricKind {
    /// The name in the reference page.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The unit or thing that a metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is its own word")]
pub enum Unit {
    Attempts,
    Bytes,
    Builds,
    Calls,
    Dollars,
    Files,
    Instances,
    Invocations,
    Messages,
    Polls,
    Processes,
    /// A part of a whole, from 0 to 1.
    Ratio,
    Seconds,
    /// 1 if a condition holds, else 0.
    Switch,
    Tasks,
    Threads,
    Versions,
}

impl Unit {
    /// The name in the reference page.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Bytes => "bytes",
            Self::Builds => "builds",
            Self::Calls => "calls",
            Self::Dollars => "US dollars",
            Self::Files => "files",
            Self::Instances => "instances",
            Self::Invocations => "invocations",
            Self::Messages => "messages",
            Self::Polls => "polls",
            Self::Processes => "processes",
            Self::Ratio => "ratio",
            Self::Seconds => "seconds",
            Self::Switch => "0 or 1",
            Self::Tasks => "tasks",
            Self::Threads => "threads",
            Self::Versions => "versions",
        }
    }
}

/// The declaration of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// The name, without `dispatcher_` before it and `_total` after it.
    pub name: &'static str,
    /// Whether `dispatcher_` precedes the name. It does not if a convention defines the name.
    pub is_own: bool,
    /// The kind.
    pub kind: MetricKind,
    /// The unit.
    pub unit: Unit,
    /// The help text, in one sentence.
    pub help: &'static str,
    /// The edges of the buckets of a histogram.
    pub edges: &'static [f64],
}

impl Metric {
    /// Declares a number that only grows.
    pub const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, MetricKind::Counter, unit, help)
    }

    /// Declares a number that rises and falls.
    pub const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, MetricKind::Gauge, unit, help)
    }

    /// Declares a metric of durations, in seconds, whose buckets have these edges of charts.
    pub const fn histogram(name: &'static str, help: &'static str, edges: &'static [f64]) -> Self {
        Self {
            edges,
            ..Self::new(name, MetricKind::Histogram, Unit::Seconds, help)
        }
    }

    const fn new(name: &'static str, kind: MetricKind, unit: Unit, help: &'static str) -> Self {
        Self {
            name,
            is_own: true,
            kind,
            unit,
            help,
            edges: &[],
        }
    }

    /// Marks the name as one that a convention defines.
    #[must_use]
    pub const fn of_convention(self) -> Self {
        Self {
            is_own: false,
            ..self
        }
    }

    /// Returns the name without the suffix of its kind.
    pub fn base_name(&self) -> String {
        let prefix = if self.is_own { "dispatcher_" } else { "" };
        format!("{prefix}{}", self.name)
    }

    /// Returns the name as users see it.
    pub fn full_name(&self) -> String {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        self.base_name() + suffix
    }

    /// Makes the family with one value for the whole process.
    pub fn of_process(self, value: MetricValue) -> MetricFamily {
        self.family(&[], [MetricSample::new([], value)])
    }

    /// Makes the family with these values. `labels` has the names of their labels.
    pub fn family(
        self,
        labels: &'static [&'static str],
        samples: impl IntoIterator<Item = MetricSample>,
    ) -> MetricFamily {
        MetricFamily {
            metric: self,
            labels,
            samples: samples.into_iter().collect(),
        }
    }
}

/// A value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    /// The value of a counter.
    Count(u64),
    /// The value of a counter with fractions.
    Sum(f64),
    /// The value of a gauge.
    Level(f64),
    /// The value of a histogram, with the last traced duration of each bucket.
    Times(Samples, Vec<Exemplar>),
}

/// One value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// The values of the family's labels, in their order.
    pub labels: Vec<String>,
    /// The value.
    pub value: MetricValue,
}

impl MetricSample {
    /// Makes a sample from the values of its labels and its value.
    pub fn new<'a>(labels: impl IntoIterator<Item = &'a str>, value: MetricValue) -> Self {
        let labels = labels.into_iter().map(str::to_owned).collect();
        Self { labels, value }
    }
}

/// A metric with all its values.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFamily {
    /// The declaration of the metric.
    pub metric: Metric,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// The values; empty if there are none.
    pub samples: Vec<MetricSample>,
}
