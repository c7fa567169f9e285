//! What only Redis has: places in the queue, workers that are given up, and what happens when the
//! server or the network fails.

use crate::backend::{Handy, LONG, PATIENT, bodies, grouped, plain};
use dispatcher_core::message::{Loss, Outcome};
use dispatcher_core::queue::{Ask, Depth, ErrorKind, ItemError, Queue};
use dispatcher_redis::queue::{NativeQueue, Redis};
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::relay::Relay;
use dispatcher_tests::servers::free_port;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const NOW: Outcome = Outcome::Release(Duration::ZERO);

async fn open(url: &str, name: &str) -> NativeQueue {
    let server = Redis::new(url, "faults").expect("an address");
    server.queue(name, None).await.expect("it is there")
}

async fn fresh() -> NativeQueue {
    open(&RedisServer::shared().url(), &RedisServer::fresh_name("q")).await
}

fn ask(wait: Duration) -> Ask {
    Ask {
        max: 10,
        visibility: LONG,
        wait,
        newest_first: false,
        ..Ask::PLAIN
    }
}

#[tokio::test]
async fn returned_messages_are_first_in_their_old_order() {
    let queue = fresh().await;
    let queue: &dyn Queue = &queue;
    queue.send_all(&["a", "b", "c", "d"].map(plain)).await;
    let taken = queue.take(3, LONG).await;
    for at in [2, 0, 1] {
        queue.settle_one(&taken[at], NOW).await;
    }
    queue.send_all(&[plain("e")]).await;
    let again = queue.receive_up_to(10, LONG, Duration::ZERO).await.messages;
    let order: Vec<&str> = again.iter().map(|message| &*message.body).collect();
    assert_eq!(order, ["a", "b", "c", "d", "e"]);
    let mut ids: Vec<&str> = again.iter().map(|message| &*message.id).collect();
    let sent = ids.clone();
    ids.sort_unstable();
    assert_eq!(ids, sent, "ids sort as they were sent");
}

#[tokio::test]
async fn cancelled_or_dead_lettered_head_unblocks_its_group() {
    let server = Redis::new(&RedisServer::shared().url(), "faults").expect("an address");
    let name = RedisServer::fresh_name("q");
    let opened = server.queue(&name, None).await.expect("it is there");
    let queue: &dyn Queue = &opened;
    let ids = queue
        .send_all(&["1", "2", "3", "4"].map(|body| grouped("g:=;", body)))
        .await;
    // One that waits behind another, then the head.
    for id in [&ids[1], &ids[0]] {
        let cancelled = server.cancel(&name, id).await.expect("it answers");
        assert_eq!((cancelled.waiting, cancelled.running), (1, 0));
    }
    let third = queue.next(LONG).await;
    assert_eq!(third.body, "3");
    queue.expect_nothing().await;
    queue
        .settle_one(&third, Outcome::DeadLetter("why".into()))
        .await;
    let fourth = queue.next(LONG).await;
    assert_eq!(fourth.body, "4");
    assert_eq!(fourth.group.as_deref(), Some("g:=;"));
    queue.settle_one(&fourth, Outcome::Delete).await;
    assert_eq!(opened.depth().await, Ok(Default::default()));
}

#[tokio::test]
async fn group_waits_until_its_cancelled_head_has_ended() {
    let own = RedisServer::start(&[]);
    let server = Redis::new(&own.url(), "faults").expect("an address");
    let opened = server.queue("q", None).await.expect("it is there");
    let queue: &dyn Queue = &opened;
    let mut beside = own.connect();
    queue
        .send_all(&["1", "2", "3", "4"].map(|body| grouped("g", body)))
        .await;
    for (body, next) in [("1", "2"), ("2", "3"), ("3", "4")] {
        let head = queue.next(LONG).await;
        assert_eq!(head.body, body);
        let cancelled = server.cancel("q", &head.id).await.expect("it answers");
        assert_eq!((cancelled.waiting, cancelled.running), (0, 1));
        assert_eq!(opened.lost().await, [Loss::cancelled(head.receipt.clone())]);
        let again = server.cancel("q", &head.id).await.expect("it answers");
        assert_eq!(again, Default::default());
        queue.expect_nothing().await;
        let extended = queue.extend(&[(head.receipt.clone(), LONG)]).await;
        assert_eq!(extended, [Err(ItemError::Cancelled)]);
        let looked = opened.peek(10).await.expect("it looks");
        assert_eq!(looked[0].body, next);
        match body {
            "1" => {
                let told = queue.settle(&[(head, NOW)]).await;
                assert_eq!(told, [Err(ItemError::Cancelled)]);
            }
            // Its lease has expired.
            "2" => {
                let over = beside.call(&["ZADD", "{faults:q}:leases", "XX", "CH", "1", &head.id]);
                assert_eq!(over.expect("an answer").number(), 1);
            }
            // Its worker is dead.
            _ => {
                let worker = beside.call(&["SMEMBERS", "{faults}:workers"]);
                let key = format!("{{faults}}:worker:{}", worker.expect("an answer").text());
                beside.call(&["DEL", &key]).expect("an answer");
            }
        }
    }
    let last = queue.next(LONG).await;
    assert_eq!(last.body, "4");
    queue.settle_one(&last, Outcome::Delete).await;
    assert_eq!(opened.depth().await, Ok(Default::default()));
    let left = beside.call(&["KEYS", "{faults:q}:*"]).expect("an answer");
    let mut left = left.texts();
    left.retain(|key| !key.contains(":w"));
    assert_eq!(left, ["{faults:q}:seq"]);
}

#[tokio::test]
async fn settling_twice_with_the_same_outcome_is_harmless() {
    let queue = fresh().await;
    let handy: &dyn Queue = &queue;
    for outcome in [
        Outcome::Delete,
        NOW,
        Outcome::Release(LONG),
        Outcome::DeadLetter("why".into()),
    ] {
        handy.send_all(&[plain("twice")]).await;
        let message = handy.next(LONG).await;
        handy.settle_one(&message, outcome.clone()).await;
        let name = queue.identity().name.strip_prefix("redis:");
        let dead_letter_queue = format!("{}.dead", name.expect("a name"));
        let dead_letter_queue = open(&RedisServer::shared().url(), &dead_letter_queue).await;
        let depths = async || (queue.depth().await, dead_letter_queue.depth().await);
        let before = depths().await;
        let again = queue.settle(&[(message, outcome.clone())]).await;
        assert_eq!(again, [Ok(())], "{outcome:?}");
        let after = depths().await;
        let counts = |depth: Result<Depth, _>| {
            let depth = depth.expect("it counts");
            (depth.waiting, depth.in_flight, depth.delayed)
        };
        assert_eq!(counts(after.0), counts(before.0), "{outcome:?}");
        assert_eq!(counts(after.1), counts(before.1), "{outcome:?}");
        if outcome == NOW {
            let again = handy.next(LONG).await;
            handy.settle_one(&again, Outcome::Delete).await;
        }
    }
}

#[tokio::test]
async fn cancelled_delivery_is_reported_lost_and_deleted() {
    let server = Redis::new(&RedisServer::shared().url(), "faults").expect("an address");
    let name = RedisServer::fresh_name("q");
    let queue = server.queue(&name, None).await.expect("it is there");
    let handy: &dyn Queue = &queue;
    handy.send_all(&[plain("task")]).await;
    let message = handy.next(LONG).await;
    let cancelled = server.cancel(&name, "task").await.expect("it answers");
    assert_eq!((cancelled.waiting, cancelled.running), (0, 1));
    assert_eq!(
        queue.lost().await,
        [Loss::cancelled(message.receipt.clone())]
    );
    let extended = queue.extend(&[(message.receipt.clone(), LONG)]).await;
    assert_eq!(extended, [Err(ItemError::Cancelled)]);
    assert_eq!(queue.depth().await, Ok(Default::default()));
}

#[tokio::test]
async fn worker_declared_dead_loses_its_messages_and_rejoins() {
    let server = RedisServer::start(&[]);
    let queue = open(&server.url(), "q").await;
    let handy: &dyn Queue = &queue;
    handy.send_all(&["a", "b"].map(plain)).await;
    let held = handy.take(2, LONG).await;
    let mut plain_client = server.connect();
    let workers = plain_client.call(&["SMEMBERS", "{faults}:workers"]);
    let worker = workers.expect("an answer").text();
    let key = format!("{{faults}}:worker:{worker}");
    let removed = plain_client.call(&["DEL", &key]).expect("an answer");
    assert_eq!(removed.number(), 1);
    let mut lost = queue.lost().await;
    lost.sort_by(|a, b| a.receipt.0.cmp(&b.receipt.0));
    let receipts = held.iter().map(|message| message.receipt.clone());
    assert_eq!(lost, receipts.map(Loss::taken).collect::<Vec<_>>());
    // The same queue receives again, under another name, and in the old order.
    let again = handy.take(2, LONG).await;
    let of = |messages: &[dispatcher_core::message::Message]| {
        messages
            .iter()
            .map(|message| message.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&again), of(&held));
    assert_eq!(again[0].receive_count, 2);
    let stale = queue.settle(&[(held[0].clone(), Outcome::Delete)]).await;
    assert!(matches!(stale[..], [Err(ItemError::Gone(_))]), "{stale:?}");
    let left = plain_client.call(&["SMEMBERS", "{faults}:workers"]);
    let left = left.expect("an answer").texts();
    assert!(!left.contains(&worker), "it is forgotten");
}

#[tokio::test]
async fn unreachable_server_is_reported_until_it_is_up() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let server = Redis::new(&url, "faults").expect("an address");
    let error = server.queue("q", None).await.err().expect("nobody");
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    assert!(!error.message.contains('\n'), "{error}");
    let mut server = RedisServer::durable();
    let queue = open(&server.url(), "q").await;
    let handy: &dyn Queue = &queue;
    handy.send_all(&[plain("kept")]).await;
    let message = handy.next(LONG).await;
    server.kill();
    let answers = queue.settle(&[(message.clone(), Outcome::Delete)]).await;
    assert!(
        matches!(answers[..], [Err(ItemError::Transient(_))]),
        "{answers:?}"
    );
    let error = queue
        .receive(ask(Duration::ZERO), &CancellationToken::new())
        .await;
    assert_eq!(error.expect_err("nobody").kind, ErrorKind::Unreachable);
    let _server = server.again();
    // Calls that come at once share the answer of the last attempt to connect.
    let answers = loop {
        let answers = queue.settle(&[(message.clone(), Outcome::Delete)]).await;
        if !matches!(answers[..], [Err(ItemError::Transient(_))]) {
            break answers;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(answers, [Ok(())]);
    assert_eq!(queue.depth().await, Ok(Default::default()));
}

#[tokio::test]
async fn server_that_becomes_a_replica_is_transient_and_reconnected() {
    let server = RedisServer::start(&[]);
    let queue = open(&server.url(), "q").await;
    let handy: &dyn Queue = &queue;
    handy.send_all(&[plain("before")]).await;
    let mut other = server.connect();
    let master = free_port().to_string();
    other
        .call(&["REPLICAOF", "127.0.0.1", &master])
        .expect("an answer");
    let answers = queue.send(&[plain("refused")]).await;
    let [Err(ItemError::Transient(words))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert!(words.contains("read only replica"), "{words}");
    let error = queue
        .receive(ask(Duration::ZERO), &CancellationToken::new())
        .await;
    assert_eq!(error.expect_err("a replica").kind, ErrorKind::Transient);
    other.call(&["REPLICAOF", "NO", "ONE"]).expect("an answer");
    handy.send_all(&[plain("after")]).await;
    let connections = other.call(&["INFO", "stats"]).expect("an answer").text();
    let made = connections
        .lines()
        .find_map(|line| line.strip_prefix("total_connections_received:"))
        .and_then(|number| number.trim().parse::<u32>().ok());
    // The test's, one that asked whether it is up, and our three.
    assert!(made.is_some_and(|made| made >= 5), "{made:?}");
}

#[tokio::test]
async fn messages_of_a_lost_answer_are_redelivered_at_once() {
    let server = RedisServer::shared();
    let relay = Relay::before(server.address());
    let name = RedisServer::fresh_name("q");
    let queue = open(&format!("redis://{}", relay.address()), &name).await;
    let handy: &dyn Queue = &queue;
    // It has joined, so that the next call is the claim.
    handy.expect_nothing().await;
    let beside = open(&server.url(), &name).await;
    let beside: &dyn Queue = &beside;
    beside.send_all(&["needle-1", "needle-2"].map(plain)).await;
    relay.swallow_answer_with("needle-2");
    let error = queue
        .receive(ask(Duration::ZERO), &CancellationToken::new())
        .await;
    assert_eq!(error.expect_err("cut").kind, ErrorKind::Unreachable);
    // The lease is of ten minutes, and this process is alive.
    let again = handy.take(2, LONG).await;
    assert_eq!(bodies(&again), ["needle-1", "needle-2"]);
    assert_eq!(again[0].receive_count, 2);
}

#[tokio::test]
async fn hurried_receive_ends_early_and_loses_nothing() {
    let queue = fresh().await;
    let hurry = CancellationToken::new();
    let waiting = queue.receive(ask(PATIENT), &hurry);
    let hurrying = async {
        tokio::task::yield_now().await;
        hurry.cancel();
    };
    let (received, ()) = tokio::join!(waiting, hurrying);
    assert_eq!(received.expect("no error").messages, []);
    let handy: &dyn Queue = &queue;
    handy.send_all(&[plain("kept")]).await;
    assert_eq!(handy.next(LONG).await.receive_count, 1);
}

#[tokio::test]
async fn acl_user_needs_access_only_to_its_own_keys() {
    let server = RedisServer::start(&[]);
    let mut beside = server.connect();
    let mut user = "ACL SETUSER worker on >secret resetkeys resetchannels".to_owned();
    user += " ~{own}* ~{own:* &{own:* +@all -@dangerous -@admin";
    let words: Vec<&str> = user.split(' ').collect();
    assert_eq!(beside.call(&words).expect("an answer").text(), "OK");
    let words = ["CONFIG", "SET", "requirepass", "another"];
    assert_eq!(beside.call(&words).expect("an answer").text(), "OK");
    let at = |user: &str| format!("redis://{user}{}", server.address());
    for denied in ["", "worker:wrong@", ":secret@"] {
        let server = Redis::new(&at(denied), "own").expect("an address");
        let error = server.queue("q", None).await.err().expect("denied");
        assert_eq!(error.kind, ErrorKind::AccessDenied, "{error}");
    }
    let server = Redis::new(&at("worker:secret@"), "own").expect("an address");
    let queue = server.queue("q", None).await.expect("it is let in");
    let handy: &dyn Queue = &queue;
    handy.send_all(&["a", "b"].map(plain)).await;
    for outcome in [NOW, Outcome::Delete, Outcome::DeadLetter("why".into())] {
        let message = handy.next(LONG).await;
        let extended = queue.extend(&[(message.receipt.clone(), LONG)]).await;
        assert_eq!(extended, [Ok(())]);
        handy.settle_one(&message, outcome).await;
    }
    assert_eq!(queue.depth().await, Ok(Default::default()));
    assert_eq!(server.names().await, Ok(vec!["q".into(), "q.dead".into()]));
    assert_eq!(server.workers().await.expect("it is told").len(), 1);
    let left = server.cancel("q.dead", "b").await.expect("it answers");
    assert_eq!((left.waiting, left.running), (1, 0));
    // Another's keys are not its own.
    let other = Redis::new(&at("worker:secret@"), "other").expect("an address");
    let other = other.queue("q", None).await.expect("it is let in");
    let refused = other.send(&[plain("x")]).await;
    assert!(
        matches!(refused[..], [Err(ItemError::Transient(_))]),
        "{refused:?}"
    );
}

#[tokio::test]
async fn invalid_addresses_prefixes_and_dead_letter_queues_are_refused() {
    for (url, prefix) in [("http://127.0.0.1", "p"), ("redis://127.0.0.1", "a{b")] {
        let error = Redis::new(url, prefix).err().expect(url);
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(error.message.contains("wanted"), "{error}");
    }
    let server = Redis::new(&RedisServer::shared().url(), "faults").expect("an address");
    let error = server.queue("q", Some("q")).await.err().expect("itself");
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    let dead = server.queue("q.dead", None).await.expect("it is there");
    assert!(!dead.identity().dead_letters);
}
