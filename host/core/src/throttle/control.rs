//! The concurrency limit of a route: lower while its downstream is busy; zero, except for
//! occasional probes, while its circuit is open. Pure.

use super::{as_float, whole};
use crate::backoff;
use crate::clock::BootInstant;
use std::time::Duration;

/// The minimum growth by a success, as a share of one: otherwise a limit of thousands would take
/// thousands of rounds to recover.
const LEAST_GROWTH: f64 = 1.0 / 32.0;
/// The first and the maximum pause before a closed downstream is retried.
const PROBE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The signal of an attempt about its downstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The downstream accepted the work, with any result.
    Open,
    /// The downstream is busy.
    Busy,
    /// The downstream accepts nothing until a person acts.
    Closed,
    /// The attempt showed nothing about the downstream.
    Nothing,
}

/// The limit of one route: lowered by one for each attempt that finds the downstream busy, but at
/// most halved for attempts that ran together, and raised by successes.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    most: usize,
    limit: f64,
    /// The attempts that began before this ran together with the one that lowered the limit.
    lowered: BootInstant,
    /// The lowest limit to which those attempts can lower it.
    floor: f64,
    closed: Option<ClosedPeriod>,
}

#[derive(Debug, Clone, Copy)]
struct ClosedPeriod {
    since: BootInstant,
    probes: u32,
    until: BootInstant,
}

impl Control {
    /// Creates a limit of `most`, which applies until the downstream is busy.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            limit: as_float(most),
            lowered: BootInstant::default(),
            floor: 1.0,
            closed: None,
        }
    }

    /// Changes the maximum. A limit at the old maximum moves with it.
    pub(crate) fn set_maximum(&mut self, most: usize) {
        if self.limit >= as_float(self.most) {
            self.limit = as_float(most);
        }
        self.limit = self.limit.min(as_float(most));
        self.most = most;
    }

    /// Returns how many attempts may be under way now.
    pub(crate) fn limit(&self, now: BootInstant) -> usize {
        match self.closed {
            Some(closed) if now < closed.until => 0,
            Some(_) => 1,
            None => self.open_limit(),
        }
    }

    /// Returns how many attempts may be under way now if others use `elsewhere` of the maximum.
    pub(crate) fn limit_beside(&self, elsewhere: usize, now: BootInstant) -> usize {
        self.limit(now).min(self.most.saturating_sub(elsewhere))
    }

    /// Returns the limit as if the circuit were closed and others used `elsewhere` of the maximum.
    pub(crate) fn open_limit_beside(&self, elsewhere: usize) -> usize {
        self.open_limit().min(self.most.saturating_sub(elsewhere))
    }

    /// Returns the limit as if the circuit were closed; at least 1.
    pub(crate) fn open_limit(&self) -> usize {
        whole(self.limit).clamp(1, self.most)
    }

    /// Whether the limit is below the maximum.
    pub(crate) fn is_lowered(&self) -> bool {
        self.open_limit() < self.most
    }

    /// Whether the downstream is closed, including while it is probed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Returns when a closed downstream is retried, if that time has not come yet.
    pub(crate) fn probe_at(&self, now: BootInstant) -> Option<BootInstant> {
        self.closed
            .map(|closed| closed.until)
            .filter(|until| *until > now)
    }

    /// Records the end of an attempt that began at `began` and was one of `running`. One attempt of
    /// many that is busy lowers the limit by one; if all of them are, the limit is halved.
    pub(crate) fn note(
        &mut self,
        showed: Signal,
        began: BootInstant,
        running: usize,
        now: BootInstant,
    ) {
        match showed {
            Signal::Nothing => {}
            Signal::Open => {
                self.reopen(began);
                let growth = (1.0 / self.limit).max(LEAST_GROWTH);
                self.limit = (self.limit + growth).min(as_float(self.most));
            }
            Signal::Busy => {
                self.reopen(began);
                if began >= self.lowered {
                    let used = self.limit.min(as_float(running));
                    self.floor = (used / 2.0).max(1.0);
                    // A limit far above what runs would take as many busy attempts to have effect.
                    self.limit = used.max(self.limit / 2.0);
                    self.lowered = now;
                }
                self.limit = (self.limit - 1.0).max(self.floor);
            }
            Signal::Closed => self.close(began, now),
        }
    }

    fn reopen(&mut self, began: BootInstant) {
        if self.closed.is_some_and(|closed| began >= closed.since) {
            self.closed = None;
        }
    }

    fn close(&mut self, began: BootInstant, now: BootInstant) {
        let probes = match self.closed {
            Some(closed) if began < closed.until => return,
            Some(closed) => closed.probes + 1,
            None => 1,
        };
        self.closed = Some(ClosedPeriod {
            since: self.closed.map_or(now, |closed| closed.since),
            probes,
            until: now + backoff::ceiling(PROBE.0, PROBE.1, probes),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
    }

    #[test]
    fn lesson_17_busy_round_halves_once_and_successes_raise_again() {
        let mut control = Control::new(40);
        for _ in 0..40 {
            control.note(Signal::Busy, at(0), 40, at(10));
        }
        assert_eq!(control.limit(at(10)), 20);
        for _ in 0..20 {
            control.note(Signal::Busy, at(11), 20, at(20));
        }
        assert_eq!(control.limit(at(20)), 10);
        for _ in 0..11 {
            control.note(Signal::Open, at(21), 10, at(30));
        }
        assert_eq!(control.limit(at(30)), 11);
        for _ in 0..2_000 {
            control.note(Signal::Open, at(31), 10, at(40));
        }
        assert_eq!(control.limit(at(40)), 40);
    }

    #[test]
    fn one_busy_attempt_of_many_lowers_the_limit_by_one() {
        let mut control = Control::new(50);
        control.note(Signal::Busy, at(0), 50, at(10));
        assert_eq!(control.limit(at(10)), 49);
        for _ in 0..49 {
            control.note(Signal::Open, at(11), 49, at(20));
        }
        assert_eq!(control.limit(at(20)), 50);
        // A downstream that takes ten of fifty is found at once.
        for _ in 0..40 {
            control.note(Signal::Busy, at(21), 50, at(30));
        }
        assert_eq!(control.limit(at(30)), 25);
    }

    #[test]
    fn limit_far_above_what_runs_has_effect_after_few_busy_attempts() {
        let mut control = Control::new(50);
        let mut limits = Vec::new();
        for round in 0..6 {
            control.note(Signal::Busy, at(10 * round), 3, at(10 * round + 5));
            limits.push(control.limit(at(10 * round + 5)));
        }
        assert_eq!(limits, [24, 11, 4, 2, 1, 1]);
    }

    #[test]
    fn open_circuit_is_probed_with_growing_pauses() {
        let mut control = Control::new(10);
        control.note(Signal::Closed, at(0), 10, at(1));
        control.note(Signal::Closed, at(0), 10, at(2));
        assert_eq!((control.limit(at(2)), control.limit(at(1_001))), (0, 1));
        control.note(Signal::Open, at(0), 9, at(3));
        assert!(control.is_closed(), "that one began before");
        control.note(Signal::Closed, at(1_001), 1, at(1_002));
        assert_eq!((control.limit(at(3_001)), control.limit(at(3_002))), (0, 1));
        assert_eq!(control.probe_at(at(1_002)), Some(at(3_002)));
        control.note(Signal::Open, at(3_002), 1, at(3_003));
        assert_eq!(control.limit(at(3_003)), 10);
    }

    proptest! {
        #[test]
        fn concurrency_limit_stays_within_its_bounds(most in 1_usize..10_000, events in prop::collection::vec((0_u8..4, 0_u64..5_000), 0..200)) {
            let mut control = Control::new(most);
            let mut now = 0;
            for (kind, step) in events {
                let began = at(now);
                now += step;
                let showed = [Signal::Open, Signal::Busy, Signal::Closed, Signal::Nothing][usize::from(kind)];
                control.note(showed, began, most, at(now));
                prop_assert!(control.limit(at(now)) <= most && control.open_limit() >= 1);
                prop_assert!(control.limit(at(now + 60_000)) >= 1, "it stays closed for ever");
            }
        }
    }
}
