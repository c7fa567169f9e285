//! Metric families and their values at one moment. Every exporter reads these families and adds
//! nothing to them; a metric is declared once, beside its count. Knows no format.

use super::histogram::Samples;

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It rises and falls.
    Gauge,
    /// How long things took.
    Histogram,
}

impl MetricKind {
    /// Its word in the reference page.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What a metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is its own word")]
pub enum Unit {
    Attempts,
    Bytes,
    Calls,
    Instances,
    Invocations,
    Messages,
    Polls,
    /// A part of a whole, from 0 to 1.
    Ratio,
    Seconds,
    /// 1 where something is so, else 0.
    Switch,
    Tasks,
    Versions,
}

impl Unit {
    /// Its word in the reference page.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Bytes => "bytes",
            Self::Calls => "calls",
            Self::Instances => "instances",
            Self::Invocations => "invocations",
            Self::Messages => "messages",
            Self::Polls => "polls",
            Self::Ratio => "ratio",
            Self::Seconds => "seconds",
            Self::Switch => "0 or 1",
            Self::Tasks => "tasks",
            Self::Versions => "versions",
        }
    }
}

/// The declaration of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name, without `dispatcher_` before it and `_total` after it.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// What it counts.
    pub unit: Unit,
    /// What it says, in one sentence.
    pub help: &'static str,
}

impl Metric {
    /// One that only grows.
    pub const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, MetricKind::Counter, unit, help)
    }

    /// One that rises and falls.
    pub const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, MetricKind::Gauge, unit, help)
    }

    /// How long things took, in seconds.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(name, MetricKind::Histogram, Unit::Seconds, help)
    }

    const fn new(name: &'static str, kind: MetricKind, unit: Unit, help: &'static str) -> Self {
        Self {
            name,
            kind,
            unit,
            help,
        }
    }

    /// Its name as users see it.
    pub fn full_name(&self) -> String {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        format!("dispatcher_{}{suffix}", self.name)
    }

    /// The metric with one value for the whole process.
    pub fn of_process(self, value: MetricValue) -> MetricFamily {
        let labels = Vec::new();
        MetricFamily {
            metric: self,
            labels: &[],
            samples: vec![MetricSample { labels, value }],
        }
    }
}

/// A value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Level(f64),
    /// Of a histogram.
    Times(Samples),
}

/// One value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// The values of the family's labels, in their order.
    pub labels: Vec<String>,
    /// What was counted.
    pub value: MetricValue,
}

/// A metric with all its values.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFamily {
    /// Its declaration.
    pub metric: Metric,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its values; none where nothing has one.
    pub samples: Vec<MetricSample>,
}
