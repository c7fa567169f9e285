//! The file: its path, how it is opened, its table, and how its errors map to the schedule.

use dispatcher_core::schedule::{ErrorKind, StoreError};
use dispatcher_sqlite as sqlite;
use dispatcher_sqlite::{CommitError, Database, Schema};
use std::path::{Path, PathBuf};

const SCHEMA: Schema = Schema {
    // `dsch`
    application: 0x6473_6368,
    version: 2,
    tables: &[TABLES, ADDED],
    upgrades: &[],
    patience: sqlite::patience::<10_000>,
    counter: Some("SELECT number FROM added"),
    reports_locks: true,
};

/// Dates are in milliseconds since the Unix epoch. `token` and `until` belong to a claim.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS jobs (
        id TEXT PRIMARY KEY,
        queue TEXT NOT NULL,
        due INTEGER NOT NULL,
        body TEXT NOT NULL,
        attributes TEXT NOT NULL,
        message_group TEXT,
        pattern TEXT,
        zone TEXT,
        token TEXT,
        until INTEGER
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS due ON jobs (due, id);
";

/// The number of jobs that have been added.
const ADDED: &str = "
    CREATE TABLE added (number INTEGER NOT NULL);
    INSERT INTO added VALUES (0);
    CREATE TRIGGER count_added AFTER INSERT ON jobs BEGIN UPDATE added SET number = number + 1; END;
";

/// Jobs that cannot be read, as they were in `jobs`. The table is created with the first of them.
pub(super) const DEAD: &str = "
    CREATE TABLE IF NOT EXISTS dead (
        id PRIMARY KEY,
        queue, due, body, attributes, message_group, pattern, zone,
        reason TEXT NOT NULL,
        since INTEGER NOT NULL
    );
";

/// Returns the path of a data folder's file.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("schedule.db")
}

/// Whether the file exists or existed: when it is missing, the record of its number of jobs
/// remains.
pub(super) fn was_made(folder: &Path) -> bool {
    path(folder).exists() || folder.join("schedule.db-acknowledged").exists()
}

/// Returns a failure as one line.
pub(super) fn failed(folder: &Path, kind: ErrorKind, cause: impl std::fmt::Display) -> StoreError {
    StoreError {
        kind,
        message: format!("`{}`: {cause}", path(folder).display()),
    }
}

/// Converts the error of a step that was not committed.
pub(super) fn not_committed(folder: &Path, error: &CommitError) -> StoreError {
    match error {
        CommitError::Lost(damage) => failed(folder, ErrorKind::Transient, damage),
        CommitError::Begin(error) | CommitError::Within(error) => {
            let cause = sqlite::explain(error, &path(folder));
            failed(folder, sqlite::judge(error), cause)
        }
    }
}

/// Creates what is missing and opens the file.
pub(super) fn open(folder: &Path) -> Result<Database, StoreError> {
    match SCHEMA.open(&path(folder), &folder.join("schedule.lock")) {
        Ok(([opened], _)) => Ok(opened),
        Err(error) => Err(failed(folder, error.kind, error)),
    }
}
