//! The error responses of SQS: their names in either protocol, their status codes, their texts.
//! Knows no queue.

use dispatcher_core::queue::{ErrorKind, ItemError, QueueError};

/// A call, or one entry of a batch, that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Which of SQS's errors it is.
    pub kind: FaultKind,
    /// One line for a person.
    pub message: String,
}

/// SQS's errors, as far as this server has reason for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each has the name that SQS documents")]
pub(crate) enum FaultKind {
    QueueDoesNotExist,
    QueueNameExists,
    EmptyBatchRequest,
    TooManyEntriesInBatchRequest,
    BatchEntryIdsNotDistinct,
    InvalidBatchEntryId,
    BatchRequestTooLong,
    ReceiptHandleIsInvalid,
    MessageNotInflight,
    InvalidMessageContents,
    InvalidAttributeName,
    InvalidAttributeValue,
    PurgeQueueInProgress,
    UnsupportedOperation,
    ResourceNotFoundException,
    InvalidParameterValue,
    MissingParameter,
    InvalidAction,
    Unreadable,
    AccessDenied,
    Unavailable,
    InternalError,
}

impl FaultKind {
    /// The JSON protocol's name, and the status.
    pub(crate) fn json(self) -> (String, u16) {
        let sqs = |name: &str| format!("com.amazonaws.sqs#{name}");
        let coral = |name: &str| format!("com.amazon.coral.service#{name}");
        match self {
            Self::PurgeQueueInProgress => (sqs("PurgeQueueInProgress"), 403),
            Self::InvalidParameterValue => (coral("InvalidParameterValueException"), 400),
            Self::MissingParameter => (coral("MissingRequiredParameterException"), 400),
            Self::InvalidAction => (coral("UnknownOperationException"), 400),
            Self::Unreadable => (coral("SerializationException"), 400),
            Self::AccessDenied => (coral("AccessDeniedException"), 403),
            Self::Unavailable => (coral("ServiceUnavailableException"), 503),
            Self::InternalError => (coral("InternalFailure"), 500),
            other => (sqs(&format!("{other:?}")), 400),
        }
    }

    /// The Query protocol's name, which the JSON protocol tells in a header for those who look for
    /// it, and which is in the failed entries of a batch.
    pub(crate) fn query(self) -> String {
        match self {
            Self::QueueDoesNotExist => "AWS.SimpleQueueService.NonExistentQueue".into(),
            Self::QueueNameExists => "QueueAlreadyExists".into(),
            Self::EmptyBatchRequest
            | Self::TooManyEntriesInBatchRequest
            | Self::BatchEntryIdsNotDistinct
            | Self::InvalidBatchEntryId
            | Self::BatchRequestTooLong
            | Self::MessageNotInflight
            | Self::PurgeQueueInProgress
            | Self::UnsupportedOperation => format!("AWS.SimpleQueueService.{self:?}"),
            Self::Unreadable => "MalformedInput".into(),
            Self::Unavailable => "ServiceUnavailable".into(),
            other => format!("{other:?}"),
        }
    }

    /// Whether the caller is to blame.
    pub(crate) fn is_sender(self) -> bool {
        !matches!(self, Self::Unavailable | Self::InternalError)
    }
}

impl Fault {
    /// Of this kind, in these words.
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// There is no such queue.
    pub(crate) fn no_queue() -> Self {
        Self::new(
            FaultKind::QueueDoesNotExist,
            "The specified queue does not exist.",
        )
    }

    /// A parameter that the call needs is not there.
    pub(crate) fn missing(parameter: &str) -> Self {
        Self::new(
            FaultKind::MissingParameter,
            format!("The request must contain the parameter {parameter}."),
        )
    }

    /// A parameter that says what it must not.
    pub(crate) fn value(value: impl std::fmt::Display, parameter: &str, reason: &str) -> Self {
        Self::new(
            FaultKind::InvalidParameterValue,
            format!("Value {value} for parameter {parameter} is invalid. Reason: {reason}"),
        )
    }

    /// A receipt that is none of this server's.
    pub(crate) fn no_receipt(receipt: &str) -> Self {
        Self::new(
            FaultKind::ReceiptHandleIsInvalid,
            format!("The input receipt handle \"{receipt}\" is not a valid receipt handle."),
        )
    }
}

impl From<QueueError> for Fault {
    fn from(error: QueueError) -> Self {
        let kind = match error.kind {
            // SDKs try these again by themselves.
            ErrorKind::Transient | ErrorKind::Unreachable => FaultKind::Unavailable,
            ErrorKind::NotFound | ErrorKind::AccessDenied | ErrorKind::Invalid => {
                FaultKind::InternalError
            }
        };
        Self::new(kind, error.message)
    }
}

impl From<ItemError> for Fault {
    fn from(error: ItemError) -> Self {
        let kind = match error {
            ItemError::Transient(_) => FaultKind::Unavailable,
            ItemError::Gone(_) | ItemError::Cancelled | ItemError::Refused(_) => {
                FaultKind::InternalError
            }
        };
        Self::new(kind, error.to_string())
    }
}
