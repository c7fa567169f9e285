//! Metrics that plugins keep themselves: counters and gauges by name and labels. Bounded for each
//! plugin. Knows no contract and no format.

use super::registry::MetricKind;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum names with different labels of one plugin.
const MOST: usize = 200;
/// Maximum characters of a name, of a label and of a label's value; maximum labels.
const LONGEST: usize = 100;
const MOST_LABELS: usize = 8;
/// The label that every one has.
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

/// One metric with all its values.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginMetric {
    /// As the plugin gave it, without `_total`.
    pub name: String,
    /// A counter or a gauge.
    pub kind: MetricKind,
    /// Each value with its labels, that of the plugin among them.
    pub samples: Vec<(Vec<(String, String)>, f64)>,
}

/// Why a value was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotMeasured {
    /// A name, label or value that cannot be, and why.
    Invalid(String),
    /// The plugin has as many as it may have.
    TooMany,
}

impl PluginMetrics {
    /// Every metric with its values now, by name.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(
        &self,
        (kind, name): (MetricKind, &str),
        labels: Labels,
        change: impl FnOnce(&mut f64),
    ) -> Result<(), NotMeasured> {
        let mut families = self.lock();
        let plugin = &labels[PLUGIN];
        let own = |labels: &&Labels| labels[PLUGIN] == *plugin;
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
        if !is_known && all.filter(own).count() >= MOST {
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

/// What one plugin measures with.
#[derive(Debug, Clone, Default)]
pub struct PluginMeter {
    all: Arc<PluginMetrics>,
    plugin: String,
}

impl PluginMeter {
    /// Keeps the metrics of the plugin of this name among all of them.
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
        let wanted = "wanted a letter, then letters, digits and `_`, at most 100";
        let not_a_name = |name: &str| {
            let name: String = name.chars().take(LONGEST).collect();
            Err(NotMeasured::Invalid(format!("`{name}`: {wanted}")))
        };
        if !is_name(name) {
            return not_a_name(name);
        }
        if given.len() > MOST_LABELS {
            let why = format!("{} labels; at most {MOST_LABELS}", given.len());
            return Err(NotMeasured::Invalid(why));
        }
        let mut labels = Labels::from([(PLUGIN.to_owned(), self.plugin.clone())]);
        for (label, value) in given {
            if !is_name(&label) {
                return not_a_name(&label);
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
    let follows = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= LONGEST
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(follows)
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
        let samples = |name: &str| {
            let metric = all.all().into_iter().find(|one| one.name == name);
            metric.expect(name).samples
        };
        assert_eq!(
            samples("orders"),
            [
                (labels(&[("kind", "new"), ("plugin", "one")]), 3.0),
                (labels(&[("plugin", "other")]), 1.0),
            ]
        );
        assert_eq!(samples("stock"), [(labels(&[("plugin", "one")]), -2.0)]);
    }

    #[test]
    fn impossible_metrics_are_refused_with_the_reason() {
        let meter = PluginMeter::default();
        let why = |result: Result<(), NotMeasured>| match result {
            Err(NotMeasured::Invalid(why)) => why,
            other => panic!("{other:?}"),
        };
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

    #[test]
    fn plugin_with_too_many_series_keeps_those_that_it_has() {
        let all = Arc::<PluginMetrics>::default();
        let meter = PluginMeter::new(all.clone(), "one");
        let add = |n: usize| meter.add("n", labels(&[("n", &n.to_string())]), 1.0);
        for n in 0..MOST {
            assert_eq!(add(n), Ok(()));
        }
        assert_eq!(add(MOST), Err(NotMeasured::TooMany));
        assert_eq!(add(0), Ok(()));
        let other = PluginMeter::new(all, "other");
        assert_eq!(other.add("n", Vec::new(), 1.0), Ok(()));
    }
}
