//! The file: where it lies, how it is opened, its tables, and what its errors say. Knows nothing of
//! what is remembered when.

use crate::idempotency::RecordsError;
use rusqlite::Connection;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `didm` in ASCII: tells our file from any other SQLite file.
const APPLICATION: i32 = 0x6469_646d;
/// The version of `TABLES`. A file of another one is refused.
const VERSION: i32 = 1;
/// How long to wait for another process's transaction. Far shorter than a delete may be held up, so
/// that the reason is told.
const PATIENCE: Duration = Duration::from_millis(700);
/// The pause between two attempts at another process's lock. SQLite's own waits grow to 100 ms,
/// which idles two busy processes half of the time.
const NAP: Duration = Duration::from_micros(250);

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

/// Where the file of a data folder lies.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("idempotency.db")
}

/// A failure in one line.
pub fn failed(folder: &Path, cause: impl std::fmt::Display) -> RecordsError {
    RecordsError(format!("`{}`: {cause}", path(folder).display()))
}

/// Creates what is missing and opens the file twice: to write, and to read beside that.
pub fn open(folder: &Path) -> Result<[Connection; 2], RecordsError> {
    let plain = |error: std::io::Error| failed(folder, error);
    std::fs::create_dir_all(folder).map_err(plain)?;
    let mut lock = OpenOptions::new();
    let lock = lock.create(true).truncate(false).write(true);
    let lock = lock.open(folder.join("idempotency.lock")).map_err(plain)?;
    // Switching a file to WAL and creating tables are the two steps that SQLite does not let two
    // processes take at once.
    lock.lock().map_err(plain)?;
    let opened = connect(folder).and_then(|writer| Ok([writer, connect(folder)?]));
    lock.unlock().map_err(plain)?;
    opened
}

fn connect(folder: &Path) -> Result<Connection, RecordsError> {
    let plain = |error: rusqlite::Error| failed(folder, error);
    let mut connection = Connection::open(path(folder)).map_err(plain)?;
    if connection.is_readonly("main").map_err(plain)? {
        return Err(failed(folder, "it is not writable"));
    }
    configure(&mut connection).map_err(plain)?;
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
            let cause = format!(
                "it has schema version {other}, wanted {VERSION}; use a newer dispatcher, or delete \
                 it and what it remembers"
            );
            return Err(failed(folder, cause));
        }
        _ if empty => create(&connection).map_err(plain)?,
        _ => return Err(failed(folder, "it is a database of another program")),
    }
    Ok(connection)
}

fn configure(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(|tries: i32| {
        std::thread::sleep(NAP);
        NAP.saturating_mul(tries.unsigned_abs()) < PATIENCE
    }))?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -16384;
         PRAGMA wal_autocheckpoint = 4000;
         PRAGMA journal_size_limit = 67108864;",
    )
}

fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {TABLES}
         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
    ))
}
