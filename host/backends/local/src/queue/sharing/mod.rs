//! Shares the messages of a queue out among tenants and by priority, as `SharingRules` says. Pure steps
//! on a connection that take `now` as an argument.
//!
//! `slot` holds the rules of one open queue, `tables` defines the lanes in the file, `assign` puts
//! messages into lanes, `search` chooses the messages of a receive, and `accounts` counts what
//! lanes pay.

mod accounts;
mod assign;
mod search;
mod slot;
mod tables;

#[cfg(test)]
mod tests;

use super::time::StoreTime;
use super::turn::{QueueId, Turn};
use accounts::LaneAccounts;
pub(super) use assign::UNRANKED;
use dispatcher_core::message::place::MessagePlace;
use dispatcher_core::queue::sharing::{MOST_COUNTED, Priority, SharingRules, TenantBacklog};
use rusqlite::{OptionalExtension, params};
pub(super) use search::{LanePicks, charge, search};
pub(super) use slot::{AssignmentRules, SharingSlot};
use std::sync::Arc;
use std::time::Duration;
pub(super) use tables::create_rules;

/// The maximum number of lanes that one receive makes due, and of those that it corrects.
const MOST_LANES: usize = 1_000;
/// The interval of noting that the lanes of a queue are in use.
const NOTED_EVERY: Duration = Duration::from_hours(1);
/// The time after which the lanes of a queue are deleted if no receive has used them.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);

/// The lanes of a priority in the order of the times from which they have messages.
const BY_TIME: &str = "SELECT tenant, next_at FROM lanes INDEXED BY lanes_by_time
     WHERE queue = ?1 AND is_due = ?2 AND priority = ?3 AND next_at <= ?4 ORDER BY next_at";
/// The time from which the first message of a lane can be received.
const FIRST_OF_LANE: &str = "SELECT visible_at FROM entries INDEXED BY lane_messages
     WHERE queue = ?1 AND priority = ?2 AND tenant = ?3 ORDER BY visible_at LIMIT 1";
/// The number of messages of a lane that can be received, and the time of the first.
const BACKLOG: &str = "SELECT count(*), min(visible_at) FROM
     (SELECT visible_at FROM entries INDEXED BY lane_messages
      WHERE queue = ?1 AND priority = ?2 AND tenant = ?3 AND visible_at <= ?4
      ORDER BY visible_at LIMIT ?5)";

/// The rules of a queue as the file has them.
#[derive(Debug)]
pub(super) struct FileRules {
    /// The rules.
    pub rules: AssignmentRules,
    /// The row up to which the messages that waited when the rules changed are in their lanes.
    walked: i64,
    /// The last row of these messages.
    walk_to: i64,
}

/// A lane of a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LaneKey {
    /// The priority of its messages.
    pub priority: Priority,
    /// The tenant.
    pub tenant: String,
}

/// The lanes of one queue, ready for a receive.
pub(super) struct QueueLanes {
    /// The queue.
    pub queue: QueueId,
    /// The rules of the receive.
    pub sharing: Arc<SharingRules>,
    /// Whether message groups are tenants, and not kept in order.
    pub by_group: bool,
    /// The sums that the priorities have reached.
    accounts: LaneAccounts,
    /// Whether all messages that can be received are in lanes that are due.
    is_complete: bool,
}

/// The rules of one receive, and the slot that they are from.
type ReceiveRules = (Arc<SharingSlot>, Arc<SharingRules>);

/// Returns the rules by which a receive shares a queue out, if it does.
pub(super) fn of_receive(
    turn: &Turn<'_>,
    queue: QueueId,
    slot: Option<&Arc<SharingSlot>>,
) -> rusqlite::Result<Option<ReceiveRules>> {
    let rules = slot.and_then(|slot| Some((slot.clone(), slot.sharing()?)));
    match rules {
        Some((slot, _)) if slot.is_standard() && !has_groups(turn, queue)? => Ok(None),
        rules => Ok(rules),
    }
}

/// Whether messages of a queue have groups.
fn has_groups(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<bool> {
    turn.connection
        .prepare_cached(
            "SELECT 1 FROM entries INDEXED BY groups
             WHERE queue = ?1 AND message_group IS NOT NULL LIMIT 1",
        )?
        .exists(params![queue])
}

/// Returns the rules of a queue as the file has them, if it is shared out.
fn read(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<Option<FileRules>> {
    let mut find = turn.connection.prepare_cached(
        "SELECT by_group, attribute, pointer, walked, walk_to FROM lane_rules WHERE queue = ?1",
    )?;
    find.query_row(params![queue], |row| {
        let attribute: Option<String> = row.get(1)?;
        let pointer: Option<String> = row.get(2)?;
        let attribute = attribute.map(MessagePlace::Attribute);
        Ok(FileRules {
            rules: AssignmentRules {
                by_group: row.get(0)?,
                priority: attribute.or_else(|| pointer.map(MessagePlace::Pointer)),
            },
            walked: row.get(3)?,
            walk_to: row.get(4)?,
        })
    })
    .optional()
}

/// Whether a queue is shared out by message group, so that a message behind the first of its group
/// can be received, too.
pub(super) fn is_by_group(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<bool> {
    turn.connection
        .prepare_cached("SELECT 1 FROM lane_rules WHERE queue = ?1 AND by_group")?
        .exists(params![queue])
}

/// Writes the rules of a queue. All messages that wait are then assigned anew.
fn write(turn: &Turn<'_>, queue: QueueId, rules: &AssignmentRules) -> rusqlite::Result<()> {
    tables::create_lanes(turn.connection)?;
    let (attribute, pointer) = match &rules.priority {
        Some(MessagePlace::Attribute(name)) => (Some(name), None),
        Some(MessagePlace::Pointer(pointer)) => (None, Some(pointer)),
        None => (None, None),
    };
    let first_priority = match rules.priority {
        Some(_) => 0,
        None => Priority::default().number(),
    };
    turn.connection
        .prepare_cached(
            "INSERT OR REPLACE INTO lane_rules
                 (queue, by_group, attribute, pointer, first_priority, walked, walk_to, used_at)
             VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7)",
        )?
        .execute(params![
            queue,
            rules.by_group,
            attribute,
            pointer,
            first_priority,
            last_row(turn)?,
            turn.now
        ])
        .map(drop)
}

/// Returns the last row that was ever given to a message.
fn last_row(turn: &Turn<'_>) -> rusqlite::Result<i64> {
    let last: Option<i64> = turn
        .connection
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'entries'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or_default())
}

/// Notes once an hour that the lanes of a queue are in use.
fn note_use(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<()> {
    turn.connection
        .prepare_cached("UPDATE lane_rules SET used_at = ?2 WHERE queue = ?1 AND used_at < ?3")?
        .execute(params![queue, turn.now, before(turn, NOTED_EVERY)])
        .map(drop)
}

/// Deletes some lanes of a queue that no receive has shared out for a day, and at last its rules.
/// Otherwise each new tenant would leave a lane in the file. A receive that shares messages out
/// meanwhile finds that all messages are to be assigned anew.
pub(super) fn forget_unused(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<()> {
    let is_unused = turn
        .connection
        .prepare_cached("SELECT 1 FROM lane_rules WHERE queue = ?1 AND used_at < ?2")?
        .exists(params![queue, before(turn, FORGOTTEN_AFTER)])?;
    if !is_unused {
        return Ok(());
    }
    let deleted = turn.connection.execute(
        "DELETE FROM lanes WHERE (queue, priority, tenant) IN
             (SELECT queue, priority, tenant FROM lanes WHERE queue = ?1 LIMIT ?2)",
        params![queue, MOST_LANES as i64],
    )?;
    if deleted < MOST_LANES {
        return forget(turn, queue);
    }
    turn.connection
        .execute(
            "UPDATE lane_rules SET walked = 0, walk_to = ?2 WHERE queue = ?1",
            params![queue, last_row(turn)?],
        )
        .map(drop)
}

/// Returns the time that was this long ago.
fn before(turn: &Turn<'_>, ago: Duration) -> StoreTime {
    let ago_ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    StoreTime(turn.now.0.saturating_sub(ago_ms))
}

/// Deletes the rules and lanes of a queue.
pub(super) fn forget(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<()> {
    let delete = "DELETE FROM lane_rules WHERE queue = ?1";
    let known = turn
        .connection
        .prepare_cached(delete)?
        .execute(params![queue])?;
    if known > 0 {
        for table in ["lanes", "lane_times"] {
            let delete = format!("DELETE FROM {table} WHERE queue = ?1");
            turn.connection.execute(&delete, params![queue])?;
        }
    }
    Ok(())
}

/// Prepares the lanes of a queue for a receive: writes the rules to the file if they are new, puts
/// the next messages into their lanes and finds the lanes that have become due.
pub(super) fn prepare(
    turn: &mut Turn<'_>,
    queue: QueueId,
    slot: &Arc<SharingSlot>,
    sharing: Arc<SharingRules>,
) -> rusqlite::Result<QueueLanes> {
    let rules = AssignmentRules::of(&sharing);
    let mut stored = read(turn, queue)?;
    let is_other = stored.as_ref().is_none_or(|stored| stored.rules != rules);
    if is_other && (stored.is_none() || !slot.has_written(&rules)) {
        write(turn, queue, &rules)?;
        stored = read(turn, queue)?;
    }
    if !slot.has_written(&rules) {
        turn.written.push((Arc::clone(slot), rules));
    }
    let mut stored = stored.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    note_use(turn, queue)?;
    let is_assigned = assign::step(turn, queue, &mut stored)?;
    let is_promoted = promote(turn, queue)?;
    Ok(QueueLanes {
        queue,
        sharing,
        by_group: stored.rules.by_group,
        accounts: LaneAccounts::read(turn, queue)?,
        is_complete: is_assigned && is_promoted,
    })
}

/// Marks the lanes that have become due, the most urgent first. Returns whether none is left.
fn promote(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<bool> {
    let mut found = Vec::new();
    let mut find = turn.connection.prepare_cached(BY_TIME)?;
    for priority in Priority::all() {
        let mut rows = find.query(params![queue, false, priority.number(), turn.now])?;
        while found.len() < MOST_LANES
            && let Some(row) = rows.next()?
        {
            found.push((priority, row.get::<_, String>(0)?));
        }
    }
    let mut set = turn.connection.prepare_cached(
        "UPDATE lanes SET is_due = 1 WHERE queue = ?1 AND priority = ?2 AND tenant = ?3",
    )?;
    for (priority, tenant) in &found {
        set.execute(params![queue, priority.number(), tenant])?;
    }
    Ok(found.len() < MOST_LANES)
}

/// Sets from when a lane has messages, and what it has paid if that has changed. Deletes a lane
/// without messages.
fn correct(
    turn: &Turn<'_>,
    queue: QueueId,
    lane: &LaneKey,
    pass: Option<i64>,
) -> rusqlite::Result<()> {
    let key = params![queue, lane.priority.number(), lane.tenant];
    let first: Option<StoreTime> = turn
        .connection
        .prepare_cached(FIRST_OF_LANE)?
        .query_row(key, |row| row.get(0))
        .optional()?;
    let Some(first) = first else {
        // What it has paid is forgotten with it. A lane is only looked at once its last delivery
        // should have ended, so this brings a tenant at most one message in that time.
        let mut delete = turn.connection.prepare_cached(
            "DELETE FROM lanes WHERE queue = ?1 AND priority = ?2 AND tenant = ?3",
        )?;
        return delete.execute(key).map(drop);
    };
    turn.connection
        .prepare_cached(
            "UPDATE lanes SET next_at = ?4, is_due = ?5, pass = coalesce(?6, pass)
             WHERE queue = ?1 AND priority = ?2 AND tenant = ?3",
        )?
        .execute(params![
            queue,
            lane.priority.number(),
            lane.tenant,
            first,
            first <= turn.now,
            pass
        ])
        .map(drop)
}

/// Returns when the next message can be received under these rules: now or in the past if a receive
/// has something to do.
pub(super) fn next_due(
    turn: &Turn<'_>,
    queue: QueueId,
    slot: &SharingSlot,
    sharing: &SharingRules,
) -> rusqlite::Result<Option<StoreTime>> {
    let rules = AssignmentRules::of(sharing);
    let Some(stored) = read(turn, queue)? else {
        return Ok(Some(turn.now));
    };
    let is_new = stored.rules != rules && !slot.has_written(&rules);
    if is_new || stored.walked < stored.walk_to || has_unranked(turn, queue)? {
        return Ok(Some(turn.now));
    }
    let mut find = turn.connection.prepare_cached(BY_TIME)?;
    let mut next = None;
    for is_due in [true, false] {
        for priority in Priority::all() {
            let key = params![queue, is_due, priority.number(), i64::MAX];
            let mut rows = find.query(key)?;
            while let Some(row) = rows.next()? {
                if sharing.parked.contains(row.get_ref(0)?.as_str()?) {
                    continue;
                }
                let at: StoreTime = row.get(1)?;
                if is_due {
                    return Ok(Some(at.min(turn.now)));
                }
                next = next.into_iter().chain([at]).min();
                break;
            }
        }
    }
    Ok(next)
}

fn has_unranked(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<bool> {
    turn.connection
        .prepare_cached(UNRANKED)?
        .exists(params![queue, 1])
}

/// Returns the messages of each of these tenants that can be received; none if the queue is not
/// shared out.
pub(super) fn backlogs(
    turn: &Turn<'_>,
    queue: QueueId,
    tenants: &[String],
) -> rusqlite::Result<Vec<TenantBacklog>> {
    if read(turn, queue)?.is_none() {
        return Ok(vec![TenantBacklog::default(); tenants.len()]);
    }
    let mut count = turn.connection.prepare_cached(BACKLOG)?;
    let mut backlogs = Vec::with_capacity(tenants.len());
    for tenant in tenants {
        let (mut waiting, mut first) = (0, None);
        for priority in 0..=Priority::all().count() as i64 {
            // At least one is read, for its time.
            let most = (MOST_COUNTED - waiting).max(1);
            let key = params![queue, priority, tenant, turn.now, most as i64];
            let (more, at): (i64, Option<StoreTime>) =
                count.query_row(key, |row| Ok((row.get(0)?, row.get(1)?)))?;
            waiting = MOST_COUNTED.min(waiting + u64::try_from(more).unwrap_or(0));
            first = first.into_iter().chain(at).min();
        }
        backlogs.push(TenantBacklog {
            waiting,
            oldest: first.map(|first: StoreTime| turn.now.since(first)),
        });
    }
    Ok(backlogs)
}
