//! What one attempt costs: a fresh instance, a reused one, and the same handling in native Rust; what
//! of it is the engine's, which makes and ends an instance without calling it; and what that costs by
//! how many memories and tables the kernel takes back in one call.
//! A plain program that prints; it judges nothing. `cargo bench --bench attempt`.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

#[path = "support/one_attempt.rs"]
mod one_attempt;

use dispatcher_core::clock;
use dispatcher_core::handler::{Attempt, Handler};
use dispatcher_core::message::Verdict;
use dispatcher_wasm::Reuse;
use dispatcher_wasm::load::{LoadedPlugin, PluginOptions};
use dispatcher_wasm::runtime::{Runtime, RuntimeOptions};
use one_attempt::{attempt, finish, run};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig, Store};

const BODY: usize = 256;
const WARM_UP: usize = 5_000;
const MAX_MEMORY: usize = 64 << 20;
const INSTANCES: u32 = 64;
/// Memories and tables that the kernel takes back in one call: what the program has, and others.
const DECOMMITS: usize = 16;
const OTHER_DECOMMITS: [usize; 4] = [1, 8, 64, 256];
/// Attempts of each thread where all cores have one.
const EACH: usize = 50_000;
/// Built with the SDK, and the same by hand without any WASI import.
const COMPONENTS: [&str; 2] = ["bench-noop", "bench-bare"];

fn main() {
    let timers = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a tokio runtime");
    let options = RuntimeOptions {
        instances: INSTANCES as usize,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let runtime = Runtime::start(options, timers.handle().clone(), std::sync::Arc::new(drop))
        .expect("an engine");
    let reuse = Reuse {
        count: u64::MAX,
        age: Duration::MAX,
        memory: MAX_MEMORY,
    };

    println!(
        "{:<44}{:>10}{:>10}{:>14}{:>10}",
        "instance", "p50", "p99", "per second", "native ="
    );
    let native = attempts(&Native, 1_000_000);
    let mut rows = vec![("native".to_owned(), native)];
    for name in COMPONENTS {
        let mut row = |what: &str, cost| rows.push((format!("{name}, {what}"), cost));
        row("fresh", attempts(&load(&runtime, name, None), 100_000));
        row(
            "reused",
            attempts(&load(&runtime, name, Some(reuse)), 500_000),
        );
        row("engine alone", instances(name, true, DECOMMITS));
        row("the same without async", instances(name, false, DECOMMITS));
        for batch in OTHER_DECOMMITS {
            let what = format!("engine alone, decommits of {batch}");
            row(&what, instances(name, true, batch));
        }
    }
    let native = rows[0].1.per_second;
    for (name, cost) in rows {
        println!(
            "{name:<44}{:>7.2} µs{:>7.2} µs{:>14.0}{:>9.1}x",
            cost.p50.as_secs_f64() * 1e6,
            cost.p99.as_secs_f64() * 1e6,
            cost.per_second,
            native / cost.per_second,
        );
    }
    for (name, reuse) in [("fresh", None), ("reused", Some(reuse))] {
        let plugin = load(&runtime, COMPONENTS[0], reuse);
        threads(name, || {
            let attempt = attempt("x".repeat(BODY));
            let plugin = &plugin;
            move || run(plugin, &attempt)
        });
    }
    for batch in [DECOMMITS].into_iter().chain(OTHER_DECOMMITS) {
        let engine = Bare::new(COMPONENTS[0], true, batch);
        let name = format!("engine alone, decommits of {batch},");
        threads(&name, || || engine.instance());
    }
}

fn file(component: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/prebuilt");
    folder.join(component).with_extension("wasm")
}

fn load(runtime: &Runtime, component: &str, reuse: Option<Reuse>) -> LoadedPlugin {
    let options = PluginOptions {
        name: component.into(),
        max_memory: MAX_MEMORY,
        reuse,
        ..PluginOptions::default()
    };
    match runtime.load(&file(component), options) {
        Ok(plugin) => plugin,
        Err(error) => panic!("{error}"),
    }
}

struct AttemptCost {
    p50: Duration,
    p99: Duration,
    per_second: f64,
}

fn attempts(handler: &dyn Handler, count: usize) -> AttemptCost {
    let attempt = attempt("x".repeat(BODY));
    measure(count, || run(handler, &attempt))
}

/// What it costs to make an instance and to end it.
fn instances(component: &str, concurrency: bool, batch: usize) -> AttemptCost {
    let engine = Bare::new(component, concurrency, batch);
    measure(100_000, || engine.instance())
}

/// The engine with the program's settings, and nothing of the program.
struct Bare {
    engine: Engine,
    pre: InstancePre<()>,
}

impl Bare {
    fn new(component: &str, concurrency: bool, batch: usize) -> Self {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(INSTANCES)
            .total_core_instances(INSTANCES * 8)
            .total_memories(INSTANCES * 4)
            .total_tables(INSTANCES * 10)
            .total_stacks(INSTANCES)
            .max_memory_size(MAX_MEMORY)
            .decommit_batch_size(batch)
            .table_keep_resident(64 << 10)
            .pagemap_scan(Enabled::No);
        let mut config = Config::new();
        config
            .epoch_interruption(true)
            .concurrency_support(concurrency)
            .memory_init_cow(false)
            .allocation_strategy(pool);
        let engine = Engine::new(&config).expect("an engine");
        let component = Component::from_file(&engine, file(component)).expect("a component");
        let mut linker = Linker::new(&engine);
        linker
            .define_unknown_imports_as_traps(&component)
            .expect("imports");
        let pre = linker.instantiate_pre(&component).expect("imports");
        Self { engine, pre }
    }

    /// Makes one and ends it.
    fn instance(&self) {
        let mut store = Store::new(&self.engine, ());
        store.set_epoch_deadline(1);
        finish(pin!(self.pre.instantiate_async(&mut store))).expect("an instance");
    }
}

fn measure(count: usize, mut step: impl FnMut()) -> AttemptCost {
    for _ in 0..WARM_UP {
        step();
    }
    let mut samples = Vec::with_capacity(count);
    let start = clock::now();
    let mut before = start;
    for _ in 0..count {
        step();
        let after = clock::now();
        samples.push(after.since(before));
        before = after;
    }
    let total = before.since(start);
    samples.sort_unstable();
    AttemptCost {
        p50: samples[count / 2],
        p99: samples[count * 99 / 100],
        per_second: count as f64 / total.as_secs_f64(),
    }
}

/// How well it spreads over all cores.
fn threads<Step: FnMut()>(name: &str, begin: impl Fn() -> Step + Sync) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let start = clock::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut step = begin();
                for _ in 0..EACH {
                    step();
                }
            });
        }
    });
    let total = clock::now().since(start).as_secs_f64();
    println!(
        "{name} on {cores} threads: {:.0} per second",
        (EACH * cores) as f64 / total
    );
}

/// What the guest does, without the guest.
struct Native;

#[async_trait::async_trait]
impl Handler for Native {
    fn batch(&self) -> usize {
        1
    }

    async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict> {
        let message = attempt.messages[0].clone();
        black_box(message.body.len());
        vec![Verdict::Done]
    }
}
