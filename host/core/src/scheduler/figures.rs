//! The gauges that a scheduler reports about its control loop. Pure.

use super::Scheduler;
use super::ready::Waiting;
use std::time::Duration;

/// How the control of one route stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// The median time that an attempt takes a worker, after a pause the last known; `None` before the
    /// first has ended.
    pub hand_over: Option<Duration>,
    /// Messages held, started or not.
    pub in_flight: usize,
    /// The most of them.
    pub in_flight_limit: usize,
    /// Running attempts.
    pub attempts: usize,
    /// The most of them.
    pub attempts_limit: usize,
    /// Whether the circuit is open: nothing is started but probes.
    pub circuit_open: bool,
    /// How long few permits are left to collect before they are asked for.
    pub wait: Duration,
    /// Outstanding receives.
    pub polls: usize,
}

impl<J: Waiting> Scheduler<J> {
    /// How its control stands now.
    pub fn figures(&self) -> Figures {
        let reserved: usize = self.lanes.iter().map(|lane| lane.reserved).sum();
        Figures {
            hand_over: self.pace.last_known(),
            // What a poll has reserved has not come yet.
            in_flight: self.permits.used().saturating_sub(reserved),
            in_flight_limit: self.permits.capacity(),
            attempts: self.lanes.iter().map(|lane| lane.attempts).sum(),
            attempts_limit: self.control.open_limit(),
            circuit_open: self.control.is_closed(),
            wait: self.longest_batching_delay(),
            polls: self.lanes.iter().map(|lane| lane.polls).sum(),
        }
    }
}
