//! How fast the embedded queue is: `cargo bench --bench local`. Prints messages per second, the
//! time from one process's send to another's receive, and what waiting costs. Asserts nothing:
//! numbers depend on how long the disk takes to sync, which is printed first.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

use dispatcher_core::clock;
use dispatcher_core::message::{Outcome, OutgoingMessage};
use dispatcher_core::queue::{Ask, Queue};
use dispatcher_local::queue::{LocalQueue, LocalStore};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Messages of one measurement, and bytes of one body.
const MESSAGES: usize = 100_000;
const BODY: usize = 200;
/// Messages of one call, and calls at a time.
const BATCH: usize = 100;
const TASKS: usize = 8;
const WAKES: usize = 300;
const IDLE: Duration = Duration::from_secs(10);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let words: Vec<String> = std::env::args().collect();
    match &words[1..] {
        [role, folder] if role == "together" => {
            let queue = open(Path::new(folder), "own");
            runtime.block_on(together(&queue));
        }
        [role, folder] if role == "wake" => {
            runtime.block_on(answer_wakes(&open(Path::new(folder), "wake")));
        }
        _ => runtime.block_on(measure()),
    }
}

fn open(folder: &Path, name: &str) -> Arc<LocalQueue> {
    let store = LocalStore::open(folder).expect("a store");
    Arc::new(store.queue(name, None).expect("a queue"))
}

fn seconds() -> f64 {
    clock::now()
        .since(clock::BootInstant::default())
        .as_secs_f64()
}

fn rate(what: &str, count: usize, since: f64) {
    let rate = count as f64 / (seconds() - since);
    println!("{what:<52} {rate:>9.0} messages/s");
}

async fn measure() {
    let folder = tempfile::tempdir().expect("a folder");
    sync_cost(folder.path());
    let queue = open(folder.path(), "throughput");
    let start = seconds();
    send_all(&queue, MESSAGES).await;
    rate("send alone, 8 × 100", MESSAGES, start);
    let start = seconds();
    drain(&queue, &Arc::new(AtomicBool::new(true))).await;
    rate("receive and delete alone, 8 × 100", MESSAGES, start);
    let start = seconds();
    together(&queue).await;
    rate(
        "send, receive, delete at once, one process",
        MESSAGES,
        start,
    );
    let start = seconds();
    let mut children = [(); 2].map(|()| child("together", folder.path()));
    for child in &mut children {
        child.wait().expect("a child's end");
    }
    rate("the same in two processes on one file", 2 * MESSAGES, start);
    let start = seconds();
    one_at_a_time(&queue, 10_000).await;
    rate(
        "one task alone: send 100, receive 100, delete 100",
        10_000,
        start,
    );
    wakes(folder.path()).await;
    long_group(folder.path()).await;
    idle().await;
}

fn sync_cost(folder: &Path) {
    let mut file = std::fs::File::create(folder.join("sync")).expect("a file");
    let start = seconds();
    for _ in 0..50 {
        file.write_all(&[0; 4096]).expect("room");
        file.sync_data().expect("a disk");
    }
    println!("one sync of the disk {:.2} ms", (seconds() - start) * 20.0);
}

fn child(role: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().expect("our path"))
        .arg(role)
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

fn batch(count: usize, group: Option<&str>) -> Vec<OutgoingMessage> {
    let item = OutgoingMessage {
        body: "x".repeat(BODY),
        group: group.map(Into::into),
        ..OutgoingMessage::default()
    };
    vec![item; count]
}

async fn send_all(queue: &Arc<LocalQueue>, count: usize) {
    let tasks = (0..TASKS).map(|_| {
        let queue = queue.clone();
        tokio::spawn(async move {
            for _ in 0..count / TASKS / BATCH {
                let sent = queue.send(&batch(BATCH, None)).await;
                assert!(sent.iter().all(Result::is_ok), "{sent:?}");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("sent");
    }
}

async fn take(queue: &LocalQueue, wait: Duration) -> Vec<dispatcher_core::message::Message> {
    let ask = Ask {
        max: BATCH,
        visibility: Duration::from_secs(60),
        wait,
        newest_first: false,
        ..Ask::PLAIN
    };
    queue
        .receive(ask, &CancellationToken::new())
        .await
        .expect("received")
        .messages
}

/// Receives and deletes until all have been sent and nothing is left, in flight elsewhere included.
async fn drain(queue: &Arc<LocalQueue>, sent: &Arc<AtomicBool>) {
    let tasks = (0..TASKS).map(|_| {
        let (queue, sent) = (queue.clone(), sent.clone());
        tokio::spawn(async move {
            loop {
                let taken = take(&queue, Duration::from_millis(50)).await;
                if taken.is_empty() && sent.load(Ordering::SeqCst) {
                    let depth = queue.depth().await.expect("a depth");
                    if depth.waiting + depth.in_flight == 0 {
                        break;
                    }
                }
                let done: Vec<_> = taken.into_iter().map(|m| (m, Outcome::Delete)).collect();
                let settled = queue.settle(&done).await;
                assert!(settled.iter().all(Result::is_ok), "{settled:?}");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("drained");
    }
}

async fn together(queue: &Arc<LocalQueue>) {
    let sent = Arc::new(AtomicBool::new(false));
    let send = async {
        send_all(queue, MESSAGES).await;
        sent.store(true, Ordering::SeqCst);
    };
    tokio::join!(send, drain(queue, &sent));
}

async fn one_at_a_time(queue: &Arc<LocalQueue>, count: usize) {
    for _ in 0..count / BATCH {
        queue.send(&batch(BATCH, None)).await;
        let taken = take(queue, Duration::ZERO).await;
        let done: Vec<_> = taken.into_iter().map(|m| (m, Outcome::Delete)).collect();
        queue.settle(&done).await;
    }
}

async fn answer_wakes(queue: &LocalQueue) {
    for _ in 0..WAKES {
        println!("ready");
        let taken = take(queue, Duration::from_secs(20)).await;
        println!("{}", seconds());
        let done: Vec<_> = taken.into_iter().map(|m| (m, Outcome::Delete)).collect();
        queue.settle(&done).await;
    }
}

async fn wakes(folder: &Path) {
    let queue = open(folder, "wake");
    let mut child = child("wake", folder);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut line = move || lines.next().expect("a line").expect("text");
    let (mut from_send, mut from_answer) = (Vec::new(), Vec::new());
    for _ in 0..WAKES {
        line();
        // Let it settle the last one and are in line.
        tokio::time::sleep(Duration::from_millis(15)).await;
        let before = seconds();
        queue.send(&batch(1, None)).await;
        let after = seconds();
        let woken: f64 = line().parse().expect("a number");
        from_send.push(woken - before);
        from_answer.push(woken - after);
    }
    child.wait().expect("a child's end");
    for (what, mut times) in [("call", from_send), ("answer", from_answer)] {
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times[times.len() * percent / 100] * 1e3;
        println!(
            "from a send's {what:<6} to another process's receive      p50 {:.2} ms, p99 {:.2} ms",
            at(50),
            at(99)
        );
    }
}

async fn long_group(folder: &Path) {
    let queue = open(folder, "group");
    for _ in 0..MESSAGES / BATCH {
        queue.send(&batch(BATCH, Some("g"))).await;
    }
    let rounds = 100;
    let start = seconds();
    for _ in 0..rounds {
        let taken = take(&queue, Duration::ZERO).await;
        assert_eq!(taken.len(), 1);
        queue.settle(&[(taken[0].clone(), Outcome::Delete)]).await;
    }
    let each = (seconds() - start) / f64::from(rounds) * 1e6;
    println!("receive and delete the head of a group of 100,000 {each:>12.0} µs");
    take(&queue, Duration::ZERO).await;
    let start = seconds();
    for _ in 0..rounds {
        assert!(take(&queue, Duration::ZERO).await.is_empty());
    }
    let empty = (seconds() - start) / f64::from(rounds) * 1e6;
    println!("receive nothing while that head is out {empty:>23.0} µs");
    let start = seconds();
    let depth = queue.depth().await.expect("a depth");
    let held = depth.waiting + depth.in_flight;
    println!(
        "depth of {held} messages {:>37.1} ms",
        (seconds() - start) * 1e3
    );
}

/// Nanoseconds that all our threads have run.
fn cpu() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<f64>().ok())
        .sum()
}

async fn idle() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalStore::open(folder.path()).expect("a store");
    for at in 0..8 {
        let queue = store.queue(&format!("q{at}"), None).expect("a queue");
        tokio::spawn(async move {
            loop {
                take(&queue, Duration::from_secs(20)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = cpu();
    tokio::time::sleep(IDLE).await;
    let share = (cpu() - before) / IDLE.as_nanos() as f64 * 100.0;
    println!("8 waiting receivers, whole process {share:>28.4} % of a core");
}
