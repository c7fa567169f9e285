//! Limits the host memory that an instance uses by its pending calls or stored values. Knows
//! neither guests nor what is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one invocation under way costs us beside its payload, in bytes, generously.
const INVOCATION: usize = 64 << 10;
/// Pending invocations of an instance may use this many times its maximum memory of the host's.
const HELD: usize = 4;

/// The host memory that an instance may use by pending calls: invocations, messages, requests.
#[derive(Clone)]
pub(super) struct InvocationLimit {
    held: Arc<AtomicUsize>,
    most: usize,
}

impl InvocationLimit {
    /// The limit of an instance with this much memory.
    pub(super) fn new(max_memory: usize) -> Self {
        Self {
            held: Arc::default(),
            most: max_memory.saturating_mul(HELD),
        }
    }

    /// Leaves no room, until it is opened.
    pub(super) fn shut(&self) {
        self.held.fetch_add(self.most, Ordering::Relaxed);
    }

    /// What is running since before it was shut still counts.
    pub(super) fn open(&self) {
        self.held.fetch_sub(self.most, Ordering::Relaxed);
    }

    /// Takes budget for one more invocation of this many bytes. A guest may have passed the same
    /// bytes to many, so its own memory does not limit the host's.
    pub(super) fn hold(&self, bytes: usize) -> Result<InvocationPermit, Full> {
        let bytes = self.take(bytes.saturating_add(INVOCATION))?;
        Ok(InvocationPermit {
            limit: self.clone(),
            bytes,
        })
    }

    fn take(&self, bytes: usize) -> Result<usize, Full> {
        let sum = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.most);
        let taken = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        taken.map(|_| bytes).map_err(|_| Full)
    }
}

/// What one invocation holds of it; released when dropped.
pub(super) struct InvocationPermit {
    limit: InvocationLimit,
    bytes: usize,
}

impl InvocationPermit {
    /// Takes budget for so many more bytes.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        let more = self.limit.take(bytes)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for InvocationPermit {
    fn drop(&mut self) {
        self.limit.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// There is no room for another invocation.
pub(super) struct Full;
