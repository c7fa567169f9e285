//! Dead letters, put into a queue of any backend. Knows no backend.

use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::{DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, Queue};
use std::sync::Arc;

const BODY: usize = 256;
/// How many reasons there are.
pub(crate) const REASONS: usize = 20;
/// Sends under way at once.
const SENDERS: usize = 8;

/// Sends so many letters of the queue `source`, `batch` at a time.
pub(crate) async fn fill(dead: &Arc<dyn Queue>, source: &str, count: usize, batch: usize) {
    let senders = (0..SENDERS).map(|sender| {
        let (dead, source) = (dead.clone(), source.to_owned());
        tokio::spawn(async move {
            let own = count / SENDERS + usize::from(sender < count % SENDERS);
            for first in (0..own).step_by(batch) {
                let letters = (first..own.min(first + batch)).map(|at| letter(&source, at));
                let sent = dead.send(&letters.collect::<Vec<_>>()).await;
                assert!(sent.iter().all(Result::is_ok), "{sent:?}");
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.expect("sent");
    }
}

fn letter(source: &str, at: usize) -> OutgoingMessage {
    let reason = format!("declined by bank {}", at % REASONS);
    OutgoingMessage {
        body: "x".repeat(BODY),
        attributes: vec![
            Attribute::text(DEAD_LETTER_REASON, reason),
            Attribute::text(DEAD_LETTER_SOURCE, source),
        ],
        ..OutgoingMessage::default()
    }
}
