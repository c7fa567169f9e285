//! Blocked groups by themselves, and the rule that blocks them.

use super::*;
use crate::clock::Timestamp;
use crate::scheduler::lane::LaneRules;
use crate::scheduler::permits::Permit;
use crate::scheduler::sample;
use crate::scheduler::start::LONGEST_PAUSE;
use crate::scheduler::{FinishedAttempt, MessageFate, Poll, Scheduler, Start};
use crate::throttle::control::Signal;
use proptest::prelude::*;
use std::time::Duration;

/// A message: its number in the order of sending, its group, and whether its next receive may
/// dead-letter it.
#[derive(Debug)]
struct BlockedJob {
    id: String,
    number: u64,
    last_chance: bool,
    expires: Option<BootInstant>,
    _seat: Option<Permit>,
}

impl PartialEq for BlockedJob {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl WaitingJob for BlockedJob {
    fn group(&self) -> Option<&str> {
        Some("a")
    }

    fn sent_at(&self) -> Timestamp {
        Timestamp(self.number)
    }

    fn expires(&self) -> Option<BootInstant> {
        self.expires
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn may_be_given_back(&self) -> bool {
        !self.last_chance
    }
}

fn job(number: u64) -> BlockedJob {
    BlockedJob {
        id: number.to_string(),
        number,
        last_chance: false,
        expires: None,
        _seat: None,
    }
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
}

fn numbers(jobs: &[BlockedJob]) -> Vec<u64> {
    jobs.iter().map(|job| job.number).collect()
}

#[test]
fn retried_message_goes_first_at_its_due_time() {
    let mut groups = BlockedGroups::default();
    groups.append("a", vec![job(3), job(4)]);
    groups.retry_at("a", vec![job(1), job(2)], at(100));
    assert_eq!((groups.len(), groups.due()), (4, Some(at(100))));
    assert!(groups.take_due(at(99)).is_empty() && groups.contains("a"));
    let due = groups.take_due(at(100));
    assert_eq!(numbers(&due[0].1), [1, 2, 3, 4]);
    assert!(groups.is_empty());
    assert_eq!(groups.len(), 0);
}

#[test]
fn group_resumes_when_everything_it_waits_for_has_left_the_queue() {
    let mut groups = BlockedGroups::default();
    groups.wait_for("a", "x");
    groups.wait_for("a", "y");
    groups.append("a", vec![job(3)]);
    assert_eq!(groups.settled("other", true), ReleaseResult::Nothing);
    assert_eq!(groups.settled("x", true), ReleaseResult::Nothing);
    let on = ReleaseResult::GoesOn(("a".to_owned(), vec![job(3)]));
    assert_eq!(groups.settled("y", true), on);
    assert_eq!(groups.settled("y", true), ReleaseResult::Nothing);
    assert!(groups.is_empty());
}

#[test]
fn group_is_returned_when_what_it_waits_for_is_redelivered() {
    let mut groups = BlockedGroups::default();
    groups.wait_for("a", "x");
    groups.wait_for("a", "y");
    groups.append("a", vec![job(3)]);
    let back = ReleaseResult::GivesBack(("a".to_owned(), vec![job(3)]));
    assert_eq!(groups.settled("x", false), back);
    assert_eq!(groups.settled("y", true), ReleaseResult::Nothing);
    assert!(groups.is_empty());
    assert_eq!(groups.len(), 0);
}

#[test]
fn waiting_messages_resume_when_the_failed_one_expires() {
    let mut groups = BlockedGroups::default();
    let old = BlockedJob {
        expires: Some(at(50)),
        ..job(1)
    };
    groups.retry_at("a", vec![old, job(2)], at(100));
    assert_eq!(groups.expires(), Some(at(50)));
    assert!(groups.expired(at(49)).0.is_empty());
    let (out, on) = groups.expired(at(50));
    assert_eq!((numbers(&out), on.len()), (vec![1], 1));
    assert_eq!(numbers(&on[0].1), [2]);
    assert!(groups.is_empty());
    assert_eq!(groups.len(), 0);
}

/// A queue that has brought these messages of one group, and an attempt at the first of them.
fn scheduler(brought: Vec<BlockedJob>) -> (Scheduler<BlockedJob>, Start<BlockedJob>) {
    let lane = LaneRules {
        ordered_groups: true,
        ..sample::lane()
    };
    let mut scheduler = Scheduler::new(sample::rules(vec![lane], 1));
    let mut poll: Poll = scheduler.plan(at(0)).remove(0);
    let seated = brought.into_iter().map(|job| BlockedJob {
        _seat: Some(poll.seat()),
        ..job
    });
    let jobs = seated.collect();
    scheduler.answered(poll, jobs, true, at(1));
    scheduler.reserve_workers(at(1));
    let first = scheduler.next_jobs(at(1)).expect("the first");
    (scheduler, first)
}

const ENDED: FinishedAttempt = FinishedAttempt {
    lane: 0,
    began: BootInstant::from_boot(Duration::from_millis(1_000_001)),
    showed: Signal::Open,
};

/// The attempt at the first ends so; what is released at once.
fn ends(
    scheduler: &mut Scheduler<BlockedJob>,
    first: Start<BlockedJob>,
    fate: MessageFate,
) -> Vec<u64> {
    let stays = scheduler.stays(0, [(Some("a"), fate)]);
    if stays.is_empty() {
        let after = scheduler.ended(ENDED, [(Some("a"), fate)], at(2));
        return numbers(&after.overtaking);
    }
    let after = scheduler.ended(ENDED, [(Some("a"), MessageFate::Kept)], at(2));
    let mut jobs = first.jobs;
    if fate == MessageFate::DeadLettered {
        scheduler.leaves(0, &jobs.remove(0));
    }
    scheduler.keep(0, "a", jobs, fate, at(2));
    numbers(&after.overtaking)
}

#[test]
fn finding_02_messages_behind_a_failure_are_kept_and_the_failed_one_retries_first() {
    let (mut scheduler, first) = scheduler(vec![job(1), job(2), job(3)]);
    let pause = Duration::from_millis(50);
    assert!(ends(&mut scheduler, first, MessageFate::Again(pause)).is_empty());
    assert!(scheduler.next_jobs(at(51)).is_none(), "it pauses");
    assert_eq!(scheduler.next_attention(at(51)), Some(at(52)));
    scheduler.reserve_workers(at(52));
    let again = scheduler.next_jobs(at(52)).expect("its next attempt");
    assert_eq!(numbers(&again.jobs), [1]);
    assert!(!scheduler.is_at_rest());
}

#[test]
fn finding_02_messages_behind_a_dead_letter_resume_once_it_is_moved() {
    let (mut scheduler, first) = scheduler(vec![job(1), job(2), job(3)]);
    assert!(ends(&mut scheduler, first, MessageFate::DeadLettered).is_empty());
    assert!(scheduler.next_jobs(at(9)).is_none());
    scheduler.settled(0, "1", None, at(10));
    scheduler.reserve_workers(at(10));
    let next = scheduler.next_jobs(at(10)).expect("the next of the group");
    assert_eq!(numbers(&next.jobs), [2]);
    assert!(scheduler.overtaking().is_empty());
}

#[test]
fn finding_02_messages_behind_a_redelivered_dead_letter_are_returned() {
    let (mut scheduler, first) = scheduler(vec![job(1), job(2), job(3)]);
    assert!(ends(&mut scheduler, first, MessageFate::DeadLettered).is_empty());
    scheduler.settled(0, "1", Some(at(10)), at(10));
    assert!(!scheduler.is_at_rest());
    let back: Vec<u64> = scheduler
        .overtaking()
        .iter()
        .map(|(_, job)| job.number)
        .collect();
    assert_eq!(back, [2, 3]);
}

#[test]
fn message_alone_in_its_group_is_redelivered() {
    let (mut scheduler, first) = scheduler(vec![job(1)]);
    let fates = [(Some("a"), MessageFate::Again(Duration::ZERO))];
    assert!(scheduler.stays(0, fates).is_empty());
    assert!(ends(&mut scheduler, first, MessageFate::Again(Duration::ZERO)).is_empty());
}

#[test]
fn finding_02_stop_keeps_messages_ahead_of_a_last_attempt_and_returns_the_rest() {
    let last = BlockedJob {
        last_chance: true,
        ..job(3)
    };
    let (mut scheduler, first) = scheduler(vec![job(1), job(2), last, job(4)]);
    let back = scheduler.stop(|_, job| job.may_be_given_back(), at(2));
    let back: Vec<u64> = back.iter().map(|(_, job)| job.number).collect();
    assert_eq!(back, [4]);
    let fate = MessageFate::Again(Duration::from_millis(1));
    assert!(
        ends(&mut scheduler, first, fate).is_empty(),
        "kept after the stop, too"
    );
    // With the halt everything goes.
    let back = scheduler.stop(|_, _| true, at(3));
    assert_eq!(back.len(), 3);
    drop(back);
}

proptest! {
    /// The pure rule: a group is released only where that cannot dead-letter a message that was
    /// not attempted, and a pause that is long or a stop keeps nothing that may go.
    #[test]
    fn finding_02_nothing_is_returned_at_its_last_receive(
        last in prop::collection::vec(any::<bool>(), 0..6),
        pause_s in prop_oneof![0_u64..300, 300_u64..40_000],
        dead_lettered: bool,
        stopped: bool,
    ) {
        let jobs = std::iter::once(false).chain(last.iter().copied()).zip(1..);
        let jobs = jobs.map(|(last_chance, number)| BlockedJob { last_chance, ..job(number) });
        let (mut scheduler, first) = scheduler(jobs.collect());
        if stopped {
            // What may go has gone.
            drop(scheduler.stop(|_, job| job.may_be_given_back(), at(2)));
        }
        let waiting = if stopped { last.iter().rposition(|last| *last).map_or(0, |at| at + 1) } else { last.len() };
        let needed = last.contains(&true);
        let pause = Duration::from_secs(pause_s);
        let fate = if dead_lettered { MessageFate::DeadLettered } else { MessageFate::Again(pause) };
        let back = ends(&mut scheduler, first, fate);
        if needed {
            prop_assert!(back.is_empty());
        }
        if !needed && !dead_lettered && pause > LONGEST_PAUSE {
            prop_assert_eq!(back.len(), waiting);
        }
        if !needed && !stopped && (dead_lettered || pause <= LONGEST_PAUSE) {
            prop_assert!(back.is_empty());
        }
    }
}
