//! One queue's state in the scheduler: what is known about it, its outstanding polls, its limits.
//! Pure.

use super::Poll;
use super::blocked::{BlockedGroups, Unblocked};
use super::group_order::GroupOrder;
use super::held::HeldMessages;
use super::permits::Permits;
use super::ready::{Gather, Ready, Sequence, Waiting};
use super::variety::Variety;
use crate::clock::BootInstant;
use crate::throttle::bucket::Bucket;
use crate::throttle::median::Median;
use crate::throttle::pace::FULL_CALL;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

/// What an idle long poll asks for: two, since a long poll that brings fewer than it asked for has
/// shown that nothing else was there. What it brings is held beyond the permits if need be.
const IDLE_POLL_MESSAGES: usize = 2;
/// This many failed polls in a row do not change what is believed of a queue.
const FORGIVEN: u32 = 2;
/// The shortest rest after an empty poll that did not wait: asking again at once would spin.
const SHORTEST_REST: Duration = Duration::from_millis(100);
/// Polls of one queue under way at once, at most: a bound on calls, not a limit in practice.
const MOST_POLLS: usize = 16;
/// How often a queue with a rate is looked at, at most.
const REFILL: Duration = Duration::from_millis(10);

/// What does not change about a queue.
#[derive(Debug, Clone)]
pub struct LaneRules {
    /// Maximum messages of one receive.
    pub batch: usize,
    /// The wait of an idle long poll.
    pub poll_for: Duration,
    /// The shortest wait after which an answer can prove that the queue is empty.
    pub proof_wait: Duration,
    /// How long to rest after an empty poll.
    pub sleep: Duration,
    /// Whether messages of a group run in order, one attempt at a time.
    pub ordered_groups: bool,
    /// Which of its waiting messages goes first.
    pub sequence: Sequence,
}

/// What may change about a queue while it runs: limits besides the route's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LaneLimits {
    /// Messages started in a second.
    pub rate: Option<f64>,
    /// Attempts at once.
    pub attempts: Option<usize>,
    /// Nothing is received from it, and what waits is given back.
    pub paused: bool,
}

/// The result of the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// Nothing was answered yet.
    Unknown,
    /// It brought messages and may hold more.
    Holds,
    /// It brought nothing, but a short poll proves nothing.
    Doubted,
    /// It brought all there was.
    Drained,
    /// The last poll failed.
    Failing,
}

#[derive(Debug)]
pub(super) struct Lane<J> {
    pub rules: LaneRules,
    pub ready: Ready<J>,
    pub held: HeldMessages<J>,
    /// Groups that wait for the next attempt at their first message, or for its dead-lettering.
    pub blocked: BlockedGroups<J>,
    /// How many messages of blocked groups are kept, but for those that must not be released.
    pub most_blocked: usize,
    /// Where the groups' order is kept here, since the queue does not.
    pub turns: Option<GroupOrder<J>>,
    pub knowledge: Knowledge,
    /// Under way.
    pub polls: usize,
    /// When the last of them is answered at the latest, but for the time that its answer is in transit.
    pub answered_by: BootInstant,
    /// How many may be, as far as the answers tell.
    abreast: usize,
    /// How many groups they bring, where the queue keeps groups in order.
    variety: Variety,
    /// How long those took that brought about as much as they asked for.
    call_times: Median,
    /// What they asked for with permits reserved.
    pub reserved: usize,
    /// No poll before this.
    pub rest_until: BootInstant,
    /// Messages taken and not ended yet.
    pub started: usize,
    /// Running attempts.
    pub attempts: usize,
    most: Option<usize>,
    /// Nothing is asked of it; it holds up no queue below it.
    pub paused: bool,
    bucket: Option<Bucket>,
    together: usize,
    /// Polls that failed in a row, and whether the queue held messages before the first.
    failures: u32,
    had: bool,
}

impl<J: Waiting> Lane<J> {
    pub(super) fn new(rules: LaneRules, limits: LaneLimits, gather: Gather) -> Self {
        Self {
            ready: Ready::new(rules.ordered_groups, rules.sequence, gather),
            held: HeldMessages::default(),
            blocked: BlockedGroups::default(),
            most_blocked: 0,
            turns: None,
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
            most: limits.attempts,
            paused: limits.paused,
            bucket: limits.rate.map(|rate| Bucket::new(rate, gather.full)),
            together: gather.full,
            failures: 0,
            had: false,
        }
    }

    /// Other limits from now on.
    pub(super) fn set_limits(&mut self, limits: LaneLimits, now: BootInstant) {
        self.most = limits.attempts;
        self.paused = limits.paused;
        match (&mut self.bucket, limits.rate) {
            (Some(bucket), Some(rate)) => bucket.change(rate, self.together, now),
            (bucket, rate) => *bucket = rate.map(|rate| Bucket::new(rate, self.together)),
        }
    }

    /// How many messages of it may start now, as far as its own limits go.
    fn may_start(&self, now: BootInstant) -> usize {
        if self.most.is_some_and(|most| self.attempts >= most) {
            return 0;
        }
        let bucket = self.bucket.as_ref();
        bucket.map_or(usize::MAX, |bucket| bucket.available(now))
    }

    /// Whether queues below it must wait for what it has or may hold.
    pub(super) fn is_urgent(&self, holds: bool, now: BootInstant) -> bool {
        (holds || !self.held.is_empty()) && !self.paused && !self.is_limited(now)
    }

    /// Gives back what a paused queue has in hand, but for what would be dead-lettered by its next
    /// receive: that is run.
    pub(super) fn give_back_paused(&mut self, now: BootInstant) -> Vec<J> {
        self.give_back(Waiting::may_be_given_back, false, now)
    }

    /// Whether one of its own limits keeps it from starting anything now. It then delays no
    /// queue below it: the route's capacity is not for it to use.
    pub(super) fn is_limited(&self, now: BootInstant) -> bool {
        self.may_start(now) == 0
    }

    /// Whether `take` would give something.
    pub(super) fn startable(&self, now: BootInstant) -> bool {
        !self.is_limited(now) && self.ready.startable(now)
    }

    /// The jobs of one attempt.
    pub(super) fn take(&mut self, now: BootInstant) -> Vec<J> {
        let most = self.together.min(self.may_start(now));
        let mut jobs = self.ready.take(most);
        self.fill(&mut jobs, most, now);
        self.started += jobs.len();
        self.attempts += 1;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(jobs.len(), now);
        }
        jobs
    }

    /// How many more messages are worth asking for, as far as its own limits go.
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
            (most * self.together).saturating_sub(at_hand + self.started)
        });
        by_rate.min(by_attempts)
    }

    /// When the passing of time alone lets it start or ask for more.
    pub(super) fn attention(&self, now: BootInstant) -> Option<BootInstant> {
        let gathered = self.ready.due();
        let held = self.held.due();
        let wants = !self.ready.is_empty() || self.knowledge == Knowledge::Holds;
        // With a token at hand it waits for something else.
        let empty = |bucket: &&Bucket| wants && bucket.available(now) == 0;
        let refilled = self.bucket.as_ref().filter(empty);
        let refilled = refilled.map(|bucket| bucket.next(now).max(now + REFILL));
        let turns = self.turns.as_ref().and_then(GroupOrder::attention);
        let blocked = self.blocked.due();
        let times = [
            gathered,
            held,
            refilled,
            turns,
            blocked,
            self.rests_until(now),
        ];
        times
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .chain(self.ready.expires())
            .chain(self.held.expires())
            .chain(self.blocked.expires())
            .min()
    }

    /// Takes out what has become too old before it was started, or while it was held.
    pub(super) fn expired(&mut self, now: BootInstant) -> Vec<J> {
        let mut out = Vec::new();
        loop {
            let held = self.held.expired(now);
            self.free_groups(&held);
            let mut old = self.ready.expired(now);
            old.extend(held);
            let (blocked, unblocked) = self.blocked.expired(now);
            old.extend(blocked);
            unblocked.into_iter().for_each(|group| self.unblock(group));
            if old.is_empty() {
                return out;
            }
            // Whose turn it is then may be too old as well.
            self.pass_turns(&old, now);
            out.extend(old);
        }
    }

    /// Lets what was held and is due start again.
    pub(super) fn wake(&mut self, now: BootInstant) {
        while let Some(jobs) = self.held.take_due(now) {
            self.ready.resume(jobs);
        }
        for group in self.blocked.take_due(now) {
            self.unblock(group);
        }
    }

    /// Unblocks a group, with its held messages.
    pub(super) fn unblock(&mut self, (group, jobs): Unblocked<J>) {
        self.ready.freed(&group);
        self.ready.resume(jobs);
    }

    /// Releases what is held or waits and `release` chooses. What is before one of its ordered
    /// group that is not chosen stays as well, since that cannot run before it. The rest waits for
    /// company no longer; where nothing is received any more (`ends`), nor for what the queue has.
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
            let Some(group) = job.group().filter(|_| ordered) else {
                return release(job);
            };
            let mut needed = needed.borrow_mut();
            let Some(left) = needed.get_mut(group).filter(|left| **left > 0) else {
                return true;
            };
            *left -= usize::from(!release(job));
            false
        };
        let held = self.held.extract(chosen);
        let (blocked, unblocked) = self.blocked.extract(chosen);
        let waiting = self.ready.extract(chosen);
        self.free_groups(&held);
        unblocked.into_iter().for_each(|group| self.unblock(group));
        let mut out: Vec<J> = held.into_iter().chain(blocked).chain(waiting).collect();
        if let Some(turns) = &mut self.turns {
            // An outstanding poll may still bring what was sent after these.
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

    /// How many messages of each group are not to be released.
    fn to_be_run(&self, release: impl Fn(&J) -> bool) -> HashMap<String, usize> {
        let mut needed = HashMap::new();
        let here = self.held.iter().chain(self.blocked.iter());
        let here = here.chain(self.ready.iter());
        let here = here.chain(self.turns.iter().flat_map(GroupOrder::iter));
        for group in here.filter(|job| !release(job)).filter_map(Waiting::group) {
            *needed.entry(group.to_owned()).or_default() += 1;
        }
        needed
    }

    /// What follows these, which are held no longer, may start.
    fn free_groups(&mut self, held: &[J]) {
        for group in held.iter().filter_map(Waiting::group) {
            // What is still held of it frees it when it is resumed.
            if !self.held.any(|job| job.group() == Some(group)) {
                self.ready.freed(group);
            }
        }
    }

    /// Whether the queue must be taken to hold messages: only a long poll's answer says it is
    /// empty, and a call or two that failed say nothing. One that keeps failing delays nobody.
    pub(super) fn may_hold(&self) -> bool {
        matches!(
            self.knowledge,
            Knowledge::Unknown | Knowledge::Holds | Knowledge::Doubted
        ) || (self.knowledge == Knowledge::Failing && self.had && self.failures <= FORGIVEN)
    }

    /// Whether it competes for nothing at present.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.held.is_empty() && self.knowledge != Knowledge::Holds
    }

    /// Whether it has nothing to decide until it is answered, changed or, where no poll of it is
    /// outstanding, has rested.
    pub(super) fn is_quiet(&self, stopped: bool, now: BootInstant) -> bool {
        let waits = self.polls > 0 || self.rest_until > now || self.paused || stopped;
        let groups =
            self.blocked.is_empty() && self.turns.as_ref().is_none_or(GroupOrder::is_quiet);
        let in_hand = self.reserved + self.started + self.attempts;
        waits && !self.may_hold() && self.is_idle() && groups && in_hand == 0
    }

    /// The wait that proves emptiness, or as much of it as the user allows.
    pub(super) fn proof_wait(&self) -> Duration {
        self.rules.proof_wait.min(self.rules.poll_for)
    }

    /// The one poll of a queue that is not known to hold messages. It takes no permits: its
    /// messages are held even without. That is for queues without messages in flight; one that
    /// uses all permits is polled again when some are free.
    pub(super) fn park(
        &mut self,
        index: usize,
        ahead: bool,
        now: BootInstant,
        permits: &Permits,
    ) -> Option<Poll> {
        let in_hand = self.started > 0 || !self.ready.is_empty() || !self.held.is_empty();
        let free = self.lacks_poll(ahead, now)
            && self.rest_until <= now
            && self.appetite(now) > 0
            && (!in_hand || permits.free() > 0);
        free.then(|| self.parked_poll(index, permits))
    }

    /// Whether it has no outstanding poll and no startable message, unless more are to be held
    /// than start (`ahead`).
    pub(super) fn lacks_poll(&self, ahead: bool, now: BootInstant) -> bool {
        self.polls == 0 && (ahead || !self.startable(now))
    }

    /// A poll failed.
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
        let max = IDLE_POLL_MESSAGES.min(self.rules.batch);
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

    /// Draws the conclusion from an answer.
    pub(super) fn learn(
        &mut self,
        brought: usize,
        drained: bool,
        is_idle: bool,
        waited: Duration,
        now: BootInstant,
    ) {
        self.failures = 0;
        // A user who allows no long polls gets no proof; then an empty answer must do.
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

    /// How many messages make a receive full: as many as the queue delivers in one, but no more than
    /// leave room for another receive beside it, where there may be one and it is worth a call. One
    /// that takes all the room is asked for when nothing runs any more, and nothing runs until it is
    /// answered.
    pub(super) fn full_receive(&self, capacity: usize) -> usize {
        let half = capacity.div_ceil(2);
        let most = match self.widest() > 1 && half >= FULL_CALL {
            true => half,
            false => capacity,
        };
        self.rules.batch.min(most)
    }

    /// How many polls may be under way.
    pub(super) fn most_polls(&self) -> usize {
        self.abreast.min(self.widest())
    }

    /// How many polls are ever worth having under way. Where groups are kept in order here it is one:
    /// the answers of several overtake each other, which would turn around the order of sending.
    fn widest(&self) -> usize {
        match self.turns {
            Some(_) => 1,
            None => self.variety.groups(),
        }
    }

    /// Whether the queue keeps the order of its groups: it delivers nothing more of a group with
    /// messages in flight.
    pub(super) fn is_ordered_by_queue(&self) -> bool {
        self.rules.ordered_groups && self.turns.is_none()
    }

    /// Takes down which groups an answer brought.
    pub(super) fn note_groups(&mut self, jobs: &[J]) {
        if self.is_ordered_by_queue() {
            self.variety.note(jobs.iter().map(Waiting::group));
        }
    }

    /// Adapts the number of concurrent calls after a call for `asked` messages: full answers raise
    /// it, thin ones lower it, because concurrent calls would share the messages. A thin answer of
    /// a short poll proves nothing: it has not looked everywhere. The call `took` this long.
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

    /// What a receive takes of a queue that holds messages: the median of the last.
    pub(super) fn call_time(&self) -> Option<Duration> {
        self.call_times.get()
    }

    /// When its rest ends, if it rests and has nothing else to wait for.
    pub(super) fn rests_until(&self, now: BootInstant) -> Option<BootInstant> {
        (self.polls == 0 && self.rest_until > now).then_some(self.rest_until)
    }
}
