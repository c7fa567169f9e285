//! Copies databases while others write to them. Independent of their tables.

use super::{check_log, explain, failed, judge, judge_io, lock_error, patience};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::files;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};

/// The number of pages that are copied at a time.
const PAGES: i32 = 1_024;

/// A database to copy, and the destination, where no file exists yet.
#[derive(Debug, Clone)]
pub struct Copy {
    /// The database.
    pub from: PathBuf,
    /// The copy, one file.
    pub to: PathBuf,
}

/// Copies databases as they are at one moment, common to all: a message that one of them hands to
/// another is in one of the copies. Writers wait for some milliseconds, and not for the copying.
/// Every copy is checked and on the disk when this returns.
///
/// # Errors
/// Fails with the name of the file; with `Unreachable` if another process holds a lock for too
/// long. Copies made so far are left.
pub fn copy(copies: &[Copy]) -> Result<(), CallError> {
    let gates = each(copies, |copy| open(&copy.from))?;
    let mut readers = each(copies, |copy| open(&copy.from))?;
    // No process writes to any of them while the readers begin.
    run(copies, &gates, "BEGIN IMMEDIATE")?;
    run(
        copies,
        &readers,
        "BEGIN; SELECT count(*) FROM sqlite_schema",
    )?;
    run(copies, &gates, "ROLLBACK")?;
    drop(gates);
    for (copy, reader) in copies.iter().zip(&mut readers) {
        write(reader, copy)?;
    }
    Ok(())
}

fn each<T>(
    copies: &[Copy],
    make: impl Fn(&Copy) -> Result<T, CallError>,
) -> Result<Vec<T>, CallError> {
    copies.iter().map(make).collect()
}

/// Runs statements on the connections to the databases, of which there is one for each.
fn run(copies: &[Copy], connections: &[Connection], sql: &str) -> Result<(), CallError> {
    for (copy, connection) in copies.iter().zip(connections) {
        connection.execute_batch(sql).map_err(of(&copy.from))?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<Connection, CallError> {
    check_log(path).map_err(|error| failed(error.kind, name(path, &error)))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(of(path))?;
    let patient = connection.busy_handler(Some(patience::<10_000>));
    patient.map_err(of(path))?;
    Ok(connection)
}

fn name(path: &Path, error: &impl std::fmt::Display) -> String {
    format!("`{}`: {error}", path.display())
}

fn of(path: &Path) -> impl Fn(rusqlite::Error) -> CallError {
    move |error| {
        let kind = if lock_error(&error) {
            ErrorKind::Unreachable
        } else {
            judge(&error)
        };
        failed(kind, name(path, &explain(&error, path)))
    }
}

fn of_io(path: &Path) -> impl Fn(std::io::Error) -> CallError {
    move |error| failed(judge_io(&error), name(path, &error))
}

fn write(reader: &Connection, Copy { from, to }: &Copy) -> Result<(), CallError> {
    drop(files::create_private(to).map_err(of_io(to))?);
    let mut target = Connection::open(to).map_err(of(to))?;
    {
        let backup = Backup::new(reader, &mut target).map_err(of(to))?;
        loop {
            match backup.step(PAGES).map_err(of(to))? {
                StepResult::Done => break,
                StepResult::More => {}
                _ => return Err(failed(ErrorKind::Unreachable, name(from, &"it is locked"))),
            }
        }
    }
    // One file, without a log beside it.
    let mode = "PRAGMA journal_mode = DELETE";
    target.query_row(mode, [], |_| Ok(())).map_err(of(to))?;
    let check = "PRAGMA quick_check(1)";
    let found: String = target
        .query_row(check, [], |row| row.get(0))
        .map_err(of(from))?;
    if found != "ok" {
        return Err(failed(
            ErrorKind::Invalid,
            name(from, &format!("it is damaged: {found}")),
        ));
    }
    target.close().map_err(|(_, error)| of(to)(error))?;
    let file = std::fs::File::open(to).map_err(of_io(to))?;
    file.sync_all().map_err(of_io(to))
}
