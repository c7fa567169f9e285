//! Detects whether the files of an open database are still the files at its path. SQLite itself
//! continues with a file that was deleted or replaced: later commits are in a file that cannot be
//! opened again. One thread checks all open databases once a second; every commit checks before it
//! is acknowledged. Damage lasts until the process ends: opening the path again would hide that
//! messages were lost.

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

/// The interval at which all open databases are checked.
const EVERY: Duration = Duration::from_secs(1);
/// The number of attempts to read a header: one that is being written is valid when it is read
/// again.
const ATTEMPTS: usize = 3;
/// The time for which a call that failed because of a lock counts against readiness, unless a later
/// call succeeds.
const LOCKED: Duration = Duration::from_secs(60);

/// The damage of the files of an open database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the file `{}` {what}; no reads or writes until a restart", .path.display())]
pub struct Damage {
    path: PathBuf,
    what: String,
}

/// A file, as it was when the database was opened.
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
    /// The log, opened beside SQLite, which holds no locks on this file. Its locks on any of the
    /// others would end when this process closes them.
    reader: File,
    /// The greatest length of the database so far. It never shrinks while it is in use.
    longest: AtomicU64,
    damage: OnceLock<Damage>,
    mark: Option<Mark>,
}

/// The greatest acknowledged number, in a file beside the database. A database that is opened again
/// must have reached it.
#[derive(Debug)]
pub(crate) struct Mark {
    file: File,
    written: AtomicI64,
}

/// All open databases of the process, and their problems.
struct WatchedDatabases {
    files: Vec<Weak<Files>>,
    is_running: bool,
    open: usize,
    damaged: BTreeMap<PathBuf, String>,
    locked: BTreeMap<PathBuf, BootInstant>,
}

static WATCHED: Mutex<WatchedDatabases> = Mutex::new(WatchedDatabases {
    files: Vec::new(),
    is_running: false,
    open: 0,
    damaged: BTreeMap::new(),
    locked: BTreeMap::new(),
});
static CLOSED: Condvar = Condvar::new();
/// Whether a call failed because of a lock, and no later success has ended this.
static ANY_LOCKED: AtomicBool = AtomicBool::new(false);

fn watched() -> MutexGuard<'static, WatchedDatabases> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the databases of this process that cannot be used, by path, each with the reason.
pub fn unusable() -> Vec<(PathBuf, String)> {
    let now = clock::now();
    let watched = watched();
    let damaged = watched
        .damaged
        .iter()
        .map(|(path, why)| (path.clone(), why.clone()));
    let locked = watched
        .locked
        .iter()
        .filter(|(_, since)| now.since(**since) < LOCKED)
        .map(|(path, _)| (path.clone(), "locked by another process".to_owned()));
    damaged.chain(locked).collect()
}

/// Waits until every database of the process is closed, which empties its log, but at most this
/// long.
pub fn wait_closed(most: Duration) {
    let wait = CLOSED.wait_timeout_while(watched(), most, |watched| watched.open > 0);
    drop(wait);
}

/// Returns the identity of a file, regardless of its name.
fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns the identity of the file at a path.
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

    /// Returns the length of the file, if it is still the one at its path.
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
    /// Returns the files of a database that SQLite has just opened. `before` was at the path before
    /// that.
    pub(crate) fn of(path: &Path, before: (u64, u64), mark: Option<Mark>) -> io::Result<Arc<Self>> {
        let database = FileIdentity::at(path.to_owned())?;
        if database.id != before {
            return Err(io::Error::other("it was replaced while being opened"));
        }
        // SQLite names the log after the file that a link leads to.
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

    /// Returns the path of the database.
    pub(crate) fn path(&self) -> &Path {
        &self.database.path
    }

    /// Returns damage that was found before.
    pub(crate) fn known_damage(&self) -> Result<(), Damage> {
        self.damage.get().cloned().map_or(Ok(()), Err)
    }

    /// Checks that all files are still at their paths, and that none was truncated or overwritten.
    pub(crate) fn check(&self) -> Result<(), Damage> {
        self.known_damage()?;
        self.look().map_err(|damage| self.note(damage))
    }

    /// Checks the files, and that the log is as long as what was committed to it; `frames` asks
    /// SQLite for the number of frames.
    pub(crate) fn check_log(&self, frames: impl Fn() -> Option<u64>) -> Result<(), Damage> {
        self.check()?;
        // Another process may have emptied the log between the two reads, which SQLite then knows.
        let is_truncated = (0..ATTEMPTS).all(|_| self.is_short(frames()) == Some(true));
        if is_truncated {
            Err(self.note(self.log.damage("was truncated while in use")))
        } else {
            Ok(())
        }
    }

    /// Whether the log is shorter than this many frames; `None` if it has none or cannot be read.
    fn is_short(&self, frames: Option<u64>) -> Option<bool> {
        let frames = frames.filter(|frames| *frames > 0)?;
        let length = self.log.length().ok()?;
        // Without a header there must be no frames either.
        let wanted = self.header().map_or(HEADER, |header| header.length(frames));
        Some(length < wanted)
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

    /// Records damage permanently, and logs it once for each database of the process.
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

    /// Records that a call failed because of another process's lock.
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

    /// Records that a call wrote.
    pub(crate) fn note_written(&self) {
        if ANY_LOCKED.load(Ordering::SeqCst) {
            let locked = &mut watched().locked;
            locked.remove(self.path());
            ANY_LOCKED.store(!locked.is_empty(), Ordering::SeqCst);
        }
    }

    /// Returns the length of the log.
    pub(crate) fn log_length(&self) -> u64 {
        self.log.length().unwrap_or(0)
    }

    /// Records the number that is acknowledged from now on.
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
    /// Creates a mark in this file, which is open for reading and writing.
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            written: AtomicI64::new(0),
        }
    }

    /// Returns the number in the file; 0 if it has none.
    pub(crate) fn read(&self) -> i64 {
        let mut bytes = [0; 20];
        let read = self.file.read_exact_at(&mut bytes, 0).ok();
        let text = read.and_then(|()| str::from_utf8(&bytes).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Raises the number. If this fails, or if another process writes a lower number at the same
    /// moment, only a hint is lost: a later loss of rows may go unnoticed, but none is reported by
    /// mistake.
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

/// Checks all open databases until there are none.
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
            // Damage is recorded and logged there.
            let _ = files.check();
        }
    }
}
