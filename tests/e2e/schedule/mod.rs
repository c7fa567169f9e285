//! Messages for later on the embedded queue: listed, taken back, delivered in time; periodic ones
//! once for each time.

mod fifo;
mod redis;
mod redis_store;
mod reminder;
mod scene;
mod sqs;
mod table;
mod table_faults;

use crate::scene::{depth, field, printed, prints, run, until_depth};
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::schedule;
use dispatcher_core::schedule::ScheduleStore;
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_local::schedule::File;
use dispatcher_tests::child::{ExitedProgram, Program, RunningProgram};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

fn folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

fn call(data: &Arc<tempfile::TempDir>, arguments: &[&str]) -> ExitedProgram {
    Program::new(arguments).sharing(data).run()
}

fn good(data: &Arc<tempfile::TempDir>, arguments: &[&str]) -> ExitedProgram {
    let ended = call(data, arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
    ended
}

fn list(data: &Arc<tempfile::TempDir>) -> Vec<Value> {
    let listed = good(data, &["schedule", "list", "--json"]).stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    listed.as_array().expect("an array").clone()
}

#[tokio::test]
async fn scheduled_message_is_listed_and_can_be_cancelled() {
    let data = folder();
    let words = [
        "schedule",
        "add",
        "local:q",
        "--in",
        "36h",
        "--body",
        "milk",
        "--attribute",
        "k=v",
    ];
    let added = good(&data, &words);
    let id = added.stdout.trim();
    assert!(id.starts_with("local:q/"), "{added:?}");
    assert!(added.stderr.contains("due in 36h, at 2"), "{added:?}");
    let sent = good(&data, &["send", "local:q", "eggs", "--delay", "40h"]);
    let listed = list(&data);
    let field = |name: &str| {
        listed
            .iter()
            .map(|one| one[name].as_str().unwrap_or(""))
            .collect::<Vec<_>>()
    };
    assert_eq!(field("body"), ["milk", "eggs"]);
    assert_eq!(
        field("id"),
        [id, &format!("local:q/{}", sent.stdout.trim())]
    );
    assert_eq!(depth(data.path(), "q").await.delayed, 2);
    let shown = good(&data, &["schedule", "list", "local:q"]).stdout;
    assert!(
        shown.contains("milk") && shown.contains("in 1day 1"),
        "{shown}"
    );
    good(&data, &["schedule", "cancel", id]);
    let again = call(&data, &["schedule", "cancel", id]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(
        again.stderr.contains("no scheduled message with this id"),
        "{again:?}"
    );
    assert_eq!(list(&data).len(), 1);
    assert_eq!(depth(data.path(), "q").await.delayed, 1);
}

#[tokio::test]
async fn message_due_soon_is_handled_and_one_due_later_is_not() {
    let data = folder();
    good(
        &data,
        &[
            "schedule",
            "add",
            "local:default",
            "--in",
            "36h",
            "--body",
            "print:far",
        ],
    );
    let at = dispatcher_core::schedule::when::write(
        clock::wall_clock_now() + Duration::from_secs(1),
        None,
    );
    good(
        &data,
        &[
            "schedule",
            "add",
            "local:default",
            "--at",
            &at,
            "--body",
            "print:near",
        ],
    );
    let mut running = run("verdicts", &[]).sharing(&data).start();
    running.wait_for_line(|line| printed(line) && line.contains("near"));
    running.stop();
    assert_eq!(prints(&running), ["near"]);
    assert_eq!(list(&data).len(), 1);
}

#[tokio::test]
async fn scheduled_message_does_not_block_its_group() {
    let data = folder();
    let words = ["schedule", "add", "local:default", "--in", "10m"];
    let later = ["--group", "g", "--body", "print:far"];
    let added = good(&data, &[&words[..], &later].concat());
    let now = ["send", "local:default", "print:now", "--group", "g"];
    good(&data, &now);
    let mut running = run("verdicts", &[]).sharing(&data).start();
    running.wait_for_line(|line| printed(line) && line.contains("now"));
    running.stop();
    assert_eq!(prints(&running), ["now"]);
    good(&data, &["schedule", "cancel", added.stdout.trim()]);
}

#[tokio::test]
async fn two_dispatchers_fire_each_tick_of_a_periodic_message_once() {
    let data = folder();
    let add = |body: &str| {
        let body = format!("print:{body}");
        let words = ["schedule", "add", "local:default", "--cron", "* * * * * *"];
        let added = good(&data, &[&words[..], &["--body", &body]].concat());
        added.stdout.trim().to_owned()
    };
    let ids = ["one", "two"].map(add);
    let due = |id: &str| {
        let listed = list(&data);
        let found = listed.iter().find(|entry| entry["id"] == id);
        found.expect("it goes on")["due_ms"]
            .as_u64()
            .expect("a date")
    };
    let first = ids.each_ref().map(|id| due(id));
    let start = || run("verdicts", &[]).sharing(&data).start();
    let mut both = [start(), start()];
    for running in &both {
        running.wait_for_line(|line| line.contains("running"));
    }
    until_ticks(&both, 8).await;
    both.iter_mut().for_each(RunningProgram::stop);
    let next = ids.each_ref().map(|id| due(id));
    for id in &ids {
        good(&data, &["schedule", "cancel", id]);
    }
    assert!(list(&data).iter().all(|one| one["cron"].is_null()));
    // What was sent ahead and was not yet due waits in the queue.
    let mut rest = start();
    let empty =
        |depth: dispatcher_core::queue::Depth| depth.in_flight + depth.waiting + depth.delayed == 0;
    until_depth(data.path(), "default", empty).await;
    rest.stop();
    let bodies: Vec<String> = both.iter().chain([&rest]).flat_map(prints).collect();
    let sent: usize = both.iter().map(logged_sends).sum();
    assert_eq!(bodies.len(), sent, "what was sent was handled once");
    for (at, body) in ["one", "two"].into_iter().enumerate() {
        let count = bodies.iter().filter(|one| *one == body).count() as u64;
        let times = (next[at] - first[at]) / 1_000;
        // A time that both were too late for is not made up for.
        assert!((1..=times).contains(&count), "{count} of {times} times");
    }
}

/// How many scheduled messages a dispatcher says that it sent.
fn logged_sends(running: &RunningProgram) -> usize {
    let said = running.lines(|line| line.contains("scheduled messages sent"));
    let sent = said.iter().map(|line| field(line, "sent").parse::<usize>());
    sent.map(|number| number.expect("a number")).sum()
}

async fn until_ticks(both: &[RunningProgram; 2], count: usize) {
    let looking = async {
        while both
            .iter()
            .map(|running| prints(running).len())
            .sum::<usize>()
            < count
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(dispatcher_tests::PATIENCE, looking).await;
    found.expect("it fires");
}

#[tokio::test]
async fn ticks_missed_in_a_downtime_fire_once_and_then_on_schedule() {
    let data = folder();
    let three_days = 3 * 86_400_000;
    let past = Timestamp(clock::wall_clock_now().0 - three_days);
    let every = Periodic::new("0 9 * * *", "Europe/Berlin").expect("a pattern");
    let message = OutgoingMessage {
        body: "print:late".into(),
        ..OutgoingMessage::default()
    };
    let job = schedule::job("local:default", past, message, Some(every));
    let added = File::of(data.path()).add(&job).await;
    assert_eq!(added, Ok(true));
    let mut running = run("verdicts", &[]).sharing(&data).start();
    running.wait_for_line(|line| printed(line) && line.contains("late"));
    let empty =
        |depth: dispatcher_core::queue::Depth| depth.in_flight + depth.waiting + depth.delayed == 0;
    until_depth(data.path(), "default", empty).await;
    running.stop();
    assert_eq!(prints(&running), ["late"]);
    let due = list(&data)[0]["due_ms"].as_u64().expect("a date");
    let now = clock::wall_clock_now().0;
    assert!(due > now && due <= now + 90_000_000, "{due} {now}");
}

#[test]
fn invalid_schedule_names_the_reason() {
    let data = folder();
    for (words, wanted) in [
        (
            &["local:q", "--body", "x"][..],
            "wanted --in, --at or --cron",
        ),
        (
            &["local:q", "--in", "soon", "--body", "x"],
            "`soon` is not a duration",
        ),
        (
            &["local:q", "--at", "tomorrow", "--body", "x"],
            "written like 2026-12-24T18:00:00+01:00",
        ),
        (
            &["local:q", "--cron", "0 25 * * *", "--body", "x"],
            "is not a cron pattern",
        ),
        (
            &[
                "local:q",
                "--cron",
                "@daily",
                "--tz",
                "Mars/Base",
                "--body",
                "x",
            ],
            "is not a time zone",
        ),
        (
            &["local:q", "--in", "1h", "--tz", "UTC", "--body", "x"],
            "wanted --cron as well",
        ),
        (&["local:q", "--in", "1h"], "wanted --body TEXT"),
    ] {
        let ended = call(&data, &[&["schedule", "add"], words].concat());
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.contains(wanted), "{ended:?}");
    }
    let ended = call(&data, &["schedule", "cancel", "nonsense"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("wanted QUEUE/JOB"), "{ended:?}");
}
