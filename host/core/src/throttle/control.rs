//! The concurrency limit of a route: lower while its downstream is busy, zero while its circuit is
//! open except for occasional probes. Pure.

use super::{as_float, whole};
use crate::backoff;
use crate::clock::BootInstant;
use std::time::Duration;

/// The least growth a success brings, as a share of one: a limit of thousands would otherwise take
/// thousands of rounds to come back.
const LEAST_GROWTH: f64 = 1.0 / 32.0;
/// The first and the longest pause before a closed downstream is retried.
const PROBE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What an attempt showed of its downstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// It took the work, whatever came of it.
    Open,
    /// It is busy.
    Busy,
    /// It will take nothing until somebody acts.
    Closed,
    /// Nothing either way.
    Nothing,
}

/// The limit of one route: halved by what is busy, raised by what is done.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    most: usize,
    limit: f64,
    lowered: BootInstant,
    closed: Option<Closed>,
}

#[derive(Debug, Clone, Copy)]
struct Closed {
    since: BootInstant,
    probes: u32,
    until: BootInstant,
}

impl Control {
    /// A limit of `most`, which applies until the downstream is busy.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            limit: as_float(most),
            lowered: BootInstant::default(),
            closed: None,
        }
    }

    /// Another ceiling. A limit at the old one goes along.
    pub(crate) fn set_maximum(&mut self, most: usize) {
        if self.limit >= as_float(self.most) {
            self.limit = as_float(most);
        }
        self.limit = self.limit.min(as_float(most));
        self.most = most;
    }

    /// How many attempts may be under way now.
    pub(crate) fn limit(&self, now: BootInstant) -> usize {
        match self.closed {
            Some(closed) if now < closed.until => 0,
            Some(_) => 1,
            None => self.open_limit(),
        }
    }

    /// The limit if the circuit were closed; at least 1.
    pub(crate) fn open_limit(&self) -> usize {
        whole(self.limit).clamp(1, self.most)
    }

    /// Whether that is fewer than the most.
    pub(crate) fn is_lowered(&self) -> bool {
        self.open_limit() < self.most
    }

    /// Whether it is closed, the time of a probe included.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// When a closed downstream is retried, if that is to come.
    pub(crate) fn probe_at(&self, now: BootInstant) -> Option<BootInstant> {
        self.closed
            .map(|closed| closed.until)
            .filter(|until| *until > now)
    }

    /// An attempt ended that began at `began`, one of `running`. An attempt that began before the
    /// last change reflects the time before it: many that fail together count as one.
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
                    let used = self.limit.min(as_float(running.max(1)));
                    self.limit = (used / 2.0).max(1.0);
                    self.lowered = now;
                }
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
        self.closed = Some(Closed {
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
        control.note(Signal::Busy, at(11), 20, at(20));
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
