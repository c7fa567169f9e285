//! The state of each route's plugin versions, as JSON and as metrics. Knows no plugin but its name;
//! its owner supplies the values.

use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// How the versions of one route's plugin stand.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// The plugin's name.
    pub plugin: String,
    /// The version that takes what the canary does not.
    pub current: Version,
    /// How often it was replaced since the start.
    pub replaced: u64,
    /// How often another version was refused.
    pub refused: u64,
    /// What its instances take now, those of all its versions together.
    pub instances: Instances,
    /// The version that is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// The version that is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
    /// What became of the messages that are to be recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
}

/// What became of the messages that are to be recorded, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Recorded {
    /// They are written.
    pub kept: u64,
    /// The disk was too slow, or failed.
    pub left_out: u64,
}

/// What the instances of a plugin take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Instances {
    /// Instances at work.
    pub running: usize,
    /// Bytes in their memories.
    pub running_memory_bytes: usize,
    /// Instances that wait for an attempt.
    pub idle: usize,
    /// Bytes in their memories.
    pub idle_memory_bytes: usize,
}

/// A version.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Version {
    /// Where it was loaded from.
    pub file: String,
    /// Its SHA-256.
    pub sha256: String,
}

/// How a canary does beside the current version, in attempts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Canary {
    #[serde(flatten)]
    pub version: Version,
    /// The part of the messages that it takes; 0 once it fell back.
    pub share: f64,
    pub attempts: u64,
    pub failed: u64,
    pub current_attempts: u64,
    pub current_failed: u64,
}

/// How the answers of a shadow compare, in messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Shadow {
    #[serde(flatten)]
    pub version: Version,
    pub same: u64,
    pub different: u64,
    /// Different after it had asked for what is closed to a shadow.
    pub closed: u64,
    pub skipped: u64,
}

type Ask = Box<dyn Fn() -> Figures + Send + Sync>;

/// The plugins of a process, by route.
#[derive(Default)]
pub struct Plugins(Mutex<Vec<(String, Ask)>>);

impl std::fmt::Debug for Plugins {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Plugins")
    }
}

impl Plugins {
    /// The plugin of one more route, and how it is asked: quickly, and by any thread.
    pub(crate) fn add(&self, route: &str, ask: impl Fn() -> Figures + Send + Sync + 'static) {
        let mut plugins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plugins.push((route.to_owned(), Box::new(ask)));
    }

    /// Asks none of them any more, and so keeps none of them alive.
    pub(crate) fn forget(&self) {
        let plugins = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(plugins);
    }

    /// The figures of all plugins, by route.
    pub(crate) fn figures(&self) -> Vec<(String, Figures)> {
        let plugins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = |(route, ask): &(String, Ask)| (route.clone(), ask());
        plugins.iter().map(ask).collect()
    }

    /// The metrics of all plugins. Absent versions have no sample.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        let all = self.figures();
        let family = |PluginMetric {
                          metric,
                          labels,
                          read,
                      }: &PluginMetric| {
            let samples = all.iter().flat_map(|(route, figures)| {
                let rows = read(figures).into_iter();
                rows.map(|(label, value)| {
                    let of = [route.as_str(), &figures.plugin];
                    MetricSample::new(of.into_iter().chain(label.as_deref()), value)
                })
            });
            metric.family(labels, samples)
        };
        METRICS.iter().map(family).collect()
    }
}

/// A value, with that of the metric's last label where it has one.
type LabelledValue = (Option<String>, MetricValue);

/// A metric of a plugin.
struct PluginMetric {
    metric: Metric,
    /// The route, the plugin, and perhaps one more.
    labels: &'static [&'static str],
    /// Its values.
    read: fn(&Figures) -> Vec<LabelledValue>,
}

const BY_PLUGIN: &[&str] = &["route", "plugin"];
const BY_STATE: &[&str] = &["route", "plugin", "state"];
const BY_RESULT: &[&str] = &["route", "plugin", "result"];

const METRICS: [PluginMetric; 8] = [
    PluginMetric {
        metric: Metric::gauge("plugin_info", Unit::Versions, "The running version."),
        labels: &["route", "plugin", "sha256"],
        read: |figures| {
            let sha256 = figures.current.sha256.clone();
            vec![(Some(sha256), MetricValue::Level(1.0))]
        },
    },
    PluginMetric {
        metric: Metric::counter(
            "plugin_replaced",
            Unit::Versions,
            "How often the version was replaced.",
        ),
        labels: BY_PLUGIN,
        read: |figures| vec![(None, MetricValue::Count(figures.replaced))],
    },
    PluginMetric {
        metric: Metric::counter(
            "plugin_refused",
            Unit::Versions,
            "Versions that were refused.",
        ),
        labels: BY_PLUGIN,
        read: |figures| vec![(None, MetricValue::Count(figures.refused))],
    },
    PluginMetric {
        metric: Metric::gauge(
            "plugin_instances",
            Unit::Instances,
            "Instances of all its versions.",
        ),
        labels: BY_STATE,
        read: |figures| {
            let Instances { running, idle, .. } = figures.instances;
            levels([("running", running), ("idle", idle)])
        },
    },
    PluginMetric {
        metric: Metric::gauge(
            "plugin_memory_bytes",
            Unit::Bytes,
            "Linear memory of these instances.",
        ),
        labels: BY_STATE,
        read: |figures| {
            let of = figures.instances;
            let (running, idle) = (of.running_memory_bytes, of.idle_memory_bytes);
            levels([("running", running), ("idle", idle)])
        },
    },
    PluginMetric {
        metric: Metric::gauge(
            "plugin_canary_share",
            Unit::Ratio,
            "The canary's share of the messages; 0 after it was rolled back.",
        ),
        labels: BY_PLUGIN,
        read: |figures| {
            let canary = figures.canary.iter();
            canary
                .map(|canary| (None, MetricValue::Level(canary.share)))
                .collect()
        },
    },
    PluginMetric {
        metric: Metric::counter(
            "plugin_shadow",
            Unit::Messages,
            "How the shadow's answers compare.",
        ),
        labels: BY_RESULT,
        read: |figures| {
            let rows = |shadow: &Shadow| {
                counts([
                    ("same", shadow.same),
                    ("different", shadow.different),
                    ("closed", shadow.closed),
                    ("skipped", shadow.skipped),
                ])
            };
            figures.shadow.as_ref().map(rows).unwrap_or_default()
        },
    },
    PluginMetric {
        metric: Metric::counter(
            "plugin_recorded",
            Unit::Messages,
            "Messages to be recorded.",
        ),
        labels: BY_RESULT,
        read: |figures| {
            let rows =
                |Recorded { kept, left_out }| counts([("kept", kept), ("left-out", left_out)]);
            figures.recorded.map(rows).unwrap_or_default()
        },
    },
];

fn levels<const N: usize>(rows: [(&str, usize); N]) -> Vec<LabelledValue> {
    let row =
        |(label, level): (&str, usize)| (Some(label.to_owned()), MetricValue::Level(level as f64));
    rows.into_iter().map(row).collect()
}

fn counts<const N: usize>(rows: [(&str, u64); N]) -> Vec<LabelledValue> {
    let row = |(label, count): (&str, u64)| (Some(label.to_owned()), MetricValue::Count(count));
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::prometheus::TextFormat;

    #[test]
    fn absent_plugin_values_have_no_line() {
        let plugins = Plugins::default();
        let text = |plugins: &Plugins| TextFormat::OpenMetrics.text(&plugins.families(), &[]);
        assert_eq!(text(&plugins), "# EOF\n");
        let figures = Figures {
            plugin: "or\"ders".into(),
            current: Version {
                file: "orders.wasm".into(),
                sha256: "12".into(),
            },
            replaced: 3,
            instances: Instances {
                running: 2,
                running_memory_bytes: 131_072,
                ..Instances::default()
            },
            ..Figures::default()
        };
        let shadowed = Figures {
            shadow: Some(Shadow {
                different: 2,
                ..Shadow::default()
            }),
            recorded: Some(Recorded {
                kept: 5,
                left_out: 1,
            }),
            ..figures.clone()
        };
        plugins.add("a", move || figures.clone());
        let of_a = text(&plugins);
        assert!(
            of_a.contains(r#"dispatcher_plugin_info{route="a",plugin="or\"ders",sha256="12"} 1"#),
            "{of_a}"
        );
        assert!(
            of_a.contains(r#"dispatcher_plugin_replaced_total{route="a",plugin="or\"ders"} 3"#),
            "{of_a}"
        );
        for line in [
            r#"dispatcher_plugin_instances{route="a",plugin="or\"ders",state="running"} 2"#,
            r#"dispatcher_plugin_instances{route="a",plugin="or\"ders",state="idle"} 0"#,
            r#"dispatcher_plugin_memory_bytes{route="a",plugin="or\"ders",state="running"} 131072"#,
        ] {
            assert!(of_a.contains(line), "{of_a}");
        }
        assert!(
            !["shadow", "canary", "recorded"]
                .iter()
                .any(|name| of_a.contains(name)),
            "{of_a}"
        );
        plugins.add("b", move || shadowed.clone());
        for line in [
            r#"dispatcher_plugin_shadow_total{route="b",plugin="or\"ders",result="different"} 2"#,
            r#"dispatcher_plugin_recorded_total{route="b",plugin="or\"ders",result="left-out"} 1"#,
        ] {
            let of_both = text(&plugins);
            assert!(of_both.contains(line), "{of_both}");
        }
    }
}
