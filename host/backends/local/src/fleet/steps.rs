//! Steps on the file. A step neither waits nor commits.

use dispatcher_core::fleet::RecordChange;
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Duration;

/// Times are in milliseconds since the boot whose id is in `boot`.
pub(super) const TABLES: &str = "
    CREATE TABLE boot (id TEXT NOT NULL);
    CREATE TABLE records (name TEXT PRIMARY KEY, text TEXT NOT NULL, ends INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX record_ends ON records (ends);
    CREATE TABLE processes (name TEXT PRIMARY KEY, summary TEXT NOT NULL, ends INTEGER NOT NULL) WITHOUT ROWID;
";

/// The maximum number of ended records that a transaction removes.
const SWEPT: u32 = 20;

/// A call of the store.
pub(super) enum FleetCall {
    Read(Vec<String>),
    Replace(Vec<RecordChange>),
    Publish(String, String, Duration),
    Published,
}

/// The answer to a call. Only what was asked is filled.
#[derive(Default)]
pub(super) struct FleetAnswer {
    pub(super) now: u64,
    pub(super) records: Vec<Option<String>>,
    pub(super) is_changed: bool,
    pub(super) summaries: Vec<(String, String)>,
}

/// The end of a record that is kept forever.
const NEVER: i64 = i64::MAX;

/// Begins a transaction: removes what is of another boot of the machine and ends, and some of what
/// has ended.
pub(super) fn begin(connection: &Connection, boot: &str, now: u64) -> rusqlite::Result<()> {
    let known: Option<String> = connection
        .prepare_cached("SELECT id FROM boot")?
        .query_row([], |row| row.get(0))
        .optional()?;
    if known.as_deref() != Some(boot) {
        connection.execute_batch("DELETE FROM boot; DELETE FROM processes;")?;
        connection.execute("DELETE FROM records WHERE ends < ?1", [NEVER])?;
        connection.execute("INSERT INTO boot VALUES (?1)", [boot])?;
    }
    let now = number(now);
    connection
        .prepare_cached(
            "DELETE FROM records WHERE name IN (SELECT name FROM records WHERE ends <= ?1 LIMIT ?2)",
        )?
        .execute(params![now, SWEPT])?;
    connection
        .prepare_cached("DELETE FROM processes WHERE ends <= ?1")?
        .execute([now])?;
    Ok(())
}

/// Answers a call.
pub(super) fn answer(
    connection: &Connection,
    asked: &FleetCall,
    now: u64,
) -> rusqlite::Result<FleetAnswer> {
    let mut answer = FleetAnswer {
        now,
        ..FleetAnswer::default()
    };
    match asked {
        FleetCall::Read(names) => {
            let read = names.iter().map(|name| record(connection, name, now));
            answer.records = read.collect::<rusqlite::Result<_>>()?;
        }
        FleetCall::Replace(changes) => answer.is_changed = replace(connection, changes, now)?,
        FleetCall::Publish(process, summary, keep_for) => {
            connection
                .prepare_cached("INSERT OR REPLACE INTO processes VALUES (?1, ?2, ?3)")?
                .execute(params![process, summary, ends(now, *keep_for)])?;
        }
        FleetCall::Published => {
            let mut query = connection.prepare_cached("SELECT name, summary FROM processes")?;
            let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            answer.summaries = rows.collect::<rusqlite::Result<_>>()?;
        }
    }
    Ok(answer)
}

fn record(connection: &Connection, name: &str, now: u64) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT text FROM records WHERE name = ?1 AND ends > ?2")?
        .query_row(params![name, number(now)], |row| row.get(0))
        .optional()
}

fn replace(connection: &Connection, changes: &[RecordChange], now: u64) -> rusqlite::Result<bool> {
    for change in changes {
        if record(connection, &change.name, now)? != change.stands {
            return Ok(false);
        }
    }
    let mut write =
        connection.prepare_cached("INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3)")?;
    for change in changes {
        write.execute(params![
            change.name,
            change.text,
            ends(now, change.keep_for)
        ])?;
    }
    Ok(true)
}

fn ends(now: u64, keep_for: Duration) -> i64 {
    let keep_for = u64::try_from(keep_for.as_millis()).unwrap_or(u64::MAX);
    number(now.saturating_add(keep_for))
}

fn number(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(NEVER)
}
