//! Records done messages beyond the process before they are deleted from their queue. Knows no
//! store.

use super::call::{CallResult, SettleItem};
use crate::idempotency::guard::Guard;
use crate::message::Message;
use std::sync::Arc;

/// Records the done items of a call that are not recorded yet. Items that cannot be recorded are
/// settled all the same: only if that fails as well may they run again. A retry of the call
/// retries the recording, too.
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

/// Records a message that is done though its lease was lost: the queue, where it cannot be
/// settled, redelivers it.
pub(super) async fn alone(guard: Arc<Guard>, message: Message) -> CallResult {
    guard.remember(&message.source, &[&message.id]).await;
    CallResult {
        late: Vec::new(),
        items: Vec::new(),
        results: Vec::new(),
        took: None,
        calls: 0,
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
