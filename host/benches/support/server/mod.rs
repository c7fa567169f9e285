//! A server of SQS's standard queues in memory, fast at any backlog: a child process of the
//! benchmark that re-executes itself, on one thread. Honest about visibility, delays, receipts and
//! digests; it checks no signature and knows no FIFO queue.

mod control;
mod http;
mod protocol;
mod queue;

pub(crate) use control::{BenchServer, Calls};

use dispatcher_core::clock::BootInstant;
use queue::Queue;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

/// Everything that the server knows.
#[derive(Default)]
pub(crate) struct ServerState {
    port: u16,
    /// How long an answer takes besides, half of it before the call takes effect.
    latency: Duration,
    queues: HashMap<String, Rc<RefCell<Queue>>>,
    /// Calls since the last reset, by action.
    calls: BTreeMap<String, u64>,
    /// Receives that brought nothing.
    empty: u64,
    /// How late each extension came, in ms: after half of what was asked for last.
    late_ms: Vec<f64>,
    /// When the last message of a queue was deleted.
    drained: Option<BootInstant>,
}

type SharedServer = Rc<RefCell<ServerState>>;

/// Serves on `127.0.0.1:port`, any port for 0, until its input ends.
pub(crate) fn serve(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, async move {
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let state = SharedServer::default();
        state.borrow_mut().port = port;
        print_line(&format!("listening {port}"));
        spawn_local(accept(listener, state.clone()));
        control::obey(state).await;
    });
}

async fn accept(listener: TcpListener, state: SharedServer) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        spawn_local(talk(stream, state.clone()));
    }
}

/// Answers the requests of one connection until it ends.
async fn talk(stream: TcpStream, state: SharedServer) {
    stream.set_nodelay(true).expect("a TCP stream");
    let mut connection = http::HttpConnection::new(stream);
    while let Ok(Some(request)) = connection.request().await {
        let half = state.borrow().latency / 2;
        pass(half).await;
        let answer = protocol::answer(&request.action, &request.body, &state).await;
        pass(half).await;
        if connection.respond(&answer).await.is_err() {
            break;
        }
    }
}

/// Lets time pass, if it is any.
async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[expect(clippy::print_stdout, reason = "the benchmark reads it")]
fn print_line(line: &str) {
    println!("{line}");
}
