//! Decides when an instance that has answered is reused.

use std::time::Duration;

/// The limits within which an instance that has answered may be given another attempt. An instance
/// that trapped, ran out of time or was cancelled is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    /// The maximum number of attempts.
    pub count: u64,
    /// The maximum time since its first attempt ended.
    pub age: Duration,
    /// The maximum memory that it may hold, in bytes.
    pub memory: usize,
}
