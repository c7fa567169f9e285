//! How often a lasting trouble is said. Pure, told `now`.

use crate::clock::Moment;
use std::time::Duration;

/// A lasting trouble is said this often.
const EVERY: Duration = Duration::from_secs(60);

/// When something was said last.
#[derive(Debug, Default)]
pub struct LogThrottle(Option<Moment>);

impl LogThrottle {
    /// Whether it is time to say it again; then it counts as said.
    pub fn should_log(&mut self, now: Moment) -> bool {
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
        let at = |seconds| Moment::from_boot(Duration::from_secs(seconds));
        let mut said = LogThrottle::default();
        assert_eq!(
            [0, 1, 59, 60, 61].map(|second| said.should_log(at(second))),
            [true, false, false, true, false]
        );
    }
}
