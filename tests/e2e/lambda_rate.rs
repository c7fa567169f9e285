//! A queue's rate is kept, and changes while the program runs.

use crate::lambda_scene::{forward_to, queue, wait};
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::faulty_lambda::{FaultyLambda, InvocationRecords};
use dispatcher_tests::servers::MiniStack;
use std::sync::Arc;

/// This many started at once are within a rate: what has saved up during a second without work.
const BURST_S: f64 = 1.0;
/// How much later than it left one invocation may arrive than another, on a machine with much to do.
const JITTER_S: f64 = 0.5;

#[tokio::test]
async fn starts_do_not_exceed_the_rate() {
    let (server, name, url) = queue("rate", &[]).await;
    let (_, free, free_url) = queue("free", &[]).await;
    let lambda = Arc::new(FaultyLambda::start());
    let limited = |n| format!("limited {n}");
    server.send_many(&url, (0..200).map(limited)).await;
    server
        .send_many(&free_url, (0..200).map(|n| format!("free {n}")))
        .await;
    let queues = format!("{name},{free}");
    let rate = format!("{name}=40/s");
    let mut running = forward_to(&lambda, &queues, &["--rate", &rate]).start();
    let all = |state: &InvocationRecords| (state.executed() == 400).then_some(());
    wait(&lambda, all).await;
    running.stop();
    let state = lambda.state();
    let limited = |body: &str| body.starts_with("limited");
    let times: Vec<_> = state
        .executions
        .iter()
        .filter(|e| limited(&e.body))
        .collect();
    for (first, begin) in times.iter().enumerate() {
        for (last, end) in times.iter().enumerate().skip(first) {
            let seconds = end.at.duration_since(begin.at).as_secs_f64();
            let most = 40.0 * (seconds + BURST_S + JITTER_S) + 1.0;
            let started = (last - first + 1) as f64;
            assert!(started <= most, "{started} in {seconds} s");
        }
    }
    // The lower queue did not wait for the higher one's rate.
    let half = state.executions.iter().rposition(|e| !limited(&e.body));
    assert!(half < Some(399), "the queue without a rate was done first");
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
