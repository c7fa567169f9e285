//! What the three commands share: the account of one backend's run, the configuration of its
//! dispatchers, and the end in which everything is settled and judged. Knows no faults.

use crate::Options;
use crate::backend::EnduranceBackend;
use crate::process::Dispatcher;
use dispatcher_tests::ledger::{Ledger, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a lease lasts in every route.
pub(crate) const LEASE: Duration = Duration::from_secs(8);
/// How long the queues may take to become empty once nothing is sent any more.
const PATIENCE: Duration = Duration::from_secs(240);
/// An endpoint for those that call nobody.
const NOWHERE: &str = "http://127.0.0.1:9";
/// This many kinds of warnings are kept apart.
const MOST_NOTICES: usize = 200;

/// What is known about one backend's run. Shared by its sender, its processes' readers and the
/// judge.
#[derive(Debug)]
pub(crate) struct Account {
    ledger: Mutex<Ledger>,
    began: Instant,
    /// Where the processes' logs are.
    pub logs: PathBuf,
    notices: Mutex<BTreeMap<String, u64>>,
}

impl Account {
    /// With an empty ledger and a folder for logs.
    pub(crate) fn new(logs: PathBuf, breaks_calls: bool) -> Arc<Self> {
        std::fs::create_dir_all(&logs)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", logs.display()));
        let lease_ms = u64::try_from(LEASE.as_millis()).expect("seconds");
        Arc::new(Self {
            ledger: Mutex::new(Ledger::new(lease_ms, breaks_calls)),
            began: Instant::now(),
            logs,
            notices: Mutex::default(),
        })
    }

    /// The ledger, for as short as possible.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the run began.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A process warned; kinds of warnings are counted.
    pub(crate) fn noticed(&self, level: &str, message: &str) {
        let message: String = message.chars().take(140).collect();
        let mut gist = String::with_capacity(message.len());
        for c in message.chars() {
            match c.is_ascii_digit() {
                true if gist.ends_with('#') => {}
                true => gist.push('#'),
                false => gist.push(c),
            }
        }
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = format!("{level} {gist}");
        let kind = if notices.len() < MOST_NOTICES || notices.contains_key(&kind) {
            kind
        } else {
            "and others".to_owned()
        };
        *notices.entry(kind).or_default() += 1;
    }
}

/// One backend, its configuration and what runs against it.
pub(crate) struct Site {
    /// Where messages go.
    pub backend: EnduranceBackend,
    /// What is known.
    pub account: Arc<Account>,
    /// The program.
    binary: PathBuf,
    config: PathBuf,
    data: PathBuf,
    /// What the program is told as the endpoint: the server, or what is in front of it.
    endpoint: String,
    started: AtomicU32,
}

impl Site {
    /// A new one in this folder.
    pub(crate) fn new(
        binary: &Path,
        folder: &Path,
        backend: EnduranceBackend,
        endpoint: Option<String>,
        breaks_calls: bool,
    ) -> Self {
        let folder = folder.join(backend.name());
        let account = Account::new(folder.join("logs"), breaks_calls);
        let config = folder.join("dispatcher.toml");
        std::fs::write(&config, backend.configuration(LEASE)).expect("the folder is ours");
        Self {
            account,
            binary: binary.to_owned(),
            config,
            data: backend.data().unwrap_or(&folder).to_owned(),
            endpoint: endpoint.unwrap_or_else(|| NOWHERE.to_owned()),
            started: AtomicU32::new(0),
            backend,
        }
    }

    /// One for each backend that was asked for, whose calls nothing breaks.
    pub(crate) async fn all(options: &Options, folder: &Path, server: &str) -> Vec<Self> {
        let binary = options.binary();
        let mut sites = Vec::new();
        if options.backend.has_local() {
            let backend = EnduranceBackend::local(folder);
            sites.push(Self::new(&binary, folder, backend, None, false));
        }
        if options.backend.has_sqs() {
            let backend = EnduranceBackend::sqs(folder, server).await;
            let endpoint = Some(server.to_owned());
            sites.push(Self::new(&binary, folder, backend, endpoint, false));
        }
        sites
    }

    /// One more dispatcher.
    pub(crate) fn start(&self) -> Dispatcher {
        Dispatcher::start(
            &self.account,
            self.started.fetch_add(1, Relaxed),
            &self.binary,
            &self.config,
            &self.data,
            &self.endpoint,
        )
    }

    /// How many were started.
    pub(crate) fn starts(&self) -> u32 {
        self.started.load(Relaxed)
    }

    /// Waits until the queues are empty, stops these dispatchers, reads the dead letters and
    /// judges. What does not hold is among the lines.
    pub(crate) async fn conclude(&self, dispatchers: Vec<Dispatcher>) -> Conclusion {
        let mut wrong = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        let mut depth = self.backend.depth().await;
        while depth > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(200)).await;
            depth = self.backend.depth().await;
        }
        if depth > 0 {
            wrong.push(format!(
                "{depth} messages are still in the queues after {} s",
                PATIENCE.as_secs()
            ));
        }
        for mut dispatcher in dispatchers {
            let number = dispatcher.number;
            if let Some(status) = dispatcher.has_ended() {
                wrong.push(format!("dispatcher {number} ended by itself: {status}"));
                continue;
            }
            let status = dispatcher.stop();
            if !status.success() {
                wrong.push(format!(
                    "dispatcher {number} was stopped and ended with {status}"
                ));
            }
        }
        for (body, reason) in self.backend.dead().await {
            let number = dispatcher_tests::ledger::number(&body);
            self.account.ledger().dead_lettered(number, &reason);
        }
        let verdict = self.account.ledger().judge();
        Conclusion { verdict, wrong }
    }

    /// The end of a run in lines.
    pub(crate) fn report(&self, conclusion: &Conclusion) -> String {
        let Verdict {
            sent,
            handled,
            lost,
            duplicates,
            good_but_dead_lettered,
            dead_lettered_again,
        } = &conclusion.verdict;
        let name = self.backend.name();
        let mut out = format!(
            "{name}: sent {sent}, handled {handled}, lost {}, duplicates {} ({} unexplained), \
             dispatchers started {}\n",
            lost.len(),
            duplicates.len(),
            conclusion.verdict.unexplained().count(),
            self.starts(),
        );
        // Writing into a string cannot fail.
        for line in &conclusion.wrong {
            let _ = writeln!(out, "{name}: WRONG: {line}");
        }
        for number in lost.iter().take(20) {
            let _ = writeln!(out, "{name}: LOST: m{number}");
        }
        let mut excuses: BTreeMap<&str, u64> = BTreeMap::new();
        for duplicate in duplicates {
            use dispatcher_tests::ledger::Excuse;
            let why = match &duplicate.excuse {
                Some(Excuse::LeaseLost) => "its process said that the lease was lost",
                Some(Excuse::Killed(_)) => "its process was killed right after it was handled",
                Some(Excuse::Stopped) => "its process was stopped for longer than its lease",
                Some(Excuse::RanOut(_)) => "its settlement did not come through within its lease",
                None => {
                    let _ = writeln!(out, "{name}: UNEXPLAINED: {duplicate:?}");
                    continue;
                }
            };
            *excuses.entry(why).or_default() += 1;
        }
        for (why, times) in excuses {
            let _ = writeln!(out, "{name}: {times} came twice since {why}");
        }
        let _ = writeln!(
            out,
            "{name}: dead letters sent twice {dead_lettered_again}, good messages among them {}",
            good_but_dead_lettered.len()
        );
        for (reason, times) in self.account.ledger().reasons() {
            let _ = writeln!(out, "{name}: dead-lettered {times} times: {reason}");
        }
        let notices = &self.account.notices;
        let notices = notices.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, times) in notices.iter() {
            let _ = writeln!(out, "{name}: said {times} times: {kind}");
        }
        out
    }
}

/// What a run came to.
pub(crate) struct Conclusion {
    /// About messages.
    pub verdict: Verdict,
    /// About all else, a line each.
    pub wrong: Vec<String>,
}

impl Conclusion {
    /// Nothing lost, nothing unexplained, nothing wrong.
    pub(crate) fn holds(&self) -> bool {
        self.verdict.holds() && self.wrong.is_empty()
    }
}
