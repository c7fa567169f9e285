//! What a failure of SQS means to the port: whole calls and single entries. Decides; calls nothing.

use crate::queue::{ItemError, QueueError, Trouble};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::BatchResultErrorEntry;
use std::error::Error;

/// Which call was made, about which queue, where; for messages that a person reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    /// The operation as AWS names it.
    pub step: &'static str,
    /// The queue as configured; empty for calls about none.
    pub queue: &'a str,
    /// An endpoint or a region.
    pub place: &'a str,
}

impl Call<'_> {
    /// The failure of the whole call.
    pub fn failed<E>(&self, error: &SdkError<E>) -> QueueError
    where
        E: Error + ProvideErrorMetadata + 'static,
    {
        let words = words(error);
        let kind = match error {
            SdkError::ServiceError(answer) => judge(
                answer.err().code().unwrap_or_default(),
                answer.raw().status().as_u16(),
            ),
            SdkError::TimeoutError(_) => Trouble::Unreachable,
            SdkError::DispatchFailure(failure) if failure.is_io() || failure.is_timeout() => {
                Trouble::Unreachable
            }
            // Between building and sending stand only credentials, signing and the endpoint.
            SdkError::DispatchFailure(failure) if !failure.is_user() => {
                if is_about_credentials(&words) {
                    return self.without_credentials(&words);
                }
                Trouble::Unreachable
            }
            // The answer was cut short or is no SQS answer; what was asked may have been done.
            SdkError::ResponseError(_) => Trouble::Passing,
            _ if is_about_credentials(&words) => return self.without_credentials(&words),
            _ => Trouble::Refused,
        };
        QueueError {
            kind,
            message: self.sentence(kind, &words),
        }
    }

    /// A failure that is known without asking SQS.
    pub fn refused(&self, words: &str) -> QueueError {
        QueueError {
            kind: Trouble::Refused,
            message: self.sentence(Trouble::Refused, words),
        }
    }

    fn without_credentials(&self, words: &str) -> QueueError {
        QueueError {
            kind: Trouble::Denied,
            message: format!(
                "no usable AWS credentials for {self}: {words}; wanted a profile, a role or AWS_ACCESS_KEY_ID"
            ),
        }
    }

    fn sentence(&self, kind: Trouble, words: &str) -> String {
        let Self { queue, place, .. } = self;
        match kind {
            Trouble::Missing => format!("there is no queue `{queue}` at {place} ({words})"),
            Trouble::Unreachable => format!("no answer to {self}: {words}"),
            Trouble::Denied => format!("AWS does not allow {self}: {words}"),
            Trouble::Passing | Trouble::Refused => format!("{self} failed: {words}"),
        }
    }
}

impl std::fmt::Display for Call<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { step, queue, place } = self;
        if queue.is_empty() {
            return write!(out, "{step} at {place}");
        }
        write!(out, "{step} on queue `{queue}` at {place}")
    }
}

/// What the error code and HTTP status of an answer say about trying again. Throttling comes
/// first: SQS answers some of it with 403, the status of what is denied.
pub(super) fn judge(code: &str, status: u16) -> Trouble {
    if is_throttle(code) || status == 429 {
        return Trouble::Passing;
    }
    match code {
        "QueueDoesNotExist" | "AWS.SimpleQueueService.NonExistentQueue" => Trouble::Missing,
        "AccessDenied"
        | "AccessDeniedException"
        | "AuthorizationError"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "InvalidAccessKeyId"
        | "InvalidClientTokenId"
        | "InvalidSecurity"
        | "KmsAccessDenied"
        | "KMS.AccessDeniedException"
        | "MissingAuthenticationToken"
        | "NotAuthorized"
        | "OptInRequired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => Trouble::Denied,
        _ if status >= 500 => Trouble::Passing,
        _ if status == 401 || status == 403 => Trouble::Denied,
        _ => Trouble::Refused,
    }
}

fn is_throttle(code: &str) -> bool {
    matches!(
        code,
        "OverLimit"
            | "RequestThrottled"
            | "ThrottlingException"
            | "Throttling"
            | "TooManyRequestsException"
            | "KmsThrottled"
            | "KMS.ThrottlingException"
            | "RequestLimitExceeded"
            | "SlowDown"
    )
}

fn is_about_credentials(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ["credential", "identity", "auth scheme", "sso session"]
        .iter()
        .any(|hint| words.contains(hint))
}

/// One entry of a batch that SQS answered for on its own.
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
        "InternalError" | "InternalFailure" | "ServiceUnavailable" => ItemError::Passing(words),
        _ if is_throttle(code) || !entry.sender_fault() => ItemError::Passing(words),
        _ => ItemError::Refused(words),
    }
}

/// "Value … for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired." and
/// "… Reason: Message does not exist or is not available for visibility timeout change."
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

/// Whether an entry was refused because its message has been in flight for too much of 12 hours:
/// "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]".
pub(super) fn is_beyond_ceiling(error: &ItemError) -> bool {
    matches!(error, ItemError::Refused(words) if words.contains("Total VisibilityTimeout"))
}

/// What a failed call means to each of its entries.
pub(super) fn every_item(error: &QueueError) -> ItemError {
    let words = error.message.clone();
    match error.kind {
        // Credentials and policies are put right while we run; the receipt outlives that.
        Trouble::Passing | Trouble::Unreachable | Trouble::Denied => ItemError::Passing(words),
        Trouble::Missing => ItemError::Gone(words),
        Trouble::Refused => ItemError::Refused(words),
    }
}

/// SQS's own words if it spoke, else every link of the chain that says something new.
fn words<E>(error: &SdkError<E>) -> String
where
    E: Error + ProvideErrorMetadata + 'static,
{
    if let SdkError::ServiceError(answer) = error {
        let status = answer.raw().status().as_u16();
        let code = answer.err().code().map_or_else(
            || format!("HTTP status {status}"),
            |code| format!("{code} (HTTP {status})"),
        );
        return one_line(&match answer.err().message() {
            Some(message) => format!("{code}: {message}"),
            None => code,
        });
    }
    let mut links: Vec<String> = Vec::new();
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(link) = next {
        let text = link.to_string();
        let says_nothing = ["dispatch failure", "other", "io error", "service error"];
        if !says_nothing.contains(&&*text) && !links.iter().any(|known| known.contains(&text)) {
            links.push(text);
        }
        next = link.source();
    }
    one_line(&links.join(": "))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
