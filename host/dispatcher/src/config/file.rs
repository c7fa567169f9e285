//! The configuration file: TOML into sections of texts, each with its line, and every unknown key
//! and wrong shape. What the texts mean is `check`'s business.

use super::problem::Problem;
use super::section::{Given, Section};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What a key may hold.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// A string or a number.
    Scalar,
    /// `true` or `false`.
    Switch,
    /// An array of scalars, or one scalar.
    List,
    /// A table with names of the user's own.
    Map,
    /// A table with the keys named.
    Table(&'static [Key]),
    /// The same, or a scalar that stands for the first key named.
    ScalarOrTable(&'static [Key]),
}

type Key = (&'static str, Shape);

const DISPATCHER: &[Key] = &[
    ("admin", Shape::Scalar),
    ("admin-host", Shape::List),
    ("admin-token-file", Shape::Scalar),
    ("concurrency", Shape::Scalar),
    ("data", Shape::Scalar),
    ("endpoint-url", Shape::Scalar),
    ("log-format", Shape::Scalar),
    ("log-level", Shape::Scalar),
    ("message-memory", Shape::Scalar),
    ("metrics", Shape::Scalar),
    ("metrics-interval", Shape::Scalar),
    ("name", Shape::Scalar),
    ("schedule-interval", Shape::Scalar),
    ("schedule-table", Shape::Scalar),
    ("shutdown-grace", Shape::Scalar),
    ("workers", Shape::Scalar),
];
const BACKENDS: &[(&str, &[Key])] = &[
    ("dynamodb", DYNAMODB),
    ("local", &[("data", Shape::Scalar)]),
    ("redis", REDIS),
    ("sqs", &[("endpoint-url", Shape::Scalar)]),
];
const DYNAMODB: &[Key] = &[
    ("body-attribute", Shape::Scalar),
    ("endpoint-url", Shape::Scalar),
    ("idle-poll", Shape::Scalar),
    ("shards", Shape::Scalar),
    ("time-to-live", Shape::Scalar),
];
const REDIS: &[Key] = &[
    ("ca-file", Shape::Scalar),
    ("cert-file", Shape::Scalar),
    ("format", Shape::Map),
    ("key-file", Shape::Scalar),
    ("prefix", Shape::Scalar),
    ("url", Shape::Scalar),
    ("worqr-prefix", Shape::Scalar),
];
const PLUGIN: &[Key] = &[
    ("allow-connect", Shape::List),
    ("allow-http", Shape::List),
    ("allow-lambda", Shape::List),
    ("allow-read", Shape::Scalar),
    ("allow-send", Shape::List),
    ("canary", Shape::ScalarOrTable(CANARY)),
    ("env", Shape::Map),
    ("file", Shape::Scalar),
    ("function", Shape::Scalar),
    ("instance-concurrency", Shape::Scalar),
    ("invocation", Shape::Scalar),
    ("max-memory", Shape::Scalar),
    ("partial-failures", Shape::Switch),
    ("record", Shape::ScalarOrTable(RECORD)),
    ("reuse", Shape::ScalarOrTable(REUSE)),
    ("setting", Shape::Map),
    ("shadow", Shape::ScalarOrTable(&[("file", Shape::Scalar)])),
    ("store", Shape::Map),
    ("timeout", Shape::Scalar),
    ("warm", Shape::Scalar),
];
const REUSE: &[Key] = &[COUNT, ("age", Shape::Scalar), ("memory", Shape::Scalar)];
const COUNT: Key = ("count", Shape::Scalar);
const CANARY: &[Key] = &[("file", Shape::Scalar), ("share", Shape::Scalar)];
const RECORD: &[Key] = &[
    ("folder", Shape::Scalar),
    ("most", Shape::Scalar),
    ("redact", Shape::List),
    ("share", Shape::Scalar),
];
/// What names a file or a folder in `[plugin.NAME]`.
const PLACES: [&str; 5] = [
    "file",
    "allow-read",
    "canary.file",
    "shadow.file",
    "record.folder",
];
const ROUTE: &[Key] = &[
    ("batch-size", Shape::Scalar),
    ("batch-window", Shape::Scalar),
    ("concurrency", Shape::Scalar),
    ("dead-letter", Shape::Scalar),
    ("group-by", Shape::Scalar),
    ("idempotency", Shape::Scalar),
    ("max-age", Shape::Scalar),
    ("name", Shape::Scalar),
    ("order", Shape::Scalar),
    ("plugin", Shape::Scalar),
    ("poll-for", Shape::Scalar),
    ("prefetch", Shape::Scalar),
    ("queue-concurrency", Shape::Map),
    ("queues", Shape::List),
    ("rate", Shape::Map),
    ("retry", Shape::Table(RETRY)),
    ("shed", Shape::Scalar),
    ("sleep", Shape::Scalar),
    ("visibility", Shape::Scalar),
];
const RETRY: &[Key] = &[
    ("first", Shape::Scalar),
    ("most", Shape::Scalar),
    ("attempts", Shape::Scalar),
];
const TOP: &[&str] = &["dispatcher", "backend", "plugin", "route"];

/// The sections of a file, nothing defaulted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct File {
    /// `[backend.…]` over `[dispatcher]`, since they say the same more exactly.
    pub program: Section,
    /// `[plugin.NAME]` by name.
    pub plugins: BTreeMap<String, Section>,
    /// `[[route]]` in the file's order.
    pub routes: Vec<Section>,
    /// The file is named and could not be read: nothing in it can be called missing.
    pub unread: bool,
}

/// Reads a file's text. What could be read comes back beside the problems, in the file's order,
/// so that `check` can find the rest of them. Relative paths become relative to
/// the folder of `path`, which is also how problems call the file.
pub fn read(path: &Path, text: &str) -> (File, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        name: &path.display().to_string(),
        text,
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
    file.program.root_at("admin-token-file", folder);
    file.program.root_at("data", folder);
    for plugin in file.plugins.values_mut() {
        PLACES.iter().for_each(|at| plugin.root_at(at, folder));
    }
    problems.sort_by_key(|(start, _)| *start);
    (
        file,
        problems.into_iter().map(|(_, problem)| problem).collect(),
    )
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
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
                "dispatcher" => self.section("[dispatcher]", DISPATCHER, value, &mut file.program),
                "plugin" => self.plugins(value, &mut file),
                "route" => self.routes(value, &mut file),
                "backend" => {}
                unknown => self.unknown(key.span(), unknown, "the file", TOP.iter().copied()),
            }
        }
        // Last, so that its values win over those of [dispatcher].
        if let Some(backends) = top.get("backend") {
            self.backends(backends, &mut file);
        }
        file
    }

    fn backends(&mut self, value: &Spanned<DeValue<'_>>, file: &mut File) {
        for (key, value) in self.table("[backend]", value) {
            let name = key.get_ref().as_ref();
            match BACKENDS.iter().find(|(known, _)| *known == name) {
                Some((_, keys)) => {
                    let title = format!("[backend.{name}]");
                    // What no other says is called after its backend, as its flag is.
                    let mut own = Section::default();
                    let into = match name {
                        "redis" => &mut own,
                        _ => &mut file.program,
                    };
                    self.section(&title, keys, value, into);
                    for (key, _) in *keys {
                        if let Some(given) = own.one(key) {
                            file.program.push(format!("{name}-{key}"), given.clone());
                        }
                        for (entry, given) in own.entries(key) {
                            let key = format!("{name}-{key}.{entry}");
                            file.program.push(key, given.clone());
                        }
                    }
                }
                None => {
                    let names = BACKENDS.iter().map(|(known, _)| *known);
                    self.unknown(key.span(), name, "[backend]", names);
                }
            }
        }
    }

    fn plugins(&mut self, value: &Spanned<DeValue<'_>>, file: &mut File) {
        for (key, value) in self.table("[plugin]", value) {
            let name = key.get_ref().to_string();
            let mut section = Section::new(self.place(key.span()));
            self.section(&format!("[plugin.{name}]"), PLUGIN, value, &mut section);
            file.plugins.insert(name, section);
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
            self.section("[[route]]", ROUTE, route, &mut section);
            file.routes.push(section);
        }
    }

    /// Reads a table of known keys.
    fn section(
        &mut self,
        title: &str,
        keys: &'static [Key],
        value: &Spanned<DeValue<'_>>,
        into: &mut Section,
    ) {
        for (key, value) in self.table(title, value) {
            let name = key.get_ref().as_ref();
            match keys.iter().find(|(known, _)| *known == name) {
                Some((_, shape)) => self.value(name, *shape, value, into),
                None => self.unknown(key.span(), name, title, keys.iter().map(|(key, _)| *key)),
            }
        }
    }

    fn value(&mut self, key: &str, shape: Shape, value: &Spanned<DeValue<'_>>, into: &mut Section) {
        match (shape, value.get_ref()) {
            (Shape::List, DeValue::Array(items)) => {
                into.open(key);
                for item in items.iter() {
                    self.scalar(key, item, into);
                }
            }
            (Shape::Switch, DeValue::Boolean(on)) => {
                into.push(key, Given::new(self.place(value.span()), on.to_string()));
            }
            (Shape::Switch, other) => {
                let kind = kind(other);
                self.report(value.span(), |at| {
                    Problem::new(at, format!("`{key}` is {kind}"), "true or false")
                });
            }
            (Shape::Scalar | Shape::List, _) => self.scalar(key, value, into),
            (Shape::Map, _) => {
                for (name, value) in self.table(&format!("`{key}`"), value) {
                    self.scalar(&format!("{key}.{}", name.get_ref()), value, into);
                }
            }
            (Shape::Table(keys), _) | (Shape::ScalarOrTable(keys), DeValue::Table(_)) => {
                let mut inner = Section::default();
                into.open(key);
                self.section(&format!("`{key}`"), keys, value, &mut inner);
                for (name, _) in keys {
                    for given in inner.list(name).unwrap_or_default() {
                        into.push(format!("{key}.{name}"), given.clone());
                    }
                }
            }
            (Shape::ScalarOrTable(keys), _) => {
                let first = keys.first().map_or("", |(name, _)| *name);
                self.scalar(&format!("{key}.{first}"), value, into);
            }
        }
    }

    fn scalar(&mut self, key: &str, value: &Spanned<DeValue<'_>>, into: &mut Section) {
        let text = match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(|number| number.to_string())
                .ok(),
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            _ => None,
        };
        match text {
            Some(text) => into.push(key, Given::new(self.place(value.span()), text)),
            None => {
                let kind = match value.get_ref() {
                    DeValue::Integer(_) => "a number out of range",
                    other => kind(other),
                };
                self.report(value.span(), |at| {
                    Problem::new(at, format!("`{key}` is {kind}"), "a string or a number")
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
        names: impl Iterator<Item = &'static str> + Clone,
    ) {
        let wanted = names.clone().collect::<Vec<_>>().join(", ");
        self.report(span, |at| {
            Problem::new(at, format!("unknown key `{found}` in {title}"), wanted)
                .nearest(found, names)
        });
    }

    fn report(&mut self, span: Range<usize>, problem: impl FnOnce(String) -> Problem) {
        let problem = problem(self.place(span.clone()));
        self.problems.push((span.start, problem));
    }

    fn place(&self, span: Range<usize>) -> String {
        let before = self.text.as_bytes().iter().take(span.start);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        format!("{}:{line}", self.name)
    }
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
