//! A log that nobody reads stops nothing.

use crate::scene::{guest, send, until_depth};
use dispatcher_tests::child::{Signal, binary};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Runs on a folder with its stderr in our hands.
fn start(folder: &Path) -> Child {
    Command::new(binary())
        .args(["run", "--plugin", &guest("verdicts"), "--data"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

async fn handles_all_and_stops(folder: &Path, mut running: Child) {
    let line = "x".repeat(200);
    send(
        folder,
        "default",
        (0..2_000).map(|_| format!("print:{line}")),
    )
    .await;
    until_depth(folder, "default", |depth| depth == Default::default()).await;
    let id = i32::try_from(running.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(id.expect("a process id"), Signal::TERM).expect("it runs");
    assert_eq!(running.wait().expect("it ends").code(), Some(0));
}

#[tokio::test]
async fn closed_log_reader_does_not_stop_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = start(folder.path());
    drop(running.stderr.take());
    handles_all_and_stops(folder.path(), running).await;
}

#[tokio::test]
async fn stalled_log_reader_does_not_stop_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = start(folder.path());
    let _unread = running.stderr.take();
    handles_all_and_stops(folder.path(), running).await;
}
