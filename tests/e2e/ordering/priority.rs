//! Which queue's message comes first.

use crate::scene::{printed, prints, run, send};
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, Signal};
use std::path::Path;
use std::sync::Arc;

/// A data folder whose queues hold so many messages each, before anything runs.
async fn filled(queues: &[&str], each: usize) -> Arc<tempfile::TempDir> {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    for queue in queues {
        send(
            folder.path(),
            queue,
            (0..each).map(|_| format!("print:{queue}")),
        )
        .await;
    }
    folder
}

#[tokio::test]
async fn lesson_15_strict_is_strict() {
    let data = filled(&["low", "middle", "high"], 200).await;
    let arguments = [
        "--queues",
        "local:high,local:middle,local:low",
        "--concurrency",
        "1",
    ];
    let mut running = run("verdicts", &arguments).sharing(&data).start();
    running.wait_for_lines(600, printed);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let order = prints(&running);
    assert!(
        order[..200].iter().all(|queue| queue == "high"),
        "{:?}",
        &order[..210]
    );
    assert!(order[200..400].iter().all(|queue| queue == "middle"));
}

#[tokio::test]
async fn weights_hold_at_saturation() {
    let data = filled(&["a", "b", "c"], 3_000).await;
    let arguments = [
        "--queues",
        "local:a:3,local:b:2,local:c:1",
        "--concurrency",
        "10",
    ];
    let mut running = run("verdicts", &arguments).sharing(&data).start();
    // Until the first queue runs dry all three are saturated.
    running.wait_for_lines(5_000, printed);
    running.signal(Signal::KILL);
    running.wait_exit();
    let order = prints(&running);
    for (queue, weight) in [("a", 3.0), ("b", 2.0), ("c", 1.0)] {
        let got = order[..5_000].iter().filter(|name| *name == queue).count() as f64 / 5_000.0;
        assert!((got - weight / 6.0_f64).abs() < 0.01, "{queue}: {got}");
    }
}

#[tokio::test]
async fn lesson_14_message_on_any_of_twenty_idle_queues_is_picked_up() {
    let names: Vec<String> = (0..20).map(|n| format!("q{n}")).collect();
    let list: Vec<String> = names.iter().map(|name| format!("local:{name}")).collect();
    let mut running = run(
        "verdicts",
        &["--queues", &list.join(","), "--concurrency", "1"],
    )
    .start();
    running.wait_for_line(|line| line.contains("running"));
    for name in names.iter().rev() {
        let body = format!("print:for {name}.");
        send(running.data().path(), name, [body]).await;
        running.wait_for_line(|line| line.contains(&format!("for {name}.")));
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn group_is_handled_one_at_a_time_in_order() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    grouped(folder.path()).await;
    let mut running = run("verdicts", &["--concurrency", "8"])
        .sharing(&folder)
        .start();
    running.wait_for_lines(60, printed);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    for group in ["x", "y", "z"] {
        let mine: Vec<String> = prints(&running)
            .into_iter()
            .filter(|body| body.starts_with(group))
            .collect();
        let wanted: Vec<String> = (0..20).map(|n| format!("{group}{n}")).collect();
        assert_eq!(mine, wanted);
    }
}

async fn grouped(data: &Path) {
    use dispatcher_core::message::OutgoingMessage;
    use dispatcher_core::queue::Queue;
    let queue = LocalStore::open(data)
        .expect("opens")
        .queue("default", None)
        .expect("opens");
    let message = |n: usize, group: &str| OutgoingMessage {
        body: format!("print:{group}{n}"),
        group: Some(group.into()),
        ..OutgoingMessage::default()
    };
    let all: Vec<OutgoingMessage> = (0..20)
        .flat_map(|n| ["x", "y", "z"].map(|group| message(n, group)))
        .collect();
    assert!(queue.send(&all).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn two_processes_share_a_queue_without_handling_anything_twice() {
    let data = filled(&["default"], 1_000).await;
    let start = || {
        run("verdicts", &["--concurrency", "5"])
            .sharing(&data)
            .start()
    };
    let (mut one, mut two) = (start(), start());
    crate::scene::until_depth(data.path(), "default", |depth| depth == Default::default()).await;
    for running in [&mut one, &mut two] {
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
    }
    let (one, two) = (prints(&one).len(), prints(&two).len());
    assert_eq!(one + two, 1_000);
    assert!(one > 0 && two > 0, "both had some: {one} and {two}");
    let queues = Program::new(["queues", "--json"]).sharing(&data).run();
    assert!(queues.stdout.contains("\"waiting\":0"), "{queues:?}");
}
