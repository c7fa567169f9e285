//! Tracks which deliveries are leased, until when, and which extension is due. Pure: `now` is an
//! argument. Knows no backend and makes no call.

use super::invisible::InvisibleMessages;
use crate::clock::BootInstant;
use crate::message::{Loss, Receipt};
use crate::queue::{ItemError, VISIBILITY_CEILING};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// No queue is asked for less: calls carry whole seconds, and half a lease must outlast a call.
pub const SHORTEST_VISIBILITY: Duration = Duration::from_secs(2);
/// A request for all that the ceiling leaves is refused if it arrives late (SQS developer guide
/// advises 43,195 s), so this much is left on the table.
const CEILING_MARGIN: Duration = Duration::from_secs(5);
/// What is due within this part of its visibility joins a call that is made anyway.
const JOIN_FRACTION: u32 = 4;

/// How many deliveries that were taken away are remembered: those of a receive or two of each
/// queue.
const MOST_EARLY: usize = 10_000;

/// One lease in the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(u64);

/// What a lease begins with.
#[derive(Debug, Clone)]
pub struct LeaseTerms {
    /// The queue's place in the keeper's list.
    pub queue: usize,
    /// The delivery's token.
    pub receipt: Receipt,
    /// When the delivery was made, or earlier: all times are counted from it.
    pub received: BootInstant,
    /// When we heard of it: by then it had been made.
    pub answered: BootInstant,
    /// What the receive asked for, and every extension will.
    pub visibility: Duration,
}

/// One call that is due: items of one queue, those that expire first in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtensionCall {
    /// The queue's place in the keeper's list.
    pub queue: usize,
    /// What to extend, and for how long from the call on.
    pub items: Vec<(LeaseId, Receipt, Duration)>,
    /// When the first of them expires.
    pub runs_out: BootInstant,
}

#[derive(Debug)]
struct LeaseEntry {
    terms: LeaseTerms,
    deadline: BootInstant,
    extend_at: BootInstant,
    state: LeaseState,
    hidden: InvisibleMessages,
    cancelled: CancellationToken,
    /// The message was cancelled, and so is not delivered again.
    is_cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    /// Extended whenever it is due.
    Kept,
    /// A call for it is running.
    Extending,
    /// Not extended any more: being settled, at the ceiling, or refused. Ends at its deadline.
    Ending,
    /// Being settled while the last extension is still under way.
    EndingExtending,
    /// Ran out or was taken away; what its attempt answers does not count.
    Lost,
}

/// All leases of a process.
#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: HashMap<LeaseId, LeaseEntry>,
    /// When each entry needs attention: an extension is due or its deadline has come.
    agenda: BTreeSet<(BootInstant, LeaseId)>,
    opened: u64,
    /// Deliveries that were taken away before they were entered here, their queues, and whether
    /// their messages were cancelled: between the answer to a receive and `open` much may happen.
    early: HashMap<Receipt, (usize, bool)>,
    /// The remembered losses, oldest first. Most belong to leases that were closed before, and are
    /// never looked up.
    order: VecDeque<Receipt>,
}

impl Book {
    /// Enters a lease. The token is set when the lease is lost.
    pub(crate) fn open(&mut self, terms: LeaseTerms) -> (LeaseId, CancellationToken) {
        self.opened += 1;
        let id = LeaseId(self.opened);
        let cancelled = CancellationToken::new();
        let deadline = terms.received + terms.visibility;
        let entry = LeaseEntry {
            extend_at: terms.received + terms.visibility / 2,
            deadline,
            state: LeaseState::Kept,
            hidden: InvisibleMessages::since(terms.answered, terms.visibility),
            cancelled: cancelled.clone(),
            is_cancelled: false,
            terms,
        };
        let queue = entry.terms.queue;
        let lost = self.early.get(&entry.terms.receipt).copied();
        let lost = lost.filter(|(of, _)| *of == queue);
        self.agenda.insert((entry.attention(), id));
        self.entries.insert(id, entry);
        if let Some((_, cancelled)) = lost {
            self.change(id, |entry| entry.lose_to(cancelled));
        }
        (id, cancelled)
    }

    /// Strikes a lease out, settled or given up: nothing more is done for it.
    pub(crate) fn close(&mut self, id: LeaseId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.agenda.remove(&(entry.attention(), id));
        }
    }

    /// Loses a lease whose time is over.
    pub(crate) fn check(&mut self, id: LeaseId, now: BootInstant) {
        self.change(id, |entry| {
            if entry.deadline <= now {
                entry.lose();
            }
        });
    }

    /// Loses the leases on these deliveries of a queue, whatever their time, also those that are
    /// entered later.
    pub(crate) fn lose(&mut self, queue: usize, losses: &[Loss]) {
        let losses = losses.iter().map(|loss| (&loss.receipt, loss.cancelled));
        let mut losses: HashMap<&Receipt, bool> = losses.collect();
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
            if self.order.len() > MOST_EARLY
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

    /// When an entry ends, unless it is extended again.
    pub(crate) fn deadline(&self, id: LeaseId) -> Option<BootInstant> {
        Some(self.entries.get(&id)?.deadline)
    }

    /// The same of an entry that is not lost.
    pub(crate) fn deadline_kept(&self, id: LeaseId) -> Option<BootInstant> {
        let entry = self.entries.get(&id)?;
        (entry.state != LeaseState::Lost).then_some(entry.deadline)
    }

    /// Until when the queue may keep the delivery invisible, leased or not.
    pub(crate) fn hidden(&self, id: LeaseId) -> Option<InvisibleMessages> {
        Some(self.entries.get(&id)?.hidden)
    }

    /// Stops extending and says until when the delivery may be settled; `None` if it is lost.
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

    /// Whether an extension of this lease is running: a release now could be overtaken by it.
    pub(crate) fn extending(&self, id: LeaseId) -> bool {
        let state = self.entries.get(&id).map(|entry| entry.state);
        matches!(
            state,
            Some(LeaseState::Extending | LeaseState::EndingExtending)
        )
    }

    /// When something is due next.
    pub(crate) fn next_attention(&self) -> Option<BootInstant> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Loses expired leases, and returns the calls that are due, with at most `batch(queue)` items
    /// each. Each item is outstanding until `extended` reports its result.
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

    /// Takes one entry whose time has come off the agenda's head. Says its queue if an extension
    /// is due.
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

    /// Groups what is due into calls and lets what is nearly due of the same queue ride along.
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
                let item = |id: &LeaseId| {
                    let entry = self.entries.get(id)?;
                    let length = entry.longest_extension(now)?;
                    Some((*id, entry.terms.receipt.clone(), length))
                };
                let items = chunk.iter().filter_map(item).collect();
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

    /// Notes a call's answer for one item. `called` is the moment before the call, `asked` the
    /// time it asked for. Late, repeated and unknown answers are harmless.
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

    /// Every change goes through here, so the agenda always agrees with the entries.
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

    /// How many leases are held, lost ones that were not closed yet included.
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

    /// How long an extension may ask for; `None` once the ceiling leaves less than a second.
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
        self.cancelled.cancel();
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
