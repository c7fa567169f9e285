//! Records done messages beyond the process before they are deleted from their queue. Knows no
//! store.

use super::call::{CallResult, SettleItem};
use crate::idempotency::guard::Guard;
use crate::message::Message;
use std::sync::Arc;

/// Remembers what of a call's items is done and not remembered yet. What cannot be remembered is
/// told to the queue all the same: only where that fails as well may it run again. If its turn
/// is redelivered, so does this.
pub(super) async fn together(guard: &Guard, items: &mut [SettleItem]) {
    let done: Vec<&Message> = items
        .iter()
        .filter(|item| item.unrecorded)
        .map(|item| &item.message)
        .collect();
    // One settlement is one queue's.
    let Some(first) = done.first() else { return };
    let ids: Vec<&str> = done.iter().map(|message| message.id.as_str()).collect();
    if guard.remember(&first.source, &ids).await {
        for item in items {
            item.unrecorded = false;
        }
    }
}

/// Remembers a message that is done and was lost to us all the same: the queue, which cannot be
/// told, delivers it again.
pub(super) async fn alone(guard: Arc<Guard>, message: Message) -> CallResult {
    guard.remember(&message.source, &[&message.id]).await;
    CallResult {
        late: Vec::new(),
        items: Vec::new(),
        results: Vec::new(),
        took: None,
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
