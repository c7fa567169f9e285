//! Estimates how many groups an ordered queue delivers at present. While messages of a group are in
//! flight, the queue delivers no more of that group, so more concurrent receives than groups would
//! share the messages of one group. Pure.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};

/// The groups of recent answers. Remembers as many answers, and distinguishes as many groups, as
/// there may be concurrent receives of one queue.
#[derive(Debug)]
pub(super) struct Variety {
    most: usize,
    /// The groups of the last answers by their hashes, at most `most` per answer; `None` if there
    /// were more, or messages that are in no group.
    answers: VecDeque<Option<HashSet<u64>>>,
    groups: usize,
}

impl Variety {
    /// Creates a memory that distinguishes up to `most` groups.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            answers: VecDeque::new(),
            groups: most,
        }
    }

    /// Records the groups of the messages that an answer brought.
    pub(super) fn note<'a>(&mut self, groups: impl IntoIterator<Item = Option<&'a str>>) {
        let mut found = Some(HashSet::new());
        for group in groups {
            found = match (found, group) {
                (Some(mut found), Some(group)) if found.len() < self.most => {
                    let mut hasher = DefaultHasher::new();
                    group.hash(&mut hasher);
                    found.insert(hasher.finish());
                    Some(found)
                }
                _ => None,
            };
        }
        if found.as_ref().is_some_and(HashSet::is_empty) {
            return; // no message, so no information
        }
        if self.answers.len() == self.most {
            self.answers.pop_front();
        }
        self.answers.push_back(found);
        self.groups = self.count();
    }

    /// Returns how many groups the last answers had messages of: at least 1, at most as many as
    /// are distinguished; the maximum also if nothing is known, and for messages without a group.
    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    fn count(&self) -> usize {
        let mut all: HashSet<u64> = HashSet::new();
        for answer in &self.answers {
            let Some(groups) = answer else {
                return self.most;
            };
            all.extend(groups);
            if all.len() >= self.most {
                return self.most;
            }
        }
        all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_counted_over_the_last_answers() {
        let mut variety = Variety::new(3);
        assert_eq!(variety.groups(), 3, "nothing is known");
        variety.note([Some("a"), Some("a")]);
        variety.note([]);
        assert_eq!(variety.groups(), 1);
        variety.note([Some("b")]);
        assert_eq!(variety.groups(), 2);
        for _ in 0..3 {
            variety.note([Some("b")]);
        }
        assert_eq!(variety.groups(), 1, "`a` was long ago");
        variety.note(["a", "b", "c", "d"].map(Some));
        assert_eq!(variety.groups(), 3);
    }

    #[test]
    fn messages_without_a_group_wait_for_nothing() {
        let mut variety = Variety::new(16);
        variety.note([Some("a"), None]);
        assert_eq!(variety.groups(), 16);
    }
}
