//! How a queue that does not keep its groups in order is made to: its lane hands jobs of groups to
//! the waiting ones by turns. Pure, told `now`.

use super::Scheduler;
use super::lane::Lane;
use super::ready::Waiting;
use super::start::Fate;
use super::turns::Turns;
use crate::clock::Moment;
use std::time::Duration;

/// So many are kept aside at least, beside the room, before any is given back.
const LEAST_ASIDE: usize = 100;

impl<J: Waiting> Lane<J> {
    /// Takes jobs in that came together: to the waiting ones, or aside until their turn.
    pub fn arrive(&mut self, jobs: Vec<J>, attempt: Duration, now: Moment) {
        if self.turns.is_none() {
            return self.ready.arrive(jobs, now);
        }
        for job in jobs {
            self.take_in(job, attempt, now);
        }
    }

    fn take_in(&mut self, job: J, attempt: Duration, now: Moment) {
        let group = job.group().map(str::to_owned);
        let (Some(turns), Some(group)) = (&mut self.turns, group) else {
            return self.ready.arrive(vec![job], now);
        };
        if turns.arrive(job, attempt, now) && !self.ready.is_busy(&group) {
            turns.take_back(self.ready.behind(&group));
        }
        self.next_turn(&group, now);
    }

    /// The next of a group starts to wait for a worker, if it is its turn.
    pub fn next_turn(&mut self, group: &str, now: Moment) {
        let turns = self.turns.as_mut();
        if let Some(job) = turns.and_then(|turns| turns.promote(group)) {
            self.ready.arrive(vec![job], now);
        }
    }

    /// These were handed on and need not run any more: it is the turn of what follows them.
    pub fn pass_turns(&mut self, jobs: &[J], now: Moment) {
        let Some(turns) = &mut self.turns else {
            return;
        };
        jobs.iter().for_each(|job| turns.done(job));
        for group in jobs.iter().filter_map(Waiting::group) {
            self.next_turn(group, now);
        }
    }

    /// Fills an attempt with what follows in the groups that it has begun with.
    pub fn fill(&mut self, jobs: &mut Vec<J>, most: usize, now: Moment) {
        let Some(turns) = &mut self.turns else {
            return;
        };
        let mut at = 0;
        while jobs.len() < most && at < jobs.len() {
            let group = jobs[at].group().map(str::to_owned);
            match group.and_then(|group| turns.follow(&group, now)) {
                Some(job) => jobs.push(job),
                None => at += 1,
            }
        }
    }

    /// The queue said that it holds nothing more.
    pub fn drained(&mut self, now: Moment) {
        let turns = self.turns.as_mut();
        for group in turns.map(|turns| turns.drained(now)).unwrap_or_default() {
            self.next_turn(&group, now);
        }
    }

    /// Time has passed.
    pub fn wake_groups(&mut self, now: Moment) {
        let turns = self.turns.as_mut();
        for group in turns.map(|turns| turns.wake(now)).unwrap_or_default() {
            self.next_turn(&group, now);
        }
    }

    /// Kept aside, with room of their own or without.
    pub fn aside(&self) -> usize {
        self.turns.as_ref().map_or(0, Turns::len)
    }
}

impl<J: Waiting> Scheduler<J> {
    /// From now on this queue's groups are kept in the order of sending, which it does not do
    /// itself. To be called before anything was received, of a queue that orders groups.
    pub fn keep_sending_order(&mut self, lane: usize) {
        self.lanes[lane].turns = Some(Turns::new(LEAST_ASIDE));
        self.resize_room();
    }

    /// Room beyond what attempts need: for what is kept aside and must not starve others.
    pub(super) fn spare(&mut self, room: usize) -> usize {
        let turns = self.lanes.iter_mut().filter_map(|lane| lane.turns.as_mut());
        turns
            .map(|turns| {
                turns.set_most(room.max(LEAST_ASIDE));
                turns.spare()
            })
            .sum()
    }

    /// How many are kept aside until it is their turn.
    pub(super) fn aside(&self) -> usize {
        self.lanes.iter().map(Lane::aside).sum()
    }

    /// What became of a job whose attempt ended; before `ended` says it of the whole attempt.
    pub fn fared(&mut self, lane: usize, job: &J, fate: Fate, now: Moment) {
        if let Some(turns) = &mut self.lanes[lane].turns {
            match fate {
                Fate::Done => turns.done(job),
                Fate::Failed => turns.failed(job, now),
                Fate::Kept => {}
            }
        }
    }

    /// A job arrived that ends without an attempt: what follows in its group waits for `told`, also
    /// what was handed on and has not begun.
    pub fn passed_by(&mut self, lane: usize, job: &J, now: Moment) {
        let lane = &mut self.lanes[lane];
        if let Some(turns) = &mut lane.turns
            && turns.passed_by(job, now)
            && let Some(group) = job.group()
            && !lane.ready.is_busy(group)
        {
            turns.take_back(lane.ready.behind(group));
        }
    }

    /// What arrived and has no place even aside, with its queue and the time for which it may stay
    /// there.
    pub fn surplus(&mut self) -> Vec<(usize, J, Duration)> {
        let lanes = self.lanes.iter_mut().enumerate();
        let of = |(at, lane): (usize, &mut Lane<J>)| {
            let surplus = lane.turns.as_mut().map(Turns::surplus).unwrap_or_default();
            surplus
                .into_iter()
                .map(move |(job, after)| (at, job, after))
        };
        lanes.flat_map(of).collect()
    }

    /// A queue was told about the message of this id: it can be received again at `due`, or never.
    pub fn told(&mut self, lane: usize, id: &str, due: Option<Moment>, now: Moment) {
        let lane = &mut self.lanes[lane];
        let turns = lane.turns.as_mut();
        if let Some(group) = turns.and_then(|turns| turns.told(id, due)) {
            lane.next_turn(&group, now);
        }
    }
}

#[cfg(test)]
#[path = "sending_tests.rs"]
mod tests;
