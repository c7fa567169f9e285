//! The newest goes first, and what is too old is not handled: on the embedded queue and on SQS. A
//! function that answers when it is told to delays what comes after.

use crate::lambda::scene::admin;
use crate::ordering::age_scene::{
    QueuePlace, bodies, counted, holding, reason, until, until_counted, until_executed, until_held,
};
use crate::scene::{field, guest};
use dispatcher_core::queue::Depth;
use dispatcher_tests::child::{Program, Stream};
use dispatcher_tests::faulty_lambda::{FaultyLambda, LambdaStep};
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::servers::MiniStack;
use std::sync::Arc;
use std::time::Duration;

/// What waits at hand while one is handled goes from the newest to the oldest.
async fn newest_first(place: QueuePlace) {
    let lambda = holding(&["gate"]);
    let limits = ["--order", "lifo", "--prefetch", "40", "--concurrency", "1"];
    let arguments = [&limits[..], &["--admin", "127.0.0.1:0"]].concat();
    let mut running = place.start(&lambda, &arguments);
    let admin = admin(&running);
    place.send(["gate".to_owned()]).await;
    until_held(&lambda, "gate").await;
    place.send(bodies("n", 0..20)).await;
    until_counted(&admin, "dispatcher_messages_received_total", 21).await;
    lambda.release();
    let order = until_executed(&lambda, 21).await;
    place.until_empty().await;
    running.stop();
    let mut wanted = bodies("n", 0..20);
    wanted.push("gate".into());
    wanted.reverse();
    assert_eq!(order, wanted);
}

#[tokio::test]
async fn newest_message_goes_first_on_the_embedded_queue() {
    newest_first(QueuePlace::local()).await;
}

#[tokio::test]
async fn newest_received_message_goes_first_on_sqs() {
    newest_first(QueuePlace::sqs().await).await;
}

#[tokio::test]
async fn embedded_queue_delivers_the_newest_of_all() {
    let place = QueuePlace::local();
    let lambda = holding(&["gate", "n5"]);
    let mut running = place.start(&lambda, &["--order", "lifo", "--concurrency", "1"]);
    place.send(["gate".to_owned()]).await;
    until_held(&lambda, "gate").await;
    place.send(bodies("n", 0..10)).await;
    lambda.release();
    until_held(&lambda, "n5").await;
    place.send(bodies("m", 0..3)).await;
    lambda.release();
    let order = until_executed(&lambda, 14).await;
    running.stop();
    assert_eq!(order[..6], ["gate", "n9", "n8", "n7", "n6", "n5"]);
    // What was at hand before the newer ones were sent: what one poll brings, and one more.
    let old = order[6..].iter().take_while(|body| body.starts_with('n'));
    let old = old.count();
    assert!(old <= 3, "{order:?}");
    assert_eq!(order[6 + old..][..3], ["m2", "m1", "m0"]);
    let left: Vec<&String> = order[5..]
        .iter()
        .filter(|body| body.starts_with('n'))
        .collect();
    assert_eq!(left, ["n5", "n4", "n3", "n2", "n1", "n0"]);
}

/// A lone message that waits for company becomes too old before any comes.
async fn shed_while_waiting(place: QueuePlace) {
    let lambda = holding(&[]);
    let gather = ["--batch-size", "10", "--batch-window", "300"];
    let arguments = [&gather[..], &["--max-age", "1s", "--admin", "127.0.0.1:0"]].concat();
    let mut running = place.start(&lambda, &arguments);
    let admin = admin(&running);
    place.send(["lonely".to_owned()]).await;
    let letter = place.dead_letter().await;
    assert_eq!(
        (&*letter.body, reason(&letter)),
        ("lonely", "older than 1s")
    );
    place.until_empty().await;
    for name in [
        "messages_shed",
        "queue_messages_shed",
        "messages_dead_lettered",
        "messages_received",
    ] {
        // It is counted once the queue has answered, a moment after that is empty.
        until_counted(&admin, &format!("dispatcher_{name}_total"), 1).await;
    }
    running.stop();
    assert_eq!(lambda.state().invocations, 0);
    let log = running.text(Stream::Err);
    assert_eq!(log.matches("message shed").count(), 1, "{log}");
}

#[tokio::test]
async fn expired_message_on_the_embedded_queue_is_dead_lettered() {
    shed_while_waiting(QueuePlace::local()).await;
}

#[tokio::test]
async fn expired_message_on_sqs_is_dead_lettered() {
    shed_while_waiting(QueuePlace::sqs().await).await;
}

/// Full batches are handled, the rest waits for company and is dropped: all are accounted for.
async fn dropped(place: QueuePlace) {
    let lambda = holding(&[]);
    let gather = [
        "--batch-size",
        "10",
        "--batch-window",
        "300",
        "--order",
        "lifo",
    ];
    let shed = [
        "--prefetch",
        "9",
        "--max-age",
        "1s",
        "--shed",
        "drop",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut running = place.start(&lambda, &[&gather[..], &shed[..]].concat());
    let admin = admin(&running);
    place.send(bodies("n", 0..25)).await;
    place.until_empty().await;
    // As many as the function executed are done, and counted a moment after the queue is empty.
    let executed = lambda.state().executed() as u64;
    until_counted(&admin, "dispatcher_messages_done_total", executed).await;
    until_counted(&admin, "dispatcher_messages_shed_total", 25 - executed).await;
    let shed = counted(&admin, "dispatcher_messages_shed_total");
    let done = counted(&admin, "dispatcher_messages_done_total");
    running.stop();
    assert!(shed >= 5, "a batch is ten or none: {shed}");
    assert_eq!(lambda.state().executed() as u64, done);
    assert_eq!(done + shed, 25);
    let dead = place.dead.depth().await.expect("the queue tells");
    assert_eq!(dead.waiting, 0);
}

#[tokio::test]
async fn expired_message_on_the_embedded_queue_is_dropped_if_configured() {
    dropped(QueuePlace::local()).await;
}

#[tokio::test]
async fn expired_message_on_sqs_is_dropped_if_configured() {
    dropped(QueuePlace::sqs().await).await;
}

#[tokio::test]
async fn message_expired_on_arrival_never_starts() {
    let place = QueuePlace::local();
    place.send(["old".to_owned()]).await;
    let old = |depth: Depth| depth.oldest >= Some(Duration::from_millis(1_001));
    until(&place.queue, old).await;
    let lambda = holding(&[]);
    let mut running = place.start(&lambda, &["--max-age", "1s"]);
    let letter = place.dead_letter().await;
    assert_eq!(reason(&letter), "older than 1s");
    place.until_empty().await;
    running.stop();
    assert_eq!(lambda.state().invocations, 0);
}

#[tokio::test]
async fn message_throttled_by_a_function_can_expire() {
    let place = QueuePlace::sqs().await;
    let lambda = Arc::new(FaultyLambda::start());
    lambda.script(|_| LambdaStep::throttle());
    let mut running = place.start(&lambda, &["--max-age", "1s"]);
    place.send(["turned away".to_owned()]).await;
    let letter = place.dead_letter().await;
    assert_eq!(reason(&letter), "older than 1s");
    place.until_empty().await;
    running.stop();
    assert_eq!(lambda.state().executed(), 0);
}

#[tokio::test]
async fn dropped_message_that_is_redelivered_is_dropped_again() {
    let place = QueuePlace::sqs().await;
    let lambda = holding(&[]);
    let proxy = Proxy::before(MiniStack::shared().address());
    proxy.answer_next(1_000, "DeleteMessageBatch", 500, "{}");
    let wait = [
        "--batch-size",
        "10",
        "--batch-window",
        "300",
        "--visibility",
        "2",
    ];
    let drop = ["--max-age", "1s", "--shed", "drop", "--poll-for", "1"];
    let mut arguments = vec!["run", "--log-format", "json", "--function", "f"];
    arguments.extend(["--log-level", "info,message=debug"]);
    arguments.extend(["--queues", &place.arguments[0], "--admin", "127.0.0.1:0"]);
    arguments.extend([&wait[..], &drop].concat());
    let mut running = Program::new(arguments)
        .aws(&proxy.url())
        .env("AWS_ENDPOINT_URL_LAMBDA", &lambda.url())
        .start();
    let admin = admin(&running);
    place.send(["old".to_owned()]).await;
    running.wait_for_line(|line| {
        line.contains("message not settled") && field(line, "wanted") == "shed"
    });
    proxy.forget_answers();
    running.wait_for_line(|line| line.contains("duplicate dropped"));
    place.until_empty().await;
    assert_eq!(counted(&admin, "dispatcher_duplicates_dropped_total"), 1);
    running.stop();
    assert_eq!(lambda.state().invocations, 0);
}

#[tokio::test]
async fn maximum_age_needs_a_dead_letter_queue_or_drop() {
    let place = QueuePlace::sqs().await;
    let plugin = guest("verdicts");
    let queue = &place.arguments[0];
    let arguments = [
        "check",
        "--plugin",
        &plugin,
        "--queues",
        queue,
        "--max-age",
        "1m",
    ];
    let check = |more: &[&str]| {
        let program = Program::new([&arguments[..], more].concat());
        program.aws(&MiniStack::shared().url()).run()
    };
    let refused = check(&[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let what = format!("`{queue}` has no dead-letter queue for older messages");
    assert!(refused.stderr.contains(&what), "{refused:?}");
    for more in [
        &["--shed", "drop"][..],
        &["--dead-letter", &place.arguments[2]],
    ] {
        let accepted = check(more);
        assert_eq!(accepted.code, 0, "{accepted:?}");
    }
}
