//! Limits the host memory that an instance uses by its pending calls or stored values. Does not
//! depend on guests or on what is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The host memory of a pending invocation in addition to its payload, in bytes, estimated
/// generously.
const INVOCATION: usize = 64 << 10;
/// The multiple of an instance's maximum memory that its pending invocations may use of the host's.
const HELD: usize = 4;

/// The host memory that an instance may use by pending calls: invocations, messages, requests.
#[derive(Clone)]
pub(super) struct InvocationLimit {
    held: Arc<AtomicUsize>,
    most: usize,
}

impl InvocationLimit {
    /// Creates the limit of an instance with this much memory.
    pub(super) fn new(max_memory: usize) -> Self {
        Self {
            held: Arc::default(),
            most: max_memory.saturating_mul(HELD),
        }
    }

    /// Takes away all budget until it is opened.
    pub(super) fn shut(&self) {
        self.held.fetch_add(self.most, Ordering::Relaxed);
    }

    /// Returns the budget. Calls that were pending before it was shut still count.
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
        let taken = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held: usize| {
                held.checked_add(bytes).filter(|sum| *sum <= self.most)
            });
        taken.map(|_| bytes).map_err(|_| Full)
    }
}

/// The budget of one invocation, released when dropped.
pub(super) struct InvocationPermit {
    limit: InvocationLimit,
    bytes: usize,
}

impl InvocationPermit {
    /// Takes budget for this many more bytes.
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

/// The error that there is no budget for another invocation.
pub(super) struct Full;
