//! The waiting receives: one line per queue, served in order. Contains no SQL.

use super::deliver::DeliveryTerms;
use super::sharing::SharingSlot;
use super::time::StoreTime;
use super::turn::QueueId;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::sharing::SharingRules;
use dispatcher_core::queue::{Ask, QueueError, ReceivedMessages};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A call to `receive` that has not been answered.
pub(super) struct WaitingReceive {
    /// The queue's name as messages have it.
    pub name: Arc<str>,
    /// The parameters of the call.
    pub ask: Ask,
    /// The terms of deliveries to the caller.
    pub terms: DeliveryTerms,
    /// The time at which to answer without messages.
    pub until: BootInstant,
    /// The channel for the answer. It is closed once the caller has dropped the call.
    pub reply: oneshot::Sender<Result<ReceivedMessages, QueueError>>,
}

/// The receives that wait for one queue.
#[derive(Default)]
struct ReceiveQueue {
    /// The time at which a message can be received next, as far as is known.
    due: Option<StoreTime>,
    /// The end of the first wait, or an earlier time.
    ends: Option<BootInstant>,
    waiting: VecDeque<WaitingReceive>,
}

/// The waiting receives, by queue. A queue without waiting receives is soon removed. The due times
/// and the ends of waits are sorted, so that idle queues cost nothing.
#[derive(Default)]
pub(super) struct WaitingReceives {
    by_queue: BTreeMap<QueueId, ReceiveQueue>,
    by_due: BTreeSet<(StoreTime, QueueId)>,
    by_end: BTreeSet<(BootInstant, QueueId)>,
}

impl WaitingReceives {
    /// Whether no receive waits.
    pub(super) fn is_empty(&self) -> bool {
        self.by_queue.is_empty()
    }

    /// Returns the queues for which receives wait.
    pub(super) fn queues(&self) -> BTreeSet<QueueId> {
        self.by_queue.keys().copied().collect()
    }

    /// Whether a receive waits for this queue.
    pub(super) fn contains(&self, queue: QueueId) -> bool {
        self.by_queue.contains_key(&queue)
    }

    /// Changes a queue's line and keeps the sorted times up to date.
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

    /// Removes a queue for which no receive waits.
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

    /// Puts a call back at the front of its line, where `pop` took it.
    pub(super) fn put_back(&mut self, queue: QueueId, asked: WaitingReceive) {
        self.change(queue, |line| {
            line.ends = line.ends.into_iter().chain([asked.until]).min();
            line.waiting.push_front(asked);
        });
    }

    /// Takes the first call for a queue whose caller has not given up, and whose rules are not
    /// among these.
    pub(super) fn pop(
        &mut self,
        queue: QueueId,
        passed_over: &[Option<Arc<SharingRules>>],
    ) -> Option<WaitingReceive> {
        let line = self.by_queue.get_mut(&queue)?;
        while line.waiting.front()?.reply.is_closed() {
            line.waiting.pop_front();
        }
        let at = line.waiting.iter().position(|asked| {
            let sharing = asked.terms.sharing();
            let mut others = passed_over.iter();
            let is_passed = others.any(|other| is_same(other.as_ref(), sharing.as_ref()));
            !is_passed && !asked.reply.is_closed()
        })?;
        line.waiting.remove(at)
    }

    /// Returns the different rules of the calls that wait for a queue; `None` for a call without
    /// rules.
    pub(super) fn rules(&self, queue: QueueId) -> Vec<Option<&Arc<SharingSlot>>> {
        let mut found: Vec<Option<&Arc<SharingSlot>>> = Vec::new();
        let lines = self.by_queue.get(&queue);
        for asked in lines.iter().flat_map(|line| &line.waiting) {
            let slot = asked.terms.sharing.as_ref();
            if !found.iter().any(|known| is_same(*known, slot)) {
                found.push(slot);
            }
        }
        found
    }

    /// Ends the waits for a queue: the calls are answered with the available messages, if any.
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

    /// Sets the time at which a message can be received next.
    pub(super) fn set_due(&mut self, queue: QueueId, due: Option<StoreTime>) {
        if self.contains(queue) {
            self.change(queue, |line| line.due = due);
            self.forget_if_empty(queue);
        }
    }

    /// Returns the queues to serve: a message has become due, or a wait is over.
    pub(super) fn ripe(&self, now: BootInstant, time: StoreTime) -> BTreeSet<QueueId> {
        let due = self
            .by_due
            .range(..=(time, QueueId::MAX))
            .map(|(_, queue)| *queue);
        due.chain(self.ended(now)).collect()
    }

    /// Returns the queues with a wait that is over.
    fn ended(&self, now: BootInstant) -> impl Iterator<Item = QueueId> {
        let ended = self.by_end.range(..=(now, QueueId::MAX));
        ended.map(|(_, queue)| *queue)
    }

    /// Returns how long no queue will be `ripe` if nothing else happens.
    pub(super) fn calm(&self, now: BootInstant, time: StoreTime) -> Option<Duration> {
        let due = self.by_due.first().map(|(due, _)| due.since(time));
        let ends = self.by_end.first().map(|(ends, _)| ends.since(now));
        due.into_iter().chain(ends).min()
    }

    /// Answers the calls whose wait is over. `time` is the store's now. A message that is due and
    /// was not delivered did not fit into one transaction, so its queue is not reported as drained.
    pub(super) fn answer_expired(&mut self, now: BootInstant, time: StoreTime) {
        let ended: Vec<QueueId> = self.ended(now).collect();
        for queue in ended {
            self.change(queue, |line| line.answer_expired(now, time));
            self.forget_if_empty(queue);
        }
    }

    /// Removes the calls whose callers have given up.
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

    /// Answers all calls in these lines with the error.
    pub(super) fn fail(&mut self, queues: &BTreeSet<QueueId>, error: &QueueError) {
        for queue in queues {
            for asked in self.remove(*queue) {
                // A caller that is gone needs no answer.
                let _ = asked.reply.send(Err(error.clone()));
            }
        }
    }
}

/// Whether two are the same value, or both missing.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

impl ReceiveQueue {
    fn answer_expired(&mut self, now: BootInstant, time: StoreTime) {
        let drained = self.due.is_none_or(|due| due > time);
        let (over, waiting): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|asked| asked.until <= now);
        for asked in over {
            let nothing = ReceivedMessages {
                drained,
                ..ReceivedMessages::default()
            };
            // A caller that is gone needs no answer.
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

    type PendingAnswer = oneshot::Receiver<Result<ReceivedMessages, QueueError>>;

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
        let taken = lines.pop(1, &[]).expect("one is there");
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
