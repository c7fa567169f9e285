//! Explains why nothing was scheduled, for every backend. Knows no backend.

use dispatcher_core::queue::{ErrorKind, ItemError, QueueError};
use dispatcher_core::schedule::StoreError;

/// Why nothing was added, looked at or cancelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LaterError {
    /// Whether it may succeed later.
    pub passing: bool,
    /// One line.
    pub message: String,
}

/// It will not succeed later either.
pub fn refused(message: String) -> LaterError {
    LaterError {
        passing: false,
        message,
    }
}

/// A failure of a store.
pub fn of_store(error: &StoreError) -> LaterError {
    LaterError {
        passing: matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Transient),
        message: error.message.clone(),
    }
}

/// A failure of a queue.
pub fn of_queue(error: &QueueError) -> LaterError {
    LaterError {
        passing: matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Transient),
        message: error.message.clone(),
    }
}

/// A failure of one message.
pub fn of_item(error: &ItemError) -> LaterError {
    LaterError {
        passing: matches!(error, ItemError::Transient(_)),
        message: error.to_string(),
    }
}
