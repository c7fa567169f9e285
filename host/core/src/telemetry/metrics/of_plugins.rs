//! Metrics that plugins keep themselves: counters and gauges by name and labels. Bounded per
//! plugin. Knows no contract and no format.

use super::registry::MetricKind;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// The maximum number of series, by name and labels, of one plugin.
const MOST: usize = 200;
/// The maximum number of characters of a name, of a label and of a label's value.
const LONGEST: usize = 100;
const MOST_LABELS: usize = 8;
/// The label that every series has.
const PLUGIN: &str = "plugin";

/// Labels with their values, in the order of their names.
type Labels = BTreeMap<String, String>;

/// The metrics of all plugins of a process; shared by `Arc`.
#[derive(Debug, Default)]
pub struct PluginMetrics(Mutex<BTreeMap<String, Family>>);

#[derive(Debug)]
struct Family {
    kind: MetricKind,
    samples: BTreeMap<Labels, f64>,
}

/// A metric with all its values.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginMetric {
    /// The name that the plugin gave, without `_total`.
    pub name: String,
    /// The kind: a counter or a gauge.
    pub kind: MetricKind,
    /// Each value with its labels, including the plugin's name.
    pub samples: Vec<(Vec<(String, String)>, f64)>,
}

/// The reason why a value was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotMeasured {
    /// An invalid name, label or value, and the reason.
    Invalid(String),
    /// The plugin has its maximum number of series.
    TooMany,
}

impl NotMeasured {
    fn not_a_name(text: &str) -> Self {
        let start: String = text.chars().take(LONGEST).collect();
        let wanted = "wanted a letter, then letters, digits and `_`, at most 100";
        Self::Invalid(format!("`{start}`: {wanted}"))
    }
}

impl PluginMetrics {
    /// Returns every metric with its current values, by name.
    pub fn all(&self) -> Vec<PluginMetric> {
        let families = self.lock();
        let all = families.iter().map(|(name, family)| PluginMetric {
            name: name.clone(),
            kind: family.kind,
            samples: family
                .samples
                .iter()
                .map(|(labels, value)| (labels.clone().into_iter().collect(), *value))
                .collect(),
        });
        all.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.0.lock()
    }

    fn record(
        &self,
        (kind, name): (MetricKind, &str),
        labels: Labels,
        change: impl FnOnce(&mut f64),
    ) -> Result<(), NotMeasured> {
        let mut families = self.lock();
        let plugin = &labels[PLUGIN];
        let known = families.get(name);
        if known.is_some_and(|family| family.kind != kind) {
            let other = match kind {
                MetricKind::Counter => "gauge",
                _ => "counter",
            };
            return Err(NotMeasured::Invalid(format!("`{name}` is a {other}")));
        }
        let is_known = known.is_some_and(|family| family.samples.contains_key(&labels));
        let all = families.values().flat_map(|family| family.samples.keys());
        if !is_known
            && all
                .filter(|labels: &&Labels| labels[PLUGIN] == *plugin)
                .count()
                >= MOST
        {
            return Err(NotMeasured::TooMany);
        }
        let family = match families.entry(name.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Family {
                kind,
                samples: BTreeMap::new(),
            }),
        };
        change(family.samples.entry(labels).or_default());
        Ok(())
    }
}

/// The meter of one plugin.
#[derive(Debug, Clone, Default)]
pub struct PluginMeter {
    all: Arc<PluginMetrics>,
    plugin: String,
}

impl PluginMeter {
    /// Makes a meter that keeps the metrics of this plugin among all others.
    pub fn new(all: Arc<PluginMetrics>, plugin: &str) -> Self {
        Self {
            all,
            plugin: plugin.to_owned(),
        }
    }

    /// Adds to a counter.
    pub fn add(
        &self,
        name: &str,
        labels: Vec<(String, String)>,
        value: f64,
    ) -> Result<(), NotMeasured> {
        if !value.is_finite() || value < 0.0 {
            let why = format!("a counter cannot grow by {value}");
            return Err(NotMeasured::Invalid(why));
        }
        let name = name.strip_suffix("_total").unwrap_or(name);
        let labels = self.labels(name, labels)?;
        self.all
            .record((MetricKind::Counter, name), labels, |sum| *sum += value)
    }

    /// Sets a gauge.
    pub fn set(
        &self,
        name: &str,
        labels: Vec<(String, String)>,
        value: f64,
    ) -> Result<(), NotMeasured> {
        if !value.is_finite() {
            let why = format!("a gauge cannot be {value}");
            return Err(NotMeasured::Invalid(why));
        }
        if name.ends_with("_total") {
            let why = format!("`{name}` ends as the name of a counter");
            return Err(NotMeasured::Invalid(why));
        }
        let labels = self.labels(name, labels)?;
        self.all
            .record((MetricKind::Gauge, name), labels, |level| *level = value)
    }

    fn labels(&self, name: &str, given: Vec<(String, String)>) -> Result<Labels, NotMeasured> {
        if !is_name(name) {
            return Err(NotMeasured::not_a_name(name));
        }
        if given.len() > MOST_LABELS {
            let why = format!("{} labels; at most {MOST_LABELS}", given.len());
            return Err(NotMeasured::Invalid(why));
        }
        let mut labels = Labels::from([(PLUGIN.to_owned(), self.plugin.clone())]);
        for (label, value) in given {
            if !is_name(&label) {
                return Err(NotMeasured::not_a_name(&label));
            }
            if value.chars().count() > LONGEST {
                let why = format!("the value of `{label}` has more than {LONGEST} characters");
                return Err(NotMeasured::Invalid(why));
            }
            if labels.insert(label.clone(), value).is_some() {
                return Err(NotMeasured::Invalid(format!("two labels `{label}`")));
            }
        }
        Ok(labels)
    }
}

fn is_name(text: &str) -> bool {
    text.len() <= LONGEST
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte: u8| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn counters_add_up_and_gauges_keep_the_last_value() {
        let all = Arc::<PluginMetrics>::default();
        let (one, other) = (
            PluginMeter::new(all.clone(), "one"),
            PluginMeter::new(all.clone(), "other"),
        );
        for name in ["orders", "orders_total"] {
            let done = one.add(name, labels(&[("kind", "new")]), 1.5);
            assert_eq!(done, Ok(()));
        }
        assert_eq!(other.add("orders", Vec::new(), 1.0), Ok(()));
        for value in [7.0, -2.0] {
            assert_eq!(one.set("stock", Vec::new(), value), Ok(()));
        }
        let orders = PluginMetric {
            name: "orders".to_owned(),
            kind: MetricKind::Counter,
            samples: vec![
                (labels(&[("kind", "new"), ("plugin", "one")]), 3.0),
                (labels(&[("plugin", "other")]), 1.0),
            ],
        };
        let stock = PluginMetric {
            name: "stock".to_owned(),
            kind: MetricKind::Gauge,
            samples: vec![(labels(&[("plugin", "one")]), -2.0)],
        };
        assert_eq!(all.all(), [orders, stock]);
    }

    fn why(result: Result<(), NotMeasured>) -> String {
        match result {
            Err(NotMeasured::Invalid(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn impossible_metrics_are_refused_with_the_reason() {
        let meter = PluginMeter::default();
        assert!(why(meter.add("a b", Vec::new(), 1.0)).contains("`a b`"));
        assert!(why(meter.add("", Vec::new(), 1.0)).contains("wanted a letter"));
        assert!(why(meter.add("7", Vec::new(), 1.0)).contains("wanted a letter"));
        assert!(why(meter.add("a", labels(&[("é", "x")]), 1.0)).contains("`é`"));
        assert!(why(meter.add("a", labels(&[("plugin", "x")]), 1.0)).contains("two labels"));
        assert!(why(meter.add("a", Vec::new(), -1.0)).contains("grow by -1"));
        assert!(why(meter.add("a", Vec::new(), f64::NAN)).contains("NaN"));
        assert!(why(meter.set("a_total", Vec::new(), 1.0)).contains("counter"));
        assert_eq!(meter.add("a", Vec::new(), 1.0), Ok(()));
        assert!(why(meter.set("a", Vec::new(), 1.0)).contains("is a counter"));
        let long = "x".repeat(LONGEST + 1);
        assert!(why(meter.add("a", labels(&[("l", &long)]), 1.0)).contains("more than"));
    }

    fn add_labelled(meter: &PluginMeter, n: usize) -> Result<(), NotMeasured> {
        meter.add("n", labels(&[("n", &n.to_string())]), 1.0)
    }

    #[test]
    fn plugin_with_too_many_series_keeps_those_that_it_has() {
        let all = Arc::<PluginMetrics>::default();
        let meter = PluginMeter::new(all.clone(), "one");
        for n in 0..MOST {
            assert_eq!(add_labelled(&meter, n), Ok(()));
        }
        assert_eq!(add_labelled(&meter, MOST), Err(NotMeasured::TooMany));
        assert_eq!(add_labelled(&meter, 0), Ok(()));
        let other = PluginMeter::new(all, "other");
        assert_eq!(other.add("n", Vec::new(), 1.0), Ok(()));
    }
}
