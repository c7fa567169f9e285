//! How fast `dispatcher local` serves, durably, beside MiniStack in the same run: 16 lean clients
//! that send, receive and delete ten messages a call; and how soon a long poll wakes.
//! `cargo bench --bench served -- [cycle] [wake]`. Prints and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

#[path = "support/lean.rs"]
mod lean;
mod support;

use dispatcher_core::clock;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use lean::Lean;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::figures::Samples;
use support::program::{Program, dispatcher};

const CLIENTS: usize = 16;
const BODY: usize = 200;
const WAKES: usize = 300;
/// Messages for each server: MiniStack is slower, and the time is about the same.
const MESSAGES: [(&str, usize); 2] = [("dispatcher local", 200_000), ("MiniStack", 40_000)];

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["--clients", address, queues, messages] => clients(
            address,
            queues.parse().expect("a number"),
            messages.parse().expect("a number"),
        ),
        ref parts => {
            let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
            if wanted("cycle") {
                cycle();
            }
            if wanted("wake") {
                wake();
            }
        }
    }
}

/// A server that answers, and where.
struct ServedServer {
    program: Program,
    address: String,
    /// What it holds.
    _folder: tempfile::TempDir,
}

impl ServedServer {
    fn local() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut program = Program::start(dispatcher(
            folder.path(),
            &["local", "--listen", "127.0.0.1:0"],
        ));
        let (_, line) = program.line("AWS_ENDPOINT_URL_SQS=http://");
        let (_, rest) = line.split_once("http://").expect("an address");
        let address = rest.split_whitespace().next().expect("an address");
        Self {
            address: address.to_owned(),
            program,
            _folder: folder,
        }
    }

    /// The one that the tests install, if they have.
    fn ministack() -> Option<Self> {
        let tools = match std::env::var_os("DISPATCHER_TOOLS") {
            Some(folder) => PathBuf::from(folder),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools"),
        };
        let mut found: Vec<PathBuf> = std::fs::read_dir(&tools)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path().join("bin/ministack")))
            .filter(|path| path.exists())
            .collect();
        found.sort();
        let folder = tempfile::tempdir().expect("a folder");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let mut command = Command::new(found.pop()?);
        command
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("MINISTACK_HOST", "127.0.0.1")
            .current_dir(folder.path());
        let program = Program::start(command);
        let address = format!("127.0.0.1:{port}");
        while std::net::TcpStream::connect(&address).is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(Self {
            program,
            address,
            _folder: folder,
        })
    }
}

fn cycle() {
    println!(
        "send 10, receive 10, delete 10: {CLIENTS} lean clients, bodies of {BODY} bytes\n{:<18} {:>7} {:>9} {:>11} {:>12} {:>12}",
        "", "queues", "msg/s", "calls/s", "server CPU-s", "client CPU-s"
    );
    println!(
        "{:<18} {:>7} {:>9} {:>11} {:>12} {:>12}",
        "", "", "", "", "/10,000", "/10,000"
    );
    for (name, messages) in MESSAGES {
        for queues in [1, CLIENTS] {
            let server = match name {
                "MiniStack" => ServedServer::ministack(),
                _ => Some(ServedServer::local()),
            };
            let Some(server) = server else {
                println!("{name:<18} not installed: any test that needs SQS installs it");
                continue;
            };
            let this = std::env::current_exe().expect("our path");
            let mut command = Command::new(this);
            command.args([
                "--clients",
                &server.address,
                &queues.to_string(),
                &messages.to_string(),
            ]);
            let mut clients = Program::start(command);
            clients.line("ready");
            let before = (server.program.cpu(), clients.cpu());
            clients.send_line("go");
            let (_, line) = clients.line("done");
            let after = (server.program.cpu(), clients.cpu());
            let seconds: f64 = line.trim_start_matches("done ").parse().expect("a number");
            let each = |before: Duration, after: Duration| {
                (after - before).as_secs_f64() / messages as f64 * 1e4
            };
            println!(
                "{name:<18} {queues:>7} {:>9.0} {:>11.0} {:>12.3} {:>12.3}",
                messages as f64 / seconds,
                messages as f64 / seconds * 0.3,
                each(before.0, after.0),
                each(before.1, after.1)
            );
        }
    }
}

/// As its own process, so that its cost is told apart.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn clients(address: &str, queues: usize, messages: usize) {
    let mut setup = Lean::connect(address).await;
    let mut urls = Vec::new();
    for number in 0..queues {
        urls.push(setup.create(&format!("bench-{number}")).await);
    }
    let mut all = Vec::new();
    for number in 0..CLIENTS {
        all.push((Lean::connect(address).await, urls[number % queues].clone()));
    }
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent");
    let start = clock::now();
    let tasks = all.into_iter().map(|(mut client, url)| {
        tokio::spawn(async move {
            let mut deleted = 0;
            while deleted < messages / CLIENTS {
                client.send(&url, BODY).await;
                let receipts = client.receive(&url, 0).await;
                // Another client may have had some of our messages, and we receive some of theirs later.
                deleted += receipts.len();
                client.delete(&url, &receipts).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it ends");
    }
    let took = clock::now().since(start).as_secs_f64();
    println!("done {took}");
    // Until the parent has read what this cost.
    std::io::stdin().read_line(&mut line).ok();
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn wake() {
    let server = ServedServer::local();
    let url = Lean::connect(&server.address).await.create("wake").await;
    let mut sender = Lean::connect(&server.address).await;
    let over_http = wakes(&server, &url, async || {
        sender.send_one(&url).await;
    });
    println!(
        "from a send to the answer of a long poll, by the server: {}",
        over_http.await
    );
    let store = LocalStore::open(server._folder.path()).expect("the same file");
    let queue = store.queue("wake", None).expect("it exists");
    let message = OutgoingMessage {
        body: "wake".into(),
        ..OutgoingMessage::default()
    };
    let by_process = wakes(&server, &url, async || {
        for sent in queue.send(std::slice::from_ref(&message)).await {
            sent.expect("sent");
        }
    });
    println!(
        "from a send to the answer of a long poll, by another process: {}",
        by_process.await
    );
}

async fn wakes(server: &ServedServer, url: &str, mut send: impl AsyncFnMut()) -> Samples {
    let mut times = Vec::new();
    let mut client = Lean::connect(&server.address).await;
    for _ in 0..WAKES {
        let own = url.to_owned();
        let polling = tokio::spawn(async move {
            let receipts = client.receive(&own, 20).await;
            let woken = clock::now();
            client.delete(&own, &receipts).await;
            (client, woken)
        });
        // Let it are in line.
        tokio::time::sleep(Duration::from_millis(15)).await;
        let before = clock::now();
        send().await;
        let (back, woken) = polling.await.expect("it ends");
        client = back;
        times.push(woken.since(before));
    }
    Samples::of(times)
}
