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
    waiting: VecDeque<WaitingReceive>,
}

/// Those who wait, by queue. A queue for which nobody waits is not here.
#[derive(Default)]
pub(super) struct WaitingReceives {
    by_queue: BTreeMap<QueueId, ReceiveQueue>,
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

    /// Puts a call at the end of its line.
    pub(super) fn push(&mut self, queue: QueueId, asked: WaitingReceive) {
        let line = self.by_queue.entry(queue).or_default();
        line.waiting.push_back(asked);
    }

    /// Puts a call back where `pop` took it.
    pub(super) fn put_back(&mut self, queue: QueueId, asked: WaitingReceive) {
        let line = self.by_queue.entry(queue).or_default();
        line.waiting.push_front(asked);
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
        if let Some(line) = self.by_queue.get_mut(&queue) {
            for asked in &mut line.waiting {
                asked.until = BootInstant::default();
            }
        }
    }

    /// Notes when something can be received next.
    pub(super) fn set_due(&mut self, queue: QueueId, due: Option<StoreTime>) {
        if let Some(line) = self.by_queue.get_mut(&queue) {
            line.due = due;
        }
    }

    /// The queues to look into: something has become due, or somebody's wait is over.
    pub(super) fn ripe(&self, now: BootInstant, time: StoreTime) -> BTreeSet<QueueId> {
        self.by_queue
            .iter()
            .filter(|(_, line)| {
                line.due.is_some_and(|due| due <= time)
                    || line.waiting.iter().any(|asked| asked.until <= now)
            })
            .map(|(queue, _)| *queue)
            .collect()
    }

    /// How long nothing will be `ripe`, if nothing else happens.
    pub(super) fn calm(&self, now: BootInstant, time: StoreTime) -> Option<Duration> {
        let waits = self.by_queue.values().flat_map(|line| {
            let due = line.due.map(|due| due.since(time));
            due.into_iter()
                .chain(line.waiting.iter().map(|asked| asked.until.since(now)))
        });
        waits.min()
    }

    /// Answers those whose wait is over, forgets those who have given up. `time` is the store's now:
    /// what is due and was not delivered was too much for one transaction.
    pub(super) fn answer_expired(&mut self, now: BootInstant, time: StoreTime) {
        self.by_queue.retain(|_, line| {
            let drained = line.due.is_none_or(|due| due > time);
            let waiting = std::mem::take(&mut line.waiting);
            for asked in waiting {
                if asked.until <= now {
                    let nothing = Received {
                        drained,
                        ..Received::default()
                    };
                    // A caller who has gone needs no answer.
                    let _ = asked.reply.send(Ok(nothing));
                } else if !asked.reply.is_closed() {
                    line.waiting.push_back(asked);
                }
            }
            !line.waiting.is_empty()
        });
    }

    /// Answers everybody in these lines with the error.
    pub(super) fn fail(&mut self, queues: &BTreeSet<QueueId>, error: &QueueError) {
        for queue in queues {
            let line = self.by_queue.remove(queue).unwrap_or_default();
            for asked in line.waiting {
                // A caller who has gone needs no answer.
                let _ = asked.reply.send(Err(error.clone()));
            }
        }
    }
}
