//! The scheduler on messages that become too old, and on a queue whose newest go first.

use crate::clock::Timestamp;
use crate::scheduler::ready::Sequence;
use crate::scheduler::*;
use crate::throttle::control::Signal;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug)]
struct AgeJob {
    number: u64,
    sent_ms: u64,
    expires: Option<BootInstant>,
    group: Option<&'static str>,
    _seat: Permit,
}

impl WaitingJob for AgeJob {
    fn group(&self) -> Option<&str> {
        self.group
    }

    fn sent_at(&self) -> Timestamp {
        Timestamp(self.sent_ms)
    }

    fn expires(&self) -> Option<BootInstant> {
        self.expires
    }
}

/// How long ago it was sent, in how many milliseconds it is too old, and its group.
type SentJob = (u64, Option<u64>, Option<&'static str>);

/// One that never is, and has no group.
fn sent(ago: u64) -> SentJob {
    (ago, None, None)
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
}

struct AgeWorld {
    scheduler: Scheduler<AgeJob>,
    now: u64,
    numbered: u64,
    running: Vec<Start<AgeJob>>,
    /// Since when each attempt runs.
    began: Vec<u64>,
}

impl AgeWorld {
    fn new(sequence: Sequence, attempts: usize, lanes: usize) -> Self {
        let lane = LaneRules {
            proof_wait: Duration::ZERO,
            ordered_groups: true,
            sequence,
            ..sample::lane()
        };
        let scheduler = Scheduler::new(sample::rules(vec![lane; lanes], attempts));
        Self {
            scheduler,
            now: 1_000,
            numbered: 0,
            running: Vec::new(),
            began: Vec::new(),
        }
    }

    /// Answers all polls: that of this queue with these, if there is one, the others with nothing.
    /// The numbers of what was brought.
    fn bring(&mut self, lane: usize, jobs: &[SentJob]) -> Vec<u64> {
        let now = at(self.now);
        let mut jobs = Some(jobs);
        let mut numbers = Vec::new();
        for mut poll in self.scheduler.plan(now) {
            let mine = (poll.lane == lane).then(|| jobs.take()).flatten();
            let mut brought = Vec::new();
            for (ago, left, group) in mine.unwrap_or_default() {
                self.numbered += 1;
                numbers.push(self.numbered);
                brought.push(AgeJob {
                    number: self.numbered,
                    sent_ms: self.now - ago,
                    expires: left.map(|left| at(self.now + left)),
                    group: *group,
                    _seat: poll.seat(),
                });
            }
            self.scheduler.answered(poll, brought, true, now);
        }
        numbers
    }

    /// What is too old by now.
    fn expired(&mut self) -> Vec<u64> {
        let expired = self.scheduler.expired(at(self.now));
        for (_, job) in &expired {
            assert!(
                job.expires.is_some_and(|expires| expires <= at(self.now)),
                "too early: {job:?}"
            );
        }
        expired.iter().map(|(_, job)| job.number).collect()
    }

    /// Lets as many workers begin as there is work for; the numbers of what they took.
    fn work(&mut self) -> Vec<u64> {
        let hired = self.scheduler.reserve_workers(at(self.now));
        (0..hired).flat_map(|_| self.next()).collect()
    }

    fn next(&mut self) -> Vec<u64> {
        let Some(start) = self.scheduler.next_jobs(at(self.now)) else {
            return Vec::new();
        };
        for job in &start.jobs {
            assert!(
                job.expires.is_none_or(|expires| expires > at(self.now)),
                "too late: {job:?}"
            );
        }
        let numbers = start.jobs.iter().map(|job| job.number).collect();
        self.running.push(start);
        self.began.push(self.now);
        numbers
    }

    /// Ends an attempt and its worker; the numbers of what is over by that.
    fn end(&mut self, index: usize, fate: MessageFate) -> Vec<u64> {
        let Start { lane, jobs, .. } = self.running.remove(index);
        let ended = FinishedAttempt {
            lane,
            began: at(self.began.remove(index)),
            showed: match fate {
                MessageFate::Kept => Signal::Busy,
                _ => Signal::Open,
            },
        };
        let fates = jobs.iter().map(|job| (job.group, fate));
        let after = self.scheduler.ended(ended, fates, at(self.now));
        let mut over: Vec<u64> = after.overtaking.iter().map(|job| job.number).collect();
        match fate {
            MessageFate::Kept => {
                let until = at(self.now + 20);
                self.scheduler.hold(lane, jobs, at(self.now), until);
            }
            _ => over.extend(jobs.iter().map(|job| job.number)),
        }
        self.scheduler.release_worker();
        over
    }
}

#[test]
fn newest_waiting_message_starts_first_and_held_ones_keep_their_age() {
    let mut world = AgeWorld::new(Sequence::Lifo, 1, 1);
    world.bring(0, &[sent(50), sent(10), sent(30)]);
    assert_eq!(world.work(), [2]);
    world.end(0, MessageFate::Kept);
    assert_eq!(world.work(), [3], "the newest is held");
    world.end(0, MessageFate::Kept);
    world.now += 20;
    for wanted in [2, 3, 1] {
        assert_eq!(world.work(), [wanted]);
        world.end(0, MessageFate::Done);
    }
}

#[test]
fn waiting_message_expires_at_its_maximum_age() {
    let mut world = AgeWorld::new(Sequence::Fifo, 1, 1);
    world.bring(0, &[sent(0), (0, Some(300), None), (0, Some(200), None)]);
    assert_eq!(world.work(), [1]);
    assert_eq!(
        world.scheduler.next_attention(at(world.now)),
        Some(at(1_200))
    );
    world.now = 1_199;
    assert_eq!(world.expired(), [0; 0]);
    world.now = 1_200;
    assert_eq!(world.expired(), [3]);
    world.end(0, MessageFate::Done);
    assert_eq!(world.work(), [2], "it has 100 ms left");
    world.now = 2_000;
    assert_eq!(world.expired(), [0; 0], "it has begun");
}

#[test]
fn expired_held_message_releases_its_group_and_lower_queues() {
    let mut world = AgeWorld::new(Sequence::Fifo, 1, 2);
    world.bring(0, &[(0, Some(10), Some("a")), (0, None, Some("a"))]);
    assert_eq!(world.work(), [1]);
    world.end(0, MessageFate::Kept);
    world.now += 10;
    assert_eq!(world.work(), [0; 0], "the first of the group is held");
    assert_eq!(
        world.scheduler.next_attention(at(world.now)),
        Some(at(1_010))
    );
    assert_eq!(world.expired(), [1]);
    assert_eq!(world.work(), [2]);
    world.end(0, MessageFate::Kept);
    assert!(world.scheduler.next_attention(at(world.now)) > Some(at(world.now)));
}

#[test]
fn messages_still_expire_after_a_stop() {
    let mut world = AgeWorld::new(Sequence::Lifo, 1, 1);
    world.bring(0, &[(1, Some(10), None), (2, Some(10), None), sent(3)]);
    let now = at(world.now);
    let released = world.scheduler.stop(|_, job| job.number == 2, now);
    assert_eq!(released.len(), 1);
    world.now += 10;
    assert_eq!(world.expired(), [1]);
    assert_eq!(world.work(), [3]);
    world.end(0, MessageFate::Done);
    assert!(world.scheduler.is_at_rest());
}

#[derive(Debug, Clone)]
enum AgeStep {
    Bring(Vec<SentJob>),
    Work,
    End(prop::sample::Index, MessageFate),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<AgeStep>> {
    let group = prop::sample::select(vec![None, None, Some("a"), Some("b")]);
    let one = (0..50_u64, prop::option::of(1..60_u64), group);
    let fate = prop::sample::select(vec![
        MessageFate::Done,
        MessageFate::Failed,
        MessageFate::Kept,
        MessageFate::Kept,
    ]);
    let step = prop_oneof![
        3 => prop::collection::vec(one, 1..4).prop_map(AgeStep::Bring),
        3 => Just(AgeStep::Work),
        3 => (any::<prop::sample::Index>(), fate).prop_map(|(index, fate)| AgeStep::End(index, fate)),
        2 => (0..30_u64).prop_map(AgeStep::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

fn check(sequence: Sequence, steps: Vec<AgeStep>) -> Result<(), TestCaseError> {
    let mut world = AgeWorld::new(sequence, 2, 1);
    // What is here and neither runs nor is over, and when it becomes too old.
    let mut here: BTreeMap<u64, Option<BootInstant>> = BTreeMap::new();
    for step in steps {
        match step {
            AgeStep::Bring(jobs) => {
                let expiries = jobs
                    .iter()
                    .map(|(_, left, _)| left.map(|left| at(world.now + left)));
                let expiries: Vec<Option<BootInstant>> = expiries.collect();
                here.extend(world.bring(0, &jobs).into_iter().zip(expiries));
            }
            AgeStep::Work => {
                for number in world.expired() {
                    prop_assert!(here.remove(&number).is_some(), "{} was not here", number);
                }
                let late = here
                    .values()
                    .flatten()
                    .find(|expires| **expires <= at(world.now));
                prop_assert_eq!(late, None);
                for number in world.work() {
                    prop_assert!(here.remove(&number).is_some(), "{} was not here", number);
                }
            }
            AgeStep::End(index, fate) if !world.running.is_empty() => {
                let index = index.index(world.running.len());
                let kept = world.running[index].jobs.iter();
                let kept = kept.filter(|_| fate == MessageFate::Kept);
                here.extend(kept.map(|job| (job.number, job.expires)));
                for number in world.end(index, fate) {
                    here.remove(&number);
                }
            }
            AgeStep::End(..) => {}
            AgeStep::Pass(ms) => world.now += ms,
        }
        let first = here.values().flatten().min();
        let attention = world.scheduler.next_attention(at(world.now));
        prop_assert!(first.is_none() || attention.is_some_and(|at| at <= *first.expect("some")));
        let left = world.scheduler.waiting() + world.scheduler.held();
        prop_assert_eq!(left, here.len(), "{:?}", here);
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_message_expires_early_or_late(steps in steps(), newest_first: bool) {
        let sequence = if newest_first { Sequence::Lifo } else { Sequence::Fifo };
        check(sequence, steps)?;
    }
}
