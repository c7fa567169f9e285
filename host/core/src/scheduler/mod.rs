//! Decides when each queue of a route is polled, for how many messages, and which job a free worker
//! gets. Pure: `now` is an argument; the stages execute the decisions.

mod batching;
mod blocked;
mod blocked_messages;
pub mod figures;
mod group_order;
mod held;
pub mod lane;
mod lanes;
mod line;
pub mod live;
pub mod permits;
mod plan;
pub mod priority;
pub mod ready;
mod sending;
pub mod shared;
mod start;
mod variety;

pub use start::{After, FinishedAttempt, MessageFate, Start};

use crate::clock::BootInstant;
use crate::throttle::control::Control;
use crate::throttle::pace::{Bounds, Pace};
use batching::BatchingDelay;
use lane::{Lane, LaneLimits, LaneRules};
use lanes::Lanes;
use permits::{Permit, Permits};
use priority::QueueOrder;
use ready::{Gather, Waiting};
use std::time::Duration;

/// For how long the messages of one group that are received at once may take permits.
const GROUP_TIME: Duration = Duration::from_millis(100);

/// What a route's scheduler is made from.
#[derive(Debug, Clone)]
pub struct Rules {
    /// One per queue, in the order of their priority.
    pub lanes: Vec<LaneRules>,
    /// One per queue for weighted order; `None` for strict order.
    pub weights: Option<Vec<u32>>,
    /// Maximum messages of one attempt.
    pub batch: usize,
    /// Within this time of its arrival a message should start: what is held beyond what runs is
    /// no more than that.
    pub horizon: Duration,
    /// What may change later.
    pub limits: SchedulerLimits,
}

/// What may change about a route while it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerLimits {
    /// Maximum concurrent attempts.
    pub attempts: usize,
    /// Maximum messages held beyond what runs; 0: nothing is received that cannot start.
    pub prefetch: usize,
    /// How long a message waits for others to share its attempt.
    pub window: Duration,
    /// One per queue; a queue without it has none.
    pub lanes: Vec<LaneLimits>,
}

/// A receive that the scheduler asks for. Released with `answered` or `failed`.
#[derive(Debug)]
pub struct Poll {
    /// Which queue.
    pub lane: usize,
    /// For how many messages, at most.
    pub max: usize,
    /// How long to wait for the first.
    pub wait: Duration,
    permits: Permit,
    /// Whether the queue is not known to hold messages.
    pub is_idle: bool,
    /// When it was asked for.
    asked: BootInstant,
    /// Messages that it brought, whether they are to run or not.
    brought: usize,
}

impl Poll {
    /// A place for one of the messages that the poll brought; to be taken for each of them.
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
    /// Running attempts.
    running: usize,
    /// Room that nobody polled for because it is little.
    gathering: BatchingDelay,
    /// Whether the workers had something to start when it was looked at last.
    covered: bool,
    /// What an attempt takes.
    pace: Pace,
    prefetch: usize,
    horizon: Duration,
    /// The most messages of one receive, of any of its queues.
    largest_receive: usize,
    /// The most messages kept aside of one queue, and of its blocked groups.
    most_kept: usize,
    stopped: bool,
    /// What was kept behind a message that its queue redelivers.
    overtaking: Vec<(usize, J)>,
}

impl<J: Waiting> Scheduler<J> {
    /// Nothing received yet, nothing known about any queue.
    pub fn new(rules: Rules) -> Self {
        let limits = rules.limits;
        let gather = Gather {
            full: rules.batch,
            window: limits.window,
        };
        let receives = rules.lanes.iter().map(|lane| lane.batch);
        let largest_receive = receives.max().unwrap_or(1);
        let lanes = rules.lanes.into_iter().enumerate();
        let own = |at: usize| limits.lanes.get(at).copied().unwrap_or_default();
        let mut scheduler = Self {
            order: QueueOrder::new(rules.weights.as_deref()),
            lanes: Lanes::new(lanes.map(|(at, rules)| Lane::new(rules, own(at), gather))),
            permits: Permits::new(0),
            control: Control::new(limits.attempts),
            batch: rules.batch,
            running: 0,
            gathering: BatchingDelay::default(),
            covered: false,
            pace: Pace::default(),
            prefetch: limits.prefetch,
            horizon: rules.horizon,
            largest_receive,
            most_kept: 0,
            stopped: false,
            overtaking: Vec::new(),
        };
        scheduler.resize_room();
        scheduler
    }

    /// Other limits from now on. What is under way beyond them ends as it would have. What a paused
    /// queue has in hand is among what `overtaking` hands out.
    pub fn set_limits(&mut self, limits: &SchedulerLimits, now: BootInstant) {
        self.control.set_maximum(limits.attempts);
        self.prefetch = limits.prefetch;
        self.resize_room();
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let own = limits.lanes.get(at).copied().unwrap_or_default();
            lane.set_limits(own, now);
            lane.ready.set_window(limits.window);
        }
        for lane in 0..self.lanes.len() {
            self.give_back_paused(lane, now);
        }
    }

    /// Whether a queue is paused.
    #[cfg(test)]
    pub(crate) fn is_paused(&self, lane: usize) -> bool {
        self.lanes[lane].paused
    }

    /// The permits that its polls reserve; other holders of permits release to it.
    pub fn permits(&self) -> &Permits {
        &self.permits
    }

    /// Whether jobs of one group of this queue run in order.
    pub fn orders_groups(&self, lane: usize) -> bool {
        self.lanes[lane].ready.is_ordered()
    }

    /// How many attempts may be under way as long as the downstream is not closed.
    pub fn attempts_limit(&self) -> usize {
        self.control.open_limit()
    }

    /// How many messages are worth receiving behind others of their group: they run one after the
    /// other and take permits meanwhile, so no more than are done within `GROUP_TIME`.
    pub(crate) fn group_share(&self) -> usize {
        let share = |time: Duration| {
            let micros = time.as_micros().max(1);
            usize::try_from(GROUP_TIME.as_micros() / micros).unwrap_or(usize::MAX)
        };
        self.pace.hand_over().map_or(0, share)
    }

    /// Whether that is fewer than the limits allow.
    pub(crate) fn is_lowered(&self) -> bool {
        self.control.is_lowered()
    }

    /// Whether the downstream is closed.
    pub fn is_closed(&self) -> bool {
        self.control.is_closed()
    }

    /// What the pace is to be kept within now.
    fn bounds(&self) -> Bounds {
        Bounds {
            attempts: self.control.open_limit(),
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

    /// A poll was answered: `jobs` in the queue's order, each with a `seat` of the poll. What it
    /// brought besides, and took a seat for, need not run.
    pub fn answered(&mut self, poll: Poll, jobs: Vec<J>, drained: bool, now: BootInstant) {
        let attempt_time = self.pace.hand_over().unwrap_or_default();
        if self.lanes[poll.lane].is_idle() && !jobs.is_empty() {
            // All queues are looked at only here: thousands that answer one by one would each look.
            let competing = self.competing();
            self.order.rejoin(poll.lane, competing.into_iter());
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

    /// A poll failed; the queue rests for `rest`.
    pub fn failed(&mut self, poll: Poll, rest: Duration, now: BootInstant) {
        let lane = &mut self.lanes[poll.lane];
        if !poll.is_idle {
            lane.reserved -= poll.max;
            self.order.refund(poll.lane, poll.max);
        }
        lane.polls -= 1;
        lane.fail(rest, now);
    }

    /// Jobs that are here and not taken.
    fn waiting(&self) -> usize {
        self.lanes.active().map(|lane| lane.ready.len()).sum()
    }

    /// Jobs that are here, have been begun without success and wait for another try.
    fn held(&self) -> usize {
        self.lanes.active().map(|lane| lane.held.len()).sum()
    }

    fn competing(&self) -> Vec<usize> {
        let lanes = self.lanes.indexes();
        lanes.filter(|&lane| !self.lanes[lane].is_idle()).collect()
    }

    /// Takes out what has become too old before it was started, each with its queue. To be asked
    /// before `reserve_workers` and `next_jobs`, which would start it.
    #[must_use = "expired messages must be settled"]
    pub fn expired(&mut self, now: BootInstant) -> Vec<(usize, J)> {
        let expired = self.lanes.change_active(|index, lane| {
            let out = lane.expired(now).into_iter();
            out.map(move |job| (index, job))
        });
        expired.flatten().collect()
    }

    /// When `plan`, `expired` or `reserve_workers` may have more to say though nothing happened.
    pub fn next_attention(&self, now: BootInstant) -> Option<BootInstant> {
        let gathered = self.gathering.due().filter(|at| *at > now);
        let lanes = self.lanes.active().filter_map(|lane| lane.attention(now));
        // Nothing is received any more after a stop, however long a queue has rested.
        let rest_ends = self.lanes.rest_ends(now).filter(|_| !self.stopped);
        let lanes = lanes.chain(rest_ends);
        let probe = self.control.probe_at(now);
        gathered.into_iter().chain(lanes).chain(probe).min()
    }

    /// No more polls, and nothing waits for company any longer. Releases what waits or is held
    /// and `release` chooses, each with its queue; the rest is still run.
    #[must_use = "returned messages must be released"]
    pub fn stop(
        &mut self,
        release: impl Fn(usize, &J) -> bool,
        now: BootInstant,
    ) -> Vec<(usize, J)> {
        self.stopped = true;
        let lanes = self.lanes.iter_mut().enumerate();
        lanes
            .flat_map(|(index, lane)| {
                let out = lane.give_back(|job| release(index, job), true, now);
                out.into_iter().map(move |job| (index, job))
            })
            .collect()
    }

    /// Whether nothing waits, is held or runs.
    pub fn is_at_rest(&self) -> bool {
        let kept = self.waiting() + self.held() + self.aside() + self.overtaking.len();
        !self.has_workers() && kept == 0
    }
}

#[cfg(test)]
mod age_tests;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod pace_tests;
#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
