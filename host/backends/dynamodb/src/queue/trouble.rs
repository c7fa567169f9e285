//! What a failed call of DynamoDB means to the task that it was about. Decides; calls nothing.

use dispatcher_core::queue::{ItemError, QueueError, Trouble};

/// What a failed call means to the task that it was about.
pub(super) fn of_item(error: QueueError) -> ItemError {
    match error.kind {
        // Credentials and policies are put right while we run; the lease outlives that.
        Trouble::Passing | Trouble::Unreachable | Trouble::Denied => {
            ItemError::Passing(error.message)
        }
        Trouble::Missing | Trouble::Refused => ItemError::Refused(error.message),
    }
}
