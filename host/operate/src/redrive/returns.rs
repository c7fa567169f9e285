//! Detects whether too many of the messages that were moved back have failed again. Pure.

use super::copy::{Marks, redriven};
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::Message;

/// The number of returned messages from which the share is judged: the first one proves little.
const SMALLEST_SHARE_OF: u64 = 10;

/// Counts the messages that return to the queue they were moved from, by the count that a redrive
/// adds to a message. The count does not identify the run: letters of an earlier run that fail now
/// also count.
#[derive(Debug, Clone)]
pub(super) struct Returns {
    started: Timestamp,
    share: f64,
    /// Whether this run adds that count.
    is_marking: bool,
    moved: u64,
    returned: u64,
    /// The remaining number of messages without a date that were there when the run began; unknown
    /// until the first arrives.
    undated_left: Option<u64>,
}

impl Returns {
    /// Creates the counter of a run that began at `started` and stops above this share. A run that
    /// keeps attributes unchanged does not recognize its messages, and never stops.
    pub(super) fn new(started: Timestamp, share: f64, marks: Marks) -> Self {
        Self {
            started,
            share,
            is_marking: marks == Marks::Redriven,
            moved: 0,
            returned: 0,
            undated_left: None,
        }
    }

    /// Returns whether a message arrived after the run began. Such messages are not moved;
    /// otherwise a message that fails repeatedly would circulate forever. If messages have no date,
    /// as many count as old as the queue held at first, and all others as new.
    pub(super) fn is_new(&self, message: &Message) -> bool {
        match message.sent_at {
            Some(sent) => sent > self.started,
            None => self.undated_left == Some(0),
        }
    }

    /// Returns whether the depth of the queue must be requested now: these are the first messages
    /// without a date.
    pub(super) fn lacks_bound(&self, messages: &[Message]) -> bool {
        self.undated_left.is_none() && messages.iter().any(|one| one.sent_at.is_none())
    }

    /// Sets how many messages the queue held when the first without a date arrived.
    pub(super) fn bound_undated(&mut self, held: u64) {
        self.undated_left = Some(held);
    }

    /// Records that a message is inspected.
    pub(super) fn note_looked_at(&mut self, message: &Message) {
        if let (None, Some(left)) = (message.sent_at, &mut self.undated_left) {
            *left = left.saturating_sub(1);
        }
    }

    /// Records that messages were moved.
    pub(super) fn note_moved(&mut self, count: u64) {
        self.moved += count;
    }

    /// Returns whether returned messages are counted.
    pub(super) fn counts(&self) -> bool {
        self.is_marking
    }

    /// Records a message that is seen for the first time. Counts it if it arrived after the start
    /// and had been moved back before.
    pub(super) fn note_seen(&mut self, message: &Message) {
        if self.counts() && self.is_new(message) && redriven(message) > 0 {
            self.returned += 1;
        }
    }

    /// Resets the count before everything is seen again.
    pub(super) fn forget_seen(&mut self) {
        self.returned = 0;
    }

    /// Returns how many messages have returned.
    pub(super) fn returned(&self) -> u64 {
        self.returned
    }

    /// Returns whether the run must stop.
    #[expect(clippy::cast_precision_loss, reason = "counts of messages")]
    pub(super) fn are_too_many(&self) -> bool {
        let limit = self.moved as f64 * self.share;
        self.returned >= SMALLEST_SHARE_OF && self.returned as f64 > limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::message::Attribute;
    use dispatcher_core::message::samples::message;
    use dispatcher_core::queue::REDRIVEN;

    fn seen(sent: u64, is_redriven: bool) -> Message {
        let mark = is_redriven.then(|| Attribute::text(REDRIVEN, "1"));
        Message {
            sent_at: Some(Timestamp(sent)),
            attributes: mark.into_iter().collect(),
            ..message("m")
        }
    }

    #[test]
    fn what_came_after_the_start_and_was_redriven_before_counts_as_returned() {
        let mut returns = Returns::new(Timestamp(100), 0.5, Marks::Redriven);
        returns.note_moved(100);
        for one in [seen(100, true), seen(101, false), seen(101, true)] {
            returns.note_seen(&one);
        }
        assert_eq!(returns.returned(), 1);
        assert!(returns.is_new(&seen(101, false)) && !returns.is_new(&seen(100, true)));
    }

    #[test]
    fn a_run_that_leaves_attributes_as_they_are_is_not_judged() {
        let mut returns = Returns::new(Timestamp(100), 0.5, Marks::Kept);
        returns.note_moved(10);
        for _ in 0..10 {
            returns.note_seen(&seen(101, true));
        }
        assert_eq!((returns.returned(), returns.are_too_many()), (0, false));
    }

    #[test]
    fn of_messages_without_a_date_as_many_are_old_as_there_were_at_first() {
        let undated = Message {
            sent_at: None,
            ..message("m")
        };
        let mut returns = Returns::new(Timestamp(100), 0.5, Marks::Redriven);
        assert!(!returns.is_new(&undated) && returns.lacks_bound(std::slice::from_ref(&undated)));
        assert!(!returns.lacks_bound(&[seen(100, false)]));
        returns.bound_undated(2);
        assert!(!returns.lacks_bound(std::slice::from_ref(&undated)));
        for _ in 0..2 {
            assert!(!returns.is_new(&undated));
            returns.note_looked_at(&seen(100, false));
            returns.note_looked_at(&undated);
        }
        assert!(returns.is_new(&undated));
        assert!(!returns.is_new(&seen(100, false)), "a date counts");
    }

    #[test]
    fn a_run_stops_above_its_share_and_not_for_a_few() {
        let mut returns = Returns::new(Timestamp(100), 0.5, Marks::Redriven);
        returns.note_moved(9);
        for _ in 0..9 {
            returns.note_seen(&seen(101, true));
        }
        assert!(!returns.are_too_many(), "nine are too few to judge");
        returns.note_seen(&seen(101, true));
        assert!(returns.are_too_many());
        returns.note_moved(11);
        assert!(!returns.are_too_many(), "ten of twenty are half, not more");
    }
}
