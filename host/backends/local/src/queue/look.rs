//! Reads without receiving: names, depth and peek; also the keys of queues. Pure steps on a
//! connection that take `now` as an argument.

use super::deliver::{GroupFollowers, find, look_at};
use super::time::StoreTime;
use super::turn::{QueueId, Turn};
use dispatcher_core::message::Message;
use dispatcher_core::queue::{Ask, Depth};
use rusqlite::{Connection, OptionalExtension, params};

/// The numbers of messages that wait, are in flight and are delayed, and the time at which the
/// oldest one that is not in flight was sent.
pub(super) const DEPTH: &str = "SELECT count(*) FILTER (WHERE visible_at <= ?2),
            count(*) FILTER (WHERE visible_at > ?2 AND in_flight),
            count(*) FILTER (WHERE visible_at > ?2 AND NOT in_flight),
            min(sent_at) FILTER (WHERE visible_at <= ?2 OR NOT in_flight)
     FROM entries WHERE queue = ?1";

/// The visible messages, in the order of becoming visible.
pub(super) const VISIBLE: &str = "SELECT seq FROM entries
     WHERE queue = ?1 AND head = ?2 AND visible_at <= ?3 ORDER BY visible_at, seq LIMIT ?4";

/// Returns the key of a queue. Creates the queue if it does not exist.
pub(super) fn queue_id(connection: &Connection, name: &str) -> rusqlite::Result<QueueId> {
    if let Some(id) = known_id(connection, name)? {
        return Ok(id);
    }
    // A queue that was deleted gets its former key.
    connection
        .prepare_cached("INSERT OR IGNORE INTO queues (name) VALUES (?1)")?
        .execute(params![name])?;
    connection
        .prepare_cached(
            "DELETE FROM deleted_queues WHERE queue = (SELECT id FROM queues WHERE name = ?1)",
        )?
        .execute(params![name])?;
    connection
        .prepare_cached("SELECT id FROM queues WHERE name = ?1")?
        .query_row(params![name], |row| row.get(0))
}

/// Returns the key of a queue, if it exists.
pub(super) fn known_id(connection: &Connection, name: &str) -> rusqlite::Result<Option<QueueId>> {
    connection
        .prepare_cached(
            "SELECT id FROM queues
             WHERE name = ?1 AND id NOT IN (SELECT queue FROM deleted_queues)",
        )?
        .query_row(params![name], |row| row.get(0))
        .optional()
}

/// Returns the names of all queues that were ever opened or hold dead letters, sorted.
pub(super) fn names(turn: &Turn<'_>) -> rusqlite::Result<Vec<String>> {
    turn.connection
        .prepare_cached(
            "SELECT name FROM queues WHERE id NOT IN (SELECT queue FROM deleted_queues)
             ORDER BY name",
        )?
        .query_map([], |row| row.get(0))?
        .collect()
}

/// Returns exact counts, from one pass over an index. A message behind the head of its group counts
/// as waiting: it waits for its turn, not for a time.
pub(super) fn depth(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<Depth> {
    turn.connection
        .prepare_cached(DEPTH)?
        .query_row(params![queue, turn.now], |row| {
            let oldest: Option<StoreTime> = row.get(3)?;
            Ok(Depth {
                waiting: count(row.get(0)?),
                in_flight: count(row.get(1)?),
                delayed: count(row.get(2)?),
                oldest: oldest.map(|sent| turn.now.since(sent)),
            })
        })
}

/// Converts a count as SQLite stores it.
pub(super) fn count(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

/// Returns how much each of these queues holds, in their order; `None` for a queue that does not
/// exist.
pub(super) fn depths(turn: &Turn<'_>, names: &[String]) -> rusqlite::Result<Vec<Option<Depth>>> {
    // All depths are read under one lock of the file and at one moment.
    let reading = turn.connection.unchecked_transaction()?;
    let depths = names
        .iter()
        .map(|name: &String| match known_id(turn.connection, name)? {
            Some(queue) => depth(turn, queue).map(Some),
            None => Ok(None),
        })
        .collect();
    reading.finish()?;
    depths
}

/// Returns up to `max` waiting messages without receipts: first those that a receive would bring,
/// in its order, then those behind the heads of groups.
pub(super) fn peek(
    turn: &Turn<'_>,
    queue: QueueId,
    name: &str,
    max: usize,
) -> rusqlite::Result<Vec<Message>> {
    let first = find(turn, queue, Ask { max, ..Ask::PLAIN }, GroupFollowers::None)?;
    let mut rows: Vec<i64> = first.candidates.iter().map(|one| one.seq).collect();
    for head in [true, false] {
        if rows.len() < max {
            let more: Vec<i64> = visible(turn, queue, head, max + rows.len())?
                .into_iter()
                .filter(|seq| !rows.contains(seq))
                .collect();
            rows.extend(more);
        }
    }
    let rows = rows.into_iter().take(max);
    rows.map(|seq| look_at(turn, seq, name)).collect()
}

/// Returns the visible rows of a queue, whether or not they can be received, in the order of
/// becoming visible.
fn visible(turn: &Turn<'_>, queue: QueueId, head: bool, max: usize) -> rusqlite::Result<Vec<i64>> {
    turn.connection
        .prepare_cached(VISIBLE)?
        .query_map(
            params![
                queue,
                head,
                turn.now,
                i64::try_from(max).unwrap_or(i64::MAX)
            ],
            |row| row.get(0),
        )?
        .collect()
}
