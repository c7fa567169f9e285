//! Rounds over a store in memory that fails, or whose queues do: what is not left waiting for it.

use super::{MINUTE, left, mover, round, run, simulate, soon};
use crate::schedule::fakes::{FakeSchedule, TakenJobs};
use crate::schedule::samples::job;
use crate::schedule::{ErrorKind, ScheduledJob, Unreadable};
use crate::telemetry::counters::Counters;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn claim_with_a_lost_answer_is_released_before_the_next_round() {
    let store = Arc::new(FakeSchedule::holding([
        job("a", soon(0)),
        job("b", soon(0)),
    ]));
    *store.lost_claims.lock().unwrap() = 1;
    let queue = Arc::new(TakenJobs::default());
    let mut mover = mover(&store, &queue);
    let told = mover.round(&CancellationToken::new()).await;
    assert_eq!((told.sent, left(&store)), (1, vec!["a".to_owned()]));
    assert_eq!(
        told.error.map(|error| error.kind),
        Some(ErrorKind::Unreachable)
    );
    assert_eq!(round(&mut mover).await.sent, 1);
    assert_eq!(queue.bodies(), ["body of a", "body of b"]);
    assert_eq!(left(&store), [""; 0]);
}

#[tokio::test]
async fn finding_03_unreadable_job_is_set_aside_and_counted_once_and_stops_no_other() {
    let store = Arc::new(FakeSchedule::holding([job("a", soon(0))]));
    store.unreadable.lock().unwrap().push(Unreadable {
        id: "bad".into(),
        queue: Some("q".into()),
        why: "it has no body".into(),
        stamp: "1".into(),
    });
    let queue = Arc::new(TakenJobs::default());
    let counters = Arc::<Counters>::default();
    let mut mover = mover(&store, &queue).counting(counters.clone());
    let first = round(&mut mover).await;
    assert_eq!((first.sent, first.dead), (1, 1));
    assert_eq!(round(&mut mover).await.dead, 0);
    assert_eq!(counters.scheduled_dead.get(), 1);
    let aside = store.aside.lock().unwrap();
    let reason = "content missing or unreadable: it has no body".to_owned();
    assert_eq!(*aside, [("bad".to_owned(), reason)]);
}

/// Whether what is due is sent within two looks, and within ten minutes, if the first look fails so.
fn sent_after(trouble: ErrorKind, certain: bool) -> (bool, bool) {
    let mut sent = (false, false);
    for (time, sent) in [(2 * MINUTE, &mut sent.0), (10 * MINUTE, &mut sent.1)] {
        simulate(async {
            let store = Arc::new(FakeSchedule::holding([job("a", soon(0))]));
            store.failing_looks.lock().unwrap().push(trouble);
            let queue = Arc::new(TakenJobs::default());
            let mover = mover(&store, &queue);
            run(if certain { mover.certain() } else { mover }, time).await;
            *sent = queue.bodies() == ["body of a"];
        });
    }
    sent
}

#[test]
fn store_failing_in_the_first_round_is_retried_soon_only_if_it_must_exist() {
    for (trouble, certain, soon) in [
        (ErrorKind::Transient, false, true),
        (ErrorKind::Transient, true, true),
        (ErrorKind::Unreachable, false, false),
        (ErrorKind::Unreachable, true, true),
        (ErrorKind::NotFound, false, false),
        (ErrorKind::NotFound, true, true),
        (ErrorKind::AccessDenied, false, false),
        (ErrorKind::AccessDenied, true, false),
    ] {
        let sent = sent_after(trouble, certain);
        assert_eq!(sent, (soon, true), "{trouble:?}, certain: {certain}");
    }
}

fn job_for(queue: &str) -> ScheduledJob {
    ScheduledJob {
        queue: queue.into(),
        ..job(queue, soon(0))
    }
}

#[test]
fn queue_that_does_not_report_its_limits_delays_no_other() {
    simulate(async {
        let jobs = ["silent-1", "silent-2", "q"].map(job_for);
        let store = Arc::new(FakeSchedule::holding(jobs));
        let queue = Arc::new(TakenJobs::default());
        let mut mover = mover(&store, &queue);
        let first = round(&mut mover).await;
        assert_eq!((first.sent, first.failed), (1, 2));
        let second = round(&mut mover).await;
        assert_eq!((second.sent, second.failed), (0, 2));
        assert_eq!(left(&store), ["silent-1", "silent-2"]);
    });
}

#[test]
fn jobs_of_a_queue_slow_to_report_its_limits_go_in_a_later_round() {
    simulate(async {
        let store = Arc::new(FakeSchedule::holding(["slow", "q"].map(job_for)));
        let queue = Arc::new(TakenJobs::default());
        run(mover(&store, &queue), 2 * MINUTE).await;
        assert_eq!(queue.bodies(), ["body of q", "body of slow"]);
        assert_eq!(left(&store), [""; 0]);
    });
}
