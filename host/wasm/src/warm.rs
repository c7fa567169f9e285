//! Decides how many instances are created ahead of messages, and when. Does not create them.

use dispatcher_core::backoff;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use std::time::Duration;

/// The number of instances created ahead, and the time limit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Warm {
    /// The configured number.
    pub count: Option<usize>,
    /// The number for a component of at least `HEAVY` bytes if none is configured; others have
    /// none.
    pub of_heavy: usize,
    /// The time limit for creating one. After it, the creation is given up.
    pub patience: Duration,
}

impl Warm {
    /// Returns the number for a component of this size.
    pub(crate) fn wanted(&self, size: usize) -> usize {
        let by_size = if size >= HEAVY { self.of_heavy } else { 0 };
        self.count.unwrap_or(by_size)
    }
}

/// The size in bytes from which a component contains an interpreter or a runtime, which makes its
/// instances costly: measured in `host/docs/instances.md`.
const HEAVY: usize = 1 << 20;

/// The pause after a failure; doubled after each further one.
const FIRST: Duration = Duration::from_secs(1);
/// The maximum pause.
const MOST: Duration = Duration::from_secs(60);

/// The state of creating instances: whether it is running, and when it may run after failures.
/// Pure: `now` is an argument.
#[derive(Default)]
pub(super) struct CreationState {
    under_way: bool,
    failures: u32,
    not_before: BootInstant,
    said: LogThrottle,
}

impl CreationState {
    /// Whether to begin now. If so, the creation counts as running.
    pub(super) fn begin(&mut self, now: BootInstant) -> bool {
        let begins = !self.under_way && now >= self.not_before;
        self.under_way |= begins;
        begins
    }

    /// Records that the creation has ended.
    pub(super) fn end(&mut self) {
        self.under_way = false;
    }

    /// Records that an instance was created.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Records that an instance could not be created. Returns whether to log it.
    pub(super) fn failed(&mut self, now: BootInstant) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + backoff::ceiling(FIRST, MOST, self.failures);
        self.said.should_log(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn failed_prewarming_backs_off() {
        let mut making = CreationState::default();
        assert!(making.begin(at(0)) && !making.begin(at(0)), "one at a time");
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            making.failed(at(now));
            making.end();
            let pause = (0..).find(|pause| making.begin(at(now + pause)));
            pauses.push(pause.unwrap());
            now += pause.unwrap();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        making.succeeded();
        making.failed(at(now));
        making.end();
        assert!(!making.begin(at(now)) && making.begin(at(now + 1)));
    }
}
