//! The jobs of one queue that wait for limits of the fleet. A job that lacks a permit or a token
//! waits here, so that it delays no job that has what it needs. Pure: `now` is an argument.

use super::line::ReadyLine;
use super::ready::{Sequence, WaitingJob};
use crate::clock::BootInstant;
use crate::fleet::hand::{Needs, RecentStarts};
use crate::fleet::keeper::Fleet;
use crate::queue::sharing::SharingRules;
use std::collections::{BTreeSet, HashMap, VecDeque};
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

/// The jobs that wait for limits, by what they need. Those that need the same start in their order;
/// among the others, each need has its turn.
#[derive(Debug)]
pub(super) struct LimitedJobs<J> {
    fleet: Arc<Fleet>,
    sequence: Sequence,
    /// Whether jobs of a group are kept in order, so that none of them may go back to the queue.
    keeps_groups: bool,
    /// When the last of the jobs that went back comes again.
    comes_again: BootInstant,
    lines: HashMap<Needs, ReadyLine<J>>,
    /// The needs of the lines, each once.
    turns: VecDeque<Needs>,
    count: usize,
    bytes: u64,
    /// Whether some may have become startable since all were tried.
    may_start: bool,
    /// Whether the last job that was refused lacks what all messages need.
    lacks_common: bool,
    started: RecentStarts,
    look: BootInstant,
    /// The rules by which tenants share the queue, if they do.
    sharing: Option<Arc<SharingRules>>,
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
    /// `keeps_groups`: those of a group are kept in order.
    pub(super) fn new(
        fleet: Arc<Fleet>,
        sequence: Sequence,
        keeps_groups: bool,
        sharing: Option<Arc<SharingRules>>,
    ) -> Self {
        Self {
            fleet,
            sequence,
            keeps_groups,
            comes_again: BootInstant::default(),
            lines: HashMap::new(),
            turns: VecDeque::new(),
            count: 0,
            bytes: 0,
            may_start: false,
            lacks_common: false,
            started: RecentStarts::default(),
            look: BootInstant::default(),
            sharing,
            of_tenants: HashMap::new(),
            parked: BTreeSet::new(),
        }
    }

    /// Replaces the rules by which tenants share the queue.
    pub(super) fn share_out(&mut self, sharing: &Arc<SharingRules>) {
        for line in self.lines.values_mut() {
            line.share_out(sharing);
        }
        self.sharing = Some(sharing.clone());
    }

    /// Returns the tenants of which enough jobs wait here, so that the queue should deliver none.
    pub(super) fn parked(&self) -> &BTreeSet<String> {
        &self.parked
    }

    fn count_in(&mut self, job: &J) {
        self.count += 1;
        self.bytes += job.held_bytes();
        if self.sharing.is_none() {
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
        if self.sharing.is_none() {
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
        self.may_start = self.count > 0;
    }

    /// Whether `next` may return a job.
    pub(super) fn may_start(&self) -> bool {
        self.may_start
    }

    /// Returns how many workers are worth starting for the jobs that wait.
    pub(super) fn workers(&self) -> usize {
        if self.may_start {
            self.count.min(WORKERS)
        } else {
            0
        }
    }

    /// Whether the limits keep the queue from using any worker.
    pub(super) fn is_closed(&self) -> bool {
        self.count > 0 && self.lacks_common && !self.may_start
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

    /// Decides about a job whose turn it is.
    pub(super) fn admit(&mut self, mut job: J, now: BootInstant) -> Admission<J> {
        let Some(needs) = job.needs().cloned() else {
            return Admission::Starts(job);
        };
        // Others that need the same go first.
        if !self.lines.contains_key(&needs)
            && let Some(permit) = self.fleet.start(&needs, now)
        {
            job.permitted(permit);
            self.started.note(1, now);
            return Admission::Starts(job);
        }
        self.lacks_common = self.fleet.lacks_common(&needs, now);
        let is_full = self.count >= self.fleet.most_waiting() || self.bytes >= MOST_BYTES;
        if is_full && may_go_back(&job, self.keeps_groups) {
            return Admission::GoesBack(job, self.again(now));
        }
        self.keep(needs, job, now);
        Admission::Waits
    }

    fn keep(&mut self, needs: Needs, job: J, now: BootInstant) {
        if self.count == 0 {
            self.look = now + LOOK;
        }
        self.count_in(&job);
        self.fleet.wait(&needs, now);
        let line = self.lines.entry(needs.clone()).or_insert_with(|| {
            self.turns.push_back(needs);
            ReadyLine::new(self.sequence, false, self.sharing.clone())
        });
        line.arrive(vec![job], now);
    }

    /// Takes the next job that has what it needs. Needs that are the same for several jobs have one
    /// turn.
    pub(super) fn next(&mut self, now: BootInstant) -> Option<J> {
        if !self.may_start {
            return None;
        }
        for _ in 0..self.turns.len() {
            let needs = self.turns.pop_front()?;
            self.turns.push_back(needs.clone());
            let Some(permit) = self.fleet.start(&needs, now) else {
                self.lacks_common = self.fleet.lacks_common(&needs, now);
                continue;
            };
            let line = self.lines.get_mut(&needs)?;
            let mut job = line.take(1).pop()?;
            if line.is_empty() {
                self.lines.remove(&needs);
                self.turns.pop_back();
            }
            self.count_out(&job);
            self.may_start = self.count > 0;
            self.fleet.wait_no_more(&needs);
            self.started.note(1, now);
            job.permitted(permit);
            return Some(job);
        }
        self.may_start = false;
        None
    }

    /// Returns the jobs that wait.
    pub(super) fn iter(&self) -> impl Iterator<Item = &J> {
        let lines = self.turns.iter().filter_map(|needs| self.lines.get(needs));
        lines.flat_map(|line| line.iter().map(|entry| &entry.job))
    }

    /// Takes out the jobs that `which` chooses.
    pub(super) fn extract(&mut self, which: impl Fn(&J) -> bool) -> Vec<J> {
        self.take_out(|line| line.extract(&which))
    }

    fn take_out(&mut self, take: impl Fn(&mut ReadyLine<J>) -> Vec<J>) -> Vec<J> {
        let mut out = Vec::new();
        // In the order of their turns, so that it is the same in each simulation.
        for needs in &self.turns {
            let Some(line) = self.lines.get_mut(needs) else {
                continue;
            };
            let taken = take(line);
            taken.iter().for_each(|_| self.fleet.wait_no_more(needs));
            out.extend(taken);
        }
        out.iter().for_each(|job| self.count_out(job));
        let lines = &mut self.lines;
        lines.retain(|_, line| !line.is_empty());
        self.turns.retain(|needs| lines.contains_key(needs));
        self.may_start &= self.count > 0;
        out
    }

    /// Returns when the first job becomes too old.
    pub(super) fn expires(&self) -> Option<BootInstant> {
        self.lines.values().filter_map(ReadyLine::expires).min()
    }

    /// Takes out the jobs that are too old.
    pub(super) fn expired(&mut self, now: BootInstant) -> Vec<J> {
        if self.expires().is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.take_out(|line| line.expired(now))
    }

    /// Returns when `overdue` is worth a call.
    pub(super) fn attention(&self) -> Option<BootInstant> {
        (self.count > 0).then_some(self.look)
    }

    /// Takes out the jobs that have waited for too long, with the time for which each goes back to
    /// its queue. A job that may not go back stays.
    pub(super) fn overdue(&mut self, now: BootInstant) -> Vec<(J, Duration)> {
        if self.count == 0 || now < self.look {
            return Vec::new();
        }
        self.look = now + LOOK;
        let (longest, keeps_groups) = (self.fleet.longest_wait(), self.keeps_groups);
        let out = self.take_out(|line| {
            line.extract_entries(|entry| {
                let is_old = entry.since.is_some_and(|since| since + longest <= now);
                is_old && may_go_back(&entry.job, keeps_groups)
            })
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

/// Whether a job may go back to its queue without an attempt.
fn may_go_back<J: WaitingJob>(job: &J, keeps_groups: bool) -> bool {
    job.may_be_given_back() && !(keeps_groups && job.group().is_some())
}

#[cfg(test)]
mod tests;
