//! The file: where it is, how it is opened, its tables, and the meaning of its errors. Knows
//! nothing of what is recorded when.

use dispatcher_core::idempotency::RecordsError;
use dispatcher_sqlite as sqlite;
use dispatcher_sqlite::{Database, Schema};
use std::path::{Path, PathBuf};

const SCHEMA: Schema = Schema {
    // `didm`
    application: 0x6469_646d,
    version: 2,
    tables: &[TABLES, WRITTEN],
    upgrade: |_, version| Ok((version == 1).then(|| WRITTEN.to_owned())),
    // Far shorter than a delete may be delayed, so that the reason is told.
    patience: sqlite::patience::<700>,
    counter: Some("SELECT number FROM written"),
    // The guard counts them.
    reports_locks: false,
};

/// A queue's name, which may be a long ARN, is stored once. Records expire in the order of `until`,
/// milliseconds since the Unix epoch.
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

/// How many transactions have written records. New in version 2.
const WRITTEN: &str = "
    CREATE TABLE written (number INTEGER NOT NULL);
    INSERT INTO written VALUES (0);
";

/// Where the file of a data folder lies.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("idempotency.db")
}

/// A failure in one line.
pub(super) fn failed(folder: &Path, cause: impl std::fmt::Display) -> RecordsError {
    RecordsError(format!("`{}`: {cause}", path(folder).display()))
}

/// A failure of SQLite.
pub(super) fn classify(folder: &Path, error: &rusqlite::Error) -> RecordsError {
    failed(folder, sqlite::explain(error, &path(folder)))
}

/// Creates what is missing and opens the file twice: to write, and to read beside that.
pub(super) fn open(folder: &Path) -> Result<[Database; 2], RecordsError> {
    let opened = SCHEMA.open(&path(folder), &folder.join("idempotency.lock"));
    let opened = opened.map(|(connections, _)| connections);
    opened.map_err(|error| failed(folder, error))
}
