//! A route's plugin: which one, and its own settings. Opens nothing.

use super::{ANY_TIME, Check};
use crate::config::file::File;
use crate::config::flags::Flags;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers, Section};
use crate::config::value::{self, Bare};
use crate::config::{Code, Plugin, Reuse};
use crate::queue::VISIBILITY_CEILING;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const MAX_MEMORY: usize = 64 << 20;
const REUSE_COUNT: u64 = 1_000;
const REUSE_AGE: Duration = Duration::from_secs(600);
/// One page of WebAssembly's memory.
const LEAST_MEMORY: usize = 64 << 10;
/// All that a 32-bit guest can address.
const MOST_MEMORY: usize = 4 << 30;

impl Check {
    /// The plugin that a route names: one of the file's, the only one, or the one that flags give.
    pub(super) fn plugin_for(
        &mut self,
        section: &Section,
        flags: &Flags,
        file: &File,
        plugins: &BTreeMap<&str, Plugin>,
    ) -> Plugin {
        let name = name_of(Some(section), file);
        if let Some(known) = name.and_then(|name| plugins.get(name)) {
            return known.clone();
        }
        let given = section.one("plugin");
        if let (None, Some(file)) = (given, flags.plugin.one("file")) {
            let stem = Path::new(&file.text).file_stem();
            let name = stem.map_or_else(|| "plugin".into(), |stem| stem.to_string_lossy());
            return self.plugin(&name, &file.at, Layers(&[&flags.plugin]));
        }
        // A file that could not be read is a problem already.
        if !file.unread {
            self.problems.push(match given {
                Some(given) => {
                    let found = format!("no plugin `{}`", given.text);
                    Problem::new(&given.at, found, "the name of a [plugin.NAME] of the file")
                        .nearest(&given.text, plugins.keys().copied())
                }
                None if file.routes.is_empty() => {
                    Problem::new("--plugin", "it is missing", "a component to run")
                        .hint("written like --plugin handler.wasm")
                }
                None => Problem::new(&section.at, "the route has no plugin", "a component to run")
                    .hint("written like plugin = \"NAME\", with a section [plugin.NAME]"),
            });
        }
        // Only to go on looking for problems: the flags' values are read, its missing file is not.
        let mut stand_in = Section::new("--plugin");
        stand_in.push("file", Given::new("--plugin", "missing"));
        let layers: &[&Section] = match file.routes.len() {
            0 | 1 => &[&flags.plugin, &stand_in],
            _ => &[&stand_in],
        };
        Plugin {
            code: Code::Missing,
            ..self.plugin("missing", &section.at, Layers(layers))
        }
    }

    pub(super) fn plugin(&mut self, name: &str, at: &str, layers: Layers<'_>) -> Plugin {
        let file = layers.one("file");
        if file.is_none() {
            let problem = Problem::new(at, format!("plugin `{name}` has no file"), "a component");
            self.problems
                .push(problem.hint("written like file = \"handler.wasm\""));
        }
        let memory = LEAST_MEMORY..=MOST_MEMORY;
        let max_memory = self
            .read(layers.one("max-memory"), |given| {
                value::size(given, &memory)
            })
            .unwrap_or(MAX_MEMORY);
        let attempt = Duration::from_millis(1)..=VISIBILITY_CEILING;
        let mut env = Vec::new();
        for (key, given) in layers.entries("env") {
            if !value::is_key(key) || given.text.contains('\0') {
                let found = format!("`{key}` cannot be a variable");
                self.problems
                    .push(Problem::new(&given.at, found, "a name without `=`"));
            }
            env.push((key.to_owned(), given.text.clone()));
        }
        Plugin {
            name: name.to_owned(),
            at: file.map_or_else(|| at.to_owned(), |given| given.at.clone()),
            code: self
                .read(file, |given| value::text(given, "a component's file"))
                .map_or(Code::Missing, |file| Code::File(file.into())),
            allow_lambda: Vec::new(),
            instance_concurrency: 1,
            timeout: self.read(layers.one("timeout"), |given| {
                value::duration(given, Bare::Refused, &attempt)
            }),
            max_memory,
            env,
            reuse: layers.has("reuse").then(|| self.reuse(layers, max_memory)),
        }
    }

    fn reuse(&mut self, layers: Layers<'_>, max_memory: usize) -> Reuse {
        let memory = LEAST_MEMORY..=max_memory;
        let count = self.read(layers.one("reuse.count"), |given| {
            value::number(given, &(1..=u64::MAX))
        });
        let age = self.read(layers.one("reuse.age"), |given| {
            value::duration(given, Bare::Refused, &ANY_TIME)
        });
        let size = self.read(layers.one("reuse.memory"), |given| {
            value::size(given, &memory)
        });
        Reuse {
            count: count.unwrap_or(REUSE_COUNT),
            age: age.unwrap_or(REUSE_AGE),
            memory: size.unwrap_or(max_memory / 2),
        }
    }
}

/// The name of the plugin that a route of the file uses: as it says, or the only one there is.
pub(super) fn name_of<'a>(route: Option<&'a Section>, file: &'a File) -> Option<&'a str> {
    match route.and_then(|route| route.one("plugin")) {
        Some(given) => Some(&given.text),
        None if file.plugins.len() == 1 => file.plugins.keys().next().map(String::as_str),
        None => None,
    }
}
