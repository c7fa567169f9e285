//! What a scheduler tells of its control. Pure.

use super::Scheduler;
use super::ready::Waiting;
use crate::telemetry::routes::Figures;

impl<J: Waiting> Scheduler<J> {
    /// How its control stands now.
    pub fn figures(&self) -> Figures {
        let reserved: usize = self.lanes.iter().map(|lane| lane.reserved).sum();
        Figures {
            hand_over: self.pace.hand_over(),
            // What a poll has reserved has not come yet.
            in_flight: self.room.used().saturating_sub(reserved),
            in_flight_limit: self.room.capacity(),
            attempts: self.lanes.iter().map(|lane| lane.attempts).sum(),
            attempts_limit: self.control.open_limit(),
            wait: self.longest_gathering_time(),
            polls: self.lanes.iter().map(|lane| lane.polls).sum(),
        }
    }
}
