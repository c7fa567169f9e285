//! Move tasks: redrive dead letters, a few messages at a time. Pure steps on a connection that take
//! `now` as an argument; the caller decides when.

use super::carry::move_back;
use super::deliver;
use super::look::{depth, known_id};
use super::turn::Turn;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::queue::{Ask, GroupShare};
use rusqlite::{OptionalExtension, Row, params};

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Steps are to be taken.
    Running,
    /// All that was there has been moved.
    Completed,
    /// Somebody stopped it.
    Cancelled,
    /// It could not continue; `Move::failure` says why.
    Failed,
}

/// Each with the word that the file has for it.
const STATUSES: [(Status, &str); 4] = [
    (Status::Running, "RUNNING"),
    (Status::Completed, "COMPLETED"),
    (Status::Cancelled, "CANCELLED"),
    (Status::Failed, "FAILED"),
];

impl Status {
    /// The word for it, which is SQS's.
    pub fn word(self) -> &'static str {
        let known = STATUSES.iter().find(|(status, _)| *status == self);
        known.expect("every status has a word").1
    }

    fn read(word: &str) -> Self {
        let known = STATUSES.iter().find(|(_, known)| *known == word);
        known.map_or(Self::Failed, |(status, _)| *status)
    }
}

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Names it.
    pub handle: String,
    /// The dead-letter queue, by its bare name.
    pub source: String,
    /// Where to; without it, to where each message came from.
    pub target: Option<String>,
    /// This many messages a second at most.
    pub rate: Option<u32>,
    /// How it stands.
    pub status: Status,
    /// How many have been moved.
    pub moved: u64,
    /// How many there were at the start.
    pub total: u64,
    /// When it began.
    pub started: Timestamp,
    /// Why it failed.
    pub failure: Option<String>,
}

const COLUMNS: &str = "handle, source, target, rate, status, moved, total, started, failure";

fn task(row: &Row<'_>) -> rusqlite::Result<Move> {
    let status: String = row.get(4)?;
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
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

/// Begins a task under this handle; false if one of the same source is running.
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

/// The last `max` tasks of a source, the newest first.
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

/// All that are to continue.
pub(super) fn running(turn: &Turn<'_>) -> rusqlite::Result<Vec<Move>> {
    turn.connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM moves WHERE status = 'RUNNING' ORDER BY number"
        ))?
        .query_map([], task)?
        .collect()
}

/// Stops a task; what it was before, if there is one of the handle.
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

/// Moves up to `max` messages; how many, or nothing once the task has ended.
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
        end(
            turn,
            handle,
            Status::Failed,
            Some("AWS.SimpleQueueService.NonExistentQueue"),
        )?;
        return Ok(None);
    };
    let all = Ask {
        max,
        groups: GroupShare::Fill,
        ..Ask::PLAIN
    };
    let messages = deliver::find(turn, source, all, deliver::Following::Any)?.candidates;
    let mut moved = 0;
    for message in &messages {
        if !move_back(turn, source, message.seq, task.target.as_deref())? {
            end(
                turn,
                handle,
                Status::Failed,
                Some("CouldNotDetermineMessageSource"),
            )?;
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
