//! One spawned future and its waker. It must not depend on how tasks are queued or which thread
//! polls them.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Wake, Waker},
};

use super::{
    live::Slot,
    shared::PoolShared,
    state::PoolState,
    sync::{Mutex, contain, lock},
    worker,
};

/// A future that the pool did not finish, as [`Pool::close`](super::Pool::close) returns it.
pub(crate) type ReturnedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The result of one poll.
pub(super) enum PollResult {
    /// The future waits for a wake.
    Suspended,
    /// The future was woken while it ran, and must be queued again.
    Yielded,
    /// The future is over and dropped; `panics` is the number of panics in its poll and its drop.
    Ended { panics: u64 },
}

pub(super) struct PoolTask {
    state: PoolState,
    /// Locked only by the thread that polls, so never contended; empty when the task is over.
    future: Mutex<Option<ReturnedFuture>>,
    /// Weak, because the task is in the pool's own queues.
    pub(super) home: Weak<PoolShared>,
    pub(super) slot: Slot,
}

impl PoolTask {
    /// Creates a task that the caller must queue.
    pub(super) fn new(future: ReturnedFuture, home: Weak<PoolShared>, slot: Slot) -> Arc<Self> {
        Arc::new(Self {
            state: PoolState::queued(),
            future: Mutex::new(Some(future)),
            home,
            slot,
        })
    }

    /// Polls the future once.
    pub(super) fn run(self: &Arc<Self>) -> PollResult {
        self.state.begin();
        let waker = Waker::from(Arc::clone(self));
        let mut slot = lock(&self.future);
        let polled = match slot.as_mut() {
            Some(future) => contain(|| future.as_mut().poll(&mut Context::from_waker(&waker))),
            None => Some(Poll::Ready(())),
        };
        if polled == Some(Poll::Pending) {
            // Unlock first: once the task is suspended, another worker may run it.
            drop(slot);
            return if self.state.suspend() {
                PollResult::Yielded
            } else {
                PollResult::Suspended
            };
        }
        drop(slot);
        let dropped = contain(|| drop(self.take()));
        PollResult::Ended {
            panics: u64::from(polled.is_none()) + u64::from(dropped.is_none()),
        }
    }

    /// Ends the task, and takes its future if that is left. No poll may be under way.
    pub(super) fn take(&self) -> Option<ReturnedFuture> {
        self.state.finish();
        lock(&self.future).take()
    }
}

impl Wake for PoolTask {
    fn wake(self: Arc<Self>) {
        if self.state.wake() {
            worker::enqueue(self);
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.wake() {
            worker::enqueue(Arc::clone(self));
        }
    }
}
