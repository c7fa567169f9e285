//! Walks over a queue and moves what was selected: page by page where the queue can be listed, else by
//! receiving.

use super::handover::Handover;
use super::tally::{End, RedriveReport};
use super::{MOST_SCANNED, Progress, Redrive, RedriveError, RedriveRefusal, RedriveRequest};
use crate::clock;
use crate::message::Message;
use crate::queue::{Ask, BrowseCursor, GroupShare, Queue, QueueError, Received};
use crate::telemetry::events::TARGET;
use std::collections::HashMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The most messages of one page.
const PAGE: usize = 100;
/// How long messages are invisible that are received to be looked at.
pub(super) const SCAN_LEASE: Duration = Duration::from_secs(600);
/// Where a program looks at messages first, so many are leased together.
const REVIEWED: usize = 8;
/// Of a slow run, so much is leased together, in seconds.
const AHEAD_S: f64 = 10.0;
/// A queue that is received from has nothing old left after so many receives in a row that brought
/// only what came after the start. Those that brought what is held already do not count.
const ONLY_NEW: u32 = 10;
/// A run ends when it has received so many messages that it holds already, and twice each of them,
/// since the last other one: their leases end faster than it comes round.
const AGAIN: usize = 1_000;
/// The most messages that a run without conditions holds since they stay: each is received again
/// whenever its lease ends, and counts against what SQS allows in flight.
const MOST_HELD: usize = 10_000;
/// What came back is counted after this many messages were moved, or after a tenth of them.
const COUNTED_EVERY: u64 = 20;

/// Runs until everything is looked at, an end of the request is reached, or `cancel` is set. Then all
/// leases are given back.
pub async fn run(
    redrive: &Redrive,
    request: &RedriveRequest,
    cancel: &CancellationToken,
    progress: &dyn Progress,
) -> Result<RedriveReport, RedriveError> {
    check(redrive, request).map_err(RedriveError::Refused)?;
    let mut run = Run {
        carrier: Handover::new(redrive, request, cancel, progress),
        counted_at: 0,
    };
    let ended = match redrive.from.can_browse() {
        true => run.walk().await,
        false => run.receive().await,
    };
    if matches!(ended, Ok(End::Complete | End::OnlyNew | End::ScanLimit)) {
        run.carrier.note_missing();
    }
    let mut report = run.carrier.report;
    report.returned = run.carrier.returns.returned();
    let (queue, moved, left) = (&report.queue, report.moved, report.left + report.blocked);
    match ended {
        Ok(end) => {
            report.end = Some(end);
            if request.apply {
                let end = end.words();
                tracing::info!(target: TARGET, queue, moved, left, returned = report.returned, end, "messages moved");
            }
            Ok(report)
        }
        Err(error) => {
            tracing::warn!(target: TARGET, queue, moved, left, %error, "messages moved until a call failed");
            Err(RedriveError::Source {
                error,
                report: Box::new(report),
            })
        }
    }
}

/// Whether the request can be met at all.
///
/// # Errors
/// Why it cannot be.
pub fn check(redrive: &Redrive, request: &RedriveRequest) -> Result<(), RedriveRefusal> {
    let from = redrive.from.identity();
    let queue = || from.name.clone();
    if let Some(all) = redrive.to.all()
        && all.identity().source == from.source
    {
        return Err(RedriveRefusal::SameQueue(queue()));
    }
    if redrive.from.can_browse() {
        return Ok(());
    }
    if redrive.is_fifo && !request.selection.is_everything() {
        return Err(RedriveRefusal::InOrder(queue()));
    }
    let looks = !request.apply || !request.selection.is_everything();
    if looks && from.most_receives == Some(1) {
        return Err(RedriveRefusal::OneReceive(queue()));
    }
    Ok(())
}

struct Run<'a> {
    carrier: Handover<'a>,
    /// How many had been moved when the returned ones were counted last.
    counted_at: u64,
}

impl Run<'_> {
    /// Walks over the pages of a queue that can be listed. Where groups are kept, those behind a
    /// message come forward when it is moved, perhaps behind the walk: then it is made again.
    async fn walk(&mut self) -> Result<End, QueueError> {
        let from = self.carrier.redrive.from.clone();
        let end = from.browse_end().await?;
        loop {
            let moved = self.carrier.report.moved;
            let (mut after, mut grouped) = (None, false);
            self.carrier.report.blocked = 0;
            self.carrier.report.scanned = 0;
            self.carrier.report.arrived = 0;
            loop {
                if self.carrier.is_over() {
                    break;
                }
                let page = from.browse(after.as_ref(), PAGE).await?;
                grouped |= page.messages.iter().any(|one| one.group.is_some());
                let chosen = self.choose(page.messages).await;
                self.show().await;
                self.move_listed(&*from, chosen, &end).await?;
                if self.carrier.room() == 0 {
                    self.carrier.over.get_or_insert(End::First);
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            if let Some(over) = self.carrier.over {
                return Ok(over);
            }
            if !grouped || self.carrier.report.moved == moved {
                return Ok(End::Complete);
            }
        }
    }

    async fn show(&mut self) {
        self.carrier.progress.note(&self.carrier.report).await;
    }

    /// What of a page is to be moved; counts it instead where nothing is.
    async fn choose(&mut self, page: Vec<Message>) -> Vec<Message> {
        let now = clock::wall_clock_now();
        let mut chosen = Vec::new();
        for message in page {
            let carrier = &mut self.carrier;
            if carrier.is_over() {
                break;
            }
            carrier.report.scanned += 1;
            if carrier.is_new(&message) {
                carrier.report.arrived += 1;
                continue;
            }
            let is_tried = carrier.tried.contains(&message.id);
            if is_tried || !carrier.selects(&message, now) {
                continue;
            }
            if carrier.request.apply {
                // More than there is room for: others may take some of them first.
                chosen.push(message);
            } else if carrier.room_to_count() {
                carrier.count(&message).await;
            } else {
                carrier.over.get_or_insert(End::First);
            }
        }
        chosen
    }

    async fn move_listed(
        &mut self,
        from: &dyn Queue,
        chosen: Vec<Message>,
        end: &BrowseCursor,
    ) -> Result<(), QueueError> {
        let mut rest = &chosen[..];
        while !rest.is_empty() && self.carrier.room() > 0 {
            // What is leased is sent at once, however slow the run is.
            let allowed = self.carrier.allowed().await;
            if self.carrier.is_over() {
                return Ok(());
            }
            let room = usize::try_from(self.carrier.room()).unwrap_or(usize::MAX);
            let most = self.together().min(allowed).min(room);
            let part;
            (part, rest) = rest.split_at(most.min(rest.len()));
            let listed: Vec<_> = part.iter().map(|one| one.receipt.clone()).collect();
            let since = clock::now();
            let lease = self.carrier.lease();
            let leased = from.receive_these(&listed, lease).await?;
            let taken = leased.len();
            let kept = self.carrier.carry(leased, (since, lease)).await;
            self.carrier.release(kept).await;
            let missed = part.len() - taken;
            let grouped = part.iter().filter(|one| one.group.is_some()).count();
            let blocked = missed.min(grouped);
            self.carrier.report.blocked += blocked as u64;
            self.carrier.report.taken += (missed - blocked) as u64;
            self.count_returned(from, end).await?;
        }
        Ok(())
    }

    /// How many messages are leased together.
    fn together(&self) -> usize {
        let Run { carrier, .. } = self;
        let most = carrier.redrive.from.identity().batch.clamp(1, PAGE);
        let most = match carrier.redrive.review {
            Some(_) => most.min(REVIEWED),
            None => most,
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates, and a rate is positive"
        )]
        let ahead = carrier.request.rate.map(|rate| (rate * AHEAD_S) as usize);
        ahead.map_or(most, |ahead| most.min(ahead)).max(1)
    }

    /// Counts what came back since the start, from time to time.
    async fn count_returned(
        &mut self,
        from: &dyn Queue,
        end: &BrowseCursor,
    ) -> Result<(), QueueError> {
        let moved = self.carrier.report.moved;
        let is_early = moved < self.counted_at + COUNTED_EVERY.max(moved / 10);
        if is_early || !self.carrier.returns.counts() {
            return Ok(());
        }
        self.counted_at = moved;
        let mut after = Some(end.clone());
        self.carrier.returns.forget_seen();
        while after.is_some() {
            let page = from.browse(after.as_ref(), PAGE).await?;
            for message in &page.messages {
                self.carrier.returns.note_seen(message);
            }
            after = page.next;
        }
        Ok(())
    }

    /// Receives from a queue that cannot be listed. What stays is held until the end, so that the same
    /// messages do not come again and again.
    async fn receive(&mut self) -> Result<End, QueueError> {
        let mut held = HashMap::new();
        let ended = self.receive_all(&mut held).await;
        self.carrier.release(held.into_values().collect()).await;
        ended
    }

    async fn receive_all(
        &mut self,
        held: &mut HashMap<String, Message>,
    ) -> Result<End, QueueError> {
        let request = self.carrier.request;
        let looks = !request.apply || !request.selection.is_everything();
        let scan = match looks {
            true => request.scan.min(MOST_SCANNED),
            false => u64::MAX,
        };
        let (mut quiet, mut only_new, mut again) = (0, 0, 0);
        loop {
            if self.carrier.is_over() {
                return Ok(self.carrier.over.unwrap_or(End::Cancelled));
            }
            let room = if looks { u64::MAX } else { self.carrier.room() };
            let left = room.min(scan.saturating_sub(self.carrier.report.scanned));
            if self.carrier.room() == 0 {
                return Ok(End::First);
            }
            if left == 0 {
                return Ok(End::ScanLimit);
            }
            let most = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(self.together());
            let most = match looks {
                true => most,
                false => most.min(self.carrier.allowed().await).max(1),
            };
            if self.carrier.is_over() {
                continue;
            }
            let lease = match looks {
                true => SCAN_LEASE,
                false => self.carrier.lease(),
            };
            let since = clock::now();
            let received = self.receive_page(most, lease, held).await?;
            // A single long poll of SQS may be empty although there are messages.
            quiet = match received.messages.is_empty() {
                true => quiet + 1,
                false => 0,
            };
            if quiet >= 2 {
                return Ok(End::Complete);
            }
            let old = self.carrier.report.scanned - self.carrier.report.arrived;
            let brought = received.messages.len();
            let mut messages = received.messages.iter();
            let is_new = brought > 0 && messages.all(|one| self.carrier.is_new(one));
            let (chosen, mut receives) = self.sort(received.messages, held).await;
            self.show().await;
            let kept = self.carrier.carry(chosen, (since, lease)).await;
            for message in kept {
                receives = receives.max(message.receive_count);
                self.hold(message, held);
            }
            match self.carrier.redrive.from.identity().most_receives {
                Some(most) if receives >= most => return Ok(End::ReceivesSpent),
                Some(most) if receives + 1 >= most => return Ok(End::LastReceive),
                _ => {}
            }
            // Others may send faster than is received here.
            let is_old = self.carrier.report.scanned - self.carrier.report.arrived > old;
            match (is_old, is_new) {
                (true, _) => (only_new, again) = (0, 0),
                (false, true) => only_new += 1,
                (false, false) => again += brought,
            }
            if only_new >= ONLY_NEW {
                return Ok(End::OnlyNew);
            }
            if (!looks && held.len() >= MOST_HELD) || again >= AGAIN.max(2 * held.len()) {
                return Ok(End::TooManyStay);
            }
        }
    }

    /// One call, which waits as long as a proof that the queue is empty takes. Holds what it brought if
    /// the call after it fails.
    async fn receive_page(
        &mut self,
        most: usize,
        lease: Duration,
        held: &mut HashMap<String, Message>,
    ) -> Result<Received, QueueError> {
        let from = &self.carrier.redrive.from;
        let ask = Ask {
            max: most,
            visibility: lease,
            wait: from.identity().proof_wait,
            groups: GroupShare::Fill,
            ..Ask::PLAIN
        };
        let received = from.receive(ask, self.carrier.cancel).await?;
        self.carrier.note_receive();
        if let Err(error) = self.bound_undated(&received.messages).await {
            for message in received.messages {
                self.hold(message, held);
            }
            return Err(error);
        }
        Ok(received)
    }

    /// Asks how many messages the queue holds once one without a date comes: such a run takes no more,
    /// since nothing tells which of them came after it began.
    async fn bound_undated(&mut self, received: &[Message]) -> Result<(), QueueError> {
        if self.carrier.returns.lacks_bound(received) {
            let waiting = self.carrier.redrive.from.depth().await?.waiting;
            let held = waiting.saturating_add(received.len() as u64);
            self.carrier.returns.bound_undated(held);
        }
        Ok(())
    }

    /// What of the received messages is to be moved. Holds the others; the number is how often the
    /// one of them that was received most often was.
    async fn sort(
        &mut self,
        received: Vec<Message>,
        held: &mut HashMap<String, Message>,
    ) -> (Vec<Message>, u32) {
        let now = clock::wall_clock_now();
        let (mut chosen, mut receives) = (Vec::new(), 0);
        for message in received {
            let carrier = &mut self.carrier;
            let is_known = held.contains_key(&message.id) || carrier.tried.contains(&message.id);
            if is_known || carrier.is_over() {
                receives = receives.max(message.receive_count);
                self.hold(message, held);
                continue;
            }
            carrier.report.scanned += 1;
            carrier.returns.note_seen(&message);
            let is_new = carrier.is_new(&message);
            carrier.returns.note_looked_at(&message);
            if is_new {
                carrier.report.arrived += 1;
            } else if carrier.selects(&message, now) {
                if !carrier.request.apply {
                    if carrier.room_to_count() {
                        carrier.count(&message).await;
                    } else {
                        carrier.over.get_or_insert(End::First);
                    }
                } else if (chosen.len() as u64) < carrier.room() {
                    chosen.push(message);
                    continue;
                }
            }
            receives = receives.max(message.receive_count);
            self.hold(message, held);
        }
        (chosen, receives)
    }

    /// Keeps what it takes to give a message back, in the place of an earlier receive of it.
    fn hold(&mut self, message: Message, held: &mut HashMap<String, Message>) {
        self.carrier.report.received += 1;
        let bare = Message {
            body: String::new(),
            attributes: Vec::new(),
            system_attributes: Vec::new(),
            ..message
        };
        held.insert(bare.id.clone(), bare);
    }
}
