//! Maps a failed call on the server to the results of a queue's messages.

pub(super) use crate::server::errors::{is_doubtful, unexpected_answer};
use dispatcher_core::queue::{ErrorKind, ItemError, QueueError};

/// Converts the failure of a whole call to the answer to one of its items.
pub(super) fn item(error: &QueueError) -> ItemError {
    match error.kind {
        // This process learns of a changed password a moment later than the server.
        ErrorKind::Transient | ErrorKind::Unreachable | ErrorKind::AccessDenied => {
            ItemError::Transient(error.message.clone())
        }
        ErrorKind::NotFound | ErrorKind::Invalid => ItemError::Refused(error.message.clone()),
    }
}

/// Returns the failure of a whole call as the answer to each item.
pub(super) fn all<T>(error: &QueueError, count: usize) -> Vec<Result<T, ItemError>> {
    std::iter::repeat_with(|| Err(item(error)))
        .take(count)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_password_rejects_no_message() {
        let denied = QueueError {
            kind: ErrorKind::AccessDenied,
            message: "WRONGPASS".into(),
        };
        assert!(matches!(item(&denied), ItemError::Transient(_)), "{denied}");
    }
}
