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
            sharing: Some(Arc::new(sharing)),
            ..sample::lane()
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
            limits: SchedulerLimits {
                prefetch: 100,
                ..sample::limits(1)
            },
            ..sample::rules(vec![lane], 1)
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

/// Ends one of ten attempts of a route whose queues have backlogs, and then another. Returns the
/// sizes of the polls that are planned after each.
fn polls_for_free_places(queue_shares_out: bool, batch: usize, lanes: usize) -> [Vec<usize>; 2] {
    let sharing = SharingRules {
        by_group: true,
        ..SharingRules::default()
    };
    let lane = LaneRules {
        sharing: Some(Arc::new(sharing)),
        queue_shares_out,
        ..sample::lane()
    };
    let mut scheduler = Scheduler::new(Rules {
        batch,
        ..sample::rules(vec![lane; lanes], 10)
    });
    loop {
        let polls = scheduler.plan(at(0));
        if polls.is_empty() {
            break;
        }
        for mut poll in polls {
            let jobs = (0..poll.max).map(|_| TenantJob {
                seat: Some(poll.seat()),
                ..of("a", None)
            });
            let jobs = jobs.collect();
            scheduler.answered(poll, jobs, false, at(0));
        }
    }
    scheduler.reserve_workers(at(0));
    let running = std::iter::from_fn(|| scheduler.next_jobs(at(0)));
    let mut running: Vec<_> = running.collect();
    let mut under_way = Vec::new();
    [(); 2].map(|()| {
        let start = running.pop().expect("it runs");
        let ended = FinishedAttempt {
            lane: start.lane,
            began: at(0),
            showed: Signal::Open,
        };
        let fates = start.jobs.iter().map(|_| (None, MessageFate::Done));
        let _ = scheduler.ended(ended, fates, at(5));
        drop(start);
        scheduler.release_worker();
        let polls = scheduler.plan(at(5));
        let sizes = polls.iter().map(|poll| poll.max).collect();
        under_way.extend(polls);
        sizes
    })
}

#[test]
fn queue_that_shares_out_is_asked_for_a_free_place_at_once() {
    let polls = polls_for_free_places(true, 1, 1);
    assert_eq!(polls, [vec![1], vec![]], "one receive at a time");
    for (shares_out, batch, lanes) in [(false, 1, 1), (true, 2, 1), (true, 1, 2)] {
        let polls = polls_for_free_places(shares_out, batch, lanes);
        assert_eq!(polls, [[0_usize; 0]; 2], "places are collected");
    }
}
