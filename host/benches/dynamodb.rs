//! Tables of DynamoDB as queues, on MiniStack: claims and tasks a second with the units that they
//! consume, and how the real program holds under five times what it can handle. `cargo bench --bench
//! dynamodb -- [claims] [overload]`. Prints, draws `host/docs/dynamodb-overload.svg`, judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

#[path = "support/chart.rs"]
mod chart;
#[path = "support/overload.rs"]
mod overload;
#[path = "../../tests/support/servers.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "this benchmark uses a part of it"
)]
mod servers;
mod support;
#[path = "support/tables.rs"]
mod tables;

use dispatcher_core::clock;
use dispatcher_core::message::{Outcome, OutgoingMessage};
use dispatcher_core::queue::{Ask, Queue};
use dispatcher_dynamodb::queue::{Completion, Dynamo, DynamoQueue, Options, TableUnits};
use servers::MiniStack;
use std::sync::Arc;
use std::time::Duration;
use tables::{configuration, create};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// How long the server may take to answer first.
const PATIENCE: Duration = Duration::from_secs(60);
const TASKS: usize = 400;
const BODY: usize = 256;
/// Loops that take ten and end ten, in so many open queues, and what becomes of tasks that are done.
const WORKERS: [(usize, usize, Completion); 6] = [
    (1, 1, Completion::Keep),
    (4, 1, Completion::Keep),
    (8, 1, Completion::Keep),
    (8, 4, Completion::Keep),
    (4, 1, Completion::Delete),
    (8, 4, Completion::Delete),
];

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let wanted = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let server = MiniStack::start();
    let runtime = Runtime::new().expect("a runtime");
    if wanted("claims") {
        println!("\nclaims");
        runtime.block_on(claims(&server.url()));
    }
    if wanted("overload") {
        println!("\noverload");
        overload::run(&runtime, &server.url());
    }
}

async fn open(url: &str, name: &str, options: Options) -> DynamoQueue {
    let dynamodb = Dynamo::connect(&configuration(url).await, options);
    dynamodb.open(name, None).await.expect("it was just made")
}

async fn claims(url: &str) {
    println!("{TASKS} tasks with a body of {BODY} bytes; units as the server told, for each task");
    println!(
        "{:<32} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>10}",
        "", "sends/s", "claims/s", "tasks/s", "reads", "writes", "calls", "conflicts"
    );
    for (at, (workers, queues, completed)) in WORKERS.into_iter().enumerate() {
        let name = format!("claims-{at}");
        create(url, &name).await;
        let sender = open(url, &name, Options::default()).await;
        let began = clock::now();
        send(&sender, TASKS).await;
        let sending = clock::now().since(began);
        let mut opened = Vec::new();
        for _ in 0..queues {
            let options = Options {
                completed,
                ..Options::default()
            };
            opened.push(Arc::new(open(url, &name, options).await));
        }
        let began = clock::now();
        let loops = (0..workers).map(|at| tokio::spawn(drain(opened[at % queues].clone())));
        let (mut handled, mut claiming) = (0, Duration::ZERO);
        for each in loops.collect::<Vec<_>>() {
            let (tasks, spent) = each.await.expect("it ends");
            handled += tasks;
            claiming += spent;
        }
        let took = clock::now().since(began);
        assert_eq!(handled, TASKS, "each once");
        let mut all = sender.consumed();
        for queue in &opened {
            add(&mut all, queue.consumed());
        }
        let per = |figure: f64| figure / TASKS as f64;
        println!(
            "{:<32} {:>9.0} {:>9.0} {:>9.0} {:>8.2} {:>8.2} {:>8.2} {:>10.3}",
            format!("{workers} loops, {queues} dispatchers, {completed:?}"),
            TASKS as f64 / sending.as_secs_f64(),
            TASKS as f64 / (claiming.as_secs_f64() / workers as f64),
            TASKS as f64 / took.as_secs_f64(),
            per(all.reads),
            per(all.writes),
            per(all.calls as f64),
            per(all.conflicts as f64),
        );
    }
}

fn add(all: &mut TableUnits, more: TableUnits) {
    all.reads += more.reads;
    all.writes += more.writes;
    all.calls += more.calls;
    all.conflicts += more.conflicts;
}

async fn send(queue: &DynamoQueue, count: usize) {
    let messages = vec![
        OutgoingMessage {
            body: "x".repeat(BODY),
            ..OutgoingMessage::default()
        };
        count
    ];
    for batch in messages.chunks(10) {
        let answers = queue.send(batch).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
}

/// Takes ten and ends ten until there are no more: how many, and how long the taking took.
async fn drain(queue: Arc<DynamoQueue>) -> (usize, Duration) {
    let (mut handled, mut claiming) = (0, Duration::ZERO);
    let ask = Ask {
        max: 10,
        visibility: Duration::from_secs(60),
        wait: Duration::ZERO,
        newest_first: true,
        ..Ask::PLAIN
    };
    loop {
        let began = clock::now();
        let received = queue.receive(ask, &CancellationToken::new()).await;
        claiming += clock::now().since(began);
        let received = received.expect("the server answers");
        let count = received.messages.len();
        let done = received
            .messages
            .into_iter()
            .map(|one| (one, Outcome::Delete));
        let answers = queue.settle(&done.collect::<Vec<_>>()).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        handled += count;
        if received.drained {
            return (handled, claiming);
        }
    }
}
