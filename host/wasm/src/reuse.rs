//! Decides when an instance that has answered is reused.

use std::time::Duration;

/// When an instance that has answered may be given another attempt. One that trapped, ran out of
/// time or was cancelled never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    /// Maximum number of attempts.
    pub count: u64,
    /// Only while less than this has passed since its first attempt ended.
    pub age: Duration,
    /// Maximum bytes of memory that it may hold.
    pub memory: usize,
}
