//! Where one task is in its life, as one atomic byte. It must not know queues or futures.
//!
//! | value | means |
//! | --- | --- |
//! | `0` | idle: waits for a wake |
//! | `WOKEN` | queued: in exactly one queue |
//! | `RUNNING` | being polled |
//! | `RUNNING \| WOKEN` | being polled, and to be polled once more |
//! | `DONE` (`\| WOKEN`) | over: no wake has an effect |
//!
//! Every change is a read-modify-write with release and acquire, also the wake that changes
//! nothing: what a waker wrote before it woke must be visible to the poll that follows.

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

    /// Notes a wake; `true` when the caller must put the task into a queue.
    pub(super) fn wake(&self) -> bool {
        self.0.fetch_or(WOKEN, AcqRel) == 0
    }

    /// Queued to running; wakes noted from here on ask for another poll.
    pub(super) fn begin(&self) {
        let before = self.0.swap(RUNNING, AcqRel);
        debug_assert_eq!(before, WOKEN, "only a queued task is run");
    }

    /// Running to idle, or to queued when it was woken meanwhile: then `true`, and the caller must
    /// put the task into a queue.
    pub(super) fn suspend(&self) -> bool {
        self.0.fetch_and(!RUNNING, AcqRel) & WOKEN != 0
    }

    /// The end, from any state.
    pub(super) fn finish(&self) {
        self.0.swap(DONE, AcqRel);
    }
}
