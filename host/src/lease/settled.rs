//! The ids of messages that were handled here, for a while: one that comes back because its
//! deletion failed is deleted without running again. Pure; bounded.

use std::collections::{HashSet, VecDeque};

/// A bounded memory of ids, the oldest forgotten first.
#[derive(Debug)]
pub struct Settled {
    known: HashSet<String>,
    order: VecDeque<String>,
    capacity: usize,
}

impl Settled {
    /// Remembers at most so many ids.
    pub fn new(capacity: usize) -> Self {
        Self {
            known: HashSet::new(),
            order: VecDeque::new(),
            capacity,
        }
    }

    /// Remembers an id.
    pub fn insert(&mut self, id: &str) {
        if !self.known.insert(id.to_owned()) {
            return;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether the id is remembered.
    pub fn contains(&self, id: &str) -> bool {
        self.known.contains(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_the_oldest() {
        let mut settled = Settled::new(2);
        for id in ["a", "b", "a", "c"] {
            settled.insert(id);
        }
        assert!(!settled.contains("a"));
        assert!(settled.contains("b") && settled.contains("c"));
    }
}
