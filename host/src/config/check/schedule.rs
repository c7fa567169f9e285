//! Where scheduled messages wait and how often they are looked for. Opens nothing.

use super::Check;
use crate::config::Schedule;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers};
use crate::config::value::{self, Bare};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(60);
const SHORTEST: Duration = Duration::from_secs(1);
/// Jobs are read 15 minutes ahead: with less to spare, one look that fails would make them late.
const LONGEST: Duration = Duration::from_secs(600);

impl Check {
    /// `table` is what `schedule_table` has read.
    pub(super) fn schedule(&mut self, program: Layers<'_>, table: Option<String>) -> Schedule {
        let range = SHORTEST..=LONGEST;
        let interval = self.read(program.one("schedule-interval"), |given| {
            value::duration(given, Bare::Seconds, &range)
        });
        Schedule {
            interval: interval.unwrap_or(INTERVAL),
            table,
        }
    }

    pub(super) fn schedule_table(&mut self, program: Layers<'_>) -> Option<String> {
        self.read(program.one("schedule-table"), table)
    }
}

/// The name of a table of DynamoDB ("Naming rules and data types", DynamoDB developer guide).
fn table(given: &Given) -> Result<String, Problem> {
    let text = given.text.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (3..=255).contains(&text.len()) && text.chars().all(legal) {
        true => Ok(text.to_owned()),
        false => {
            let found = format!("`{text}` cannot name a table of DynamoDB");
            let wanted = "3 to 255 letters, digits, `-`, `_` or `.`";
            Err(Problem::new(&given.at, found, wanted))
        }
    }
}
