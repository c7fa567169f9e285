//! The waiting jobs of one queue in their order: by arrival, as cheaply as possible; or sorted, if
//! the newest goes first, messages may expire, or tenants share the queue. Does not depend on
//! limits. Pure.

mod alone;

use super::ready::{Sequence, WaitingJob, hastens};
use super::turns::{HASTENED, Lack, TurnNumber, TurnPlace, Turns};
use crate::clock::BootInstant;
use crate::queue::sharing::SharingRules;
use alone::WaitsOfTenants;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The number of jobs that an empty line keeps room for.
const KEPT_ROOM: usize = 256;

/// A waiting job.
#[derive(Debug)]
pub(super) struct LineEntry<J> {
    pub job: J,
    /// When it began to wait for others to share its attempt; `None` if it waits for none.
    pub since: Option<BootInstant>,
}

/// The waiting jobs, in order.
#[derive(Debug)]
pub(super) struct ReadyLine<J> {
    /// All jobs, as long as no sorting is needed.
    plain: VecDeque<LineEntry<J>>,
    /// All jobs, once sorting is needed.
    sorted: Option<SortedEntries<J>>,
    keeps_groups: bool,
}

impl<J: WaitingJob> ReadyLine<J> {
    /// Creates an empty line. `keeps_groups`: a job that arrives goes behind the waiting ones of
    /// its group, regardless of its age, tenant and priority. With `sharing`, tenants have turns,
    /// and the order is that of the jobs of one tenant and priority.
    pub(super) fn new(
        sequence: Sequence,
        keeps_groups: bool,
        sharing: Option<Arc<SharingRules>>,
    ) -> Self {
        let is_sorted = sequence == Sequence::Lifo || sharing.is_some();
        Self {
            plain: VecDeque::new(),
            sorted: is_sorted.then(|| SortedEntries::new(sequence, keeps_groups, sharing)),
            keeps_groups,
        }
    }

    /// Returns the turns of tenants, if they share the line.
    pub(super) fn tenant_turns(&mut self) -> Option<&mut Turns> {
        self.sorted.as_mut()?.turns.as_mut()
    }

    /// Returns the place of the first job that `which` chooses.
    pub(super) fn next_place(&self, which: impl Fn(&J) -> bool) -> Option<TurnPlace> {
        let Some(sorted) = &self.sorted else {
            let mut entries = self.plain.iter();
            let first = entries.find(|entry| which(&entry.job));
            return first.map(|_| TurnPlace::FIRST);
        };
        let position = sorted.next(which)?;
        let turns = sorted.turns.as_ref();
        Some(turns.map_or(TurnPlace::FIRST, |turns| turns.place(position.turn)))
    }

    /// Takes the first job that `which` chooses. Its tenant does not pay.
    pub(super) fn take_next(&mut self, which: impl Fn(&J) -> bool) -> Option<J> {
        let Some(sorted) = &mut self.sorted else {
            return self.take_where(1, which).pop();
        };
        let position = sorted.next(which)?;
        sorted.remove(position).map(|entry| entry.job)
    }

    /// Lets jobs go before all others that have waited for the longest wait of their priority.
    /// Returns how many have begun to.
    pub(super) fn hasten(&mut self, now: BootInstant) -> usize {
        let sorted = self.sorted.as_mut();
        sorted.map_or(0, |sorted| sorted.hasten(now))
    }

    pub(super) fn len(&self) -> usize {
        let sorted = self.sorted.as_ref();
        self.plain.len() + sorted.map_or(0, |sorted| sorted.entries.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the jobs: in the order in which they go or, with tenants, tenant by tenant.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LineEntry<J>> {
        let sorted = self
            .sorted
            .iter()
            .flat_map(|sorted| sorted.entries.values());
        self.plain.iter().chain(sorted)
    }

    /// Returns since when the longest waiting job of a sorted line has waited for others to share
    /// its attempt; `None` if the line is empty or not sorted.
    pub(super) fn longest_wait(&self) -> Option<Option<BootInstant>> {
        let (since, _) = self.sorted.as_ref()?.waits.first()?;
        Some(*since)
    }

    /// Adds jobs that arrived together, in their queue's order.
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

    /// Puts back jobs that were taken, in their order: before all others, or by their age.
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
            let mut sorted = SortedEntries::new(Sequence::Fifo, self.keeps_groups, None);
            for LineEntry { job, since } in std::mem::take(&mut self.plain) {
                sorted.arrive(vec![job], since);
            }
            self.sorted = Some(sorted);
        }
    }

    /// Takes the first jobs, at most `max`.
    pub(super) fn take(&mut self, max: usize) -> Vec<J> {
        match &mut self.sorted {
            Some(sorted) => sorted.take_where(max, |_| true),
            None => {
                let taken = self
                    .plain
                    .drain(..max.min(self.plain.len()))
                    .map(|entry| entry.job)
                    .collect();
                self.give_back_room();
                taken
            }
        }
    }

    /// Frees memory after a burst.
    fn give_back_room(&mut self) {
        if self.plain.is_empty() {
            self.plain.shrink_to(KEPT_ROOM);
        }
    }

    /// Takes the first jobs that `which` chooses, at most `max`.
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

    /// Takes all jobs that `which` chooses, called in order.
    pub(super) fn extract(&mut self, which: impl Fn(&J) -> bool) -> Vec<J> {
        let out = self.extract_entries(|entry| which(&entry.job));
        out.into_iter().map(|entry| entry.job).collect()
    }

    /// Takes all entries that `which` chooses.
    pub(super) fn extract_entries(
        &mut self,
        which: impl Fn(&LineEntry<J>) -> bool,
    ) -> Vec<LineEntry<J>> {
        if let Some(sorted) = &mut self.sorted {
            return sorted.take_entries(which);
        }
        let (out, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.plain).into_iter().partition(which);
        self.plain = kept;
        out.into()
    }

    /// Adds an entry of another line.
    pub(super) fn add(&mut self, LineEntry { job, since }: LineEntry<J>) {
        let job = vec![job];
        self.sort_if_needed(&job);
        match &mut self.sorted {
            Some(sorted) => sorted.arrive(job, since),
            None => {
                let entries = job.into_iter().map(|job| LineEntry { job, since });
                self.plain.extend(entries);
            }
        }
    }

    /// Returns when the first job becomes too old.
    pub(super) fn expires(&self) -> Option<BootInstant> {
        let (at, _) = self.sorted.as_ref()?.expiries.first()?;
        Some(*at)
    }

    /// Takes all jobs that are too old, in the order in which they became so.
    pub(super) fn expired(&mut self, now: BootInstant) -> Vec<J> {
        let sorted = self.sorted.as_mut();
        sorted.map_or_else(Vec::new, |sorted| sorted.expired(now))
    }
}

/// The position of an entry; the least goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LinePosition {
    /// The turn that it goes with: `HASTENED`, that of its tenant or, without tenants, 0 for all.
    turn: TurnNumber,
    /// Lower for messages that were sent later; equal for all if age does not count.
    rank: u64,
    /// The order among equals: increases for jobs that go behind, decreases for jobs that go
    /// before.
    number: i64,
    /// The position in its group, if it uses the group's place.
    behind: u64,
}

/// The last position in a group that has waiting jobs.
#[derive(Debug)]
struct Tail {
    place: LinePosition,
    /// The number of waiting jobs of the group.
    waiting: usize,
}

/// Entries by their position.
#[derive(Debug)]
struct SortedEntries<J> {
    sequence: Sequence,
    entries: BTreeMap<LinePosition, LineEntry<J>>,
    waits: BTreeSet<(Option<BootInstant>, LinePosition)>,
    /// Since when the jobs of each tenant wait; `None` unless they start without those of others.
    of_tenants: Option<WaitsOfTenants>,
    expiries: BTreeSet<(BootInstant, LinePosition)>,
    /// The groups that have waiting jobs; only if age or tenants must not separate them.
    groups: Option<HashMap<String, Tail>>,
    /// The turns of tenants; `None` if they have none.
    turns: Option<Turns>,
    /// When jobs go before all others.
    hastened: BTreeSet<(BootInstant, LinePosition)>,
    /// The lowest number in use, and one more than the highest.
    front: i64,
    back: i64,
}

impl<J: WaitingJob> SortedEntries<J> {
    fn new(sequence: Sequence, keeps_groups: bool, sharing: Option<Arc<SharingRules>>) -> Self {
        let separates = sequence == Sequence::Lifo || sharing.is_some();
        Self {
            sequence,
            entries: BTreeMap::new(),
            waits: BTreeSet::new(),
            of_tenants: sharing
                .as_ref()
                .filter(|rules| rules.one_tenant)
                .map(|_| WaitsOfTenants::new()),
            expiries: BTreeSet::new(),
            groups: (separates && keeps_groups).then(HashMap::new),
            turns: sharing.map(Turns::new),
            hastened: BTreeSet::new(),
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
        // Each follows a job of its group, whose place it uses.
        self.insert(later.into_iter(), self.front);
    }

    /// Takes out the waiting jobs of the groups of these jobs, in order.
    fn same_groups(&mut self, jobs: &[J]) -> Vec<LineEntry<J>> {
        let groups: HashSet<&str> = jobs
            .iter()
            .filter_map(WaitingJob::group)
            .filter(|group: &&str| {
                self.groups
                    .as_ref()
                    .is_some_and(|of| of.contains_key(*group))
            })
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
            if let Some(at) = hastens(&entry.job, self.groups.is_some()) {
                self.hastened.insert((at, place));
            }
            self.file(place, entry);
        }
    }

    fn file(&mut self, place: LinePosition, entry: LineEntry<J>) {
        self.waits.insert((entry.since, place));
        self.wait_alone(entry.job.tenant(), entry.since, place);
        if let Some(at) = entry.job.expires() {
            self.expiries.insert((at, place));
        }
        self.entries.insert(place, entry);
    }

    /// Returns a free position for a job: its own, or the one behind the waiting jobs of its group.
    fn place(&mut self, job: &J, number: i64) -> LinePosition {
        let rank = match self.sequence {
            Sequence::Fifo => 0,
            Sequence::Lifo => u64::MAX - job.sent_at().0,
        };
        let mut place = LinePosition {
            turn: 0,
            rank,
            number,
            behind: 0,
        };
        let group = self.groups.as_mut().zip(job.group());
        if let Some((groups, group)) = group
            && let Some(tail) = groups.get_mut(group)
        {
            tail.place.behind += 1;
            tail.waiting += 1;
            if let Some(turns) = &mut self.turns {
                turns.add_to(tail.place.turn, Lack::Worker);
            }
            return tail.place;
        }
        if let Some(turns) = &mut self.turns {
            place.turn = turns.add(job.priority(), job.tenant());
        }
        if let (Some(groups), Some(group)) = (&mut self.groups, job.group()) {
            groups.insert(group.to_owned(), Tail { place, waiting: 1 });
        }
        place
    }

    fn hasten(&mut self, now: BootInstant) -> usize {
        let mut count = 0;
        while let Some(&(at, place)) = self.hastened.first()
            && at <= now
        {
            let Some(entry) = self.remove(place) else {
                break;
            };
            self.back += 1;
            let place = LinePosition {
                turn: HASTENED,
                rank: 0,
                number: self.back,
                behind: 0,
            };
            self.file(place, entry);
            count += 1;
        }
        count
    }

    fn remove(&mut self, place: LinePosition) -> Option<LineEntry<J>> {
        let entry = self.entries.remove(&place)?;
        self.waits.remove(&(entry.since, place));
        self.leave_alone(entry.job.tenant(), entry.since, place);
        if let Some(at) = entry.job.expires() {
            self.expiries.remove(&(at, place));
        }
        if let Some(at) = hastens(&entry.job, self.groups.is_some()) {
            self.hastened.remove(&(at, place));
        }
        if let Some(turns) = &mut self.turns {
            turns.remove(place.turn, Lack::Worker);
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

    /// Takes the next jobs that `which` chooses, at most `max`. Their tenants pay for them.
    fn take_where(&mut self, max: usize, which: impl Fn(&J) -> bool) -> Vec<J> {
        if self.turns.is_none() {
            let entries = self.entries.iter();
            let chosen = entries.filter(|(_, entry)| which(&entry.job)).take(max);
            let places: Vec<LinePosition> = chosen.map(|(place, _)| *place).collect();
            let taken = places.into_iter().filter_map(|place| self.remove(place));
            return taken.map(|entry| entry.job).collect();
        }
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(place) = self.next(&which)
        {
            if let Some(turns) = &mut self.turns {
                turns.charge(place.turn);
            }
            taken.extend(self.remove(place).map(|entry| entry.job));
        }
        taken
    }

    /// Returns the position of the next job that `which` chooses.
    fn next(&self, which: impl Fn(&J) -> bool) -> Option<LinePosition> {
        let Some(turns) = &self.turns else {
            let mut entries = self.entries.iter();
            return entries
                .find(|(_, entry)| which(&entry.job))
                .map(|(place, _)| *place);
        };
        let order = turns.order(Lack::Worker).map(|place| place.number);
        let mut order = std::iter::once(HASTENED).chain(order);
        order.find_map(|turn| {
            let mut own = self.of_turn(turn);
            own.find(|(_, entry)| which(&entry.job))
                .map(|(place, _)| *place)
        })
    }

    /// Returns the jobs that go with a turn, in order.
    fn of_turn(&self, turn: TurnNumber) -> impl Iterator<Item = (&LinePosition, &LineEntry<J>)> {
        let first = LinePosition {
            turn,
            rank: 0,
            number: i64::MIN,
            behind: 0,
        };
        let later = self.entries.range(first..);
        later.take_while(move |(place, _)| place.turn == turn)
    }

    fn take_entries(&mut self, which: impl Fn(&LineEntry<J>) -> bool) -> Vec<LineEntry<J>> {
        let chosen = self.entries.iter().filter(|(_, entry)| which(entry));
        let places: Vec<LinePosition> = chosen.map(|(place, _)| *place).collect();
        let taken = places.into_iter();
        taken.filter_map(|place| self.remove(place)).collect()
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

/// Converts a count to numbers. No run lasts long enough to use them up.
fn numbers(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
