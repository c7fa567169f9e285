//! Counts the messages of a queue that were released for a later attempt and are not due yet.
//! Bounded; `now` is an argument. Knows no queue.

use crate::clock::BootInstant;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// The delay below which due times are kept by the second; for longer delays they are kept by the
/// minute. So there are at most 1,400 entries.
const BY_SECONDS: Duration = Duration::from_secs(600);
const MINUTE_S: u64 = 60;
/// The longest delay of a release on SQS, its longest visibility timeout (SQS quotas).
const LONGEST: Duration = Duration::from_secs(12 * 3_600);

/// The number of released messages by the second at which they are due, rounded down.
#[derive(Debug, Default)]
pub struct DelayedReleases(Mutex<BTreeMap<u64, u64>>);

impl DelayedReleases {
    /// Records that a message was released at `now` and comes back after `delay`.
    pub(crate) fn note(&self, now: BootInstant, delay: Duration) {
        let delay = delay.min(LONGEST);
        let step_s = if delay < BY_SECONDS { 1 } else { MINUTE_S };
        let exact_s = seconds(now + delay);
        let due_s = exact_s - exact_s % step_s;
        self.pending(now, |due| *due.entry(due_s).or_default() += 1);
    }

    /// Returns how many messages are not due at `now`.
    pub fn waiting(&self, now: BootInstant) -> u64 {
        self.pending(now, |due| {
            due.range(seconds(now) + 1..).map(|(_, count)| count).sum()
        })
    }

    /// Removes the entries that are due at `now` and calls `with` on the others.
    fn pending<T>(&self, now: BootInstant, with: impl FnOnce(&mut BTreeMap<u64, u64>) -> T) -> T {
        let mut due = self.0.lock();
        let now_s = seconds(now);
        while due.first_key_value().is_some_and(|(at, _)| *at <= now_s) {
            due.pop_first();
        }
        with(&mut due)
    }
}

fn seconds(at: BootInstant) -> u64 {
    at.since(BootInstant::default()).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(100_000 + ms))
    }

    #[test]
    fn released_messages_wait_until_their_delay_is_over() {
        let released = DelayedReleases::default();
        for delay in [Duration::ZERO, 2 * S, 30 * S, 3_600 * S] {
            released.note(at(0), delay);
        }
        for (after_ms, waiting) in [
            (0, 3),
            (1_999, 3),
            (2_000, 2),
            (30_000, 1),
            // By the minute, and never too long.
            (3_539_000, 1),
            (3_600_000, 0),
        ] {
            assert_eq!(released.waiting(at(after_ms)), waiting, "{after_ms}");
        }
    }

    #[test]
    fn any_number_of_releases_takes_little_memory() {
        let released = DelayedReleases::default();
        for number in 0..100_000 {
            released.note(at(number), Duration::from_secs(number % 50_000));
        }
        assert!(released.waiting(at(100_000)) > 90_000);
        let kept = released.0.lock().len();
        assert!(kept <= 1_400, "{kept}");
    }
}
