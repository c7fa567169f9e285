//! The time of the service, of which responses tell whole seconds. Pure.

/// The knowledge of how far the service's clock is ahead of this machine's, which has another
/// beginning and does not jump.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ServiceClock {
    /// The bounds in milliseconds.
    ahead: Option<(i64, i64)>,
}

impl ServiceClock {
    /// Takes the date of a response, in whole seconds, between the times of this machine in
    /// milliseconds at which it was asked for and came.
    pub(super) fn note(&mut self, asked: u64, came: u64, seconds: i64) {
        let date = seconds.saturating_mul(1_000);
        let least = date.saturating_sub_unsigned(came);
        let most = date.saturating_add(1_000).saturating_sub_unsigned(asked);
        let known = self.ahead.unwrap_or((least, most));
        let both = (known.0.max(least), known.1.min(most));
        // The service's clock was corrected, or another server with another clock answered.
        self.ahead = Some(if both.0 <= both.1 {
            both
        } else {
            (least, most)
        });
    }

    /// Returns the service's time in milliseconds; `None` before the first response.
    pub(super) fn at(&self, own: u64) -> Option<u64> {
        let (least, most) = self.ahead?;
        Some(own.saturating_add_signed(least.midpoint(most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_narrow_the_time() {
        let mut clock = ServiceClock::default();
        assert_eq!(clock.at(0), None);
        // The service is 70,400 ms ahead.
        clock.note(100, 120, 70);
        assert_eq!(clock.at(120), Some(70_510));
        clock.note(590, 610, 71);
        clock.note(1_550, 1_570, 71);
        let off = clock.at(1_000).expect("known").abs_diff(71_400);
        assert!(off <= 150, "{off}");
        // Set back by a minute.
        clock.note(2_000, 2_020, 12);
        assert_eq!(clock.at(2_020), Some(12_510));
    }
}
