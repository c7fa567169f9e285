//! What waiting for Lambda costs: memory, threads and processor time of the real program with 1 to
//! 10,000 invocations in flight, none of which is answered before all are there; beside a bare loop
//! on the SDK that holds as many. `cargo bench --bench in_flight -- [local] [tls] [sqs] [bare]`; `tls`
//! is `local` with a Lambda over HTTPS. Prints and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the tests use the rest of it"
)]
#[path = "../../tests/support/faulty_lambda/mod.rs"]
mod faulty_lambda;
#[allow(
    dead_code,
    unused_imports,
    reason = "another benchmark uses the rest of it"
)]
#[path = "support/server/mod.rs"]
mod server;
mod support;

use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::retry::RetryConfig;
use aws_sdk_lambda::config::timeout::TimeoutConfig;
use aws_sdk_lambda::primitives::Blob;
use dispatcher_core::clock;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use faulty_lambda::{FaultyLambda, LambdaStep};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::BenchServer;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;
use support::program::{AWS, Program, dispatcher, print_size};

const IN_FLIGHT: [usize; 4] = [1, 100, 1_000, 10_000];
const BUDGET_MIB: f64 = 256.0;
const BODY: usize = 256;
/// How long all wait together.
const WAIT: Duration = Duration::from_secs(5);
/// Certificates of 0.35 KiB after the first.
const CHAINED: usize = 13;
/// What else is open in a process that holds so many invocations.
const OTHER_FILES: u64 = 200;
type BenchPart = fn(usize, &FaultyLambda) -> FlightCost;
type StartLambda = fn() -> FaultyLambda;
const PARTS: [(&str, StartLambda, BenchPart); 4] = [
    ("local", FaultyLambda::start, local),
    ("tls", over_tls, local),
    ("sqs", FaultyLambda::start, sqs),
    ("bare", FaultyLambda::start, bare),
];
/// Of the tests: a certificate, its key, and who signed it.
const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/e2e/tls");

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--server", port] => server::serve(port.parse().expect("a port")),
        ["--hold", url, count] => hold(url, count.parse().expect("a number")),
        ref parts => measure(parts),
    }
}

fn measure(parts: &[&str]) {
    raise_limit();
    print_size();
    println!(
        "{:<8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>10} {:>10} {:>10}",
        "",
        "in flight",
        "MiB idle",
        "MiB",
        "peak MiB",
        "of 256",
        "threads",
        "s to all",
        "CPU-s",
        "% waiting"
    );
    for (name, start, part) in PARTS {
        if parts.is_empty() || parts.contains(&name) {
            for count in IN_FLIGHT {
                let lambda = start();
                lambda.set_timeout(900);
                lambda.script(|_| LambdaStep::Hold("null".into()));
                part(count, &lambda).print(name, count);
            }
        }
    }
    println!(
        "(CPU-s: from the first message to the last invocation; % waiting: of a core, meanwhile)"
    );
}

/// With a chain as long as one of AWS, about 5 KiB: it is kept for every connection.
fn over_tls() -> FaultyLambda {
    let file = |name: &str| format!("{TLS}/{name}");
    let read = |name: &str| std::fs::read_to_string(file(name)).expect("a file of the tests");
    let folder = tempfile::tempdir().expect("a folder");
    let chain = folder.path().join("chain.pem");
    let text = read("leaf.pem") + &read("ca.pem").repeat(CHAINED);
    std::fs::write(&chain, text).expect("it is ours");
    FaultyLambda::start_tls(&chain, Path::new(&file("leaf.key")))
}

/// Every invocation is an open file on both sides; a child has the limit of its parent.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("up to the hard limit");
    let most = IN_FLIGHT[IN_FLIGHT.len() - 1] as u64 + OTHER_FILES;
    if limit.maximum.is_some_and(|maximum| maximum < most) {
        println!(
            "the hard limit of open files is {:?}: {most} are needed",
            limit.maximum
        );
    }
}

/// What so many in flight came to.
struct FlightCost {
    idle_mib: f64,
    mib: f64,
    peak_mib: f64,
    threads: f64,
    all_there: Duration,
    cpu: Duration,
    /// Of a core, while all waited.
    waiting: f64,
}

impl FlightCost {
    fn print(&self, name: &str, count: usize) {
        println!(
            "{name:<8} {count:>9} {:>9.1} {:>9.1} {:>9.1} {:>8.2} {:>8} {:>10.2} {:>10.2} {:>10.2}",
            self.idle_mib,
            self.mib,
            self.peak_mib,
            self.peak_mib / BUDGET_MIB,
            self.threads,
            self.all_there.as_secs_f64(),
            self.cpu.as_secs_f64(),
            self.waiting * 100.0
        );
    }
}

/// Lets a program that runs and has nothing to do take `count` messages; until all are in flight,
/// and then for some time.
fn taken(
    program: &mut Program,
    lambda: &FaultyLambda,
    count: usize,
    fill: impl FnOnce(&mut Program),
) -> FlightCost {
    let idle_mib = program.memory().0;
    let (begin, cpu) = (clock::now(), program.cpu());
    fill(program);
    lambda.wait(|state| (state.in_flight == count).then_some(()));
    let (all_there, cpu) = (clock::now().since(begin), program.cpu() - cpu);
    let before = program.thread_times();
    sleep(WAIT);
    let waiting = program.cpu_since(&before).as_secs_f64() / WAIT.as_secs_f64();
    let threads = program.threads();
    let mib = program.memory().0;
    lambda.release();
    lambda.wait(|state| (state.in_flight == 0).then_some(()));
    FlightCost {
        idle_mib,
        mib,
        // Also of the answers that came all at once.
        peak_mib: program.memory().1,
        threads,
        all_there,
        cpu,
        waiting,
    }
}

fn forward(data: &Path, queue: &str, count: usize, lambda: &FaultyLambda, sqs: &str) -> Program {
    let count = count.to_string();
    let words = ["run", "--function", "f", "--queues", queue];
    let words = [&words[..], &["--concurrency", &count, "--poll-for", "1"]].concat();
    let mut command = dispatcher(data, &words);
    command
        .env("AWS_ENDPOINT_URL_LAMBDA", lambda.url())
        .env("AWS_ENDPOINT_URL_SQS", sqs)
        .env("SSL_CERT_FILE", format!("{TLS}/ca.pem"));
    let mut program = Program::start(command);
    program.line("running");
    // Its first polls are over.
    sleep(Duration::from_millis(500));
    program
}

/// From the embedded queue.
fn local(count: usize, lambda: &FaultyLambda) -> FlightCost {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = forward(
        folder.path(),
        "local:bench",
        count,
        lambda,
        "http://127.0.0.1:1",
    );
    let store = LocalStore::open(folder.path()).expect("a store");
    let queue = store.queue("bench", None).expect("a queue");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cost = taken(&mut program, lambda, count, |_| {
        let message = OutgoingMessage {
            body: "x".repeat(BODY),
            ..OutgoingMessage::default()
        };
        for start in (0..count).step_by(100) {
            let batch = vec![message.clone(); 100.min(count - start)];
            let sent = runtime.block_on(queue.send(&batch));
            assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        }
    });
    program.stop();
    cost
}

/// From the benchmark's server of SQS.
fn sqs(count: usize, lambda: &FaultyLambda) -> FlightCost {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = BenchServer::start();
    server.queue("bench", 60);
    let mut program = forward(folder.path(), "bench", count, lambda, &server.url);
    let cost = taken(&mut program, lambda, count, |_| {
        server.fill("bench", count, &"x".repeat(BODY));
    });
    server.drained("bench");
    program.stop();
    cost
}

/// The SDK alone.
fn bare(count: usize, lambda: &FaultyLambda) -> FlightCost {
    let mut command = Command::new(std::env::current_exe().expect("our path"));
    command
        .args(["--hold", &lambda.url(), &count.to_string()])
        .envs(AWS);
    let mut program = Program::start(command);
    program.line("ready");
    taken(&mut program, lambda, count, |program| {
        program.send_line("go")
    })
}

/// Holds so many invocations at once, once told to.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn hold(url: &str, count: usize) {
    let config = dispatcher_aws::configuration(Some(url)).await;
    let config = aws_sdk_lambda::config::Builder::from(&config)
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::disabled())
        .build();
    let client = Client::from_conf(config);
    let mut line = String::new();
    println!("ready");
    std::io::stdin().read_line(&mut line).expect("open");
    let calls = (0..count).map(|n| {
        let call = client.invoke().function_name("f");
        let event = format!(
            r#"{{"Records":[{{"messageId":"{n}","body":"{}"}}]}}"#,
            "x".repeat(BODY)
        );
        tokio::spawn(call.payload(Blob::new(event)).send())
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("no panic").expect("answered");
    }
    std::io::stdin().read_line(&mut line).expect("open");
}
