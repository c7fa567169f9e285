//! Queues of npm `worqr`, whose tasks belong to their worker until it ends: none of them stays with a
//! worker that lives and does not know of it.

use crate::backend::{Handy, LONG, PATIENT, SHORT, bodies, plain};
use dispatcher::message::Outcome;
use dispatcher::queue::redis::{Redis, WorqrQueue};
use dispatcher::queue::{Ask, Queue, Trouble};
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::relay::Relay;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

async fn open(address: impl std::fmt::Display, prefix: &str) -> WorqrQueue {
    let server = Redis::new(&format!("redis://{address}"), "own").expect("an address");
    server.worqr(prefix, "q", None).await.expect("it is there")
}

#[tokio::test]
async fn tasks_whose_answer_was_lost_come_again() {
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
    };
    let error = queue.receive(ask, &CancellationToken::new()).await;
    assert_eq!(error.expect_err("cut").kind, Trouble::Unreachable);
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
async fn a_task_that_nobody_keeps_comes_again() {
    let server = RedisServer::shared();
    let queue = open(server.address(), &RedisServer::fresh_name("worqr")).await;
    let handy: &dyn Queue = &queue;
    handy.send_all(&["kept", "dropped"].map(plain)).await;
    let kept = handy.next(LONG).await;
    let dropped = handy.next(SHORT).await;
    let extended = queue.extend(&[(kept.receipt.clone(), LONG)]).await;
    assert_eq!(extended, [Ok(())]);
    let lost = tokio::time::timeout(PATIENT, queue.lost()).await;
    assert_eq!(lost.expect("it is told"), [dropped.receipt]);
    let again = handy.next(LONG).await;
    assert_eq!((&*again.body, again.receive_count), ("dropped", 2));
    for message in [kept, again] {
        handy.settle_one(&message, Outcome::Delete).await;
    }
    assert_eq!(queue.depth().await, Ok(Default::default()));
}
