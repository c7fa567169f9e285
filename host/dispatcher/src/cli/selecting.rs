//! Which messages a command is about, as it is typed.

use crate::config::problem::Problem;
use crate::config::section::Given;
use crate::config::value;
use crate::config::value::BareUnit;
use dispatcher_core::redrive::{Condition, ReasonPattern, Selection};
use std::time::Duration;

/// Conditions, all of which must hold.
#[derive(Debug, Default, clap::Args)]
pub(super) struct SelectArgs {
    /// Only dead letters whose reason matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub reason: Option<String>,
    /// Only messages whose body is JSON with this value; may be repeated
    #[arg(long, value_name = "/POINTER=VALUE")]
    pub r#where: Vec<String>,
    /// Only messages that were sent at least so long ago, as in 90s or 36h
    #[arg(long, value_name = "TIME")]
    pub older: Option<String>,
}

impl SelectArgs {
    /// Whether anything was given.
    pub(super) fn is_given(&self) -> bool {
        self.reason.is_some() || !self.r#where.is_empty() || self.older.is_some()
    }

    /// Reads all of them; what is wrong goes to `problems`.
    pub(super) fn selection(&self, problems: &mut Vec<Problem>) -> Selection {
        let reason = self.reason.as_deref().and_then(|text| {
            let read = ReasonPattern::parse(text);
            let wanted = "one as in `time.?out`";
            read.map_err(|found| problems.push(Problem::new("--reason", found, wanted)))
                .ok()
        });
        let mut conditions = Vec::new();
        for text in &self.r#where {
            match Condition::parse(text) {
                Ok(condition) => conditions.push(condition),
                Err(found) => {
                    let wanted = "a JSON pointer and a value, as in /order/country=CH";
                    problems.push(Problem::new("--where", found, wanted));
                }
            }
        }
        let older = self.older.as_deref().and_then(|text| {
            let given = Given::new("--older", text);
            let range = Duration::ZERO..=Duration::MAX;
            let read = value::duration(&given, BareUnit::Refused, &range);
            read.map_err(|problem| problems.push(problem)).ok()
        });
        Selection {
            reason,
            conditions,
            older,
            ids: None,
            redact: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_found_at_once() {
        let args = SelectArgs {
            reason: Some("(".into()),
            r#where: vec!["a=1".into(), "/a=1".into(), "/b".into()],
            older: Some("soon".into()),
        };
        let mut problems = Vec::new();
        let selection = args.selection(&mut problems);
        let places: Vec<_> = problems.iter().map(|one| one.at.as_str()).collect();
        assert_eq!(places, ["--reason", "--where", "--where", "--older"]);
        assert_eq!(selection.conditions.len(), 1);
    }
}
