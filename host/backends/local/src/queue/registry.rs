//! Manages queues: creates, finds, configures, purges and deletes them. Pure steps on a connection
//! that take `now` as an argument. Independent of receiving.

use super::controls;
use super::look::{known_id, queue_id};
use super::moves;
use super::settings::{self, QueueSettings};
use super::settle::remove;
use super::sharing;
use super::time::StoreTime;
use super::turn::{QueueId, Turn, group_of};
use rusqlite::params;
use std::time::Duration;

/// The maximum number of old messages that one transaction deletes; other calls wait meanwhile.
const AT_ONCE: usize = 500;

/// A queue that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownQueue {
    /// The key of the queue.
    pub id: QueueId,
    /// The bare name of the queue.
    pub name: String,
    /// The settings of the queue.
    pub settings: QueueSettings,
    /// Whether it was configured. A queue that was merely opened by its name was not.
    pub configured: bool,
    /// Whether an operator has paused it.
    pub paused: bool,
}

/// Returns the queue of a name.
pub(super) fn find(turn: &Turn<'_>, name: &str) -> rusqlite::Result<Option<KnownQueue>> {
    let Some(id) = known_id(turn.connection, name)? else {
        return Ok(None);
    };
    let settings = settings::read(turn, id)?;
    let controls = controls::read(turn, &[name.to_owned()])?;
    Ok(Some(KnownQueue {
        paused: controls.iter().any(|set| set.paused),
        id,
        name: name.to_owned(),
        configured: settings.is_some(),
        settings: settings.unwrap_or_default(),
    }))
}

/// The default retention of a queue that is created, in seconds: SQS's four days.
const RETENTION_S: u64 = 345_600;

/// Creates a queue with these settings. If a configured queue of the name exists, returns it
/// unchanged. A queue that was used before it was created keeps its messages forever, unless the
/// settings say otherwise.
pub(super) fn create(
    turn: &mut Turn<'_>,
    name: &str,
    settings: &QueueSettings,
) -> rusqlite::Result<Option<KnownQueue>> {
    let known = find(turn, name)?;
    let usual = known.is_none().then_some(RETENTION_S);
    let incarnation = known.is_none().then(|| fastrand::u32(1..));
    if let Some(known) = known.filter(|known| known.configured) {
        return Ok(Some(known));
    }
    let id = queue_id(turn.connection, name)?;
    let today = turn.date(turn.now);
    let settings = QueueSettings {
        created: today,
        changed: today,
        retention_s: settings.retention_s.or(usual),
        incarnation: incarnation.unwrap_or_default(),
        ..settings.clone()
    };
    settings::write(turn, id, &settings)?;
    if let Some(redrive) = &settings.redrive {
        queue_id(turn.connection, &redrive.dead_letter_queue)?;
    }
    Ok(None)
}

/// Changes the settings of a queue. Returns false if it does not exist.
pub(super) fn change(
    turn: &mut Turn<'_>,
    name: &str,
    change: impl FnOnce(&mut QueueSettings),
) -> rusqlite::Result<bool> {
    let Some(mut known) = find(turn, name)? else {
        return Ok(false);
    };
    change(&mut known.settings);
    known.settings.changed = turn.date(turn.now);
    settings::write(turn, known.id, &known.settings)?;
    Ok(true)
}

/// Deletes a queue with all its messages. Its key stays reserved for its name, so that another
/// process that has it open never ends up in another queue. Returns false if it does not exist.
pub(super) fn delete(turn: &mut Turn<'_>, name: &str) -> rusqlite::Result<bool> {
    let Some(id) = known_id(turn.connection, name)? else {
        return Ok(false);
    };
    purge(turn, id)?;
    moves::forget_queue(turn, name)?;
    sharing::forget(turn, id)?;
    for sql in [
        "DELETE FROM queue_settings WHERE queue = ?1",
        "INSERT INTO deleted_queues (queue) VALUES (?1)",
    ] {
        turn.connection.prepare_cached(sql)?.execute(params![id])?;
    }
    turn.deleted.insert(id);
    Ok(true)
}

/// Deletes every queue, as `delete` does, and every move task.
pub(super) fn reset(turn: &mut Turn<'_>) -> rusqlite::Result<()> {
    for name in list(turn, "", "", usize::MAX)? {
        delete(turn, &name)?;
    }
    turn.connection.execute("DELETE FROM moves", []).map(drop)
}

/// Deletes all messages of a queue, also those in flight. Messages sent before may be sent again.
pub(super) fn purge(turn: &mut Turn<'_>, queue: QueueId) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM payloads WHERE seq IN
             (SELECT coalesce(payload, seq) FROM entries WHERE queue = ?1)",
        "DELETE FROM entries WHERE queue = ?1",
        "DELETE FROM sent_before WHERE queue = ?1",
    ] {
        turn.connection
            .prepare_cached(sql)?
            .execute(params![queue])?;
    }
    Ok(())
}

/// Returns up to `max` names that begin with `prefix` and come after `after`, sorted.
pub(super) fn list(
    turn: &Turn<'_>,
    prefix: &str,
    after: &str,
    max: usize,
) -> rusqlite::Result<Vec<String>> {
    turn.connection
        .prepare_cached(
            "SELECT name FROM queues
             WHERE substr(name, 1, length(?1)) = ?1 AND name > ?2
               AND id NOT IN (SELECT queue FROM deleted_queues)
             ORDER BY name LIMIT ?3",
        )?
        .query_map(
            params![prefix, after, i64::try_from(max).unwrap_or(i64::MAX)],
            |row| row.get(0),
        )?
        .collect()
}

/// Returns the names of the queues whose redrive policies name this dead-letter queue, sorted.
pub(super) fn sources(turn: &Turn<'_>, dead_letter_queue: &str) -> rusqlite::Result<Vec<String>> {
    turn.connection
        .prepare_cached(
            "SELECT name FROM queues JOIN queue_settings ON queue = id
             WHERE grave = ?1 ORDER BY name",
        )?
        .query_map(params![dead_letter_queue], |row| row.get(0))?
        .collect()
}

/// Deletes messages whose retention is over, counted from when they could first be received.
/// Returns whether there may be more. A delayed message is kept until it is due, however long that
/// is.
pub(super) fn drop_old(turn: &mut Turn<'_>) -> rusqlite::Result<bool> {
    let queues: Vec<QueueId> = turn
        .connection
        .prepare_cached("SELECT queue FROM queue_settings")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for queue in queues {
        let kept = settings::read(turn, queue)?.and_then(|settings| settings.retention_s);
        let Some(kept) = kept.map(Duration::from_secs) else {
            continue;
        };
        let ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        let until = StoreTime(turn.now.0.saturating_sub(ms));
        let old: Vec<i64> = turn
            .connection
            .prepare_cached(
                "SELECT seq FROM entries WHERE queue = ?1 AND sent_at <= ?2
                 AND coalesce(first_received_at, visible_at) <= ?2 LIMIT ?3",
            )?
            .query_map(params![queue, until, AT_ONCE as i64], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let full = old.len() == AT_ONCE;
        for seq in old {
            let group = group_of(turn, seq)?;
            remove(turn, queue, seq, group.as_deref())?;
        }
        if full {
            return Ok(true);
        }
    }
    Ok(false)
}
