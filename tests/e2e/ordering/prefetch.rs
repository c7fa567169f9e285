//! What is held beyond what runs: as many as `--prefetch` says and no more, all of it leased, all of
//! it released at a stop.

use crate::lambda::scene::admin;
use crate::messages::leases::keeps_leases;
use crate::scene::{depth, guest, prints, run, send, until_depth};
use dispatcher_tests::child::{Program, RunningProgram, Signal, Stream};
use dispatcher_tests::{PATIENCE, http};
use serde_json::Value;
use std::time::{Duration, Instant};

/// One attempt of these takes longer than any test.
const BLOCKED: &str = "sleep:3600000";
/// Longer than two visibilities of two seconds.
const LONG: &str = "sleep:5000";

const HELD: [&str; 8] = [
    "--concurrency",
    "2",
    "--timeout",
    "1h",
    "--shutdown-grace",
    "200ms",
    "--admin",
    "127.0.0.1:0",
];

/// A gauge of the only route.
fn gauge(page: &str, name: &str) -> Option<u64> {
    let start = format!("dispatcher_route_{name}{{");
    let line = page.lines().find(|line| line.starts_with(&start))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// Returns once so many are held, there is room for no more, and none are asked for: then it stays
/// so while nothing ends.
fn until_held(running: &RunningProgram, held: u64) {
    until_gauges(running, |page| {
        let of = ["in_flight", "in_flight_limit", "polls"].map(|name| gauge(page, name));
        of == [Some(held), Some(held), Some(0)]
    });
}

/// Returns once so many messages have come to the program, started or not.
pub(super) fn until_come(running: &RunningProgram, count: u64) {
    until_gauges(running, |page| gauge(page, "in_flight") == Some(count));
}

fn until_gauges(running: &RunningProgram, are_wanted: impl Fn(&str) -> bool) {
    let url = format!("{}/metrics", admin(running));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = http::get(&url).body;
        if are_wanted(&page) {
            return;
        }
        assert!(Instant::now() < deadline, "not as wanted:\n{page}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What `dispatcher queues --json` says is in flight.
fn in_flight(running: &RunningProgram) -> u64 {
    let listed = Program::new(["queues", "local:default", "--json"])
        .sharing(running.data())
        .run();
    assert_eq!(listed.code, 0, "{listed:?}");
    let listed: Value = serde_json::from_str(&listed.stdout).expect("it is JSON");
    listed[0]["in_flight"].as_u64().expect("it is a number")
}

async fn is_given_back(running: &mut RunningProgram, all: u64) {
    running.stop();
    let left = depth(running.data().path(), "default").await;
    assert_eq!((left.waiting, left.in_flight, left.delayed), (all, 0, 0));
}

#[tokio::test]
async fn configured_number_is_prefetched_and_returned_at_a_stop() {
    let bodies = || (0..50).map(|_| BLOCKED.to_owned());
    for (prefetch, held) in [("20", 22), ("0", 2)] {
        let more = [&HELD[..], &["--prefetch", prefetch]].concat();
        let mut running = run("verdicts", &more).start();
        send(running.data().path(), "default", bodies()).await;
        until_held(&running, held);
        assert_eq!(in_flight(&running), held);
        is_given_back(&mut running, 50).await;
    }
}

#[tokio::test]
async fn lesson_09_prefetched_message_keeps_its_lease_and_runs_once() {
    let more = ["--prefetch", "20", "--concurrency", "2"];
    let more = [&more[..], &["--visibility", "2", "--max-attempts", "1"]].concat();
    let mut running = run("verdicts", &more).start();
    let data = running.data().clone();
    let prompt = (0..20).map(|n| format!("print:{n:02}"));
    let bodies = [LONG, LONG].map(String::from).into_iter().chain(prompt);
    send(data.path(), "default", bodies).await;
    until_depth(data.path(), "default", |depth| depth.in_flight == 22).await;
    until_depth(data.path(), "default", |depth| depth == Default::default()).await;
    running.stop();
    let mut printed = prints(&running);
    printed.sort();
    let wanted: Vec<String> = (0..20).map(|n| format!("{n:02}")).collect();
    assert_eq!(printed, wanted);
    let log = running.text(Stream::Err);
    assert!(keeps_leases(&log), "{log}");
}

#[tokio::test]
async fn prefetch_can_be_changed_by_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dispatcher.toml");
    let write = |prefetch: usize| {
        let text = format!(
            "[plugin.p]\nfile = \"{}\"\ntimeout = \"1h\"\n\n[[route]]\nplugin = \"p\"\n\
             queues = [\"local:default\"]\nconcurrency = 2\nprefetch = {prefetch}\n",
            guest("verdicts")
        );
        std::fs::write(&file, text).expect("written");
    };
    write(0);
    let path = file.display().to_string();
    let more = ["--shutdown-grace", "200ms", "--admin", "127.0.0.1:0"];
    let arguments = ["run", "--log-format", "json", "--config", &path];
    let mut running = Program::new([&arguments[..], &more].concat()).start();
    let bodies = (0..50).map(|_| BLOCKED.to_owned());
    send(running.data().path(), "default", bodies).await;
    until_held(&running, 2);
    write(5);
    running.signal(Signal::HUP);
    until_held(&running, 7);
    is_given_back(&mut running, 50).await;
}
