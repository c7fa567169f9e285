//! Puts messages into their lanes: those that no receive has read since they were sent, and those
//! that waited when the rules changed. Pure steps on a connection.

use super::{AssignmentRules, FileRules};
use crate::queue::deliver::look_within;
use crate::queue::turn::{QueueId, Turn};
use dispatcher_core::message::place::MessagePlace;
use dispatcher_core::queue::sharing::Priority;
use rusqlite::params;

/// The maximum number of messages that one receive assigns.
const AT_ONCE: usize = 1_000;
/// The number of bytes of messages after which it stops. It does not read a longer body: the
/// message does not count as received yet, so it would be read again by each process that it kills.
const BYTES: u64 = 8 << 20;
/// The maximum number of rows that one receive walks past, those of other queues included.
const ROWS: usize = 10_000;

/// The messages whose priority was not read yet.
pub(in crate::queue) const UNRANKED: &str =
    "SELECT seq, head, message_group FROM entries INDEXED BY unranked
     WHERE queue = ?1 AND priority = 0 ORDER BY seq LIMIT ?2";
/// The rows of all queues between two others.
const WALK: &str = "SELECT seq, head, message_group, queue = ?1 FROM entries NOT INDEXED
     WHERE seq > ?2 AND seq <= ?3 ORDER BY seq LIMIT ?4";

/// A message to assign.
struct MessageRow {
    seq: i64,
    is_head: bool,
    group: Option<String>,
}

/// Assigns the next messages. Returns whether none is left.
pub(super) fn step(
    turn: &Turn<'_>,
    queue: QueueId,
    stored: &mut FileRules,
) -> rusqlite::Result<bool> {
    let unranked: Vec<MessageRow> = turn
        .connection
        .prepare_cached(UNRANKED)?
        .query_map(params![queue, AT_ONCE as i64], |row| {
            Ok(MessageRow {
                seq: row.get(0)?,
                is_head: row.get(1)?,
                group: row.get(2)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let room = AT_ONCE - unranked.len();
    let mut bytes = 0;
    for row in &unranked {
        if bytes >= BYTES {
            return Ok(false);
        }
        bytes += assign(turn, &stored.rules, row)?;
    }
    if room == 0 || stored.walked >= stored.walk_to {
        return Ok(room > 0);
    }
    let mut rows = walk(turn, queue, stored, room)?;
    let mut end = rows.1;
    rows.0.reverse();
    while let Some(row) = rows.0.pop() {
        if bytes >= BYTES {
            end = row.seq - 1;
            break;
        }
        bytes += assign(turn, &stored.rules, &row)?;
    }
    stored.walked = end;
    turn.connection
        .prepare_cached("UPDATE lane_rules SET walked = ?2 WHERE queue = ?1")?
        .execute(params![queue, end])?;
    Ok(stored.walked >= stored.walk_to)
}

/// Returns up to `most` of the next messages that waited when the rules changed, and the row to
/// which these reach.
fn walk(
    turn: &Turn<'_>,
    queue: QueueId,
    stored: &FileRules,
    most: usize,
) -> rusqlite::Result<(Vec<MessageRow>, i64)> {
    let mut found = Vec::new();
    let mut find = turn.connection.prepare_cached(WALK)?;
    let bounds = params![queue, stored.walked, stored.walk_to, ROWS as i64];
    let mut rows = find.query(bounds)?;
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        seen += 1;
        let seq = row.get(0)?;
        if row.get(3)? {
            found.push(MessageRow {
                seq,
                is_head: row.get(1)?,
                group: row.get(2)?,
            });
        }
        if found.len() == most || seen == ROWS {
            return Ok((found, seq));
        }
    }
    Ok((found, stored.walk_to))
}

/// Puts a message into its lane. Returns the number of bytes that were read.
fn assign(turn: &Turn<'_>, rules: &AssignmentRules, row: &MessageRow) -> rusqlite::Result<u64> {
    let counts = rules.by_group || row.is_head;
    let (priority, bytes) = match &rules.priority {
        _ if !counts => (None, 0),
        None => (Some(Priority::default()), 0),
        Some(place) => {
            let longest = match place {
                MessagePlace::Attribute(_) => 0,
                MessagePlace::Pointer(_) => BYTES,
            };
            let message = look_within(turn, row.seq, longest)?;
            (Some(Priority::of(place, &message)), message.held_bytes())
        }
    };
    let tenant = match &row.group {
        Some(group) if rules.by_group => group,
        _ => "",
    };
    turn.connection
        .prepare_cached("UPDATE entries SET priority = ?2, tenant = ?3 WHERE seq = ?1")?
        .execute(params![row.seq, priority.map(Priority::number), tenant])?;
    Ok(bytes)
}
