//! How tables of DynamoDB are used as queues. Opens nothing.

use super::Check;
use crate::config::DynamoDb;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers};
use crate::config::value;
use crate::config::value::Bare;
use std::ops::RangeInclusive;
use std::time::Duration;

const SHARDS: RangeInclusive<u16> = 1..=100;
const LIFE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_155_760_000);
const PAUSE: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(20);

impl Check {
    /// What `[backend.dynamodb]` says.
    pub(super) fn dynamodb(&mut self, program: Layers<'_>) -> DynamoDb {
        DynamoDb {
            body_attribute: self.read(program.one("body-attribute"), column),
            shards: self.read(program.one("shards"), |given| value::number(given, &SHARDS)),
            time_to_live: self.read(program.one("time-to-live"), |given| {
                value::duration(given, Bare::Refused, &LIFE)
            }),
            idle_poll: self.read(program.one("idle-poll"), |given| {
                value::duration(given, Bare::Refused, &PAUSE)
            }),
        }
    }
}

/// A column of the task's own.
fn column(given: &Given) -> Result<String, Problem> {
    let wanted = "the name of an attribute of the task, none of the queue's own";
    let name = value::text(given, wanted)?;
    let taken = ["taskId", "taskStatus", "taskCreated", "taskUpdated", "ttl"];
    if taken.contains(&&*name) || name.starts_with("dispatcher") {
        let found = format!("`{name}` is an attribute of the queue's own");
        return Err(Problem::new(&given.at, found, wanted));
    }
    Ok(name)
}
