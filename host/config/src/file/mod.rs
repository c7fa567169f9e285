//! Parses the configuration file: converts TOML to sections of texts with their lines, and reports
//! every unknown key and wrong type. `check` interprets the texts.

use super::declared::{self, Setting, SettingPart, Shape, Table};
use super::problem::Problem;
use super::section::{Section, WrittenValue};
use crate::backends;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const TOP: &[&str] = &[
    "dispatcher",
    "backend",
    "plugin",
    "queue",
    "route",
    "limit",
    "fleet",
    "account",
];

/// The sections of a file, without defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct File {
    /// `[dispatcher]`, `[fleet]` and `[backend.…]`. The latter has priority, since it is more specific.
    pub program: Section,
    /// `[plugin.NAME]` by name.
    pub plugins: BTreeMap<String, Section>,
    /// `[queue.NAME]` by name.
    pub queues: BTreeMap<String, Section>,
    /// `[limit.NAME]` by name.
    pub limits: BTreeMap<String, Section>,
    /// `[account.NAME]` by name.
    pub accounts: BTreeMap<String, Section>,
    /// `[[route]]` in the file's order.
    pub routes: Vec<Section>,
    /// Whether the file could not be read. No setting can then be reported as missing.
    pub unread: bool,
}

impl File {
    /// Returns all sections that hold the settings of a part.
    pub(super) fn sections(&mut self, part: SettingPart) -> Vec<&mut Section> {
        match part {
            SettingPart::Program => vec![&mut self.program],
            SettingPart::Plugin => self.plugins.values_mut().collect(),
            SettingPart::Queue => self.queues.values_mut().collect(),
            SettingPart::Limit => self.limits.values_mut().collect(),
            SettingPart::Account => self.accounts.values_mut().collect(),
            SettingPart::Route => self.routes.iter_mut().collect(),
        }
    }
}

/// Parses a file's text. Returns the valid part together with the problems, in the file's order, so
/// that `check` can find the rest of the problems. Relative paths become relative to the folder of
/// `path`, which is also the file's name in problems.
pub(super) fn read(path: &Path, text: &str) -> (File, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        name: &path.display().to_string(),
        line_ends: text.match_indices('\n').map(|(at, _)| at).collect(),
        problems: Vec::new(),
    };
    for error in errors {
        let found = error.message().lines().collect::<Vec<_>>().join(", ");
        reader.report(error.span().unwrap_or(0..0), |at| {
            Problem::new(at, format!("not TOML: {found}"), "")
        });
    }
    let mut file = reader.file(table.get_ref());
    let mut problems = reader.problems;
    let folder = path.parent().unwrap_or(Path::new(""));
    for setting in declared::all().filter(|setting| setting.is_path) {
        for section in file.sections(setting.part) {
            section.root_at(setting.key, folder);
        }
    }
    problems.sort_by_key(|(start, _)| *start);
    (
        file,
        problems.into_iter().map(|(_, problem)| problem).collect(),
    )
}

struct Reader<'a> {
    name: &'a str,
    /// The positions of the line breaks.
    line_ends: Vec<usize>,
    problems: Vec<(usize, Problem)>,
}

impl Reader<'_> {
    fn file(&mut self, top: &DeTable<'_>) -> File {
        let mut file = File {
            program: Section::new(self.name),
            ..File::default()
        };
        for (key, value) in top {
            match key.get_ref().as_ref() {
                "dispatcher" => {
                    self.section("[dispatcher]", Table::Dispatcher, value, &mut file.program);
                }
                "plugin" => self.named("plugin", Table::Plugin, value, &mut file.plugins),
                "queue" => self.named("queue", Table::Queue, value, &mut file.queues),
                "limit" => self.named("limit", Table::Limit, value, &mut file.limits),
                "account" => {
                    self.named("account", Table::Account, value, &mut file.accounts);
                }
                "fleet" => self.section("[fleet]", Table::Fleet, value, &mut file.program),
                "route" => self.routes(value, &mut file),
                "backend" => {}
                unknown => self.unknown(key.span(), unknown, "the file", TOP.iter().copied()),
            }
        }
        // Read last, so that its values override those of [dispatcher].
        if let Some(backends) = top.get("backend") {
            self.backends(backends, &mut file);
        }
        file
    }

    fn backends(&mut self, value: &Spanned<DeValue<'_>>, file: &mut File) {
        for (key, value) in self.table("[backend]", value) {
            let name = key.get_ref().as_ref();
            let known = declared::backends();
            match known.iter().find(|known| **known == name) {
                Some(known) => {
                    let table = Table::Backend(known);
                    self.section(&table.title(), table, value, &mut file.program);
                }
                None => match backends::find(name) {
                    Err(absent) if absent.is_left_out() => self.report(key.span(), |at| {
                        Problem::new(at, format!("settings of {absent}"), "")
                    }),
                    _ => self.unknown(key.span(), name, "[backend]", known.iter().copied()),
                },
            }
        }
    }

    /// Reads the sections of `[kind.NAME]`.
    fn named(
        &mut self,
        kind: &str,
        table: Table,
        value: &Spanned<DeValue<'_>>,
        into: &mut BTreeMap<String, Section>,
    ) {
        for (key, value) in self.table(&format!("[{kind}]"), value) {
            let name = key.get_ref().to_string();
            let mut section = Section::new(self.place(key.span()));
            let title = format!("[{kind}.{name}]");
            self.section(&title, table, value, &mut section);
            into.insert(name, section);
        }
    }

    fn routes(&mut self, value: &Spanned<DeValue<'_>>, file: &mut File) {
        let DeValue::Array(routes) = value.get_ref() else {
            return self.report(value.span(), |at| {
                Problem::new(at, "`route` is not a list", "[[route]], in double brackets")
            });
        };
        for route in routes.iter() {
            let mut section = Section::new(self.place(route.span()));
            self.section("[[route]]", Table::Route, route, &mut section);
            file.routes.push(section);
        }
    }

    /// Reads a table of known keys.
    fn section(
        &mut self,
        title: &str,
        table: Table,
        value: &Spanned<DeValue<'_>>,
        into: &mut Section,
    ) {
        let known: Vec<Key> = table.settings().collect();
        for (key, value) in self.table(title, value) {
            let name = key.get_ref().as_ref();
            let inner: Vec<Key> = known
                .iter()
                .filter_map(|(known, setting)| {
                    let (table, key) = known.split_once('.')?;
                    (table == name).then_some((key, *setting))
                })
                .collect();
            match known.iter().find(|(known, _)| *known == name) {
                Some((_, setting)) => self.value(name, setting, value, into),
                None if !inner.is_empty() => self.inner(name, &inner, value, into),
                None => {
                    let names = known.iter().map(|(key, _)| first_part(key));
                    self.unknown(key.span(), name, title, names);
                }
            }
        }
    }

    /// Reads a table within a section, or the scalar that is a shorthand for one of its keys.
    fn inner(
        &mut self,
        table: &str,
        known: &[Key],
        value: &Spanned<DeValue<'_>>,
        into: &mut Section,
    ) {
        let shorthand = known.iter().find(|(_, setting)| setting.is_shorthand);
        if let (Some((_, setting)), false) = (shorthand, value.get_ref().is_table()) {
            return self.scalar(table, setting.key, value, into);
        }
        into.open(table);
        let title = format!("`{table}`");
        for (key, value) in self.table(&title, value) {
            let name = key.get_ref().as_ref();
            match known.iter().find(|(known, _)| *known == name) {
                Some((_, setting)) => self.value(name, setting, value, into),
                None => {
                    let names = known.iter().map(|(key, _)| *key);
                    self.unknown(key.span(), name, &title, names);
                }
            }
        }
    }

    /// Reads a value, whose name in the file is `name`.
    fn value(
        &mut self,
        name: &str,
        setting: &Setting,
        value: &Spanned<DeValue<'_>>,
        into: &mut Section,
    ) {
        let key = setting.key;
        match (setting.shape, value.get_ref()) {
            (Shape::List, DeValue::Array(items)) => {
                into.open(key);
                for item in items.iter() {
                    self.scalar(name, key, item, into);
                }
            }
            (Shape::Switch, DeValue::Boolean(on)) => {
                into.push(
                    key,
                    WrittenValue::new(self.place(value.span()), on.to_string()),
                );
            }
            (Shape::Switch, other) => {
                let kind = kind(other);
                self.report(value.span(), |at| {
                    Problem::new(at, format!("`{name}` is {kind}"), "true or false")
                });
            }
            (Shape::Scalar | Shape::List, _) => self.scalar(name, key, value, into),
            (Shape::Tables(keys), _) => self.tables(name, keys, value, into),
            (Shape::Map, _) => {
                for (entry, value) in self.table(&format!("`{name}`"), value) {
                    let entry = entry.get_ref();
                    let (name, key) = (format!("{name}.{entry}"), format!("{key}.{entry}"));
                    self.scalar(&name, &key, value, into);
                }
            }
        }
    }

    /// Reads a table of tables, each with some of these keys.
    fn tables(
        &mut self,
        name: &str,
        keys: &'static [&'static str],
        value: &Spanned<DeValue<'_>>,
        into: &mut Section,
    ) {
        for (entry, value) in self.table(&format!("`{name}`"), value) {
            let entry = format!("{name}.{}", entry.get_ref());
            let title = format!("`{entry}`");
            if value.get_ref().as_table().is_some_and(DeTable::is_empty) {
                let wanted = keys.join(", ");
                self.report(value.span(), |at| {
                    Problem::new(at, format!("{title} is empty"), wanted)
                });
            }
            for (key, value) in self.table(&title, value) {
                let found = key.get_ref().as_ref();
                if keys.contains(&found) {
                    let key = format!("{entry}.{found}");
                    self.scalar(&key, &key, value, into);
                } else {
                    self.unknown(key.span(), found, &title, keys.iter().copied());
                }
            }
        }
    }

    fn scalar(&mut self, name: &str, key: &str, value: &Spanned<DeValue<'_>>, into: &mut Section) {
        let text = match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(|number| number.to_string())
                .ok(),
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            _ => None,
        };
        match text {
            Some(text) => into.push(key, WrittenValue::new(self.place(value.span()), text)),
            None => {
                let kind = match value.get_ref() {
                    DeValue::Integer(_) => "a number out of range",
                    other => kind(other),
                };
                self.report(value.span(), |at| {
                    Problem::new(at, format!("`{name}` is {kind}"), "a string or a number")
                });
            }
        }
    }

    fn table<'v, 'i>(
        &mut self,
        title: &str,
        value: &'v Spanned<DeValue<'i>>,
    ) -> impl Iterator<Item = Entry<'v, 'i>> + use<'v, 'i> {
        let table = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            other => {
                let kind = kind(other);
                self.report(value.span(), |at| {
                    Problem::new(at, format!("{title} is {kind}"), "a table")
                });
                None
            }
        };
        table.into_iter().flatten()
    }

    fn unknown(
        &mut self,
        span: Range<usize>,
        found: &str,
        title: &str,
        names: impl Iterator<Item = &'static str>,
    ) {
        let names: BTreeSet<_> = names.collect();
        let wanted = names.iter().copied().collect::<Vec<_>>().join(", ");
        let elsewhere: BTreeSet<_> = declared::all()
            .flat_map(|setting| setting.tables.iter().map(move |table| (*table, setting)))
            .filter(|(table, setting)| setting.key_in(*table).map(first_part) == Some(found))
            .map(|(table, _)| table.title())
            .collect();
        self.report(span, |at| {
            let problem = Problem::new(at, format!("unknown key `{found}` in {title}"), wanted);
            if elsewhere.is_empty() {
                return problem.nearest(found, names);
            }
            let tables = elsewhere.into_iter().collect::<Vec<_>>().join(" or ");
            problem.hint(format!("it is a key of {tables}"))
        });
    }

    fn report(&mut self, span: Range<usize>, problem: impl FnOnce(String) -> Problem) {
        let problem = problem(self.place(span.clone()));
        self.problems.push((span.start, problem));
    }

    fn place(&self, span: Range<usize>) -> String {
        let line = 1 + self.line_ends.partition_point(|end| *end < span.start);
        format!("{}:{line}", self.name)
    }
}

/// A key as it is written in its table.
type Key = (&'static str, &'static Setting);

/// Returns the first part of a key: `retry` of `retry.first`.
fn first_part(key: &'static str) -> &'static str {
    key.split('.').next().unwrap_or(key)
}

type Entry<'v, 'i> = (
    &'v Spanned<std::borrow::Cow<'i, str>>,
    &'v Spanned<DeValue<'i>>,
);

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests;
