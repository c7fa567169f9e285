//! What must hold of a message's age: the newest first where the route says so, nothing too old
//! started, nothing shed before its time.

use super::{World, WorldAnswer};
use crate::circumstances::MetCircumstances;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::Outcome;
use std::time::Duration;

/// How the reason of a dead letter begins that was shed.
const OLDER: &str = "older than ";

impl World {
    /// Of what waited at hand and could start, the one that was sent last starts first.
    pub(crate) fn check_newest(
        &mut self,
        life: usize,
        queue: usize,
        starting: &[usize],
        now: BootInstant,
    ) {
        let sent = |one: usize| self.messages[self.deliveries[one].message].sent;
        let alone = |one: usize| self.group_of(self.deliveries[one].message).is_none();
        let ages = starting.iter().filter(|&&one| alone(one));
        let Some(oldest) = ages.map(|&one| sent(one)).min() else {
            return;
        };
        // What waits for others to share its attempt does not keep an older one from starting that has
        // waited for limits meanwhile.
        let window = Duration::from_millis(self.scenario.route.window_ms);
        let window = self
            .scenario
            .fleet
            .as_ref()
            .map_or(Duration::ZERO, |_| window);
        let gathers = |reached: BootInstant| now.since(reached) < window;
        let waits = |one: usize| {
            let delivery = &self.deliveries[one];
            delivery.life == life
                && !delivery.reached.is_some_and(gathers)
                && self.queue_of(one) == queue
                && delivery.reached.is_some_and(|at| at + self.moment() < now)
                && delivery.tried.is_empty()
                && !starting.contains(&one)
                && alone(one)
                && self.is_surely_held(one, now)
                && !self.is_needless(life, one)
        };
        let waiting: Vec<usize> = self.open.iter().copied().filter(|&at| waits(at)).collect();
        let first = waiting.iter().any(|&one| sent(one) < oldest);
        // Of those that need the same of the fleet's limits, and of one tenant.
        let passes = |one: usize| {
            let same = starting
                .iter()
                .filter(|&&other| alone(other) && self.keeps_order(one, other));
            let oldest = same.map(|&other| sent(other)).min();
            oldest.is_some_and(|oldest| oldest < sent(one))
        };
        let passed = waiting.iter().copied().find(|&one| passes(one));
        // What is about to go back, because too many wait for limits, is passed.
        let passed = passed.filter(|_| !self.too_many_wait(life, queue));
        if first {
            self.met.insert(MetCircumstances::NewestFirst);
        }
        let excused = self.lives[life].stopping || self.lives[life].was_paused[queue];
        if let Some(one) = passed.filter(|_| !excused) {
            let why = format!("message {} waits", self.deliveries[one].message);
            self.fails("newest-first", why);
        }
    }

    /// An attempt begins on a delivery.
    pub(crate) fn check_age(&mut self, life: usize, delivery: usize, now: BootInstant) {
        let one = &self.deliveries[delivery];
        let (message, old) = (one.message, one.expires + self.moment() <= now);
        if old {
            let why = format!("message {message}, delivery {delivery}");
            self.fails("started-too-old", why);
        }
        if self.lives[life].shed.contains(&message) {
            let why = format!("message {message} runs after it was dropped");
            self.fails("shed-two-ways", why);
        }
    }

    /// Whether a message is too old for whoever has it or would receive it now.
    pub(crate) fn is_too_old(&self, message: usize, now: BootInstant) -> bool {
        let Some(age) = self.scenario.route.max_age_ms else {
            return false;
        };
        let stored = &self.messages[message];
        let here = stored.latest.map(|latest| &self.deliveries[latest]);
        let by_date = stored.sent + Duration::from_millis(age) <= clock::wall_clock_now();
        by_date || here.is_some_and(|here| here.expires <= now)
    }

    /// Whether an outcome sheds a message, and if so, whether it may.
    pub(crate) fn judge_shed(
        &self,
        life: usize,
        delivery: usize,
        said: Option<&WorldAnswer>,
        outcome: &Outcome,
    ) -> Option<Result<(), &'static str>> {
        let one = &self.deliveries[delivery];
        let plan = &self.scenario.route;
        plan.max_age_ms?;
        let drops = *outcome == Outcome::Delete;
        let sheds = match outcome {
            Outcome::Delete => !self.messages[one.message].done,
            Outcome::DeadLetter(why) => why.starts_with(OLDER),
            Outcome::Release(_) => false,
        };
        let again = self.lives[life].shed.contains(&one.message);
        sheds.then(|| {
            if drops != plan.drops {
                Err("shed-two-ways")
            } else if !matches!(said, None | Some(WorldAnswer::Kept)) && !self.pauses(delivery) {
                Err("shed-after-an-attempt")
            } else if clock::now() + self.moment() < one.expires && !again {
                Err("shed-early")
            } else {
                Ok(())
            }
        })
    }

    /// Whether a delivery may be one that failed and pauses before its next attempt, or waits behind
    /// such a one.
    fn pauses(&self, delivery: usize) -> bool {
        let message = self.deliveries[delivery].message;
        self.group_of(message).is_some()
    }

    /// A message is shed, as it may be.
    pub(crate) fn sheds(&mut self, life: usize, delivery: usize, outcome: &Outcome) {
        let message = self.deliveries[delivery].message;
        let held = !self.deliveries[delivery].tried.is_empty();
        self.met.insert(if held {
            MetCircumstances::ShedWhileHeld
        } else {
            MetCircumstances::Shed
        });
        if *outcome == Outcome::Delete {
            self.messages[message].shed = true;
            self.lives[life].shed.insert(message);
        }
    }
}
