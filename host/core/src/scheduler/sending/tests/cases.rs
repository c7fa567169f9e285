//! Single cases of the order of sending that were got wrong once, or nearly.

use super::*;
use crate::scheduler::lane::LaneLimits;

/// A job of the group `g`, sent at its number.
fn precious(world: &SendingWorld, number: u64) -> SendingJob {
    SendingJob {
        id: number.to_string(),
        number,
        group: "g".into(),
        sent: number,
        precious: true,
        _seat: world.scheduler.permits().overdraw(1),
    }
}

fn arrive(world: &mut SendingWorld, number: u64) {
    let (job, now) = (precious(world, number), world.at());
    world.scheduler.lanes[0].arrive(vec![job], Duration::ZERO, now);
}

#[test]
fn finding_02_last_poll_at_last_receive_does_not_wait_for_returned_messages() {
    let mut world = SendingWorld::new(1, 0, 1, 1, 2);
    let now = world.at();
    arrive(&mut world, 1);
    arrive(&mut world, 2);
    assert_eq!(world.scheduler.stop(|_, job| job.number <= 2, now).len(), 2);
    // Nothing is received any more, so what went back cannot come before it.
    arrive(&mut world, 3);
    assert_eq!(world.scheduler.reserve_workers(now), 1);
}

#[test]
fn finding_02_stop_keeps_messages_ahead_of_a_last_receive_in_their_group() {
    let mut world = SendingWorld::new(1, 0, 1, 1, 2);
    let now = world.at();
    arrive(&mut world, 1);
    arrive(&mut world, 2);
    assert!(
        world
            .scheduler
            .stop(|_, job| job.number == 1, now)
            .is_empty()
    );
    assert_eq!(world.scheduler.reserve_workers(now), 1);
}

#[test]
fn waiting_message_yields_to_an_earlier_one_that_ends_on_arrival() {
    let mut world = SendingWorld::new(1, 0, 1, 1, 2);
    let now = world.at();
    arrive(&mut world, 2);
    let first = precious(&world, 1);
    world.scheduler.passed_by(0, &first, now);
    assert_eq!(world.scheduler.reserve_workers(now), 0);
    world.scheduler.settled(0, "1", None, now);
    assert_eq!(world.scheduler.reserve_workers(now), 1);
}

#[test]
fn finding_02_messages_behind_a_failure_in_their_own_attempt_keep_their_turn() {
    let mut world = SendingWorld::new(1, 0, 1, 2, 2);
    let rate = LaneLimits {
        rate: Some(1.0),
        attempts: None,
        paused: false,
    };
    let limits = SchedulerLimits {
        lanes: vec![rate],
        ..sample::limits(2)
    };
    world.scheduler.set_limits(&limits, world.at());
    arrive(&mut world, 1);
    arrive(&mut world, 2);
    let both = attempt(&mut world, &[MessageFate::Kept, MessageFate::Kept]).0;
    let now = world.at();
    world.scheduler.hold(0, both, now, now);
    // Resumed together, but the rate lets only one start; the other goes back behind it.
    world.now += 1;
    let (_, behind) = attempt(&mut world, &[MessageFate::Failed]);
    assert!(behind.is_empty(), "given back it would spend a receive");
    world.now += 9;
    let due = Some(world.at());
    world.scheduler.settled(0, "1", due, world.at());
    arrive(&mut world, 1);
    let (again, _) = attempt(&mut world, &[MessageFate::Done, MessageFate::Done]);
    let numbers = again.iter().map(|job| job.number).collect::<Vec<_>>();
    assert_eq!(numbers, [1, 2]);
}

/// An attempt that begins and ends so: what was in it, and what it releases besides.
fn attempt(world: &mut SendingWorld, fates: &[MessageFate]) -> (Vec<SendingJob>, Vec<SendingJob>) {
    let now = world.at();
    let hired = world.scheduler.reserve_workers(now);
    let start = world.scheduler.next_jobs(now).expect("something to start");
    assert_eq!(start.jobs.len(), fates.len());
    for (job, fate) in start.jobs.iter().zip(fates) {
        world.scheduler.fared(0, job, *fate, now);
    }
    let ended = FinishedAttempt {
        lane: 0,
        began: now,
        showed: Signal::Open,
    };
    let told = fates.iter().map(|fate| (Some("g"), *fate));
    let after = world.scheduler.ended(ended, told, now);
    (0..hired).for_each(|_| world.scheduler.release_worker());
    (start.jobs, after.overtaking)
}
