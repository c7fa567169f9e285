//! The waiting receives: one line per queue, served in order. Knows no SQL.

use super::deliver::DeliveryTerms;
use super::time::StoreTime;
use super::turn::QueueId;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::{Ask, QueueError, Received};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// One call to `receive` that has not been answered.
pub(super) struct WaitingReceive {
    /// The queue's name as messages carry it.
    pub name: Arc<str>,
    /// What was asked.
    pub ask: Ask,
    /// What may be delivered to the caller.
    pub terms: DeliveryTerms,
    /// When to answer that there is nothing.
    pub until: BootInstant,
    /// Where the answer goes. Closed when the caller has dropped the call.
    pub reply: oneshot::Sender<Result<Received, QueueError>>,
}

/// Those who wait for one queue.
#[derive(Default)]
struct ReceiveQueue {
    /// When something can be received next, as far as is known.
    due: Option<StoreTime>,
    /// When the first wait is over, or earlier.
    ends: Option<BootInstant>,
    waiting: VecDeque<WaitingReceive>,
}

/// Those who wait, by queue. A queue for which nobody waits is not here for long. What is to be done
/// next is found by its time, so that queues for which nothing happens cost nothing.
#[derive(Default)]
pub(super) struct WaitingReceives {
    by_queue: BTreeMap<QueueId, ReceiveQueue>,
    by_due: BTreeSet<(StoreTime, QueueId)>,
    by_end: BTreeSet<(BootInstant, QueueId)>,
}

impl WaitingReceives {
    /// Nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.by_queue.is_empty()
    }

    /// The queues for which somebody waits.
    pub(super) fn queues(&self) -> BTreeSet<QueueId> {
        self.by_queue.keys().copied().collect()
    }

    /// Whether somebody waits for this queue.
    pub(super) fn contains(&self, queue: QueueId) -> bool {
        self.by_queue.contains_key(&queue)
    }

    /// Changes a queue's line, and where it is found.
    fn change<T>(&mut self, queue: QueueId, change: impl FnOnce(&mut ReceiveQueue) -> T) -> T {
        let line = self.by_queue.entry(queue).or_default();
        let (due, ends) = (line.due, line.ends);
        let result = change(line);
        if line.due != due {
            due.map(|at| self.by_due.remove(&(at, queue)));
            self.by_due.extend(line.due.map(|at| (at, queue)));
        }
        if line.ends != ends {
            ends.map(|at| self.by_end.remove(&(at, queue)));
            self.by_end.extend(line.ends.map(|at| (at, queue)));
        }
        result
    }

    /// Forgets a queue for which nobody waits.
    fn forget_if_empty(&mut self, queue: QueueId) {
        let line = self.by_queue.get(&queue);
        if line.is_some_and(|line| line.waiting.is_empty()) {
            self.remove(queue);
        }
    }

    fn remove(&mut self, queue: QueueId) -> VecDeque<WaitingReceive> {
        let waiting = self.change(queue, std::mem::take).waiting;
        self.by_queue.remove(&queue);
        waiting
    }

    /// Puts a call at the end of its line.
    pub(super) fn push(&mut self, queue: QueueId, asked: WaitingReceive) {
        self.change(queue, |line| {
            line.ends = line.ends.into_iter().chain([asked.until]).min();
            line.waiting.push_back(asked);
        });
    }

    /// Puts a call back where `pop` took it.
    pub(super) fn put_back(&mut self, queue: QueueId, asked: WaitingReceive) {
        self.change(queue, |line| {
            line.ends = line.ends.into_iter().chain([asked.until]).min();
            line.waiting.push_front(asked);
        });
    }

    /// The first who waits for a queue and has not given up.
    pub(super) fn pop(&mut self, queue: QueueId) -> Option<WaitingReceive> {
        let line = self.by_queue.get_mut(&queue)?;
        while let Some(asked) = line.waiting.pop_front() {
            if !asked.reply.is_closed() {
                return Some(asked);
            }
        }
        None
    }

    /// Ends the waits for a queue: they are answered with what there is, perhaps nothing.
    pub(super) fn end_waits(&mut self, queue: QueueId) {
        if !self.contains(queue) {
            return;
        }
        self.change(queue, |line| {
            line.ends = Some(BootInstant::default());
            for asked in &mut line.waiting {
                asked.until = BootInstant::default();
            }
        });
    }

    /// Notes when something can be received next.
    pub(super) fn set_due(&mut self, queue: QueueId, due: Option<StoreTime>) {
        if self.contains(queue) {
            self.change(queue, |line| line.due = due);
            self.forget_if_empty(queue);
        }
    }

    /// The queues to look into: something has become due, or somebody's wait is over.
    pub(super) fn ripe(&self, now: BootInstant, time: StoreTime) -> BTreeSet<QueueId> {
        let due = self.by_due.range(..=(time, QueueId::MAX));
        let due = due.map(|(_, queue)| *queue);
        due.chain(self.ended(now)).collect()
    }

    /// The queues with a wait that is over.
    fn ended(&self, now: BootInstant) -> impl Iterator<Item = QueueId> {
        let ended = self.by_end.range(..=(now, QueueId::MAX));
        ended.map(|(_, queue)| *queue)
    }

    /// How long nothing will be `ripe`, if nothing else happens.
    pub(super) fn calm(&self, now: BootInstant, time: StoreTime) -> Option<Duration> {
        let due = self.by_due.first().map(|(due, _)| due.since(time));
        let ends = self.by_end.first().map(|(ends, _)| ends.since(now));
        due.into_iter().chain(ends).min()
    }

    /// Answers those whose wait is over. `time` is the store's now: what is due and was not delivered
    /// was too much for one transaction.
    pub(super) fn answer_expired(&mut self, now: BootInstant, time: StoreTime) {
        let ended: Vec<QueueId> = self.ended(now).collect();
        for queue in ended {
            self.change(queue, |line| line.answer_expired(now, time));
            self.forget_if_empty(queue);
        }
    }

    /// Forgets those who have given up.
    pub(super) fn forget_gone(&mut self) {
        let mut empty = Vec::new();
        for (queue, line) in &mut self.by_queue {
            line.waiting.retain(|asked| !asked.reply.is_closed());
            if line.waiting.is_empty() {
                empty.push(*queue);
            }
        }
        for queue in empty {
            self.remove(queue);
        }
    }

    /// Answers everybody in these lines with the error.
    pub(super) fn fail(&mut self, queues: &BTreeSet<QueueId>, error: &QueueError) {
        for queue in queues {
            for asked in self.remove(*queue) {
                // A caller who has gone needs no answer.
                let _ = asked.reply.send(Err(error.clone()));
            }
        }
    }
}

impl ReceiveQueue {
    fn answer_expired(&mut self, now: BootInstant, time: StoreTime) {
        let drained = self.due.is_none_or(|due| due > time);
        let (over, waiting): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|asked| asked.until <= now);
        for asked in over {
            let nothing = Received {
                drained,
                ..Received::default()
            };
            // A caller who has gone needs no answer.
            let _ = asked.reply.send(Ok(nothing));
        }
        self.ends = waiting.iter().map(|asked| asked.until).min();
        self.waiting = waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    type PendingAnswer = oneshot::Receiver<Result<Received, QueueError>>;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(ms))
    }

    fn wait(lines: &mut WaitingReceives, queue: QueueId, until: BootInstant) -> PendingAnswer {
        let (reply, answer) = oneshot::channel();
        let asked = WaitingReceive {
            name: "local:q".into(),
            ask: Ask::PLAIN,
            terms: DeliveryTerms::default(),
            until,
            reply,
        };
        lines.push(queue, asked);
        answer
    }

    #[test]
    fn only_queues_with_something_to_do_are_ripe() {
        let mut lines = WaitingReceives::default();
        let answers: Vec<PendingAnswer> = (0..1_000)
            .map(|queue| wait(&mut lines, queue, at(5_000 + queue as u64)))
            .collect();
        lines.set_due(7, Some(StoreTime(900)));
        let time = StoreTime(100);
        assert!(lines.ripe(at(10), time).is_empty());
        assert_eq!(lines.calm(at(4_000), StoreTime(900)), Some(Duration::ZERO));
        assert_eq!(lines.ripe(at(10), StoreTime(900)), BTreeSet::from([7]));
        lines.set_due(7, None);
        let second = Duration::from_secs(1);
        assert_eq!(lines.calm(at(4_000), StoreTime(900)), Some(second));
        assert_eq!(lines.ripe(at(5_001), time), BTreeSet::from([0, 1]));
        lines.end_waits(500);
        assert_eq!(lines.ripe(at(10), time), BTreeSet::from([500]));
        drop(answers);
    }

    #[test]
    fn a_queue_is_forgotten_with_its_last_wait() {
        let mut lines = WaitingReceives::default();
        let mut first = wait(&mut lines, 1, at(100));
        let mut second = wait(&mut lines, 1, at(200));
        lines.answer_expired(at(150), StoreTime(0));
        assert!(
            first
                .try_recv()
                .expect("answered")
                .expect("nothing")
                .drained
        );
        assert_eq!(second.try_recv().err(), Some(TryRecvError::Empty));
        lines.answer_expired(at(250), StoreTime(0));
        assert!(second.try_recv().is_ok() && lines.is_empty());
        assert_eq!(lines.calm(at(250), StoreTime(0)), None);
    }

    #[test]
    fn a_caller_who_has_gone_is_forgotten_and_served_nothing() {
        let mut lines = WaitingReceives::default();
        drop(wait(&mut lines, 1, at(100)));
        let stays = wait(&mut lines, 1, at(300));
        drop(wait(&mut lines, 2, at(100)));
        let taken = lines.pop(1).expect("one is there");
        assert_eq!(taken.until, at(300));
        lines.put_back(1, taken);
        lines.forget_gone();
        assert_eq!(lines.queues(), BTreeSet::from([1]));
        drop(stays);
        lines.forget_gone();
        assert!(lines.is_empty());
        assert_eq!(lines.calm(at(0), StoreTime(0)), None);
    }
}
