//! What is worked on stays ours, however long it takes.

use crate::scene::{depth, run, send, until_depth};
use dispatcher_tests::child::{Signal, Stream};

const VISIBILITY: [&str; 2] = ["--visibility", "4"];
/// Longer than three visibilities.
const LONG_MS: u64 = 13_000;

/// Whether a log warns of nothing. Where a disk stalls, an extension is late and repeated, which loses
/// nothing.
pub(crate) fn keeps_leases(log: &str) -> bool {
    let late = "leases not extended, retried";
    let mut warnings = log.lines().filter(|line| line.contains("WARN"));
    !log.contains("lost") && warnings.all(|line| line.contains(late))
}

async fn handled_once(body: String, arguments: &[&str]) {
    let mut running = run("verdicts", arguments).start();
    let data = running.data().clone();
    send(data.path(), "default", [body]).await;
    until_depth(data.path(), "default", |depth| depth.in_flight == 1).await;
    until_depth(data.path(), "default", |depth| depth.in_flight == 0).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let log = running.text(Stream::Err);
    assert!(keeps_leases(&log), "{log}");
    assert_eq!(depth(data.path(), "default").await, Default::default());
}

#[tokio::test]
async fn lesson_04_slow_handler_gets_no_second_delivery() {
    handled_once(
        format!("sleep:{LONG_MS}"),
        &[&VISIBILITY[..], &["--max-attempts", "1"]].concat(),
    )
    .await;
}

#[tokio::test]
async fn lesson_08_observing_a_slow_message_does_not_cost_its_lease() {
    let metrics = [
        "--name",
        "watched",
        "--metrics",
        "emf",
        "--metrics-interval",
        "1",
    ];
    let others = [
        "--admin",
        "127.0.0.1:0",
        "--log-level",
        "dispatcher=trace,guest=trace",
    ];
    let arguments = [&metrics[..], &others, &VISIBILITY, &["--max-attempts", "1"]].concat();
    handled_once(format!("sleep:{LONG_MS}"), &arguments).await;
}

#[tokio::test]
async fn lesson_25_computing_guest_does_not_starve_lease_extension() {
    let arguments = [&VISIBILITY[..], &["--max-attempts", "1", "--workers", "1"]].concat();
    handled_once(format!("loop-for:{LONG_MS}"), &arguments).await;
}

#[tokio::test]
async fn lost_lease_stops_the_attempt_and_fences_its_verdict() {
    let mut running = run("verdicts", &["--visibility", "2", "--timeout", "1h"]).start();
    let data = running.data().clone();
    send(data.path(), "default", ["sleep:3600000".into()]).await;
    until_depth(data.path(), "default", |depth| depth.in_flight == 1).await;
    // A runner that stands still longer than its lease has lost it when it wakes.
    running.signal(Signal::STOP);
    until_depth(data.path(), "default", |depth| depth.waiting == 1).await;
    running.signal(Signal::CONT);
    running.wait_for_line(|line| line.contains("lease lost"));
    running.signal(Signal::KILL);
    assert_eq!(running.wait_exit(), 137);
}
