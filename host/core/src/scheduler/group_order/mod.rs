//! Orders groups on a queue that does not keep their order: passes on one message of a group at a
//! time, and keeps the rest in the order of sending. Pure: `now` is an argument.

use super::blocked_messages::{BlockedMessages, GroupPosition};
use super::ready::WaitingJob;
use crate::clock::BootInstant;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The interval of checks for messages that have been awaited for too long.
const LOOK: Duration = Duration::from_secs(30);
/// The minimum and the maximum time for which messages that there is no place for are released.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(900));

/// The messages that have arrived and were neither handed on nor released, and the number of those
/// handed on per group.
#[derive(Debug)]
pub(super) struct GroupOrder<J> {
    stopped: BlockedMessages,
    aside: BTreeMap<String, BTreeMap<(GroupPosition, u64), J>>,
    count: usize,
    numbered: u64,
    /// The messages of each group that were passed on and have not ended.
    out: HashMap<String, GroupInFlight>,
    /// Messages that there is no place for, and the time for which each may stay with the queue.
    surplus: Vec<(J, Duration)>,
    most: usize,
    look: BootInstant,
    /// Whether nothing more is received, so that messages that the queue has are not awaited.
    ends: bool,
}

#[derive(Debug, Clone, Copy)]
struct GroupInFlight {
    count: usize,
    first: GroupPosition,
}

impl<J: WaitingJob> GroupOrder<J> {
    /// Creates an empty order. At most `most` messages are kept aside, plus those that cannot be
    /// released.
    pub(super) fn new(most: usize) -> Self {
        Self {
            stopped: BlockedMessages::default(),
            aside: BTreeMap::new(),
            count: 0,
            numbered: 0,
            out: HashMap::new(),
            surplus: Vec::new(),
            most,
            look: BootInstant::default(),
            ends: false,
        }
    }

    /// Sets the maximum number of messages that are kept aside.
    pub(super) fn set_maximum(&mut self, most: usize) {
        self.most = most;
    }

    /// Returns the number of messages kept aside that need no permit.
    pub(super) fn spare(&self) -> usize {
        self.count.min(self.most)
    }

    /// Returns the number of messages kept aside.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the messages kept aside, each group in its order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &J> {
        self.aside.values().flat_map(BTreeMap::values)
    }

    /// Returns the groups that have messages kept aside.
    pub(super) fn groups(&self) -> Vec<String> {
        self.aside.keys().cloned().collect()
    }

    /// Returns the messages of a group that are kept aside, in its order.
    pub(super) fn of(&self, group: &str) -> impl Iterator<Item = &J> {
        self.aside.get(group).into_iter().flat_map(BTreeMap::values)
    }

    /// Takes in a job of a group. `attempt` is the duration of an attempt, which determines how
    /// soon a job that there is no place for is wanted again. Returns whether the job comes before
    /// all of its group that were handed on.
    pub(super) fn arrive(&mut self, job: J, attempt: Duration, now: BootInstant) -> bool {
        let Some(group) = job.group().map(str::to_owned) else {
            return false;
        };
        let place = self.stopped.arrived(&group, job.id(), job.sent_at());
        let aside = self.aside.get(&group);
        let first = aside.and_then(BTreeMap::first_key_value);
        let waits = aside.map_or(0, BTreeMap::len);
        let out = self.out.get(&group).copied();
        let earliest = first.is_none_or(|((first, _), _)| place < *first);
        // A job that the others wait for always has a place, however many there are.
        let goes = match out {
            None => earliest && self.stopped.may_go(&group, place),
            Some(out) => place < out.first,
        };
        if goes || self.count < self.most || !job.may_be_given_back() {
            self.keep(&group, place, job);
            return goes && out.is_some();
        }
        let resumes = self
            .stopped
            .resumes(&group, place)
            .map_or(Duration::ZERO, |due| due.since(now));
        let ahead = u32::try_from(waits + 1).unwrap_or(u32::MAX);
        let again = resumes.max(attempt.saturating_mul(ahead));
        self.gone(job.id(), now);
        self.surplus.push((job, again.clamp(AGAIN.0, AGAIN.1)));
        false
    }

    fn keep(&mut self, group: &str, place: GroupPosition, job: J) {
        self.numbered += 1;
        let aside = self.aside.entry(group.to_owned()).or_default();
        aside.insert((place, self.numbered), job);
        self.count += 1;
    }

    /// Takes back jobs that were handed on and not begun, because another of their group comes
    /// first.
    pub(super) fn take_back(&mut self, jobs: Vec<J>) {
        for job in jobs {
            let Some(group) = job.group().map(str::to_owned) else {
                continue;
            };
            let place = self.stopped.arrived(&group, job.id(), job.sent_at());
            self.left_hand(&group);
            self.keep(&group, place, job);
        }
    }

    /// Returns the next job of a group if it is its turn: no other of the group is handed on, and
    /// no message that was sent earlier is awaited.
    pub(super) fn promote(&mut self, group: &str) -> Option<J> {
        if self.out.contains_key(group) {
            None
        } else {
            self.hand_on(group)
        }
    }

    /// Returns the next job of a group, to share the attempt of those handed on before it, unless
    /// it is too old to be started.
    pub(super) fn follow(&mut self, group: &str, now: BootInstant) -> Option<J> {
        let (_, next) = self.aside.get(group)?.first_key_value()?;
        match next.expires() {
            Some(at) if at <= now => None,
            _ => self.hand_on(group),
        }
    }

    fn hand_on(&mut self, group: &str) -> Option<J> {
        let aside = self.aside.get_mut(group)?;
        let ((place, _), _) = aside.first_key_value()?;
        if !self.ends && !self.stopped.may_go(group, *place) {
            return None;
        }
        let ((place, _), job) = aside.pop_first()?;
        if aside.is_empty() {
            self.aside.remove(group);
        }
        self.count -= 1;
        let out = self.out.entry(group.to_owned()).or_insert(GroupInFlight {
            count: 0,
            first: place,
        });
        out.count += 1;
        Some(job)
    }

    /// Records that a job that was handed on is done, or that the queue no longer has its message.
    pub(super) fn done(&mut self, job: &J) {
        if let Some(group) = job.group() {
            self.left_hand(group);
            self.stopped.ended(job.id());
        }
    }

    /// Records that a job that was handed on goes back to the queue undone, so that its group waits
    /// for it.
    pub(super) fn failed(&mut self, job: &J, now: BootInstant) {
        if let Some(group) = job.group() {
            self.left_hand(group);
        }
        let _ = self.passed_by(job, now);
    }

    /// Records that a message arrived and is released or ends at once: its group waits for it until
    /// `settled`. Returns whether it comes before all of its group that were handed on.
    pub(super) fn passed_by(&mut self, job: &J, now: BootInstant) -> bool {
        let Some(group) = job.group() else {
            return false;
        };
        let place = self.stopped.arrived(group, job.id(), job.sent_at());
        self.gone(job.id(), now);
        self.out.get(group).is_some_and(|out| place < out.first)
    }

    fn gone(&mut self, id: &str, now: BootInstant) {
        if !self.stopped.is_waiting() {
            self.look = now + LOOK;
        }
        // If too many messages are awaited and one is given up, the next `wake` checks its group.
        let _ = self.stopped.left(id, now);
    }

    fn left_hand(&mut self, group: &str) {
        if let Some(out) = self.out.get_mut(group) {
            out.count -= 1;
            if out.count == 0 {
                self.out.remove(group);
            }
        }
    }

    /// Records that a message was settled: it can be received again at `due`, or never. Returns the
    /// group that no longer waits for it.
    pub(super) fn settled(&mut self, id: &str, due: Option<BootInstant>) -> Option<String> {
        match due {
            None => self.stopped.ended(id),
            Some(due) => {
                self.stopped.due(id, due);
                None
            }
        }
    }

    /// Records that the queue reported that it holds nothing more. Returns the groups that no
    /// longer wait.
    pub(super) fn drained(&mut self, now: BootInstant) -> Vec<String> {
        self.stopped.drained(now)
    }

    /// Gives up messages that have been awaited for too long. Returns the groups that may continue.
    pub(super) fn wake(&mut self, now: BootInstant) -> Vec<String> {
        if now < self.look || !self.stopped.is_waiting() {
            return Vec::new();
        }
        self.look = now + LOOK;
        self.stopped.expire(now);
        self.aside.keys().cloned().collect()
    }

    /// Returns when `wake` is worth a call.
    pub(super) fn attention(&self) -> Option<BootInstant> {
        self.stopped.is_waiting().then_some(self.look)
    }

    /// Whether no message is here or awaited.
    pub(super) fn is_quiet(&self) -> bool {
        let here = self.count + self.out.len() + self.surplus.len();
        here == 0 && !self.stopped.is_waiting()
    }

    /// Takes out the messages that there is no place for, with the time for which each may stay
    /// with its queue.
    pub(super) fn surplus(&mut self) -> Vec<(J, Duration)> {
        std::mem::take(&mut self.surplus)
    }

    /// Takes out all messages of a group that are kept aside, in its order.
    pub(super) fn clear(&mut self, group: &str) -> Vec<J> {
        let aside = self.aside.remove(group).unwrap_or_default();
        self.count -= aside.len();
        aside.into_values().collect()
    }

    /// Takes out the messages that `which` chooses for release, each group in its order. `ends`:
    /// nothing more is received, so awaited messages that the queue has do not come. Messages that
    /// are not chosen then run anyway, because their next receive would be one too many.
    pub(super) fn give_back(&mut self, which: impl Fn(&J) -> bool, ends: bool) -> Vec<J> {
        self.ends |= ends;
        let mut out = Vec::new();
        for aside in self.aside.values_mut() {
            let (chosen, kept): (BTreeMap<_, _>, _) = std::mem::take(aside)
                .into_iter()
                .partition(|(_, job)| which(job));
            *aside = kept;
            out.extend(chosen.into_values());
        }
        self.aside.retain(|_, aside| !aside.is_empty());
        self.count -= out.len();
        out
    }
}

#[cfg(test)]
mod tests;
