//! Enforces the order of groups on a queue that does not keep it: its lane passes jobs of groups on
//! by turns. Pure: `now` is an argument.

use super::Scheduler;
use super::blocked::Released;
use super::group_order::GroupOrder;
use super::lane::Lane;
use super::ready::Waiting;
use super::start::MessageFate;
use crate::clock::BootInstant;
use std::time::Duration;

/// Minimum number of messages kept aside, besides the permits, before any is released.
const LEAST_ASIDE: usize = 100;

impl<J: Waiting> Lane<J> {
    /// Takes jobs in that came together: to the waiting ones, or aside until their turn.
    pub(super) fn arrive(&mut self, jobs: Vec<J>, attempt: Duration, now: BootInstant) {
        if self.turns.is_none() {
            let jobs = self.keep_blocked(jobs);
            return self.ready.arrive(jobs, now);
        }
        for job in jobs {
            self.take_in(job, attempt, now);
        }
    }

    /// Keeps what belongs to a blocked group; the others.
    fn keep_blocked(&mut self, jobs: Vec<J>) -> Vec<J> {
        if self.blocked.is_empty() {
            return jobs;
        }
        let mut others = Vec::with_capacity(jobs.len());
        for job in jobs {
            match job.group().map(str::to_owned) {
                Some(group) if self.blocked.contains(&group) => {
                    self.blocked.append(&group, vec![job]);
                }
                _ => others.push(job),
            }
        }
        others
    }

    fn take_in(&mut self, job: J, attempt: Duration, now: BootInstant) {
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
    pub(super) fn next_turn(&mut self, group: &str, now: BootInstant) {
        let turns = self.turns.as_mut();
        if let Some(job) = turns.and_then(|turns| turns.promote(group)) {
            self.ready.arrive(vec![job], now);
        }
    }

    /// These were handed on and need not run any more: it is the turn of what follows them.
    pub(super) fn pass_turns(&mut self, jobs: &[J], now: BootInstant) {
        let Some(turns) = &mut self.turns else {
            return;
        };
        jobs.iter().for_each(|job| turns.done(job));
        for group in jobs.iter().filter_map(Waiting::group) {
            self.next_turn(group, now);
        }
    }

    /// Fills an attempt with what follows in the groups that it has begun with.
    pub(super) fn fill(&mut self, jobs: &mut Vec<J>, most: usize, now: BootInstant) {
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

    /// The queue reported that it holds nothing more.
    pub(super) fn drained(&mut self, now: BootInstant) {
        let turns = self.turns.as_mut();
        for group in turns.map(|turns| turns.drained(now)).unwrap_or_default() {
            self.next_turn(&group, now);
        }
    }

    /// Time has passed.
    pub(super) fn wake_groups(&mut self, now: BootInstant) {
        let turns = self.turns.as_mut();
        for group in turns.map(|turns| turns.wake(now)).unwrap_or_default() {
            self.next_turn(&group, now);
        }
    }

    /// A job of a group leaves for the dead letters: what follows in its group, unless that is
    /// running, waits until the queue has taken that.
    pub(super) fn wait_for(&mut self, job: &J) {
        let Some(group) = job.group() else { return };
        self.blocked.wait_for(group, job.id());
        if !self.ready.is_busy(group) {
            self.blocked.append(group, self.ready.behind(group));
        }
    }

    /// Sets how many messages are kept aside at most, and how many of blocked groups.
    pub(super) fn keep_at_most(&mut self, most: usize) {
        self.most_blocked = most;
        if let Some(turns) = &mut self.turns {
            turns.set_maximum(most);
        }
    }

    /// Kept aside, with a permit or without.
    pub(super) fn aside(&self) -> usize {
        self.turns.as_ref().map_or(0, GroupOrder::len)
    }
}

impl<J: Waiting> Scheduler<J> {
    /// From now on this queue's groups are kept in the order of sending, which it does not do
    /// itself. To be called before anything was received, of a queue that orders groups.
    pub fn keep_sending_order(&mut self, lane: usize) {
        self.lanes[lane].turns = Some(GroupOrder::new(LEAST_ASIDE));
        self.resize_room();
    }

    /// Room beyond what attempts need: for what is kept aside, and what is kept of blocked groups,
    /// which must not starve others.
    pub(super) fn spare(&mut self, room: usize) -> usize {
        let most = room.max(LEAST_ASIDE);
        self.most_kept = most;
        let spare = |_, lane: &mut Lane<J>| {
            lane.keep_at_most(most);
            let blocked = lane.blocked.len().min(most);
            blocked + lane.turns.as_ref().map_or(0, GroupOrder::spare)
        };
        self.lanes.change_active(spare).sum()
    }

    /// How many are kept aside until it is their turn, or with their blocked group.
    pub(super) fn aside(&self) -> usize {
        let kept = |lane: &Lane<J>| lane.aside() + lane.blocked.len();
        self.lanes.active().map(kept).sum()
    }

    /// What became of a job whose attempt ended; before `ended` says it of the whole attempt.
    pub(crate) fn fared(&mut self, lane: usize, job: &J, fate: MessageFate, now: BootInstant) {
        if let Some(turns) = &mut self.lanes[lane].turns {
            match fate {
                MessageFate::Done => turns.done(job),
                MessageFate::Failed
                | MessageFate::Again(_)
                | MessageFate::DeadLettered
                | MessageFate::Behind { .. } => {
                    turns.failed(job, now);
                }
                MessageFate::Kept => {}
            }
        }
    }

    /// A job arrived that ends without an attempt: messages behind it in its group wait for
    /// `settled`, also those that were passed on and have not begun.
    pub(crate) fn passed_by(&mut self, lane: usize, job: &J, now: BootInstant) {
        let lane = &mut self.lanes[lane];
        if lane.turns.is_none() && lane.ready.is_ordered() {
            return lane.wait_for(job);
        }
        if let Some(turns) = &mut lane.turns
            && turns.passed_by(job, now)
            && let Some(group) = job.group()
            && !lane.ready.is_busy(group)
        {
            turns.take_back(lane.ready.behind(group));
        }
    }

    /// What has arrived from a queue and has no place even aside, with the time for which it may stay
    /// there.
    pub(crate) fn surplus(&mut self, lane: usize) -> Vec<(J, Duration)> {
        let turns = self.lanes[lane].turns.as_mut();
        turns.map(GroupOrder::surplus).unwrap_or_default()
    }

    /// The message with this id was settled: it can be received again at `due`, or never.
    pub fn settled(&mut self, lane: usize, id: &str, due: Option<BootInstant>, now: BootInstant) {
        let index = lane;
        let lane = &mut self.lanes[index];
        let Some(turns) = lane.turns.as_mut() else {
            match lane.blocked.settled(id, due.is_none()) {
                Released::Nothing => {}
                Released::GoesOn(group) => lane.unblock(group),
                Released::GivesBack((group, jobs)) => {
                    lane.ready.freed(&group);
                    let jobs = jobs.into_iter().map(|job| (index, job));
                    self.overtaking.extend(jobs);
                }
            }
            return;
        };
        if let Some(group) = turns.settled(id, due) {
            lane.next_turn(&group, now);
        }
    }

    /// What must be released, since the message before it in its group is redelivered.
    #[must_use = "returned messages must be released"]
    pub fn overtaking(&mut self) -> Vec<(usize, J)> {
        std::mem::take(&mut self.overtaking)
    }
}

#[cfg(test)]
#[path = "sending_tests.rs"]
mod tests;
