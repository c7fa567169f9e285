//! The servers that peers share, as one benchmark asks both: fill a queue, wait until it is empty, what
//! that cost. One queue is open at a time. Knows no peer.

use crate::commandstats;
use crate::contest::Broker;
use crate::jobs::{JobKind, Producer};
use crate::redis_server::RedisServer;
use crate::server::BenchServer;
use crate::support::program::{Program, cpu_of};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::thread::sleep;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Between two looks whether a queue is empty.
const LOOK: Duration = Duration::from_millis(2);

/// The benchmark's own server of SQS.
pub(crate) struct SqsBroker {
    server: BenchServer,
    queue: String,
}

impl SqsBroker {
    pub(crate) fn start() -> Self {
        Self {
            server: BenchServer::start(),
            queue: String::new(),
        }
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        self.server.url.clone()
    }
}

impl Broker for SqsBroker {
    type Kind = ();

    fn open(&mut self, (): (), name: &str) {
        self.server.queue(name, 30);
        name.clone_into(&mut self.queue);
    }

    fn fill(&mut self, _: &Program, count: usize, body: &str) {
        self.server.calls();
        // Its one thread answers nobody meanwhile.
        self.send(count, body);
    }

    fn send(&mut self, count: usize, body: &str) {
        self.server.fill(&self.queue, count, body);
    }

    fn drained(&mut self) -> Duration {
        self.server.drained(&self.queue)
    }

    fn calls(&mut self) -> u64 {
        self.server.calls().all
    }

    fn cpu(&self) -> Duration {
        self.server.cpu()
    }
}

/// A Redis server.
pub(crate) struct RedisBroker<'a> {
    server: RedisServer,
    runtime: &'a Runtime,
    producer: Option<Producer<'a>>,
    filled: BootInstant,
    looks: u64,
}

impl<'a> RedisBroker<'a> {
    pub(crate) fn start(runtime: &'a Runtime) -> Self {
        Self {
            server: RedisServer::start(&[]),
            runtime,
            producer: None,
            filled: clock::now(),
            looks: 0,
        }
    }

    /// `redis://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// What the server calls itself.
    pub(crate) fn version(&self) -> String {
        let text = self.ask(&["INFO", "server"]);
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        version.unwrap_or_default().to_owned()
    }

    fn ask(&self, words: &[&str]) -> String {
        let answer = self.server.connect().call(words);
        answer.expect("an answer").text()
    }

    fn producer(&mut self) -> &mut Producer<'a> {
        self.producer.as_mut().expect("a queue is open")
    }
}

impl Broker for RedisBroker<'_> {
    type Kind = JobKind;

    fn open(&mut self, kind: JobKind, name: &str) {
        self.producer = Some(Producer::connect(kind, &self.server, self.runtime, name));
    }

    fn fill(&mut self, program: &Program, count: usize, body: &str) {
        program.hold();
        self.producer().send(count, body);
        self.ask(&["CONFIG", "RESETSTAT"]);
        self.looks = 0;
        self.filled = clock::now();
        program.resume();
    }

    fn send(&mut self, count: usize, body: &str) {
        self.producer().send(count, body);
    }

    fn drained(&mut self) -> Duration {
        loop {
            self.looks += 1;
            if self.producer().is_drained() {
                return clock::now().since(self.filled);
            }
            sleep(LOOK);
        }
    }

    fn calls(&mut self) -> u64 {
        let (scripts, all) = commandstats::calls(&self.ask(&["INFO", "commandstats"]));
        all - scripts - self.looks
    }

    fn cpu(&self) -> Duration {
        cpu_of(&self.server.id().to_string())
    }
}
