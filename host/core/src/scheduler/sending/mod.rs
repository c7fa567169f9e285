//! Enforces the order of groups on a queue that does not keep it: its lane passes the jobs of a
//! group on in turns. Pure: `now` is an argument.

use super::Scheduler;
use super::blocked::ReleaseResult;
use super::group_order::GroupOrder;
use super::lane::Lane;
use super::limited::LimitedJobs;
use super::ready::WaitingJob;
use super::start::MessageFate;
use crate::clock::BootInstant;
use std::time::Duration;

/// The minimum number of messages that may be kept aside, in addition to the permits, before any is
/// released.
const LEAST_ASIDE: usize = 100;

impl<J: WaitingJob> Lane<J> {
    /// Takes in jobs that arrived together: they wait for a worker, or aside until their turn.
    pub(super) fn arrive(&mut self, jobs: Vec<J>, attempt: Duration, now: BootInstant) {
        if self.turns.is_none() {
            let jobs = self.keep_blocked(jobs);
            return self.ready.arrive(jobs, now);
        }
        for job in jobs {
            self.take_in(job, attempt, now);
        }
    }

    /// Keeps the jobs of blocked groups, and returns the others.
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
        if turns.arrive(job, attempt, now) {
            self.recall(&group);
        }
        self.next_turn(&group, now);
    }

    /// Takes back the messages of a group that were handed on and have not begun, because another
    /// comes first.
    fn recall(&mut self, group: &str) {
        let unbegun = self.unbegun(group);
        if let Some(turns) = &mut self.turns {
            turns.take_back(unbegun);
        }
    }

    /// Takes out the messages of a group that wait for a worker or for limits of the fleet.
    fn unbegun(&mut self, group: &str) -> Vec<J> {
        let limited = self.limited.as_mut();
        let mut out = limited.map_or_else(Vec::new, |limited| {
            let turns = self.ready.tenant_turns();
            limited.extract(|job| job.group() == Some(group), turns)
        });
        if !out.is_empty() {
            self.ready.freed(group);
        }
        if !self.ready.is_busy(group) {
            out.extend(self.ready.behind(group));
        }
        out
    }

    /// Makes the next job of a group wait for a worker, if it is its turn.
    pub(super) fn next_turn(&mut self, group: &str, now: BootInstant) {
        let turns = self.turns.as_mut();
        if let Some(job) = turns.and_then(|turns| turns.promote(group)) {
            self.ready.arrive(vec![job], now);
        }
    }

    /// Records that jobs that were handed on need not run any more, and gives the next ones of
    /// their groups their turn.
    pub(super) fn pass_turns(&mut self, jobs: &[J], now: BootInstant) {
        let Some(turns) = &mut self.turns else {
            return;
        };
        jobs.iter().for_each(|job| turns.done(job));
        for group in jobs.iter().filter_map(WaitingJob::group) {
            self.next_turn(group, now);
        }
    }

    /// Fills an attempt with the next jobs of the groups that it has begun with.
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

    /// Records that the queue reported that it holds nothing more.
    pub(super) fn drained(&mut self, now: BootInstant) {
        let turns = self.turns.as_mut();
        for group in turns.map(|turns| turns.drained(now)).unwrap_or_default() {
            self.next_turn(&group, now);
        }
    }

    /// Lets groups continue whose awaited messages have not come for too long. Returns whether there
    /// are any.
    pub(super) fn wake_groups(&mut self, now: BootInstant) -> bool {
        let turns = self.turns.as_mut();
        let groups = turns.map(|turns| turns.wake(now)).unwrap_or_default();
        for group in &groups {
            self.next_turn(group, now);
        }
        !groups.is_empty()
    }

    /// Blocks the group of a job that is being dead-lettered until the queue has taken it. The
    /// messages behind it wait, unless they are running.
    pub(super) fn wait_for(&mut self, job: &J) {
        let Some(group) = job.group() else { return };
        self.blocked.wait_for(group, job.id());
        let behind = self.unbegun(group);
        if !self.ready.is_busy(group) {
            self.blocked.append(group, behind);
        }
    }

    /// Sets the maximum number of messages kept aside, and of messages of blocked groups.
    pub(super) fn keep_at_most(&mut self, most: usize) {
        self.most_blocked = most;
        if let Some(turns) = &mut self.turns {
            turns.set_maximum(most);
        }
    }

    /// Returns the number of messages kept aside, with a permit or without.
    pub(super) fn aside(&self) -> usize {
        self.turns.as_ref().map_or(0, GroupOrder::len)
    }
}

impl<J: WaitingJob> Scheduler<J> {
    /// Keeps this queue's groups in the order of sending, which the queue does not do itself. Call
    /// it before anything is received, for a queue that orders groups.
    pub fn keep_sending_order(&mut self, lane: usize) {
        self.lanes[lane].turns = Some(GroupOrder::new(LEAST_ASIDE));
        self.resize_room();
    }

    /// Returns the permits beyond those that attempts need: for messages kept aside and messages of
    /// blocked groups, which must not starve others.
    pub(super) fn spare(&mut self, room: usize) -> usize {
        let most = room.max(LEAST_ASIDE);
        self.most_kept = most;
        self.lanes
            .change_active(|_, lane: &mut Lane<J>| {
                lane.keep_at_most(most);
                let blocked = lane.blocked.len().min(most);
                // More wait for limits than can start, so that they delay no others.
                let limited = lane.limited.as_ref().map_or(0, LimitedJobs::spare);
                blocked + limited + lane.turns.as_ref().map_or(0, GroupOrder::spare)
            })
            .sum()
    }

    /// Returns the number of messages that are kept aside until it is their turn, or with their
    /// blocked group.
    pub(super) fn aside(&self) -> usize {
        self.lanes
            .active()
            .map(|lane: &Lane<J>| lane.aside() + lane.blocked.len())
            .sum()
    }

    /// Records the fate of a job whose attempt ended. Call it before `ended`, which records the
    /// whole attempt.
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

    /// Records that a job arrived that ends without an attempt: messages behind it in its group
    /// wait for `settled`, including those that were passed on and have not begun.
    pub(crate) fn passed_by(&mut self, lane: usize, job: &J, now: BootInstant) {
        let lane = &mut self.lanes[lane];
        if lane.turns.is_none() && lane.ready.is_ordered() {
            return lane.wait_for(job);
        }
        if let Some(turns) = &mut lane.turns
            && turns.passed_by(job, now)
            && let Some(group) = job.group()
        {
            lane.recall(group);
        }
    }

    /// Takes out the messages of a queue that have no place even aside, with the time for which
    /// each may stay in the queue.
    pub(crate) fn surplus(&mut self, lane: usize) -> Vec<(J, Duration)> {
        let turns = self.lanes[lane].turns.as_mut();
        turns.map(GroupOrder::surplus).unwrap_or_default()
    }

    /// Records that the message with this id was settled: it can be received again at `due`, or
    /// never.
    pub fn settled(&mut self, lane: usize, id: &str, due: Option<BootInstant>, now: BootInstant) {
        let index = lane;
        let lane = &mut self.lanes[index];
        let Some(turns) = lane.turns.as_mut() else {
            match lane.blocked.settled(id, due.is_none()) {
                ReleaseResult::Nothing => {}
                ReleaseResult::GoesOn(group) => lane.unblock(group),
                ReleaseResult::GivesBack((group, jobs)) => {
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

    /// Takes out the messages that must be released because the message before them in their group
    /// is redelivered, or because their queue is paused.
    #[must_use = "returned messages must be released"]
    pub fn overtaking(&mut self) -> Vec<(usize, J)> {
        std::mem::take(&mut self.overtaking)
    }
}

#[cfg(test)]
mod tests;
