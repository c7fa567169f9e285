//! Who is next and how many: decides when each queue of a route is polled and which job a free
//! worker gets. Pure, told `now`; the stages do what it says.

pub mod board;
pub mod lane;
pub mod priority;
pub mod ready;
pub mod room;

use crate::clock::Moment;
use lane::{Knowledge, Lane, LaneRules};
use priority::Order;
use ready::Waiting;
use room::{Permit, Room};
use std::time::Duration;

/// How long little room is left to gather before it is polled for. A quick handler frees a whole
/// call's worth sooner; a slow one does not notice the least, and the most bounds what it loses.
const GATHERING: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// Polls of one queue under way at once, at most: a bound on calls, not a limit in practice.
const MOST_POLLS: usize = 16;

/// What a route's scheduler is made from.
#[derive(Debug, Clone)]
pub struct Rules {
    /// One per queue, in the order of their priority.
    pub lanes: Vec<LaneRules>,
    /// One per queue for weighted order; `None` for strict order.
    pub weights: Option<Vec<u32>>,
    /// The most attempts at once.
    pub attempts: usize,
    /// The most messages of one attempt.
    pub batch: usize,
}

/// A receive that the scheduler asks for. Given back with `answered` or `failed`.
#[derive(Debug)]
pub struct Poll {
    /// Which queue.
    pub lane: usize,
    /// For how many messages, at most.
    pub max: usize,
    /// How long to wait for the first.
    pub wait: Duration,
    room: Permit,
    parked: bool,
}

impl Poll {
    /// A place for one of the messages that the poll brought.
    pub fn seat(&mut self) -> Permit {
        self.room.split_one()
    }
}

/// What a worker is to do: the most urgent jobs, of one queue, to be attempted together.
#[derive(Debug)]
pub struct Start<J> {
    /// Their queue.
    pub lane: usize,
    /// At least one, no two of one group.
    pub jobs: Vec<J>,
    /// Whether `plan` has something to say now that they are taken.
    pub replan: bool,
}

/// The scheduler of one route.
#[derive(Debug)]
pub struct Scheduler<J> {
    lanes: Vec<Lane<J>>,
    order: Order,
    room: Room,
    attempts: usize,
    batch: usize,
    /// Attempts under way.
    running: usize,
    /// Room that polls under way have reserved.
    reserved: usize,
    /// Since when room is free that nobody polled for because it is little.
    gathering_since: Option<Moment>,
    /// What an attempt takes, averaged.
    attempt_time: Duration,
    stopped: bool,
}

impl<J: Waiting> Scheduler<J> {
    /// Nothing received yet, nothing known about any queue.
    pub fn new(rules: Rules) -> Self {
        Self {
            order: Order::new(rules.weights.as_deref()),
            lanes: rules.lanes.into_iter().map(Lane::new).collect(),
            room: Room::new(rules.attempts * rules.batch),
            attempts: rules.attempts,
            batch: rules.batch,
            running: 0,
            reserved: 0,
            gathering_since: None,
            attempt_time: Duration::ZERO,
            stopped: false,
        }
    }

    /// The room that its polls reserve; other holders of permits give back to it.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// The polls to be started now.
    pub fn plan(&mut self, now: Moment) -> Vec<Poll> {
        let mut polls = Vec::new();
        if self.stopped {
            return polls;
        }
        let strict = self.order.is_strict();
        for lane in self.order.ranking(self.lanes.len()) {
            let holds = self.lanes[lane].knowledge == Knowledge::Holds;
            if holds && strict {
                while let Some(poll) = self.poll_for_room(lane, now) {
                    polls.push(poll);
                }
                polls.extend(self.rescue(lane));
                break; // what is below must wait for this queue
            } else if !holds {
                polls.extend(self.lanes[lane].park(lane, now, &self.room));
            }
        }
        if !strict {
            polls.extend(self.share_room(now));
        }
        polls
    }

    /// Gives free room to the queues that hold messages, by weight.
    fn share_room(&mut self, now: Moment) -> Vec<Poll> {
        let mut polls = Vec::new();
        'again: loop {
            for lane in self.order.ranking(self.lanes.len()) {
                if self.lanes[lane].knowledge != Knowledge::Holds {
                    continue;
                }
                if let Some(poll) = self.poll_for_room(lane, now) {
                    polls.push(poll);
                    continue 'again;
                }
            }
            return polls;
        }
    }

    /// A poll of a queue that holds messages, when there is room enough to be worth a call.
    fn poll_for_room(&mut self, index: usize, now: Moment) -> Option<Poll> {
        let contended = self.contended(index);
        let lane = &self.lanes[index];
        if lane.polls >= MOST_POLLS {
            return None;
        }
        let full = lane.rules.batch.min(self.room.capacity());
        let free = self.room.free();
        if free == 0 {
            self.gathering_since = None;
            return None;
        }
        if free < full && !self.gathered(now) {
            return None;
        }
        self.gathering_since = None;
        let room = self.room.reserve(full);
        self.order.charge(index, room.count());
        self.reserved += room.count();
        let lane = &mut self.lanes[index];
        lane.polls += 1;
        // Room that others want is not tied up in a wait.
        let wait = if contended {
            Duration::ZERO
        } else {
            lane.proof_wait()
        };
        Some(Poll {
            lane: index,
            max: room.count(),
            wait,
            room,
            parked: false,
        })
    }

    /// Whether little room has been free for long enough: a tenth of what an attempt takes, so
    /// that calls bring more than one message and no more than a tenth of the capacity idles.
    fn gathered(&mut self, now: Moment) -> bool {
        if self.room.used() <= self.waiting() + self.reserved {
            return true; // nobody holds any who would give it back
        }
        let since = *self.gathering_since.get_or_insert(now);
        now.since(since) >= self.gathering_time()
    }

    fn gathering_time(&self) -> Duration {
        (self.attempt_time / 10).clamp(GATHERING.0, GATHERING.1)
    }

    fn contended(&self, index: usize) -> bool {
        let others = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index);
        others
            .map(|(_, lane)| lane)
            .any(|lane| lane.knowledge == Knowledge::Holds || !lane.ready.is_empty())
    }

    /// In strict order, messages held for lower queues can take all the room that the higher one
    /// needs to be asked; then it is asked beyond the room.
    fn rescue(&mut self, index: usize) -> Option<Poll> {
        let full_of_waiting = self.room.free() == 0 && self.waiting() >= self.room.used();
        let stuck = self.running == 0 && full_of_waiting;
        let lane = &mut self.lanes[index];
        let needed = stuck && lane.polls == 0 && !lane.ready.startable();
        needed.then(|| lane.parked_poll(index, &self.room))
    }

    /// A poll was answered: `jobs` in the queue's order, each with a `seat` of the poll.
    pub fn answered(&mut self, poll: Poll, jobs: Vec<J>, drained: bool, now: Moment) {
        let competing = self.competing();
        if self.lanes[poll.lane].is_idle() && !jobs.is_empty() {
            self.order.rejoin(poll.lane, competing.into_iter());
        }
        let lane = &mut self.lanes[poll.lane];
        lane.polls -= 1;
        lane.learn(jobs.len(), drained, poll.parked, poll.wait, now);
        if poll.parked {
            self.order.charge(poll.lane, jobs.len());
        } else {
            self.reserved -= poll.max;
            self.order
                .refund(poll.lane, poll.max.saturating_sub(jobs.len()));
        }
        for job in jobs {
            lane.ready.push(job);
        }
    }

    /// A poll failed; the queue rests for `rest`.
    pub fn failed(&mut self, poll: Poll, rest: Duration, now: Moment) {
        if !poll.parked {
            self.reserved -= poll.max;
            self.order.refund(poll.lane, poll.max);
        }
        let lane = &mut self.lanes[poll.lane];
        lane.polls -= 1;
        lane.fail(rest, now);
    }

    /// Jobs that are here and not taken.
    fn waiting(&self) -> usize {
        self.lanes.iter().map(|lane| lane.ready.len()).sum()
    }

    fn competing(&self) -> Vec<usize> {
        (0..self.lanes.len())
            .filter(|&lane| !self.lanes[lane].is_idle())
            .collect()
    }

    /// How many more workers have something to do; each counts as running from now on, until
    /// `next_jobs` gives it nothing.
    pub fn hire(&mut self) -> usize {
        if self.startable_lane().is_none() {
            return 0;
        }
        let hired = self
            .waiting()
            .div_ceil(self.batch)
            .min(self.attempts - self.running);
        self.running += hired;
        hired
    }

    /// What a worker is to do next. `None` ends its hire.
    pub fn next_jobs(&mut self) -> Option<Start<J>> {
        let Some(index) = self.startable_lane() else {
            self.dismiss();
            return None;
        };
        let lane = &mut self.lanes[index];
        let jobs = lane.ready.take(self.batch);
        lane.started += jobs.len();
        Some(Start {
            lane: index,
            jobs,
            replan: lane.is_unasked(),
        })
    }

    /// Ends the hire of a worker that will not ask again.
    pub fn dismiss(&mut self) {
        self.running -= 1;
    }

    fn startable_lane(&self) -> Option<usize> {
        for index in self.order.ranking(self.lanes.len()) {
            let lane = &self.lanes[index];
            if lane.ready.startable() {
                return Some(index);
            }
            if self.order.is_strict() && lane.may_hold() && !self.stopped {
                return None;
            }
        }
        None
    }

    /// An attempt ended after `took`; `failed` names each message's group and whether the message
    /// must be delivered again. Gives back what must be released so that no group is overtaken.
    #[must_use = "what is given back must be released"]
    pub fn ended<'a>(
        &mut self,
        lane: usize,
        groups: impl IntoIterator<Item = (Option<&'a str>, bool)>,
        took: Duration,
    ) -> Vec<J> {
        self.attempt_time = (self.attempt_time * 7 + took) / 8;
        let lane = &mut self.lanes[lane];
        let mut overtaking = Vec::new();
        for (group, failed) in groups {
            lane.started = lane.started.saturating_sub(1);
            if let Some(group) = group {
                overtaking.extend(lane.ready.freed(group, failed));
            }
        }
        overtaking
    }

    /// When `plan` may have more to say though nothing happened.
    pub fn next_attention(&self, now: Moment) -> Option<Moment> {
        let gathered = self
            .gathering_since
            .map(|since| since + self.gathering_time())
            .filter(|at| *at > now);
        let rested = self.lanes.iter().filter_map(|lane| lane.rests_until(now));
        gathered.into_iter().chain(rested).min()
    }

    /// No more polls. Gives back what waits and `release` chooses, each with its queue; the rest
    /// is still run.
    #[must_use = "what is given back must be released"]
    pub fn stop(&mut self, release: impl Fn(usize, &J) -> bool) -> Vec<(usize, J)> {
        self.stopped = true;
        let lanes = self.lanes.iter_mut().enumerate();
        lanes
            .flat_map(|(index, lane)| {
                let out = lane.ready.extract(|job| release(index, job));
                out.into_iter().map(move |job| (index, job))
            })
            .collect()
    }

    /// Whether nothing waits or runs.
    pub fn is_at_rest(&self) -> bool {
        self.running == 0 && self.lanes.iter().all(|lane| lane.ready.is_empty())
    }
}

#[cfg(test)]
mod group_tests;
#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
