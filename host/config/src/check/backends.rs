//! Checks the sections of backends against the settings that each backend declares.

use super::Check;
use crate::backends;
use crate::problem::Problem;
use crate::section::{Layers, WrittenValue};
use crate::value::{self, BareUnit};
use dispatcher_core::backend::{Backend, BackendSetting, BadValue, SectionValues, SettingForm};
use std::collections::BTreeMap;

impl Check {
    /// Reads the settings of each backend, by its name.
    pub(super) fn sections(
        &mut self,
        program: Layers<'_>,
    ) -> BTreeMap<&'static str, SectionValues> {
        let backends = backends::all().iter();
        let named = backends.map(|backend| (backend.name(), self.section(*backend, program)));
        named.collect()
    }

    fn section(&mut self, backend: &dyn Backend, program: Layers<'_>) -> SectionValues {
        let mut values = SectionValues::new();
        let (mut written, mut places) = (SectionValues::new(), BTreeMap::new());
        for setting in backend.facts().settings {
            let key = format!("{}-{}", backend.name(), setting.key);
            let set = if let SettingForm::WordPerQueue { words, .. } = setting.form {
                self.words_of_queues(program, &key, words)
            } else {
                let Some(given) = program.one(&key) else {
                    continue;
                };
                written.insert(setting.key, vec![given.text.trim().to_owned()]);
                places.insert(setting.key, given);
                let text = self.read(Some(given), |given| text(backend, setting, given));
                text.into_iter().collect()
            };
            if !set.is_empty() {
                values.insert(setting.key, set);
            }
        }
        // Checks the values as written: a refused value counts as set.
        for (key, bad) in backend.check_section(&written) {
            let given = places.get(key);
            self.problems
                .push(problem(given.map_or("", |given| &given.at), bad));
        }
        values
    }

    fn words_of_queues(
        &mut self,
        program: Layers<'_>,
        key: &str,
        words: &'static [&'static str],
    ) -> Vec<String> {
        let mut entries = Vec::new();
        for (queue, given) in program.entries(key) {
            let word = self.read(Some(given), |given| word(given, words));
            entries.extend(word.map(|word| format!("{queue}={word}")));
        }
        entries
    }
}

/// Parses a value into the form that the backend expects.
fn text(
    backend: &dyn Backend,
    setting: &BackendSetting,
    given: &WrittenValue,
) -> Result<String, Problem> {
    let text = match &setting.form {
        SettingForm::Text => given.text.trim().to_owned(),
        SettingForm::Path => match given.text.trim() {
            "" => {
                return Err(Problem::new(
                    &given.at,
                    "no name",
                    "the path of a file or folder",
                ));
            }
            name => name.to_owned(),
        },
        SettingForm::Word(words) | SettingForm::WordPerQueue { words, .. } => {
            word(given, words)?.to_owned()
        }
        SettingForm::Number(range) => value::number(given, range)?.to_string(),
        SettingForm::Time(range) => {
            let time = value::duration(given, BareUnit::Refused, range)?;
            humantime::format_duration(time).to_string()
        }
    };
    match backend.check_setting(setting.key, &text) {
        Ok(()) => Ok(text),
        Err(bad) => Err(problem(&given.at, bad)),
    }
}

fn word(given: &WrittenValue, words: &'static [&'static str]) -> Result<&'static str, Problem> {
    let words: Vec<_> = words.iter().map(|word| (*word, *word)).collect();
    value::choice(given, &words)
}

fn problem(at: &str, bad: BadValue) -> Problem {
    let problem = Problem::new(at, bad.found, bad.wanted);
    match bad.example {
        "" => problem,
        example => problem.hint(format!("written like {example}")),
    }
}
