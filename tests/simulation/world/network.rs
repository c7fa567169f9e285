//! What happens to a call on its way: how long it takes, whether it arrives, whether it is answered.

use super::{Sim, World};
use crate::circumstances::MetCircumstances;
use std::time::Duration;

/// What the network does to one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passage {
    pub to: Duration,
    pub back: Duration,
    pub arrives: bool,
    pub answered: bool,
    pub throttled: bool,
    /// It arrives twice, and the second answer counts.
    pub repeated: bool,
}

/// A call that extends these, for as long as the process waits for its answer.
pub(crate) struct ExtendCall {
    sim: Sim,
    deliveries: Vec<usize>,
}

impl ExtendCall {
    pub(crate) fn of(sim: &Sim, deliveries: &[usize]) -> Self {
        let mut world = sim.lock();
        for &one in deliveries {
            world.deliveries[one].extending += 1;
        }
        let (sim, deliveries) = (sim.clone(), deliveries.to_vec());
        Self { sim, deliveries }
    }
}

impl Drop for ExtendCall {
    fn drop(&mut self) {
        let mut world = self.sim.lock();
        for &one in &self.deliveries {
            world.deliveries[one].extending -= 1;
        }
    }
}

impl World {
    /// What is told takes seconds to arrive, now and then.
    pub(crate) fn slows(&mut self, passage: &mut Passage) {
        let often = self.scenario.faults.slow_settle;
        if self.roll(often, MetCircumstances::SlowSettle) {
            passage.to = self.between(Duration::from_secs(2), Duration::from_secs(8));
        }
    }

    pub(crate) fn passage(&mut self, queue: usize) -> Passage {
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
        passage.throttled = self.roll(faults.throttle, MetCircumstances::Throttle);
        if far {
            passage.repeated = self.roll(faults.repeat, MetCircumstances::CallTwice);
            passage.arrives = !self.roll(faults.lost_request, MetCircumstances::LostRequest);
            passage.answered = !self.roll(faults.lost_answer, MetCircumstances::LostAnswer);
            if self.roll(faults.hang, MetCircumstances::Hang) {
                passage.to = self.between(ms(500), ms(40_000));
            }
            if self.roll(faults.late_answer, MetCircumstances::LateAnswer) {
                passage.back = self.between(ms(100), ms(15_000));
            }
        }
        passage
    }
}
