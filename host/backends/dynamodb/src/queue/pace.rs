//! Computes the pause between two polls of a table that cannot notify. Pure.

use std::time::Duration;

/// The pause after the first poll that found nothing.
const FIRST: Duration = Duration::from_millis(50);

/// The pauses between polls, which grow while the table is empty.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    next: Duration,
    most: Duration,
}

impl Pace {
    /// Creates pauses of at most `most`.
    pub(super) fn new(most: Duration) -> Self {
        Self {
            next: FIRST.min(most),
            most,
        }
    }

    /// Returns how long to wait after a poll that found nothing, unless a notification comes
    /// earlier.
    pub(super) fn empty(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 3 / 2).min(self.most);
        pause
    }

    /// Resets the pause after a poll that found a task or after a notification.
    pub(super) fn found(&mut self) {
        self.next = FIRST.min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_maximum_and_reset() {
        let mut pace = Pace::new(Duration::from_secs(2));
        let pauses: Vec<_> = (0..20).map(|_| pace.empty()).collect();
        assert_eq!(pauses[0], FIRST);
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(pauses[19], Duration::from_secs(2));
        // Half a minute of nothing costs few looks.
        let looks = pauses.iter().scan(Duration::ZERO, |sum, pause| {
            *sum += *pause;
            Some(*sum)
        });
        assert!(looks.filter(|at| *at < Duration::from_secs(10)).count() <= 14);
        pace.found();
        assert_eq!(pace.empty(), FIRST);
    }

    #[test]
    fn short_maximum_is_respected() {
        let mut pace = Pace::new(Duration::from_millis(10));
        assert_eq!(pace.empty(), Duration::from_millis(10));
        assert_eq!(pace.empty(), Duration::from_millis(10));
    }
}
