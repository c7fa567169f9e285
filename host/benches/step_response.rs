//! How the control of the real program answers to steps: load, ten times the load, a handler that
//! is ten times slower, its recovery, nothing to do. On the embedded queue, read from the metrics
//! page. `cargo bench --bench step_response -- [PROGRAM]`, another build of it. Prints a table, draws
//! `host/docs/step-response.svg`, and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

#[path = "support/chart.rs"]
mod chart;
mod support;

use chart::{Axes, ChartLine, Panel};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::{LocalQueue, LocalStore};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use support::program::{BINARY, Program, command_of, plugin};
use tokio::runtime::Runtime;

/// One part of the run: its name, how long, messages a second, how long each takes.
type Phase = (&'static str, Duration, f64, u64);

const PHASES: [Phase; 5] = [
    ("load", Duration::from_secs(8), 50.0, 20),
    ("load × 10", Duration::from_secs(8), 500.0, 20),
    ("handler × 10 slower", Duration::from_secs(9), 200.0, 200),
    ("recovery", Duration::from_secs(15), 50.0, 20),
    ("idle", Duration::from_secs(10), 0.0, 0),
];
const ARGUMENTS: [&str; 14] = [
    "run",
    "--log-format",
    "json",
    "--admin",
    "127.0.0.1:0",
    "--concurrency",
    "20",
    "--prefetch",
    "1000",
    "--visibility",
    "4",
    "--reuse",
    "1000",
    "--plugin",
];
const SEND: Duration = Duration::from_millis(20);
const SCRAPE: Duration = Duration::from_millis(100);
/// Rates are of the last so many samples.
const OVER: usize = 5;

/// The metrics page at a time in seconds since the start, and what had been sent until then.
struct Sample {
    at: f64,
    phase: usize,
    sent: f64,
    values: HashMap<String, f64>,
}

impl Sample {
    /// The value of a metric, without its labels; 0 where it has no line.
    fn of(&self, name: &str) -> f64 {
        let name = format!("dispatcher_{name}");
        self.values.get(&name).copied().unwrap_or_default()
    }
}

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let component = plugin("verdicts");
    let mut arguments = ARGUMENTS.to_vec();
    arguments.push(&component);
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let binary = words.next().unwrap_or_else(|| BINARY.to_owned());
    let command = command_of(Path::new(&binary), folder.path(), &arguments);
    let mut program = Program::start(command);
    let (_, line) = program.line("health and metrics served");
    let address = line.split("http://").nth(1).expect("an address");
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    let address = address[..end].to_owned();
    program.line("\"running\"");
    let store = LocalStore::open(folder.path()).expect("a store");
    let queue = store.queue("default", None).expect("a queue");
    let samples = measure(&runtime, &queue, &address);
    println!("stopped in {:.2} s", program.stop().as_secs_f64());
    table(&samples);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/step-response.svg");
    draw(&samples, &path);
    println!("drawn: {}", path.display());
}

/// Sends and looks, phase by phase.
fn measure(runtime: &Runtime, queue: &LocalQueue, address: &str) -> Vec<Sample> {
    let began = clock::now();
    let mut samples: Vec<Sample> = Vec::new();
    let mut sent = 0.0;
    for (phase, (_, lasts, rate, takes_ms)) in PHASES.into_iter().enumerate() {
        let start = clock::now();
        let mut due = 0.0;
        let mut of_phase = 0.0;
        while clock::now().since(start) < lasts {
            due = f64::max(due, rate * seconds(start));
            let mut batch = Vec::new();
            while of_phase + 1.0 <= due {
                of_phase += 1.0;
                batch.push(OutgoingMessage {
                    body: format!("sleep:{takes_ms}"),
                    ..OutgoingMessage::default()
                });
            }
            sent += batch.len() as f64;
            for part in batch.chunks(100) {
                let answers = runtime.block_on(queue.send(part));
                assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            }
            let last = samples.last().map(|sample| sample.at);
            if last.is_none_or(|at| seconds(began) - at >= SCRAPE.as_secs_f64()) {
                samples.push(Sample {
                    at: seconds(began),
                    phase,
                    sent,
                    values: scrape(address),
                });
            }
            sleep(SEND);
        }
    }
    samples
}

fn seconds(since: BootInstant) -> f64 {
    clock::now().since(since).as_secs_f64()
}

/// Every line of the metrics page that is not of a histogram, by its name without labels: there is
/// one route and one queue.
fn scrape(address: &str) -> HashMap<String, f64> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let lines = answer.lines().filter(|line| line.starts_with("dispatcher"));
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        let name = name.split('{').next().unwrap_or(name);
        Some((name.to_owned(), value.parse().ok()?))
    };
    lines.filter_map(value).collect()
}

fn table(samples: &[Sample]) {
    println!(
        "{:<20} {:>7} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12} {:>7}",
        "at the end of",
        "sent/s",
        "done/s",
        "median ms",
        "in flight",
        "limit",
        "wait ms",
        "receives/s",
        "polls"
    );
    let rates = [
        rate(samples, "queue_messages_done_total"),
        receives(samples),
    ];
    for (phase, (name, _, sent, _)) in PHASES.into_iter().enumerate() {
        let last = samples.iter().rposition(|sample| sample.phase == phase);
        let last = last.expect("each phase has samples");
        let sample = &samples[last];
        println!(
            "{name:<20} {sent:>7.0} {:>10.0} {:>10.1} {:>10.0} {:>10.0} {:>10.1} {:>12.1} {:>7.0}",
            rates[0][last].1,
            sample.of("route_attempt_median_seconds") * 1e3,
            sample.of("route_in_flight"),
            sample.of("route_in_flight_limit"),
            sample.of("route_call_wait_seconds") * 1e3,
            rates[1][last].1,
            sample.of("route_polls"),
        );
    }
    let (first, last) = (&samples[0], &samples[samples.len() - 1]);
    let messages = last.of("queue_messages_done_total") - first.of("queue_messages_done_total");
    let calls = last.of("receive_calls_total") - first.of("receive_calls_total");
    println!(
        "{messages:.0} of {:.0} done; {:.3} receives for each; lost leases: {:.0}",
        last.sent,
        calls / messages,
        last.of("queue_leases_lost_total")
    );
}

/// The growth of something each second, over the last samples.
fn growth(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    let at = |index: usize| {
        let (now, before) = (&samples[index], &samples[index.saturating_sub(OVER)]);
        let span = (now.at - before.at).max(SCRAPE.as_secs_f64());
        (now.at, (of(now) - of(before)) / span)
    };
    (0..samples.len()).map(at).collect()
}

fn rate(samples: &[Sample], name: &str) -> Vec<(f64, f64)> {
    growth(samples, |sample| sample.of(name))
}

fn receives(samples: &[Sample]) -> Vec<(f64, f64)> {
    rate(samples, "receive_calls_total")
}

fn draw(samples: &[Sample], path: &Path) {
    let line = |name, points| ChartLine { name, points };
    let gauge = |name, metric: &str, factor: f64| {
        let points = samples.iter();
        line(
            name,
            points
                .map(|sample| (sample.at, sample.of(metric) * factor))
                .collect(),
        )
    };
    let panels = [
        Panel {
            title: "messages a second",
            lines: vec![
                line("done", rate(samples, "queue_messages_done_total")),
                line("sent", growth(samples, |sample| sample.sent)),
            ],
        },
        Panel {
            title: "hand-over time and wait between calls, ms",
            lines: vec![
                gauge("median hand-over", "route_attempt_median_seconds", 1e3),
                gauge("wait", "route_call_wait_seconds", 1e3),
            ],
        },
        Panel {
            title: "messages in flight",
            lines: vec![
                gauge("in flight", "route_in_flight", 1.0),
                gauge("limit", "route_in_flight_limit", 1.0),
            ],
        },
        Panel {
            title: "receives a second",
            lines: vec![
                line("receives", receives(samples)),
                gauge("under way", "route_polls", 1.0),
            ],
        },
    ];
    let mut begin = 0.0;
    let mut marks = Vec::new();
    for (name, lasts, ..) in PHASES {
        marks.push((begin, name));
        begin += lasts.as_secs_f64();
    }
    chart::draw(path, &panels, &Axes::Time(&marks, begin)).expect("drawn");
}
