//! Makes a failing scenario smaller: drops what it can do without while the same rule breaks.

use crate::run::{EndedRun, run};
use crate::scenario::{
    Faults, FleetPlan, HappeningKind, LimitFaults, LimitPlan, Mix, Scenario, SharingPlan,
    TenantPlan, WeightPlan,
};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

/// So many messages never wait for limits in one queue.
const MANY_WAITING: usize = 1_000;
/// Messages hardly ever wait for so long, in seconds.
const LONG_WAIT_S: u64 = 300;

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Handlers panic on purpose, many times a second; what panics besides breaks a rule.
static SILENCE: LazyLock<()> = LazyLock::new(|| {
    let usual = std::panic::take_hook();
    let told = std::env::var("SIM_PANICS").is_ok();
    std::panic::set_hook(Box::new(move |panic| {
        if told || !RUNNING.get() {
            usual(panic);
        }
    }));
});

/// Runs it; a panic of the run itself is a broken rule as well.
pub(crate) fn outcome(scenario: &Scenario) -> Result<EndedRun, String> {
    LazyLock::force(&SILENCE);
    RUNNING.set(true);
    let ended = catch_unwind(AssertUnwindSafe(|| run(scenario)));
    RUNNING.set(false);
    ended.map_err(|_| "the run panicked".to_owned())
}

fn breaks(scenario: &Scenario, rule: &str) -> bool {
    match outcome(scenario) {
        Err(_) => rule == "panic",
        Ok(ended) => ended
            .broken
            .first()
            .is_some_and(|broken| broken.rule == rule),
    }
}

/// The smallest that was found. Seeds of choices are tried as well, since most smaller scenarios
/// need other luck.
pub(crate) fn shrink(scenario: &Scenario, rule: &str) -> Scenario {
    let mut best = scenario.clone();
    for _ in 0..6 {
        let before = best.clone();
        for smaller in candidates(&best.clone()) {
            if weight(&smaller) < weight(&best) && applies(&smaller) {
                for luck in 0..6 {
                    let mut tried = smaller.clone();
                    tried.seed = tried.seed.wrapping_add(luck * 1_000_003);
                    if breaks(&tried, rule) {
                        best = tried;
                        break;
                    }
                }
            }
        }
        if best == before {
            break;
        }
    }
    best
}

fn applies(scenario: &Scenario) -> bool {
    !scenario.sends.is_empty() && !scenario.queues.is_empty()
}

/// How often each fault happens.
fn chances(faults: &Faults) -> [u32; 15] {
    let Faults {
        lost_request,
        lost_answer,
        hang,
        throttle,
        entry,
        refused_extension,
        late_answer,
        blind,
        duplicate,
        disorder,
        repeat,
        silent,
        slow_settle,
        store_fails,
        store_hangs,
    } = *faults;
    [
        lost_request,
        lost_answer,
        hang,
        throttle,
        entry,
        refused_extension,
        late_answer,
        blind,
        duplicate,
        disorder,
        repeat,
        silent,
        slow_settle,
        store_fails,
        store_hangs,
    ]
}

/// What a reader has to take in.
fn weight(scenario: &Scenario) -> u64 {
    let faults = chances(&scenario.faults);
    let Mix {
        retry,
        retry_after,
        reject,
        busy,
        closed,
        panic,
        stall,
        slow,
        instant,
        ..
    } = scenario.mix;
    let mix = [
        retry,
        retry_after,
        reject,
        busy,
        closed,
        panic,
        stall,
        slow,
        instant,
    ];
    let some = faults
        .iter()
        .chain(&mix)
        .filter(|often| **often > 0)
        .count();
    let route = &scenario.route;
    let options = [
        route.newest_first,
        route.prefetch > 0,
        route.max_age_ms.is_some(),
        route.group_by,
        route.remembers_s.is_some(),
    ];
    let options = options.iter().filter(|on| **on).count();
    let limits = scenario.fleet.as_ref().map_or(0, limits_weight);
    let sharing = scenario.sharing.as_ref().map_or(0, sharing_weight);
    let settings = route.batch + route.concurrency + 10 * options + limits + sharing;
    (scenario.sends.len() * 10 + scenario.happenings.len() * 20 + some * 5) as u64
        + (scenario.processes * 30 + scenario.queues.len() * 30 + settings) as u64
}

fn limits_weight(plan: &FleetPlan) -> usize {
    let LimitFaults {
        lost_request,
        lost_answer,
        hang,
        late_answer,
        refused,
    } = plan.faults;
    let faults = [lost_request, lost_answer, hang, late_answer, refused];
    let faults = faults.iter().filter(|often| **often > 0).count();
    let of_one = |limit: &LimitPlan| {
        let parts = usize::from(limit.concurrency.is_some()) + usize::from(limit.rate.is_some());
        let is_light = limit.weight == WeightPlan::Fixed(1);
        let is_keyed = limit.keys.is_some() || limit.by_tenant;
        10 * (parts + usize::from(is_keyed) + usize::from(!is_light))
    };
    let limits: usize = plan.limits.iter().map(of_one).sum();
    let defers = plan.most_waiting < MANY_WAITING || plan.longest_wait_s < LONG_WAIT_S;
    limits + 5 * faults + 10 * usize::from(defers) + usize::from(plan.date_ms != 0)
}

fn sharing_weight(plan: &SharingPlan) -> usize {
    let named = usize::from(plan.tenants != TenantPlan::Nowhere);
    let parts = usize::from(plan.priorities) + usize::from(plan.max_wait.is_some());
    let options = usize::from(plan.by_lists) + usize::from(plan.slow_ms > 0);
    let options = options + usize::from(plan.one_tenant);
    10 * (1 + named + parts + options + plan.weights.len())
}

/// Makes the limits smaller.
fn limits_candidates(from: &Scenario, with: &mut impl FnMut(&dyn Fn(&mut Scenario))) {
    let Some(plan) = &from.fleet else { return };
    let mut change = |change: &dyn Fn(&mut FleetPlan)| {
        with(&|one| {
            if let Some(plan) = &mut one.fleet {
                change(plan);
            }
        });
    };
    change(&|plan| plan.faults = LimitFaults::default());
    change(&|plan| plan.faults.lost_request = 0);
    change(&|plan| plan.faults.lost_answer = 0);
    change(&|plan| plan.faults.hang = 0);
    change(&|plan| plan.faults.late_answer = 0);
    change(&|plan| plan.faults.refused = 0);
    change(&|plan| plan.most_waiting = MANY_WAITING);
    change(&|plan| plan.longest_wait_s = LONG_WAIT_S);
    change(&|plan| plan.date_ms = 0);
    for at in 0..plan.limits.len() {
        if plan.limits.len() > 1 {
            change(&|plan| {
                plan.limits.remove(at);
            });
        }
        if plan.limits[at].concurrency.is_some() && plan.limits[at].rate.is_some() {
            change(&|plan| plan.limits[at].concurrency = None);
            change(&|plan| plan.limits[at].rate = None);
        }
        change(&|plan| plan.limits[at].keys = None);
        change(&|plan| plan.limits[at].by_tenant = false);
        change(&|plan| plan.limits[at].weight = WeightPlan::Fixed(1));
    }
}

/// Lets less share the route.
fn sharing_candidates(with: &mut impl FnMut(&dyn Fn(&mut Scenario))) {
    let mut change = |change: &dyn Fn(&mut SharingPlan)| {
        with(&|one| {
            if let Some(plan) = &mut one.sharing {
                change(plan);
            }
        });
    };
    change(&|plan| plan.tenants = TenantPlan::Nowhere);
    change(&|plan| plan.weights.clear());
    change(&|plan| plan.priorities = false);
    change(&|plan| plan.max_wait = None);
    change(&|plan| plan.slow_ms = 0);
    change(&|plan| plan.by_lists = false);
    change(&|plan| plan.one_tenant = false);
}

fn candidates(from: &Scenario) -> Vec<Scenario> {
    let mut list = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scenario)| {
        let mut smaller = from.clone();
        change(&mut smaller);
        list.push(smaller);
    };
    let half = from.sends.len() / 2;
    with(&|one| one.sends.truncate(half));
    with(&|one| drop(one.sends.drain(..half)));
    for at in 0..from.happenings.len() {
        with(&|one| {
            one.happenings.remove(at);
        });
    }
    if from.processes > 1 {
        with(&|one| {
            one.processes = 1;
            one.happenings.retain(|happening| is_of(happening.what, 1));
        });
    }
    if from.processes > 2 {
        with(&|one| {
            one.processes = 2;
            one.happenings.retain(|happening| is_of(happening.what, 2));
        });
    }
    with(&|one| one.fleet = None);
    with(&|one| one.sharing = None);
    if from.sharing.is_some() {
        sharing_candidates(&mut with);
    }
    limits_candidates(from, &mut with);
    with(&|one| one.faults = Faults::default());
    with(&|one| {
        one.mix = Mix {
            longest_ms: one.mix.longest_ms,
            ..Mix::default()
        }
    });
    for at in 0..15 {
        with(&|one| *fault(&mut one.faults, at) = 0);
    }
    for at in 0..10 {
        with(&|one| *answer(&mut one.mix, at) = 0);
    }
    with(&|one| one.route.newest_first = false);
    with(&|one| one.route.prefetch = 0);
    with(&|one| one.route.max_age_ms = None);
    with(&|one| one.route.group_by = false);
    with(&|one| one.route.remembers_s = None);
    with(&|one| one.route.batch = 1);
    with(&|one| one.route.concurrency = 1);
    with(&|one| one.route.concurrency = 2);
    let last = from.queues.len() - 1;
    with(&|one| {
        one.queues.truncate(last);
        one.sends.retain(|sending| sending.queue < last);
    });
    for at in 0..from.sends.len() {
        with(&|one| {
            one.sends.remove(at);
        });
    }
    list
}

/// Whether something happens to one of the first `processes`, or to none.
fn is_of(what: HappeningKind, processes: usize) -> bool {
    use HappeningKind::{
        Closed, Crash, Date, Faults, Limit, Parted, Pause, Reload, Start, Stop, Suspend, Weight,
    };
    match what {
        Crash(one)
        | Stop(one, _)
        | Start(one)
        | Pause(one, _, _)
        | Limit(one, _)
        | Weight(one, _, _)
        | Reload(one)
        | Parted(one, _) => one < processes,
        Suspend(_) | Date(_) | Faults(_) | Closed(_) => true,
    }
}

fn fault(faults: &mut Faults, at: usize) -> &mut u32 {
    let all = [
        &mut faults.lost_request,
        &mut faults.lost_answer,
        &mut faults.hang,
        &mut faults.throttle,
        &mut faults.entry,
        &mut faults.refused_extension,
        &mut faults.late_answer,
        &mut faults.blind,
        &mut faults.duplicate,
        &mut faults.disorder,
        &mut faults.repeat,
        &mut faults.silent,
        &mut faults.slow_settle,
        &mut faults.store_fails,
        &mut faults.store_hangs,
    ];
    all.into_iter().nth(at).expect("there are fifteen")
}

fn answer(mix: &mut Mix, at: usize) -> &mut u32 {
    let all = [
        &mut mix.retry,
        &mut mix.retry_after,
        &mut mix.reject,
        &mut mix.busy,
        &mut mix.closed,
        &mut mix.panic,
        &mut mix.stall,
        &mut mix.slow,
        &mut mix.instant,
        &mut mix.stubborn,
    ];
    all.into_iter().nth(at).expect("there are ten")
}
