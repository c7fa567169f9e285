//! Backs off from a queue that cannot be received from, and throttles its log line. Pure except for
//! that line: `now` is an argument.

use crate::backoff;
use crate::clock::BootInstant;
use crate::queue::QueueError;
use crate::telemetry::log_throttle::LogThrottle;
use std::time::Duration;

/// The first and the maximum rest after a failed receive.
const REST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The number of failures in a row from which on they count as lasting.
const LASTING: u32 = 3;

/// The consecutive failures of one queue.
#[derive(Debug, Default)]
pub(crate) struct ReceiveFailures {
    failures: u32,
    said: LogThrottle,
}

impl ReceiveFailures {
    /// Records a failure. Returns the rest before the next poll.
    pub(crate) fn failed(&mut self, queue: &str, error: &QueueError, now: BootInstant) -> Duration {
        self.failures = self.failures.saturating_add(1);
        if self.said.should_log(now) {
            tracing::error!(
                queue,
                failures = self.failures,
                %error,
                "receive failed, retried"
            );
        }
        // Half of the rest is fixed, so that a failing endpoint is never flooded.
        let rest = backoff::ceiling(REST.0, REST.1, self.failures) / 2;
        rest + backoff::full_jitter(REST.0 / 2, REST.1 / 2, self.failures, fastrand::u64(..))
    }

    /// Whether the failures have lasted long enough to make the program unready.
    pub(crate) fn lasts(&self) -> bool {
        self.failures >= LASTING
    }

    /// Records a successful receive. Returns whether the receive before it failed.
    pub(crate) fn passed(&mut self, queue: &str) -> bool {
        let over = self.failures > 0;
        if over {
            tracing::info!(queue, failures = self.failures, "receives again");
            *self = Self::default();
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::ErrorKind as Kind;

    #[test]
    fn lesson_22_repeated_failures_back_off() {
        let error = QueueError {
            kind: Kind::AccessDenied,
            message: "expired token".into(),
        };
        let mut failures = ReceiveFailures::default();
        let rests: Vec<_> = (0..10)
            .map(|_| failures.failed("q", &error, BootInstant::default()))
            .collect();
        assert!(rests[0] >= Duration::from_millis(250));
        assert!(rests[9] >= Duration::from_secs(15) && rests[9] <= Duration::from_secs(30));
        failures.passed("q");
        assert!(failures.failed("q", &error, BootInstant::default()) <= Duration::from_millis(500));
    }
}
