//! The scheduler of a route, shared by its stages: one lock, and the notifications of changes.

use super::Scheduler;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// A shared scheduler.
#[derive(Debug)]
pub struct SharedScheduler<J> {
    scheduler: Mutex<Scheduler<J>>,
    /// Notified when `plan` may return more polls.
    pub replan: Notify,
    /// Notified when a worker found nothing more to do, after an attempt or as the last one.
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

    /// Locks the scheduler for a few calls that do not wait.
    pub fn lock(&self) -> MutexGuard<'_, Scheduler<J>> {
        // Changes of the scheduler are complete or not begun, so a panic elsewhere leaves it
        // consistent.
        self.scheduler.lock()
    }
}
