//! The file: its path, how it is opened, its tables and the meaning of its errors. The schema does
//! not know the content.

use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_sqlite as sqlite;
use dispatcher_sqlite::{CommitError, Damage, Database, Schema};
#[cfg(test)]
use rusqlite::Connection;
use std::path::{Path, PathBuf};

const SCHEMA: Schema = Schema {
    // `dikv`
    application: 0x6469_6b76,
    version: 1,
    tables: &[TABLES],
    upgrades: &[],
    // An attempt waits for the write, and another process holds the lock for milliseconds.
    patience: sqlite::patience::<2_000>,
    counter: Some("SELECT seq FROM sqlite_sequence WHERE name = 'pairs'"),
    reports_locks: true,
};

/// A bucket's name is stored once. `number` orders the pages of keys. A number is never reused, so
/// that a walk over the pages sees every key that exists throughout.
const TABLES: &str = "
    CREATE TABLE buckets (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE pairs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        bucket INTEGER NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        UNIQUE (bucket, key)
    );
    CREATE INDEX pages ON pairs (bucket, number);
";

/// The file of a data folder.
#[derive(Debug, Clone)]
pub(super) struct BucketFile(PathBuf);

impl BucketFile {
    /// Returns the file of this folder.
    pub(super) fn of(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    fn file(&self) -> PathBuf {
        self.0.join("keyvalue.db")
    }

    /// Creates what is missing and opens the file twice: to write, and to read at the same time.
    pub(super) fn open(&self) -> Result<[Database; 2], CallError> {
        let opened = SCHEMA.open(&self.file(), &self.0.join("keyvalue.lock"));
        opened
            .map(|(connections, _)| connections)
            .map_err(|error| self.failed(error.kind, error))
    }

    /// Converts an error of SQLite to an error of one line.
    pub(super) fn classify(&self, error: &rusqlite::Error) -> CallError {
        let cause = sqlite::explain(error, &self.file());
        self.failed(sqlite::judge(error), cause)
    }

    /// Converts the error of a write that was not committed.
    pub(super) fn not_committed(&self, error: &CommitError) -> CallError {
        match error {
            CommitError::Lost(damage) => self.damaged(damage),
            CommitError::Begin(error) | CommitError::Within(error) => self.classify(error),
        }
    }

    /// Returns the error for a file that was lost while it was in use.
    pub(super) fn damaged(&self, damage: &Damage) -> CallError {
        self.failed(ErrorKind::Transient, damage)
    }

    /// Returns an error of this kind, in one line.
    pub(super) fn failed(&self, kind: ErrorKind, cause: impl std::fmt::Display) -> CallError {
        CallError {
            kind,
            message: format!("`{}`: {cause}", self.file().display()),
        }
    }
}

/// Opens a separate database in memory, for tests of the steps.
#[cfg(test)]
pub(super) fn in_memory() -> Connection {
    SCHEMA.in_memory()
}
