//! Errors that end the program: an exit code and what to print. Everything above the stages may
//! fail with this; nothing below knows of it.

use crate::config::problem::{Fault, Problem};
use dispatcher_core::queue::{ErrorKind, QueueError};
use std::io::Write;
use std::process::ExitCode;

/// Exit codes other than 0 that a command ends with, as `--help` documents them. A forced stop ends
/// with 130 or 143, which only the stop itself knows.
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
    /// The number that the shell sees.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
        }
    }
}

/// Why a command ends, in lines for stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// One line per problem, without `error:`; may be empty if everything has been printed.
    pub lines: Vec<String>,
}

impl Failure {
    /// A failure of one line.
    pub(crate) fn new(exit: Exit, line: impl Into<String>) -> Self {
        Self {
            exit,
            lines: vec![line.into()],
        }
    }

    /// Prints the lines to stderr.
    pub(crate) fn report(&self) -> ExitCode {
        for line in &self.lines {
            // Nobody is left to tell if this fails.
            let _ = writeln!(std::io::stderr(), "error: {line}");
        }
        ExitCode::from(self.exit.code())
    }
}

impl From<Vec<Problem>> for Failure {
    /// Bad settings outweigh what cannot be reached: they must be mended first.
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
