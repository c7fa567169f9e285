//! Rounds over a store in memory: what is sent, how often, and what stays.

use super::mover::{Mover, Round};
use super::samples::{Fake, Taken, job};
use super::{Claim, Job, Store};
use crate::clock::{self, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const MINUTE: Duration = Duration::from_secs(60);

fn soon(seconds: u64) -> Timestamp {
    clock::today() + Duration::from_secs(seconds)
}

fn mover(store: &Arc<Fake>, queue: &Arc<Taken>) -> Mover {
    Mover::new(store.clone(), queue.clone(), MINUTE)
}

async fn round(mover: &mut Mover) -> Round {
    let round = mover.round(&CancellationToken::new()).await;
    round.expect("memory does not fail")
}

fn left(store: &Fake) -> Vec<String> {
    store.jobs.lock().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn what_is_due_is_sent_once_with_its_delay_and_the_rest_stays() {
    let jobs = (0..40).map(|n| job(&format!("due-{n}"), soon(n)));
    let far = (0..20).map(|n| job(&format!("far-{n:02}"), soon(1_000 + n)));
    let store = Arc::new(Fake::holding(jobs.chain(far)));
    let queue = Arc::new(Taken::default());
    let mut mover = mover(&store, &queue);
    assert_eq!(round(&mut mover).await.sent, 40);
    assert_eq!(round(&mut mover).await, Round::default());
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
    let store = Arc::new(Fake::holding(jobs));
    let queue = Arc::new(Taken::default());
    let (mut one, mut two) = (mover(&store, &queue), mover(&store, &queue));
    let (first, second) = tokio::join!(round(&mut one), round(&mut two));
    assert_eq!(first.sent + second.sent, 500);
    let mut bodies = queue.bodies();
    bodies.dedup();
    assert_eq!(bodies.len(), 500);
    assert_eq!(left(&store), [""; 0]);
}

#[tokio::test]
async fn the_job_of_a_dead_dispatcher_is_taken_up_when_its_claim_has_run_out() {
    let claimed = |id: &str, until| Job {
        claim: Some(Claim {
            token: "dead".into(),
            until,
        }),
        ..job(id, soon(0))
    };
    let past = Timestamp(clock::today().0 - 1_000);
    let store = Arc::new(Fake::holding([
        claimed("live", soon(60)),
        claimed("left", past),
    ]));
    let queue = Arc::new(Taken::default());
    assert_eq!(round(&mut mover(&store, &queue)).await.sent, 1);
    assert_eq!(queue.bodies(), ["body of left"]);
    assert_eq!(left(&store), ["live"]);
}

#[tokio::test]
async fn what_was_sent_and_could_not_be_ended_is_ended_later_and_not_sent_again() {
    let store = Arc::new(Fake::holding([job("a", soon(0)), job("b", soon(0))]));
    *store.failing_ends.lock().unwrap() = 2;
    let queue = Arc::new(Taken::default());
    let mut mover = mover(&store, &queue);
    assert_eq!(round(&mut mover).await.sent, 2);
    assert_eq!(left(&store).len(), 2);
    assert_eq!(round(&mut mover).await.sent, 0);
    assert_eq!(left(&store), [""; 0]);
    assert_eq!(queue.bodies().len(), 2);
}

#[tokio::test]
async fn what_its_queue_does_not_take_stays_and_is_tried_again() {
    let jobs = ["busy", "refused", "fine"].map(|id| job(id, soon(0)));
    let lost = Job {
        queue: "gone".into(),
        ..job("lost", soon(0))
    };
    let store = Arc::new(Fake::holding(jobs.into_iter().chain([lost])));
    let queue = Arc::new(Taken::default());
    let mut mover = mover(&store, &queue);
    let first = round(&mut mover).await;
    assert_eq!((first.sent, first.failed), (1, 3));
    assert_eq!(round(&mut mover).await.sent, 1);
    assert_eq!(queue.bodies(), ["body of busy", "body of fine"]);
    assert_eq!(left(&store), ["lost", "refused"]);
}

#[tokio::test]
async fn a_job_that_its_producer_wrote_anew_is_not_ended_with_the_old_one() {
    let store = Arc::new(Fake::holding([job("a", soon(0))]));
    *store.failing_ends.lock().unwrap() = 1;
    let queue = Arc::new(Taken::default());
    let mut mover = mover(&store, &queue);
    assert_eq!(round(&mut mover).await.sent, 1);
    let anew = job("a", soon(5_000));
    store.jobs.lock().unwrap().insert("a".into(), anew);
    assert_eq!(round(&mut mover).await.sent, 0);
    assert_eq!(left(&store), ["a"]);
}

#[tokio::test]
async fn on_a_queue_without_delays_jobs_are_held_and_looked_for_in_time() {
    let due = soon(20);
    let store = Arc::new(Fake::holding([job("held", due), job("now", soon(0))]));
    let queue = Arc::new(Taken {
        fifo: true,
        ..Taken::default()
    });
    let round = round(&mut mover(&store, &queue)).await;
    assert_eq!((round.sent, round.held), (1, Some(due)));
    assert_eq!(left(&store), ["held"]);
    assert_eq!(super::list(&*store).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_cancelled_job_is_not_sent() {
    let store = Arc::new(Fake::holding([job("a", soon(0))]));
    let now = clock::today();
    assert_eq!(store.cancel("a", now).await, Ok(super::Cancelled::Yes));
    assert_eq!(store.cancel("a", now).await, Ok(super::Cancelled::Unknown));
    let queue = Arc::new(Taken::default());
    assert_eq!(round(&mut mover(&store, &queue)).await.sent, 0);
}
