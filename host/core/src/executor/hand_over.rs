//! Hands the jobs of a worker on to settlement a few at a time, because each hand-over may wake a
//! thread.

use crate::clock::BootInstant;
use crate::job::{FinishedJob, Outbox, hand_on};
use std::time::Duration;

/// The age at which finished jobs are handed on before another attempt begins. Younger ones may
/// wait for that attempt: it ends or is pending within a few milliseconds, since a guest that
/// computes yields at every tick of the epoch.
const LONGEST_WAIT: Duration = Duration::from_millis(1);
/// The number of finished jobs that are handed on before another attempt begins.
const MOST: usize = 8;

/// The jobs that a worker has finished and not yet handed on. Dropping it hands them on.
pub(super) struct HandOver<'a> {
    outbox: &'a Outbox,
    /// The finished jobs, each with its lane.
    waiting: Vec<(usize, FinishedJob)>,
    /// When an attempt first began while they waited.
    since: Option<BootInstant>,
    /// Whether one of them belongs to an ordered group.
    in_order: bool,
}

impl<'a> HandOver<'a> {
    /// Creates an empty hand-over.
    pub(super) fn new(outbox: &'a Outbox) -> Self {
        Self {
            outbox,
            waiting: Vec::new(),
            since: None,
            in_order: false,
        }
    }

    /// Adds a job that has ended. `ordered`: its queue keeps groups in order.
    pub(super) fn add(&mut self, lane: usize, finished: FinishedJob, ordered: bool) {
        self.in_order |= ordered && finished.job.message.group.is_some();
        self.waiting.push((lane, finished));
    }

    /// Hands on the jobs if one belongs to an ordered group; called once all jobs of an attempt
    /// were added. The next job of the group may end on another worker meanwhile, and must not be
    /// settled first.
    pub(super) fn after_an_attempt(&mut self) {
        if self.in_order {
            self.now();
        }
    }

    /// Hands on the waiting jobs if they are too many or too old to wait for another attempt.
    pub(super) fn before_an_attempt(&mut self, now: BootInstant) {
        if self.waiting.is_empty() {
            return;
        }
        let since = *self.since.get_or_insert(now);
        if self.waiting.len() >= MOST || now >= since + LONGEST_WAIT {
            self.now();
        }
    }

    /// Hands on all waiting jobs.
    pub(super) fn now(&mut self) {
        self.since = None;
        self.in_order = false;
        for (lane, finished) in self.waiting.drain(..) {
            hand_on(self.outbox, lane, finished);
        }
    }
}

impl Drop for HandOver<'_> {
    fn drop(&mut self) {
        self.now();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test")]
mod tests {
    use super::*;
    use crate::clock;
    use crate::job::JobEnding;
    use crate::job::samples::job;
    use crate::message::Verdict;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    fn finished(id: &str) -> FinishedJob {
        job(id).finish(JobEnding::Verdict(Verdict::Done))
    }

    fn grouped() -> FinishedJob {
        let mut finished = finished("grouped");
        finished.job.message.group = Some("g".into());
        finished
    }

    fn ids(inbox: &mut UnboundedReceiver<FinishedJob>) -> Vec<String> {
        std::iter::from_fn(|| inbox.try_recv().ok())
            .map(|finished| finished.job.message.id)
            .collect()
    }

    #[test]
    fn finished_jobs_wait_for_a_few_or_a_millisecond_and_no_longer_than_the_worker() {
        let (sender, mut inbox) = unbounded_channel();
        let outbox = vec![sender];
        let mut hand_over = HandOver::new(&outbox);
        let now = clock::now();
        for count in 1..MOST {
            hand_over.add(0, finished(&count.to_string()), false);
            hand_over.before_an_attempt(now);
            assert!(inbox.is_empty(), "after {count}");
        }
        hand_over.add(0, finished("last"), false);
        hand_over.before_an_attempt(now);
        assert_eq!(ids(&mut inbox).len(), MOST);

        hand_over.add(0, finished("a"), false);
        hand_over.before_an_attempt(now);
        assert!(inbox.is_empty());
        hand_over.add(0, finished("b"), false);
        hand_over.before_an_attempt(now + LONGEST_WAIT);
        assert_eq!(ids(&mut inbox), ["a", "b"]);

        hand_over.add(0, finished("c"), false);
        hand_over.before_an_attempt(now + LONGEST_WAIT);
        assert!(inbox.is_empty());
        drop(hand_over);
        assert_eq!(ids(&mut inbox), ["c"]);
    }

    #[test]
    fn awaited_job_is_handed_on_with_what_is_before_it() {
        let (sender, mut inbox) = unbounded_channel();
        let outbox = vec![sender];
        let mut hand_over = HandOver::new(&outbox);
        hand_over.add(0, finished("a"), false);
        let awaited = FinishedJob {
            is_awaited: true,
            ..finished("b")
        };
        hand_over.add(0, awaited, false);
        hand_over.now();
        assert_eq!(ids(&mut inbox), ["a", "b"]);
    }

    #[test]
    fn jobs_of_a_group_in_order_do_not_wait_and_others_of_their_queue_do() {
        let (sender, mut inbox) = unbounded_channel();
        let outbox = vec![sender];
        let mut hand_over = HandOver::new(&outbox);
        hand_over.add(0, finished("alone"), true);
        hand_over.add(0, grouped(), false);
        hand_over.after_an_attempt();
        assert!(inbox.is_empty());
        hand_over.add(0, grouped(), true);
        hand_over.after_an_attempt();
        assert_eq!(ids(&mut inbox), ["alone", "grouped", "grouped"]);
        hand_over.add(0, finished("next"), true);
        hand_over.after_an_attempt();
        assert!(inbox.is_empty());
    }
}
