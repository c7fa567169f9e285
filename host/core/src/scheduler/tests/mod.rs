//! The scheduler in its own small world: queues that hold numbers, polls that are answered in
//! any order, attempts that take their time.

mod age;
mod group;
mod last_chance;
mod limit;
mod pace;
mod tenants;

use super::*;
use crate::throttle::control::Signal;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Debug, Clone, PartialEq, Eq)]
struct WorldItem {
    lane: usize,
    number: u64,
}

#[derive(Debug)]
struct HeldMessage {
    item: WorldItem,
    _seat: Permit,
}

impl WaitingJob for HeldMessage {
    fn group(&self) -> Option<&str> {
        None
    }
}

/// Queues, a scheduler, and what is running between them.
struct SchedulerWorld {
    scheduler: Scheduler<HeldMessage>,
    queues: Vec<VecDeque<u64>>,
    /// With the time at which a wait is over.
    polls: Vec<(Poll, BootInstant)>,
    running: Vec<(usize, Vec<HeldMessage>)>,
    now: BootInstant,
    /// Whether something happened that wakes the intake; when it wakes by itself.
    woken: bool,
    attention: Option<BootInstant>,
    calls: usize,
    started: Vec<WorldItem>,
}

impl SchedulerWorld {
    fn new(lanes: usize, weights: Option<Vec<u32>>, attempts: usize, batch: usize) -> Self {
        let rules = Rules {
            weights,
            batch,
            ..sample::rules(vec![sample::lane(); lanes], attempts)
        };
        Self {
            scheduler: Scheduler::new(rules),
            queues: vec![VecDeque::new(); lanes],
            polls: Vec::new(),
            running: Vec::new(),
            now: BootInstant::from_boot(Duration::from_secs(1_000)),
            woken: true,
            attention: None,
            calls: 0,
            started: Vec::new(),
        }
    }

    fn send(&mut self, lane: usize, count: u64) {
        let first = self.queues[lane].len() as u64;
        self.queues[lane].extend(first..first + count);
    }

    /// What the intake does, and only when something wakes it.
    fn plan(&mut self) {
        let due = self.attention.is_some_and(|at| at <= self.now);
        if !std::mem::take(&mut self.woken) && !due {
            return;
        }
        for poll in self.scheduler.plan(self.now) {
            assert!(poll.max >= 1 && poll.max <= 10);
            self.calls += 1;
            let until = self.now + poll.wait;
            self.polls.push((poll, until));
        }
        self.attention = self.scheduler.next_attention(self.now);
        if self.attention.is_some_and(|at| at <= self.now) {
            // Something became due since workers last looked.
            self.start();
            self.attention = self.scheduler.next_attention(self.now);
        }
        assert!(
            self.attention.is_none_or(|at| at > self.now),
            "the intake would spin"
        );
    }

    /// Answers the polls that have something to say: messages, or the end of their wait.
    fn answer(&mut self) {
        let (ready, waiting) = std::mem::take(&mut self.polls)
            .into_iter()
            .partition(|(poll, until)| !self.queues[poll.lane].is_empty() || *until <= self.now);
        self.polls = waiting;
        for (mut poll, _) in Vec::<(Poll, BootInstant)>::from_iter::<Vec<_>>(ready) {
            self.woken = true;
            let lane = poll.lane;
            let count = poll.max.min(self.queues[lane].len());
            // A short poll proves nothing.
            let drained = count < poll.max && !poll.wait.is_zero();
            let held = |number| HeldMessage {
                item: WorldItem { lane, number },
                _seat: poll.seat(),
            };
            let jobs = self.queues[lane].drain(..count).map(held).collect();
            self.scheduler.answered(poll, jobs, drained, self.now);
        }
    }

    fn start(&mut self) {
        for _ in 0..self.scheduler.reserve_workers(self.now) {
            self.take();
        }
    }

    /// A worker takes jobs; it wakes the intake when told to, and as the last when it finds none.
    fn take(&mut self) {
        let next = self.scheduler.next_jobs(self.now);
        let is_last = !self.scheduler.has_workers();
        self.woken |= next.as_ref().map_or(is_last, |start| start.replan);
        if let Some(Start { lane, jobs, .. }) = next {
            self.started.extend(jobs.iter().map(|job| job.item.clone()));
            self.running.push((lane, jobs));
        }
    }

    /// Ends one attempt, which frees its permit; its worker asks for the next.
    fn end(&mut self, which: usize) {
        self.end_showing(which, Signal::Open);
    }

    /// Ends one attempt; what was begun without success is held for a while.
    fn end_showing(&mut self, which: usize, showed: Signal) {
        if self.running.is_empty() {
            return;
        }
        let (lane, jobs) = self.running.swap_remove(which % self.running.len());
        let kept = matches!(showed, Signal::Busy | Signal::Closed);
        let fate = if kept {
            MessageFate::Kept
        } else {
            MessageFate::Done
        };
        let ended = FinishedAttempt {
            lane,
            began: self.now,
            showed,
        };
        let fates = jobs.iter().map(|_| (None, fate));
        let after = self.scheduler.ended(ended, fates, self.now);
        assert!(after.overtaking.is_empty());
        if kept {
            for job in &jobs {
                let at = self.started.iter().position(|item| *item == job.item);
                self.started.swap_remove(at.expect("it was started"));
            }
            let until = self.now + Duration::from_secs(1);
            self.scheduler.hold(lane, jobs, self.now, until);
        }
        self.woken = true;
        self.take();
        if after.hire {
            self.start();
        }
    }

    fn step(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        self.plan();
        self.answer();
        self.start();
    }

    fn pending(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }
}

#[test]
fn queue_with_a_running_message_is_still_polled() {
    let mut world = SchedulerWorld::new(1, None, 10, 1);
    (0..300).for_each(|_| world.step(10));
    world.send(0, 1);
    // The intake plans before a worker has taken the message, and again only when it is woken.
    world.plan();
    world.answer();
    world.plan();
    world.start();
    (0..3).for_each(|_| world.step(10));
    world.send(0, 1);
    world.step(10);
    assert_eq!(world.running.len(), 2);
}

#[test]
fn failed_call_keeps_strict_order_and_dead_queue_blocks_nobody() {
    let mut world = SchedulerWorld::new(2, None, 4, 1);
    world.send(0, 2);
    world.send(1, 50);
    world.step(0);
    assert!(world.running.iter().all(|(lane, _)| *lane == 0));
    (0..2).for_each(|_| world.end(0));
    for failures in 1..=4 {
        world.now = world.now + Duration::from_secs(1);
        world.plan();
        let at = world.polls.iter().position(|(poll, _)| poll.lane == 0);
        let (poll, _) = world
            .polls
            .remove(at.expect("the higher queue is asked again"));
        world
            .scheduler
            .failed(poll, Duration::from_millis(300), world.now);
        world.woken = true;
        world.start();
        let low_runs = world.running.iter().any(|(lane, _)| *lane == 1);
        assert_eq!(low_runs, failures > 2, "after {failures} failures");
    }
}

#[test]
fn idle_queues_have_one_long_poll_each_and_three_calls_a_minute() {
    let mut world = SchedulerWorld::new(20, None, 1, 1);
    for _ in 0..2_000 {
        world.step(10); // 20 s to learn that all are empty
    }
    assert_eq!(world.polls.len(), 20);
    assert!(
        world
            .polls
            .iter()
            .all(|(poll, _)| poll.wait == Duration::from_secs(20))
    );
    world.calls = 0;
    for _ in 0..6_000 {
        world.step(10);
    }
    // lesson_16: an idle queue costs at most three calls a minute.
    assert!(world.calls <= 3 * 20, "{} calls", world.calls);
}

#[test]
fn lesson_14_message_on_any_idle_queue_starts_at_once() {
    for lane in 0..20 {
        let mut world = SchedulerWorld::new(20, None, 1, 1);
        (0..300).for_each(|_| world.step(10));
        world.send(lane, 1);
        world.step(0);
        assert_eq!(world.started, [WorldItem { lane, number: 0 }]);
    }
}

#[test]
fn lesson_15_strict_is_strict() {
    let mut world = SchedulerWorld::new(2, None, 4, 1);
    world.send(0, 100);
    world.send(1, 100);
    while world.started.len() < 200 {
        world.step(5);
        world.end(0);
    }
    let first_low = world.started.iter().position(|item| item.lane == 1);
    assert_eq!(
        first_low,
        Some(100),
        "a lower message started while a higher one waited"
    );
}

#[test]
fn empty_short_poll_does_not_prove_an_empty_queue() {
    let mut world = SchedulerWorld::new(2, None, 4, 1);
    // The first polls bring all they may of both; then the higher queue is short-polled, since the
    // lower one waits, and says nothing.
    world.send(0, 2);
    world.send(1, 50);
    world.step(0);
    while !world.running.is_empty() {
        world.end(0);
    }
    world.plan();
    assert!(
        world
            .polls
            .iter()
            .any(|(poll, _)| poll.lane == 0 && poll.wait.is_zero())
    );
    world.answer();
    world.start();
    assert!(
        world.started.iter().all(|item| item.lane == 0),
        "{:?}",
        world.started
    );
    // A long poll says so, and the lower queue's messages start.
    (0..200).for_each(|_| world.step(10));
    assert!(world.started.iter().any(|item| item.lane == 1));
}

#[test]
fn messages_held_for_a_lower_queue_do_not_block_a_higher() {
    let mut world = SchedulerWorld::new(2, None, 1, 1);
    (0..300).for_each(|_| world.step(10));
    // Both idle long polls bring all they may: room for one, four messages held.
    world.send(0, 50);
    world.send(1, 50);
    for _ in 0..2_000 {
        world.step(5);
        world.end(0);
    }
    assert_eq!(world.started.len(), 100);
    assert!(world.started[..50].iter().all(|item| item.lane == 0));
}

#[test]
fn saturated_queues_share_by_weight() {
    let weights = vec![3, 2, 1];
    let mut world = SchedulerWorld::new(3, Some(weights.clone()), 10, 1);
    (0..3).for_each(|lane| world.send(lane, 20_000));
    while world.started.len() < 10_000 {
        world.step(5);
        (0..10).for_each(|which| world.end(which));
    }
    for (lane, weight) in weights.into_iter().enumerate() {
        let wanted = f64::from(weight) / 6.0;
        let got = world.started[..10_000]
            .iter()
            .filter(|item| item.lane == lane)
            .count();
        let got = got as f64 / 10_000.0;
        assert!(
            (wanted - got).abs() < 0.01,
            "queue {lane}: wanted {wanted}, got {got}"
        );
    }
}

#[test]
fn receives_bring_ten_messages_under_load() {
    let mut world = SchedulerWorld::new(1, None, 50, 1);
    world.send(0, 10_000);
    while world.started.len() < 10_000 {
        world.step(1);
        (0..5).for_each(|which| world.end(which));
    }
    assert!(world.calls <= 1_300, "{} calls", world.calls);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any sends, answers, ends and troubles downstream: nothing is lost, nothing starts twice,
    /// the permits are kept but for what idle long polls may bring, and everything starts in the end.
    #[test]
    fn nothing_is_lost_and_everything_starts(
        lanes in 1_usize..6,
        weighted: bool,
        attempts in 1_usize..20,
        batch in 1_usize..4,
        sends in prop::collection::vec((0_usize..6, 1_u64..40, 0_u64..3_000, 0_usize..10, 0_usize..8), 1..40),
    ) {
        let weights = weighted.then(|| (1..=u32::try_from(lanes).expect("few lanes")).collect());
        let mut world = SchedulerWorld::new(lanes, weights, attempts, batch);
        let mut sent = 0;
        for (lane, count, pause, ends, trouble) in sends {
            world.send(lane % lanes, count);
            sent += count;
            world.step(pause);
            let showed = [Signal::Busy, Signal::Closed, Signal::Nothing];
            let showed = showed.get(trouble).copied().unwrap_or(Signal::Open);
            (0..ends).for_each(|which| world.end_showing(which, showed));
            let allowed = attempts * batch + 2 * lanes;
            prop_assert!(world.scheduler.permits().used() <= allowed);
            prop_assert!(world.running.len() <= attempts);
        }
        for _ in 0..20_000 {
            world.step(20);
            world.end(0);
        }
        prop_assert_eq!(world.pending(), 0);
        prop_assert_eq!(world.started.len() as u64, sent);
        prop_assert_eq!(world.scheduler.permits().used(), 0);
        prop_assert!(world.running.is_empty());
    }
}

#[test]
fn finding_14_outstanding_polls_are_listed_with_their_deadlines() {
    let mut world = SchedulerWorld::new(2, None, 1, 1);
    assert!(world.scheduler.outstanding().is_empty());
    world.plan();
    let proven = world.now + Duration::from_secs(1);
    assert_eq!(world.scheduler.outstanding(), [(0, proven), (1, proven)]);
    world.now = proven;
    world.answer();
    assert!(world.scheduler.outstanding().is_empty());
    world.plan();
    let waits = proven + Duration::from_secs(20);
    assert_eq!(world.scheduler.outstanding(), [(0, waits), (1, waits)]);
}
