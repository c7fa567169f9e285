//! A connection to a database file that knows whether the file is still there, commits to it, and
//! keeps its write-ahead log short. Knows no table.

use super::watch::{Damage, Files};
use super::{Patience, Schema, lock_error};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// How long nothing must have been written before the log is emptied: soon, so that an idle program
/// leaves a small file, and not between two messages.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// A log of less is left to the other processes that have it open.
const LONG: u64 = 1 << 20;
/// A log that is longer is warned of while it cannot be emptied.
const TOO_LONG: u64 = 64 << 20;
/// How often.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What a commit must survive, by the name of SQLite's level of `PRAGMA synchronous`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synchronous {
    /// A crash of the process. Does not wait for the disk, and is not counted as acknowledged.
    Normal,
    /// A loss of power.
    Full,
}

/// Why a transaction was not committed.
#[derive(Debug)]
pub enum CommitError {
    /// The file is not the one that was opened: nothing can be written until a restart, and what
    /// was just committed is lost.
    Lost(Damage),
    /// Not begun: nothing can be written now.
    Begin(rusqlite::Error),
    /// Begun and rolled back.
    Within(rusqlite::Error),
}

impl CommitError {
    /// Whether the system had no room for what was written.
    fn is_full(&self) -> bool {
        let (Self::Begin(error) | Self::Within(error)) = self else {
            return false;
        };
        let code = error.sqlite_error_code();
        matches!(code, Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure))
    }
}

/// An open database. Used as the connection that it is; whoever writes does so by `transact`.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    /// None of a database in memory.
    files: Option<Arc<Files>>,
    patience: Patience,
    /// What counts the rows that were acknowledged.
    counter: Option<&'static str>,
    /// Whether a call that ends at another process's lock counts against readiness.
    reports_locks: bool,
    /// What `PRAGMA synchronous` is set to.
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
    /// One connection to these files, of this schema.
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

    /// Runs `step` in one transaction and commits it. Where the disk is full, which may be the
    /// write-ahead log's doing, the log is emptied and all is tried once more: `step` may be called
    /// twice, and only the last call counts. Nobody may be told of what it wrote before this returns.
    ///
    /// # Errors
    /// Nothing was written, or it is lost.
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
                    // What cannot be rolled back either shows in the next BEGIN.
                    let _ = execute(&self.connection, "ROLLBACK");
                }
                return Err(CommitError::Within(error));
            }
        };
        // Nobody is told of a commit to a file that is not there any more.
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
            // In WAL mode, NORMAL leaves out the sync at the commit; the next FULL one makes up
            // for it, since the log is one sequence.
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

    /// What the counter of acknowledged rows says within this transaction, if there is one.
    fn counted(&self) -> rusqlite::Result<Option<i64>> {
        let Some(counter) = self.counter else {
            return Ok(None);
        };
        let mut read = self.connection.prepare_cached(counter)?;
        let mut rows = read.query([])?;
        rows.next()?.map(|row| row.get(0)).transpose()
    }

    /// Whether the files at the paths are those that are open, whole, outside of a transaction. An
    /// error is for good.
    fn check(&self) -> Result<(), Damage> {
        let files = self.files.as_ref();
        files.map_or(Ok(()), |files| files.check_log(|| self.frames()))
    }

    /// The same as far as it was found out already, which costs nothing.
    pub fn known_damage(&self) -> Result<(), Damage> {
        let files = self.files.as_ref();
        files.map_or(Ok(()), |files| files.known_damage())
    }

    /// How many pages the log holds.
    fn frames(&self) -> Option<u64> {
        let sql = "PRAGMA wal_checkpoint = NOOP";
        let mut ask = self.connection.prepare_cached(sql).ok()?;
        ask.query_row([], |row| row.get::<_, i64>(1))
            .ok()?
            .try_into()
            .ok()
    }

    /// Empties a log that is long, which gives the disk room; whether it did. A short one is no more
    /// than what a full disk needs to be opened and read from.
    fn make_room(&mut self) -> bool {
        let files = self.files.as_ref();
        files.is_some_and(|files| files.log_length() >= LONG) && self.tidy()
    }

    /// Writes the log into the database and empties it, if nobody reads from it now; whether it is
    /// empty. Waits for nobody.
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
