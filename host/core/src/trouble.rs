//! What may be done about a failed call on something outside the program. Knows nothing of what was
//! called.

/// A call that failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    /// What may be done about it.
    pub kind: Trouble,
    /// One line: what, where, and the other side's own words.
    pub message: String,
}

/// What may be done about a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// May pass; try again with back-off.
    Passing,
    /// No answer. What was asked may have been done.
    Unreachable,
    /// What was called upon does not exist: no queue, no table, no file.
    Missing,
    /// Not allowed: credentials, policy or permissions.
    Denied,
    /// The call itself is wrong, or cannot be done.
    Refused,
}
