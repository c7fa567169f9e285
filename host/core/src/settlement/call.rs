//! One settlement call: its items, the items that are too late for it, and its results.

use super::end::DeliveryEnd;
use super::record;
use crate::clock;
use crate::clock::BootInstant;
use crate::idempotency::guard::Guard;
use crate::job::Hold;
use crate::lease::Claim;
use crate::lease::invisible::LATE_EFFECT;
use crate::message::{Message, Outcome};
use crate::queue::{ItemError, Queue};
use crate::spans::{QueueSpans, SettledItem};
use std::sync::Arc;
use std::time::Duration;

/// An outcome on its way to the queue.
pub(super) struct SettleItem {
    pub message: Message,
    pub outcome: Outcome,
    pub rest: SettleRest,
}

/// The part of an item that is not sent to the queue.
pub(super) struct SettleRest {
    /// The end of the delivery, once the queue has accepted the outcome.
    pub end: DeliveryEnd,
    pub claim: Claim,
    /// The number of tries to settle it.
    pub tries: u32,
    /// Whether the message is done and not yet recorded by the guard.
    pub unrecorded: bool,
    /// The data that accompany the message. It has no permit unless settlement cannot keep up.
    pub hold: Hold,
}

impl SettleItem {
    /// Splits the item into the part that is sent to the queue and the rest.
    fn split(self) -> ((Message, Outcome), SettleRest) {
        ((self.message, self.outcome), self.rest)
    }

    /// Returns the group of a message that goes back to its queue.
    pub(super) fn returning(&self) -> Option<&str> {
        let goes_back = matches!(self.outcome, Outcome::Release(_));
        if goes_back {
            self.message.group.as_deref()
        } else {
            None
        }
    }

    /// Returns until when the queue may keep the message invisible if it has accepted no outcome.
    pub(super) fn latest(&self, now: BootInstant) -> BootInstant {
        let latest = self.rest.claim.hidden().latest();
        self.invisible_after_earlier_tries(now)
            .map_or(latest, |at| at.max(latest))
    }

    /// Returns until when unanswered calls may keep the message invisible although it is settled
    /// now.
    pub(super) fn unanswered(&self, now: BootInstant) -> Option<BootInstant> {
        self.rest
            .claim
            .hidden()
            .unanswered()
            .max(self.invisible_after_earlier_tries(now))
    }

    /// Returns until when earlier tries to release the message may keep it invisible.
    fn invisible_after_earlier_tries(&self, now: BootInstant) -> Option<BootInstant> {
        match self.outcome {
            Outcome::Release(after) if self.rest.tries > 0 => Some(now + LATE_EFFECT + after),
            _ => None,
        }
    }
}

/// The result of a call.
pub(super) struct CallResult {
    /// Items that were not settled because their lease was over.
    pub late: Vec<SettleItem>,
    pub items: Vec<SettleItem>,
    pub results: Vec<Result<(), ItemError>>,
    /// The duration of the settling, if anything was settled.
    pub took: Option<Duration>,
    /// The number of calls to the backend.
    pub calls: usize,
}

/// Splits items into those that are in time and those whose lease is over. A deletion is always in
/// time: it is right even if another consumer holds the message now.
pub(super) fn in_time(
    items: Vec<SettleItem>,
    now: BootInstant,
) -> (Vec<SettleItem>, Vec<SettleItem>) {
    let late =
        |item: &SettleItem| item.rest.claim.until() <= now && item.outcome != Outcome::Delete;
    let (late, items): (Vec<SettleItem>, Vec<SettleItem>) = items.into_iter().partition(late);
    (items, late)
}

/// Records the items with the guard, if there is one, and then settles them on the queue.
pub(super) async fn settle(
    queue: Arc<dyn Queue>,
    guard: Option<Arc<Guard>>,
    spans: QueueSpans,
    mut items: Vec<SettleItem>,
) -> CallResult {
    // Yield, so that the receive that uses the permits of these messages is sent first: workers
    // wait for its messages, and a server that answers one call after the other would delay it
    // behind this call.
    tokio::task::yield_now().await;
    let mut late = Vec::new();
    if let Some(guard) = guard {
        record::together(&guard, &mut items).await;
        // The guard may have taken longer than a lease lasts.
        (items, late) = in_time(items, clock::now());
    }
    let (told, rest): (Vec<_>, Vec<_>) = items.into_iter().map(SettleItem::split).unzip();
    let called = clock::now();
    let (results, calls) = if told.is_empty() {
        (Vec::new(), 0)
    } else {
        queue.settle_with_calls(&told).await
    };
    let took = (!told.is_empty()).then(|| clock::now().since(called));
    if took.is_some() {
        let settled = told
            .iter()
            .zip(&rest)
            .enumerate()
            .map(|(at, ((message, _), rest))| SettledItem {
                message,
                attempt: rest.hold.trace,
                end: rest.end.kind(),
                result: results.get(at),
            });
        spans.settled(called, settled);
    }
    let items = told
        .into_iter()
        .zip(rest)
        .map(|((message, outcome), rest)| SettleItem {
            message,
            outcome,
            rest,
        })
        .collect();
    CallResult {
        late,
        items,
        results,
        took,
        calls,
    }
}
