//! Errors that end the program: an exit code and the lines to print. Everything above the stages
//! may fail with this; nothing below uses it.

use dispatcher_config::problem::{Fault, Problem};
use dispatcher_core::queue::{ErrorKind, QueueError};
use dispatcher_core::telemetry::escape::escape_lines;
use std::io::Write;
use std::process::ExitCode;

/// The exit codes other than 0 of a command, as `--help` documents them. A forced stop exits with
/// 130 or 143, which only the stop itself uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 1: failed while running.
    Failed,
    /// 2: bad usage or configuration.
    Usage,
    /// 3: something needed could not be reached at start.
    Unreachable,
}

impl Exit {
    /// Returns the exit code as a number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
        }
    }
}

/// The reason why a command ends, in lines for stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// One line per problem, without `error:`; may be empty if everything has been printed.
    pub lines: Vec<String>,
}

impl Failure {
    /// Creates a failure of one line.
    pub(crate) fn new(exit: Exit, line: impl Into<String>) -> Self {
        Self {
            exit,
            lines: vec![line.into()],
        }
    }

    /// Prints the lines to stderr, formatted by `as_line` if given. Escapes control characters of
    /// quoted text, so that they cannot control the terminal.
    pub(crate) fn report(&self, as_line: Option<fn(&str, u8) -> String>) -> ExitCode {
        let code = self.exit.code();
        for line in &self.lines {
            let line = as_line.map_or_else(|| format!("error: {line}"), |write| write(line, code));
            // If this fails, it cannot be reported.
            let _ = writeln!(std::io::stderr(), "{}", escape_lines(&line));
        }
        ExitCode::from(code)
    }
}

impl From<Vec<Problem>> for Failure {
    /// Bad settings take precedence over unreachable services, because they must be fixed first.
    fn from(problems: Vec<Problem>) -> Self {
        let all = |fault| problems.iter().all(|problem| problem.fault == fault);
        let exit = if all(Fault::Running) {
            Exit::Failed
        } else if all(Fault::Dependency) {
            Exit::Unreachable
        } else {
            Exit::Usage
        };
        Self {
            exit,
            lines: problems.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::from(vec![problem])
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        let exit = match error.kind {
            ErrorKind::Transient | ErrorKind::Unreachable => Exit::Unreachable,
            ErrorKind::NotFound | ErrorKind::AccessDenied | ErrorKind::Invalid => Exit::Usage,
        };
        Self::new(exit, error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_outrank_unreachable_servers_in_the_exit_code() {
        let wrong = Problem::new("--queues", "bad", "good");
        let away = Problem::new("sqs", "no answer", "").unreachable();
        assert_eq!(Failure::from(away.clone()).exit.code(), 3);
        let both = Failure::from(vec![away, wrong]);
        assert_eq!(both.exit.code(), 2);
        assert_eq!(both.lines, ["sqs: no answer", "--queues: bad; wanted good"]);
    }
}
