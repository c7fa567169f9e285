//! The state of one task, as one atomic byte. It must not depend on queues or futures.
//!
//! | value | means |
//! | --- | --- |
//! | `0` | idle: waits for a wake |
//! | `WOKEN` | queued: in exactly one queue |
//! | `RUNNING` | being polled |
//! | `RUNNING \| WOKEN` | being polled, and to be polled once more |
//! | `DONE` (`\| WOKEN`) | over: no wake has an effect |
//!
//! Every change is a read-modify-write with release and acquire ordering, even a wake that changes
//! nothing: the poll that follows must see everything that the waker wrote before it woke the task.

use std::sync::atomic::Ordering::AcqRel;

use super::sync::AtomicU8;

const WOKEN: u8 = 1;
const RUNNING: u8 = 2;
const DONE: u8 = 4;

pub(super) struct PoolState(AtomicU8);

impl PoolState {
    /// The state of a task that its creator is about to queue.
    pub(super) fn queued() -> Self {
        Self(AtomicU8::new(WOKEN))
    }

    /// Records a wake. Returns `true` if the caller must put the task into a queue.
    pub(super) fn wake(&self) -> bool {
        self.0.fetch_or(WOKEN, AcqRel) == 0
    }

    /// Changes queued to running. A wake after this requests another poll.
    pub(super) fn begin(&self) {
        let before = self.0.swap(RUNNING, AcqRel);
        debug_assert_eq!(before, WOKEN, "only a queued task is run");
    }

    /// Changes running to idle, or to queued if the task was woken meanwhile: then it returns
    /// `true`, and the caller must put the task into a queue.
    pub(super) fn suspend(&self) -> bool {
        self.0.fetch_and(!RUNNING, AcqRel) & WOKEN != 0
    }

    /// Ends the task, from any state.
    pub(super) fn finish(&self) {
        self.0.swap(DONE, AcqRel);
    }
}
