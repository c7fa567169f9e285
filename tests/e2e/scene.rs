//! What the promises share: where guests are, how a run is started and read.

use dispatcher::message::Outgoing;
use dispatcher::queue::local::Store;
use dispatcher::queue::{Depth, Queue};
pub(crate) use dispatcher_tests::guests::{field, guest, printed, prints, run};
use std::path::Path;

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
