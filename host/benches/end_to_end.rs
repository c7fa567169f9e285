//! The real program on the embedded queue, durable: how fast it drains, how soon an idle runner
//! sees what another process sends, how fast one group is worked off, how long a list of many queues
//! takes, how late a good guest and the health page get beside endless guests, start and stop.
//! `cargo bench --bench end_to_end -- [PART…]`. Prints and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

mod support;

use dispatcher_core::clock;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::{LocalQueue, LocalStore, QueueSettings, Redrive};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use support::figures::Samples;
use support::program::{Program, dispatcher, plugin, print_size};
use tokio::runtime::Runtime;

const MESSAGES: usize = 100_000;
const BODY: usize = 256;
/// Messages of one send.
const BATCH: usize = 100;
/// Sends under way at once.
const SENDERS: usize = 8;
const CONCURRENCIES: [&str; 3] = ["10", "64", "256"];
const WAKES: usize = 200;
/// Messages of one group, by the embedded queue and over the SQS protocol.
const OF_GROUP: usize = 20_000;
const OF_GROUP_SERVED: usize = 5_000;
const QUEUES: usize = 10_000;
const LISTS: usize = 5;
const IDLE: Duration = Duration::from_secs(20);
type BenchPart = fn(&Runtime);
const PARTS: [(&str, BenchPart); 7] = [
    ("drain", drain),
    ("group", group),
    ("queues", queues),
    ("wake", wake),
    ("neighbours", neighbours),
    ("start", start),
    ("idle", idle),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<&String> = words.iter().filter(|word| *word != "--bench").collect();
    let runtime = Runtime::new().expect("a runtime");
    print_size();
    for (name, part) in PARTS {
        if parts.is_empty() || parts.iter().any(|part| *part == name) {
            println!("\n{name}");
            part(&runtime);
        }
    }
}

fn open(folder: &Path, name: &str) -> Arc<LocalQueue> {
    let store = LocalStore::open(folder).expect("a store");
    Arc::new(store.queue(name, None).expect("a queue"))
}

/// Sends, `SENDERS` calls at a time; every message is on the disk when this returns.
async fn send(queue: &Arc<LocalQueue>, body: &str, count: usize) {
    send_to(queue, None, body, count).await;
}

/// The same of a group.
async fn send_to(queue: &Arc<LocalQueue>, group: Option<&'static str>, body: &str, count: usize) {
    let tasks = (0..SENDERS).map(|sender| {
        let (queue, body) = (queue.clone(), body.to_owned());
        tokio::spawn(async move {
            let own = count / SENDERS + usize::from(sender < count % SENDERS);
            for start in (0..own).step_by(BATCH) {
                let item = OutgoingMessage {
                    body: body.clone(),
                    group: group.map(str::to_owned),
                    ..OutgoingMessage::default()
                };
                let sent = queue.send(&vec![item; BATCH.min(own - start)]).await;
                assert!(sent.iter().all(Result::is_ok), "{sent:?}");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("sent");
    }
}

async fn left(queue: &LocalQueue) -> u64 {
    let depth = queue.depth().await.expect("a depth");
    depth.waiting + depth.in_flight
}

async fn drained(queue: &LocalQueue, program: &mut Program) {
    while left(queue).await > 0 {
        program.assert_running();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What waits is drained; and what is sent meanwhile.
fn drain(runtime: &Runtime) {
    println!(
        "{:<32} {:>12} {:>12} {:>14} {:>9}",
        "", "drain msg/s", "CPU-s/10,000", "with send/s", "peak MiB"
    );
    for concurrency in CONCURRENCIES {
        for (kind, more) in [
            ("fresh", &[][..]),
            ("reused", &["--reuse", "1000000"]),
            ("fresh, prefetch 50", &["--prefetch", "50"]),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let queue = open(folder.path(), "bench");
            let file = plugin("bench-noop");
            let mut words = vec!["run", "--plugin", &file, "--queues", "local:bench"];
            words.extend(["--concurrency", concurrency]);
            words.extend(more);
            let body = "x".repeat(BODY);
            runtime.block_on(send(&queue, &body, MESSAGES));
            let mut program = Program::start(dispatcher(folder.path(), &words));
            runtime.block_on(drained(&queue, &mut program));
            let drain = clock::now().since(program.started).as_secs_f64();
            let cpu = program.cpu().as_secs_f64() / (MESSAGES as f64 / 1e4);
            let again = clock::now();
            runtime.block_on(async {
                send(&queue, &body, MESSAGES).await;
                drained(&queue, &mut program).await;
            });
            let both = clock::now().since(again).as_secs_f64();
            let count = MESSAGES as f64;
            let name = format!("{concurrency} at once, {kind}");
            println!(
                "{name:<32} {:>12.0} {cpu:>12.3} {:>14.0} {:>9.1}",
                count / drain,
                count / both,
                program.memory().1
            );
            program.stop();
        }
    }
    println!("(from the start of the process; its plugin is compiled anew each time)");
}

/// One group with quick handlers: by `dispatcher run` on the embedded queue, with and without a
/// redrive policy; and on the same queue served over the SQS protocol by `dispatcher local`.
fn group(runtime: &Runtime) {
    println!("{:<44} {:>9} {:>14}", "one group", "msg/s", "CPU-s/10,000");
    for (name, most_receives) in [("no redrive policy", None), ("maxReceiveCount 3", Some(3))] {
        for served in [false, true] {
            for reuse in [None, Some("1000000")] {
                let kind = if reuse.is_none() { "fresh" } else { "reused" };
                let way = if served { "over SQS" } else { "embedded" };
                let (rate, cpu) = one_group(runtime, most_receives, served, reuse);
                let name = format!("{way}, {name}, {kind}");
                println!("{name:<44} {rate:>9.0} {cpu:>14.3}");
            }
        }
    }
    println!("(from the start of the process; the processor time is the runner's)");
}

/// Messages a second, and seconds of the runner's processor time for 10,000.
fn one_group(
    runtime: &Runtime,
    most_receives: Option<u32>,
    served: bool,
    reuse: Option<&str>,
) -> (f64, f64) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalStore::open(folder.path()).expect("a store");
    let settings = QueueSettings {
        fifo: true,
        redrive: most_receives.map(|most_receives| Redrive {
            most_receives,
            dead_letter_queue: "dead.fifo".into(),
        }),
        ..QueueSettings::default()
    };
    let made = runtime.block_on(store.create("group.fifo", settings));
    made.expect("a queue");
    let queue = Arc::new(store.queue("group.fifo", None).expect("a queue"));
    let count = if served { OF_GROUP_SERVED } else { OF_GROUP };
    let body = "x".repeat(BODY);
    runtime.block_on(send_to(&queue, Some("g"), &body, count));
    let server = served.then(|| {
        let words = ["local", "--listen", "127.0.0.1:0"];
        let mut server = Program::start(dispatcher(folder.path(), &words));
        let (_, line) = server.line("AWS_ENDPOINT_URL_SQS=");
        let url = line.split("AWS_ENDPOINT_URL_SQS=").nth(1);
        let url = url.and_then(|rest| rest.split_whitespace().next());
        (server, url.expect("the line names its address").to_owned())
    });
    let file = plugin("bench-noop");
    let mut words = vec!["run", "--plugin", &file];
    match &server {
        Some((_, url)) => words.extend(["--queues", "group.fifo", "--endpoint-url", url]),
        None => words.extend(["--queues", "local:group.fifo"]),
    }
    words.extend(["--poll-for", "1"]);
    words.extend(reuse.iter().flat_map(|count| ["--reuse", *count]));
    let mut program = Program::start(dispatcher(folder.path(), &words));
    runtime.block_on(drained(&queue, &mut program));
    let took = clock::now().since(program.started).as_secs_f64();
    let cpu = program.cpu().as_secs_f64() / (count as f64 / 1e4);
    program.stop();
    if let Some((server, _)) = server {
        server.stop();
    }
    (count as f64 / took, cpu)
}

/// `dispatcher queues local:` with many queues, from its start to its end.
fn queues(runtime: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalStore::open(folder.path()).expect("a store");
    for number in 0..QUEUES {
        store.queue(&format!("q{number}"), None).expect("a queue");
    }
    let some = Arc::new(store.queue("q7", None).expect("a queue"));
    runtime.block_on(send(&some, "x", BATCH));
    drop((some, store));
    let list = || {
        let started = clock::now();
        let listed = dispatcher(folder.path(), &["queues", "local:"]).output();
        let listed = listed.expect("it starts");
        let took = clock::now().since(started);
        let lines = String::from_utf8_lossy(&listed.stdout).lines().count();
        assert_eq!(lines, QUEUES + 1, "one line for each queue");
        took
    };
    let took = Samples::of((0..LISTS).map(|_| list()));
    println!("`dispatcher queues local:` with {QUEUES} queues: {took}");
}

/// From a send in this process to the line that a guest of an idle runner prints.
fn wake(runtime: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), "wake");
    let file = plugin("verdicts");
    let words = ["run", "--plugin", &file, "--queues", "local:wake"];
    let mut program = Program::start(dispatcher(folder.path(), &words));
    program.line("running");
    let (from_send, from_answer) = lines_after_sends(runtime, &queue, &mut program, WAKES, 40);
    println!("from a send's call to the handler's line:   {from_send}");
    println!("from a send's answer to the handler's line: {from_answer}");
    println!("SIGTERM to exit, idle: {:.0} ms", ms(program.stop()));
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Sends one message after the other, `pause_ms` apart, and waits for the line of each.
fn lines_after_sends(
    runtime: &Runtime,
    queue: &Arc<LocalQueue>,
    program: &mut Program,
    count: usize,
    pause_ms: u64,
) -> (Samples, Samples) {
    let (mut from_send, mut from_answer) = (Vec::new(), Vec::new());
    for number in 0..count {
        // Let the runner settle the last one and wait again.
        sleep(Duration::from_millis(pause_ms));
        let mark = format!("mark-{number}.");
        let called = clock::now();
        runtime.block_on(send(queue, &format!("print:{mark}"), 1));
        let answered = clock::now();
        let (at, _) = program.line(&mark);
        from_send.push(at.since(called));
        from_answer.push(at.since(answered));
    }
    (Samples::of(from_send), Samples::of(from_answer))
}

/// A good guest and the health page alone, and beside guests that never end and keep every guest
/// thread busy.
fn neighbours(runtime: &Runtime) {
    for endless in [0, 1, 4] {
        let folder = tempfile::tempdir().expect("a folder");
        let (good, bad) = (open(folder.path(), "good"), open(folder.path(), "bad"));
        let config = folder.path().join("two.toml");
        let text = format!(
            "[dispatcher]\nadmin = \"127.0.0.1:0\"\n\
             [plugin.verdicts]\nfile = {:?}\ntimeout = \"120s\"\n\
             [[route]]\nqueues = [\"local:bad\"]\nplugin = \"verdicts\"\nconcurrency = 4\n\
             [[route]]\nqueues = [\"local:good\"]\nplugin = \"verdicts\"\n",
            plugin("verdicts")
        );
        std::fs::write(&config, text).expect("our folder");
        let config = config.to_string_lossy().into_owned();
        let words = ["run", "--config", &config, "--shutdown-grace", "0s"];
        let mut program = Program::start(dispatcher(folder.path(), &words));
        let (_, line) = program.line("health and metrics served");
        let address = line.split_whitespace().find_map(|word| {
            let address = word.trim_start_matches("http://").split('/').next()?;
            address.rsplit('=').next()?.parse::<SocketAddr>().ok()
        });
        let address = address.expect("the line names its address");
        program.line("running");
        if endless > 0 {
            runtime.block_on(send(&bad, "loop", endless));
        }
        sleep(Duration::from_millis(500));
        let (from_send, _) = lines_after_sends(runtime, &good, &mut program, WAKES, 20);
        println!("a good guest's line beside {endless} endless ones: {from_send}");
        let asked: Vec<Duration> = (0..WAKES).map(|_| ask_health(address)).collect();
        println!(
            "/healthz beside {endless} endless ones: {}",
            Samples::of(asked)
        );
    }
}

/// How long the health page takes, from the call to the end of the answer.
fn ask_health(address: SocketAddr) -> Duration {
    sleep(Duration::from_millis(20));
    let called = clock::now();
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let took = clock::now().since(called);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    took
}

/// From the start of the process to the line of the first message's handler.
fn start(runtime: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), "start");
    let file = plugin("verdicts");
    let words = ["run", "--plugin", &file, "--queues", "local:start"];
    let once = || {
        runtime.block_on(send(&queue, "print:handled", 1));
        let mut program = Program::start(dispatcher(folder.path(), &words));
        let (at, _) = program.line("handled");
        let took = at.since(program.started);
        (took, program.stop())
    };
    println!("plugin not compiled yet: {:.0} ms", ms(once().0));
    let runs: Vec<_> = (0..20).map(|_| once()).collect();
    let first = Samples::of(runs.iter().map(|run| run.0));
    let stop = Samples::of(runs.iter().map(|run| run.1));
    println!("compiled plugin cached: {first}");
    println!("SIGTERM to exit, right after: {stop}");
}

/// A runner on eight empty queues.
fn idle(_: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = plugin("bench-noop");
    let queues: Vec<String> = (0..8).map(|at| format!("local:idle-{at}")).collect();
    let queues = queues.join(",");
    let words = ["run", "--plugin", &file, "--queues", &queues];
    let mut program = Program::start(dispatcher(folder.path(), &words));
    program.line("running");
    sleep(Duration::from_secs(2));
    let before = program.thread_times();
    sleep(IDLE);
    let share = program.cpu_since(&before).as_secs_f64() / IDLE.as_secs_f64();
    println!(
        "8 idle queues: {:.3} % of a core, {:.1} MiB resident",
        share * 100.0,
        program.memory().0
    );
}
