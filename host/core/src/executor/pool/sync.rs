//! The synchronisation primitives of the pool: the standard library's and crossbeam's, or loom's
//! under the model checker. They must not depend on how the pool uses them.

use std::sync::PoisonError;

#[cfg(loom)]
pub(super) use crate::queue::{Injector, Steal, Stealer, Worker as Deque};
#[cfg(loom)]
pub(super) use loom::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle},
    thread_local,
};

#[cfg(not(loom))]
pub(super) use crossbeam_deque::{Injector, Steal, Stealer, Worker as Deque};
#[cfg(not(loom))]
pub(super) use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle},
    thread_local,
};

/// Locks, even if an earlier holder panicked: no holder in the pool runs foreign code that could
/// leave the guarded value half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs foreign code. Returns `None` if it panicked.
#[cfg(not(loom))]
pub(super) fn contain<T>(run: impl FnOnce() -> T) -> Option<T> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // The payload is foreign too, and may panic while it is dropped.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(second);
            }
            None
        }
    }
}

/// Runs foreign code. Under loom a panic is the checker's own verdict and must propagate.
#[cfg(loom)]
pub(super) fn contain<T>(run: impl FnOnce() -> T) -> Option<T> {
    Some(run())
}
