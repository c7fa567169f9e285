//! The queues of a scheduler, and which of them may need a decision. Pure: `now` is an argument.

use super::lane::Lane;
use super::ready::WaitingJob;
use crate::clock::BootInstant;
use std::collections::BTreeSet;
use std::ops::{Bound, Index, IndexMut};

/// All queues of a route, in its order. Decisions check only the active ones, so thousands of idle
/// queues cost nothing. Access through `IndexMut` makes a queue active, because it may change; it
/// stays active until `settle` finds it quiet.
#[derive(Debug)]
pub(super) struct Lanes<J> {
    all: Vec<Lane<J>>,
    active: BTreeSet<usize>,
    /// Quiet queues that become active at a time; some may have been active in between.
    resting: BTreeSet<(BootInstant, usize)>,
}

impl<J: WaitingJob> Lanes<J> {
    /// Creates the list. All queues are active.
    pub(super) fn new(lanes: impl Iterator<Item = Lane<J>>) -> Self {
        let all: Vec<Lane<J>> = lanes.collect();
        Self {
            active: (0..all.len()).collect(),
            all,
            resting: BTreeSet::new(),
        }
    }

    /// Returns the number of queues.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns all queues.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane<J>> {
        self.all.iter()
    }

    /// Returns all queues and makes them active.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane<J>> {
        self.active.extend(0..self.all.len());
        self.all.iter_mut()
    }

    /// Returns all queues, for changes after which there is no more to decide than before.
    pub(super) fn iter_mut_quietly(&mut self) -> impl Iterator<Item = &mut Lane<J>> {
        self.all.iter_mut()
    }

    /// Returns the indexes of the active queues, in order.
    pub(super) fn indexes(&self) -> impl Iterator<Item = usize> {
        self.active.iter().copied()
    }

    /// Returns the index of the first active queue from this index on.
    pub(super) fn next_index(&self, from: usize) -> Option<usize> {
        self.active.range(from..).next().copied()
    }

    /// Returns the active queues, in order.
    pub(super) fn active(&self) -> impl Iterator<Item = &Lane<J>> {
        self.active.iter().map(|&index| &self.all[index])
    }

    /// Returns the active queues behind this index.
    pub(super) fn active_behind(&self, index: usize) -> impl Iterator<Item = &Lane<J>> {
        let behind = self.active.range(index + 1..);
        behind.map(|&index| &self.all[index])
    }

    /// Returns the results of `change` for each active queue, in order. It is called as the results
    /// are read.
    pub(super) fn change_active<'a, T>(
        &'a mut self,
        mut change: impl FnMut(usize, &mut Lane<J>) -> T + 'a,
    ) -> impl Iterator<Item = T> + 'a {
        let all = &mut self.all;
        let active = self.active.iter();
        active.map(move |&index| change(index, &mut all[index]))
    }

    /// Makes queues whose rest is over active.
    pub(super) fn wake(&mut self, now: BootInstant) {
        while let Some(&(until, index)) = self.resting.first().filter(|(until, _)| *until <= now) {
            self.resting.remove(&(until, index));
            self.active.insert(index);
        }
    }

    /// Returns when the next rest is over. Queues whose rest is already over are left to `wake`,
    /// which is not called after the last receive of a stop.
    pub(super) fn rest_ends(&self, now: BootInstant) -> Option<BootInstant> {
        let later = (Bound::Excluded((now, usize::MAX)), Bound::Unbounded);
        self.resting.range(later).next().map(|(until, _)| *until)
    }

    /// Makes quiet queues inactive.
    pub(super) fn settle(&mut self, stopped: bool, now: BootInstant) {
        let Self {
            all,
            active,
            resting,
        } = self;
        active.retain(|&index| {
            let lane = &all[index];
            let quiet = lane.is_quiet(stopped, now);
            if quiet
                && !stopped
                && let Some(until) = lane.rests_until(now)
            {
                resting.insert((until, index));
            }
            !quiet
        });
    }
}

impl<J> Index<usize> for Lanes<J> {
    type Output = Lane<J>;

    fn index(&self, index: usize) -> &Lane<J> {
        &self.all[index]
    }
}

impl<J> IndexMut<usize> for Lanes<J> {
    fn index_mut(&mut self, index: usize) -> &mut Lane<J> {
        self.active.insert(index);
        &mut self.all[index]
    }
}

#[cfg(test)]
mod tests;
