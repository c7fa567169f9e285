//! Classifies and formats failures of AWS calls, for every service that answers with an error code.
//! Decides; calls nothing.

use super::words;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use std::error::Error;
use std::fmt;

/// What a person is told when the SDK was given no region, so that it cannot call at all.
const NO_REGION: &str = "no AWS region is configured; wanted AWS_REGION or a region in the profile";

/// Which call was made, about what, where; for messages that a person reads.
#[derive(Debug, Clone, Copy)]
pub struct CallName<'a> {
    /// The operation as AWS names it.
    pub step: &'static str,
    /// What the call was about.
    pub about: About<'a>,
    /// An endpoint or a region.
    pub place: &'a str,
}

/// What a call was about, by the name that was configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About<'a> {
    /// A queue of SQS.
    Queue(&'a str),
    /// A table of DynamoDB.
    Table(&'a str),
    /// A function of Lambda, with its version or alias.
    Function(&'a str),
    /// A namespace of CloudWatch.
    Namespace(&'a str),
    /// Nothing by name, such as a list.
    All,
}

impl CallName<'_> {
    /// The failure of the whole call.
    pub fn failed<E>(&self, error: &SdkError<E, HttpResponse>) -> CallError
    where
        E: Error + ProvideErrorMetadata + 'static,
    {
        let words = error_text(error);
        let kind = match error {
            // It cannot be read, so it is none of the service's; what was asked may have been done.
            SdkError::ServiceError(answer) if answer.raw().status().is_success() => {
                ErrorKind::Transient
            }
            SdkError::ServiceError(answer) => {
                let status = answer.raw().status().as_u16();
                match self.about {
                    // The path names the function.
                    About::Function(_) if status == 404 => ErrorKind::NotFound,
                    _ => judge(answer.err().code().unwrap_or_default(), status),
                }
            }
            SdkError::TimeoutError(_) => ErrorKind::Unreachable,
            SdkError::DispatchFailure(failure) if failure.is_io() || failure.is_timeout() => {
                ErrorKind::Unreachable
            }
            // Between building and sending stand only credentials, signing and the endpoint.
            SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_)
                if words::is_about_credentials(&words) =>
            {
                return self.without_credentials(&words);
            }
            _ if words::is_about_region(&words) => return self.refused(NO_REGION),
            SdkError::DispatchFailure(failure) if !failure.is_user() => ErrorKind::Unreachable,
            // The answer was cut short or is none of the service's; what was asked may have been
            // done.
            SdkError::ResponseError(_) => ErrorKind::Transient,
            _ => ErrorKind::Invalid,
        };
        CallError {
            kind,
            message: self.sentence(kind, &words),
        }
    }

    /// A failure that is known without asking.
    pub fn refused(&self, words: &str) -> CallError {
        CallError {
            kind: ErrorKind::Invalid,
            message: self.sentence(ErrorKind::Invalid, words),
        }
    }

    /// Whether the condition of a conditional write held.
    ///
    /// # Errors
    /// Any other failure of the call.
    pub fn held<T, E>(&self, asked: Result<T, SdkError<E, HttpResponse>>) -> Result<bool, CallError>
    where
        E: Error + ProvideErrorMetadata + 'static,
    {
        match asked {
            Ok(_) => Ok(true),
            Err(error) if is_unmet(&error) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn without_credentials(&self, words: &str) -> CallError {
        CallError {
            kind: ErrorKind::AccessDenied,
            message: format!(
                "no usable AWS credentials for {self}: {words}; wanted a profile, a role or \
                 AWS_ACCESS_KEY_ID"
            ),
        }
    }

    fn sentence(&self, kind: ErrorKind, words: &str) -> String {
        let Self { about, place, .. } = self;
        match (kind, about) {
            (ErrorKind::NotFound, About::Queue(_) | About::Table(_) | About::Function(_)) => {
                format!("there is no {about} at {place} ({words})")
            }
            (ErrorKind::Unreachable, _) => format!("no answer to {self}: {words}"),
            (ErrorKind::AccessDenied, _) => format!("AWS does not allow {self}: {words}"),
            _ => format!("{self} failed: {words}"),
        }
    }
}

impl fmt::Display for CallName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, about, place } = self;
        match about {
            About::All => write!(out, "{step} at {place}"),
            _ => write!(out, "{step} on {about} at {place}"),
        }
    }
}

impl fmt::Display for About<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(out, "queue `{name}`"),
            Self::Table(name) => write!(out, "table `{name}`"),
            Self::Function(name) => write!(out, "function `{name}`"),
            Self::Namespace(name) => write!(out, "namespace `{name}`"),
            Self::All => Ok(()),
        }
    }
}

/// The error code that the service answered with.
pub fn code<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Option<&str> {
    error
        .as_service_error()
        .and_then(ProvideErrorMetadata::code)
}

/// Whether a conditional write failed for its condition.
pub fn is_unmet<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    code(error) == Some("ConditionalCheckFailedException")
}

/// What the error code and HTTP status of an answer say about trying again. Throttling comes
/// first: SQS answers some of it with 403, the status of what is denied. The codes are those of
/// "Common errors" of both API references, of SQS's own errors, and of "Error handling with
/// DynamoDB" in its developer guide.
fn judge(code: &str, status: u16) -> ErrorKind {
    if is_throttle(code) || status == 429 {
        return ErrorKind::Transient;
    }
    match code {
        "QueueDoesNotExist"
        | "AWS.SimpleQueueService.NonExistentQueue"
        | "ResourceNotFoundException"
        | "TableNotFoundException" => ErrorKind::NotFound,
        "AccessDenied"
        | "AccessDeniedException"
        | "AuthorizationError"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "InvalidAccessKeyId"
        | "InvalidClientTokenId"
        | "InvalidSecurity"
        | "InvalidSignatureException"
        | "KmsAccessDenied"
        | "KMS.AccessDeniedException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "OptInRequired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => ErrorKind::AccessDenied,
        "InternalServerError"
        | "LimitExceededException"
        | "ReplicatedWriteConflictException"
        | "ResourceInUseException"
        | "TransactionConflictException"
        | "TransactionInProgressException" => ErrorKind::Transient,
        _ if status >= 500 => ErrorKind::Transient,
        _ if status == 401 || status == 403 => ErrorKind::AccessDenied,
        _ => ErrorKind::Invalid,
    }
}

/// Whether a code asks for a slower pace.
pub fn is_throttle(code: &str) -> bool {
    matches!(
        code,
        "KMS.ThrottlingException"
            | "KmsThrottled"
            | "OverLimit"
            | "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "RequestThrottled"
            | "SlowDown"
            | "Throttling"
            | "ThrottlingException"
            | "TooManyRequestsException"
    )
}

/// The service's own words if it spoke, else every link of the chain that says something new.
fn error_text<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: Error + ProvideErrorMetadata + 'static,
{
    let SdkError::ServiceError(answer) = error else {
        return words::chain(error);
    };
    let status = answer.raw().status().as_u16();
    let code = answer.err().code().map_or_else(
        || format!("HTTP status {status}"),
        |code| format!("{code} (HTTP {status})"),
    );
    words::one_line(&match answer.err().message() {
        Some(message) => format!("{code}: {message}"),
        None => code,
    })
}

#[cfg(test)]
mod tests;
