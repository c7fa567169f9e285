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
#[path = "support/contest.rs"]
mod contest;
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
use brokers::{RedisBroker, SqsBroker};
use contest::{Extent, FULL, Job, QUICK, peer, tables};
use jobs::JobKind;
use lean::Lean;
use serde_json::Value;
use sidekiq::Sidekiq;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::peers::{ORDER, Peers};
use support::program::{AWS, dispatcher, plugin, print_size};

/// How long a server may take to answer first.
const PATIENCE: Duration = Duration::from_secs(60);
const REUSED: [&str; 2] = ["--reuse", "1000000"];
/// Holds the next messages while others are handled.
const PREFETCH: [&str; 2] = ["--prefetch", "50"];

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
    machine::print();
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
        peer("raw HTTP client", (), |job: &Job| own("--raw", job)),
        peer("bare loop on the Rust SDK", (), |job: &Job| {
            own("--bare", job)
        }),
    ];
    for (name, mode) in [
        ("npm sqs-consumer, singly", "singly"),
        ("npm sqs-consumer, batch", "batch"),
    ] {
        if let Some(peers) = peers {
            let url = &url;
            all.push(peer(name, (), move |job: &Job| {
                peers.consumers((url, job.queue), mode, job.loops(), job.wait_s, ORDER[0])
            }));
        }
    }
    for (name, more) in [("fresh", vec![]), ("reused", REUSED.to_vec())] {
        let (name, url) = (format!("dispatcher, {name}"), &url);
        all.push(peer(&name, (), move |job: &Job| {
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
