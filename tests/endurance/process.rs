//! One dispatcher as a child process, its log in a file that is read along: a file is never full
//! and outlives `kill -9`, so no line is missed. Knows the lines that the account needs.

use crate::scene::Account;
use dispatcher_tests::PATIENCE;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::ledger;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A running dispatcher. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    /// Its number among those of this run.
    pub number: u32,
    child: Child,
    account: Arc<Account>,
    /// `http://127.0.0.1:PORT`, once it has said so.
    admin: Arc<Mutex<Option<String>>>,
    ended: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Dispatcher {
    /// Starts it with this configuration, in this data folder, against this endpoint.
    pub(crate) fn start(
        account: &Arc<Account>,
        number: u32,
        binary: &Path,
        config: &Path,
        data: &Path,
        endpoint: &str,
    ) -> Self {
        let arguments = ["run", "--config", &config.display().to_string()].map(str::to_owned);
        let program = Program::of(binary, arguments).aws(endpoint);
        let (mut command, _folder) = program.into_command();
        let path = account.logs.join(format!("dispatcher-{number}.log"));
        let log = File::create(&path).expect("the folder is ours");
        let child = command
            .env("DISPATCHER_DATA", data)
            .current_dir(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", binary.display()));
        let (admin, ended) = (Arc::default(), Arc::default());
        let reader = Reader {
            account: Arc::clone(account),
            number,
            path,
            admin: Arc::clone(&admin),
            ended: Arc::clone(&ended),
        };
        Self {
            number,
            child,
            account: Arc::clone(account),
            admin,
            ended,
            reader: Some(std::thread::spawn(move || reader.run())),
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where its metrics are, once it has said so.
    ///
    /// # Panics
    /// If it does not, with where its log is.
    pub(crate) fn admin(&self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(url) = said.as_ref() {
                return url.clone();
            }
            drop(said);
            assert!(
                Instant::now() < deadline,
                "dispatcher {} does not say where its metrics are; see {}",
                self.number,
                self.account.logs.display()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok();
        let id = id
            .and_then(rustix::process::Pid::from_raw)
            .expect("a process id");
        rustix::process::kill_process(id, signal).expect("it is our child and not yet waited for");
    }

    /// Whether it has ended by itself, and how.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// Kills it with `kill -9` and enters that.
    pub(crate) fn kill(mut self) {
        self.account
            .ledger()
            .killed(self.number, self.account.now_ms());
        let _ = self.child.kill();
        self.wait();
    }

    /// Stops it as a service is stopped.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for its end, and for the last line of its log.
    fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("it is our child");
        self.ended.store(true, SeqCst);
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader reads on whatever comes");
        }
        status
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.wait_if_running();
    }
}

impl Dispatcher {
    fn wait_if_running(&mut self) {
        if self.reader.is_some() {
            self.wait();
        }
    }
}

/// Reads a log as it grows.
struct Reader {
    account: Arc<Account>,
    number: u32,
    path: PathBuf,
    admin: Arc<Mutex<Option<String>>>,
    ended: Arc<AtomicBool>,
}

impl Reader {
    fn run(self) {
        let mut lines = BufReader::new(File::open(&self.path).expect("it was made before us"));
        let mut line = Vec::new();
        loop {
            // Asked before the file: what was written before the end is then read after it.
            let ended = self.ended.load(SeqCst);
            match lines.read_until(b'\n', &mut line) {
                Ok(read) if read > 0 && line.ends_with(b"\n") => {
                    self.line(&String::from_utf8_lossy(&line));
                    line.clear();
                }
                _ if ended => return,
                _ => std::thread::sleep(LOOK),
            }
        }
    }

    fn line(&self, text: &str) {
        let Ok(line) = serde_json::from_str::<Value>(text) else {
            return self.account.noticed("no JSON: ", text.trim());
        };
        let field = |name: &str| line[name].as_str().unwrap_or_default();
        let message = field("message");
        if field("target") == "guest" {
            if let ("stdout", Some(number)) = (field("stream"), ledger::number(message)) {
                let at = self.account.now_ms();
                self.account.ledger().handled(number, self.number, at);
            }
            return;
        }
        if message == "health and metrics served" {
            let mut admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
            *admin = Some(field("url").to_owned());
        }
        if ["lease lost", "message not settled"].contains(&message) {
            let mut ledger = self.account.ledger();
            ledger.lease_lost(field("message_id"), self.number);
        }
        if ["WARN", "ERROR"].contains(&field("level")) {
            self.account.noticed(field("level"), message);
        }
    }
}
