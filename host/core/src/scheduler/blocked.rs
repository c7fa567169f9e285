//! Blocked groups of a queue that keeps their order: the first message failed and is retried within
//! its lease, or it is being dead-lettered. The messages behind it stay leased here, because a
//! release would spend a receive without an attempt. Pure: `now` is an argument.

use super::ready::Waiting;
use crate::clock::BootInstant;
use std::collections::{BTreeMap, HashMap};

/// The blocked groups of one queue.
#[derive(Debug)]
pub(super) struct BlockedGroups<J> {
    groups: BTreeMap<String, Blocked<J>>,
    /// The group that each awaited message blocks, by the message's id.
    awaited: HashMap<String, String>,
    jobs: usize,
}

#[derive(Debug)]
struct Blocked<J> {
    /// In the group's order; the one that is retried first.
    jobs: Vec<J>,
    /// When the first is retried.
    retry_at: Option<BootInstant>,
    /// How many messages are awaited: the queue must take their outcomes first.
    awaits: usize,
}

/// A group that is no longer blocked, with its held messages in order.
pub(super) type Unblocked<J> = (String, Vec<J>);

/// What the end of an awaited message leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Released<J> {
    /// Nothing: no group waits for it, or for others as well.
    Nothing,
    /// The message has left its queue: its group continues.
    GoesOn(Unblocked<J>),
    /// The queue redelivers it, which it does only once the others of its group are released.
    GivesBack(Unblocked<J>),
}

impl<J> Default for BlockedGroups<J> {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
            awaited: HashMap::new(),
            jobs: 0,
        }
    }
}

impl<J: Waiting> BlockedGroups<J> {
    /// How many messages are kept here.
    pub(super) fn len(&self) -> usize {
        self.jobs
    }

    /// Whether no group is blocked.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether this group is blocked.
    pub(super) fn contains(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// The messages that are kept here, each group in its order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &J> {
        self.groups.values().flat_map(|blocked| &blocked.jobs)
    }

    fn entry(&mut self, group: &str) -> &mut Blocked<J> {
        let blocked = self.groups.entry(group.to_owned());
        blocked.or_insert_with(|| Blocked {
            jobs: Vec::new(),
            retry_at: None,
            awaits: 0,
        })
    }

    /// Blocks a group until `at`: then these go before what else is kept of it.
    pub(super) fn retry_at(&mut self, group: &str, first: Vec<J>, at: BootInstant) {
        self.prepend(group, first);
        self.entry(group).retry_at = Some(at);
    }

    /// Blocks a group until the queue has taken the outcome of the message of this id.
    pub(super) fn wait_for(&mut self, group: &str, id: &str) {
        let before = self.awaited.insert(id.to_owned(), group.to_owned());
        if before.is_none() {
            self.entry(group).awaits += 1;
        }
    }

    /// Keeps these before what else is kept of their group, which is blocked.
    pub(super) fn prepend(&mut self, group: &str, mut first: Vec<J>) {
        self.jobs += first.len();
        let blocked = self.entry(group);
        first.append(&mut blocked.jobs);
        blocked.jobs = first;
    }

    /// Keeps these behind what else is kept of their group, which is blocked.
    pub(super) fn append(&mut self, group: &str, mut jobs: Vec<J>) {
        self.jobs += jobs.len();
        self.entry(group).jobs.append(&mut jobs);
    }

    /// The outcome of a message was taken (`gone`), or its queue delivers it again.
    pub(super) fn settled(&mut self, id: &str, gone: bool) -> Released<J> {
        let Some(group) = self.awaited.remove(id) else {
            return Released::Nothing;
        };
        let Some(blocked) = self.groups.get_mut(&group) else {
            return Released::Nothing;
        };
        blocked.awaits -= 1;
        let waits_on = blocked.awaits > 0 || blocked.retry_at.is_some();
        match gone {
            true if waits_on => Released::Nothing,
            true => Released::GoesOn(self.unblock(group)),
            false => Released::GivesBack(self.unblock(group)),
        }
    }

    fn unblock(&mut self, group: String) -> Unblocked<J> {
        let jobs = self.groups.remove(&group).map_or_else(Vec::new, |b| b.jobs);
        self.awaited.retain(|_, of| *of != group);
        self.jobs -= jobs.len();
        (group, jobs)
    }

    /// The groups whose first message is to be retried by now.
    pub(super) fn take_due(&mut self, now: BootInstant) -> Vec<Unblocked<J>> {
        let is_due = |blocked: &Blocked<J>| {
            blocked.awaits == 0 && blocked.retry_at.is_some_and(|at| at <= now)
        };
        self.take_groups(is_due)
    }

    fn take_groups(&mut self, which: impl Fn(&Blocked<J>) -> bool) -> Vec<Unblocked<J>> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        let groups = self.groups.iter().filter(|(_, blocked)| which(blocked));
        let groups: Vec<String> = groups.map(|(group, _)| group.clone()).collect();
        groups
            .into_iter()
            .map(|group| self.unblock(group))
            .collect()
    }

    /// When the first of them is to be retried.
    pub(super) fn due(&self) -> Option<BootInstant> {
        let waits = self.groups.values().filter(|blocked| blocked.awaits == 0);
        waits.filter_map(|blocked| blocked.retry_at).min()
    }

    /// When the first becomes too old.
    pub(super) fn expires(&self) -> Option<BootInstant> {
        self.iter().filter_map(Waiting::expires).min()
    }

    /// Takes out what is too old, and the groups that are blocked no longer since the message that
    /// was to be retried is among it.
    pub(super) fn expired(&mut self, now: BootInstant) -> (Vec<J>, Vec<Unblocked<J>>) {
        if self.expires().is_none_or(|at| at > now) {
            return (Vec::new(), Vec::new());
        }
        self.extract(|job| job.expires().is_some_and(|at| at <= now))
    }

    /// Takes out what is chosen, asked in the order of each group, and the groups that are blocked
    /// no longer since the message that was to be retried is among it.
    pub(super) fn extract(&mut self, which: impl Fn(&J) -> bool) -> (Vec<J>, Vec<Unblocked<J>>) {
        let mut out = Vec::new();
        for blocked in self.groups.values_mut() {
            let goes = blocked.retry_at.is_some() && blocked.jobs.first().is_some_and(&which);
            if goes {
                blocked.retry_at = None;
            }
            let jobs = std::mem::take(&mut blocked.jobs).into_iter();
            let (chosen, kept) = jobs.partition(|job| which(job));
            blocked.jobs = kept;
            out.extend::<Vec<J>>(chosen);
        }
        self.jobs -= out.len();
        let is_free = |blocked: &Blocked<J>| blocked.retry_at.is_none() && blocked.awaits == 0;
        (out, self.take_groups(is_free))
    }
}

#[cfg(test)]
#[path = "blocked_tests.rs"]
mod tests;
