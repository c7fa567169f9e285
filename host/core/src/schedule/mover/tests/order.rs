//! Rounds over a store in memory to a queue that keeps the order of groups: nothing overtakes.

use super::{left, mover, round};
use crate::clock::Timestamp;
use crate::schedule::ScheduledJob;
use crate::schedule::fakes::{FakeSchedule, TakenJobs};
use crate::schedule::samples::job;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

fn grouped(id: &str, group: &str, n: u64) -> ScheduledJob {
    let mut one = job(id, Timestamp(n));
    one.message.group = Some(group.into());
    one
}

fn fifo() -> Arc<TakenJobs> {
    Arc::new(TakenJobs {
        fifo: true,
        ..TakenJobs::default()
    })
}

/// All bodies so far, in the order in which they came.
fn bodies(queue: &TakenJobs) -> Vec<String> {
    let messages = queue.messages.lock().unwrap();
    messages.iter().map(|one| one.body.clone()).collect()
}

#[tokio::test]
async fn failed_job_blocks_its_group_on_an_ordered_queue() {
    let store = Arc::new(FakeSchedule::holding([
        grouped("1 a", "a", 1),
        grouped("2 refused", "a", 2),
        grouped("3 busy", "a", 3),
        grouped("4 a", "a", 4),
        grouped("5 b", "b", 5),
    ]));
    let queue = fifo();
    let mut mover = mover(&store, &queue);
    assert_eq!(round(&mut mover).await.sent, 2);
    let mut first = bodies(&queue);
    first.sort();
    assert_eq!(first, ["body of 1 a", "body of 5 b"]);
    assert_eq!(round(&mut mover).await.sent, 2);
    assert_eq!(bodies(&queue)[2..], ["body of 3 busy", "body of 4 a"]);
    assert_eq!(left(&store), ["2 refused"]);
}

#[tokio::test]
async fn job_on_a_later_page_does_not_overtake_a_failed_one() {
    let id = |n: u64| match n {
        3 => "03 busy".to_owned(),
        n => format!("{n:02}"),
    };
    let a = (1..=20).map(|n| grouped(&id(n), "a", n));
    let store = Arc::new(FakeSchedule::holding(a.chain([grouped("21 b", "b", 21)])));
    let queue = fifo();
    let mut mover = mover(&store, &queue);
    let first = round(&mut mover).await;
    assert_eq!((first.sent, first.failed), (3, 1));
    assert_eq!(bodies(&queue), ["body of 01", "body of 02", "body of 21 b"]);
    assert_eq!(round(&mut mover).await.sent, 18);
    let rest: Vec<String> = (3..=20).map(|n| format!("body of {}", id(n))).collect();
    assert_eq!(bodies(&queue)[3..], rest);
    assert_eq!(left(&store), [""; 0]);
}

#[tokio::test]
async fn jobs_behind_an_unclaimable_one_are_released_unsent() {
    let store = Arc::new(FakeSchedule::holding([
        grouped("1 a", "a", 1),
        grouped("2 unclaimed", "a", 2),
        grouped("3 a", "a", 3),
        grouped("4 b", "b", 4),
    ]));
    let queue = fifo();
    let told = mover(&store, &queue).round(&CancellationToken::new()).await;
    assert_eq!(told.sent, 2);
    assert_eq!(queue.bodies(), ["body of 1 a", "body of 4 b"]);
    assert_eq!(left(&store), ["2 unclaimed", "3 a"]);
    let jobs = store.jobs.lock().unwrap();
    assert!(jobs.values().all(|job| job.claim.is_none()));
}

#[tokio::test]
async fn job_that_could_not_be_released_is_not_overtaken_by_its_group() {
    let store = Arc::new(FakeSchedule::holding([
        grouped("1 busy", "a", 1),
        grouped("2 a", "a", 2),
    ]));
    // Both, in two rounds.
    *store.failing_ends.lock().unwrap() = 4;
    let queue = fifo();
    let mut mover = mover(&store, &queue);
    assert_eq!(round(&mut mover).await.sent, 0);
    let late = [grouped("3 a", "a", 3), grouped("4 b", "b", 4)];
    let late = late.map(|job| (job.id.clone(), job));
    store.jobs.lock().unwrap().extend(late);
    assert_eq!(round(&mut mover).await.sent, 1);
    assert_eq!(bodies(&queue), ["body of 4 b"]);
    assert_eq!(round(&mut mover).await.sent, 3);
    let rest = ["body of 1 busy", "body of 2 a", "body of 3 a"];
    assert_eq!(bodies(&queue)[1..], rest);
    assert_eq!(left(&store), [""; 0]);
}
