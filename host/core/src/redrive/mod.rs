//! Moves messages from one queue to others: dead letters back to where they came from, or everything
//! from a queue to another. The steps are always the same: lease, send a copy, read the answer for
//! each copy, then delete. So a crash at any step loses nothing, and repeats one batch at most.
//!
//! `select` decides which messages are meant, `copy` what is sent in their place, `returns` when too
//! many have come back, `tally` what is reported; all of them are pure. `run` walks over a queue,
//! `handover` sends and deletes, `look` only shows messages. Knows no backend and no plugin.

mod copy;
mod handover;
mod look;
mod returns;
mod run;
mod select;
mod tally;

#[cfg(test)]
mod run_tests;

pub use copy::{LetterSource, Marks, redriven, source_of};
pub use look::{LookBounds, LookEnd, Looked, look};
pub use run::{check, run};
pub use select::{Condition, ReasonPattern, Selection, pattern_of_counted, reason_of};
pub use tally::{End, FailureTally, LetterTally, OTHERS, ReasonTally, RedriveReport};

use crate::message::{Message, Outcome};
use crate::queue::{ItemError, Queue, QueueError};
use crate::telemetry::metrics::durations::SentMessages;
use crate::telemetry::trace::Tracer;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How many messages of a queue that cannot be listed are received to be looked at, where nobody says.
pub const SCANNED: u64 = 10_000;
/// The most messages that may be scanned: SQS allows 120,000 in flight (SQS quotas).
pub const MOST_SCANNED: u64 = 100_000;

/// What is to be moved, and how.
#[derive(Debug, Clone)]
pub struct RedriveRequest {
    /// Which messages; all without a condition.
    pub selection: Selection,
    /// The first so many of them.
    pub first: Option<u64>,
    /// So many a second at most.
    pub rate: Option<f64>,
    /// How many messages are looked at in a queue that cannot be listed, where they must be looked at
    /// before they are moved.
    pub scan: u64,
    /// Stops when more redriven messages have come back, of any run, than this share of what was moved, 0
    /// to 1. Not judged where attributes are kept.
    pub stop_at: f64,
    /// What becomes of the attributes of dead letters.
    pub marks: Marks,
    /// Whether to move anything; without it everything is only counted.
    pub apply: bool,
}

impl Default for RedriveRequest {
    /// All dead letters, without moving any.
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            first: None,
            rate: None,
            scan: SCANNED,
            stop_at: 0.5,
            marks: Marks::Redriven,
            apply: false,
        }
    }
}

/// Where messages go.
#[async_trait::async_trait]
pub trait Destinations: Send + Sync {
    /// The one queue that all of them go to, if there is one.
    fn all(&self) -> Option<Arc<dyn Queue>>;

    /// The queue that a dead letter names as its source, opened; for one that names none, the queue
    /// whose redrive policy leads here. The error is why there is none.
    async fn source(&self, source: Option<&LetterSource>) -> Result<Arc<dyn Queue>, String>;
}

/// A look at each message before it is moved.
#[async_trait::async_trait]
pub trait Review: Send + Sync {
    /// The body to send. The error is why the message stays. Ends soon once `cancel` is set; its answer
    /// counts for nothing then.
    async fn review(&self, message: &Message, cancel: &CancellationToken)
    -> Result<String, String>;
}

/// Whoever follows a run. It goes on once this has returned.
#[async_trait::async_trait]
pub trait Progress: Send + Sync {
    /// A page was looked at, or a batch moved.
    async fn note(&self, report: &RedriveReport);
}

#[async_trait::async_trait]
impl<F: Fn(&RedriveReport) + Send + Sync> Progress for F {
    async fn note(&self, report: &RedriveReport) {
        self(report);
    }
}

/// From where to where.
pub struct Redrive {
    /// The queue to take messages from.
    pub from: Arc<dyn Queue>,
    /// Whether its messages can only be taken from its head, in order: a FIFO queue of SQS.
    pub is_fifo: bool,
    /// Where they go.
    pub to: Arc<dyn Destinations>,
    /// What looks at each of them before.
    pub review: Option<Arc<dyn Review>>,
    /// Makes the spans of calls that send.
    pub tracer: Tracer,
    /// Counts what is sent, and the calls that take messages.
    pub sent: Arc<SentMessages>,
}

impl Redrive {
    /// Settles messages of the queue that they are taken from.
    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let (answers, calls) = self.from.settle_with_calls(items).await;
        self.took(calls);
        answers
    }

    /// Counts calls to the queue that messages are taken from.
    fn took(&self, calls: usize) {
        self.sent.add_calls(&self.from.identity().name, calls);
    }
}

/// Why a request cannot be met, by the queue that messages are taken from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedriveRefusal {
    /// The destination is that queue.
    #[error("`{0}` cannot be moved to itself")]
    SameQueue(String),
    /// It hands out messages in order only, and some were selected.
    #[error(
        "`{0}` is a FIFO queue: a message can only be received before those behind it in its group, so it is moved whole or from its head, without conditions"
    )]
    InOrder(String),
    /// Its messages must be looked at, and its redrive policy allows one receive.
    #[error(
        "`{0}` cannot be looked at: its redrive policy lets a message be received once, and looking is a receive"
    )]
    OneReceive(String),
}

/// Why nothing was done, or not all.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RedriveError {
    /// The request cannot be met; nothing was moved.
    #[error("{0}")]
    Refused(RedriveRefusal),
    /// A call to the queue failed; the report says what was done before.
    #[error("{error}")]
    Source {
        /// The call's failure.
        error: QueueError,
        /// What was done.
        report: Box<RedriveReport>,
    },
}
