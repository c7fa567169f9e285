//! The port to handlers: one method. Each implementation is a separate crate.

use crate::clock::{BootInstant, Timestamp};
use crate::message::{Message, Verdict};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Some messages of one queue, about to be handled together.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// 1 to `Handler::batch` messages, in the queue's order.
    pub messages: Vec<Message>,
    /// One per message, at the same index: set once what the handler answers about it no longer
    /// counts.
    pub cancelled: Vec<CancellationToken>,
    /// When the attempt is stopped.
    pub deadline: BootInstant,
    /// The deadline for the guest, in wall-clock time.
    pub deadline_date: Timestamp,
}

/// What the instances of a plugin take at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Instances at work; where many attempts share one, those between two as well.
    pub running: usize,
    /// Bytes in their memories.
    pub running_memory: usize,
    /// Instances that wait for an attempt: those to be used again, and those made ahead.
    pub idle: usize,
    /// Bytes in their memories.
    pub idle_memory: usize,
}

/// Something that handles messages. Cloned by reference and used by many attempts at once.
#[async_trait::async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Maximum messages of one attempt; 1 for a handler of single messages.
    fn batch(&self) -> usize;

    /// Whether what an attempt has begun may continue elsewhere once the attempt is stopped, as an
    /// invoked function does.
    fn reaches_out(&self) -> bool {
        false
    }

    /// Which version of its code would run an attempt that begins now, where there are versions.
    fn version(&self, _attempt: &Attempt) -> Option<Arc<str>> {
        None
    }

    /// What its instances take now, those of all its versions together. Nothing where it has none.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Runs one attempt and answers with one verdict per message, in order. Never panics because
    /// of a guest; a trap is a verdict. Yields to its executor at every epoch while the guest
    /// computes. Dropping the future stops the guest and frees its instance.
    async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict>;
}
