//! A job: a message with its lease and its place in the room; and how it ended. What the stages
//! hand to each other, so that none imports another.

use crate::lease::Lease;
use crate::message::{Message, Verdict};
use crate::scheduler::ready::Waiting;
use crate::scheduler::room::Permit;
use tokio::sync::mpsc::UnboundedSender;

/// A message that is ours and waits or runs.
#[derive(Debug)]
pub struct Job {
    /// What was received.
    pub message: Message,
    /// Our claim on it.
    pub lease: Lease,
    /// Its place in the room; given back when its outcome is on its way.
    pub permit: Permit,
}

impl Waiting for Job {
    fn group(&self) -> Option<&str> {
        self.message.group.as_deref()
    }
}

impl Job {
    /// Ends the job.
    pub fn finish(self, ending: Ending) -> Finished {
        Finished {
            message: self.message,
            lease: self.lease,
            permit: self.permit,
            ending,
        }
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Its attempt ended with a verdict.
    Verdict(Verdict),
    /// It was never started, or stopped with the process: others may have it at once.
    Returned,
    /// It was handled before and only its deletion is missing.
    AlreadyDone,
    /// Its lease was lost while it ran.
    Lost,
}

/// A job on its way to settlement.
#[derive(Debug)]
pub struct Finished {
    /// What was received.
    pub message: Message,
    /// Our claim on it, to be settled or let go.
    pub lease: Lease,
    /// Its place in the room, which settlement keeps while it cannot keep up.
    pub permit: Permit,
    /// How it ended.
    pub ending: Ending,
}

/// Where finished jobs go: one sender per queue of a route, in the route's order. A send fails
/// only when the process is past its end, and then the lease's drop lets the message go.
pub type Outbox = Vec<UnboundedSender<Finished>>;
