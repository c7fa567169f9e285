//! How the versions of each route's plugin stand, for whoever asks: as JSON and as Prometheus reads
//! it. Knows no plugin but its name; whoever runs one says how it is asked.

use super::prometheus::escaped;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// How the versions of one route's plugin stand.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
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
pub struct Recorded {
    /// They are written.
    pub kept: u64,
    /// The disk was too slow, or failed.
    pub left_out: u64,
}

/// What the instances of a plugin take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Instances {
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
pub struct Version {
    /// Where it was loaded from.
    pub file: String,
    /// Its SHA-256.
    pub sha256: String,
}

/// How a canary does beside the current version, in attempts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names tell")]
pub struct Canary {
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
#[expect(missing_docs, reason = "the names tell")]
pub struct Shadow {
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
    pub fn add(&self, route: &str, ask: impl Fn() -> Figures + Send + Sync + 'static) {
        let mut plugins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plugins.push((route.to_owned(), Box::new(ask)));
    }

    /// Asks none of them any more, and so keeps none of them alive.
    pub fn forget(&self) {
        let plugins = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(plugins);
    }

    /// All of them, by route.
    pub fn figures(&self) -> Vec<(String, Figures)> {
        let plugins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = |(route, ask): &(String, Ask)| (route.clone(), ask());
        plugins.iter().map(ask).collect()
    }

    /// In the text format of Prometheus; names begin with `dispatcher_plugin_`.
    pub fn text(&self) -> String {
        let all = self.figures();
        let mut out = String::new();
        for (name, kind, help, rows) in FAMILIES {
            let mut lines = String::new();
            for (route, figures) in &all {
                let (route, plugin) = (escaped(route), escaped(&figures.plugin));
                for (label, value) in rows(figures) {
                    let of = format!("route=\"{route}\",plugin=\"{plugin}\"{label}");
                    let _ = writeln!(lines, "dispatcher_plugin_{name}{{{of}}} {value}");
                }
            }
            if !lines.is_empty() {
                let _ = writeln!(out, "# HELP dispatcher_plugin_{name} {help}");
                let _ = writeln!(out, "# TYPE dispatcher_plugin_{name} {kind}");
                out += &lines;
            }
        }
        out
    }
}

/// What is told of a plugin in one family: further labels, each with a comma before it, and a value.
type Rows = fn(&Figures) -> Vec<(String, f64)>;

/// Name, kind, help and rows of each.
const FAMILIES: [(&str, &str, &str, Rows); 8] = [
    ("info", "gauge", "The version at work.", |figures| {
        let sha256 = &figures.current.sha256;
        vec![(format!(",sha256=\"{sha256}\""), 1.0)]
    }),
    (
        "replaced_total",
        "counter",
        "How often the version was replaced.",
        |figures| vec![(String::new(), figures.replaced as f64)],
    ),
    (
        "refused_total",
        "counter",
        "Versions that were not taken.",
        |figures| vec![(String::new(), figures.refused as f64)],
    ),
    (
        "instances",
        "gauge",
        "Instances of all its versions.",
        |figures| {
            let Instances { running, idle, .. } = figures.instances;
            by(
                "state",
                [("running", running as f64), ("idle", idle as f64)],
            )
        },
    ),
    (
        "memory_bytes",
        "gauge",
        "Linear memory of these instances.",
        |figures| {
            let of = figures.instances;
            let (running, idle) = (of.running_memory_bytes, of.idle_memory_bytes);
            by(
                "state",
                [("running", running as f64), ("idle", idle as f64)],
            )
        },
    ),
    (
        "canary_share",
        "gauge",
        "The part of the messages that the canary takes; 0 once it fell back.",
        |figures| {
            let canary = figures.canary.iter();
            canary.map(|canary| (String::new(), canary.share)).collect()
        },
    ),
    (
        "shadow_total",
        "counter",
        "How the shadow's answers compare.",
        |figures| {
            let rows = |shadow: &Shadow| {
                let results = [
                    ("same", shadow.same as f64),
                    ("different", shadow.different as f64),
                    ("closed", shadow.closed as f64),
                    ("skipped", shadow.skipped as f64),
                ];
                by("result", results)
            };
            figures.shadow.as_ref().map(rows).unwrap_or_default()
        },
    ),
    (
        "recorded_total",
        "counter",
        "Messages that were to be recorded.",
        |figures| {
            let rows = |Recorded { kept, left_out }| {
                let results = [("kept", kept as f64), ("left-out", left_out as f64)];
                by("result", results)
            };
            figures.recorded.map(rows).unwrap_or_default()
        },
    ),
];

/// One row for each value of a label.
fn by<const N: usize>(label: &str, rows: [(&str, f64); N]) -> Vec<(String, f64)> {
    let row = |(value, figure)| (format!(",{label}=\"{value}\""), figure);
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_has_no_line() {
        let plugins = Plugins::default();
        assert_eq!(plugins.text(), "");
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
        let text = plugins.text();
        assert!(
            text.contains(r#"dispatcher_plugin_info{route="a",plugin="or\"ders",sha256="12"} 1"#),
            "{text}"
        );
        assert!(
            text.contains(r#"dispatcher_plugin_replaced_total{route="a",plugin="or\"ders"} 3"#),
            "{text}"
        );
        for line in [
            r#"dispatcher_plugin_instances{route="a",plugin="or\"ders",state="running"} 2"#,
            r#"dispatcher_plugin_instances{route="a",plugin="or\"ders",state="idle"} 0"#,
            r#"dispatcher_plugin_memory_bytes{route="a",plugin="or\"ders",state="running"} 131072"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(
            !["shadow", "canary", "recorded"]
                .iter()
                .any(|name| text.contains(name)),
            "{text}"
        );
        plugins.add("b", move || shadowed.clone());
        for line in [
            r#"dispatcher_plugin_shadow_total{route="b",plugin="or\"ders",result="different"} 2"#,
            r#"dispatcher_plugin_recorded_total{route="b",plugin="or\"ders",result="left-out"} 1"#,
        ] {
            assert!(plugins.text().contains(line), "{}", plugins.text());
        }
    }
}
