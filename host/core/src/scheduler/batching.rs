//! Decides whether few permits are used now or collected until they are worth a full call. Pure:
//! `now` is an argument; knows no queue and no job.

use crate::clock::BootInstant;
use std::time::Duration;

/// Room that waits for the answer to a receive idles meanwhile: no more than this part of the capacity
/// does, over time.
const JOINING_PART: usize = 20;

/// Room that is less than a full call, and what may be added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FreePermits {
    /// Free, in messages.
    pub free: usize,
    /// All there is, free or not.
    pub capacity: usize,
    /// Whether messages in flight will return permits.
    pub comes_free: bool,
    /// How long to wait for that.
    pub wait: Duration,
    /// Whether the outstanding receives are as many as all their permits and the free permits need together.
    pub fits: bool,
    /// How long to wait for the answer to one of them; zero: not at all.
    pub join: Duration,
}

/// What waits to be asked for.
#[derive(Debug, Default)]
pub(super) struct BatchingDelay {
    /// Since when few permits are free.
    since: Option<BootInstant>,
    /// Since when it waits for the answer to a receive.
    joining: Option<BootInstant>,
    /// It may wait for another from then on.
    joins_from: BootInstant,
    /// When to look again.
    due: Option<BootInstant>,
}

impl BatchingDelay {
    /// Whether few permits are to be asked for now. Counted from when it came free: the latency of
    /// outstanding calls is not waited for besides, but for those whose permits it joins.
    ///
    /// Two receives that ask for less than a full call each would continue so forever, since each
    /// asks again for what it brought. So now and then the permits of one waits for the other.
    pub(super) fn is_over(&mut self, little: &FreePermits, now: BootInstant) -> bool {
        if self.joining.is_some() && !little.fits {
            // Answered: what it brought returns its permits as any other does.
            self.end_joining(little.free, little.capacity, now);
            self.since = Some(now);
        }
        let since = *self.since.get_or_insert(now);
        let gathered = match little.comes_free {
            true => since + little.wait,
            false => since,
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

    /// Few permits were asked for, or none is left.
    pub(super) fn ends(&mut self, free: usize, capacity: usize, now: BootInstant) {
        self.end_joining(free, capacity, now);
        self.full_call();
    }

    /// A full call was asked for. What is left of the permits continues waiting for the answer that it
    /// waits for.
    pub(super) fn full_call(&mut self) {
        (self.since, self.due) = (None, None);
    }

    /// When `is_over` may say otherwise though nothing happened.
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
