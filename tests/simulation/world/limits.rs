//! What must hold of limits that hold for all processes together: how much runs and starts under each,
//! and that nothing runs on permits that the store no longer keeps.

use super::limit_store::StoredRecords;
use super::{Life, LiveAttempt, World, WorldAnswer};
use crate::circumstances::MetCircumstances;
use crate::scenario::{LimitPlan, QueuePlan, WeightPlan};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::collections::BTreeMap;
use std::time::Duration;

/// The store keeps permits for this long after the read that their request began with.
const LEASE: Duration = Duration::from_secs(15);
/// A process that hears nothing from the store keeps its permits at least this long after the start
/// of the read of its last request that was answered.
const STAYS: Duration = Duration::from_secs(10);
/// So many calls in vain precede the end of permits, since a request about any limit was answered.
const TRIES: u32 = 1;
/// A message whose limits are free starts within this: the longest time for which a process that has
/// crashed leaves permits behind, and for which another waits before it asks again.
const STARTS_WITHIN: Duration = Duration::from_secs(40);
/// A message that goes back because of limits comes again after at least and at most this.
const DEFERRED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(100));

/// A limit, and one of its keys.
pub(crate) type LimitAccount = (usize, Option<u16>);

/// The state of limits.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub records: StoredRecords,
    /// The starts under each, with their weights.
    starts: BTreeMap<LimitAccount, Vec<(BootInstant, u32)>>,
    /// When the store ends the permits of each process under each record.
    leases: BTreeMap<(usize, String), BootInstant>,
    /// When the store could be reached again, or was no more.
    pub reached: BootInstant,
    /// Since when each process has known of them.
    heard: BTreeMap<(usize, String), BootInstant>,
    /// When an attempt under each began or ended last.
    changed: BTreeMap<LimitAccount, BootInstant>,
    /// The permits of attempts that ended with their process.
    left: BTreeMap<LimitAccount, u32>,
}

impl LimitPlan {
    /// How much a message takes of it: no more than there is.
    fn weight(&self, message: usize) -> u32 {
        let weight = match self.weight {
            WeightPlan::Fixed(weight) => weight,
            WeightPlan::OfMessage => size(message),
        };
        let burst = self.rate.map_or(u32::MAX, |(_, burst)| burst);
        weight.min(self.concurrency.unwrap_or(u32::MAX)).min(burst)
    }
}

/// The weight that a message names.
pub(crate) fn size(message: usize) -> u32 {
    1 + u32::try_from(message / 2 % 3).unwrap_or_default()
}

/// The attribute in which a message says its key under a limit.
pub(crate) fn key_attribute(limit: usize) -> String {
    format!("key{limit}")
}

/// The record of an account.
fn record_name((limit, key): LimitAccount) -> String {
    key.map_or_else(
        || limit_name(limit),
        |key| format!("{}/{key}", limit_name(limit)),
    )
}

/// The name by which a process has permits.
pub(crate) fn holder_name(life: usize) -> String {
    format!("p{life}")
}

/// The name of a limit.
pub(crate) fn limit_name(limit: usize) -> String {
    format!("limit{limit}")
}

impl World {
    /// The key that a message names for a limit.
    fn key(&self, plan: &LimitPlan, message: usize) -> Option<u16> {
        if plan.by_tenant {
            return Some(self.tenant_of(message).map_or(0, |tenant| tenant + 1));
        }
        let keys = plan.keys?;
        Some(u16::try_from(message % usize::from(keys)).unwrap_or_default())
    }

    fn limit_plans(&self) -> &[LimitPlan] {
        let plan = self.scenario.fleet.as_ref();
        plan.map_or(&[], |plan| plan.limits.as_slice())
    }

    /// The accounts that a message needs, with its weight under each.
    fn needs(&self, message: usize) -> Vec<(LimitAccount, u32)> {
        let plans = self.limit_plans().iter().enumerate();
        plans
            .map(|(limit, plan)| ((limit, self.key(plan, message)), plan.weight(message)))
            .collect()
    }

    /// The keys that a message names, each with its limit.
    pub(crate) fn keys(&self, message: usize) -> Vec<(usize, u16)> {
        let plans = self.limit_plans().iter().enumerate();
        plans
            .filter_map(|(limit, plan)| Some((limit, self.key(plan, message)?)))
            .collect()
    }

    /// Whether two messages need the same of the same limits, so that one starts before the other.
    pub(crate) fn needs_the_same(&self, one: usize, other: usize) -> bool {
        self.needs(self.deliveries[one].message) == self.needs(self.deliveries[other].message)
    }

    /// Whether a process has a message of this queue in hand that may wait for limits.
    pub(crate) fn may_wait_for_limits(&self, life: usize, queue: usize) -> bool {
        let waits = |one: usize| {
            let delivery = &self.deliveries[one];
            delivery.life == life
                && delivery.reached.is_some()
                && delivery.told.is_none()
                && self.queue_of(one) == queue
        };
        self.scenario.fleet.is_some() && (0..self.deliveries.len()).any(waits)
    }

    /// How many messages a process may hold besides, because they wait for limits: they take no place
    /// from others.
    pub(crate) fn waiting_for_limits(&self, life: usize, here: &[usize]) -> usize {
        let Some(plan) = &self.scenario.fleet else {
            return 0;
        };
        let lanes = 0..self.scenario.queues.len();
        if self.suspended.is_some() {
            // The process may not know yet that it has lost what waits.
            return lanes.len() * plan.most_waiting;
        }
        let of = |lane: usize| {
            let waits = here.iter().filter(|&&one| {
                let idle = !self.attempts.values().any(|live| live.is_on(one));
                idle && self.deliveries[one].life == life && self.queue_of(one) == lane
            });
            waits.count().min(plan.most_waiting)
        };
        lanes.map(of).sum()
    }

    fn used(&self, account: LimitAccount) -> u32 {
        let live = self.attempts.values().flat_map(|live| &live.deliveries);
        let needs = live.flat_map(|&one| self.needs(self.deliveries[one].message));
        needs
            .filter(|(other, _)| *other == account)
            .map(|(_, weight)| weight)
            .sum()
    }

    /// An attempt has begun: all processes together keep to the limits.
    pub(crate) fn check_fleet(&mut self, life: usize, messages: &[usize], now: BootInstant) {
        let mut taken: BTreeMap<LimitAccount, u32> = BTreeMap::new();
        for &message in messages {
            for (account, weight) in self.needs(message) {
                *taken.entry(account).or_default() += weight;
            }
        }
        for (account, weight) in taken {
            let plan = self.limit_plans()[account.0];
            self.limits.changed.insert(account, now);
            if let Some(most) = plan.concurrency {
                self.check_permits(account, most);
            }
            let Some((per_second, burst)) = plan.rate else {
                continue;
            };
            let starts = self.limits.starts.entry(account).or_default();
            starts.push((now, weight));
            let mut sum = 0;
            let exceeded = starts.iter().rev().find_map(|&(at, weight)| {
                sum += weight;
                let window = now.since(at).as_secs_f64();
                let most = per_second * (window + 1.0) + f64::from(burst);
                (f64::from(sum) > most + 1e-6).then(|| format!("{sum} in {window:.3} s"))
            });
            if let Some(why) = exceeded {
                let why = format!("{why} under {}", record_name(account));
                self.fails("limit-of-starts", why);
            }
        }
        self.check_leases(life, messages, now);
    }

    /// An attempt is about to begin: nothing has kept its messages from starting for long. A rule for
    /// routes without anything else that keeps a message from starting.
    pub(crate) fn check_idle_limits(&mut self, life: usize, starting: &[usize], now: BootInstant) {
        let scenario = self.scenario.clone();
        let is_free = |queue: &QueuePlan| queue.rate.is_none() && queue.concurrency.is_none();
        let mix = scenario.mix;
        let others = mix.busy + mix.closed > 0 || self.closed || scenario.queues.len() > 1;
        let keeps = scenario.route.window_ms > 0
            || others
            || self.attempts.values().any(|live| live.life == life);
        if scenario.fleet.is_none() || keeps || !scenario.queues.iter().all(is_free) {
            return;
        }
        let held_up = [
            self.trouble_changed,
            self.suspended.unwrap_or_default(),
            self.limits.reached,
        ];
        let held_up = held_up.into_iter().max().unwrap_or_default();
        for &one in starting {
            let delivery = &self.deliveries[one];
            let alone = self.group_of(delivery.message).is_none() && delivery.tried.is_empty();
            let process = &self.lives[life];
            let paused = process.was_paused.contains(&true);
            let Some(reached) = delivery.reached.filter(|_| alone && !paused && self.quiet) else {
                continue;
            };
            let needs = self.needs(delivery.message).into_iter();
            let changed = needs.filter_map(|(account, _)| self.limits.changed.get(&account));
            let since = changed
                .copied()
                .chain([reached, held_up])
                .max()
                .unwrap_or(now);
            if now.since(since) > STARTS_WITHIN {
                let why = format!("message {} could start since {since:?}", delivery.message);
                self.fails("waits-for-nothing", why);
            }
        }
    }

    /// The permits of running attempts do not exceed the limit.
    fn check_permits(&mut self, account: LimitAccount, most: u32) {
        let used = self.used(account);
        if used > most {
            let why = format!("{used} of {most} under {}", record_name(account));
            self.fails("limit-of-concurrency", why);
        }
        let left = self.limits.left.get(&account).copied().unwrap_or_default();
        if left > 0 && used + left > most {
            self.met.insert(MetCircumstances::PermitsCameBack);
        }
    }

    /// The store keeps the permits of what runs. After a standstill a process may notice their end as
    /// late as the others may use them, which the program documents.
    fn check_leases(&mut self, life: usize, messages: &[usize], now: BootInstant) {
        for &message in messages {
            for (account, _) in self.needs(message) {
                if self.limit_plans()[account.0].concurrency.is_none() {
                    continue;
                }
                let name = record_name(account);
                let ends = self.limits.leases.get(&(life, name.clone())).copied();
                let ends = ends.unwrap_or_default();
                let stood = self.suspended.is_some_and(|at| at + LEASE >= ends);
                if now > ends && !stood {
                    let why = format!("message {message} runs on permits of {name} until {ends:?}");
                    self.fails("ran-without-permits", why);
                }
            }
        }
    }

    /// An attempt ends.
    pub(crate) fn check_fleet_at_end(&mut self, ended: &LiveAttempt, now: BootInstant) {
        if self.scenario.fleet.is_none() {
            return;
        }
        let messages = self.messages_of(&ended.deliveries);
        self.check_leases(ended.life, &messages, now);
        for &message in &messages {
            for (account, _) in self.needs(message) {
                self.limits.changed.insert(account, now);
            }
        }
        if self.has_waited(ended, now) {
            self.met.insert(MetCircumstances::WaitedForLimit);
        }
    }

    /// Whether something at hand has found no permit though its process had room for it, before this
    /// attempt ended.
    fn has_waited(&self, ended: &LiveAttempt, now: BootInstant) -> bool {
        let used = |account: LimitAccount| {
            let of = self.messages_of(&ended.deliveries).into_iter();
            let needs = of.flat_map(|message| self.needs(message));
            let own = needs.filter(|(other, _)| *other == account);
            self.used(account) + own.map(|(_, weight)| weight).sum::<u32>()
        };
        let waits = |&&one: &&usize| {
            let delivery = &self.deliveries[one];
            let live = self.attempts.values();
            let running = live.filter(|live| live.life == delivery.life).count();
            let lacks = |(account, weight): &(LimitAccount, u32)| {
                let most = self.limit_plans()[account.0].concurrency;
                most.is_some_and(|most| used(*account) + weight > most)
            };
            delivery.tried.is_empty()
                && self.is_surely_held(one, now)
                && running + 1 < self.scenario.route.concurrency
                && self.needs(delivery.message).iter().any(lacks)
        };
        self.open.iter().any(|one| waits(&one))
    }

    /// A process crashes: its permits are left behind.
    pub(crate) fn leaves_permits(&mut self, life: usize) {
        let live = self.attempts.values().filter(|live| live.life == life);
        let left: Vec<usize> = live
            .flat_map(|live| self.messages_of(&live.deliveries))
            .collect();
        for message in left {
            for (account, weight) in self.needs(message) {
                *self.limits.left.entry(account).or_default() += weight;
            }
        }
    }

    /// A process has read records in a call that began and was carried out at these times.
    pub(crate) fn has_read_limits(&mut self, life: usize, called: BootInstant, read: BootInstant) {
        self.lives[life].asked_limits = called;
        self.lives[life].read_limits = read;
    }

    /// The store has carried out a request that began with this read.
    pub(crate) fn leases_limit(&mut self, life: usize, record: &str, read: BootInstant) {
        let lease = (life, record.to_owned());
        self.limits.leases.insert(lease, read + LEASE);
    }

    /// A process hears that its request was carried out.
    pub(crate) fn hears_of_limits(&mut self, life: usize, records: &[String]) {
        let asked = self.lives[life].asked_limits;
        self.lives[life].limits_in_vain = 0;
        for record in records {
            self.limits.heard.insert((life, record.clone()), asked);
        }
    }

    /// How an attempt ended whose handler was dropped. Permits that end are the reason if nothing
    /// else is.
    pub(crate) fn stopped(&mut self, attempt: usize) -> WorldAnswer {
        let Some(live) = self.attempts.get(&attempt).cloned() else {
            return WorldAnswer::Cut;
        };
        let now = clock::now();
        let timeout = Duration::from_millis(self.scenario.route.timeout_ms);
        let trials = live.deliveries.iter().map(|&one| &self.deliveries[one]);
        let began = trials.filter_map(|one| Some(one.tried.last()?.began)).min();
        let is_over = began.is_some_and(|began| began + timeout <= now + self.moment());
        let all_lost = live.lost.iter().all(|lost| lost.is_cancelled());
        if self.scenario.fleet.is_none() || is_over || all_lost || self.is_halted(live.life, now) {
            return WorldAnswer::Cut;
        }
        self.met.insert(MetCircumstances::Revoked);
        self.check_revoked(&live, now);
        WorldAnswer::Revoked
    }

    /// A process stops an attempt only if it cannot renew its permits.
    fn check_revoked(&mut self, live: &LiveAttempt, now: BootInstant) {
        let of = self.messages_of(&live.deliveries).into_iter();
        let accounts = of.flat_map(|message| self.needs(message));
        let accounts = accounts.filter(|(account, _)| {
            let plan = &self.limit_plans()[account.0];
            plan.concurrency.is_some()
        });
        let heard = accounts.filter_map(|(account, _)| {
            let record = (live.life, record_name(account));
            self.limits.heard.get(&record).copied()
        });
        let stood = self.suspended.is_some();
        let first = heard.min().unwrap_or_default();
        let tries = self.lives[live.life].limits_in_vain;
        if (now.since(first) + self.moment() < STAYS || tries < TRIES) && !stood {
            let why = format!("heard of its permits {first:?}, {tries} calls in vain since");
            self.fails("stopped-with-permits", why);
        }
    }

    /// A process has stopped by itself while it reached the store: it has given its permits back. What
    /// it had asked for and not waited for may have been carried out since, where the store had
    /// forgotten the record; those permits end by themselves.
    pub(crate) fn check_permits_left(&mut self, life: usize) {
        let now = self.store_time();
        let held = self.limits.records.held_by(&holder_name(life), now);
        let Life {
            stops_in_quiet,
            wrote_limits_late,
            ..
        } = self.lives[life];
        if stops_in_quiet && !wrote_limits_late && !held.is_empty() {
            let why = format!("process {life}: {held:?}");
            self.fails("permits-left", why);
        }
    }

    /// Whether a process has so many messages of a queue that some may go back because of limits.
    pub(crate) fn too_many_wait(&self, life: usize, queue: usize) -> bool {
        let Some(fleet) = &self.scenario.fleet else {
            return false;
        };
        let mut untried: Vec<usize> = self.untried(life);
        untried.retain(|&one| self.queue_of(one) == queue);
        untried.len() > fleet.most_waiting
    }

    /// How many messages of a process may be on their way back because of limits.
    pub(crate) fn may_be_going_back(&self, life: usize) -> usize {
        if self.scenario.fleet.is_some() {
            self.untried(life).len()
        } else {
            0
        }
    }

    fn untried(&self, life: usize) -> Vec<usize> {
        let open = self.open.iter().copied();
        open.filter(|&one| {
            let delivery = &self.deliveries[one];
            let is_new = delivery.reached.is_some() && delivery.tried.is_empty();
            is_new && delivery.life == life
        })
        .collect()
    }

    /// Whether a message may go back, and come again after this time, because too many wait for
    /// limits: not where order counts, nor at its last receive.
    pub(crate) fn may_be_deferred(&self, delivery: usize, after: Duration) -> bool {
        let is_alone = self.group_of(self.deliveries[delivery].message).is_none();
        // Each comes again a little later than the one before it.
        let before = u32::try_from(self.deliveries.len()).unwrap_or(u32::MAX);
        let (least, apart) = DEFERRED;
        let most = least + apart * before;
        self.scenario.fleet.is_some()
            && is_alone
            && (least..=most).contains(&after)
            && !self.is_last_receive(delivery)
    }

    /// Whether the next receive of a message may dead-letter it.
    fn is_last_receive(&self, delivery: usize) -> bool {
        let one = &self.deliveries[delivery];
        let redrive = self.scenario.queues[self.queue_of(delivery)].redrive;
        let attempts = self.attempts_within(one.life, delivery).0;
        let limit = self.limit_of(one.message);
        redrive.is_some_and(|most| one.count >= most) || limit.is_some_and(|most| attempts >= most)
    }
}
