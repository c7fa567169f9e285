//! Queues in PostgreSQL: the program beside graphile-worker, pg-boss and a bare loop on pgmq's functions,
//! in one run on one server that waits for its disk. `cargo bench --bench postgres -- [quick]`. Prints
//! Markdown; `quick` shows only that everything runs. Judges nothing.

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
#[allow(dead_code, reason = "SQS has long polls")]
#[path = "support/contest.rs"]
mod contest;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/debian.rs"]
mod debian;
#[path = "support/machine.rs"]
mod machine;
#[path = "support/pgmq.rs"]
mod pgmq;
#[path = "support/postgres.rs"]
mod postgres;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/postgres.rs"]
mod postgres_server;
#[path = "support/rows.rs"]
mod rows;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/servers.rs"]
mod servers;
mod support;
#[allow(unreachable_pub, reason = "tests use it as well")]
#[path = "../../tests/support/tied.rs"]
mod tied;

use contest::{Extent, FULL, Job, QUICK, peer, tables};
use postgres::{PostgresBroker, PostgresJobs, name};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::peers::{PGMQ, Peers};
use support::program::{dispatcher, plugin, print_size};
use tokio::runtime::Runtime;

/// How long a server may take to answer first.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is measured. pg-boss wakes up twice a second.
const EXTENT: Extent = Extent {
    at_once: &[50],
    idle: Duration::from_secs(5),
    wakes: 60,
    ..FULL
};
/// How the program runs, beside its defaults.
const WAYS: [(&str, &[&str]); 3] = [
    ("dispatcher, fresh", &[]),
    ("dispatcher, reused", &["--reuse", "1000000"]),
    (
        "dispatcher, reused, prefetch",
        &["--reuse", "1000000", "--prefetch", "200"],
    ),
];

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--pgmq", url, queue, loops] => pgmq::run(url, queue, loops.parse().expect("a number")),
        ref parts => measure(parts.contains(&"quick")),
    }
}

fn measure(quick: bool) {
    machine::print();
    print_size();
    let peers = Peers::install().expect("Node.js with npm");
    let runtime = Runtime::new().expect("a runtime");
    let data = tempfile::tempdir().expect("a folder");
    let mut broker = PostgresBroker::start(&runtime);
    let url = broker.url();
    peers.install_in(&url).expect("the peers can be installed");
    init(data.path(), &url);
    println!(
        "{}; graphile-worker {}, pg-boss {}, the SQL of {} for Python",
        broker.version(),
        peers.version("graphile-worker").unwrap_or_default(),
        peers.version("pg-boss").unwrap_or_default(),
        PGMQ[0],
    );
    let this = std::env::current_exe().expect("our path");
    let (url, peers) = (&url, &peers);
    let mut all = vec![
        peer("graphile-worker", PostgresJobs::Graphile, |job: &Job| {
            peers.graphile(url, &name(job.queue), job.at_once)
        }),
        peer("pg-boss", PostgresJobs::PgBoss, |job: &Job| {
            peers.pg_boss(url, &name(job.queue), job.loops())
        }),
        peer("pgmq in a loop", PostgresJobs::Pgmq, |job: &Job| {
            let mut command = Command::new(&this);
            command.args(["--pgmq", url, &name(job.queue), &job.loops().to_string()]);
            command
        }),
    ];
    for (way, more) in WAYS {
        let data = data.path();
        all.push(peer(way, PostgresJobs::Dispatcher, move |job: &Job| {
            run(data, url, job, more)
        }));
    }
    let extent = if quick { QUICK } else { EXTENT };
    tables("PostgreSQL", "statements", &mut broker, &all, extent);
}

fn init(data: &Path, url: &str) {
    let done = dispatcher(data, &["postgres", "init"])
        .env("DISPATCHER_POSTGRES_URL", url)
        .output()
        .expect("it starts");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// The program with the handler of the template's kind, which prints what it handles.
fn run(data: &Path, url: &str, job: &Job, more: &[&str]) -> Command {
    let (plugin, at_once) = (plugin("order-check"), job.at_once.to_string());
    let queue = format!("postgres:{}", name(job.queue));
    let level = if job.prints { "info" } else { "warn,guest=off" };
    let words = [
        "run",
        "--plugin",
        &plugin,
        "--queues",
        &queue,
        "--concurrency",
        &at_once,
        "--log-level",
        level,
    ];
    let mut command = dispatcher(data, &[&words[..], more].concat());
    command.env("DISPATCHER_POSTGRES_URL", url);
    command
}
