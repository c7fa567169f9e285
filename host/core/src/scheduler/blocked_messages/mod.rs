//! Tracks the order of sending within groups on a queue that does not keep it: which messages are
//! held, and which are in the queue and block their group until they are redelivered and end. Pure:
//! `now` is an argument. Memory is bounded.

use crate::clock::{BootInstant, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// The maximum number of awaited messages. Beyond it, the message that has been awaited longest is
/// given up.
pub(super) const MOST_AWAITED: usize = 10_000;
/// The maximum time that a message is awaited after it could be received. It may be behind others
/// in the queue, but the queue may also have dead-lettered it, or another process may have it.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(900);
/// The number of answers that the queue holds nothing more, after a message could be received, from
/// which on the message is given up. One is not enough: the first answer may be to an older call,
/// and a long poll sometimes errs.
const EMPTY_ANSWERS: usize = 3;
/// The time by which a queue may deliver later than promised.
const LATE: Duration = Duration::from_secs(2);

/// A message's position in its group: by when it was sent, then by when it first arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupPosition {
    sent: Timestamp,
    arrival: u64,
}

/// A message of a group that has not ended.
#[derive(Debug)]
struct KnownMessage {
    id: String,
    away: Option<ReleasedMessage>,
    /// The number of its released deliveries that are not yet settled.
    untold: u32,
}

/// A message that was released to the queue.
#[derive(Debug, Clone, Copy)]
struct ReleasedMessage {
    since: BootInstant,
    /// The latest reported time at which it can be received again.
    said: Option<BootInstant>,
    /// When it can be received again; known once all its releases are settled.
    due: Option<BootInstant>,
}

impl ReleasedMessage {
    fn expires(&self) -> BootInstant {
        self.due.unwrap_or(self.since) + LONGEST_WAIT
    }
}

/// The messages of one queue's groups, in the order of sending.
#[derive(Debug, Default)]
pub(super) struct BlockedMessages {
    groups: HashMap<String, BTreeMap<GroupPosition, KnownMessage>>,
    /// The place of each message, by id.
    places: HashMap<String, (String, GroupPosition)>,
    arrivals: u64,
    /// The awaited messages, by when each was released.
    awaited: BTreeSet<(BootInstant, String)>,
    /// When the queue last reported that it holds nothing more; the oldest report first.
    empty: VecDeque<BootInstant>,
}

impl BlockedMessages {
    /// Records that a message arrived. Returns its position, the same each time it arrives until it
    /// ends.
    pub(super) fn arrived(&mut self, group: &str, id: &str, sent: Timestamp) -> GroupPosition {
        if let Some((group, place)) = self.places.get(id) {
            let (group, place) = (group.clone(), *place);
            self.back(&group, place);
            return place;
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        let place = GroupPosition { sent, arrival };
        let known = KnownMessage {
            id: id.to_owned(),
            away: None,
            untold: 0,
        };
        self.places.insert(id.to_owned(), (group.to_owned(), place));
        let members = self.groups.entry(group.to_owned()).or_default();
        members.insert(place, known);
        place
    }

    /// Stops tracking a message: it is done, dead-lettered or given up. Returns its group, if it
    /// was tracked.
    pub(super) fn ended(&mut self, id: &str) -> Option<String> {
        let (group, place) = self.places.remove(id)?;
        self.back(&group, place);
        if let Some(members) = self.groups.get_mut(&group) {
            members.remove(&place);
            if members.is_empty() {
                self.groups.remove(&group);
            }
        }
        Some(group)
    }

    /// Records that a message that has arrived goes back to its queue undone: the messages sent
    /// after it in its group wait for it. If too many are awaited, gives up the oldest and returns
    /// its group.
    pub(super) fn left(&mut self, id: &str, now: BootInstant) -> Option<String> {
        let (group, place) = self.places.get(id)?.clone();
        self.back(&group, place);
        let known = self.groups.get_mut(&group)?.get_mut(&place)?;
        known.untold += 1;
        known.away = Some(ReleasedMessage {
            since: now,
            said: None,
            due: None,
        });
        self.awaited.insert((now, id.to_owned()));
        if self.awaited.len() <= MOST_AWAITED {
            return None;
        }
        let (_, oldest) = self.awaited.first()?.clone();
        self.ended(&oldest)
    }

    /// Records when a released message can be received again. Reports about older deliveries may
    /// come late, so nothing is known before there are as many reports as releases; then the latest
    /// counts.
    pub(super) fn due(&mut self, id: &str, due: BootInstant) {
        let Some((group, place)) = self.places.get(id) else {
            return;
        };
        let known = self.groups.get_mut(group).and_then(|of| of.get_mut(place));
        let Some(known) = known else { return };
        known.untold = known.untold.saturating_sub(1);
        if let Some(away) = &mut known.away {
            away.said = away.said.max(Some(due));
            away.due = if known.untold == 0 { away.said } else { None };
        }
    }

    /// Whether a message may be attempted: no message that was sent before it in its group is
    /// awaited.
    pub(super) fn may_go(&self, group: &str, place: GroupPosition) -> bool {
        self.first_awaited(group, place).is_none()
    }

    /// Returns when the first awaited message before this one can be received, if known.
    pub(super) fn resumes(&self, group: &str, place: GroupPosition) -> Option<BootInstant> {
        self.first_awaited(group, place)?.due
    }

    fn first_awaited(&self, group: &str, place: GroupPosition) -> Option<ReleasedMessage> {
        let mut earlier = self.groups.get(group)?.range(..place);
        earlier.find_map(|(_, known)| known.away)
    }

    /// Records that the queue reported that it holds nothing more. Returns the groups of messages
    /// that are given up.
    pub(super) fn drained(&mut self, now: BootInstant) -> Vec<String> {
        self.empty.push_back(now);
        if self.empty.len() < EMPTY_ANSWERS {
            return Vec::new();
        }
        while self.empty.len() > EMPTY_ANSWERS {
            self.empty.pop_front();
        }
        let first = self.empty.front().copied().unwrap_or(now);
        self.give_up(|away| away.due.is_some_and(|due| due + LATE <= first))
    }

    /// Gives up the messages that have been awaited for too long, and returns their groups.
    pub(super) fn expire(&mut self, now: BootInstant) -> Vec<String> {
        self.give_up(|away| away.expires() <= now)
    }

    fn give_up(&mut self, which: impl Fn(&ReleasedMessage) -> bool) -> Vec<String> {
        let chosen: Vec<String> = self
            .awaited
            .iter()
            .map(|(_, id)| id)
            .filter(|id| self.away(id).is_some_and(|away| which(&away)))
            .cloned()
            .collect();
        chosen.iter().filter_map(|id| self.ended(id)).collect()
    }

    fn away(&self, id: &str) -> Option<ReleasedMessage> {
        let (group, place) = self.places.get(id)?;
        self.groups.get(group)?.get(place)?.away
    }

    /// Whether any message is awaited.
    pub(super) fn is_waiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Stops awaiting a message.
    fn back(&mut self, group: &str, place: GroupPosition) {
        let known = self.groups.get_mut(group).and_then(|of| of.get_mut(&place));
        if let Some(known) = known
            && let Some(away) = known.away.take()
        {
            self.awaited.remove(&(away.since, known.id.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
