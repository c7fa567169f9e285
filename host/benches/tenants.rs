//! Tenants that share a queue: how long ten small ones wait beside a big one, and what the big one
//! gets; then what sharing costs where there is one tenant. `cargo bench --bench tenants --
//! [local] [redis] [sqs] [dynamodb] [cost] [many] [CONCURRENCY]`. Prints tables.

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
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/debian.rs"]
mod debian;
#[allow(dead_code, reason = "another benchmark uses the rest of it")]
#[path = "support/server/http.rs"]
mod http;
#[allow(dead_code, reason = "another benchmark uses the rest of it")]
#[path = "support/limited.rs"]
mod limited;
#[path = "support/machine.rs"]
#[allow(dead_code, reason = "another benchmark uses the rest of it")]
mod machine;
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
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::Queue;
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_sqs::queue::Sqs;
use http::{HttpAnswer, HttpConnection};
use limited::{open_local, open_redis, send};
use redis_server::RedisServer;
use servers::MiniStack;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::figures::Samples;
use support::program::{Program, dispatcher};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// How long a server may take to answer first.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages of the big tenant, which wait before the others begin.
const BIG: usize = 10_000;
/// The other tenants, and the messages of each.
const OTHERS: usize = 10;
const EACH: usize = 100;
/// The interval between two messages of the others, whichever.
const PACE: Duration = Duration::from_millis(4);
/// How long a message takes the handler.
const TAKES: Duration = Duration::from_millis(5);
/// How many messages run at once, unless a number is given.
const CONCURRENCY: usize = 50;
/// Tenants of the run with many, each with some messages.
const MANY: usize = 100_000;

/// When each message was started, by its tenant and number.
type Starts = Arc<Mutex<HashMap<String, BootInstant>>>;

/// How much the program does at once.
struct Load {
    runtime: Runtime,
    concurrency: usize,
}

/// The kind of a queue, and what it needs to run.
enum QueueKind {
    Local,
    Redis(RedisServer),
    Sqs { _local: Program, url: String },
    DynamoDb(MiniStack),
}

/// Where a message names its tenant, for the route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TenantRule {
    None,
    Group,
    Attribute,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (numbers, parts): (Vec<String>, Vec<String>) = words
        .into_iter()
        .filter(|word| word != "--bench")
        .partition(|word| word.parse::<usize>().is_ok());
    let concurrency = numbers.first().map_or(CONCURRENCY, |number| {
        number.parse().expect("a number was found")
    });
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|word| word == part);
    machine::print();
    let load = Load {
        runtime: Runtime::new().expect("a runtime"),
        concurrency,
    };
    if wants("local") {
        fairness(
            &load,
            &[TenantRule::None, TenantRule::Group, TenantRule::Attribute],
            "embedded",
            (BIG, EACH),
            || QueueKind::Local,
        );
    }
    if wants("redis") {
        let start = || QueueKind::Redis(RedisServer::start(&[]));
        fairness(
            &load,
            &[TenantRule::None, TenantRule::Group],
            "Redis",
            (BIG, EACH),
            start,
        );
    }
    if wants("sqs") {
        fairness(
            &load,
            &[TenantRule::None, TenantRule::Group],
            "SQS (dispatcher local)",
            (BIG, EACH),
            QueueKind::sqs,
        );
    }
    if wants("dynamodb") {
        let start = || QueueKind::DynamoDb(MiniStack::start());
        fairness(
            &load,
            &[TenantRule::Attribute],
            "DynamoDB (MiniStack)",
            // An emulator that handles some hundred calls a second.
            (BIG / 10, EACH / 5),
            start,
        );
    }
    if wants("cost") {
        cost(&load);
    }
    if wants("many") {
        many(&load);
    }
}

/// Prints what the small tenants wait without and beside the big one, and what that one gets.
fn fairness(
    load: &Load,
    rules: &[TenantRule],
    name: &str,
    (big, each): (usize, usize),
    start: impl Fn() -> QueueKind,
) {
    println!(
        "\n{name}, {} at once: from send to start of {OTHERS} tenants with {each} messages each, \
         beside one with {big}",
        load.concurrency
    );
    for &rule in rules {
        let alone = load.run(&start(), rule, 0, each);
        let only_big = load.run(&start(), rule, big, 0);
        let both = load.run(&start(), rule, big, each);
        let named = match rule {
            TenantRule::None => "no tenants",
            TenantRule::Group => "by group",
            TenantRule::Attribute => "by attribute",
        };
        println!("{named:<14} others alone      {}", Samples::of(alone.waits));
        println!("{:<14} their sends       {}", "", Samples::of(alone.sends));
        println!("{:<14} beside the big    {}", "", Samples::of(both.waits));
        println!("{:<14} their sends       {}", "", Samples::of(both.sends));
        println!(
            "{:<14} big alone {:>6.0}/s, beside others {:>6.0}/s and {:>4.0}/s of theirs: {:.2} of it",
            "",
            only_big.rate,
            both.rate,
            both.others_rate,
            (both.rate + both.others_rate) / only_big.rate
        );
    }
}

/// The figures of one run.
struct RunFigures {
    /// The times from send to start of the small tenants.
    waits: Vec<Duration>,
    /// The times that their sends took until they were answered.
    sends: Vec<Duration>,
    /// The starts of the big tenant in a second, from its first to its last.
    rate: f64,
    /// The starts of the others in a second, in that time.
    others_rate: f64,
}

impl Load {
    fn run(&self, place: &QueueKind, rule: TenantRule, big: usize, each: usize) -> RunFigures {
        let folder = tempfile::tempdir().expect("a folder");
        let starts = Starts::default();
        let address = self.runtime.block_on(serve(starts.clone()));
        self.runtime.block_on(async {
            let queue = place.open(folder.path()).await;
            let backlog: Vec<_> = (0..big)
                .map(|number| message("big", number, rule))
                .collect();
            send_all(&*queue, &backlog).await;
            let mut program = place.start(folder.path(), &address, rule, self.concurrency);
            // What waits was sorted by tenant when the program started.
            until(&starts, big / 10).await;
            let mut sent = Vec::new();
            let mut pace = tokio::time::interval(PACE);
            for number in 0..each * OTHERS {
                pace.tick().await;
                let tenant = format!("small-{}", number % OTHERS);
                let message = message(&tenant, number, rule);
                let (body, began) = (message.body.clone(), clock::now());
                send(&*queue, &[message]).await;
                sent.push((body, began, clock::now()));
            }
            until(&starts, big + each * OTHERS).await;
            program.assert_running();
            program.stop();
            let starts = starts.lock().expect("no panic");
            let waits = sent
                .iter()
                .map(|(body, began, _)| starts[body].since(*began));
            let sends = sent.iter().map(|(_, began, ended)| ended.since(*began));
            let of_big: Vec<BootInstant> = of(&starts, "big");
            let (rate, others_rate) = match (of_big.iter().min(), of_big.iter().max()) {
                (Some(first), Some(last)) => {
                    let seconds = last.since(*first).as_secs_f64();
                    let within = of(&starts, "small").into_iter().filter(|at| at <= last);
                    (
                        of_big.len() as f64 / seconds,
                        within.count() as f64 / seconds,
                    )
                }
                _ => (0.0, 0.0),
            };
            RunFigures {
                waits: waits.collect(),
                sends: sends.collect(),
                rate,
                others_rate,
            }
        })
    }
}

fn of(starts: &HashMap<String, BootInstant>, prefix: &str) -> Vec<BootInstant> {
    let own = starts.iter().filter(|(body, _)| body.starts_with(prefix));
    own.map(|(_, at)| *at).collect()
}

/// Waits until so many messages were started.
async fn until(starts: &Starts, count: usize) {
    while starts.lock().expect("no panic").len() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn message(tenant: &str, number: usize, rule: TenantRule) -> OutgoingMessage {
    OutgoingMessage {
        body: format!("{tenant} {number}"),
        group: (rule == TenantRule::Group).then(|| tenant.to_owned()),
        attributes: match rule {
            TenantRule::Attribute => vec![Attribute::text("customer", tenant)],
            TenantRule::None | TenantRule::Group => Vec::new(),
        },
        ..OutgoingMessage::default()
    }
}

/// Sends at once as much as the queue takes.
async fn send_all(queue: &dyn Queue, messages: &[OutgoingMessage]) {
    for batch in messages.chunks(queue.identity().batch.clamp(1, 100)) {
        for sent in queue.send(batch).await {
            sent.expect("sent");
        }
    }
}

/// Serves the handler: records when a message starts, and takes its time.
async fn serve(starts: Starts) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = format!("http://{}/", listener.local_addr().expect("bound"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("a TCP stream");
            let starts = starts.clone();
            tokio::spawn(async move {
                let mut connection = HttpConnection::new(stream);
                while let Ok(Some(request)) = connection.request().await {
                    let body = String::from_utf8(request.body).expect("text");
                    starts
                        .lock()
                        .expect("no panic")
                        .entry(body)
                        .or_insert_with(clock::now);
                    tokio::time::sleep(TAKES).await;
                    let answer = HttpAnswer {
                        status: 200,
                        error: None,
                        body: Vec::new(),
                    };
                    if connection.respond(&answer).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

impl QueueKind {
    fn sqs() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let words = ["local", "--memory", "--listen", "127.0.0.1:0"];
        let mut local = Program::start(dispatcher(folder.path(), &words));
        let (_, line) = local.line("AWS_ENDPOINT_URL_SQS=");
        let (_, rest) = line
            .split_once("AWS_ENDPOINT_URL_SQS=")
            .expect("an address");
        let url = rest
            .split_whitespace()
            .next()
            .expect("an address")
            .to_owned();
        Self::Sqs { _local: local, url }
    }

    /// Opens a new queue.
    async fn open(&self, folder: &Path) -> Box<dyn Queue> {
        match self {
            Self::Local => open_local(folder, "work"),
            Self::Redis(server) => open_redis(server, "work").await,
            Self::Sqs { url, .. } => {
                let config = tables::configuration(url).await;
                let client = aws_sdk_sqs::Client::new(&config);
                let made = client.create_queue().queue_name("work").send().await;
                made.expect("a new queue");
                let opened = Sqs::connect(&config).open("work", None).await;
                Box::new(opened.expect("it was just made"))
            }
            Self::DynamoDb(server) => {
                let url = server.url();
                tables::create(&url, "work").await;
                let client =
                    Dynamo::connect(&tables::configuration(&url).await, Options::default());
                Box::new(client.open("work", None).await.expect("it was just made"))
            }
        }
    }

    /// Starts the program on the queue.
    fn start(&self, folder: &Path, handler: &str, rule: TenantRule, concurrency: usize) -> Program {
        let (queue, backend, url) = match self {
            Self::Local => ("local:work", String::new(), None),
            Self::Redis(server) => {
                let url = format!("[backend.redis]\nurl = \"{}\"\n", server.url());
                ("redis:work", url, None)
            }
            Self::Sqs { url, .. } => ("work", String::new(), Some(url.clone())),
            Self::DynamoDb(server) => ("dynamodb:work", String::new(), Some(server.url())),
        };
        let exact = matches!(self, Self::Local | Self::Redis(_));
        let rules = match rule {
            TenantRule::None => String::new(),
            TenantRule::Group if exact => "tenant = \"group\"\n".to_owned(),
            TenantRule::Group => "tenant = \"group\"\nprefetch = 100\n".to_owned(),
            TenantRule::Attribute => "tenant = \"customer\"\nprefetch = 100\n".to_owned(),
        };
        let text = format!(
            "{backend}[plugin.p]\nforward = \"{handler}\"\n[[route]]\nplugin = \"p\"\n\
             queues = [\"{queue}\"]\nconcurrency = {concurrency}\n{rules}"
        );
        let file = folder.join("tenants.toml");
        std::fs::write(&file, text).expect("the folder is ours");
        let mut command = dispatcher(folder, &["run", "--config", &file.display().to_string()]);
        if let Some(url) = url {
            command.env("AWS_ENDPOINT_URL", url);
        }
        let mut program = Program::start(command);
        program.line("running");
        program
    }
}

/// Prints the throughput of one tenant with and without sharing, in turns.
fn cost(load: &Load) {
    println!("\nembedded: one tenant, {BIG} messages");
    for round in 0..3 {
        for (name, rule) in [
            ("no tenants", TenantRule::None),
            ("by group", TenantRule::Group),
        ] {
            let shown = load.run(&QueueKind::Local, rule, BIG, 0);
            println!("round {round}, {name:<12} {:>6.0}/s", shown.rate);
        }
    }
}

/// Prints what many tenants cost.
fn many(load: &Load) {
    let runtime = &load.runtime;
    println!("\nembedded: {MANY} tenants with one message each");
    let folder = tempfile::tempdir().expect("a folder");
    let starts = Starts::default();
    let address = runtime.block_on(serve(starts.clone()));
    let queue = open_local(folder.path(), "work");
    let messages: Vec<_> = (0..MANY)
        .map(|number| message(&format!("tenant-{number}"), number, TenantRule::Group))
        .collect();
    runtime.block_on(send_all(&*queue, &messages));
    let program =
        QueueKind::Local.start(folder.path(), &address, TenantRule::Group, load.concurrency);
    let (before, began) = (program.memory(), clock::now());
    runtime.block_on(until(&starts, MANY / 10));
    let rate = (MANY / 10) as f64 / clock::now().since(began).as_secs_f64();
    println!(
        "{rate:.0}/s, {:.0} MB at the start, {:.0} MB at the most",
        before.0,
        program.memory().1
    );
}
