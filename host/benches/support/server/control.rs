//! How the benchmark speaks to its server: one line in, one line out. Below: what the server does
//! with a line; above: how the benchmark asks. Knows no HTTP.

use super::queue::{IncomingMessage, Queue};
use super::{SharedServer, print_line};
use crate::support::program::Program;
use dispatcher_core::clock;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::BufRead;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;

/// What was called, as the server counted it.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub receive: u64,
    pub delete: u64,
    pub change: u64,
    /// All, others included.
    pub all: u64,
    /// Receives that brought nothing.
    pub empty: u64,
}

/// A server in its own process. Ends when dropped.
pub(crate) struct BenchServer {
    program: Program,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
}

impl BenchServer {
    /// Starts this very executable again as a server; it must answer to `--server PORT`.
    pub(crate) fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("our path"));
        command.args(["--server", "0"]);
        let mut program = Program::start(command);
        let (_, line) = program.line("listening");
        let port = line.rsplit(' ').next().unwrap_or_default();
        Self {
            url: format!("http://127.0.0.1:{port}"),
            program,
        }
    }

    /// The server's processor time so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.program.cpu()
    }

    fn command(&mut self, words: &str) -> Value {
        self.program.send_line(words);
        let (_, line) = self.program.line("answer ");
        serde_json::from_str(line.trim_start_matches("answer ")).expect("the server's JSON")
    }

    /// Makes a queue, empty, with a visibility timeout in seconds.
    pub(crate) fn queue(&mut self, name: &str, visibility_s: u64) {
        self.command(&format!("queue {name} {visibility_s}"));
    }

    /// Makes every answer take so long besides, from now on.
    #[allow(dead_code, reason = "not every benchmark has a slow server")]
    pub(crate) fn slow(&mut self, latency: Duration) {
        self.command(&format!("slow all {}", latency.as_millis()));
    }

    /// Sends `count` messages of this body, all visible at once.
    pub(crate) fn fill(&mut self, name: &str, count: usize, body: &str) {
        self.command(&format!("fill {name} {count} {body}"));
    }

    /// Waits until the queue is empty; how long that took since it was filled.
    pub(crate) fn drained(&mut self, name: &str) -> Duration {
        let seconds = self.command(&format!("drained {name}"));
        Duration::from_secs_f64(seconds.as_f64().expect("a number"))
    }

    /// How many are in flight.
    pub(crate) fn in_flight(&mut self, name: &str) -> u64 {
        self.command(&format!("in-flight {name}"))
            .as_u64()
            .expect("a number")
    }

    /// The calls since this was last asked.
    pub(crate) fn calls(&mut self) -> Calls {
        let calls = self.command("calls");
        let of = |action: &str| calls[action].as_u64().unwrap_or_default();
        Calls {
            receive: of("ReceiveMessage"),
            delete: of("DeleteMessageBatch") + of("DeleteMessage"),
            change: of("ChangeMessageVisibilityBatch"),
            all: of("all"),
            empty: of("empty"),
        }
    }

    /// How late extensions came since this was last asked, in milliseconds: after half of the
    /// visibility that was asked for before. Those that rode along early are negative.
    pub(crate) fn late_ms(&mut self) -> Vec<f64> {
        let late = self.command("late");
        let late = late.as_array().expect("a list");
        late.iter().filter_map(Value::as_f64).collect()
    }
}

/// Does what the lines of the input say, until it ends.
pub(super) async fn obey(state: SharedServer) {
    let (sender, mut lines) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let mut filled = clock::now();
    while let Some(line) = lines.recv().await {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (verb, name, number, rest) = (word(), word(), word(), word());
        let number: u64 = number.parse().unwrap_or_default();
        let found = state.borrow().queues.get(&name).cloned();
        let answer = match (&*verb, found) {
            ("queue", _) => {
                let queue = Queue::new(Duration::from_secs(number));
                let queue = Rc::new(RefCell::new(queue));
                state.borrow_mut().queues.insert(name, queue);
                Value::Null
            }
            ("fill", Some(queue)) => {
                state.borrow_mut().drained = None;
                fill(&mut queue.borrow_mut(), number, &rest);
                filled = clock::now();
                Value::Null
            }
            ("drained", Some(queue)) => {
                while !queue.borrow().is_empty() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                let end = state.borrow().drained.unwrap_or(filled);
                json!(end.since(filled).as_secs_f64())
            }
            ("in-flight", Some(queue)) => json!(queue.borrow_mut().counts(clock::now()).1),
            ("slow", _) => {
                state.borrow_mut().latency = Duration::from_millis(number);
                Value::Null
            }
            ("calls", _) => calls(&state),
            ("late", _) => json!(std::mem::take(&mut state.borrow_mut().late_ms)),
            _ => panic!("not understood: {line}"),
        };
        print_line(&format!("answer {answer}"));
    }
}

fn fill(queue: &mut Queue, count: u64, body: &str) {
    let (now, today) = (clock::now(), clock::wall_clock_now());
    for _ in 0..count {
        let sent = IncomingMessage {
            body: body.to_owned(),
            attributes: None,
            delay: Duration::ZERO,
        };
        queue.send(sent, now, today);
    }
    queue.changed.notify_waiters();
}

fn calls(state: &SharedServer) -> Value {
    let mut state = state.borrow_mut();
    let mut calls = json!(std::mem::take(&mut state.calls));
    calls["all"] = json!(calls.as_object().map_or(0, |calls| {
        calls.values().filter_map(Value::as_u64).sum::<u64>()
    }));
    calls["empty"] = json!(std::mem::take(&mut state.empty));
    calls
}
