//! The real program on SQS: what a message costs beside a bare loop on the SDK in the same run,
//! how many calls it costs on a slow server, what waiting costs, how fast it starts and stops, how
//! late leases are extended beside guests that never end. `cargo bench --bench sqs -- [PART…]`. With
//! `DISPATCHER_PEER=FILE`, `calls` measures another build beside this one. `peers [FILE…]` measures npm
//! sqs-consumer, a loop on boto3, the program with these components, and an Express application that it
//! forwards to. Prints and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

#[path = "support/bare.rs"]
mod bare;
#[path = "support/server/mod.rs"]
mod server;
mod support;

use bare::BareLoop;
use dispatcher_core::clock;
use server::{BenchServer, Calls};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;
use support::figures::Samples;
use support::peers::{ORDER, ORDER_OF_PACKAGES, Peers};
use support::program::{AWS, BINARY, Program, command_of, dispatcher, plugin, print_size};

const MESSAGES: usize = 100_000;
const BODY: usize = 256;
/// Calls that a program has under way when it may handle so many messages at once.
const CONCURRENCIES: [(usize, usize); 3] = [(10, 1), (50, 5), (200, 16)];
const IDLE: Duration = Duration::from_secs(20);
type BenchPart = fn(&Path);
const PARTS: [(&str, BenchPart); 7] = [
    ("drain", drain),
    ("peers", peers),
    ("calls", calls),
    ("idle", idle),
    ("start", start),
    ("stop", stop),
    ("leases", leases),
];

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--server", port] => server::serve(port.parse().expect("a port")),
        ["--bare", url, queue, loops, asks] => bare::run(&BareLoop {
            endpoint: url,
            queue,
            loops: loops.parse().expect("a number"),
            attributes: asks == "all",
            wait_s: 1,
            handle: |_| {},
        }),
        ref words => {
            let is_part = |word: &&&str| !word.ends_with(".wasm");
            measure(&words.iter().filter(is_part).copied().collect::<Vec<_>>());
        }
    }
}

fn measure(parts: &[&str]) {
    print_size();
    let data = tempfile::tempdir().expect("a folder");
    for (name, part) in PARTS {
        // Peers must be installed first.
        if parts.contains(&name) || parts.is_empty() && name != "peers" {
            println!("\n{name}");
            part(data.path());
        }
    }
}

/// What one drain came to.
struct Drain {
    name: String,
    messages: usize,
    per_second: f64,
    /// CPU-seconds for each 10,000 messages.
    cpu: f64,
    server_cpu: f64,
    calls: Calls,
    /// The most memory that was resident, in MiB.
    peak: f64,
}

fn drain(data: &Path) {
    println!(
        "{:<32} {:>8} {:>7} {:>9} {:>9} {:>7} {:>7} {:>7}",
        "", "msg/s", "calls", "CPU-s", "server's", "of bare", "of lean", "peak"
    );
    println!(
        "{:<32} {:>8} {:>7} {:>9} {:>9} {:>7} {:>7} {:>7}   receives, deletes, changes",
        "", "", "/msg", "/10,000", "/10,000", "loop", "loop", "MiB"
    );
    for (concurrency, loops) in CONCURRENCIES {
        let mut server = BenchServer::start();
        let (url, loops) = (server.url.clone(), loops.to_string());
        let this = std::env::current_exe().expect("our path");
        let loop_of = |queue: &str, asks: &str| {
            let mut command = Command::new(&this);
            command
                .args(["--bare", &url, queue, &loops, asks])
                .envs(AWS);
            command
        };
        let lean = loop_of("lean", "none");
        let lean = drained(&mut server, "lean", &format!("lean loop × {loops}"), lean);
        lean.print(None, None);
        let bare = loop_of("bare", "all");
        let bare = drained(&mut server, "bare", &format!("bare loop × {loops}"), bare);
        bare.print(None, Some(&lean));
        let (number, file) = (concurrency.to_string(), plugin("bench-noop"));
        for (kind, reuse) in [("fresh", None), ("reused", Some("1000000"))] {
            let mut words = vec!["run", "--plugin", &file, "--queues", kind];
            words.extend(["--endpoint-url", &url, "--concurrency", &number]);
            words.extend(reuse.iter().flat_map(|count| ["--reuse", *count]));
            let name = format!("dispatcher, {number} at once, {kind}");
            let command = dispatcher(data, &words);
            drained(&mut server, kind, &name, command).print(Some(&bare), Some(&lean));
        }
    }
}

impl Drain {
    fn print(&self, bare: Option<&Drain>, lean: Option<&Drain>) {
        let ratio = |peer: Option<&Drain>| match peer {
            Some(peer) => format!("{:.2}x", self.cpu / peer.cpu),
            None => "-".into(),
        };
        let Calls {
            receive,
            empty,
            delete,
            change,
            ..
        } = self.calls;
        println!(
            "{:<32} {:>8.0} {:>7.4} {:>9.3} {:>9.3} {:>7} {:>7} {:>7.1}   {receive} ({empty} empty), {delete}, {change}",
            self.name,
            self.per_second,
            (receive + delete + change) as f64 / self.messages as f64,
            self.cpu,
            self.server_cpu,
            ratio(bare),
            ratio(lean),
            self.peak,
        );
    }
}

/// Drains its own queue with one program, which is started and idle before it is filled.
fn drained(server: &mut BenchServer, queue: &str, name: &str, command: Command) -> Drain {
    server.queue(queue, 30);
    let programs = [Program::start(command)];
    drained_by(server, queue, name, &programs, &"x".repeat(BODY), MESSAGES)
}

/// The same with programs that run, so many messages and this body.
fn drained_by(
    server: &mut BenchServer,
    queue: &str,
    name: &str,
    programs: &[Program],
    body: &str,
    messages: usize,
) -> Drain {
    let cpu = || programs.iter().map(Program::cpu).sum::<Duration>();
    // Warm: connections, code, and the first instances.
    server.fill(queue, 2_000, body);
    server.drained(queue);
    sleep(Duration::from_millis(300));
    server.calls();
    let before = cpu();
    server.fill(queue, messages, body);
    // Filling is not a part of it.
    let filled = server.cpu();
    let took = server.drained(queue).as_secs_f64();
    let per_10_000 = |cpu: Duration| cpu.as_secs_f64() / (messages as f64 / 1e4);
    Drain {
        name: name.to_owned(),
        messages,
        per_second: messages as f64 / took,
        cpu: per_10_000(cpu() - before),
        server_cpu: per_10_000(server.cpu() - filled),
        calls: server.calls(),
        peak: programs.iter().map(|program| program.memory().1).sum(),
    }
}

/// What people use instead, and the program with handlers of other languages: all look at the same
/// order, at 50 at once or with five loops. The last rows of each validate it with zod and marshmallow.
fn peers(data: &Path) {
    const MESSAGES: usize = 20_000;
    let installed = Peers::install().and_then(|peers| peers.install_boto3().map(|()| peers));
    let peers = match installed {
        Ok(peers) => peers,
        Err(why) => return println!("left out: {why}"),
    };
    let order = format!(
        "{{\"id\": \"o-1\", \"amount\": 250, \"note\": \"{}\"}}",
        "x".repeat(200)
    );
    println!(
        "{:<32} {:>8} {:>7} {:>9} {:>9} {:>10} {:>7} {:>7}",
        "", "msg/s", "calls", "CPU-s", "server's", "of singly", "of", "peak"
    );
    println!(
        "{:<32} {:>8} {:>7} {:>9} {:>9} {:>10} {:>7} {:>7}   receives, deletes, changes",
        "", "", "/msg", "/10,000", "/10,000", "", "batch", "MiB"
    );
    let mut server = BenchServer::start();
    let url = server.url.clone();
    let mut drain = |queue: &str, name: &str, commands: Vec<Command>| {
        server.queue(queue, 30);
        let programs: Vec<_> = commands.into_iter().map(Program::start).collect();
        drained_by(&mut server, queue, name, &programs, &order, MESSAGES)
    };
    let mut drained = Vec::new();
    for (queue, name, command) in others(&peers, &url) {
        let one = drain(queue, name, vec![command]);
        one.print(drained.first(), drained.get(1));
        drained.push(one);
    }
    let (singly, batch) = (drained.first(), drained.get(1));
    let run = |words: &[&str]| {
        let common = [
            "--endpoint-url",
            &url,
            "--concurrency",
            "50",
            "--log-level",
            "warn,guest=off",
        ];
        dispatcher(data, &[words, &common].concat())
    };
    let with_packages = peers.components(Path::new(BINARY)).unwrap_or_else(|why| {
        println!("left out: {why}");
        Vec::new()
    });
    let example = plugin("order-check");
    let given = std::env::args().filter(|word| word.ends_with(".wasm"));
    for file in std::iter::once(example).chain(given).chain(with_packages) {
        let stem = Path::new(&file).file_stem().unwrap_or_default();
        let stem = stem.to_string_lossy().into_owned();
        for (kind, reuse) in [("fresh", "1"), ("reused", "1000000")] {
            let queue = format!("{stem}-{kind}");
            let words = [
                "run", "--plugin", &file, "--queues", &queue, "--reuse", reuse,
            ];
            let name = format!("dispatcher, {stem}, {kind}");
            drain(&queue, &name, vec![run(&words)]).print(singly, batch);
        }
    }
    let mut express = Program::start(peers.express());
    let (_, line) = express.line("listening");
    let port = line.rsplit(' ').next().unwrap_or_default();
    let jobs = format!("http://127.0.0.1:{port}/jobs");
    server.queue("express", 30);
    let forward = Program::start(run(&["run", "--forward", &jobs, "--queues", "express"]));
    let both = [express, forward];
    let name = "dispatcher --forward and Express";
    drained_by(&mut server, "express", name, &both, &order, MESSAGES).print(singly, batch);
}

/// The queue, the name and the command of each program that people use instead.
fn others(peers: &Peers, url: &str) -> [(&'static str, &'static str, Command); 5] {
    const LOOPS: usize = 5;
    let [javascript, python] = ORDER;
    let [zod, marshmallow] = ORDER_OF_PACKAGES;
    let threads = LOOPS.to_string();
    [
        (
            "singly",
            "sqs-consumer × 5, singly",
            peers.consumers((url, "singly"), "singly", LOOPS, 1, javascript),
        ),
        (
            "batch",
            "sqs-consumer × 5, batch",
            peers.consumers((url, "batch"), "batch", LOOPS, 1, javascript),
        ),
        (
            "boto3",
            "boto3 loop × 5 threads",
            peers.boto3(url, "boto3", &threads, python),
        ),
        (
            "singly-zod",
            "sqs-consumer, singly, zod",
            peers.consumers((url, "singly-zod"), "singly", LOOPS, 1, zod),
        ),
        (
            "boto3-marshmallow",
            "boto3 loop, marshmallow",
            peers.boto3(url, "boto3-marshmallow", &threads, marshmallow),
        ),
    ]
}

/// Handlers of 0 to 5 ms on a server whose answers take their time: how many calls a message costs.
fn calls(data: &Path) {
    println!(
        "{:<34} {:>8} {:>7}   receives, deletes, changes",
        "answers, concurrency", "msg/s", "calls"
    );
    let peer = std::env::var_os("DISPATCHER_PEER").map(PathBuf::from);
    let builds = std::iter::once(("this", PathBuf::from(BINARY)));
    let builds: Vec<_> = builds.chain(peer.map(|peer| ("peer", peer))).collect();
    let file = plugin("verdicts");
    for latency_ms in [0, 20, 60] {
        for concurrency in [10, 50, 200] {
            for (build, binary) in &builds {
                let mut server = BenchServer::start();
                server.queue(build, 30);
                server.slow(Duration::from_millis(latency_ms));
                let count = 60 * concurrency;
                for number in 0..count {
                    server.fill(build, 1, &format!("sleep:{}", number * 7 % 6));
                }
                let (url, most) = (server.url.clone(), concurrency.to_string());
                let words = ["run", "--plugin", &file, "--queues", build];
                let more = ["--endpoint-url", &url, "--concurrency", &most];
                let words = [&words[..], &more[..], &["--reuse", "1000000"]].concat();
                let begun = clock::now();
                let program = Program::start(command_of(binary, data, &words));
                server.drained(build);
                let took = clock::now().since(begun).as_secs_f64();
                let Calls {
                    receive,
                    empty,
                    delete,
                    change,
                    ..
                } = server.calls();
                println!(
                    "{:<34} {:>8.0} {:>7.4}   {receive} ({empty} empty), {delete}, {change}",
                    format!("{latency_ms} ms, {concurrency} at once, {build}"),
                    count as f64 / took,
                    (receive - empty + delete + change) as f64 / count as f64,
                );
                drop(program);
            }
        }
    }
}

/// A runner on eight queues that hold nothing.
fn idle(data: &Path) {
    let mut server = BenchServer::start();
    let names: Vec<String> = (0..8).map(|at| format!("idle-{at}")).collect();
    for name in &names {
        server.queue(name, 30);
    }
    let (url, file, queues) = (server.url.clone(), plugin("bench-noop"), names.join(","));
    let words = [
        "run",
        "--plugin",
        &file,
        "--queues",
        &queues,
        "--endpoint-url",
        &url,
    ];
    let mut program = Program::start(dispatcher(data, &words));
    program.line("running");
    // The first polls are short; then each queue has one long one.
    sleep(Duration::from_secs(3));
    server.calls();
    let before = program.thread_times();
    sleep(IDLE);
    let cpu = program.cpu_since(&before).as_secs_f64();
    let calls = server.calls().all as f64 / IDLE.as_secs_f64() * 60.0;
    println!(
        "8 idle queues for {} s: {:.3} % of a core, {calls:.0} calls a minute, {:.1} MiB resident",
        IDLE.as_secs(),
        cpu / IDLE.as_secs_f64() * 100.0,
        program.memory().0
    );
}

/// From the start of the process to what a guest printed about the first message.
fn start(data: &Path) {
    let mut server = BenchServer::start();
    server.queue("start", 30);
    let (url, file) = (server.url.clone(), plugin("verdicts"));
    let words = [
        "run",
        "--plugin",
        &file,
        "--queues",
        "start",
        "--endpoint-url",
        &url,
        "--poll-for",
        "1",
    ];
    let mut once = |data: &Path| {
        server.fill("start", 1, "print:handled");
        let mut program = Program::start(dispatcher(data, &words));
        let (at, _) = program.line("handled");
        let took = at.since(program.started);
        program.stop();
        took
    };
    let empty = tempfile::tempdir().expect("a folder");
    println!(
        "start to first message, plugin not compiled yet: {:.0} ms",
        once(empty.path()).as_secs_f64() * 1e3
    );
    once(data);
    println!(
        "start to first message, compiled plugin cached: {}",
        Samples::of((0..20).map(|_| once(data)))
    );
}

/// From SIGTERM to the end of a process with nothing to do.
fn stop(data: &Path) {
    let mut server = BenchServer::start();
    server.queue("stop", 600);
    for poll_for in ["1", "5", "20"] {
        let (url, file) = (server.url.clone(), plugin("bench-noop"));
        let words = [
            "run",
            "--plugin",
            &file,
            "--queues",
            "stop",
            "--endpoint-url",
            &url,
            "--poll-for",
            poll_for,
        ];
        let times = (0..3).map(|round| {
            let mut program = Program::start(dispatcher(data, &words));
            program.line("running");
            // Handled and idle again; the long poll that is then under way is what is waited for.
            server.fill("stop", 1, "x");
            server.drained("stop");
            sleep(Duration::from_millis(1_500 + 200 * round));
            program.stop()
        });
        let times = Samples::of(times);
        println!(
            "SIGTERM to exit, idle, --poll-for {poll_for}: {times}; {} in flight",
            server.in_flight("stop")
        );
    }
}

/// How late leases are extended: alone, and beside guests that never end.
fn leases(data: &Path) {
    for looping in [0, 4] {
        let mut server = BenchServer::start();
        server.queue("sleepers", 2);
        server.queue("loops", 60);
        server.fill("sleepers", 40, "sleep:12000");
        if looping > 0 {
            server.fill("loops", looping, "loop");
        }
        let url = server.url.clone();
        let file = data.join("leases.toml");
        let text = format!(
            "[plugin.verdicts]\nfile = {:?}\ntimeout = \"20s\"\n\n[[route]]\nqueues = [\"loops\"]\nplugin = \"verdicts\"\nconcurrency = 4\n\n[[route]]\nqueues = [\"sleepers\"]\nplugin = \"verdicts\"\nconcurrency = 40\n",
            plugin("verdicts")
        );
        std::fs::write(&file, text).expect("our folder");
        let file = file.to_string_lossy().into_owned();
        let words = [
            "run",
            "--config",
            &file,
            "--endpoint-url",
            &url,
            "--shutdown-grace",
            "1s",
        ];
        let program = Program::start(dispatcher(data, &words));
        let start = clock::now();
        sleep(Duration::from_secs(12));
        let late = Samples::of_ms(server.late_ms());
        let took = clock::now().since(start);
        println!(
            "extensions of 40 leases beside {looping} endless guests, after their due time, in {:.0} s: {late}",
            took.as_secs_f64()
        );
        drop(program);
    }
}
