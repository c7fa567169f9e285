//! Decides when each queue of a route is polled, for how many messages, and which job a free worker
//! gets. Pure: `now` is an argument; the stages carry out the decisions.

mod batching;
mod blocked;
mod blocked_messages;
mod conclude;
pub mod figures;
mod group_order;
mod held;
pub mod lane;
mod lanes;
mod limited;
mod line;
pub mod live;
pub mod permits;
mod plan;
pub mod priority;
pub mod ready;
#[cfg(test)]
mod sample;
mod sending;
pub mod shared;
mod single_receives;
mod start;
pub mod tenants;
mod turns;
mod variety;

pub use conclude::{Conclusion, EndedJob, Pause};
pub use start::{After, FinishedAttempt, MessageFate, Start};

use crate::clock::BootInstant;
use crate::fleet::keeper::Fleet;
use crate::queue::sharing::SharingRules;
use crate::throttle::control::Control;
use crate::throttle::pace::{Bounds, Pace};
use batching::BatchingDelay;
use lane::{Lane, LaneLimits, LaneRules};
use lanes::Lanes;
use limited::LimitedJobs;
use permits::{Permit, Permits};
use priority::QueueOrder;
use ready::{Gather, WaitingJob, is_last_chance};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tenants::Tenants;

/// The time for which messages of one group that are received at once may use permits.
const GROUP_TIME: Duration = Duration::from_millis(100);

/// The rules that a route's scheduler is created from.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The rules of each queue, in the order of their priority.
    pub lanes: Vec<LaneRules>,
    /// The weight of each queue for weighted order; `None` for strict order.
    pub weights: Option<Vec<u32>>,
    /// The maximum number of messages of one attempt.
    pub batch: usize,
    /// The time after its arrival within which a message should start. It limits how many messages
    /// are held in addition to those that run.
    pub horizon: Duration,
    /// The limits that may change later.
    pub limits: SchedulerLimits,
}

/// The limits of a route that may change while it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerLimits {
    /// The maximum number of concurrent attempts.
    pub attempts: usize,
    /// The maximum number of messages held in addition to those that run; with 0, only messages
    /// that can start are received.
    pub prefetch: usize,
    /// The time that a message waits for others to share its attempt.
    pub window: Duration,
    /// The limits of each queue; a missing entry means no limits.
    pub lanes: Vec<LaneLimits>,
    /// The weights of tenants. A tenant that is not named has weight 1.
    pub weights: BTreeMap<String, u32>,
}

/// A receive that the scheduler requests. It must be returned with `answered` or `failed`.
#[derive(Debug)]
pub struct Poll {
    /// The index of the queue.
    pub lane: usize,
    /// The maximum number of messages.
    pub max: usize,
    /// The time to wait for the first message.
    pub wait: Duration,
    permits: Permit,
    /// Whether the queue is not known to hold messages.
    pub is_idle: bool,
    /// When it was requested.
    asked: BootInstant,
    /// The number of messages that it brought, whether they are to run or not.
    brought: usize,
}

impl Poll {
    /// Returns a permit for one of the messages that the poll brought. Call it for each of them.
    pub fn seat(&mut self) -> Permit {
        self.brought += 1;
        self.permits.split_one()
    }
}

/// The scheduler of one route.
#[derive(Debug)]
pub struct Scheduler<J> {
    lanes: Lanes<J>,
    order: QueueOrder,
    permits: Permits,
    control: Control,
    batch: usize,
    /// The number of workers: those that run an attempt, and those that look for one.
    running: usize,
    /// The number of running attempts.
    attempts: usize,
    /// The number of attempts that earlier versions of the route may still run.
    elsewhere: usize,
    /// The maximum number of attempts since the route began to end.
    ending_limit: usize,
    /// The delay of free permits that are too few for a call.
    gathering: BatchingDelay,
    /// When workers last looked for jobs.
    looked: Option<BootInstant>,
    /// When the intake plans again even if nothing happens.
    timer: Option<BootInstant>,
    /// Whether jobs may start since that no worker was reserved for: they were due, or others before
    /// them were not.
    woken: bool,
    /// Whether the workers had jobs to start at the last check.
    covered: bool,
    /// The duration of attempts.
    pace: Pace,
    prefetch: usize,
    horizon: Duration,
    /// The maximum number of messages of one receive, over all queues.
    largest_receive: usize,
    /// The maximum number of messages of one queue that are kept aside, and of its blocked groups.
    most_kept: usize,
    stopped: bool,
    /// Messages that were kept behind one that its queue redelivers, each with its queue.
    overtaking: Vec<(usize, J)>,
    /// Queues that may have messages here that were redelivered for the last time.
    last_chances: BTreeSet<usize>,
    /// Whether its jobs need permits of the fleet.
    has_limits: bool,
    /// Whether tenants or priorities share its queues.
    has_tenants: bool,
}

/// The maximum number of attempts that a route which ends may still run at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptsLeft {
    /// The number of each queue.
    pub of_lanes: Vec<usize>,
    /// The number of all queues together.
    pub all: usize,
}

/// The consequences of jobs that wait for limits of the fleet.
#[derive(Debug)]
#[must_use = "returned messages must be released"]
pub struct LimitEffects<J> {
    /// Jobs that go back to their queues because too many wait, each with its queue and the time
    /// for which it is not wanted.
    pub deferred: Vec<(usize, J, Duration)>,
    /// Whether the intake must plan again, because jobs that wait leave room for others.
    pub replan: bool,
}

impl<J: WaitingJob> Scheduler<J> {
    /// Creates a scheduler that has received nothing and knows nothing about any queue.
    pub fn new(rules: Rules) -> Self {
        let limits = rules.limits;
        let gather = Gather {
            full: rules.batch,
            window: limits.window,
        };
        let has_tenants = rules.lanes.iter().any(|lane| lane.sharing.is_some());
        let receives = rules.lanes.iter().map(|lane| lane.batch);
        let largest_receive = receives.max().unwrap_or(1);
        let lanes = rules.lanes.into_iter().enumerate().map(|(at, rules)| {
            let own = limits.lanes.get(at).copied().unwrap_or_default();
            Lane::new(rules, own, gather)
        });
        let mut scheduler = Self {
            order: QueueOrder::new(rules.weights.as_deref()),
            lanes: Lanes::new(lanes),
            permits: Permits::new(0),
            control: Control::new(limits.attempts),
            batch: rules.batch,
            running: 0,
            attempts: 0,
            elsewhere: 0,
            ending_limit: usize::MAX,
            gathering: BatchingDelay::default(),
            looked: None,
            timer: None,
            woken: false,
            covered: false,
            pace: Pace::default(),
            prefetch: limits.prefetch,
            horizon: rules.horizon,
            largest_receive,
            most_kept: 0,
            stopped: false,
            overtaking: Vec::new(),
            last_chances: BTreeSet::new(),
            has_limits: false,
            has_tenants,
        };
        scheduler.resize_room();
        scheduler
    }

    /// Replaces the limits. Attempts and messages beyond them end normally. `overtaking` then also
    /// returns the messages that a paused queue gives back.
    pub fn set_limits(&mut self, limits: &SchedulerLimits, now: BootInstant) {
        self.control.set_maximum(limits.attempts);
        self.prefetch = limits.prefetch;
        self.resize_room();
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let own = limits.lanes.get(at).copied().unwrap_or_default();
            lane.set_limits(own, now);
            lane.ready.set_window(limits.window);
            if let Some(tenants) = &mut lane.tenants {
                tenants.set_weights(&limits.weights);
            }
        }
        for lane in 0..self.lanes.len() {
            self.give_back_paused(lane, now);
        }
    }

    /// Leaves attempts to earlier versions of the route, in the order of the queues here. They count
    /// as if they ran here. Returns whether that is different from before.
    pub fn leave_attempts(&mut self, left: &AttemptsLeft) -> bool {
        let mut changed = self.elsewhere != left.all;
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let elsewhere = left.of_lanes.get(at).copied().unwrap_or_default();
            changed |= lane.elsewhere != elsewhere;
            lane.elsewhere = elsewhere;
        }
        self.elsewhere = left.all;
        if changed {
            self.resize_room();
        }
        changed
    }

    /// Leaves no burst of rate limits, since an earlier version of the route may have used it.
    pub fn skip_bursts(&mut self, now: BootInstant) {
        for lane in self.lanes.iter_mut() {
            lane.skip_burst(now);
        }
    }

    /// Whether a queue is paused.
    #[cfg(test)]
    pub(crate) fn is_paused(&self, lane: usize) -> bool {
        self.lanes[lane].paused
    }

    /// Returns the permits that polls reserve and that holders of permits return.
    pub fn permits(&self) -> &Permits {
        &self.permits
    }

    /// Whether jobs of one group of this queue run in order.
    pub fn orders_groups(&self, lane: usize) -> bool {
        self.lanes[lane].ready.is_ordered()
    }

    /// Returns the maximum number of concurrent attempts while the downstream is not closed.
    pub fn attempts_limit(&self) -> usize {
        self.control.open_limit()
    }

    /// Returns how many messages are worth receiving behind others of their group. They run one
    /// after the other and use permits meanwhile, so only as many as are done within `GROUP_TIME`.
    pub(crate) fn group_share(&self) -> usize {
        self.pace.hand_over().map_or(0, |time: Duration| {
            let micros = time.as_micros().max(1);
            usize::try_from(GROUP_TIME.as_micros() / micros).unwrap_or(usize::MAX)
        })
    }

    /// Whether `attempts_limit` is lower than the limits allow.
    pub(crate) fn is_lowered(&self) -> bool {
        self.control.is_lowered()
    }

    /// Whether the downstream is closed.
    pub fn is_closed(&self) -> bool {
        self.control.is_closed()
    }

    /// Returns the present bounds for the pace.
    fn bounds(&self) -> Bounds {
        Bounds {
            attempts: self.open_attempts_limit().max(1),
            batch: self.batch,
            call: self.largest_receive,
            prefetch: self.prefetch,
            horizon: self.horizon,
        }
    }

    fn resize_room(&mut self) {
        let room = self.bounds().in_flight(self.pace.hand_over());
        let spare = self.spare(room);
        self.permits.resize(room + spare);
    }

    /// Records the answer to a poll. `jobs` are in the queue's order, each with a `seat` of the
    /// poll. Other messages of the answer that took a seat need not run.
    pub fn answered(&mut self, poll: Poll, jobs: Vec<J>, drained: bool, now: BootInstant) {
        let attempt_time = self.pace.hand_over().unwrap_or_default();
        if self.lanes[poll.lane].is_idle() && !jobs.is_empty() {
            // Checks all queues only in this case: otherwise thousands that answer one by one would
            // each cause a check of all.
            let competing = self.competing();
            self.order.rejoin(poll.lane, competing.into_iter());
        }
        if jobs.iter().any(is_last_chance) {
            self.last_chances.insert(poll.lane);
        }
        let lane = &mut self.lanes[poll.lane];
        lane.keep_at_most(self.most_kept);
        lane.polls -= 1;
        lane.note_groups(&jobs);
        lane.learn(poll.brought, drained, poll.is_idle, poll.wait, now);
        if poll.is_idle {
            self.order.charge(poll.lane, jobs.len());
        } else {
            lane.pace_polls(poll.max, poll.brought, poll.wait, now.since(poll.asked));
            lane.reserved -= poll.max;
            self.order
                .refund(poll.lane, poll.max.saturating_sub(jobs.len()));
        }
        lane.arrive(jobs, attempt_time, now);
        if drained {
            lane.drained(now);
        }
        self.give_back_paused(poll.lane, now);
    }

    /// Records a failed poll; the queue rests for `rest`.
    pub fn failed(&mut self, poll: Poll, rest: Duration, now: BootInstant) {
        let lane = &mut self.lanes[poll.lane];
        if !poll.is_idle {
            lane.reserved -= poll.max;
            self.order.refund(poll.lane, poll.max);
        }
        lane.polls -= 1;
        lane.fail(rest, now);
    }

    /// Returns the number of jobs that are here and not taken.
    fn waiting(&self) -> usize {
        self.lanes.active().map(|lane| lane.ready.len()).sum()
    }

    /// Returns the number of jobs that are held for another attempt because the downstream was busy
    /// or closed.
    fn held(&self) -> usize {
        self.lanes.active().map(|lane| lane.held.len()).sum()
    }

    /// Returns the number of jobs that wait for limits of the fleet.
    fn limited(&self) -> usize {
        self.lanes.active().map(Lane::limited).sum()
    }

    /// Makes the jobs of all queues wait for limits of the fleet. Call it before anything is
    /// received.
    pub fn limit(&mut self, fleet: &Arc<Fleet>) {
        self.has_limits = true;
        for lane in self.lanes.iter_mut() {
            let sequence = lane.rules.sequence;
            let keeps_groups = lane.ready.is_ordered();
            let has_tenants = lane.rules.sharing.is_some();
            lane.limited = Some(LimitedJobs::new(
                fleet.clone(),
                sequence,
                keeps_groups,
                has_tenants,
            ));
        }
    }

    /// Records that permits or tokens of the fleet may be there.
    pub fn limits_changed(&mut self) {
        if !self.has_limits {
            return;
        }
        let lanes = self.lanes.change_active(|_, lane| {
            if let Some(limited) = &mut lane.limited {
                limited.changed();
            }
        });
        lanes.for_each(drop);
    }

    /// Returns what must be done because jobs wait for limits. Call it after `next_jobs` and
    /// `plan`.
    pub fn limit_effects(&mut self) -> LimitEffects<J> {
        let mut effects = LimitEffects {
            deferred: Vec::new(),
            replan: false,
        };
        if !self.has_limits {
            return effects;
        }
        let lanes = self.lanes.change_active(|index, lane| {
            let deferred = std::mem::take(&mut lane.deferred);
            (index, deferred, std::mem::take(&mut lane.needs_room))
        });
        for (index, deferred, needs_room) in lanes {
            let deferred = deferred.into_iter();
            effects
                .deferred
                .extend(deferred.map(|(job, after)| (index, job, after)));
            effects.replan |= needs_room;
        }
        effects
    }

    /// Returns the rules by which tenants share each queue that does not know them yet. Call it
    /// before `plan`.
    pub fn share_out(&mut self, now: BootInstant) -> Vec<(usize, Arc<SharingRules>)> {
        if !self.has_tenants {
            return Vec::new();
        }
        let changed = self.lanes.change_active(|index, lane| {
            lane.share_out(now);
            let tenants = lane.tenants.as_mut();
            Some((index, tenants.and_then(Tenants::changed)?))
        });
        changed.flatten().collect()
    }

    fn competing(&self) -> Vec<usize> {
        let lanes = self.lanes.indexes();
        lanes.filter(|&lane| !self.lanes[lane].is_idle()).collect()
    }

    /// Takes out the jobs that became too old before they were started, each with its queue. Call
    /// it before `reserve_workers` and `next_jobs`, which would start them.
    #[must_use = "expired messages must be settled"]
    pub fn expired(&mut self, now: BootInstant) -> Vec<(usize, J)> {
        let expired = self.lanes.change_active(|index, lane| {
            let out = lane.expired(now).into_iter();
            out.map(move |job| (index, job))
        });
        let expired: Vec<(usize, J)> = expired.flatten().collect();
        // Those behind them in their groups may start.
        self.woken |= !expired.is_empty();
        expired
    }

    /// Sets the intake's timer: returns when `plan`, `expired` or `reserve_workers` may have more to
    /// do even if nothing happens.
    pub fn next_attention(&mut self, now: BootInstant) -> Option<BootInstant> {
        // Work that became due since the last look waits for the next one.
        let looked = self.looked.map_or(now, |looked| looked.min(now));
        let gathered = self.gathering.due().filter(|at| *at > looked);
        let active = self.lanes.active();
        let lanes = active.filter_map(|lane| lane.attention(looked, now));
        // After a stop nothing is received any more, so the end of a queue's rest does not matter.
        let rest_ends = if !self.stopped {
            self.lanes.rest_ends(now)
        } else {
            None
        };
        let lanes = lanes.chain(rest_ends);
        let probe = self.control.probe_at(looked);
        let woken = self.woken.then_some(now);
        let times = gathered.into_iter().chain(lanes).chain(probe);
        self.timer = times.chain(woken).min();
        self.timer
    }

    /// Stops polling, and stops waiting for others to share an attempt. Releases the waiting and
    /// held jobs that `release` chooses, each with its queue; the others are still run.
    #[must_use = "returned messages must be released"]
    pub fn stop(
        &mut self,
        release: impl Fn(usize, &J) -> bool,
        now: BootInstant,
    ) -> Vec<(usize, J)> {
        self.stopped = true;
        // Workers do not look any more, so their timers do not matter.
        self.looked = Some(now);
        self.woken = false;
        let lanes = self.lanes.iter_mut().enumerate();
        lanes
            .flat_map(|(index, lane)| {
                let out = lane.give_back(|job| release(index, job), true, now);
                out.into_iter().map(move |job| (index, job))
            })
            .collect()
    }

    /// Whether no job waits, is held or runs.
    pub fn is_at_rest(&self) -> bool {
        let kept = self.waiting() + self.held() + self.limited() + self.aside();
        let deferred: usize = self.lanes.active().map(|lane| lane.deferred.len()).sum();
        let kept = kept + self.overtaking.len() + deferred;
        !self.has_workers() && kept == 0
    }

    /// Lowers the limits of a route that ends to the attempts that it may still need, and returns
    /// them. They never rise again, so that others may use the rest. An outstanding poll may bring
    /// a message that must run, and needs one attempt.
    pub fn lower_to_attempts_left(&mut self) -> AttemptsLeft {
        let receives = !self.stopped;
        let of_lanes: Vec<usize> = self
            .lanes
            .iter_mut_quietly()
            .map(|lane: &mut Lane<J>| lane.lower_to_attempts_left(receives))
            .collect();
        let jobs: usize = self.lanes.iter().map(Lane::attempts_left).sum();
        let receives = receives || self.lanes.iter().any(|lane| lane.polls > 0);
        let needed = jobs.max(usize::from(receives));
        self.ending_limit = self.ending_limit.min(needed);
        self.resize_room();
        AttemptsLeft {
            of_lanes,
            all: self.ending_limit,
        }
    }

    /// Returns how many attempts may be under way now.
    fn attempts_limit_now(&self, now: BootInstant) -> usize {
        let limit = self.control.limit_beside(self.elsewhere, now);
        limit.min(self.ending_limit)
    }

    /// Returns how many attempts may be under way if the downstream is not closed.
    fn open_attempts_limit(&self) -> usize {
        let limit = self.control.open_limit_beside(self.elsewhere);
        limit.min(self.ending_limit)
    }
}

#[cfg(test)]
mod tests;
