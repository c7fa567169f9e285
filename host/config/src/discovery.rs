//! Patterns of queue names, whose queues a route serves as they come and go. Pure: the program looks
//! the queues up.

use crate::backends;
use crate::name::QueueName;
use crate::problem::Problem;
use crate::section::WrittenValue;
use dispatcher_core::account::{Accounts, AwsAccount, NamePattern};
use dispatcher_core::backend::Backend;
use std::collections::BTreeMap;
use std::fmt;

/// The suffix of the names of FIFO queues of SQS.
const FIFO: &str = ".fifo";

/// A pattern of queue names: `prod-*` or `local:jobs-*`. A `*` stands for any characters.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuePattern {
    /// The pattern of names in the backend.
    names: QueueName,
    pattern: NamePattern,
    /// The place in the configuration, for later problems: `dispatcher.toml:12`, `--queues`.
    pub at: String,
}

/// The queues of each pattern, by its text, in the order of their names.
pub type FoundQueues = BTreeMap<String, Vec<QueueName>>;

impl QueuePattern {
    /// Whether a text is a pattern, though maybe an invalid one.
    pub fn is_pattern(text: &str) -> bool {
        text.contains('*')
    }

    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns what is wrong with the text.
    pub fn parse(text: &str, at: &str) -> Result<Self, String> {
        let (prefix, name) = text.split_once(':').unwrap_or((backends::unnamed(), text));
        let has_name = name.chars().any(|c| c != '*');
        let is_valid = has_name && name.chars().all(is_of_pattern);
        let (true, Ok(backend)) = (is_valid, backends::find(prefix)) else {
            return Err(no_pattern(text));
        };
        let names = QueueName {
            backend,
            name: name.to_owned(),
        };
        let pattern = NamePattern::parse(&names.to_string());
        Ok(Self {
            pattern: pattern.ok_or_else(|| no_pattern(text))?,
            names,
            at: at.to_owned(),
        })
    }

    /// Returns the backend of its queues.
    pub fn backend(&self) -> &'static dyn Backend {
        self.names.backend
    }

    /// Returns the start that the names of all its queues have in the backend.
    pub fn prefix(&self) -> &str {
        self.names.name.split('*').next().unwrap_or_default()
    }

    /// Returns itself in the place of a queue, as permissions name it.
    pub fn as_queue(&self) -> &QueueName {
        &self.names
    }

    /// Returns the accounts in which its queues may be; `None` is that of the process.
    pub fn accounts<'a>(&self, accounts: &'a Accounts) -> Vec<Option<&'a AwsAccount>> {
        if self.names.backend.facts().has_accounts {
            accounts.of_queues(&self.pattern).collect()
        } else {
            vec![None]
        }
    }

    /// Whether a queue of this name in the backend belongs to it. A FIFO queue does only if the
    /// pattern ends with `.fifo`.
    pub fn matches(&self, name: &str) -> bool {
        let is_fifo = name.ends_with(FIFO);
        let queue = QueueName {
            backend: self.names.backend,
            name: name.to_owned(),
        };
        is_fifo == self.names.name.ends_with(FIFO) && self.pattern.matches(&queue.to_string())
    }

    /// Whether a text names queues on its backend, to leave them out.
    pub(crate) fn may_except(&self, text: &str) -> bool {
        let (prefix, name) = text.split_once(':').unwrap_or((backends::unnamed(), text));
        let is_here =
            backends::find(prefix).is_ok_and(|backend| backend.name() == self.backend().name());
        is_here && !name.is_empty() && name.chars().all(is_of_pattern)
    }

    /// Whether a queue belongs to it.
    pub fn has(&self, queue: &QueueName) -> bool {
        self.names.backend == queue.backend && self.matches(&queue.name)
    }
}

/// Parses a name or a pattern of names of queues or functions.
pub(crate) fn name_pattern(given: &WrittenValue) -> Result<NamePattern, Problem> {
    let text = without_backend(given.text.trim());
    NamePattern::parse(text).ok_or_else(|| {
        let found = format!("`{text}` is not a pattern");
        Problem::new(
            &given.at,
            found,
            "a name in which no two `*` follow each other",
        )
    })
}

/// Returns the name of a queue as it is shown: without its backend, if that need not be named.
pub(crate) fn without_backend(name: &str) -> &str {
    let rest = name.strip_prefix(backends::unnamed());
    rest.and_then(|rest| rest.strip_prefix(':')).unwrap_or(name)
}

/// Whether a pattern of names may have a character.
fn is_of_pattern(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.*".contains(c)
}

fn no_pattern(text: &str) -> String {
    format!(
        "`{text}` is no pattern of queue names; wanted a name in which `*` stands for any \
         characters, as in prod-* or local:jobs-*"
    )
}

impl fmt::Display for QueuePattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> QueuePattern {
        QueuePattern::parse(text, "--queues").expect("a pattern")
    }

    #[test]
    fn pattern_matches_names_of_its_backend() {
        for (text, name, matches) in [
            ("prod-*", "prod-orders", true),
            ("prod-*", "prod-", true),
            ("prod-*", "test-prod-a", false),
            ("*-orders", "prod-orders", true),
            ("prod-*", "local:prod-a", false),
            ("local:prod-*", "local:prod-a", true),
            ("local:prod-*", "prod-a", false),
            ("sqs:prod-*", "prod-a", true),
            ("prod-*", "prod-a.fifo", false),
            ("prod-*.fifo", "prod-a.fifo", true),
        ] {
            let queue: QueueName = name.parse().expect("a name");
            assert_eq!(pattern(text).has(&queue), matches, "{text} {name}");
        }
        assert_eq!(pattern("local:a-*-b").prefix(), "a-");
        assert_eq!(pattern("*-b").prefix(), "");
    }

    #[test]
    fn anything_else_is_no_pattern() {
        for text in [
            "*",
            "a**",
            "a b*",
            "nowhere:a*",
            "arn:aws:sqs:*:*:a*",
            "https://sqs/a*",
            "",
        ] {
            assert!(QueuePattern::parse(text, "x").is_err(), "{text}");
        }
    }
}
