//! What operating costs: the admin API with 10,000 queues, redrives on each backend, and the memory of a
//! redrive of a million dead letters. `cargo bench --bench operate -- [api] [redrive] [million]`. SQS and
//! DynamoDB are those of MiniStack, whose own time is most of theirs. Prints and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

#[allow(dead_code, unreachable_pub, reason = "the server here is a plain one")]
#[path = "../../tests/support/certificates.rs"]
mod certificates;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/debian.rs"]
mod debian;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/redis.rs"]
mod redis_server;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/servers.rs"]
mod servers;
mod support;
#[path = "support/tables.rs"]
mod tables;
#[allow(unreachable_pub, reason = "tests use it as well")]
#[path = "../../tests/support/tied.rs"]
mod tied;

use dispatcher_core::clock;
use dispatcher_core::queue::Queue;
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_local::queue::LocalStore;
use dispatcher_redis::queue::Redis;
use dispatcher_sqs::queue::Sqs;
use redis_server::RedisServer;
use serde_json::{Value, json};
use servers::MiniStack;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use support::figures::Samples;
use support::program::{Program, dispatcher, plugin};
use support::{admin, letters, queues};
use tokio::runtime::Runtime;

/// How long a server may take to answer first.
const PATIENCE: Duration = Duration::from_secs(60);
const QUEUES: usize = 10_000;
const CALLS: usize = 50;
const MILLION: usize = 1_000_000;
/// How often it is looked whether a job has ended.
const LOOK: Duration = Duration::from_millis(20);

type OperatePart = fn(&Runtime);
const PARTS: [(&str, OperatePart); 3] = [("api", api), ("redrive", redrive), ("million", million)];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<&String> = words.iter().filter(|word| *word != "--bench").collect();
    let runtime = Runtime::new().expect("a runtime");
    for (name, part) in PARTS {
        if parts.is_empty() || parts.iter().any(|part| *part == name) {
            println!("\n{name}");
            part(&runtime);
        }
    }
}

/// A program that runs, with what asks its admin address.
struct OperateCost {
    program: Program,
    address: String,
}

impl OperateCost {
    /// `words` are flags of `run`.
    fn start(folder: &Path, words: &[&str]) -> Self {
        let token = admin::token_file(folder);
        let run = ["run", "--admin", "127.0.0.1:0"];
        let words = [&run[..], &["--admin-token-file", &token], words].concat();
        let mut program = Program::start(dispatcher(folder, &words));
        let address = admin::address(&mut program);
        program.line("running");
        Self { program, address }
    }

    fn act(&self, path: &str, order: &Value) -> Value {
        let (_, answer) = admin::post(&self.address, path, &order.to_string());
        serde_json::from_str(&answer).expect("it is JSON")
    }

    /// Pauses the queue, so that what comes back to it stays there.
    fn pause(&self, queue: &str) {
        self.act(
            &format!("/api/v1/queues/{}/pause", in_path(queue)),
            &json!({}),
        );
    }

    /// Redrives, and what the job came to, once it has ended.
    fn redrive(&self, dead: &str, order: &Value) -> (Duration, Value) {
        let began = clock::now();
        let path = format!("/api/v1/queues/{}/redrive", in_path(dead));
        let mut job = self.act(&path, order);
        while job["state"] == "running" {
            sleep(LOOK);
            let id = job["id"].as_str().expect("it has an id");
            let (_, answer) = admin::get(&self.address, &format!("/api/v1/jobs/{id}"));
            job = serde_json::from_str(&answer).expect("it is JSON");
        }
        assert_eq!(job["state"], "done", "{job}");
        (clock::now().since(began), job["report"].clone())
    }
}

fn in_path(queue: &str) -> String {
    queue.replace(':', "%3A")
}

/// How long the API takes to answer where there are many queues.
fn api(_: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = queues::many(folder.path(), QUEUES);
    let operated = OperateCost::start(folder.path(), &["--config", &file]);
    println!("{QUEUES} local queues, {CALLS} calls each, a connection for each call");
    for path in [
        "/api/v1/overview",
        "/api/v1/queues?limit=100",
        "/api/v1/queues?limit=500",
        "/api/v1/queues?limit=100&depth=true",
        "/api/v1/queues/local%3Aqueue-9999",
        "/api/v1/routes",
        "/api/v1/running",
        "/api/v1/scale",
        "/metrics",
    ] {
        let times = Samples::of((0..CALLS).map(|_| admin::get(&operated.address, path).0));
        println!("{path:<40} {times}");
    }
    let pause = "/api/v1/queues/local%3Aqueue-9999/pause";
    let times = Samples::of((0..CALLS).map(|_| admin::post(&operated.address, pause, "{}").0));
    println!("{:<40} {times}", "POST …/pause");
    println!("resident {:.0} MiB", operated.program.memory().0);
    operated.program.stop();
}

/// A dead-letter queue and the queue that its messages go to.
struct LetterPlace {
    backend: &'static str,
    work: String,
    dead: String,
    /// Letters, and how many are sent at a time.
    letters: usize,
    batch: usize,
    opened: Arc<dyn Queue>,
    /// How the program reaches them.
    flags: Vec<String>,
}

/// How many letters a second are moved, all of them, and those that a filter selects.
fn redrive(runtime: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let (redis, aws) = (RedisServer::start(&[]), MiniStack::start());
    let places = runtime.block_on(async {
        [
            local(folder.path()),
            on_redis(&redis).await,
            on_sqs(&aws.url()).await,
            on_dynamodb(&aws.url()).await,
        ]
    });
    println!(
        "{:<10} {:>8} {:>14} {:>18} {:>10}",
        "", "letters", "all, msg/s", "by reason, msg/s", "peak MiB"
    );
    let handler = plugin("verdicts");
    for place in &places {
        let mut words = vec!["--plugin", &handler];
        words.extend(["--queues", &place.work, "--dead-letter", &place.dead]);
        words.extend(place.flags.iter().map(String::as_str));
        let operated = OperateCost::start(folder.path(), &words);
        operated.pause(&place.work);
        let rate = |reason: Option<&str>| {
            let (work, count) = (&place.work, place.letters);
            runtime.block_on(letters::fill(&place.opened, work, count, place.batch));
            let mut order = json!({"to": work, "scan": count, "apply": true});
            if let Some(reason) = reason {
                order["reason"] = json!(reason);
            }
            let (took, report) = operated.redrive(&place.dead, &order);
            let moved = report["moved"].as_f64().expect("a number");
            assert!((moved - count as f64).abs() < 0.5, "{report}");
            moved / took.as_secs_f64()
        };
        let (all, chosen) = (rate(None), rate(Some("^declined")));
        println!(
            "{:<10} {:>8} {all:>14.0} {chosen:>18.0} {:>10.0}",
            place.backend,
            place.letters,
            operated.program.memory().1
        );
        operated.program.stop();
    }
    println!("(all letters have the reason; SQS and DynamoDB are those of MiniStack)");
}

fn local(folder: &Path) -> LetterPlace {
    let store = LocalStore::open(folder).expect("it opens");
    LetterPlace {
        backend: "local",
        work: "local:work".to_owned(),
        dead: "local:work.dead".to_owned(),
        letters: 100_000,
        batch: 1_000,
        opened: Arc::new(store.queue("work.dead", None).expect("it opens")),
        flags: Vec::new(),
    }
}

async fn on_redis(server: &RedisServer) -> LetterPlace {
    let redis = Redis::new(&server.url(), "bench").expect("an address");
    let opened = redis.queue("work.dead", None).await;
    LetterPlace {
        backend: "redis",
        work: "redis:work".to_owned(),
        dead: "redis:work.dead".to_owned(),
        letters: 100_000,
        batch: 100,
        opened: Arc::new(opened.expect("the server answers")),
        flags: ["--redis-url", &server.url(), "--redis-prefix", "bench"]
            .map(str::to_owned)
            .to_vec(),
    }
}

async fn on_sqs(url: &str) -> LetterPlace {
    let config = tables::configuration(url).await;
    let client = aws_sdk_sqs::Client::new(&config);
    let names = ["redrive-work", "redrive-dead"];
    for name in names {
        let created = client.create_queue().queue_name(name).send().await;
        created.expect("a new queue");
    }
    let [work, dead] = names.map(str::to_owned);
    LetterPlace {
        backend: "SQS",
        opened: Arc::new(Sqs::connect(&config).open(&dead, None).await.expect("made")),
        work,
        dead,
        letters: 5_000,
        batch: 10,
        flags: vec!["--endpoint-url".to_owned(), url.to_owned()],
    }
}

async fn on_dynamodb(url: &str) -> LetterPlace {
    let names = ["redrive-work", "redrive-dead"];
    for name in names {
        tables::create(url, name).await;
    }
    let dynamodb = Dynamo::connect(&tables::configuration(url).await, Options::default());
    let opened = dynamodb.open(names[1], None).await;
    let [work, dead] = names.map(|name| format!("dynamodb:{name}"));
    LetterPlace {
        backend: "DynamoDB",
        work,
        dead,
        letters: 2_000,
        batch: 10,
        opened: Arc::new(opened.expect("it was just made")),
        flags: vec!["--endpoint-url".to_owned(), url.to_owned()],
    }
}

/// The memory of a look at a million letters, and of their redrive.
fn million(runtime: &Runtime) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = local(folder.path());
    runtime.block_on(letters::fill(&place.opened, &place.work, MILLION, 1_000));
    let words = ["--plugin", &plugin("verdicts"), "--queues", &place.work];
    let operated = OperateCost::start(folder.path(), &words);
    operated.pause(&place.work);
    println!(
        "{MILLION} letters; resident before {:.0} MiB",
        operated.program.memory().0
    );
    for apply in [false, true] {
        let order = json!({"to": place.work, "apply": apply});
        let (took, report) = operated.redrive(&place.dead, &order);
        println!(
            "{:<14} {:>6.1} s, {} selected, {} moved, peak {:.0} MiB",
            if apply { "redrive" } else { "dry run" },
            took.as_secs_f64(),
            report["selected"],
            report["moved"],
            operated.program.memory().1
        );
    }
    operated.program.stop();
}
