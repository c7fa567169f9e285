//! The file: where it lies, how it is opened, its tables, and what its errors mean to the port.
//! Knows nothing of receiving or settling.

use crate::files;
use crate::queue::{ItemError, QueueError, Trouble};
use rusqlite::{Connection, ErrorCode};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `disp` in ASCII: tells our file from any other SQLite file.
const APPLICATION: i32 = 0x6469_7370;
/// The version of the tables. A file of a lower one is brought up to it, one of a higher is refused.
const VERSION: i32 = 3;
/// How long to wait for another process's transaction before `Trouble::Passing`.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two attempts at another process's lock. SQLite's own waits grow to 100 ms,
/// which idles two busy processes half of the time.
const NAP: Duration = Duration::from_micros(250);

/// `entries` holds what changes with every delivery and stays narrow, so that receiving and
/// extending rewrites no bodies; `payloads` is written once. `seq` is the order of sending and is
/// never used twice, else an old receipt could name a new message.
///
/// `head` is 1 for the first message of a group and for all that have no group: only these may be
/// received. `ready` carries all that `receive` orders by and all that `depth` counts.
/// `moved_from` is the receipt with which a dead letter was moved here.
const TABLES: &str = "
    CREATE TABLE queues (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE entries (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        queue INTEGER NOT NULL,
        head INTEGER NOT NULL,
        visible_at INTEGER NOT NULL,
        in_flight INTEGER NOT NULL,
        receive_count INTEGER NOT NULL,
        received_at INTEGER,
        first_received_at INTEGER,
        sent_at INTEGER NOT NULL,
        message_group TEXT,
        moved_from TEXT
    );
    CREATE INDEX ready ON entries (queue, head, visible_at, seq, in_flight, sent_at);
    CREATE INDEX groups ON entries (queue, message_group, seq) WHERE message_group IS NOT NULL;
    CREATE INDEX moved ON entries (moved_from) WHERE moved_from IS NOT NULL;
    CREATE TABLE payloads (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        body TEXT NOT NULL,
        attributes TEXT,
        system TEXT
    );
";

/// New in version 3, beside the column `payloads.system`, which holds the queue's own attributes of
/// a message. `queue_settings` is what a queue was set to (`settings`), the part that every receive
/// asks for in columns of its own. A queue that was deleted keeps its row in `queues`, so that its
/// key is never another's. `sent_before` are deduplication ids, `moves` the tasks that move dead
/// letters back.
const SETTINGS: &str = "
    CREATE TABLE IF NOT EXISTS queue_settings (
        queue INTEGER PRIMARY KEY,
        settings TEXT NOT NULL,
        most_receives INTEGER,
        grave TEXT
    );
    CREATE TABLE IF NOT EXISTS deleted_queues (queue INTEGER PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS sent_before (
        queue INTEGER NOT NULL,
        key TEXT NOT NULL,
        until INTEGER NOT NULL,
        id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (queue, key)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS sent_before_until ON sent_before (until);
    CREATE TABLE IF NOT EXISTS moves (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        handle TEXT NOT NULL UNIQUE,
        source TEXT NOT NULL,
        target TEXT,
        rate INTEGER,
        status TEXT NOT NULL,
        moved INTEGER NOT NULL,
        total INTEGER NOT NULL,
        started INTEGER NOT NULL,
        failure TEXT
    );
";

/// New in version 2: what `time` keeps, one row. The moments in `entries` are of that time; in
/// version 1 they were dates, which is where it begins.
const CLOCK: &str = "
    CREATE TABLE clock (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        boot TEXT,
        zero INTEGER NOT NULL,
        seen INTEGER NOT NULL,
        seen_on INTEGER NOT NULL
    );
";

/// The index for those who want the newest first. Every send and receive pays for it, so a file
/// has it from the first such wish on. It is no part of the version: SQLite keeps it up whoever
/// writes.
const BY_AGE: &str =
    "CREATE INDEX IF NOT EXISTS newest ON entries (queue, head, sent_at, seq, visible_at)";

/// Where one store's files lie.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder, as given.
    pub folder: PathBuf,
}

impl Place {
    /// The database.
    pub fn database(&self) -> PathBuf {
        self.folder.join("local.db")
    }

    /// The file that a sender writes to wake the receivers of other processes.
    pub fn bell(&self) -> PathBuf {
        self.folder.join("local.bell")
    }

    /// A failure of this store, in one line.
    pub fn trouble(&self, error: &rusqlite::Error) -> QueueError {
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                Trouble::Denied
            }
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::OperationAborted
                | ErrorCode::OperationInterrupted
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::SchemaChanged,
            ) => Trouble::Passing,
            _ => Trouble::Refused,
        };
        self.failed(kind, error)
    }

    /// A failure of this store of a known kind.
    pub fn failed(&self, kind: Trouble, cause: impl std::fmt::Display) -> QueueError {
        QueueError {
            kind,
            message: format!("the local queue in `{}`: {cause}", self.folder.display()),
        }
    }
}

/// A whole call's failure as the answer to one of its items.
pub fn item_error(error: &QueueError) -> ItemError {
    match error.kind {
        Trouble::Passing | Trouble::Unreachable => ItemError::Passing(error.message.clone()),
        Trouble::Missing | Trouble::Denied | Trouble::Refused => {
            ItemError::Refused(error.message.clone())
        }
    }
}

/// Creates what is missing and opens the file. Also gives the bell, opened for writing.
pub fn open(folder: &Path) -> Result<(Place, Connection, File), QueueError> {
    let place = Place {
        folder: folder.to_owned(),
    };
    let bell = files::make_folder(folder)
        .and_then(|()| {
            OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(place.bell())
        })
        .and_then(|bell| bell.lock().map(|()| bell))
        .map_err(|error| place.failed(io_kind(&error), error))?;
    // The bell is locked while we open: switching a file to WAL and creating tables are the two
    // steps that SQLite does not let two processes take at once.
    let opened = connect(&place);
    bell.unlock()
        .map_err(|error| place.failed(io_kind(&error), error))?;
    opened.map(|connection| (place, connection, bell))
}

fn io_kind(error: &std::io::Error) -> Trouble {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            Trouble::Denied
        }
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::Interrupted => Trouble::Passing,
        _ => Trouble::Refused,
    }
}

fn connect(place: &Place) -> Result<Connection, QueueError> {
    let plain = |error| place.trouble(&error);
    let mut connection = Connection::open(place.database()).map_err(plain)?;
    if connection.is_readonly("main").map_err(plain)? {
        return Err(place.failed(Trouble::Denied, "local.db is not writable"));
    }
    configure(&mut connection).map_err(plain)?;
    let number = |name| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i32>(0))
            .map_err(plain)
    };
    let (application, version) = (number("application_id")?, number("user_version")?);
    let foreign: bool = connection
        .query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| {
            row.get(0)
        })
        .map_err(plain)?;
    match (application, version) {
        (APPLICATION, VERSION) => Ok(connection),
        (APPLICATION, 1) => upgrade(&connection, CLOCK)
            .map_err(plain)
            .map(|()| connection),
        (APPLICATION, 2) => upgrade(&connection, "").map_err(plain).map(|()| connection),
        (APPLICATION, newer) => Err(place.failed(
            Trouble::Refused,
            format!(
                "local.db has schema version {newer}, wanted {VERSION}; use a newer dispatcher"
            ),
        )),
        _ if foreign => Err(place.failed(
            Trouble::Refused,
            "local.db is a database of another program",
        )),
        _ => write(&connection, &format!("{TABLES}{CLOCK}{SETTINGS}"))
            .map_err(plain)
            .map(|()| connection),
    }
}

fn configure(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(|tries: i32| {
        std::thread::sleep(NAP);
        NAP.saturating_mul(tries.unsigned_abs()) < PATIENCE
    }))?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -16384;
         PRAGMA wal_autocheckpoint = 4000;
         PRAGMA journal_size_limit = 67108864;",
    )
}

/// Brings an older file up to date, beginning with `tables`.
fn upgrade(connection: &Connection, tables: &str) -> rusqlite::Result<()> {
    let known = connection
        .prepare("SELECT 1 FROM pragma_table_info('payloads') WHERE name = 'system'")?
        .exists([])?;
    let column = match known {
        true => "",
        false => "ALTER TABLE payloads ADD COLUMN system TEXT;",
    };
    write(connection, &format!("{tables}{column}{SETTINGS}"))
}

/// Creates the tables that a database lacks.
fn write(connection: &Connection, tables: &str) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {tables}
         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
    ))
}

/// Lets messages be read by age. The first time in a file this takes about a second for a million
/// messages.
pub fn index_by_age(connection: &Connection) -> rusqlite::Result<()> {
    let known = connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'newest'")?
        .exists([])?;
    match known {
        true => Ok(()),
        false => connection.execute_batch(BY_AGE),
    }
}

/// A database of its own in memory, for tests of the core.
#[cfg(any(test, fuzzing))]
pub fn in_memory() -> Connection {
    let mut connection = Connection::open_in_memory().expect("memory");
    configure(&mut connection).expect("pragmas");
    write(&connection, &format!("{TABLES}{CLOCK}{SETTINGS}")).expect("tables");
    connection
}
