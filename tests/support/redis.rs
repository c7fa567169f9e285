//! A Redis server as a child process on a free port of the loopback interface, and enough of its
//! protocol to look at it from outside. Knows no client library.

use crate::PATIENCE;
use crate::certificates::Certificates;
use crate::debian::DebianProgram;
use crate::servers::free_port;
use crate::tied::TiedServer;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: DebianProgram = DebianProgram {
    program: "redis-server",
    packages: &["redis-server", "redis-tools"],
    libraries: &[
        "libatomic1",
        "libjemalloc2",
        "liblua5.1-0",
        "liblzf1",
        "libssl3",
        "libsystemd0",
        "lua-bitop",
        "lua-cjson",
    ],
};

/// Redis' own default of 15 s would make a failover slow; on a busy machine, a node may well be
/// silent for a second or two.
const FAILOVER_MS: &str = "4000";

/// A running Redis. Ends when dropped.
#[derive(Debug)]
pub struct RedisServer {
    server: TiedServer,
    port: u16,
    more: Vec<String>,
    /// What it holds outlives a restart, if it is kept at all.
    folder: tempfile::TempDir,
}

impl RedisServer {
    /// The one that all tests of this binary share; it keeps nothing on disk. Tests tell their
    /// queues apart by name.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[]))
    }

    /// A node of the cluster that all tests of this binary share: each of its three masters has a
    /// third of the slots, and refuses what would touch two at once.
    pub fn cluster() -> &'static Self {
        static SHARED: OnceLock<RedisCluster> = OnceLock::new();
        &SHARED.get_or_init(|| RedisCluster::start(3, 0)).nodes[0]
    }

    /// One of the test's own that writes everything to disk before it answers.
    pub fn durable() -> Self {
        Self::start(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// One of the test's own with more settings. Returns once it answers.
    pub fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let more = more.iter().map(ToString::to_string).collect();
        Self::start_at(free_port(), folder, more)
    }

    fn start_at(port: u16, folder: tempfile::TempDir, more: Vec<String>) -> Self {
        let mut command = PROGRAM.command();
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--logfile", "redis.log"])
            .arg("--dir")
            .arg(folder.path())
            .args(&more);
        let mut started = Self {
            server: TiedServer::start(&command),
            port,
            more,
            folder,
        };
        started.wait_until_it_answers();
        started
    }

    /// A Sentinel with the settings of this file, in its own folder, which it writes to.
    pub fn sentinel(settings: &Path, port: u16) -> Self {
        let mut command = PROGRAM.command();
        command.arg(settings).args(["--sentinel", "--logfile", ""]);
        let mut started = Self {
            server: TiedServer::start(&command),
            port,
            more: Vec::new(),
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        started.wait_until_it_answers();
        started
    }

    /// Asks until the answer, its texts in one line, is as wanted.
    pub fn wait_for(&self, words: &[&str], wanted: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.connect().call(words).expect("an answer");
            let answer = answer.texts().join(" ");
            if wanted(&answer) {
                return;
            }
            assert!(Instant::now() < deadline, "{words:?}: {answer}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills it as a crash does.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts a killed one again: the same address, and what it wrote to disk.
    pub fn again(mut self) -> Self {
        self.kill();
        let empty = tempfile::tempdir().expect("a temporary folder");
        let folder = std::mem::replace(&mut self.folder, empty);
        let (port, more) = (self.port, std::mem::take(&mut self.more));
        drop(self);
        Self::start_at(port, folder, more)
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The server's process id, for whoever measures it.
    pub fn id(&self) -> i32 {
        self.server.id()
    }

    /// A name that no other test has.
    pub fn fresh_name(what: &str) -> String {
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        format!("{what}-{}-{number}", std::process::id())
    }

    /// A connection of the test's own.
    pub fn connect(&self) -> Plain {
        Plain::connect(self.address()).expect("the server answers")
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pong = Plain::connect(self.address()).and_then(|mut plain| plain.call(&["PING"]));
            if pong.is_ok_and(|answer| answer == RedisReply::Text("PONG".into())) {
                return;
            }
            let log = fs::read_to_string(self.folder.path().join("redis.log"));
            assert!(
                Instant::now() < deadline,
                "Redis does not answer at {}; its log:\n{}",
                self.url(),
                log.unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A running cluster. Ends when dropped.
#[derive(Debug)]
pub struct RedisCluster {
    /// The masters, then the replicas of the first ones. Tests speak to them without TLS.
    pub nodes: Vec<RedisServer>,
    /// Where they speak TLS, if they do, in the same order.
    tls_ports: Vec<u16>,
}

impl RedisCluster {
    /// So many masters with an equal share of the slots, and so many replicas of the first masters.
    /// Returns once all nodes know all others.
    pub fn start(masters: usize, replicas: usize) -> Self {
        Self::start_with(masters, replicas, |_| Vec::new())
    }

    /// Masters that speak TLS, with each other as well, and have more settings.
    pub fn over_tls(masters: usize, certificates: &Certificates, more: &[&str]) -> Self {
        let ports: Vec<u16> = (0..masters).map(|_| free_port()).collect();
        let files = [
            "--tls-cluster".to_owned(),
            "yes".to_owned(),
            "--tls-auth-clients".to_owned(),
            "no".to_owned(),
            "--tls-ca-cert-file".to_owned(),
            certificates.authority(),
            "--tls-cert-file".to_owned(),
            certificates.certificate(),
            "--tls-key-file".to_owned(),
            certificates.key(),
        ];
        let settings = |at: usize| {
            let mut settings = vec!["--tls-port".to_owned(), ports[at].to_string()];
            settings.extend_from_slice(&files);
            settings.extend(more.iter().map(ToString::to_string));
            settings
        };
        let mut cluster = Self::start_with(masters, 0, settings);
        cluster.tls_ports = ports;
        cluster
    }

    /// Where the nodes speak TLS, for the host of this name: `HOST:PORT,…`.
    pub fn tls_places(&self, host: &str) -> String {
        let places = self.tls_ports.iter().map(|port| format!("{host}:{port}"));
        places.collect::<Vec<_>>().join(",")
    }

    /// Where other nodes speak to a node as clients do, to move keys.
    pub fn port_for_nodes(&self, at: usize) -> u16 {
        let plain = self.nodes[at].port;
        self.tls_ports.get(at).copied().unwrap_or(plain)
    }

    fn start_with(masters: usize, replicas: usize, more: impl Fn(usize) -> Vec<String>) -> Self {
        let buses: Vec<u16> = (0..masters + replicas).map(|_| free_port()).collect();
        let start = |(at, bus): (usize, &u16)| {
            let (bus, more) = (bus.to_string(), more(at));
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            let node = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            RedisServer::start(&[&node[..], &more].concat())
        };
        let cluster = Self {
            nodes: buses.iter().enumerate().map(start).collect(),
            tls_ports: Vec::new(),
        };
        let slots = |node: usize| 16_384 * node / masters;
        for (at, node) in cluster.nodes.iter().enumerate() {
            let mut plain = node.connect();
            let done = |answer: std::io::Result<RedisReply>| {
                assert_eq!(answer.expect("an answer"), RedisReply::Text("OK".into()));
            };
            if at < masters {
                let (first, last) = (slots(at).to_string(), (slots(at + 1) - 1).to_string());
                done(plain.call(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]));
                let epoch = (at + 1).to_string();
                done(plain.call(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]));
            }
        }
        cluster.wait_until_all_know_each_other(buses[0]);
        for (at, node) in cluster.nodes.iter().skip(masters).enumerate() {
            let master = cluster.nodes[at].connect().call(&["CLUSTER", "MYID"]);
            let master = master.expect("an answer").text();
            let told = node.connect().call(&["CLUSTER", "REPLICATE", &master]);
            assert_eq!(told.expect("an answer"), RedisReply::Text("OK".into()));
            let deadline = Instant::now() + PATIENCE;
            loop {
                let info = node.connect().call(&["INFO", "replication"]);
                let info = info.expect("an answer").text();
                if info.contains("master_link_status:up") {
                    break;
                }
                assert!(Instant::now() < deadline, "{info}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        if replicas > 0 {
            cluster.fail_over_after(FAILOVER_MS);
        }
        cluster
    }

    /// Introduces every node to the first one. A node drops a handshake that takes longer than the
    /// node timeout, so it is asked again until all are there.
    fn wait_until_all_know_each_other(&self, first_bus: u16) {
        let (port, bus) = (self.nodes[0].port.to_string(), first_bus.to_string());
        let deadline = Instant::now() + PATIENCE;
        for round in 0.. {
            let missing: Vec<_> = self
                .nodes
                .iter()
                .filter(|node| !self.knows_all(node))
                .collect();
            if missing.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{missing:?} do not know all");
            if round % 100 == 0 {
                for node in &self.nodes[1..] {
                    let met = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus];
                    let met = node.connect().call(&met);
                    assert_eq!(met.expect("an answer"), RedisReply::Text("OK".into()));
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn knows_all(&self, node: &RedisServer) -> bool {
        let mut plain = node.connect();
        let mut ask = |what| plain.call(&["CLUSTER", what]).expect("an answer").text();
        let nodes = ask("NODES");
        let known = nodes.lines().filter(|line| !line.contains("handshake"));
        known.count() == self.nodes.len() && ask("INFO").contains("cluster_state:ok")
    }

    /// How long a node may be silent before its replica replaces it.
    fn fail_over_after(&self, milliseconds: &str) {
        let settings = ["CONFIG", "SET", "cluster-node-timeout", milliseconds];
        for node in &self.nodes {
            let set = node.connect().call(&settings);
            assert_eq!(set.expect("an answer"), RedisReply::Text("OK".into()));
        }
    }

    /// The place of the node that is the master of a key's slot.
    pub fn master_of(&self, key: &str) -> usize {
        let owns = |node: &RedisServer| {
            let mine = node.connect().call(&["EXISTS", key]);
            matches!(mine, Ok(RedisReply::Number(_)))
        };
        let found = self.nodes.iter().position(owns);
        found.expect("a node has the slot")
    }
}

/// What Redis answers (RESP2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisReply {
    /// Nothing.
    Nil,
    /// A whole number.
    Number(i64),
    /// A text or a status.
    Text(String),
    /// What went wrong.
    Error(String),
    /// Several.
    List(Vec<RedisReply>),
}

impl RedisReply {
    /// A list of texts.
    pub fn texts(self) -> Vec<String> {
        match self {
            Self::List(items) => items.into_iter().flat_map(Self::texts).collect(),
            Self::Text(text) | Self::Error(text) => vec![text],
            Self::Number(number) => vec![number.to_string()],
            Self::Nil => Vec::new(),
        }
    }

    /// One text, empty for none.
    pub fn text(self) -> String {
        self.texts().into_iter().next().unwrap_or_default()
    }

    /// A number.
    pub fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            other => panic!("{other:?} is not a number"),
        }
    }
}

/// A connection that sends commands as they are and reads answers one by one.
#[derive(Debug)]
pub struct Plain {
    stream: BufReader<TcpStream>,
}

impl Plain {
    /// Connects.
    pub fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// One command and its answer.
    pub fn call(&mut self, words: &[&str]) -> std::io::Result<RedisReply> {
        self.send(words)?;
        self.receive_reply()
    }

    /// One command.
    pub fn send(&mut self, words: &[&str]) -> std::io::Result<()> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// One answer, or one message of a channel.
    pub fn receive_reply(&mut self) -> std::io::Result<RedisReply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().unwrap_or_default();
        Ok(match kind {
            "+" => RedisReply::Text(rest.to_owned()),
            "-" => RedisReply::Error(rest.to_owned()),
            ":" => RedisReply::Number(number()),
            "$" => match usize::try_from(number()) {
                Err(_) => RedisReply::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    RedisReply::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
            },
            "*" => match usize::try_from(number()) {
                Err(_) => RedisReply::Nil,
                Ok(length) => {
                    let items = (0..length).map(|_| self.receive_reply());
                    RedisReply::List(items.collect::<Result<_, _>>()?)
                }
            },
            other => panic!("`{other}` begins no answer of Redis"),
        })
    }
}
