//! The waiting jobs of one queue, and which groups are busy. Pure: `now` is an argument.

use super::line::{LineEntry, ReadyLine};
use super::turns::{TurnPlace, Turns};
use crate::clock::{BootInstant, Timestamp};
use crate::fleet::hand::Needs;
use crate::fleet::keeper::FleetPermit;
use crate::queue::sharing::{Priority, SharingRules};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// A job that waits to run.
pub trait WaitingJob {
    /// Returns the group that it must be kept in order with.
    fn group(&self) -> Option<&str>;

    /// Returns when it was sent or, if unknown, first received.
    fn sent_at(&self) -> Timestamp {
        Timestamp::default()
    }

    /// Returns when it becomes too old to be started; `None` if it never does.
    fn expires(&self) -> Option<BootInstant> {
        None
    }

    /// Returns the tenant that it belongs to; empty if it belongs to none.
    fn tenant(&self) -> &str {
        ""
    }

    /// Returns its priority.
    fn priority(&self) -> Priority {
        Priority::default()
    }

    /// Returns when it has waited for the longest wait of its priority; `None` if there is none.
    fn hastens(&self) -> Option<BootInstant> {
        None
    }

    /// Returns its identity, the same each time it arrives.
    fn id(&self) -> &str {
        ""
    }

    /// Whether it was received before.
    fn is_redelivered(&self) -> bool {
        false
    }

    /// Whether it can be received again without exceeding the receives that its queue permits.
    fn may_be_given_back(&self) -> bool {
        true
    }

    /// Returns what it takes of the limits of the fleet; `None` if it takes nothing.
    fn needs(&self) -> Option<&Needs> {
        None
    }

    /// Gives it the permits that it holds until its attempt ends.
    fn permitted(&mut self, _permit: FleetPermit) {}

    /// Returns the bytes that it takes in memory.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// Records that it failed and must not be attempted again before this moment.
    fn pause_until(&mut self, _at: BootInstant) {}

    /// Records that it is held once more because its downstream was busy or closed.
    fn note_held(&mut self) {}
}

/// The order in which waiting jobs start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sequence {
    /// The job that arrived first goes first.
    #[default]
    Fifo,
    /// The job that was sent last goes first.
    Lifo,
}

/// The condition on which waiting jobs start.
#[derive(Debug, Clone, Copy)]
pub struct Gather {
    /// The number of jobs that start at once ...
    pub full: usize,
    /// ... or fewer, once one has waited for this time.
    pub window: Duration,
}

/// The waiting jobs of one queue.
#[derive(Debug)]
pub struct Ready<J> {
    waiting: ReadyLine<J>,
    /// The groups with a job under way; empty unless the queue orders its groups.
    busy: HashSet<String>,
    ordered: bool,
    /// Whether jobs that run together belong to one tenant.
    one_tenant: bool,
    gather: Gather,
    /// Whether all waiting jobs were found to belong to busy groups, and nothing has changed since.
    /// The search reads all of them.
    all_busy: Cell<bool>,
}

impl<J: WaitingJob> Ready<J> {
    /// Creates an empty list. `ordered`: jobs of one group run in order, never two attempts at a
    /// time. With `sharing`, tenants have turns.
    pub fn new(
        ordered: bool,
        sequence: Sequence,
        gather: Gather,
        sharing: Option<Arc<SharingRules>>,
    ) -> Self {
        Self {
            one_tenant: sharing.as_ref().is_some_and(|rules| rules.one_tenant),
            waiting: ReadyLine::new(sequence, ordered, sharing),
            busy: HashSet::new(),
            ordered,
            gather,
            all_busy: Cell::new(false),
        }
    }

    /// Whether jobs of one group run in order.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Returns the turns of tenants, if they share the list.
    pub(super) fn tenant_turns(&mut self) -> Option<&mut Turns> {
        self.waiting.tenant_turns()
    }

    /// Returns the place of the next job, even if it still waits for others to share its attempt.
    pub(super) fn next_place(&self) -> Option<TurnPlace> {
        self.waiting.next_place(|job| is_free(&self.busy, job))
    }

    /// Takes the next job, without payment by its tenant. Its group is busy until `freed`.
    pub(super) fn take_next(&mut self) -> Option<J> {
        let job = self.waiting.take_next(|job| is_free(&self.busy, job))?;
        if let (Some(group), true) = (job.group(), self.ordered) {
            self.busy.insert(group.to_owned());
        }
        Some(job)
    }

    /// Lets jobs go before all others that have waited for the longest wait of their priority.
    /// Returns how many have begun to.
    pub(crate) fn hasten(&mut self, now: BootInstant) -> usize {
        self.waiting.hasten(now)
    }

    /// Sets how long jobs wait for others to share their attempt.
    pub(crate) fn set_window(&mut self, window: Duration) {
        self.gather.window = window;
    }

    /// Adds jobs that arrived together, in their queue's order: behind the others, or by their age.
    pub fn arrive(&mut self, jobs: Vec<J>, now: BootInstant) {
        self.all_busy.set(false);
        self.waiting.arrive(jobs, now);
    }

    /// Puts jobs that were under way before all others, in their order, or by their age. They do
    /// not wait for others again, and their groups become free.
    pub fn resume(&mut self, jobs: Vec<J>) {
        self.all_busy.set(false);
        for group in jobs.iter().filter_map(WaitingJob::group) {
            self.busy.remove(group);
        }
        self.waiting.resume(jobs);
    }

    /// Returns the number of waiting jobs, startable or not.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no job waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether `take` would return jobs that need not wait for others.
    pub(crate) fn startable(&self, now: BootInstant) -> bool {
        if self.one_tenant {
            let line = &self.waiting;
            return line.has_gathered(self.gather, now, |job| is_free(&self.busy, job));
        }
        let Some(since) = self.waits_since() else {
            return false;
        };
        let full = self.gather.full;
        since.is_none_or(|since| since + self.gather.window <= now)
            || self.free().take(full).count() >= full
    }

    /// Returns when the jobs stop waiting for others to share their attempt.
    pub fn due(&self) -> Option<BootInstant> {
        if self.one_tenant {
            let line = &self.waiting;
            return line.gathers_until(self.gather, |job| is_free(&self.busy, job));
        }
        Some(self.waits_since()?? + self.gather.window)
    }

    /// Returns since when a job has waited for others to share its attempt; `None` if no job may
    /// start. The first job that may start decides or, in a sorted line, the one that has waited
    /// longest.
    fn waits_since(&self) -> Option<Option<BootInstant>> {
        let first = self.first_free()?;
        Some(self.waiting.longest_wait().unwrap_or(first.since))
    }

    /// Whether a job may start, apart from waiting for others.
    pub(crate) fn has_free(&self) -> bool {
        self.first_free().is_some()
    }

    /// Whether a job may start whose message was redelivered for the last time.
    pub(crate) fn has_last_chance(&self) -> bool {
        let mut free = self.free();
        free.any(|entry| is_last_chance(&entry.job))
    }

    fn first_free(&self) -> Option<&LineEntry<J>> {
        if self.all_busy.get() {
            return None;
        }
        let first = self.free().next();
        self.all_busy.set(first.is_none());
        first
    }

    /// Returns the jobs that may start, apart from waiting for others, in order.
    fn free(&self) -> impl Iterator<Item = &LineEntry<J>> {
        let entries = self.waiting.iter();
        entries.filter(|entry| is_free(&self.busy, &entry.job))
    }

    /// Returns the waiting jobs, in order.
    pub fn iter(&self) -> impl Iterator<Item = &J> {
        self.waiting.iter().map(|entry| &entry.job)
    }

    /// Returns how many attempts of at most `full` jobs the waiting jobs make.
    pub(super) fn attempts(&self, full: usize) -> usize {
        if self.one_tenant {
            self.waiting.attempts_of_tenants(full)
        } else {
            self.len().div_ceil(full)
        }
    }

    /// Takes the next jobs to run together, at most `max`, those of a group in their order. Their
    /// groups are busy until `freed` or resumed.
    pub fn take(&mut self, max: usize, now: BootInstant) -> Vec<J> {
        let taken = if self.one_tenant {
            let (line, gather) = (&mut self.waiting, self.gather);
            line.take_of_one_tenant(max, gather, now, |job| is_free(&self.busy, job))
        } else if self.ordered {
            self.waiting.take_where(max, |job| is_free(&self.busy, job))
        } else {
            self.waiting.take(max)
        };
        if !self.ordered {
            return taken;
        }
        let groups = taken.iter().filter_map(|job| job.group());
        self.busy.extend(groups.map(str::to_owned));
        taken
    }

    /// Whether jobs of a group are running or held.
    pub fn is_busy(&self, group: &str) -> bool {
        self.busy.contains(group)
    }

    /// Records that a group's jobs have ended, or are all released.
    pub fn freed(&mut self, group: &str) {
        self.all_busy.set(false);
        self.busy.remove(group);
    }

    /// Takes out the waiting jobs of a group in which a job has failed, so that they do not
    /// overtake it.
    #[must_use = "returned messages must be released"]
    pub fn behind(&mut self, group: &str) -> Vec<J> {
        if self.ordered {
            self.extract(|job| job.group() == Some(group))
        } else {
            Vec::new()
        }
    }

    /// Takes out the waiting jobs that `which` chooses, for instance to release them.
    pub fn extract(&mut self, which: impl Fn(&J) -> bool) -> Vec<J> {
        self.waiting.extract(which)
    }

    /// Returns when the first waiting job becomes too old.
    pub fn expires(&self) -> Option<BootInstant> {
        self.waiting.expires()
    }

    /// Takes out the jobs that are too old. The jobs behind them in their groups are as free as
    /// before.
    #[must_use = "expired messages must be settled"]
    pub fn expired(&mut self, now: BootInstant) -> Vec<J> {
        self.waiting.expired(now)
    }
}

/// Whether a message was redelivered for the last time. A message that may be received only once
/// does not count: all messages of its queue are alike.
pub(super) fn is_last_chance<J: WaitingJob>(job: &J) -> bool {
    job.is_redelivered() && !job.may_be_given_back()
}

/// Returns when a job goes before all others. A job of a group that is kept in order never does.
pub(super) fn hastens<J: WaitingJob>(job: &J, keeps_groups: bool) -> Option<BootInstant> {
    if keeps_groups && job.group().is_some() {
        None
    } else {
        job.hastens()
    }
}

fn is_free<J: WaitingJob>(busy: &HashSet<String>, job: &J) -> bool {
    job.group().is_none_or(|group| !busy.contains(group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq)]
    struct ReadyJob(u32, Option<&'static str>);

    impl WaitingJob for ReadyJob {
        fn group(&self) -> Option<&str> {
            self.1
        }
    }

    const ALONE: Gather = Gather {
        full: 1,
        window: Duration::ZERO,
    };

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(ms))
    }

    fn ready(jobs: &[(u32, Option<&'static str>)]) -> Ready<ReadyJob> {
        let mut ready = Ready::new(true, Sequence::Fifo, ALONE, None);
        for (n, group) in jobs {
            ready.arrive(vec![ReadyJob(*n, *group)], at(0));
        }
        ready
    }

    fn numbers(jobs: Vec<ReadyJob>) -> Vec<u32> {
        jobs.into_iter().map(|job| job.0).collect()
    }

    #[test]
    fn group_has_one_attempt_at_a_time_in_order() {
        let mut ready = ready(&[
            (1, Some("a")),
            (2, Some("b")),
            (3, Some("a")),
            (4, Some("a")),
        ]);
        assert_eq!(numbers(ready.take(3, at(0))), [1, 2, 3]);
        assert!(!ready.startable(at(0)));
        ready.freed("a");
        assert_eq!(numbers(ready.take(10, at(0))), [4]);
    }

    #[test]
    fn lesson_19_failure_blocks_its_group() {
        let mut ready = ready(&[
            (1, Some("a")),
            (2, Some("a")),
            (3, Some("a")),
            (4, Some("b")),
        ]);
        assert_eq!(ready.take(1, at(0)), [ReadyJob(1, Some("a"))]);
        assert_eq!(
            ready.behind("a"),
            [ReadyJob(2, Some("a")), ReadyJob(3, Some("a"))]
        );
        assert_eq!(ready.take(9, at(0)), [ReadyJob(4, Some("b"))]);
    }

    #[test]
    fn resumed_message_goes_before_the_rest_of_its_group() {
        let mut ready = ready(&[(1, Some("a")), (2, Some("a")), (3, Some("a"))]);
        let taken = ready.take(2, at(0));
        ready.resume(taken);
        assert_eq!(numbers(ready.take(9, at(0))), [1, 2, 3]);
    }

    /// A job of a tenant, perhaps in a group.
    #[derive(Debug, PartialEq)]
    struct TenantJob(u32, &'static str, Option<&'static str>);

    impl WaitingJob for TenantJob {
        fn group(&self) -> Option<&str> {
            self.2
        }

        fn tenant(&self) -> &str {
            self.1
        }
    }

    fn of(number: u32, tenant: &'static str) -> TenantJob {
        TenantJob(number, tenant, None)
    }

    /// Jobs of which those of one tenant run together.
    fn of_one_tenant(ordered: bool, gather: Gather) -> Ready<TenantJob> {
        let rules = SharingRules {
            one_tenant: true,
            weights: BTreeMap::from([("heavy".into(), 4)]),
            ..SharingRules::default()
        };
        Ready::new(ordered, Sequence::Fifo, gather, Some(Arc::new(rules)))
    }

    const PAIRS: Gather = Gather {
        full: 2,
        window: Duration::from_millis(100),
    };

    #[test]
    fn jobs_that_run_together_belong_to_one_tenant() {
        let mut ready = of_one_tenant(false, PAIRS);
        ready.arrive(vec![of(1, "a"), of(2, "b")], at(0));
        assert!(!ready.startable(at(99)), "two, and each of another tenant");
        assert_eq!(ready.due(), Some(at(100)));
        ready.arrive(vec![of(3, "b")], at(50));
        assert!(ready.startable(at(50)), "the second tenant is complete");
        assert_eq!(ready.attempts(2), 2);
        assert_eq!(ready.take(2, at(50)), [of(2, "b"), of(3, "b")]);
        assert!(!ready.startable(at(99)) && ready.take(2, at(99)).is_empty());
        assert!(ready.startable(at(100)));
        assert_eq!(ready.take(2, at(100)), [of(1, "a")]);
        ready.arrive(vec![of(4, "a")], at(200));
        ready.resume(vec![of(1, "b")]);
        assert_eq!(ready.take(2, at(200)), [of(1, "b")], "it has waited before");
        assert!(!ready.startable(at(299)));
    }

    #[test]
    fn tenants_that_never_run_together_keep_their_shares() {
        let at_once = Gather {
            full: 10,
            window: Duration::ZERO,
        };
        let mut ready = of_one_tenant(false, at_once);
        let jobs = (0..1_000).flat_map(|n| [of(n, "heavy"), of(n, "b")]);
        ready.arrive(jobs.collect(), at(0));
        let taken: Vec<TenantJob> = (0..50).flat_map(|_| ready.take(10, at(0))).collect();
        let of_b = taken.iter().filter(|job| job.1 == "b").count();
        assert_eq!((taken.len(), of_b), (500, 100));
    }

    #[test]
    fn job_never_joins_past_one_of_its_group_that_stays() {
        let mut ready = of_one_tenant(true, PAIRS);
        let group = Some("g");
        let jobs = [TenantJob(1, "a", group), TenantJob(2, "b", group)];
        let more = [TenantJob(3, "a", group), TenantJob(4, "a", None)];
        ready.arrive(jobs.into_iter().chain(more).collect(), at(0));
        let wanted = [TenantJob(1, "a", group), TenantJob(4, "a", None)];
        assert_eq!(ready.take(2, at(0)), wanted);
        assert!(ready.take(2, at(500)).is_empty(), "the group is under way");
        ready.freed("g");
        assert_eq!(ready.take(2, at(500)), [TenantJob(2, "b", group)]);
    }

    #[test]
    fn resumed_message_does_not_wait_for_a_batch_window() {
        let gather = Gather {
            full: 2,
            window: Duration::from_secs(300),
        };
        let mut ready = Ready::new(false, Sequence::Fifo, gather, None);
        ready.resume(vec![ReadyJob(1, None)]);
        assert!(ready.startable(at(0)));
    }

    #[test]
    fn batch_window_collects_messages_and_ends() {
        let gather = Gather {
            full: 3,
            window: Duration::from_millis(100),
        };
        let mut ready = Ready::new(false, Sequence::Fifo, gather, None);
        ready.arrive(vec![ReadyJob(1, None)], at(10));
        ready.arrive(vec![ReadyJob(2, None)], at(50));
        assert!(!ready.startable(at(109)) && ready.startable(at(110)));
        assert_eq!(ready.due(), Some(at(110)));
        ready.arrive(vec![ReadyJob(3, None)], at(60));
        assert!(ready.startable(at(60)), "it is full");
        assert_eq!(ready.take(3, at(0)).len(), 3);
        assert_eq!(ready.due(), None);
    }
}
