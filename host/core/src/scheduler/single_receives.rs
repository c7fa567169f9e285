//! Decides when a queue that keeps its groups in order is polled for one message at a time. Pure.
//!
//! Such a queue delivers messages of a group behind its first, and they cannot start before it. If
//! the process is killed then, each of them has spent a receive without an attempt, and the queue
//! dead-letters it after the last receive that its redrive policy permits. A message that is
//! received alone is the first of its group and starts at once.

/// The number of permitted receives up to which a message is always received alone: its second
/// receive is the last.
const ALWAYS_ALONE: u32 = 2;
/// The number of permitted receives above which no message is received alone: the policy forgives
/// this many kills.
const NEVER_ALONE: u32 = 10;
/// The number of consecutive messages without an earlier receive that shows that none came back.
const FIRST_RECEIVES: u8 = 10;

/// The recent receives of one queue.
#[derive(Debug)]
pub(super) struct SingleReceives {
    /// The number of receives that its redrive policy permits.
    most_receives: Option<u32>,
    /// The number of consecutive messages that were received for the first time.
    first_in_row: u8,
}

impl SingleReceives {
    /// Creates the state of a queue whose redrive policy permits this many receives. `None` if that
    /// does not matter, because the queue has no policy or delivers no messages behind the first of
    /// a group.
    pub(super) fn new(most_receives: Option<u32>) -> Self {
        Self {
            most_receives,
            first_in_row: 0,
        }
    }

    /// Records for each message of an answer whether it was received before.
    pub(super) fn note(&mut self, redelivered: impl IntoIterator<Item = bool>) {
        for redelivered in redelivered {
            self.first_in_row = if redelivered {
                0
            } else {
                self.first_in_row.saturating_add(1)
            };
        }
    }

    /// Returns the maximum number of messages of the next receive; `batch` is the maximum that the
    /// queue delivers.
    pub(super) fn most(&self, batch: usize) -> usize {
        let is_single = match self.most_receives {
            None => false,
            Some(most) if most <= ALWAYS_ALONE => true,
            Some(most) => most <= NEVER_ALONE && self.first_in_row < FIRST_RECEIVES,
        };
        if is_single { 1 } else { batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_with_two_receives_is_always_asked_for_one_message() {
        for most in 1..=ALWAYS_ALONE {
            let mut receives = SingleReceives::new(Some(most));
            receives.note([false; 100]);
            assert_eq!(receives.most(10), 1, "maxReceiveCount {most}");
        }
    }

    #[test]
    fn queue_is_asked_for_one_message_until_nothing_comes_back() {
        let mut receives = SingleReceives::new(Some(3));
        assert_eq!(receives.most(10), 1, "nothing is known");
        receives.note([false; 9]);
        assert_eq!(receives.most(10), 1);
        receives.note([false]);
        assert_eq!(receives.most(10), 10);
        receives.note([false, true, false]);
        assert_eq!(receives.most(10), 1, "one came back");
        receives.note([false; 9]);
        assert_eq!(receives.most(10), 10);
    }

    #[test]
    fn queue_without_a_policy_or_with_many_receives_is_asked_for_what_it_delivers() {
        for most in [None, Some(11), Some(1_000)] {
            let mut receives = SingleReceives::new(most);
            receives.note([true]);
            assert_eq!(receives.most(10), 10);
        }
    }
}
