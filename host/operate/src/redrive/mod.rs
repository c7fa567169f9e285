//! Moves messages from one queue to others: dead letters back to their source queues, or all
//! messages to another queue. The steps are always the same: lease, send a copy, read the answer
//! for each copy, then delete. So a crash at any step loses nothing, and repeats at most one batch.
//!
//! `copy` builds the copy of a message, `returns` detects when too many have failed again, `tally`
//! is the report; all of them are pure. `run` walks over a queue, `handover` sends and deletes,
//! `look` only shows messages. Knows no backend and no plugin.

mod copy;
mod handover;
mod look;
mod returns;
mod run;
mod tally;

pub use copy::{LetterSource, Marks, redriven, source_of};
pub use look::{LookBounds, LookEnd, LookResult, look};
pub use run::{check, run};
pub use tally::{DestinationView, End, FailureView, JobReport, OTHERS, ReasonView};

use crate::select::Selection;
use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::{ItemError, Queue, QueueError};
use dispatcher_core::telemetry::metrics::durations::SentMessages;
use dispatcher_core::telemetry::trace::Tracer;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The default number of messages that are received for inspection from a queue that cannot be
/// listed.
pub const SCANNED: u64 = 10_000;
/// The maximum number of messages that may be scanned: SQS allows 120,000 in flight (SQS quotas).
pub const MOST_SCANNED: u64 = 100_000;

/// The destinations of messages.
#[async_trait::async_trait]
pub trait Destinations: Send + Sync {
    /// Returns the one queue that all messages go to, if there is one.
    fn all(&self) -> Option<Arc<dyn Queue>>;

    /// Opens the queue that a dead letter names as its source or, without a source, the queue whose
    /// redrive policy leads here. The error is the reason why there is none.
    async fn source(&self, source: Option<&LetterSource>) -> Result<Arc<dyn Queue>, String>;
}

/// Reviews each message before it is moved.
#[async_trait::async_trait]
pub trait Review: Send + Sync {
    /// Returns the body to send; the error is the reason why the message stays. Returns soon after
    /// `cancel` is set; the result is then ignored.
    async fn review(&self, message: &Message, cancel: &CancellationToken)
    -> Result<String, String>;
}

/// Follows the progress of a run. The run continues once the call has returned.
#[async_trait::async_trait]
pub trait Progress: Send + Sync {
    /// Records that a page was inspected or a batch was moved.
    async fn note(&self, report: &JobReport);
}

#[async_trait::async_trait]
impl<F: Fn(&JobReport) + Send + Sync> Progress for F {
    async fn note(&self, report: &JobReport) {
        self(report);
    }
}

/// The source, the destination and the options of a redrive.
#[derive(Clone)]
pub struct Redrive {
    /// The queue to take messages from.
    pub from: Arc<dyn Queue>,
    /// Whether its messages can only be taken from its head, in order: a FIFO queue of SQS.
    pub is_fifo: bool,
    /// The destinations.
    pub to: Arc<dyn Destinations>,
    /// The selected messages; all of them without a condition.
    pub selection: Selection,
    /// The treatment of the attributes of dead letters.
    pub marks: Marks,
    /// The review of each message before it is moved.
    pub review: Option<Arc<dyn Review>>,
    /// Creates the spans of calls that send.
    pub tracer: Tracer,
    /// Counts the sent messages, and the calls to the source queue.
    pub sent: Arc<SentMessages>,
}

impl Redrive {
    /// Settles messages of the source queue.
    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let (answers, calls) = self.from.settle_with_calls(items).await;
        self.took(calls);
        answers
    }

    /// Counts calls to the source queue.
    fn took(&self, calls: usize) {
        self.sent.add_calls(&self.from.identity().name, calls);
    }
}

/// The reason why a request cannot be met by the source queue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedriveRefusal {
    /// The destination is the source queue.
    #[error("`{0}` cannot be moved to itself")]
    SameQueue(String),
    /// The queue hands out messages only in order, but the request selects some.
    #[error(
        "`{0}` is a FIFO queue: a message can only be received before those behind it in its group, so it is moved whole or from its head, without conditions"
    )]
    InOrder(String),
    /// The messages must be inspected, but the queue's redrive policy allows only one receive.
    #[error(
        "`{0}` cannot be inspected: its redrive policy lets a message be received once, and \
         inspecting it is a receive"
    )]
    OneReceive(String),
}

/// The reason why nothing, or not everything, was done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RedriveError {
    /// The request cannot be met; nothing was moved.
    #[error("{0}")]
    Refused(RedriveRefusal),
    /// A call to the queue failed; the report contains the work before.
    #[error("{error}")]
    Source {
        /// The error of the call.
        error: QueueError,
        /// The work that was done.
        report: Box<JobReport>,
    },
}

#[cfg(test)]
mod tests;
