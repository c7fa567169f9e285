//! What flags and their environment variables say, sorted into the sections they override. Knows
//! the names of flags and no argument parser.

use super::problem::Problem;
use super::section::{Given, Section};
use super::value;

/// Flags by what they speak about; the values are still texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flags {
    /// `--config`.
    pub file: Option<Given>,
    /// What `[dispatcher]` and `[backend.…]` may say.
    pub program: Section,
    /// What the only `[[route]]` may say.
    pub route: Section,
    /// What that route's `[plugin.…]` may say.
    pub plugin: Section,
    /// What could not even be sorted.
    pub problems: Vec<Problem>,
}

#[derive(Clone, Copy)]
enum Part {
    Program,
    Route,
    Plugin,
}

/// Each flag, the section it overrides, and the key there.
const FLAGS: &[(&str, Part, &str)] = &[
    ("batch-size", Part::Route, "batch-size"),
    ("concurrency", Part::Route, "concurrency"),
    ("data", Part::Program, "data"),
    ("dead-letter", Part::Route, "dead-letter"),
    ("endpoint-url", Part::Program, "endpoint-url"),
    ("env", Part::Plugin, "env"),
    ("log-format", Part::Program, "log-format"),
    ("log-level", Part::Program, "log-level"),
    ("max-attempts", Part::Route, "retry.attempts"),
    ("max-memory", Part::Plugin, "max-memory"),
    ("plugin", Part::Plugin, "file"),
    ("poll-for", Part::Route, "poll-for"),
    ("queues", Part::Route, "queues"),
    ("reuse", Part::Plugin, "reuse.count"),
    ("shutdown-grace", Part::Program, "shutdown-grace"),
    ("sleep", Part::Route, "sleep"),
    ("timeout", Part::Plugin, "timeout"),
    ("visibility", Part::Route, "visibility"),
    ("workers", Part::Program, "workers"),
];

impl Default for Flags {
    fn default() -> Self {
        Self {
            file: None,
            program: Section::new("the command line"),
            route: Section::new("--queues"),
            plugin: Section::new("--plugin"),
            problems: Vec::new(),
        }
    }
}

impl Flags {
    /// Takes one value of a flag, named without its dashes. Says whether it is one of the flags
    /// that settings come from.
    pub fn take(&mut self, flag: &str, given: Given) -> bool {
        if flag == "config" {
            self.file = Some(given);
            return true;
        }
        let Some((_, part, key)) = FLAGS.iter().find(|(name, _, _)| *name == flag) else {
            return false;
        };
        let section = match part {
            Part::Program => &mut self.program,
            Part::Route => &mut self.route,
            Part::Plugin => &mut self.plugin,
        };
        match *key {
            // One pair a line: an environment variable holds many.
            "env" => {
                for line in given.text.lines() {
                    match value::pair(&Given::new(&given.at, line)) {
                        Ok((name, value)) => {
                            section.push(format!("env.{name}"), Given::new(&given.at, value));
                        }
                        Err(problem) => self.problems.push(problem),
                    }
                }
            }
            key => section.push(key, given),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_lands_in_its_section() {
        let mut flags = Flags::default();
        assert!(flags.take("queues", Given::new("--queues", "a:3,b:1")));
        assert!(flags.take("env", Given::new("DISPATCHER_ENV", "A=1\nB=x=y")));
        assert!(flags.take("env", Given::new("--env", "C")));
        assert!(flags.take("max-attempts", Given::new("--max-attempts", "3")));
        assert!(!flags.take("count", Given::new("--count", "3")));
        assert!(flags.route.one("queues").is_some());
        let env: Vec<_> = flags.plugin.entries("env").collect();
        assert_eq!(env[1], ("B", &Given::new("DISPATCHER_ENV", "x=y")));
        assert_eq!(flags.problems.len(), 1);
        assert!(flags.route.has("retry"));
    }
}
