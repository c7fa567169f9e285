//! What an attempt costs that awaits an invocation beside thousands of others: resident memory
//! while it waits, and time to begin and to end it, for some numbers of attempts in one instance.
//! Memory that one row released helps the next, so a row is best believed alone:
//! `cargo bench --bench waiting -- 1000`, and `-- 1000 of 100000` for ten times as many attempts.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::executor::pool::Pool;
use dispatcher_core::handler::{Attempt, Deadline, Handler};
use dispatcher_core::lambda::{Invoke, InvokeError, Request, Response};
use dispatcher_core::message::{Message, Receipt, Verdict, samples};
use dispatcher_wasm::capability::lambda::Functions;
use dispatcher_wasm::capability::registry::Grants;
use dispatcher_wasm::load::{LoadedPlugin, PluginOptions};
use dispatcher_wasm::runtime::{Runtime, RuntimeOptions};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Unless another number is asked for.
const ATTEMPTS: usize = 10_000;
/// As in classic mode. It also limits the pending invocations of an instance: with 64 MiB to 4,094.
const MAX_MEMORY: usize = 256 << 20;
/// If no attempt gets further for so long, the benchmark ends with an error.
const PATIENCE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(3600);

/// Answers when it is told to.
struct HeldHandler {
    called: Sender<()>,
    answer: CancellationToken,
}

#[async_trait::async_trait]
impl Invoke for HeldHandler {
    async fn invoke(&self, _: Request) -> Result<Response, InvokeError> {
        let _ = self.called.send(());
        self.answer.cancelled().await;
        Ok(Response::default())
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let of = words.iter().position(|word| word == "of");
    let (rows, count) = words.split_at(of.unwrap_or(words.len()));
    let numbers = |words: &[String]| -> Vec<usize> {
        words.iter().filter_map(|word| word.parse().ok()).collect()
    };
    let attempts = numbers(count).first().copied().unwrap_or(ATTEMPTS);
    println!("{attempts} attempts, each awaiting an invocation");
    println!("in one instance  instances  KiB each  begin µs  end µs");
    let all = match numbers(rows) {
        none if none.is_empty() => vec![100, 1_000, 2_500, attempts],
        some => some,
    };
    for concurrency in all {
        measure(attempts, concurrency);
    }
}

fn measure(attempts: usize, concurrency: usize) {
    let timers = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime for timers");
    let pool = Pool::start(NonZeroUsize::MIN, "guest").expect("a guest thread");
    let spawner = pool.spawner();
    let instances = attempts.div_ceil(concurrency);
    let options = RuntimeOptions {
        instances,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let spawn = Arc::new(move |future| drop(spawner.spawn(future)));
    let runtime = Runtime::start(options, timers.handle().clone(), spawn).expect("an engine");
    let (called, calls) = channel();
    let answer = CancellationToken::new();
    let held = HeldHandler {
        called,
        answer: answer.clone(),
    };
    let plugin = load(&runtime, concurrency, instances, held);
    // One attempt beforehand, for what is made once; it is kept waiting with the others.
    let (done, ends) = channel();
    begin(&pool, &plugin, &done, 0);
    wait(&calls, 1);
    let before = resident();
    let started = Instant::now();
    for number in 1..attempts {
        begin(&pool, &plugin, &done, number);
    }
    wait(&calls, attempts - 1);
    let begun = started.elapsed();
    let each = (resident() - before) / attempts as f64;
    let started = Instant::now();
    answer.cancel();
    wait(&ends, attempts);
    let ended = started.elapsed();
    let per = |time: Duration| time.as_secs_f64() * 1e6 / attempts as f64;
    println!(
        "{concurrency:>15}  {:>9}  {each:>8.1}  {:>8.1}  {:>6.1}",
        runtime.instances(),
        per(begun),
        per(ended)
    );
}

fn load(
    runtime: &Runtime,
    concurrency: usize,
    instances: usize,
    held: HeldHandler,
) -> LoadedPlugin {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../plugins/prebuilt/commands.wasm"
    );
    let options = PluginOptions {
        name: "commands".into(),
        max_memory: MAX_MEMORY,
        instance_concurrency: concurrency,
        shared_instances: instances,
        grants: Grants {
            lambda: Some(Functions {
                invoker: Arc::new(held),
                allowed: vec!["*".into()],
                patience: LONG,
                longest: None,
                failed: Arc::new(|| ()),
                tenant: None,
            }),
            ..Grants::default()
        },
        ..PluginOptions::default()
    };
    match runtime.load(Path::new(file), options) {
        Ok(plugin) => plugin,
        Err(error) => panic!("{error}"),
    }
}

fn begin(pool: &Pool, plugin: &LoadedPlugin, done: &Sender<()>, number: usize) {
    let (plugin, done) = (plugin.clone(), done.clone());
    let attempt = Arc::new(Attempt {
        messages: vec![message(number)],
        cancelled: vec![CancellationToken::new()],
        tries: Vec::new(),
        deadline: Deadline::fixed(clock::now() + LONG, Timestamp(0)),
    });
    let work = async move {
        let verdicts = plugin.handle(attempt).await;
        if verdicts != [Verdict::Done] {
            // A panic would end this task alone, and the others would be waited for.
            println!("attempt {number} ended: {verdicts:?}");
            std::process::exit(1);
        }
        let _ = done.send(());
    };
    assert!(pool.spawner().spawn(work).is_ok(), "the pool is open");
}

fn message(number: usize) -> Message {
    Message {
        queue: "local:default".into(),
        body: "await it".into(),
        source: "local:default".into(),
        receipt: Receipt(format!("receipt-{number:08}")),
        ..samples::message(&format!("message-{number:08}"))
    }
}

fn wait(signals: &Receiver<()>, times: usize) {
    for have in 0..times {
        if signals.recv_timeout(PATIENCE).is_err() {
            println!("{have} of {times} attempts got there, and no other in {PATIENCE:?}");
            std::process::exit(1);
        }
    }
}

/// Resident memory of this process in KiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|text| text.parse().ok())
        .unwrap_or(f64::NAN)
}
