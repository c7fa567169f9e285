//! Shows the selected messages of a queue without moving any: by listing them, or by receiving and
//! releasing them.

use super::handover::release;
use super::run::{SCAN_LEASE, leave};
use super::tally::{ReasonTallies, ReasonView};
use super::{MOST_SCANNED, RedriveError, RedriveRefusal};
use crate::select::Selection;
use dispatcher_core::clock;
use dispatcher_core::message::Message;
use dispatcher_core::queue::{Ask, BrowseCursor, BrowsePage, GroupShare, Queue, QueueError};
use std::collections::HashSet;
use tokio_util::sync::CancellationToken;

/// The maximum number of messages on one page.
const PAGE: usize = 100;

/// The bounds of a look.
#[derive(Debug, Clone)]
pub struct LookBounds {
    /// The place after which it begins, if the queue can be listed.
    pub after: Option<BrowseCursor>,
    /// The maximum number of selected messages that are shown.
    pub most: usize,
    /// The number of bytes of the shown messages after which no more are shown.
    pub bytes: u64,
    /// The maximum number of messages that are inspected.
    pub scan: u64,
    /// Whether to continue counting once enough messages are shown.
    pub counts_on: bool,
}

/// The reason why a look ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LookEnd {
    /// All waiting messages were inspected.
    #[default]
    Complete,
    /// Enough messages are shown.
    Enough,
    /// The maximum number of messages was inspected.
    ScanLimit,
    /// The look was cancelled.
    Cancelled,
    /// The next receive of a message could be its last.
    LastReceive,
    /// A message has had its last receive: the queue's redrive policy moves it at the next one.
    ReceivesSpent,
}

/// The result of a look.
#[derive(Debug, Clone, Default)]
pub struct LookResult {
    /// The first selected messages.
    pub messages: Vec<Message>,
    /// The place after the last of them, if there may be more: the start of the next page.
    pub next: Option<BrowseCursor>,
    /// The selected messages among all inspected ones, by reason, most frequent first.
    pub reasons: Vec<ReasonView>,
    /// The number of inspected messages.
    pub scanned: u64,
    /// The number of selected messages.
    pub matched: u64,
    /// The number of receives of messages that were released; a message that was received twice
    /// counts twice.
    pub received: u64,
    /// The number of receive calls.
    pub receive_calls: u64,
    /// The number of received messages that could not be released, and stay invisible for a while.
    pub not_released: u64,
    /// The reason why it ended.
    pub end: LookEnd,
}

/// Looks for selected messages. If the queue cannot be listed, receives and releases them. Returns
/// what it has found once `cancel` is set.
pub async fn look(
    queue: &dyn Queue,
    selection: &Selection,
    bounds: &LookBounds,
    cancel: &CancellationToken,
) -> Result<LookResult, RedriveError> {
    let mut look = Look {
        queue,
        selection,
        bounds,
        cancel,
        looked: LookResult::default(),
        bytes: 0,
        reasons: ReasonTallies::default(),
    };
    let ended = if queue.facts().can_browse {
        look.list().await
    } else {
        let most_receives = queue.identity().most_receives;
        if most_receives == Some(1) {
            let name = queue.identity().name.clone();
            return Err(RedriveError::Refused(RedriveRefusal::OneReceive(name)));
        }
        let mut held = Vec::new();
        let ended = look.receive(&mut held).await;
        look.looked.received = held.len() as u64;
        (look.looked.not_released, _) = release(queue, &held).await;
        leave(queue).await;
        ended
    };
    let Look {
        looked, reasons, ..
    } = look;
    match ended {
        Ok(end) => Ok(LookResult {
            end,
            reasons: reasons.sorted(),
            ..looked
        }),
        Err(error) => Err(RedriveError::Source {
            error,
            report: Box::default(),
        }),
    }
}

struct Look<'a> {
    queue: &'a dyn Queue,
    selection: &'a Selection,
    bounds: &'a LookBounds,
    cancel: &'a CancellationToken,
    looked: LookResult,
    /// The size of the shown messages.
    bytes: u64,
    reasons: ReasonTallies,
}

impl Look<'_> {
    fn has_enough(&self) -> bool {
        self.looked.messages.len() >= self.bounds.most || self.bytes >= self.bounds.bytes
    }

    /// Counts a message, and keeps it if it must be shown.
    fn note(&mut self, message: Message) {
        self.looked.scanned += 1;
        if !self.selection.matches(&message, clock::wall_clock_now()) {
            return;
        }
        self.looked.matched += 1;
        self.reasons.note(&message);
        if !self.has_enough() {
            self.bytes += message.held_bytes();
            self.looked.messages.push(message);
        }
    }

    /// Returns how many messages of the next page may still be inspected.
    fn page(&self) -> usize {
        let left = self.bounds.scan.saturating_sub(self.looked.scanned);
        usize::try_from(left).unwrap_or(usize::MAX).min(PAGE)
    }

    async fn list(&mut self) -> Result<LookEnd, QueueError> {
        let mut after = self.bounds.after.clone();
        loop {
            if self.cancel.is_cancelled() {
                self.looked.next = self.looked.next.take().or(after);
                return Ok(LookEnd::Cancelled);
            }
            if self.page() == 0 {
                self.looked.next = self.looked.next.take().or(after);
                return Ok(LookEnd::ScanLimit);
            }
            let had_enough = self.has_enough();
            let BrowsePage { messages, next } =
                self.queue.browse(after.as_ref(), self.page()).await?;
            let mut filled_at = None;
            let all = messages.len();
            for (at, message) in messages.into_iter().enumerate() {
                self.note(message);
                if filled_at.is_none() && self.has_enough() {
                    filled_at = Some(at + 1);
                }
            }
            if !had_enough && let Some(seen) = filled_at {
                self.looked.next = if seen == all {
                    next.clone()
                } else {
                    self.place_after(after.as_ref(), seen).await?
                };
                if !self.bounds.counts_on {
                    return Ok(LookEnd::Enough);
                }
            }
            after = next;
            if after.is_none() {
                return Ok(LookEnd::Complete);
            }
        }
    }

    /// Returns the place after the first `count` messages after `start`.
    async fn place_after(
        &self,
        start: Option<&BrowseCursor>,
        count: usize,
    ) -> Result<Option<BrowseCursor>, QueueError> {
        let (mut after, mut left) = (start.cloned(), count);
        while left > 0 {
            let page = self.queue.browse(after.as_ref(), left).await?;
            left = left.saturating_sub(page.messages.len());
            after = page.next;
            if after.is_none() {
                return Ok(None);
            }
        }
        Ok(after)
    }

    async fn receive(&mut self, held: &mut Vec<Message>) -> Result<LookEnd, QueueError> {
        let most_receives = self.queue.identity().most_receives;
        let mut known = HashSet::new();
        let mut quiet = 0;
        loop {
            if self.has_enough() && !self.bounds.counts_on {
                return Ok(LookEnd::Enough);
            }
            if self.cancel.is_cancelled() {
                return Ok(LookEnd::Cancelled);
            }
            let scan = self.bounds.scan.min(MOST_SCANNED);
            if self.looked.scanned >= scan {
                return Ok(LookEnd::ScanLimit);
            }
            let ask = Ask {
                max: self.queue.identity().batch.min(self.page()).max(1),
                visibility: SCAN_LEASE,
                wait: self.queue.identity().proof_wait,
                groups: GroupShare::Fill,
                ..Ask::PLAIN
            };
            let messages = self.queue.receive(ask, self.cancel).await?.messages;
            self.looked.receive_calls += 1;
            quiet = if messages.is_empty() { quiet + 1 } else { 0 };
            if quiet >= 2 {
                return Ok(LookEnd::Complete);
            }
            let mut receives = 0;
            for message in messages {
                receives = receives.max(message.receive_count);
                let bare = Message {
                    body: String::new(),
                    attributes: Vec::new(),
                    ..message
                };
                held.push(bare.clone());
                let message = Message {
                    body: message.body,
                    attributes: message.attributes,
                    ..bare
                };
                if known.insert(message.id.clone()) {
                    self.note(message);
                }
            }
            match most_receives {
                Some(most) if receives >= most => return Ok(LookEnd::ReceivesSpent),
                Some(most) if receives + 1 >= most => return Ok(LookEnd::LastReceive),
                _ => {}
            }
        }
    }
}
