//! What only Redis has: the connections of a process to the server, one of which may stand still or be
//! full while the other keeps the process alive.

use crate::backend::{Handy, LONG, PATIENT, bodies, plain};
use dispatcher_core::message::{Attribute, Outcome};
use dispatcher_core::queue::{Ask, ErrorKind, ItemError, Queue};
use dispatcher_redis::queue::{NativeQueue, Redis};
use dispatcher_tests::PATIENCE;
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::relay::Relay;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

async fn open(address: impl std::fmt::Display, name: &str) -> NativeQueue {
    let server = Redis::new(&format!("redis://{address}"), "lines").expect("an address");
    server.queue(name, None).await.expect("it is there")
}

const ASK: Ask = Ask {
    max: 100,
    visibility: LONG,
    wait: Duration::ZERO,
    newest_first: false,
    ..Ask::PLAIN
};

#[tokio::test]
async fn stalled_answer_costs_no_lease() {
    let server = RedisServer::shared();
    let relay = Relay::before(server.address());
    let name = RedisServer::fresh_name("q");
    let queue = open(relay.address(), &name).await;
    let handy: &dyn Queue = &queue;
    handy.send_all(&["held", "needle"].map(plain)).await;
    let held = handy.next(LONG).await;
    let _begun = relay.stall_at("needle");
    // It takes longer to give up than a worker lives without a sign of life.
    let error = queue.receive(ASK, &CancellationToken::new()).await;
    assert_eq!(error.expect_err("no answer").kind, ErrorKind::Unreachable);
    let lost = tokio::time::timeout(Duration::ZERO, queue.lost()).await;
    assert!(lost.is_err(), "the worker was given up: {lost:?}");
    handy.settle_one(&held, Outcome::Delete).await;
    let again = handy.take(1, LONG).await;
    assert_eq!(bodies(&again), ["needle"]);
}

#[tokio::test]
async fn long_dead_lettering_of_a_dead_worker_does_not_delay_the_living() {
    let server = RedisServer::start(&[]);
    let relay = Relay::before(server.address());
    let queue = open(relay.address(), "q").await;
    let handy: &dyn Queue = &queue;
    handy.send_all(&[plain("held")]).await;
    let held = handy.next(LONG).await;
    // What the beat tells of the dead is not the call that cleans up after it: `needle` is a
    // queue's name.
    let mut beside = server.connect();
    let begun = relay.stall_at("{lines:needle}");
    for words in [
        ["SADD", "{lines}:worker:dead:queues", "needle"],
        ["SADD", "{lines}:workers", "dead"],
    ] {
        assert_eq!(beside.call(&words).expect("an answer").number(), 1);
    }
    // The beats continue meanwhile, on this thread.
    let begun = tokio::task::spawn_blocking(move || begun.recv_timeout(PATIENCE));
    let begun = begun.await.expect("it does not panic");
    begun.expect("it is being dead-lettered");
    let deadline = Instant::now() + PATIENCE;
    while beside
        .call(&["SISMEMBER", "{lines}:workers", "dead"])
        .expect("an answer")
        .number()
        == 1
    {
        assert!(Instant::now() < deadline, "it is never dead-lettered");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(queue.settle(&[(held, Outcome::Delete)]).await, [Ok(())]);
}

#[tokio::test]
async fn queued_calls_survive_a_lost_answer_ahead_of_them() {
    let server = RedisServer::shared();
    let relay = Relay::before(server.address());
    let redis = Redis::new(&format!("redis://{}", relay.address()), "lines").expect("an address");
    let mut queues = Vec::new();
    for body in ["needle", "second", "third"] {
        let name = RedisServer::fresh_name("q");
        let queue = redis.queue(&name, None).await.expect("it is there");
        // It has joined, so that the next call is the claim.
        (&queue as &dyn Queue).expect_nothing().await;
        let beside = open(server.address(), &name).await;
        (&beside as &dyn Queue).send_all(&[plain(body)]).await;
        queues.push(queue);
    }
    let _begun = relay.stall_at("needle");
    let hurry = CancellationToken::new();
    let (first, second, third) = tokio::join!(
        biased;
        queues[0].receive(ASK, &hurry),
        queues[1].receive(ASK, &hurry),
        queues[2].receive(ASK, &hurry)
    );
    for answer in [first, second] {
        assert_eq!(answer.expect_err("no answer").kind, ErrorKind::Unreachable);
    }
    // Its time began when it had the line.
    assert_eq!(bodies(&third.expect("an answer").messages), ["third"]);
}

#[tokio::test]
async fn dead_lettering_long_messages_does_not_delay_short_calls() {
    let server = RedisServer::shared();
    let relay = Relay::before(server.address());
    let queue = open(relay.address(), &RedisServer::fresh_name("q")).await;
    let handy: &dyn Queue = &queue;
    let mut long = plain("long");
    let tenant = Attribute::text("tenant", "needle".repeat(5_000));
    long.attributes.push(tenant);
    handy.send_all(&[long, plain("short")]).await;
    let [long, short] = &handy.take(2, LONG).await[..] else {
        panic!("two");
    };
    let _begun = relay.stall_at("needle");
    let items = [
        (long.clone(), Outcome::DeadLetter("why".into())),
        (short.clone(), Outcome::Delete),
    ];
    let told = queue.settle(&items).await;
    assert!(
        matches!(told[..], [Err(ItemError::Transient(_)), Ok(())]),
        "{told:?}"
    );
    let lost = tokio::time::timeout(Duration::ZERO, queue.lost()).await;
    assert!(lost.is_err(), "the worker was given up: {lost:?}");
    assert_eq!(queue.settle(&items[..1]).await, [Ok(())]);
}

#[tokio::test]
async fn receive_returns_what_one_answer_can_carry_and_the_rest_next() {
    const SIZE: usize = 3_000_000;
    let queue = open(
        RedisServer::shared().address(),
        &RedisServer::fresh_name("q"),
    )
    .await;
    let handy: &dyn Queue = &queue;
    let mut sizes = [SIZE; 8];
    sizes[5] = 3 * SIZE;
    let long = sizes.map(|size| plain(&"x".repeat(size)));
    handy.send_all(&long).await;
    assert_eq!(queue.peek(100).await.expect("it looks").len(), 2);
    let mut come = Vec::new();
    for (count, drained) in [(2, false), (2, false), (1, false), (1, false), (2, true)] {
        let received = queue.receive(ASK, &CancellationToken::new()).await;
        let received = received.expect("an answer");
        assert_eq!(
            (received.messages.len(), received.drained),
            (count, drained)
        );
        come.extend(received.messages.iter().map(|message| message.body.len()));
    }
    assert_eq!(come, sizes);
    let refused = queue.send(&[plain(&"x".repeat(32_000_001))]).await;
    assert!(
        matches!(refused[..], [Err(ItemError::Refused(_))]),
        "too long for any call"
    );
}

#[tokio::test]
async fn late_claim_takes_nothing() {
    let server = RedisServer::start(&[]);
    let relay = Relay::before(server.address());
    let queue = open(relay.address(), "q").await;
    let handy: &dyn Queue = &queue;
    // It has joined, so that the next call is the claim.
    handy.expect_nothing().await;
    let beside = open(server.address(), "q").await;
    let beside: &dyn Queue = &beside;
    beside.send_all(&["a", "b"].map(plain)).await;
    let on_its_way = relay.delay_call_with("oldest");
    let error = queue.receive(ASK, &CancellationToken::new()).await;
    assert_eq!(error.expect_err("cut").kind, ErrorKind::Unreachable);
    assert_eq!(handy.next(LONG).await.body, "a");
    let mut monitor = server.connect();
    monitor.call(&["MONITOR"]).expect("an answer");
    drop(on_its_way);
    while !monitor
        .receive_reply()
        .expect("a line")
        .text()
        .contains("oldest")
    {}
    let depth = queue.depth().await.expect("it counts");
    assert_eq!((depth.waiting, depth.in_flight), (1, 1));
    assert_eq!(handy.next(LONG).await.body, "b");
}

/// Takes everything while answers are lost and calls come late, under leases that outlast the test.
async fn take_all_battered(queue: &dyn Queue, relay: &Relay) {
    const MESSAGES: usize = 60;
    const FAULTS: usize = 40;
    let sent: Vec<String> = (0..MESSAGES).map(|n| format!("needle-{n:02}")).collect();
    queue.expect_nothing().await;
    queue
        .send_all(&sent.iter().map(|body| plain(body)).collect::<Vec<_>>())
        .await;
    let (mut late, mut handled, mut failed) = (Vec::new(), BTreeSet::new(), 0);
    for round in 0.. {
        match round % 5 {
            _ if round >= FAULTS => late.clear(),
            0 | 3 => relay.swallow_answer_with("needle-"),
            // What a receive says of its bytes, and no other call.
            1 => late.push(relay.delay_call_with("8000000")),
            // By now another receive has been answered, or lost as well.
            4 => late.clear(),
            _ => {}
        }
        let ask = Ask { max: 2, ..ASK };
        let Ok(received) = queue.receive(ask, &CancellationToken::new()).await else {
            failed += 1;
            continue;
        };
        for message in received.messages {
            queue.settle_one(&message, Outcome::Delete).await;
            handled.insert(message.body);
        }
        if round >= FAULTS && queue.depth().await == Ok(Default::default()) {
            break;
        }
    }
    assert!(handled.iter().eq(&sent), "{handled:?}");
    assert!(failed >= FAULTS / 5, "{failed}");
}

#[tokio::test]
async fn lost_answers_and_late_calls_leave_nothing_behind() {
    let server = RedisServer::shared();
    let relay = Relay::before(server.address());
    let name = RedisServer::fresh_name("q");
    let native = open(relay.address(), &name).await;
    let taking = take_all_battered(&native, &relay);
    tokio::time::timeout(PATIENCE, taking)
        .await
        .expect("nothing is left behind");
    let redis = Redis::new(&format!("redis://{}", relay.address()), "lines").expect("an address");
    let worqr = redis.worqr(&name, "q", None).await.expect("it is there");
    let taking = take_all_battered(&worqr, &relay);
    tokio::time::timeout(PATIENCE, taking)
        .await
        .expect("nothing is left behind");
}

#[tokio::test]
async fn worker_declared_dead_does_not_rejoin_late() {
    let server = RedisServer::start(&[]);
    let redis = Redis::new(&server.url(), "lines").expect("an address");
    let queue = redis.queue("q", None).await.expect("it is there");
    (&queue as &dyn Queue).expect_nothing().await;
    let mut beside = server.connect();
    let mut ask = |words: &[&str]| beside.call(words).expect("an answer").texts();
    let worker = ask(&["SMEMBERS", "{lines:q}:workers"]).remove(0);
    // Whoever cleans up after a worker notes it at each of its queues.
    ask(&["SET", &format!("{{lines:later}}:w:{worker}:gone"), ""]);
    let later = redis.queue("later", None).await.expect("it is there");
    let error = later.receive(ASK, &CancellationToken::new()).await;
    assert_eq!(error.expect_err("too late").kind, ErrorKind::Transient);
    assert!(ask(&["SMEMBERS", "{lines:later}:workers"]).is_empty());
    (&later as &dyn Queue).expect_nothing().await;
    let anew = ask(&["SMEMBERS", "{lines:later}:workers"]);
    assert!(anew.len() == 1 && anew[0] != worker, "it has begun anew");
}

#[tokio::test]
async fn each_send_wakes_a_waiting_receiver() {
    /// Looks without a notification, five seconds apart, would take longer than a test's patience.
    const WAKES: u32 = 40;
    let queue = open(
        RedisServer::shared().address(),
        &RedisServer::fresh_name("q"),
    )
    .await;
    let handy: &dyn Queue = &queue;
    let waking = async {
        for at in 0..WAKES {
            let send = async { handy.send_all(&[plain(&at.to_string())]).await };
            let (received, _) = tokio::join!(biased; handy.receive_up_to(1, LONG, PATIENT), send);
            assert_eq!(bodies(&received.messages), [at.to_string()]);
        }
    };
    tokio::time::timeout(PATIENCE, waking)
        .await
        .expect("each wait ends when something is sent");
}
