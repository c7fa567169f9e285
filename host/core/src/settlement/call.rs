//! One settlement call: its items, the items that are too late for it, and its results.

use super::end::DeliveryEnd;
use super::record;
use crate::clock;
use crate::clock::BootInstant;
use crate::idempotency::guard::Guard;
use crate::lease::Claim;
use crate::lease::invisible::LATE_EFFECT;
use crate::memory::HeldBytes;
use crate::message::{Message, Outcome};
use crate::queue::{ItemError, Queue};
use crate::scheduler::permits::Permit;
use crate::spans::{QueueSpans, SettledItem};
use crate::telemetry::trace::SpanContext;
use std::sync::Arc;
use std::time::Duration;

/// What is known of a delivery's last attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttemptNote {
    /// How long it took, if one was made.
    pub took: Option<Duration>,
    /// Its span, where attempts are traced.
    pub trace: Option<SpanContext>,
}

/// An outcome on its way to the queue.
pub(super) struct SettleItem {
    pub message: Message,
    pub outcome: Outcome,
    /// How its delivery ends once the queue has accepted the outcome.
    pub end: DeliveryEnd,
    pub claim: Claim,
    pub tries: u32,
    /// The last attempt.
    pub attempt: AttemptNote,
    /// Done, and the guard has not remembered it yet.
    pub unrecorded: bool,
    /// Its permit, if it kept it.
    pub seat: Option<Permit>,
    /// The bytes that it takes of the process's budget.
    pub held: Option<HeldBytes>,
}

impl SettleItem {
    /// Until when the queue may keep the message invisible if it has accepted no outcome.
    pub(super) fn latest(&self, now: BootInstant) -> BootInstant {
        let latest = self.claim.hidden().latest();
        self.invisible_after_earlier_tries(now)
            .map_or(latest, |at| at.max(latest))
    }

    /// Until when unanswered calls may keep it invisible though it is settled now.
    pub(super) fn unanswered(&self, now: BootInstant) -> Option<BootInstant> {
        self.claim
            .hidden()
            .unanswered()
            .max(self.invisible_after_earlier_tries(now))
    }

    /// Until when earlier tries to release it may keep it invisible.
    fn invisible_after_earlier_tries(&self, now: BootInstant) -> Option<BootInstant> {
        match self.outcome {
            Outcome::Release(after) if self.tries > 0 => Some(now + LATE_EFFECT + after),
            _ => None,
        }
    }
}

/// What became of a call.
pub(super) struct CallResult {
    /// Items that were not settled, because their lease was over.
    pub late: Vec<SettleItem>,
    pub items: Vec<SettleItem>,
    pub results: Vec<Result<(), ItemError>>,
    /// What settling took, if anything was settled.
    pub took: Option<Duration>,
    /// How many calls to the backend that was.
    pub calls: usize,
}

/// Leaves out what would come after its lease. A deletion may: it is right whoever holds the message
/// now. What is still in time, and what is not.
pub(super) fn in_time(
    items: Vec<SettleItem>,
    now: BootInstant,
) -> (Vec<SettleItem>, Vec<SettleItem>) {
    let late = |item: &SettleItem| item.claim.until() <= now && item.outcome != Outcome::Delete;
    let (late, items): (Vec<SettleItem>, Vec<SettleItem>) = items.into_iter().partition(late);
    (items, late)
}

/// Tells the queue, after the guard, if there is one.
pub(super) async fn settle(
    queue: Arc<dyn Queue>,
    guard: Option<Arc<Guard>>,
    spans: QueueSpans,
    mut items: Vec<SettleItem>,
) -> CallResult {
    // The receive that fills the room of these messages is sent first: workers wait for what it
    // brings, and a server that answers one call after the other would make it wait for this one.
    tokio::task::yield_now().await;
    let mut late = Vec::new();
    if let Some(guard) = guard {
        record::together(&guard, &mut items).await;
        // That may have taken longer than a lease lasts.
        (items, late) = in_time(items, clock::now());
    }
    let mut claims = Vec::with_capacity(items.len());
    let mut told = Vec::with_capacity(items.len());
    for item in items {
        told.push((item.message, item.outcome));
        let kept = (item.seat, item.held, item.attempt);
        claims.push((item.end, item.claim, item.tries, item.unrecorded, kept));
    }
    let called = clock::now();
    let (results, calls) = match told.is_empty() {
        true => (Vec::new(), 0),
        false => queue.settle_with_calls(&told).await,
    };
    let took = (!told.is_empty()).then(|| clock::now().since(called));
    if took.is_some() {
        let settled = told.iter().zip(&claims).enumerate();
        let settled = settled.map(|(at, ((message, _), claim))| {
            let (end, _, _, _, (_, _, attempt)) = claim;
            SettledItem {
                message,
                attempt: attempt.trace,
                end: end.kind(),
                result: results.get(at),
            }
        });
        spans.settled(called, settled);
    }
    let items = told
        .into_iter()
        .zip(claims)
        .map(
            |((message, outcome), (end, claim, tries, unrecorded, (seat, held, attempt)))| {
                SettleItem {
                    message,
                    outcome,
                    end,
                    claim,
                    tries,
                    attempt,
                    unrecorded,
                    seat,
                    held,
                }
            },
        )
        .collect();
    CallResult {
        late,
        items,
        results,
        took,
        calls,
    }
}
