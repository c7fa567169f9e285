//! The scheduler under limits: a window, rates, attempts of one queue, a downstream that is busy or
//! closed.

use crate::scheduler::*;
use crate::throttle::control::Signal;

#[derive(Debug)]
struct LimitJob {
    _seat: Permit,
}

impl WaitingJob for LimitJob {
    fn group(&self) -> Option<&str> {
        None
    }
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
}

/// In strict order, with limits for the first queue.
fn scheduler(
    lanes: usize,
    attempts: usize,
    batch: usize,
    first: LaneLimits,
) -> Scheduler<LimitJob> {
    Scheduler::new(Rules {
        limits: SchedulerLimits {
            lanes: vec![first],
            ..sample::limits(attempts)
        },
        batch,
        ..sample::rules(vec![sample::lane(); lanes], attempts)
    })
}

/// Answers the polls of one queue with as many messages as they ask for, or with none.
fn answer(
    scheduler: &mut Scheduler<LimitJob>,
    now: BootInstant,
    holds: impl Fn(usize) -> bool,
) -> usize {
    let mut brought = 0;
    for mut poll in scheduler.plan(now) {
        let count = if holds(poll.lane) { poll.max } else { 0 };
        let jobs: Vec<LimitJob> = (0..count)
            .map(|_| LimitJob { _seat: poll.seat() })
            .collect();
        brought += jobs.len();
        scheduler.answered(poll, jobs, count == 0, now);
    }
    brought
}

fn start(scheduler: &mut Scheduler<LimitJob>, now: BootInstant) -> Vec<Start<LimitJob>> {
    let hired = scheduler.reserve_workers(now);
    (0..hired)
        .filter_map(|_| scheduler.next_jobs(now))
        .collect()
}

/// Ends an attempt that began a millisecond ago. Whether there may be work for others.
fn end(
    scheduler: &mut Scheduler<LimitJob>,
    start: Start<LimitJob>,
    showed: Signal,
    now: BootInstant,
) -> bool {
    let began =
        BootInstant::from_boot(now.since(BootInstant::default()) - Duration::from_millis(1));
    let ended = FinishedAttempt {
        lane: start.lane,
        began,
        showed,
    };
    let kept = matches!(showed, Signal::Busy | Signal::Closed);
    let fate = if kept {
        MessageFate::Kept
    } else {
        MessageFate::Done
    };
    let fates: Vec<_> = start.jobs.iter().map(|_| (None, fate)).collect();
    let after = scheduler.ended(ended, fates, now);
    if kept {
        let until = now + Duration::from_secs(5);
        scheduler.hold(start.lane, start.jobs, now, until);
    }
    scheduler.release_worker();
    after.hire
}

/// The attempts of a route with one queue.
fn left(all: usize) -> AttemptsLeft {
    AttemptsLeft {
        of_lanes: vec![all],
        all,
    }
}

#[test]
fn route_that_ends_keeps_one_attempt_for_its_receives_and_none_in_the_end() {
    let mut scheduler = scheduler(1, 2, 1, LaneLimits::default());
    let mut running = Vec::new();
    while running.len() < 2 {
        answer(&mut scheduler, at(0), |_| true);
        running.extend(start(&mut scheduler, at(0)));
    }
    for done in running.drain(1..) {
        end(&mut scheduler, done, Signal::Open, at(1));
    }
    let mut polls = scheduler.plan(at(2));
    // It waits for more free permits for a while.
    polls.extend(scheduler.plan(at(60_000)));
    assert_eq!(scheduler.lower_to_attempts_left(), left(1));
    assert_eq!(scheduler.stop(|_, _| true, at(60_000)).len(), 0);
    let mut poll = polls.pop().expect("an outstanding poll");
    // It brings messages at their last receive: they run, but one after the other.
    let jobs = (0..2).map(|_| LimitJob { _seat: poll.seat() }).collect();
    scheduler.answered(poll, jobs, false, at(60_001));
    for _ in 0..2 {
        assert_eq!(scheduler.lower_to_attempts_left(), left(1));
        assert!(start(&mut scheduler, at(60_001)).is_empty());
        let done = running.pop().expect("a running attempt");
        end(&mut scheduler, done, Signal::Open, at(60_001));
        running = start(&mut scheduler, at(60_001));
        assert_eq!(running.len(), 1);
    }
    let done = running.pop().expect("a running attempt");
    end(&mut scheduler, done, Signal::Open, at(60_001));
    assert_eq!(scheduler.lower_to_attempts_left(), left(0));
    assert!(scheduler.is_at_rest());
}

#[test]
fn receives_of_a_route_that_ends_share_one_attempt() {
    let mut scheduler = scheduler(2, 4, 1, LaneLimits::default());
    let polls = scheduler.plan(at(0));
    assert_eq!(polls.len(), 2);
    let one_of_all = AttemptsLeft {
        of_lanes: vec![1, 1],
        all: 1,
    };
    assert_eq!(scheduler.lower_to_attempts_left(), one_of_all);
    assert_eq!(scheduler.stop(|_, _| true, at(0)).len(), 0);
    for mut poll in polls {
        let jobs = vec![LimitJob { _seat: poll.seat() }];
        scheduler.answered(poll, jobs, false, at(1));
    }
    assert_eq!(start(&mut scheduler, at(1)).len(), 1);
}

#[test]
fn queue_of_a_route_that_ends_leaves_its_own_attempts_to_others() {
    let mut scheduler = scheduler(2, 4, 1, LaneLimits::default());
    let mut running = Vec::new();
    for mut poll in scheduler.plan(at(0)) {
        let jobs = vec![LimitJob { _seat: poll.seat() }];
        scheduler.answered(poll, jobs, true, at(0));
    }
    running.extend(start(&mut scheduler, at(0)));
    assert_eq!(running.len(), 2);
    let mut polls = scheduler.plan(at(1));
    polls.extend(scheduler.plan(at(60_000)));
    polls.retain(|poll| poll.lane == 0);
    let left = scheduler.lower_to_attempts_left();
    assert_eq!((left.of_lanes[0], left.all), (1, 2));
    assert_eq!(scheduler.stop(|_, _| true, at(60_000)).len(), 0);
    // The other queue leaves room below the limit of all.
    let other = running.pop().expect("an attempt of the other queue");
    end(&mut scheduler, other, Signal::Open, at(60_001));
    let mut poll = polls.pop().expect("an outstanding poll");
    let jobs = vec![LimitJob { _seat: poll.seat() }];
    scheduler.answered(poll, jobs, false, at(60_001));
    assert!(start(&mut scheduler, at(60_001)).is_empty());
    let own = running.pop().expect("an attempt of the queue");
    end(&mut scheduler, own, Signal::Open, at(60_002));
    assert_eq!(start(&mut scheduler, at(60_002)).len(), 1);
}

#[test]
fn batch_window_collects_until_the_clock_or_a_full_batch_ends_it() {
    let mut scheduler = scheduler(1, 2, 10, LaneLimits::default());
    let mut limits = SchedulerLimits {
        window: Duration::from_secs(3),
        ..sample::limits(2)
    };
    scheduler.set_limits(&limits, at(0));
    assert_eq!(answer(&mut scheduler, at(0), |_| true), 2);
    assert!(start(&mut scheduler, at(1)).is_empty());
    assert_eq!(scheduler.next_attention(at(1)), Some(at(3_000)));
    let started = start(&mut scheduler, at(3_000));
    assert_eq!((started.len(), started[0].jobs.len()), (1, 2));
    // A batch that is full waits for nobody.
    limits.window = Duration::from_secs(300);
    scheduler.set_limits(&limits, at(3_000));
    assert!(answer(&mut scheduler, at(3_000), |_| true) >= 10);
    assert_eq!(start(&mut scheduler, at(3_001))[0].jobs.len(), 10);
}

#[test]
fn rate_limited_queue_prefetches_little_and_delays_no_other() {
    let limits = LaneLimits {
        rate: Some(20.0),
        attempts: None,
        paused: false,
    };
    let mut scheduler = scheduler(2, 50, 1, limits);
    let (mut high, mut low) = (0, 0);
    for ms in (0..5_000).step_by(10) {
        answer(&mut scheduler, at(ms), |_| true);
        for start in start(&mut scheduler, at(ms)) {
            if start.lane == 0 {
                high += 1;
            } else {
                low += 1;
            }
            end(&mut scheduler, start, Signal::Open, at(ms));
        }
        let waiting = scheduler.lanes[0].ready.len();
        assert!(waiting <= 5, "{waiting} wait at twenty a second");
    }
    assert!((98..=102).contains(&high), "{high} in five seconds");
    assert!(low > 1_000, "{low}");
}

#[test]
fn concurrency_limit_of_a_queue_is_respected() {
    let limits = LaneLimits {
        rate: None,
        attempts: Some(3),
        paused: false,
    };
    let mut scheduler = scheduler(2, 10, 1, limits);
    let mut running = Vec::new();
    for ms in 0..50 {
        answer(&mut scheduler, at(ms), |_| true);
        running.extend(start(&mut scheduler, at(ms)));
    }
    let of = |lane| running.iter().filter(|start| start.lane == lane).count();
    assert_eq!((of(0), of(1)), (3, 7));
    assert!(scheduler.lanes[0].ready.len() <= 2, "no more is at hand");
}

#[test]
fn lesson_17_busy_messages_are_held_and_receives_shrink() {
    let mut scheduler = scheduler(1, 8, 1, LaneLimits::default());
    answer(&mut scheduler, at(0), |_| true);
    answer(&mut scheduler, at(1), |_| true);
    let running = start(&mut scheduler, at(2));
    assert_eq!(running.len(), 8);
    for start in running {
        end(&mut scheduler, start, Signal::Busy, at(3));
    }
    assert_eq!((scheduler.attempts_limit(), scheduler.held()), (4, 8));
    assert_eq!(
        answer(&mut scheduler, at(4), |_| true),
        0,
        "there is no permit"
    );
    assert!(start(&mut scheduler, at(5)).is_empty(), "nothing is due");
    assert_eq!(scheduler.next_attention(at(5)), Some(at(5_003)));
    let mut again = start(&mut scheduler, at(5_003));
    assert_eq!(again.len(), 4);
    let one = again.remove(0);
    end(&mut scheduler, one, Signal::Open, at(5_004));
    assert_eq!(start(&mut scheduler, at(5_005)).len(), 1);
}

#[test]
fn success_releases_a_held_message_early() {
    let mut scheduler = scheduler(1, 2, 1, LaneLimits::default());
    answer(&mut scheduler, at(0), |_| true);
    let mut running = start(&mut scheduler, at(2));
    let (first, second) = (running.remove(0), running.remove(0));
    end(&mut scheduler, first, Signal::Busy, at(3));
    assert!(end(&mut scheduler, second, Signal::Open, at(4)));
    assert_eq!(start(&mut scheduler, at(4)).len(), 1);
}

#[test]
fn open_circuit_stops_receives_and_probes_one_at_a_time() {
    let mut scheduler = scheduler(3, 2, 1, LaneLimits::default());
    answer(&mut scheduler, at(0), |lane| lane == 0);
    for start in start(&mut scheduler, at(2)) {
        end(&mut scheduler, start, Signal::Closed, at(3));
    }
    assert!(scheduler.plan(at(4)).is_empty() && start(&mut scheduler, at(4)).is_empty());
    assert!(start(&mut scheduler, at(900)).is_empty());
    assert_eq!(scheduler.next_attention(at(900)), Some(at(1_003)));
    assert!(scheduler.figures().circuit_open);
    let mut probe = start(&mut scheduler, at(6_000));
    assert_eq!(probe.len(), 1);
    assert!(scheduler.plan(at(6_000)).is_empty());
    assert!(end(
        &mut scheduler,
        probe.remove(0),
        Signal::Open,
        at(6_001)
    ));
    assert!(!scheduler.is_closed() && !scheduler.figures().circuit_open);
    assert_eq!(start(&mut scheduler, at(6_002)).len(), 1);
    assert!(!scheduler.plan(at(6_002)).is_empty());
}

#[test]
fn open_circuit_without_messages_receives_few_to_probe() {
    let mut scheduler = scheduler(3, 2, 1, LaneLimits::default());
    answer(&mut scheduler, at(0), |lane| lane == 0);
    for start in start(&mut scheduler, at(2)) {
        end(&mut scheduler, start, Signal::Closed, at(3));
    }
    drop(scheduler.lanes[0].held.extract(|_| true));
    assert!(scheduler.plan(at(500)).is_empty());
    let polls = scheduler.plan(at(1_003));
    assert_eq!(
        polls.iter().map(|poll| poll.max).collect::<Vec<_>>(),
        [2, 2, 2]
    );
    assert!(scheduler.plan(at(1_004)).is_empty());
}

#[test]
fn lesson_15_held_messages_of_a_higher_queue_are_not_overtaken() {
    let mut scheduler = scheduler(2, 1, 1, LaneLimits::default());
    answer(&mut scheduler, at(0), |_| true);
    let high = start(&mut scheduler, at(1)).remove(0);
    assert_eq!(high.lane, 0);
    drop(scheduler.lanes[0].ready.extract(|_| true));
    scheduler.lanes[0].knowledge = lane::Knowledge::Drained;
    end(&mut scheduler, high, Signal::Busy, at(2));
    assert!(start(&mut scheduler, at(3)).is_empty());
    assert_eq!(start(&mut scheduler, at(5_002)).remove(0).lane, 0);
}

#[test]
fn stop_returns_held_messages() {
    let mut scheduler = scheduler(1, 2, 1, LaneLimits::default());
    answer(&mut scheduler, at(0), |_| true);
    for start in start(&mut scheduler, at(2)) {
        end(&mut scheduler, start, Signal::Busy, at(3));
    }
    assert!(!scheduler.is_at_rest());
    assert_eq!(scheduler.stop(|_, _| true, at(3)).len(), 2);
    assert!(scheduler.is_at_rest() && scheduler.permits().used() == 0);
}

#[test]
fn rate_limited_single_queue_is_not_drained_into_memory() {
    let limits = LaneLimits {
        rate: Some(1.0),
        attempts: None,
        paused: false,
    };
    let mut scheduler = scheduler(1, 1, 1, limits);
    for ms in (0..20_000).step_by(10) {
        answer(&mut scheduler, at(ms), |_| true);
        for start in start(&mut scheduler, at(ms)) {
            end(&mut scheduler, start, Signal::Open, at(ms));
        }
        let used = scheduler.permits().used();
        assert!(used <= 3, "{used} are held with room for one");
    }
}

#[test]
fn available_tokens_cause_no_timer_wakeups() {
    let limits = LaneLimits {
        rate: Some(100.0),
        attempts: None,
        paused: false,
    };
    let mut scheduler = scheduler(1, 2, 1, limits);
    answer(&mut scheduler, at(0), |_| true);
    answer(&mut scheduler, at(1), |_| true);
    assert_eq!(start(&mut scheduler, at(2)).len(), 2);
    // All workers are busy, and nothing but the end of an attempt changes that.
    assert_eq!(scheduler.next_attention(at(3)), None);
}

#[test]
fn token_that_comes_between_a_look_and_the_timer_is_used() {
    let limits = LaneLimits {
        rate: Some(100.0),
        attempts: None,
        paused: false,
    };
    let mut scheduler = scheduler(1, 4, 1, limits);
    let mut looked = 0;
    loop {
        answer(&mut scheduler, at(looked), |_| true);
        let started = start(&mut scheduler, at(looked));
        if started.is_empty() {
            break;
        }
        for start in started {
            end(&mut scheduler, start, Signal::Open, at(looked));
        }
        looked += 1;
    }
    assert!(scheduler.waiting() > 0, "messages wait for a token");
    // The next token is there before anything asks for a timer.
    let later = at(looked + 50);
    assert!(scheduler.next_attention(later).is_some());
    assert!(!start(&mut scheduler, later).is_empty());
}

/// Returns a scheduler of which workers looked for jobs at 5.002 s, before held messages were due at
/// 5.003 s.
fn with_held_messages() -> Scheduler<LimitJob> {
    let mut scheduler = scheduler(1, 8, 1, LaneLimits::default());
    answer(&mut scheduler, at(0), |_| true);
    answer(&mut scheduler, at(1), |_| true);
    for start in start(&mut scheduler, at(2)) {
        end(&mut scheduler, start, Signal::Busy, at(3));
    }
    assert!(
        start(&mut scheduler, at(5_002)).is_empty(),
        "nothing is due"
    );
    scheduler
}

fn assert_needs_attention(scheduler: &mut Scheduler<LimitJob>) {
    let attention = scheduler.next_attention(at(5_004));
    assert!(
        attention.is_some_and(|at_once| at_once <= at(5_004)),
        "{attention:?}"
    );
}

#[test]
fn held_message_that_is_due_between_a_look_and_the_timer_is_started() {
    let mut scheduler = with_held_messages();
    assert_needs_attention(&mut scheduler);
}

#[test]
fn held_message_that_a_plan_finds_due_is_started() {
    let mut scheduler = with_held_messages();
    // An event that lets no worker look, such as a returned permit.
    let _ = scheduler.plan(at(5_004));
    assert_needs_attention(&mut scheduler);
    assert!(!start(&mut scheduler, at(5_004)).is_empty());
}

#[test]
fn lesson_15_queue_whose_messages_need_no_run_may_still_hold_more() {
    let mut scheduler = scheduler(2, 1, 1, LaneLimits::default());
    for mut poll in scheduler.plan(at(0)) {
        let mut jobs: Vec<LimitJob> = (0..2).map(|_| LimitJob { _seat: poll.seat() }).collect();
        if poll.lane == 0 {
            jobs.clear(); // handled before, or out of attempts
        }
        scheduler.answered(poll, jobs, false, at(10));
    }
    assert!(start(&mut scheduler, at(10)).is_empty());
}

/// How many polls are running once this many answers in a row have brought so many messages, all
/// of which are over by then.
fn polls_after(answers: usize, brought: usize) -> usize {
    let mut scheduler = scheduler(1, 1_000, 1, LaneLimits::default());
    let mut polls = Vec::new();
    for round in 0..answers {
        polls.extend(scheduler.plan(at(round as u64)));
        let mut poll: Poll = polls.remove(0);
        let jobs: Vec<LimitJob> = (0..brought.min(poll.max))
            .map(|_| LimitJob { _seat: poll.seat() })
            .collect();
        scheduler.answered(poll, jobs, false, at(round as u64));
        for started in start(&mut scheduler, at(round as u64)) {
            end(&mut scheduler, started, Signal::Open, at(round as u64 + 1));
        }
    }
    polls.extend(scheduler.plan(at(answers as u64)));
    polls.len()
}

#[test]
fn lesson_16_parallel_receives_are_avoided_when_they_would_share_messages() {
    assert_eq!(polls_after(50, 10), 16, "there is a backlog");
    assert_eq!(polls_after(50, 2), 1, "the workers keep up");
}

/// Limits with the first queue paused or not.
fn paused(first: bool) -> SchedulerLimits {
    SchedulerLimits {
        prefetch: 4,
        lanes: vec![LaneLimits {
            paused: first,
            ..LaneLimits::default()
        }],
        ..sample::limits(4)
    }
}

#[test]
fn a_paused_queue_is_not_asked_and_holds_up_no_queue_below_it() {
    let mut scheduler = scheduler(2, 4, 1, LaneLimits::default());
    scheduler.set_limits(&paused(true), at(0));
    assert!(scheduler.is_paused(0) && !scheduler.is_paused(1));
    for round in 0..50 {
        let now = at(round * 100);
        for poll in scheduler.plan(now) {
            assert_eq!(poll.lane, 1);
            scheduler.answered(poll, Vec::new(), true, now);
        }
    }
    scheduler.set_limits(&paused(false), at(9_000));
    let asked: Vec<usize> = scheduler
        .plan(at(9_000))
        .iter()
        .map(|poll| poll.lane)
        .collect();
    assert!(asked.contains(&0), "it is asked at once when it is resumed");
}

#[test]
fn what_waits_at_a_pause_goes_back_and_what_runs_ends() {
    let mut scheduler = scheduler(1, 4, 1, LaneLimits::default());
    scheduler.set_limits(&paused(false), at(0));
    answer(&mut scheduler, at(0), |_| true);
    answer(&mut scheduler, at(1), |_| true);
    let mut started = start(&mut scheduler, at(2));
    let waiting = scheduler.waiting();
    assert!(started.len() == 4 && waiting > 0, "{waiting} wait");
    scheduler.set_limits(&paused(true), at(3));
    assert_eq!(scheduler.overtaking().len(), waiting);
    let last = started.pop().expect("four run");
    for one in started {
        end(&mut scheduler, one, Signal::Open, at(4));
    }
    // What is begun in vain is not tried again by a paused queue.
    end(&mut scheduler, last, Signal::Busy, at(5));
    assert!(scheduler.give_back_paused(0, at(5)));
    assert_eq!(scheduler.overtaking().len(), 1);
    assert!(scheduler.is_at_rest());
    assert!(scheduler.plan(at(600_000)).is_empty());
}

#[test]
fn what_a_poll_under_way_brings_to_a_paused_queue_goes_back_unless_it_is_its_last_chance() {
    #[derive(Debug)]
    struct LastChance {
        is_last: bool,
        _seat: Permit,
    }
    impl WaitingJob for LastChance {
        fn group(&self) -> Option<&str> {
            None
        }
        fn may_be_given_back(&self) -> bool {
            !self.is_last
        }
    }
    let mut scheduler = Scheduler::new(Rules {
        limits: paused(false),
        ..sample::rules(vec![sample::lane()], 1)
    });
    let mut poll = scheduler.plan(at(0)).remove(0);
    scheduler.set_limits(&paused(true), at(1));
    let jobs = [false, true].map(|is_last| LastChance {
        is_last,
        _seat: poll.seat(),
    });
    scheduler.answered(poll, jobs.into(), false, at(2));
    let back = scheduler.overtaking();
    assert!(back.len() == 1 && !back[0].1.is_last);
    assert_eq!(scheduler.reserve_workers(at(2)), 1);
    let run = scheduler.next_jobs(at(2)).expect("the last chance runs");
    assert!(run.jobs[0].is_last);
    assert!(scheduler.plan(at(3)).is_empty());
}
