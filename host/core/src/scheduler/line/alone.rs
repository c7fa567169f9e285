//! Attempts with the jobs of one tenant only: which tenant's jobs start, and which of them.

use super::super::ready::{Gather, WaitingJob};
use super::super::turns::{HASTENED, Lack};
use super::{LineEntry, LinePosition, ReadyLine, SortedEntries};
use crate::clock::BootInstant;
use std::collections::{BTreeSet, HashMap, HashSet};

/// The waiting jobs of each tenant, by since when they wait for others.
pub(super) type WaitsOfTenants = HashMap<String, BTreeSet<(Option<BootInstant>, LinePosition)>>;

impl<J: WaitingJob> ReadyLine<J> {
    /// Whether some tenant's jobs wait for no others: an attempt would be full, or the first of them
    /// has waited for the window.
    pub(in super::super) fn has_gathered(
        &self,
        gather: Gather,
        now: BootInstant,
        is_free: impl Fn(&J) -> bool,
    ) -> bool {
        let sorted = self.sorted.as_ref();
        sorted.is_some_and(|sorted| sorted.next_gathered(gather, now, is_free).is_some())
    }

    /// Returns when the jobs of a tenant stop waiting for others; `None` if none wait for a time.
    pub(in super::super) fn gathers_until(
        &self,
        gather: Gather,
        is_free: impl Fn(&J) -> bool,
    ) -> Option<BootInstant> {
        let sorted = self.sorted.as_ref()?;
        let candidates = sorted.candidates(&is_free);
        let ends = candidates.filter_map(|(_, job)| {
            let (since, _) = sorted.of_tenants.as_ref()?.get(job.tenant())?.first()?;
            Some((*since)? + gather.window)
        });
        ends.min()
    }

    /// Takes the next job whose tenant's jobs wait for no others, and further ones of that tenant, at
    /// most `max` together.
    pub(in super::super) fn take_of_one_tenant(
        &mut self,
        max: usize,
        gather: Gather,
        now: BootInstant,
        is_free: impl Fn(&J) -> bool,
    ) -> Vec<J> {
        let sorted = self.sorted.as_mut();
        sorted.map_or_else(Vec::new, |sorted| {
            sorted.take_alone(max, gather, now, is_free)
        })
    }

    /// Returns how many attempts of at most `full` jobs the waiting jobs make.
    pub(in super::super) fn attempts_of_tenants(&self, full: usize) -> usize {
        let of_tenants = self
            .sorted
            .as_ref()
            .and_then(|sorted| sorted.of_tenants.as_ref());
        let of_tenants = of_tenants.into_iter().flat_map(HashMap::values);
        of_tenants.map(|waiting| waiting.len().div_ceil(full)).sum()
    }
}

impl<J: WaitingJob> SortedEntries<J> {
    pub(super) fn wait_alone(
        &mut self,
        tenant: &str,
        since: Option<BootInstant>,
        at: LinePosition,
    ) {
        if let Some(of_tenants) = &mut self.of_tenants {
            of_tenants
                .entry(tenant.to_owned())
                .or_default()
                .insert((since, at));
        }
    }

    pub(super) fn leave_alone(
        &mut self,
        tenant: &str,
        since: Option<BootInstant>,
        at: LinePosition,
    ) {
        if let Some(of_tenants) = &mut self.of_tenants
            && let Some(waiting) = of_tenants.get_mut(tenant)
        {
            waiting.remove(&(since, at));
            if waiting.is_empty() {
                of_tenants.remove(tenant);
            }
        }
    }

    fn take_alone(
        &mut self,
        max: usize,
        gather: Gather,
        now: BootInstant,
        is_free: impl Fn(&J) -> bool,
    ) -> Vec<J> {
        let next = self.next_gathered(gather, now, &is_free);
        let (Some(first), Some(most)) = (next, max.checked_sub(1)) else {
            return Vec::new();
        };
        let joining = self.joining(first, most, &is_free);
        if let Some(turns) = &mut self.turns {
            turns.charge(first.turn);
            joining
                .iter()
                .for_each(|place| turns.charge_joining(place.turn));
        }
        let places = std::iter::once(first).chain(joining);
        let taken = places.filter_map(|place| self.remove(place));
        taken.map(|entry| entry.job).collect()
    }

    /// Returns the position of the next job whose tenant's jobs wait for no others. One that has waited
    /// for the longest wait of its priority waits no longer.
    fn next_gathered(
        &self,
        gather: Gather,
        now: BootInstant,
        is_free: impl Fn(&J) -> bool,
    ) -> Option<LinePosition> {
        let mut candidates = self.candidates(&is_free);
        let next = candidates.find(|(place, job)| {
            place.turn == HASTENED || self.has_gathered(job.tenant(), gather, now)
        });
        next.map(|(place, _)| place)
    }

    fn has_gathered(&self, tenant: &str, gather: Gather, now: BootInstant) -> bool {
        let of_tenants = self.of_tenants.as_ref();
        let waiting = of_tenants.and_then(|of_tenants| of_tenants.get(tenant));
        waiting.is_some_and(|waiting| {
            let since = waiting.first().and_then(|(since, _)| *since);
            waiting.len() >= gather.full || since.is_none_or(|since| since + gather.window <= now)
        })
    }

    /// Returns the first free job of each turn, in the order of turns.
    fn candidates(&self, is_free: impl Fn(&J) -> bool) -> impl Iterator<Item = (LinePosition, &J)> {
        let turns = self.turns.iter();
        let order = turns.flat_map(|turns| turns.order(Lack::Worker));
        let order = std::iter::once(HASTENED).chain(order.map(|place| place.number));
        order.filter_map(move |turn| {
            let mut own = self.of_turn(turn);
            let (place, entry) = own.find(|(_, entry)| is_free(&entry.job))?;
            Some((*place, &entry.job))
        })
    }

    /// Returns the positions of the next jobs of the tenant of `first`, the most urgent first, at most
    /// `most`. None passes a job of its group that stays.
    fn joining(
        &self,
        first: LinePosition,
        most: usize,
        is_free: impl Fn(&J) -> bool,
    ) -> Vec<LinePosition> {
        let Some(tenant) = self.entries.get(&first).map(|entry| entry.job.tenant()) else {
            return Vec::new();
        };
        let own = self.turns.iter().flat_map(|turns| turns.of_tenant(tenant));
        let mut passed = HashSet::new();
        let mut joining = Vec::new();
        for (place, LineEntry { job, .. }) in std::iter::once(HASTENED)
            .chain(own)
            .flat_map(|turn| self.of_turn(turn))
        {
            if joining.len() == most {
                break;
            }
            if *place == first {
                continue;
            }
            let group = if self.groups.is_some() {
                job.group()
            } else {
                None
            };
            let is_behind = group.is_some_and(|group| passed.contains(group));
            if job.tenant() == tenant && is_free(job) && !is_behind {
                joining.push(*place);
            } else {
                passed.extend(group);
            }
        }
        joining
    }
}
