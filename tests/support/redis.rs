//! A Redis server as a child process on a free port of the loopback interface, and enough of its
//! protocol to look at it from outside. Knows no client library.

use crate::PATIENCE;
use crate::debian::Packaged;
use crate::servers::free_port;
use crate::tied::Tied;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: Packaged = Packaged {
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

/// A running Redis. Ends when dropped.
#[derive(Debug)]
pub struct RedisServer {
    server: Tied,
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

    /// The one that all tests of this binary share whose keys lie in slots, as in a cluster, all of
    /// them its own: it refuses what would touch two slots at once.
    pub fn cluster() -> &'static Self {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            let bus = free_port().to_string();
            let server = Self::start(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
            let mut plain = server.connect();
            let added = plain.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
            assert_eq!(added.expect("an answer"), Answer::Text("OK".into()));
            let deadline = Instant::now() + PATIENCE;
            loop {
                let info = plain.ask(&["CLUSTER", "INFO"]).expect("an answer").text();
                if info.contains("cluster_state:ok") {
                    return server;
                }
                assert!(Instant::now() < deadline, "{info}");
                std::thread::sleep(Duration::from_millis(10));
            }
        })
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
            server: Tied::start(&command),
            port,
            more,
            folder,
        };
        started.wait_until_it_answers();
        started
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
            let pong = Plain::connect(self.address()).and_then(|mut plain| plain.ask(&["PING"]));
            if pong.is_ok_and(|answer| answer == Answer::Text("PONG".into())) {
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

/// What Redis answers (RESP2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Nil,
    /// A whole number.
    Number(i64),
    /// A text or a status.
    Text(String),
    /// What went wrong.
    Error(String),
    /// Several.
    List(Vec<Answer>),
}

impl Answer {
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
    pub fn ask(&mut self, words: &[&str]) -> std::io::Result<Answer> {
        self.say(words)?;
        self.hear()
    }

    /// One command.
    pub fn say(&mut self, words: &[&str]) -> std::io::Result<()> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// One answer, or one message of a channel.
    pub fn hear(&mut self) -> std::io::Result<Answer> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().unwrap_or_default();
        Ok(match kind {
            "+" => Answer::Text(rest.to_owned()),
            "-" => Answer::Error(rest.to_owned()),
            ":" => Answer::Number(number()),
            "$" => match usize::try_from(number()) {
                Err(_) => Answer::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Answer::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
            },
            "*" => match usize::try_from(number()) {
                Err(_) => Answer::Nil,
                Ok(length) => {
                    let items = (0..length).map(|_| self.hear());
                    Answer::List(items.collect::<Result<_, _>>()?)
                }
            },
            other => panic!("`{other}` begins no answer of Redis"),
        })
    }
}
