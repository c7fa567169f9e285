//! What a queue does at the moment a call takes effect: SQS, standard and FIFO, lists with leases,
//! and the embedded queue. How messages are delivered is in `receives`. Knows no network, and
//! nothing of what the program should do.

use super::{Gone, NONE, QueuedMessage, SimulatedDelivery, World};
use crate::circumstances::MetCircumstances;
use crate::scenario::{Flavour, SimulatedSend};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::Outcome;
use dispatcher_core::queue::{ItemError, VISIBILITY_CEILING};
use std::time::Duration;

/// So close to its ceiling a delivery is as good as there.
const NEAR: Duration = Duration::from_secs(60);

impl World {
    /// A message is sent.
    pub(crate) fn send(&mut self, sending: SimulatedSend) {
        let SimulatedSend { queue, group, .. } = sending;
        let now = clock::now();
        let is_tag = |group: &u16| self.scenario.is_tag(queue, *group);
        self.messages.push(QueuedMessage {
            queue,
            group: group.filter(|group| !is_tag(group)),
            tag: group.filter(is_tag),
            tenant: sending.tenant,
            priority: sending.priority,
            sent: clock::wall_clock_now(),
            visible: now,
            latest: None,
            receives: 0,
            gone: None,
            dead_lettered: None,
            done: false,
            shed: false,
            tries: 0,
        });
        self.note("sent", NONE, queue, vec![self.messages.len() - 1]);
        self.notifiers[queue].notify_waiters();
    }

    /// When a message of this queue becomes visible next.
    pub(crate) fn next_visible(&self, queue: usize, now: BootInstant) -> Option<BootInstant> {
        let here = self.messages.iter().filter(|one| one.queue == queue);
        let later = here.filter(|one| one.gone.is_none() && one.visible > now);
        later.map(|one| one.visible).min()
    }

    /// One entry of an extension takes effect.
    pub(crate) fn extend(&mut self, delivery: usize, time: Duration) -> Result<(), ItemError> {
        self.hide(delivery, time, "extends")?;
        self.deliveries[delivery].leased = clock::now() + time;
        Ok(())
    }

    /// One entry of a settlement takes effect.
    pub(crate) fn settle(&mut self, delivery: usize, outcome: &Outcome) -> Result<(), ItemError> {
        match outcome {
            Outcome::Release(after) => {
                let seconds =
                    Duration::from_secs(after.as_secs() + u64::from(after.subsec_nanos() > 0));
                self.hide(delivery, seconds, "releases")
            }
            Outcome::Delete => self.delete(delivery),
            Outcome::DeadLetter(why) => self.dead_letter(delivery, why),
        }
    }

    /// Makes a message visible so long from now.
    fn hide(
        &mut self,
        delivery: usize,
        time: Duration,
        what: &'static str,
    ) -> Result<(), ItemError> {
        let now = clock::now();
        let SimulatedDelivery {
            message,
            handed,
            life,
            ..
        } = self.deliveries[delivery];
        let queue = self.messages[message].queue;
        if self.messages[message].gone.is_some() {
            return Err(ItemError::Gone("the message is gone".into()));
        }
        if self.messages[message].latest != Some(delivery) {
            return self.stale(delivery);
        }
        self.deliveries[delivery].changed = true;
        let releases = what == "releases";
        if self.flavour(queue) == Flavour::Local {
            // Whoever was not overtaken may come late; to release twice is harmless.
            match self.deliveries[delivery].released {
                true if releases => return Ok(()),
                true => return Err(ItemError::Gone("the message has been released".into())),
                false => {}
            }
        } else if self.messages[message].visible <= now {
            return Err(ItemError::Gone("the message is not in flight".into()));
        }
        if now + time > handed + VISIBILITY_CEILING {
            return Err(ItemError::Refused("Total VisibilityTimeout".into()));
        }
        if now + time + NEAR > handed + VISIBILITY_CEILING {
            self.met.insert(MetCircumstances::Ceiling);
        }
        self.messages[message].visible = now + time;
        self.deliveries[delivery].until = now + time;
        self.deliveries[delivery].released = releases;
        self.note_with(what, life, queue, vec![message], format!("{time:?}"));
        self.notifiers[queue].notify_waiters();
        Ok(())
    }

    /// A receipt that is not the newest: refused, or accepted without effect.
    fn stale(&mut self, delivery: usize) -> Result<(), ItemError> {
        self.deliveries[delivery].misled = true;
        self.met.insert(MetCircumstances::StaleReceipt);
        let fenced = self.flavour(self.queue_of(delivery)).is_exact();
        if !fenced && self.rng.u32(0..1_000) < self.scenario.faults.silent {
            self.met.insert(MetCircumstances::SilentStale);
            Ok(())
        } else {
            Err(ItemError::Gone("the receipt is not the newest".into()))
        }
    }

    fn delete(&mut self, delivery: usize) -> Result<(), ItemError> {
        let now = clock::now();
        let SimulatedDelivery { message, life, .. } = self.deliveries[delivery];
        let QueuedMessage {
            queue,
            visible,
            latest,
            gone,
            ..
        } = self.messages[message];
        if gone.is_some() {
            return Ok(());
        }
        if latest != Some(delivery) {
            return self.stale(delivery);
        }
        let strict = matches!(self.flavour(queue), Flavour::Fifo | Flavour::Redis);
        if (strict && visible <= now) || self.deliveries[delivery].released {
            return Err(ItemError::Gone("the receipt has run out".into()));
        }
        self.messages[message].gone = Some(Gone::Deleted(now));
        self.note("deletes", life, queue, vec![message]);
        self.notifiers[queue].notify_waiters();
        Ok(())
    }

    /// Sends a copy to the dead-letter queue, then deletes: on SQS two steps.
    fn dead_letter(&mut self, delivery: usize, why: &str) -> Result<(), ItemError> {
        let now = clock::now();
        let SimulatedDelivery {
            message,
            life,
            until,
            ..
        } = self.deliveries[delivery];
        let queue = self.messages[message].queue;
        let plan = &self.scenario.queues[queue];
        if !plan.dead_letters && !plan.takes_dead() {
            return Err(ItemError::Refused("no dead-letter queue".into()));
        }
        let stale = self.messages[message].latest != Some(delivery) || until <= now;
        if self.flavour(queue).is_exact() && stale {
            return Err(ItemError::Gone("the receipt has run out".into()));
        }
        if self.lives[life].dead_lettered.insert(message) {
            self.messages[message].dead_lettered = Some(why.to_owned());
            self.note_with("buries", life, queue, vec![message], why.to_owned());
        }
        let often = self.scenario.faults.entry;
        if !self.flavour(queue).is_exact() && self.roll(often, MetCircumstances::FailedEntry) {
            return Err(ItemError::Transient(
                "copied to the dead-letter queue and not deleted".into(),
            ));
        }
        self.delete(delivery)
    }

    /// The date of the machine is set. Queues keep time, the embedded one its own, so that nothing
    /// of them changes.
    pub(crate) fn set_date(&mut self, on_ms: i64) {
        self.note_with("the date is set", NONE, NONE, vec![], format!("{on_ms} ms"));
        clock::simulated::set_date(on_ms);
        self.met.insert(if on_ms > 0 {
            MetCircumstances::DateOn
        } else {
            MetCircumstances::DateBack
        });
    }
}
