//! Looks up which received messages were handled before. Does not depend on a store.

use crate::idempotency::guard::Guard;
use crate::message::Message;
use std::time::Duration;

/// Returns which of these messages of one queue, received with this visibility timeout, were
/// handled before. Uses one lookup before the answer to the poll is processed, so that the next
/// decision needs no wait.
pub(super) async fn known(guard: &Guard, messages: &[Message], visibility: Duration) -> Vec<bool> {
    let Some(first) = messages.first() else {
        return Vec::new();
    };
    let ids: Vec<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    guard.known(&first.source, &ids, visibility).await
}
