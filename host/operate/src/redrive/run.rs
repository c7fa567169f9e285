//! Walks over a queue and moves the selected messages: page by page if the queue can be listed,
//! otherwise by receiving.

use super::handover::Handover;
use super::tally::{End, JobReport};
use super::{MOST_SCANNED, Progress, Redrive, RedriveError, RedriveRefusal};
use crate::verbs::redrive::RedriveRequest;
use dispatcher_core::clock;
use dispatcher_core::message::Message;
use dispatcher_core::queue::{Ask, BrowseCursor, GroupShare, Queue, QueueError, ReceivedMessages};
use dispatcher_core::telemetry::events::TARGET;
use std::collections::HashMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The maximum number of messages on one page.
const PAGE: usize = 100;
/// How long received messages stay invisible for inspection.
pub(super) const SCAN_LEASE: Duration = Duration::from_secs(600);
/// The maximum number of messages that are leased together if a program reviews them first.
const REVIEWED: usize = 8;
/// The seconds of work that are leased together in a run with a rate limit.
const AHEAD_S: f64 = 10.0;
/// The number of consecutive receives with only new messages after which a queue that cannot be
/// listed has no old ones left. Receives of messages that are already held do not count.
const ONLY_NEW: u32 = 10;
/// The number of receives of already held messages, since the last other message, after which a run
/// ends; or twice the number of held messages, if that is more. Their leases then end faster than
/// all of them are received.
const AGAIN: usize = 1_000;
/// The maximum number of messages that stay and are held by a run without conditions: each is
/// received again when its lease ends, and counts against the limit of SQS for messages in flight.
const MOST_HELD: usize = 10_000;
/// The number of moved messages after which returned ones are counted again, or a tenth of all
/// moved messages if that is more.
const COUNTED_EVERY: u64 = 20;

/// Runs until everything is inspected, a limit of the request is reached, or `cancel` is set. Then
/// releases all leases.
pub async fn run(
    redrive: &Redrive,
    request: &RedriveRequest,
    cancel: &CancellationToken,
    progress: &dyn Progress,
) -> Result<JobReport, RedriveError> {
    check(redrive, request).map_err(RedriveError::Refused)?;
    let mut run = Run {
        carrier: Handover::new(redrive, request, cancel, progress),
        counted_at: 0,
    };
    let ended = if redrive.from.facts().can_browse {
        run.walk().await
    } else {
        run.receive().await
    };
    leave(&*redrive.from).await;
    if matches!(ended, Ok(End::Complete | End::OnlyNew | End::ScanLimit)) {
        run.carrier.note_missing();
    }
    let mut report = run.carrier.report;
    report.returned = run.carrier.returns.returned();
    let queue = &redrive.from.identity().name;
    let (moved, left) = (report.moved, report.left + report.blocked);
    match ended {
        Ok(end) => {
            report.end = Some(end);
            if request.applies() {
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

/// Leaves a queue after inspecting it: its backend may have registered this process as a receiver.
pub(super) async fn leave(queue: &dyn Queue) {
    if let Err(error) = queue.leave_if_idle().await {
        let queue = &queue.identity().name;
        tracing::warn!(queue, %error, "queue not left");
    }
}

/// Checks whether the request can be met at all.
///
/// # Errors
/// Returns the reason why it cannot.
pub fn check(redrive: &Redrive, request: &RedriveRequest) -> Result<(), RedriveRefusal> {
    let from = redrive.from.identity();
    if let Some(all) = redrive.to.all()
        && all.identity().source == from.source
    {
        return Err(RedriveRefusal::SameQueue(from.name.clone()));
    }
    if redrive.from.facts().can_browse {
        return Ok(());
    }
    if redrive.is_fifo && !redrive.selection.is_everything() {
        return Err(RedriveRefusal::InOrder(from.name.clone()));
    }
    let looks = !request.applies() || !redrive.selection.is_everything();
    if looks && from.most_receives == Some(1) {
        return Err(RedriveRefusal::OneReceive(from.name.clone()));
    }
    Ok(())
}

struct Run<'a> {
    carrier: Handover<'a>,
    /// The number of moved messages when the returned ones were last counted.
    counted_at: u64,
}

impl Run<'_> {
    /// Walks over the pages of a queue that can be listed. If groups are kept in order, moving a
    /// message brings the next ones of its group forward, perhaps to a place that the walk has
    /// passed; then the walk is repeated.
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

    /// Returns the messages of a page to move; if nothing is moved, counts them instead.
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
            if carrier.request.applies() {
                // Chooses more messages than may be moved, because other consumers may take some of
                // them first.
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
            // Leases only as many messages as the rate allows to send at once.
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

    /// Returns how many messages are leased together.
    fn together(&self) -> usize {
        let Run { carrier, .. } = self;
        let page = carrier.redrive.from.identity().batch.clamp(1, PAGE);
        let most = match carrier.redrive.review {
            Some(_) => page.min(REVIEWED),
            None => page,
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates, and a rate is positive"
        )]
        let ahead = carrier.request.rate().map(|rate| (rate * AHEAD_S) as usize);
        ahead.map_or(most, |ahead| most.min(ahead)).max(1)
    }

    /// Counts the messages that returned since the start, at intervals.
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

    /// Receives from a queue that cannot be listed. Holds the messages that stay until the end, so
    /// that the same ones are not received again and again.
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
        let Handover {
            request, redrive, ..
        } = &self.carrier;
        let looks = !request.applies() || !redrive.selection.is_everything();
        let most_scanned = request.scan().min(MOST_SCANNED);
        let scan = if looks { most_scanned } else { u64::MAX };
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
            let wanted = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(self.together());
            let most = if looks {
                wanted
            } else {
                wanted.min(self.carrier.allowed().await).max(1)
            };
            if self.carrier.is_over() {
                continue;
            }
            let lease = if looks {
                SCAN_LEASE
            } else {
                self.carrier.lease()
            };
            let since = clock::now();
            let received = self.receive_page(most, lease, held).await?;
            // A single long poll of SQS may be empty although there are messages.
            quiet = u32::from(received.messages.is_empty()) * (quiet + 1);
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
            // Other producers may send faster than this run receives.
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

    /// Makes one receive call, which waits long enough to prove that the queue is empty. Holds the
    /// received messages if the next call fails.
    async fn receive_page(
        &mut self,
        most: usize,
        lease: Duration,
        held: &mut HashMap<String, Message>,
    ) -> Result<ReceivedMessages, QueueError> {
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

    /// Requests the depth of the queue when the first message without a date arrives: the run takes
    /// no more messages than that, since nothing shows which ones arrived after it began.
    async fn bound_undated(&mut self, received: &[Message]) -> Result<(), QueueError> {
        if self.carrier.returns.lacks_bound(received) {
            let waiting = self.carrier.redrive.from.depth().await?.waiting;
            let held = waiting.saturating_add(received.len() as u64);
            self.carrier.returns.bound_undated(held);
        }
        Ok(())
    }

    /// Returns the received messages to move, and holds the others. The number is the highest
    /// receive count of the held ones.
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
                if !carrier.request.applies() {
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

    /// Keeps the parts of a message that are needed to release it, replacing an earlier receive of
    /// it.
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
