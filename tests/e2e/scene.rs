//! What the promises share: where guests are, how a run is started and read.

use dispatcher_core::queue::{Depth, Queue};
use dispatcher_local::queue::LocalStore;
pub(crate) use dispatcher_tests::guests::{field, guest, printed, prints, run};
use dispatcher_tests::queues;
use std::path::Path;

/// Sends bodies to a local queue, the way another process would.
pub(crate) async fn send(data: &Path, queue: &str, bodies: impl IntoIterator<Item = String>) {
    let store = LocalStore::open(data).expect("the store opens");
    let queue = store.queue(queue, None).expect("the queue opens");
    queues::send(&queue, bodies).await;
}

/// What a local queue holds.
pub(crate) async fn depth(data: &Path, queue: &str) -> Depth {
    let store = LocalStore::open(data).expect("the store opens");
    let queue = store.queue(queue, None).expect("the queue opens");
    queue.depth().await.expect("the queue tells")
}

/// Returns once a local queue's depth is as wanted.
pub(crate) async fn until_depth(data: &Path, queue: &str, wanted: impl Fn(Depth) -> bool) -> Depth {
    let store = LocalStore::open(data).expect("the store opens");
    let queue = store.queue(queue, None).expect("the queue opens");
    queues::until_depth(&queue, wanted).await
}

/// A file of `tls/README.md`: `localhost`'s certificate or its key, or the authority's certificate.
pub(crate) fn tls_file(name: &str) -> String {
    format!("{}/e2e/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}
