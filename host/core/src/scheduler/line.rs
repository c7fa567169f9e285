//! The waiting jobs of one queue in their order: by arrival, as cheaply as possible; or sorted, if
//! the newest goes first or messages may expire. Knows no limits. Pure.

use super::ready::{Sequence, Waiting};
use crate::clock::BootInstant;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// For how many jobs an empty line has room.
const KEPT_ROOM: usize = 256;

/// One that waits.
#[derive(Debug)]
pub(super) struct LineEntry<J> {
    pub job: J,
    /// Since when it waits for company; `None` if it waits for none.
    pub since: Option<BootInstant>,
}

/// Those that wait, in order.
#[derive(Debug)]
pub(super) struct ReadyLine<J> {
    /// All of them, as long as nothing need be sorted.
    plain: VecDeque<LineEntry<J>>,
    /// All of them from then on.
    sorted: Option<Sorted<J>>,
    keeps_groups: bool,
}

impl<J: Waiting> ReadyLine<J> {
    /// `keeps_groups`: what comes of a group goes behind what waits of it, whatever its age.
    pub(super) fn new(sequence: Sequence, keeps_groups: bool) -> Self {
        let newest_first = sequence == Sequence::Lifo;
        Self {
            plain: VecDeque::new(),
            sorted: newest_first.then(|| Sorted::new(sequence, keeps_groups)),
            keeps_groups,
        }
    }

    pub(super) fn len(&self) -> usize {
        let sorted = self.sorted.as_ref();
        self.plain.len() + sorted.map_or(0, |sorted| sorted.entries.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In the order in which they go.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LineEntry<J>> {
        let sorted = self.sorted.iter();
        let sorted = sorted.flat_map(|sorted| sorted.entries.values());
        self.plain.iter().chain(sorted)
    }

    /// In the order of age: since when the longest waiting job waits for its batch.
    pub(super) fn longest_wait(&self) -> Option<Option<BootInstant>> {
        let (since, _) = self.sorted.as_ref()?.waits.first()?;
        Some(*since)
    }

    /// Adds what came together, in its queue's order.
    pub(super) fn arrive(&mut self, jobs: Vec<J>, now: BootInstant) {
        self.sort_if_needed(&jobs);
        let since = Some(now);
        match &mut self.sorted {
            Some(sorted) => sorted.arrive(jobs, since),
            None => {
                let entries = jobs.into_iter().map(|job| LineEntry { job, since });
                self.plain.extend(entries);
            }
        }
    }

    /// Puts back what was taken, in its order: before all others, or by its age.
    pub(super) fn resume(&mut self, jobs: Vec<J>) {
        self.sort_if_needed(&jobs);
        match &mut self.sorted {
            Some(sorted) => sorted.resume(jobs),
            None => {
                for job in jobs.into_iter().rev() {
                    self.plain.push_front(LineEntry { job, since: None });
                }
            }
        }
    }

    fn sort_if_needed(&mut self, jobs: &[J]) {
        if self.sorted.is_none() && jobs.iter().any(|job| job.expires().is_some()) {
            let mut sorted = Sorted::new(Sequence::Fifo, self.keeps_groups);
            for LineEntry { job, since } in std::mem::take(&mut self.plain) {
                sorted.arrive(vec![job], since);
            }
            self.sorted = Some(sorted);
        }
    }

    /// Takes the first of all, at most `max`.
    pub(super) fn take(&mut self, max: usize) -> Vec<J> {
        match &mut self.sorted {
            Some(sorted) => sorted.take_where(max, |_| true),
            None => {
                let taken = self.plain.drain(..max.min(self.plain.len()));
                let taken = taken.map(|entry| entry.job).collect();
                self.give_back_room();
                taken
            }
        }
    }

    /// What a burst took is not kept for the next.
    fn give_back_room(&mut self) {
        if self.plain.is_empty() {
            self.plain.shrink_to(KEPT_ROOM);
        }
    }

    /// Takes the first of those that are such, at most `max`; each is asked about once at most.
    pub(super) fn take_where(&mut self, max: usize, which: impl Fn(&J) -> bool) -> Vec<J> {
        if let Some(sorted) = &mut self.sorted {
            return sorted.take_where(max, which);
        }
        let mut taken = Vec::new();
        let mut at = 0;
        while taken.len() < max && at < self.plain.len() {
            if !which(&self.plain[at].job) {
                at += 1;
                continue;
            }
            let entry = self.plain.remove(at);
            taken.push(entry.expect("the index is below the length").job);
        }
        self.give_back_room();
        taken
    }

    /// Takes all that are such, asked in order.
    pub(super) fn extract(&mut self, which: impl Fn(&J) -> bool) -> Vec<J> {
        if let Some(sorted) = &mut self.sorted {
            return sorted.take_where(usize::MAX, which);
        }
        let (out, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.plain)
            .into_iter()
            .partition(|entry| which(&entry.job));
        self.plain = kept;
        out.into_iter().map(|entry| entry.job).collect()
    }

    /// When the first of them becomes too old.
    pub(super) fn expires(&self) -> Option<BootInstant> {
        let (at, _) = self.sorted.as_ref()?.expiries.first()?;
        Some(*at)
    }

    /// Takes all that are too old, the one that was so first first.
    pub(super) fn expired(&mut self, now: BootInstant) -> Vec<J> {
        let sorted = self.sorted.as_mut();
        sorted.map_or_else(Vec::new, |sorted| sorted.expired(now))
    }
}

/// Where an entry stands; the least goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LinePosition {
    /// The less, the later it was sent; all alike where age does not count.
    rank: u64,
    /// Among equals: upwards for what comes behind, downwards for what comes before.
    number: i64,
    /// Its position in its group, if it takes the group's.
    behind: u64,
}

/// The last of a group that waits or waited.
#[derive(Debug)]
struct Tail {
    place: LinePosition,
    /// How many of the group wait.
    waiting: usize,
}

/// Entries by their place.
#[derive(Debug)]
struct Sorted<J> {
    sequence: Sequence,
    entries: BTreeMap<LinePosition, LineEntry<J>>,
    waits: BTreeSet<(Option<BootInstant>, LinePosition)>,
    expiries: BTreeSet<(BootInstant, LinePosition)>,
    /// Of the groups that have something waiting; only where age is not to part them.
    groups: Option<HashMap<String, Tail>>,
    /// The number of the first, and one more than that of the last.
    front: i64,
    back: i64,
}

impl<J: Waiting> Sorted<J> {
    fn new(sequence: Sequence, keeps_groups: bool) -> Self {
        let aged = sequence == Sequence::Lifo;
        Self {
            sequence,
            entries: BTreeMap::new(),
            waits: BTreeSet::new(),
            expiries: BTreeSet::new(),
            groups: (aged && keeps_groups).then(HashMap::new),
            front: 0,
            back: 0,
        }
    }

    fn arrive(&mut self, jobs: Vec<J>, since: Option<BootInstant>) {
        let count = numbers(jobs.len());
        let first = match self.sequence {
            Sequence::Fifo => self.back,
            Sequence::Lifo => self.front - count,
        };
        self.front = self.front.min(first);
        self.back = self.back.max(first + count);
        self.insert(jobs.into_iter().map(|job| LineEntry { job, since }), first);
    }

    fn resume(&mut self, jobs: Vec<J>) {
        let later = match self.groups {
            None => Vec::new(),
            Some(_) => self.same_groups(&jobs),
        };
        self.front -= numbers(jobs.len());
        let since = None;
        let entries = jobs.into_iter().map(|job| LineEntry { job, since });
        self.insert(entries, self.front);
        // Each has something of its group before it, whose place it takes.
        self.insert(later.into_iter(), self.front);
    }

    /// Takes out what waits of the groups of these, in order.
    fn same_groups(&mut self, jobs: &[J]) -> Vec<LineEntry<J>> {
        let waits = |group: &&str| {
            self.groups
                .as_ref()
                .is_some_and(|of| of.contains_key(*group))
        };
        let groups: HashSet<&str> = jobs
            .iter()
            .filter_map(Waiting::group)
            .filter(waits)
            .collect();
        if groups.is_empty() {
            return Vec::new();
        }
        let entries = self.entries.iter();
        let same = entries.filter(|(_, entry)| {
            entry
                .job
                .group()
                .is_some_and(|group| groups.contains(group))
        });
        let places: Vec<LinePosition> = same.map(|(place, _)| *place).collect();
        places
            .into_iter()
            .filter_map(|place| self.remove(place))
            .collect()
    }

    fn insert(&mut self, entries: impl Iterator<Item = LineEntry<J>>, first: i64) {
        for (number, entry) in (first..).zip(entries) {
            let place = self.place(&entry.job, number);
            self.waits.insert((entry.since, place));
            if let Some(at) = entry.job.expires() {
                self.expiries.insert((at, place));
            }
            self.entries.insert(place, entry);
        }
    }

    /// A free place for a job: its own, or the one behind what waits of its group.
    fn place(&mut self, job: &J, number: i64) -> LinePosition {
        let rank = match self.sequence {
            Sequence::Fifo => 0,
            Sequence::Lifo => u64::MAX - job.sent_at().0,
        };
        let place = LinePosition {
            rank,
            number,
            behind: 0,
        };
        let (Some(groups), Some(group)) = (&mut self.groups, job.group()) else {
            return place;
        };
        match groups.get_mut(group) {
            None => {
                groups.insert(group.to_owned(), Tail { place, waiting: 1 });
                place
            }
            Some(tail) => {
                tail.place.behind += 1;
                tail.waiting += 1;
                tail.place
            }
        }
    }

    fn remove(&mut self, place: LinePosition) -> Option<LineEntry<J>> {
        let entry = self.entries.remove(&place)?;
        self.waits.remove(&(entry.since, place));
        if let Some(at) = entry.job.expires() {
            self.expiries.remove(&(at, place));
        }
        if let (Some(groups), Some(group)) = (&mut self.groups, entry.job.group())
            && let Some(tail) = groups.get_mut(group)
        {
            tail.waiting -= 1;
            if tail.waiting == 0 {
                groups.remove(group);
            }
        }
        Some(entry)
    }

    fn take_where(&mut self, max: usize, which: impl Fn(&J) -> bool) -> Vec<J> {
        let entries = self.entries.iter();
        let chosen = entries.filter(|(_, entry)| which(&entry.job)).take(max);
        let places: Vec<LinePosition> = chosen.map(|(place, _)| *place).collect();
        let taken = places.into_iter().filter_map(|place| self.remove(place));
        taken.map(|entry| entry.job).collect()
    }

    fn expired(&mut self, now: BootInstant) -> Vec<J> {
        let mut out = Vec::new();
        while let Some(&(at, place)) = self.expiries.first()
            && at <= now
        {
            out.extend(self.remove(place).map(|entry| entry.job));
        }
        out
    }
}

/// This many numbers. No run lives to see the last of them.
fn numbers(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
