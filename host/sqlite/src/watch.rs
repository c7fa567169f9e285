//! Detects whether the files of an open database are still the files at its path. SQLite itself
//! continues with a file that was deleted or replaced: later commits are in no file that anybody
//! can open again. One thread checks all open databases once a second; every commit checks before
//! it is acknowledged. A problem lasts until the process ends: opening the path again would hide
//! that messages were lost.

use super::wal::{HEADER, Header};
use super::{NAP, beside};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How often all open databases are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// A header that is being written while it is read is valid when it is read again.
const ATTEMPTS: usize = 3;
/// How long a lock that ended a call counts against readiness, unless a later call succeeds.
const LOCKED: Duration = Duration::from_secs(60);

/// What is wrong with the files of an open database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the file `{}` {what}; no reads or writes until a restart", .path.display())]
pub struct Damage {
    path: PathBuf,
    what: String,
}

/// A file that was there when the database was opened.
#[derive(Debug)]
struct FileIdentity {
    path: PathBuf,
    id: (u64, u64),
}

/// The files of one database that is open in this process.
#[derive(Debug)]
pub(crate) struct Files {
    database: FileIdentity,
    log: FileIdentity,
    index: FileIdentity,
    /// Opened beside SQLite, which holds no locks on this one of its files: a lock on any of the
    /// others would end with our closing it.
    reader: File,
    /// The greatest length of the database that was seen. It never shrinks while it is in use.
    longest: AtomicU64,
    damage: OnceLock<Damage>,
    mark: Option<Mark>,
}

/// The greatest number that was acknowledged, in a file beside the database: what a database that
/// was opened again must at least have reached.
#[derive(Debug)]
pub(crate) struct Mark {
    file: File,
    written: AtomicI64,
}

/// All open databases of the process, and what is wrong with any.
struct Watched {
    files: Vec<Weak<Files>>,
    is_running: bool,
    open: usize,
    damaged: BTreeMap<PathBuf, String>,
    locked: BTreeMap<PathBuf, BootInstant>,
}

static WATCHED: Mutex<Watched> = Mutex::new(Watched {
    files: Vec::new(),
    is_running: false,
    open: 0,
    damaged: BTreeMap::new(),
    locked: BTreeMap::new(),
});
static CLOSED: Condvar = Condvar::new();
/// Whether a lock was met that no later success has ended.
static ANY_LOCKED: AtomicBool = AtomicBool::new(false);

fn watched() -> MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The databases of this process that cannot be used, by path, each with the reason.
pub fn unusable() -> Vec<(PathBuf, String)> {
    let now = clock::now();
    let watched = watched();
    let damaged = watched.damaged.iter();
    let damaged = damaged.map(|(path, why)| (path.clone(), why.clone()));
    let locked = watched.locked.iter();
    let locked = locked.filter(|(_, since)| now.since(**since) < LOCKED);
    let locked = locked.map(|(path, _)| (path.clone(), "locked by another process".to_owned()));
    damaged.chain(locked).collect()
}

/// Waits until every database of the process is closed, which empties its log; no longer than so.
pub fn wait_closed(most: Duration) {
    let wait = CLOSED.wait_timeout_while(watched(), most, |watched| watched.open > 0);
    drop(wait);
}

/// Which file it is, however it is called.
fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Which file is at a path.
pub(crate) fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|metadata| id(&metadata))
}

impl FileIdentity {
    fn at(path: PathBuf) -> io::Result<Self> {
        let id = identity(&path)?;
        Ok(Self { path, id })
    }

    fn damage(&self, what: impl Into<String>) -> Damage {
        Damage {
            path: self.path.clone(),
            what: what.into(),
        }
    }

    /// The length of the file, if it still is the one at its path.
    fn length(&self) -> Result<u64, Damage> {
        match std::fs::metadata(&self.path) {
            Ok(metadata) if id(&metadata) == self.id => Ok(metadata.len()),
            Ok(_) => Err(self.damage("was replaced while in use")),
            Err(error) => Err(match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => {
                    self.damage("was deleted while in use")
                }
                _ => self.damage(format!("cannot be inspected ({error})")),
            }),
        }
    }
}

impl Files {
    /// The files of a database that SQLite has just opened, of which this was at the path before.
    pub(crate) fn of(path: &Path, before: (u64, u64), mark: Option<Mark>) -> io::Result<Arc<Self>> {
        let database = FileIdentity::at(path.to_owned())?;
        if database.id != before {
            return Err(io::Error::other("it was replaced while being opened"));
        }
        // SQLite names the log by the file that a link leads to.
        let real = std::fs::canonicalize(path)?;
        let log = FileIdentity::at(beside(&real, "-wal"))?;
        let files = Arc::new(Self {
            reader: File::open(&log.path)?,
            database,
            log,
            index: FileIdentity::at(beside(&real, "-shm"))?,
            longest: AtomicU64::new(0),
            damage: OnceLock::new(),
            mark,
        });
        let mut watched = watched();
        watched.open += 1;
        watched.files.push(Arc::downgrade(&files));
        if !watched.is_running {
            let thread = std::thread::Builder::new().name("sqlite-files".into());
            watched.is_running = thread.spawn(watch).is_ok();
        }
        Ok(files)
    }

    /// The database.
    pub(crate) fn path(&self) -> &Path {
        &self.database.path
    }

    /// What was found wrong before.
    pub(crate) fn known_damage(&self) -> Result<(), Damage> {
        self.damage.get().cloned().map_or(Ok(()), Err)
    }

    /// Looks whether all files are still at their paths, and none was cut short or overwritten.
    pub(crate) fn check(&self) -> Result<(), Damage> {
        self.known_damage()?;
        self.look().map_err(|damage| self.note(damage))
    }

    /// The same, and whether the log is as long as what was committed to it; `frames` asks SQLite
    /// for their number.
    pub(crate) fn check_log(&self, frames: impl Fn() -> Option<u64>) -> Result<(), Damage> {
        self.check()?;
        let is_short = || {
            let frames = frames().filter(|frames| *frames > 0)?;
            let length = self.log.length().ok()?;
            // Without a header there must be no frames either.
            let wanted = self.header().map_or(HEADER, |header| header.length(frames));
            Some(length < wanted)
        };
        // Between the two another process may have emptied it, which SQLite then knows.
        let is_truncated = (0..ATTEMPTS).all(|_| is_short() == Some(true));
        match is_truncated {
            true => Err(self.note(self.log.damage("was truncated while in use"))),
            false => Ok(()),
        }
    }

    fn header(&self) -> Option<Header> {
        let mut bytes = [0; 32];
        self.reader.read_exact_at(&mut bytes, 0).ok()?;
        Header::parse(&bytes)
    }

    fn look(&self) -> Result<(), Damage> {
        let longest = self.longest.load(Ordering::SeqCst);
        let length = self.database.length()?;
        if length < longest {
            return Err(self.database.damage("was truncated while in use"));
        }
        self.longest.fetch_max(length, Ordering::SeqCst);
        self.index.length()?;
        for _ in 0..ATTEMPTS {
            if self.log.length()? <= HEADER || self.header().is_some() {
                return Ok(());
            }
            std::thread::sleep(NAP);
        }
        Err(self.log.damage("was overwritten while in use"))
    }

    /// Notes what is wrong, for good, and logs it, once for each database of the process.
    fn note(&self, damage: Damage) -> Damage {
        let first = self.damage.set(damage.clone()).is_ok();
        let mut watched = watched();
        let path = self.path().to_owned();
        if first && watched.damaged.insert(path, damage.to_string()).is_none() {
            tracing::error!(
                path = %damage.path.display(),
                reason = damage.what,
                "database file lost: every call on it fails until a restart"
            );
        }
        damage
    }

    /// Notes that a call ended at another process's lock.
    pub(crate) fn note_locked(&self) {
        ANY_LOCKED.store(true, Ordering::SeqCst);
        let locked = &mut watched().locked;
        let now = clock::now();
        let before = locked.insert(self.path().to_owned(), now);
        if before.is_none_or(|before| now.since(before) >= LOCKED) {
            tracing::error!(
                path = %self.path().display(),
                "database file locked by another process: the call failed, the next one retries"
            );
        }
    }

    /// Notes that a call wrote.
    pub(crate) fn note_written(&self) {
        if ANY_LOCKED.load(Ordering::SeqCst) {
            let locked = &mut watched().locked;
            locked.remove(self.path());
            ANY_LOCKED.store(!locked.is_empty(), Ordering::SeqCst);
        }
    }

    /// The length of the log.
    pub(crate) fn log_length(&self) -> u64 {
        self.log.length().unwrap_or(0)
    }

    /// Writes down what is acknowledged from now on.
    pub(crate) fn acknowledge(&self, number: i64) {
        if let Some(mark) = &self.mark {
            mark.raise(number);
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        watched().open -= 1;
        CLOSED.notify_all();
    }
}

impl Mark {
    /// In this file, which is open to be read and written.
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            written: AtomicI64::new(0),
        }
    }

    /// What is in the file; nothing if it says nothing.
    pub(crate) fn read(&self) -> i64 {
        let mut bytes = [0; 20];
        let read = self.file.read_exact_at(&mut bytes, 0).ok();
        let text = read.and_then(|()| str::from_utf8(&bytes).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Only a hint is lost if this fails, or if another process writes a lower number at the same
    /// moment: the database may then have lost as much without a sign, and never the other way round.
    fn raise(&self, number: i64) {
        if number <= self.written.load(Ordering::SeqCst) {
            return;
        }
        self.written.store(number, Ordering::SeqCst);
        if number > self.read()
            && let Err(error) = self
                .file
                .write_all_at(format!("{number:020}\n").as_bytes(), 0)
        {
            tracing::debug!(%error, "the number of acknowledged messages cannot be written");
        }
    }
}

/// Looks at all open databases until there is none.
fn watch() {
    loop {
        std::thread::sleep(EVERY);
        let files: Vec<_> = {
            let mut watched = watched();
            watched.files.retain(|files| files.strong_count() > 0);
            watched.is_running = !watched.files.is_empty();
            if !watched.is_running {
                return;
            }
            watched.files.iter().filter_map(Weak::upgrade).collect()
        };
        for files in files {
            // What is wrong is noted and logged there.
            let _ = files.check();
        }
    }
}
