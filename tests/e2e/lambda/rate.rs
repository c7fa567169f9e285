//! A queue's rate is kept, and changes while the program runs.

use crate::lambda::scene::{forward_to, queue, wait};
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::faulty_lambda::{FaultyLambda, InvocationRecords, MessageHistory};
use dispatcher_tests::servers::MiniStack;
use std::sync::Arc;
use std::time::Instant;

/// Messages a second of the limited queue.
const RATE: f64 = 40.0;
/// This many started at once are within a rate: what has saved up during a second without work.
const BURST_S: f64 = 1.0;

#[tokio::test]
async fn starts_do_not_exceed_the_rate() {
    let (server, name, url) = queue("rate", &[]).await;
    let lambda = Arc::new(FaultyLambda::start());
    server
        .send_many(&url, (0..200).map(|n| format!("n{n}")))
        .await;
    let rate = format!("{name}={RATE}/s");
    let before = Instant::now();
    let mut running = forward_to(&lambda, &name, &["--rate", &rate]).start();
    let all = |state: &InvocationRecords| (state.executed() == 200).then_some(());
    wait(&lambda, all).await;
    running.stop();
    // An invocation arrives after the start that the rate allowed, so a slow machine only adds time.
    for (nth, execution) in lambda.state().executions.iter().enumerate() {
        let seconds = execution.at.duration_since(before).as_secs_f64();
        let most = RATE * (seconds + BURST_S) + 1.0;
        assert!(nth as f64 <= most, "{nth} within {seconds} s");
    }
}

/// How many messages of this queue the function ran with.
fn executed_of(state: &InvocationRecords, queue: &str) -> usize {
    let of_queue = |seen: &&MessageHistory| seen.executed > 0 && seen.body.starts_with(queue);
    state.seen.values().filter(of_queue).count()
}

#[tokio::test]
async fn a_lower_queue_does_not_wait_for_the_rate_of_a_higher_one() {
    let (server, limited, limited_url) = queue("limited", &[]).await;
    let (_, free, free_url) = queue("free", &[]).await;
    let lambda = Arc::new(FaultyLambda::start());
    server
        .send_many(&limited_url, (0..200).map(|n| format!("limited {n}")))
        .await;
    server
        .send_many(&free_url, (0..200).map(|n| format!("free {n}")))
        .await;
    let queues = format!("{limited},{free}");
    // At this rate the higher queue would take days.
    let rate = format!("{limited}=2/h");
    let mut running = forward_to(&lambda, &queues, &["--rate", &rate]).start();
    let all_free = |state: &InvocationRecords| (executed_of(state, "free") == 200).then_some(());
    wait(&lambda, all_free).await;
    running.stop();
    assert!(executed_of(&lambda.state(), "limited") < 200);
}

fn configuration(queue: &str, rate: &str) -> String {
    format!(
        "[plugin.f]\nfunction = \"f\"\n\n[[route]]\nplugin = \"f\"\nqueues = [\"{queue}\"]\n\
         poll-for = 1\nrate = {{ \"{queue}\" = \"{rate}\" }}\n"
    )
}

#[tokio::test]
async fn lesson_24_rate_changes_when_the_file_is_reloaded() {
    let (server, name, url) = queue("live", &[]).await;
    let lambda = Arc::new(FaultyLambda::start());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dispatcher.toml");
    // At this rate the rest would take hours.
    std::fs::write(&file, configuration(&name, "2/h")).expect("written");
    server
        .send_many(&url, (0..50).map(|n| format!("n{n}")))
        .await;
    let path = file.display().to_string();
    let arguments = ["run", "--log-format", "json", "--config", &path];
    let mut running = Program::new(arguments)
        .aws(&MiniStack::shared().url())
        .env("AWS_ENDPOINT_URL_LAMBDA", &lambda.url())
        .start();
    wait(&lambda, |state| (state.executed() >= 1).then_some(())).await;
    assert!(lambda.state().executed() < 50);
    std::fs::write(&file, configuration(&name, "1000/s")).expect("written");
    running.signal(Signal::HUP);
    wait(&lambda, |state| (state.executed() == 50).then_some(())).await;
    server.wait_until_empty(&url).await;
    // A file that cannot be read changes nothing and is said.
    std::fs::write(&file, configuration(&name, "fast")).expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("`fast`"));
    server.send_many(&url, ["after".to_owned()]).await;
    wait(&lambda, |state| state.of("after").map(|_| ())).await;
    running.stop();
    for seen in lambda.state().seen.values() {
        assert_eq!(seen.receive_counts, [1], "{seen:?}");
    }
}
