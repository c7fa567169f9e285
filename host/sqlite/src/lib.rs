//! Opens every database file of the program: by one process at a time, durable, for this user
//! alone, with its application id and version checked. Also classifies SQLite's failures.
//! Independent of tables.
//!
//! `access` checks who else may access the files, `wal` reads the header of a log, `watch` checks
//! whether the files are still there, `database` is a connection that asks it and commits, `group`
//! is the thread that commits for many calls at once, and `backup` copies files that are in use.

mod access;
mod backup;
mod database;
mod group;
mod wal;
mod watch;

pub use backup::{Copy, copy};
pub use database::{CommitError, Database, Synchronous};
use dispatcher_core::backend::newer_format;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::files;
pub use group::{Call, CallFailure, Caller, GroupWriter};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wal::{HEADER, Header};
pub use watch::{Damage, unusable, wait_closed};
use watch::{Files, Mark, identity};

/// The pause between two attempts at another process's lock. SQLite's own waits grow to 100 ms,
/// which leaves two busy processes idle half of the time.
const NAP: Duration = Duration::from_micros(250);

/// A function that says whether to continue waiting for another process's lock after this many
/// attempts.
type Patience = fn(i32) -> bool;

/// The content of a database file, and how the file is recognized.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// The id that tells the file from any other SQLite file: four letters of ASCII.
    pub application: i32,
    /// The version of the tables. A file of a higher one is refused.
    pub version: i32,
    /// The statements that create the tables in an empty file.
    pub tables: &'static [&'static str],
    /// The lower versions that can be read, each with the statements that bring its file up to
    /// date.
    pub upgrades: &'static [(i32, &'static str)],
    /// The function that decides whether to continue waiting for another process's lock:
    /// `patience`.
    pub patience: Patience,
    /// A query for a number that grows with every row that a caller relies on, and never falls. Its
    /// value when a call was answered is kept beside the database, in a file whose name ends in
    /// `-acknowledged`. A database that has not reached it has lost rows and is not opened.
    pub counter: Option<&'static str>,
    /// Whether a write that fails because of another process's lock is logged as an error and
    /// counts against readiness. It does not if the write is given up so soon that one failure says
    /// little.
    pub reports_locks: bool,
}

/// Waits for another process's lock. Returns false once it has waited this many milliseconds in
/// all.
pub fn patience<const MILLISECONDS: u64>(attempts: i32) -> bool {
    std::thread::sleep(NAP);
    NAP.saturating_mul(attempts.unsigned_abs()) < Duration::from_millis(MILLISECONDS)
}

/// Returns the path of a database with this suffix.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the kind of a failure of the file system, which says whether a retry may help.
fn judge_io(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::AccessDenied
        }
        io::ErrorKind::StorageFull | io::ErrorKind::Interrupted => ErrorKind::Transient,
        _ => ErrorKind::Invalid,
    }
}

/// Returns the kind of a failure of SQLite, which says whether a retry may help.
pub fn judge(error: &rusqlite::Error) -> ErrorKind {
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            ErrorKind::AccessDenied
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
        ) => ErrorKind::Transient,
        _ => ErrorKind::Invalid,
    }
}

/// Whether a call failed because of another process's lock.
fn lock_error(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code.is_some_and(|code| {
        matches!(
            code,
            ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed
        )
    })
}

/// Returns a failure of SQLite in one line. For a lock it names the file, since the holder is
/// unknown.
pub fn explain(error: &rusqlite::Error, path: &Path) -> String {
    if lock_error(error) {
        let name = path.file_name().unwrap_or(path.as_os_str());
        format!("`{}` is locked by another process", name.display())
    } else {
        error.to_string()
    }
}

/// Refuses files that SQLite would take for an empty database although messages are in the log:
/// SQLite ignores a log whose header it does not know, and deletes one beside an empty database.
fn check_log(path: &Path) -> Result<(), CallError> {
    let log = beside(path, "-wal");
    for attempt in 0..3 {
        let Ok(bytes) = std::fs::metadata(&log).map(|log| log.len()) else {
            return Ok(());
        };
        // A log that is not longer than its header has no page; a crash may leave the header half
        // written.
        if bytes <= HEADER {
            return Ok(());
        }
        let length = std::fs::metadata(path).map_or(0, |database| database.len());
        if length == 0 {
            let why = format!(
                "it is empty or missing, and its log `{}` holds {bytes} bytes that would be lost; put the database back, or remove the log to begin with nothing",
                log.display()
            );
            return Err(failed(ErrorKind::Invalid, why));
        }
        let mut header = [0; 32];
        let read = File::open(&log).and_then(|mut log| io::Read::read_exact(&mut log, &mut header));
        if read.is_err() || Header::parse(&header).is_some() {
            // SQLite reports why it cannot be read.
            return Ok(());
        }
        if attempt < 2 {
            // A header that was being written is complete the next time.
            std::thread::sleep(NAP);
        }
    }
    let why = format!(
        "its log `{}` has been overwritten, and what was committed to it would be lost; put the log back from a copy, or remove it to go on without",
        log.display()
    );
    Err(failed(ErrorKind::Invalid, why))
}

impl Schema {
    /// Opens `N` connections to a database, which is created or brought up to date if necessary.
    /// The file `lock` is locked meanwhile and returned open: switching a file to WAL and creating
    /// tables are the two steps that SQLite does not let two processes take at once. Creates what
    /// is missing, also the folder.
    ///
    /// # Errors
    /// Errors do not name the file; the caller adds its name.
    pub fn open<const N: usize>(
        &self,
        path: &Path,
        lock: &Path,
    ) -> Result<([Database; N], File), CallError> {
        if let Some(folder) = path.parent() {
            files::make_folder(folder).map_err(|error| {
                let kind = judge_io(&error);
                failed(kind, format!("{error}; --data names another folder"))
            })?;
            access::check_folder(folder)?;
        }
        let file = access::open(lock)?;
        access::lock(&file, lock)?;
        let opened = self.open_locked(path);
        file.unlock()
            .map_err(|error: io::Error| failed(judge_io(&error), error))?;
        Ok((opened?, file))
    }

    /// Opens the database while the lock is held.
    fn open_locked<const N: usize>(&self, path: &Path) -> Result<[Database; N], CallError> {
        check_log(path)?;
        let mark = self
            .counter
            .map(|_| access::open(&beside(path, "-acknowledged")))
            .transpose()?
            .map(Mark::new);
        if std::fs::metadata(path).map_or(0, |database| database.len()) == 0 {
            check_mark(path, mark.as_ref(), || Ok(0))?;
        }
        access::tighten(path)?;
        match files::create_private(path).map(drop) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(failed_io)?,
        }
        let before = identity(path).map_err(failed_io)?;
        let opened = (0..N)
            .map(|_| self.connect(path, mark.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(first) = opened.first()
            && let Err(error) = check_mark(path, mark.as_ref(), || self.count(first))
        {
            // A checkpoint at closing would lose data that may still be recovered.
            let off = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = opened
                .iter()
                .try_for_each(|one| one.set_db_config(off, true).map(drop));
            return Err(error);
        }
        let files = Files::of(path, before, mark).map_err(failed_io)?;
        let list: Vec<_> = opened
            .into_iter()
            .map(|one| Database::new(one, Some(files.clone()), self))
            .collect();
        let databases: Result<[Database; N], _> = list.try_into();
        Ok(databases.unwrap_or_else(|_| unreachable!("N were opened")))
    }

    fn count(&self, connection: &Connection) -> Result<i64, CallError> {
        let Some(counter) = self.counter else {
            return Ok(0);
        };
        let mut read = connection.prepare(counter).map_err(failed_sql)?;
        let mut rows = read.query([]).map_err(failed_sql)?;
        let row = rows.next().map_err(failed_sql)?;
        row.map_or(Ok(0), |row| row.get(0).map_err(failed_sql))
    }

    fn connect(&self, path: &Path, mark: Option<&Mark>) -> Result<Connection, CallError> {
        let plain = |error: rusqlite::Error| failed(judge(&error), explain(&error, path));
        let mut connection = Connection::open(path).map_err(plain)?;
        if connection.is_readonly("main").map_err(plain)? {
            return Err(failed(ErrorKind::AccessDenied, "it is not writable"));
        }
        self.configure(&mut connection).map_err(plain)?;
        let application = number(&connection, "PRAGMA application_id").map_err(plain)?;
        let version = number(&connection, "PRAGMA user_version").map_err(plain)?;
        let Self {
            version: wanted, ..
        } = *self;
        if application != self.application {
            let tables = number(&connection, "SELECT count(*) FROM sqlite_schema");
            return match tables.map_err(plain)? {
                0 => {
                    check_mark(path, mark, || Ok(0))?;
                    self.create(&connection).map_err(plain).map(|()| connection)
                }
                _ => Err(failed(
                    ErrorKind::Invalid,
                    "it is a database of another program",
                )),
            };
        }
        if version == wanted {
            return Ok(connection);
        }
        let mut upgrades = self.upgrades.iter();
        let Some((_, upgrade)) = upgrades.find(|(lower, _)| *lower == version) else {
            return Err(failed(ErrorKind::Invalid, unknown_format(version, wanted)));
        };
        self.write(&connection, upgrade).map_err(plain)?;
        Ok(connection)
    }

    fn configure(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        connection.busy_handler(Some(self.patience))?;
        connection.set_prepared_statement_cache_capacity(64);
        // Otherwise SQLite compiles a statement again whenever a bound value might change its plan.
        // The statements of this program have one good plan each.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.execute_batch(
            "PRAGMA synchronous = FULL;
             PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -16384;
             PRAGMA wal_autocheckpoint = 4000;
             PRAGMA journal_size_limit = 20000000;",
        )
    }

    fn create(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.write(connection, &self.tables.concat())
    }

    fn write(&self, connection: &Connection, sql: &str) -> rusqlite::Result<()> {
        let Self {
            application,
            version,
            ..
        } = self;
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {sql}
             PRAGMA application_id = {application}; PRAGMA user_version = {version}; COMMIT;"
        ))
    }

    /// Opens a database in memory, which is lost with its connection.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub fn open_in_memory(&self) -> rusqlite::Result<Database> {
        let connection = self.memory()?;
        Ok(Database::new(connection, None, self))
    }

    fn memory(&self) -> rusqlite::Result<Connection> {
        let mut connection = Connection::open_in_memory()?;
        self.configure(&mut connection)?;
        self.create(&connection)?;
        Ok(connection)
    }

    /// Opens a separate database in memory, for tests.
    #[cfg(any(test, fuzzing, feature = "samples"))]
    pub fn in_memory(&self) -> Connection {
        self.memory().expect("a database in memory")
    }
}

/// Refuses a database that has not reached the acknowledged number.
fn check_mark(
    path: &Path,
    mark: Option<&Mark>,
    reached: impl Fn() -> Result<i64, CallError>,
) -> Result<(), CallError> {
    let Some(mark) = mark else { return Ok(()) };
    let (mut acknowledged, mut reached_now) = (0, 0);
    // A number that another process is writing may be read incompletely.
    for _ in 0..3 {
        acknowledged = mark.read();
        reached_now = reached()?;
        if reached_now >= acknowledged {
            return Ok(());
        }
    }
    let why = format!(
        "the database ends at entry {reached_now}, and entry {acknowledged} was acknowledged: entries were lost; put `{}` and `{}` back, or remove `{}` to go on without them",
        path.display(),
        beside(path, "-wal").display(),
        beside(path, "-acknowledged").display()
    );
    Err(failed(ErrorKind::Invalid, why))
}

fn failed(kind: ErrorKind, cause: impl std::fmt::Display) -> CallError {
    let message = cause.to_string();
    CallError { kind, message }
}

fn failed_io(error: io::Error) -> CallError {
    failed(judge_io(&error), error)
}

fn failed_sql(error: rusqlite::Error) -> CallError {
    failed(judge(&error), error)
}

/// Returns the number that a statement selects.
fn number(connection: &Connection, sql: &str) -> rusqlite::Result<i32> {
    connection.query_row(sql, [], |row| row.get(0))
}

/// Returns why a file of this format is not opened.
fn unknown_format(found: i32, newest: i32) -> String {
    if found > newest {
        let why = newer_format(found, newest);
        return format!("{why}, or a backup from before the upgrade");
    }
    format!("it has format {found}, which no release uses; this dispatcher reads format {newest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: Schema = Schema {
        application: 0x7465_7374,
        version: 2,
        tables: &["CREATE TABLE a (x);", "CREATE TABLE b (x);"],
        upgrades: &[(1, "CREATE TABLE b (x);")],
        patience: patience::<1_000>,
        counter: None,
        reports_locks: true,
    };

    fn open(folder: &Path) -> Result<Database, CallError> {
        let opened = SCHEMA.open::<1>(&folder.join("db"), &folder.join("lock"));
        opened.map(|([opened], _)| opened)
    }

    fn tables(connection: &Connection) -> i32 {
        number(connection, "SELECT count(*) FROM sqlite_schema").expect("a count")
    }

    #[test]
    fn database_is_created_reopened_and_migrated() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = open(folder.path()).expect("made");
        assert_eq!(tables(&made), 2);
        made.execute_batch("DROP TABLE b; PRAGMA user_version = 1")
            .expect("an older file");
        assert_eq!(tables(&open(folder.path()).expect("found")), 2);
    }

    #[test]
    fn newer_or_foreign_database_is_refused_and_unchanged() {
        for (sql, said) in [
            (
                "PRAGMA user_version = 3",
                "written by a newer dispatcher (format 3; this one reads up to 2)",
            ),
            (
                "PRAGMA user_version = 0",
                "it has format 0, which no release uses; this dispatcher reads format 2",
            ),
            ("PRAGMA application_id = 7", "another program"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let made = open(folder.path()).expect("made");
            made.execute_batch(sql).expect("changed");
            let refused = open(folder.path()).expect_err("refused");
            assert_eq!(refused.kind, ErrorKind::Invalid);
            assert!(refused.message.contains(said), "{refused}");
        }
    }
}
