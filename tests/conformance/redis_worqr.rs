//! Queues of npm `worqr`, whose tasks belong to their worker until it ends: none of them stays with a
//! worker that lives and does not know of it.

use crate::backend::{Handy, LONG, PATIENT, SHORT, bodies, plain};
use dispatcher_core::message::{Loss, Message, Outcome};
use dispatcher_core::queue::{Ask, ErrorKind, Queue};
use dispatcher_redis::queue::{Redis, WorqrQueue};
use dispatcher_tests::PATIENCE;
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::relay::Relay;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

async fn open(address: impl std::fmt::Display, prefix: &str) -> WorqrQueue {
    let server = Redis::new(&format!("redis://{address}"), "own").expect("an address");
    server.worqr(prefix, "q", None).await.expect("it is there")
}

#[tokio::test]
async fn tasks_of_a_lost_answer_are_redelivered() {
    let server = RedisServer::shared();
    let relay = Relay::before(server.address());
    let prefix = RedisServer::fresh_name("worqr");
    let queue = open(relay.address(), &prefix).await;
    let handy: &dyn Queue = &queue;
    // It has joined, so that the next call takes.
    handy.expect_nothing().await;
    let beside = open(server.address(), &prefix).await;
    let beside: &dyn Queue = &beside;
    beside.send_all(&["needle-1", "needle-2"].map(plain)).await;
    relay.swallow_answer_with("needle-2");
    let ask = Ask {
        max: 10,
        visibility: LONG,
        wait: Duration::ZERO,
        newest_first: false,
        ..Ask::PLAIN
    };
    let error = queue.receive(ask, &CancellationToken::new()).await;
    assert_eq!(error.expect_err("cut").kind, ErrorKind::Unreachable);
    // This process is alive, and so is its worker.
    let again = handy.take(2, LONG).await;
    assert_eq!(bodies(&again), ["needle-1", "needle-2"]);
    assert_eq!(again[0].receive_count, 2);
    for message in &again {
        handy.settle_one(message, Outcome::Delete).await;
    }
    assert_eq!(queue.depth().await, Ok(Default::default()));
}

#[tokio::test]
async fn task_without_a_live_worker_is_redelivered() {
    let server = RedisServer::shared();
    let queue = open(server.address(), &RedisServer::fresh_name("worqr")).await;
    let handy: &dyn Queue = &queue;
    handy.send_all(&["kept", "dropped"].map(plain)).await;
    let kept = handy.next(LONG).await;
    let dropped = handy.next(SHORT).await;
    let extended = queue.extend(&[(kept.receipt.clone(), LONG)]).await;
    assert_eq!(extended, [Ok(())]);
    let lost = tokio::time::timeout(PATIENT, queue.lost()).await;
    assert_eq!(lost.expect("it is told"), [Loss::taken(dropped.receipt)]);
    let again = handy.next(LONG).await;
    assert_eq!((&*again.body, again.receive_count), ("dropped", 2));
    for message in [kept, again] {
        handy.settle_one(&message, Outcome::Delete).await;
    }
    assert_eq!(queue.depth().await, Ok(Default::default()));
}

#[tokio::test]
async fn equal_tasks_have_separate_attempt_counts() {
    const TASKS: usize = 50;
    let server = RedisServer::shared();
    let prefix = RedisServer::fresh_name("worqr");
    let redis = Redis::new(&server.url(), "own").expect("an address");
    let queue = redis.worqr(&prefix, "q", None).await.expect("it is there");
    let handy: &dyn Queue = &queue;
    handy.send_all(&vec![plain("sync"); TASKS]).await;
    let attempts = |taken: &[Message]| -> Vec<u32> {
        taken.iter().map(|message| message.receive_count).collect()
    };
    let mut first = handy.take(TASKS, LONG).await;
    assert_eq!(attempts(&first), [1; TASKS]);
    let rest = first.split_off(10);
    for (at, message) in first.iter().enumerate() {
        // Some at once, some after a pause.
        let pause = Duration::from_millis(if at < 5 { 0 } else { 1 });
        handy.settle_one(message, Outcome::Release(pause)).await;
    }
    let mut beside = server.connect();
    let counts = format!("{prefix}:dispatcher:counts:q");
    let left = beside.call(&["TTL", &counts]).expect("an answer").number();
    assert!(
        left > 0,
        "a count that nobody deletes stays for ever: {left}"
    );
    let again = handy.take(first.len(), LONG).await;
    assert_eq!(attempts(&again), vec![2; first.len()]);
    // One that is finished clears what was known of all that are alike.
    for message in rest.iter().chain(&again) {
        handy.settle_one(message, Outcome::Delete).await;
    }
    let left = beside.call(&["EXISTS", &counts]).expect("an answer");
    assert_eq!(left.number(), 0);
    handy.send_all(&[plain("sync")]).await;
    assert_eq!(handy.next(LONG).await.receive_count, 1);
}

#[tokio::test]
async fn messages_of_a_dead_worker_count_one_more_attempt() {
    let server = RedisServer::shared();
    let prefix = RedisServer::fresh_name("worqr");
    let dead = open(server.address(), &prefix).await;
    let queue: &dyn Queue = &dead;
    queue.send_all(&["sync", "sync"].map(plain)).await;
    queue.take(2, LONG).await;
    // It beats no more.
    drop(dead);
    let other = open(server.address(), &prefix).await;
    let again = (&other as &dyn Queue).take(2, LONG).await;
    let attempts: Vec<u32> = again.iter().map(|message| message.receive_count).collect();
    assert_eq!(attempts, [2, 2]);
}

#[tokio::test]
async fn a_purge_of_worqr_removes_what_is_not_in_flight() {
    const TASKS: usize = 1_200;
    let server = RedisServer::shared();
    let prefix = RedisServer::fresh_name("worqr");
    let queue = open(server.address(), &prefix).await;
    let handy: &dyn Queue = &queue;
    handy.send_all(&vec![plain("task"); TASKS]).await;
    let held = handy.next(LONG).await;
    let later = handy.next(LONG).await;
    let hour = Duration::from_secs(3_600);
    handy.settle_one(&later, Outcome::Release(hour)).await;
    let (mut removed, mut steps) = (0, 0);
    loop {
        let step = queue.purge().await.expect("it can be emptied");
        removed += step.removed.expect("a number");
        steps += 1;
        if !step.has_more {
            break;
        }
    }
    assert_eq!((removed, steps), (TASKS as u64 - 1, 3), "one is in flight");
    let depth = queue.depth().await.expect("an answer");
    assert_eq!((depth.waiting, depth.in_flight, depth.delayed), (0, 1, 0));
    handy.settle_one(&held, Outcome::Delete).await;
    assert_eq!(queue.depth().await, Ok(Default::default()));
}

#[tokio::test]
async fn dead_letters_of_worqr_are_in_a_queue_that_is_named_and_can_be_emptied() {
    let server = RedisServer::shared();
    let prefix = RedisServer::fresh_name("worqr");
    let queue = open(server.address(), &prefix).await;
    let handy: &dyn Queue = &queue;
    assert_eq!(queue.dead_letter_queue().as_deref(), Some("redis:q.dead"));
    handy.send_all(&[plain("bad")]).await;
    let bad = handy.next(LONG).await;
    handy
        .settle_one(&bad, Outcome::DeadLetter("why".into()))
        .await;
    let redis = Redis::new(&server.url(), "own").expect("an address");
    let dead = redis.worqr(&prefix, "q.dead", None).await;
    let dead = dead.expect("it is there");
    assert_eq!(dead.dead_letter_queue(), None);
    assert_eq!(dead.depth().await.map(|depth| depth.waiting), Ok(1));
    let step = dead.purge().await.expect("it can be emptied");
    assert_eq!((step.removed, step.has_more), (Some(1), false));
}

#[tokio::test]
async fn worker_that_cannot_subscribe_still_sends_heartbeats() {
    let server = RedisServer::shared();
    let relay = Relay::before(server.address());
    let prefix = RedisServer::fresh_name("worqr");
    let queue = open(relay.address(), &prefix).await;
    let handy: &dyn Queue = &queue;
    handy.send_all(&[plain("task")]).await;
    relay.swallow_answer_with("_cancel");
    let ask = Ask {
        max: 1,
        visibility: LONG,
        wait: Duration::ZERO,
        newest_first: false,
        ..Ask::PLAIN
    };
    let error = queue.receive(ask, &CancellationToken::new()).await;
    assert_eq!(error.expect_err("cut").kind, ErrorKind::Unreachable);
    let held = handy.next(LONG).await;
    let mut beside = server.connect();
    let worker = beside.call(&["SMEMBERS", &format!("{prefix}:workers")]);
    let worker = worker.expect("an answer").texts();
    let timer = format!("{prefix}:workerTimers:{}", worker[0]);
    let deadline = Instant::now() + PATIENCE;
    let (mut last, mut times) = (i64::MAX, 0);
    while times < 3 {
        let left = beside.call(&["PTTL", &timer]).expect("an answer").number();
        assert!(left > 0, "nobody keeps the worker alive");
        assert!(Instant::now() < deadline, "it is not kept");
        times += usize::from(left > last);
        last = left;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    handy.settle_one(&held, Outcome::Delete).await;
}
