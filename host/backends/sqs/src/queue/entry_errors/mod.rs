//! Maps errors of SQS to the results of single entries; `aws::failure` classifies whole calls.
//! Makes no calls.

use aws_sdk_sqs::types::BatchResultErrorEntry;
use dispatcher_aws::failure::is_throttle;
use dispatcher_aws::one_line;
use dispatcher_core::queue::{ErrorKind, ItemError, QueueError};

/// Returns the error of one failed entry of a batch.
pub(super) fn entry_failed(entry: &BatchResultErrorEntry) -> ItemError {
    let text = entry.message().unwrap_or("no reason given");
    let words = one_line(&format!("{}: {text}", entry.code()));
    let code = entry
        .code()
        .strip_prefix("AWS.SimpleQueueService.")
        .unwrap_or(entry.code());
    match code {
        "ReceiptHandleIsInvalid" | "MessageNotInflight" => ItemError::Gone(words),
        "InvalidParameterValue" if is_about_receipt(text) => ItemError::Gone(words),
        "InternalError" | "InternalFailure" | "ServiceUnavailable" => ItemError::Transient(words),
        _ if is_throttle(code) || !entry.sender_fault() => ItemError::Transient(words),
        _ => ItemError::Refused(words),
    }
}

/// Recognizes "Value … for parameter ReceiptHandle is invalid. Reason: The receipt handle has
/// expired." and "… Reason: Message does not exist or is not available for visibility timeout
/// change."
fn is_about_receipt(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    [
        "receipthandle",
        "receipt handle",
        "not available for visibility",
    ]
    .iter()
    .any(|hint| text.contains(hint))
}

/// Whether SQS refused an entry because the visibility timeout would exceed 12 hours since the
/// receive: "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]".
pub(super) fn is_beyond_ceiling(error: &ItemError) -> bool {
    matches!(error, ItemError::Refused(words) if words.contains("Total VisibilityTimeout"))
}

/// Converts the error of a call to the error of each of its entries.
pub(super) fn every_item(error: &QueueError) -> ItemError {
    let words = error.message.clone();
    match error.kind {
        // An operator can fix credentials and policies while the process runs; the receipt remains
        // valid.
        ErrorKind::Transient | ErrorKind::Unreachable | ErrorKind::AccessDenied => {
            ItemError::Transient(words)
        }
        ErrorKind::NotFound => ItemError::Gone(words),
        ErrorKind::Invalid => ItemError::Refused(words),
    }
}

#[cfg(test)]
mod tests;
