//! Decides which jobs a free worker gets, and what the end of an attempt changes.

use super::Scheduler;
use super::lane::Lane;
use super::limited::LimitedJobs;
use super::ready::WaitingJob;
use crate::clock::BootInstant;
use crate::throttle::control::Signal;
use std::collections::HashMap;
use std::time::Duration;

/// The next jobs of a worker: the most urgent ones, of one queue, to be attempted together.
#[derive(Debug)]
pub struct Start<J> {
    /// The index of their queue.
    pub lane: usize,
    /// The jobs, at least one; those of one group in their order.
    pub jobs: Vec<J>,
    /// Whether jobs of one group of their queue run in order.
    pub ordered: bool,
    /// Whether the intake must plan again now that the jobs are taken.
    pub replan: bool,
    /// Whether there may be work for more workers.
    pub hire: bool,
    /// The number of jobs that have gone before others because they had waited for the longest wait
    /// of their priority.
    pub hastened: usize,
}

/// An attempt that has ended.
#[derive(Debug, Clone, Copy)]
pub struct FinishedAttempt {
    /// The index of its queue.
    pub lane: usize,
    /// When it began.
    pub began: BootInstant,
    /// The signal that it gave about the downstream.
    pub showed: Signal,
}

/// The fate of one message of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFate {
    /// It is done.
    Done,
    /// It must be redelivered.
    Failed,
    /// It was attempted while the downstream was busy or closed, and must be held with `hold`.
    Kept,
    /// It failed and is attempted again after this pause: in a new delivery or, if others of its
    /// group wait behind it here, in this delivery.
    Again(Duration),
    /// It failed and is dead-lettered. The messages behind it in its group wait until the queue has
    /// taken it.
    DeadLettered,
    /// A message before it in its group, of the same attempt, is attempted again or dead-lettered.
    Behind {
        /// Whether its next receive may dead-letter it.
        last_chance: bool,
    },
}

impl MessageFate {
    fn fails(self) -> bool {
        !matches!(self, Self::Done | Self::Kept)
    }
}

/// The maximum pause before the next attempt for which a group is kept, if it may be released:
/// meanwhile leases are extended and permits are used.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The fates of the messages of one group.
struct GroupEnding<'a> {
    group: &'a str,
    /// The fate of the first message that is not done.
    first: MessageFate,
    /// Whether one must be redelivered. No message that waits behind it may go before it.
    failed: bool,
}

impl<'a> GroupEnding<'a> {
    fn of(group: &'a str, fate: MessageFate) -> Self {
        Self {
            group,
            first: fate,
            failed: fate.fails(),
        }
    }

    fn also(&mut self, fate: MessageFate) {
        if self.first == MessageFate::Done {
            self.first = fate;
        }
        self.failed |= fate.fails();
    }
}

/// The results of the end of an attempt.
#[derive(Debug)]
#[must_use = "returned messages must be released"]
pub struct After<J> {
    /// Messages that must be released so that none overtakes others of its group.
    pub overtaking: Vec<J>,
    /// Whether there may be work for more workers.
    pub hire: bool,
    /// Whether the queue keeps groups in order, none of its messages runs and no held message may
    /// start: it delivers no more of these groups before their messages are settled.
    pub awaits_settling: bool,
}

impl<J: WaitingJob> Lane<J> {
    /// Whether a group is kept after `first` happened to one of its messages. `behind` is how many
    /// messages of the same attempt are behind it, and whether releasing them may dead-letter one.
    fn stays(&self, group: &str, first: MessageFate, behind: (usize, bool), stopped: bool) -> bool {
        let (behind, last) = behind;
        if let Some(turns) = &self.turns {
            // The queue does not wait for the messages that are here: it can redeliver the first
            // one by itself.
            let last = last || turns.of(group).any(|job| !job.may_be_given_back());
            return last && matches!(first, MessageFate::Again(_));
        }
        if !matches!(first, MessageFate::Again(_) | MessageFate::DeadLettered) {
            return false;
        }
        let mut waiting = behind;
        let mut last = last;
        for job in self.ready.iter().filter(|job| job.group() == Some(group)) {
            waiting += 1;
            last |= !job.may_be_given_back();
        }
        match first {
            MessageFate::Again(pause) => {
                let room = self.blocked.len() + waiting < self.most_blocked;
                let short = pause <= LONGEST_PAUSE && room && !stopped;
                waiting > 0 && (last || short)
            }
            MessageFate::DeadLettered => last || !stopped,
            _ => false,
        }
    }
}

impl<J: WaitingJob> Scheduler<J> {
    /// Reserves as many workers as have something to do. Each counts as running from now on, until
    /// `next_jobs` returns nothing for it.
    pub fn reserve_workers(&mut self, now: BootInstant) -> usize {
        self.looked = Some(now);
        self.wake(now);
        self.woken = false;
        let free = self.attempts_limit_now(now).saturating_sub(self.running);
        if free == 0 || self.startable_lane(now).is_none() {
            return 0;
        }
        let limited = self.lanes.active().filter_map(|lane| lane.limited.as_ref());
        let workers: usize = limited.map(LimitedJobs::workers).sum();
        let ready = self
            .lanes
            .active()
            .map(|lane| lane.ready.attempts(self.batch));
        let reserved = (ready.sum::<usize>() + workers).min(free);
        self.running += reserved;
        reserved
    }

    /// Returns the next jobs of a worker. `None` releases the worker.
    pub fn next_jobs(&mut self, now: BootInstant) -> Option<Start<J>> {
        self.looked = Some(now);
        let welcome = self.running <= self.attempts_limit_now(now);
        let (index, jobs) = loop {
            let (Some(index), true) = (self.startable_lane(now), welcome) else {
                self.release_worker();
                return None;
            };
            // Without a job, all that were ready wait for limits now, so another queue is next.
            let jobs = self.lanes[index].take(now);
            if !jobs.is_empty() {
                break (index, jobs);
            }
        };
        if self.pace.begins(now) {
            self.resize_room();
        }
        let ahead = self.prefetch > 0;
        let is_due_sooner = self.is_due_sooner(index, now);
        self.attempts += 1;
        let more = self.may_hire(now) && self.lanes[index].startable(now);
        let permitted = self.has_limits && self.lanes.active().any(Lane::may_be_permitted);
        let lane = &mut self.lanes[index];
        let limited = lane.limited.as_ref();
        let parked = limited.map(LimitedJobs::parked);
        // The queue is told which tenants it should leave out.
        let shares = lane.tenants.as_ref().zip(parked);
        let parks = shares.is_some_and(|(tenants, parked)| tenants.would_park(parked));
        Some(Start {
            lane: index,
            jobs,
            ordered: lane.ready.is_ordered(),
            replan: lane.lacks_poll(ahead, now) || parks || is_due_sooner,
            hastened: std::mem::take(&mut lane.hastened),
            hire: more || permitted,
        })
    }

    /// Whether another attempt may run, and no worker is about to look for jobs.
    pub(super) fn may_hire(&self, now: BootInstant) -> bool {
        self.running == self.attempts && self.running < self.attempts_limit_now(now)
    }

    /// Whether jobs of a queue are due before the intake's timer. Then the intake must plan again.
    pub(super) fn is_due_sooner(&self, lane: usize, now: BootInstant) -> bool {
        let looked = self.looked.unwrap_or(now);
        let due = self.lanes[lane].attention(looked, now);
        due.is_some_and(|due| self.timer.is_none_or(|timer| due < timer))
    }

    /// Lets jobs of all queues that are due start again.
    pub(super) fn wake(&mut self, now: BootInstant) {
        for woken in self.lanes.change_active(|_, lane| lane.wake(now)) {
            self.woken |= woken;
        }
    }

    /// Whether a worker is running or about to run.
    pub(crate) fn has_workers(&self) -> bool {
        self.running > 0
    }

    /// Releases a worker that takes no more jobs.
    pub(crate) fn release_worker(&mut self) {
        self.running -= 1;
    }

    pub(super) fn startable_lane(&mut self, now: BootInstant) -> Option<usize> {
        if let Some(index) = self.last_chance_lane(now) {
            return Some(index);
        }
        if self.order.is_strict() {
            let mut next = self.lanes.next_index(0);
            while let Some(index) = next {
                if let Some(found) = self.startable_at(index, now) {
                    return found;
                }
                next = self.lanes.next_index(index + 1);
            }
            return None;
        }
        let ranking = self.order.ranking(self.lanes.indexes());
        ranking
            .into_iter()
            .find_map(|index| self.startable_at(index, now))?
    }

    /// Returns a queue with a message here that was redelivered for the last time. The message, and
    /// those before it, wait for no higher queue: if the process is killed meanwhile, the message
    /// is dead-lettered without an attempt.
    fn last_chance_lane(&mut self, now: BootInstant) -> Option<usize> {
        let lanes = &self.lanes;
        self.last_chances
            .retain(|&index| !lanes[index].ready.is_empty());
        let mut lanes = self.last_chances.iter().copied();
        lanes.find(|&index| {
            let lane = &self.lanes[index];
            lane.startable(now) && lane.ready.has_last_chance()
        })
    }

    /// Returns the lane if one of its jobs can start now; `Some(None)` if it keeps those below it
    /// from starting.
    fn startable_at(&mut self, index: usize, now: BootInstant) -> Option<Option<usize>> {
        let lane = &mut self.lanes[index];
        self.woken |= lane.wake(now);
        if lane.startable(now) {
            return Some(Some(index));
        }
        let blocks = self.order.is_strict() && !self.stopped;
        (blocks && lane.is_urgent(lane.may_hold(), now)).then_some(None)
    }

    /// Records the end of an attempt. `fates` holds each message's group and fate, in order.
    pub fn ended<'a>(
        &mut self,
        ended: FinishedAttempt,
        fates: impl IntoIterator<Item = (Option<&'a str>, MessageFate)>,
        now: BootInstant,
    ) -> After<J> {
        self.time(ended, now);
        let lane = &mut self.lanes[ended.lane];
        lane.attempts -= 1;
        self.attempts -= 1;
        self.limits_changed();
        let lane = &mut self.lanes[ended.lane];
        let mut groups: Vec<GroupEnding<'_>> = Vec::new();
        for (group, fate) in fates {
            lane.started = lane.started.saturating_sub(1);
            let Some(group) = group else { continue };
            match groups.iter_mut().find(|other| other.group == group) {
                Some(ending) => ending.also(fate),
                None => groups.push(GroupEnding::of(group, fate)),
            }
        }
        let grouped = !groups.is_empty();
        let mut overtaking = Vec::new();
        for GroupEnding {
            group,
            first,
            failed,
        } in groups
        {
            if failed {
                let behind = lane.ready.behind(group);
                match &mut lane.turns {
                    // They wait for their turn here: a release would spend a receive without an
                    // attempt.
                    Some(turns) => turns.take_back(behind),
                    None => overtaking.extend(behind),
                }
            }
            // If nothing is received any more, a message that must come first cannot come back.
            let unasked = self.stopped || lane.paused;
            if let (true, true, Some(turns)) = (failed, unasked, &mut lane.turns)
                && turns.of(group).all(WaitingJob::may_be_given_back)
            {
                overtaking.extend(turns.clear(group));
            }
            if first != MessageFate::Kept {
                lane.ready.freed(group);
                lane.next_turn(group, now);
            }
        }
        let awaits_settling =
            grouped && lane.attempts == 0 && lane.is_ordered_by_queue() && !lane.ready.has_free();
        let hire = self.note(ended, now);
        After {
            overtaking,
            hire,
            awaits_settling,
        }
    }

    /// Returns the groups of an attempt that stay here although one of their messages has failed:
    /// it is retried in this delivery, or it is dead-lettered and the others wait for that. Call it
    /// before `fared` and `ended`, for which all messages of such a group are `Kept`; then call
    /// `keep`.
    ///
    /// Releasing a group spends a receive of each of its messages, and messages that were not
    /// attempted may be dead-lettered for their receives. So a group is released only if the pause
    /// is long, many messages are kept already or nothing more is received, and never if that would
    /// be the last receive of a message that was not attempted.
    pub fn stays<'a>(
        &self,
        lane: usize,
        fates: impl IntoIterator<Item = (Option<&'a str>, MessageFate)>,
    ) -> HashMap<String, MessageFate> {
        let mut groups: HashMap<&str, (MessageFate, bool, usize, bool)> = HashMap::new();
        for (group, fate) in fates {
            let Some(group) = group else { continue };
            let of = (MessageFate::Done, false, 0, false);
            let (first, lost, behind, last) = groups.entry(group).or_insert(of);
            match fate {
                MessageFate::Done => {}
                MessageFate::Kept | MessageFate::Failed => *lost = true,
                MessageFate::Again(_) | MessageFate::DeadLettered => *first = fate,
                MessageFate::Behind { last_chance } => {
                    *behind += 1;
                    *last |= last_chance;
                }
            }
        }
        let lane = &self.lanes[lane];
        let unasked = self.stopped || lane.paused;
        let stays =
            |(group, (first, lost, behind, last)): (&str, (MessageFate, bool, usize, bool))| {
                let stays = !lost && lane.stays(group, first, (behind, last), unasked);
                stays.then(|| (group.to_owned(), first))
            };
        groups.into_iter().filter_map(stays).collect()
    }

    /// Keeps the jobs that an attempt has left of a group that stays, in their order, and those
    /// that wait behind them.
    pub fn keep(
        &mut self,
        lane: usize,
        group: &str,
        jobs: Vec<J>,
        first: MessageFate,
        now: BootInstant,
    ) {
        let index = lane;
        let lane = &mut self.lanes[index];
        if lane.turns.is_none() {
            lane.blocked.append(group, lane.ready.behind(group));
        }
        match first {
            MessageFate::Again(pause) => lane.blocked.retry_at(group, jobs, now + pause),
            _ => lane.blocked.prepend(group, jobs),
        }
        self.resize_room();
    }

    /// Takes back the jobs that an attempt has left of a group that does not stay, to wait for
    /// their turn. Returns those that cannot wait here, because their queue keeps the order and
    /// delivers them again behind the one that failed. Call it before `ended`.
    #[must_use = "messages that cannot wait here must be released"]
    pub fn take_back(&mut self, lane: usize, jobs: Vec<J>) -> Vec<J> {
        let Some(turns) = &mut self.lanes[lane].turns else {
            return jobs;
        };
        turns.take_back(jobs);
        Vec::new()
    }

    /// Records that a job of an attempt is dead-lettered, and its group stays. Call it before
    /// `keep`.
    pub fn leaves(&mut self, lane: usize, job: &J) {
        if let Some(group) = job.group() {
            self.lanes[lane].blocked.wait_for(group, job.id());
        }
    }

    /// Records how long a worker was busy. An attempt that found the downstream busy or closed does
    /// not count: it shows how long a refusal takes.
    fn time(&mut self, ended: FinishedAttempt, now: BootInstant) {
        let took = now.since(ended.began);
        match ended.showed {
            Signal::Open => self.pace.ended(took, now),
            Signal::Nothing => self.pace.cut_short(took, now),
            Signal::Busy | Signal::Closed => self.pace.broken_off(now),
        }
    }

    /// Updates the limits from what the attempt showed about the downstream. Returns whether more
    /// attempts may run than before.
    fn note(&mut self, ended: FinishedAttempt, now: BootInstant) -> bool {
        let before = self.control.limit(now);
        let running = self.running;
        self.control.note(ended.showed, ended.began, running, now);
        self.resize_room();
        if ended.showed == Signal::Nothing {
            return false;
        }
        let hastened = ended.showed == Signal::Open && self.hasten(now);
        hastened || self.control.limit(now) > before
    }

    /// Lets held jobs start early, because the downstream is open.
    fn hasten(&mut self, now: BootInstant) -> bool {
        if self.lanes.active().all(|lane| lane.held.is_empty()) {
            return false;
        }
        for index in self.order.ranking(self.lanes.indexes()) {
            let lane = &mut self.lanes[index];
            if let Some(jobs) = lane.held.hasten(now) {
                lane.ready.resume(jobs);
                return true;
            }
        }
        false
    }

    /// Holds the jobs of one attempt that found the downstream busy or closed, all together: until
    /// `until`, or earlier if the downstream turns out to be open, but not before `not_before`.
    pub fn hold(&mut self, lane: usize, jobs: Vec<J>, not_before: BootInstant, until: BootInstant) {
        self.lanes[lane].held.push(jobs, not_before, until);
    }

    /// Takes the jobs that a paused queue has here, for `overtaking` to return. Call it after jobs
    /// have arrived or were held.
    pub(crate) fn give_back_paused(&mut self, lane: usize, now: BootInstant) -> bool {
        let state = &mut self.lanes[lane];
        if !state.paused {
            return false;
        }
        let back = state.give_back_paused(now).into_iter();
        self.overtaking.extend(back.map(|job| (lane, job)));
        !self.overtaking.is_empty()
    }
}
