//! The order of what waits against a list that is sorted anew each time.

use super::*;
use crate::clock::Timestamp;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
struct LineJob {
    number: usize,
    sent_ms: u64,
    group: Option<&'static str>,
    expires_ms: Option<u64>,
}

impl WaitingJob for LineJob {
    fn group(&self) -> Option<&str> {
        self.group
    }

    fn sent_at(&self) -> Timestamp {
        Timestamp(self.sent_ms)
    }

    fn expires(&self) -> Option<BootInstant> {
        self.expires_ms.map(at)
    }
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(ms))
}

fn job(number: usize, sent_ms: u64, group: Option<&'static str>) -> LineJob {
    LineJob {
        number,
        sent_ms,
        group,
        expires_ms: None,
    }
}

fn numbers(jobs: &[LineJob]) -> Vec<usize> {
    jobs.iter().map(|job| job.number).collect()
}

fn lifo() -> ReadyLine<LineJob> {
    ReadyLine::new(Sequence::Lifo, true, None)
}

#[test]
fn lifo_takes_newest_sent_first_then_latest_arrival() {
    let mut line = lifo();
    line.arrive(vec![job(1, 10, None), job(2, 30, None)], at(0));
    line.arrive(vec![job(3, 20, None), job(4, 30, None)], at(1));
    line.arrive(vec![job(5, 30, None)], at(2));
    assert_eq!(numbers(&line.take(2)), [5, 4]);
    assert_eq!(numbers(&line.take(9)), [2, 3, 1]);
}

#[test]
fn order_within_one_answer_is_kept() {
    let mut line = lifo();
    line.arrive(
        vec![job(1, 10, None), job(2, 10, None), job(3, 10, None)],
        at(0),
    );
    assert_eq!(numbers(&line.take(9)), [1, 2, 3]);
}

#[test]
fn resumed_message_keeps_its_age() {
    let mut line = lifo();
    line.arrive(vec![job(1, 10, None), job(2, 20, None)], at(0));
    let taken = line.take(9);
    line.arrive(vec![job(3, 15, None), job(4, 10, None)], at(1));
    line.resume(taken);
    assert_eq!(
        line.longest_wait(),
        Some(None),
        "it has waited for company before"
    );
    assert_eq!(numbers(&line.take(9)), [2, 3, 1, 4]);
}

#[test]
fn age_order_keeps_a_group_together() {
    let mut line = lifo();
    line.arrive(
        vec![
            job(1, 10, Some("a")),
            job(2, 30, None),
            job(3, 40, Some("a")),
        ],
        at(0),
    );
    let first = line.take_where(1, |job| job.number == 1);
    line.arrive(vec![job(4, 50, Some("a")), job(5, 35, None)], at(1));
    // What was behind the first keeps the place that it took, and lets nothing of its group pass.
    assert_eq!(numbers(&line.take(1)), [5]);
    line.arrive(vec![job(6, 60, Some("a"))], at(2));
    line.resume(first);
    assert_eq!(numbers(&line.take(9)), [2, 1, 3, 4, 6]);
    line.arrive(vec![job(7, 1, Some("a")), job(8, 2, None)], at(3));
    assert_eq!(
        numbers(&line.take(9)),
        [8, 7],
        "nothing of the group is left"
    );
}

/// How long ago a job was sent, how long from now it is too old, and its group.
type DrawnJob = (u64, Option<u64>, Option<&'static str>);

/// What a line may be asked for.
#[derive(Debug, Clone)]
enum LineStep {
    Arrive(Vec<DrawnJob>),
    Take(usize),
    /// Puts what was taken last back.
    Resume,
    /// Takes out all of a remainder by 3.
    Extract(usize),
    Pass(u64),
    Expire,
}

fn steps(groups: bool) -> impl Strategy<Value = Vec<LineStep>> {
    let group = if groups {
        prop::sample::select(vec![None, Some("a"), Some("b")]).boxed()
    } else {
        Just(None).boxed()
    };
    let one = (0..50_u64, prop::option::of(0..60_u64), group);
    let step = prop_oneof![
        4 => prop::collection::vec(one, 1..5).prop_map(LineStep::Arrive),
        4 => (1..4_usize).prop_map(LineStep::Take),
        1 => Just(LineStep::Resume),
        1 => (0..3_usize).prop_map(LineStep::Extract),
        2 => (0..30_u64).prop_map(LineStep::Pass),
        2 => Just(LineStep::Expire),
    ];
    prop::collection::vec(step, 1..60)
}

/// Jobs as a step draws them, numbered on from `count`.
fn arriving(jobs: Vec<DrawnJob>, now: u64, count: &mut usize) -> Vec<LineJob> {
    let jobs = jobs.into_iter().map(|(ago, left, group)| {
        *count += 1;
        let expires_ms = left.map(|left| now + left);
        LineJob {
            expires_ms,
            ..job(*count, now - ago, group)
        }
    });
    jobs.collect()
}

/// A list in order, and the keys by which it is kept so.
struct Model {
    sequence: Sequence,
    /// With what sorts each: its age, and when it came.
    waiting: Vec<((Reverse<u64>, i64), LineJob)>,
    first: i64,
    last: i64,
}

impl Model {
    fn add(&mut self, jobs: Vec<LineJob>, in_front: bool) {
        let count = i64::try_from(jobs.len()).unwrap();
        let number = if in_front {
            self.first - count
        } else {
            self.last
        };
        self.first = self.first.min(number);
        self.last = self.last.max(number + count);
        for (number, job) in (number..).zip(jobs) {
            let age = match self.sequence {
                Sequence::Fifo => 0,
                Sequence::Lifo => job.sent_ms,
            };
            self.waiting.push(((Reverse(age), number), job));
        }
        self.waiting.sort_by_key(|(key, _)| *key);
    }

    fn take(&mut self, max: usize, which: impl Fn(&LineJob) -> bool) -> Vec<LineJob> {
        let mut out = Vec::new();
        self.waiting.retain(|(_, job)| {
            let taken = out.len() < max && which(job);
            if taken {
                out.push(job.clone());
            }
            !taken
        });
        out
    }
}

fn check(sequence: Sequence, steps: Vec<LineStep>) -> Result<(), TestCaseError> {
    let mut line = ReadyLine::new(sequence, false, None);
    let mut model = Model {
        sequence,
        waiting: Vec::new(),
        first: 0,
        last: 0,
    };
    let (mut now, mut count, mut last) = (100, 0, Vec::new());
    for step in steps {
        match step {
            LineStep::Arrive(jobs) => {
                let jobs = arriving(jobs, now, &mut count);
                model.add(jobs.clone(), sequence == Sequence::Lifo);
                line.arrive(jobs, at(now));
            }
            LineStep::Take(max) => {
                last = line.take(max);
                prop_assert_eq!(&last, &model.take(max, |_| true));
            }
            LineStep::Resume => {
                model.add(last.clone(), true);
                line.resume(std::mem::take(&mut last));
            }
            LineStep::Extract(rest) => {
                let which = |job: &LineJob| job.number % 3 == rest;
                prop_assert_eq!(line.extract(which), model.take(usize::MAX, which));
            }
            LineStep::Pass(ms) => now += ms,
            LineStep::Expire => {
                let old = |job: &LineJob| job.expires_ms.is_some_and(|ms| ms <= now);
                let mut wanted = model.take(usize::MAX, old);
                let mut expired = line.expired(at(now));
                prop_assert!(expired.is_sorted_by_key(|job| job.expires_ms));
                wanted.sort_by_key(|job| job.number);
                expired.sort_by_key(|job| job.number);
                prop_assert_eq!(expired, wanted);
            }
        }
        let waiting: Vec<&LineJob> = line.iter().map(|entry| &entry.job).collect();
        let wanted: Vec<&LineJob> = model.waiting.iter().map(|(_, job)| job).collect();
        prop_assert_eq!(&waiting, &wanted);
        prop_assert_eq!(line.len(), wanted.len());
        let first = wanted.iter().filter_map(|job| job.expires_ms).min();
        prop_assert_eq!(line.expires(), first.map(at));
    }
    Ok(())
}

/// Whatever comes and goes, what waits of a group is in the order in which it came.
fn check_groups(steps: Vec<LineStep>) -> Result<(), TestCaseError> {
    let mut line = lifo();
    let (mut now, mut count, mut last) = (100, 0, Vec::new());
    for step in steps {
        match step {
            LineStep::Arrive(jobs) => line.arrive(arriving(jobs, now, &mut count), at(now)),
            LineStep::Take(max) => last = line.take(max),
            LineStep::Resume => line.resume(std::mem::take(&mut last)),
            LineStep::Extract(rest) => drop(line.extract(|job| job.number % 3 == rest)),
            LineStep::Pass(ms) => now += ms,
            LineStep::Expire => drop(line.expired(at(now))),
        }
        for group in ["a", "b"] {
            let waiting = line.iter().map(|entry| &entry.job);
            let of_group = waiting.filter(|job| job.group == Some(group));
            let numbers: Vec<usize> = of_group.map(|job| job.number).collect();
            prop_assert!(numbers.is_sorted(), "{:?}", numbers);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn lifo_matches_a_sorted_list(steps in steps(false)) {
        check(Sequence::Lifo, steps)?;
    }

    #[test]
    fn fifo_takes_first_arrival_first(steps in steps(false)) {
        check(Sequence::Fifo, steps)?;
    }

    #[test]
    fn groups_stay_in_order_whatever_their_ages(steps in steps(true)) {
        check_groups(steps)?;
    }
}
