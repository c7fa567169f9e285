//! Checks a route's plugin: which one, and the rules between its settings. Opens nothing.

mod granted;

use super::{ANY_TIME, Check};
use crate::config::declared::LEAST_MEMORY;
use crate::config::file::File;
use crate::config::flags::Flags;
use crate::config::function;
use crate::config::function::FunctionName;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers, Section};
use crate::config::value;
use crate::config::value::BareUnit;
use crate::config::{Code, Forward, PluginConfig, PluginSettings, Reuse};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const REUSE_COUNT: u64 = 1_000;
const REUSE_AGE: Duration = Duration::from_secs(600);

impl Check {
    /// The plugin that a route names: one of the file's, the only one, or the one that flags give.
    pub(super) fn plugin_for(
        &mut self,
        section: &Section,
        flags: &Flags,
        file: &File,
        plugins: &BTreeMap<&str, PluginConfig>,
    ) -> PluginConfig {
        let name = name_of(Some(section), file);
        if let Some(known) = name.and_then(|name| plugins.get(name)) {
            return known.clone();
        }
        let given = section.one("plugin");
        if let (None, Some((name, at))) = (given, named_by(&flags.plugin)) {
            return self.plugin(&name, at, Layers(&[&flags.plugin]));
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
                        .hint("written like --plugin handler.wasm, or --function my-function")
                }
                None => Problem::new(&section.at, "the route has no plugin", "a component to run")
                    .hint("written like plugin = \"NAME\", with a section [plugin.NAME]"),
            });
        }
        // Only to continue looking for problems: the flags' values are read, its missing file is not.
        let mut stand_in = Section::new("--plugin");
        stand_in.push("file", Given::new("--plugin", "missing"));
        let layers: &[&Section] = match file.routes.len() {
            0 | 1 => &[&flags.plugin, &stand_in],
            _ => &[&stand_in],
        };
        PluginConfig {
            code: Code::Missing,
            ..self.plugin("missing", &section.at, Layers(layers))
        }
    }

    pub(super) fn plugin(&mut self, name: &str, at: &str, layers: Layers<'_>) -> PluginConfig {
        let (code, at) = self.code(name, at, layers);
        let forwards = matches!(code, Code::Forward(_));
        let settings = PluginSettings::read(layers, &mut self.problems);
        self.warm(layers, &settings, forwards);
        if forwards {
            self.refuse_granting(layers);
        }
        let max_memory = settings.max_memory_of(forwards);
        PluginConfig {
            name: name.to_owned(),
            at,
            code,
            reuse: layers.has("reuse").then(|| self.reuse(layers, max_memory)),
            settings,
            trials: self.trials(layers, forwards),
        }
    }

    /// No instances are made ahead where many attempts share one.
    fn warm(&mut self, layers: Layers<'_>, settings: &PluginSettings, forwards: bool) {
        let shares = settings.instance_concurrency_of(forwards) > 1;
        if let (Some(given), Some(warm @ 1..), true) = (layers.one("warm"), settings.warm, shares) {
            let found = format!("{warm} prewarmed instances, and many attempts share an instance");
            let wanted = "either `warm` or `instance-concurrency`";
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
    }

    /// What the plugin is made of, and where that was written: the highest layer that names a
    /// component or a function decides, and must not name both.
    fn code(&mut self, name: &str, at: &str, layers: Layers<'_>) -> (Code, String) {
        let names = |section: &&&Section| section.has("file") || section.has("function");
        let section = layers.0.iter().find(names);
        let one = |key| section.and_then(|section| section.one(key));
        match (one("file"), one("function")) {
            (None, None) => {
                let found = format!("plugin `{name}` has no file");
                let hint = "written like file = \"handler.wasm\", or function = \"my-function\"";
                self.problems
                    .push(Problem::new(at, found, "a component").hint(hint));
                (Code::Missing, at.to_owned())
            }
            (Some(file), Some(function)) => {
                let found = format!(
                    "the function `{}` beside the component `{}` of {}",
                    function.text, file.text, file.at
                );
                let wanted = "either a component or a function";
                self.problems
                    .push(Problem::new(&function.at, found, wanted));
                (Code::Missing, function.at.clone())
            }
            (Some(file), None) => {
                self.refuse_forwarding(layers);
                let read = self.read(Some(file), super::trials::source);
                let code = read.map_or(Code::Missing, Code::Component);
                (code, file.at.clone())
            }
            (None, Some(given)) => {
                let forward = self.forward(given, layers);
                (Code::Forward(forward), given.at.clone())
            }
        }
    }

    fn forward(&mut self, given: &Given, layers: Layers<'_>) -> Forward {
        let asynchronous = self.read(layers.one("invocation"), |given| {
            value::choice(given, &[("sync", false), ("async", true)])
        });
        let partial_failures = self.read(layers.one("partial-failures"), value::switch);
        if let (Some(true), Some(true), Some(given)) = (
            asynchronous,
            partial_failures,
            layers.one("partial-failures"),
        ) {
            let found = "an asynchronous invocation has no response that could list failures";
            self.problems
                .push(Problem::new(&given.at, found, "invocation sync"));
        }
        Forward {
            function: self
                .read(Some(given), function::read)
                .unwrap_or_else(|| given.text.clone()),
            asynchronous: asynchronous.unwrap_or(false),
            partial_failures: partial_failures.unwrap_or(false),
        }
    }

    /// What speaks about a function has no effect on a component.
    fn refuse_forwarding(&mut self, layers: Layers<'_>) {
        for key in ["invocation", "partial-failures"] {
            if let Some(given) = layers.one(key) {
                let found =
                    format!("`{key}` says how a function is invoked, and this is a component");
                let problem = Problem::new(&given.at, found, "it beside a function only");
                self.problems.push(problem);
            }
        }
    }

    fn reuse(&mut self, layers: Layers<'_>, max_memory: usize) -> Reuse {
        let memory = LEAST_MEMORY..=max_memory;
        let count = self.read(layers.one("reuse.count"), |given| {
            value::number(given, &(1..=u64::MAX))
        });
        let age = self.read(layers.one("reuse.age"), |given| {
            value::duration(given, BareUnit::Refused, &ANY_TIME)
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

/// What a plugin is called that flags alone describe, and which flag did: the file's stem, or the
/// function's bare name.
fn named_by(flags: &Section) -> Option<(String, &str)> {
    if let Some(file) = flags.one("file") {
        let stem = Path::new(&file.text).file_stem();
        let name = stem.map_or_else(|| "plugin".into(), |stem| stem.to_string_lossy());
        return Some((name.into_owned(), &file.at));
    }
    let given = flags.one("function")?;
    let function = FunctionName::parse(given.text.trim());
    let name = function.map_or("function", |function| function.name);
    Some((name.to_owned(), &given.at))
}

/// The name of the plugin that a route of the file uses: as it says, or the only one there is.
pub(super) fn name_of<'a>(route: Option<&'a Section>, file: &'a File) -> Option<&'a str> {
    match route.and_then(|route| route.one("plugin")) {
        Some(given) => Some(&given.text),
        None if file.plugins.len() == 1 => file.plugins.keys().next().map(String::as_str),
        None => None,
    }
}
