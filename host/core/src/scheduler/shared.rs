//! The scheduler of a route as its stages share it: one lock, and the notifications of a change.

use super::Scheduler;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A shared scheduler.
#[derive(Debug)]
pub struct SharedScheduler<J> {
    scheduler: Mutex<Scheduler<J>>,
    /// Something happened that may let `plan` say more.
    pub replan: Notify,
    /// A worker found nothing more to do, after an attempt or as the last.
    pub retired: Notify,
}

impl<J> SharedScheduler<J> {
    /// Shares `scheduler`.
    pub fn new(scheduler: Scheduler<J>) -> Self {
        Self {
            scheduler: Mutex::new(scheduler),
            replan: Notify::new(),
            retired: Notify::new(),
        }
    }

    /// The scheduler, for a few calls that do not wait.
    pub fn lock(&self) -> MutexGuard<'_, Scheduler<J>> {
        // Its changes are complete or not begun; a panic elsewhere does not spoil it.
        self.scheduler
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
