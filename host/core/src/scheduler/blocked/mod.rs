//! Tracks the blocked groups of a queue that keeps their order: the first message failed and is
//! retried within its lease, or it is being dead-lettered. The messages behind it stay leased here,
//! because a release would spend a receive without an attempt. Pure: `now` is an argument.

use super::ready::WaitingJob;
use crate::clock::BootInstant;
use std::collections::{BTreeMap, HashMap};

/// The blocked groups of one queue.
#[derive(Debug)]
pub(super) struct BlockedGroups<J> {
    groups: BTreeMap<String, BlockedGroup<J>>,
    /// The group that each awaited message blocks, by the message's id.
    awaited: HashMap<String, String>,
    jobs: usize,
}

#[derive(Debug)]
struct BlockedGroup<J> {
    /// The messages in the group's order; the one that is retried comes first.
    jobs: Vec<J>,
    /// When the first message is retried.
    retry_at: Option<BootInstant>,
    /// The number of awaited messages: the queue must take their outcomes first.
    awaits: usize,
}

/// A group that is no longer blocked, with its held messages in order.
pub(super) type UnblockedGroup<J> = (String, Vec<J>);

/// The result of the end of an awaited message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReleaseResult<J> {
    /// No group is unblocked: none waits for the message, or its group waits for others as well.
    Nothing,
    /// The message has left its queue, so its group continues.
    GoesOn(UnblockedGroup<J>),
    /// The queue redelivers the message, perhaps to another process, so the others of its group are
    /// released as well.
    GivesBack(UnblockedGroup<J>),
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

impl<J: WaitingJob> BlockedGroups<J> {
    /// Returns the number of messages that are kept here.
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

    /// Returns the messages that are kept here, each group in its order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &J> {
        self.groups.values().flat_map(|blocked| &blocked.jobs)
    }

    fn entry(&mut self, group: &str) -> &mut BlockedGroup<J> {
        let blocked = self.groups.entry(group.to_owned());
        blocked.or_insert_with(|| BlockedGroup {
            jobs: Vec::new(),
            retry_at: None,
            awaits: 0,
        })
    }

    /// Blocks a group until `at`. Then `first` go before the other messages of the group that are
    /// kept.
    pub(super) fn retry_at(&mut self, group: &str, first: Vec<J>, at: BootInstant) {
        self.prepend(group, first);
        self.entry(group).retry_at = Some(at);
    }

    /// Blocks a group until the queue has taken the outcome of the message with this id.
    pub(super) fn wait_for(&mut self, group: &str, id: &str) {
        let before = self.awaited.insert(id.to_owned(), group.to_owned());
        if before.is_none() {
            self.entry(group).awaits += 1;
        }
    }

    /// Keeps these messages before the others of their group, which is blocked.
    pub(super) fn prepend(&mut self, group: &str, mut first: Vec<J>) {
        self.jobs += first.len();
        let blocked = self.entry(group);
        first.append(&mut blocked.jobs);
        blocked.jobs = first;
    }

    /// Keeps these messages behind the others of their group, which is blocked.
    pub(super) fn append(&mut self, group: &str, mut jobs: Vec<J>) {
        self.jobs += jobs.len();
        self.entry(group).jobs.append(&mut jobs);
    }

    /// Records that the outcome of a message was taken (`gone`), or that its queue delivers it
    /// again.
    pub(super) fn settled(&mut self, id: &str, gone: bool) -> ReleaseResult<J> {
        let Some(group) = self.awaited.remove(id) else {
            return ReleaseResult::Nothing;
        };
        let Some(blocked) = self.groups.get_mut(&group) else {
            return ReleaseResult::Nothing;
        };
        blocked.awaits -= 1;
        let waits_on = blocked.awaits > 0 || blocked.retry_at.is_some();
        match gone {
            true if waits_on => ReleaseResult::Nothing,
            true => ReleaseResult::GoesOn(self.unblock(group)),
            false => ReleaseResult::GivesBack(self.unblock(group)),
        }
    }

    fn unblock(&mut self, group: String) -> UnblockedGroup<J> {
        let jobs = self.groups.remove(&group).map_or_else(Vec::new, |b| b.jobs);
        self.awaited.retain(|_, of| *of != group);
        self.jobs -= jobs.len();
        (group, jobs)
    }

    /// Takes out the groups whose first message is due for its retry.
    pub(super) fn take_due(&mut self, now: BootInstant) -> Vec<UnblockedGroup<J>> {
        self.take_groups(|blocked: &BlockedGroup<J>| {
            blocked.awaits == 0 && blocked.retry_at.is_some_and(|at| at <= now)
        })
    }

    fn take_groups(&mut self, which: impl Fn(&BlockedGroup<J>) -> bool) -> Vec<UnblockedGroup<J>> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        let chosen = self.groups.iter().filter(|(_, blocked)| which(blocked));
        let groups: Vec<String> = chosen.map(|(group, _)| group.clone()).collect();
        groups
            .into_iter()
            .map(|group| self.unblock(group))
            .collect()
    }

    /// Returns when the first retry is due.
    pub(super) fn due(&self) -> Option<BootInstant> {
        let waits = self.groups.values().filter(|blocked| blocked.awaits == 0);
        waits.filter_map(|blocked| blocked.retry_at).min()
    }

    /// Returns when the first message becomes too old.
    pub(super) fn expires(&self) -> Option<BootInstant> {
        self.iter().filter_map(WaitingJob::expires).min()
    }

    /// Takes out the messages that are too old, and the groups that are no longer blocked because
    /// the message that was to be retried is among them.
    pub(super) fn expired(&mut self, now: BootInstant) -> (Vec<J>, Vec<UnblockedGroup<J>>) {
        if self.expires().is_none_or(|at| at > now) {
            return (Vec::new(), Vec::new());
        }
        self.extract(|job| job.expires().is_some_and(|at| at <= now))
    }

    /// Takes out the messages that `which` chooses, called in the order of each group, and the
    /// groups that are no longer blocked because the message that was to be retried is among them.
    pub(super) fn extract(
        &mut self,
        which: impl Fn(&J) -> bool,
    ) -> (Vec<J>, Vec<UnblockedGroup<J>>) {
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
        (
            out,
            self.take_groups(|blocked: &BlockedGroup<J>| {
                blocked.retry_at.is_none() && blocked.awaits == 0
            }),
        )
    }
}

#[cfg(test)]
mod tests;
