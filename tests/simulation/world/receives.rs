//! How queues hand messages out: in which order, how many, which ones when there are groups, and
//! the same again where SQS is asked with the id of an earlier receive.

use super::{Gone, NONE, QueuedMessage, SimulatedDelivery, World};
use crate::circumstances::MetCircumstances;
use crate::scenario::Flavour;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A deleted message may be delivered once more within this.
const RISES: Duration = Duration::from_secs(60);
/// SQS knows the id of a receive for this long.
const KNOWS_IDS: Duration = Duration::from_secs(300);

/// What is to be delivered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub queue: usize,
    pub life: usize,
    pub max: usize,
    pub visibility: Duration,
    /// The id of the receive, where it has one.
    pub attempt: Option<u64>,
    /// It was made before with this id, and for as many.
    pub again: bool,
    /// What was sent last is wanted first, which the embedded queue can do.
    pub newest_first: bool,
    /// A short poll of SQS, which looks at some of the servers.
    pub samples: bool,
}

/// What a receive with an id has brought.
#[derive(Debug, Clone)]
pub(crate) struct KnownReceive {
    pub at: BootInstant,
    pub deliveries: Vec<usize>,
}

/// A queue, a priority, and a tenant.
type GivenAccount = (usize, u8, Option<u16>);

/// How many messages each tenant was given, divided by its weight.
#[derive(Debug, Default)]
pub(crate) struct GivenMessages {
    sums: BTreeMap<GivenAccount, u64>,
    /// What the last tenant had before, by queue and priority. A new one counts as having as much.
    last: BTreeMap<(usize, u8), u64>,
}

impl GivenMessages {
    fn sum(&self, account: GivenAccount) -> u64 {
        let last = self.last.get(&(account.0, account.1));
        let own = self.sums.get(&account);
        own.max(last).copied().unwrap_or_default()
    }

    fn pay(&mut self, account: GivenAccount, weight: u32) {
        let sum = self.sum(account);
        self.last.insert((account.0, account.1), sum);
        self.sums
            .insert(account, sum + 1_000_000 / u64::from(weight));
    }
}

impl World {
    /// Hands messages out; answers with their deliveries.
    pub(crate) fn take(&mut self, want: Want) -> Vec<usize> {
        let now = clock::now();
        let (messages, deliveries) = (&self.messages, &self.deliveries);
        self.open.retain(|&one| {
            let message = &messages[deliveries[one].message];
            let newest = message.latest == Some(one) && message.gone.is_none();
            newest && deliveries[one].told.is_none()
        });
        if let Some(again) = want
            .attempt
            .and_then(|id| self.repeat_receive(id, want, now))
        {
            return again;
        }
        let mut chosen = self.choose(want, now);
        if self.scenario.shares_out(want.queue) {
            chosen = self.in_turn(chosen, want, now);
        }
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
            if let Some(id) = want.attempt {
                let deliveries = handed.clone();
                self.told.insert(
                    id,
                    KnownReceive {
                        at: now,
                        deliveries,
                    },
                );
            }
        }
        handed
    }

    fn choose(&mut self, want: Want, now: BootInstant) -> Vec<usize> {
        let flavour = self.flavour(want.queue);
        let here = self.messages.iter().enumerate();
        let mut here: Vec<usize> = here
            .filter(|(_, one)| one.queue == want.queue && one.gone.is_none())
            .map(|(at, _)| at)
            .collect();
        let hidden = |world: &Self, at: usize| world.messages[at].visible > now;
        let in_flight = here.iter().filter(|&&at| hidden(self, at)).count();
        let most = self.scenario.queues[want.queue].in_flight;
        let free = if flavour.is_exact() {
            usize::MAX
        } else {
            most.saturating_sub(in_flight)
        };
        if free == 0 {
            self.met.insert(MetCircumstances::FullInFlight);
        }
        if flavour == Flavour::Standard {
            let mut seen: Vec<usize> = here
                .iter()
                .copied()
                .filter(|&at| !hidden(self, at))
                .collect();
            seen.sort_by_key(|&at| self.messages[at].visible);
            let disorder = self.scenario.faults.disorder;
            if self.roll(disorder, MetCircumstances::Disorder) {
                self.rng.shuffle(&mut seen);
            }
            if want.samples {
                self.met.insert(MetCircumstances::ShortPoll);
                seen.retain(|_| self.rng.u32(0..10) < 7);
            }
            seen.truncate(free);
            self.duplicate(want, &mut seen, now);
            return seen;
        }
        if flavour == Flavour::Redis {
            // What comes back has its old place.
            here.retain(|&at| !hidden(self, at));
            return here;
        }
        // A group gives nothing from its first message on that is hidden; the embedded queue gives one.
        let mut shut: BTreeSet<u16> = BTreeSet::new();
        let shares_groups = self.scenario.shares_groups();
        here.retain(|&at| {
            let group = self.messages[at].group.filter(|_| !shares_groups);
            let open = !hidden(self, at) && group.is_none_or(|group| !shut.contains(&group));
            if !open || flavour == Flavour::Local {
                shut.extend(group);
            }
            open
        });
        if flavour == Flavour::Local {
            here.sort_by_key(|&at| self.messages[at].visible);
            if want.newest_first {
                here.sort_by_key(|&at| std::cmp::Reverse(self.messages[at].sent));
            }
        }
        here.truncate(free);
        here
    }

    /// Puts messages in the order of a queue that shares out: first those that have waited for too
    /// long, then those of the most urgent priority, of the tenant that was given least for its weight.
    fn in_turn(&mut self, mut here: Vec<usize>, want: Want, now: BootInstant) -> Vec<usize> {
        let rules = self.lives[want.life].turns.rules(want.queue);
        let by_group = self.scenario.shares_groups();
        let tenant = |world: &Self, at: usize| world.tenant_of(at).filter(|_| by_group);
        here.retain(|&at| !rules.is_parked(tenant(self, at)));
        let overdue = |world: &Self, at: usize| {
            let wait = world.longest_wait(at)?;
            Some(world.messages[at].visible + wait).filter(|at| *at <= now)
        };
        let mut chosen: Vec<usize> = here.clone();
        chosen.retain(|&at| overdue(self, at).is_some());
        chosen.sort_by_key(|&at| overdue(self, at));
        here.retain(|at| !chosen.contains(at));
        while chosen.len() < want.max && !here.is_empty() {
            let account =
                |world: &Self, at: usize| (want.queue, world.priority_of(at), tenant(world, at));
            let turn = |&at: &usize| {
                (
                    self.priority_of(here[at]),
                    self.given.sum(account(self, here[at])),
                )
            };
            let next = (0..here.len()).min_by_key(turn).unwrap_or_default();
            let message = here.remove(next);
            let weight = rules.weight(tenant(self, message));
            self.given.pay(account(self, message), weight);
            chosen.push(message);
        }
        chosen
    }

    /// Whether SQS refuses a short poll, since too much is in flight.
    pub(crate) fn is_over_the_limit(&self, queue: usize) -> bool {
        let now = clock::now();
        let hidden =
            |one: &&QueuedMessage| one.queue == queue && one.gone.is_none() && one.visible > now;
        let in_flight = self.messages.iter().filter(hidden).count();
        let plan = &self.scenario.queues[queue];
        plan.flavour == Flavour::Standard && in_flight >= plan.in_flight
    }

    /// What an earlier receive with the same id brought, if nothing has happened to it since.
    fn repeat_receive(&mut self, id: u64, want: Want, now: BootInstant) -> Option<Vec<usize>> {
        let told = self.told.get(&id)?;
        let untouched = |&one: &usize| {
            let delivery = &self.deliveries[one];
            !delivery.changed && self.is_kept(one, now)
        };
        if now.since(told.at) >= KNOWS_IDS || !told.deliveries.iter().all(untouched) {
            return None;
        }
        let deliveries = told.deliveries.clone();
        self.met.insert(MetCircumstances::ToldAgain);
        for &one in &deliveries {
            let until = now + want.visibility;
            let delivery = &mut self.deliveries[one];
            (delivery.until, delivery.leased, delivery.renewed) = (until, until, now);
            delivery.again = true;
            let message = delivery.message;
            self.messages[message].visible = until;
        }
        let of = self.messages_of(&deliveries);
        self.note("hands out again", want.life, want.queue, of);
        Some(deliveries)
    }

    /// Now and then something is delivered that should not be.
    fn duplicate(&mut self, want: Want, seen: &mut Vec<usize>, now: BootInstant) {
        let often = self.scenario.faults.duplicate;
        if !self.roll(often, MetCircumstances::Duplicate) {
            return;
        }
        let stray = |one: &QueuedMessage| match one.gone {
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

    fn hand(&mut self, message: usize, want: Want, now: BootInstant) -> Option<usize> {
        let redrive = self.scenario.queues[want.queue].redrive;
        let stored = &mut self.messages[message];
        if redrive.is_some_and(|most| stored.receives >= most) {
            stored.gone = Some(Gone::Redriven);
            self.met.insert(MetCircumstances::Redriven);
            self.note("redrives", NONE, want.queue, vec![message]);
            self.check_redriven(message);
            return None;
        }
        stored.receives += 1;
        stored.visible = now + want.visibility;
        let delivery = SimulatedDelivery {
            message,
            life: want.life,
            handed: now,
            renewed: now,
            again: want.again,
            changed: false,
            released: false,
            until: now + want.visibility,
            leased: now + want.visibility,
            count: stored.receives,
            misled: false,
            reached: None,
            expires: BootInstant::from_boot(Duration::MAX),
            hastens: BootInstant::from_boot(Duration::MAX),
            known: false,
            tried: Vec::new(),
            told: None,
            excused: false,
            confirmed: false,
            extensions: 0,
            heard: now,
            extending: 0,
            unheard: None,
            refused: false,
        };
        let number = self.deliveries.len();
        self.check_handed(message, now);
        self.messages[message].latest = Some(number);
        self.deliveries.push(delivery);
        self.open.push(number);
        Some(number)
    }
}
