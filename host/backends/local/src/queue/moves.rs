//! Move tasks: they redrive dead letters, a few messages at a time. Pure steps on a connection that
//! take `now` as an argument; the caller decides when to run them.

use super::carry::{NO_QUEUE, move_back};
use super::deliver;
use super::look::{count, depth, known_id};
use super::turn::Turn;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::queue::{Ask, GroupShare};
use rusqlite::{OptionalExtension, Row, params};

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The task has steps left.
    Running,
    /// All messages have been moved.
    Completed,
    /// The task was cancelled.
    Cancelled,
    /// The task could not continue; `Move::failure` says why.
    Failed,
}

/// Each status with its word in the file.
const STATUSES: [(Status, &str); 4] = [
    (Status::Running, "RUNNING"),
    (Status::Completed, "COMPLETED"),
    (Status::Cancelled, "CANCELLED"),
    (Status::Failed, "FAILED"),
];

impl Status {
    /// Returns its word, which is SQS's.
    pub fn word(self) -> &'static str {
        let known = STATUSES.iter().find(|(status, _)| *status == self);
        known.expect("every status has a word").1
    }

    fn read(word: &str) -> Self {
        let known = STATUSES.iter().find(|(_, known)| *known == word);
        known.map_or(Self::Failed, |(status, _)| *status)
    }
}

/// A move task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The handle of the task.
    pub handle: String,
    /// The dead-letter queue, by its bare name.
    pub source: String,
    /// The target queue; `None` to move each message to where it came from.
    pub target: Option<String>,
    /// The maximum number of messages a second.
    pub rate: Option<u32>,
    /// The status of the task.
    pub status: Status,
    /// The number of messages moved so far.
    pub moved: u64,
    /// The number of messages at the start.
    pub total: u64,
    /// The time at which it began.
    pub started: Timestamp,
    /// The reason why it failed.
    pub failure: Option<String>,
}

const COLUMNS: &str = "handle, source, target, rate, status, moved, total, started, failure";

fn task(row: &Row<'_>) -> rusqlite::Result<Move> {
    let status: String = row.get(4)?;
    Ok(Move {
        handle: row.get(0)?,
        source: row.get(1)?,
        target: row.get(2)?,
        rate: row.get(3)?,
        status: Status::read(&status),
        moved: count(row.get(5)?),
        total: count(row.get(6)?),
        started: Timestamp(count(row.get(7)?)),
        failure: row.get(8)?,
    })
}

/// Starts a task under this handle. Returns false if a task of the same source is running.
pub(super) fn start(
    turn: &Turn<'_>,
    handle: &str,
    source: &str,
    target: Option<&str>,
    rate: Option<u32>,
) -> rusqlite::Result<bool> {
    let running = turn
        .connection
        .prepare_cached("SELECT 1 FROM moves WHERE source = ?1 AND status = 'RUNNING'")?
        .exists(params![source])?;
    if running {
        return Ok(false);
    }
    let total = match known_id(turn.connection, source)? {
        Some(queue) => depth(turn, queue)?.waiting,
        None => 0,
    };
    turn.connection
        .prepare_cached(
            "INSERT INTO moves (handle, source, target, rate, status, moved, total, started)
             VALUES (?1, ?2, ?3, ?4, 'RUNNING', 0, ?5, ?6)",
        )?
        .execute(params![
            handle,
            source,
            target,
            rate,
            i64::try_from(total).unwrap_or(i64::MAX),
            i64::try_from(turn.date(turn.now).0).unwrap_or(i64::MAX)
        ])?;
    Ok(true)
}

/// Returns the last `max` tasks of a source, the newest first.
pub(super) fn list(turn: &Turn<'_>, source: &str, max: usize) -> rusqlite::Result<Vec<Move>> {
    turn.connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM moves WHERE source = ?1 ORDER BY number DESC LIMIT ?2"
        ))?
        .query_map(
            params![source, i64::try_from(max).unwrap_or(i64::MAX)],
            task,
        )?
        .collect()
}

/// Returns all running tasks.
pub(super) fn running(turn: &Turn<'_>) -> rusqlite::Result<Vec<Move>> {
    turn.connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM moves WHERE status = 'RUNNING' ORDER BY number"
        ))?
        .query_map([], task)?
        .collect()
}

/// Cancels a task if it is running. Returns the task as it was before; `None` if there is none of
/// this handle.
pub(super) fn cancel(turn: &Turn<'_>, handle: &str) -> rusqlite::Result<Option<Move>> {
    let known = find(turn, handle)?;
    if known
        .as_ref()
        .is_some_and(|task| task.status == Status::Running)
    {
        end(turn, handle, Status::Cancelled, None)?;
    }
    Ok(known)
}

fn find(turn: &Turn<'_>, handle: &str) -> rusqlite::Result<Option<Move>> {
    turn.connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM moves WHERE handle = ?1"))?
        .query_row(params![handle], task)
        .optional()
}

fn end(
    turn: &Turn<'_>,
    handle: &str,
    status: Status,
    failure: Option<&str>,
) -> rusqlite::Result<()> {
    turn.connection
        .prepare_cached("UPDATE moves SET status = ?2, failure = ?3 WHERE handle = ?1")?
        .execute(params![handle, status.word(), failure])
        .map(drop)
}

/// Fails the running tasks that move to this queue, and deletes those that move from it: the queue
/// is deleted, and the next queue of its name has other messages.
pub(super) fn forget_queue(turn: &Turn<'_>, name: &str) -> rusqlite::Result<()> {
    turn.connection
        .prepare_cached("DELETE FROM moves WHERE source = ?1")?
        .execute(params![name])?;
    turn.connection
        .prepare_cached(
            "UPDATE moves SET status = 'FAILED', failure = ?2
             WHERE target = ?1 AND status = 'RUNNING'",
        )?
        .execute(params![name, NO_QUEUE])
        .map(drop)
}

/// Moves up to `max` messages. Returns how many, or `None` once the task has ended.
pub(super) fn step(
    turn: &mut Turn<'_>,
    handle: &str,
    max: usize,
) -> rusqlite::Result<Option<usize>> {
    let known = find(turn, handle)?;
    let Some(task) = known.filter(|task| task.status == Status::Running) else {
        return Ok(None);
    };
    let Some(source) = known_id(turn.connection, &task.source)? else {
        end(turn, handle, Status::Failed, Some(NO_QUEUE))?;
        return Ok(None);
    };
    let all = Ask {
        max,
        groups: GroupShare::Fill,
        ..Ask::PLAIN
    };
    let mut messages = deliver::find(turn, source, all, deliver::GroupFollowers::Any)?.candidates;
    if messages.is_empty() && !task.source.ends_with(".fifo") {
        // The first of their groups may be in flight.
        messages = deliver::find_behind(turn, source, max)?;
    }
    let mut moved = 0;
    for message in &messages {
        let target = task.target.as_deref();
        if let Err(why) = move_back(turn, source, message.seq, target)? {
            end(turn, handle, Status::Failed, Some(why))?;
            break;
        }
        moved += 1;
    }
    turn.connection
        .prepare_cached("UPDATE moves SET moved = moved + ?2 WHERE handle = ?1")?
        .execute(params![handle, i64::try_from(moved).unwrap_or(0)])?;
    if messages.is_empty() {
        end(turn, handle, Status::Completed, None)?;
    }
    match moved {
        0 => Ok(None),
        moved => Ok(Some(moved)),
    }
}
