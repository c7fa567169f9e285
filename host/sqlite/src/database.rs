//! A connection to a database file that detects whether the file still exists, and keeps its
//! write-ahead log short. Knows no table.

use super::watch::{Damage, Files};
use super::{Patience, lock_error};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// How long nothing must have been written before the log is emptied: soon, so that an idle program
/// leaves a small file, and not between two messages.
pub const IDLE: Duration = Duration::from_secs(1);
/// A log of less is left to the other processes that have it open.
const LONG: u64 = 1 << 20;
/// A log that is longer is warned of while it cannot be emptied.
const TOO_LONG: u64 = 64 << 20;
/// How often.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// An open database. Used as the connection that it is; whoever writes calls `check` before he
/// begins and again before he tells anybody of his commit.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    files: Arc<Files>,
    patience: Patience,
    /// What counts the rows that were acknowledged.
    counter: Option<&'static str>,
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
    /// One connection to these files.
    pub fn new(
        connection: Connection,
        files: Arc<Files>,
        patience: Patience,
        counter: Option<&'static str>,
    ) -> Self {
        Self {
            connection,
            files,
            patience,
            counter,
            warned: None,
        }
    }

    /// Whether the files at the paths are those that are open, whole, outside of a transaction. An
    /// error is for good.
    pub fn check(&self) -> Result<(), Damage> {
        self.files.check_log(|| self.frames())
    }

    /// The same as far as it was found out already, which costs nothing.
    pub fn known_damage(&self) -> Result<(), Damage> {
        self.files.known_damage()
    }

    /// Notes that a call failed, if that was for another process's lock.
    pub fn note_failure(&self, error: &rusqlite::Error) {
        if lock_error(error) {
            self.files.note_locked();
        }
    }

    /// What the counter of acknowledged rows says within this transaction, if there is one.
    pub fn counter(&self) -> rusqlite::Result<Option<i64>> {
        let Some(counter) = self.counter else {
            return Ok(None);
        };
        let mut read = self.connection.prepare_cached(counter)?;
        let mut rows = read.query([])?;
        rows.next()?.map(|row| row.get(0)).transpose()
    }

    /// Notes that a call has written, and what the counter said in its transaction, before anybody is
    /// told.
    pub fn note_written(&self, counter: Option<i64>) {
        self.files.note_written();
        if let Some(counter) = counter {
            self.files.acknowledge(counter);
        }
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
    pub fn make_room(&mut self) -> bool {
        self.files.log_length() >= LONG && self.tidy()
    }

    /// Writes the log into the database and empties it, if nobody reads from it now; whether it is
    /// empty. Waits for nobody.
    pub fn tidy(&mut self) -> bool {
        let files = Arc::clone(&self.files);
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

impl Drop for Database {
    fn drop(&mut self) {
        if self.files.check().is_err() {
            // SQLite would delete the log at the path, which may be another database's by now.
            let off = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = self.connection.set_db_config(off, true);
        } else if self.files.log_length() >= LONG {
            self.tidy();
        }
    }
}
