//! Checks the plugin of a route, and the rules between its settings. Opens nothing.

mod granted;
mod relay;

use super::{ANY_TIME, Check};
use crate::declared::{LEAST_MEMORY, TIMEOUT};
use crate::file::File;
use crate::flags::Flags;
use crate::function;
use crate::function::FunctionName;
use crate::problem::Problem;
use crate::section::{Layers, Section, WrittenValue};
use crate::value;
use crate::value::BareUnit;
use crate::{Code, Forward, HttpForward, PluginConfig, PluginSettings, Reuse, service};
use dispatcher_aws::hide_userinfo;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The keys for the code of a plugin, and the kind of each.
const MADE_OF: [(&str, &str); 3] = [
    ("file", "component"),
    ("function", "function"),
    ("forward", "service"),
];
const REUSE_COUNT: u64 = 1_000;
const REUSE_AGE: Duration = Duration::from_secs(600);

impl Check {
    /// Returns the plugin of a route: the one that it names in the file, the only one in the file,
    /// or the one that flags define.
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
        // An unreadable file was already reported.
        if !file.unread {
            self.problems.push(match given {
                Some(given) => {
                    let found = format!("no plugin `{}`", given.text);
                    Problem::new(&given.at, found, "the name of a [plugin.NAME] of the file")
                        .nearest(&given.text, plugins.keys().copied())
                }
                None if file.routes.is_empty() => {
                    Problem::new("--plugin", "it is missing", "a component to run").hint(
                        "written like --plugin handler.wasm, --function my-function, \
                             --forward http://127.0.0.1:8080/jobs or --send-to my-queue",
                    )
                }
                None => Problem::new(&section.at, "the route has no plugin", "a component to run")
                    .hint(
                        "written like plugin = \"NAME\", with a section [plugin.NAME], or send-to = \
                         \"QUEUE\"",
                    ),
            });
        }
        // Continues only to find more problems: the flags' values are read, the missing file is
        // not.
        let mut stand_in = Section::new("--plugin");
        stand_in.push("file", WrittenValue::new("--plugin", "missing"));
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
        let forwards = code.forwards();
        let settings = PluginSettings::read(layers, &mut self.problems);
        self.warm(layers, &settings, forwards);
        self.refuse_granting(&code, layers);
        self.refuse_forwarding(&code, layers);
        self.refuse_twice(layers);
        self.max_timeout(layers, &settings);
        let max_memory = settings.max_memory_of(forwards);
        PluginConfig {
            name: name.to_owned(),
            at,
            queue_prefix: self.prefix.clone(),
            reuse: layers.has("reuse").then(|| self.reuse(layers, max_memory)),
            settings,
            trials: self.trials(layers, &code),
            code,
        }
    }

    /// Refuses `warm` if several attempts share an instance.
    fn warm(&mut self, layers: Layers<'_>, settings: &PluginSettings, forwards: bool) {
        let shares = settings.instance_concurrency_of(forwards) > 1;
        if let (Some(given), Some(warm @ 1..), true) = (layers.one("warm"), settings.warm, shares) {
            let found = format!("{warm} prewarmed instances, and many attempts share an instance");
            let wanted = "either `warm` or `instance-concurrency`";
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
    }

    /// Refuses a `max-timeout` that is shorter than the timeout.
    fn max_timeout(&mut self, layers: Layers<'_>, settings: &PluginSettings) {
        let timeout = settings.timeout.unwrap_or(TIMEOUT);
        if let (Some(given), Some(longest)) = (layers.one("max-timeout"), settings.max_timeout)
            && longest < timeout
        {
            let found = format!("`{}` is less than the timeout", given.text);
            let wanted = format!("at least {}", humantime::format_duration(timeout));
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
    }

    /// Returns the code of the plugin and the place where it was configured. The highest layer with
    /// a component, a function or a service decides; it must have exactly one of them.
    fn code(&mut self, name: &str, at: &str, layers: Layers<'_>) -> (Code, String) {
        let section = layers
            .0
            .iter()
            .find(|section: &&&Section| MADE_OF.iter().any(|(key, _)| section.has(key)));
        let named: Vec<_> = MADE_OF
            .into_iter()
            .filter_map(|(key, what)| Some((key, what, section?.one(key)?)))
            .collect();
        match named.as_slice() {
            [] => {
                let found = format!("plugin `{name}` has no file");
                let hint = "written like file = \"handler.wasm\", function = \"my-function\" or \
                            forward = \"http://127.0.0.1:8080/jobs\"";
                self.problems
                    .push(Problem::new(at, found, "a component").hint(hint));
                (Code::Missing, at.to_owned())
            }
            [(_, other, beside), .., (_, what, given)] => {
                let found = format!(
                    "both the {what} `{}` and the {other} `{}` of {}",
                    hide_userinfo(&given.text),
                    beside.text,
                    beside.at
                );
                let wanted = "one of a component, a function and a service";
                self.problems.push(Problem::new(&given.at, found, wanted));
                (Code::Missing, given.at.clone())
            }
            [(key, _, given)] => {
                let code = match *key {
                    "function" => Code::Forward(self.forward(given, layers)),
                    "forward" => self.http_forward(given, layers),
                    _ => {
                        let read = self.read(Some(given), super::trials::source);
                        read.map_or(Code::Missing, Code::Component)
                    }
                };
                (code, given.at.clone())
            }
        }
    }

    /// Reads the settings for forwarding messages to an HTTP service.
    fn http_forward(&mut self, given: &WrittenValue, layers: Layers<'_>) -> Code {
        let headers = self.headers(layers.entries("forward-header"), service::header);
        let files = layers.entries("forward-header-file");
        let secret_headers = self.headers(files, service::secret_header);
        let key = self.read(layers.one("forward-key-file"), service::key);
        let url = self.read(Some(given), service::url);
        url.map_or(Code::Missing, |url| {
            Code::Http(HttpForward {
                url,
                headers,
                secret_headers,
                key,
            })
        })
    }

    fn headers<T>(
        &mut self,
        entries: BTreeMap<&str, &WrittenValue>,
        read: impl Fn(&str, &WrittenValue) -> Result<T, Problem>,
    ) -> Vec<(String, T)> {
        let mut headers = Vec::with_capacity(entries.len());
        for (name, given) in entries {
            match read(name, given) {
                Ok(value) => headers.push((name.to_owned(), value)),
                Err(problem) => self.problems.push(problem),
            }
        }
        headers
    }

    /// Refuses a name with a value both in the settings and in a file.
    fn refuse_twice(&mut self, layers: Layers<'_>) {
        for (key, file) in [
            ("setting", "setting-file"),
            ("env", "env-file"),
            ("forward-header", "forward-header-file"),
        ] {
            let plain = layers.entries(key);
            for (name, given) in layers.entries(file) {
                if let Some(other) = plain.get(name) {
                    let found = format!("`{name}`, which `{key}` of {} also sets", other.at);
                    self.problems
                        .push(Problem::new(&given.at, found, "one of them"));
                }
            }
        }
    }

    fn forward(&mut self, given: &WrittenValue, layers: Layers<'_>) -> Forward {
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

/// Returns the name of a plugin that only flags define, and the flag that defines it. The name is
/// the file's stem, the function's bare name, or the service's host.
fn named_by(flags: &Section) -> Option<(String, &str)> {
    if let Some(file) = flags.one("file") {
        let stem = Path::new(&file.text).file_stem();
        let name = stem.map_or_else(|| "plugin".into(), |stem| stem.to_string_lossy());
        return Some((name.into_owned(), &file.at));
    }
    if let Some(given) = flags.one("function") {
        let function = FunctionName::parse(given.text.trim());
        let name = function.map_or("function", |function| function.name);
        return Some((name.to_owned(), &given.at));
    }
    let given = flags.one("forward")?;
    let url = service::url(given);
    let name = url.map_or_else(|_| "service".to_owned(), |url| url.authority().to_owned());
    Some((name, &given.at))
}

/// Returns the name of the plugin of a route: the configured one, or the only one in the file.
pub(super) fn name_of<'a>(route: Option<&'a Section>, file: &'a File) -> Option<&'a str> {
    match route.and_then(|route| route.one("plugin")) {
        Some(given) => Some(&given.text),
        None if file.plugins.len() == 1 => file.plugins.keys().next().map(String::as_str),
        None => None,
    }
}
