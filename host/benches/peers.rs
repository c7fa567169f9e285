//! The program beside what people use instead, in one run and on one server each: on SQS a raw HTTP
//! client as the floor, a bare loop on the SDK and npm sqs-consumer; on Redis npm BullMQ, Sidekiq and the
//! commands of npm worqr. `cargo bench --bench peers -- [sqs] [redis] [quick]`. Prints Markdown; `quick`
//! shows only that everything runs. Judges nothing.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what it is for"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

#[path = "support/bare.rs"]
mod bare;
#[path = "support/brokers.rs"]
mod brokers;
#[allow(dead_code, unreachable_pub, reason = "the server here is a plain one")]
#[path = "../../tests/support/certificates.rs"]
mod certificates;
#[path = "support/commandstats.rs"]
mod commandstats;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/debian.rs"]
mod debian;
#[path = "support/jobs.rs"]
mod jobs;
#[allow(dead_code, reason = "another benchmark uses the rest of it")]
#[path = "support/lean.rs"]
mod lean;
#[path = "support/machine.rs"]
mod machine;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/redis.rs"]
mod redis_server;
#[path = "support/rows.rs"]
mod rows;
#[allow(
    dead_code,
    unused_imports,
    reason = "another benchmark uses the rest of it"
)]
#[path = "support/server/mod.rs"]
mod server;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/servers.rs"]
mod servers;
#[path = "support/sidekiq.rs"]
mod sidekiq;
mod support;
#[allow(unreachable_pub, reason = "tests use it as well")]
#[path = "../../tests/support/tied.rs"]
mod tied;

use bare::BareLoop;
use brokers::{Broker, RedisBroker, SqsBroker};
use dispatcher_core::clock;
use jobs::JobKind;
use lean::Lean;
use rows::{DrainFigures, PeerRow, PeerTable};
use serde_json::Value;
use sidekiq::Sidekiq;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};
use support::figures::Samples;
use support::peers::{ORDER, Peers};
use support::program::{AWS, Program, dispatcher, plugin, print_size};

/// How long a server may take to answer first.
const PATIENCE: Duration = Duration::from_secs(60);
/// A long poll as it should be, and a short one for the stop, which waits for it.
const LONG_S: u32 = 20;
const SHORT_S: u32 = 1;
/// A message that every handler prints.
const WAKE: &str = "{\"id\": \"wake\", \"amount\": 250}";

const REUSED: [&str; 2] = ["--reuse", "1000000"];
/// Holds the next messages while others are handled.
const PREFETCH: [&str; 2] = ["--prefetch", "50"];

/// How much is measured.
#[derive(Clone, Copy)]
struct Extent {
    at_once: &'static [usize],
    /// How often each empties a queue, in turns: a shared machine is not always as fast.
    rounds: usize,
    /// At most so many are measured, and about as many as a peer handles in `drain`.
    messages: usize,
    drain: Duration,
    warm: usize,
    settle: Duration,
    idle: Duration,
    wakes: u64,
    starts: usize,
}

const FULL: Extent = Extent {
    at_once: &[10, 50],
    rounds: 3,
    messages: 50_000,
    drain: Duration::from_secs(8),
    warm: 2_000,
    settle: Duration::from_secs(2),
    idle: Duration::from_secs(10),
    wakes: 300,
    starts: 3,
};
const QUICK: Extent = Extent {
    at_once: &[10],
    rounds: 1,
    messages: 500,
    drain: Duration::from_secs(1),
    warm: 100,
    settle: Duration::from_millis(200),
    idle: Duration::from_millis(300),
    wakes: 5,
    starts: 1,
};

/// What a peer is started for.
struct Job<'a> {
    queue: &'a str,
    at_once: usize,
    /// Of its long polls, on SQS.
    wait_s: u32,
    /// Whether it prints what it handles.
    prints: bool,
}

impl Job<'_> {
    /// Loops that receive ten each.
    fn loops(&self) -> usize {
        self.at_once.div_ceil(10)
    }
}

/// One that handles messages.
struct Peer<'a> {
    name: String,
    /// On Redis, whose jobs it handles.
    kind: JobKind,
    command: Box<dyn Fn(&Job) -> Command + 'a>,
}

fn peer<'a>(name: &str, kind: JobKind, command: impl Fn(&Job) -> Command + 'a) -> Peer<'a> {
    Peer {
        name: name.to_owned(),
        kind,
        command: Box::new(command),
    }
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--server", port] => server::serve(port.parse().expect("a port")),
        ["--raw", endpoint, queue, loops, wait_s] => {
            raw(
                (endpoint, queue),
                number(loops),
                wait_s.parse().expect("a number"),
            );
        }
        ["--bare", endpoint, queue, loops, wait_s] => bare::run(&BareLoop {
            endpoint,
            queue,
            loops: number(loops),
            attributes: true,
            wait_s: wait_s.parse().expect("a number"),
            handle,
        }),
        ref parts => measure(parts),
    }
}

fn measure(parts: &[&str]) {
    let extent = if parts.contains(&"quick") {
        QUICK
    } else {
        FULL
    };
    let all = !parts.iter().any(|part| ["sqs", "redis"].contains(part));
    let date = UNIX_EPOCH + Duration::from_millis(clock::wall_clock_now().0);
    println!(
        "{}, {}",
        humantime::format_rfc3339_seconds(date),
        machine::description()
    );
    println!("dispatcher {}", env!("CARGO_PKG_VERSION"));
    print_size();
    let peers = Peers::install();
    if let Err(why) = &peers {
        println!(
            "left out: everything of npm; install Node.js with npm (`apt-get install nodejs npm`): {}",
            first_line(why)
        );
    }
    let peers = peers.ok();
    if let Some(peers) = &peers {
        print_versions(peers);
    }
    let data = tempfile::tempdir().expect("a folder");
    if all || parts.contains(&"sqs") {
        sqs(data.path(), peers.as_ref(), extent);
    }
    if all || parts.contains(&"redis") {
        redis(data.path(), peers.as_ref(), extent);
    }
}

fn print_versions(peers: &Peers) {
    let node = Command::new("node").arg("--version").output();
    let node = node.map(|output| output.stdout).unwrap_or_default();
    let version = |package| peers.version(package).unwrap_or_default();
    println!(
        "Node.js {}: sqs-consumer {} on @aws-sdk/client-sqs {}, BullMQ {} on ioredis {}; aws-sdk-sqs {}",
        String::from_utf8_lossy(&node).trim(),
        version("sqs-consumer"),
        version("@aws-sdk/client-sqs"),
        version("bullmq"),
        version("ioredis"),
        aws_sdk_sqs::meta::PKG_VERSION,
    );
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The floor: receipts are all that is read, nothing is signed, one connection for each loop.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn raw((endpoint, queue): (&str, &str), loops: usize, wait_s: u32) {
    let address = endpoint.trim_start_matches("http://").to_owned();
    let url = format!("{endpoint}/000000000000/{queue}");
    let stopped = bare::stopped();
    let loops = (0..loops).map(|_| {
        let (address, url, stopped) = (address.clone(), url.clone(), stopped.clone());
        tokio::spawn(async move {
            let mut lean = Lean::connect(&address).await;
            while !stopped.load(Ordering::Relaxed) {
                let receipts = lean.receive(&url, wait_s).await;
                if receipts.len() == 1 {
                    println!("order wake");
                }
                lean.delete(&url, &receipts).await;
            }
        })
    });
    for each in loops.collect::<Vec<_>>() {
        each.await.expect("it ends by itself");
    }
}

/// The handler of the bare loop.
fn handle(body: &str) {
    let order: Value = serde_json::from_str(body).expect("JSON");
    let id = order["id"].as_str().expect("`id`: wanted a string");
    if id == "wake" {
        println!("order {id}");
    }
}

fn sqs(data: &Path, peers: Option<&Peers>, extent: Extent) {
    let mut broker = SqsBroker::start();
    let url = broker.url();
    let this = std::env::current_exe().expect("our path");
    let own = |kind: &str, job: &Job| {
        let (loops, wait_s) = (job.loops().to_string(), job.wait_s.to_string());
        let mut command = Command::new(&this);
        command
            .args([kind, &url, job.queue, &loops, &wait_s])
            .envs(AWS);
        command
    };
    let mut all = vec![
        peer("raw HTTP client", JobKind::Dispatcher, |job: &Job| {
            own("--raw", job)
        }),
        peer(
            "bare loop on the Rust SDK",
            JobKind::Dispatcher,
            |job: &Job| own("--bare", job),
        ),
    ];
    for (name, mode) in [
        ("npm sqs-consumer, singly", "singly"),
        ("npm sqs-consumer, batch", "batch"),
    ] {
        if let Some(peers) = peers {
            let url = &url;
            all.push(peer(name, JobKind::Dispatcher, move |job: &Job| {
                peers.consumers((url, job.queue), mode, job.loops(), job.wait_s, ORDER[0])
            }));
        }
    }
    for (name, more) in [("fresh", vec![]), ("reused", REUSED.to_vec())] {
        let (name, url) = (format!("dispatcher, {name}"), &url);
        all.push(peer(&name, JobKind::Dispatcher, move |job: &Job| {
            let wait_s = job.wait_s.to_string();
            let own = ["--endpoint-url", url, "--poll-for", &wait_s];
            run(data, job.queue, job, &[&own[..], &more].concat())
        }));
    }
    tables("SQS", "calls", &mut broker, &all, extent);
}

/// The program with the handler of the template's kind, which prints what it handles.
fn run(data: &Path, queue: &str, job: &Job, more: &[&str]) -> Command {
    let (plugin, at_once) = (plugin("order-check"), job.at_once.to_string());
    let level = if job.prints { "info" } else { "warn,guest=off" };
    let words = [
        "run",
        "--plugin",
        &plugin,
        "--queues",
        queue,
        "--concurrency",
        &at_once,
    ];
    let words = [&words[..], &["--log-level", level], more].concat();
    dispatcher(data, &words)
}

fn redis(data: &Path, peers: Option<&Peers>, extent: Extent) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut broker = RedisBroker::start(&runtime);
    let (url, port) = (broker.url(), broker.port());
    println!("Redis {}", broker.version());
    let sidekiq = Sidekiq::find();
    let mut all = Vec::new();
    if let Some(peers) = peers {
        all.push(peer("npm BullMQ", JobKind::BullMq, move |job: &Job| {
            peers.bullmq(port, job.queue, job.at_once)
        }));
        all.push(peer(
            "npm worqr's commands on ioredis",
            JobKind::Worqr,
            move |job: &Job| peers.worqr(port, job.queue, job.at_once),
        ));
    }
    match &sidekiq {
        Ok(sidekiq) => {
            println!("{}", sidekiq.version().unwrap_or_default());
            let url = &url;
            all.push(peer("Sidekiq", JobKind::Sidekiq, move |job: &Job| {
                sidekiq.worker(url, job.queue, job.at_once)
            }));
        }
        Err(why) => println!(
            "left out: Sidekiq; install it (`apt-get install ruby-sidekiq`): {}",
            first_line(why)
        ),
    }
    for (name, kind, words) in [
        ("fresh", JobKind::Dispatcher, vec![]),
        ("reused", JobKind::Dispatcher, REUSED.to_vec()),
        ("fresh, prefetch", JobKind::Dispatcher, PREFETCH.to_vec()),
        (
            "reused, prefetch",
            JobKind::Dispatcher,
            [PREFETCH, REUSED].concat(),
        ),
        ("reused, on worqr's queues", JobKind::Worqr, REUSED.to_vec()),
    ] {
        let url = &url;
        all.push(peer(
            &format!("dispatcher, {name}"),
            kind,
            move |job: &Job| {
                let queue = format!("redis:{}", job.queue);
                let format = format!("{}=worqr", job.queue);
                let mut more = [&["--redis-url", url][..], &words].concat();
                if kind == JobKind::Worqr {
                    more.extend(["--redis-format", &format]);
                }
                run(data, &queue, job, &more)
            },
        ));
    }
    tables("Redis", "commands", &mut broker, &all, extent);
}

/// Measures all peers and prints them, for each number of messages at once.
fn tables(server: &str, calls: &str, broker: &mut dyn Broker, peers: &[Peer], extent: Extent) {
    for at_once in extent.at_once {
        let rows = peers
            .iter()
            .map(|peer| alone(broker, peer, *at_once, extent));
        let mut rows: Vec<PeerRow> = rows.collect();
        for round in 0..extent.rounds {
            for (peer, row) in peers.iter().zip(&mut rows) {
                let drain = drain(broker, peer, (*at_once, round), extent);
                row.drains.push(drain);
            }
        }
        let table = PeerTable {
            title: format!("{server}, {at_once} at once"),
            calls: calls.to_owned(),
            rows,
        };
        // What runs by default.
        table.print("dispatcher, fresh");
    }
}

/// A server may remember a poll whose caller has died: each start has its own queue.
fn open(broker: &mut dyn Broker, peer: &Peer, at_once: usize, what: &str) -> String {
    let name = format!("{}-{at_once}-{what}", peer.name);
    let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    broker.open(peer.kind, &name);
    name
}

fn start(peer: &Peer, (queue, at_once): (&str, usize), wait_s: u32, prints: bool) -> Program {
    Program::start((peer.command)(&Job {
        queue,
        at_once,
        wait_s,
        prints,
    }))
}

/// What a peer takes while it waits, wakes, starts and stops.
fn alone(broker: &mut dyn Broker, peer: &Peer, at_once: usize, extent: Extent) -> PeerRow {
    let mut row = PeerRow {
        name: peer.name.clone(),
        ..PeerRow::default()
    };
    // It takes a while, and standard output has only the tables.
    eprintln!("{}, {at_once} at once", peer.name);
    let started = |queue: &str, wait_s, prints| start(peer, (queue, at_once), wait_s, prints);
    let queue = open(broker, peer, at_once, "idle");
    let program = started(&queue, LONG_S, false);
    broker.fill(&program, extent.warm, &order());
    broker.drained();
    sleep(extent.settle);
    let before = program.thread_times();
    sleep(extent.idle);
    let idle = program.cpu_since(&before);
    row.idle_percent = idle.as_secs_f64() / extent.idle.as_secs_f64() * 100.0;
    row.idle_mib = program.memory().0;
    drop(program);
    let queue = open(broker, peer, at_once, "wake");
    let mut program = started(&queue, LONG_S, true);
    row.wakes = Some(wakes(broker, &mut program, extent.wakes));
    drop(program);
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    for round in 0..extent.starts {
        let queue = open(broker, peer, at_once, &format!("start-{round}"));
        broker.send(1, WAKE);
        let mut program = started(&queue, SHORT_S, true);
        let (at, _) = program.line("order wake");
        starts.push(at.since(program.started));
        // It polls again.
        sleep(Duration::from_millis(500));
        stops.push(program.stop());
    }
    row.start_ms = Samples::of(starts).at(50);
    row.stop_ms = Samples::of(stops).at(50);
    row
}

fn order() -> String {
    let note = "x".repeat(200);
    format!("{{\"id\": \"o-1\", \"amount\": 250, \"note\": \"{note}\"}}")
}

/// Lets a peer warm up, wait, and empty the queue.
fn drain(
    broker: &mut dyn Broker,
    peer: &Peer,
    (at_once, round): (usize, usize),
    extent: Extent,
) -> DrainFigures {
    eprintln!("{}, {at_once} at once, round {}", peer.name, round + 1);
    let queue = open(broker, peer, at_once, &format!("drain-{round}"));
    let program = start(peer, (&queue, at_once), LONG_S, false);
    broker.fill(&program, extent.warm, &order());
    let took_us = broker.drained().as_micros().max(1);
    let messages = extent.warm as u128 * extent.drain.as_micros() / took_us;
    let messages = usize::try_from(messages).unwrap_or(extent.messages);
    let messages = messages.clamp(extent.warm, extent.messages);
    sleep(extent.settle);
    let cpu = program.cpu();
    broker.fill(&program, messages, &order());
    let (server, all) = (broker.cpu(), machine::busy());
    let took = broker.drained();
    let (own, server) = (program.cpu() - cpu, broker.cpu() - server);
    let all = machine::busy().saturating_sub(all + own + server);
    let per_10_000 = |cpu: Duration| cpu.as_secs_f64() / (messages as f64 / 1e4);
    DrainFigures {
        per_second: messages as f64 / took.as_secs_f64(),
        cpu_s: per_10_000(own),
        server_cpu_s: per_10_000(server),
        calls: broker.calls() as f64 / messages as f64,
        peak_mib: program.memory().1,
        others_percent: all.as_secs_f64() / took.as_secs_f64() / machine::cores() as f64 * 100.0,
    }
}

/// From the call that sends one message to an idle queue to the line of its handler.
fn wakes(broker: &mut dyn Broker, program: &mut Program, count: u64) -> Samples {
    broker.send(1, WAKE);
    program.line("order wake");
    let times = (0..count).map(|number| {
        // Idle again, and at no fixed distance to what the program does by the clock.
        sleep(Duration::from_millis(20 + number * 7 % 40));
        let sent = clock::now();
        broker.send(1, WAKE);
        let (at, _) = program.line("order wake");
        at.since(sent)
    });
    Samples::of(times)
}
