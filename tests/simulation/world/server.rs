//! What a queue does at the moment a call takes effect: SQS, standard and FIFO, and the embedded
//! queue. Knows no network, and nothing of what the program should do.

use super::{Delivery, Gone, NONE, Stored, World};
use crate::scenario::Flavour;
use dispatcher::clock::{self, Moment};
use dispatcher::message::Outcome;
use dispatcher::queue::{ItemError, VISIBILITY_CEILING};
use std::collections::BTreeSet;
use std::time::Duration;

/// A deleted message may be delivered once more within this.
const RISES: Duration = Duration::from_secs(60);

/// What is to be handed out.
#[derive(Debug, Clone, Copy)]
pub struct Want {
    pub queue: usize,
    pub life: usize,
    pub max: usize,
    pub visibility: Duration,
    /// A short poll of SQS, which looks at some of the servers.
    pub samples: bool,
}

impl World {
    /// A message is sent.
    pub fn send(&mut self, queue: usize, group: Option<u16>) {
        let now = clock::now();
        self.messages.push(Stored {
            queue,
            group,
            visible: now,
            latest: None,
            receives: 0,
            gone: None,
            buried: None,
            done: false,
            tries: 0,
        });
        self.note("sent", NONE, queue, vec![self.messages.len() - 1]);
        self.bells[queue].notify_waiters();
    }

    /// When a message of this queue becomes visible next.
    pub fn next_visible(&self, queue: usize, now: Moment) -> Option<Moment> {
        let here = self.messages.iter().filter(|one| one.queue == queue);
        let later = here.filter(|one| one.gone.is_none() && one.visible > now);
        later.map(|one| one.visible).min()
    }

    /// Hands messages out; answers with their deliveries.
    pub fn take(&mut self, want: Want) -> Vec<usize> {
        let now = clock::now();
        let mut chosen = self.choose(want, now);
        chosen.truncate(want.max);
        let handed = chosen
            .into_iter()
            .filter_map(|message| self.hand(message, want, now));
        let handed: Vec<usize> = handed.collect();
        if !handed.is_empty() {
            let of = handed
                .iter()
                .map(|&one| self.deliveries[one].message)
                .collect();
            self.note("hands out", want.life, want.queue, of);
        }
        handed
    }

    fn choose(&mut self, want: Want, now: Moment) -> Vec<usize> {
        let flavour = self.flavour(want.queue);
        let here = self.messages.iter().enumerate();
        let mut here: Vec<usize> = here
            .filter(|(_, one)| one.queue == want.queue && one.gone.is_none())
            .map(|(at, _)| at)
            .collect();
        let hidden = |world: &Self, at: usize| world.messages[at].visible > now;
        let in_flight = here.iter().filter(|&&at| hidden(self, at)).count();
        let free = self.scenario.queues[want.queue]
            .in_flight
            .saturating_sub(in_flight);
        if flavour == Flavour::Standard {
            let mut seen: Vec<usize> = here
                .iter()
                .copied()
                .filter(|&at| !hidden(self, at))
                .collect();
            seen.sort_by_key(|&at| self.messages[at].visible);
            let disorder = self.scenario.faults.disorder;
            if self.roll(disorder) {
                self.rng.shuffle(&mut seen);
            }
            if want.samples {
                seen.retain(|_| self.rng.u32(0..10) < 7);
            }
            seen.truncate(free);
            self.duplicate(want, &mut seen, now);
            return seen;
        }
        // A group of which something is hidden gives nothing more; the embedded queue gives one.
        let mut shut: BTreeSet<u16> = BTreeSet::new();
        for &at in &here {
            if hidden(self, at) {
                shut.extend(self.messages[at].group);
            }
        }
        here.retain(|&at| {
            let group = self.messages[at].group;
            let open = !hidden(self, at) && group.is_none_or(|group| !shut.contains(&group));
            if flavour == Flavour::Local {
                shut.extend(group);
            }
            open
        });
        here.truncate(free);
        here
    }

    /// Now and then something is delivered that should not be.
    fn duplicate(&mut self, want: Want, seen: &mut Vec<usize>, now: Moment) {
        let often = self.scenario.faults.duplicate;
        if !self.roll(often) {
            return;
        }
        let stray = |one: &Stored| match one.gone {
            None => one.visible > now,
            Some(Gone::Deleted(at)) => now.since(at) < RISES,
            Some(Gone::Redriven) => false,
        };
        let here = self.messages.iter().enumerate();
        let strays: Vec<usize> = here
            .filter(|(_, one)| one.queue == want.queue && one.latest.is_some() && stray(one))
            .map(|(at, _)| at)
            .collect();
        if !strays.is_empty() {
            let at = strays[self.rng.usize(0..strays.len())];
            self.note("delivers once more", want.life, want.queue, vec![at]);
            self.messages[at].gone = None;
            if let Some(before) = self.messages[at].latest {
                self.deliveries[before].misled = true;
            }
            seen.insert(0, at);
        }
    }

    fn hand(&mut self, message: usize, want: Want, now: Moment) -> Option<usize> {
        let redrive = self.scenario.queues[want.queue].redrive;
        let stored = &mut self.messages[message];
        if redrive.is_some_and(|most| stored.receives >= most) {
            stored.gone = Some(Gone::Redriven);
            self.note("redrives", NONE, want.queue, vec![message]);
            return None;
        }
        stored.receives += 1;
        stored.visible = now + want.visibility;
        let delivery = Delivery {
            message,
            life: want.life,
            handed: now,
            until: now + want.visibility,
            leased: now + want.visibility,
            count: stored.receives,
            misled: false,
            reached: None,
            tried: Vec::new(),
            told: None,
            confirmed: false,
            extensions: 0,
            unheard: None,
            refused: false,
        };
        let number = self.deliveries.len();
        self.check_handed(message, now);
        self.messages[message].latest = Some(number);
        self.deliveries.push(delivery);
        Some(number)
    }

    /// One entry of an extension takes effect.
    pub fn extend(&mut self, delivery: usize, time: Duration) -> Result<(), ItemError> {
        self.hide(delivery, time, "extends")?;
        self.deliveries[delivery].leased = clock::now() + time;
        Ok(())
    }

    /// One entry of a settlement takes effect.
    pub fn settle(&mut self, delivery: usize, outcome: &Outcome) -> Result<(), ItemError> {
        match outcome {
            Outcome::Release(after) => {
                let seconds =
                    Duration::from_secs(after.as_secs() + u64::from(after.subsec_nanos() > 0));
                self.hide(delivery, seconds, "releases")
            }
            Outcome::Delete => self.delete(delivery),
            Outcome::DeadLetter(why) => self.bury(delivery, why),
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
        let Delivery {
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
        if self.messages[message].visible <= now {
            return Err(ItemError::Gone("the message is not in flight".into()));
        }
        if now + time > handed + VISIBILITY_CEILING {
            return Err(ItemError::Refused("Total VisibilityTimeout".into()));
        }
        self.messages[message].visible = now + time;
        self.deliveries[delivery].until = now + time;
        self.note_with(what, life, queue, vec![message], format!("{time:?}"));
        self.bells[queue].notify_waiters();
        Ok(())
    }

    /// A receipt that is not the newest: refused, or accepted without effect.
    fn stale(&mut self, delivery: usize) -> Result<(), ItemError> {
        self.deliveries[delivery].misled = true;
        match self.rng.u32(0..1_000) < self.scenario.faults.silent {
            true => Ok(()),
            false => Err(ItemError::Gone("the receipt is not the newest".into())),
        }
    }

    fn delete(&mut self, delivery: usize) -> Result<(), ItemError> {
        let now = clock::now();
        let Delivery { message, life, .. } = self.deliveries[delivery];
        let Stored {
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
        if self.flavour(queue) == Flavour::Fifo && visible <= now {
            return Err(ItemError::Gone("the receipt has run out".into()));
        }
        self.messages[message].gone = Some(Gone::Deleted(now));
        self.note("deletes", life, queue, vec![message]);
        self.bells[queue].notify_waiters();
        Ok(())
    }

    /// Sends a copy to the dead-letter queue, then deletes: on SQS two steps.
    fn bury(&mut self, delivery: usize, why: &str) -> Result<(), ItemError> {
        let now = clock::now();
        let Delivery {
            message,
            life,
            until,
            ..
        } = self.deliveries[delivery];
        let queue = self.messages[message].queue;
        if !self.scenario.queues[queue].dead_letters {
            return Err(ItemError::Refused("no dead-letter queue".into()));
        }
        let stale = self.messages[message].latest != Some(delivery) || until <= now;
        if self.flavour(queue) == Flavour::Local && stale {
            return Err(ItemError::Gone("the receipt has run out".into()));
        }
        if self.lives[life].buried.insert(message) {
            self.messages[message].buried = Some(why.to_owned());
            self.note_with("buries", life, queue, vec![message], why.to_owned());
        }
        let often = self.scenario.faults.entry;
        if self.flavour(queue) != Flavour::Local && self.roll(often) {
            return Err(ItemError::Passing("buried and not deleted".into()));
        }
        self.delete(delivery)
    }
}
