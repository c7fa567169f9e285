//! A problem of the settings, in one line: the place, what was found, and what was wanted. Knows
//! neither files nor flags.

use crate::WeightedQueue;
use std::fmt::{self, Write};

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The place: `dispatcher.toml:12`, `--queues`, `DISPATCHER_QUEUES`, a file's or a queue's
    /// name.
    pub at: String,
    /// The value that was found: a clause without a full stop.
    pub found: String,
    /// The value that is wanted; may be empty if `found` is sufficient.
    pub wanted: String,
    /// The advice: a likely name or an example.
    pub hint: Option<String>,
    /// The kind of the cause, which decides the exit code.
    pub fault: Fault,
    /// The queue whose problem it is, if a pattern found it: the others can be served without it.
    pub found_queue: Option<Box<str>>,
}

/// The kind of the cause of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The settings or arguments are wrong: exit code 2.
    Settings,
    /// A required server does not respond: exit code 3.
    Dependency,
    /// A failure at run time, or the system lacks a needed resource: exit code 1.
    Running,
}

impl Problem {
    /// Creates a problem with the settings.
    pub fn new(at: impl Into<String>, found: impl Into<String>, wanted: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            found: found.into(),
            wanted: wanted.into(),
            hint: None,
            fault: Fault::Settings,
            found_queue: None,
        }
    }

    /// Marks the problem as that of a queue, if a pattern found it.
    pub fn of_queue(self, queue: &WeightedQueue) -> Self {
        Self {
            found_queue: queue
                .found_by
                .as_ref()
                .map(|_| queue.name.to_string().into()),
            ..self
        }
    }

    /// Adds advice.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Adds `did you mean`, if one of the names is similar enough to `found`.
    pub fn nearest<'a>(self, found: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(found, names) {
            Some(name) => self.hint(format!("did you mean `{name}`?")),
            None => self,
        }
    }

    /// Marks the problem as a failure at run time.
    pub fn failed(self) -> Self {
        Self {
            fault: Fault::Running,
            ..self
        }
    }

    /// Marks the problem as caused by an unreachable server.
    pub fn unreachable(self) -> Self {
        Self {
            fault: Fault::Dependency,
            ..self
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = EscapedLine(out);
        write!(line, "{}: {}", self.at, self.found)?;
        if !self.wanted.is_empty() {
            write!(line, "; wanted {}", self.wanted)?;
        }
        match &self.hint {
            Some(hint) => write!(line, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// A writer that escapes control characters, which could end the line or control a terminal:
/// problems quote the user's text.
struct EscapedLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for EscapedLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if letter.is_control() {
                write!(self.0, "{}", letter.escape_default())?
            } else {
                self.0.write_char(letter)?
            }
        }
        Ok(())
    }
}

/// Returns the name most similar to `found`, if one is similar enough. Ignores case and treats `_`
/// as `-`.
pub fn nearest<'a>(found: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let found = plain(found);
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&found, &plain(name)), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

fn plain(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_is_one_line() {
        let problem = Problem::new("a.toml:3", "unknown key `que`", "queues or name");
        assert_eq!(
            problem
                .clone()
                .nearest("que", ["queues", "name"])
                .to_string(),
            "a.toml:3: unknown key `que`; wanted queues or name; did you mean `queues`?"
        );
        assert_eq!(problem.nearest("zzz", ["queues"]).hint, None);
    }

    #[test]
    fn quoted_input_is_escaped() {
        let problem = Problem::new("--queues", "`a\n\u{1b}[2J` is none", "");
        assert_eq!(problem.to_string(), r"--queues: `a\n\u{1b}[2J` is none");
    }

    #[test]
    fn similar_names_are_suggested() {
        let names = ["concurrency", "batch-size", "poll-for"];
        assert_eq!(nearest("concurency", names), Some("concurrency"));
        assert_eq!(nearest("batch_size", names), Some("batch-size"));
        assert_eq!(nearest("BatchSize", names), Some("batch-size"));
        assert_eq!(nearest("xyz", names), None);
    }
}
