//! Tracks the order of sending within groups on a queue that does not keep it: which messages are
//! held, and which are in the queue and block their group until they are redelivered and end. Pure:
//! `now` is an argument; bounded.

use crate::clock::{BootInstant, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// This many messages are awaited at most. Beyond that the one that has been for longest is not.
pub(super) const MOST_AWAITED: usize = 10_000;
/// How long after it could be received a message is awaited at most. It may be behind others in
/// the queue; but the queue may also have dead-lettered it, or another process may have it.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(900);
/// After this many answers that the queue holds nothing more, since a message could be received,
/// it is assumed that it will not come: the first answer may be to an older call, and a long poll
/// sometimes errs.
const EMPTY_ANSWERS: usize = 3;
/// A queue may be so late with what it promised.
const LATE: Duration = Duration::from_secs(2);

/// A message's place in its group: by when it was sent, then by when it first arrived.
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
    /// How many of its released deliveries are not yet settled.
    untold: u32,
}

/// A message that the queue has.
#[derive(Debug, Clone, Copy)]
struct ReleasedMessage {
    since: BootInstant,
    /// The latest reported time when it can be received again.
    said: Option<BootInstant>,
    /// When it can be received again, once all its releases are settled.
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
    /// Where each message stands, by id.
    places: HashMap<String, (String, GroupPosition)>,
    arrivals: u64,
    /// Since when each awaited message is.
    awaited: BTreeSet<(BootInstant, String)>,
    /// When the queue last reported that it holds nothing more; the oldest first.
    empty: VecDeque<BootInstant>,
}

impl BlockedMessages {
    /// A message arrived: returns its position, the same each time it arrives until it ends.
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

    /// A message is not kept in order any longer: it is done or dead, or nobody waits for it.
    /// Its group, if it was.
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

    /// A message that has arrived goes back to its queue undone: what was sent after it in its
    /// group waits for it. The group of one that is awaited no longer, there being too many.
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

    /// Notes when a released message can be received again. Reports about older deliveries may
    /// come late: nothing is known before there are as many reports as releases, and then the
    /// latest counts.
    pub(super) fn due(&mut self, id: &str, due: BootInstant) {
        let Some((group, place)) = self.places.get(id) else {
            return;
        };
        let known = self.groups.get_mut(group).and_then(|of| of.get_mut(place));
        let Some(known) = known else { return };
        known.untold = known.untold.saturating_sub(1);
        if let Some(away) = &mut known.away {
            away.said = away.said.max(Some(due));
            away.due = away.said.filter(|_| known.untold == 0);
        }
    }

    /// Whether a message may be attempted: none that was sent before it in its group is awaited.
    pub(super) fn may_go(&self, group: &str, place: GroupPosition) -> bool {
        self.first_awaited(group, place).is_none()
    }

    /// When the first can be received that is awaited before this one, as far as that is known.
    pub(super) fn resumes(&self, group: &str, place: GroupPosition) -> Option<BootInstant> {
        self.first_awaited(group, place)?.due
    }

    fn first_awaited(&self, group: &str, place: GroupPosition) -> Option<ReleasedMessage> {
        let mut earlier = self.groups.get(group)?.range(..place);
        earlier.find_map(|(_, known)| known.away)
    }

    /// The queue reported that it holds nothing more. Returns the groups of messages that are
    /// given up.
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

    /// Gives up those that have been awaited for too long: their groups.
    pub(super) fn expire(&mut self, now: BootInstant) -> Vec<String> {
        self.give_up(|away| away.expires() <= now)
    }

    fn give_up(&mut self, which: impl Fn(&ReleasedMessage) -> bool) -> Vec<String> {
        let away = |id: &str| {
            let (group, place) = self.places.get(id)?;
            self.groups.get(group)?.get(place)?.away
        };
        let chosen = self.awaited.iter().map(|(_, id)| id);
        let chosen: Vec<String> = chosen
            .filter(|id| away(id).is_some_and(|away| which(&away)))
            .cloned()
            .collect();
        chosen.iter().filter_map(|id| self.ended(id)).collect()
    }

    /// Whether any message is awaited.
    pub(super) fn is_waiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// A message is awaited no longer.
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
#[path = "blocked_messages_tests.rs"]
mod tests;
