//! The jobs of one queue that wait for limits of the fleet. A job that lacks a permit or a token
//! waits here, so that it delays no job that has what it needs. It keeps its turn: its tenant pays
//! when it starts. Pure: `now` is an argument.

use super::line::{LineEntry, ReadyLine};
use super::ready::{Sequence, WaitingJob, hastens};
use super::turns::{HASTENED, Lack, TurnNumber, TurnPlace, Turns};
use crate::clock::BootInstant;
use crate::fleet::hand::{Needs, RecentStarts};
use crate::fleet::keeper::{Fleet, FleetPermit};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of bytes of the jobs that wait here. Further jobs go back to their queue for a
/// while.
const MOST_BYTES: u64 = 32 << 20;
/// The least time for which a job goes back to its queue.
const AGAIN: Duration = Duration::from_secs(5);
/// The interval at which jobs that went back come again, so that they keep no others from being
/// received.
const APART: Duration = Duration::from_millis(100);
/// The most time for which a job goes back to its queue.
const LONGEST_AGAIN: Duration = Duration::from_secs(900);
/// The interval of checks for jobs that have waited for too long.
const LOOK: Duration = Duration::from_secs(30);
/// The most workers that are started at once for jobs that may start: each starts others.
const WORKERS: usize = 2;
/// The number of jobs of a tenant that wait here before the queue delivers no more of it. SQS takes
/// a tenant with 30 messages in flight for a noisy one, and delivers those of others first.
const PARKED_FROM: usize = 30;
/// The part of a second in whose starts a parked tenant's jobs that wait here must be more.
const PARKED_PART: usize = 4;

/// The jobs of one turn that wait for limits, by what they need. Those that need the same start in
/// their order; among the others, each need is next in rotation.
#[derive(Debug)]
struct LimitedTurn<J> {
    lines: HashMap<Needs, ReadyLine<J>>,
    /// The needs of the lines, each once.
    rotation: VecDeque<Needs>,
}

impl<J: WaitingJob> LimitedTurn<J> {
    fn forget_empty(&mut self) {
        let lines = &mut self.lines;
        lines.retain(|_, line| !line.is_empty());
        self.rotation.retain(|needs| lines.contains_key(needs));
    }
}

/// The jobs that wait for limits.
#[derive(Debug)]
pub(super) struct LimitedJobs<J> {
    fleet: Arc<Fleet>,
    sequence: Sequence,
    /// Whether jobs of a group are kept in order, so that none of them may go back to the queue.
    keeps_groups: bool,
    /// When the last of the jobs that went back comes again.
    comes_again: BootInstant,
    turns: BTreeMap<TurnNumber, LimitedTurn<J>>,
    /// The number of jobs with each need, and the needs that were refused since something changed.
    needs: HashMap<Needs, usize>,
    refused: HashSet<Needs>,
    count: usize,
    bytes: u64,
    /// Whether the last job that was refused lacks what all messages need.
    lacks_common: bool,
    started: RecentStarts,
    look: BootInstant,
    /// When the first job may go before all others; perhaps earlier, because that job may have left.
    hastens: Option<BootInstant>,
    /// Whether tenants share the queue.
    has_tenants: bool,
    /// The number of jobs of each tenant, and the tenants of which enough wait.
    of_tenants: HashMap<String, usize>,
    parked: BTreeSet<String>,
}

/// The decision about a job that wants to start.
#[derive(Debug)]
pub(super) enum Admission<J> {
    /// It starts.
    Starts(J),
    /// It waits here.
    Waits,
    /// It goes back to its queue for this time, because too many wait here.
    GoesBack(J, Duration),
}

impl<J: WaitingJob> LimitedJobs<J> {
    /// Creates an empty list of a queue whose jobs start in this order.
    /// `keeps_groups`: those of a group are kept in order. `has_tenants`: tenants share the queue.
    pub(super) fn new(
        fleet: Arc<Fleet>,
        sequence: Sequence,
        keeps_groups: bool,
        has_tenants: bool,
    ) -> Self {
        Self {
            fleet,
            sequence,
            keeps_groups,
            comes_again: BootInstant::default(),
            turns: BTreeMap::new(),
            needs: HashMap::new(),
            refused: HashSet::new(),
            count: 0,
            bytes: 0,
            lacks_common: false,
            started: RecentStarts::default(),
            look: BootInstant::default(),
            hastens: None,
            has_tenants,
            of_tenants: HashMap::new(),
            parked: BTreeSet::new(),
        }
    }

    /// Returns the tenants of which enough jobs wait here, so that the queue should deliver none.
    pub(super) fn parked(&self) -> &BTreeSet<String> {
        &self.parked
    }

    fn count_in(&mut self, job: &J) {
        self.count += 1;
        self.bytes += job.held_bytes();
        if !self.has_tenants {
            return;
        }
        let parked_from = self.parked_from();
        let waiting = self.of_tenants.entry(job.tenant().to_owned()).or_default();
        *waiting += 1;
        if *waiting >= parked_from {
            self.parked.insert(job.tenant().to_owned());
        }
    }

    fn parked_from(&self) -> usize {
        let second = usize::try_from(self.started.per_second()).unwrap_or(usize::MAX);
        PARKED_FROM.max(second / PARKED_PART)
    }

    fn count_out(&mut self, job: &J) {
        self.count -= 1;
        self.bytes = self.bytes.saturating_sub(job.held_bytes());
        if !self.has_tenants {
            return;
        }
        let waiting = self.of_tenants.entry(job.tenant().to_owned()).or_default();
        *waiting = waiting.saturating_sub(1);
        let left = *waiting;
        if left == 0 {
            self.of_tenants.remove(job.tenant());
        }
        if left < self.parked_from() / 2 {
            self.parked.remove(job.tenant());
        }
    }

    /// Returns the number of jobs that wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the permits of the route that jobs here do not take from others.
    pub(super) fn spare(&self) -> usize {
        self.count.min(self.fleet.most_waiting())
    }

    /// Records that permits or tokens may be there.
    pub(super) fn changed(&mut self) {
        self.refused.clear();
    }

    /// Whether `next` may return a job.
    pub(super) fn may_start(&self) -> bool {
        self.refused.len() < self.needs.len()
    }

    /// Returns how many workers are worth starting for the jobs that wait.
    pub(super) fn workers(&self) -> usize {
        if self.may_start() {
            self.count.min(WORKERS)
        } else {
            0
        }
    }

    /// Whether the limits keep the queue from using any worker.
    pub(super) fn is_closed(&self) -> bool {
        self.count > 0 && self.lacks_common && !self.may_start()
    }

    /// Returns how many more messages are worth receiving: while some lack what all messages need,
    /// no more than start in a second, even if a few tokens have become usable. `at_hand` have been
    /// received or requested, and do not wait here.
    pub(super) fn appetite(&self, at_hand: usize) -> usize {
        if self.count > 0 && self.lacks_common {
            // None is received only to go back.
            let most = self.fleet.most_waiting() / 2;
            let started = usize::try_from(self.started.per_second()).unwrap_or(most);
            let soon = started.min(most).max(1);
            soon.saturating_sub(at_hand + self.count)
        } else {
            usize::MAX
        }
    }

    /// Decides about a job that is next, in this turn.
    pub(super) fn admit(
        &mut self,
        mut job: J,
        turn: TurnNumber,
        turns: Option<&mut Turns>,
        now: BootInstant,
    ) -> Admission<J> {
        let Some(needs) = job.needs().cloned() else {
            pay(turns, turn);
            return Admission::Starts(job);
        };
        // Others of its turn that need the same go first.
        let own = self.turns.get(&turn);
        let is_behind = own.is_some_and(|own| own.lines.contains_key(&needs));
        if is_behind || self.refused.contains(&needs) {
            self.lacks_common = self.fleet.lacks_common(&needs, now);
        } else if let Some(permit) = self.try_start(&needs, now) {
            pay(turns, turn);
            job.permitted(permit);
            return Admission::Starts(job);
        }
        let is_full = self.count >= self.fleet.most_waiting() || self.bytes >= MOST_BYTES;
        if is_full && may_go_back(&job, self.keeps_groups) {
            return Admission::GoesBack(job, self.again(now));
        }
        self.keep(needs.clone(), job, turn, turns, now);
        if !is_behind {
            self.refused.insert(needs);
        }
        Admission::Waits
    }

    /// Returns the permits for one job with these needs, if it may start.
    fn try_start(&mut self, needs: &Needs, now: BootInstant) -> Option<FleetPermit> {
        if self.refused.contains(needs) {
            return None;
        }
        let permit = self.fleet.start(needs, now);
        if permit.is_some() {
            self.started.note(1, now);
        } else {
            self.lacks_common = self.fleet.lacks_common(needs, now);
            if self.needs.contains_key(needs) {
                self.refused.insert(needs.clone());
            }
        }
        permit
    }

    fn keep(
        &mut self,
        needs: Needs,
        job: J,
        number: TurnNumber,
        turns: Option<&mut Turns>,
        now: BootInstant,
    ) {
        if self.count == 0 {
            self.look = now + LOOK;
        }
        self.count_in(&job);
        self.fleet.wait(&needs, now);
        if let Some(turns) = turns {
            turns.add_to(number, Lack::Permit);
        }
        if number != HASTENED {
            let at = hastens(&job, self.keeps_groups);
            self.hastens = self.hastens.into_iter().chain(at).min();
        }
        *self.needs.entry(needs.clone()).or_default() += 1;
        let since = Some(now);
        self.line(number, needs).add(LineEntry { job, since });
    }

    /// Returns the line of a turn for jobs with these needs. Jobs that go before all others go in the
    /// order in which they began to.
    fn line(&mut self, number: TurnNumber, needs: Needs) -> &mut ReadyLine<J> {
        let turn = self.turns.entry(number).or_insert_with(|| LimitedTurn {
            lines: HashMap::new(),
            rotation: VecDeque::new(),
        });
        let sequence = if self.has_tenants && number == HASTENED {
            Sequence::Fifo
        } else {
            self.sequence
        };
        turn.lines.entry(needs.clone()).or_insert_with(|| {
            turn.rotation.push_back(needs);
            ReadyLine::new(sequence, false, None)
        })
    }

    /// Takes the next job that has what it needs, among the first turns, up to one whose place
    /// `is_next` does not choose.
    pub(super) fn next(
        &mut self,
        is_next: impl Fn(TurnPlace) -> bool,
        mut turns: Option<&mut Turns>,
        now: BootInstant,
    ) -> Option<J> {
        let (number, needs, permit) = self.start_next(is_next, turns.as_deref(), now)?;
        let turn = self.turns.get_mut(&number)?;
        let line = turn.lines.get_mut(&needs)?;
        let mut job = line.take(1).pop()?;
        if line.is_empty() {
            turn.lines.remove(&needs);
            turn.rotation.pop_back();
        }
        if turn.lines.is_empty() {
            self.turns.remove(&number);
        }
        pay(turns.as_deref_mut(), number);
        self.left(number, &needs, &job, turns);
        job.permitted(permit);
        Some(job)
    }

    /// Returns the first turn and needs that are met, and the permits.
    fn start_next(
        &mut self,
        is_next: impl Fn(TurnPlace) -> bool,
        turns: Option<&Turns>,
        now: BootInstant,
    ) -> Option<(TurnNumber, Needs, FleetPermit)> {
        let order = turns
            .into_iter()
            .flat_map(|turns| turns.order(Lack::Permit));
        let order = std::iter::once(TurnPlace::FIRST).chain(order);
        for place in order.take_while(|place| is_next(*place)) {
            if !self.may_start() {
                return None;
            }
            if let Some((needs, permit)) = self.start_one(place.number, now) {
                return Some((place.number, needs, permit));
            }
        }
        None
    }

    /// Returns the first needs of a turn that are met, now the last in its rotation, and the permits.
    fn start_one(&mut self, number: TurnNumber, now: BootInstant) -> Option<(Needs, FleetPermit)> {
        let count = self.turns.get(&number)?.rotation.len();
        for _ in 0..count {
            let rotation = &mut self.turns.get_mut(&number)?.rotation;
            rotation.rotate_left(1);
            let needs = rotation.back()?.clone();
            if let Some(permit) = self.try_start(&needs, now) {
                return Some((needs, permit));
            }
        }
        None
    }

    /// Records that a job is no longer here.
    fn left(&mut self, number: TurnNumber, needs: &Needs, job: &J, turns: Option<&mut Turns>) {
        self.count_out(job);
        self.fleet.wait_no_more(needs);
        if let Some(turns) = turns {
            turns.remove(number, Lack::Permit);
        }
        if let Some(count) = self.needs.get_mut(needs) {
            *count -= 1;
            if *count == 0 {
                self.needs.remove(needs);
                self.refused.remove(needs);
            }
        }
    }

    /// Lets jobs go before all others that have waited for the longest wait of their priority.
    /// Returns how many have begun to.
    pub(super) fn hasten(&mut self, mut turns: Option<&mut Turns>, now: BootInstant) -> usize {
        if self.hastens.is_none_or(|at| at > now) {
            return 0;
        }
        let keeps_groups = self.keeps_groups;
        let mut due = Vec::new();
        self.hastens = None;
        for (number, turn) in self.turns.range_mut(HASTENED + 1..) {
            for needs in &turn.rotation {
                let Some(line) = turn.lines.get_mut(needs) else {
                    continue;
                };
                let entries = line.extract_entries(|entry| {
                    hastens(&entry.job, keeps_groups).is_some_and(|at| at <= now)
                });
                due.extend(
                    entries
                        .into_iter()
                        .map(|entry| (*number, needs.clone(), entry)),
                );
                let left = line
                    .iter()
                    .filter_map(|entry| hastens(&entry.job, keeps_groups));
                self.hastens = self.hastens.into_iter().chain(left).min();
            }
            turn.forget_empty();
        }
        self.turns.retain(|_, turn| !turn.lines.is_empty());
        due.sort_by_key(|(_, _, entry)| entry.job.hastens());
        let count = due.len();
        for (number, needs, entry) in due {
            if let Some(turns) = turns.as_deref_mut() {
                turns.remove(number, Lack::Permit);
            }
            self.line(HASTENED, needs).add(entry);
        }
        count
    }

    /// Returns the jobs that wait.
    pub(super) fn iter(&self) -> impl Iterator<Item = &J> {
        let turns = self.turns.values();
        let lines = turns.flat_map(|turn| {
            let rotation = turn.rotation.iter();
            rotation.filter_map(|needs| turn.lines.get(needs))
        });
        lines.flat_map(|line| line.iter().map(|entry| &entry.job))
    }

    /// Takes out the jobs that `which` chooses.
    pub(super) fn extract(
        &mut self,
        which: impl Fn(&J) -> bool,
        turns: Option<&mut Turns>,
    ) -> Vec<J> {
        self.take_out(turns, |line| line.extract(&which))
    }

    fn take_out(
        &mut self,
        mut turns: Option<&mut Turns>,
        take: impl Fn(&mut ReadyLine<J>) -> Vec<J>,
    ) -> Vec<J> {
        let mut taken = Vec::new();
        for (number, turn) in &mut self.turns {
            // In the order of the rotation, so that it is the same in each simulation.
            for needs in &turn.rotation {
                if let Some(line) = turn.lines.get_mut(needs) {
                    let jobs = take(line).into_iter();
                    taken.extend(jobs.map(|job| (*number, needs.clone(), job)));
                }
            }
            turn.forget_empty();
        }
        self.turns.retain(|_, turn| !turn.lines.is_empty());
        for (number, needs, job) in &taken {
            self.left(*number, needs, job, turns.as_deref_mut());
        }
        taken.into_iter().map(|(_, _, job)| job).collect()
    }

    /// Returns when the first job becomes too old.
    pub(super) fn expires(&self) -> Option<BootInstant> {
        let lines = self.turns.values().flat_map(|turn| turn.lines.values());
        lines.filter_map(ReadyLine::expires).min()
    }

    /// Takes out the jobs that are too old.
    pub(super) fn expired(&mut self, turns: Option<&mut Turns>, now: BootInstant) -> Vec<J> {
        if self.expires().is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.take_out(turns, |line| line.expired(now))
    }

    /// Returns when `overdue` is worth a call.
    pub(super) fn attention(&self) -> Option<BootInstant> {
        (self.count > 0).then_some(self.look)
    }

    /// Takes out the jobs that have waited for too long, with the time for which each goes back to
    /// its queue. A job that may not go back stays.
    pub(super) fn overdue(
        &mut self,
        turns: Option<&mut Turns>,
        now: BootInstant,
    ) -> Vec<(J, Duration)> {
        if self.count == 0 || now < self.look {
            return Vec::new();
        }
        self.look = now + LOOK;
        let (longest, keeps_groups) = (self.fleet.longest_wait(), self.keeps_groups);
        let out = self.take_out(turns, |line| {
            let out = line.extract_entries(|entry| {
                let is_old = entry.since.is_some_and(|since| since + longest <= now);
                is_old && may_go_back(&entry.job, keeps_groups)
            });
            out.into_iter().map(|entry| entry.job).collect()
        });
        let out = out.into_iter();
        out.map(|job| (job, self.again(now))).collect()
    }

    /// Returns the time for which the next job goes back to its queue.
    fn again(&mut self, now: BootInstant) -> Duration {
        let longest = now + LONGEST_AGAIN;
        self.comes_again = (self.comes_again + APART).max(now + AGAIN).min(longest);
        self.comes_again.since(now)
    }
}

/// Records that the tenant of this turn pays for a job.
fn pay(turns: Option<&mut Turns>, number: TurnNumber) {
    if let Some(turns) = turns {
        turns.charge(number);
    }
}

/// Whether a job may go back to its queue without an attempt.
fn may_go_back<J: WaitingJob>(job: &J, keeps_groups: bool) -> bool {
    job.may_be_given_back() && !(keeps_groups && job.group().is_some())
}

#[cfg(test)]
pub(super) mod tests;
