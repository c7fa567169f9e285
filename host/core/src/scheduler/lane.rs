//! The state of one queue in the scheduler: what is known about it, its outstanding polls, its
//! limits. Pure.

use super::Poll;
use super::blocked::{BlockedGroups, UnblockedGroup};
use super::group_order::GroupOrder;
use super::held::HeldMessages;
use super::limited::{Admission, LimitedJobs};
use super::permits::Permits;
use super::ready::{Gather, Ready, Sequence, WaitingJob};
use super::single_receives::SingleReceives;
use super::tenants::Tenants;
use super::variety::Variety;
use crate::clock::BootInstant;
use crate::queue::sharing::SharingRules;
use crate::throttle::bucket::Bucket;
use crate::throttle::median::Median;
use crate::throttle::pace::FULL_CALL;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The number of messages that an idle long poll requests: two, because a long poll that brings
/// fewer than requested has shown that there are no others. Its messages are held beyond the
/// permits if necessary.
const IDLE_POLL_MESSAGES: usize = 2;
/// The number of consecutive failed polls that do not change what is known about a queue.
const FORGIVEN: u32 = 2;
/// The minimum rest after an empty poll that did not wait: polling again at once would spin.
const SHORTEST_REST: Duration = Duration::from_millis(100);
/// The maximum number of concurrent polls of one queue: a bound on calls, not a limit in practice.
const MOST_POLLS: usize = 16;
/// The minimum time until a queue that waits for its rate is checked again.
const REFILL: Duration = Duration::from_millis(10);

/// The settings of a queue that do not change.
#[derive(Debug, Clone)]
pub struct LaneRules {
    /// The maximum number of messages of one receive.
    pub batch: usize,
    /// The wait of an idle long poll.
    pub poll_for: Duration,
    /// The minimum wait after which an answer can prove that the queue is empty.
    pub proof_wait: Duration,
    /// The rest after an empty poll.
    pub sleep: Duration,
    /// Whether messages of a group run in order, one attempt at a time.
    pub ordered_groups: bool,
    /// The number of receives that the queue's redrive policy permits, if it has one and delivers
    /// messages behind the first of their group.
    pub most_receives: Option<u32>,
    /// The order in which its waiting messages start.
    pub sequence: Sequence,
    /// The rules by which tenants and priorities share the queue, if they do.
    pub sharing: Option<Arc<SharingRules>>,
    /// Whether the queue itself delivers by those rules.
    pub queue_shares_out: bool,
}

impl LaneRules {
    /// Whether the queue chooses by tenant or priority at each receive.
    pub(super) fn is_shared_at_receive(&self) -> bool {
        let sharing = self.sharing.as_ref();
        self.queue_shares_out && sharing.is_some_and(|rules| rules.changes_delivery())
    }

    /// Whether the queue counts the messages that it delivers before others because they have waited
    /// for long.
    fn counts_overdue(&self) -> bool {
        let sharing = self.sharing.as_ref();
        self.queue_shares_out && sharing.is_some_and(|rules| rules.priority.is_some())
    }
}

/// The limits of a queue, in addition to the route's. They may change while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LaneLimits {
    /// The maximum number of messages started per second.
    pub rate: Option<f64>,
    /// The maximum number of concurrent attempts.
    pub attempts: Option<usize>,
    /// Whether it is paused: nothing is received from it, and its waiting messages are released.
    pub paused: bool,
}

/// The knowledge about a queue from the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// No poll was answered yet.
    Unknown,
    /// The answer brought messages, and the queue may hold more.
    Holds,
    /// The answer brought nothing, but a short poll proves nothing.
    Doubted,
    /// The answer brought all messages of the queue.
    Drained,
    /// The last poll failed.
    Failing,
}

#[derive(Debug)]
pub(super) struct Lane<J> {
    pub rules: LaneRules,
    pub ready: Ready<J>,
    pub held: HeldMessages<J>,
    /// The jobs that wait for limits of the fleet, if the route has limits.
    pub limited: Option<LimitedJobs<J>>,
    /// The tenants, if they share the queue.
    pub tenants: Option<Tenants>,
    /// The number of jobs that went before others because they had waited for long.
    pub hastened: usize,
    /// Jobs that go back to the queue for a while, because too many wait for limits.
    pub deferred: Vec<(J, Duration)>,
    /// Whether jobs have begun to wait for limits since the room was last planned.
    pub needs_room: bool,
    /// Groups that wait for the next attempt at their first message, or for its dead-lettering.
    pub blocked: BlockedGroups<J>,
    /// The maximum number of messages of blocked groups that are kept, in addition to those that
    /// must not be released.
    pub most_blocked: usize,
    /// The order of groups, if it is kept here because the queue does not keep it.
    pub turns: Option<GroupOrder<J>>,
    pub knowledge: Knowledge,
    /// The number of outstanding polls.
    pub polls: usize,
    /// When the last of them is answered at the latest, not counting the transit of the answer.
    pub answered_by: BootInstant,
    /// The maximum number of outstanding polls, as derived from the answers.
    abreast: usize,
    /// Whether polls request one message at a time.
    single: SingleReceives,
    /// The number of groups that polls bring, if the queue keeps groups in order.
    variety: Variety,
    /// The durations of polls that brought at least half of what they requested.
    call_times: Median,
    /// The number of messages that polls requested with reserved permits.
    pub reserved: usize,
    /// The earliest time of the next poll.
    pub rest_until: BootInstant,
    /// The number of messages that were taken and have not ended.
    pub started: usize,
    /// The number of running attempts.
    pub attempts: usize,
    /// The number of attempts that earlier versions of the route may still run.
    pub elsewhere: usize,
    /// The maximum number of attempts since the route began to end.
    ending_limit: usize,
    most: Option<usize>,
    /// Whether it is paused: it is not polled, and it delays no queue below it.
    pub paused: bool,
    bucket: Option<Bucket>,
    together: usize,
    /// The number of consecutive failed polls, and whether the queue held messages before the
    /// first.
    failures: u32,
    had: bool,
}

impl<J: WaitingJob> Lane<J> {
    pub(super) fn new(rules: LaneRules, limits: LaneLimits, gather: Gather) -> Self {
        Self {
            ready: Ready::new(
                rules.ordered_groups,
                rules.sequence,
                gather,
                rules.sharing.clone(),
            ),
            tenants: rules.sharing.clone().map(Tenants::new),
            held: HeldMessages::default(),
            limited: None,
            hastened: 0,
            deferred: Vec::new(),
            needs_room: false,
            blocked: BlockedGroups::default(),
            most_blocked: 0,
            turns: None,
            single: SingleReceives::new(rules.most_receives),
            rules,
            knowledge: Knowledge::Unknown,
            polls: 0,
            answered_by: BootInstant::default(),
            abreast: 1,
            variety: Variety::new(MOST_POLLS),
            call_times: Median::default(),
            reserved: 0,
            rest_until: BootInstant::default(),
            started: 0,
            attempts: 0,
            elsewhere: 0,
            ending_limit: usize::MAX,
            most: limits.attempts,
            paused: limits.paused,
            bucket: limits.rate.map(|rate| Bucket::new(rate, gather.full)),
            together: gather.full,
            failures: 0,
            had: false,
        }
    }

    /// Replaces the limits.
    pub(super) fn set_limits(&mut self, limits: LaneLimits, now: BootInstant) {
        self.most = limits.attempts;
        self.paused = limits.paused;
        match (&mut self.bucket, limits.rate) {
            (Some(bucket), Some(rate)) => bucket.change(rate, self.together, now),
            (bucket, rate) => *bucket = rate.map(|rate| Bucket::new(rate, self.together)),
        }
    }

    /// Leaves no burst of its rate limit.
    pub(super) fn skip_burst(&mut self, now: BootInstant) {
        if let Some(bucket) = &mut self.bucket {
            bucket.take(bucket.available(now), now);
        }
    }

    /// Returns how many of its messages may start now under its own limits.
    fn may_start(&self, now: BootInstant) -> usize {
        let most = self.most.unwrap_or(usize::MAX);
        if self.attempts + self.elsewhere >= most || self.attempts >= self.ending_limit {
            return 0;
        }
        let bucket = self.bucket.as_ref();
        bucket.map_or(usize::MAX, |bucket| bucket.available(now))
    }

    /// Whether queues below it must wait for the messages that it has or may hold.
    pub(super) fn is_urgent(&self, holds: bool, now: BootInstant) -> bool {
        (holds || !self.held.is_empty()) && !self.paused && !self.is_limited(now)
    }

    /// Releases the messages that a paused queue has here, except those that their next receive
    /// would dead-letter: they are run.
    pub(super) fn give_back_paused(&mut self, now: BootInstant) -> Vec<J> {
        self.give_back(WaitingJob::may_be_given_back, false, now)
    }

    /// Whether one of its own limits keeps it from starting anything now. Then it delays no queue
    /// below it, because it cannot use the route's capacity.
    pub(super) fn is_limited(&self, now: BootInstant) -> bool {
        let is_closed = self.limited.as_ref().is_some_and(LimitedJobs::is_closed);
        self.may_start(now) == 0 || (is_closed && self.ready.is_empty())
    }

    /// Whether jobs that wait for limits of the fleet may have their permits now.
    pub(super) fn may_be_permitted(&self) -> bool {
        self.limited.as_ref().is_some_and(LimitedJobs::may_start)
    }

    /// Whether `take` may return jobs. It returns none if all lack a permit of the fleet.
    pub(super) fn startable(&self, now: BootInstant) -> bool {
        let waiting = self.ready.startable(now) || self.may_be_permitted();
        waiting && !self.is_limited(now)
    }

    /// Returns the number of jobs that wait for limits of the fleet.
    pub(super) fn limited(&self) -> usize {
        self.limited.as_ref().map_or(0, LimitedJobs::len)
    }

    /// Takes the jobs of one attempt.
    pub(super) fn take(&mut self, now: BootInstant) -> Vec<J> {
        let most = self.together.min(self.may_start(now));
        let hastened = self.ready.hasten(now);
        if let Some(limited) = &mut self.limited {
            // The queue delivered them before they were due.
            self.hastened += limited.hasten(self.ready.tenant_turns(), now);
        }
        if !self.rules.counts_overdue() {
            self.hastened += hastened;
        }
        let jobs = if self.limited.is_some() {
            self.take_permitted(most, now)
        } else {
            let mut jobs = self.ready.take(most, now);
            self.fill(&mut jobs, most, now);
            jobs
        };
        if jobs.is_empty() {
            return jobs;
        }
        self.started += jobs.len();
        self.attempts += 1;
        if let Some(tenants) = &mut self.tenants {
            jobs.iter()
                .for_each(|job| tenants.starts(job.tenant(), now));
        }
        if let Some(bucket) = &mut self.bucket {
            bucket.take(jobs.len(), now);
        }
        jobs
    }

    /// Takes the jobs of one attempt that have the permits of the fleet that they need, in the order
    /// of turns. The others that are ready wait for theirs. One job of an ordered group is taken at
    /// a time.
    fn take_permitted(&mut self, most: usize, now: BootInstant) -> Vec<J> {
        let mut jobs = Vec::new();
        let Some(limited) = &mut self.limited else {
            return jobs;
        };
        let is_startable = self.ready.startable(now);
        // Of one turn, those that wait for limits are the oldest.
        let oldest_first = self.rules.sequence == Sequence::Fifo;
        while jobs.len() < most {
            let next = if is_startable {
                self.ready.next_place()
            } else {
                None
            };
            let waited = limited.next(
                |place| next.is_none_or(|next| place < next || (place == next && oldest_first)),
                self.ready.tenant_turns(),
                now,
            );
            if let Some(job) = waited {
                jobs.push(job);
                continue;
            }
            let Some(place) = next else { break };
            let Some(job) = self.ready.take_next() else {
                break;
            };
            match limited.admit(job, place.number, self.ready.tenant_turns(), now) {
                Admission::Starts(job) => jobs.push(job),
                Admission::Waits => self.needs_room = true,
                Admission::GoesBack(job, after) => self.deferred.push((job, after)),
            }
        }
        jobs
    }

    /// Updates the rules for the queue from what is known of the tenants.
    pub(super) fn share_out(&mut self, now: BootInstant) {
        let Some(tenants) = &mut self.tenants else {
            return;
        };
        tenants.look(now);
        if let Some(limited) = &self.limited {
            tenants.park(limited.parked());
        }
        if tenants.is_changed() {
            let sharing = tenants.sharing().clone();
            if let Some(turns) = self.ready.tenant_turns() {
                turns.share_out(sharing);
            }
        }
    }

    /// Returns how many more messages are worth requesting under its own limits.
    pub(super) fn appetite(&self, now: BootInstant) -> usize {
        if self.paused {
            return 0;
        }
        let at_hand = self.ready.len() + self.held.len() + self.reserved;
        let bucket = self.bucket.as_ref();
        let by_rate = bucket.map_or(usize::MAX, |bucket| {
            bucket.soon(now).saturating_sub(at_hand)
        });
        let by_attempts = self.most.map_or(usize::MAX, |most| {
            let own = most.saturating_sub(self.elsewhere);
            (own * self.together).saturating_sub(at_hand + self.started)
        });
        let limited = self.limited.as_ref();
        let by_fleet = limited.map_or(usize::MAX, |limited| limited.appetite(at_hand));
        by_rate.min(by_attempts).min(by_fleet)
    }

    /// Returns when the passing of time alone lets it start or request more. Workers last looked for
    /// jobs at `looked`.
    pub(super) fn attention(&self, looked: BootInstant, now: BootInstant) -> Option<BootInstant> {
        let gathered = self.ready.due();
        let held = self.held.due();
        let waits = !self.ready.is_empty() || self.may_be_permitted();
        let wants = waits || self.knowledge == Knowledge::Holds;
        // If a token was available, the queue waits for something else.
        let refilled = self
            .bucket
            .as_ref()
            .filter(|bucket: &&Bucket| wants && bucket.available(looked) == 0)
            .map(|bucket| bucket.next(now).max(now + REFILL));
        let turns = self.turns.as_ref().and_then(GroupOrder::attention);
        let blocked = self.blocked.due();
        let limited = self.limited.as_ref();
        let times = [
            gathered,
            held,
            refilled,
            turns,
            blocked,
            limited.and_then(LimitedJobs::attention),
            self.rests_until(now),
        ];
        times
            .into_iter()
            .flatten()
            .filter(|at| *at > looked)
            .chain(self.ready.expires())
            .chain(self.held.expires())
            .chain(self.blocked.expires())
            .chain(limited.and_then(LimitedJobs::expires))
            .chain((!self.deferred.is_empty()).then_some(now))
            .min()
    }

    /// Takes out the jobs that became too old before they were started, or while they were held.
    pub(super) fn expired(&mut self, now: BootInstant) -> Vec<J> {
        let mut out = Vec::new();
        loop {
            let mut held = self.held.expired(now);
            if let Some(limited) = &mut self.limited {
                held.extend(limited.expired(self.ready.tenant_turns(), now));
            }
            self.free_groups(&held);
            let mut old = self.ready.expired(now);
            old.extend(held);
            let (blocked, unblocked) = self.blocked.expired(now);
            old.extend(blocked);
            unblocked.into_iter().for_each(|group| self.unblock(group));
            if old.is_empty() {
                return out;
            }
            // The jobs whose turn comes next may be too old as well.
            self.pass_turns(&old, now);
            out.extend(old);
        }
    }

    /// Lets held jobs and groups that are due start again. Returns whether there were any.
    pub(super) fn wake(&mut self, now: BootInstant) -> bool {
        let mut woken = false;
        while let Some(jobs) = self.held.take_due(now) {
            self.ready.resume(jobs);
            woken = true;
        }
        for group in self.blocked.take_due(now) {
            self.unblock(group);
            woken = true;
        }
        if let Some(limited) = &mut self.limited {
            let turns = self.ready.tenant_turns();
            self.deferred.extend(limited.overdue(turns, now));
        }
        self.wake_groups(now) || woken
    }

    /// Unblocks a group, whose held messages may start.
    pub(super) fn unblock(&mut self, (group, jobs): UnblockedGroup<J>) {
        self.ready.freed(&group);
        self.ready.resume(jobs);
    }

    /// Releases the held and waiting messages that `release` chooses. A message before one of its
    /// ordered group that is not chosen stays as well, because the other cannot run before it. The
    /// remaining messages no longer wait for others to share an attempt; if nothing is received any
    /// more (`ends`), they do not wait for messages that the queue has either.
    pub(super) fn give_back(
        &mut self,
        release: impl Fn(&J) -> bool,
        ends: bool,
        now: BootInstant,
    ) -> Vec<J> {
        self.ready.set_window(Duration::ZERO);
        let ordered = self.ready.is_ordered();
        let needed = RefCell::new(self.to_be_run(&release));
        let chosen = |job: &J| {
            let (Some(group), true) = (job.group(), ordered) else {
                return release(job);
            };
            let mut needed = needed.borrow_mut();
            let Some(left) = needed.get_mut(group).filter(|left| **left > 0) else {
                return true;
            };
            *left -= usize::from(!release(job));
            false
        };
        let mut held = self.held.extract(chosen);
        if let Some(limited) = &mut self.limited {
            held.extend(limited.extract(chosen, self.ready.tenant_turns()));
        }
        let (blocked, unblocked) = self.blocked.extract(chosen);
        let waiting = self.ready.extract(chosen);
        self.free_groups(&held);
        unblocked.into_iter().for_each(|group| self.unblock(group));
        let mut out: Vec<J> = held.into_iter().chain(blocked).chain(waiting).collect();
        if let Some(turns) = &mut self.turns {
            // An outstanding poll may still bring messages that were sent after these.
            out.iter().for_each(|job| turns.failed(job, now));
            let aside = turns.give_back(chosen, ends);
            for job in &aside {
                let _ = turns.passed_by(job, now);
            }
            out.extend(aside);
            for group in turns.groups() {
                self.next_turn(&group, now);
            }
        }
        out
    }

    /// Returns how many messages of each group must not be released.
    fn to_be_run(&self, release: impl Fn(&J) -> bool) -> HashMap<String, usize> {
        let mut needed = HashMap::new();
        let limited = self.limited.iter().flat_map(LimitedJobs::iter);
        let held = self.held.iter().chain(limited).chain(self.blocked.iter());
        let here = held
            .chain(self.ready.iter())
            .chain(self.turns.iter().flat_map(GroupOrder::iter));
        for group in here
            .filter(|job| !release(job))
            .filter_map(WaitingJob::group)
        {
            *needed.entry(group.to_owned()).or_default() += 1;
        }
        needed
    }

    /// Lets the messages behind these jobs, which are no longer held, start.
    fn free_groups(&mut self, held: &[J]) {
        for group in held.iter().filter_map(WaitingJob::group) {
            // If other messages of the group are still held, they free it when they are resumed.
            if !self.held.any(|job| job.group() == Some(group)) {
                self.ready.freed(group);
            }
        }
    }

    /// Whether the queue may hold messages. Only the answer to a long poll proves that it is empty,
    /// and one or two failed calls prove nothing. A queue that keeps failing delays no other queue.
    pub(super) fn may_hold(&self) -> bool {
        matches!(
            self.knowledge,
            Knowledge::Unknown | Knowledge::Holds | Knowledge::Doubted
        ) || (self.knowledge == Knowledge::Failing && self.had && self.failures <= FORGIVEN)
    }

    /// Returns how many attempts may run at once if no more jobs arrive.
    pub(super) fn attempts_left(&self) -> usize {
        let waiting = self.ready.len() + self.held.len() + self.limited();
        let behind = self.aside() + self.blocked.len() + self.deferred.len();
        self.attempts + waiting + behind
    }

    /// Lowers its limit to the attempts that it may still need, and returns it. `receives` is true
    /// if more polls may start.
    pub(super) fn lower_to_attempts_left(&mut self, receives: bool) -> usize {
        let receives = receives || self.polls > 0;
        let needed = self.attempts_left().max(usize::from(receives));
        self.ending_limit = self.ending_limit.min(needed);
        self.ending_limit
    }

    /// Whether the queue competes for nothing at present.
    pub(super) fn is_idle(&self) -> bool {
        let has_none = self.ready.is_empty() && self.held.is_empty() && self.limited() == 0;
        has_none && self.knowledge != Knowledge::Holds
    }

    /// Whether there is nothing to decide about the queue until a poll is answered, it is changed
    /// or, if no poll is outstanding, its rest is over.
    pub(super) fn is_quiet(&self, stopped: bool, now: BootInstant) -> bool {
        let waits = self.polls > 0 || self.rest_until > now || self.paused || stopped;
        let groups =
            self.blocked.is_empty() && self.turns.as_ref().is_none_or(GroupOrder::is_quiet);
        let in_hand = self.reserved + self.started + self.attempts + self.deferred.len();
        waits && !self.may_hold() && self.is_idle() && groups && in_hand == 0
    }

    /// Returns the wait that proves emptiness, or as much of it as the user allows.
    pub(super) fn proof_wait(&self) -> Duration {
        self.rules.proof_wait.min(self.rules.poll_for)
    }

    /// Returns the one poll of a queue that is not known to hold messages. It takes no permits: its
    /// messages are held even without. It is for queues without messages in flight; a queue that
    /// uses all permits is polled again when some are free.
    pub(super) fn park(
        &mut self,
        index: usize,
        ahead: bool,
        now: BootInstant,
        permits: &Permits,
    ) -> Option<Poll> {
        let waiting = self.ready.len() + self.held.len() + self.limited();
        let in_hand = self.started + waiting > 0;
        let free = self.lacks_poll(ahead, now)
            && self.rest_until <= now
            && self.appetite(now) > 0
            && (!in_hand || permits.free() > 0);
        free.then(|| self.parked_poll(index, permits))
    }

    /// Whether the queue has no outstanding poll and no startable message. With `ahead`, more
    /// messages are held than start, so startable ones do not count.
    pub(super) fn lacks_poll(&self, ahead: bool, now: BootInstant) -> bool {
        self.polls == 0 && (ahead || !self.startable(now))
    }

    /// Records a failed poll.
    pub(super) fn fail(&mut self, rest: Duration, now: BootInstant) {
        if self.knowledge != Knowledge::Failing {
            self.had = self.may_hold();
        }
        self.failures = self.failures.saturating_add(1);
        self.knowledge = Knowledge::Failing;
        self.rest_until = now + rest;
    }

    pub(super) fn parked_poll(&mut self, index: usize, permits: &Permits) -> Poll {
        self.polls += 1;
        let wait = match self.knowledge {
            Knowledge::Drained => self.rules.poll_for,
            _ => self.proof_wait(),
        };
        let max = IDLE_POLL_MESSAGES.min(self.most_received());
        Poll {
            lane: index,
            max,
            wait,
            permits: permits.reserve(0),
            is_idle: true,
            asked: BootInstant::default(),
            brought: 0,
        }
    }

    /// Updates the knowledge from an answer.
    pub(super) fn learn(
        &mut self,
        brought: usize,
        drained: bool,
        is_idle: bool,
        waited: Duration,
        now: BootInstant,
    ) {
        self.failures = 0;
        // If the user allows no long polls, there is no proof, so an empty answer must suffice.
        let proven = drained || (brought == 0 && (is_idle || waited >= self.rules.proof_wait));
        self.knowledge = match (brought, proven) {
            (_, true) => Knowledge::Drained,
            (0, false) => Knowledge::Doubted,
            (_, false) => Knowledge::Holds,
        };
        if brought == 0 && self.knowledge == Knowledge::Drained {
            let spins = self.rules.poll_for.is_zero();
            let least = if spins { SHORTEST_REST } else { Duration::ZERO };
            self.rest_until = now + self.rules.sleep.max(least);
        }
    }

    /// Returns how many messages make a receive full: as many as the queue delivers in one, but
    /// only half of the capacity if another receive beside it is possible and worth a call. A
    /// receive that takes all permits would be made only when nothing runs any more, and nothing
    /// would run until it is answered.
    pub(super) fn full_receive(&self, capacity: usize) -> usize {
        let half = capacity.div_ceil(2);
        let most = if self.widest() > 1 && half >= FULL_CALL {
            half
        } else {
            capacity
        };
        self.most_received().min(most)
    }

    /// Returns how many messages one receive may bring.
    fn most_received(&self) -> usize {
        self.single.most(self.rules.batch)
    }

    /// Returns how many polls may be outstanding.
    pub(super) fn most_polls(&self) -> usize {
        self.abreast.min(self.widest())
    }

    /// Returns how many concurrent polls are ever worthwhile. It is one if the order of groups is
    /// kept here: the answers of several polls overtake each other, which would reverse the order
    /// of sending.
    fn widest(&self) -> usize {
        match self.turns {
            Some(_) => 1,
            None => self.variety.groups(),
        }
    }

    /// Whether the queue itself keeps the order of its groups: while a message of a group is in
    /// flight, it delivers no more of that group.
    pub(super) fn is_ordered_by_queue(&self) -> bool {
        self.rules.ordered_groups && self.turns.is_none()
    }

    /// Records which groups an answer brought, and whether messages were redelivered.
    pub(super) fn note_groups(&mut self, jobs: &[J]) {
        if self.is_ordered_by_queue() {
            self.variety.note(jobs.iter().map(WaitingJob::group));
            self.single
                .note(jobs.iter().map(WaitingJob::is_redelivered));
        }
    }

    /// Adapts the number of concurrent calls after a call for `asked` messages that lasted for
    /// `took`. Full answers raise it, thin ones lower it, because concurrent calls would share the
    /// messages. A thin answer of a short poll proves nothing, because it has not searched the
    /// whole queue.
    pub(super) fn pace_polls(
        &mut self,
        asked: usize,
        brought: usize,
        waited: Duration,
        took: Duration,
    ) {
        if brought * 2 >= asked {
            self.call_times.note(took);
            self.abreast = (self.abreast + 1).min(MOST_POLLS);
        } else if brought == 0 || waited >= self.rules.proof_wait {
            self.abreast = (self.abreast / 2).max(1);
        }
    }

    /// Returns the duration of a receive while the queue holds messages: the median of recent ones.
    pub(super) fn call_time(&self) -> Option<Duration> {
        self.call_times.get()
    }

    /// Returns when its rest ends, if it rests and has nothing else to wait for.
    pub(super) fn rests_until(&self, now: BootInstant) -> Option<BootInstant> {
        (self.polls == 0 && self.rest_until > now).then_some(self.rest_until)
    }
}
