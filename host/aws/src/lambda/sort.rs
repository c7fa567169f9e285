//! Classifies a failed Invoke: whether the function ran, and whether a retry is useful. Pure:
//! decides by AWS's response and makes no calls.

use super::InvokeError;
use crate::words::one_line;
use std::time::Duration;

/// The content of an error response; missing parts are empty.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ErrorAnswer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The error code of AWS, for example `TooManyRequestsException`.
    pub code: &'a str,
    /// The message of AWS.
    pub message: &'a str,
    /// The limit that caused a throttle, for example `ConcurrentInvocationLimitExceeded`.
    pub reason: &'a str,
    /// The delay that AWS requests before a retry.
    pub retry_after: Option<Duration>,
}

/// The state of the function after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    DidNotRun,
    MayHaveRun,
    Refused,
    Permanent,
}
use FailureKind::{DidNotRun, MayHaveRun, Permanent, Refused};

/// The error codes whose HTTP status does not show their meaning: Lambda reports many errors that
/// occur before the function starts with 502. The source is the descriptions of the errors in
/// Lambda's API reference. A temporary error that provably occurs before the function runs is
/// `DidNotRun`. If the reference does not say so, the code is `MayHaveRun`, which is always safe.
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

/// Classifies an error response, with a line that contains the function, the code and AWS's
/// message.
pub(super) fn sort(function: &str, answer: &ErrorAnswer<'_>) -> InvokeError {
    let words = describe(function, answer);
    match kind(answer.status, answer.code) {
        // The clocks differ. The SDK has learned by how much and corrects the signature of the next
        // call.
        Permanent if is_about_time(answer) => InvokeError::DidNotRun {
            reason: words,
            retry_after: None,
        },
        DidNotRun => InvokeError::DidNotRun {
            reason: words,
            retry_after: answer.retry_after,
        },
        MayHaveRun => InvokeError::MayHaveRun(words),
        Refused => InvokeError::Refused(words),
        Permanent => InvokeError::Permanent(words),
    }
}

/// Whether a signature was refused because of the time in it: "Signature expired: 20261127T120000Z
/// is now earlier than …", "Signature not yet current: …".
fn is_about_time(answer: &ErrorAnswer<'_>) -> bool {
    let message = answer.message.to_ascii_lowercase();
    let hints = ["signature expired", "signature not yet current"];
    answer.code == "RequestTimeTooSkewed" || hints.iter().any(|hint| message.contains(hint))
}

/// Classifies by the code or, if it is unknown, by the HTTP status.
fn kind(status: u16, code: &str) -> FailureKind {
    let known = CODES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(code));
    match (known, status) {
        (Some((_, kind)), _) => *kind,
        (None, 429) => DidNotRun,
        (None, 413) => Refused,
        // The service or a server in between timed out, perhaps after it had forwarded the request.
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
    let mut words = if code.is_empty() {
        format!("Invoke of function `{function}`: HTTP {status}")
    } else {
        format!("Invoke of function `{function}`: {code} (HTTP {status})")
    };
    // Some messages already contain the reason.
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

    fn refused(message: &str) -> ErrorAnswer<'_> {
        ErrorAnswer {
            status: 403,
            code: "InvalidSignatureException",
            message,
            ..ErrorAnswer::default()
        }
    }

    #[test]
    fn signature_that_is_refused_for_its_time_did_not_run() {
        for message in [
            "Signature expired: 20261127T120000Z is now earlier than 20261127T121500Z",
            "Signature not yet current: 20261127T124000Z is still later than 20261127T122500Z",
        ] {
            let error = sort("orders", &refused(message));
            assert!(matches!(error, InvokeError::DidNotRun { .. }), "{error}");
        }
        let error = sort("orders", &refused("The signature does not match."));
        assert!(matches!(error, InvokeError::Permanent(_)), "{error}");
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
