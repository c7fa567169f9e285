//! Remembers recent message ids: which messages were handled, and how often one was released
//! without an attempt. Pure; bounded.

use crate::message::Message;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The maximum number of ids of each kind.
const REMEMBERED: usize = 10_000;
/// The minimum number of places of removed ids that may stay in the order: clearing them away each
/// time would cost more than they take.
const GAPS: usize = 64;

/// The memory of one queue's settlement.
#[derive(Debug)]
pub struct Memory {
    /// Handled messages whose deletion the queue has not confirmed. They are separate from the
    /// deleted ones, which are many and would push them out.
    undeleted: Recent<()>,
    deleted: Recent<()>,
    /// The number of attempts minus the number of deliveries.
    beyond: Recent<i64>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            undeleted: Recent::new(REMEMBERED),
            deleted: Recent::new(REMEMBERED),
            beyond: Recent::new(REMEMBERED),
        }
    }
}

/// The memories of a process's queues. Versions of a route share the one of each queue, so that none
/// handles again what an earlier one has handled.
#[derive(Debug, Default)]
pub struct QueueMemories(Mutex<HashMap<String, Arc<Mutex<Memory>>>>);

impl QueueMemories {
    /// Returns the memory of a queue, which is empty at first.
    pub fn of(&self, queue: &str) -> Arc<Mutex<Memory>> {
        let mut memories = self.0.lock();
        Arc::clone(memories.entry(queue.to_owned()).or_default())
    }

    /// Forgets a queue from which nothing is received any more.
    pub fn remove(&self, queue: &str) {
        self.0.lock().remove(queue);
    }
}

impl Memory {
    /// Records that a handler completed the message.
    pub fn handled(&mut self, id: &str) {
        self.undeleted.insert(id, ());
        self.beyond.remove(id);
    }

    /// Records that the queue has deleted the message.
    pub fn deleted(&mut self, id: &str) {
        if self.undeleted.remove(id).is_some() {
            self.deleted.insert(id, ());
        }
    }

    /// Records that a delivery of the message ended after this many attempts: none, although it
    /// raised the receive count, or several.
    pub fn given_back(&mut self, id: &str, tries: u32) {
        let more = i64::from(tries) - 1;
        if more != 0 {
            let beyond = self.beyond.get(id).copied().unwrap_or_default();
            self.beyond.insert(id, beyond + more);
        }
    }

    /// Whether a handler completed the message.
    pub fn is_done(&self, id: &str) -> bool {
        self.undeleted.get(id).is_some() || self.deleted.get(id).is_some()
    }

    /// Returns the number of attempts, counting the first of this delivery. The attempts in other
    /// processes are not known here: each of their deliveries counts as one.
    pub fn attempts(&self, message: &Message) -> u32 {
        let beyond = self.beyond.get(&message.id).copied().unwrap_or_default();
        let attempts = i64::from(message.receive_count) + beyond;
        u32::try_from(attempts.max(1)).unwrap_or(u32::MAX)
    }
}

/// A map that forgets the oldest entries.
#[derive(Debug)]
struct Recent<T> {
    entries: HashMap<String, T>,
    order: VecDeque<String>,
    capacity: usize,
}

impl<T> Recent<T> {
    fn new(capacity: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            capacity,
        }
    }

    fn insert(&mut self, id: &str, value: T) {
        if self.entries.insert(id.to_owned(), value).is_none() {
            self.order.push_back(id.to_owned());
        }
        while self.entries.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        // Removed ids leave their places in the order.
        if self.order.len() > self.entries.len() + self.entries.len().max(GAPS) {
            self.order.retain(|id| self.entries.contains_key(id));
        }
    }

    fn get(&self, id: &str) -> Option<&T> {
        self.entries.get(id)
    }

    fn remove(&mut self, id: &str) -> Option<T> {
        self.entries.remove(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::samples;

    #[test]
    fn removed_entries_do_not_occupy_memory_for_long() {
        let mut recent = Recent::new(10_000);
        for number in 0..10_000 {
            recent.insert(&number.to_string(), ());
            recent.remove(&number.to_string());
        }
        assert!(recent.order.len() <= GAPS + 1);
    }

    #[test]
    fn oldest_entry_is_forgotten_first() {
        let mut recent = Recent::new(2);
        for id in ["a", "b", "a", "c"] {
            recent.insert(id, ());
        }
        assert!(recent.get("a").is_none());
        assert!(recent.get("b").is_some() && recent.get("c").is_some());
    }

    #[test]
    fn undeleted_entries_are_not_evicted_by_deleted_ones() {
        let mut memory = Memory::default();
        memory.handled("stubborn");
        for n in 0..3 * REMEMBERED {
            memory.handled(&n.to_string());
            memory.deleted(&n.to_string());
        }
        assert!(memory.is_done("stubborn"));
        assert!(!memory.is_done("0") && memory.is_done(&(3 * REMEMBERED - 1).to_string()));
    }

    #[test]
    fn delivery_without_an_attempt_is_not_counted() {
        let mut memory = Memory::default();
        let mut message = samples::message("behind a failing head");
        for count in 1..=20 {
            message.receive_count = count;
            assert_eq!(memory.attempts(&message), 1);
            memory.given_back(&message.id, 0);
        }
    }

    #[test]
    fn attempts_within_one_delivery_are_counted() {
        let mut memory = Memory::default();
        let mut message = samples::message("before others of its group");
        memory.given_back(&message.id, 3);
        message.receive_count = 2;
        assert_eq!(memory.attempts(&message), 4);
        memory.given_back(&message.id, 1);
        memory.given_back(&message.id, 0);
        message.receive_count = 4;
        assert_eq!(memory.attempts(&message), 5);
    }
}
