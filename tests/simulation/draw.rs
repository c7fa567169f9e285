//! Draws a scenario from a seed. Small worlds, since many of them find more than few large ones.

use crate::scenario::{
    Faults, Flavour, FleetPlan, HappeningKind, LimitFaults, LimitPlan, Mix, QueuePlan, RoutePlan,
    Scenario, SharingPlan, SimulatedEvent, SimulatedSend, TenantPlan, WeightPlan,
};
use fastrand::Rng;

/// Every kind of queue.
const ALL: [Flavour; 4] = [
    Flavour::Standard,
    Flavour::Fifo,
    Flavour::Local,
    Flavour::Redis,
];
/// By so much the date jumps, in milliseconds.
const HOUR: i64 = 3_600_000;
/// Maximum messages of one scenario.
const MESSAGES: usize = 24;

/// The scenario of a seed.
pub(crate) fn scenario(seed: u64) -> Scenario {
    let mut rng = Rng::with_seed(seed ^ 0x005e_ed0f_d15b_a7c4);
    let rng = &mut rng;
    let (queues, route) = (queues(rng), route(rng));
    let processes = if chance(rng, 250) { 2 } else { 1 };
    let mut scenario = Scenario {
        seed,
        step_us: 0,
        weighted: queues.len() > 1 && chance(rng, 300),
        sends: sends(rng, &queues),
        happenings: happenings(rng, processes),
        faults: faults(rng),
        mix: mix(rng),
        queues,
        route,
        processes,
        fleet: None,
        sharing: None,
    };
    // Attempts are limited only where there is somewhere to put the dead, as the program demands.
    if !scenario.queues.iter().any(|queue| queue.dead_letters) {
        scenario.route.attempts = None;
    }
    // A queue that is asked many times a minute is not watched for hours.
    let set_back = |one: &SimulatedEvent| one.what == HappeningKind::Date(-HOUR);
    let hours = scenario.route.visibility_s >= Some(3_600);
    if hours || scenario.happenings.iter().any(set_back) {
        scenario.route.poll_for_s = 20;
    } else if scenario.route.poll_for_s == 0 {
        scenario.route.visibility_s = Some(30);
    }
    if chance(rng, 4) {
        stays_long(&mut scenario, rng);
    } else {
        // Of its own luck, so that all that was drawn before stays as it was.
        options(
            &mut scenario,
            &mut Rng::with_seed(seed ^ 0x00d1_5ea5_ed0f_a9e5),
        );
        let rng = &mut Rng::with_seed(seed ^ 0x0f1f_0bad_4ead_5eed);
        if chance(rng, 150) {
            heads_fail(&mut scenario, rng);
        }
        operators(
            &mut scenario,
            &mut Rng::with_seed(seed ^ 0x0be5_a70f_c0de_0017),
        );
        limits(
            &mut scenario,
            &mut Rng::with_seed(seed ^ 0x01f1_ee70_f11f_0042),
        );
        sharing(
            &mut scenario,
            &mut Rng::with_seed(seed ^ 0x07e4_a475_5ba7_e001),
        );
        functions_of_tenants(
            &mut scenario,
            &mut Rng::with_seed(seed ^ 0x07e4_a471_d5a1_0e00),
        );
        reloads(
            &mut scenario,
            &mut Rng::with_seed(seed ^ 0x04e1_0ad5_ca5c_ade0),
        );
    }
    scenario.step_us = step_us(&mut Rng::with_seed(seed ^ 0x0c10_c4c4_ee95_0001));
    scenario
}

/// In half of the scenarios, time passes within a step of a process.
fn step_us(rng: &mut Rng) -> u64 {
    if chance(rng, 500) {
        return 0;
    }
    pick(rng, &[1, 10, 50])
}

/// In one of six scenarios limits hold for all processes together, of which there are more then. The
/// network parts processes from the store of limits, and processes crash and stop with permits.
fn limits(scenario: &mut Scenario, rng: &mut Rng) {
    if !chance(rng, 167) {
        return;
    }
    let count = pick(rng, &[1, 1, 2]);
    let faulty = chance(rng, 600);
    let mut often = || {
        if faulty {
            pick(rng, &[0, 0, 20, 100, 300])
        } else {
            0
        }
    };
    let faults = LimitFaults {
        lost_request: often(),
        lost_answer: often(),
        hang: often(),
        late_answer: often(),
        refused: often(),
    };
    scenario.fleet = Some(FleetPlan {
        limits: (0..count).map(|_| one_limit(rng)).collect(),
        most_waiting: pick(rng, &[1, 3, 1_000, 1_000, 1_000]),
        longest_wait_s: pick(rng, &[10, 300, 300]),
        date_ms: rng.i64(-30_000..=30_000),
        faults,
    });
    scenario.processes = pick(rng, &[1, 2, 2, 3]).max(scenario.processes);
    scenario.route.concurrency = scenario.route.concurrency.max(pick(rng, &[1, 5, 20]));
    if chance(rng, 500) {
        // Attempts that outlast permits.
        scenario.mix.slow = pick(rng, &[100, 300, 700]);
    }
    for _ in 0..rng.usize(0..5) {
        let process = rng.usize(0..scenario.processes);
        let list = match rng.u32(0..100) {
            0..40 => vec![
                HappeningKind::Parted(process, true),
                HappeningKind::Parted(process, false),
            ],
            40..50 => vec![HappeningKind::Parted(process, true)],
            50..75 => vec![HappeningKind::Crash(process), HappeningKind::Start(process)],
            75..90 => vec![
                HappeningKind::Stop(process, pick(rng, &[0, 1_000, 10_000])),
                HappeningKind::Start(process),
            ],
            _ => vec![HappeningKind::Date(pick(rng, &[30_000, -30_000]))],
        };
        let mut at = rng.usize(0..=scenario.happenings.len());
        for what in list {
            scenario.happenings.insert(at, happening(rng, what));
            at = rng.usize(at + 1..=scenario.happenings.len());
        }
    }
}

fn one_limit(rng: &mut Rng) -> LimitPlan {
    let by_rate = chance(rng, 400);
    let rate = (pick(rng, &[1.0, 5.0, 50.0]), rng.u32(1..6));
    LimitPlan {
        concurrency: (!by_rate || chance(rng, 300)).then(|| pick(rng, &[1, 2, 3, 5, 10])),
        rate: by_rate.then_some(rate),
        keys: chance(rng, 500).then(|| rng.u16(1..4)),
        by_tenant: false,
        weight: if chance(rng, 250) {
            WeightPlan::OfMessage
        } else {
            WeightPlan::Fixed(pick(rng, &[1, 1, 2, 3]))
        },
    }
}

/// In one of eight scenarios tenants or priorities share the route.
fn sharing(scenario: &mut Scenario, rng: &mut Rng) {
    let is_fifo = |queue: &QueuePlan| queue.flavour == Flavour::Fifo;
    let is_ordered = scenario.queues.iter().any(is_fifo) || scenario.route.group_by;
    if is_ordered || !chance(rng, 220) {
        return;
    }
    let tenants = pick(
        rng,
        &[
            TenantPlan::Group,
            TenantPlan::Group,
            TenantPlan::Group,
            TenantPlan::Attribute,
            TenantPlan::Nowhere,
        ],
    );
    let priorities = tenants == TenantPlan::Nowhere || chance(rng, 400);
    let is_weighted = tenants != TenantPlan::Nowhere && chance(rng, 500);
    let waits = priorities && chance(rng, 400);
    scenario.sharing = Some(SharingPlan {
        tenants,
        weights: if is_weighted {
            vec![pick(rng, &[1, 2, 4]), pick(rng, &[1, 3, 10])]
        } else {
            Vec::new()
        },
        priorities,
        max_wait: waits.then(|| (rng.u8(1..6), pick(rng, &[100, 1_000, 10_000]))),
        slow_ms: pick(rng, &[0, 0, 20, 200]),
        by_lists: chance(rng, 800),
        one_tenant: false,
    });
    shared_sends(scenario, rng);
    scenario.route.prefetch = pick(rng, &[0, 5, 20, 100, 100]);
    let is_named = tenants != TenantPlan::Nowhere;
    if is_named && (scenario.fleet.is_some() || chance(rng, 200)) {
        limit_of_tenants(scenario, rng);
    }
    if chance(rng, 400) {
        backlog(scenario, rng);
    }
    for _ in 0..rng.usize(0..3) {
        let process = rng.usize(0..scenario.processes);
        let what = HappeningKind::Weight(process, rng.u16(0..3), pick(rng, &[1, 2, 5, 20]));
        let at = rng.usize(0..=scenario.happenings.len());
        scenario.happenings.insert(at, happening(rng, what));
    }
}

/// In one of three scenarios in which tenants share the route, functions are told the tenant. Some of
/// these have batches.
fn functions_of_tenants(scenario: &mut Scenario, rng: &mut Rng) {
    let Some(plan) = &mut scenario.sharing else {
        return;
    };
    if plan.tenants == TenantPlan::Nowhere || !chance(rng, 333) {
        return;
    }
    plan.one_tenant = true;
    // One without a tenant is dead-lettered.
    for send in &mut scenario.sends {
        match plan.tenants {
            TenantPlan::Group => _ = send.group.get_or_insert(0),
            TenantPlan::Attribute | TenantPlan::Nowhere => _ = send.tenant.get_or_insert(0),
        }
    }
    if scenario.fleet.is_some() {
        scenario.route.batch = 1;
        scenario.route.window_ms = 0;
    } else if chance(rng, 700) {
        scenario.route.batch = pick(rng, &[2, 3, 10]);
        scenario.route.window_ms = pick(rng, &[0, 0, 50, 1_000]);
    }
}

/// The messages of up to six tenants. Often one of them has most, and others come later.
fn shared_sends(scenario: &mut Scenario, rng: &mut Rng) {
    let queues = scenario.queues.len();
    let over_ms = pick(rng, &[1, 1, 1_000, 10_000]);
    let count = pick(rng, &[5, 10, 20, 40, 40]);
    let tenants = rng.u16(1..7);
    let big = pick(rng, &[0, 500, 900]);
    let has_groups = scenario.shares_groups();
    let mut sends: Vec<SimulatedSend> = (0..count)
        .map(|_| {
            let is_big = chance(rng, big);
            let tenant = if is_big { 0 } else { rng.u16(0..tenants) };
            let tenant = chance(rng, 950).then_some(tenant);
            let grouped = chance(rng, 50).then(|| rng.u16(0..3));
            SimulatedSend {
                at_ms: if is_big { 0 } else { rng.u64(0..over_ms) },
                queue: rng.usize(0..queues),
                group: if has_groups { tenant } else { grouped },
                tenant: tenant.filter(|_| !has_groups),
                priority: chance(rng, 700).then(|| rng.u8(1..6)),
            }
        })
        .collect();
    sends.sort_by_key(|sending| sending.at_ms);
    scenario.sends = sends;
}

/// Much is at hand for some time, so that turns show.
fn backlog(scenario: &mut Scenario, rng: &mut Rng) {
    scenario.queues.truncate(1);
    let queue = &mut scenario.queues[0];
    (queue.rate, queue.concurrency) = (None, None);
    for sending in &mut scenario.sends {
        sending.queue = 0;
    }
    for one in &mut scenario.happenings {
        if let HappeningKind::Pause(_, queue, _) = &mut one.what {
            *queue = 0;
        }
    }
    let route = &mut scenario.route;
    route.visibility_s = Some(60);
    route.prefetch = 100;
    route.batch = pick(rng, &[1, 1, 2, 5]);
    route.concurrency = pick(rng, &[1, 2, 5]);
    scenario.mix = Mix {
        busy: scenario.mix.busy,
        instant: 0,
        longest_ms: pick(rng, &[1, 50, 300]),
        ..Mix::default()
    };
}

/// A limit by tenant, of which many messages wait, so that tenants are parked.
fn limit_of_tenants(scenario: &mut Scenario, rng: &mut Rng) {
    let mut limit = one_limit(rng);
    limit.by_tenant = true;
    limit.concurrency = Some(pick(rng, &[1, 1, 2, 5]));
    match &mut scenario.fleet {
        Some(fleet) => fleet.limits[0] = limit,
        None => {
            scenario.fleet = Some(FleetPlan {
                limits: vec![limit],
                most_waiting: 1_000,
                longest_wait_s: 300,
                date_ms: 0,
                faults: LimitFaults::default(),
            });
        }
    }
    if chance(rng, 500) {
        let template = scenario.sends[0];
        scenario.sends.extend(vec![template; 40]);
        scenario.sends.sort_by_key(|sending| sending.at_ms);
        scenario.route.prefetch = 100;
        scenario.route.concurrency = scenario.route.concurrency.max(5);
    }
}

/// In one of five scenarios operators pause and resume queues and change limits.
fn operators(scenario: &mut Scenario, rng: &mut Rng) {
    if !chance(rng, 200) {
        return;
    }
    for _ in 0..rng.usize(1..5) {
        let process = rng.usize(0..scenario.processes);
        let queue = rng.usize(0..scenario.queues.len());
        let what = match rng.u32(0..100) {
            0..50 => HappeningKind::Pause(process, queue, true),
            50..75 => HappeningKind::Pause(process, queue, false),
            _ => HappeningKind::Limit(process, pick(rng, &[1, 1, 2, 5, 100])),
        };
        let at = rng.usize(0..=scenario.happenings.len());
        scenario.happenings.insert(at, happening(rng, what));
    }
}

/// In one of eight scenarios processes replace their route by new versions.
fn reloads(scenario: &mut Scenario, rng: &mut Rng) {
    if scenario.sharing.is_some() || scenario.fleet.is_some() || !chance(rng, 125) {
        return;
    }
    for _ in 0..rng.usize(1..4) {
        let what = HappeningKind::Reload(rng.usize(0..scenario.processes));
        let at = rng.usize(0..=scenario.happenings.len());
        scenario.happenings.insert(at, happening(rng, what));
    }
}

/// Groups in order whose first messages fail, under redrive policies of one to five receives.
fn heads_fail(scenario: &mut Scenario, rng: &mut Rng) {
    let ordered = scenario
        .queues
        .iter()
        .any(|one| one.flavour.orders_groups());
    if !ordered && !scenario.route.group_by {
        return;
    }
    let dead_letters = chance(rng, 500);
    for queue in &mut scenario.queues {
        queue.redrive = chance(rng, 800).then(|| rng.u32(1..6));
        queue.dead_letters = dead_letters;
    }
    if !dead_letters {
        scenario.route.attempts = None;
        scenario.route.drops = true;
    }
    let groups = rng.u16(1..4);
    let (at_ms, queue) = (scenario.sends[0].at_ms, scenario.sends[0].queue);
    let count = pick(rng, &[2, 5, 10, 20, 50]);
    scenario.sends = (0..count)
        .map(|_| SimulatedSend {
            at_ms,
            queue,
            group: Some(rng.u16(0..groups)),
            tenant: None,
            priority: None,
        })
        .collect();
    scenario.mix.stubborn = pick(rng, &[50, 200, 500]);
    scenario.mix.stall = scenario.mix.stall.min(50);
    if chance(rng, 300) {
        scenario.mix.retry_after = 300;
    }
}

/// Handlers that stay longer than any queue allows: few messages, since hours pass.
fn stays_long(scenario: &mut Scenario, rng: &mut Rng) {
    scenario.sends.truncate(2);
    scenario.queues.truncate(1);
    for sending in &mut scenario.sends {
        let grouped = scenario.queues[0].flavour == Flavour::Fifo;
        (sending.queue, sending.group) = (0, grouped.then_some(0));
    }
    scenario.route.visibility_s = Some(pick(rng, &[600, 3_600, 20_000, 43_200]));
    scenario.route.timeout_ms = 50_000_000;
    scenario.route.poll_for_s = 20;
    scenario.mix = Mix {
        stall: 500,
        longest_ms: scenario.mix.longest_ms,
        ..Mix::default()
    };
}

/// What a route may be told of order, age and memory.
fn options(scenario: &mut Scenario, rng: &mut Rng) {
    let ordered = |queue: &QueuePlan| queue.flavour == Flavour::Fifo;
    let free = !scenario.queues.iter().any(ordered);
    let route = &mut scenario.route;
    match rng.u32(0..1_000) {
        0..150 if free => {
            route.newest_first = true;
            route.prefetch = pick(rng, &[5, 20, 100]);
        }
        150..350 if free => {
            route.group_by = true;
            let groups = rng.u16(1..5);
            for sending in &mut scenario.sends {
                sending.group = chance(rng, 850).then(|| rng.u16(0..groups));
            }
        }
        350..450 => route.prefetch = pick(rng, &[5, 20, 100]),
        _ => {}
    }
    if chance(rng, 100) {
        scenario.faults.slow_settle = pick(rng, &[50, 300, 1_000]);
    }
    if chance(rng, 200) {
        let dead_letter_queues = scenario.queues.iter().all(|queue| queue.dead_letters);
        route.max_age_ms = Some(pick(rng, &[1_000, 2_000, 5_000, 20_000, 60_000, 600_000]));
        route.drops = !dead_letter_queues || chance(rng, 400);
    }
    if chance(rng, 200) {
        route.remembers_s = Some(pick(rng, &[1, 60, 3_600, 86_400]));
        let often = [0, 0, 20, 200];
        scenario.faults.store_fails = pick(rng, &often);
        scenario.faults.store_hangs = pick(rng, &often);
    }
}

fn chance(rng: &mut Rng, in_a_thousand: u32) -> bool {
    rng.u32(0..1_000) < in_a_thousand
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(0..from.len())]
}

fn queues(rng: &mut Rng) -> Vec<QueuePlan> {
    let count = pick(rng, &[1, 1, 1, 2, 2, 3]);
    let common = pick(
        rng,
        &[
            Flavour::Standard,
            Flavour::Standard,
            Flavour::Fifo,
            Flavour::Fifo,
            Flavour::Local,
            Flavour::Redis,
        ],
    );
    let mixed = chance(rng, 200);
    let dead_letters = chance(rng, 600);
    let one = |_| QueuePlan {
        flavour: if mixed { pick(rng, &ALL) } else { common },
        weight: rng.u32(1..6),
        rate: chance(rng, 80).then(|| pick(rng, &[0.5, 2.0, 20.0])),
        concurrency: chance(rng, 80).then(|| rng.usize(1..4)),
        dead_letters: dead_letters || chance(rng, 100),
        redrive: chance(rng, 150).then(|| rng.u32(3..8)),
        visibility_s: pick(rng, &[0, 1, 2, 5, 10, 30, 30, 60, 300]),
        in_flight: if chance(rng, 80) {
            rng.usize(1..8)
        } else {
            120_000
        },
    };
    (0..count).map(one).collect()
}

fn route(rng: &mut Rng) -> RoutePlan {
    let first_ms = pick(rng, &[0, 100, 1_000, 5_000]);
    RoutePlan {
        batch: pick(rng, &[1, 1, 1, 2, 5, 10]),
        window_ms: if chance(rng, 150) {
            pick(rng, &[50, 1_000, 5_000])
        } else {
            0
        },
        concurrency: pick(rng, &[1, 1, 2, 3, 5, 10, 50]),
        visibility_s: match rng.u32(0..100) {
            0..50 => None,
            50..99 => Some(pick(rng, &[0, 1, 2, 3, 4, 8, 15, 30, 120])),
            _ => Some(43_200),
        },
        poll_for_s: pick(rng, &[0, 1, 2, 5, 10, 20, 20, 20]),
        sleep_ms: pick(rng, &[0, 0, 0, 1_000]),
        first_ms,
        most_ms: first_ms.max(pick(rng, &[1_000, 10_000, 60_000])),
        attempts: chance(rng, 500).then(|| rng.u32(1..6)),
        timeout_ms: pick(rng, &[500, 5_000, 30_000, 100_000]),
        newest_first: false,
        prefetch: 0,
        max_age_ms: None,
        drops: false,
        group_by: false,
        remembers_s: None,
    }
}

fn sends(rng: &mut Rng, queues: &[QueuePlan]) -> Vec<SimulatedSend> {
    let count = 1 + rng.usize(0..MESSAGES).min(rng.usize(0..MESSAGES + 8));
    let over_ms = pick(rng, &[1, 100, 5_000, 60_000]);
    let groups = rng.u16(1..5);
    let mut sends: Vec<SimulatedSend> = (0..count)
        .map(|_| {
            let queue = rng.usize(0..queues.len());
            let grouped = queues[queue].flavour == Flavour::Fifo || chance(rng, 50);
            SimulatedSend {
                at_ms: rng.u64(0..over_ms),
                queue,
                group: grouped.then(|| rng.u16(0..groups)),
                tenant: None,
                priority: None,
            }
        })
        .collect();
    sends.sort_by_key(|sending| sending.at_ms);
    sends
}

fn happenings(rng: &mut Rng, processes: usize) -> Vec<SimulatedEvent> {
    if chance(rng, 200) {
        return Vec::new();
    }
    let mut list = Vec::new();
    let troubled = chance(rng, 700);
    if troubled {
        list.push(happening(rng, HappeningKind::Faults(true)));
    }
    for _ in 0..rng.usize(0..5) {
        let process = rng.usize(0..processes);
        let what = match rng.u32(0..100) {
            0..30 => HappeningKind::Crash(process),
            30..65 => HappeningKind::Stop(process, pick(rng, &[0, 100, 1_000, 10_000, 60_000])),
            65..73 => HappeningKind::Suspend(pick(rng, &[500, 3_000, 20_000, 100_000])),
            73..77 => HappeningKind::Date(pick(rng, &[HOUR, -HOUR])),
            77..85 => HappeningKind::Closed(true),
            85..92 => HappeningKind::Closed(false),
            _ => HappeningKind::Faults(!troubled),
        };
        list.push(happening(rng, what));
        if matches!(what, HappeningKind::Crash(_) | HappeningKind::Stop(..)) && chance(rng, 800) {
            list.push(happening(rng, HappeningKind::Start(process)));
        }
    }
    list
}

fn happening(rng: &mut Rng, what: HappeningKind) -> SimulatedEvent {
    let counted = chance(rng, 600);
    SimulatedEvent {
        after_ms: if counted {
            0
        } else {
            pick(rng, &[0, 10, 1_000, 10_000, 40_000])
        },
        after_events: if counted { rng.u64(1..60) } else { 0 },
        what,
    }
}

fn faults(rng: &mut Rng) -> Faults {
    let few = chance(rng, 600);
    let mut often = || {
        if few && rng.u32(0..4) > 0 {
            0
        } else {
            pick(rng, &[0, 5, 20, 100, 300])
        }
    };
    Faults {
        lost_request: often(),
        lost_answer: often(),
        hang: often(),
        throttle: often(),
        entry: often(),
        refused_extension: often() / 4,
        late_answer: often(),
        blind: often(),
        duplicate: often() / 2,
        disorder: often(),
        repeat: often() / 2,
        silent: pick(rng, &[0, 500, 1_000]),
        slow_settle: 0,
        store_fails: 0,
        store_hangs: 0,
    }
}

fn mix(rng: &mut Rng) -> Mix {
    let smooth = chance(rng, 300);
    let mut often = || {
        if smooth || rng.u32(0..3) > 0 {
            0
        } else {
            pick(rng, &[10, 50, 150, 300])
        }
    };
    Mix {
        retry: often(),
        retry_after: often(),
        reject: often(),
        busy: often(),
        closed: often() / 4,
        panic: often() / 2,
        stall: often() / 3,
        slow: often(),
        instant: pick(rng, &[0, 200, 1_000]),
        stubborn: 0,
        longest_ms: pick(rng, &[1, 50, 1_000, 10_000]),
    }
}
