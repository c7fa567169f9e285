//! Limits how often a lasting failure is logged. Pure: `now` is an argument.

use crate::clock::BootInstant;
use std::time::Duration;

/// The interval between log lines of a lasting failure.
const EVERY: Duration = Duration::from_secs(60);

/// The time at which something was last logged.
#[derive(Debug, Default)]
pub struct LogThrottle(Option<BootInstant>);

impl LogThrottle {
    /// Returns whether to log again. If so, records that it was logged.
    pub fn should_log(&mut self, now: BootInstant) -> bool {
        let again = self.0.is_none_or(|last| now.since(last) >= EVERY);
        if again {
            self.0 = Some(now);
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_logged_once_a_minute() {
        let mut said = LogThrottle::default();
        for (second, is_logged) in [(0, true), (1, false), (59, false), (60, true), (61, false)] {
            let now = BootInstant::from_boot(Duration::from_secs(second));
            assert_eq!(said.should_log(now), is_logged, "{second}");
        }
    }
}
