//! How every database file of the program is opened: by one process at a time, kept durable, its
//! owner and version checked; and what SQLite's failures mean. Knows no table.

use crate::files;
use crate::trouble::{Failed, Trouble};
use rusqlite::{Connection, ErrorCode};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The pause between two attempts at another process's lock. SQLite's own waits grow to 100 ms,
/// which idles two busy processes half of the time.
const NAP: Duration = Duration::from_micros(250);

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
    /// Whether to go on waiting for another process's lock after so many attempts: `patience`.
    pub patience: fn(i32) -> bool,
}

/// Waits for another process's lock, up to so many milliseconds in all.
pub fn patience<const MILLISECONDS: u64>(attempts: i32) -> bool {
    std::thread::sleep(NAP);
    NAP.saturating_mul(attempts.unsigned_abs()) < Duration::from_millis(MILLISECONDS)
}

/// Makes the folder and in it the file to lock, where they are missing: a file beside the database,
/// since locks on that are SQLite's own.
fn lock_file(path: &Path) -> io::Result<File> {
    path.parent().map_or(Ok(()), files::make_folder)?;
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).open(path)
}

/// What a failure of the file system says about trying again.
fn judge_io(error: &io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Trouble::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::Interrupted => Trouble::Passing,
        _ => Trouble::Refused,
    }
}

/// What a failure of SQLite says about trying again.
pub fn judge(error: &rusqlite::Error) -> Trouble {
    match error.sqlite_error_code() {
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
    }
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
    ) -> Result<([Connection; N], File), Failed> {
        let plain = |error: io::Error| failed(judge_io(&error), error);
        let lock = lock_file(lock).map_err(plain)?;
        lock.lock().map_err(plain)?;
        let opened: Result<Vec<_>, _> = (0..N).map(|_| self.connect(path)).collect();
        lock.unlock().map_err(plain)?;
        let opened: Result<[Connection; N], _> = opened?.try_into();
        let opened = opened.unwrap_or_else(|_| unreachable!("N were opened"));
        Ok((opened, lock))
    }

    fn connect(&self, path: &Path) -> Result<Connection, Failed> {
        let plain = |error: rusqlite::Error| failed(judge(&error), error);
        let mut connection = Connection::open(path).map_err(plain)?;
        if connection.is_readonly("main").map_err(plain)? {
            return Err(failed(Trouble::Denied, "it is not writable"));
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
                0 => self.create(&connection).map_err(plain).map(|()| connection),
                _ => Err(failed(
                    Trouble::Refused,
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
            None => Err(failed(
                Trouble::Refused,
                format!("it has schema version {version}, wanted {wanted}; use a newer dispatcher"),
            )),
        }
    }

    fn configure(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        connection.busy_handler(Some(self.patience))?;
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

    /// A database of its own in memory, for tests.
    #[cfg(any(test, fuzzing))]
    pub fn in_memory(&self) -> Connection {
        let mut connection = Connection::open_in_memory().expect("memory");
        self.configure(&mut connection).expect("pragmas");
        self.create(&connection).expect("tables");
        connection
    }
}

fn failed(kind: Trouble, cause: impl std::fmt::Display) -> Failed {
    let message = cause.to_string();
    Failed { kind, message }
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
    };

    fn open(folder: &Path) -> Result<Connection, Failed> {
        let opened = SCHEMA.open::<1>(&folder.join("db"), &folder.join("lock"));
        opened.map(|([opened], _)| opened)
    }

    fn tables(connection: &Connection) -> i32 {
        let count = "SELECT count(*) FROM sqlite_schema";
        let count = connection.query_row(count, [], |row| row.get(0));
        count.expect("a count")
    }

    #[test]
    fn a_file_is_made_found_again_and_brought_up_to_date() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = open(folder.path()).expect("made");
        assert_eq!(tables(&made), 2);
        made.execute_batch("DROP TABLE b; PRAGMA user_version = 1")
            .expect("an older file");
        assert_eq!(tables(&open(folder.path()).expect("found")), 2);
    }

    #[test]
    fn a_file_of_a_newer_or_another_program_is_refused_and_left_alone() {
        for (sql, said) in [
            ("PRAGMA user_version = 3", "schema version 3, wanted 2"),
            ("PRAGMA user_version = 0", "schema version 0, wanted 2"),
            ("PRAGMA application_id = 7", "another program"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let made = open(folder.path()).expect("made");
            made.execute_batch(sql).expect("changed");
            let refused = open(folder.path()).expect_err("refused");
            assert_eq!(refused.kind, Trouble::Refused);
            assert!(refused.message.contains(said), "{refused}");
        }
    }
}
