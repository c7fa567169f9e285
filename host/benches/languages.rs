//! What the same handler costs in each language: size, start, one attempt with a fresh instance, with
//! one that was prewarmed and with one used again, memory of an instance that lives. A plain program that prints; it judges
//! nothing. `cargo bench --bench languages -- FILE...`, each the absolute path of the component of a
//! project that `dispatcher plugin new` began; without any, the example in Rust.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(clippy::disallowed_methods, reason = "a benchmark paces itself")]

#[path = "support/one_attempt.rs"]
mod one_attempt;

use dispatcher_core::clock;
use dispatcher_wasm::Reuse;
use dispatcher_wasm::load::{LoadedPlugin, PluginOptions};
use dispatcher_wasm::runtime::{Runtime, RuntimeOptions, Spawn};
use dispatcher_wasm::warm::Warm;
use one_attempt::{attempt, run};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../plugins/prebuilt/order-check.wasm"
);
const BODY: &str = r#"{"id": "o-1", "amount": 250}"#;
const MAX_MEMORY: usize = 128 << 20;
/// How long each kind of attempt is repeated, and how often at most.
const SPAN: Duration = Duration::from_secs(4);
const MOST: usize = 200_000;
/// How often a prewarmed instance is measured, and the pause in which the next is made.
const WARM: usize = 300;
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes of a component of which few copies are loaded at once.
const LARGE: u64 = 1 << 20;

fn main() {
    let given = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'));
    let mut files: Vec<PathBuf> = given.map(PathBuf::from).collect();
    if files.is_empty() {
        files.push(EXAMPLE.into());
    }
    let timers = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a tokio runtime");
    let cache = tempfile::tempdir().expect("a temporary folder");
    let begin = || {
        let options = RuntimeOptions {
            instances: 100,
            max_memory: MAX_MEMORY,
            cache: Some(cache.path().join("compiled")),
            functions: None,
        };
        let makers = timers.handle().clone();
        let spawn: Spawn = Arc::new(move |work| drop(makers.spawn(work)));
        let runtime = Runtime::start(options, timers.handle().clone(), spawn);
        runtime.expect("an engine")
    };
    let runtime = begin();
    println!(
        "{:<16}{:>10}{:>11}{:>10}{:>10}{:>10}{:>8}{:>10}{:>10}{:>10}{:>10}{:>12}",
        "component",
        "KiB",
        "compile s",
        "load ms",
        "fresh µs",
        "p99",
        "faults",
        "warm µs",
        "p99",
        "reused µs",
        "p99",
        "KiB each"
    );
    for file in files {
        let row = measure(&runtime, &file);
        // A separate pool: one that was used keeps pages of what ran in it.
        let each = memory(&begin(), &file);
        println!("{row}{each:>12}");
    }
}

/// One line of the table, but for its last figure.
fn measure(runtime: &Runtime, file: &Path) -> String {
    let size = file.metadata().map_or(0, |data| data.len());
    let begun = clock::now();
    drop(load(runtime, file, Kind::Fresh));
    let compiled = clock::now().since(begun);
    let begun = clock::now();
    let fresh = load(runtime, file, Kind::Fresh);
    let loaded = clock::now().since(begun);
    let fresh = attempts(&fresh, MOST, Duration::ZERO);
    let warm = attempts(&load(runtime, file, Kind::Warm), WARM, PAUSE);
    let reused = attempts(&load(runtime, file, Kind::Reused), MOST, Duration::ZERO);
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    format!(
        "{name:<16}{:>10}{:>11.2}{:>10.2}{:>10.1}{:>10.1}{:>8}{:>10.1}{:>10.1}{:>10.1}{:>10.1}",
        size / 1024,
        compiled.as_secs_f64(),
        loaded.as_secs_f64() * 1e3,
        fresh.p50,
        fresh.p99,
        fresh.faults,
        warm.p50,
        warm.p99,
        reused.p50,
        reused.p99,
    )
}

/// Which instance an attempt has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fresh,
    Warm,
    Reused,
}

fn load(runtime: &Runtime, file: &Path, kind: Kind) -> LoadedPlugin {
    let reuse = Reuse {
        count: u64::MAX,
        age: Duration::MAX,
        memory: MAX_MEMORY,
    };
    let options = PluginOptions {
        name: "language".into(),
        max_memory: MAX_MEMORY,
        reuse: (kind == Kind::Reused).then_some(reuse),
        warm: Warm {
            count: Some(if kind == Kind::Warm { 2 } else { 0 }),
            of_heavy: 0,
            patience: Duration::from_secs(10),
        },
        ..PluginOptions::default()
    };
    match runtime.load(file, options) {
        Ok(plugin) => plugin,
        Err(error) => panic!("{error}"),
    }
}

/// Microseconds.
struct LanguageCost {
    p50: f64,
    p99: f64,
    /// Pages that an attempt touched first, or first wrote to.
    faults: u64,
}

/// At most so many, with a pause before each.
fn attempts(plugin: &LoadedPlugin, most: usize, pause: Duration) -> LanguageCost {
    let attempt = attempt(BODY.to_owned());
    for _ in 0..20 {
        run(plugin, &attempt);
    }
    let (start, mut samples) = (clock::now(), Vec::new());
    let mut before = start;
    let faults = page_faults();
    while before.since(start) < SPAN && samples.len() < most {
        if !pause.is_zero() {
            std::thread::sleep(pause);
            before = clock::now();
        }
        run(plugin, &attempt);
        let after = clock::now();
        samples.push(after.since(before));
        before = after;
    }
    let faults = (page_faults() - faults) / samples.len() as u64;
    samples.sort_unstable();
    let at = |share: usize| samples[samples.len() * share / 100].as_secs_f64() * 1e6;
    LanguageCost {
        p50: at(50),
        p99: at(99),
        faults,
    }
}

/// The page faults of this process that read nothing from a disk; 0 where Linux does not tell.
fn page_faults() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, in parentheses, may have spaces.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let field = fields.split_whitespace().nth(7);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// KiB of this process alone that one instance holds after an attempt: so many plugins of the
/// same component, each with one instance that waits to be used again.
fn memory(runtime: &Runtime, file: &Path) -> u64 {
    let size = file.metadata().map_or(0, |data| data.len());
    let count = if size > LARGE { 6 } else { 60 };
    let plugins: Vec<_> = (0..count)
        .map(|_| load(runtime, file, Kind::Reused))
        .collect();
    let attempt = attempt(BODY.to_owned());
    let before = anonymous();
    for plugin in &plugins {
        run(plugin, &attempt);
    }
    anonymous().saturating_sub(before) / count
}

/// KiB of memory that no file backs; 0 where Linux does not tell.
fn anonymous() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Anonymous:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
