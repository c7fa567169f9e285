//! What happens to messages when Lambda throttles, breaks or hides whether it ran: each is executed
//! at least once, and again only if the caller could not know or the function itself failed. The
//! proof is in the receive counts: an invocation that repeats a receive count came within the lease
//! of one before it, which only a throttle allows.

use crate::lambda::scene::{admin, forward_to, queue, queue_with_redrive, wait};
use crate::scene::{field, run};
use dispatcher_tests::child::Stream;
use dispatcher_tests::faulty_lambda::{
    FaultyLambda, InvocationRecords, LambdaStep, MessageHistory, mixed,
};
use dispatcher_tests::http;
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::Counts;
use std::sync::Arc;
use std::time::Duration;

fn bodies(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("n{n}"))
}

/// A function that throttles the first three invocations of each message, on a queue that gives up
/// a message that is received twice.
async fn throttled(messages: usize, more: &[&str]) -> InvocationRecords {
    let ((server, name, url), dead) = queue_with_redrive("throttles", 1, "30").await;
    let lambda = Arc::new(FaultyLambda::start());
    lambda.script(|invocation| match invocation.before() {
        0..3 => LambdaStep::throttle(),
        _ => LambdaStep::answer("null"),
    });
    server.send_many(&url, bodies(messages)).await;
    let mut running = forward_to(&lambda, &name, more).start();
    let all = move |state: &InvocationRecords| (state.executed() == messages).then_some(());
    wait(&lambda, all).await;
    server.wait_until_empty(&url).await;
    running.stop();
    let dead = server.counts(&dead).await;
    assert_eq!(dead, Counts::default(), "nothing is dead-lettered");
    lambda.state()
}

fn each_ran_once_in_its_first_lease(state: &InvocationRecords, messages: usize) {
    assert_eq!(state.seen.len(), messages);
    for seen in state.seen.values() {
        assert_eq!(seen.executed, 1, "{seen:?}");
        assert_eq!(seen.receive_counts, [1, 1, 1, 1], "{seen:?}");
    }
}

#[tokio::test]
async fn lesson_17_throttles_spend_no_receive_and_dead_letter_nothing() {
    let state = throttled(200, &["--concurrency", "50"]).await;
    each_ran_once_in_its_first_lease(&state, 200);
}

#[tokio::test]
async fn lesson_17_concurrency_of_one_is_enough() {
    let state = throttled(3, &["--concurrency", "1"]).await;
    each_ran_once_in_its_first_lease(&state, 3);
    assert_eq!(state.most_in_flight, 1);
}

#[tokio::test]
async fn lesson_18_slow_function_is_invoked_once_and_keeps_its_lease() {
    let (server, name, url) = queue("slow", &[("VisibilityTimeout", "2")]).await;
    let lambda = Arc::new(FaultyLambda::start());
    lambda.set_timeout(60);
    lambda.script(|_| LambdaStep::Answer(Duration::from_secs(7), "null".into()));
    server.send_many(&url, bodies(3)).await;
    let mut running = forward_to(&lambda, &name, &[]).start();
    server.wait_until_empty(&url).await;
    running.stop();
    for seen in lambda.state().seen.values() {
        assert_eq!((seen.invoked, seen.executed), (1, 1), "{seen:?}");
    }
}

/// What becomes of a message whose first invocation is befallen by this; and for how long, in
/// seconds, SQS was asked to hide it after that.
async fn befallen(first: LambdaStep) -> (MessageHistory, u64) {
    let (server, name, url) = queue("befallen", &[("VisibilityTimeout", "3")]).await;
    let lambda = Arc::new(FaultyLambda::start());
    lambda.set_timeout(1);
    lambda.script(move |invocation| match invocation.before() {
        0 => first.clone(),
        _ => LambdaStep::answer("null"),
    });
    server.send_many(&url, ["n".to_owned()]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    // What may have run is redelivered when the attempt would have been over.
    let mut running = forward_to(&lambda, &name, &["--timeout", "6s"])
        .env("AWS_ENDPOINT_URL", &proxy.url())
        .start();
    server.wait_until_empty(&url).await;
    running.stop();
    let seen = lambda.state().of("n").cloned();
    // An extension asks for the queue's three seconds, a release for anything else.
    let hidden = proxy.requests("ChangeMessageVisibilityBatch", "");
    let hidden = hidden.iter().filter_map(|(body, _)| {
        let body: serde_json::Value = serde_json::from_str(body).ok()?;
        body["Entries"][0]["VisibilityTimeout"].as_u64()
    });
    let longest = hidden.filter(|seconds| *seconds != 3).max();
    (seen.expect("it was invoked"), longest.unwrap_or_default())
}

/// Each invocation belongs to its own delivery, and the second begins when the first can be
/// under way no longer: that it may have run is known at once, with nearly all of six seconds left.
fn never_twice_in_a_lease((seen, hidden): &(MessageHistory, u64), executed: u32) {
    assert_eq!(seen.receive_counts, [1, 2], "{seen:?}");
    assert_eq!(seen.executed, executed, "{seen:?}");
    assert!((4..=6).contains(hidden), "hidden for {hidden} s: {seen:?}");
}

#[tokio::test]
async fn lesson_18_missing_response_is_not_retried_within_the_lease() {
    let (seen, _) = befallen(LambdaStep::Never).await;
    assert_eq!(
        (seen.receive_counts.as_slice(), seen.executed),
        (&[1, 2][..], 2)
    );
}

#[tokio::test]
async fn lesson_18_reset_connection_is_not_retried_within_the_lease() {
    never_twice_in_a_lease(&befallen(LambdaStep::Reset { ran: true }).await, 2);
    never_twice_in_a_lease(&befallen(LambdaStep::Reset { ran: false }).await, 1);
}

#[tokio::test]
async fn lesson_18_truncated_response_is_not_retried_within_the_lease() {
    never_twice_in_a_lease(&befallen(LambdaStep::Half).await, 2);
}

#[tokio::test]
async fn lesson_18_server_error_is_not_retried_within_the_lease() {
    never_twice_in_a_lease(&befallen(LambdaStep::Break { ran: true }).await, 2);
    never_twice_in_a_lease(&befallen(LambdaStep::Break { ran: false }).await, 1);
}

#[tokio::test]
async fn retry_after_is_honoured_and_spends_no_receive() {
    let (seen, _) = befallen(LambdaStep::Throttle {
        reason: "CallerRateLimitExceeded",
        retry_after: Some(1),
    })
    .await;
    assert_eq!(
        (seen.receive_counts.as_slice(), seen.executed),
        (&[1, 1][..], 1)
    );
}

fn said(running: &dispatcher_tests::child::RunningProgram, part: &str) -> usize {
    let text = running.text(Stream::Err);
    text.lines().filter(|line| line.contains(part)).count()
}

#[tokio::test]
async fn deleted_function_stops_receiving_until_it_exists_again() {
    let ((server, name, url), dead) = queue_with_redrive("deleted", 1, "30").await;
    let lambda = Arc::new(FaultyLambda::start());
    let proxy = Proxy::before(MiniStack::shared().address());
    let more = ["--admin", "127.0.0.1:0", "--concurrency", "2"];
    let mut running = forward_to(&lambda, &name, &more)
        .env("AWS_ENDPOINT_URL", &proxy.url())
        .start();
    let ready = format!("{}/readyz", admin(&running));
    server.send_many(&url, ["before".to_owned()]).await;
    wait(&lambda, |state| (state.executed() == 1).then_some(())).await;
    assert_eq!(http::wait_for_status(&ready, 200).status, 200);

    lambda.set_missing(true);
    server.send_many(&url, bodies(20)).await;
    wait(&lambda, |state| (state.refused >= 2).then_some(())).await;
    let red = http::wait_for_status(&ready, 503);
    assert!(red.body.contains("Function not found"), "{red:?}");
    // What was running when the route closed has come back by the time of another try.
    let refused = lambda.state().refused;
    wait(&lambda, move |state| {
        (state.refused > refused + 1).then_some(())
    })
    .await;
    let receives = proxy.seen("ReceiveMessage");
    let refused = lambda.state().refused;
    wait(&lambda, move |state| {
        (state.refused > refused).then_some(())
    })
    .await;
    assert_eq!(
        proxy.seen("ReceiveMessage"),
        receives,
        "nothing is received"
    );
    assert_eq!(said(&running, "Function not found"), 1, "one line a minute");

    lambda.set_missing(false);
    wait(&lambda, |state| (state.executed() == 21).then_some(())).await;
    http::wait_for_status(&ready, 200);
    server.wait_until_empty(&url).await;
    running.stop();
    for seen in lambda.state().seen.values() {
        assert_eq!((seen.executed, seen.receive_counts.last()), (1, Some(&1)));
    }
    assert_eq!(server.counts(&dead).await, Counts::default());
}

#[tokio::test]
async fn denied_invocation_opens_the_circuit_and_spends_no_receive() {
    let ((server, name, url), _) = queue_with_redrive("denied", 1, "30").await;
    let lambda = Arc::new(FaultyLambda::start());
    lambda.script(|invocation| match invocation.number {
        0 => LambdaStep::Deny,
        _ => LambdaStep::answer("null"),
    });
    server.send_many(&url, bodies(3)).await;
    let mut running = forward_to(&lambda, &name, &[]).start();
    running.wait_for_line(|line| line.contains("not authorized"));
    server.wait_until_empty(&url).await;
    running.stop();
    for seen in lambda.state().seen.values() {
        assert_eq!((seen.executed, seen.receive_counts.last()), (1, Some(&1)));
    }
}

/// So many messages through a function of which every twentieth invocation goes wrong.
async fn mix(messages: usize, seed: u64, more: &[&str]) {
    let (server, name, url) = queue("mix", &[("VisibilityTimeout", "8")]).await;
    let lambda = Arc::new(FaultyLambda::start());
    lambda.script(mixed(seed, 5));
    server.send_many(&url, bodies(messages)).await;
    let more = [&["--timeout", "10s"], more].concat();
    let mut running = forward_to(&lambda, &name, &more).start();
    let all = move |state: &InvocationRecords| (state.executed() == messages).then_some(());
    wait(&lambda, all).await;
    server.wait_until_empty(&url).await;
    running.stop();
    let state = lambda.state();
    assert_eq!(state.seen.len(), messages);
    let (mut faults, mut twice) = (0, 0);
    for seen in state.seen.values() {
        let spent = seen.unknown + seen.failed;
        assert!(
            (1..=1 + spent).contains(&seen.executed),
            "ran again without need: {seen:?}"
        );
        assert_eq!(
            seen.receive_counts.last(),
            Some(&(1 + spent)),
            "a receive was spent by what proved that nothing ran: {seen:?}"
        );
        assert_eq!(seen.invoked, 1 + spent + seen.throttled, "{seen:?}");
        faults += spent + seen.throttled;
        twice += seen.executed - 1;
    }
    assert!(faults > 0 && twice > 0, "the mix broke nothing: {state}");
    assert_eq!(
        server.counts(&url).await,
        Counts::default(),
        "none stranded"
    );
}

#[tokio::test]
async fn five_thousand_messages_survive_a_mix_of_faults() {
    mix(5_000, 3, &["--concurrency", "50"]).await;
}

#[tokio::test]
async fn batches_survive_a_mix_of_faults() {
    let more = ["--concurrency", "20", "--batch-size", "10"];
    mix(2_000, 4, &more).await;
}

#[tokio::test]
async fn plugin_can_invoke_only_granted_functions() {
    let (server, name, url) = queue("granted", &[("VisibilityTimeout", "30")]).await;
    let lambda = Arc::new(FaultyLambda::start());
    let more = [
        &["--queues", name.as_str(), "--poll-for", "1"][..],
        &["--allow-lambda", "allowed-*", "--admin", "127.0.0.1:0"],
    ]
    .concat();
    let mut running = run("forbidden", &more)
        .aws(&MiniStack::shared().url())
        .env("AWS_ENDPOINT_URL_LAMBDA", &lambda.url())
        .start();
    // A refusal closes the route; what is allowed goes before.
    server.send_many(&url, ["allowed-1".to_owned()]).await;
    wait(&lambda, |state| (state.invocations == 1).then_some(())).await;
    server.wait_until_empty(&url).await;
    server.send_many(&url, ["another".to_owned()]).await;
    let refusal = running.wait_for_line(|line| line.contains("another"));
    assert!(
        ["WARN", "ERROR"].contains(&&*field(&refusal, "level")),
        "{refusal}"
    );
    let metrics = format!("{}/metrics", admin(&running));
    let counted = |text: &str| {
        let mut lines = text.lines();
        lines.any(|line| {
            line.starts_with("dispatcher_capability_denials_total")
                && line.trim_end().ends_with(" 1")
        })
    };
    let metrics = http::get(&metrics);
    assert!(counted(&metrics.body), "{}", metrics.body);
    running.signal(dispatcher_tests::child::Signal::KILL);
    running.wait_exit();
    assert_eq!(lambda.state().invocations, 1, "the other one never left");
}
