//! The order in which messages of one group go back to a queue that keeps groups in order. Such a
//! queue delivers a group up to its first message in flight: SQS and the embedded queue deliver the
//! first message as soon as it is back, although others of its group are still held here. So the
//! first one goes back last, and only after the queue has taken the others. Pure.

use std::collections::HashMap;

/// Releases that wait for others of their groups.
#[derive(Debug)]
pub(super) struct GroupReturns<T> {
    groups: HashMap<String, ReturningGroup<T>>,
}

#[derive(Debug)]
struct ReturningGroup<T> {
    /// The number of releases of the group that are under way.
    under_way: usize,
    /// Releases that wait for them, from the end of the group on.
    waiting: Vec<T>,
}

impl<T> Default for GroupReturns<T> {
    fn default() -> Self {
        Self {
            groups: HashMap::new(),
        }
    }
}

impl<T> GroupReturns<T> {
    /// Admits a message that goes back; those behind it in its group were admitted before it.
    /// Returns it if it need not wait for them.
    pub(super) fn admit(&mut self, group: &str, item: T) -> Option<T> {
        if let Some(returning) = self.groups.get_mut(group) {
            returning.waiting.push(item);
            return None;
        }
        let returning = ReturningGroup {
            under_way: 1,
            waiting: Vec::new(),
        };
        self.groups.insert(group.to_owned(), returning);
        Some(item)
    }

    /// Records that the queue has taken a release that `admit` or this function returned, or that
    /// it was given up. Returns the releases that may go now: all that wait except the first of the
    /// group, and then that one.
    pub(super) fn ended(&mut self, group: &str) -> Vec<T> {
        let Some(returning) = self.groups.get_mut(group) else {
            return Vec::new();
        };
        returning.under_way = returning.under_way.saturating_sub(1);
        if returning.under_way > 0 {
            return Vec::new();
        }
        let waiting = &mut returning.waiting;
        let next: Vec<T> = match waiting.len() {
            0 => Vec::new(),
            1 => std::mem::take(waiting),
            more => waiting.drain(..more - 1).collect(),
        };
        returning.under_way = next.len();
        if next.is_empty() {
            self.groups.remove(group);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_a_group_goes_back_after_all_others() {
        let mut returns = GroupReturns::default();
        assert_eq!(returns.admit("a", 4), Some(4));
        for number in [3, 2, 1] {
            assert_eq!(returns.admit("a", number), None);
        }
        assert_eq!(
            returns.admit("b", 9),
            Some(9),
            "another group does not wait"
        );
        assert_eq!(returns.ended("a"), [3, 2]);
        assert_eq!(returns.ended("a"), [0; 0], "one is under way");
        assert_eq!(returns.ended("a"), [1]);
        assert_eq!(returns.ended("a"), [0; 0]);
        assert_eq!(returns.admit("a", 5), Some(5), "nothing of it is under way");
    }

    #[test]
    fn end_of_what_never_waited_changes_nothing() {
        let mut returns = GroupReturns::<u32>::default();
        assert_eq!(returns.ended("a"), [0; 0]);
        assert_eq!(returns.admit("a", 1), Some(1));
        assert_eq!(returns.ended("b"), [0; 0]);
        assert_eq!(returns.admit("a", 0), None);
        assert_eq!(returns.ended("a"), [0]);
    }
}
