//! What a handler answers, and what becomes of the message.

use crate::scene::{depth, field, run, send, until_depth};
use dispatcher_core::message::AttributeValue;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::Signal;

#[tokio::test]
async fn rejected_message_is_dead_lettered_with_its_reason() {
    let mut running = run("verdicts", &[]).start();
    send(
        running.data().path(),
        "default",
        ["reject:no such customer".into()],
    )
    .await;
    running.wait_for_line(|line| line.contains("dead-lettered"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let store = LocalStore::open(running.data().path()).expect("opens");
    let dead = store.queue("default.dead", None).expect("opens");
    let letters = dead.peek(10).await.expect("looks");
    assert_eq!(letters.len(), 1);
    let reason = letters[0]
        .attributes
        .iter()
        .find(|a| a.name == "dispatcher-dead-letter-reason");
    let reason = reason.map(|attribute| attribute.value.clone());
    assert_eq!(
        reason,
        Some(AttributeValue::Text("no such customer".into()))
    );
    assert_eq!(depth(running.data().path(), "default").await.waiting, 0);
}

#[tokio::test]
async fn lesson_24_retry_is_redelivered_after_the_requested_delay() {
    let mut running = run("verdicts", &["--log-level", "debug"]).start();
    send(running.data().path(), "default", ["retry-until:3".into()]).await;
    // It asks for a retry at once until the third delivery, which is done.
    running.wait_for_lines(2, |line| line.contains("asked for a retry"));
    until_depth(running.data().path(), "default", |depth| {
        depth == Default::default()
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let asked = running.text(dispatcher_tests::child::Stream::Err);
    assert_eq!(asked.matches("asked for a retry").count(), 2);
    assert_eq!(
        depth(running.data().path(), "default.dead").await,
        Default::default()
    );
}

#[tokio::test]
async fn requested_delay_is_respected() {
    let mut running = run("verdicts", &["--log-level", "debug"]).start();
    send(running.data().path(), "default", ["retry:3600000".into()]).await;
    running.wait_for_line(|line| line.contains("asked for a retry"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(depth(running.data().path(), "default").await.delayed, 1);
}

#[tokio::test]
async fn attempts_end_at_the_maximum() {
    let mut running = run("verdicts", &["--max-attempts", "2"]).start();
    send(running.data().path(), "default", ["trap".into()]).await;
    running.wait_for_lines(2, |line| {
        line.contains("trapped") && line.contains("receive_count")
    });
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(
        depth(running.data().path(), "default.dead").await.waiting,
        1
    );
}

#[tokio::test]
async fn reason_cannot_inject_a_log_line() {
    let mut running = run("verdicts", &[]).start();
    let body = "reject:a\n13:00:00.000Z  INFO forged: \u{1b}[31mred".to_owned();
    send(running.data().path(), "default", [body]).await;
    let line = running.wait_for_line(|line| line.contains("forged"));
    assert!(line.contains("message dead-lettered"), "{line}");
    assert!(!line.contains('\u{1b}'), "{line}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn batch_plugin_answers_for_each_message() {
    let mut running = run(
        "batch-verdicts",
        &["--batch-size", "10", "--log-level", "debug"],
    )
    .start();
    let bodies = ["done", "reject:this one", "done", "retry:3600000", "done"];
    send(running.data().path(), "default", bodies.map(String::from)).await;
    running.wait_for_line(|line| line.contains("dead-lettered") && line.contains("this one"));
    running.wait_for_line(|line| line.contains("asked for a retry"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let left = depth(running.data().path(), "default").await;
    assert_eq!((left.waiting, left.in_flight, left.delayed), (0, 0, 1));
}

#[tokio::test]
async fn batch_sum_example_runs() {
    let mut running = run("batch-sum", &["--batch-size", "10"]).start();
    send(
        running.data().path(),
        "default",
        (1..=4).map(|n| n.to_string()),
    )
    .await;
    until_depth(running.data().path(), "default", |depth| {
        depth == Default::default()
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    // However the four were put into batches, their sums add up.
    let sums = crate::scene::prints(&running);
    let total: i64 = sums
        .iter()
        .map(|sum| sum.parse::<i64>().expect("a sum"))
        .sum();
    assert_eq!(total, 10, "{sums:?}");
}

#[tokio::test]
async fn order_check_example_rejects_malformed_orders() {
    let mut running = run("order-check", &[]).start();
    send(running.data().path(), "default", ["not json".into()]).await;
    let line = running.wait_for_line(|line| line.contains("dead-lettered"));
    assert_eq!(field(&line, "level"), "WARN");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}
