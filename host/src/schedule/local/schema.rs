//! The file: where it lies, how it is opened, its table, and what its errors mean to the schedule.

use crate::files;
use crate::schedule::{StoreError, Trouble};
use rusqlite::{Connection, ErrorCode};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `dsch` in ASCII: tells our file from any other SQLite file.
const APPLICATION: i32 = 0x6473_6368;
/// The version of `TABLES`. A file of another one is refused.
const VERSION: i32 = 1;
/// How long to wait for another process's transaction.
const PATIENCE: Duration = Duration::from_secs(10);

/// Dates are milliseconds since the Unix epoch. `token` and `until` are those of a claim.
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

/// Where the file of a data folder lies.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("schedule.db")
}

/// A failure in one line.
pub fn failed(folder: &Path, kind: Trouble, cause: impl std::fmt::Display) -> StoreError {
    StoreError {
        kind,
        message: format!("`{}`: {cause}", path(folder).display()),
    }
}

/// A failure of SQLite.
pub fn trouble(folder: &Path, error: &rusqlite::Error) -> StoreError {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            Trouble::Denied
        }
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure,
        ) => Trouble::Passing,
        _ => Trouble::Refused,
    };
    failed(folder, kind, error)
}

/// Creates what is missing and opens the file.
pub fn open(folder: &Path) -> Result<Connection, StoreError> {
    let io = |error: std::io::Error| failed(folder, Trouble::Denied, error);
    files::make_folder(folder).map_err(io)?;
    let lock = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join("schedule.lock"))
        .map_err(io)?;
    // Switching a file to WAL and creating tables are the two steps that SQLite does not let two
    // processes take at once.
    lock.lock().map_err(io)?;
    let opened = connect(folder);
    lock.unlock().map_err(io)?;
    opened
}

fn connect(folder: &Path) -> Result<Connection, StoreError> {
    let plain = |error: rusqlite::Error| trouble(folder, &error);
    let connection = Connection::open(path(folder)).map_err(plain)?;
    connection.busy_timeout(PATIENCE).map_err(plain)?;
    connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
        .map_err(plain)?;
    connection
        .pragma_update(None, "synchronous", "FULL")
        .map_err(plain)?;
    let number = |sql| {
        let number = connection.query_row(sql, [], |row| row.get::<_, i32>(0));
        number.map_err(plain)
    };
    let found = (
        number("PRAGMA application_id")?,
        number("PRAGMA user_version")?,
    );
    let empty = number("SELECT count(*) FROM sqlite_schema")? == 0;
    match found {
        (APPLICATION, VERSION) => {}
        (APPLICATION, other) => {
            let cause =
                format!("it has schema version {other}, wanted {VERSION}; use a newer dispatcher");
            return Err(failed(folder, Trouble::Refused, cause));
        }
        _ if empty => connection
            .execute_batch(&format!(
                "BEGIN IMMEDIATE; {TABLES}
                 PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
            ))
            .map_err(plain)?,
        _ => {
            let cause = "it is a database of another program";
            return Err(failed(folder, Trouble::Refused, cause));
        }
    }
    Ok(connection)
}
