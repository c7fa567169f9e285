//! Metric families and their values at one moment. Every exporter reads these families and adds
//! nothing to them; a metric is declared once, beside its count. Knows no format.

use super::exemplar::Exemplar;
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
    /// A part of a whole, from 0 to 1.
    Ratio,
    Seconds,
    /// 1 where something is so, else 0.
    Switch,
    Tasks,
    Threads,
    Versions,
}

impl Unit {
    /// Its word in the reference page.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name, without `dispatcher_` before it and `_total` after it.
    pub name: &'static str,
    /// Whether `dispatcher_` comes before the name. A metric that a convention names has none.
    pub is_own: bool,
    /// The name that it had before, written like `name`. It is exposed under both for one version.
    pub former: Option<&'static str>,
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
            is_own: true,
            former: None,
            kind,
            unit,
            help,
        }
    }

    /// The metric, whose name is that of a convention.
    #[must_use]
    pub const fn of_convention(self) -> Self {
        Self {
            is_own: false,
            ..self
        }
    }

    /// The metric, which had this name before.
    #[must_use]
    pub const fn renamed_from(self, former: &'static str) -> Self {
        Self {
            former: Some(former),
            ..self
        }
    }

    /// The same metric under the name that it had before, if it had one.
    pub fn deprecated(&self) -> Option<Self> {
        let name = self.former?;
        Some(Self {
            name,
            former: None,
            ..*self
        })
    }

    /// Its name without a suffix for its kind.
    pub fn base_name(&self) -> String {
        let prefix = if self.is_own { "dispatcher_" } else { "" };
        format!("{prefix}{}", self.name)
    }

    /// Its name as users see it.
    pub fn full_name(&self) -> String {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        self.base_name() + suffix
    }

    /// The metric with one value for the whole process.
    pub fn of_process(self, value: MetricValue) -> MetricFamily {
        self.family(&[], [MetricSample::new([], value)])
    }

    /// The metric with these values, whose labels have these names.
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
    /// Of a counter.
    Count(u64),
    /// Of a counter that has fractions.
    Sum(f64),
    /// Of a gauge.
    Level(f64),
    /// Of a histogram, with the last traced duration of each bucket.
    Times(Samples, Vec<Exemplar>),
}

/// One value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// The values of the family's labels, in their order.
    pub labels: Vec<String>,
    /// What was counted.
    pub value: MetricValue,
}

impl MetricSample {
    /// A value with the values of its labels.
    pub fn new<'a>(labels: impl IntoIterator<Item = &'a str>, value: MetricValue) -> Self {
        let labels = labels.into_iter().map(str::to_owned).collect();
        Self { labels, value }
    }
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
