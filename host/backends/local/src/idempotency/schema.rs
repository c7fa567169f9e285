//! The file: its path, how it is opened, its tables and the meaning of its errors. The schema does
//! not decide what is recorded, or when.

use dispatcher_core::idempotency::RecordsError;
use dispatcher_sqlite as sqlite;
use dispatcher_sqlite::{Database, Schema};
use std::path::{Path, PathBuf};

const SCHEMA: Schema = Schema {
    // `didm`
    application: 0x6469_646d,
    version: 2,
    tables: &[TABLES, WRITTEN],
    upgrades: &[],
    // Far shorter than a delete may be delayed, so that the caller learns the reason.
    patience: sqlite::patience::<700>,
    counter: Some("SELECT number FROM written"),
    // The guard of the records counts such failures.
    reports_locks: false,
};

/// A queue's name, which may be a long ARN, is stored once. Records expire in the order of `until`,
/// in milliseconds since the Unix epoch.
const TABLES: &str = "
    CREATE TABLE queues (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE done (
        queue INTEGER NOT NULL,
        id TEXT NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (queue, id)
    ) WITHOUT ROWID;
    CREATE INDEX expiry ON done (until);
";

/// The number of transactions that have written records.
const WRITTEN: &str = "
    CREATE TABLE written (number INTEGER NOT NULL);
    INSERT INTO written VALUES (0);
";

/// Returns the path of a data folder's file.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("idempotency.db")
}

/// Returns a failure as one line.
pub(super) fn failed(folder: &Path, cause: impl std::fmt::Display) -> RecordsError {
    RecordsError(format!("`{}`: {cause}", path(folder).display()))
}

/// Returns a failure of SQLite as one line.
pub(super) fn classify(folder: &Path, error: &rusqlite::Error) -> RecordsError {
    failed(folder, sqlite::explain(error, &path(folder)))
}

/// Creates what is missing and opens the file twice: to write, and to read at the same time.
pub(super) fn open(folder: &Path) -> Result<[Database; 2], RecordsError> {
    let opened = SCHEMA.open(&path(folder), &folder.join("idempotency.lock"));
    opened
        .map(|(connections, _)| connections)
        .map_err(|error| failed(folder, error))
}
