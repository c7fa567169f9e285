//! A store of limits that cannot be used: nothing that a limit applies to starts, the log says why, and
//! it goes on once the store can be used again.

use super::limits::{finish, send, settings, start};
use dispatcher_tests::redis::{Plain, RedisServer};
use dispatcher_tests::service::{JobService, ServiceStep};

const RECORD: &str = "{dispatcher:fleet:default}:limit:api";

fn call(store: &mut Plain, words: &[&str]) {
    let answer = store.call(words).expect("the server answers").text();
    assert!(!answer.starts_with("ERR"), "{words:?}: {answer}");
}

/// Sends a message after the first command, looks for its reason in the log, and expects the message
/// to start after the second command.
async fn starts_nothing_between(before: &[&str], reason: &str, after: &[&str]) {
    let server = RedisServer::start(&[]);
    let service = JobService::start(|_| ServiceStep::status(200));
    let place = format!(
        "[fleet]\nstore = \"redis:\"\n\n[backend.redis]\nurl = \"{}\"\n\n[limit.api]\nconcurrency = 2\n",
        server.url()
    );
    let processes = start(&settings(&service, &place), 1);
    let mut store = server.connect();
    call(&mut store, before);
    let message = [("held".to_owned(), "a")];
    send(processes[0].data().path(), message).await;
    let line = processes[0].wait_for_line(|line| line.contains("limits not renewed"));
    assert!(line.contains(reason), "{reason} in {line}");
    assert_eq!(service.record().requests.len(), 0);
    call(&mut store, after);
    service.wait_for(1);
    finish(processes).await;
    assert_eq!(service.record().requests.len(), 1);
}

#[tokio::test]
async fn record_of_a_newer_version_grants_nothing() {
    let newer = r#"{"format":2,"holders":{},"tokens":0.0,"at":0}"#;
    starts_nothing_between(&["SET", RECORD, newer], "format", &["DEL", RECORD]).await;
}

#[tokio::test]
async fn full_store_grants_nothing() {
    let full = ["CONFIG", "SET", "maxmemory", "1"];
    starts_nothing_between(&full, "OOM", &["CONFIG", "SET", "maxmemory", "0"]).await;
}

#[tokio::test]
async fn store_that_takes_no_writes_grants_nothing() {
    let replica = ["REPLICAOF", "127.0.0.1", "1"];
    starts_nothing_between(&replica, "read only replica", &["REPLICAOF", "NO", "ONE"]).await;
}

#[tokio::test]
async fn store_that_is_too_slow_grants_nothing() {
    let slow = ["CLIENT", "PAUSE", "600000", "WRITE"];
    starts_nothing_between(&slow, "no answer in time", &["CLIENT", "UNPAUSE"]).await;
}
