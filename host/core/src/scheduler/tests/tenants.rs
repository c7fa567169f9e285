//! Jobs that wait for limits keep the turns of their tenants.

use crate::fleet::WhenAway;
use crate::fleet::hand::Needs;
use crate::fleet::keeper::FleetPermit;
use crate::fleet::ledger::LimitRecord;
use crate::fleet::limit::{Limit, LimitNeed, LimitNumbers, LimitWeight};
use crate::message::place::{MessageKey, MessagePlace};
use crate::queue::sharing::Priority;
use crate::scheduler::limited::tests::ask_store;
use crate::scheduler::*;
use crate::throttle::control::Signal;
use std::collections::HashMap;

#[derive(Debug)]
struct TenantJob {
    tenant: &'static str,
    priority: u64,
    key: Option<String>,
    needs: Option<Needs>,
    hastens: Option<BootInstant>,
    permit: Option<FleetPermit>,
    seat: Option<Permit>,
}

impl WaitingJob for TenantJob {
    fn group(&self) -> Option<&str> {
        None
    }

    fn tenant(&self) -> &str {
        self.tenant
    }

    fn priority(&self) -> Priority {
        Priority::new(self.priority).expect("a priority")
    }

    fn hastens(&self) -> Option<BootInstant> {
        self.hastens
    }

    fn needs(&self) -> Option<&Needs> {
        self.needs.as_ref()
    }

    fn permitted(&mut self, permit: FleetPermit) {
        self.permit = Some(permit);
    }
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
}

fn of(tenant: &'static str, key: Option<&str>) -> TenantJob {
    TenantJob {
        tenant,
        priority: 3,
        key: key.map(str::to_owned),
        needs: None,
        hastens: None,
        permit: None,
        seat: None,
    }
}

fn needs(key: &str) -> Needs {
    let need = LimitNeed {
        limit: 0,
        key: Some(Arc::from(key)),
        weight: 1,
    };
    [need].into()
}

/// A route with one worker and one queue, and a limit of one message per key.
struct SharedRoute {
    scheduler: Scheduler<TenantJob>,
    fleet: Arc<Fleet>,
    records: HashMap<String, LimitRecord>,
}

impl SharedRoute {
    fn new(weights: &[(&str, u32)]) -> Self {
        let weights = weights
            .iter()
            .map(|(name, weight)| ((*name).to_owned(), *weight));
        let sharing = SharingRules {
            by_group: true,
            weights: weights.collect(),
            ..SharingRules::default()
        };
        let lane = LaneRules {
            batch: 100,
            poll_for: Duration::from_secs(20),
            proof_wait: Duration::from_secs(1),
            sleep: Duration::ZERO,
            ordered_groups: false,
            most_receives: None,
            sequence: ready::Sequence::Fifo,
            sharing: Some(Arc::new(sharing)),
            counts_overdue: false,
        };
        let limit = Limit {
            name: "each".to_owned(),
            numbers: LimitNumbers {
                concurrency: Some(1),
                rate: None,
            },
            key: Some(MessageKey::Place(MessagePlace::Attribute("k".to_owned()))),
            overrides: HashMap::new(),
            weight: LimitWeight::Fixed(1),
            shadow: false,
            hides_keys: false,
        };
        let fleet = Arc::new(Fleet::new("p".to_owned(), vec![limit], WhenAway::Closed));
        let mut scheduler = Scheduler::new(Rules {
            lanes: vec![lane],
            weights: None,
            batch: 1,
            horizon: Duration::from_secs(15),
            limits: SchedulerLimits {
                attempts: 1,
                prefetch: 100,
                window: Duration::ZERO,
                lanes: Vec::new(),
                weights: BTreeMap::new(),
            },
        });
        scheduler.limit(&fleet);
        Self {
            scheduler,
            fleet,
            records: HashMap::new(),
        }
    }

    fn arrive(&mut self, mut jobs: Vec<TenantJob>, now: BootInstant) {
        let mut poll = self.scheduler.plan(now).remove(0);
        for job in &mut jobs {
            job.needs = job.key.as_deref().map(needs);
            job.seat = Some(poll.seat());
        }
        self.scheduler.answered(poll, jobs, false, now);
    }

    /// Lets the process ask the store for the permits that jobs wait for.
    fn ask(&mut self, now: BootInstant) {
        ask_store(&self.fleet, &mut self.records, now);
        self.scheduler.limits_changed();
    }

    /// Starts the next job, if one may start.
    fn start(&mut self, now: BootInstant) -> Option<Start<TenantJob>> {
        if self.scheduler.reserve_workers(now) == 0 {
            return None;
        }
        self.scheduler.next_jobs(now)
    }

    fn end(&mut self, start: &Start<TenantJob>, now: BootInstant) {
        let ended = FinishedAttempt {
            lane: 0,
            began: now,
            showed: Signal::Open,
        };
        let fates = start.jobs.iter().map(|_| (None, MessageFate::Done));
        let _ = self.scheduler.ended(ended, fates, now);
        self.scheduler.release_worker();
    }

    /// Lets jobs arrive that wait because no permit is in hand, and then asks for permits.
    fn wait_for_limits(&mut self, jobs: Vec<TenantJob>) {
        self.arrive(jobs, at(0));
        assert!(self.start(at(0)).is_none(), "all lack a permit");
        self.ask(at(10));
    }

    /// The tenants of the jobs that start, one after the other.
    fn tenants_that_start(&mut self, most: usize) -> Vec<&'static str> {
        let mut tenants = Vec::new();
        for step in 1..=most {
            let now = at(20 * step as u64);
            self.ask(now);
            let Some(start) = self.start(now) else { break };
            tenants.push(start.jobs[0].tenant);
            self.end(&start, now);
        }
        tenants
    }
}

#[test]
fn jobs_that_wait_for_limits_start_by_weight() {
    let mut route = SharedRoute::new(&[("a", 2)]);
    let keys: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let jobs = keys.iter().enumerate().map(|(number, key)| {
        let tenant = if number < 10 { "a" } else { "b" };
        of(tenant, Some(key))
    });
    let jobs = jobs.collect();
    route.wait_for_limits(jobs);
    let started = route.tenants_that_start(9);
    let of_a = started.iter().filter(|tenant| **tenant == "a").count();
    assert_eq!((of_a, started.len()), (6, 9), "{started:?}");
}

#[test]
fn urgent_job_goes_before_those_that_waited_for_a_limit() {
    let mut route = SharedRoute::new(&[]);
    route.wait_for_limits(vec![of("a", Some("k")), of("a", Some("l"))]);
    let urgent = TenantJob {
        priority: 1,
        ..of("b", None)
    };
    route.arrive(vec![of("c", None), urgent], at(15));
    assert_eq!(route.tenants_that_start(9), ["b", "a", "c", "a"]);
}

#[test]
fn tenant_pays_when_its_job_starts_and_not_while_it_waits_for_a_limit() {
    let mut route = SharedRoute::new(&[]);
    let keys = ["k", "l", "m"];
    route.wait_for_limits(keys.map(|key| of("a", Some(key))).into());
    route.arrive((0..3).map(|_| of("b", None)).collect(), at(15));
    let started = route.tenants_that_start(9);
    assert_eq!(started, ["a", "b", "a", "b", "a", "b"]);
}

#[test]
fn tenant_at_its_limit_does_not_catch_up() {
    let mut route = SharedRoute::new(&[]);
    let other: FleetPermit = {
        route.fleet.wait(&needs("k"), at(0));
        route.ask(at(0));
        route.fleet.wait_no_more(&needs("k"));
        route.fleet.start(&needs("k"), at(0)).expect("a permit")
    };
    route.arrive((0..12).map(|_| of("a", Some("k"))).collect(), at(0));
    route.arrive((0..20).map(|_| of("b", None)).collect(), at(0));
    assert_eq!(route.tenants_that_start(10), ["b"; 10]);
    drop(other);
    let started = route.tenants_that_start(10);
    let of_a = started.iter().filter(|tenant| **tenant == "a").count();
    assert!((5..=6).contains(&of_a), "{started:?}");
}

#[test]
fn job_that_has_waited_for_long_goes_first_once_its_limit_has_room() {
    let mut route = SharedRoute::new(&[]);
    let late = TenantJob {
        priority: 5,
        hastens: Some(at(500)),
        ..of("late", Some("k"))
    };
    route.wait_for_limits(vec![late]);
    let urgent = || TenantJob {
        priority: 1,
        ..of("b", None)
    };
    route.arrive((0..30).map(|_| urgent()).collect(), at(15));
    assert_eq!(route.tenants_that_start(3), ["b"; 3]);
    let start = route.start(at(500)).expect("the late one");
    assert_eq!((start.jobs[0].tenant, start.hastened), ("late", 1));
    route.end(&start, at(500));
    let next = route.start(at(501)).expect("another");
    assert_eq!((next.jobs[0].tenant, next.hastened), ("b", 0));
}

#[test]
fn turns_know_nothing_of_jobs_that_left() {
    let mut route = SharedRoute::new(&[]);
    route.wait_for_limits(vec![of("a", Some("k")), of("b", Some("l"))]);
    let released = route.scheduler.stop(|_, job| job.tenant == "a", at(20));
    assert_eq!(released.len(), 1);
    assert_eq!(route.tenants_that_start(9), ["b"]);
    let lane = &mut route.scheduler.lanes[0];
    let turns = lane.ready.tenant_turns().expect("tenants");
    for lack in [turns::Lack::Worker, turns::Lack::Permit] {
        assert_eq!(turns.order(lack).count(), 0, "{lack:?}");
    }
}
