//! `dispatcher backup`: what a copy of a data folder holds that was made while others were at work,
//! and what is refused.

use crate::scene::{depth, prints, run, send, until_depth};
use dispatcher_tests::child::{ExitedProgram, Program, Signal};
use dispatcher_tests::holder::Holder;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn command(data: &Arc<tempfile::TempDir>, arguments: &[&str]) -> ExitedProgram {
    Program::new(arguments).sharing(data).run()
}

fn folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

fn backup(data: &Arc<tempfile::TempDir>, to: &Path) -> ExitedProgram {
    command(data, &["backup", to.to_str().expect("UTF-8")])
}

/// The bodies that wait in a queue.
fn waiting(data: &Path, queue: &str) -> BTreeSet<String> {
    let data = data.to_str().expect("UTF-8");
    let words = ["peek", queue, "-n", "100000", "--json", "--data", data];
    let seen = Program::new(words).run();
    assert_eq!(seen.code, 0, "{seen:?}");
    let seen: Value = serde_json::from_str(&seen.stdout).expect("JSON");
    let seen = seen.as_array().expect("an array").iter();
    seen.filter_map(|message| Some(message["body"].as_str()?.to_owned()))
        .collect()
}

/// `count` bodies of a queue, from this number on.
fn bodies(queue: &str, from: usize, count: usize) -> impl Iterator<Item = String> {
    (from..from + count).map(move |n| format!("print:{queue} {n}"))
}

/// Sends to a queue until it is over.
async fn keep_sending(data: Arc<tempfile::TempDir>, queue: &str, over: Arc<AtomicBool>) {
    let mut from = 1_000;
    while !over.load(Ordering::SeqCst) {
        send(data.path(), queue, bodies(queue, from, 20)).await;
        from += 20;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn finding_20_backup_contains_everything_acknowledged_before_it_began() {
    let options = ["--concurrency", "4", "--queues", "local:done,local:default"];
    let mut running = run("verdicts", &options).start();
    let data = running.data().clone();
    // Nobody takes from this one, and somebody from the other.
    for queue in ["kept", "done"] {
        send(data.path(), queue, bodies(queue, 0, 300)).await;
    }
    let later = [
        "schedule",
        "add",
        "local:kept",
        "--cron",
        "0 0 1 1 *",
        "--body",
        "yearly",
    ];
    let added = command(&data, &later);
    assert_eq!(added.code, 0, "{added:?}");
    let over = Arc::new(AtomicBool::new(false));
    let senders =
        ["kept", "done"].map(|queue| tokio::spawn(keep_sending(data.clone(), queue, over.clone())));
    let copies = folder();
    let copy = copies.path().join("copy");
    let (from, to) = (data.clone(), copy.clone());
    let made = tokio::task::spawn_blocking(move || backup(&from, &to)).await;
    let made = made.expect("it ran");
    over.store(true, Ordering::SeqCst);
    for sender in senders {
        sender.await.expect("it sends");
    }
    assert_eq!(made.code, 0, "{made:?}");
    for name in ["local.db", "schedule.db"] {
        assert!(made.stdout.contains(name), "{made:?}");
    }
    until_depth(data.path(), "done", |depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let mode = fs::metadata(copy.join("local.db"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let kept = waiting(&copy, "local:kept");
    let before = ["kept", "done"].map(|queue| bodies(queue, 0, 300).collect::<BTreeSet<_>>());
    assert!(kept.is_superset(&before[0]), "{} of 300", kept.len());
    // What is not in the copy was handled before it was made.
    let mut again = run("verdicts", &["--queues", "local:done"])
        .env("DISPATCHER_DATA", copy.to_str().expect("UTF-8"))
        .start();
    until_depth(&copy, "done", |depth| depth == Default::default()).await;
    again.signal(Signal::TERM);
    assert_eq!(again.wait_exit(), 0);
    let handled = prints(&running).into_iter().chain(prints(&again));
    let handled: BTreeSet<_> = handled.map(|body| format!("print:{body}")).collect();
    assert!(handled.is_superset(&before[1]));
    let listed = Program::new(["schedule", "list", "--data", copy.to_str().expect("UTF-8")]).run();
    assert!(listed.stdout.contains("yearly"), "{listed:?}");
}

#[tokio::test]
async fn finding_20_backup_includes_the_log_that_a_plain_copy_misses() {
    let reader = folder();
    assert_eq!(command(&reader, &["send", "local:q", "x"]).code, 0);
    // With a reader, what is committed stays in the log.
    let holder = Holder::reading(&reader.path().join("local.db"));
    assert_eq!(
        command(&reader, &["send", "local:q", "y", "--count", "9"]).code,
        0
    );
    let copies = folder();
    let copy = copies.path().join("copy");
    assert_eq!(backup(&reader, &copy).code, 0);
    assert_eq!(depth(&copy, "q").await.waiting, 10);
    drop(holder);
}

#[test]
fn finding_20_backup_overwrites_nothing_and_leaves_no_partial_file() {
    let (data, copies) = (folder(), folder());
    let none = backup(&data, &copies.path().join("none"));
    assert_eq!(none.code, 2, "there is nothing to copy: {none:?}");
    assert_eq!(command(&data, &["send", "local:q", "x"]).code, 0);

    let full = copies.path().join("full");
    fs::create_dir(&full).expect("made");
    fs::write(full.join("mine"), "precious").expect("written");
    let refused = backup(&data, &full);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("not empty"), "{refused:?}");
    let within = backup(&data, &data.path().join("copy"));
    assert_eq!(within.code, 2, "{within:?}");
    let nowhere = backup(&data, &copies.path().join("no/where"));
    assert_eq!(nowhere.code, 2, "{nowhere:?}");

    let holder = Holder::writing(&data.path().join("local.db"));
    let locked = backup(&data, &copies.path().join("locked"));
    assert_eq!(locked.code, 3, "{locked:?}");
    assert!(locked.stderr.contains("local.db"), "{locked:?}");
    drop(holder);

    // Pages of the tables, and not the first one.
    assert_eq!(
        command(&data, &["send", "local:q", "x", "--count", "2000"]).code,
        0
    );
    let path = data.path().join("local.db");
    let mut bytes = fs::read(&path).expect("read");
    bytes[4_096..].fill(0x5a);
    let mut file = fs::File::options().write(true).open(&path).expect("opened");
    file.write_all(&bytes).expect("written");
    let damaged = backup(&data, &copies.path().join("damaged"));
    assert_eq!(damaged.code, 1, "{damaged:?}");
    assert!(damaged.stderr.contains("local.db"), "{damaged:?}");

    let left: Vec<_> = fs::read_dir(copies.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["full"], "and what was in it is there");
    assert_eq!(
        fs::read_to_string(full.join("mine")).expect("read"),
        "precious"
    );
}
