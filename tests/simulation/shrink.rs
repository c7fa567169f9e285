//! Makes a failing scenario smaller: drops what it can do without while the same rule breaks.

use crate::run::{EndedRun, run};
use crate::scenario::{Faults, Mix, Scenario};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

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
    let settings = route.batch + route.concurrency + 10 * options;
    (scenario.sends.len() * 10 + scenario.happenings.len() * 20 + some * 5) as u64
        + (scenario.processes * 30 + scenario.queues.len() * 30 + settings) as u64
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
            one.happenings.retain(|happening| of_first(happening.what));
        });
    }
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

fn of_first(what: crate::scenario::HappeningKind) -> bool {
    use crate::scenario::HappeningKind::{Crash, Limit, Pause, Start, Stop};
    !matches!(
        what,
        Crash(1..) | Stop(1.., _) | Start(1..) | Pause(1.., _, _) | Limit(1.., _)
    )
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
