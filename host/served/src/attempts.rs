//! Receives of FIFO queues that name their attempt. Repeated within five minutes, for example after
//! a lost answer, they return the same messages with the same receipts. Attempts store receipts,
//! not messages, and read no queue. `now` is an argument.

use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_local::queue::{QueueId, StoreTime};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// The time for which an attempt may be repeated (ReceiveMessage's page in the SQS API).
const USABLE: Duration = Duration::from_secs(300);
/// The maximum number of attempts; beyond it, the oldest is forgotten.
const MOST: usize = 10_000;

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The time of the attempt.
    at: BootInstant,
    /// The receipts of its messages.
    pub receipts: Vec<Receipt>,
    /// The bytes of its messages.
    pub bytes: u64,
    /// The time until which its messages are invisible.
    pub until: StoreTime,
}

/// The queue and the name of an attempt.
type AttemptKey = (QueueId, String);

/// The attempts of all queues.
#[derive(Default)]
pub(crate) struct Attempts {
    kept: Mutex<ReceiveAttempt>,
}

#[derive(Default)]
struct ReceiveAttempt {
    by_name: HashMap<AttemptKey, Attempt>,
    /// The attempts, the oldest first, including those that were replaced since.
    order: VecDeque<(BootInstant, AttemptKey)>,
}

impl Attempts {
    /// Returns the result of an attempt, if it may be repeated.
    pub(crate) fn get(&self, queue: QueueId, id: &str, now: BootInstant) -> Option<Attempt> {
        let kept = self.kept.lock();
        let attempt = kept.by_name.get(&(queue, id.to_owned()))?;
        (now.since(attempt.at) < USABLE).then(|| attempt.clone())
    }

    /// Forgets all attempts.
    pub(crate) fn clear(&self) {
        *self.kept.lock() = ReceiveAttempt::default();
    }

    /// Remembers the result of an attempt.
    pub(crate) fn keep(
        &self,
        queue: QueueId,
        id: &str,
        messages: &[Message],
        until: StoreTime,
        now: BootInstant,
    ) {
        let mut kept = self.kept.lock();
        let key = (queue, id.to_owned());
        kept.order.push_back((now, key.clone()));
        let attempt = Attempt {
            at: now,
            receipts: messages.iter().map(|one| one.receipt.clone()).collect(),
            bytes: messages.iter().map(Message::held_bytes).sum(),
            until,
        };
        kept.by_name.insert(key, attempt);
        kept.forget(now);
    }

    /// Updates an attempt that was repeated: its messages are invisible until `until`.
    pub(crate) fn renew(&self, queue: QueueId, id: &str, until: StoreTime) {
        let mut kept = self.kept.lock();
        if let Some(attempt) = kept.by_name.get_mut(&(queue, id.to_owned())) {
            attempt.until = until;
        }
    }
}

impl ReceiveAttempt {
    /// Forgets the attempts that are too old, and the oldest ones beyond the limit.
    fn forget(&mut self, now: BootInstant) {
        while let Some((at, _)) = self.order.front() {
            if now.since(*at) < USABLE && self.order.len() <= MOST {
                break;
            }
            let Some((at, key)) = self.order.pop_front() else {
                break;
            };
            if self.by_name.get(&key).is_some_and(|one| one.at == at) {
                self.by_name.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(ms))
    }

    fn keep(attempts: &Attempts, id: &str, ms: u64) {
        let message = Message {
            receipt: Receipt(format!("{id}.1")),
            ..Message::default()
        };
        attempts.keep(1, id, &[message], StoreTime(0), at(ms));
    }

    #[test]
    fn oldest_receive_attempt_is_forgotten_beyond_the_limit() {
        let attempts = Attempts::default();
        for n in 0..=MOST as u64 {
            keep(&attempts, &n.to_string(), n);
        }
        let now = at(MOST as u64);
        assert_eq!(attempts.get(1, "0", now), None);
        for id in ["1".to_owned(), MOST.to_string()] {
            let found = attempts.get(1, &id, now).expect("it is young enough");
            assert_eq!(found.receipts, [Receipt(format!("{id}.1"))]);
        }
        assert_eq!(attempts.get(2, "1", now), None, "it is of another queue");
    }

    #[test]
    fn receive_attempt_is_forgotten_after_five_minutes_unless_renewed() {
        let attempts = Attempts::default();
        keep(&attempts, "old", 0);
        keep(&attempts, "anew", 0);
        keep(&attempts, "anew", 200_000);
        assert!(attempts.get(1, "old", at(299_999)).is_some());
        assert_eq!(attempts.get(1, "old", at(300_000)), None);
        keep(&attempts, "other", 300_000);
        assert!(attempts.get(1, "anew", at(300_000)).is_some());
        let kept = attempts.kept.lock();
        assert_eq!((kept.by_name.len(), kept.order.len()), (2, 2));
    }
}
