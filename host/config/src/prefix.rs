//! Puts the prefix before the queue names of flags and the file, before anything else reads them: the
//! checks and all later problems then have the full names. Pure.

use super::declared::{self, SettingPart, Table};
use super::discovery::QueuePattern;
use super::file::File;
use super::flags::Flags;
use super::problem::Problem;
use super::queues::DEFAULT_QUEUE;
use super::section::{Layers, WrittenValue};
use crate::backends;
use crate::name::QueueName;
use dispatcher_core::queue::prefix::QueuePrefix;

/// Replaces each queue name by the full name, and returns the prefix. A full name that is not valid
/// is a problem, and stays out.
pub(super) fn apply(
    flags: &mut Flags,
    file: &mut File,
    problems: &mut Vec<Problem>,
) -> QueuePrefix {
    let layers = [&flags.program, &file.program];
    let Some(given) = Layers(&layers).one("prefix").cloned() else {
        return QueuePrefix::default();
    };
    let text = given.text.trim();
    if !text.chars().all(is_of_name) {
        let found = format!("`prefix` is `{text}`, and no queue name begins so");
        let wanted = "letters, digits, `-`, `_` or `.`";
        problems.push(Problem::new(&given.at, found, wanted));
        return QueuePrefix::default();
    }
    let prefix = QueuePrefix::new(text);
    if text.is_empty() {
        return prefix;
    }
    let mut names = FullNames {
        prefix: prefix.clone(),
        at: given.at,
        problems,
    };
    write_default(flags, file);
    for setting in declared::all().filter(|setting| setting.names_queues) {
        let backend = match (setting.part, setting.tables) {
            (SettingPart::Queue, _) => embedded(),
            (_, [Table::Backend(backend)]) => Some(*backend),
            _ => None,
        };
        let of_flags = match setting.part {
            SettingPart::Program => Some(&mut flags.program),
            SettingPart::Route => Some(&mut flags.route),
            SettingPart::Plugin => Some(&mut flags.plugin),
            SettingPart::Queue | SettingPart::Limit | SettingPart::Account => None,
        };
        for section in file.sections(setting.part).into_iter().chain(of_flags) {
            section.replace(setting.key, |given| names.full(given, backend));
        }
    }
    for (name, mut section) in std::mem::take(&mut file.queues) {
        let full = names.full(WrittenValue::new(&section.at, name), embedded());
        section.at = full.at;
        file.queues.insert(full.text, section);
    }
    prefix
}

/// Writes the queue that is served if none is written, so that it gets the prefix as well.
fn write_default(flags: &mut Flags, file: &File) {
    let routes = file.routes.iter().chain([&flags.route]);
    let written = routes.filter(|route| route.list("queues").is_some());
    if file.routes.len() < 2 && written.count() == 0 {
        let default = WrittenValue::new("--queues", DEFAULT_QUEUE);
        flags.route.push("queues", default);
    }
}

/// The names with the prefix, and the problems of those that are not valid.
struct FullNames<'a> {
    prefix: QueuePrefix,
    /// The place of the prefix.
    at: String,
    problems: &'a mut Vec<Problem>,
}

impl FullNames<'_> {
    /// Returns names, separated by commas, as full names. Their place then quotes what is written.
    /// They are the bare names of the queues of `backend`, if there is one.
    fn full(&mut self, given: WrittenValue, backend: Option<&str>) -> WrittenValue {
        let names = given.text.split(',');
        let names = names.map(|name| self.full_name(name, &given.at, backend));
        let text = names.collect::<Vec<_>>().join(",");
        if text == given.text {
            return given;
        }
        let at = format!(
            "{} (`{}` with the prefix `{}`)",
            given.at, given.text, self.prefix
        );
        WrittenValue { at, text }
    }

    /// Returns a name with the prefix. One that is not valid in either form stays as it is, so that
    /// its problem quotes what is written.
    fn full_name(&mut self, written: &str, at: &str, backend: Option<&str>) -> String {
        let (name, _) = QueueName::split_weight(written.trim());
        let full = self.prefix.full(name);
        match (invalid(&full, backend), invalid(name, backend)) {
            (None, _) => return written.replacen(name, &full, 1),
            (Some(_), Some(_)) => {}
            (Some(why), None) => {
                let found = format!(
                    "`prefix` of {} makes `{name}` the name `{full}`: {why}",
                    self.at
                );
                self.problems.push(Problem::new(at, found, ""));
            }
        }
        written.to_owned()
    }
}

/// Returns the reason why a text is neither a queue name nor a pattern of names.
fn invalid(name: &str, backend: Option<&str>) -> Option<String> {
    let name = backend.map_or_else(|| name.to_owned(), |backend| format!("{backend}:{name}"));
    if QueuePattern::is_pattern(&name) {
        QueuePattern::parse(&name, "").err()
    } else {
        name.parse::<QueueName>().err()
    }
}

fn embedded() -> Option<&'static str> {
    backends::embedded().map(|backend| backend.name())
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}
