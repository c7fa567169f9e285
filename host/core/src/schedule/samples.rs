//! A job for tests, also of the crates whose stores keep it.

use super::ScheduledJob;
use crate::clock::Timestamp;
use crate::message::Outgoing;

/// A job for the queue `q`.
pub fn job(id: &str, due: Timestamp) -> ScheduledJob {
    ScheduledJob {
        id: id.to_owned(),
        queue: "q".to_owned(),
        due,
        message: Outgoing {
            body: format!("body of {id}"),
            ..Outgoing::default()
        },
        every: None,
        claim: None,
        stamp: due.0.to_string(),
    }
}
