//! Sorts the values of flags and their environment variables into the sections they override. Knows
//! no argument parser.

use super::declared::{self, PerQueue, Setting, SettingPart, Shape, Syntax};
use super::problem::Problem;
use super::section::{Section, WrittenValue};
use super::value;

/// The values of flags, grouped by section, as unparsed texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flags {
    /// `--config`.
    pub file: Option<WrittenValue>,
    /// The values that override `[dispatcher]`, `[fleet]` and `[backend.…]`.
    pub program: Section,
    /// The values that override the only `[[route]]`.
    pub route: Section,
    /// The values that override that route's `[plugin.…]`.
    pub plugin: Section,
    /// The variables of OpenTelemetry.
    pub otel: Section,
    /// The problems of values that could not be assigned to a section.
    pub problems: Vec<Problem>,
    /// The lines for the log about the sources of settings and about ignored variables.
    pub notices: Vec<String>,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            file: None,
            program: Section::new("the command line"),
            route: Section::new("--queues"),
            plugin: Section::new("--plugin"),
            otel: Section::new("the environment"),
            problems: Vec::new(),
            notices: Vec::new(),
        }
    }
}

impl Flags {
    /// Whether the flag or its variable was set.
    pub fn is_set(&self, flag: &str) -> bool {
        declared::of_flag(flag).is_some_and(|setting| {
            let section = match setting.part {
                SettingPart::Program => &self.program,
                SettingPart::Route => &self.route,
                SettingPart::Plugin => &self.plugin,
                // Queues, limits and accounts have no flags.
                SettingPart::Queue | SettingPart::Limit | SettingPart::Account => return false,
            };
            section.has(setting.key)
        })
    }

    /// Adds a value of a flag, named without its dashes. Returns whether the flag is a setting.
    pub fn take(&mut self, flag: &str, given: WrittenValue) -> bool {
        if flag == "config" {
            self.file = Some(given);
            return true;
        }
        let Some(setting) = declared::of_flag(flag) else {
            return false;
        };
        let section = match setting.part {
            SettingPart::Program => &mut self.program,
            SettingPart::Route => &mut self.route,
            SettingPart::Plugin => &mut self.plugin,
            // Queues, limits and accounts have no flags.
            SettingPart::Queue | SettingPart::Limit | SettingPart::Account => return false,
        };
        let problems = &mut self.problems;
        let key = setting.key;
        match setting.flag.map(|flag| flag.syntax) {
            Some(Syntax::Lines) => {
                for line in given.text.lines() {
                    section.push(key, WrittenValue::new(&given.at, line));
                }
            }
            Some(Syntax::Pairs) => {
                for line in given.text.lines() {
                    match value::pair(&WrittenValue::new(&given.at, line)) {
                        Ok((name, value)) => {
                            section
                                .push(format!("{key}.{name}"), WrittenValue::new(&given.at, value));
                        }
                        Err(problem) => problems.push(problem),
                    }
                }
            }
            Some(Syntax::PerQueue(form)) => {
                for part in parts(&given) {
                    take_of_queue(section, setting, form, part, problems);
                }
            }
            Some(Syntax::Text) | None => section.push(key, given),
        }
        true
    }
}

/// Adds one part of a list such as `50,payments=5`.
fn take_of_queue(
    section: &mut Section,
    setting: &Setting,
    form: PerQueue,
    part: WrittenValue,
    problems: &mut Vec<Problem>,
) {
    match part.text.rsplit_once('=') {
        Some((queue, value)) => {
            let key = format!("{}.{}", form.map, queue.trim());
            once(
                section,
                &key,
                WrittenValue::new(&part.at, value.trim()),
                problems,
            );
        }
        None if setting.shape == Shape::Map => {
            let found = format!("`{}` is not a queue and its {}", part.text, form.noun);
            let problem = Problem::new(&part.at, found, form.wanted);
            problems.push(problem.hint(format!("written like {}", form.example)));
        }
        None => once(section, setting.key, part, problems),
    }
}

/// The variables for developing this program, which are not settings of a run.
const DEVELOPERS: [&str; 2] = ["DISPATCHER_BINARY", "DISPATCHER_TOOLS"];

/// Finds variables that begin with `DISPATCHER_` and are not settings. A misspelled setting is a
/// problem. Any other variable is only a notice, since it may belong to another program. Variables
/// that Kubernetes sets in every pod for a service called `dispatcher` are ignored.
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> (Vec<Problem>, Vec<String>) {
    let (mut problems, mut notices) = (Vec::new(), Vec::new());
    let settings: Vec<_> = declared::all().filter_map(Setting::variable).collect();
    for name in names {
        let known = settings.contains(&name.as_str()) || DEVELOPERS.contains(&name.as_str());
        if known || !name.starts_with("DISPATCHER_") || is_service_link(&name) {
            continue;
        }
        let upper = name.to_uppercase();
        let likely = settings
            .iter()
            .map(|setting| (strsim::damerau_levenshtein(&upper, setting), setting))
            .filter(|(slips, _)| *slips <= 2)
            .min_by_key(|(slips, _)| *slips);
        match likely {
            Some((_, setting)) => problems.push(
                Problem::new(&name, "unknown environment variable", "")
                    .hint(format!("did you mean `{setting}`?")),
            ),
            None => notices.push(format!(
                "environment variable ignored: `{name}` is not a setting; `dispatcher run --help` \
                 lists the settings"
            )),
        }
    }
    (problems, notices)
}

/// Whether Kubernetes sets this variable for a service, for example `DISPATCHER_SERVICE_HOST` or
/// `DISPATCHER_PORT_9090_TCP_ADDR`. For a service called `dispatcher-web` it sets
/// `DISPATCHER_WEB_SERVICE_HOST`.
fn is_service_link(name: &str) -> bool {
    let ending = name.split_once("_PORT_").map(|(_, ending)| ending);
    let port = ending.and_then(|ending| ending.split('_').next());
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || port.is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Splits a comma-separated list; each part keeps the list's place.
fn parts(given: &WrittenValue) -> Vec<WrittenValue> {
    let parts = given.text.split(',').map(str::trim);
    parts
        .map(|part| WrittenValue::new(&given.at, part))
        .collect()
}

/// Adds a value. Reports a problem if the key already has a value.
fn once(section: &mut Section, key: &str, given: WrittenValue, problems: &mut Vec<Problem>) {
    if let Some(first) = section.one(key) {
        let found = match key.split_once('.') {
            Some((_, queue)) => format!("`{}` and `{}` for `{queue}`", first.text, given.text),
            None => format!("`{}` and `{}`, both for all queues", first.text, given.text),
        };
        return problems.push(Problem::new(&given.at, found, "one of them"));
    }
    section.push(key, given);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_25_misspelt_variable_is_a_problem_and_foreign_one_a_notice() {
        let names = [
            "DISPATCHER_CONCURENCY",
            "DISPATCHER_CONCURRENCY",
            "DISPATCHER_poll_for",
            "DISPATCHER_RELEASE_CHANNEL",
            "DISPATCHER_DELAY",
            "DISPATCHER_SERVICE_HOST",
            "DISPATCHER_SERVICE_PORT_ADMIN",
            "DISPATCHER_PORT",
            "DISPATCHER_PORT_9090_TCP_ADDR",
            "DISPATCHER_WEB_SERVICE_PORT",
            "PATH",
        ];
        let (problems, notices) = unknown_variables(names.map(str::to_owned));
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "DISPATCHER_CONCURENCY: unknown environment variable; did you mean \
                 `DISPATCHER_CONCURRENCY`?",
                "DISPATCHER_poll_for: unknown environment variable; did you mean \
                 `DISPATCHER_POLL_FOR`?",
            ]
        );
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(
            notices[0].contains("`DISPATCHER_RELEASE_CHANNEL`"),
            "{notices:?}"
        );
        assert!(notices[1].contains("`DISPATCHER_DELAY`"), "{notices:?}");
    }

    #[test]
    fn every_flag_sets_a_key_of_its_section() {
        let mut flags = Flags::default();
        assert!(flags.take("queues", WrittenValue::new("--queues", "a:3,b:1")));
        assert!(flags.take("env", WrittenValue::new("DISPATCHER_ENV", "A=1\nB=x=y")));
        assert!(flags.take("env", WrittenValue::new("--env", "C")));
        assert!(flags.take("max-attempts", WrittenValue::new("--max-attempts", "3")));
        assert!(!flags.take("count", WrittenValue::new("--count", "3")));
        assert!(flags.route.one("queues").is_some());
        let env: Vec<_> = flags.plugin.entries("env").collect();
        assert_eq!(env[1], ("B", &WrittenValue::new("DISPATCHER_ENV", "x=y")));
        assert_eq!(flags.problems.len(), 1);
        assert!(flags.route.has("retry"));
    }

    #[test]
    fn limits_per_queue_are_kept_beside_the_total() {
        let mut flags = Flags::default();
        let given = WrittenValue::new("DISPATCHER_CONCURRENCY", "50, payments=5,local:a=1");
        assert!(flags.take("concurrency", given));
        assert!(flags.take("rate", WrittenValue::new("--rate", "payments=100/s")));
        assert!(flags.take(
            "rate",
            WrittenValue::new("--rate", "local:a=5/m,arn:aws:sqs:r:1:q=1/h")
        ));
        assert_eq!(flags.problems, []);
        let given = WrittenValue::new("DISPATCHER_CONCURRENCY", "50");
        assert_eq!(flags.route.one("concurrency"), Some(&given));
        for (table, wanted) in [
            ("queue-concurrency", &["local:a", "payments"][..]),
            ("rate", &["arn:aws:sqs:r:1:q", "local:a", "payments"]),
        ] {
            let entries = flags.route.entries(table);
            let names: Vec<&str> = entries.map(|(name, _)| name).collect();
            assert_eq!(names, wanted);
        }
    }

    #[test]
    fn duplicate_settings_are_problems() {
        let mut flags = Flags::default();
        flags.take("concurrency", WrittenValue::new("--concurrency", "5,a=1"));
        flags.take("concurrency", WrittenValue::new("--concurrency", "6"));
        flags.take("concurrency", WrittenValue::new("--concurrency", "a=2"));
        flags.take("rate", WrittenValue::new("--rate", "100/s"));
        let found: Vec<_> = flags.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "--concurrency: `5` and `6`, both for all queues; wanted one of them",
                "--concurrency: `1` and `2` for `a`; wanted one of them",
                "--rate: `100/s` is not a queue and its rate; wanted QUEUE=N/s, /m or /h; \
                 written like payments=100/s",
            ]
        );
    }
}
