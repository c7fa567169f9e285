//! What the promises share: where guests are, how a run is started and read.

use dispatcher::message::Outgoing;
use dispatcher::queue::local::Store;
use dispatcher::queue::{Depth, Queue};
use dispatcher_tests::child::{Program, Running, Stream};
use serde_json::Value;
use std::path::Path;

/// The file of a shipped guest.
pub(crate) fn guest(name: &str) -> String {
    format!(
        "{}/../plugins/prebuilt/{name}.wasm",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// `dispatcher run` with a guest and log lines that a test can read.
pub(crate) fn run(name: &str, more: &[&str]) -> Program {
    let plugin = guest(name);
    let mut arguments = vec!["run", "--log-format", "json", "--plugin", &plugin];
    arguments.extend(more);
    Program::new(arguments)
}

/// Sends bodies to a local queue, the way another process would.
pub(crate) async fn send(data: &Path, queue: &str, bodies: impl IntoIterator<Item = String>) {
    let store = Store::open(data).expect("the store opens");
    let queue = store.queue(queue, None).expect("the queue opens");
    let messages: Vec<Outgoing> = bodies
        .into_iter()
        .map(|body| Outgoing {
            body,
            ..Outgoing::default()
        })
        .collect();
    for batch in messages.chunks(100) {
        for sent in queue.send(batch).await {
            sent.expect("sent");
        }
    }
}

/// What a local queue holds.
pub(crate) async fn depth(data: &Path, queue: &str) -> Depth {
    let store = Store::open(data).expect("the store opens");
    let queue = store.queue(queue, None).expect("the queue opens");
    queue.depth().await.expect("the queue tells")
}

/// Whether a log line is one that a guest printed.
pub(crate) fn printed(line: &str) -> bool {
    line.contains("\"target\":\"guest\"")
}

/// A field of a log line.
pub(crate) fn field(line: &str, name: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    match &line[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What the guests of a run have printed so far.
pub(crate) fn prints(running: &Running) -> Vec<String> {
    let text = running.text(Stream::Err);
    text.lines()
        .filter(|line| printed(line))
        .map(|line| field(line, "message"))
        .collect()
}

/// Returns once a local queue's depth is as wanted; looks again and again, since a file rings no
/// bell for a test.
pub(crate) async fn until_depth(data: &Path, queue: &str, wanted: impl Fn(Depth) -> bool) -> Depth {
    let store = Store::open(data).expect("the store opens");
    let queue = store.queue(queue, None).expect("the queue opens");
    let looking = async {
        loop {
            let depth = queue.depth().await.expect("the queue tells");
            if wanted(depth) {
                return depth;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(dispatcher_tests::PATIENCE, looking)
        .await
        .expect("the queue becomes as wanted")
}
