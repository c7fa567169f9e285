//! Every setting, declared once: its key in the file, flag, variable, default, help, and whether
//! SIGHUP changes it. The reader of the file, the command line, "did you mean", the differences of
//! a reload and host/docs/settings.md follow from these tables. Knows no values.

mod account;
mod backends;
mod fleet;
mod macros;
#[cfg(test)]
mod page;
mod plugin;
mod program;
mod queue;
mod route;
mod traces;

use super::problem::Problem;
use super::section::{Layers, WrittenValue};
pub use fleet::FleetSettings;
pub(crate) use plugin::LEAST_MEMORY;
pub use plugin::{PluginSettings, TIMEOUT};
pub use program::{LocalSettings, LogSettings, ProgramSettings};
pub use queue::DeclaredQueue;
pub use route::RouteSettings;
pub(crate) use route::{MOST_CONCURRENCY, message_key, message_place};
use std::sync::LazyLock;

/// All tables but those of backends, in the order in which `--help` and the page show them.
const TABLES: &[&[Setting]] = &[
    route::SETTINGS,
    plugin::SETTINGS,
    program::SETTINGS,
    program::ADMIN,
    traces::TRACES,
    program::LOCAL,
    queue::SETTINGS,
    fleet::FLEET,
    fleet::LIMIT,
    account::ACCOUNT,
    backends::STORES,
    program::LOG,
];

/// One setting. Made by `settings!`, which knows its key, help and part.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name in its section, `retry.first` within a table; unique among those of its part.
    pub key: &'static str,
    /// Lines of one sentence without a full stop.
    pub help: &'static [&'static str],
    /// Which values belong together.
    pub part: SettingPart,
    /// Where the file may have it; nowhere if empty.
    pub tables: &'static [Table],
    /// The form of a value: `N`, `TIME`, `fifo|lifo`.
    pub value: &'static str,
    /// The default, in words; empty if there is none.
    pub default: &'static str,
    /// How the file writes it.
    pub shape: Shape,
    /// Its flag, which has a variable, too.
    pub flag: Option<Flag>,
    /// When a changed value applies, if not as usual for its part.
    applies: Option<Reload>,
    /// Whether it names a file or folder, relative to the folder of the file that says so.
    pub is_path: bool,
    /// Whether a scalar in place of its table means this key: `reuse = 5` is `reuse.count`.
    pub is_shorthand: bool,
    /// Whether its values, or the names of its table's entries, are queue names or patterns of them.
    pub names_queues: bool,
}

/// A flag, and a variable of the same name.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Without dashes; as its setting's key if `None`.
    name: Option<&'static str>,
    /// Where `--help` shows it; commands choose their flags by groups.
    pub group: Group,
    /// How its text becomes values.
    pub syntax: Syntax,
}

/// Values that one section holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingPart {
    /// `[dispatcher]`, `[fleet]` and `[backend.…]`.
    Program,
    /// `[plugin.NAME]`.
    Plugin,
    /// `[[route]]`.
    Route,
    /// `[queue.NAME]`.
    Queue,
    /// `[limit.NAME]`.
    Limit,
    /// `[account.NAME]`.
    Account,
}

/// A table of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// `[dispatcher]`.
    Dispatcher,
    /// `[backend.NAME]`. A key that begins with the name and a dash is written without them.
    Backend(&'static str),
    /// `[plugin.NAME]`.
    Plugin,
    /// `[[route]]`.
    Route,
    /// `[queue.NAME]`.
    Queue,
    /// `[limit.NAME]`.
    Limit,
    /// `[account.NAME]`.
    Account,
    /// `[fleet]`. A key that begins with `fleet-` is written without it.
    Fleet,
}

/// How the file writes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A string or a number.
    Scalar,
    /// `true` or `false`.
    Switch,
    /// An array of scalars, or one scalar.
    List,
    /// A table with names of the user's own.
    Map,
    /// A table with names of the user's own, each a table with some of these keys.
    Tables(&'static [&'static str]),
}

/// How a flag's text becomes values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// One value.
    Text,
    /// Items of a list, one a line; the flag may be repeated.
    Lines,
    /// Entries of a map, `K=V`, one a line; the flag may be repeated.
    Pairs,
    /// `QUEUE=VALUE` with commas, which fill a map; the flag may be repeated.
    PerQueue(PerQueue),
}

/// The meaning of a flag about single queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerQueue {
    /// The key of the map. Where it is another setting than the flag's, a value without a queue is
    /// the flag's own.
    pub map: &'static str,
    /// The value of one queue.
    pub noun: &'static str,
    /// The expected form, for problems.
    pub wanted: &'static str,
    /// An example.
    pub example: &'static str,
}

/// The effect of a reload on a setting that has changed in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// The log names it, and it applies from the next start.
    Restart,
    /// A new version of the route applies it, once the old one has room for it.
    Route,
    /// The running route applies it.
    Live,
    /// The next attempt applies it, with the plugin replaced. If the plugin is a function or a
    /// service, a new version of the route applies it.
    Plugin,
}

/// Flags that `--help` shows together and that commands use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the headings say what is in a group")]
pub enum Group {
    Handler,
    Queues,
    Limits,
    Guest,
    Instances,
    Trials,
    ScheduleInterval,
    ScheduleTable,
    Metrics,
    Traces,
    AdminAddress,
    AdminAccess,
    Listen,
    File,
    Data,
    Backends,
    BackendQueues,
    Aws,
    Log,
}

impl Group {
    /// The heading in `--help`.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Handler => "Handler: a component, a Lambda function, an HTTP service or a queue",
            Self::Queues => "Queues",
            Self::Limits => "Limits",
            Self::Guest | Self::Instances => "Plugin",
            Self::Trials => "Another version of the plugin",
            Self::ScheduleInterval | Self::ScheduleTable => "Schedule",
            Self::Metrics | Self::AdminAddress | Self::AdminAccess => "Metrics",
            Self::Traces => "Traces",
            Self::Listen => "Server",
            Self::File | Self::Data | Self::Backends | Self::BackendQueues | Self::Aws => "Places",
            Self::Log => "Log",
        }
    }

    /// The settings whose flags are in the group.
    pub fn settings(self) -> impl Iterator<Item = &'static Setting> {
        all().filter(move |setting| setting.flag.is_some_and(|flag| flag.group == self))
    }
}

impl Setting {
    /// A scalar that only the file has and that waits for the next start.
    const fn new(value: &'static str) -> Self {
        Self {
            key: "",
            help: &[],
            part: SettingPart::Program,
            tables: &[],
            value,
            default: "",
            shape: Shape::Scalar,
            flag: None,
            applies: None,
            is_path: false,
            is_shorthand: false,
            names_queues: false,
        }
    }

    /// Adds a flag that is named as the key.
    const fn flag(self, group: Group) -> Self {
        let syntax = match self.shape {
            Shape::Scalar | Shape::Switch => Syntax::Text,
            Shape::List => Syntax::Lines,
            Shape::Map | Shape::Tables(_) => Syntax::Pairs,
        };
        let flag = Flag {
            name: None,
            group,
            syntax,
        };
        Self {
            flag: Some(flag),
            ..self
        }
    }

    /// Adds a flag of another name.
    const fn flag_named(self, name: &'static str, group: Group) -> Self {
        let mut named = self.flag(group);
        if let Some(flag) = &mut named.flag {
            flag.name = Some(name);
        }
        named
    }

    /// Changes how the flag's text becomes values; after `flag`.
    const fn syntax(mut self, syntax: Syntax) -> Self {
        if let Some(flag) = &mut self.flag {
            flag.syntax = syntax;
        }
        self
    }

    const fn default(self, words: &'static str) -> Self {
        Self {
            default: words,
            ..self
        }
    }

    const fn shape(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    const fn applies(self, reload: Reload) -> Self {
        Self {
            applies: Some(reload),
            ..self
        }
    }

    const fn tables(self, tables: &'static [Table]) -> Self {
        Self { tables, ..self }
    }

    const fn path(self) -> Self {
        Self {
            is_path: true,
            ..self
        }
    }

    const fn shorthand(self) -> Self {
        Self {
            is_shorthand: true,
            ..self
        }
    }

    const fn names_queues(self) -> Self {
        Self {
            names_queues: true,
            ..self
        }
    }

    /// When a changed value applies.
    pub fn reload(&self) -> Reload {
        self.applies.unwrap_or(match self.part {
            SettingPart::Plugin | SettingPart::Route | SettingPart::Account => Reload::Route,
            SettingPart::Program | SettingPart::Queue | SettingPart::Limit => Reload::Restart,
        })
    }

    /// The name of its flag, without dashes.
    pub fn flag_name(&self) -> Option<&'static str> {
        Some(self.flag?.name.unwrap_or(self.key))
    }

    /// Its environment variable. Only settings with flags have one.
    pub fn variable(&self) -> Option<&'static str> {
        variable(self.flag_name()?)
    }

    /// Its key as this table of the file writes it, if it may.
    pub fn key_in(&self, table: Table) -> Option<&'static str> {
        let is_there = self.tables.contains(&table);
        is_there.then(|| match table {
            Table::Backend(name) => {
                let own = self.key.strip_prefix(name);
                own.and_then(|key| key.strip_prefix('-'))
                    .unwrap_or(self.key)
            }
            Table::Fleet => self.key.strip_prefix("fleet-").unwrap_or(self.key),
            _ => self.key,
        })
    }

    /// Returns its description with the default: the text of `--help`.
    pub fn help_text(&self) -> String {
        let mut text = self.summary();
        if !self.default.is_empty() {
            text.push_str(&format!(" [default: {}]", self.default));
        }
        text
    }

    /// Returns its description in one line.
    pub fn summary(&self) -> String {
        let lines: Vec<_> = self.help.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }
}

impl Table {
    /// Its name as the file writes it; of a plugin, without the plugin's name.
    pub fn title(self) -> String {
        match self {
            Self::Dispatcher => "[dispatcher]".to_owned(),
            Self::Backend(name) => format!("[backend.{name}]"),
            Self::Plugin => "[plugin.NAME]".to_owned(),
            Self::Route => "[[route]]".to_owned(),
            Self::Queue => "[queue.NAME]".to_owned(),
            Self::Limit => "[limit.NAME]".to_owned(),
            Self::Account => "[account.NAME]".to_owned(),
            Self::Fleet => "[fleet]".to_owned(),
        }
    }

    /// The settings that it may hold, with their keys there.
    pub fn settings(self) -> impl Iterator<Item = (&'static str, &'static Setting)> {
        all().filter_map(move |setting| Some((setting.key_in(self)?, setting)))
    }
}

/// All settings.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    static ALL: LazyLock<Vec<Setting>> = LazyLock::new(|| {
        let mut all: Vec<_> = TABLES.iter().copied().flatten().copied().collect();
        backends::add_to(&mut all);
        all
    });
    ALL.iter()
}

/// The setting of a flag, named without its dashes.
pub fn of_flag(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.flag_name() == Some(name))
}

/// The setting of a part by its key.
pub fn of_key(part: SettingPart, key: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.part == part && setting.key == key)
}

/// Whether this is the key of a setting, or the table of some.
pub fn is_key(key: &str) -> bool {
    all().any(|setting| {
        let rest = setting.key.strip_prefix(key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// The names of the backends that have settings.
pub fn backends() -> Vec<&'static str> {
    let tables = all().flat_map(|setting| setting.tables);
    let mut names: Vec<_> = tables
        .filter_map(|table| match table {
            Table::Backend(name) => Some(*name),
            _ => None,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The settings that backends declare: the backend's name, the key in its section, the setting.
pub fn of_backends() -> impl Iterator<Item = (&'static str, &'static str, &'static Setting)> {
    all().filter_map(|setting| match setting.tables {
        [table @ Table::Backend(backend)] => Some((*backend, setting.key_in(*table)?, setting)),
        _ => None,
    })
}

/// The environment variable of a setting, whose flag is named without its dashes. `None` for flags
/// that are arguments of one command: only settings have variables.
pub fn variable(flag: &str) -> Option<&'static str> {
    static NAMES: LazyLock<Vec<(&str, String)>> = LazyLock::new(|| {
        let flags = all().filter_map(Setting::flag_name);
        flags
            .map(|flag| {
                let name = flag.replace('-', "_").to_uppercase();
                (flag, format!("DISPATCHER_{name}"))
            })
            .collect()
    });
    let named = NAMES.iter().find(|(name, _)| *name == flag)?;
    Some(&named.1)
}

/// The written text of one setting, for the code that makes a value of it.
pub struct WrittenSetting<'a> {
    key: &'static str,
    layers: Layers<'a>,
    problems: &'a mut Vec<Problem>,
}

impl WrittenSetting<'_> {
    /// The value as parsed, or `None` if there is none or it is wrong, which is then recorded.
    pub fn one<T>(&mut self, parse: impl FnOnce(&WrittenValue) -> Result<T, Problem>) -> Option<T> {
        parse(self.layers.one(self.key)?)
            .map_err(|problem| self.problems.push(problem))
            .ok()
    }

    /// The items of a list as parsed, without those that are wrong.
    pub fn each<T>(&mut self, parse: impl Fn(&WrittenValue) -> Result<T, Problem>) -> Vec<T> {
        let items = self.layers.list(self.key).unwrap_or_default();
        let mut parsed = Vec::new();
        for item in items.iter().map(parse) {
            match item {
                Ok(item) => parsed.push(item),
                Err(problem) => self.problems.push(problem),
            }
        }
        parsed
    }

    /// The items of a list as parsed, where one may have many problems.
    pub fn each_of_all<T>(
        &mut self,
        parse: impl Fn(&WrittenValue) -> Result<T, Vec<Problem>>,
    ) -> Vec<T> {
        let items = self.layers.list(self.key).unwrap_or_default();
        let mut parsed = Vec::new();
        for item in items.iter().map(parse) {
            match item {
                Ok(item) => parsed.push(item),
                Err(problems) => self.problems.extend(problems),
            }
        }
        parsed
    }

    /// The entries of a map as parsed, sorted by name, without those that are wrong.
    pub fn entries<T>(
        &mut self,
        parse: impl Fn(&str, &WrittenValue) -> Result<T, Problem>,
    ) -> Vec<(String, T)> {
        let mut parsed = Vec::new();
        for (name, given) in self.layers.entries(self.key) {
            match parse(name, given) {
                Ok(value) => parsed.push((name.to_owned(), value)),
                Err(problem) => self.problems.push(problem),
            }
        }
        parsed
    }
}

#[cfg(test)]
mod tests;
