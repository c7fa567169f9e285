//! How often a lasting failure is logged. Pure: `now` is an argument.

use crate::clock::BootInstant;
use std::time::Duration;

/// How often a lasting failure is logged.
const EVERY: Duration = Duration::from_secs(60);

/// When something was logged last.
#[derive(Debug, Default)]
pub struct LogThrottle(Option<BootInstant>);

impl LogThrottle {
    /// Whether it is time to log it again; then it counts as logged.
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
        let at = |seconds| BootInstant::from_boot(Duration::from_secs(seconds));
        let mut said = LogThrottle::default();
        assert_eq!(
            [0, 1, 59, 60, 61].map(|second| said.should_log(at(second))),
            [true, false, false, true, false]
        );
    }
}
