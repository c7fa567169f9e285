//! Classifies failed calls on external systems by what can be done about them. Knows nothing of
//! what was called.

/// A call that failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// What may be done about it.
    pub kind: ErrorKind,
    /// One line: what, where, and the other side's own words.
    pub message: String,
}

/// What may be done about a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// May pass; retry with back-off.
    Transient,
    /// No answer. What was asked may have been done.
    Unreachable,
    /// What was called upon does not exist: no queue, no table, no file.
    NotFound,
    /// Not allowed: credentials, policy or permissions.
    AccessDenied,
    /// The call itself is wrong, or cannot be done.
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
