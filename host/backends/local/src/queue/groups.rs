//! The order in which messages of a group are received. Several can be received at once, up to the
//! first that is in flight or delayed. Pure steps on a connection that take `now` as an argument.
//!
//! The first message of each group has `head` set. Once it is visible, it may be received together
//! with the visible messages right behind it. SQS does the same: of three received messages, the
//! first one is delivered again as soon as it is released, and the others only with all that
//! precede them.

use super::time::StoreTime;
use super::turn::{QueueId, Turn};
use rusqlite::{OptionalExtension, params};

/// The first message of a group.
pub(super) const FIRST: &str = "SELECT visible_at, seq FROM entries
     WHERE queue = ?1 AND message_group = ?2 ORDER BY seq LIMIT 1";
/// The message that has `head` set.
pub(super) const HEAD: &str =
    "SELECT seq FROM entries WHERE queue = ?1 AND message_group = ?2 AND head = 1";

/// Sets a group's head after one of its messages was changed, added or removed. Returns whether a
/// message can be received now, or at another time than before.
pub(super) fn set_head(turn: &Turn<'_>, queue: QueueId, group: &str) -> rusqlite::Result<bool> {
    let first: Option<(StoreTime, i64)> = turn
        .connection
        .prepare_cached(FIRST)?
        .query_row(params![queue, group], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((opens, first)) = first else {
        return Ok(false);
    };
    let before: Option<i64> = turn
        .connection
        .prepare_cached(HEAD)?
        .query_row(params![queue, group], |row| row.get(0))
        .optional()?;
    let changed = before != Some(first);
    if changed {
        let mut set = turn
            .connection
            .prepare_cached("UPDATE entries SET head = ?2 WHERE seq = ?1")?;
        if let Some(before) = before {
            set.execute(params![before, false])?;
        }
        set.execute(params![first, true])?;
    }
    Ok(changed || opens <= turn.now)
}
