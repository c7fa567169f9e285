//! The file: where it is, how it is opened, its tables, and how its errors map to the port. Knows
//! nothing of receiving or settling.

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
    upgrade,
    patience: sqlite::patience::<10_000>,
    counter: Some("SELECT seq FROM sqlite_sequence WHERE name = 'entries'"),
    reports_locks: true,
};

/// `entries` holds what changes with every delivery and stays narrow, so that receiving and
/// extending rewrites no bodies; `payloads` is written once. `seq` is the order of sending and is
/// never used twice, else an old receipt could name a new message.
///
/// `head` is 1 for all that have no group, and for one message of each group: its gate, which says
/// from when something of the group can be received (`groups`). `ready` carries all that `receive`
/// orders by and all that `depth` counts. `moved_from` is the receipt with which a dead letter was
/// moved here.
///
/// New in version 4: a message that is moved to another queue leaves its payload where it is, so
/// that no body is read. `payload` is then the payload's key, without it the entry's own `seq`;
/// `attributes` and `system` then are in the place of the payload's.
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

/// New in version 3, beside the column `payloads.system`, which holds the queue's own attributes of
/// a message. `queue_settings` is what a queue was set to (`settings`), the part that every receive
/// needs in separate columns. A queue that was deleted keeps its row in `queues`, so that its
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

/// New in version 4: what finds a group's gate, and what of the group is in flight.
const GROUP_INDEXES: &str = "
    CREATE INDEX IF NOT EXISTS gates ON entries (queue, message_group)
        WHERE head = 1 AND message_group IS NOT NULL;
    CREATE INDEX IF NOT EXISTS in_flight ON entries (queue, message_group, visible_at, seq)
        WHERE in_flight = 1 AND message_group IS NOT NULL;
";

/// New in version 4, in `entries`.
const MOVED_COLUMNS: &str = "
    ALTER TABLE entries ADD COLUMN payload INTEGER;
    ALTER TABLE entries ADD COLUMN attributes TEXT;
    ALTER TABLE entries ADD COLUMN system TEXT;
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
pub(super) struct StoreFiles {
    /// The folder, as given.
    pub folder: PathBuf,
}

impl StoreFiles {
    /// The database.
    pub(super) fn database(&self) -> PathBuf {
        self.folder.join("local.db")
    }

    /// The file that a sender writes to wake the receivers of other processes.
    pub(super) fn notifier_file(&self) -> PathBuf {
        self.folder.join("local.bell")
    }

    /// A failure of this store, in one line.
    pub(super) fn classify(&self, error: &rusqlite::Error) -> QueueError {
        let cause = sqlite::explain(error, &self.database());
        self.failed(sqlite::judge(error), cause)
    }

    /// A transaction that was not committed.
    pub(super) fn not_committed(&self, error: &CommitError) -> QueueError {
        match error {
            CommitError::Lost(damage) => self.damaged(damage),
            CommitError::Begin(error) | CommitError::Within(error) => self.classify(error),
        }
    }

    /// A file that was lost under this store: this process need not retry, since it stays so
    /// until a restart.
    pub(super) fn damaged(&self, damage: &Damage) -> QueueError {
        self.failed(ErrorKind::Invalid, damage)
    }

    /// A failure of this store of a known kind.
    pub(super) fn failed(&self, kind: ErrorKind, cause: impl std::fmt::Display) -> QueueError {
        QueueError {
            kind,
            message: format!("the local queue in `{}`: {cause}", self.folder.display()),
        }
    }
}

/// A whole call's failure as the answer to one of its items.
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

/// Creates what is missing and opens the file. Also gives the notifier, opened for writing, which is
/// locked meanwhile.
pub(super) fn open(folder: &Path) -> Result<(StoreFiles, Database, File), QueueError> {
    let place = StoreFiles {
        folder: folder.to_owned(),
    };
    match SCHEMA.open(&place.database(), &place.notifier_file()) {
        Ok(([connection], notifier)) => Ok((place, connection, notifier)),
        Err(error) => Err(place.failed(error.kind, error)),
    }
}

/// The same in no file.
pub(super) fn open_in_memory() -> Result<(StoreFiles, Database), QueueError> {
    let place = StoreFiles {
        folder: PathBuf::from("memory"),
    };
    match SCHEMA.open_in_memory() {
        Ok(database) => Ok((place, database)),
        Err(error) => Err(place.classify(&error)),
    }
}

/// Brings an older file up to date: version 1 had no clock, version 2 none of the settings, version
/// 3 moved bodies. One that was upgraded before has the columns.
fn upgrade(connection: &Connection, version: i32) -> rusqlite::Result<Option<String>> {
    let clock = match version {
        1 => CLOCK,
        2 | 3 => "",
        _ => return Ok(None),
    };
    let has = |table: &str, column: &str| {
        connection
            .prepare("SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2")?
            .exists([table, column])
    };
    let system = match has("payloads", "system")? {
        true => "",
        false => "ALTER TABLE payloads ADD COLUMN system TEXT;",
    };
    let moved = match has("entries", "payload")? {
        true => "",
        false => MOVED_COLUMNS,
    };
    Ok(Some(format!(
        "{clock}{system}{SETTINGS}{moved}{GROUP_INDEXES}"
    )))
}

/// Lets messages be read by age. The first time in a file this takes about a second for a million
/// messages.
pub(super) fn index_by_age(connection: &Connection) -> rusqlite::Result<()> {
    let known = connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'newest'")?
        .exists([])?;
    match known {
        true => Ok(()),
        false => connection.execute_batch(BY_AGE),
    }
}

/// A separate database in memory, for tests of the core.
#[cfg(any(test, fuzzing))]
pub(super) fn in_memory() -> Connection {
    SCHEMA.in_memory()
}
