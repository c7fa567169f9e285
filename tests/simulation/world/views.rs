//! What a process knows: what the answers to its receives tell it of its queues, and which
//! deliveries it must take for its own.

use super::{Life, SimulatedDelivery, Trial, World, WorldAnswer};
use crate::circumstances::MetCircumstances;
use crate::scenario::Flavour;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::time::Duration;

/// An id whose answer was lost is to be used again within this.
const USES_IDS: Duration = Duration::from_secs(270);

/// A redrive policy that permits more receives forgives kills.
const FEW_RECEIVES: u32 = 10;

/// So many wait for their group besides, at least.
const LEAST_ASIDE: usize = 100;

/// A receive that was asked for under an id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestedReceive {
    at: BootInstant,
    /// No answer came, and it was not asked for again.
    lost: bool,
}

/// What a process was told about a queue last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub may_hold: bool,
    pub since: BootInstant,
    pub failures: u32,
    pub had: bool,
    /// Receives that are asked for and not answered.
    pub asking: u32,
}

impl View {
    /// Nothing is known yet.
    pub(crate) fn new(now: BootInstant) -> Self {
        Self {
            may_hold: true,
            since: now,
            failures: 0,
            had: false,
            asking: 0,
        }
    }
}

impl World {
    /// An id that no receive has had.
    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// A receive is asked for: if an answer was lost that could be had again, then that.
    /// A receive begins.
    pub(crate) fn check_asks(&mut self, life: usize, queue: usize) {
        let now = clock::now();
        if self.lives[life].paused[queue].is_some_and(|since| since + self.moment() < now) {
            self.fails("receives-while-paused", format!("queue {queue}"));
        }
    }

    /// A FIFO queue whose redrive policy permits few receives is asked for one message at a time, if for
    /// two or fewer, or while nothing is known, or after something came back: what is delivered behind
    /// the first of its group cannot start, and spends a receive if its process is killed.
    pub(crate) fn check_asks_for_few(&mut self, life: usize, queue: usize, max: usize) {
        let plan = &self.scenario.queues[queue];
        let most = plan.redrive.filter(|_| plan.flavour == Flavour::Fifo);
        let Some(most) = most.filter(|most| max > 1 && *most <= FEW_RECEIVES) else {
            return;
        };
        let now = clock::now();
        let here = self.deliveries.iter().filter(|one| {
            let is_here = one.life == life && self.messages[one.message].queue == queue;
            is_here && one.reached.is_some_and(|at| at + self.moment() < now)
        });
        let last = here.clone().filter_map(|one| one.reached).max();
        let last: Vec<_> = here.filter(|one| one.reached == last).collect();
        // What did not run may not have come to the scheduler.
        let came_back = |one: &&SimulatedDelivery| one.count > 1 && !one.tried.is_empty();
        let few = last.len() < 10 && last.iter().any(came_back);
        if most <= 2 || last.is_empty() || few {
            let why = format!("{max} messages of queue {queue}, which permits {most} receives");
            self.fails("receives-what-cannot-start", why);
        }
    }

    pub(crate) fn note_receive(&mut self, life: usize, queue: usize, attempt: Option<u64>) {
        let now = clock::now();
        let view = &mut self.lives[life].views[queue];
        view.asking += 1;
        if view.asking > 1 && self.scenario.route.group_by {
            let why = format!("{} receives of queue {queue} at once", view.asking);
            self.fails("answers-can-overtake", why);
        }
        let Some(id) = attempt else { return };
        if let Some(asked) = self.lives[life].asked.get_mut(&id) {
            asked.lost = false;
            return;
        }
        let usable = |asked: &RequestedReceive| now.since(asked.at) < USES_IDS;
        self.lives[life].asked.retain(|_, asked| usable(asked));
        let of_queue = |id: &u64| {
            let brought = self.told.get(id).map(|told| &*told.deliveries);
            brought.is_some_and(|brought| {
                let kept = |&one: &usize| self.is_kept(one, now) && self.queue_of(one) == queue;
                brought.iter().all(kept)
            })
        };
        let asked = self.lives[life].asked.iter();
        let mut lost = asked.filter(|(_, asked)| asked.lost);
        if let Some((before, _)) = lost.find(|(id, _)| of_queue(id)) {
            let why = format!("receive {id} of queue {queue}, and {before} was never answered");
            self.fails("forgets-a-lost-answer", why);
        }
        let asked = RequestedReceive {
            at: now,
            lost: false,
        };
        self.lives[life].asked.insert(id, asked);
    }

    /// What a process is told by a poll that failed.
    pub(crate) fn not_reached(&mut self, life: usize, queue: usize, attempt: Option<u64>) {
        self.note("is not answered", life, queue, vec![]);
        let now = clock::now();
        if let Some(asked) = attempt.and_then(|id| self.lives[life].asked.get_mut(&id)) {
            asked.lost = true;
        }
        let view = &mut self.lives[life].views[queue];
        view.asking -= 1;
        if view.failures == 0 {
            view.had = view.may_hold;
        }
        view.failures += 1;
        view.may_hold = false;
        view.since = now;
    }

    /// A process has a delivery, and works out its age.
    fn arrives(&mut self, delivery: usize, now: BootInstant, visibility: Duration) {
        let message = self.deliveries[delivery].message;
        let is_far = self.flavour(self.messages[message].queue).is_far();
        let hastens = self.hastens_at(message, now);
        let (age, today) = (self.scenario.route.max_age_ms, clock::wall_clock_now());
        let sent = self.messages[message].sent;
        let left = age.map(|age| (sent + Duration::from_millis(age)).since(today));
        let one = &mut self.deliveries[delivery];
        one.reached = Some(now);
        one.hastens = hastens;
        one.expires = left.map_or(BootInstant::from_boot(Duration::MAX), |left| now + left);
        one.misled |= is_far && now.since(one.renewed) > visibility / 4;
    }

    /// What a process is told by an answer.
    pub(crate) fn reached(
        &mut self,
        life: usize,
        queue: usize,
        taken: &[usize],
        drained: bool,
        ask: &dispatcher_core::queue::Ask,
    ) {
        let now = clock::now();
        self.note("receives", life, queue, self.messages_of(taken));
        let flavour = self.flavour(queue);
        for &one in taken {
            self.arrives(one, now, ask.visibility);
            self.note_waiting(life, one, now);
        }
        // What is told again says nothing of what else there is by now.
        let again = taken.iter().any(|&one| self.deliveries[one].again);
        // Who allows no long polls gets no proof; then an empty answer must do.
        let proof = Duration::from_secs(self.scenario.route.poll_for_s.min(1));
        let waited = flavour.is_exact() || ask.wait >= proof;
        let proven = (drained && !again) || (taken.is_empty() && waited);
        let view = &mut self.lives[life].views[queue];
        view.asking -= 1;
        view.failures = 0;
        view.may_hold = !proven;
        view.since = now;
        if drained {
            self.lives[life].drained[queue].push(now);
        }
        let room = self.lives[life].room.clone();
        let plan = &self.scenario.route;
        let mut most = plan.concurrency * plan.batch + 2 * self.scenario.queues.len();
        most += plan.prefetch;
        // What is held ahead for a lower queue takes no place from a higher one.
        if plan.prefetch > 0 && !self.scenario.weighted {
            let higher = (self.scenario.queues.len() - 1).max(1);
            most += higher * plan.concurrency * plan.batch;
        }
        if plan.group_by {
            most += (plan.concurrency * plan.batch).max(LEAST_ASIDE);
        }
        // What waits behind a failed one of its group takes no place from others.
        let limited = |queue: &&crate::scenario::QueuePlan| {
            let keeps = queue.flavour.orders_groups() || plan.group_by;
            keeps && queue.limit(plan.attempts).is_some()
        };
        let lanes = self.scenario.queues.iter().filter(limited).count();
        most += lanes * (plan.concurrency * plan.batch).max(LEAST_ASIDE);
        let Some(room) =
            room.filter(|_| !self.lives[life].retried && !self.lives[life].was_reloaded)
        else {
            return;
        };
        // Its seats are taken at this very moment, or are reserved already.
        let here = self.in_hand(life);
        // What is told again comes whether or not there is room for it by now.
        let again = |&&one: &&usize| self.deliveries[one].again;
        // And what is behind a failure goes back, once no extension of it is running.
        let leaves = |&&one: &&usize| self.is_behind(life, one);
        let more = |one: &&usize| again(one) || leaves(one);
        let most = most + here.iter().filter(more).count();
        let most = most + self.waiting_for_limits(life, &here);
        let here = here.len();
        if plan.prefetch > 0
            && here > plan.concurrency * plan.batch + 2 * self.scenario.queues.len()
        {
            self.met.insert(MetCircumstances::HeldAhead);
        }
        // What goes back has left its seat, and what waits may have lost its lease unnoticed.
        let most = most + self.may_be_going_back(life);
        if room.used() > most || here > most {
            let why = format!("{} seats, {here} messages, room for {most}", room.used());
            self.fails("room", why);
        }
    }

    /// Messages that a process has and has neither finished nor lost.
    fn in_hand(&self, life: usize) -> Vec<usize> {
        let now = clock::now();
        let here = self.open.iter().copied().filter(|&at| {
            let one = &self.deliveries[at];
            let over =
                |trial: &Trial| matches!(&trial.ended, Some((_, said)) if *said != WorldAnswer::Kept);
            // An extension that nobody answered, or that was answered while the machine stood still,
            // may keep what the process must take for lost.
            one.life == life
                && self.counts_on_until(at) > now
                && one.reached.is_some()
                && one.told.is_none()
                && !one.tried.last().is_some_and(over)
                && self.is_kept(at, now)
                && self.suspended.is_none_or(|stood| stood < one.handed)
                && !self.is_needless(life, at)
        });
        here.collect()
    }

    /// Whether an attempt at another of its group has failed since it was received, so that it has
    /// been released, though its queue may not have heard of it.
    fn is_behind(&self, life: usize, at: usize) -> bool {
        let one = &self.deliveries[at];
        let group = self.messages[one.message].group;
        let failed = |trial: &Trial| {
            let over = trial.ended.as_ref();
            let failed = |(when, said): &(BootInstant, WorldAnswer)| {
                !matches!(said, WorldAnswer::Done | WorldAnswer::Kept)
                    && one.reached.is_some_and(|at| at <= *when)
            };
            over.is_some_and(failed)
        };
        group.is_some()
            && one.tried.is_empty()
            && self.deliveries.iter().any(|other| {
                other.life == life
                    && self.messages[other.message].group == group
                    && self.messages[other.message].queue == self.messages[one.message].queue
                    && other.tried.iter().any(failed)
            })
    }

    /// Nobody waits for a receive any more, which may have brought something.
    pub(crate) fn is_left(&mut self, life: usize, queue: usize) {
        let Life {
            dead,
            patient_until,
            ..
        } = self.lives[life];
        if !dead && clock::now() < patient_until {
            let why = format!("a receive of queue {queue} by process {life}");
            self.fails("cut-a-poll", why);
        }
        self.lives[life].views[queue].asking -= 1;
    }

    /// Until when the process can count on its lease: from the last extension that it knows of; or
    /// from the receive, whose answer may have been under way for a quarter of it.
    pub(crate) fn counts_on_until(&self, delivery: usize) -> BootInstant {
        let one = &self.deliveries[delivery];
        let queue = self.queue_of(delivery);
        let lease = Duration::from_secs(self.scenario.visibility_s(queue));
        let received = if self.flavour(queue).is_far() {
            one.renewed + lease * 3 / 4
        } else {
            one.renewed + lease
        };
        if one.heard > one.handed {
            received.max(one.heard + lease)
        } else {
            received
        }
    }

    /// Whether the process must know that it holds this: it has heard of it, was never misled,
    /// and had no need to extend it yet.
    pub(crate) fn is_surely_held(&self, delivery: usize, now: BootInstant) -> bool {
        let one = &self.deliveries[delivery];
        let visibility = Duration::from_secs(self.scenario.visibility_s(self.queue_of(delivery)));
        one.reached.is_some()
            && one.told.is_none()
            && one.extensions == 0
            && now < one.renewed + visibility * 3 / 4
            && self.is_kept(delivery, now)
            && self.is_honest(delivery)
    }

    /// Whether a delivery need not be attempted: this process was done with the message before, or
    /// it has had all its attempts.
    pub(crate) fn is_needless(&self, life: usize, delivery: usize) -> bool {
        let one = &self.deliveries[delivery];
        let done = self.lives[life].done.get(&one.message);
        let done = one.known || done.is_some_and(|&done| Some(done) < one.reached);
        done || one.expires <= clock::now() || self.is_exhausted(life, delivery)
    }
}
