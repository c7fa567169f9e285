//! A contest of peers on one server: what each takes while it waits, wakes, starts and stops, and how
//! fast each empties queues, in turns. Knows no server and no peer.

use crate::machine;
use crate::rows::{DrainFigures, PeerRow, PeerTable};
use crate::support::figures::Samples;
use crate::support::program::Program;
use dispatcher_core::clock;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// A long poll as it should be, and a short one for the stop, which waits for it.
const LONG_S: u32 = 20;
const SHORT_S: u32 = 1;
/// A message that every handler prints.
const WAKE: &str = "{\"id\": \"wake\", \"amount\": 250}";

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub at_once: &'static [usize],
    /// How often each empties a queue, in turns: a shared machine is not always as fast.
    pub rounds: usize,
    /// At most so many are measured, and about as many as a peer handles in `drain`.
    pub messages: usize,
    pub drain: Duration,
    pub warm: usize,
    pub settle: Duration,
    pub idle: Duration,
    pub wakes: u64,
    pub starts: usize,
}

pub(crate) const FULL: Extent = Extent {
    at_once: &[10, 50],
    rounds: 3,
    messages: 50_000,
    drain: Duration::from_secs(8),
    warm: 2_000,
    settle: Duration::from_secs(2),
    idle: Duration::from_secs(10),
    wakes: 300,
    starts: 3,
};
pub(crate) const QUICK: Extent = Extent {
    at_once: &[10],
    rounds: 1,
    messages: 500,
    drain: Duration::from_secs(1),
    warm: 100,
    settle: Duration::from_millis(200),
    idle: Duration::from_millis(300),
    wakes: 5,
    starts: 1,
};

/// A server with queues.
pub(crate) trait Broker {
    /// Whose jobs a queue has.
    type Kind: Copy;
    /// Opens a new queue; what follows is about it.
    fn open(&mut self, kind: Self::Kind, name: &str);
    /// Sends messages to an idle program as if at once, and counts calls from then on.
    fn fill(&mut self, program: &Program, count: usize, body: &str);
    /// Sends messages.
    fn send(&mut self, count: usize, body: &str);
    /// Waits until the queue is empty; how long that took since it was filled.
    fn drained(&mut self) -> Duration;
    /// Calls or commands since it was filled.
    fn calls(&mut self) -> u64;
    /// The server's processor time so far.
    fn cpu(&self) -> Duration;
}

/// What a peer is started for.
pub(crate) struct Job<'a> {
    pub queue: &'a str,
    pub at_once: usize,
    /// Of its long polls, on SQS.
    pub wait_s: u32,
    /// Whether it prints what it handles.
    pub prints: bool,
}

impl Job<'_> {
    /// Loops that receive ten each.
    pub(crate) fn loops(&self) -> usize {
        self.at_once.div_ceil(10)
    }
}

/// One that handles messages.
pub(crate) struct Peer<'a, K> {
    name: String,
    /// Whose jobs it handles.
    kind: K,
    command: Box<dyn Fn(&Job) -> Command + 'a>,
}

/// Returns one that handles jobs of this kind.
pub(crate) fn peer<'a, K>(
    name: &str,
    kind: K,
    command: impl Fn(&Job) -> Command + 'a,
) -> Peer<'a, K> {
    Peer {
        name: name.to_owned(),
        kind,
        command: Box::new(command),
    }
}

/// Measures all peers and prints them, for each number of messages at once.
pub(crate) fn tables<B: Broker>(
    server: &str,
    calls: &str,
    broker: &mut B,
    peers: &[Peer<'_, B::Kind>],
    extent: Extent,
) {
    for at_once in extent.at_once {
        let rows = peers
            .iter()
            .map(|peer| alone(broker, peer, *at_once, extent));
        let mut rows: Vec<PeerRow> = rows.collect();
        for round in 0..extent.rounds {
            for (peer, row) in peers.iter().zip(&mut rows) {
                let drain = drain(broker, peer, (*at_once, round), extent);
                row.drains.push(drain);
            }
        }
        let table = PeerTable {
            title: format!("{server}, {at_once} at once"),
            calls: calls.to_owned(),
            rows,
        };
        // What runs by default.
        table.print("dispatcher, fresh");
    }
}

/// A server may remember a poll whose caller has died: each start has its own queue.
fn open<B: Broker>(broker: &mut B, peer: &Peer<'_, B::Kind>, at_once: usize, what: &str) -> String {
    let name = format!("{}-{at_once}-{what}", peer.name);
    let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    broker.open(peer.kind, &name);
    name
}

fn start<K>(
    peer: &Peer<'_, K>,
    (queue, at_once): (&str, usize),
    wait_s: u32,
    prints: bool,
) -> Program {
    Program::start((peer.command)(&Job {
        queue,
        at_once,
        wait_s,
        prints,
    }))
}

/// What a peer takes while it waits, wakes, starts and stops.
fn alone<B: Broker>(
    broker: &mut B,
    peer: &Peer<'_, B::Kind>,
    at_once: usize,
    extent: Extent,
) -> PeerRow {
    let mut row = PeerRow {
        name: peer.name.clone(),
        ..PeerRow::default()
    };
    // It takes a while, and standard output has only the tables.
    eprintln!("{}, {at_once} at once", peer.name);
    let started = |queue: &str, wait_s, prints| start(peer, (queue, at_once), wait_s, prints);
    let queue = open(broker, peer, at_once, "idle");
    let program = started(&queue, LONG_S, false);
    broker.fill(&program, extent.warm, &order());
    broker.drained();
    sleep(extent.settle);
    let before = program.thread_times();
    sleep(extent.idle);
    let idle = program.cpu_since(&before);
    row.idle_percent = idle.as_secs_f64() / extent.idle.as_secs_f64() * 100.0;
    row.idle_mib = program.memory().0;
    drop(program);
    let queue = open(broker, peer, at_once, "wake");
    let mut program = started(&queue, LONG_S, true);
    row.wakes = Some(wakes(broker, &mut program, extent.wakes));
    drop(program);
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    for round in 0..extent.starts {
        let queue = open(broker, peer, at_once, &format!("start-{round}"));
        broker.send(1, WAKE);
        let mut program = started(&queue, SHORT_S, true);
        let (at, _) = program.line("order wake");
        starts.push(at.since(program.started));
        // It polls again.
        sleep(Duration::from_millis(500));
        stops.push(program.stop());
    }
    row.start_ms = Samples::of(starts).at(50);
    row.stop_ms = Samples::of(stops).at(50);
    row
}

fn order() -> String {
    let note = "x".repeat(200);
    format!("{{\"id\": \"o-1\", \"amount\": 250, \"note\": \"{note}\"}}")
}

/// Lets a peer warm up, wait, and empty the queue.
fn drain<B: Broker>(
    broker: &mut B,
    peer: &Peer<'_, B::Kind>,
    (at_once, round): (usize, usize),
    extent: Extent,
) -> DrainFigures {
    eprintln!("{}, {at_once} at once, round {}", peer.name, round + 1);
    let queue = open(broker, peer, at_once, &format!("drain-{round}"));
    let program = start(peer, (&queue, at_once), LONG_S, false);
    broker.fill(&program, extent.warm, &order());
    let took_us = broker.drained().as_micros().max(1);
    let messages = extent.warm as u128 * extent.drain.as_micros() / took_us;
    let messages = usize::try_from(messages).unwrap_or(extent.messages);
    let messages = messages.clamp(extent.warm, extent.messages);
    sleep(extent.settle);
    let cpu = program.cpu();
    broker.fill(&program, messages, &order());
    let (server, all) = (broker.cpu(), machine::busy());
    let took = broker.drained();
    let (own, server) = (program.cpu() - cpu, broker.cpu() - server);
    let all = machine::busy().saturating_sub(all + own + server);
    let per_10_000 = |cpu: Duration| cpu.as_secs_f64() / (messages as f64 / 1e4);
    DrainFigures {
        per_second: messages as f64 / took.as_secs_f64(),
        cpu_s: per_10_000(own),
        server_cpu_s: per_10_000(server),
        calls: broker.calls() as f64 / messages as f64,
        peak_mib: program.memory().1,
        others_percent: all.as_secs_f64() / took.as_secs_f64() / machine::cores() as f64 * 100.0,
    }
}

/// From the call that sends one message to an idle queue to the line of its handler.
fn wakes(broker: &mut impl Broker, program: &mut Program, count: u64) -> Samples {
    broker.send(1, WAKE);
    program.line("order wake");
    let times = (0..count).map(|number| {
        // Idle again, and at no fixed distance to what the program does by the clock.
        sleep(Duration::from_millis(20 + number * 7 % 40));
        let sent = clock::now();
        broker.send(1, WAKE);
        let (at, _) = program.line("order wake");
        at.since(sent)
    });
    Samples::of(times)
}
