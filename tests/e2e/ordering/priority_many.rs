//! Which queue's message comes first, when the program forwards from a real SQS server; proved by
//! the order in which the function saw them.

use crate::lambda::scene::{forward_to, queue, wait};
use crate::scene::send;
use dispatcher_tests::child::{RunningProgram, Signal};
use dispatcher_tests::faulty_lambda::{FaultyLambda, InvocationRecords, LambdaStep};
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use std::sync::Arc;

/// Queues that hold so many messages each, named in their bodies, before anything runs.
async fn filled(queues: &[(&str, usize)]) -> Vec<String> {
    let mut names = Vec::new();
    for (hint, count) in queues {
        let (server, name, url) = queue(hint, &[]).await;
        let body = (*hint).to_owned();
        server.send_many(&url, vec![body; *count]).await;
        names.push(name);
    }
    names
}

fn order(state: &InvocationRecords) -> Vec<String> {
    let bodies = state.executions.iter();
    bodies.map(|execution| execution.body.clone()).collect()
}

async fn strict(concurrency: usize) -> Vec<String> {
    let names = filled(&[("high", 150), ("middle", 150), ("low", 150)]).await;
    let lambda = Arc::new(FaultyLambda::start());
    let concurrency = concurrency.to_string();
    let more = ["--concurrency", &concurrency];
    let mut running = forward_to(&lambda, &names.join(","), &more).start();
    wait(&lambda, |state| (state.executed() == 450).then_some(())).await;
    running.stop();
    order(&lambda.state())
}

#[tokio::test]
async fn lesson_15_strict_is_strict_on_sqs() {
    let order = strict(1).await;
    let wanted = [["high"; 150], ["middle"; 150], ["low"; 150]].concat();
    assert_eq!(order, wanted);
}

#[tokio::test]
async fn lesson_15_strict_is_strict_at_high_concurrency() {
    let order = strict(10).await;
    // Ten are running at once, and on their way they may overtake each other.
    for (higher, lower) in [("high", "middle"), ("middle", "low")] {
        let last = order.iter().rposition(|queue| queue == higher);
        let first = order.iter().position(|queue| queue == lower);
        let overtaken = last.expect("it ran").saturating_sub(first.expect("it ran"));
        assert!(
            overtaken < 10,
            "{lower} began {overtaken} before {higher} ended"
        );
    }
}

#[tokio::test]
async fn lesson_15_arrival_on_a_higher_queue_goes_before_everything_waiting_below() {
    let (server, high, high_url) = queue("high", &[("VisibilityTimeout", "2")]).await;
    let low = filled(&[("low", 30)]).await.remove(0);
    let lambda = Arc::new(FaultyLambda::start());
    lambda.script(|invocation| match invocation.number {
        0 => LambdaStep::Hold("null".into()),
        _ => LambdaStep::answer("null"),
    });
    let proxy = Proxy::before(MiniStack::shared().address());
    let queues = format!("{high},{low}");
    let mut running = forward_to(&lambda, &queues, &["--concurrency", "1"])
        .env("AWS_ENDPOINT_URL", &proxy.url())
        .start();
    wait(&lambda, |state| (state.in_flight == 1).then_some(())).await;
    server.send_many(&high_url, ["urgent".to_owned()]).await;
    // Its idle long poll brings it although the only place is taken; that the program has it is proved
    // by the first extension of its lease.
    proxy.wait_for_request("ChangeMessageVisibilityBatch", &high);
    lambda.release();
    wait(&lambda, |state| (state.executed() == 31).then_some(())).await;
    running.stop();
    assert_eq!(order(&lambda.state())[1], "urgent");
}

/// Until so many have run, all of the queues hold more.
async fn until_picked(
    lambda: &Arc<FaultyLambda>,
    running: &mut RunningProgram,
    picks: usize,
) -> InvocationRecords {
    let enough = move |state: &InvocationRecords| (state.executions.len() >= picks).then_some(());
    wait(lambda, enough).await;
    running.signal(Signal::KILL);
    running.wait_exit();
    lambda.state()
}

fn shares_are_kept(state: &InvocationRecords, picks: usize) {
    let order = order(state);
    for (queue, weight) in [("a", 3.0), ("b", 2.0), ("c", 1.0)] {
        let got = order[..picks].iter().filter(|name| *name == queue).count();
        let share = got as f64 / picks as f64;
        let off = (share - weight / 6.0_f64).abs();
        assert!(off < 0.01, "{queue}: {share}");
    }
}

#[tokio::test]
async fn weights_hold_within_one_percent_over_ten_thousand_picks() {
    let lambda = Arc::new(FaultyLambda::start());
    let data = Arc::new(tempfile::tempdir().expect("a folder"));
    for (queue, count) in [("a", 6_500), ("b", 4_700), ("c", 3_000)] {
        send(data.path(), queue, vec![queue.to_owned(); count]).await;
    }
    let queues = "local:a:3,local:b:2,local:c:1";
    let more = ["--concurrency", "20"];
    let mut running = forward_to(&lambda, queues, &more).sharing(&data).start();
    let state = until_picked(&lambda, &mut running, 10_000).await;
    shares_are_kept(&state, 10_000);
}

#[tokio::test]
async fn weights_hold_on_sqs() {
    // A server that slows down with its backlog: fewer picks than of the embedded queue.
    let names = filled(&[("a", 2_000), ("b", 1_500), ("c", 1_000)]).await;
    let lambda = Arc::new(FaultyLambda::start());
    let queues = format!("{}:3,{}:2,{}:1", names[0], names[1], names[2]);
    let more = ["--concurrency", "20"];
    let mut running = forward_to(&lambda, &queues, &more).start();
    let state = until_picked(&lambda, &mut running, 3_000).await;
    shares_are_kept(&state, 3_000);
}

#[tokio::test]
async fn lesson_14_message_on_any_of_twenty_idle_sqs_queues_is_picked_up() {
    let mut queues = Vec::new();
    for _ in 0..20 {
        queues.push(queue("idle", &[]).await);
    }
    let lambda = Arc::new(FaultyLambda::start());
    let proxy = Proxy::before(MiniStack::shared().address());
    let names: Vec<&str> = queues.iter().map(|(_, name, _)| name.as_str()).collect();
    let more = ["--poll-for", "20", "--concurrency", "1"];
    let mut running = forward_to(&lambda, &names.join(","), &more)
        .env("AWS_ENDPOINT_URL", &proxy.url())
        .start();
    // A short poll proves that a queue is empty; then a long one is parked at each.
    proxy.wait_until_seen(40, "ReceiveMessage");
    let empty = proxy.answered_with_nothing("ReceiveMessage");
    for (server, name, url) in queues.iter().rev() {
        server.send_many(url, [name.clone()]).await;
        let name = name.clone();
        wait(&lambda, move |state| state.of(&name).map(|_| ())).await;
    }
    // Every idle long poll brought its message: had one message waited for another queue's poll to end
    // without any, that would have been an empty answer for each of the twenty. What follows a
    // message may be one short poll.
    let empty = proxy.answered_with_nothing("ReceiveMessage") - empty;
    assert!(empty <= 20, "{empty} polls ended without a message");
    running.signal(Signal::KILL);
    running.wait_exit();
}

/// A number in the body of each call.
fn numbers(calls: &[(String, bool)], field: &str) -> Vec<Option<u64>> {
    let bodies = calls.iter().map(|(body, _)| body);
    let number = |body: &String| {
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        body[field].as_u64()
    };
    bodies.map(number).collect()
}

/// Eight queues that stay empty, the name of one below them, and how to send to that one.
async fn idle_and_busy() -> (Vec<String>, String, (SqsServer, String)) {
    let mut names = Vec::new();
    for _ in 0..8 {
        names.push(queue("idle", &[]).await.1);
    }
    let (server, busy, url) = queue("busy", &[]).await;
    names.push(busy.clone());
    (names, busy, (server, url))
}

#[tokio::test]
async fn lesson_16_idle_queue_has_one_long_poll_at_a_time() {
    let (names, _, (server, busy_url)) = idle_and_busy().await;
    let lambda = Arc::new(FaultyLambda::start());
    let proxy = Proxy::before(MiniStack::shared().address());
    let more = ["--poll-for", "20", "--concurrency", "50"];
    let mut running = forward_to(&lambda, &names.join(","), &more)
        .env("AWS_ENDPOINT_URL", &proxy.url())
        .start();
    proxy.wait_until_seen(18, "ReceiveMessage");
    // Work on one queue makes no calls to the others.
    for n in 0..100 {
        server.send_many(&busy_url, [format!("n{n}")]).await;
        wait(&lambda, move |state| {
            (state.executed() == n + 1).then_some(())
        })
        .await;
    }
    for name in &names[..8] {
        let calls = proxy.requests("ReceiveMessage", name);
        let waits = numbers(&calls, "WaitTimeSeconds");
        // The first only proves that the queue is empty. Each that follows waits for 20 s, and there
        // is one at a time: three a minute at most.
        assert!(waits[1..].iter().all(|wait| *wait == Some(20)), "{waits:?}");
        let parked = calls.iter().filter(|(_, answered)| !answered).count();
        assert!(parked <= 1, "{parked} polls at once");
    }
    running.signal(Signal::KILL);
    running.wait_exit();
}

#[tokio::test]
async fn idle_queues_leave_the_memory_to_those_that_hold_messages() {
    let (names, busy, (server, busy_url)) = idle_and_busy().await;
    let lambda = Arc::new(FaultyLambda::start());
    let proxy = Proxy::before(MiniStack::shared().address());
    // Room for 8 messages of the largest size: were it kept free for what 9 idle queues might bring,
    // each receive would be of one message, and none would show that its queue is empty.
    let more = ["--message-memory", "8MiB", "--concurrency", "20"];
    let mut running = forward_to(&lambda, &names.join(","), &more)
        .env("AWS_ENDPOINT_URL", &proxy.url())
        .start();
    proxy.wait_until_seen(18, "ReceiveMessage");
    server.send_many(&busy_url, vec!["x".to_owned(); 100]).await;
    wait(&lambda, |state| (state.executed() == 100).then_some(())).await;
    let calls = proxy.requests("ReceiveMessage", &busy);
    let numbers = numbers(&calls, "MaxNumberOfMessages");
    let most = numbers.into_iter().flatten().max();
    assert!(most > Some(2), "at most in one receive: {most:?}");
    running.signal(Signal::KILL);
    running.wait_exit();
}
