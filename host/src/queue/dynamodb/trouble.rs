//! What a failure of DynamoDB means to the port: whole calls and single tasks. Decides; calls
//! nothing.

use crate::queue::{ItemError, QueueError, Trouble};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use std::error::Error;

/// Which call was made, about which table, where; for messages that a person reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    /// The operation as AWS names it.
    pub step: &'static str,
    /// The table; empty for calls about none.
    pub table: &'a str,
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
            _ if is_about_credentials(&words) => return self.without_credentials(&words),
            SdkError::DispatchFailure(failure) if !failure.is_user() => Trouble::Unreachable,
            // The answer was cut short or is none of DynamoDB's; what was asked may have been done.
            SdkError::ResponseError(_) => Trouble::Passing,
            _ => Trouble::Refused,
        };
        QueueError {
            kind,
            message: self.sentence(kind, &words),
        }
    }

    /// A failure that is known without asking DynamoDB.
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
        let Self { table, place, .. } = self;
        match kind {
            Trouble::Missing => format!("there is no table `{table}` at {place} ({words})"),
            Trouble::Unreachable => format!("no answer to {self}: {words}"),
            Trouble::Denied => format!("AWS does not allow {self}: {words}"),
            Trouble::Passing | Trouble::Refused => format!("{self} failed: {words}"),
        }
    }
}

impl std::fmt::Display for Call<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { step, table, place } = self;
        if table.is_empty() {
            return write!(out, "{step} at {place}");
        }
        write!(out, "{step} on table `{table}` at {place}")
    }
}

/// What the error code and HTTP status of an answer say about trying again ("Error handling with
/// DynamoDB" in its developer guide).
fn judge(code: &str, status: u16) -> Trouble {
    match code {
        "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "ThrottlingException"
        | "Throttling"
        | "LimitExceededException"
        | "TransactionConflictException"
        | "TransactionInProgressException"
        | "ReplicatedWriteConflictException"
        | "InternalServerError" => Trouble::Passing,
        "ResourceNotFoundException" => Trouble::Missing,
        "AccessDeniedException"
        | "ExpiredTokenException"
        | "IncompleteSignatureException"
        | "InvalidSignatureException"
        | "MissingAuthenticationTokenException"
        | "OptInRequired"
        | "UnrecognizedClientException" => Trouble::Denied,
        _ if status >= 500 || status == 429 => Trouble::Passing,
        _ if status == 401 || status == 403 => Trouble::Denied,
        _ => Trouble::Refused,
    }
}

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

fn is_about_credentials(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ["credential", "identity", "auth scheme", "sso session"]
        .iter()
        .any(|hint| words.contains(hint))
}

/// DynamoDB's own words if it spoke, else every link of the chain that says something new.
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
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_told_from_what_will_not() {
        assert_eq!(
            judge("ProvisionedThroughputExceededException", 400),
            Trouble::Passing
        );
        assert_eq!(judge("ThrottlingException", 400), Trouble::Passing);
        assert_eq!(judge("", 503), Trouble::Passing);
        assert_eq!(judge("ResourceNotFoundException", 400), Trouble::Missing);
        assert_eq!(judge("UnrecognizedClientException", 400), Trouble::Denied);
        assert_eq!(judge("ValidationException", 400), Trouble::Refused);
    }

    #[test]
    fn a_failure_names_the_call_the_table_and_the_place() {
        let call = Call {
            step: "Query",
            table: "QueueTable",
            place: "DYNAMODB in eu-west-1",
        };
        assert_eq!(
            call.refused("no such thing").message,
            "Query on table `QueueTable` at DYNAMODB in eu-west-1 failed: no such thing"
        );
    }
}
