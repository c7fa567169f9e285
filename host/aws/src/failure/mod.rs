//! Classifies and formats errors of AWS calls, for every service that responds with an error code.
//! Makes no calls.

use super::{accounts, words};
use crate::http::UnsentError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::{DispatchFailure, SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use std::error::Error;
use std::fmt;

/// The message if the SDK has no region and so cannot make a call.
const NO_REGION: &str = "no AWS region is configured; wanted AWS_REGION or a region in the profile";

/// The name of a call, its object and its place, for messages to a person.
#[derive(Debug, Clone, Copy)]
pub struct CallName<'a> {
    /// The operation's name in AWS.
    pub step: &'static str,
    /// The object of the call.
    pub about: About<'a>,
    /// The endpoint or region.
    pub place: &'a str,
}

/// The object of a call, with its configured name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About<'a> {
    /// An SQS queue.
    Queue(&'a str),
    /// A DynamoDB table.
    Table(&'a str),
    /// A Lambda function, with its version or alias.
    Function(&'a str),
    /// A CloudWatch namespace.
    Namespace(&'a str),
    /// No single object, for example in a list call.
    All,
}

impl CallName<'_> {
    /// Converts the error of a whole call.
    pub fn failed<E>(&self, error: &SdkError<E, HttpResponse>) -> CallError
    where
        E: Error + ProvideErrorMetadata + 'static,
    {
        let words = error_text(error);
        let kind = match error {
            // The response cannot be read, so it is not from the service; the call may have taken
            // effect.
            SdkError::ServiceError(answer) if answer.raw().status().is_success() => {
                ErrorKind::Transient
            }
            SdkError::ServiceError(answer) => {
                let status = answer.raw().status().as_u16();
                match self.about {
                    // The path contains only the function's name.
                    About::Function(_) if status == 404 => ErrorKind::NotFound,
                    _ => judge(answer.err().code().unwrap_or_default(), status),
                }
            }
            SdkError::TimeoutError(_) => ErrorKind::Unreachable,
            SdkError::DispatchFailure(failure) if failure.is_io() || failure.is_timeout() => {
                ErrorKind::Unreachable
            }
            // For example, a connection is not permitted or the TLS handshake failed.
            SdkError::DispatchFailure(failure)
                if !failure.is_user() && had_no_connection(failure) =>
            {
                ErrorKind::Unreachable
            }
            // Only credentials, signing and the endpoint can fail between building and sending.
            SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_)
                if words::is_about_credentials(&words) =>
            {
                return self.without_credentials(error, &words);
            }
            _ if words::is_about_region(&words) => return self.refused(NO_REGION),
            SdkError::DispatchFailure(failure) if !failure.is_user() => ErrorKind::Unreachable,
            // The response was cut short or is not from the service; the call may have taken
            // effect.
            SdkError::ResponseError(_) => ErrorKind::Transient,
            _ => ErrorKind::Invalid,
        };
        CallError {
            kind,
            message: self.sentence(kind, &words),
        }
    }

    /// Returns an `Invalid` error for a call that was not made.
    pub fn refused(&self, words: &str) -> CallError {
        CallError {
            kind: ErrorKind::Invalid,
            message: self.sentence(ErrorKind::Invalid, words),
        }
    }

    /// Returns the error for a response that does not contain the requested data: it may belong to
    /// another call.
    pub fn unclear(&self, words: &str) -> CallError {
        CallError {
            kind: ErrorKind::Transient,
            message: self.sentence(ErrorKind::Transient, words),
        }
    }

    /// Returns whether the condition of a conditional write held.
    ///
    /// # Errors
    /// Returns any other error of the call.
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

    fn without_credentials(&self, error: &(dyn Error + 'static), words: &str) -> CallError {
        let words = words::without_credentials_prefix(words);
        let wanted = if accounts::refusal_of(error).is_some() {
            "a role or a profile that this process may use"
        } else {
            "a profile, a role or AWS_ACCESS_KEY_ID"
        };
        CallError {
            kind: ErrorKind::AccessDenied,
            message: format!("no usable AWS credentials for {self}: {words}; wanted {wanted}"),
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

/// Returns the error code in the service's response.
pub fn code<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Option<&str> {
    error
        .as_service_error()
        .and_then(ProvideErrorMetadata::code)
}

/// Whether an error proves that no byte of the call was sent: the call was not built or signed, or
/// there was no connection. Valid only for calls through `http::client`, whose errors contain the
/// state of the connection.
pub(crate) fn proves_unsent<E: Error + 'static>(error: &SdkError<E, HttpResponse>) -> bool {
    match error {
        SdkError::ConstructionFailure(_) => true,
        SdkError::DispatchFailure(failure) => {
            let is_unsigned = failure.is_other() && failure.as_other().is_none();
            let connector = failure.as_connector_error();
            let had_connection = connector.is_some_and(|it| it.connection_metadata().is_some());
            is_unsigned && !had_connection || had_no_connection(failure)
        }
        _ => false,
    }
}

/// Whether this program's HTTP client reports that there was no connection. Ignores the HTTP client
/// of a credentials provider, which is deeper in the chain.
fn had_no_connection(failure: &DispatchFailure) -> bool {
    let connector = failure.as_connector_error();
    let source = connector.and_then(Error::source);
    source.is_some_and(|source| source.is::<UnsentError>())
}

/// Whether a conditional write failed because of its condition.
pub fn is_unmet<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    code(error) == Some("ConditionalCheckFailedException")
}

/// Classifies the error code and HTTP status of a response. Throttling is checked first, because
/// SQS reports some of it with 403, the status of denied calls. The codes are those of "Common
/// errors" of both API references, of SQS's own errors, and of "Error handling with DynamoDB" in
/// its developer guide.
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

/// Whether the code means that the caller is throttled.
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

/// Returns the service's message if it responded, or else the texts of the error chain without
/// repetitions.
fn error_text<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: Error + ProvideErrorMetadata + 'static,
{
    let SdkError::ServiceError(answer) = error else {
        return words::chain(error);
    };
    let status = answer.raw().status().as_u16();
    if answer.raw().status().is_success() {
        let why = words::chain(answer.err());
        return format!("its answer cannot be read (HTTP {status}): {why}");
    }
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
