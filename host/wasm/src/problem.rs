//! A reason why a file is not a plugin, with a remedy.

use std::path::PathBuf;

/// The reasons why a file is not a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The file.
    pub file: PathBuf,
    /// The reasons, at least one.
    pub problems: Vec<Problem>,
}

/// A reason, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The problem, in one line.
    pub what: String,
    /// The remedy, if it is known.
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.hint {
            Some(hint) => write!(out, "{} ({hint})", self.what),
            None => out.write_str(&self.what),
        }
    }
}

/// Writes one line per problem, each with the file.
impl std::fmt::Display for LoadError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let before = if index == 0 { "" } else { "\n" };
            write!(out, "{before}{}: {problem}", self.file.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}
