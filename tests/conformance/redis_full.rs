//! What only Redis has: a server without memory, which takes nothing more and can be emptied.

use crate::backend::{Handy, LONG, plain};
use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::{ItemError, Queue};
use dispatcher_redis::queue::Redis;
use dispatcher_tests::PATIENCE;
use dispatcher_tests::redis::{Plain, RedisReply, RedisServer};
use std::time::{Duration, Instant};

fn small() -> RedisServer {
    RedisServer::start(&["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"])
}

/// Sends until nothing more is taken, and says how many were.
async fn fill(queue: &dyn Queue) -> usize {
    let body = "x".repeat(50_000);
    for sent in 0.. {
        let answers = queue.send(&[plain(&body)]).await;
        match &answers[..] {
            [Ok(_)] => {}
            [Err(ItemError::Transient(_))] => return sent,
            other => panic!("{other:?}"),
        }
    }
    unreachable!("memory ends")
}

fn is_full(server: &mut Plain) -> bool {
    let answer = server.call(&["SET", "more", "more"]).expect("an answer");
    matches!(answer, RedisReply::Error(why) if why.starts_with("OOM"))
}

/// Returns once the key has been given more time a few times.
async fn kept(server: &mut Plain, key: &str) {
    let deadline = Instant::now() + PATIENCE;
    let (mut last, mut times) = (i64::MAX, 0);
    while times < 8 {
        let left = server.call(&["PTTL", key]).expect("an answer").number();
        assert!(left > 0, "{key} is gone");
        assert!(Instant::now() < deadline, "{key} is not kept");
        times += usize::from(left > last);
        last = left;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn settle_all(queue: &dyn Queue, taken: Vec<Message>, outcome: Outcome) {
    let items: Vec<_> = taken.into_iter().map(|m| (m, outcome.clone())).collect();
    for answer in queue.settle(&items).await {
        assert_eq!(answer, Ok(()));
    }
}

#[tokio::test]
async fn full_server_can_be_drained() {
    let server = small();
    let mut beside = server.connect();
    let open = async || {
        let redis = Redis::new(&server.url(), "full").expect("an address");
        redis.queue("q", None).await.expect("it is there")
    };
    let sent = fill(&open().await).await;
    assert!(sent > 20, "{sent}");
    // A process that begins now, under another name.
    let queue = open().await;
    let handy: &dyn Queue = &queue;
    let mut taken = handy.take(sent, LONG).await;
    assert!(is_full(&mut beside));
    let workers = beside.call(&["SMEMBERS", "{full}:workers"]);
    let worker = workers.expect("an answer").text();
    kept(&mut beside, &format!("{{full}}:worker:{worker}")).await;
    assert!(is_full(&mut beside));
    let extended = queue.extend(&[(taken[0].receipt.clone(), LONG)]).await;
    assert_eq!(extended, [Ok(())]);
    settle_all(&queue, taken.split_off(sent - 2), Outcome::Release(LONG)).await;
    let dead = Outcome::DeadLetter("why".into());
    settle_all(&queue, taken.split_off(sent - 4), dead).await;
    assert!(is_full(&mut beside));
    settle_all(&queue, taken, Outcome::Delete).await;
    assert!(!is_full(&mut beside));
    handy.send_all(&[plain("again")]).await;
    assert_eq!(handy.next(LONG).await.body, "again");
}

#[tokio::test]
async fn full_server_can_be_drained_of_worqr_tasks() {
    let server = small();
    let mut beside = server.connect();
    let open = async || {
        let redis = Redis::new(&server.url(), "full").expect("an address");
        redis.worqr("full", "q", None).await.expect("it is there")
    };
    let sent = fill(&open().await).await;
    assert!(sent > 20, "{sent}");
    let queue = open().await;
    let handy: &dyn Queue = &queue;
    let mut taken = handy.take(sent, LONG).await;
    assert!(is_full(&mut beside));
    let workers = beside.call(&["SMEMBERS", "full:workers"]);
    let worker = workers.expect("an answer").text();
    kept(&mut beside, &format!("full:workerTimers:{worker}")).await;
    assert!(is_full(&mut beside));
    settle_all(&queue, taken.split_off(sent - 2), Outcome::Release(LONG)).await;
    settle_all(&queue, taken, Outcome::Delete).await;
    assert!(!is_full(&mut beside));
    handy.send_all(&[plain("again")]).await;
    assert_eq!(handy.next(LONG).await.body, "again");
}
