//! Queues that keep groups: each in order whatever fails, many concurrently, and no group blocked
//! by an answer that was lost.

use crate::ordering::groups_scene::{
    GroupSource, OrderedFunction, bodies, queues, send_local, send_sqs,
};
use crate::scene::{prints, run};
use dispatcher_tests::proxy::{Mode, Proxy};
use dispatcher_tests::servers::MiniStack;
use serde_json::Value;

/// A thousand groups of SQS FIFO through a function that fails.
async fn sqs_fifo(seed: u64, more: &[&str]) {
    let (server, [(name, url), (dead, _)]) = queues("fifo", true).await;
    let bodies = bodies(seed);
    send_sqs(&server, &url, GroupSource::Own, &bodies).await;
    let checked = OrderedFunction::start();
    let more = [more, &["--dead-letter", &dead]].concat();
    let mut running = checked.run(&name, &more).start();
    checked.finish(&mut running, bodies.len()).await;
    server.wait_until_empty(&url).await;
}

#[tokio::test]
async fn lesson_19_thousand_fifo_groups_keep_their_order_despite_failures() {
    sqs_fifo(1, &[]).await;
}

#[tokio::test]
async fn lesson_19_thousand_fifo_groups_keep_their_order_in_batches() {
    sqs_fifo(2, &["--batch-size", "10"]).await;
}

#[tokio::test]
async fn lesson_19_thousand_local_groups_keep_their_order_despite_failures() {
    for (seed, size) in [(3, "1"), (4, "10")] {
        let checked = OrderedFunction::start();
        let bodies = bodies(seed);
        let mut running = checked
            .run("local:default", &["--batch-size", size])
            .start();
        send_local(running.data().path(), "default", GroupSource::Own, &bodies).await;
        checked.finish(&mut running, bodies.len()).await;
    }
}

#[tokio::test]
async fn receive_with_a_lost_answer_is_repeated_with_the_same_id() {
    let (server, [(name, url), _]) = queues("lost", true).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let arguments = ["--queues", &name, "--poll-for", "1"];
    let mut running = run("verdicts", &arguments).aws(&proxy.url()).start();
    proxy.wait_until_seen(1, "ReceiveMessage");
    proxy.set(Mode::Cut);
    let before = proxy.seen("ReceiveMessage");
    proxy.wait_until_seen(before + 3, "ReceiveMessage");
    proxy.set(Mode::Pass);
    let cut = proxy.seen("ReceiveMessage");
    // The one that passes brings its answer; those after it ask anew.
    proxy.wait_until_seen(cut + 2, "ReceiveMessage");
    let message = [r#"{"order": {"customer": "c"}}"#.to_owned()];
    send_sqs(&server, &url, GroupSource::Own, &message).await;
    running.wait_for_line(|line| line.contains("dead-lett") || line.contains("rejected"));
    running.stop();
    assert!(prints(&running).is_empty());
    let ids: Vec<String> = proxy
        .requests("ReceiveMessage", "")
        .iter()
        .map(|(body, _)| id(body))
        .collect();
    let lost = &ids[before];
    let times = ids.iter().filter(|id| *id == lost).count();
    assert!(times >= 2, "asked again: {ids:?}");
    let last = ids.iter().rposition(|id| id == lost).expect("it is there");
    assert!(
        ids[last + 1..].iter().all(|id| id != lost),
        "until it was answered: {ids:?}"
    );
    assert!(last <= cut + 1, "and not after: {last} of {cut}, {ids:?}");
    assert_ne!(ids.first(), ids.last());
}

/// The id under which a receive was made.
fn id(body: &str) -> String {
    let body: Value = serde_json::from_str(body).expect("JSON");
    body["ReceiveRequestAttemptId"]
        .as_str()
        .expect("an id")
        .to_owned()
}
