//! Steps on the file. They take `now` as an argument and do not begin transactions.

use dispatcher_core::clock::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

/// Converts a date to SQLite's signed integer. A date beyond its range becomes the maximum,
/// "never".
fn millis(date: Timestamp) -> i64 {
    i64::try_from(date.0).unwrap_or(i64::MAX)
}

fn queue_number(connection: &Connection, queue: &str) -> rusqlite::Result<Option<i64>> {
    let mut find = connection.prepare_cached("SELECT number FROM queues WHERE name = ?1")?;
    find.query_row([queue], |row| row.get(0)).optional()
}

/// Returns for each id whether it has a record that has not expired.
pub(super) fn known(
    connection: &Connection,
    now: Timestamp,
    queue: &str,
    ids: &[String],
) -> rusqlite::Result<Vec<bool>> {
    let Some(queue) = queue_number(connection, queue)? else {
        return Ok(vec![false; ids.len()]);
    };
    let mut find = connection
        .prepare_cached("SELECT 1 FROM done WHERE queue = ?1 AND id = ?2 AND until > ?3")?;
    ids.iter()
        .map(|id| find.exists(params![queue, id, millis(now)]))
        .collect()
}

/// Writes records. A record that exists keeps the later of both dates.
pub(super) fn remember(
    connection: &Connection,
    queue: &str,
    ids: &[String],
    until: Timestamp,
) -> rusqlite::Result<()> {
    let queue = match queue_number(connection, queue)? {
        Some(number) => number,
        None => {
            connection.execute("INSERT INTO queues (name) VALUES (?1)", [queue])?;
            connection.last_insert_rowid()
        }
    };
    let mut write = connection.prepare_cached(
        "INSERT INTO done (queue, id, until) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
    )?;
    for id in ids {
        write.execute(params![queue, id, millis(until)])?;
    }
    Ok(())
}

/// Deletes at most `most` expired records, the oldest first. Returns how many it deleted.
pub(super) fn expire(
    connection: &Connection,
    now: Timestamp,
    most: usize,
) -> rusqlite::Result<usize> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut delete = connection.prepare_cached(
        "DELETE FROM done WHERE (queue, id) IN
         (SELECT queue, id FROM done WHERE until <= ?1 ORDER BY until LIMIT ?2)",
    )?;
    delete.execute(params![millis(now), most])
}
