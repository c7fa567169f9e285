//! How fast queues on Redis are, through the library: `cargo bench --bench redis`. Starts a
//! server; beside each of our figures stands a peer that sends, on the same server and in the
//! same run, the commands of npm `worqr` 1.2.3 one task at a time with 64 loops. Prints messages per
//! second, commands per message and processor time. Asserts nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

use dispatcher_core::clock;
use dispatcher_core::message::{Outcome, OutgoingMessage};
use dispatcher_core::queue::{Ask, Queue};
use dispatcher_redis::queue::{NativeQueue, Redis};
use redis::aio::MultiplexedConnection;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::program::cpu_of;
use tokio_util::sync::CancellationToken;

#[allow(dead_code, unreachable_pub, reason = "the server here is a plain one")]
#[path = "../../tests/support/certificates.rs"]
mod certificates;
#[path = "support/commandstats.rs"]
mod commandstats;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/debian.rs"]
mod debian;
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
#[path = "../../tests/support/redis.rs"]
mod server;
mod support;
#[allow(unreachable_pub, reason = "tests use it as well")]
#[path = "../../tests/support/tied.rs"]
mod tied;

/// What the server's file asks of its surroundings.
mod servers {
    use std::path::PathBuf;

    pub(crate) fn free_port() -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("it is bound").port()
    }

    pub(crate) fn tools_folder() -> PathBuf {
        std::env::var_os("DISPATCHER_TOOLS").map_or_else(
            || std::env::temp_dir().join("dispatcher-tools"),
            PathBuf::from,
        )
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Messages of one measurement, and bytes of one body.
const MESSAGES: usize = 50_000;
const BODY: usize = 256;
/// Our calls at a time, and the peer's loops.
const TASKS: usize = 8;
const LOOPS: usize = 64;
const WAKES: usize = 300;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let server = server::RedisServer::start(&[]);
    runtime.block_on(async {
        for batch in [1, 10, 100] {
            ours(&server, batch).await;
        }
        peer(&server).await;
        wakes(&server).await;
    });
}

async fn open(server: &server::RedisServer, name: &str) -> NativeQueue {
    let redis = Redis::new(&server.url(), "bench").expect("an address");
    redis.queue(name, None).await.expect("the server answers")
}

async fn ours(server: &server::RedisServer, batch: usize) {
    let queue = Arc::new(open(server, &format!("of-{batch}")).await);
    // Scripts are loaded, and this process is a worker.
    send(&queue, batch, batch).await;
    drain(&queue, batch, batch).await;
    let meter = Meter::start(server);
    send(&queue, MESSAGES, batch).await;
    meter.stop(server, &format!("send, {TASKS} × {batch}"));
    let meter = Meter::start(server);
    drain(&queue, MESSAGES, batch).await;
    meter.stop(server, &format!("receive and delete, {TASKS} × {batch}"));
}

async fn send(queue: &Arc<NativeQueue>, count: usize, batch: usize) {
    let message = OutgoingMessage {
        body: "x".repeat(BODY),
        ..OutgoingMessage::default()
    };
    let left = Arc::new(AtomicUsize::new(count));
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let (queue, left, items) = (queue.clone(), left.clone(), vec![message.clone(); batch]);
        tasks.push(tokio::spawn(async move {
            while take(&left, batch) {
                for sent in queue.send(&items).await {
                    sent.expect("sent");
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
}

/// Takes its share, unless all is taken.
fn take(left: &AtomicUsize, share: usize) -> bool {
    let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
        left.checked_sub(share)
    });
    taken.is_ok()
}

async fn drain(queue: &Arc<NativeQueue>, count: usize, batch: usize) {
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let (queue, done) = (queue.clone(), done.clone());
        tasks.push(tokio::spawn(async move {
            let go_on = CancellationToken::new();
            while done.load(Ordering::SeqCst) < count {
                let ask = Ask {
                    max: batch,
                    visibility: Duration::from_secs(30),
                    wait: Duration::ZERO,
                    newest_first: false,
                    ..Ask::PLAIN
                };
                let received = queue.receive(ask, &go_on).await.expect("received");
                let items: Vec<_> = received
                    .messages
                    .into_iter()
                    .map(|message| (message, Outcome::Delete))
                    .collect();
                if items.is_empty() {
                    return;
                }
                for settled in queue.settle(&items).await {
                    settled.expect("settled");
                }
                done.fetch_add(items.len(), Ordering::SeqCst);
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    assert_eq!(done.load(Ordering::SeqCst), count, "each came once");
}

/// The package's own commands: enqueue; then dequeue and finish in loops.
async fn peer(server: &server::RedisServer) {
    let client = redis::Client::open(server.url()).expect("an address");
    let connect = client.get_multiplexed_async_connection();
    let connection = connect.await.expect("the server answers");
    let body = "x".repeat(BODY);
    let meter = Meter::start(server);
    loops(&connection, move |mut connection, _| {
        let body = body.clone();
        async move {
            let mut pipe = redis::pipe();
            pipe.atomic();
            pipe.lpush("worqr:queues:q", body).ignore();
            pipe.publish("worqr_q_work", 1).ignore();
            pipe.query_async::<()>(&mut connection).await.expect("sent");
        }
    })
    .await;
    meter.stop(server, &format!("peer: enqueue, {LOOPS} loops"));
    let meter = Meter::start(server);
    loops(&connection, |mut connection, number| async move {
        let process = format!("worqr:processes:q_{number}");
        let working = "worqr:workingProcesses:q";
        let mut pipe = redis::pipe();
        pipe.sismember("worqr:workingQueues:w", "q").ignore();
        pipe.query_async::<()>(&mut connection)
            .await
            .expect("asked");
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.rpoplpush("worqr:queues:q", &process).ignore();
        pipe.sadd(working, &process).ignore();
        pipe.query_async::<()>(&mut connection)
            .await
            .expect("taken");
        let mut pipe = redis::pipe();
        pipe.lrange(&process, 0, -1);
        let (task,): (Vec<String>,) = pipe.query_async(&mut connection).await.expect("read");
        assert_eq!(task.len(), 1);
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.del("worqr:uniqueTasks:0123456789abcdef").ignore();
        pipe.del(&process).ignore();
        pipe.srem(working, &process).ignore();
        pipe.query_async::<()>(&mut connection)
            .await
            .expect("finished");
        let mut pipe = redis::pipe();
        pipe.publish("worqr_q_done", "{}").ignore();
        pipe.query_async::<()>(&mut connection).await.expect("told");
    })
    .await;
    meter.stop(server, &format!("peer: dequeue and finish, {LOOPS} loops"));
}

async fn loops<F>(
    connection: &MultiplexedConnection,
    step: impl Fn(MultiplexedConnection, usize) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let left = Arc::new(AtomicUsize::new(MESSAGES));
    let numbers = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..LOOPS {
        let (connection, left, step) = (connection.clone(), left.clone(), step.clone());
        let numbers = numbers.clone();
        tasks.push(tokio::spawn(async move {
            while take(&left, 1) {
                let number = numbers.fetch_add(1, Ordering::SeqCst);
                step(connection.clone(), number).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
}

/// From a send's call to the answer of a receive that waits, through another connection.
async fn wakes(server: &server::RedisServer) {
    let (receiver, sender) = (open(server, "wakes").await, open(server, "wakes").await);
    let mut times = Vec::new();
    for _ in 0..WAKES {
        let go_on = CancellationToken::new();
        let ask = Ask {
            max: 1,
            visibility: Duration::from_secs(30),
            wait: Duration::from_secs(20),
            newest_first: false,
            ..Ask::PLAIN
        };
        let sending = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let start = seconds();
            sender.send(&[OutgoingMessage::default()]).await;
            start
        };
        let receiving = async {
            let received = receiver.receive(ask, &go_on).await.expect("received");
            (received, seconds())
        };
        let ((received, end), start) = tokio::join!(receiving, sending);
        times.push((end - start) * 1000.0);
        let done = received.messages.into_iter().map(|m| (m, Outcome::Delete));
        receiver.settle(&done.collect::<Vec<_>>()).await;
    }
    times.sort_by(f64::total_cmp);
    println!(
        "wake-up of an idle receive: p50 {:.2} ms, p99 {:.2} ms",
        times[WAKES / 2],
        times[WAKES * 99 / 100]
    );
}

fn seconds() -> f64 {
    clock::now()
        .since(clock::BootInstant::default())
        .as_secs_f64()
}

/// What is counted between two moments.
struct Meter {
    start: f64,
    own_s: f64,
    server_s: f64,
}

impl Meter {
    fn start(server: &server::RedisServer) -> Self {
        server
            .connect()
            .call(&["CONFIG", "RESETSTAT"])
            .expect("an answer");
        Self {
            own_s: processor_s("self"),
            server_s: processor_s(&server.id().to_string()),
            start: seconds(),
        }
    }

    fn stop(self, server: &server::RedisServer, what: &str) {
        let took = seconds() - self.start;
        let per_10_000 = 10_000.0 / MESSAGES as f64;
        let own = (processor_s("self") - self.own_s) * per_10_000;
        let theirs = (processor_s(&server.id().to_string()) - self.server_s) * per_10_000;
        let stats = server.connect().call(&["INFO", "commandstats"]);
        let (scripts, all) = commandstats::calls(&stats.expect("an answer").text());
        let sent = if scripts > 0 { scripts } else { all };
        println!(
            "{what:<36} {:>8.0} messages/s; a message: {:.2} commands sent, {:.2} run; \
             10,000: {own:.2} CPU-s here, {theirs:.2} of Redis",
            MESSAGES as f64 / took,
            sent as f64 / MESSAGES as f64,
            (all - scripts) as f64 / MESSAGES as f64,
        );
    }
}

fn processor_s(process: &str) -> f64 {
    cpu_of(process).as_secs_f64()
}
