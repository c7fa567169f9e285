//! The scheduler at its pace: calls that take their time, attempts that take theirs, and a clock
//! that goes by milliseconds. What is held, how many calls it costs, how much capacity idles.

use crate::scheduler::*;
use crate::throttle::control::Signal;
use proptest::prelude::*;

#[derive(Debug)]
struct PaceJob {
    _seat: Permit,
}

impl WaitingJob for PaceJob {
    fn group(&self) -> Option<&str> {
        None
    }
}

/// Queues in strict order, and what is running between them and the workers.
struct PaceWorld {
    scheduler: Scheduler<PaceJob>,
    random: fastrand::Rng,
    /// Messages that may be received, by queue.
    holds: Vec<u64>,
    /// What a call takes besides its wait, and an attempt on average.
    call_ms: u64,
    attempt_ms: u64,
    /// With the time of the call and the end of its wait.
    polls: Vec<(Poll, u64, u64)>,
    /// With its beginning and its end.
    running: Vec<(Start<PaceJob>, u64, u64)>,
    now_ms: u64,
    calls: u64,
    ended: u64,
    /// The sum over time of the running attempts.
    busy_ms: u64,
    most_polls: usize,
}

fn limits(attempts: usize, prefetch: usize) -> SchedulerLimits {
    SchedulerLimits {
        prefetch,
        ..sample::limits(attempts)
    }
}

impl PaceWorld {
    /// One queue, a visibility of 30 s, one message for each attempt.
    fn new(attempts: usize, prefetch: usize, attempt_ms: u64, call_ms: u64) -> Self {
        Self::of(1, limits(attempts, prefetch), attempt_ms, call_ms)
    }

    fn of(lanes: usize, limits: SchedulerLimits, attempt_ms: u64, call_ms: u64) -> Self {
        Self::receiving(10, lanes, limits, attempt_ms, call_ms)
    }

    /// Queues that deliver `batch` messages in a call.
    fn receiving(
        batch: usize,
        lanes: usize,
        limits: SchedulerLimits,
        attempt_ms: u64,
        call_ms: u64,
    ) -> Self {
        let lane = LaneRules {
            batch,
            ..sample::lane()
        };
        Self {
            scheduler: Scheduler::new(Rules {
                limits,
                ..sample::rules(vec![lane; lanes], 1)
            }),
            random: fastrand::Rng::with_seed(7),
            holds: vec![0; lanes],
            call_ms,
            attempt_ms,
            polls: Vec::new(),
            running: Vec::new(),
            now_ms: 1_000_000,
            calls: 0,
            ended: 0,
            busy_ms: 0,
            most_polls: 0,
        }
    }

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(ms))
    }

    fn now(&self) -> BootInstant {
        Self::at(self.now_ms)
    }

    /// A millisecond passes.
    fn tick(&mut self, showed: Signal) {
        self.now_ms += 1;
        self.busy_ms += self.running.len() as u64;
        self.end(showed);
        self.answer();
        for poll in self.scheduler.plan(self.now()) {
            self.calls += 1;
            let wait = u64::try_from(poll.wait.as_millis()).expect("short");
            let until = self.now_ms + self.call_ms + wait;
            self.polls.push((poll, self.now_ms, until));
        }
        self.most_polls = self.most_polls.max(self.polls.len());
        for _ in 0..self.scheduler.reserve_workers(self.now()) {
            self.take();
        }
    }

    fn end(&mut self, showed: Signal) {
        let now_ms = self.now_ms;
        let over = |(_, _, until): &(Start<PaceJob>, u64, u64)| *until <= now_ms;
        let (over, running) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(over);
        self.running = running;
        for (start, began, _) in Vec::<(Start<PaceJob>, u64, u64)>::from_iter::<Vec<_>>(over) {
            self.ended += 1;
            let ended = FinishedAttempt {
                lane: start.lane,
                began: Self::at(began),
                showed,
            };
            let after = self
                .scheduler
                .ended(ended, [(None, MessageFate::Done)], self.now());
            assert!(after.overtaking.is_empty());
            drop(start);
            self.take();
        }
    }

    fn take(&mut self) {
        if let Some(start) = self.scheduler.next_jobs(self.now()) {
            let about = self.attempt_ms / 2 + self.random.u64(0..=self.attempt_ms);
            let until = self.now_ms + about.max(1);
            self.running.push((start, self.now_ms, until));
        }
    }

    fn answer(&mut self) {
        for (mut poll, called, until) in std::mem::take(&mut self.polls) {
            let answered = called + self.call_ms <= self.now_ms && self.holds[poll.lane] > 0;
            if !answered && until > self.now_ms {
                self.polls.push((poll, called, until));
                continue;
            }
            let count = self.holds[poll.lane].min(poll.max as u64);
            self.holds[poll.lane] -= count;
            let jobs: Vec<PaceJob> = (0..count).map(|_| PaceJob { _seat: poll.seat() }).collect();
            let drained = jobs.len() < poll.max && !poll.wait.is_zero();
            self.scheduler.answered(poll, jobs, drained, self.now());
        }
    }

    /// Time passes; the calls for each message that ended in it, and the part of the time in which
    /// workers were busy.
    fn pass(&mut self, ms: u64, attempts: usize) -> (f64, f64) {
        let (calls, ended, busy) = (self.calls, self.ended, self.busy_ms);
        self.most_polls = 0;
        (0..ms).for_each(|_| self.tick(Signal::Open));
        let messages = (self.ended - ended).max(1);
        (
            (self.calls - calls) as f64 / messages as f64,
            (self.busy_ms - busy) as f64 / (ms * attempts as u64) as f64,
        )
    }
}

const ENDLESS: u64 = 1 << 40;

#[test]
fn idle_queue_has_one_long_poll_and_load_uses_all_permits() {
    let mut world = PaceWorld::new(50, 200, 20, 30);
    world.pass(5_000, 50);
    assert_eq!(world.polls.len(), 1);
    assert_eq!(world.polls[0].0.wait, Duration::from_secs(20));
    // Load: within a second the workers are busy, and calls are as many as their latency takes.
    world.holds[0] = ENDLESS;
    world.pass(1_000, 50);
    let (calls, busy) = world.pass(5_000, 50);
    assert!(calls <= 0.105 && busy >= 0.95, "{calls} calls, {busy} busy");
    let at_load = (world.most_polls, world.calls);
    assert!(at_load.0 >= 6, "{at_load:?}");
    // Ten times slower: within seconds a tenth of the calls, all workers busy.
    world.attempt_ms = 200;
    world.pass(2_000, 50);
    let before = world.calls;
    let (calls, busy) = world.pass(5_000, 50);
    assert!(calls <= 0.105 && busy >= 0.95, "{calls} calls, {busy} busy");
    let fewer = (world.most_polls, world.calls - before);
    assert!(fewer.0 < at_load.0 && fewer.1 <= 150, "{fewer:?}");
    // Idle again: one idle long poll, and no more than three calls a minute.
    world.holds[0] = 0;
    world.pass(4_000, 50);
    assert_eq!(world.polls.len(), 1);
    let before = world.calls;
    world.pass(60_000, 50);
    assert!(world.calls - before <= 3 && world.polls.len() == 1);
}

#[test]
fn prefetch_follows_the_speed_of_the_handler() {
    let mut world = PaceWorld::new(4, 300, 20, 5);
    world.holds[0] = ENDLESS;
    world.pass(5_000, 4);
    assert_eq!(world.scheduler.permits().capacity(), 4 + 300);
    // 4 × 15 s / 1 s = 60 are started within half of the visibility.
    world.attempt_ms = 1_000;
    world.pass(20_000, 4);
    let figures = world.scheduler.figures();
    let limit = figures.in_flight_limit;
    assert!((50..=85).contains(&limit), "{figures:?}");
    // What was held before is started first; nothing is received meanwhile.
    world.pass(70_000, 4);
    let figures = world.scheduler.figures();
    assert!(
        figures.in_flight <= figures.in_flight_limit + 20,
        "{figures:?}"
    );
    world.attempt_ms = 20;
    world.pass(5_000, 4);
    assert_eq!(world.scheduler.permits().capacity(), 4 + 300);
}

#[test]
fn without_prefetch_quick_handlers_need_few_calls_and_slow_ones_idle_little() {
    for attempts in [2, 10, 50] {
        for attempt_ms in [1, 100, 1_000] {
            let mut world = PaceWorld::new(attempts, 0, attempt_ms, 0);
            world.holds[0] = ENDLESS;
            world.pass(2_000, attempts);
            let (calls, busy) = world.pass(8_000, attempts);
            if attempt_ms >= 100 {
                assert!(busy >= 0.9, "{attempts} × {attempt_ms} ms: {busy} busy");
            }
            if attempt_ms == 1 && attempts >= 50 {
                assert!(
                    calls <= 0.125,
                    "{attempts} × {attempt_ms} ms: {calls} calls"
                );
            }
        }
    }
}

#[test]
fn with_prefetch_calls_are_full_and_workers_stay_busy() {
    for (attempts, attempt_ms) in [(4, 5), (10, 50), (50, 20), (50, 200)] {
        let mut world = PaceWorld::new(attempts, 200, attempt_ms, 20);
        world.holds[0] = ENDLESS;
        world.pass(1_000, attempts);
        let (calls, busy) = world.pass(3_000, attempts);
        assert!(calls <= 0.11, "{attempts} × {attempt_ms} ms: {calls} calls");
        assert!(busy >= 0.95, "{attempts} × {attempt_ms} ms: {busy} busy");
    }
}

#[test]
fn large_receive_leaves_room_for_another_beside_it() {
    // Half of the room each; all of it where half would be less than ten.
    for (attempts, share) in [(50, 25.0), (12, 12.0), (10, 10.0)] {
        let mut world = PaceWorld::receiving(100, 1, limits(attempts, 0), 4, 4);
        world.holds[0] = ENDLESS;
        world.pass(500, attempts);
        let (calls, _) = world.pass(2_000, attempts);
        let (least, most) = (0.9 / share, 1.3 / share);
        assert!((least..most).contains(&calls), "{attempts}: {calls} calls");
    }
}

#[test]
fn finding_11_quick_handlers_get_full_calls_from_a_slow_server() {
    for attempts in [10, 50, 200] {
        for (call_ms, attempt_ms) in [(20, 1), (20, 3), (60, 3), (60, 10)] {
            let mut world = PaceWorld::new(attempts, 0, attempt_ms, call_ms);
            world.holds[0] = ENDLESS;
            world.pass(2_000, attempts);
            let (calls, _) = world.pass(8_000, attempts);
            assert!(
                calls <= 0.12,
                "{attempts} × {attempt_ms} ms, calls of {call_ms} ms: {calls} receives"
            );
        }
    }
}

/// What is waited for a full call costs no more than a twentieth of what could be handled.
#[test]
fn finding_11_full_calls_cost_little_capacity() {
    for attempts in [10, 25, 50] {
        for (call_ms, attempt_ms) in [(20, 1), (20, 4), (60, 3), (60, 10), (60, 40)] {
            let mut world = PaceWorld::new(attempts, 0, attempt_ms, call_ms);
            world.holds[0] = ENDLESS;
            world.pass(2_000, attempts);
            let before = world.ended;
            world.pass(10_000, attempts);
            let ended = (world.ended - before) as f64;
            // A seat is free again after the call, half as long again as the mean for the last of its
            // ten, and what is left of two ticks of a millisecond.
            let cycle_ms = call_ms as f64 + 1.5 * attempt_ms as f64 + 2.0;
            let possible = attempts as f64 * 10_000.0 / cycle_ms;
            assert!(
                ended >= 0.85 * possible,
                "{attempts} × {attempt_ms} ms, calls of {call_ms} ms: {ended} of {possible}"
            );
        }
    }
}

#[test]
fn prefetch_can_change_at_run_time_and_held_messages_are_kept() {
    let mut world = PaceWorld::new(2, 0, 50_000, 0);
    world.holds[0] = ENDLESS;
    world.pass(1_000, 2);
    assert_eq!(world.scheduler.permits().used(), 2);
    world.scheduler.set_limits(&limits(2, 20), world.now());
    world.pass(1_000, 2);
    assert_eq!(world.scheduler.permits().used(), 22);
    world.scheduler.set_limits(&limits(2, 0), world.now());
    world.pass(1_000, 2);
    assert_eq!(world.scheduler.permits().used(), 22);
    assert_eq!(world.scheduler.permits().capacity(), 2);
}

#[test]
fn slowly_filling_queue_is_polled_again_while_prefetch_has_room() {
    let mut world = PaceWorld::new(1, 5, 50_000, 0);
    for _ in 0..20 {
        world.holds[0] += 1;
        world.pass(100, 1);
    }
    let held = 20 - usize::try_from(world.holds[0]).expect("few");
    // An idle long poll may bring one more than there is room for.
    assert!((6..=7).contains(&held), "{held}");
}

#[test]
fn lesson_15_prefetch_of_a_lower_queue_takes_no_capacity_of_a_higher() {
    let mut world = PaceWorld::of(2, limits(4, 200), 20, 5);
    world.holds[1] = ENDLESS;
    world.pass(2_000, 4);
    // Slower by far: more is held of the lower queue than there is room for now.
    world.attempt_ms = 2_000;
    world.pass(20_000, 4);
    let figures = world.scheduler.figures();
    assert!(figures.in_flight > figures.in_flight_limit, "{figures:?}");
    world.holds[0] = ENDLESS;
    world.pass(5_000, 4);
    let (_, busy) = world.pass(20_000, 4);
    assert!(world.running.iter().all(|(start, ..)| start.lane == 0));
    assert!(busy >= 0.9, "{busy} busy");
    assert!(world.scheduler.permits().used() <= 4 + 200 + 4);
}

#[test]
fn throttle_lowers_the_prefetch() {
    let mut world = PaceWorld::new(40, 1_000, 2_000, 5);
    world.holds[0] = ENDLESS;
    world.pass(10_000, 40);
    let before = world.scheduler.figures();
    assert!((200..=500).contains(&before.in_flight_limit), "{before:?}");
    for (start, began, _) in std::mem::take(&mut world.running) {
        let ended = FinishedAttempt {
            lane: start.lane,
            began: PaceWorld::at(began),
            showed: Signal::Busy,
        };
        let after = world
            .scheduler
            .ended(ended, [(None, MessageFate::Kept)], world.now());
        assert!(!after.hire);
        world.scheduler.release_worker();
    }
    let figures = world.scheduler.figures();
    assert_eq!(figures.attempts_limit, 20);
    assert!(
        figures.in_flight_limit <= before.in_flight_limit / 2 + 1,
        "{figures:?}"
    );
    assert_eq!(
        figures.hand_over, before.hand_over,
        "a refusal is no hand-over"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Whatever the times and whatever changes: the permits are kept but for what an idle long poll brings,
    /// and never beyond what was allowed.
    #[test]
    fn permits_are_never_overdrawn_by_pacing(
        attempts in 1_usize..30,
        phases in prop::collection::vec((0_usize..200, 0_u64..300, 1_u64..400, 0_u64..40, 0_usize..4), 1..8),
    ) {
        let mut world = PaceWorld::new(attempts, 0, 10, 0);
        let mut most = 0;
        for (prefetch, holds, attempt_ms, call_ms, shown) in phases {
            // What is held under one limit stays under the next.
            most = prefetch.max(most);
            world.scheduler.set_limits(&limits(attempts, prefetch), world.now());
            (world.holds[0], world.attempt_ms, world.call_ms) = (holds, attempt_ms, call_ms);
            let showed = [Signal::Open, Signal::Open, Signal::Nothing, Signal::Busy][shown];
            for _ in 0..500 {
                world.tick(showed);
                let used = world.scheduler.permits().used();
                prop_assert!(used <= attempts + most + 2, "{} of {} and {}", used, attempts, most);
                prop_assert!(world.running.len() <= attempts);
                let capacity = world.scheduler.permits().capacity();
                prop_assert!(capacity <= attempts + prefetch);
            }
        }
    }
}
