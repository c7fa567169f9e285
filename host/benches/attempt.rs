//! What one attempt costs: a fresh instance, a reused one, and the same handling in native Rust.
//! A plain program that prints; it judges nothing. `cargo bench --bench attempt`.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::handler::{Attempt, Deadline, Handler};
use dispatcher_core::message::{Message, Receipt, Verdict};
use dispatcher_wasm::Reuse;
use dispatcher_wasm::load::{LoadedPlugin, PluginOptions};
use dispatcher_wasm::runtime::{Runtime, RuntimeOptions};
use std::hint::black_box;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const BODY: usize = 256;
const WARM_UP: usize = 5_000;
const MAX_MEMORY: usize = 64 << 20;

fn main() {
    let timers = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a tokio runtime");
    let options = RuntimeOptions {
        instances: 64,
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
        "{:<10}{:>10}{:>10}{:>14}{:>10}",
        "instance", "p50", "p99", "per second", "native ="
    );
    let native = measure(&Native, 1_000_000);
    let reused = measure(&load(&runtime, Some(reuse)), 500_000);
    let fresh = measure(&load(&runtime, None), 100_000);
    for (name, cost) in [("fresh", &fresh), ("reused", &reused), ("native", &native)] {
        println!(
            "{name:<10}{:>7.2} µs{:>7.2} µs{:>14.0}{:>9.1}x",
            cost.p50.as_secs_f64() * 1e6,
            cost.p99.as_secs_f64() * 1e6,
            cost.per_second,
            native.per_second / cost.per_second,
        );
    }
    threads(&load(&runtime, None), "fresh");
    threads(&load(&runtime, Some(reuse)), "reused");
}

fn load(runtime: &Runtime, reuse: Option<Reuse>) -> LoadedPlugin {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../plugins/prebuilt/bench-noop.wasm"
    );
    let options = PluginOptions {
        name: "bench-noop".into(),
        max_memory: MAX_MEMORY,
        reuse,
        ..PluginOptions::default()
    };
    match runtime.load(Path::new(file), options) {
        Ok(plugin) => plugin,
        Err(error) => panic!("{error}"),
    }
}

struct AttemptCost {
    p50: Duration,
    p99: Duration,
    per_second: f64,
}

fn measure(handler: &dyn Handler, count: usize) -> AttemptCost {
    let attempt = attempt();
    for _ in 0..WARM_UP {
        run(handler, &attempt);
    }
    let mut samples = Vec::with_capacity(count);
    let start = clock::now();
    let mut before = start;
    for _ in 0..count {
        run(handler, &attempt);
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
fn threads(plugin: &LoadedPlugin, name: &str) {
    const EACH: usize = 50_000;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let start = clock::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let attempt = attempt();
                for _ in 0..EACH {
                    run(plugin, &attempt);
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

/// Polls until it is ready, as a worker with nothing else to do would.
fn run(handler: &dyn Handler, attempt: &Arc<Attempt>) {
    let mut work = pin!(handler.handle(Arc::clone(attempt)));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(verdicts) = work.as_mut().poll(&mut context) {
            assert_eq!(verdicts, [Verdict::Done]);
            return;
        }
    }
}

fn attempt() -> Arc<Attempt> {
    let message = Message {
        id: "0199b0c4-7c1e-7a31-9d1f-3f1f5a1c2b3d".into(),
        queue: "local:default".into(),
        body: "x".repeat(BODY),
        source: "local:default".into(),
        receipt: Receipt("0199b0c4-7c1e-7a31-9d1f-3f1f5a1c2b3d/1".into()),
        receive_count: 1,
        sent_at: Some(Timestamp(1)),
        first_received_at: Some(Timestamp(2)),
        group: None,
        system_attributes: Vec::new(),
        attributes: Vec::new(),
        body_md5: None,
        attributes_md5: None,
        unreadable: None,
    };
    Arc::new(Attempt {
        messages: vec![message],
        cancelled: vec![CancellationToken::new()],
        tries: Vec::new(),
        deadline: Deadline::fixed(
            clock::now() + Duration::from_secs(3600),
            clock::wall_clock_now(),
        ),
    })
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
