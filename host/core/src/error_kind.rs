//! Classifies failed calls to external systems by the reaction that they allow. Knows nothing of
//! the systems.

/// A call that failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The possible reaction.
    pub kind: ErrorKind,
    /// One line with the problem, the place and the error text of the external system.
    pub message: String,
}

/// The kind of a failed call: it tells the possible reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A temporary failure: retry with back-off.
    Transient,
    /// No answer: the call may have been carried out.
    Unreachable,
    /// The queue, table or file does not exist.
    NotFound,
    /// A lack of permission: credentials, policy or file permissions.
    AccessDenied,
    /// An invalid call, or one that is not supported.
    Invalid,
}

impl ErrorKind {
    /// The value of `error.type`, in spans and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Unreachable => "unreachable",
            Self::NotFound => "not-found",
            Self::AccessDenied => "access-denied",
            Self::Invalid => "invalid",
        }
    }
}
