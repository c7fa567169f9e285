//! When something of a group can be received: in order, many at once, and nothing while one of them
//! is in flight. Pure steps on a connection that are told `now`.
//!
//! One message of each group has `head` set, its gate: of the first message and all that are in
//! flight the one that is invisible for longest. From then on the group is open, and what is visible
//! at its beginning may be received.

use super::time::StoreTime;
use super::turn::{QueueId, Turn};
use rusqlite::{OptionalExtension, params};

/// The first message of a group.
pub(super) const FIRST: &str = "SELECT visible_at, seq FROM entries
     WHERE queue = ?1 AND message_group = ?2 ORDER BY seq LIMIT 1";
/// What is in flight of a group for longest.
pub(super) const LONGEST: &str = "SELECT visible_at, seq FROM entries
     WHERE queue = ?1 AND message_group = ?2 AND in_flight = 1
     ORDER BY visible_at DESC, seq DESC LIMIT 1";
/// The gate as it was.
pub(super) const GATE: &str =
    "SELECT seq FROM entries WHERE queue = ?1 AND message_group = ?2 AND head = 1";

/// Sets a group's gate after one of its messages has changed, come or gone. Says whether something
/// may be received now, or at another time than before.
pub(super) fn set_gate(turn: &Turn<'_>, queue: QueueId, group: &str) -> rusqlite::Result<bool> {
    let one = |sql: &str| -> rusqlite::Result<Option<(StoreTime, i64)>> {
        turn.connection
            .prepare_cached(sql)?
            .query_row(params![queue, group], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    };
    let Some(first) = one(FIRST)? else {
        return Ok(false);
    };
    let (opens, gate) = one(LONGEST)?.map_or(first, |longest| longest.max(first));
    let before: Option<i64> = turn
        .connection
        .prepare_cached(GATE)?
        .query_row(params![queue, group], |row| row.get(0))
        .optional()?;
    let changed = before != Some(gate);
    if changed {
        let mut set = turn
            .connection
            .prepare_cached("UPDATE entries SET head = ?2 WHERE seq = ?1")?;
        if let Some(before) = before {
            set.execute(params![before, false])?;
        }
        set.execute(params![gate, true])?;
    }
    Ok(changed || opens <= turn.now)
}
