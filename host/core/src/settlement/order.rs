//! Reports settlements to the scheduler for groups whose order it keeps, and for groups that are
//! blocked until one of their messages is dead-lettered. Does not depend on any other stage.

use crate::clock;
use crate::clock::BootInstant;
use crate::job::Job;
use crate::message::Outcome;
use crate::scheduler::shared::SharedScheduler;
use std::sync::Arc;

/// The port that reports settlements to the scheduler.
pub struct OrderPort {
    scheduler: Arc<SharedScheduler<Job>>,
    lane: usize,
    /// Whether the queue keeps the order. Then groups wait only for messages that end without an
    /// attempt and for dead letters.
    by_queue: bool,
}

impl OrderPort {
    /// Creates the port of the queue `lane`. `by_queue` is whether the queue keeps the order of its
    /// groups.
    pub fn new(scheduler: Arc<SharedScheduler<Job>>, lane: usize, by_queue: bool) -> Self {
        Self {
            scheduler,
            lane,
            by_queue,
        }
    }

    /// Whether the order is kept here and not by the queue.
    pub(super) fn is_kept_here(&self) -> bool {
        !self.by_queue
    }

    /// Reports that the queue has taken this outcome. Unanswered calls may still hide the message
    /// until `unheard`.
    pub(super) fn settled(
        &self,
        id: &str,
        outcome: &Outcome,
        unheard: Option<BootInstant>,
        now: BootInstant,
    ) {
        if self.by_queue && *outcome == Outcome::Delete {
            return;
        }
        let due = match outcome {
            Outcome::Delete | Outcome::DeadLetter(_) => None,
            Outcome::Release(after) => Some(now + *after).max(unheard),
        };
        self.report(id, due);
    }

    /// Reports that the message is redelivered, at `due` at the latest.
    pub(super) fn comes_again(&self, id: &str, due: BootInstant) {
        self.report(id, Some(due));
    }

    fn report(&self, id: &str, due: Option<BootInstant>) {
        self.scheduler
            .lock()
            .settled(self.lane, id, due, clock::now());
        if due.is_none() || self.by_queue {
            // Messages that waited for it may start: the intake starts them, and after a stop the
            // drain does.
            self.scheduler.replan.notify_one();
            self.scheduler.retired.notify_one();
        }
    }
}
