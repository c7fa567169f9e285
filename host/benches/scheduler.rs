//! What the scheduler costs for one message, on its way in and on its way out, with 1,000 to
//! 1,000,000 jobs waiting, beside a plain deque and a plain heap that hold as many.
//! `cargo bench --bench scheduler`. Knows only the scheduler; prints and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::scheduler::lane::LaneRules;
use dispatcher_core::scheduler::permits::Permit;
use dispatcher_core::scheduler::ready::{Sequence, WaitingJob};
use dispatcher_core::scheduler::{
    FinishedAttempt, MessageFate, Poll, Rules, Scheduler, SchedulerLimits,
};
use dispatcher_core::throttle::control::Signal;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::Duration;

/// Messages that pass in one measurement, at least.
const MESSAGES: usize = 400_000;
/// Maximum messages of one receive.
const BATCH: usize = 10;
/// Room beyond the waiting jobs: what sixteen receives bring.
const SPARE: usize = 16 * BATCH;

struct BenchJob {
    number: u64,
    group: Option<Box<str>>,
    /// Released when it is dropped.
    _permit: Option<Permit>,
}

impl WaitingJob for BenchJob {
    fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }
}

/// A route whose queues never run dry.
struct Route {
    scheduler: Scheduler<BenchJob>,
    now: BootInstant,
    number: u64,
    /// The only queue that holds something; `None`: all of them do.
    only: Option<usize>,
    groups: u64,
    /// Long polls of empty queues, which are never answered; one place for each queue.
    parked: Vec<Option<Poll>>,
    known_empty: Vec<bool>,
}

/// Nanoseconds for each message.
struct SchedulerCost {
    arriving: f64,
    leaving: f64,
}

impl Route {
    fn new(waiting: usize, lanes: usize, weighted: bool, groups: u64) -> Self {
        let lane = LaneRules {
            batch: BATCH,
            poll_for: Duration::from_secs(20),
            proof_wait: Duration::from_secs(1),
            sleep: Duration::ZERO,
            ordered_groups: groups > 0,
            most_receives: None,
            sequence: Sequence::Fifo,
            sharing: None,
            queue_shares_out: false,
        };
        let rules = Rules {
            lanes: vec![lane; lanes],
            weights: weighted.then(|| (1..=5).cycle().take(lanes).collect()),
            batch: 1,
            horizon: Duration::from_secs(15),
            limits: SchedulerLimits {
                attempts: waiting + SPARE,
                prefetch: 0,
                window: Duration::ZERO,
                lanes: Vec::new(),
                weights: BTreeMap::new(),
            },
        };
        let mut route = Self {
            scheduler: Scheduler::new(rules),
            now: BootInstant::from_boot(Duration::from_secs(1)),
            number: 0,
            // In strict order the dearest case: every queue above is looked at first.
            only: (!weighted).then(|| lanes - 1),
            groups,
            parked: (0..lanes).map(|_| None).collect(),
            known_empty: vec![false; lanes],
        };
        while route.arrive() > 0 {}
        route.leave(SPARE);
        route
    }

    /// Answers everything that is asked for; how many messages that were.
    fn arrive(&mut self) -> usize {
        self.now = self.now + Duration::from_millis(200);
        let mut brought = 0;
        for mut poll in self.scheduler.plan(self.now) {
            let lane = poll.lane;
            if self.only.is_some_and(|only| only != lane) {
                if self.known_empty[lane] {
                    self.parked[lane] = Some(poll);
                } else {
                    self.known_empty[lane] = true;
                    self.scheduler.answered(poll, Vec::new(), true, self.now);
                }
                continue;
            }
            let jobs: Vec<BenchJob> = (0..poll.max).map(|_| self.job(&mut poll)).collect();
            brought += jobs.len();
            self.scheduler.answered(poll, jobs, false, self.now);
            black_box(self.scheduler.reserve_workers(self.now));
        }
        brought
    }

    fn job(&mut self, poll: &mut Poll) -> BenchJob {
        self.number += 1;
        let group = (self.groups > 0).then(|| format!("group-{}", self.number % self.groups));
        BenchJob {
            number: self.number,
            group: group.map(Into::into),
            _permit: Some(poll.seat()),
        }
    }

    /// Runs so many attempts of one message, each to its end.
    fn leave(&mut self, count: usize) {
        for _ in 0..count {
            let start = self.scheduler.next_jobs(self.now).expect("something waits");
            let (lane, jobs) = (start.lane, start.jobs);
            let fates = jobs
                .iter()
                .map(|job| (job.group.as_deref(), MessageFate::Done));
            let ended = FinishedAttempt {
                lane,
                began: self.now,
                showed: Signal::Open,
            };
            let after = self.scheduler.ended(ended, fates, self.now);
            assert!(after.overtaking.is_empty(), "nothing failed");
            black_box(jobs.first().map(|job| job.number));
        }
    }

    fn measure(&mut self) -> SchedulerCost {
        let (mut arriving, mut leaving, mut passed) = (Duration::ZERO, Duration::ZERO, 0);
        while passed < MESSAGES {
            let start = clock::now();
            let count = self.arrive();
            let arrived = clock::now();
            self.leave(count);
            leaving += clock::now().since(arrived);
            arriving += arrived.since(start);
            passed += count;
        }
        SchedulerCost {
            arriving: each(arriving, passed),
            leaving: each(leaving, passed),
        }
    }
}

fn each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / count as f64
}

fn plain_job(number: u64) -> BenchJob {
    BenchJob {
        number,
        group: None,
        _permit: None,
    }
}

/// One in, one out, of a deque that holds so many.
fn deque(waiting: usize) -> f64 {
    let mut deque: VecDeque<BenchJob> = (0..waiting as u64).map(plain_job).collect();
    let start = clock::now();
    for number in 0..MESSAGES as u64 {
        deque.push_back(plain_job(number));
        black_box(deque.pop_front());
    }
    each(clock::now().since(start), MESSAGES)
}

/// A job in the order of its urgency and then of its age.
struct RankedJob(Reverse<(u8, u64)>, BenchJob);

impl PartialEq for RankedJob {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for RankedJob {}

impl PartialOrd for RankedJob {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RankedJob {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

/// The same of a heap with twenty urgencies.
fn heap(waiting: usize) -> f64 {
    let ranked = |number: u64| RankedJob(Reverse((fastrand::u8(0..20), number)), plain_job(number));
    let mut heap: BinaryHeap<RankedJob> = (0..waiting as u64).map(ranked).collect();
    let start = clock::now();
    for number in 0..MESSAGES as u64 {
        heap.push(ranked(waiting as u64 + number));
        black_box(heap.pop().map(|RankedJob(_, job)| job));
    }
    each(clock::now().since(start), MESSAGES)
}

/// What it costs to find out that all that waits is of a group with a job under way: microseconds.
fn blocked_group(waiting: usize) -> f64 {
    const ROUNDS: usize = 50;
    let mut route = Route::new(waiting, 1, false, 1);
    route.scheduler.reserve_workers(route.now);
    let running = route.scheduler.next_jobs(route.now);
    assert!(running.is_some(), "the group's first job starts");
    let start = clock::now();
    for _ in 0..ROUNDS {
        assert_eq!(
            route.scheduler.reserve_workers(route.now),
            0,
            "the group is busy"
        );
    }
    each(clock::now().since(start), ROUNDS) / 1e3
}

fn main() {
    println!("ns for each message");
    println!(
        "{:>9} {:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "waiting", "queues", "arriving", "leaving", "both", "deque", "heap", "of heap"
    );
    for waiting in [1_000, 10_000, 100_000, 1_000_000] {
        let (deque, heap) = (deque(waiting), heap(waiting));
        for (lanes, weighted, groups, name) in [
            (1, false, 0, "1"),
            (20, false, 0, "20 strict"),
            (20, true, 0, "20 weighted"),
            (1, false, 1_000, "1 with 1,000 groups"),
        ] {
            let SchedulerCost { arriving, leaving } =
                Route::new(waiting, lanes, weighted, groups).measure();
            let both = arriving + leaving;
            let ratio = both / heap;
            println!(
                "{waiting:>9} {name:<20} {arriving:>9.0} {leaving:>9.0} {both:>9.0} {deque:>9.0} {heap:>9.0} {ratio:>8.2}x"
            );
        }
    }
    for waiting in [100, 1_000, 10_000] {
        let cost = blocked_group(waiting);
        println!("{waiting:>9} of one busy group: {cost:.1} µs to find nothing to start");
    }
}
