//! The error responses of SQS: their names in both protocols, their status codes and their texts.
//! Independent of queues.

use dispatcher_core::queue::{ErrorKind, ItemError, QueueError};

/// The refusal of a call, or of one entry of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The kind of error, as in SQS.
    pub kind: FaultKind,
    /// One line for a person.
    pub message: String,
}

/// The errors of SQS that this server uses.
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
    OverLimit,
    Unavailable,
    InternalError,
}

impl FaultKind {
    /// Returns the JSON protocol's name, and the status.
    pub(crate) fn json(self) -> (String, u16) {
        match self {
            Self::PurgeQueueInProgress => (sqs("PurgeQueueInProgress"), 403),
            Self::InvalidParameterValue => (coral("InvalidParameterValueException"), 400),
            Self::MissingParameter => (coral("MissingRequiredParameterException"), 400),
            Self::InvalidAction => (coral("UnknownOperationException"), 400),
            Self::Unreadable => (coral("SerializationException"), 400),
            Self::AccessDenied => (coral("AccessDeniedException"), 403),
            Self::OverLimit => (sqs("OverLimit"), 403),
            Self::Unavailable => (coral("ServiceUnavailableException"), 503),
            Self::InternalError => (coral("InternalFailure"), 500),
            Self::ResourceNotFoundException => (sqs("ResourceNotFoundException"), 404),
            other => (sqs(&format!("{other:?}")), 400),
        }
    }

    /// Returns the Query protocol's name. The JSON protocol sends it in a header for clients that
    /// look for it, and in the failed entries of a batch.
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

    /// Whether the error is the caller's fault.
    pub(crate) fn is_sender(self) -> bool {
        !matches!(self, Self::Unavailable | Self::InternalError)
    }
}

fn sqs(name: &str) -> String {
    format!("com.amazonaws.sqs#{name}")
}

fn coral(name: &str) -> String {
    format!("com.amazon.coral.service#{name}")
}

impl Fault {
    /// Creates a fault of this kind, with this text.
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Returns the fault for a queue that does not exist.
    pub(crate) fn no_queue() -> Self {
        Self::new(
            FaultKind::QueueDoesNotExist,
            "The specified queue does not exist.",
        )
    }

    /// Returns the fault for an operation that does not exist, or not at this URL.
    pub(crate) fn invalid_action(action: &str) -> Self {
        Self::new(
            FaultKind::InvalidAction,
            format!("The action {action} is not valid for this endpoint."),
        )
    }

    /// Returns the fault for a missing parameter.
    pub(crate) fn missing(parameter: &str) -> Self {
        Self::new(
            FaultKind::MissingParameter,
            format!("The request must contain the parameter {parameter}."),
        )
    }

    /// Returns the fault for a parameter with an invalid value.
    pub(crate) fn value(value: impl std::fmt::Display, parameter: &str, reason: &str) -> Self {
        Self::new(
            FaultKind::InvalidParameterValue,
            format!("Value {value} for parameter {parameter} is invalid. Reason: {reason}"),
        )
    }

    /// Returns the fault for an attribute that is unknown, or not of this kind of queue.
    pub(crate) fn unknown_attribute(name: &str) -> Self {
        Self::new(
            FaultKind::InvalidAttributeName,
            format!("Unknown Attribute {name}."),
        )
    }

    /// Returns the fault for an attribute of a queue that cannot have this value.
    pub(crate) fn attribute_value(name: &str) -> Self {
        Self::new(
            FaultKind::InvalidAttributeValue,
            format!("Invalid value for the parameter {name}."),
        )
    }

    /// Returns the Query protocol's text, which differs for a queue that does not exist.
    pub(crate) fn query_message(&self) -> &str {
        if self.kind == FaultKind::QueueDoesNotExist {
            "The specified queue does not exist for this wsdl version."
        } else {
            &self.message
        }
    }

    /// Returns the fault for a receipt that is not one of this server's.
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
            // SDKs retry these by themselves.
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
