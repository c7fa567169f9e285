//! Decides whether a few free permits are used now or collected until they are worth a full call.
//! Pure: `now` is an argument; does not depend on queues or jobs.

use crate::clock::BootInstant;
use std::time::Duration;

/// The divisor of the capacity: permits that wait for the answer to a receive are idle, and over
/// time at most that part of the capacity may be.
const JOINING_PART: usize = 20;

/// Free permits that are fewer than a full call, and what may be added to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FreePermits {
    /// The number of free permits, in messages.
    pub free: usize,
    /// The number of all permits, free or not.
    pub capacity: usize,
    /// Whether messages in flight will return permits.
    pub comes_free: bool,
    /// The time to wait for those permits.
    pub wait: Duration,
    /// Whether there are at least as many outstanding receives as full receives would be needed for
    /// their permits and the free ones together.
    pub fits: bool,
    /// The time to wait for the answer to one of these receives; zero disables the wait.
    pub join: Duration,
}

/// The delay of a receive for few permits.
#[derive(Debug, Default)]
pub(super) struct BatchingDelay {
    /// When the few permits became free.
    since: Option<BootInstant>,
    /// When the wait for the answer to a receive began.
    joining: Option<BootInstant>,
    /// The time from which on it may wait for another answer.
    joins_from: BootInstant,
    /// When to check again.
    due: Option<BootInstant>,
}

impl BatchingDelay {
    /// Whether a receive for few permits is due now. The delay counts from when the permits became
    /// free. It does not include the latency of outstanding receives, except those whose permits it
    /// joins.
    ///
    /// Two receives that each ask for less than a full call would continue that way forever, since
    /// each asks again for as much as it brought. So from time to time the permits of one wait for
    /// the other.
    pub(super) fn is_over(&mut self, little: &FreePermits, now: BootInstant) -> bool {
        if self.joining.is_some() && !little.fits {
            // The receive was answered: its messages return their permits as others do.
            self.end_joining(little.free, little.capacity, now);
            self.since = Some(now);
        }
        let since = *self.since.get_or_insert(now);
        let gathered = if little.comes_free {
            since + little.wait
        } else {
            since
        };
        if now < gathered {
            self.due = Some(gathered);
            return false;
        }
        let joins = self.joining.is_some() || self.joins_from <= now;
        if !joins || !little.fits || little.join.is_zero() {
            return true;
        }
        let until = *self.joining.get_or_insert(now) + little.join;
        self.due = Some(until);
        until <= now
    }

    /// Records that few permits were used for a receive, or that none is left.
    pub(super) fn ends(&mut self, free: usize, capacity: usize, now: BootInstant) {
        self.end_joining(free, capacity, now);
        self.full_call();
    }

    /// Records that a full call was made. The permits that are left continue to wait for the answer
    /// that they wait for.
    pub(super) fn full_call(&mut self) {
        (self.since, self.due) = (None, None);
    }

    /// Returns when `is_over` may change even if nothing happens.
    pub(super) fn due(&self) -> Option<BootInstant> {
        self.due
    }

    fn end_joining(&mut self, free: usize, capacity: usize, now: BootInstant) {
        if let Some(began) = self.joining.take() {
            let idle = u32::try_from(free * JOINING_PART / capacity.max(1)).unwrap_or(u32::MAX);
            self.joins_from = now + now.since(began).saturating_mul(idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(ms))
    }

    fn little(free: usize, comes_free: bool, fits: bool) -> FreePermits {
        FreePermits {
            free,
            capacity: 10,
            comes_free,
            wait: Duration::from_millis(5),
            fits,
            join: Duration::from_millis(50),
        }
    }

    #[test]
    fn batching_delay_lasts_while_more_permits_come_free() {
        let mut gathering = BatchingDelay::default();
        assert!(!gathering.is_over(&little(3, true, false), at(100)));
        assert_eq!(gathering.due(), Some(at(105)));
        assert!(!gathering.is_over(&little(4, true, false), at(104)));
        assert!(gathering.is_over(&little(4, true, false), at(105)));
        gathering.ends(4, 10, at(105));
        assert_eq!(gathering.due(), None);
        assert!(gathering.is_over(&little(2, false, false), at(106)));
    }

    #[test]
    fn finding_11_batching_waits_for_pending_answers_and_their_messages() {
        let mut gathering = BatchingDelay::default();
        assert!(!gathering.is_over(&little(3, false, true), at(100)));
        assert_eq!(gathering.due(), Some(at(150)));
        // Answered at 120: seven run, and return their permits within the wait.
        assert!(!gathering.is_over(&little(3, true, false), at(120)));
        assert_eq!(gathering.due(), Some(at(125)));
        gathering.full_call();
        // 20 ms × 3 of 10: once in 120 ms.
        assert!(gathering.is_over(&little(3, false, true), at(239)));
        gathering.ends(3, 10, at(239));
        assert!(!gathering.is_over(&little(3, false, true), at(240)));
    }

    #[test]
    fn batching_does_not_wait_for_an_overdue_answer() {
        let mut gathering = BatchingDelay::default();
        assert!(!gathering.is_over(&little(10, false, true), at(100)));
        assert!(gathering.is_over(&little(10, false, true), at(150)));
        gathering.ends(10, 10, at(150));
        assert!(gathering.is_over(&little(10, false, true), at(1_149)));
        gathering.ends(10, 10, at(1_149));
        assert!(!gathering.is_over(&little(10, false, true), at(1_150)));
    }
}
