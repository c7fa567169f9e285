//! Sending as SQS's queues do: with attributes of the queue's own, and on FIFO queues each
//! deduplication id once within five minutes. Pure steps on a connection that are told `now`.

use super::deliver::{encode_system, put};
use super::turn::{QueueId, Turn};
use crate::message::Outgoing;
use crate::queue::ItemError;
use rusqlite::{OptionalExtension, params};
use std::time::Duration;

/// How long a deduplication id is remembered: SQS's deduplication interval.
const REMEMBERED: Duration = Duration::from_secs(300);

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Draft {
    /// What the port knows of it.
    pub message: Outgoing,
    /// The queue's own attributes of it, by name.
    pub system: Vec<(String, String)>,
    /// What is taken once only: the deduplication id, with its group where that counts.
    pub once: Option<String>,
}

/// A message that has been sent, now or before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Its id.
    pub id: String,
    /// Its row, which is its place in the order of sending.
    pub seq: i64,
}

/// Puts messages into a queue; one answer per item, in order.
pub fn send(
    turn: &mut Turn<'_>,
    queue: QueueId,
    drafts: &[Draft],
) -> rusqlite::Result<Vec<Result<Sent, ItemError>>> {
    if drafts.iter().any(|draft| draft.once.is_some()) {
        turn.connection
            .prepare_cached("DELETE FROM sent_before WHERE until <= ?1")?
            .execute(params![turn.now])?;
    }
    drafts.iter().map(|draft| one(turn, queue, draft)).collect()
}

fn one(
    turn: &mut Turn<'_>,
    queue: QueueId,
    draft: &Draft,
) -> rusqlite::Result<Result<Sent, ItemError>> {
    if let Some(key) = &draft.once
        && let Some(sent) = sent_before(turn, queue, key)?
    {
        return Ok(Ok(sent));
    }
    let system = match encode_system(&draft.system) {
        Ok(system) => system,
        Err(why) => return Ok(Err(ItemError::Refused(why))),
    };
    let sent = match put(turn, queue, &draft.message, system.as_deref())? {
        Ok((id, seq)) => Sent { id, seq },
        Err(error) => return Ok(Err(error)),
    };
    if let Some(key) = &draft.once {
        turn.connection
            .prepare_cached(
                "INSERT INTO sent_before (queue, key, until, id, seq) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                queue,
                key,
                turn.now + REMEMBERED,
                sent.id,
                sent.seq
            ])?;
    }
    Ok(Ok(sent))
}

fn sent_before(turn: &Turn<'_>, queue: QueueId, key: &str) -> rusqlite::Result<Option<Sent>> {
    turn.connection
        .prepare_cached("SELECT id, seq FROM sent_before WHERE queue = ?1 AND key = ?2")?
        .query_row(params![queue, key], |row| {
            Ok(Sent {
                id: row.get(0)?,
                seq: row.get(1)?,
            })
        })
        .optional()
}
