//! Decides when each queue is polled, and for how many messages.

use super::batching::FreePermits;
use super::lane::{Knowledge, Lane};
use super::ready::WaitingJob;
use super::{Poll, Scheduler};
use crate::clock::BootInstant;
use std::time::Duration;

impl<J: WaitingJob> Scheduler<J> {
    /// Returns the polls to start now.
    pub fn plan(&mut self, now: BootInstant) -> Vec<Poll> {
        self.lanes.wake(now);
        let mut polls = self.wanted(now);
        for poll in &mut polls {
            poll.asked = now;
            let lane = &mut self.lanes[poll.lane];
            lane.answered_by = lane.answered_by.max(now + poll.wait);
        }
        self.lanes.settle(self.stopped, now);
        polls
    }

    /// Returns the queues that have outstanding polls, each with the latest time at which the last
    /// of them is answered.
    pub fn outstanding(&self) -> Vec<(usize, BootInstant)> {
        let lanes = self.lanes.iter().enumerate();
        let asked = lanes.filter(|(_, lane)| lane.polls > 0);
        asked
            .map(|(index, lane)| (index, lane.answered_by))
            .collect()
    }

    fn wanted(&mut self, now: BootInstant) -> Vec<Poll> {
        let mut polls = Vec::new();
        if self.stopped {
            return polls;
        }
        self.resize_room();
        // Earlier versions of the route have all attempts.
        if self.elsewhere > 0 && self.open_attempts_limit() == 0 {
            return polls;
        }
        self.wake(now);
        if self.control.is_closed() {
            return self.probe(now);
        }
        self.covered = self.startable_lane(now).is_some();
        let (strict, ahead) = (self.order.is_strict(), self.prefetch > 0);
        for lane in self.order.ranking(self.lanes.indexes()) {
            let state = &self.lanes[lane];
            let holds = state.knowledge == Knowledge::Holds;
            // Queues below must wait for this one.
            let blocks = strict && state.is_urgent(holds, now);
            if holds && strict {
                while let Some(poll) = self.poll_for_room(lane, now) {
                    polls.push(poll);
                }
                polls.extend(self.rescue(lane, now));
            } else if !holds {
                polls.extend(self.lanes[lane].park(lane, ahead, now, &self.permits));
            }
            if blocks {
                break;
            }
        }
        if !strict {
            polls.extend(self.share_room(now));
        }
        polls
    }

    /// Gives free permits to the queues that hold messages, by weight.
    fn share_room(&mut self, now: BootInstant) -> Vec<Poll> {
        let mut polls = Vec::new();
        'again: loop {
            for lane in self.order.ranking(self.lanes.indexes()) {
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

    /// Returns a poll of a queue that holds messages, if enough permits are free to be worth a
    /// call.
    fn poll_for_room(&mut self, index: usize, now: BootInstant) -> Option<Poll> {
        let contended = self.contended(index);
        let lane = &self.lanes[index];
        let appetite = lane.appetite(now);
        if lane.polls >= lane.most_polls() || appetite == 0 {
            return None;
        }
        let full = lane.full_receive(self.permits.capacity()).min(appetite);
        let free = self.free_for(index);
        if free > 0
            && free < full
            && (contended || !self.receives_at_once(lane))
            && !self.is_gathered(index, free, now)
        {
            return None;
        }
        if free > 0 && free >= full {
            self.gathering.full_call()
        } else {
            self.gathering.ends(free, self.permits.capacity(), now)
        }
        if free == 0 {
            return None;
        }
        let permits = if free > self.permits.free() {
            self.permits.overdraw(full.min(free))
        } else {
            self.permits.reserve(full)
        };
        self.order.charge(index, permits.count());
        let lane = &mut self.lanes[index];
        lane.reserved += permits.count();
        lane.polls += 1;
        // Permits that other queues want are not tied up in a wait.
        let wait = if contended {
            Duration::ZERO
        } else {
            lane.proof_wait()
        };
        Some(Poll {
            lane: index,
            max: permits.count(),
            wait,
            permits,
            is_idle: false,
            asked: now,
            brought: 0,
        })
    }

    /// Whether a queue that no other competes with is asked for each free place at once. If it
    /// chooses by tenant or priority, a late receive lets it choose among newer messages too. With
    /// several messages in an attempt the places are collected, so that attempts are full.
    fn receives_at_once(&self, lane: &Lane<J>) -> bool {
        let starts_all = self.batch == 1 && self.prefetch == 0;
        starts_all && lane.polls == 0 && lane.rules.is_shared_at_receive()
    }

    /// Returns how many messages a queue may request. In strict order, messages that are held ahead
    /// for lower queues cannot start before its own and use none of the places in which they run,
    /// even if more are held than there should be because attempts became slower.
    fn free_for(&self, index: usize) -> usize {
        let free = self.permits.free();
        if self.prefetch == 0 || !self.order.is_strict() {
            return free;
        }
        let below: usize = self
            .lanes
            .active_behind(index)
            .map(|lane| lane.ready.len())
            .sum();
        let counts = self.permits.used().saturating_sub(below);
        free.max(self.bounds().running().saturating_sub(counts))
    }

    /// Whether the few permits have been free for long enough to be used.
    fn is_gathered(&mut self, index: usize, free: usize, now: BootInstant) -> bool {
        let lane = &self.lanes[index];
        let (hand_over, call) = (self.pace.hand_over(), lane.call_time());
        let join = self.bounds().join(hand_over, call);
        // If attempts are quick compared with calls, waiting jobs that can start return their
        // permits soon.
        let starts = !join.is_zero() && self.covered;
        let waiting = if starts { 0 } else { self.waiting() };
        let reserved: usize = self.lanes.active().map(|lane| lane.reserved).sum();
        let stays = waiting + self.held() + self.limited() + self.aside() + reserved;
        let batch = lane.full_receive(self.permits.capacity()).max(1);
        let little = FreePermits {
            free,
            capacity: self.permits.capacity(),
            comes_free: self.permits.used() > stays,
            wait: self.batching_delay(index),
            fits: lane.polls >= (lane.reserved + free).div_ceil(batch),
            join,
        };
        self.gathering.is_over(&little, now)
    }

    fn batching_delay(&self, index: usize) -> Duration {
        let call = self.lanes[index].call_time();
        self.bounds()
            .wait(self.pace.hand_over(), call, self.covered)
    }

    /// Returns the longest batching delay of all queues.
    pub(super) fn longest_batching_delay(&self) -> Duration {
        // Computed once, because the closure is called for every queue.
        let (bounds, hand_over) = (self.bounds(), self.pace.hand_over());
        self.lanes
            .iter()
            .map(|lane: &Lane<J>| bounds.wait(hand_over, lane.call_time(), self.covered))
            .max()
            .unwrap_or_default()
    }

    fn contended(&self, index: usize) -> bool {
        let others = self.lanes.indexes().filter(|&other| other != index);
        others
            .map(|other| &self.lanes[other])
            .filter(|lane| !lane.paused)
            .any(|lane| lane.knowledge == Knowledge::Holds || !lane.ready.is_empty())
    }

    /// Returns a poll beyond the permits for a queue that cannot get any. In strict order, messages
    /// held for lower queues can use all the permits that the higher one needs to be polled.
    fn rescue(&mut self, index: usize, now: BootInstant) -> Option<Poll> {
        let kept = self.held() + self.limited() + self.aside();
        let full_of_waiting =
            self.permits.free() == 0 && self.waiting() + kept >= self.permits.used();
        let stuck = !self.has_workers() && full_of_waiting;
        let lane = &mut self.lanes[index];
        // If the queue has messages itself, started or not, more do not help.
        let has_none = lane.ready.is_empty() && lane.held.is_empty() && lane.limited() == 0;
        let needed = stuck && lane.polls == 0 && has_none && lane.appetite(now) > 0;
        needed.then(|| lane.parked_poll(index, &self.permits))
    }

    /// Returns the polls while the circuit is open: none, except when a probe is due and no held
    /// message can be used for it. Then every queue is polled for a few messages.
    fn probe(&mut self, now: BootInstant) -> Vec<Poll> {
        let busy = self.running + self.held() > 0 || self.startable_lane(now).is_some();
        if self.control.limit(now) == 0 || busy {
            return Vec::new();
        }
        let permits = &self.permits;
        let is_idle = self
            .lanes
            .change_active(|index, lane| lane.park(index, false, now, permits));
        is_idle.flatten().collect()
    }
}
