//! The scheduler on a queue that keeps its groups in order, and at a stop.

use crate::scheduler::*;
use crate::throttle::control::Signal;

#[derive(Debug)]
struct GroupedJob {
    group: &'static str,
    _seat: Permit,
}

impl WaitingJob for GroupedJob {
    fn group(&self) -> Option<&str> {
        Some(self.group)
    }
}

fn scheduler(lanes: usize) -> Scheduler<GroupedJob> {
    let lane = LaneRules {
        ordered_groups: true,
        ..sample::lane()
    };
    Scheduler::new(sample::rules(vec![lane; lanes], 10))
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
}

fn bring(
    scheduler: &mut Scheduler<GroupedJob>,
    mut poll: Poll,
    groups: &[&'static str],
    now: BootInstant,
) {
    let jobs = groups
        .iter()
        .map(|group| GroupedJob {
            group,
            _seat: poll.seat(),
        })
        .collect();
    scheduler.answered(poll, jobs, true, now);
}

/// One queue that has brought these, and an attempt at the first of them.
fn first_of(groups: &[&'static str]) -> (Scheduler<GroupedJob>, Start<GroupedJob>) {
    let mut scheduler = scheduler(1);
    let poll = scheduler.plan(at(0)).remove(0);
    bring(&mut scheduler, poll, groups, at(1));
    scheduler.reserve_workers(at(1));
    let first = scheduler.next_jobs(at(2)).expect("the first of the group");
    (scheduler, first)
}

/// The end of that attempt.
fn showing(showed: Signal) -> FinishedAttempt {
    FinishedAttempt {
        lane: 0,
        began: at(1),
        showed,
    }
}

#[test]
fn waiting_group_does_not_hide_the_others() {
    let (mut scheduler, running) = first_of(&["a", "a"]);
    assert!(running.replan, "the intake is to be woken");
    let polls = scheduler.plan(at(2));
    assert_eq!(polls.len(), 1, "the queue is asked for other groups");
}

#[test]
fn finding_12_last_message_of_a_group_awaits_settlement_when_nothing_else_can_end() {
    let end = |scheduler: &mut Scheduler<GroupedJob>| {
        let done = [(Some("a"), MessageFate::Done)];
        let after = scheduler.ended(showing(Signal::Open), done, at(3));
        after.awaits_settling
    };
    let (mut scheduler, first) = first_of(&["a", "a"]);
    assert!(!end(&mut scheduler), "another of the group is here");
    let second = scheduler.next_jobs(at(3)).expect("the second of the group");
    assert!(end(&mut scheduler), "the queue gives no more of it before");
    drop((first, second));
    let (mut scheduler, _first) = first_of(&["a", "b"]);
    let _other = scheduler.next_jobs(at(2)).expect("another group's");
    assert!(!end(&mut scheduler), "another group's is about to end");
}

/// How many receives are running at once in the end, where each brings as many as it asks for, of
/// one of so many groups after the other.
fn receives_side_by_side(groups: usize) -> usize {
    const GROUPS: [&str; 20] = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r",
        "s", "t",
    ];
    let mut scheduler = scheduler(1);
    let limits = sample::limits(50);
    scheduler.set_limits(&limits, at(0));
    let mut polls = Vec::new();
    for round in 0..40 {
        let now = at(round);
        polls.extend(scheduler.plan(now));
        let mut poll = polls.remove(0);
        let group = GROUPS[usize::try_from(round).expect("few") % groups];
        let seats = (0..poll.max).map(|_| poll.seat()).collect::<Vec<_>>();
        let jobs = seats.into_iter().map(|_seat| GroupedJob { group, _seat });
        scheduler.answered(poll, jobs.collect(), false, now);
        assert!(scheduler.reserve_workers(now) > 0);
        while let Some(start) = scheduler.next_jobs(now) {
            let done = start
                .jobs
                .iter()
                .map(|job| (Some(job.group), MessageFate::Done));
            let _ = scheduler.ended(showing(Signal::Open), done, now);
        }
        while scheduler.running > 0 {
            scheduler.release_worker();
        }
    }
    polls.extend(scheduler.plan(at(40)));
    polls.len()
}

#[test]
fn finding_12_concurrent_receives_do_not_exceed_the_groups() {
    assert_eq!(receives_side_by_side(1), 1);
    assert_eq!(receives_side_by_side(3), 3);
    assert_eq!(receives_side_by_side(20), 5, "as many as there is room for");
}

#[test]
fn failure_returns_messages_that_would_overtake_it() {
    let (mut scheduler, first) = first_of(&["a", "a"]);
    let after = scheduler.ended(
        showing(Signal::Open),
        [(Some("a"), MessageFate::Failed)],
        at(2),
    );
    assert_eq!(after.overtaking.len(), 1);
    drop((after, first));
    assert!(scheduler.next_jobs(at(2)).is_none());
    while scheduler.running > 0 {
        scheduler.release_worker();
    }
    assert!(scheduler.is_at_rest() && scheduler.permits().used() == 0);
}

#[test]
fn stop_ends_polling_and_kept_messages_still_run() {
    let mut scheduler = scheduler(2);
    let mut polls = scheduler.plan(at(0));
    let (high, low) = (polls.remove(0), polls.remove(0));
    bring(&mut scheduler, low, &["kept", "released"], at(1));
    // Nothing is known of the higher queue, so the lower one's messages wait.
    assert_eq!(scheduler.reserve_workers(at(1)), 0);
    let released = scheduler.stop(|_, job| job.group == "released", at(1));
    assert_eq!(released.len(), 1);
    assert!(scheduler.plan(at(2)).is_empty());
    assert_eq!(scheduler.reserve_workers(at(2)), 1);
    assert_eq!(scheduler.next_jobs(at(2)).map(|start| start.lane), Some(1));
    drop(high);
}

#[test]
fn stop_that_returns_a_held_message_returns_the_rest_of_its_group() {
    let (mut scheduler, first) = first_of(&["a", "a", "b"]);
    let after = scheduler.ended(
        showing(Signal::Busy),
        [(Some("a"), MessageFate::Kept)],
        at(2),
    );
    assert!(after.overtaking.is_empty());
    scheduler.hold(0, first.jobs, at(2), at(9_000));
    // The held one and the one behind it are released, and the other group stays.
    let released = scheduler.stop(|_, job: &GroupedJob| job.group == "a", at(2));
    assert_eq!(released.len(), 2);
    drop(released);
    // Of three workers two are too many for something that is busy.
    let next = (0..3).find_map(|_| scheduler.next_jobs(at(3)));
    assert_eq!(next.map(|start| start.jobs[0].group), Some("b"));
}

#[test]
fn lesson_19_message_behind_a_lost_one_does_not_follow_the_held_one_ahead() {
    let (mut scheduler, first) = first_of(&["a", "a"]);
    // The first is held; the second of its attempt was lost, the third still waits.
    let fates = [
        (Some("a"), MessageFate::Kept),
        (Some("a"), MessageFate::Failed),
    ];
    let after = scheduler.ended(showing(Signal::Busy), fates, at(2));
    assert_eq!(after.overtaking.len(), 1);
    scheduler.hold(0, first.jobs, at(2), at(3));
}
