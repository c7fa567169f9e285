//! Maps a failed call of DynamoDB to the result of its task. Decides; calls nothing.

use dispatcher_core::queue::{ErrorKind, ItemError, QueueError};

/// What a failed call means to the task that it was about.
pub(super) fn of_item(error: QueueError) -> ItemError {
    match error.kind {
        // Credentials and policies are put right while we run; the lease outlives that.
        ErrorKind::Transient | ErrorKind::Unreachable | ErrorKind::AccessDenied => {
            ItemError::Transient(error.message)
        }
        ErrorKind::NotFound | ErrorKind::Invalid => ItemError::Refused(error.message),
    }
}
