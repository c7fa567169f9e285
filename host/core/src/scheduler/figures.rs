//! The gauges that a scheduler reports about its control loop. Pure.

use super::Scheduler;
use super::ready::WaitingJob;
use crate::clock::BootInstant;
use std::time::Duration;

/// The state of one route's control loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// The median time that an attempt takes a worker; after a pause, the last known one. `None`
    /// before the first attempt has ended.
    pub hand_over: Option<Duration>,
    /// The number of held messages, started or not.
    pub in_flight: usize,
    /// The maximum of that number.
    pub in_flight_limit: usize,
    /// The number of running attempts.
    pub attempts: usize,
    /// The maximum of that number.
    pub attempts_limit: usize,
    /// Whether the circuit is open: only probes are started.
    pub circuit_open: bool,
    /// The time for which few permits are collected before they are used for a receive.
    pub wait: Duration,
    /// The number of outstanding receives.
    pub polls: usize,
}

impl<J: WaitingJob> Scheduler<J> {
    /// Returns the present gauges.
    pub fn figures(&self) -> Figures {
        let reserved: usize = self.lanes.iter().map(|lane| lane.reserved).sum();
        Figures {
            hand_over: self.pace.last_known(),
            // The messages that a poll has reserved permits for have not arrived yet.
            in_flight: self.permits.used().saturating_sub(reserved),
            in_flight_limit: self.permits.capacity(),
            attempts: self.lanes.iter().map(|lane| lane.attempts).sum(),
            attempts_limit: self.open_attempts_limit(),
            circuit_open: self.control.is_closed(),
            wait: self.longest_batching_delay(),
            polls: self.lanes.iter().map(|lane| lane.polls).sum(),
        }
    }

    /// Whether a job may start now, but no worker is about to look for one. Once nothing is received
    /// any more, it is always false.
    pub fn is_late(&self, now: BootInstant) -> bool {
        if self.stopped || !self.may_hire(now) {
            return false;
        }
        for lane in self.lanes.active() {
            if lane.startable(now) || (lane.held.is_due(now) && !lane.is_limited(now)) {
                return true;
            }
            if self.order.is_strict() && lane.is_urgent(lane.may_hold(), now) {
                return false;
            }
        }
        false
    }
}
