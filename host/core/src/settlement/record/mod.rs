//! Records done messages outside the process before they are deleted from their queue. Does not
//! depend on a store.

use super::call::{CallResult, SettleItem};
use crate::idempotency::guard::Guard;
use crate::message::Message;
use std::sync::Arc;

/// Records the done items of a call that are not recorded yet. Items that cannot be recorded are
/// settled anyway: they may run again only if that fails as well. A retry of the call retries the
/// recording, too.
pub(super) async fn together(guard: &Guard, items: &mut [SettleItem]) {
    let done: Vec<&Message> = items
        .iter()
        .filter(|item| item.rest.unrecorded)
        .map(|item| &item.message)
        .collect();
    // All items of a settlement are of one queue.
    let Some(first) = done.first() else { return };
    let ids: Vec<&str> = done.iter().map(|message| message.id.as_str()).collect();
    if guard.remember(&first.source, &ids).await {
        for item in items {
            item.rest.unrecorded = false;
        }
    }
}

/// Records a message that is done although its lease was lost: it cannot be settled, so the queue
/// redelivers it.
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
mod tests;
