//! The queues of a scheduler, and which of them may have something to decide. Pure: `now` is an
//! argument.

use super::lane::Lane;
use super::ready::Waiting;
use crate::clock::BootInstant;
use std::collections::BTreeSet;
use std::ops::{Bound, Index, IndexMut};

/// All queues of a route, in its order. Decisions look only at the active ones, so thousands of idle
/// queues cost nothing. A queue becomes active when anything of it may change, by `IndexMut`, and
/// stays so until `settle` finds it quiet.
#[derive(Debug)]
pub(super) struct Lanes<J> {
    all: Vec<Lane<J>>,
    active: BTreeSet<usize>,
    /// Quiet ones that become active at a time; perhaps some that were active in between.
    resting: BTreeSet<(BootInstant, usize)>,
}

impl<J: Waiting> Lanes<J> {
    /// All of them active.
    pub(super) fn new(lanes: impl Iterator<Item = Lane<J>>) -> Self {
        let all: Vec<Lane<J>> = lanes.collect();
        Self {
            active: (0..all.len()).collect(),
            all,
            resting: BTreeSet::new(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane<J>> {
        self.all.iter()
    }

    /// All of them, which become active.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane<J>> {
        self.active.extend(0..self.all.len());
        self.all.iter_mut()
    }

    /// The indexes of the active ones, in their order.
    pub(super) fn indexes(&self) -> impl Iterator<Item = usize> {
        self.active.iter().copied()
    }

    /// The first active one from this index on.
    pub(super) fn next_index(&self, from: usize) -> Option<usize> {
        self.active.range(from..).next().copied()
    }

    /// The active ones, in their order.
    pub(super) fn active(&self) -> impl Iterator<Item = &Lane<J>> {
        self.active.iter().map(|&index| &self.all[index])
    }

    /// The active ones behind this index.
    pub(super) fn active_behind(&self, index: usize) -> impl Iterator<Item = &Lane<J>> {
        let behind = self.active.range(index + 1..);
        behind.map(|&index| &self.all[index])
    }

    /// What `change` makes of each active one, in their order.
    pub(super) fn change_active<'a, T>(
        &'a mut self,
        mut change: impl FnMut(usize, &mut Lane<J>) -> T + 'a,
    ) -> impl Iterator<Item = T> + 'a {
        let all = &mut self.all;
        let active = self.active.iter();
        active.map(move |&index| change(index, &mut all[index]))
    }

    /// Those whose rest is over become active.
    pub(super) fn wake(&mut self, now: BootInstant) {
        while let Some(&(until, index)) = self.resting.first().filter(|(until, _)| *until <= now) {
            self.resting.remove(&(until, index));
            self.active.insert(index);
        }
    }

    /// When the next rest is over. Those that are over already are `wake`'s, which nobody calls after
    /// the last receive of a stop.
    pub(super) fn rest_ends(&self, now: BootInstant) -> Option<BootInstant> {
        let later = (Bound::Excluded((now, usize::MAX)), Bound::Unbounded);
        self.resting.range(later).next().map(|(until, _)| *until)
    }

    /// Those that are quiet are active no longer.
    pub(super) fn settle(&mut self, stopped: bool, now: BootInstant) {
        let Self {
            all,
            active,
            resting,
        } = self;
        active.retain(|&index| {
            let lane = &all[index];
            let quiet = lane.is_quiet(stopped, now);
            if let Some(until) = lane.rests_until(now).filter(|_| quiet && !stopped) {
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
#[path = "lanes_tests.rs"]
mod tests;
