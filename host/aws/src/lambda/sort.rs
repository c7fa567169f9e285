//! Classifies a failed Invoke: did the function run, and is a retry of any use? Pure: decides on
//! AWS's response; calls nothing.

use super::InvokeError;
use crate::words::one_line;
use std::time::Duration;

/// An answer that is not a success, as far as it says anything; what it does not say is empty.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ErrorAnswer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The error as AWS names it: `TooManyRequestsException`.
    pub code: &'a str,
    /// AWS's words.
    pub message: &'a str,
    /// Which limit was hit, of a throttle: `ConcurrentInvocationLimitExceeded`.
    pub reason: &'a str,
    /// When AWS wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// What is known about the function after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    DidNotRun,
    MayHaveRun,
    Refused,
    Permanent,
}
use FailureKind::{DidNotRun, MayHaveRun, Permanent, Refused};

/// Error codes whose meaning their HTTP status does not tell: Lambda answers much of what stands
/// between a request and the function's start with 502. From the descriptions of the errors in
/// Lambda's API reference. What passes and provably comes before the function runs is `DidNotRun`;
/// where that is not stated, `MayHaveRun`, which is never wrong.
const CODES: &[(&str, FailureKind)] = &[
    ("TooManyRequestsException", DidNotRun),
    ("ThrottlingException", DidNotRun),
    ("Throttling", DidNotRun),
    ("ThrottledException", DidNotRun),
    ("RequestThrottledException", DidNotRun),
    ("RequestLimitExceeded", DidNotRun),
    ("EC2ThrottledException", DidNotRun),
    ("ENINotReadyException", DidNotRun),
    ("ENILimitReachedException", DidNotRun),
    ("SubnetIPAddressLimitReachedException", DidNotRun),
    ("ResourceConflictException", DidNotRun),
    ("ResourceNotReadyException", DidNotRun),
    ("SnapStartNotReadyException", DidNotRun),
    ("CodeArtifactUserPendingException", DidNotRun),
    ("RequestTooLargeException", Refused),
    ("SerializedRequestEntityTooLargeException", Refused),
    ("ServiceException", MayHaveRun),
    ("EFSIOException", MayHaveRun),
    ("EFSMountConnectivityException", MayHaveRun),
    ("EFSMountTimeoutException", MayHaveRun),
    ("S3FilesMountConnectivityException", MayHaveRun),
    ("S3FilesMountTimeoutException", MayHaveRun),
    ("SnapStartException", MayHaveRun),
    ("SnapStartTimeoutException", MayHaveRun),
    ("SnapStartRegenerationFailureException", MayHaveRun),
    ("EC2UnexpectedException", MayHaveRun),
    ("ResourceNotFoundException", Permanent),
    ("InvalidParameterValueException", Permanent),
    ("InvalidRequestContentException", Refused),
    ("InvalidRuntimeException", Permanent),
    ("InvalidZipFileException", Permanent),
    ("InvalidSubnetIDException", Permanent),
    ("InvalidSecurityGroupIDException", Permanent),
    ("EC2AccessDeniedException", Permanent),
    ("KMSAccessDeniedException", Permanent),
    ("KMSDisabledException", Permanent),
    ("KMSInvalidStateException", Permanent),
    ("KMSNotFoundException", Permanent),
    ("RecursiveInvocationException", Refused),
    ("CodeArtifactUserDeletedException", Permanent),
    ("CodeArtifactUserFailedException", Permanent),
    ("EFSMountFailureException", Permanent),
    ("S3FilesMountFailureException", Permanent),
    ("AccessDeniedException", Permanent),
    ("ExpiredTokenException", Permanent),
    ("UnrecognizedClientException", Permanent),
];

/// What an answer means, in one line that names the function, the code and AWS's message.
pub(super) fn sort(function: &str, answer: &ErrorAnswer<'_>) -> InvokeError {
    let words = describe(function, answer);
    match kind(answer.status, answer.code) {
        DidNotRun => InvokeError::DidNotRun {
            reason: words,
            retry_after: answer.retry_after,
        },
        MayHaveRun => InvokeError::MayHaveRun(words),
        Refused => InvokeError::Refused(words),
        Permanent => InvokeError::Permanent(words),
    }
}

/// The code decides; an unknown one leaves it to the status.
fn kind(status: u16, code: &str) -> FailureKind {
    let known = CODES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(code));
    match (known, status) {
        (Some((_, kind)), _) => *kind,
        (None, 429) => DidNotRun,
        (None, 413) => Refused,
        // The service or something before it ran out of time: after it passed the request on?
        (None, 408) => MayHaveRun,
        (None, 400..=499) => Permanent,
        _ => MayHaveRun,
    }
}

fn describe(function: &str, answer: &ErrorAnswer<'_>) -> String {
    let ErrorAnswer {
        status,
        code,
        message,
        reason,
        ..
    } = answer;
    let mut words = match code.is_empty() {
        true => format!("Invoke of function `{function}`: HTTP {status}"),
        false => format!("Invoke of function `{function}`: {code} (HTTP {status})"),
    };
    // AWS repeats the reason in some messages.
    if !reason.is_empty() && !message.contains(reason) {
        words = format!("{words}: {reason}");
    }
    if !message.is_empty() {
        words = format!("{words}: {message}");
    }
    one_line(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that AWS's documentation gives: status, code, and what it has to mean.
    const ROWS: &[(u16, &str, FailureKind)] = &[
        (429, "TooManyRequestsException", DidNotRun),
        (502, "EC2ThrottledException", DidNotRun),
        (502, "ENINotReadyException", DidNotRun),
        (502, "ENILimitReachedException", DidNotRun),
        (502, "SubnetIPAddressLimitReachedException", DidNotRun),
        (409, "ResourceConflictException", DidNotRun),
        (502, "ResourceNotReadyException", DidNotRun),
        (409, "SnapStartNotReadyException", DidNotRun),
        (409, "CodeArtifactUserPendingException", DidNotRun),
        (400, "ThrottlingException", DidNotRun),
        (429, "", DidNotRun),
        (413, "RequestTooLargeException", Refused),
        (413, "", Refused),
        (500, "ServiceException", MayHaveRun),
        (410, "EFSIOException", MayHaveRun),
        (408, "EFSMountTimeoutException", MayHaveRun),
        (400, "SnapStartException", MayHaveRun),
        (408, "", MayHaveRun),
        (502, "", MayHaveRun),
        (503, "ServiceUnavailable", MayHaveRun),
        (504, "SomethingNew", MayHaveRun),
        (302, "", MayHaveRun),
        (404, "ResourceNotFoundException", Permanent),
        (400, "InvalidParameterValueException", Permanent),
        (400, "InvalidRequestContentException", Refused),
        (502, "InvalidRuntimeException", Permanent),
        (502, "InvalidZipFileException", Permanent),
        (502, "InvalidSubnetIDException", Permanent),
        (502, "InvalidSecurityGroupIDException", Permanent),
        (502, "EC2AccessDeniedException", Permanent),
        (502, "KMSAccessDeniedException", Permanent),
        (502, "KMSDisabledException", Permanent),
        (502, "KMSInvalidStateException", Permanent),
        (502, "KMSNotFoundException", Permanent),
        (400, "RecursiveInvocationException", Refused),
        (403, "AccessDeniedException", Permanent),
        (403, "ExpiredTokenException", Permanent),
        (403, "InvalidSignatureException", Permanent),
        (403, "", Permanent),
        (415, "UnsupportedMediaTypeException", Permanent),
        (404, "", Permanent),
    ];

    #[test]
    fn every_code_is_classified_as_aws_documents_it() {
        for (status, code, wanted) in ROWS {
            assert_eq!(kind(*status, code), *wanted, "{status} {code}");
        }
    }

    #[test]
    fn every_code_appears_once_in_the_table() {
        for (index, (code, _)) in CODES.iter().enumerate() {
            assert!(
                !CODES[..index].iter().any(|(other, _)| other == code),
                "{code}"
            );
        }
    }

    #[test]
    fn throttle_names_its_limit_and_retry_delay() {
        let answer = ErrorAnswer {
            status: 429,
            code: "TooManyRequestsException",
            message: "Rate\nExceeded.",
            reason: "ConcurrentInvocationLimitExceeded",
            retry_after: Some(Duration::from_secs(2)),
        };
        let wanted = InvokeError::DidNotRun {
            reason: "Invoke of function `orders:live`: TooManyRequestsException (HTTP 429): \
                     ConcurrentInvocationLimitExceeded: Rate Exceeded."
                .into(),
            retry_after: Some(Duration::from_secs(2)),
        };
        assert_eq!(sort("orders:live", &answer), wanted);
    }

    #[test]
    fn error_without_a_body_names_function_and_status() {
        let answer = ErrorAnswer {
            status: 502,
            ..ErrorAnswer::default()
        };
        let wanted = "Invoke of function `orders`: HTTP 502".to_owned();
        assert_eq!(sort("orders", &answer), InvokeError::MayHaveRun(wanted));
    }
}
