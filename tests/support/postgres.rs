//! A PostgreSQL server as a child process on a free port of the loopback interface, and `psql` to
//! look at it from outside. Knows nothing of the program.

use crate::PATIENCE;
use crate::certificates::Certificates;
use crate::debian::DebianProgram;
use crate::servers::free_port;
use crate::tied::TiedServer;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PACKAGES: DebianProgram = DebianProgram {
    program: "postgresql",
    packages: &["postgresql-15", "postgresql-client-15", "libpq5"],
    libraries: &[
        "libicu72",
        "libldap-2.5-0",
        "libssl3",
        "libxml2",
        "libxslt1.1",
    ],
};

/// Where Debian puts the programs.
const PROGRAMS: &str = "usr/lib/postgresql/15/bin";

/// The user that the server runs as where the tests run as root, which it refuses: `nobody`.
const NOBODY: u32 = 65_534;

/// A running server. Ends when dropped.
#[derive(Debug)]
pub struct PostgresServer {
    server: TiedServer,
    port: u16,
    more: Vec<String>,
    /// What it holds outlives a restart.
    folder: tempfile::TempDir,
}

impl PostgresServer {
    /// The one that all tests of this binary share; it does not wait for the disk. Tests tell their
    /// queues apart by name.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&["-c", "fsync=off"]))
    }

    /// One of the test's own with more settings. Returns once it answers.
    pub fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut initdb = program("initdb");
        if is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
            initdb.uid(NOBODY).gid(NOBODY);
        }
        let made = initdb
            .args(["--username", "dispatcher", "--auth", "trust", "--no-sync"])
            .args(["--encoding", "UTF8", "--locale", "C.UTF-8", "--pgdata"])
            .arg(folder.path().join("data"))
            .current_dir("/")
            .output();
        let made = made.expect("initdb starts");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let more = more.iter().map(ToString::to_string).collect();
        Self::start_at(free_port(), folder, more)
    }

    /// One of the test's own that speaks TLS as well.
    pub fn with_tls(certificates: &Certificates) -> Self {
        let started = Self::start(&["-c", "fsync=off"]);
        let data = started.folder.path().join("data");
        for (file, from) in [
            ("server.crt", certificates.certificate()),
            ("server.key", certificates.key()),
            ("root.crt", certificates.authority()),
        ] {
            let to = data.join(file);
            fs::copy(from, &to).expect("it can be copied");
            fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("it is ours");
            if is_root() {
                chown(&to, Some(NOBODY), Some(NOBODY)).expect("root may");
            }
        }
        // The role `node` must have a certificate of the authority with its name.
        let rules = data.join("pg_hba.conf");
        let others = fs::read_to_string(&rules).expect("it has rules");
        let own = format!("hostssl all node all cert\n{others}");
        fs::write(&rules, own).expect("it is ours");
        started.sql("CREATE ROLE node LOGIN SUPERUSER");
        started.sql("ALTER SYSTEM SET ssl_ca_file = 'root.crt'");
        started.sql("ALTER SYSTEM SET ssl = on");
        started.sql("SELECT pg_reload_conf()");
        let deadline = Instant::now() + PATIENCE;
        while started.sql("SHOW ssl") != "on" {
            assert!(Instant::now() < deadline, "it does not speak TLS");
            std::thread::sleep(Duration::from_millis(20));
        }
        started
    }

    fn start_at(port: u16, folder: tempfile::TempDir, more: Vec<String>) -> Self {
        let postgres = program("postgres");
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            let user = NOBODY.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
            command.arg(postgres.get_program());
            command
        } else {
            Command::new(postgres.get_program())
        };
        command.envs(
            postgres
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        command
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &port.to_string(),
                "-k",
                "",
                "-c",
                "logging_collector=on",
                "-D",
            ])
            .arg(folder.path().join("data"))
            .args(&more);
        let started = Self {
            server: TiedServer::start(&command),
            port,
            more,
            folder,
        };
        started.wait_until_it_answers();
        started
    }

    /// Ends it as a crash does, but with all its processes: it completes nothing, and recovers at its
    /// next start.
    pub fn crash(&mut self) {
        if let Some(server) = Pid::from_raw(self.server.id()) {
            kill_process(server, Signal::QUIT).expect("it runs");
        }
        let deadline = Instant::now() + PATIENCE;
        let lock = self.folder.path().join("data/postmaster.pid");
        while lock.exists() {
            assert!(Instant::now() < deadline, "PostgreSQL does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.server.kill();
    }

    /// Crashes it, and starts it again: the same address, and what it wrote to disk.
    pub fn again(mut self) -> Self {
        self.crash();
        let empty = tempfile::tempdir().expect("a temporary folder");
        let folder = std::mem::replace(&mut self.folder, empty);
        let (port, more) = (self.port, std::mem::take(&mut self.more));
        drop(self);
        Self::start_at(port, folder, more)
    }

    /// `postgres://dispatcher@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        self.url_of("dispatcher")
    }

    /// The same for another role.
    pub fn url_of(&self, role: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/postgres", self.port)
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process id, for whoever measures it.
    pub fn id(&self) -> i32 {
        self.server.id()
    }

    /// A name that no other test has, which is a name in SQL without quotes.
    pub fn fresh_name(what: &str) -> String {
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        format!("{what}_{}_{number}", std::process::id())
    }

    /// What `psql` prints for statements, as the owner: a line for each row, with `|` between
    /// columns.
    pub fn sql(&self, statements: &str) -> String {
        let answer = self.try_sql("dispatcher", statements);
        answer.unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// The same as another role.
    ///
    /// # Errors
    /// What psql prints then.
    pub fn try_sql(&self, role: &str, statements: &str) -> Result<String, String> {
        let done = self.psql(role).args(["-c", statements]).output();
        let done = done.expect("psql starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
        if done.status.success() {
            Ok(text(done.stdout))
        } else {
            Err(text(done.stderr))
        }
    }

    /// A session of `psql` that stays open.
    pub fn session(&self, role: &str) -> Session {
        let mut command = self.psql(role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("psql starts");
        Session {
            statements: child.stdin.take().expect("piped"),
            answers: BufReader::new(child.stdout.take().expect("piped")),
            child,
        }
    }

    /// `psql`, connected, for more arguments.
    pub fn psql(&self, role: &str) -> Command {
        let mut psql = program("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql.arg(self.url_of(role));
        psql
    }

    /// The log of the server, if its settings keep one in its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn wait_until_it_answers(&self) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.try_sql("dispatcher", "SELECT 1") {
            assert!(
                Instant::now() < deadline,
                "PostgreSQL does not answer: {error}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A session of `psql`. Ends when dropped; the server then rolls its transaction back.
#[derive(Debug)]
pub struct Session {
    child: Child,
    statements: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Session {
    /// Runs a statement, and returns what psql prints once it is done.
    pub fn run(&mut self, statement: &str) -> String {
        const END: &str = "-- done --";
        writeln!(self.statements, "{statement};\n\\echo '{END}'").expect("psql reads");
        let mut text = String::new();
        loop {
            let mut line = String::new();
            let read = self.answers.read_line(&mut line).expect("psql writes");
            assert!(read > 0, "psql ended at: {statement}");
            if line.trim_end() == END {
                return text;
            }
            text.push_str(&line);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// One of PostgreSQL's programs: as it is installed, else from its packages.
fn program(name: &str) -> Command {
    let installed = Path::new("/").join(PROGRAMS).join(name);
    if installed.exists() {
        return Command::new(installed);
    }
    let root: PathBuf = PACKAGES.folder();
    let machine = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(root.join(PROGRAMS).join(name));
    command.env("LD_LIBRARY_PATH", root.join(machine));
    command
}
