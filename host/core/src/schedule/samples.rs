//! A job for tests, also for those of the crates with stores.

use super::ScheduledJob;
use crate::clock::Timestamp;
use crate::message::OutgoingMessage;

/// A job for the queue `q`.
pub fn job(id: &str, due: Timestamp) -> ScheduledJob {
    ScheduledJob {
        id: id.to_owned(),
        queue: "q".to_owned(),
        due,
        message: OutgoingMessage {
            body: format!("body of {id}"),
            ..OutgoingMessage::default()
        },
        every: None,
        claim: None,
        stamp: due.0.to_string(),
    }
}
