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
    /// The version that is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// The version that is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
}

/// A version.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Version {
    /// Where it was loaded from.
    pub file: String,
    /// Its SHA-256.
    pub sha256: String,
}

/// How a canary does beside the current version, in messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names tell")]
pub struct Canary {
    #[serde(flatten)]
    pub version: Version,
    /// The part of the messages that it takes; 0 once it fell back.
    pub share: f64,
    pub messages: u64,
    pub failed: u64,
    pub current_messages: u64,
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
        let mut out = String::new();
        let all = self.figures();
        let mut family = |name: &str, kind: &str, help: &str, rows: Vec<(String, f64)>| {
            if rows.is_empty() {
                return;
            }
            let _ = writeln!(out, "# HELP dispatcher_plugin_{name} {help}");
            let _ = writeln!(out, "# TYPE dispatcher_plugin_{name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(out, "dispatcher_plugin_{name}{{{labels}}} {value}");
            }
        };
        let labels = |route: &str, figures: &Figures| {
            let (route, plugin) = (escaped(route), escaped(&figures.plugin));
            format!("route=\"{route}\",plugin=\"{plugin}\"")
        };
        let rows = |rows: &dyn Fn(&Figures) -> Vec<(&'static str, f64)>| {
            let of = |(route, figures): &(String, Figures)| {
                let labels = labels(route, figures);
                let named = move |(name, value): (&str, f64)| match name {
                    "" => (labels.clone(), value),
                    name => (format!("{labels},{name}"), value),
                };
                rows(figures).into_iter().map(named).collect::<Vec<_>>()
            };
            all.iter().flat_map(of).collect::<Vec<_>>()
        };
        let versions = all.iter().map(|(route, figures)| {
            let sha256 = &figures.current.sha256;
            (
                format!("{},sha256=\"{sha256}\"", labels(route, figures)),
                1.0,
            )
        });
        family("info", "gauge", "The version at work.", versions.collect());
        let replaced = rows(&|figures| vec![("", figures.replaced as f64)]);
        family(
            "replaced_total",
            "counter",
            "How often the version was replaced.",
            replaced,
        );
        let refused = rows(&|figures| vec![("", figures.refused as f64)]);
        family(
            "refused_total",
            "counter",
            "Versions that were not taken.",
            refused,
        );
        let share = rows(&|figures| {
            let canary = figures.canary.as_ref();
            canary
                .map(|canary| ("", canary.share))
                .into_iter()
                .collect()
        });
        let help = "The part of the messages that the canary takes; 0 once it fell back.";
        family("canary_share", "gauge", help, share);
        let compared = rows(&|figures| match &figures.shadow {
            None => Vec::new(),
            Some(shadow) => vec![
                ("result=\"same\"", shadow.same as f64),
                ("result=\"different\"", shadow.different as f64),
                ("result=\"closed\"", shadow.closed as f64),
                ("result=\"skipped\"", shadow.skipped as f64),
            ],
        });
        family(
            "shadow_total",
            "counter",
            "How the shadow's answers compare.",
            compared,
        );
        out
    }
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
            ..Figures::default()
        };
        let shadowed = Figures {
            shadow: Some(Shadow {
                different: 2,
                ..Shadow::default()
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
        assert!(
            !text.contains("shadow") && !text.contains("canary"),
            "{text}"
        );
        plugins.add("b", move || shadowed.clone());
        let line =
            r#"dispatcher_plugin_shadow_total{route="b",plugin="or\"ders",result="different"} 2"#;
        assert!(plugins.text().contains(line), "{}", plugins.text());
    }
}
