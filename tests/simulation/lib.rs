//! The real stages in a simulated world: seeds by the thousand, each a small world with a time of
//! its own, queues that misbehave as real ones do, handlers that fail, processes that die.
//!
//! A library, so that both tiers of tests search seeds: this crate's own tests try the first
//! [`FAST`], `tests/seeds` those up to [`FULL`].

#[cfg(test)]
mod budget;
mod circumstances;
mod draw;
#[cfg(test)]
mod lessons;
mod process;
mod run;
mod scenario;
mod shrink;
mod world;

use scenario::Scenario;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many seeds the fast tier of tests tries.
pub const FAST: u64 = 2_000;
/// How many seeds both tiers try together.
pub const FULL: u64 = 20_000;
/// How many threads try them.
const THREADS: u64 = 2;
/// How many failures are collected before the search ends; `SIM_ENOUGH`.
const ENOUGH: u64 = 5;

/// Tries `count` seeds from `first` on; `SIM_FIRST` and `SIM_SEEDS` name others.
///
/// # Panics
/// When a seed breaks a rule, with the scenario as drawn and the smallest that fails as it does.
pub fn search(first: u64, count: u64) {
    let first = number("SIM_FIRST").unwrap_or(first);
    let count = number("SIM_SEEDS").unwrap_or(count);
    let threads = number("SIM_THREADS").unwrap_or(THREADS);
    let most = number("SIM_ENOUGH").unwrap_or(ENOUGH);
    let (next, enough) = (AtomicU64::new(first), AtomicBool::new(false));
    let failures: Mutex<Vec<(u64, String)>> = Mutex::default();
    let slowest: Mutex<Vec<(Duration, u64)>> = Mutex::default();
    let began = std::time::Instant::now();
    let seconds = number("SIM_SECONDS").unwrap_or(u64::MAX);
    let search = || {
        while !enough.load(Relaxed) && began.elapsed().as_secs() < seconds {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + count {
                break;
            }
            let started = std::time::Instant::now();
            let rule = broken(&draw::scenario(seed));
            note_slow(&slowest, started.elapsed(), seed);
            if let Some(rule) = rule {
                let mut failures = failures.lock().expect("nothing panics with it");
                failures.push((seed, rule));
                enough.store(failures.len() as u64 >= most, Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(search);
        }
    });
    let mut failures = failures.into_inner().expect("nothing panics with it");
    failures.sort();
    let tried = next.load(Relaxed).min(first + count) - first;
    let took = began.elapsed();
    let slowest = slowest.into_inner().expect("nothing panics with it");
    let _ = writeln!(
        std::io::stderr(),
        "{tried} seeds in {took:?}; the slowest: {slowest:?}"
    );
    if let Some((seed, rule)) = failures.first() {
        let list: Vec<String> = failures
            .iter()
            .map(|(seed, rule)| format!("{seed} ({rule})"))
            .collect();
        panic!(
            "after {tried} seeds: {}\n{}",
            list.join(", "),
            report(*seed, rule)
        );
    }
}

/// Keeps the three that took longest.
fn note_slow(slowest: &Mutex<Vec<(Duration, u64)>>, took: Duration, seed: u64) {
    let mut slowest = slowest.lock().expect("nothing panics with it");
    slowest.push((took, seed));
    slowest.sort_by(|one, other| other.cmp(one));
    slowest.truncate(3);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The first rule that a scenario breaks.
fn broken(scenario: &Scenario) -> Option<String> {
    match shrink::outcome(scenario) {
        Err(_) => Some("panic".into()),
        Ok(ended) => {
            if std::env::var("SIM_SHOW").is_ok() {
                let (events, took, calls) = (ended.trace.len(), ended.took, ended.calls);
                let words = format!(
                    "{events} events, {} wakes, {took:?}, {calls:?}",
                    ended.wakes
                );
                let _ = writeln!(std::io::stderr(), "{scenario}{words}");
            }
            ended.broken.first().map(|broken| broken.rule.to_owned())
        }
    }
}

/// A failure in words: the scenario as drawn and the smallest that fails as it does.
fn report(seed: u64, rule: &str) -> String {
    let drawn = draw::scenario(seed);
    let small = match std::env::var("SIM_WHOLE") {
        Ok(_) => drawn.clone(),
        Err(_) => shrink::shrink(&drawn, rule),
    };
    let mut text = format!(
        "\nseed {seed} breaks {rule}; run it alone with SIM_FIRST={seed} SIM_SEEDS=1\n\nas drawn:\n{drawn}\nshrunk:\n{small}\n"
    );
    if let Ok(ended) = shrink::outcome(&small) {
        for event in &ended.trace {
            let _ = writeln!(text, "{event}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_seed_breaks_a_rule() {
        search(0, FAST);
    }

    #[test]
    fn seed_determines_the_whole_run() {
        for seed in 0..50 {
            let scenario = draw::scenario(seed);
            let again = || shrink::outcome(&scenario).expect("no panic");
            let (one, other) = (again(), again());
            for (at, (one, other)) in one.trace.iter().zip(&other.trace).enumerate() {
                assert_eq!(one, other, "seed {seed} differs at event {at}");
            }
            assert_eq!(one, other, "seed {seed} differs");
        }
    }
}
