//! Receives of FIFO queues that name their attempt: repeated within five minutes, as after a lost
//! answer, they return the same messages with the same receipts. Remembers receipts, no messages;
//! reads no queue. `now` is an argument.

use super::service::lock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_local::queue::{QueueId, StoreTime};
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

/// How long an attempt may be asked for again (ReceiveMessage's page in the SQS API).
const USABLE: Duration = Duration::from_secs(300);
/// So many at most; then the oldest is forgotten.
const MOST: usize = 10_000;

/// What one attempt brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// When.
    at: BootInstant,
    /// With which receipts.
    pub receipts: Vec<Receipt>,
    /// The bytes of its messages.
    pub bytes: u64,
    /// Until when they are invisible.
    pub until: StoreTime,
}

/// An attempt's queue and name.
type AttemptKey = (QueueId, String);

/// The attempts of all queues.
#[derive(Default)]
pub(crate) struct Attempts {
    kept: Mutex<ReceiveAttempt>,
}

#[derive(Default)]
struct ReceiveAttempt {
    by_name: HashMap<AttemptKey, Attempt>,
    /// The oldest first; with those that were made anew since.
    order: VecDeque<(BootInstant, AttemptKey)>,
}

impl Attempts {
    /// What an attempt brought, if it may be asked for again.
    pub(crate) fn get(&self, queue: QueueId, id: &str, now: BootInstant) -> Option<Attempt> {
        let kept = lock(&self.kept);
        let attempt = kept.by_name.get(&(queue, id.to_owned()))?;
        (now.since(attempt.at) < USABLE).then(|| attempt.clone())
    }

    /// Forgets all of them.
    pub(crate) fn clear(&self) {
        *lock(&self.kept) = ReceiveAttempt::default();
    }

    /// Remembers what an attempt brought.
    pub(crate) fn keep(
        &self,
        queue: QueueId,
        id: &str,
        messages: &[Message],
        until: StoreTime,
        now: BootInstant,
    ) {
        let mut kept = lock(&self.kept);
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

    /// It is asked for again, so its messages are invisible until later.
    pub(crate) fn renew(&self, queue: QueueId, id: &str, until: StoreTime) {
        let mut kept = lock(&self.kept);
        if let Some(attempt) = kept.by_name.get_mut(&(queue, id.to_owned())) {
            attempt.until = until;
        }
    }
}

impl ReceiveAttempt {
    /// What is too old, and the oldest of what is too many.
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
        let kept = lock(&attempts.kept);
        assert_eq!((kept.by_name.len(), kept.order.len()), (2, 2));
    }
}
