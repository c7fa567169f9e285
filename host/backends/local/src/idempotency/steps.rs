//! Steps on the file that take `now` as an argument. They begin no transaction.

use dispatcher_core::clock::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

/// A date as SQLite holds it: signed; what lies beyond is "never".
fn millis(date: Timestamp) -> i64 {
    i64::try_from(date.0).unwrap_or(i64::MAX)
}

fn queue_number(connection: &Connection, queue: &str) -> rusqlite::Result<Option<i64>> {
    let mut find = connection.prepare_cached("SELECT number FROM queues WHERE name = ?1")?;
    find.query_row([queue], |row| row.get(0)).optional()
}

/// Which of these have a record that has not expired.
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

/// Writes records; those that are there are kept until the later date.
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

/// Deletes expired records, the oldest first and at most so many. Answers with how many.
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
