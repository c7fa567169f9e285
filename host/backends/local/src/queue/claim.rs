//! Takes messages for a receive, and reads them once they count as received. Pure steps on a
//! connection that take `now` as an argument.

use super::deliver::{
    Candidate, Candidates, DeliveryTerms, GroupFollowers, READ_ONE, find, find_shared, message,
    take,
};
use super::groups::set_head;
use super::refusal::{RefusedMessage, Rules};
use super::settings;
use super::settle::remove;
use super::sharing::{self, QueueLanes};
use super::turn::{LocalDelivery, QueueId, Turn};
use dispatcher_core::memory::HeldBytes;
use dispatcher_core::message::Message;
use dispatcher_core::queue::Ask;
use rusqlite::{OptionalExtension, params};
use std::time::Duration;

/// The number of messages after which a receive stops moving messages away; the last look may
/// exceed it. Other callers wait meanwhile, and a lowered limit may affect a million messages.
const MOST_MOVED: usize = 100;

/// A message that was taken for delivery and is not read yet.
#[derive(Debug)]
pub(super) struct Claim {
    delivery: LocalDelivery,
    held: Option<HeldBytes>,
}

/// The messages that a receive takes, and those that it moved away.
#[derive(Debug, Default)]
pub(super) struct ClaimedMessages {
    /// The taken messages, in order.
    pub claims: Vec<Claim>,
    /// Whether nothing more can be received from the queue.
    pub drained: bool,
    /// The bytes of the next message, if the budget has no room for them.
    pub short_of: Option<u64>,
    /// The messages that were not delivered.
    pub refused: Vec<RefusedMessage>,
    /// Whether the caller's queue was deleted. A new one of the same name may exist.
    pub is_deleted: bool,
    /// How many of the taken messages had waited for the longest wait of their priority.
    pub overdue: usize,
}

/// Takes up to `ask.max` messages without reading them, so that they count as received before
/// anything is read. The order is that of `Candidate::place`, or by age if `ask.newest_first` is
/// set, or that of `sharing`. Messages that may not be delivered are moved away, about a hundred at
/// a time; the queue may then have more messages than were found, as `next_due` shows. The caller
/// handles `ask.wait`.
pub(super) fn claim(
    turn: &mut Turn<'_>,
    queue: QueueId,
    name: &str,
    ask: Ask,
    terms: &DeliveryTerms,
) -> rusqlite::Result<ClaimedMessages> {
    let set = settings::of_delivery(turn, queue)?;
    let mut claimed = ClaimedMessages::default();
    let client_of = terms.client_of;
    if client_of.is_some_and(|known| known != set.incarnation) {
        claimed.is_deleted = true;
        return Ok(claimed);
    }
    let rules = Rules {
        redrive: set.redrive,
        name: name.strip_prefix("local:").unwrap_or(name),
        terms,
    };
    let lanes = match sharing::of_receive(turn, queue, terms.sharing.as_ref())? {
        Some((slot, sharing)) => Some(sharing::prepare(turn, queue, &slot, sharing)?),
        None => None,
    };
    if lanes.is_none() {
        sharing::forget_unused(turn, queue)?;
    }
    let source = ReceiveSource {
        queue,
        ask,
        lanes: lanes.as_ref(),
    };
    let found = deliverable(turn, &source, &rules, set.retention, &mut claimed)?;
    let mut groups: Vec<String> = Vec::new();
    let mut taken = Vec::new();
    for candidate in found.candidates {
        let Some(held) = hold(&candidate, terms, ask.overdraw && claimed.claims.is_empty()) else {
            claimed.short_of = Some(candidate.bytes);
            break;
        };
        let count = i64::from(candidate.receives) + 1;
        take(turn, candidate.seq, count, ask.visibility)?;
        taken.push(candidate.seq);
        claimed.claims.push(Claim {
            delivery: LocalDelivery {
                seq: candidate.seq,
                count,
            },
            held,
        });
        groups.extend(candidate.group.filter(|group| groups.last() != Some(group)));
    }
    if let (Some(lanes), Some(picks)) = (&lanes, &found.picks) {
        claimed.overdue = sharing::charge(turn, lanes, picks, &taken)?;
    }
    if !source.is_unordered() {
        for group in groups {
            set_head(turn, queue, &group)?;
        }
    }
    claimed.drained &= claimed.short_of.is_none();
    Ok(claimed)
}

/// The queue of a receive.
struct ReceiveSource<'a> {
    queue: QueueId,
    ask: Ask,
    /// Its lanes, if the receive shares messages out.
    lanes: Option<&'a QueueLanes>,
}

impl ReceiveSource<'_> {
    /// Whether messages of a group may overtake each other.
    fn is_unordered(&self) -> bool {
        self.lanes.is_some_and(|lanes| lanes.by_group)
    }

    /// Returns the messages that a receive would take.
    fn find(&self, turn: &Turn<'_>, following: GroupFollowers) -> rusqlite::Result<Candidates> {
        match self.lanes {
            Some(lanes) => find_shared(turn, lanes, self.ask, following),
            None => find(turn, self.queue, self.ask, following),
        }
    }
}

/// Returns the messages that can be delivered, in order. Moves away those that it finds and that
/// may not be delivered, and deletes those whose retention is over.
fn deliverable(
    turn: &mut Turn<'_>,
    source: &ReceiveSource<'_>,
    rules: &Rules<'_>,
    retention: Option<Duration>,
    claimed: &mut ClaimedMessages,
) -> rusqlite::Result<Candidates> {
    let queue = source.queue;
    let mut dropped = 0;
    let found = loop {
        let mut found = source.find(turn, rules.following())?;
        claimed.drained = found.all;
        let old = drop_old(turn, queue, retention, &mut found)?;
        dropped += old;
        if old > 0 && dropped < MOST_MOVED {
            continue;
        }
        let (spent, good): (Vec<_>, Vec<_>) = std::mem::take(&mut found.candidates)
            .into_iter()
            .map(|candidate| (rules.refusal(&candidate), candidate))
            .partition(|(refusal, _)| refusal.is_some());
        found.candidates = good.into_iter().map(|(_, good)| good).collect();
        if spent.is_empty() {
            break found;
        }
        if claimed.refused.len() >= MOST_MOVED {
            // A message must not overtake earlier ones of its group.
            found.candidates.retain(|one| {
                !one.group.as_ref().is_some_and(|group: &String| {
                    spent
                        .iter()
                        .any(|(_, one)| one.group.as_ref() == Some(group))
                })
            });
            break found;
        }
        for (refusal, candidate) in spent {
            if let Some(refusal) = refusal {
                let refused = rules.refuse(turn, queue, &candidate, refusal)?;
                claimed.refused.push(refused);
            }
        }
    };
    claimed.drained &= claimed.refused.len() < MOST_MOVED && dropped < MOST_MOVED;
    Ok(found)
}

/// Deletes the found messages whose retention is over. Returns how many.
fn drop_old(
    turn: &mut Turn<'_>,
    queue: QueueId,
    retention: Option<Duration>,
    found: &mut Candidates,
) -> rusqlite::Result<usize> {
    let Some(kept) = retention else {
        return Ok(0);
    };
    let now = turn.now;
    let candidates = std::mem::take(&mut found.candidates);
    let (old, young): (Vec<_>, Vec<_>) = candidates
        .into_iter()
        .partition(|one| one.is_older_than(kept, now));
    for one in &old {
        remove(turn, queue, one.seq, one.group.as_deref())?;
    }
    found.candidates = young;
    Ok(old.len())
}

/// Reserves the bytes of a message if there is a budget. Returns `None` if it has no room for them.
#[allow(
    clippy::option_option,
    reason = "no bytes to hold is not the same as none free"
)]
fn hold(candidate: &Candidate, terms: &DeliveryTerms, overdraw: bool) -> Option<Option<HeldBytes>> {
    let Some(budget) = &terms.budget else {
        return Some(None);
    };
    match budget.try_take(candidate.bytes) {
        None if overdraw => budget.overdraw(candidate.bytes).map(Some),
        held => held.map(Some),
    }
}

/// Reads the messages that were taken. Leaves out those that another process has deleted meanwhile.
pub(super) fn load(
    turn: &Turn<'_>,
    claimed: ClaimedMessages,
    name: &str,
    terms: &DeliveryTerms,
) -> rusqlite::Result<(Vec<Message>, Vec<HeldBytes>)> {
    let mut messages = Vec::with_capacity(claimed.claims.len());
    let mut held = Vec::new();
    let mut find = turn.connection.prepare_cached(READ_ONE)?;
    for claim in claimed.claims {
        let row = params![claim.delivery.seq];
        let found = find.query_row(row, |row| message(turn, row, name));
        let Some((mut one, before)) = found.optional()? else {
            continue;
        };
        one.receipt = claim.delivery.receipt();
        one.receive_count = u32::try_from(claim.delivery.count).unwrap_or(u32::MAX);
        if terms.client_of.is_some() {
            one.receive_count += before;
        }
        messages.push(one);
        held.extend(claim.held);
    }
    Ok((messages, held))
}

/// Takes and reads messages in one transaction.
#[cfg(any(test, fuzzing))]
pub(super) fn receive(
    turn: &mut Turn<'_>,
    queue: QueueId,
    name: &str,
    ask: Ask,
) -> rusqlite::Result<dispatcher_core::queue::ReceivedMessages> {
    let claimed = claim(turn, queue, name, ask, &DeliveryTerms::default())?;
    let drained = claimed.drained;
    let (messages, _) = load(turn, claimed, name, &DeliveryTerms::default())?;
    Ok(dispatcher_core::queue::ReceivedMessages {
        messages,
        drained,
        ..Default::default()
    })
}
