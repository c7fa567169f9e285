//! Maps a failed DynamoDB call to the result of its task. Makes no calls.

use dispatcher_core::queue::{ErrorKind, ItemError, QueueError};

/// Converts the error of a call to the error of the task that it was about.
pub(super) fn of_item(error: QueueError) -> ItemError {
    match error.kind {
        // An operator can fix credentials and policies while the process runs, before the lease
        // ends.
        ErrorKind::Transient | ErrorKind::Unreachable | ErrorKind::AccessDenied => {
            ItemError::Transient(error.message)
        }
        ErrorKind::NotFound | ErrorKind::Invalid => ItemError::Refused(error.message),
    }
}
