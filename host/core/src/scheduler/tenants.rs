//! The tenants of one queue: how many of their messages run, how long their attempts take, and what
//! their queue must know of that. Pure.

use super::Scheduler;
use super::limited::LimitedJobs;
use super::ready::WaitingJob;
use crate::clock::BootInstant;
use crate::fleet::hand::RecentStarts;
use crate::queue::sharing::SharingRules;
use crate::throttle::median::Median;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The most tenants that are remembered although none of their messages runs.
const MOST_KNOWN: usize = 1_000;
/// The most tenants whose measured times their queue is told.
const MOST_TIMED: usize = 100;
/// The interval at which the queue is told other times.
const LOOK: Duration = Duration::from_secs(1);
/// The part of a new duration in the average.
const PART: u32 = 8;

/// A tenant of which messages run, or ran lately.
#[derive(Debug, Default)]
struct KnownTenant {
    running: usize,
    starts: RecentStarts,
    /// The average time of its messages in attempts.
    time: Option<Duration>,
    used: BootInstant,
}

/// The tenants of one queue.
#[derive(Debug)]
pub(super) struct Tenants {
    sharing: Arc<SharingRules>,
    /// Whether the queue does not know the rules yet.
    is_changed: bool,
    known: HashMap<Arc<str>, KnownTenant>,
    /// The known tenants of which nothing runs, by their last use.
    idle: BTreeSet<(BootInstant, Arc<str>)>,
    /// The durations of all tenants.
    usual: Median,
    look: BootInstant,
}

/// The figures of one tenant in this process.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantFigures {
    /// Its name; empty for messages without a tenant.
    pub tenant: Arc<str>,
    /// The number of its messages that run.
    pub running: usize,
    /// The number of its messages that are held and may start.
    pub held: usize,
    /// The number of its messages that are held and wait for limits of the fleet.
    pub limited: usize,
    /// The number of its messages that started in the last second.
    pub per_second: u32,
    /// Its part of the messages of the queue that started in the last second, from 0 to 1.
    pub share: f64,
    /// Whether enough of its messages wait here, so that the queue delivers none of it.
    pub is_parked: bool,
    /// Its weight.
    pub weight: u32,
}

impl Tenants {
    pub(super) fn new(sharing: Arc<SharingRules>) -> Self {
        Self {
            sharing,
            is_changed: true,
            known: HashMap::new(),
            idle: BTreeSet::new(),
            usual: Median::default(),
            look: BootInstant::default(),
        }
    }

    /// Returns the present rules.
    pub(super) fn sharing(&self) -> &Arc<SharingRules> {
        &self.sharing
    }

    /// Whether `changed` has rules to return.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Returns the rules if the queue does not know them yet.
    pub(super) fn changed(&mut self) -> Option<Arc<SharingRules>> {
        std::mem::take(&mut self.is_changed).then(|| self.sharing.clone())
    }

    /// Replaces the weights.
    pub(super) fn set_weights(&mut self, weights: &BTreeMap<String, u32>) {
        if self.sharing.weights != *weights {
            Arc::make_mut(&mut self.sharing).weights.clone_from(weights);
            self.is_changed = true;
        }
    }

    /// Whether `park` would change the rules. Without tenants by group nothing is parked, because the
    /// queue would leave out all messages.
    pub(super) fn would_park(&self, parked: &BTreeSet<String>) -> bool {
        self.sharing.by_group && self.sharing.parked != *parked
    }

    /// Replaces the tenants of which the queue should deliver nothing.
    pub(super) fn park(&mut self, parked: &BTreeSet<String>) {
        if self.would_park(parked) {
            Arc::make_mut(&mut self.sharing).parked.clone_from(parked);
            self.is_changed = true;
        }
    }

    /// Records that a message of a tenant starts.
    pub(super) fn starts(&mut self, tenant: &str, now: BootInstant) {
        let name = match self.known.get_key_value(tenant) {
            Some((name, _)) => name.clone(),
            None => Arc::from(tenant),
        };
        let known = self.known.entry(name.clone()).or_default();
        self.idle.remove(&(known.used, name));
        known.running += 1;
        known.starts.note(1, now);
        known.used = now;
    }

    /// Records that a message of a tenant no longer runs.
    pub(super) fn ends(&mut self, tenant: &str) {
        let Some(known) = self.known.get_mut(tenant) else {
            return;
        };
        known.running = known.running.saturating_sub(1);
        if known.running == 0 {
            let used = known.used;
            let name = self.known.get_key_value(tenant);
            self.idle.extend(name.map(|(name, _)| (used, name.clone())));
        }
        while self.known.len() > MOST_KNOWN
            && let Some((_, unused)) = self.idle.pop_first()
        {
            self.known.remove(&unused);
        }
    }

    /// Records the part of an attempt that a message of a tenant took.
    pub(super) fn took(&mut self, tenant: &str, took: Duration) {
        if let Some(known) = self.known.get_mut(tenant) {
            known.time = Some(average(known.time, took));
            self.usual.note(took);
        }
    }

    /// Records that a message of a tenant was interrupted after this time.
    pub(super) fn took_more_than(&mut self, tenant: &str, least: Duration) {
        let known = self.known.get(tenant).and_then(|known| known.time);
        if known.or(self.usual.get()).is_none_or(|time| time < least) {
            self.took(tenant, least);
        }
    }

    /// Tells the queue the measured times if they are much different from what it knows.
    pub(super) fn look(&mut self, now: BootInstant) {
        if now < self.look {
            return;
        }
        self.look = now + LOOK;
        let Some(usual) = self.usual.get() else {
            return;
        };
        let known = self.known.iter();
        let mut unusual: Vec<_> = known
            .filter_map(|(name, known)| Some((Reverse(known.used), name, known.time?)))
            .filter(|(_, _, time)| differs(Some(*time), Some(usual)))
            .collect();
        unusual.sort_unstable();
        unusual.truncate(MOST_TIMED);
        let times: BTreeMap<String, Duration> = unusual
            .into_iter()
            .map(|(_, name, time)| (name.to_string(), time))
            .collect();
        let old = &self.sharing;
        let same = times.len() == old.times.len()
            && times
                .iter()
                .all(|(name, time)| !differs(Some(*time), old.times.get(name).copied()));
        if !same || differs(Some(usual), old.usual_time) {
            let sharing = Arc::make_mut(&mut self.sharing);
            (sharing.times, sharing.usual_time) = (times, Some(usual));
            self.is_changed = true;
        }
    }

    /// Returns the figures of the tenants of which messages run or ran lately, without the messages
    /// that are held.
    pub(super) fn figures(&self, now: BootInstant) -> impl Iterator<Item = TenantFigures> {
        self.known.iter().map(move |(name, known)| TenantFigures {
            running: known.running,
            per_second: known.starts.per_second_at(now),
            ..self.figures_of(name.clone())
        })
    }

    /// Returns the figures of a tenant of which nothing runs or is held.
    pub(super) fn figures_of(&self, tenant: Arc<str>) -> TenantFigures {
        TenantFigures {
            running: 0,
            held: 0,
            limited: 0,
            per_second: 0,
            share: 0.0,
            is_parked: self.sharing.parked.contains(&*tenant),
            weight: self.sharing.weights.get(&*tenant).copied().unwrap_or(1),
            tenant,
        }
    }
}

impl<J: WaitingJob> Scheduler<J> {
    /// Returns the figures of the tenants of a queue, at most `most`: those with the most messages in
    /// this process.
    pub fn tenants(&self, lane: usize, most: usize, now: BootInstant) -> Vec<TenantFigures> {
        let lane = &self.lanes[lane];
        let Some(tenants) = &lane.tenants else {
            return Vec::new();
        };
        let mut by_name: BTreeMap<Arc<str>, TenantFigures> = tenants
            .figures(now)
            .map(|figures| (figures.tenant.clone(), figures))
            .collect();
        let limited = lane.limited.iter().flat_map(LimitedJobs::iter);
        let held = lane.ready.iter().map(|job| (job, false));
        for (job, is_limited) in held.chain(limited.map(|job| (job, true))) {
            let figures = match by_name.get_mut(job.tenant()) {
                Some(figures) => figures,
                None => {
                    let name: Arc<str> = job.tenant().into();
                    let new = tenants.figures_of(name.clone());
                    by_name.entry(name).or_insert(new)
                }
            };
            figures.limited += usize::from(is_limited);
            figures.held += usize::from(!is_limited);
        }
        let started: u32 = by_name.values().map(|one| one.per_second).sum();
        let mut busiest: Vec<TenantFigures> = by_name.into_values().collect();
        for figures in &mut busiest {
            figures.share = f64::from(figures.per_second) / f64::from(started.max(1));
        }
        busiest.sort_by_key(TenantFigures::rank);
        busiest.truncate(most);
        busiest
    }
}

impl TenantFigures {
    /// The tenants with the most messages come first, then those with the most starts.
    fn rank(&self) -> (Reverse<usize>, Reverse<u32>) {
        let here = self.running + self.held + self.limited;
        (Reverse(here), Reverse(self.per_second))
    }
}

/// Adds a duration to an average.
fn average(before: Option<Duration>, took: Duration) -> Duration {
    before.map_or(took, |before| (before * (PART - 1) + took) / PART)
}

/// Whether one duration is more than a quarter longer than the other, or only one is known.
fn differs(one: Option<Duration>, other: Option<Duration>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.max(other) > one.min(other) * 5 / 4,
        (None, None) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(ms))
    }

    fn run(tenants: &mut Tenants, name: &str, ms: u64) {
        tenants.starts(name, at(0));
        tenants.took(name, Duration::from_millis(ms));
        tenants.ends(name);
    }

    #[test]
    fn queue_is_told_of_times_that_differ() {
        let mut tenants = Tenants::new(Arc::default());
        assert!(tenants.changed().is_some(), "it knows nothing yet");
        for _ in 0..9 {
            run(&mut tenants, "a", 4);
        }
        run(&mut tenants, "slow", 40);
        tenants.look(at(1));
        let sharing = tenants.changed().expect("told");
        assert!(sharing.price("slow") > 4 * sharing.price("a"));
        run(&mut tenants, "slow", 41);
        tenants.look(at(1_500));
        assert!(tenants.changed().is_none(), "about as before");
    }

    #[test]
    fn interrupted_attempts_count_if_they_took_longer() {
        let mut tenants = Tenants::new(Arc::default());
        for _ in 0..9 {
            run(&mut tenants, "a", 4);
        }
        tenants.starts("hangs", at(0));
        tenants.took_more_than("hangs", Duration::from_secs(30));
        tenants.took_more_than("a", Duration::from_millis(1));
        tenants.look(at(1));
        let sharing = tenants.changed().expect("told");
        assert!(sharing.price("hangs") > 1_000 * sharing.price("a"));
        assert!(!sharing.times.contains_key("a"));
    }

    #[test]
    fn memory_of_tenants_is_bounded_and_running_ones_are_kept() {
        let mut tenants = Tenants::new(Arc::default());
        tenants.starts("runs", at(0));
        for number in 0..5_000 {
            run(&mut tenants, &format!("t{number}"), 1);
        }
        assert!(tenants.known.len() <= MOST_KNOWN);
        assert_eq!(tenants.idle.len() + 1, tenants.known.len());
        assert!(
            tenants
                .figures(at(0))
                .any(|one| &*one.tenant == "runs" && one.running == 1)
        );
    }

    #[test]
    fn starts_of_the_last_second_are_shown_though_nothing_starts_any_more() {
        let mut tenants = Tenants::new(Arc::default());
        run(&mut tenants, "a", 1);
        run(&mut tenants, "a", 1);
        let shown = [0, 999, 1_000, 1_999, 2_000].map(|ms| {
            let mut figures = tenants.figures(at(ms));
            figures.next().map(|one| one.per_second)
        });
        assert_eq!(shown, [2, 2, 2, 2, 0].map(Some));
    }

    #[test]
    fn parked_tenants_and_weights_are_told_once() {
        let rules = SharingRules {
            by_group: true,
            ..SharingRules::default()
        };
        let mut tenants = Tenants::new(Arc::new(rules));
        tenants.changed();
        let parked = BTreeSet::from(["a".to_owned()]);
        tenants.park(&parked);
        assert_eq!(tenants.changed().expect("told").parked, parked);
        tenants.park(&parked);
        assert!(!tenants.is_changed());
        tenants.set_weights(&BTreeMap::from([("b".into(), 3)]));
        assert_eq!(tenants.figures_of("b".into()).weight, 3);
        assert!(tenants.changed().is_some());
    }

    #[test]
    fn nothing_is_parked_where_groups_are_no_tenants() {
        let mut tenants = Tenants::new(Arc::default());
        tenants.changed();
        tenants.park(&BTreeSet::from([String::new()]));
        assert!(!tenants.is_changed(), "the queue would deliver nothing");
    }
}
