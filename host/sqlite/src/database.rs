//! A connection to a database file. It checks whether the file is still there, commits to it, and
//! keeps its write-ahead log short. Independent of tables.

use super::watch::{Damage, Files};
use super::{Patience, Schema, lock_error};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// The time without a write after which the log is emptied: soon, so that an idle program leaves a
/// small file, and not between two messages.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// The length below which a log is left to the other processes that have it open.
const LONG: u64 = 1 << 20;
/// The length above which a log that cannot be emptied is warned of.
const TOO_LONG: u64 = 64 << 20;
/// The interval of this warning.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The failures that a commit must survive, by the name of SQLite's level of `PRAGMA synchronous`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synchronous {
    /// A crash of the process. Does not wait for the disk, and is not counted as acknowledged.
    Normal,
    /// A loss of power.
    Full,
}

/// The reason why a transaction was not committed.
#[derive(Debug)]
pub enum CommitError {
    /// The file is not the one that was opened: nothing can be written until a restart, and the
    /// last commit is lost.
    Lost(Damage),
    /// The transaction was not begun: nothing can be written now.
    Begin(rusqlite::Error),
    /// The transaction was begun and rolled back.
    Within(rusqlite::Error),
}

impl CommitError {
    /// Whether the system had no room for the write.
    fn is_full(&self) -> bool {
        let (Self::Begin(error) | Self::Within(error)) = self else {
            return false;
        };
        let code = error.sqlite_error_code();
        matches!(code, Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure))
    }
}

/// An open database. It dereferences to its connection; writes go through `transact`.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    /// `None` for a database in memory.
    files: Option<Arc<Files>>,
    patience: Patience,
    /// The query that counts the acknowledged rows.
    counter: Option<&'static str>,
    /// Whether a call that fails because of another process's lock counts against readiness.
    reports_locks: bool,
    /// The current setting of `PRAGMA synchronous`.
    synchronous: Synchronous,
    warned: Option<BootInstant>,
}

impl Deref for Database {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Database {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Database {
    /// Wraps one connection to these files, of this schema.
    pub(crate) fn new(connection: Connection, files: Option<Arc<Files>>, schema: &Schema) -> Self {
        Self {
            connection,
            files,
            patience: schema.patience,
            counter: schema.counter,
            reports_locks: schema.reports_locks,
            synchronous: Synchronous::Full,
            warned: None,
        }
    }

    /// Runs `step` in one transaction and commits it. If the disk is full, perhaps because of the
    /// write-ahead log, the log is emptied and everything is tried once more: `step` may be called
    /// twice, and only the last call counts. The caller must not report what was written before
    /// this returns.
    ///
    /// # Errors
    /// Fails if nothing was written, or if it is lost.
    pub fn transact<T>(
        &mut self,
        level: Synchronous,
        mut step: impl FnMut(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, CommitError> {
        let mut outcome = self.commit(level, &mut step);
        if outcome.as_ref().is_err_and(CommitError::is_full) && self.make_room() {
            outcome = self.commit(level, &mut step);
        }
        if let Err(CommitError::Begin(error) | CommitError::Within(error)) = &outcome
            && self.reports_locks
            && lock_error(error)
            && let Some(files) = &self.files
        {
            files.note_locked();
        }
        outcome
    }

    fn commit<T>(
        &mut self,
        level: Synchronous,
        step: &mut impl FnMut(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, CommitError> {
        self.check().map_err(CommitError::Lost)?;
        self.begin(level).map_err(CommitError::Begin)?;
        let committed = step(&self.connection).and_then(|value| {
            let number = match level {
                Synchronous::Full => self.counted()?,
                Synchronous::Normal => None,
            };
            execute(&self.connection, "COMMIT")?;
            Ok((value, number))
        });
        let (value, number) = match committed {
            Ok(committed) => committed,
            Err(error) => {
                if !self.connection.is_autocommit() {
                    // A rollback that fails shows in the next BEGIN.
                    let _ = execute(&self.connection, "ROLLBACK");
                }
                return Err(CommitError::Within(error));
            }
        };
        // A commit to a file that is no longer there is not reported.
        self.check().map_err(CommitError::Lost)?;
        if let Some(files) = &self.files {
            files.note_written();
            number
                .into_iter()
                .for_each(|number| files.acknowledge(number));
        }
        Ok(value)
    }

    fn begin(&mut self, level: Synchronous) -> rusqlite::Result<()> {
        if self.synchronous != level {
            // In WAL mode, NORMAL omits the sync at the commit. The next FULL commit syncs it too,
            // because the log is one sequence.
            let name = match level {
                Synchronous::Normal => "NORMAL",
                Synchronous::Full => "FULL",
            };
            self.connection
                .execute_batch(&format!("PRAGMA synchronous = {name}"))?;
            self.synchronous = level;
        }
        execute(&self.connection, "BEGIN IMMEDIATE")
    }

    /// Returns the counter of acknowledged rows within this transaction, if there is one.
    fn counted(&self) -> rusqlite::Result<Option<i64>> {
        let Some(counter) = self.counter else {
            return Ok(None);
        };
        let mut read = self.connection.prepare_cached(counter)?;
        let mut rows = read.query([])?;
        rows.next()?.map(|row| row.get(0)).transpose()
    }

    /// Checks, outside of a transaction, that the files at the paths are those that are open, and
    /// whole. An error is permanent.
    fn check(&self) -> Result<(), Damage> {
        let files = self.files.as_ref();
        files.map_or(Ok(()), |files| files.check_log(|| self.frames()))
    }

    /// Returns damage that was found before, which costs nothing.
    pub fn known_damage(&self) -> Result<(), Damage> {
        let files = self.files.as_ref();
        files.map_or(Ok(()), |files| files.known_damage())
    }

    /// Returns the number of pages in the log.
    fn frames(&self) -> Option<u64> {
        let sql = "PRAGMA wal_checkpoint = NOOP";
        let mut ask = self.connection.prepare_cached(sql).ok()?;
        ask.query_row([], |row| row.get::<_, i64>(1))
            .ok()?
            .try_into()
            .ok()
    }

    /// Empties a long log, which gives the disk room. Returns whether it did. A short log is no
    /// more than what opening and reading a database on a full disk needs.
    fn make_room(&mut self) -> bool {
        let files = self.files.as_ref();
        files.is_some_and(|files| files.log_length() >= LONG) && self.tidy()
    }

    /// Writes the log into the database and empties it, unless another connection reads from it
    /// now. Returns whether it is empty. Does not wait.
    pub fn tidy(&mut self) -> bool {
        let Some(files) = self.files.clone() else {
            return true;
        };
        if files.check().is_err() || files.log_length() == 0 {
            return true;
        }
        let none = None::<fn(i32) -> bool>;
        let emptied = self.connection.busy_handler(none).and_then(|()| {
            let sql = "PRAGMA wal_checkpoint = TRUNCATE";
            self.connection
                .query_row(sql, [], |row| row.get::<_, i64>(0))
        });
        let patient = self.connection.busy_handler(Some(self.patience));
        let is_empty = matches!(emptied, Ok(0)) && patient.is_ok();
        let now = clock::now();
        let is_due = self.warned.is_none_or(|last| now.since(last) >= WARN_EVERY);
        if !is_empty && is_due && files.log_length() > TOO_LONG {
            self.warned = Some(now);
            tracing::warn!(
                path = %files.path().display(),
                bytes = files.log_length(),
                "write-ahead log cannot be emptied: another connection reads from it"
            );
        }
        is_empty
    }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some(files) = &self.files else { return };
        if files.check().is_err() {
            // SQLite would delete the log at the path, which may be another database's by now.
            let off = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = self.connection.set_db_config(off, true);
        } else if files.log_length() >= LONG {
            self.tidy();
        }
    }
}
