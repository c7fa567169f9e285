//! What must hold of tenants and priorities that share a queue: whose message starts next, what the
//! queue is told, and the figures. The rules are said anew here and share no code with the program.

use super::{SimulatedDelivery, World, WorldAnswer};
use crate::circumstances::MetCircumstances;
use crate::scenario::TenantPlan;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::sharing::SharingRules;
use dispatcher_core::scheduler::tenants::TenantFigures;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The priority of a message that names none.
const USUAL_PRIORITY: u8 = 3;
/// How long an attempt is taken to last while none was measured.
const USUAL_TIME: Duration = Duration::from_millis(1);
/// A tenant is parked from so many messages on that wait for limits, until fewer than half are left.
const PARKED_FROM: usize = 30;
/// Prices are rounded, so that a tenant may be ahead by this part of its price.
const ROUNDED: f64 = 0.05;

/// A tenant by its number; `None` for messages that name none.
type Tenant = Option<u16>;

/// A queue, a priority, and a tenant.
type LineKey = (usize, u8, Tenant);

/// Deliveries that wait, by their lines.
type WaitingLines = BTreeMap<LineKey, BTreeSet<usize>>;

/// What a process has told its queues, and whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct TenantTurns {
    rules: BTreeMap<usize, Arc<SharingRules>>,
    /// The weights that operators have set, and when.
    weights: BTreeMap<u16, (u32, BootInstant)>,
    lines: BTreeMap<LineKey, TenantLine>,
    /// Since when enough messages of a tenant wait for limits for it to be parked.
    full: BTreeMap<(usize, String), BootInstant>,
}

/// A tenant at one priority. What each tenant has paid is not known, but how far they are apart at
/// least: a tenant pays for each message, and the one that has paid least is next.
#[derive(Debug, Default)]
struct TenantLine {
    /// Its deliveries that waited after the last start of its queue.
    waiting: BTreeSet<usize>,
    /// How much more than this tenant others have paid, at least; `least` for all that are not named.
    leads: BTreeMap<Tenant, f64>,
    least: f64,
    /// What it paid in the last attempt with its messages.
    price: f64,
    /// It may have paid for messages that did not start because their leases were lost.
    is_unsure: bool,
}

impl TenantLine {
    /// It begins to wait. It has paid as much as the tenant whose turn it was and, unless it is new,
    /// at most its last attempt more.
    fn begin(&mut self) {
        self.leads.clear();
        self.least = -self.price;
    }

    /// One of its messages starts: it was its turn, so that no other had paid less.
    fn pay(&mut self, price: f64) {
        for lead in self.leads.values_mut() {
            *lead = (*lead - price).max(-price);
        }
        (self.least, self.price) = (-price, price);
    }

    /// One of its messages joins the one whose turn it was.
    fn join(&mut self, price: f64) {
        for lead in self.leads.values_mut() {
            *lead -= price;
        }
        self.least -= price;
        self.price += price;
    }

    /// A message of another tenant starts. Returns whether that had paid more.
    fn is_passed_by(&mut self, other: Tenant, price: f64) -> bool {
        let lead = self.leads.entry(other).or_insert(self.least);
        let is_passed = *lead > ROUNDED * price;
        *lead += price;
        is_passed
    }
}

/// The rules that a queue was told, if it was.
#[derive(Debug, Clone)]
pub(crate) struct ToldRules(Option<Arc<SharingRules>>);

impl ToldRules {
    pub(crate) fn is_parked(&self, tenant: Tenant) -> bool {
        let mut rules = self.0.iter();
        rules.any(|rules| rules.parked.contains(&tenant_name(tenant)))
    }

    pub(crate) fn weight(&self, tenant: Tenant) -> u32 {
        let weight = self.0.as_ref().map(|rules| &rules.weights);
        let weight = weight.and_then(|weights| weights.get(&tenant_name(tenant)));
        weight.copied().unwrap_or(1)
    }

    /// What a tenant pays for a message: the time that its messages take, by its weight.
    fn price(&self, tenant: Tenant) -> f64 {
        let rules = self.0.as_ref();
        let own = rules.and_then(|rules| rules.times.get(&tenant_name(tenant)));
        let usual = rules.and_then(|rules| rules.usual_time);
        let time = own.copied().or(usual).unwrap_or(USUAL_TIME);
        time.as_micros().max(1) as f64 / f64::from(self.weight(tenant))
    }
}

impl TenantTurns {
    pub(crate) fn rules(&self, queue: usize) -> ToldRules {
        ToldRules(self.rules.get(&queue).cloned())
    }

    /// An attempt of a queue is about to begin while `here` waits. Tenants of which nothing waited all
    /// the time since the last one have begun to wait.
    fn begin(
        &mut self,
        queue: usize,
        starting: &[usize],
        here: &WaitingLines,
        unsure: &BTreeSet<Tenant>,
    ) {
        for key in here.keys() {
            self.lines.entry(*key).or_default();
        }
        for (key, line) in self.lines.iter_mut().filter(|(key, _)| key.0 == queue) {
            let still = here.get(key);
            let is_here = |one: &usize| {
                starting.contains(one) || still.is_some_and(|still| still.contains(one))
            };
            if !line.waiting.iter().any(is_here) {
                line.begin();
            }
            line.is_unsure |= unsure.contains(&key.2);
        }
    }

    /// A message starts, or joins the one whose turn it was. Returns the tenants whose turn it was, each
    /// with the one that starts.
    fn starts(
        &mut self,
        own: LineKey,
        price: f64,
        joins: bool,
        here: &WaitingLines,
    ) -> Vec<(Tenant, Tenant)> {
        let others = self.lines.iter_mut().filter(|(key, _)| {
            let is_other = (key.0, key.1) == (own.0, own.1) && key.2 != own.2;
            is_other && here.contains_key(*key)
        });
        let passed = others
            .filter_map(|(key, line)| {
                let is_passed = line.is_passed_by(own.2, price) && !line.is_unsure && !joins;
                is_passed.then_some((key.2, own.2))
            })
            .collect();
        let line = self.lines.entry(own).or_default();
        if joins {
            line.join(price);
        } else {
            line.pay(price);
        }
        passed
    }

    /// An attempt of a queue has begun, and these still wait.
    fn wait(&mut self, queue: usize, mut here: WaitingLines) {
        for (key, line) in self.lines.iter_mut().filter(|(key, _)| key.0 == queue) {
            line.waiting = here.remove(key).unwrap_or_default();
        }
    }
}

/// Whether the process may have a delivery, and no attempt of it runs or is over.
fn is_idle(delivery: &SimulatedDelivery) -> bool {
    let last = delivery.tried.last().map(|trial| &trial.ended);
    let is_held = last.is_none_or(|said| matches!(said, Some((_, WorldAnswer::Kept))));
    is_held && delivery.reached.is_some() && delivery.told.is_none()
}

fn tenant_name(tenant: Tenant) -> String {
    tenant.map_or_else(String::new, |tenant| tenant.to_string())
}

impl World {
    /// The tenant of a message, if tenants share the route.
    pub(crate) fn tenant_of(&self, message: usize) -> Option<u16> {
        let stored = &self.messages[message];
        match self.scenario.sharing.as_ref()?.tenants {
            TenantPlan::Nowhere => None,
            TenantPlan::Group => stored.group,
            TenantPlan::Attribute => stored.tenant,
        }
    }

    pub(crate) fn priority_of(&self, message: usize) -> u8 {
        let plan = self.scenario.sharing.as_ref();
        let named = plan.filter(|plan| plan.priorities);
        let named = named.and(self.messages[message].priority);
        named.unwrap_or(USUAL_PRIORITY)
    }

    /// How long a message waits until it goes before others.
    pub(crate) fn longest_wait(&self, message: usize) -> Option<Duration> {
        let plan = self.scenario.sharing.as_ref()?;
        let (priority, ms) = plan.max_wait?;
        let is_meant = plan.priorities && self.priority_of(message) == priority;
        is_meant.then(|| Duration::from_millis(ms))
    }

    /// When a message that arrives now goes before others.
    pub(crate) fn hastens_at(&self, message: usize, now: BootInstant) -> BootInstant {
        let never = BootInstant::from_boot(Duration::MAX);
        let wait = self.longest_wait(message);
        wait.map_or(never, |wait| {
            now + (self.messages[message].sent + wait).since(clock::wall_clock_now())
        })
    }

    /// A process tells a queue its rules.
    pub(crate) fn told_rules(&mut self, life: usize, queue: usize, rules: &Arc<SharingRules>) {
        let note = format!("{:?} {:?}", rules.parked, rules.weights);
        self.note_with("shares out", life, queue, vec![], note);
        if !rules.parked.is_empty() {
            self.met.insert(MetCircumstances::TenantParked);
        }
        self.lives[life].turns.rules.insert(queue, rules.clone());
        self.notifiers[queue].notify_waiters();
    }

    /// An operator sets the weight of a tenant.
    pub(crate) fn operator_weighs(&mut self, life: usize, tenant: u16, weight: u32) {
        let note = format!("tenant {tenant} weighs {weight}");
        self.note_with("is weighed", life, super::NONE, vec![], note);
        let set = (weight, clock::now());
        self.lives[life].turns.weights.insert(tenant, set);
    }

    fn line_of(&self, delivery: usize) -> LineKey {
        let message = self.deliveries[delivery].message;
        let queue = self.messages[message].queue;
        (queue, self.priority_of(message), self.tenant_of(message))
    }

    fn is_hastened(&self, delivery: usize, now: BootInstant) -> bool {
        self.deliveries[delivery].hastens <= now
    }

    /// Whether one delivery that waits may not be overtaken by another that arrived or was sent in the
    /// wrong order: both need the same of the fleet's limits, and belong to one tenant and priority.
    pub(crate) fn keeps_order(&self, waiting: usize, starting: usize) -> bool {
        let is_alike = self.line_of(waiting) == self.line_of(starting);
        let is_hastened = self.is_hastened(starting, clock::now());
        self.needs_the_same(waiting, starting) && is_alike && !is_hastened
    }

    /// Whether the order of a waiting delivery and one that starts is promised, whatever their tenants
    /// and priorities: both need the same of the fleet's limits, and neither waits for its group.
    fn keeps_turns(&self, waiting: usize, starting: usize) -> bool {
        let is_alone = |one: usize| self.group_of(self.deliveries[one].message).is_none();
        self.needs_the_same(waiting, starting) && is_alone(waiting) && is_alone(starting)
    }

    /// The deliveries of a queue that a process surely has, has not tried and does not start now.
    fn waiting_untried(&self, life: usize, starting: &[usize], now: BootInstant) -> Vec<usize> {
        let queue = self.queue_of(starting[0]);
        let waits = |&one: &usize| {
            let delivery = &self.deliveries[one];
            delivery.life == life
                && delivery.reached.is_some_and(|at| at + self.moment() < now)
                && delivery.tried.is_empty()
                && !starting.contains(&one)
                && self.queue_of(one) == queue
                && delivery.told.is_none()
                && self.keeps_lease(one, now)
                && !self.is_needless(life, one)
        };
        self.open.iter().copied().filter(waits).collect()
    }

    /// Whether a process knows that it has the lease of a delivery.
    fn keeps_lease(&self, delivery: usize, now: BootInstant) -> bool {
        self.is_kept(delivery, now)
            && self.is_honest(delivery)
            && !self.deliveries[delivery].refused
            && self.counts_on_until(delivery) > now
    }

    /// An attempt is about to begin: whose turn it is.
    pub(crate) fn check_sharing(&mut self, life: usize, starting: &[usize], now: BootInstant) {
        let queue = self.queue_of(starting[0]);
        let process = &self.lives[life];
        let is_excused = process.stopping || process.was_paused[queue];
        if self.scenario.sharing.is_none() || is_excused {
            return;
        }
        let waiting = self.waiting_untried(life, starting, now);
        self.check_one_tenant(starting, &waiting);
        self.note_turns(starting, &waiting, now);
        let waiting = self.gathered(&waiting, now);
        self.check_urgent(starting, &waiting, now);
        // Where groups are kept in order, a tenant whose groups are busy is passed over.
        if self.scenario.fleet.is_none() && !self.is_ordered(queue) {
            self.check_tenants(life, starting, &waiting, now);
        }
    }

    /// An attempt has messages of one tenant if its function is told the tenant.
    fn check_one_tenant(&mut self, starting: &[usize], waiting: &[usize]) {
        if !self.has_one_tenant() {
            return;
        }
        let tenant = |one: usize| self.tenant_of(self.deliveries[one].message);
        let own = tenant(starting[0]);
        if starting.iter().any(|&one| tenant(one) != own) {
            let why = format!("messages {:?} start together", self.messages_of(starting));
            return self.fails("tenants-mixed", why);
        }
        if starting.len() > 1 && waiting.iter().any(|&one| tenant(one) != own) {
            self.met.insert(MetCircumstances::TenantAlone);
        }
    }

    /// The deliveries of these that need not wait for others of their tenant.
    fn gathered(&self, waiting: &[usize], now: BootInstant) -> Vec<usize> {
        if !self.has_one_tenant() {
            return waiting.to_vec();
        }
        let window = Duration::from_millis(self.scenario.route.window_ms);
        let tenant = |one: usize| self.tenant_of(self.deliveries[one].message);
        let waits_no_longer = |one: &&usize| {
            let came = self.deliveries[**one].reached;
            let own = waiting
                .iter()
                .filter(|&&other| tenant(other) == tenant(**one));
            let is_full = own.count() >= self.scenario.route.batch;
            is_full || came.is_some_and(|at| at + window <= now)
        };
        waiting.iter().filter(waits_no_longer).copied().collect()
    }

    /// Whether attempts have messages of one tenant only. The messages after the first one then join
    /// it, whosever turn it is.
    fn has_one_tenant(&self) -> bool {
        let sharing = self.scenario.sharing.as_ref();
        sharing.is_some_and(|plan| plan.one_tenant)
    }

    /// Whether a delivery goes before another, whatever their tenants: what has waited for too long,
    /// in the order in which that began if it was here then, and after that the more urgent.
    fn goes_before(&self, one: usize, other: usize, now: BootInstant) -> bool {
        let is_hastened = |one: usize| self.is_hastened(one, now);
        let (first, second) = (&self.deliveries[one], &self.deliveries[other]);
        if is_hastened(one) && is_hastened(other) {
            first.hastens < second.hastens && first.reached <= second.reached
        } else if is_hastened(one) || is_hastened(other) {
            is_hastened(one)
        } else {
            self.priority_of(first.message) < self.priority_of(second.message)
        }
    }

    fn check_urgent(&mut self, starting: &[usize], waiting: &[usize], now: BootInstant) {
        // A message that goes back to its queue does not start, even if it is urgent.
        if self.may_wait_too_long(waiting, now) {
            return;
        }
        let pairs = waiting
            .iter()
            .flat_map(|one| starting.iter().map(|other| (*one, *other)));
        let joins = |one: usize, other: usize| {
            let is_other = self.line_of(one).2 != self.line_of(other).2;
            self.has_one_tenant() && other != starting[0] && is_other
        };
        let passed = pairs.into_iter().find(|(one, other)| {
            self.keeps_turns(*one, *other)
                && self.goes_before(*one, *other, now)
                && !joins(*one, *other)
        });
        let Some((one, other)) = passed else {
            return;
        };
        let rule = if self.is_hastened(one, now) {
            "hastened-passed"
        } else {
            "priority-passed"
        };
        let of = self.messages_of(&[one, other]);
        self.fails(
            rule,
            format!("message {} waits and {} starts", of[0], of[1]),
        );
    }

    /// Notes why a message starts before one that came earlier.
    fn note_turns(&mut self, starting: &[usize], waiting: &[usize], now: BootInstant) {
        for &one in waiting {
            for &other in starting {
                let came = |one: usize| self.deliveries[one].reached;
                if came(other) <= came(one) {
                    continue;
                }
                if self.line_of(one).2 != self.line_of(other).2 {
                    self.met.insert(MetCircumstances::TenantInTurn);
                }
                if self.goes_before(other, one, now) {
                    if self.scenario.fleet.is_some() && self.keeps_turns(one, other) {
                        self.met.insert(MetCircumstances::FirstOfTheSameNeed);
                    }
                    self.met.insert(if self.is_hastened(other, now) {
                        MetCircumstances::HastenedFirst
                    } else {
                        MetCircumstances::UrgentFirst
                    });
                }
            }
        }
    }

    /// The tenant that has paid least goes first, among those of one priority.
    fn check_tenants(
        &mut self,
        life: usize,
        starting: &[usize],
        waiting: &[usize],
        now: BootInstant,
    ) {
        let queue = self.queue_of(starting[0]);
        let rules = self.lives[life].turns.rules(queue);
        let unsure = self.unsure_tenants(life, queue, now);
        let mut here = WaitingLines::new();
        for &one in waiting.iter().filter(|&&one| !self.is_hastened(one, now)) {
            here.entry(self.line_of(one)).or_default().insert(one);
        }
        // What has waited for too long costs its tenant nothing.
        let starts = starting.iter().filter(|&&one| !self.is_hastened(one, now));
        let joins = |one: usize| self.has_one_tenant() && one != starting[0];
        let starts: Vec<(LineKey, bool)> =
            starts.map(|&one| (self.line_of(one), joins(one))).collect();
        let turns = &mut self.lives[life].turns;
        turns.begin(queue, starting, &here, &unsure);
        let passed: Vec<(Tenant, Tenant)> = starts
            .iter()
            .flat_map(|(own, joins)| turns.starts(*own, rules.price(own.2), *joins, &here))
            .collect();
        turns.wait(queue, here);
        for (tenant, other) in passed {
            let why = format!("tenant {other:?} starts and it is the turn of {tenant:?}");
            self.fails("tenant-passed", why);
        }
    }

    /// The tenants of a queue of which a process may have lost messages that do not run.
    fn unsure_tenants(&self, life: usize, queue: usize, now: BootInstant) -> BTreeSet<Tenant> {
        let here = self.deliveries.iter().enumerate().filter(|(at, one)| {
            let is_here = one.life == life && self.queue_of(*at) == queue;
            is_here && is_idle(one) && !self.keeps_lease(*at, now)
        });
        here.map(|(_, one)| self.tenant_of(one.message)).collect()
    }

    /// A receive is asked for: its queue knows the rules, and which tenants it should leave out.
    pub(crate) fn check_rules(&mut self, life: usize, queue: usize) {
        if self.scenario.sharing.is_none() {
            return;
        }
        let now = clock::now();
        let rules = self.lives[life].turns.rules(queue);
        let Some(told) = rules.0.clone() else {
            return self.fails("rules-untold", format!("queue {queue} knows none"));
        };
        let set = self.lives[life].turns.weights.clone();
        for (tenant, (weight, at)) in set {
            if at + self.moment() < now && rules.weight(Some(tenant)) != weight {
                let why =
                    format!("tenant {tenant} weighs {weight}, queue {queue} knows other rules");
                self.fails("rules-untold", why);
            }
        }
        if !told.parked.is_empty() && !self.scenario.shares_groups() {
            let why = format!("queue {queue} would leave out all messages");
            self.fails("parked-for-nothing", why);
        }
        for parked in &told.parked {
            // What starts in this instant waited when the receive was planned.
            let here = self.at_hand(life, queue, parked, Some(now));
            if here < PARKED_FROM / 2 {
                let why = format!("{here} messages of tenant {parked:?} of queue {queue}");
                self.fails("parked-for-nothing", why);
            }
        }
        self.note_full(life, queue, now);
        let full = self.lives[life].turns.full.clone();
        for ((of, tenant), since) in full {
            let is_asked =
                of == queue && since + self.moment() < now && !told.parked.contains(&tenant);
            if is_asked && self.scenario.shares_groups() {
                let why = format!("tenant {tenant:?} of queue {queue} is not parked");
                self.fails("receives-what-waits", why);
            }
        }
    }

    /// How many messages of a tenant a process may have that do not run, or that start in
    /// `instant`.
    fn at_hand(
        &self,
        life: usize,
        queue: usize,
        tenant: &str,
        instant: Option<BootInstant>,
    ) -> usize {
        let here = self.deliveries.iter().enumerate().filter(|(at, one)| {
            let starts = one.tried.last().map(|trial| trial.began);
            one.life == life
                && (is_idle(one) || starts.is_some() && starts == instant)
                && self.queue_of(*at) == queue
                && tenant_name(self.tenant_of(one.message)) == tenant
        });
        here.count()
    }

    fn figures(&self, life: usize, queue: usize) -> Vec<TenantFigures> {
        let scheduler = self.lives[life].scheduler.as_ref();
        scheduler.map_or_else(Vec::new, |one| {
            one.lock().tenants(queue, usize::MAX, clock::now())
        })
    }

    /// Whether messages may be on their way back to their queue because of limits.
    fn may_wait_too_long(&self, waiting: &[usize], now: BootInstant) -> bool {
        let Some(fleet) = &self.scenario.fleet else {
            return false;
        };
        let longest = Duration::from_secs(fleet.longest_wait_s);
        let came = |one: usize| self.deliveries[one].reached.unwrap_or(now);
        let is_overdue = waiting.iter().any(|&one| came(one) + longest <= now);
        is_overdue || fleet.most_waiting < self.messages.len()
    }

    fn note_full(&mut self, life: usize, queue: usize, now: BootInstant) {
        let figures = self.figures(life, queue);
        let full = &mut self.lives[life].turns.full;
        full.retain(|(of, tenant), _| {
            let mut own = figures.iter().filter(|one| *one.tenant == **tenant);
            *of != queue || own.any(|one| one.limited >= PARKED_FROM)
        });
        for one in figures.iter().filter(|one| one.limited >= PARKED_FROM) {
            full.entry((queue, one.tenant.to_string())).or_insert(now);
        }
    }

    /// An attempt has begun: the figures of tenants are those of the world.
    pub(crate) fn check_figures(&mut self, life: usize, starting: &[usize], now: BootInstant) {
        if self.scenario.sharing.is_none() {
            return;
        }
        let queue = self.queue_of(starting[0]);
        let mut waiting = self.waiting_untried(life, starting, now);
        // What had to be extended may be lost to the process.
        waiting.retain(|&one| self.is_surely_held(one, now));
        let unsure = self.unsure_tenants(life, queue, now);
        let live = self.attempts.values();
        let live = live.filter(|live| live.life == life && live.queue == queue);
        let live: Vec<usize> = live.flat_map(|live| live.deliveries.clone()).collect();
        let of = |one: usize| self.tenant_of(self.deliveries[one].message);
        let count = |list: &[usize], tenant: &str| {
            let own = list.iter().filter(|&&one| tenant_name(of(one)) == tenant);
            own.count()
        };
        let unsure: BTreeSet<String> = unsure.into_iter().map(tenant_name).collect();
        let process = &self.lives[life];
        let may_go_back = self.may_wait_too_long(&waiting, now);
        let is_excused = process.stopping || process.was_paused[queue] || may_go_back;
        let figures = self.figures(life, queue);
        let tenants = live.iter().chain(&waiting).map(|&one| tenant_name(of(one)));
        let unknown = tenants
            .into_iter()
            .find(|tenant| !figures.iter().any(|one| *one.tenant == **tenant));
        let wrong = figures.iter().find(|one| {
            let running = count(&live, &one.tenant);
            let held = one.held + one.limited;
            let runs =
                one.running == running || (unsure.contains(&*one.tenant) && one.running > running);
            let has_few = held <= self.at_hand(life, queue, &one.tenant, None);
            let has_enough = is_excused || held >= count(&waiting, &one.tenant);
            let is_limited = one.limited == 0 || self.scenario.fleet.is_some();
            !(runs && has_few && has_enough && is_limited)
        });
        let why = wrong.map(|one| {
            let (running, held) = (count(&live, &one.tenant), count(&waiting, &one.tenant));
            format!("{one:?}; {running} run and {held} wait")
        });
        let why = why.or(unknown
            .filter(|_| !is_excused)
            .map(|one| format!("none of tenant {one:?}")));
        if let Some(why) = why {
            self.fails("tenant-figures", why);
        }
        self.note_full(life, queue, now);
    }

    /// A process has stopped: nothing of any tenant is left.
    pub(crate) fn check_no_tenants(&mut self, life: usize) {
        for queue in 0..self.scenario.queues.len() {
            let mut figures = self.figures(life, queue).into_iter();
            let left = figures.find(|one| one.running + one.held + one.limited > 0);
            if let Some(left) = left {
                self.fails("tenant-figures", format!("{left:?} after the stop"));
            }
        }
    }
}
