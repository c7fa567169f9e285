//! A queue that gives what it likes, in what order it likes, and a scheduler that keeps the order
//! of sending within groups all the same, as far as it can know it.

use super::*;
use crate::clock::Timestamp;
use crate::scheduler::lane::LaneRules;
use crate::scheduler::permits::Permit;
use crate::scheduler::sample;
use crate::scheduler::{After, FinishedAttempt, Poll, Rules, SchedulerLimits};
use crate::throttle::control::Signal;
use fastrand::Rng;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A message of the group `number % groups`, sent at `number / ties`.
#[derive(Debug)]
struct SendingJob {
    id: String,
    number: u64,
    group: String,
    sent: u64,
    precious: bool,
    _seat: Permit,
}

impl WaitingJob for SendingJob {
    fn group(&self) -> Option<&str> {
        Some(&self.group)
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn sent_at(&self) -> Timestamp {
        Timestamp(self.sent)
    }

    fn may_be_given_back(&self) -> bool {
        !self.precious
    }
}

/// What the queue is told of a message and when.
#[derive(Debug)]
struct News {
    number: u64,
    /// When it can be received again, if ever, after the queue was told.
    after: Option<u64>,
}

struct SendingWorld {
    rng: Rng,
    scheduler: Scheduler<SendingJob>,
    now: u64,
    /// What the queue holds, with when it can be received.
    queue: BTreeMap<u64, u64>,
    polls: Vec<Poll>,
    running: Vec<Vec<SendingJob>>,
    /// Workers that were hired and have nothing to do.
    idle: usize,
    news: Vec<News>,
    /// Received at least once and not ended.
    known: BTreeSet<u64>,
    done: BTreeSet<u64>,
    groups: u64,
    batch: usize,
    /// Maximum attempts that were running, and messages at hand that may be released.
    most: (usize, usize),
    at_hand: usize,
}

impl SendingWorld {
    fn new(seed: u64, messages: u64, groups: u64, batch: usize, attempts: usize) -> Self {
        let lane = LaneRules {
            ordered_groups: true,
            ..sample::lane()
        };
        let mut scheduler = Scheduler::new(Rules {
            batch,
            ..sample::rules(vec![lane], attempts)
        });
        scheduler.keep_sending_order(0);
        Self {
            rng: Rng::with_seed(seed),
            scheduler,
            now: 1_000,
            queue: (0..messages).map(|number| (number, 0)).collect(),
            polls: Vec::new(),
            running: Vec::new(),
            idle: 0,
            news: Vec::new(),
            known: BTreeSet::new(),
            done: BTreeSet::new(),
            groups,
            batch,
            most: (0, 0),
            at_hand: 0,
        }
    }

    fn at(&self) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(self.now))
    }

    fn answer(&mut self) {
        let mut poll = self.polls.remove(0);
        let mut visible: Vec<u64> = self
            .queue
            .iter()
            .filter(|(_, due)| **due <= self.now)
            .map(|(number, _)| *number)
            .collect();
        // Not quite in order.
        for at in 1..visible.len() {
            if self.rng.u8(0..3) == 0 {
                visible.swap(at - 1, at);
            }
        }
        let drained = visible.len() < poll.max;
        visible.truncate(poll.max);
        let jobs: Vec<SendingJob> = visible
            .iter()
            .map(|&number| SendingJob {
                id: number.to_string(),
                number,
                group: (number % self.groups).to_string(),
                sent: number / self.groups / 2,
                precious: self.rng.u8(0..4) == 0,
                _seat: poll.seat(),
            })
            .collect();
        for number in visible {
            self.queue.remove(&number);
            self.known.insert(number);
        }
        self.at_hand += jobs.iter().filter(|job| !job.precious).count();
        self.scheduler.answered(poll, jobs, drained, self.at());
        for (job, after) in self.scheduler.surplus(0) {
            self.at_hand -= 1;
            self.give_back(&job, Some(after.as_secs()));
        }
        self.most.1 = self.most.1.max(self.at_hand);
    }

    fn give_back(&mut self, job: &SendingJob, after: Option<u64>) {
        let number = job.number;
        self.news.push(News { number, after });
    }

    fn start(&mut self) {
        self.idle += self.scheduler.reserve_workers(self.at());
        if self.idle == 0 {
            return;
        }
        self.idle -= 1;
        let Some(start) = self.scheduler.next_jobs(self.at()) else {
            return;
        };
        assert!((1..=self.batch).contains(&start.jobs.len()));
        let under_way: BTreeSet<&str> = self
            .running
            .iter()
            .flatten()
            .map(|job| &*job.group)
            .collect();
        for (at, job) in start.jobs.iter().enumerate() {
            assert!(!under_way.contains(&*job.group), "two at once");
            let before = &start.jobs[..at];
            let earlier = |number: &&u64| {
                **number % self.groups == job.number % self.groups
                    && **number / self.groups / 2 < job.sent
            };
            let overtaken = self
                .known
                .iter()
                .filter(earlier)
                .find(|number| before.iter().all(|job| job.number != **number));
            assert_eq!(overtaken, None, "overtaken by {}", job.number);
        }
        self.running.push(start.jobs);
        self.most.0 = self.most.0.max(self.running.len());
    }

    /// An attempt ends: from the first failure in a group on all of it goes back.
    fn end(&mut self, failing: bool) {
        let jobs = self
            .running
            .swap_remove(self.rng.usize(..self.running.len()));
        self.idle += 1;
        let mut stopped = BTreeSet::new();
        let mut fates = Vec::new();
        for job in &jobs {
            let fate = if stopped.contains(&job.group) || (failing && self.rng.u8(0..3) == 0) {
                MessageFate::Failed
            } else {
                MessageFate::Done
            };
            self.scheduler.fared(0, job, fate, self.at());
            fates.push(fate);
            if fate == MessageFate::Failed {
                stopped.insert(job.group.clone());
            }
        }
        let told = jobs
            .iter()
            .zip(&fates)
            .map(|(job, fate)| (Some(&*job.group), *fate));
        let ended = FinishedAttempt {
            lane: 0,
            began: self.at(),
            showed: Signal::Open,
        };
        let After { overtaking, .. } = self.scheduler.ended(ended, told, self.at());
        assert!(overtaking.is_empty(), "what waits is kept");
        for (job, fate) in jobs.iter().zip(fates) {
            self.at_hand -= usize::from(!job.precious);
            if fate == MessageFate::Done {
                self.known.remove(&job.number);
                self.done.insert(job.number);
            } else {
                // Some are dead-lettered.
                let after = (self.rng.u8(0..8) > 0).then(|| self.rng.u64(0..30));
                self.give_back(job, after);
            }
        }
    }

    fn settle_next(&mut self) {
        let News { number, after } = self.news.swap_remove(self.rng.usize(..self.news.len()));
        let due = after.map(|after| self.now + after);
        match due {
            Some(due) => drop(self.queue.insert(number, due)),
            None => {
                self.known.remove(&number);
                self.done.insert(number);
            }
        }
        let due = due.map(|due| BootInstant::from_boot(Duration::from_secs(due)));
        self.scheduler
            .settled(0, &number.to_string(), due, self.at());
    }

    fn step(&mut self, failing: bool) {
        let now = self.at();
        self.polls.extend(self.scheduler.plan(now));
        assert!(
            self.polls.len() <= 1,
            "their answers could overtake each other"
        );
        match self.rng.u8(0..8) {
            0 | 1 if !self.polls.is_empty() => self.answer(),
            2 | 3 => self.start(),
            4 | 5 if !self.running.is_empty() => self.end(failing),
            6 if !self.news.is_empty() => self.settle_next(),
            7 => self.now += 1,
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn lesson_19_groups_keep_send_order_on_an_unordered_queue(
        seed: u64, groups in 1_u64..150, batch in 1_usize..5, attempts in 1_usize..10,
    ) {
        let messages = 300;
        let mut world = SendingWorld::new(seed, messages, groups, batch, attempts);
        for _ in 0..1_000 {
            world.step(true);
        }
        let mut steps = 0;
        while (world.done.len() as u64) < messages {
            world.step(false);
            steps += 1;
            prop_assert!(steps < 60_000, "{} of {messages} ended", world.done.len());
        }
        let room = attempts * batch;
        // What runs, what is parked, what is aside; and what was handed on and is taken back.
        let most = 2 * room + 2 + 2 * room.max(LEAST_ASIDE);
        prop_assert!(world.most.1 <= most, "{} at hand of {most}", world.most.1);
    }
}

#[test]
fn blocked_or_slow_group_does_not_starve_the_others() {
    // All of the first group are sent before any of the others.
    let mut world = SendingWorld::new(1, 90, 1, 1, 4);
    world.queue.clear();
    world.groups = 1_000;
    world
        .queue
        .extend((0..80).map(|number| (number * 1_000, 0)));
    world
        .queue
        .extend((1..9).map(|number| (90_000 + number, 0)));
    let at_once = |world: &mut SendingWorld| {
        let polls = world.scheduler.plan(world.at());
        world.polls.extend(polls);
        if !world.polls.is_empty() {
            world.answer();
        }
        world.start();
        world.now += 1;
    };
    (0..100).for_each(|_| at_once(&mut world));
    assert_eq!(world.most.0, 4, "as many groups at once as may be");
}

mod cases;
