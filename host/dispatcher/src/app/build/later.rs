//! Explains why a message was not scheduled, for every backend. Knows no backend.

use dispatcher_core::queue::{ErrorKind, ItemError, QueueError};
use dispatcher_core::schedule::StoreError;

/// The reason why nothing was scheduled, inspected or cancelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LaterError {
    /// Whether a retry may succeed.
    pub passing: bool,
    /// One line.
    pub message: String,
}

/// Returns an error that a retry will not fix.
pub fn refused(message: String) -> LaterError {
    LaterError {
        passing: false,
        message,
    }
}

/// Converts an error of a store.
pub fn of_store(error: &StoreError) -> LaterError {
    LaterError {
        passing: matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Transient),
        message: error.message.clone(),
    }
}

/// Converts an error of a queue.
pub fn of_queue(error: &QueueError) -> LaterError {
    LaterError {
        passing: matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Transient),
        message: error.message.clone(),
    }
}

/// Converts an error of one message.
pub fn of_item(error: &ItemError) -> LaterError {
    LaterError {
        passing: matches!(error, ItemError::Transient(_)),
        message: error.to_string(),
    }
}
