//! Limits of all processes together: what they cost in throughput and in calls to their store, whether
//! one full key delays others, npm BullMQ's limiter beside them, the page of a large fleet, the number
//! of series, and a storm with an oracle. `cargo bench --bench fleet -- [throughput] [neighbours]
//! [bullmq] [calls] [page] [series] [storm [SECONDS]]`. Prints tables; fails only if the oracle does.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what it is for"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

#[allow(dead_code, unreachable_pub, reason = "the server here is a plain one")]
#[path = "../../tests/support/certificates.rs"]
mod certificates;
#[path = "support/commandstats.rs"]
mod commandstats;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/debian.rs"]
mod debian;
#[allow(dead_code, reason = "another benchmark uses the rest of it")]
#[path = "support/jobs.rs"]
mod jobs;
#[path = "support/limited.rs"]
mod limited;
#[path = "support/machine.rs"]
#[allow(dead_code, reason = "another benchmark uses the rest of it")]
mod machine;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/proxy.rs"]
mod proxy;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/redis.rs"]
mod redis_server;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/servers.rs"]
mod servers;
#[allow(dead_code, unreachable_pub, reason = "its own tests are not run here")]
#[path = "../../tests/support/storm/mod.rs"]
mod storm;
mod support;
#[path = "support/tables.rs"]
mod tables;
#[allow(unreachable_pub, reason = "tests use it as well")]
#[path = "../../tests/support/tied.rs"]
mod tied;

use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::fleet::summary::{LimitSummary, QueueSummary, RouteSummary, Summary};
use dispatcher_core::message::OutgoingMessage;
use dispatcher_local::fleet::LocalFleet;
use dispatcher_redis::fleet::RedisFleet;
use jobs::{JobKind, Producer};
use limited::{PLAIN, Scene, left, of, of_keys, open_local, open_redis, send, until_left};
use proxy::Proxy;
use redis_server::RedisServer;
use servers::MiniStack;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;
use storm::{StormPlan, StormStore};
use support::admin;
use support::figures::Samples;
use support::peers::Peers;
use support::program::Program;
use tokio::runtime::Runtime;

/// How long a server may take to answer first. The proxy waits no longer either.
const PATIENCE: Duration = Duration::from_secs(60);
/// An order that the handler prints, in every language.
const WAKE: &str = "{\"id\": \"wake\", \"amount\": 250}";
/// Processes that share a limit.
const PROCESSES: usize = 3;

/// Messages of one drain, those that are drained before the time is taken, and how often each is
/// measured, in turns: a shared machine is not always as fast.
const MESSAGES: usize = 100_000;
const WARM: u64 = 20_000;
const ROUNDS: usize = 8;
const KEYS: usize = 1_000;
/// How long a used-up limit is watched.
const SPAN: Duration = Duration::from_secs(10);
const RATES: [usize; 2] = [100, 1_000];

const STORM_PROCESSES: usize = 32;
const STORM: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let words: Vec<&str> = words
        .into_iter()
        .filter(|word| *word != "--bench")
        .collect();
    if let ["--hold", rest @ ..] = &words[..] {
        let rest: Vec<String> = rest.iter().map(ToString::to_string).collect();
        storm::hold(&rest);
        return ExitCode::SUCCESS;
    }
    machine::print();
    let wants = |part: &str| words.is_empty() || words.contains(&part);
    let runtime = Runtime::new().expect("a runtime");
    if wants("throughput") {
        throughput(&runtime);
    }
    if wants("neighbours") {
        neighbours(&runtime);
    }
    if wants("bullmq") {
        beside_bullmq(&runtime);
    }
    if wants("calls") {
        calls(&runtime);
    }
    if wants("page") {
        page(&runtime);
    }
    if wants("series") {
        series(&runtime);
    }
    let seconds = words.iter().find_map(|word| word.parse().ok());
    if wants("storm") && !storms(seconds.map_or(STORM, Duration::from_secs)) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Limits that are never reached, beside none.
fn throughput(runtime: &Runtime) {
    let variants = [
        ("no limit", "", ""),
        ("concurrency", "[limit.l]\nconcurrency = 64\n", "\"l\""),
        (
            "concurrency, 1,000 keys",
            "[limit.l]\nkey = \"customer\"\nconcurrency = 64\n",
            "\"l\"",
        ),
        (
            "rate far above",
            "[limit.l]\nrate = \"1000000/s\"\n",
            "\"l\"",
        ),
    ];
    let server = RedisServer::start(&[]);
    println!("\n{MESSAGES} messages, 64 at once, instances reused; medians of {ROUNDS} rounds");
    for (backend, redis) in [("local", None), ("redis", Some(&server))] {
        let mut figures = [const { (Vec::new(), Vec::new()) }; 4];
        for round in 0..ROUNDS {
            for turn in 0..variants.len() {
                // Each is first in one round.
                let at = (turn + round) % variants.len();
                let (_, limits, names) = variants[at];
                let name = format!("drain-{round}-{at}");
                let scene = Scene {
                    queues: &format!("\"{backend}:{name}\""),
                    plugin: "bench-noop",
                    concurrency: 64,
                    limits,
                    names,
                    route: "",
                    store: &format!("{backend}:"),
                    redis,
                };
                let folder = tempfile::tempdir().expect("a folder");
                let (speed, cost) = runtime.block_on(drain(&scene, folder.path(), &name));
                figures[at].0.push(speed);
                figures[at].1.push(cost);
            }
        }
        println!(
            "{:<32} {:>10} {:>8} {:>14} {:>8}",
            format!("queue and limits on {backend}"),
            "messages/s",
            "",
            "CPU-s/10,000",
            ""
        );
        let mut first = None;
        for ((name, _, _), (speeds, costs)) in variants.iter().zip(figures) {
            let (speed, cost) = (median(speeds), median(costs));
            let (first_speed, first_cost) = *first.get_or_insert((speed, cost));
            println!(
                "{name:<32} {speed:>10.0} {:>+7.1}% {cost:>14.3} {:>+7.1}%",
                100.0 * (speed / first_speed - 1.0),
                100.0 * (cost / first_cost - 1.0)
            );
        }
    }
}

/// Messages a second, and processor time of 10,000, once it has begun.
async fn drain(scene: &Scene<'_>, folder: &Path, name: &str) -> (f64, f64) {
    let queue = match scene.redis {
        Some(server) => open_redis(server, name).await,
        None => open_local(folder, name),
    };
    send(&*queue, &of_keys(KEYS, 0..MESSAGES, "x")).await;
    let mut program = scene.begin(folder, &[]);
    until_left(&*queue, MESSAGES as u64 - WARM, &mut program).await;
    let (began, before) = (clock::now(), program.cpu());
    let rest = left(&*queue).await as f64;
    until_left(&*queue, 0, &mut program).await;
    let took = clock::now().since(began).as_secs_f64();
    let spent = (program.cpu() - before).as_secs_f64();
    program.stop();
    (rest / took, spent / rest * 1e4)
}

/// From the send of a message to its line, while one key is full and while none is.
fn neighbours(runtime: &Runtime) {
    println!(
        "\nfrom send to start, 200 messages a second of 999 keys; concurrency of 5 for each key"
    );
    let runs = [false, true].map(|has_tenants| [0, 500].map(|backlog| (has_tenants, backlog)));
    for round in 0..3 {
        for (has_tenants, backlog) in runs.concat() {
            let folder = tempfile::tempdir().expect("a folder");
            let (limits, route) = if has_tenants {
                (
                    "[limit.l]\nkey = \"group\"\nconcurrency = 5\n",
                    "tenant = \"group\"\n",
                )
            } else {
                ("[limit.l]\nkey = \"customer\"\nconcurrency = 5\n", "")
            };
            let scene = Scene {
                limits,
                names: "\"l\"",
                route,
                ..PLAIN
            };
            let of = |key: &str, body: &str| OutgoingMessage {
                group: has_tenants.then(|| key.to_owned()),
                ..of(key, body)
            };
            let program = scene.start(folder.path(), &[]);
            let queue = open_local(folder.path(), "work");
            let sent = runtime.block_on(async {
                send(&*queue, &vec![of("full", "sleep:20000"); backlog]).await;
                tokio::time::sleep(Duration::from_secs(2)).await;
                let mut sent = Vec::new();
                let mut pace = tokio::time::interval(Duration::from_millis(5));
                for number in 0..2_000 {
                    pace.tick().await;
                    let message = of(
                        &format!("k{}", number % (KEYS - 1)),
                        &format!("print:number-{number}."),
                    );
                    sent.push(clock::now());
                    send(&*queue, &[message]).await;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                sent
            });
            let lines = program.timed_lines();
            let waits = lines.iter().filter_map(|(at, line)| {
                let (_, number) = line.split_once("number-")?;
                let number: usize = number.split_once('.')?.0.parse().ok()?;
                Some(at.since(*sent.get(number)?))
            });
            let waits: Vec<Duration> = waits.collect();
            println!(
                "round {round}, {}, {backlog:>3} messages of a full key: {}",
                if has_tenants {
                    "keys are tenants"
                } else {
                    "keys only"
                },
                Samples::of(waits)
            );
        }
    }
}

/// Returns the scripts and all the commands that the server has counted.
fn counted(server: &RedisServer) -> (u64, u64) {
    let stats = server.connect().call(&["INFO", "commandstats"]);
    commandstats::calls(&stats.expect("an answer").text())
}

fn reset(server: &RedisServer) {
    let answer = server.connect().call(&["CONFIG", "RESETSTAT"]);
    answer.expect("an answer");
}

/// The starts of processes with a used-up limit, and their calls, in a span.
struct WatchedSpan {
    started: usize,
    fullest: usize,
    scripts: u64,
    commands: u64,
}

impl WatchedSpan {
    /// Watches them once messages have started.
    fn of(programs: &mut [Program], server: &RedisServer) -> Self {
        programs[0].line("order wake");
        sleep(Duration::from_secs(2));
        for program in programs.iter_mut() {
            program.timed_lines();
        }
        reset(server);
        sleep(SPAN);
        let (scripts, commands) = counted(server);
        let lines = programs.iter().flat_map(Program::timed_lines);
        let starts = lines.filter(|(_, line)| line.contains("order wake"));
        let mut starts: Vec<BootInstant> = starts.map(|(at, _)| at).collect();
        starts.sort_unstable();
        let second = Duration::from_secs(1);
        let within = |first: &BootInstant| {
            starts.partition_point(|at| at.since(*first) < second)
                - starts.partition_point(|at| at < first)
        };
        Self {
            started: starts.len(),
            fullest: starts.iter().map(within).max().unwrap_or_default(),
            scripts,
            commands,
        }
    }

    fn without(mut self, idle: &Self) -> Self {
        self.scripts = self.scripts.saturating_sub(idle.scripts);
        self.commands = self.commands.saturating_sub(idle.commands);
        self
    }

    fn print(&self, name: &str) {
        let started = self.started.max(1) as f64;
        println!(
            "{name:<36} {:>9.1} {:>16} {:>20.3} {:>21.3}",
            self.started as f64 / SPAN.as_secs_f64(),
            self.fullest,
            self.scripts as f64 / started,
            self.commands as f64 / started
        );
    }
}

fn head(title: &str) {
    println!(
        "\n{title:<36} {:>9} {:>16} {:>20} {:>21}",
        "started/s", "fullest second", "scripts/message", "commands run/message"
    );
}

fn rate_limit(rate: usize) -> String {
    format!("[limit.l]\nrate = \"{rate}/s\"\nburst = {}\n", rate / 5)
}

/// A rate that is used up, beside npm BullMQ's limiter.
fn beside_bullmq(runtime: &Runtime) {
    let peers = Peers::install();
    if let Err(why) = &peers {
        println!("left out: npm BullMQ; install Node.js with npm: {why}");
    }
    head("queue and rate on Redis, 3 processes");
    let backlog = |rate: usize| rate * 16;
    for rate in RATES {
        if let Ok(peers) = &peers {
            let server = RedisServer::start(&[]);
            let (queue, port) = (format!("rate-{rate}"), server.address().port());
            let mut producer = Producer::connect(JobKind::BullMq, &server, runtime, &queue);
            producer.send(backlog(rate), WAKE);
            let start = |_| Program::start(peers.bullmq_limited(port, &queue, 50, rate));
            let mut programs: Vec<Program> = (0..PROCESSES).map(start).collect();
            let version = peers.version("bullmq").unwrap_or_default();
            let watched = WatchedSpan::of(&mut programs, &server);
            watched.print(&format!("BullMQ {version}, {rate}/s"));
        }
        let server = RedisServer::start(&[]);
        let mut producer = Producer::connect(JobKind::Dispatcher, &server, runtime, "rate");
        producer.send(backlog(rate), WAKE);
        let watched = watch(&server, "\"redis:rate\"", &rate_limit(rate));
        watched.print(&format!("dispatcher, {rate}/s, burst {}", rate / 5));
    }
}

/// Watches three processes with one limit, whose queues are in one data folder or on the server.
fn watch(server: &RedisServer, queues: &str, limits: &str) -> WatchedSpan {
    let folder = tempfile::tempdir().expect("a folder");
    watch_in(folder.path(), server, queues, limits)
}

fn watch_in(folder: &Path, server: &RedisServer, queues: &str, limits: &str) -> WatchedSpan {
    let scene = Scene {
        queues,
        plugin: "order-check",
        limits,
        names: "\"l\"",
        store: "redis:",
        redis: Some(server),
        ..PLAIN
    };
    let mut programs: Vec<Program> = (0..PROCESSES).map(|_| scene.start(folder, &[])).collect();
    let watched = WatchedSpan::of(&mut programs, server);
    for program in programs {
        program.stop();
    }
    watched
}

/// Calls to the store of limits alone: the queues are embedded.
fn calls(runtime: &Runtime) {
    head("limits on Redis, 3 processes");
    let idle = {
        let server = RedisServer::start(&[]);
        let folder = tempfile::tempdir().expect("a folder");
        let queue = open_local(folder.path(), "work");
        runtime.block_on(send(&*queue, &[of("a", WAKE)]));
        watch_in(folder.path(), &server, "\"local:work\"", &rate_limit(100))
    };
    println!(
        "idle: {} scripts in {SPAN:?}, taken off below",
        idle.scripts
    );
    for rate in RATES {
        let server = RedisServer::start(&[]);
        let folder = tempfile::tempdir().expect("a folder");
        let queue = open_local(folder.path(), "work");
        runtime.block_on(send(&*queue, &of_keys(KEYS, 0..rate * 16, WAKE)));
        let watched = watch_in(folder.path(), &server, "\"local:work\"", &rate_limit(rate));
        watched.without(&idle).print(&format!("{rate}/s"));
    }
    let server = RedisServer::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let keyed = "[limit.l]\nkey = \"customer\"\nconcurrency = 5\n";
    let watched = std::thread::scope(|scope| {
        scope.spawn(|| runtime.block_on(feed(folder.path())));
        watch_in(folder.path(), &server, "\"local:work\"", keyed)
    });
    watched
        .without(&idle)
        .print("1,000 keys, 1,000/s, concurrency 5");
    calls_to_dynamodb(runtime);
}

/// Sends 1,000 messages a second, of keys in turn, for longer than a span.
async fn feed(folder: &Path) {
    let queue = open_local(folder, "work");
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    for turn in 0..800 {
        pace.tick().await;
        send(&*queue, &of_keys(KEYS, 20 * turn..20 * turn + 20, WAKE)).await;
    }
}

fn calls_to_dynamodb(runtime: &Runtime) {
    println!(
        "\n{:<36} {:>9} {:>26} {:>26}",
        "limits on DynamoDB, 3 processes",
        "started/s",
        "reads/s for each process",
        "writes/s for each process"
    );
    let server = MiniStack::start();
    for (name, limits, body) in [
        ("100/s", rate_limit(100), WAKE.to_owned()),
        (
            "concurrency 20, attempts of 100 ms",
            "[limit.l]\nconcurrency = 20\n".to_owned(),
            "sleep:100".to_owned(),
        ),
    ] {
        let proxy = Proxy::before(server.address());
        let folder = tempfile::tempdir().expect("a folder");
        let table = format!("fleet-{}", body.len());
        runtime.block_on(tables::create_fleet(&server.url(), &table));
        let queue = open_local(folder.path(), "work");
        runtime.block_on(send(&*queue, &of_keys(KEYS, 0..4_000, &body)));
        let scene = Scene {
            plugin: if body == WAKE {
                "order-check"
            } else {
                "verdicts"
            },
            limits: &limits,
            names: "\"l\"",
            store: &format!("dynamodb:{table}"),
            ..PLAIN
        };
        let url = proxy.url();
        let start = |_| scene.start(folder.path(), &["--endpoint-url", &url]);
        let programs: Vec<Program> = (0..PROCESSES).map(start).collect();
        sleep(Duration::from_secs(3));
        let count = |target: &str| proxy.requests(target, "limit:").len() as f64;
        let look = || {
            let writes = count("PutItem") + count("TransactWriteItems");
            (count("BatchGetItem"), writes)
        };
        let (before, began) = (look(), runtime.block_on(left(&*queue)));
        sleep(SPAN);
        let (after, ended) = (look(), runtime.block_on(left(&*queue)));
        let span = SPAN.as_secs_f64();
        let per_process = |calls: f64| calls / span / PROCESSES as f64;
        println!(
            "{name:<36} {:>9.1} {:>26.2} {:>26.2}",
            (began - ended) as f64 / span,
            per_process(after.0 - before.0),
            per_process(after.1 - before.1)
        );
        drop(programs);
    }
}

/// The summary of one of many processes.
fn summary(number: usize) -> String {
    let queues = (0..10).map(|at| QueueSummary {
        queue: format!("redis:orders-of-region-{}", number * 10 + at),
        running: 3,
        started: 51.25,
        done: 50.75,
        failed: 0.5,
        ..QueueSummary::default()
    });
    let limits = (0..3).map(|at| LimitSummary {
        limit: format!("limit-{at}"),
        concurrency: Some(500),
        used: 3,
        waiting: 20,
        ..LimitSummary::default()
    });
    let summary = Summary {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        configuration: "483264e58c9c".to_owned(),
        started_at: "2026-11-29T00:00:00Z".to_owned(),
        routes: vec![RouteSummary::default()],
        queues: queues.collect(),
        limits: limits.collect(),
        ..Summary::default()
    };
    summary.text()
}

/// The answers about a fleet of 100 processes with 1,000 queues.
fn page(runtime: &Runtime) {
    println!("\na fleet of 100 processes with 1,000 queues");
    let server = RedisServer::start(&[]);
    for (backend, redis) in [("local", None), ("redis", Some(&server))] {
        let folder = tempfile::tempdir().expect("a folder");
        let store: Box<dyn FleetStore> = match redis {
            None => Box::new(LocalFleet::open(folder.path(), "default").expect("it opens")),
            Some(server) => Box::new(
                RedisFleet::new(&server.url(), "dispatcher", "default").expect("an address"),
            ),
        };
        runtime.block_on(async {
            for number in 0..100 {
                let name = format!("{number}@host-{number}");
                let hour = Duration::from_secs(3_600);
                let published = store.publish(&name, &summary(number), hour).await;
                published.expect("the store answers");
            }
        });
        let scene = Scene {
            store: &format!("{backend}:"),
            redis,
            ..PLAIN
        };
        let mut program = scene.begin(folder.path(), &["--admin", "127.0.0.1:0"]);
        let address = admin::address(&mut program);
        program.line("running");
        while !admin::get(&address, "/api/v1/fleet")
            .1
            .contains("99@host-99")
        {
            sleep(Duration::from_millis(100));
        }
        for path in ["/api/v1/fleet", "/ui/fleet"] {
            let bytes = admin::get(&address, path).1.len();
            let times = Samples::of((0..20).map(|_| admin::get(&address, path).0));
            println!("{backend:<8} {path:<16} {:>7} bytes, {times}", bytes);
        }
        program.stop();
    }
}

/// The series of a process with 50 queues and 10 limits of 15 keys, of which ten are shown.
fn series(runtime: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let queues: Vec<String> = (0..50).map(|at| format!("\"local:queue-{at}\"")).collect();
    let limits = (0..10).map(|at| {
        format!("[limit.l{at}]\nkey = \"customer\"\nconcurrency = 2\nrate = \"100/s\"\n")
    });
    let names: Vec<String> = (0..10).map(|at| format!("\"l{at}\"")).collect();
    let scene = Scene {
        queues: &queues.join(", "),
        limits: &limits.collect::<String>(),
        names: &names.join(", "),
        ..PLAIN
    };
    let mut program = scene.begin(folder.path(), &["--admin", "127.0.0.1:0"]);
    let address = admin::address(&mut program);
    program.line("running");
    runtime.block_on(async {
        for at in 0..50 {
            let queue = open_local(folder.path(), &format!("queue-{at}"));
            let customers = (0..15).map(|number| of(&format!("customer-{number}"), "sleep:20000"));
            send(&*queue, &customers.collect::<Vec<_>>()).await;
            send(&*queue, &[of("other", "done")]).await;
        }
    });
    sleep(Duration::from_secs(5));
    let text = admin::get(&address, "/metrics").1;
    let count = |part: &str| {
        let lines = text.lines();
        lines
            .filter(|line| !line.starts_with('#') && line.starts_with(part))
            .count()
    };
    println!(
        "\n50 queues, 10 limits with 15 keys: {} series, {} of them of limits",
        count(""),
        count("dispatcher_limit_")
    );
    drop(program);
}

/// Runs a storm over limits on Redis and one over limits in a data folder; whether all held.
fn storms(lasts: Duration) -> bool {
    let this = std::env::current_exe().expect("our path");
    let server = RedisServer::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut held = true;
    for (name, store) in [
        ("Redis", StormStore::Redis(server.address())),
        ("a data folder", StormStore::Local(folder.path().to_owned())),
    ] {
        let logs = tempfile::tempdir().expect("a folder");
        println!(
            "\na storm of {} s over limits on {name}, {STORM_PROCESSES} processes",
            lasts.as_secs()
        );
        let plan = StormPlan {
            processes: STORM_PROCESSES,
            lasts,
            store,
            logs: logs.path().to_owned(),
        };
        let report = plan.run(&|| {
            let mut command = Command::new(&this);
            command.arg("--hold");
            command
        });
        print!("{report}");
        held &= report.violations.is_empty();
    }
    held
}
