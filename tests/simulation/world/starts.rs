//! What must hold when an attempt begins: leases, order, groups, limits. The rules are said anew
//! here, from what the process was told, and share no code with the program.

use super::{Life, LiveAttempt, NONE, Trial, World, WorldAnswer};
use crate::circumstances::MetCircumstances;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// So many failed polls in a row change nothing of what was known.
const FORGIVEN: u32 = 2;

impl World {
    /// An attempt begins on these deliveries; `lost` says of each whether the handler is told that
    /// its answer does not count. Answers with the attempt's number.
    pub(crate) fn attempt_begins(
        &mut self,
        life: usize,
        deliveries: &[usize],
        tokens: Vec<CancellationToken>,
    ) -> usize {
        let lost: Vec<bool> = tokens.iter().map(CancellationToken::is_cancelled).collect();
        let lost = lost.as_slice();
        let now = clock::now();
        let queue = self.queue_of(deliveries[0]);
        self.note("attempts", life, queue, self.messages_of(deliveries));
        for (&one, &lost) in deliveries.iter().zip(lost) {
            self.check_claim(life, one, lost, now);
        }
        if self.is_ordered(queue) {
            self.check_group_order(life, queue, deliveries, lost, now);
        }
        let one_version = !self.lives[life].stopping && !self.lives[life].was_reloaded;
        if !self.scenario.weighted && one_version {
            for above in 0..queue {
                self.check_strict(life, above, deliveries, now);
            }
        }
        self.check_turns(life, queue, deliveries, lost, now);
        self.check_idle_limits(life, deliveries, now);
        self.check_pause(life, queue, deliveries, now);
        self.check_sharing(life, deliveries, now);
        if self.scenario.route.newest_first {
            self.check_newest(life, queue, deliveries, now)
        } else {
            self.check_arrival(life, queue, deliveries, now)
        }
        for &one in deliveries {
            let message = self.deliveries[one].message;
            self.messages[message].tries += 1;
            let (began, ended) = (now, None);
            self.deliveries[one].tried.push(Trial { began, ended });
        }
        self.attempted += 1;
        let live = LiveAttempt {
            life,
            queue,
            deliveries: deliveries.to_vec(),
            lost: tokens,
        };
        self.attempts.insert(self.attempted, live);
        self.check_limits(life, queue, deliveries.len(), now);
        self.check_fleet(life, &self.messages_of(deliveries), now);
        self.check_figures(life, deliveries, now);
        self.attempted
    }

    pub(crate) fn queue_of(&self, delivery: usize) -> usize {
        self.messages[self.deliveries[delivery].message].queue
    }

    pub(crate) fn messages_of(&self, deliveries: &[usize]) -> Vec<usize> {
        let of = deliveries.iter().map(|&one| self.deliveries[one].message);
        of.collect()
    }

    /// The claim on one message of an attempt.
    fn check_claim(&mut self, life: usize, delivery: usize, lost: bool, now: BootInstant) {
        let one = &self.deliveries[delivery];
        let message = one.message;
        let words = format!("message {message}, delivery {delivery}");
        // A group that has others in hand is retried in the same delivery.
        let grouped = self.group_of(message).is_some();
        let policy = self.scenario.queues[self.queue_of(delivery)].redrive;
        let policy = policy.filter(|_| self.messages[message].tag.is_some());
        let limit = self.limit_of(message).or(policy);
        let again = one.tried.last().is_some_and(|trial| {
            let failed = matches!(
                trial.ended,
                Some((
                    _,
                    WorldAnswer::Retry(_) | WorldAnswer::Reject | WorldAnswer::Cut
                ))
            );
            let made = self.attempts_within(life, delivery).0 + one.counted() - 1;
            let has_more = failed && grouped && limit.is_some_and(|most| made < most);
            let waited = matches!(trial.ended, Some((_, WorldAnswer::Kept)));
            let behind = grouped && matches!(trial.ended, Some((_, WorldAnswer::Behind)));
            !(waited || behind || has_more)
        });
        let told = one.told.is_some();
        let reached = one.reached;
        if again {
            self.fails("attempted-twice", words.clone());
        }
        if told {
            self.fails("attempted-after-settling", words.clone());
        }
        if self.is_honest(delivery) && now >= self.deliveries[delivery].until && !lost {
            self.fails("attempted-without-lease", words.clone());
        }
        self.check_age(life, delivery, now);
        if self.deliveries[delivery].known {
            self.fails("done-again-by-another", words.clone());
        }
        let done = self.lives[life].done.get(&message).copied();
        if let (Some(done), Some(reached)) = (done, reached)
            && done < reached
        {
            self.fails("done-again", words.clone());
        }
        let live = self.attempts.values();
        let twice = live
            .flat_map(|live| live.deliveries.iter())
            .any(|&other| self.deliveries[other].message == message && self.is_kept(other, now));
        let twice = twice && self.is_honest(delivery);
        if twice {
            self.fails("two-live-attempts", words);
        }
    }

    /// Within a group nothing starts before all that is ahead of it is done.
    fn check_group_order(
        &mut self,
        life: usize,
        queue: usize,
        deliveries: &[usize],
        lost: &[bool],
        now: BootInstant,
    ) {
        for (at, (&one, &lost)) in deliveries.iter().zip(lost).enumerate() {
            let message = self.deliveries[one].message;
            let Some(group) = self.messages[message].group else {
                continue;
            };
            if lost || !self.is_kept(one, now) {
                continue;
            }
            let with = self.messages_of(&deliveries[..at]);
            let ahead = (0..message).filter(|&other| {
                let stored = &self.messages[other];
                stored.queue == queue && stored.group == Some(group)
            });
            let open: Vec<usize> = ahead
                .filter(|&other| {
                    let stored = &self.messages[other];
                    let over =
                        stored.gone.is_some() || stored.done || stored.dead_lettered.is_some();
                    // What this process has shed it does not retry, whatever the date is now.
                    let shed = self.lives[life].shed.contains(&other);
                    let over = over || shed || self.is_too_old(other, now);
                    !over && !with.contains(&other)
                })
                .collect();
            if !open.is_empty() {
                let why = format!("message {message} starts and {open:?} ahead of it are not done");
                self.fails("group-order", why);
            }
            let live = self.attempts.values().filter(|live| live.life == life);
            let other = live.filter(|live| live.queue == queue).any(|live| {
                let mut of = live.deliveries.iter().map(|&other| &self.deliveries[other]);
                of.any(|other| self.messages[other.message].group == Some(group))
            });
            if other {
                let why = format!("message {message} starts beside another of its group");
                self.fails("group-parallel", why);
            }
        }
    }

    /// Whether a delivery's message came back, and its next receive may dead-letter it.
    fn is_last_chance(&self, delivery: usize) -> bool {
        let one = &self.deliveries[delivery];
        let redrive = self.scenario.queues[self.queue_of(delivery)].redrive;
        let limit = self.limit_of(one.message);
        let is_last = |made: u32, most: Option<u32>| most.is_some_and(|most| made >= most);
        let attempts = self.attempts_of(one.life, delivery);
        one.count > 1 && (is_last(one.count, redrive) || is_last(attempts, limit))
    }

    /// Nothing of a lower queue starts while a higher one is known to hold something.
    fn check_strict(&mut self, life: usize, above: usize, starting: &[usize], now: BootInstant) {
        if self.lives[life].was_paused[above] {
            return; // it holds up nobody, and what it gave back is on its way
        }
        let own = starting.iter().map(|&one| self.queue_of(one)).next();
        let in_hand = |&one: &usize| {
            let one = &self.deliveries[one];
            one.life == life && one.reached.is_some() && one.tried.is_empty()
        };
        let waiting = self.open.iter().filter(|one| in_hand(one));
        let waiting = waiting.filter(|&&one| Some(self.queue_of(one)) == own);
        if starting
            .iter()
            .chain(waiting)
            .any(|&one| self.is_last_chance(one))
        {
            return; // it waits for no queue, and neither does what is before it
        }
        let plan = &self.scenario.queues[above];
        if plan.rate.is_some() || plan.concurrency.is_some() {
            return; // its own limits hold up no other queue
        }
        // Nor do those of all processes: what is in hand may lack permits, which only the store knows.
        if self.may_wait_for_limits(life, above) {
            return;
        }
        let words = format!(
            "messages {:?} start before queue {above}",
            self.messages_of(starting)
        );
        let view = self.lives[life].views[above];
        let held_it = view.had && view.failures > 0 && view.failures <= FORGIVEN;
        if view.since + self.moment() < now && (view.may_hold || held_it) {
            self.fails("strict-holds", format!("{words}, which may hold something"));
        }
        let route = &self.scenario.route;
        let window = route.window_ms > 0 || self.is_ordered(above) || route.group_by;
        for at in 0..self.open.len() {
            let number = self.open[at];
            let one = &self.deliveries[number];
            let of = one.life == life && self.messages[one.message].queue == above;
            let Some(reached) = one.reached.filter(|&at| of && at + self.moment() < now) else {
                continue;
            };
            // Answers to extensions were lost, or there was none that kept it.
            let unsure = self.counts_on_until(number) <= now;
            let ends = one.told.is_some() || one.known || one.expires <= now || unsure;
            if ends || !self.is_kept(number, now) || !self.is_honest(number) {
                continue;
            }
            let settled_otherwise = self.lives[life]
                .done
                .get(&one.message)
                .is_some_and(|&done| done < reached);
            match one.tried.last() {
                None if !window && !settled_otherwise && !self.is_exhausted(life, number) => {
                    let why = format!("{words}, of which message {} waits", one.message);
                    self.fails("strict-waits", why);
                }
                Some(Trial {
                    ended: Some((at, WorldAnswer::Kept)),
                    ..
                }) if *at + self.moment() < now
                    && !self.is_behind_a_lost_one(number)
                    && !self.is_behind_an_open_one(life, one.message) =>
                {
                    let why = format!("{words}, of which message {} is held", one.message);
                    self.fails("strict-held", why);
                }
                _ => {}
            }
        }
    }

    /// What came first starts first: nothing untried is overtaken by what came to hand later.
    fn check_arrival(&mut self, life: usize, queue: usize, starting: &[usize], now: BootInstant) {
        // What was given back at a pause may be on its way still.
        if self.lives[life].stopping || self.lives[life].was_paused[queue] {
            return;
        }
        let grouped = |world: &Self, one: usize| {
            let message = world.deliveries[one].message;
            world.group_of(message).is_some()
        };
        let came = |&one: &usize| {
            let fresh = self.deliveries[one].tried.is_empty() && !grouped(self, one);
            self.deliveries[one].reached.filter(|_| fresh)
        };
        let overtaken = self.open.iter().copied().find(|&one| {
            // What needs others of the fleet's limits may start before, and so may other tenants.
            let same = starting
                .iter()
                .filter(|&&other| self.keeps_order(one, other));
            let latest = same.filter_map(came).max();
            let before = self.deliveries[one]
                .reached
                .is_some_and(|at| Some(at) < latest);
            let waits = self.deliveries[one].tried.is_empty() && !starting.contains(&one);
            before
                && waits
                && self.deliveries[one].life == life
                && self.queue_of(one) == queue
                && !grouped(self, one)
                && self.is_surely_held(one, now)
                && !self.is_needless(life, one)
        });
        // What is about to go back, because too many wait for limits, is overtaken.
        if let Some(one) = overtaken
            && !self.too_many_wait(life, queue)
        {
            let why = format!("message {} waits", self.deliveries[one].message);
            self.fails("overtakes", why);
        }
    }

    /// A paused queue starts nothing but what would be dead-lettered by its next receive.
    fn check_pause(&mut self, life: usize, queue: usize, starting: &[usize], now: BootInstant) {
        let Life { stopping, .. } = self.lives[life];
        let paused = self.lives[life].paused[queue].filter(|since| *since + self.moment() < now);
        let plan = &self.scenario.queues[queue];
        let limited = plan.redrive.is_some() || plan.limit(self.scenario.route.attempts).is_some();
        if paused.is_none() || stopping || limited {
            return;
        }
        for message in self.messages_of(starting) {
            if self.group_of(message).is_none() {
                let why = format!("message {message} of paused queue {queue}");
                self.fails("starts-while-paused", why);
            }
        }
    }

    fn check_limits(&mut self, life: usize, queue: usize, count: usize, now: BootInstant) {
        let scenario = self.scenario.clone();
        if count > scenario.route.batch {
            self.fails("batch-size", format!("{count} together"));
        }
        let live = self.attempts.values().filter(|live| live.life == life);
        let (mut all, mut own) = (0, 0);
        for one in live {
            all += 1;
            own += usize::from(one.queue == queue);
        }
        let limit = self.lives[life]
            .limit
            .filter(|(_, since)| *since + self.moment() < now);
        if let Some((most, _)) = limit.filter(|(most, _)| all > *most) {
            let why = format!("{all} attempts at once, an operator allows {most}");
            self.fails("concurrency-live", why);
        }
        if all > scenario.route.concurrency {
            self.fails("concurrency", format!("{all} attempts at once"));
        }
        if scenario.queues[queue]
            .concurrency
            .is_some_and(|most| own > most)
        {
            self.fails(
                "concurrency-of-queue",
                format!("{own} attempts of queue {queue} at once"),
            );
        }
        let Some(rate) = scenario.queues[queue].rate else {
            return;
        };
        let burst = (rate / 10.0).max(scenario.route.batch as f64).max(1.0);
        let (left, since) = self.lives[life].tokens[queue];
        let earned = now.since(since).as_secs_f64() * rate;
        let left = (left + earned).min(burst) - count as f64;
        self.lives[life].tokens[queue] = (left, now);
        if left < -0.001 {
            self.fails("rate", format!("{left:.3} tokens left of queue {queue}"));
        }
    }

    /// Whether a message has had all its attempts, and comes back all the same.
    pub(crate) fn is_exhausted(&self, life: usize, delivery: usize) -> bool {
        let one = &self.deliveries[delivery];
        let most = self.limit_of(one.message);
        most.is_some_and(|most| self.attempts_of(life, delivery) > most)
    }

    /// Time passes without the processes.
    pub(crate) fn stand_still(&mut self, time: Duration) {
        self.note_with("all stand still", NONE, NONE, vec![], format!("{time:?}"));
        clock::simulated::pass(time);
        self.met.insert(MetCircumstances::Standstill);
        self.suspended = Some(clock::now());
        self.stood += time;
    }
}
