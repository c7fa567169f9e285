//! What tests do with any open queue, as another process would.

use crate::PATIENCE;
use dispatcher_core::message::{Message, Outcome, OutgoingMessage};
use dispatcher_core::queue::{Ask, Depth, Queue};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Sends bodies, in as many calls as the queue asks for, and tells their ids.
pub async fn send(queue: &dyn Queue, bodies: impl IntoIterator<Item = String>) -> Vec<String> {
    let messages: Vec<OutgoingMessage> = bodies
        .into_iter()
        .map(|body| OutgoingMessage {
            body,
            ..OutgoingMessage::default()
        })
        .collect();
    let mut ids = Vec::new();
    for batch in messages.chunks(queue.identity().batch) {
        for sent in queue.send(batch).await {
            ids.push(sent.expect("sent"));
        }
    }
    ids
}

/// Returns once the depth is as wanted; looks again and again, since a queue notifies nobody of a
/// test.
pub async fn until_depth(queue: &dyn Queue, wanted: impl Fn(Depth) -> bool) -> Depth {
    let looking = async {
        loop {
            let depth = queue.depth().await.expect("the queue tells");
            if wanted(depth) {
                return depth;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, looking).await;
    told.expect("the queue becomes as wanted")
}

/// The messages of one call that proves, where it brings none, that none is ready.
pub async fn received(queue: &dyn Queue) -> Vec<Message> {
    let ask = Ask {
        max: queue.identity().batch,
        wait: queue.identity().proof_wait,
        ..Ask::PLAIN
    };
    let received = queue.receive(ask, &CancellationToken::new()).await;
    received.expect("it answers").messages
}

/// Receives everything that waits and dead-letters it with this reason.
pub async fn fail_all(queue: &dyn Queue, reason: &str) {
    loop {
        let messages = received(queue).await;
        if messages.is_empty() {
            return;
        }
        let fail = |one: Message| (one, Outcome::DeadLetter(reason.to_owned()));
        let items: Vec<_> = messages.into_iter().map(fail).collect();
        for answer in queue.settle(&items).await {
            answer.expect("dead-lettered");
        }
    }
}
