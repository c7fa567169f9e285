//! Decides which jobs a free worker gets, and what the end of an attempt changes.

use super::Scheduler;
use super::lane::Lane;
use super::ready::Waiting;
use crate::clock::BootInstant;
use crate::throttle::control::Signal;
use std::collections::HashMap;
use std::time::Duration;

/// What a worker is to do: the most urgent jobs, of one queue, to be attempted together.
#[derive(Debug)]
pub struct Start<J> {
    /// Their queue.
    pub lane: usize,
    /// At least one; those of one group in their order.
    pub jobs: Vec<J>,
    /// Whether jobs of one group of their queue run in order.
    pub ordered: bool,
    /// Whether `plan` has something to say now that they are taken.
    pub replan: bool,
}

/// An attempt that has ended.
#[derive(Debug, Clone, Copy)]
pub struct FinishedAttempt {
    /// Its queue.
    pub lane: usize,
    /// When it began.
    pub began: BootInstant,
    /// What it showed of the downstream.
    pub showed: Signal,
}

/// What became of one message of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFate {
    /// It is done.
    Done,
    /// It must be redelivered.
    Failed,
    /// It was begun without success and is to be held, by `hold`.
    Kept,
    /// It failed and is to be attempted again after this pause: delivered again or, where others of
    /// its group wait behind it here, in this delivery.
    Again(Duration),
    /// It failed and goes to the dead letters. What is behind it in its group waits until the queue
    /// has taken that.
    DeadLettered,
    /// One before it in its group, of the same attempt, is to be attempted again or goes to the dead
    /// letters.
    Behind {
        /// Its next receive may dead-letter it.
        last_chance: bool,
    },
}

impl MessageFate {
    fn fails(self) -> bool {
        !matches!(self, Self::Done | Self::Kept)
    }
}

/// The longest pause before the next attempt for which a group is kept, if it may be released:
/// leases are extended and permits taken all the time.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What became of the messages of one group.
struct GroupEnding<'a> {
    group: &'a str,
    /// Of the first that is not done.
    first: MessageFate,
    /// Whether one must be redelivered: nothing that waits behind it may go before it.
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

/// What the end of an attempt leads to.
#[derive(Debug)]
#[must_use = "returned messages must be released"]
pub struct After<J> {
    /// What must be released so that no group is overtaken.
    pub overtaking: Vec<J>,
    /// Whether there may be work for more workers.
    pub hire: bool,
    /// Of a queue that keeps groups in order, nothing runs and no held message may start: it may
    /// deliver no more of these groups before their messages are settled.
    pub awaits_settling: bool,
}

impl<J: Waiting> Lane<J> {
    /// Whether a group is kept after `first` happened to one of its messages; `behind` is how many
    /// of the same attempt are behind it, and whether releasing them may dead-letter one.
    fn stays(&self, group: &str, first: MessageFate, behind: (usize, bool), stopped: bool) -> bool {
        let (behind, last) = behind;
        let is_last = |job: &J| !job.may_be_given_back();
        if let Some(turns) = &self.turns {
            // The queue does not wait for what is here: it can deliver the first again by itself.
            let last = last || turns.of(group).any(is_last);
            return last && matches!(first, MessageFate::Again(_));
        }
        if !matches!(first, MessageFate::Again(_) | MessageFate::DeadLettered) {
            return false;
        }
        let mut waiting = behind;
        let mut last = last;
        for job in self.ready.iter().filter(|job| job.group() == Some(group)) {
            waiting += 1;
            last |= is_last(job);
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

impl<J: Waiting> Scheduler<J> {
    /// Reserves the workers that have something to do; each counts as running from now on, until
    /// `next_jobs` gives it nothing.
    pub fn reserve_workers(&mut self, now: BootInstant) -> usize {
        let free = self.control.limit(now).saturating_sub(self.running);
        if free == 0 || self.startable_lane(now).is_none() {
            return 0;
        }
        let reserved = self.waiting().div_ceil(self.batch).min(free);
        self.running += reserved;
        reserved
    }

    /// What a worker is to do next. `None` releases it.
    pub fn next_jobs(&mut self, now: BootInstant) -> Option<Start<J>> {
        let welcome = self.running <= self.control.limit(now);
        let Some(index) = self.startable_lane(now).filter(|_| welcome) else {
            self.release_worker();
            return None;
        };
        if self.pace.begins(now) {
            self.resize_room();
        }
        let ahead = self.prefetch > 0;
        let lane = &mut self.lanes[index];
        let jobs = lane.take(now);
        Some(Start {
            lane: index,
            jobs,
            ordered: lane.ready.is_ordered(),
            replan: lane.lacks_poll(ahead, now),
        })
    }

    /// Whether a worker is at work or about to be.
    pub(crate) fn has_workers(&self) -> bool {
        self.running > 0
    }

    /// Releases a worker that asks for no more jobs.
    pub(crate) fn release_worker(&mut self) {
        self.running -= 1;
    }

    pub(super) fn startable_lane(&mut self, now: BootInstant) -> Option<usize> {
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

    /// The lane, if something of it can start now; `Some(None)` if it keeps those below it from
    /// starting.
    fn startable_at(&mut self, index: usize, now: BootInstant) -> Option<Option<usize>> {
        let lane = &mut self.lanes[index];
        lane.wake(now);
        lane.wake_groups(now);
        if lane.startable(now) {
            return Some(Some(index));
        }
        let blocks = self.order.is_strict() && !self.stopped;
        (blocks && lane.is_urgent(lane.may_hold(), now)).then_some(None)
    }

    /// An attempt ended; `fates` names each message's group and what became of it, in order.
    pub fn ended<'a>(
        &mut self,
        ended: FinishedAttempt,
        fates: impl IntoIterator<Item = (Option<&'a str>, MessageFate)>,
        now: BootInstant,
    ) -> After<J> {
        self.time(ended, now);
        let lane = &mut self.lanes[ended.lane];
        lane.attempts -= 1;
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
                    // It waits for its turn here: released it would spend a receive unrun.
                    Some(turns) => turns.take_back(behind),
                    None => overtaking.extend(behind),
                }
            }
            // What would have to come back first cannot, once nothing is asked for.
            let unasked = self.stopped || lane.paused;
            if let (true, true, Some(turns)) = (failed, unasked, &mut lane.turns)
                && turns.of(group).all(Waiting::may_be_given_back)
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

    /// The groups of an attempt that stay in hand though one of its messages has failed: it is retried
    /// in this delivery, or goes to the dead letters and the rest waits for that. To be asked before
    /// `fared` and `ended`, for which all of such a group is `Kept`, and then `keep` is called.
    ///
    /// Giving a group back spends a receive of every message of it, and messages that were not
    /// attempted may be dead-lettered for their receives. So a group is released only where the
    /// pause is long, much is kept already or nothing more is received, and never when that would
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

    /// Keeps what an attempt has left of a group that stays, in its order, with what waits behind.
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

    /// Takes what an attempt has left of a group that does not stay back among what waits for its
    /// turn; what cannot wait here, since its queue keeps the order and delivers it again behind the
    /// one that failed. To be called before `ended`.
    #[must_use = "messages that cannot wait here must be released"]
    pub fn take_back(&mut self, lane: usize, jobs: Vec<J>) -> Vec<J> {
        let Some(turns) = &mut self.lanes[lane].turns else {
            return jobs;
        };
        turns.take_back(jobs);
        Vec::new()
    }

    /// A job of an attempt is dead-lettered, and its group stays. Call it before `keep`.
    pub fn leaves(&mut self, lane: usize, job: &J) {
        if let Some(group) = job.group() {
            self.lanes[lane].blocked.wait_for(group, job.id());
        }
    }

    /// Takes down how long a worker was taken. What was begun without success is not: it says how long a
    /// refusal takes.
    fn time(&mut self, ended: FinishedAttempt, now: BootInstant) {
        let took = now.since(ended.began);
        match ended.showed {
            Signal::Open => self.pace.ended(took, now),
            Signal::Nothing => self.pace.cut_short(took, now),
            Signal::Busy | Signal::Closed => self.pace.broken_off(now),
        }
    }

    /// Draws the conclusion on the downstream. Whether more may run than before.
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

    /// Since the downstream is open, what is held has not long to wait.
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

    /// Holds what was begun without success, all of one attempt together: until `until`, or
    /// earlier if the downstream turns out to be open, but not before `not_before`.
    pub fn hold(&mut self, lane: usize, jobs: Vec<J>, not_before: BootInstant, until: BootInstant) {
        self.lanes[lane].held.push(jobs, not_before, until);
    }

    /// What of a paused queue is in hand goes back to it; `overtaking` hands it out. To be called
    /// once something has come in hand.
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
