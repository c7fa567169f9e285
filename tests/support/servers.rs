//! Servers that tests talk to, each a child process on a free port of the loopback interface. They
//! install themselves once per machine. Knows no client.

use crate::PATIENCE;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The versions that the suites were written against. Without the second it answers a
/// `PutMetricData` of the Rust SDK and forgets it.
const MINISTACK: [&str; 2] = ["ministack==1.5.33", "cbor2==5.9.0"];

/// Runs MiniStack in this very process and ends with its standard input: however the test binary
/// ends, the pipe closes and no server is left behind.
const UNTIL_STDIN_ENDS: &str = "
import os, runpy, sys, threading
def watch():
    while os.read(0, 4096):
        pass
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
session = os.environ.get('SESSION_SECONDS')
if session:
    from ministack.services import sts
    read = sts._p
    sts._p = lambda given, name, other='': session if name == 'DurationSeconds' else read(given, name, other)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
";

/// A running MiniStack: SQS, Lambda, DynamoDB and CloudWatch. Ends when dropped.
#[derive(Debug)]
pub struct MiniStack {
    child: Child,
    _alive: ChildStdin,
    port: u16,
    log: tempfile::NamedTempFile,
    /// What it holds outlives a restart.
    state: tempfile::TempDir,
}

impl MiniStack {
    /// The one that all tests of this binary share. Tests tell their queues apart by name.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<MiniStack> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// One of the test's own, which it may stop. Returns once the server answers.
    pub fn start() -> Self {
        let state = tempfile::tempdir().expect("a temporary folder");
        Self::start_at(free_port(), state, &[])
    }

    /// One that checks credentials and keeps accounts apart. The sessions of roles end after this
    /// time; AWS has none below 15 minutes.
    pub fn with_accounts(session: Duration) -> Self {
        let state = tempfile::tempdir().expect("a temporary folder");
        let session = session.as_secs().to_string();
        let more = [("AUTH", "true"), ("SESSION_SECONDS", &session)];
        Self::start_at(free_port(), state, &more)
    }

    /// Stops it as a service is stopped, which saves what the queues hold, and starts it again at
    /// the same address. Nothing answers meanwhile. Killed, it would forget everything.
    pub fn restart(mut self) -> Self {
        self.stop();
        let port = self.port;
        let state = tempfile::tempdir().expect("a temporary folder");
        let state = std::mem::replace(&mut self.state, state);
        drop(self);
        Self::start_at(port, state, &[])
    }

    fn stop(&mut self) {
        let id = i32::try_from(self.child.id()).ok();
        let id = id
            .and_then(rustix::process::Pid::from_raw)
            .expect("a process id");
        rustix::process::kill_process(id, rustix::process::Signal::TERM)
            .expect("it is our child and not yet waited for");
        let ended = self.child.wait().expect("it is our child");
        assert!(ended.success(), "MiniStack ended with {ended}");
    }

    fn start_at(port: u16, state: tempfile::TempDir, more: &[(&str, &str)]) -> Self {
        let tools = tools_folder();
        let python = python_with(&tools, &MINISTACK);
        let log = tempfile::NamedTempFile::new().expect("a temporary file");
        let writer = |file: &tempfile::NamedTempFile| file.reopen().expect("the log is ours");
        let mut child = Command::new(&python)
            .args(["-c", UNTIL_STDIN_ENDS])
            .arg(python.with_file_name("ministack"))
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("MINISTACK_HOST", "127.0.0.1")
            .env("PERSIST_STATE", "1")
            .env("STATE_DIR", state.path())
            .envs(more.iter().copied())
            .stdin(Stdio::piped())
            .stdout(writer(&log))
            .stderr(writer(&log))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", python.display()));
        let alive = child.stdin.take().expect("standard input is piped");
        let mut server = Self {
            child,
            _alive: alive,
            port,
            log,
            state,
        };
        server.wait_until_it_answers();
        server
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !answers(self.address()) {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "MiniStack does not answer at {} ({ended:?}); its log:\n{}",
                self.url(),
                fs::read_to_string(self.log.path()).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for MiniStack {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nothing listens on at this moment, and that this process gets once. It is below the
/// ephemeral ports: one of those may belong to an outgoing connection before its server binds it.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Two test binaries that run at once begin at different ports.
    let begin = std::process::id().wrapping_mul(127);
    let next = || begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let ports = std::iter::repeat_with(next).take(COUNT as usize);
    ports
        .map(|offset| FIRST + u16::try_from(offset).expect("the count is below 65,536"))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a free port")
}

fn answers(address: SocketAddr) -> bool {
    let mut answer = [0; 12];
    TcpStream::connect_timeout(&address, Duration::from_secs(1))
        .and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(
                b"GET /_ministack/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            )?;
            stream.read_exact(&mut answer)
        })
        .is_ok_and(|()| &answer == b"HTTP/1.1 200")
}

/// Where what tests install is kept: `$DISPATCHER_TOOLS`, or `test-tools` in the target folder that
/// this test was built in.
pub(crate) fn tools_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("DISPATCHER_TOOLS") {
        return folder.into();
    }
    let test = std::env::current_exe().expect("a test knows its own file");
    // target/PROFILE/deps/TEST, or target/PROFILE/PROGRAM as for the suite for AWS.
    let folders = test.ancestors().skip(1);
    let target = folders
        .filter(|folder| !folder.ends_with("deps"))
        .nth(1)
        .expect("tests lie in a target folder");
    target.join("test-tools")
}

/// What compilers keep for their next run.
pub(crate) fn caches_folder() -> PathBuf {
    tools_folder().join("caches")
}

/// The Python of an environment that holds these packages. Made by whichever test comes first; the
/// others wait for its lock.
pub(crate) fn python_with(tools: &Path, packages: &[&str]) -> PathBuf {
    let environment = tools.join(packages.join("-").replace("==", "-"));
    let python = environment.join("bin/python");
    let complete = environment.join("complete");
    fs::create_dir_all(tools)
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", tools.display()));
    let lock = File::create(tools.join("lock")).expect("the folder is ours");
    lock.lock().expect("a local file can be locked");
    if !complete.exists() {
        run(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&environment),
            "these tests need python3 with its venv module (Debian: python3-venv)",
        );
        run(
            Command::new(&python)
                .args(["-m", "pip", "install", "--quiet"])
                .args(packages),
            "Python packages could not be installed",
        );
        File::create(&complete).expect("the folder is ours");
    }
    python
}

pub(crate) fn run(command: &mut Command, otherwise: &str) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{otherwise}: {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{otherwise}: {command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}
