//! What failures of DynamoDB mean to the schedule. Decides; calls nothing.

use crate::schedule::{StoreError, Trouble};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use std::error::Error;

/// Which call was made, on which table, where; for messages that a person reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub step: &'static str,
    pub table: &'a str,
    /// An endpoint or a region.
    pub place: &'a str,
    pub has_region: bool,
}

impl Call<'_> {
    /// A failure that is known without asking.
    pub fn refused(&self, words: &str) -> StoreError {
        StoreError {
            kind: Trouble::Refused,
            message: format!("table `{}` at {}: {words}", self.table, self.place),
        }
    }

    pub fn failed<E>(&self, error: &SdkError<E>) -> StoreError
    where
        E: Error + ProvideErrorMetadata + 'static,
    {
        let Self {
            step,
            table,
            place,
            has_region,
        } = *self;
        if !has_region {
            return self.refused(
                "no AWS region is configured; wanted AWS_REGION or a region in the profile",
            );
        }
        let words = words(error);
        let kind = kind(error, &words);
        let message = match kind {
            Trouble::Missing => format!("there is no table `{table}` at {place}"),
            Trouble::Unreachable => {
                format!("no answer to {step} on table `{table}` at {place}: {words}")
            }
            Trouble::Denied => {
                format!("AWS does not allow {step} on table `{table}` at {place}: {words}")
            }
            Trouble::Passing | Trouble::Refused => {
                format!("{step} on table `{table}` at {place} failed: {words}")
            }
        };
        StoreError { kind, message }
    }
}

/// Whether the condition of a call held.
pub(super) fn held<T, E>(asked: Result<T, SdkError<E>>, call: &Call<'_>) -> Result<bool, StoreError>
where
    E: Error + ProvideErrorMetadata + 'static,
{
    match asked {
        Ok(_) => Ok(true),
        Err(error) if code(&error) == Some("ConditionalCheckFailedException") => Ok(false),
        Err(error) => Err(call.failed(&error)),
    }
}

pub(super) fn code<E: ProvideErrorMetadata>(error: &SdkError<E>) -> Option<&str> {
    error
        .as_service_error()
        .and_then(ProvideErrorMetadata::code)
}

fn kind<E>(error: &SdkError<E>, words: &str) -> Trouble
where
    E: Error + ProvideErrorMetadata + 'static,
{
    if let SdkError::ServiceError(answer) = error {
        let status = answer.raw().status().as_u16();
        return judge(answer.err().code().unwrap_or_default(), status);
    }
    let words = words.to_ascii_lowercase();
    let hints = ["credential", "identity", "auth scheme", "sso session"];
    match error {
        _ if hints.iter().any(|hint| words.contains(hint)) => Trouble::Denied,
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) => Trouble::Unreachable,
        SdkError::ResponseError(_) => Trouble::Passing,
        _ => Trouble::Refused,
    }
}

/// What the error code and HTTP status of an answer say ("Error handling", DynamoDB developer guide).
fn judge(code: &str, status: u16) -> Trouble {
    match code {
        "ResourceNotFoundException" | "TableNotFoundException" => Trouble::Missing,
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "LimitExceededException"
        | "ResourceInUseException"
        | "TransactionConflictException" => Trouble::Passing,
        "AccessDeniedException"
        | "UnrecognizedClientException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "InvalidClientTokenId"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "ExpiredTokenException"
        | "SignatureDoesNotMatch" => Trouble::Denied,
        _ if status >= 500 || status == 429 => Trouble::Passing,
        _ if status == 401 || status == 403 => Trouble::Denied,
        _ => Trouble::Refused,
    }
}

/// The service's own words if it spoke, else every link of the chain that says something new.
fn words<E>(error: &SdkError<E>) -> String
where
    E: Error + ProvideErrorMetadata + 'static,
{
    if let Some(answer) = error.as_service_error() {
        let code = answer.code().unwrap_or("an error without a code");
        let text = answer.message().map(|text| format!(": {text}"));
        return one_line(&format!("{code}{}", text.unwrap_or_default()));
    }
    let mut said: Vec<String> = Vec::new();
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(link) = next {
        let text = link.to_string();
        let empty = ["dispatch failure", "other", "io error", "service error"];
        if !empty.contains(&&*text) && !said.iter().any(|known| known.contains(&text)) {
            said.push(text);
        }
        next = link.source();
    }
    one_line(&said.join(": "))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_statuses_say_what_may_be_done() {
        for (code, status, kind) in [
            ("ResourceNotFoundException", 400, Trouble::Missing),
            (
                "ProvisionedThroughputExceededException",
                400,
                Trouble::Passing,
            ),
            ("InternalServerError", 500, Trouble::Passing),
            ("AccessDeniedException", 400, Trouble::Denied),
            ("", 403, Trouble::Denied),
            ("ValidationException", 400, Trouble::Refused),
        ] {
            assert_eq!(judge(code, status), kind, "{code} {status}");
        }
    }
}
