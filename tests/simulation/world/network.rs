//! What befalls a call on its way: how long it takes, whether it arrives, whether it is answered.

use super::World;
use crate::circumstances::Met;
use std::time::Duration;

/// What the network does to one call.
#[derive(Debug, Clone, Copy)]
pub struct Passage {
    pub to: Duration,
    pub back: Duration,
    pub arrives: bool,
    pub answered: bool,
    pub throttled: bool,
    /// It arrives twice, and the second answer counts.
    pub repeated: bool,
}

impl World {
    pub fn passage(&mut self, queue: usize) -> Passage {
        let ms = Duration::from_millis;
        let far = self.flavour(queue).is_far();
        let near = if far { (ms(1), ms(30)) } else { (ms(0), ms(1)) };
        let mut passage = Passage {
            to: self.between(near.0, near.1),
            back: self.between(near.0, near.1),
            arrives: true,
            answered: true,
            throttled: false,
            repeated: false,
        };
        let faults = self.scenario.faults;
        passage.throttled = self.roll(faults.throttle, Met::Throttle);
        if far {
            passage.repeated = self.roll(faults.repeat, Met::CallTwice);
            passage.arrives = !self.roll(faults.lost_request, Met::LostRequest);
            passage.answered = !self.roll(faults.lost_answer, Met::LostAnswer);
            if self.roll(faults.hang, Met::Hang) {
                passage.to = self.between(ms(500), ms(40_000));
            }
            if self.roll(faults.late_answer, Met::LateAnswer) {
                passage.back = self.between(ms(100), ms(15_000));
            }
        }
        passage
    }
}
