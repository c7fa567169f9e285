//! The state of each route's plugin versions, as JSON and as metrics. Knows only the plugins'
//! names; the owner supplies the values.

use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use parking_lot::Mutex;
use serde::Serialize;

/// The state of the versions of one route's plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The plugin's name.
    pub plugin: String,
    /// The version that handles all messages except the canary's.
    pub current: Version,
    /// The number of replacements since the start.
    pub replaced: u64,
    /// The number of versions that were refused.
    pub refused: u64,
    /// The current resources of its instances, of all versions together.
    pub instances: Instances,
    /// The canary version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// The shadow version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
    /// The number of recorded messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedCount>,
}

/// The number of recorded messages since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RecordedCount {
    /// The number of messages that were written.
    pub kept: u64,
    /// The number of messages that were left out because the disk was too slow or failed.
    pub left_out: u64,
}

/// The resources of the instances of a plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Instances {
    /// The number of instances with an attempt.
    pub running: usize,
    /// The size of their memories in bytes.
    pub running_memory_bytes: usize,
    /// The number of instances that wait for an attempt.
    pub idle: usize,
    /// The size of their memories in bytes.
    pub idle_memory_bytes: usize,
}

/// A version of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Version {
    /// The file or name that it was loaded from.
    pub file: String,
    /// The SHA-256 of the component.
    pub sha256: String,
}

/// The attempts of a canary and of the current version.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Canary {
    #[serde(flatten)]
    /// The canary version.
    pub version: Version,
    /// The share of the messages that it handles; 0 after it was rolled back.
    pub share: f64,
    /// The number of its attempts.
    pub attempts: u64,
    /// The number of its failed attempts.
    pub failed: u64,
    /// The number of attempts of the current version during the canary.
    pub current_attempts: u64,
    /// The number of failed attempts of the current version during the canary.
    pub current_failed: u64,
}

/// The comparison of a shadow's results, in messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Shadow {
    #[serde(flatten)]
    /// The shadow version.
    pub version: Version,
    /// The number of messages with the same result as the current version.
    pub same: u64,
    /// The number of messages with a different result.
    pub different: u64,
    /// The number of messages with a different result after the shadow used an interface that is
    /// closed to shadows.
    pub closed: u64,
    /// The number of messages that the shadow did not handle.
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
    /// Adds the plugin of a route, or replaces it. `ask` returns its figures; it must be fast and
    /// callable on any thread.
    pub fn add(&self, route: &str, ask: impl Fn() -> Figures + Send + Sync + 'static) {
        let mut plugins = self.0.lock();
        match plugins.iter_mut().find(|(name, _)| name == route) {
            Some((_, of_route)) => *of_route = Box::new(ask),
            None => plugins.push((route.to_owned(), Box::new(ask))),
        }
    }

    /// Removes the plugin of a route, if it has one.
    pub fn remove(&self, route: &str) {
        self.0.lock().retain(|(name, _)| name != route);
    }

    /// Removes all plugins, so that this registry does not keep them alive.
    pub fn forget(&self) {
        let plugins = std::mem::take(&mut *self.0.lock());
        drop(plugins);
    }

    /// Returns the figures of all plugins, by route.
    pub fn figures(&self) -> Vec<(String, Figures)> {
        let plugins = self.0.lock();
        plugins
            .iter()
            .map(|(route, ask): &(String, Ask)| (route.clone(), ask()))
            .collect()
    }

    /// Returns the metrics of all plugins. Absent versions have no sample.
    pub fn families(&self) -> Vec<MetricFamily> {
        let all = self.figures();
        METRICS.iter().map(|metric| metric.family(&all)).collect()
    }
}

/// A value, with the value of the metric's last label if it has one.
type LabelledValue = (Option<String>, MetricValue);

/// A metric of a plugin.
struct PluginMetric {
    metric: Metric,
    /// The labels: the route, the plugin, and possibly one more.
    labels: &'static [&'static str],
    /// The function that reads its values.
    read: fn(&Figures) -> Vec<LabelledValue>,
}

impl PluginMetric {
    /// Returns the metric with its values for all plugins, by route.
    fn family(&self, all: &[(String, Figures)]) -> MetricFamily {
        let samples = all.iter().flat_map(|(route, figures)| {
            let rows = (self.read)(figures).into_iter();
            rows.map(|(label, value)| {
                let of = [route.as_str(), &figures.plugin];
                MetricSample::new(of.into_iter().chain(label.as_deref()), value)
            })
        });
        self.metric.family(self.labels, samples)
    }
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
            figures
                .shadow
                .as_ref()
                .map(|shadow: &Shadow| {
                    counts([
                        ("same", shadow.same),
                        ("different", shadow.different),
                        ("closed", shadow.closed),
                        ("skipped", shadow.skipped),
                    ])
                })
                .unwrap_or_default()
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
                |RecordedCount { kept, left_out }| counts([("kept", kept), ("left-out", left_out)]);
            figures.recorded.map(rows).unwrap_or_default()
        },
    },
];

fn levels<const N: usize>(rows: [(&str, usize); N]) -> Vec<LabelledValue> {
    rows.into_iter()
        .map(|(label, level): (&str, usize)| {
            (Some(label.to_owned()), MetricValue::Level(level as f64))
        })
        .collect()
}

fn counts<const N: usize>(rows: [(&str, u64); N]) -> Vec<LabelledValue> {
    rows.into_iter()
        .map(|(label, count): (&str, u64)| (Some(label.to_owned()), MetricValue::Count(count)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::TextFormat;

    fn text(plugins: &Plugins) -> String {
        TextFormat::OpenMetrics.text(&plugins.families(), &[])
    }

    #[test]
    fn absent_plugin_values_have_no_line() {
        let plugins = Plugins::default();
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
            recorded: Some(RecordedCount {
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
