//! How cost grows with size: the real program with 10 to 10,000 queues, ten for each route, on the
//! embedded queue and on SQS. `cargo bench --bench scale -- [local] [sqs] [QUEUES…] [PROGRAM]`, another
//! build of it. Prints a table for each; where both were measured at all sizes, draws
//! `host/docs/scale.svg`. Judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

#[path = "support/chart.rs"]
mod chart;
#[path = "support/machine.rs"]
mod machine;
#[allow(
    dead_code,
    unused_imports,
    reason = "another benchmark uses the rest of it"
)]
#[path = "support/server/mod.rs"]
mod server;
mod support;

use chart::{Axes, ChartLine, Panel};
use dispatcher_core::clock;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::{LocalQueue, LocalStore};
use serde_json::json;
use server::BenchServer;
use std::fmt::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use support::admin;
use support::figures::Samples;
use support::program::{BINARY, Program, command_of, plugin};
use tokio::runtime::Runtime;

const SIZES: [usize; 5] = [10, 100, 1_000, 3_000, 10_000];
const OF_ROUTE: usize = 10;
/// Of each route. The kernel's usual limit of mappings (`vm.max_map_count`) has room for 10,000
/// instances in a process, whichever routes they are of.
const CONCURRENCY: usize = 5;
const WAKES: usize = 50;
/// Between two lone messages, so that the queue waits again.
const PAUSE: Duration = Duration::from_millis(50);
/// Where the messages go is by chance, and by the same in every run.
const SEED: u64 = 4_711;

/// A way of keeping queues.
#[derive(Clone, Copy, PartialEq)]
enum Backend {
    Local,
    Sqs,
}

impl Backend {
    const ALL: [Self; 2] = [Self::Local, Self::Sqs];

    fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Sqs => "sqs",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Local => "embedded queue",
            Self::Sqs => "SQS",
        }
    }

    /// What comes before the name of a queue.
    fn prefix(self) -> &'static str {
        match self {
            Self::Local => "local:",
            Self::Sqs => "",
        }
    }

    /// Until a start has no effect any more: on SQS, until each queue is in its second long poll.
    fn settle(self) -> Duration {
        Duration::from_secs(match self {
            Self::Local => 5,
            Self::Sqs => 25,
        })
    }

    /// For how long nothing is done; on SQS two long polls of 20 s.
    fn idle(self) -> Duration {
        Duration::from_secs(match self {
            Self::Local => 30,
            Self::Sqs => 40,
        })
    }
}

/// What one size came to.
struct SizeRow {
    queues: usize,
    start_s: f64,
    /// Of one core.
    idle_percent: f64,
    resident_mib: f64,
    threads: f64,
    /// Calls to the server; none on the embedded queue.
    calls_a_minute: Option<f64>,
    wakes: Samples,
    metrics_ms: f64,
    /// With what `/metrics` took.
    peak_mib: f64,
    /// What else ran while nothing was done, of all cores.
    others_percent: f64,
}

impl SizeRow {
    fn of_queue(&self, value: f64) -> f64 {
        value / self.queues as f64
    }

    /// Processor time of a second for each queue; millionths of a core.
    fn cpu_of_queue_us(&self) -> f64 {
        self.of_queue(self.idle_percent * 1e4)
    }

    fn memory_of_queue_kib(&self) -> f64 {
        self.of_queue(self.resident_mib * 1024.0)
    }

    fn start_of_queue_ms(&self) -> f64 {
        self.of_queue(self.start_s * 1e3)
    }
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    if let [word, port] = &words[..]
        && word == "--server"
    {
        return server::serve(port.parse().expect("a port"));
    }
    let named: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let sizes = SIZES.into_iter();
    let sizes: Vec<usize> = sizes
        .filter(|size| named.is_empty() || named.contains(size))
        .collect();
    let is_named = |backend: &Backend| words.iter().any(|word| word == backend.name());
    let all = !Backend::ALL.iter().any(is_named);
    let binary = words.iter().find(|word| word.contains('/'));
    let binary = Path::new(binary.map_or(BINARY, |binary| binary));
    let runtime = Runtime::new().expect("a runtime");
    machine::print();
    let mut tables = Vec::new();
    for backend in Backend::ALL {
        if all || is_named(&backend) {
            let rows = sizes
                .iter()
                .map(|size| measure(&runtime, binary, backend, *size));
            let rows: Vec<SizeRow> = rows.collect();
            print(backend, &rows);
            tables.push((backend, rows));
        }
    }
    if all && sizes == SIZES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/scale.svg");
        draw(&tables, &path);
        println!("\ndrawn: {}", path.display());
    }
}

/// Where lone messages are sent.
enum Sender<'a> {
    Local(&'a Runtime, LocalStore),
    Sqs(BenchServer),
}

impl Sender<'_> {
    fn send(&mut self, queue: &str, body: String) {
        match self {
            Self::Sqs(server) => server.fill(queue, 1, &body),
            Self::Local(runtime, store) => {
                let queue: LocalQueue = store.queue(queue, None).expect("a queue");
                let message = OutgoingMessage {
                    body,
                    ..OutgoingMessage::default()
                };
                let sent = runtime.block_on(queue.send(&[message]));
                assert!(sent.iter().all(Result::is_ok), "{sent:?}");
            }
        }
    }
}

fn measure(runtime: &Runtime, binary: &Path, backend: Backend, queues: usize) -> SizeRow {
    let folder = tempfile::tempdir().expect("a folder");
    let names: Vec<String> = (0..queues).map(|at| format!("queue-{at}")).collect();
    let mut sender = filled(runtime, backend, folder.path(), &names);
    compile(binary, folder.path());
    let file = configuration(folder.path(), backend, &names);
    let mut words = vec!["run", "--config", &file, "--admin", "127.0.0.1:0"];
    let url = match &sender {
        Sender::Sqs(server) => Some(server.url.clone()),
        Sender::Local(..) => None,
    };
    if let Some(url) = &url {
        words.extend(["--endpoint-url", url]);
    }
    let mut program = Program::start(command_of(binary, folder.path(), &words));
    let address = admin::address(&mut program);
    // One line for each route.
    let lines = (0..queues / OF_ROUTE).map(|_| program.line("running").0);
    let ready = lines.last().expect("there is a route");
    let start_s = ready.since(program.started).as_secs_f64();
    sleep(backend.settle());
    if let Sender::Sqs(server) = &mut sender {
        server.calls();
    }
    let (before, busy) = (program.thread_times(), machine::busy());
    let server_before = server_cpu(&sender);
    let idle = backend.idle();
    sleep(idle);
    let cpu = program.cpu_since(&before).as_secs_f64() / idle.as_secs_f64();
    let others = (machine::busy() - busy).as_secs_f64() / idle.as_secs_f64();
    let of_server = (server_cpu(&sender) - server_before).as_secs_f64() / idle.as_secs_f64();
    let others = (others - cpu - of_server).max(0.0) / machine::cores() as f64;
    let calls = match &mut sender {
        Sender::Sqs(server) => Some(server.calls().all as f64 / idle.as_secs_f64() * 60.0),
        Sender::Local(..) => None,
    };
    let (resident_mib, _) = program.memory();
    let threads = program.threads();
    let wakes = wakes(&mut sender, &mut program, &names);
    let (metrics, _) = admin::get(&address, "/metrics");
    SizeRow {
        queues,
        start_s,
        idle_percent: cpu * 100.0,
        resident_mib,
        threads,
        calls_a_minute: calls,
        wakes,
        metrics_ms: metrics.as_secs_f64() * 1e3,
        peak_mib: program.memory().1,
        others_percent: others * 100.0,
    }
}

fn server_cpu(sender: &Sender<'_>) -> Duration {
    match sender {
        Sender::Sqs(server) => server.cpu(),
        Sender::Local(..) => Duration::ZERO,
    }
}

/// Makes the queues.
fn filled<'a>(
    runtime: &'a Runtime,
    backend: Backend,
    folder: &Path,
    names: &[String],
) -> Sender<'a> {
    match backend {
        Backend::Local => {
            let store = LocalStore::open(folder).expect("it opens");
            for name in names {
                drop(store.queue(name, None).expect("it opens"));
            }
            Sender::Local(runtime, store)
        }
        Backend::Sqs => {
            let mut server = BenchServer::start();
            for name in names {
                server.queue(name, 30);
            }
            Sender::Sqs(server)
        }
    }
}

/// Has the handler compiled, which is then kept in the folder, so that no start has a part of it.
fn compile(binary: &Path, folder: &Path) {
    let component = plugin("verdicts");
    let words = ["run", "--plugin", &component, "--queues", "local:compile"];
    let mut program = Program::start(command_of(binary, folder, &words));
    program.line("running");
    program.stop();
}

/// Writes a configuration in which each route receives from ten of the queues.
fn configuration(folder: &Path, backend: Backend, names: &[String]) -> String {
    let mut text = format!("[plugin.p]\nfile = {}\n", json!(plugin("verdicts")));
    for (number, names) in names.chunks(OF_ROUTE).enumerate() {
        let names = names.iter().map(|name| backend.prefix().to_owned() + name);
        let names = json!(names.collect::<Vec<_>>());
        let route = format!("[[route]]\nname = \"route-{number}\"\nqueues = {names}\n");
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{route}plugin = \"p\"\nconcurrency = {CONCURRENCY}");
    }
    let file = folder.join("scale.toml");
    std::fs::write(&file, text).expect("the folder is ours");
    file.display().to_string()
}

/// From a send's call to the handler's line, for one message after the other.
fn wakes(sender: &mut Sender<'_>, program: &mut Program, names: &[String]) -> Samples {
    let mut chance = fastrand::Rng::with_seed(SEED);
    let times = (0..WAKES).map(|number| {
        sleep(PAUSE);
        let name = &names[chance.usize(..names.len())];
        let mark = format!("mark-{number}.");
        let called = clock::now();
        sender.send(name, format!("print:{mark}"));
        program.line(&mark).0.since(called)
    });
    Samples::of(times.collect::<Vec<_>>())
}

/// One figure of a row: its heading and how it is written.
type Column = (&'static str, fn(&SizeRow) -> String);

const COLUMNS: [Column; 15] = [
    ("queues", |row| row.queues.to_string()),
    ("routes", |row| (row.queues / OF_ROUTE).to_string()),
    ("start s", |row| format!("{:.2}", row.start_s)),
    ("idle, % of a core", |row| {
        format!("{:.2}", row.idle_percent)
    }),
    ("resident MiB", |row| format!("{:.0}", row.resident_mib)),
    ("threads", |row| format!("{:.0}", row.threads)),
    ("calls a minute", |row| calls(row.calls_a_minute, 0)),
    ("wake-up p50 ms", |row| format!("{:.1}", row.wakes.at(50))),
    ("p99 ms", |row| format!("{:.1}", row.wakes.at(99))),
    ("`/metrics` ms", |row| format!("{:.0}", row.metrics_ms)),
    ("peak MiB after it", |row| format!("{:.0}", row.peak_mib)),
    ("idle µs/s for a queue", |row| {
        format!("{:.1}", row.cpu_of_queue_us())
    }),
    ("KiB for a queue", |row| {
        format!("{:.0}", row.memory_of_queue_kib())
    }),
    ("start ms for a queue", |row| {
        format!("{:.2}", row.start_of_queue_ms())
    }),
    ("calls a minute for a queue", |row| {
        calls(row.calls_a_minute.map(|calls| row.of_queue(calls)), 2)
    }),
];

fn calls(calls: Option<f64>, digits: usize) -> String {
    calls.map_or_else(|| "–".to_owned(), |calls| format!("{calls:.digits$}"))
}

fn print(backend: Backend, rows: &[SizeRow]) {
    println!("\n**{}**\n", backend.title());
    println!("| {} |", COLUMNS.map(|(name, _)| name).join(" | "));
    println!("|{}", " --- |".repeat(COLUMNS.len()));
    for row in rows {
        println!("| {} |", COLUMNS.map(|(_, read)| read(row)).join(" | "));
    }
    let others = Samples::of_ms(rows.iter().map(|row| row.others_percent));
    println!(
        "\nOther work took {:.0} to {:.0} % of the machine meanwhile.",
        others.at(0),
        others.at(100)
    );
}

fn draw(tables: &[(Backend, Vec<SizeRow>)], path: &Path) {
    let panel = |title, of: fn(&SizeRow) -> f64| {
        let line = |(backend, rows): &(Backend, Vec<SizeRow>)| ChartLine {
            name: backend.title(),
            points: rows
                .iter()
                .map(|row| (row.queues as f64, of(row)))
                .collect(),
        };
        Panel {
            title,
            lines: tables.iter().map(line).collect(),
        }
    };
    let panels = [
        panel(
            "resident memory for each queue, KiB, by the number of queues",
            SizeRow::memory_of_queue_kib,
        ),
        panel(
            "idle processor time for each queue, µs a second",
            SizeRow::cpu_of_queue_us,
        ),
        panel("start for each queue, ms", SizeRow::start_of_queue_ms),
    ];
    chart::draw(path, &panels, &Axes::Logarithms).expect("drawn");
}
