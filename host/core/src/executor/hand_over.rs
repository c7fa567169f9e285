//! Hands the jobs of a worker on to settlement a few at a time, since each hand-over may wake a thread.

use crate::clock::BootInstant;
use crate::job::{Finished, Outbox, hand_on};
use std::time::Duration;

/// What is older is handed on before another attempt begins. That attempt pends within a few
/// milliseconds or ends: a guest that computes yields at every tick of the epoch.
const LONGEST_WAIT: Duration = Duration::from_millis(1);
/// So many are handed on before another attempt begins.
const MOST: usize = 8;

/// What a worker has finished and not yet handed on. What waits is handed on when this is dropped.
pub(super) struct HandOver<'a> {
    outbox: &'a Outbox,
    /// Each with its lane.
    waiting: Vec<(usize, Finished)>,
    /// When the first of them was kept from going on.
    since: Option<BootInstant>,
    /// Whether one of them is of a group in order.
    in_order: bool,
}

impl<'a> HandOver<'a> {
    /// Nothing waits.
    pub(super) fn new(outbox: &'a Outbox) -> Self {
        Self {
            outbox,
            waiting: Vec::new(),
            since: None,
            in_order: false,
        }
    }

    /// Takes a job that has ended. `ordered`: its queue keeps groups in order.
    pub(super) fn add(&mut self, lane: usize, finished: Finished, ordered: bool) {
        self.in_order |= ordered && finished.message.group.is_some();
        self.waiting.push((lane, finished));
    }

    /// All jobs of an attempt were added: hands on what must not wait. The next of a group may end
    /// elsewhere meanwhile, and is not to be settled before it.
    pub(super) fn after_an_attempt(&mut self) {
        if self.in_order {
            self.now();
        }
    }

    /// Another attempt begins: hands on what should not wait for it.
    pub(super) fn before_an_attempt(&mut self, now: BootInstant) {
        if self.waiting.is_empty() {
            return;
        }
        let since = *self.since.get_or_insert(now);
        if self.waiting.len() >= MOST || now >= since + LONGEST_WAIT {
            self.now();
        }
    }

    /// Hands on all that waits.
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

    fn finished(id: &str) -> Finished {
        job(id).finish(JobEnding::Verdict(Verdict::Done))
    }

    fn ids(inbox: &mut UnboundedReceiver<Finished>) -> Vec<String> {
        std::iter::from_fn(|| inbox.try_recv().ok())
            .map(|finished| finished.message.id)
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
        let awaited = Finished {
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
        let grouped = || {
            let mut finished = finished("grouped");
            finished.message.group = Some("g".into());
            finished
        };
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
