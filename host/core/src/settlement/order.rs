//! Reports settlements to the scheduler for groups whose order it keeps, and for groups that are
//! blocked until one of their messages is dead-lettered. Knows no other stage.

use crate::clock;
use crate::clock::BootInstant;
use crate::job::Job;
use crate::message::Outcome;
use crate::scheduler::shared::SharedScheduler;
use std::sync::Arc;

/// Reports settlements to the scheduler.
pub struct OrderPort {
    scheduler: Arc<SharedScheduler<Job>>,
    lane: usize,
    /// Whether the queue keeps the order: then only dead letters are waited for.
    by_queue: bool,
}

impl OrderPort {
    /// Creates the port of the queue `lane`, which keeps the order of its groups or does not.
    pub fn new(scheduler: Arc<SharedScheduler<Job>>, lane: usize, by_queue: bool) -> Self {
        Self {
            scheduler,
            lane,
            by_queue,
        }
    }

    /// Whether the order is kept here, and not by the queue.
    pub(super) fn is_kept_here(&self) -> bool {
        !self.by_queue
    }

    /// The queue has taken this outcome. Calls of which nothing was heard may hide the message
    /// until `unheard` all the same.
    pub(super) fn settled(
        &self,
        id: &str,
        outcome: &Outcome,
        unheard: Option<BootInstant>,
        now: BootInstant,
    ) {
        if self.by_queue && !matches!(outcome, Outcome::DeadLetter(_)) {
            return;
        }
        let due = match outcome {
            Outcome::Delete | Outcome::DeadLetter(_) => None,
            Outcome::Release(after) => Some(now + *after).max(unheard),
        };
        self.report(id, due);
    }

    /// The message is redelivered, from `due` on at the latest.
    pub(super) fn comes_again(&self, id: &str, due: BootInstant) {
        self.report(id, Some(due));
    }

    fn report(&self, id: &str, due: Option<BootInstant>) {
        self.scheduler
            .lock()
            .settled(self.lane, id, due, clock::now());
        if due.is_none() || self.by_queue {
            // What waited for it may start; intake sees to that, and after a stop the drain.
            self.scheduler.replan.notify_one();
            self.scheduler.retired.notify_one();
        }
    }
}
