//! The file: its path, how it is opened, its tables, and how its errors map to the port.
//! Independent of receiving and settling.

use super::sharing;
use dispatcher_core::queue::{ErrorKind, ItemError, QueueError};
use dispatcher_sqlite as sqlite;
use dispatcher_sqlite::{CommitError, Damage, Database, Schema};
use rusqlite::Connection;
use std::fs::File;
use std::path::{Path, PathBuf};

const SCHEMA: Schema = Schema {
    // `disp`
    application: 0x6469_7370,
    version: 4,
    tables: &[TABLES, CLOCK, SETTINGS, GROUP_INDEXES],
    upgrades: &[],
    patience: sqlite::patience::<10_000>,
    counter: Some("SELECT seq FROM sqlite_sequence WHERE name = 'entries'"),
    reports_locks: true,
};

/// `entries` holds the values that change with every delivery. It stays narrow, so that receiving
/// and extending rewrite no bodies; `payloads` is written once. `seq` is the order of sending and
/// is never reused; otherwise an old receipt could name a new message.
///
/// `head` is 1 for messages without a group, and for the first message of each group (`groups`).
/// The index `ready` has all columns that `receive` orders by and that `depth` counts. `moved_from`
/// is the receipt with which a dead letter was moved here.
///
/// A message that is moved to another queue leaves its payload where it is, so that no body is
/// read. `payload` is then the key of the payload; without it, the key is the entry's `seq`.
/// `attributes` and `system` then replace those of the payload.
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
        moved_from TEXT,
        payload INTEGER,
        attributes TEXT,
        system TEXT
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

/// `queue_settings` holds the settings of queues (`settings`); the part that every receive needs is
/// in separate columns. A deleted queue keeps its row in `queues`, so that its key is never reused.
/// `sent_before` holds deduplication ids, `moves` the tasks that move dead letters back.
const SETTINGS: &str = "
    CREATE TABLE queue_settings (
        queue INTEGER PRIMARY KEY,
        settings TEXT NOT NULL,
        most_receives INTEGER,
        grave TEXT
    );
    CREATE TABLE deleted_queues (queue INTEGER PRIMARY KEY);
    CREATE TABLE sent_before (
        queue INTEGER NOT NULL,
        key TEXT NOT NULL,
        until INTEGER NOT NULL,
        id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (queue, key)
    ) WITHOUT ROWID;
    CREATE INDEX sent_before_until ON sent_before (until);
    CREATE TABLE moves (
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

/// The indexes that find the head of a group and its messages in flight.
const GROUP_INDEXES: &str = "
    CREATE INDEX gates ON entries (queue, message_group)
        WHERE head = 1 AND message_group IS NOT NULL;
    CREATE INDEX in_flight ON entries (queue, message_group, visible_at, seq)
        WHERE in_flight = 1 AND message_group IS NOT NULL;
";

/// The table of `time`, with one row. The times in `entries` are of that time.
const CLOCK: &str = "
    CREATE TABLE clock (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        boot TEXT,
        zero INTEGER NOT NULL,
        seen INTEGER NOT NULL,
        seen_on INTEGER NOT NULL
    );
";

/// The index for receives that want the newest messages first. Every send and receive pays for it,
/// so a file gets it at the first such receive. It is not part of the version: SQLite keeps it up
/// to date for every writer.
const BY_AGE: &str =
    "CREATE INDEX IF NOT EXISTS newest ON entries (queue, head, sent_at, seq, visible_at)";

/// The index of messages without a group whose visibility timeout may have ended without an answer.
/// It is not part of the version either: a file gets it when it is opened.
const UNANSWERED: &str =
    "CREATE INDEX IF NOT EXISTS unanswered ON entries (queue, visible_at, seq, sent_at)
         WHERE in_flight = 1 AND message_group IS NULL";

/// The paths of one store's files.
#[derive(Debug, Clone)]
pub(super) struct StoreFiles {
    /// The folder, as given.
    pub folder: PathBuf,
}

impl StoreFiles {
    /// Returns the path of the database.
    pub(super) fn database(&self) -> PathBuf {
        self.folder.join("local.db")
    }

    /// Returns the path of the file that a sender writes to, to wake the receivers of other
    /// processes.
    pub(super) fn notifier_file(&self) -> PathBuf {
        self.folder.join("local.bell")
    }

    /// Converts an error of SQLite to an error of one line.
    pub(super) fn classify(&self, error: &rusqlite::Error) -> QueueError {
        let cause = sqlite::explain(error, &self.database());
        self.failed(sqlite::judge(error), cause)
    }

    /// Converts the error of a transaction that was not committed.
    pub(super) fn not_committed(&self, error: &CommitError) -> QueueError {
        match error {
            CommitError::Lost(damage) => self.damaged(damage),
            CommitError::Begin(error) | CommitError::Within(error) => self.classify(error),
        }
    }

    /// Returns the error for a file that was lost while it was in use. This process need not retry,
    /// because the file stays lost until a restart.
    pub(super) fn damaged(&self, damage: &Damage) -> QueueError {
        self.failed(ErrorKind::Invalid, damage)
    }

    /// Returns an error of this kind.
    pub(super) fn failed(&self, kind: ErrorKind, cause: impl std::fmt::Display) -> QueueError {
        QueueError {
            kind,
            message: format!("the local queue in `{}`: {cause}", self.folder.display()),
        }
    }
}

/// Converts the failure of a whole call to the answer to one of its items.
pub(super) fn item_error(error: &QueueError) -> ItemError {
    match error.kind {
        ErrorKind::Transient | ErrorKind::Unreachable => {
            ItemError::Transient(error.message.clone())
        }
        ErrorKind::NotFound | ErrorKind::AccessDenied | ErrorKind::Invalid => {
            ItemError::Refused(error.message.clone())
        }
    }
}

/// Creates what is missing and opens the file. Also returns the notifier file, opened for writing,
/// which is locked during the call.
pub(super) fn open(folder: &Path) -> Result<(StoreFiles, Database, File), QueueError> {
    let place = StoreFiles {
        folder: folder.to_owned(),
    };
    match SCHEMA.open(&place.database(), &place.notifier_file()) {
        Ok(([connection], notifier)) => {
            let indexed = complete(&connection);
            indexed.map_err(|error| place.classify(&error))?;
            Ok((place, connection, notifier))
        }
        Err(error) => Err(place.failed(error.kind, error)),
    }
}

/// Opens a store in memory.
pub(super) fn open_in_memory() -> Result<(StoreFiles, Database), QueueError> {
    let place = StoreFiles {
        folder: PathBuf::from("memory"),
    };
    let opened = SCHEMA.open_in_memory().and_then(|database| {
        complete(&database)?;
        Ok(database)
    });
    match opened {
        Ok(database) => Ok((place, database)),
        Err(error) => Err(place.classify(&error)),
    }
}

/// Creates the index by age. The first time in a file this takes about a second for a million
/// messages.
pub(super) fn index_by_age(connection: &Connection) -> rusqlite::Result<()> {
    create(connection, "newest", BY_AGE)
}

/// Creates what every file has beside the tables of its version: the index of messages whose
/// visibility timeout ended without an answer, and the rules of queues that are shared out.
fn complete(connection: &Connection) -> rusqlite::Result<()> {
    create(connection, "unanswered", UNANSWERED)?;
    sharing::create_rules(connection)
}

/// Runs these statements if the file does not have what they create.
pub(super) fn create(connection: &Connection, name: &str, sql: &str) -> rusqlite::Result<()> {
    let known = connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?1")?
        .exists([name])?;
    if known {
        return Ok(());
    }
    connection.execute_batch(sql)
}

/// Opens a separate database in memory, for tests of the core.
#[cfg(any(test, fuzzing))]
pub(super) fn in_memory() -> Connection {
    let connection = SCHEMA.in_memory();
    complete(&connection).expect("an index in memory");
    connection
}
