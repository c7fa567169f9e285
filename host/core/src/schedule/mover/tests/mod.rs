//! Rounds over a store in memory: what is sent, how often, and what stays.

mod failure;
mod order;

use crate::clock;
use crate::clock::Timestamp;
use crate::clock::simulated;
use crate::clock::simulated::Simulation;
use crate::schedule::cron::Periodic;
use crate::schedule::fakes::{FakeSchedule, TakenJobs};
use crate::schedule::mover::{Mover, MoverRound};
use crate::schedule::samples::job;
use crate::schedule::{Claim, ErrorKind, ScheduleStore, ScheduledJob};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub(super) const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn soon(seconds: u64) -> Timestamp {
    clock::wall_clock_now() + Duration::from_secs(seconds)
}

pub(super) fn mover(store: &Arc<FakeSchedule>, queue: &Arc<TakenJobs>) -> Mover {
    Mover::new(store.clone(), queue.clone(), MINUTE)
}

pub(super) async fn round(mover: &mut Mover) -> MoverRound {
    let round = mover.round(&CancellationToken::new()).await;
    assert_eq!(round.error, None);
    round
}

pub(super) fn left(store: &FakeSchedule) -> Vec<String> {
    store.jobs.lock().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn due_jobs_are_sent_once_with_their_delay() {
    let jobs = (0..40).map(|n| job(&format!("due-{n}"), soon(n)));
    let far = (0..20).map(|n| job(&format!("far-{n:02}"), soon(1_000 + n)));
    let store = Arc::new(FakeSchedule::holding(jobs.chain(far)));
    let queue = Arc::new(TakenJobs::default());
    let mut mover = mover(&store, &queue);
    assert_eq!(round(&mut mover).await.sent, 40);
    assert_eq!(round(&mut mover).await, MoverRound::default());
    assert_eq!(queue.bodies().len(), 40);
    assert_eq!(left(&store).len(), 20);
    let messages = queue.messages.lock().unwrap();
    let late = messages.iter().find(|one| one.body == "body of due-39");
    let delay = late.expect("it was sent").delay;
    assert!(
        delay > Duration::from_secs(30) && delay <= Duration::from_secs(39),
        "{delay:?}"
    );
}

#[tokio::test]
async fn two_movers_send_each_job_once() {
    let jobs = (0..500).map(|n| job(&format!("{n}"), soon(1)));
    let store = Arc::new(FakeSchedule::holding(jobs));
    let queue = Arc::new(TakenJobs::default());
    let (mut one, mut two) = (mover(&store, &queue), mover(&store, &queue));
    let (first, second) = tokio::join!(round(&mut one), round(&mut two));
    assert_eq!(first.sent + second.sent, 500);
    let mut bodies = queue.bodies();
    bodies.dedup();
    assert_eq!(bodies.len(), 500);
    assert_eq!(left(&store), [""; 0]);
}

#[tokio::test]
async fn job_of_a_dead_dispatcher_is_taken_over_when_its_claim_expires() {
    let claimed = |id: &str, until| ScheduledJob {
        claim: Some(Claim {
            token: "dead".into(),
            until,
        }),
        ..job(id, soon(0))
    };
    let past = Timestamp(clock::wall_clock_now().0 - 1_000);
    let store = Arc::new(FakeSchedule::holding([
        claimed("live", soon(60)),
        claimed("left", past),
    ]));
    let queue = Arc::new(TakenJobs::default());
    assert_eq!(round(&mut mover(&store, &queue)).await.sent, 1);
    assert_eq!(queue.bodies(), ["body of left"]);
    assert_eq!(left(&store), ["live"]);
}

#[tokio::test]
async fn sent_job_that_could_not_be_completed_is_completed_later_without_resending() {
    let store = Arc::new(FakeSchedule::holding([
        job("a", soon(0)),
        job("b", soon(0)),
    ]));
    *store.failing_ends.lock().unwrap() = 2;
    let queue = Arc::new(TakenJobs::default());
    let mut mover = mover(&store, &queue);
    assert_eq!(round(&mut mover).await.sent, 2);
    assert_eq!(left(&store).len(), 2);
    assert_eq!(round(&mut mover).await.sent, 0);
    assert_eq!(left(&store), [""; 0]);
    assert_eq!(queue.bodies().len(), 2);
}

#[tokio::test]
async fn job_refused_by_its_queue_stays_and_is_retried() {
    let jobs = ["busy", "refused", "fine"].map(|id| job(id, soon(0)));
    let lost = ScheduledJob {
        queue: "gone".into(),
        ..job("lost", soon(0))
    };
    let store = Arc::new(FakeSchedule::holding(jobs.into_iter().chain([lost])));
    let queue = Arc::new(TakenJobs::default());
    let mut mover = mover(&store, &queue);
    let first = round(&mut mover).await;
    assert_eq!((first.sent, first.failed), (1, 3));
    assert_eq!(round(&mut mover).await.sent, 1);
    assert_eq!(queue.bodies(), ["body of busy", "body of fine"]);
    assert_eq!(left(&store), ["lost", "refused"]);
}

#[tokio::test]
async fn rewritten_job_is_not_completed_with_the_old_one() {
    let store = Arc::new(FakeSchedule::holding([job("a", soon(0))]));
    *store.failing_ends.lock().unwrap() = 1;
    let queue = Arc::new(TakenJobs::default());
    let mut mover = mover(&store, &queue);
    assert_eq!(round(&mut mover).await.sent, 1);
    let anew = job("a", soon(5_000));
    store.jobs.lock().unwrap().insert("a".into(), anew);
    assert_eq!(round(&mut mover).await.sent, 0);
    assert_eq!(left(&store), ["a"]);
}

#[tokio::test]
async fn jobs_for_a_queue_without_delays_are_held_and_sent_when_due() {
    let due = soon(20);
    let store = Arc::new(FakeSchedule::holding([
        job("held", due),
        job("now", soon(0)),
    ]));
    let queue = Arc::new(TakenJobs {
        fifo: true,
        ..TakenJobs::default()
    });
    let round = round(&mut mover(&store, &queue)).await;
    assert_eq!((round.sent, round.held), (1, Some(due)));
    assert_eq!(left(&store), ["held"]);
    assert_eq!(crate::schedule::list(&*store).await.unwrap().len(), 1);
}

#[tokio::test]
async fn cancelled_job_is_not_sent() {
    let store = Arc::new(FakeSchedule::holding([job("a", soon(0))]));
    let now = clock::wall_clock_now();
    assert_eq!(
        store.cancel("a", now).await,
        Ok(crate::schedule::JobCancellation::Yes)
    );
    assert_eq!(
        store.cancel("a", now).await,
        Ok(crate::schedule::JobCancellation::Unknown)
    );
    let queue = Arc::new(TakenJobs::default());
    assert_eq!(round(&mut mover(&store, &queue)).await.sent, 0);
}

/// Runs until nothing waits but timers, and then lets time go on to the next.
pub(super) fn simulate(test: impl Future<Output = ()>) {
    let _simulation = Simulation::begin(Timestamp(1_800_000_000_000));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(|| assert!(simulated::advance(), "nothing would ever happen"))
        .build();
    runtime.expect("a runtime").block_on(test);
}

/// Lets a mover run for this long.
pub(super) async fn run(mover: Mover, time: Duration) {
    let stop = CancellationToken::new();
    let running = crate::tasks::spawn(mover.run(stop.clone()));
    clock::sleep_until(Some(clock::now() + time)).await;
    stop.cancel();
    running.finished().await;
}

fn periodic(pattern: &str, due: Timestamp) -> ScheduledJob {
    let every = Periodic::new(pattern, "UTC").expect(pattern);
    ScheduledJob {
        every: Some(every),
        ..job("tick", due)
    }
}

#[test]
fn no_tick_is_lost_or_late_on_a_queue_without_delays() {
    simulate(async {
        let first = soon(7);
        let store = Arc::new(FakeSchedule::holding([periodic("*/7 * * * * *", first)]));
        let queue = Arc::new(TakenJobs {
            fifo: true,
            ..TakenJobs::default()
        });
        run(mover(&store, &queue), 10 * MINUTE).await;
        let every = Periodic::new("*/7 * * * * *", "UTC").expect("a pattern");
        let mut wanted = vec![first];
        while wanted.len() < queue.messages.lock().unwrap().len() {
            let next = every.next(*wanted.last().expect("there is one"));
            wanted.push(next.expect("a pattern").expect("it goes on"));
        }
        assert_eq!(*queue.dates.lock().unwrap(), wanted);
        assert!(wanted.len() > 80, "{}", wanted.len());
    });
}

#[test]
fn job_that_cannot_be_completed_within_its_claim_is_not_sent_again() {
    simulate(async {
        let store = Arc::new(FakeSchedule::holding([job("a", soon(0))]));
        // Once a look, for half an hour.
        *store.failing_ends.lock().unwrap() = 30;
        let queue = Arc::new(TakenJobs::default());
        run(mover(&store, &queue), 40 * MINUTE).await;
        assert_eq!(queue.bodies(), ["body of a"]);
        assert_eq!(left(&store), [""; 0]);
    });
}

#[test]
fn mover_that_may_not_complete_jobs_stops_sending_until_it_may() {
    simulate(async {
        let jobs = (0..500).map(|n| job(&format!("{n:03}"), soon(0)));
        let store = Arc::new(FakeSchedule::holding(jobs));
        *store.failing.lock().unwrap() = Some(ErrorKind::AccessDenied);
        // The first page of seven, and 29 more looks at it.
        *store.failing_ends.lock().unwrap() = 7 * 30;
        let queue = Arc::new(TakenJobs::default());
        let mut mover = mover(&store, &queue);
        let never = CancellationToken::new();
        for _ in 0..30 {
            let round = mover.round(&never).await;
            let kind = round.error.map(|error| error.kind);
            assert_eq!(kind, Some(ErrorKind::AccessDenied));
            assert_eq!(queue.bodies().len(), 7);
            simulated::pass(MINUTE);
        }
        assert_eq!(round(&mut mover).await.sent, 493);
        let bodies: BTreeSet<String> = queue.bodies().into_iter().collect();
        assert_eq!((bodies.len(), queue.bodies().len()), (500, 500));
        assert_eq!(left(&store), [""; 0]);
    });
}

#[tokio::test]
async fn failed_claim_is_reported_at_the_end_of_the_round() {
    let jobs = (0..100).map(|n| job(&format!("{n}"), soon(0)));
    let bad = (0..10).map(|n| job(&format!("unclaimed-{n}"), Timestamp(n)));
    let store = Arc::new(FakeSchedule::holding(bad.chain(jobs)));
    let queue = Arc::new(TakenJobs::default());
    let told = mover(&store, &queue).round(&CancellationToken::new()).await;
    assert_eq!((told.sent, left(&store).len()), (100, 10));
    assert_eq!(
        told.error.map(|error| error.kind),
        Some(ErrorKind::Transient)
    );
}

#[tokio::test]
async fn queue_that_does_not_answer_delays_no_other() {
    let to = |queue: String| ScheduledJob {
        queue: queue.clone(),
        ..job(&queue, soon(0))
    };
    let jobs = (0..6).map(|n| to(format!("dead-{n}")));
    let store = Arc::new(FakeSchedule::holding(jobs.chain([to("q".into())])));
    let queue = Arc::new(TakenJobs::default());
    let mut mover = mover(&store, &queue);
    // The dead ones answer when the other has taken its own.
    let found = tokio::time::timeout(Duration::from_secs(20), round(&mut mover));
    let found = found.await.expect("none waits for a dead one");
    assert_eq!((found.sent, found.failed), (1, 6));
}

#[tokio::test]
async fn failed_tick_stops_those_after_it_and_none_is_sent_twice() {
    let first = Timestamp(clock::wall_clock_now().0 / 1_000 * 1_000 + 1_000);
    let mut busy = periodic("* * * * * *", first);
    busy.message.body = "busy".into();
    let store = Arc::new(FakeSchedule::holding([busy, job("other", soon(0))]));
    let queue = Arc::new(TakenJobs::default());
    let mut mover = mover(&store, &queue);
    let failed = round(&mut mover).await;
    assert_eq!((failed.sent, failed.failed), (1, 1));
    let sent = round(&mut mover).await.sent;
    assert!(sent >= 119, "two looks of a minute ahead: {sent}");
    let messages = queue.messages.lock().unwrap();
    let ticks: Vec<_> = messages.iter().map(|one| one.scheduled.clone()).collect();
    let once: BTreeSet<_> = ticks.iter().collect();
    assert_eq!(once.len(), ticks.len());
}
