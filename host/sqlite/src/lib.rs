//! How every database file of the program is opened: by one process at a time, kept durable, for
//! our user alone, its owner and version checked; and what SQLite's failures mean. Knows no table.
//!
//! `access` is who else may touch the files, `wal` the header of a log, `watch` whether the files
//! are still there, `database` a connection that asks it and commits, `group` the thread that
//! commits for many calls at once, `backup` copies of files that are in use.

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
pub use group::{Call, Caller, GroupWriter, Unanswered};
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
/// which idles two busy processes half of the time.
const NAP: Duration = Duration::from_micros(250);

/// Whether to continue waiting for another process's lock after so many attempts.
type Patience = fn(i32) -> bool;

/// What a file holds and by what it is known.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// Tells our file from any other SQLite file: four letters of ASCII.
    pub application: i32,
    /// The version of the tables. A file of a higher one is refused.
    pub version: i32,
    /// Creates the tables in an empty file.
    pub tables: &'static [&'static str],
    /// What brings a file of the given lower version up to date; `None` if nothing does.
    pub upgrade: fn(&Connection, i32) -> rusqlite::Result<Option<String>>,
    /// Whether to continue waiting for another process's lock after so many attempts: `patience`.
    pub patience: Patience,
    /// A query for a number that grows with every row that somebody relies on, and never falls. What
    /// it was when a call was answered is kept beside the database, in a file whose name ends in
    /// `-acknowledged`; a database that has not reached it has lost something, and is not opened.
    pub counter: Option<&'static str>,
    /// Whether a write that ends at another process's lock is an error of the log and counts against
    /// readiness. Not where it is given up so soon that one failure says little.
    pub reports_locks: bool,
}

/// Waits for another process's lock, up to so many milliseconds in all.
pub fn patience<const MILLISECONDS: u64>(attempts: i32) -> bool {
    std::thread::sleep(NAP);
    NAP.saturating_mul(attempts.unsigned_abs()) < Duration::from_millis(MILLISECONDS)
}

/// The file that belongs to a database and has its name with this at the end.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What a failure of the file system says about trying again.
fn judge_io(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::AccessDenied
        }
        io::ErrorKind::StorageFull | io::ErrorKind::Interrupted => ErrorKind::Transient,
        _ => ErrorKind::Invalid,
    }
}

/// What a failure of SQLite says about trying again.
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

/// Whether a call ended at another process's lock.
fn lock_error(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code.is_some_and(|code| {
        matches!(
            code,
            ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed
        )
    })
}

/// A failure of SQLite in one line; who holds a lock is not known, but which file is locked.
pub fn explain(error: &rusqlite::Error, path: &Path) -> String {
    match lock_error(error) {
        true => {
            let name = path.file_name().unwrap_or(path.as_os_str());
            format!("`{}` is locked by another process", name.display())
        }
        false => error.to_string(),
    }
}

/// Refuses files that SQLite would take for an empty database, though messages are in the log: it
/// ignores a log whose header it does not know, and deletes one beside an empty database.
fn check_log(path: &Path) -> Result<(), CallError> {
    let log = beside(path, "-wal");
    let refused = |why: String| Err(failed(ErrorKind::Invalid, why));
    for attempt in 0..3 {
        let Ok(bytes) = std::fs::metadata(&log).map(|log| log.len()) else {
            return Ok(());
        };
        // What is no longer holds no page; a crash may leave it half written.
        if bytes <= HEADER {
            return Ok(());
        }
        let length = std::fs::metadata(path).map_or(0, |database| database.len());
        if length == 0 {
            return refused(format!(
                "it is empty or missing, and its log `{}` holds {bytes} bytes that would be lost; put the database back, or remove the log to begin with nothing",
                log.display()
            ));
        }
        let mut header = [0; 32];
        let read = File::open(&log).and_then(|mut log| io::Read::read_exact(&mut log, &mut header));
        if read.is_err() || Header::parse(&header).is_some() {
            // SQLite says why it cannot be read.
            return Ok(());
        }
        if attempt < 2 {
            // One that is being written is whole the next time.
            std::thread::sleep(NAP);
        }
    }
    refused(format!(
        "its log `{}` has been overwritten, and what was committed to it would be lost; put the log back from a copy, or remove it to go on without",
        log.display()
    ))
}

impl Schema {
    /// Opens a database, made or brought up to date if need be, so often as `N` says. The file
    /// `lock`, which is given open, is locked meanwhile: switching a file to WAL and creating tables
    /// are the two steps that SQLite does not let two processes take at once. Makes what is missing,
    /// the folder too.
    ///
    /// # Errors
    /// Without the name of the file, which the caller knows how to say.
    pub fn open<const N: usize>(
        &self,
        path: &Path,
        lock: &Path,
    ) -> Result<([Database; N], File), CallError> {
        let plain = |error: io::Error| failed(judge_io(&error), error);
        if let Some(folder) = path.parent() {
            files::make_folder(folder).map_err(plain)?;
            access::check_folder(folder)?;
        }
        let file = access::open(lock)?;
        access::lock(&file, lock)?;
        let opened = self.open_locked(path);
        file.unlock().map_err(plain)?;
        Ok((opened?, file))
    }

    /// The same while nobody else opens it.
    fn open_locked<const N: usize>(&self, path: &Path) -> Result<[Database; N], CallError> {
        let plain = |error: io::Error| failed(judge_io(&error), error);
        check_log(path)?;
        let mark = self
            .counter
            .map(|_| access::open(&beside(path, "-acknowledged")));
        let mark = mark.transpose()?.map(Mark::new);
        if std::fs::metadata(path).map_or(0, |database| database.len()) == 0 {
            check_mark(path, mark.as_ref(), || Ok(0))?;
        }
        access::tighten(path)?;
        match files::create_private(path).map(drop) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(plain)?,
        }
        let before = identity(path).map_err(plain)?;
        let opened: Result<Vec<_>, _> = (0..N).map(|_| self.connect(path, mark.as_ref())).collect();
        let opened = opened?;
        if let Some(first) = opened.first() {
            let reached = || self.count(first);
            if let Err(error) = check_mark(path, mark.as_ref(), reached) {
                // Closed otherwise, it would lose what may still be mended.
                let off = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
                let _ = opened
                    .iter()
                    .try_for_each(|one| one.set_db_config(off, true).map(drop));
                return Err(error);
            }
        }
        let files = Files::of(path, before, mark).map_err(plain)?;
        let opened: Vec<_> = opened
            .into_iter()
            .map(|one| Database::new(one, Some(files.clone()), self))
            .collect();
        let opened: Result<[Database; N], _> = opened.try_into();
        Ok(opened.unwrap_or_else(|_| unreachable!("N were opened")))
    }

    fn count(&self, connection: &Connection) -> Result<i64, CallError> {
        let plain = |error: rusqlite::Error| failed(judge(&error), error);
        let Some(counter) = self.counter else {
            return Ok(0);
        };
        let mut read = connection.prepare(counter).map_err(plain)?;
        let mut rows = read.query([]).map_err(plain)?;
        let row = rows.next().map_err(plain)?;
        row.map_or(Ok(0), |row| row.get(0).map_err(plain))
    }

    fn connect(&self, path: &Path, mark: Option<&Mark>) -> Result<Connection, CallError> {
        let plain = |error: rusqlite::Error| failed(judge(&error), explain(&error, path));
        let mut connection = Connection::open(path).map_err(plain)?;
        if connection.is_readonly("main").map_err(plain)? {
            return Err(failed(ErrorKind::AccessDenied, "it is not writable"));
        }
        self.configure(&mut connection).map_err(plain)?;
        let number = |sql| {
            let number = connection.query_row(sql, [], |row| row.get::<_, i32>(0));
            number.map_err(plain)
        };
        let application = number("PRAGMA application_id")?;
        let version = number("PRAGMA user_version")?;
        let Self {
            version: wanted, ..
        } = *self;
        if application != self.application {
            return match number("SELECT count(*) FROM sqlite_schema")? {
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
        let update = match version < wanted {
            true => (self.upgrade)(&connection, version).map_err(plain)?,
            false => None,
        };
        match update {
            Some(update) => self
                .write(&connection, &update)
                .map_err(plain)
                .map(|()| connection),
            None => Err(failed(ErrorKind::Invalid, unknown_format(version, wanted))),
        }
    }

    fn configure(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        connection.busy_handler(Some(self.patience))?;
        connection.set_prepared_statement_cache_capacity(64);
        // Else SQLite compiles a statement again whenever a value is bound that might change its plan.
        // Ours have one good plan each.
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

    /// A database that is in no file, and gone with its connection.
    ///
    /// # Errors
    /// If there is no memory for it.
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

    /// A separate database in memory, for tests.
    #[cfg(any(test, fuzzing, feature = "samples"))]
    pub fn in_memory(&self) -> Connection {
        self.memory().expect("a database in memory")
    }
}

/// Refuses a database that has not reached what was acknowledged.
fn check_mark(
    path: &Path,
    mark: Option<&Mark>,
    reached: impl Fn() -> Result<i64, CallError>,
) -> Result<(), CallError> {
    let Some(mark) = mark else { return Ok(()) };
    let (mut acknowledged, mut reached_now) = (0, 0);
    // What another process writes meanwhile may be read half.
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

/// Why a file of this format is not opened.
fn unknown_format(found: i32, newest: i32) -> String {
    if found > newest {
        let why = newer_format(found, newest);
        return format!("{why}, or a backup from before the upgrade");
    }
    format!("it has the unknown format {found}; this dispatcher reads up to {newest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: Schema = Schema {
        application: 0x7465_7374,
        version: 2,
        tables: &["CREATE TABLE a (x);", "CREATE TABLE b (x);"],
        upgrade: |_, version| Ok((version == 1).then(|| "CREATE TABLE b (x);".to_owned())),
        patience: patience::<1_000>,
        counter: None,
        reports_locks: true,
    };

    fn open(folder: &Path) -> Result<Database, CallError> {
        let opened = SCHEMA.open::<1>(&folder.join("db"), &folder.join("lock"));
        opened.map(|([opened], _)| opened)
    }

    fn tables(connection: &Connection) -> i32 {
        let count = "SELECT count(*) FROM sqlite_schema";
        let count = connection.query_row(count, [], |row| row.get(0));
        count.expect("a count")
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
                "unknown format 0; this dispatcher reads up to 2",
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
