//! A stop strands nothing, loses nothing, and can be forced.

use crate::scene::{depth, prints, run, send, until_depth};
use dispatcher_tests::child::Signal;

#[tokio::test]
async fn a_running_attempt_finishes_within_the_grace() {
    let mut running = run("verdicts", &["--log-level", "debug"]).start();
    send(running.data().path(), "default", ["sleep:1000".into()]).await;
    // Received is not begun: what has not begun is given back.
    running.wait_for_line(|line| line.contains("an attempt begins"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(
        depth(running.data().path(), "default").await,
        Default::default()
    );
}

#[tokio::test]
async fn what_outlives_the_grace_is_stopped_and_given_back_at_once() {
    let mut running = run(
        "verdicts",
        &["--shutdown-grace", "200ms", "--timeout", "1h"],
    )
    .start();
    send(
        running.data().path(),
        "default",
        ["sleep:3600000", "loop"].map(String::from),
    )
    .await;
    until_depth(running.data().path(), "default", |depth| {
        depth.in_flight == 2
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let left = depth(running.data().path(), "default").await;
    assert_eq!((left.waiting, left.in_flight, left.delayed), (2, 0, 0));
}

#[tokio::test]
async fn a_stop_under_load_leaves_nothing_invisible() {
    let mut running = run("verdicts", &["--concurrency", "20"]).start();
    let bodies = (0..2_000).map(|n| format!("print:{n}"));
    send(running.data().path(), "default", bodies).await;
    running.wait_for_lines(100, crate::scene::printed);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let left = depth(running.data().path(), "default").await;
    assert_eq!((left.in_flight, left.delayed), (0, 0));
    let mut handled = prints(&running);
    handled.sort();
    handled.dedup();
    assert_eq!(
        handled.len() as u64 + left.waiting,
        2_000,
        "each is handled or still there"
    );
}

#[tokio::test]
async fn a_second_signal_forces_the_exit() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut running = run(
            "verdicts",
            &[
                "--shutdown-grace",
                "1h",
                "--timeout",
                "1h",
                "--log-level",
                "debug",
            ],
        )
        .start();
        send(running.data().path(), "default", ["sleep:3600000".into()]).await;
        running.wait_for_line(|line| line.contains("an attempt begins"));
        running.signal(signal);
        running.wait_for_line(|line| line.contains("forces the exit from now on"));
        running.signal(signal);
        assert_eq!(running.wait_exit(), code);
    }
}

#[tokio::test]
async fn lesson_02_a_stop_finishes_what_would_be_dead_lettered_if_it_came_again() {
    // One attempt each: given back, the second message would have had its only delivery.
    let arguments = [
        "--concurrency",
        "1",
        "--max-attempts",
        "1",
        "--queues",
        "local:a,local:b",
    ];
    let mut running = run("verdicts", &arguments).start();
    let data = running.data().clone();
    send(data.path(), "a", ["sleep:1500".into()]).await;
    until_depth(data.path(), "a", |depth| depth.in_flight == 1).await;
    // Its parked poll brings this one although the only worker is busy.
    send(data.path(), "b", ["done".into()]).await;
    until_depth(data.path(), "b", |depth| depth.in_flight == 1).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(depth(data.path(), "a").await, Default::default());
    assert_eq!(depth(data.path(), "b").await, Default::default());
    assert_eq!(depth(data.path(), "b.dead").await, Default::default());
}

#[tokio::test]
async fn an_instance_that_waits_for_more_attempts_holds_up_no_stop() {
    let more = ["--instance-concurrency", "4", "--allow-lambda", "none"];
    let mut running = run("commands", &more).start();
    send(running.data().path(), "default", ["print here".into()]).await;
    running.wait_for_line(|line| line.contains("here"));
    until_depth(running.data().path(), "default", |depth| {
        depth == Default::default()
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}
