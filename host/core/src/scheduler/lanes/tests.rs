//! Idle queues cost nothing, and leaving them out changes no decision.

use super::*;
use crate::scheduler::lane::LaneRules;
use crate::scheduler::permits::Permit;
use crate::scheduler::sample;
use crate::scheduler::{FinishedAttempt, MessageFate, Poll, Scheduler, SchedulerLimits};
use crate::throttle::control::Signal;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Debug)]
struct SeatedJob(#[expect(dead_code, reason = "held for its drop")] Permit);

impl WaitingJob for SeatedJob {
    fn group(&self) -> Option<&str> {
        None
    }
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(ms))
}

fn scheduler(lanes: usize, sleep: Duration) -> Scheduler<SeatedJob> {
    let lane = LaneRules {
        sleep,
        ..sample::lane()
    };
    Scheduler::new(sample::rules(vec![lane; lanes], 3))
}

/// A scheduler that looks only at active queues, or at all of them each time, and what it polls
/// and runs.
struct LookingScheduler {
    scheduler: Scheduler<SeatedJob>,
    at_all: bool,
    polls: Vec<Poll>,
    running: Vec<usize>,
}

impl LookingScheduler {
    fn new(at_all: bool, sleep: Duration) -> Self {
        Self {
            scheduler: scheduler(4, sleep),
            at_all,
            polls: Vec::new(),
            running: Vec::new(),
        }
    }

    fn look(&mut self) {
        if self.at_all {
            self.scheduler.lanes.iter_mut().for_each(drop);
        }
    }

    fn poll(&mut self) -> Option<Poll> {
        (!self.polls.is_empty()).then(|| self.polls.remove(0))
    }

    /// One event, and what the stages do after it. What was decided.
    fn step(&mut self, event: LaneEvent, now: BootInstant) -> String {
        self.look();
        match event {
            LaneEvent::Answer { messages, drained } => {
                if let Some(mut poll) = self.poll() {
                    let messages = messages.min(poll.max);
                    let jobs = (0..messages).map(|_| SeatedJob(poll.seat())).collect();
                    self.scheduler.answered(poll, jobs, drained, now);
                }
            }
            LaneEvent::Failure => {
                if let Some(poll) = self.poll() {
                    let rest = Duration::from_millis(700);
                    self.scheduler.failed(poll, rest, now);
                }
            }
            LaneEvent::Ending => {
                if let Some(lane) = self.running.pop() {
                    let ended = FinishedAttempt {
                        lane,
                        began: now,
                        showed: Signal::Open,
                    };
                    let _ = self
                        .scheduler
                        .ended(ended, [(None, MessageFate::Done)], now);
                    self.scheduler.release_worker();
                }
            }
            LaneEvent::Pause { lane, paused } => {
                let mut limits = SchedulerLimits {
                    lanes: vec![Default::default(); 4],
                    ..sample::limits(3)
                };
                limits.lanes[lane].paused = paused;
                self.scheduler.set_limits(&limits, now);
                drop(self.scheduler.overtaking());
            }
            LaneEvent::Time => {}
        }
        self.look();
        let mut decided = String::new();
        for _ in 0..self.scheduler.reserve_workers(now) {
            if let Some(start) = self.scheduler.next_jobs(now) {
                decided += &format!("start {} ×{}, ", start.lane, start.jobs.len());
                self.running.push(start.lane);
            }
        }
        self.look();
        for poll in self.scheduler.plan(now) {
            decided += &format!("poll {} for {} in {:?}, ", poll.lane, poll.max, poll.wait);
            self.polls.push(poll);
        }
        self.look();
        let attention = self.scheduler.next_attention(now);
        format!("{decided}{:?} {attention:?}", self.scheduler.figures())
    }
}

#[derive(Debug, Clone, Copy)]
enum LaneEvent {
    Answer { messages: usize, drained: bool },
    Failure,
    Ending,
    Pause { lane: usize, paused: bool },
    Time,
}

fn events() -> impl Strategy<Value = Vec<(LaneEvent, u64)>> {
    let event = prop_oneof![
        4 => (0_usize..4, any::<bool>())
            .prop_map(|(messages, drained)| LaneEvent::Answer { messages, drained }),
        2 => Just(LaneEvent::Answer { messages: 0, drained: true }),
        1 => Just(LaneEvent::Failure),
        3 => Just(LaneEvent::Ending),
        1 => (0_usize..4, any::<bool>())
            .prop_map(|(lane, paused)| LaneEvent::Pause { lane, paused }),
        2 => Just(LaneEvent::Time),
    ];
    prop::collection::vec((event, 0_u64..900), 1..80)
}

proptest! {
    #[test]
    fn looking_only_at_active_queues_changes_no_decision(events in events(), sleeps in any::<bool>()) {
        let sleep = if sleeps { Duration::from_secs(1) } else { Duration::ZERO };
        let (mut active, mut all) = (LookingScheduler::new(false, sleep), LookingScheduler::new(true, sleep));
        let mut now = 1_000_000;
        for (event, millis) in events {
            now += millis;
            prop_assert_eq!(active.step(event, at(now)), all.step(event, at(now)), "after {:?}", event);
        }
    }
}

#[test]
fn idle_queues_are_not_looked_at() {
    let mut scheduler = scheduler(1_000, Duration::ZERO);
    let mut polls = scheduler.plan(at(0));
    assert_eq!(polls.len(), 1_000);
    for poll in polls.drain(..) {
        scheduler.answered(poll, Vec::new(), true, at(1_000));
    }
    polls = scheduler.plan(at(1_000));
    assert_eq!((polls.len(), scheduler.lanes.active().count()), (1_000, 0));

    let poll = polls.remove(500);
    scheduler.answered(poll, Vec::new(), true, at(2_000));
    assert_eq!(scheduler.lanes.indexes().collect::<Vec<_>>(), [500]);
    assert_eq!(scheduler.plan(at(2_000)).len(), 1);
    assert_eq!(scheduler.lanes.active().count(), 0);
}

#[test]
fn queues_that_rest_are_looked_at_when_they_have_rested() {
    let mut scheduler = scheduler(3, Duration::from_secs(5));
    for (index, poll) in (0..).zip(scheduler.plan(at(0))) {
        scheduler.answered(poll, Vec::new(), true, at(1_000 + index));
    }
    assert!(scheduler.plan(at(1_010)).is_empty());
    assert_eq!(scheduler.lanes.active().count(), 0);
    assert_eq!(scheduler.next_attention(at(1_010)), Some(at(6_000)));
    let polled: Vec<usize> = scheduler
        .plan(at(6_001))
        .iter()
        .map(|poll| poll.lane)
        .collect();
    assert_eq!(polled, [0, 1]);
}

#[test]
fn answers_after_a_stop_leave_no_queue_to_look_at() {
    let mut scheduler = scheduler(100, Duration::ZERO);
    let polls = scheduler.plan(at(0));
    drop(scheduler.stop(|_, _| true, at(10)));
    for poll in polls {
        scheduler.answered(poll, Vec::new(), true, at(11));
        assert!(scheduler.plan(at(11)).is_empty());
    }
    assert_eq!(scheduler.lanes.active().count(), 0);
    assert!(scheduler.is_at_rest());
}

#[test]
fn queues_that_rest_at_a_stop_ask_for_no_attention() {
    let mut scheduler = scheduler(3, Duration::from_secs(5));
    for (index, poll) in (0..).zip(scheduler.plan(at(0))) {
        scheduler.answered(poll, Vec::new(), true, at(1_000 + index));
    }
    assert!(scheduler.plan(at(1_010)).is_empty());
    assert_eq!(scheduler.next_attention(at(1_010)), Some(at(6_000)));
    // Nobody plans between the end of a rest and the stop, nor after it.
    assert_eq!(scheduler.next_attention(at(6_003)), None);
    assert!(scheduler.stop(|_, _| true, at(1_020)).is_empty());
    for now in [1_020, 6_000, 6_003] {
        let next = scheduler.next_attention(at(now));
        assert!(next.is_none_or(|next| next > at(now)), "{now}: {next:?}");
    }
}
