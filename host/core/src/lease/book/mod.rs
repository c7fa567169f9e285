//! Tracks which deliveries are leased, until when, and which extension is due. Pure: `now` is an
//! argument. Makes no calls and does not depend on a backend.

use super::invisible::InvisibleMessages;
use crate::clock::BootInstant;
use crate::message::{Loss, Receipt};
use crate::queue::{ItemError, VISIBILITY_CEILING};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The minimum visibility timeout that is requested: calls carry whole seconds, and half a lease
/// must outlast a call.
pub const SHORTEST_VISIBILITY: Duration = Duration::from_secs(2);
/// SQS limits the invisibility of a message to 12 hours. Requests stay this far below, so that a
/// slow one does not exceed the limit (the SQS developer guide advises 43,195 s).
const CEILING_MARGIN: Duration = Duration::from_secs(5);
/// When an extension call is made anyway, leases join it that are due within this fraction of their
/// visibility timeout.
const JOIN_FRACTION: u32 = 4;

/// The maximum number of remembered deliveries that were lost before their leases were entered: one
/// or two receives of each of a thousand queues.
const MOST_EARLY_LOSSES: usize = 10_000;

/// One lease in the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(u64);

/// The terms that a lease begins with.
#[derive(Debug, Clone)]
pub struct LeaseTerms {
    /// The queue's place in the keeper's list.
    pub queue: usize,
    /// The receipt of the delivery.
    pub receipt: Receipt,
    /// When the queue began to count the visibility timeout, or the best estimate. All times are
    /// counted from it.
    pub received: BootInstant,
    /// When the receive was answered; the delivery was made before that.
    pub answered: BootInstant,
    /// The visibility timeout that the receive and every extension request.
    pub visibility: Duration,
}

/// One extension call that is due, with items of one queue; those that expire first come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtensionCall {
    /// The queue's place in the keeper's list.
    pub queue: usize,
    /// The leases to extend, and the time to request, counted from the call.
    pub items: Vec<(LeaseId, Receipt, Duration)>,
    /// When the first of its leases expires.
    pub runs_out: BootInstant,
}

#[derive(Debug)]
struct LeaseEntry {
    terms: LeaseTerms,
    deadline: BootInstant,
    extend_at: BootInstant,
    state: LeaseState,
    hidden: InvisibleMessages,
    lost: CancellationToken,
    /// Whether the message was cancelled, so that it is not delivered again.
    is_cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    /// The lease is extended whenever an extension is due.
    Kept,
    /// An extension call is running.
    Extending,
    /// The lease is no longer extended: it is being settled, at the ceiling, or its extension was
    /// refused. It ends at its deadline.
    Ending,
    /// The lease is being settled while the last extension is still under way.
    EndingExtending,
    /// The lease expired or was taken away. The verdict of its attempt does not count.
    Lost,
}

/// All leases of a process.
#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: HashMap<LeaseId, LeaseEntry>,
    /// When each entry needs attention because an extension is due or its deadline has come.
    agenda: BTreeSet<(BootInstant, LeaseId)>,
    opened: u64,
    /// Deliveries that were taken away before they were entered here, with their queues and whether
    /// their messages were cancelled. This can happen between the answer to a receive and `open`.
    early: HashMap<Receipt, (usize, bool)>,
    /// The receipts of `early`, oldest first. Most belong to leases that were closed before, and
    /// are never looked up.
    order: VecDeque<Receipt>,
}

impl Book {
    /// Enters a lease. The token fires when the lease is lost, for any reason.
    pub(crate) fn open(&mut self, terms: LeaseTerms) -> (LeaseId, CancellationToken) {
        self.opened += 1;
        let id = LeaseId(self.opened);
        let lost = CancellationToken::new();
        let deadline = terms.received + terms.visibility;
        let entry = LeaseEntry {
            extend_at: terms.received + terms.visibility / 2,
            deadline,
            state: LeaseState::Kept,
            hidden: InvisibleMessages::since(terms.answered, terms.visibility),
            lost: lost.clone(),
            is_cancelled: false,
            terms,
        };
        let queue = entry.terms.queue;
        let early_loss = self
            .early
            .get(&entry.terms.receipt)
            .copied()
            .filter(|(of, _)| *of == queue);
        self.agenda.insert((entry.attention(), id));
        self.entries.insert(id, entry);
        if let Some((_, message_cancelled)) = early_loss {
            self.change(id, |entry| entry.lose_to(message_cancelled));
        }
        (id, lost)
    }

    /// Removes a lease that was settled or given up.
    pub(crate) fn close(&mut self, id: LeaseId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.agenda.remove(&(entry.attention(), id));
        }
    }

    /// Marks a lease as lost if its time is over.
    pub(crate) fn check(&mut self, id: LeaseId, now: BootInstant) {
        self.change(id, |entry| {
            if entry.deadline <= now {
                entry.lose();
            }
        });
    }

    /// Marks the leases on these deliveries of a queue as lost, regardless of their deadlines,
    /// including leases that are entered later.
    pub(crate) fn lose(&mut self, queue: usize, losses: &[Loss]) {
        let mut losses: HashMap<&Receipt, bool> = losses
            .iter()
            .map(|loss| (&loss.receipt, loss.cancelled))
            .collect();
        let mut ids = Vec::new();
        for (id, entry) in &self.entries {
            if entry.terms.queue == queue
                && let Some(cancelled) = losses.remove(&entry.terms.receipt)
            {
                ids.push((*id, cancelled));
            }
        }
        for (id, cancelled) in ids {
            self.change(id, |entry| entry.lose_to(cancelled));
        }
        for (receipt, cancelled) in losses {
            if self
                .early
                .insert(receipt.clone(), (queue, cancelled))
                .is_none()
            {
                self.order.push_back(receipt.clone());
            }
            if self.order.len() > MOST_EARLY_LOSSES
                && let Some(oldest) = self.order.pop_front()
            {
                self.early.remove(&oldest);
            }
        }
    }

    /// Whether the message of this lease was cancelled.
    pub(crate) fn is_cancelled(&self, id: LeaseId) -> bool {
        self.entries
            .get(&id)
            .is_some_and(|entry| entry.is_cancelled)
    }

    /// Returns when a lease ends, unless it is extended again.
    pub(crate) fn deadline(&self, id: LeaseId) -> Option<BootInstant> {
        Some(self.entries.get(&id)?.deadline)
    }

    /// Returns when a lease ends, unless it is extended again; `None` if it is lost.
    pub(crate) fn deadline_kept(&self, id: LeaseId) -> Option<BootInstant> {
        let entry = self.entries.get(&id)?;
        (entry.state != LeaseState::Lost).then_some(entry.deadline)
    }

    /// Returns until when the queue may keep the delivery invisible, leased or not.
    pub(crate) fn hidden(&self, id: LeaseId) -> Option<InvisibleMessages> {
        Some(self.entries.get(&id)?.hidden)
    }

    /// Stops extending a lease. Returns until when the delivery may be settled, or `None` if the
    /// lease is lost.
    pub(crate) fn settle(&mut self, id: LeaseId, now: BootInstant) -> Option<BootInstant> {
        self.change(id, |entry| {
            if entry.deadline <= now {
                entry.lose();
            }
            entry.state = match entry.state {
                LeaseState::Kept => LeaseState::Ending,
                LeaseState::Extending => LeaseState::EndingExtending,
                other => other,
            };
        });
        let entry = self.entries.get(&id)?;
        (entry.state != LeaseState::Lost).then_some(entry.deadline)
    }

    /// Whether an extension of this lease is running, which could overtake a release made now.
    pub(crate) fn extending(&self, id: LeaseId) -> bool {
        let state = self.entries.get(&id).map(|entry| entry.state);
        matches!(
            state,
            Some(LeaseState::Extending | LeaseState::EndingExtending)
        )
    }

    /// Returns when an entry needs attention next.
    pub(crate) fn next_attention(&self) -> Option<BootInstant> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Marks expired leases as lost, and returns the calls that are due, with at most
    /// `batch(queue)` items each. Each item is outstanding until `extended` reports its result.
    pub(crate) fn due(
        &mut self,
        now: BootInstant,
        batch: impl Fn(usize) -> usize,
    ) -> Vec<ExtensionCall> {
        let mut due = Vec::new();
        while let Some(&(at, id)) = self.agenda.first() {
            if at > now {
                break;
            }
            match self.attend(id, now) {
                Some(queue) => due.push((queue, id)),
                None => continue,
            }
        }
        self.fill(due, now, batch)
    }

    /// Handles an entry that needs attention. Returns its queue if an extension is due.
    fn attend(&mut self, id: LeaseId, now: BootInstant) -> Option<usize> {
        let mut due = None;
        self.change(id, |entry| {
            if entry.deadline <= now {
                entry.lose();
            } else if entry.longest_extension(now).is_none() {
                entry.state = LeaseState::Ending;
            } else {
                entry.state = LeaseState::Extending;
                entry.hidden.request_extension(now, entry.terms.visibility);
                due = Some(entry.terms.queue);
            }
        });
        due
    }

    /// Groups the due leases into calls, and fills the calls with nearly due leases of the same
    /// queue.
    fn fill(
        &mut self,
        due: Vec<(usize, LeaseId)>,
        now: BootInstant,
        batch: impl Fn(usize) -> usize,
    ) -> Vec<ExtensionCall> {
        let mut by_queue: HashMap<usize, Vec<LeaseId>> = HashMap::new();
        for (queue, id) in due {
            by_queue.entry(queue).or_default().push(id);
        }
        let mut calls = Vec::new();
        for (queue, mut ids) in by_queue {
            let size = batch(queue).max(1);
            let spare = (size - ids.len() % size) % size;
            let near: Vec<LeaseId> = self.nearly_due(queue, now).take(spare).collect();
            for id in near {
                if self.attend(id, now).is_some() {
                    ids.push(id);
                }
            }
            ids.sort_by_key(|id| self.entries.get(id).map(|entry| entry.deadline));
            for chunk in ids.chunks(size) {
                let items = chunk
                    .iter()
                    .filter_map(|id: &LeaseId| {
                        let entry = self.entries.get(id)?;
                        let length = entry.longest_extension(now)?;
                        Some((*id, entry.terms.receipt.clone(), length))
                    })
                    .collect();
                let deadlines = chunk
                    .iter()
                    .filter_map(|id| Some(self.entries.get(id)?.deadline));
                let runs_out = deadlines.min().unwrap_or(now);
                calls.push(ExtensionCall {
                    queue,
                    items,
                    runs_out,
                });
            }
        }
        calls.sort_by_key(|call| call.queue);
        calls
    }

    /// Returns the leases of a queue that may join a call. Stops at the first lease outside its own
    /// window, also of another queue: with different timeouts fewer leases join.
    fn nearly_due(&self, queue: usize, now: BootInstant) -> impl Iterator<Item = LeaseId> + '_ {
        self.agenda
            .iter()
            .map_while(move |&(at, id)| {
                let entry = self.entries.get(&id)?;
                let horizon = now + entry.terms.visibility / JOIN_FRACTION;
                (at <= horizon).then_some((id, entry))
            })
            .filter(move |(_, entry)| entry.state == LeaseState::Kept && entry.terms.queue == queue)
            .map(|(id, _)| id)
    }

    /// Records a call's answer for one item. `called` is the moment before the call, `asked` the
    /// time that it requested. Late, repeated and unknown answers are harmless.
    pub(crate) fn extended(
        &mut self,
        id: LeaseId,
        called: BootInstant,
        asked: Duration,
        answer: &Result<(), ItemError>,
        now: BootInstant,
    ) {
        self.change(id, |entry| {
            match answer {
                Ok(()) => entry.hidden.extension_answered(Some(now), asked),
                Err(_) => entry.hidden.extension_answered(None, asked),
            }
            let settling = match entry.state {
                LeaseState::Extending => false,
                LeaseState::EndingExtending => true,
                LeaseState::Kept | LeaseState::Ending | LeaseState::Lost => return,
            };
            entry.state = if settling {
                LeaseState::Ending
            } else {
                LeaseState::Kept
            };
            match answer {
                Ok(()) => {
                    entry.deadline = called + asked;
                    entry.extend_at = called + asked / 2;
                }
                Err(ItemError::Transient(_)) => {
                    let left = entry.deadline.since(now);
                    entry.extend_at = now + (left / 4).max(Duration::from_millis(50));
                }
                Err(ItemError::Refused(_)) => entry.state = LeaseState::Ending,
                Err(ItemError::Gone(_)) => entry.lose(),
                Err(ItemError::Cancelled) => entry.lose_to(true),
            }
            if entry.deadline <= now {
                entry.lose();
            }
        });
    }

    /// Changes an entry. Every change goes through here, so the agenda always agrees with the
    /// entries.
    fn change(&mut self, id: LeaseId, change: impl FnOnce(&mut LeaseEntry)) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let before = entry.attention();
        change(entry);
        let after = entry.attention();
        let lost = entry.state == LeaseState::Lost;
        self.agenda.remove(&(before, id));
        if !lost {
            self.agenda.insert((after, id));
        }
    }

    /// Returns the number of leases, including lost ones that were not closed yet.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no lease is held.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl LeaseEntry {
    fn attention(&self) -> BootInstant {
        match self.state {
            LeaseState::Kept => self.extend_at.min(self.deadline),
            _ => self.deadline,
        }
    }

    /// Returns the time that an extension may request; `None` if it would gain nothing, or once the
    /// ceiling leaves less than a second.
    fn longest_extension(&self, now: BootInstant) -> Option<Duration> {
        let ceiling = self.terms.received + (VISIBILITY_CEILING - CEILING_MARGIN);
        let left = ceiling.since(now);
        let whole_seconds = Duration::from_secs(left.min(self.terms.visibility).as_secs());
        let gains = now + whole_seconds > self.deadline;
        (gains && whole_seconds >= Duration::from_secs(1)).then_some(whole_seconds)
    }

    fn lose(&mut self) {
        self.lose_to(false);
    }

    fn lose_to(&mut self, cancelled: bool) {
        self.state = LeaseState::Lost;
        self.is_cancelled |= cancelled;
        self.lost.cancel();
    }
}

#[cfg(test)]
mod tests;
