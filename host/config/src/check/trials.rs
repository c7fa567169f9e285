//! Checks the canary, the shadow and the recording of a plugin. Opens nothing.

use super::Check;
use crate::problem::Problem;
use crate::section::{Layers, WrittenValue};
use crate::value;
use crate::{Code, ImageName, Record, RecordingTerms, Share, Source, Trial, Trials};
use dispatcher_trials::recording::redact::Rule;

/// A canary's default share of the messages.
const TRIED: f64 = 0.1;
/// The default bound of a recording folder.
const MOST: usize = 1 << 30;
const BOUNDS: std::ops::RangeInclusive<usize> = (1 << 20)..=(1 << 50);

impl Check {
    pub(super) fn trials(&mut self, layers: Layers<'_>, code: &Code) -> Trials {
        let kind = match code {
            Code::Missing | Code::Component(_) | Code::Relay(_) => None,
            Code::Forward(_) => Some("function"),
            Code::Http(_) => Some("service"),
        };
        if let Some(kind) = kind {
            for key in ["canary.file", "shadow.file", "record.folder"] {
                if let Some(given) = layers.one(key) {
                    let found = format!("a trial of a plugin that forwards to a {kind}");
                    let wanted = "the setting for a component only";
                    let problem = Problem::new(&given.at, found, wanted);
                    self.problems.push(match key {
                        "canary.file" if kind == "function" => {
                            problem.hint("an alias of the function can shift traffic")
                        }
                        _ => problem,
                    });
                }
            }
        }
        Trials {
            canary: self.canary(layers),
            shadow: self
                .alone(layers, "shadow", "file")
                .and_then(|given| self.read(Some(given), source)),
            record: self.record(layers),
        }
    }

    fn canary(&mut self, layers: Layers<'_>) -> Option<Trial> {
        let file = self.alone(layers, "canary", "file")?;
        let share = self.read(layers.one("canary.share"), share);
        let default = Share::new(TRIED).unwrap_or(Share::ALL);
        Some(Trial {
            source: self.read(Some(file), source)?,
            share: share.unwrap_or(default),
        })
    }

    fn record(&mut self, layers: Layers<'_>) -> Option<Record> {
        let folder = self.alone(layers, "record", "folder")?;
        let rules = layers.list("record.redact").unwrap_or_default();
        let redact = rules
            .iter()
            .filter_map(|given| {
                self.read(Some(given), |given: &WrittenValue| {
                    let rule: Result<Rule, _> = given.text.trim().parse();
                    let found = format!("`{}` is not a place to redact", given.text);
                    rule.map_err(|wanted| Problem::new(&given.at, found, wanted))
                })
            })
            .collect();
        let most = self.read(layers.one("record.most"), |given| {
            value::size(given, &BOUNDS)
        });
        let share = self.read(layers.one("record.share"), share);
        let folder = self.read(Some(folder), |given| value::text(given, "a folder"))?;
        Some(Record {
            terms: RecordingTerms {
                folder: folder.into(),
                redact,
                most: most.unwrap_or(MOST) as u64,
            },
            share: share.unwrap_or(Share::ALL),
        })
    }

    /// Returns the required key of a table. Reports a problem if the table has other keys but not
    /// this one.
    fn alone<'a>(
        &mut self,
        layers: Layers<'a>,
        table: &str,
        key: &str,
    ) -> Option<&'a WrittenValue> {
        let given = layers.one(&format!("{table}.{key}"));
        if given.is_none()
            && let Some((name, other)) = layers.entries(table).into_iter().next()
        {
            let found = format!("`{table}` sets `{name}` but not `{key}`");
            let problem = Problem::new(&other.at, found, format!("a {key} as well"));
            self.problems.push(problem);
        }
        given
    }
}

/// Parses a component: a file, or `oci://HOST/NAME@sha256:DIGEST`.
pub(super) fn source(given: &WrittenValue) -> Result<Source, Problem> {
    let text = value::text(given, "a component's file")?;
    if !text.starts_with(ImageName::SCHEME) {
        return Ok(Source::File(text.into()));
    }
    let found = format!("`{text}` does not name a component");
    let image = text.parse().map(Source::Image);
    image.map_err(|wanted: &str| Problem::new(&given.at, found, wanted))
}

/// Parses a share such as `0.1` or `10%`.
fn share(given: &WrittenValue) -> Result<Share, Problem> {
    let text = given.text.trim();
    let fraction = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    fraction.ok().and_then(Share::new).ok_or_else(|| {
        let found = format!("`{text}` is not a share");
        Problem::new(
            &given.at,
            found,
            "a number above 0 and at most 1, or a percentage",
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::flags::Flags;
    use crate::section::WrittenValue;
    use crate::{PluginConfig, settings};

    fn plugin(flags: &[(&str, &str)]) -> (PluginConfig, Vec<String>) {
        let mut all = Flags::default();
        for (flag, text) in [("plugin", "a.wasm")].iter().chain(flags) {
            all.take(flag, WrittenValue::new(format!("--{flag}"), *text));
        }
        let (settings, problems) = settings(&all);
        let problems = problems.iter().map(ToString::to_string).collect();
        (settings.routes[0].plugin.clone(), problems)
    }

    #[test]
    fn canary_and_shadow_settings_are_read() {
        let (read, problems) = plugin(&[
            ("canary", "b.wasm"),
            ("canary-share", "5%"),
            ("shadow", "c.wasm"),
            ("record", "kept"),
            ("record-redact", "/a\nattribute:b"),
            ("record-share", "0.5"),
        ]);
        assert_eq!(problems, [""; 0]);
        let canary = read.trials.canary.expect("a canary");
        assert_eq!(
            (canary.source.to_string().as_str(), canary.share.get()),
            ("b.wasm", 0.05)
        );
        assert_eq!(read.trials.shadow.expect("a shadow").to_string(), "c.wasm");
        let record = read.trials.record.expect("a recording");
        assert_eq!((record.terms.redact.len(), record.share.get()), (2, 0.5));
        assert_eq!(record.terms.most, 1 << 30);
    }

    #[test]
    fn conflicting_trial_settings_are_reported_all_at_once() {
        let image = "oci://registry.example/handlers/orders:latest";
        let (_, problems) = plugin(&[
            ("canary-share", "0.5"),
            ("shadow", image),
            ("record", "kept"),
            ("record-redact", "email"),
            ("record-share", "0"),
        ]);
        let begins = [
            "--canary-share: `canary` sets `share` but not `file`",
            "--shadow: `oci://registry.example/handlers/orders:latest` does not name a component; wanted",
            "--record-redact: `email` is not a place to redact; wanted",
            "--record-share: `0` is not a share; wanted",
        ];
        assert_eq!(problems.len(), begins.len(), "{problems:#?}");
        for (problem, begin) in problems.iter().zip(begins) {
            assert!(problem.starts_with(begin), "{problem}");
        }
    }
}
