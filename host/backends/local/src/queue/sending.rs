//! Sends as SQS does: with system attributes, and on FIFO queues each deduplication id once within
//! five minutes. Pure steps on a connection that take `now` as an argument.

use super::deliver::{self, encode_system, put};
use super::settings::{self, QueueSettings};
use super::turn::{QueueId, Turn};
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::message::{self, DEDUPLICATION_ID};
use dispatcher_core::queue::ItemError;
use rusqlite::{OptionalExtension, params};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The time for which a deduplication id is remembered: SQS's deduplication interval.
const REMEMBERED: Duration = Duration::from_secs(300);

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueuedSend {
    /// The message as the port defines it.
    pub message: OutgoingMessage,
    /// The system attributes, by name.
    pub system: Vec<(String, String)>,
    /// The key that is accepted only once: the deduplication id, with its group if ids count by
    /// group.
    pub once: Option<String>,
}

/// A message that has been sent, now or before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    /// The message id.
    pub id: String,
    /// The row, which is its position in the order of sending.
    pub seq: i64,
}

/// Puts messages into a queue. Returns one answer per item, in order.
pub(super) fn send(
    turn: &mut Turn<'_>,
    queue: QueueId,
    drafts: &[QueuedSend],
) -> rusqlite::Result<Vec<Result<SentMessage, ItemError>>> {
    if drafts.iter().any(|draft| draft.once.is_some()) {
        forget(turn)?;
    }
    drafts.iter().map(|draft| one(turn, queue, draft)).collect()
}

/// Deletes the deduplication ids that may be used again.
fn forget(turn: &Turn<'_>) -> rusqlite::Result<()> {
    let sql = "DELETE FROM sent_before WHERE until <= ?1";
    let mut delete = turn.connection.prepare_cached(sql)?;
    delete.execute(params![turn.now]).map(drop)
}

/// Puts messages into a queue according to its settings: with the queue's delay if the message has
/// none, up to the maximum size, and on FIFO queues each once. Delays of any length are accepted,
/// also where SQS accepts none. Returns the message's id for each item, in order.
pub(super) fn send_as_set(
    turn: &mut Turn<'_>,
    queue: QueueId,
    items: &[OutgoingMessage],
) -> rusqlite::Result<Vec<Result<String, ItemError>>> {
    let Some(settings) = settings::read(turn, queue)? else {
        return deliver::send(turn, queue, items);
    };
    forget(turn)?;
    let mut each = items.iter().map(|item| match draft(item, &settings) {
        Ok(draft) => Ok(one(turn, queue, &draft)?.map(|sent| sent.id)),
        Err(error) => Ok(Err(error)),
    });
    each.by_ref().collect()
}

/// Returns whether the queue's settings accept this message.
pub(super) fn would_take(
    turn: &Turn<'_>,
    queue: QueueId,
    item: &OutgoingMessage,
) -> rusqlite::Result<Result<(), ItemError>> {
    let settings = settings::read(turn, queue)?;
    Ok(settings.map_or(Ok(()), |settings| draft(item, &settings).map(drop)))
}

/// Prepares a message of this program for a queue that has settings.
fn draft(item: &OutgoingMessage, settings: &QueueSettings) -> Result<QueuedSend, ItemError> {
    let bytes = message::bytes(&item.body, &item.attributes) as u64;
    if bytes > settings.longest {
        return Err(ItemError::Refused(format!(
            "the message has {bytes} bytes with its attributes; its queue accepts at most {}",
            settings.longest
        )));
    }
    let mut draft = QueuedSend {
        message: item.clone(),
        system: deliver::trace(item),
        ..QueuedSend::default()
    };
    if item.delay.is_zero() && item.scheduled.is_none() {
        draft.message.delay = Duration::from_secs(settings.delay_s);
    }
    if settings.fifo {
        let Some(group) = &item.group else {
            return Err(ItemError::Refused(
                "it is a FIFO queue; wanted a message group".into(),
            ));
        };
        let id = match (&item.deduplication, &item.scheduled) {
            (Some(id), _) => id.clone(),
            (None, Some(name)) => content_id(name),
            (None, None) if settings.ids_from_content => content_id(&item.body),
            (None, None) => uuid::Uuid::new_v4().to_string(),
        };
        draft.once = Some(once_key(settings, group, &id));
        draft.system.push((DEDUPLICATION_ID.into(), id));
    }
    Ok(draft)
}

/// Returns the key that is accepted only once according to the settings: a deduplication id, alone
/// or with its group.
pub fn once_key(settings: &QueueSettings, group: &str, id: &str) -> String {
    if settings.ids_by_group {
        format!("{group} {id}")
    } else {
        id.to_owned()
    }
}

/// Returns the deduplication id of a text, its SHA-256 digest. SQS derives it from a body by
/// default.
pub fn content_id(text: &str) -> String {
    let bytes = Sha256::digest(text);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn one(
    turn: &mut Turn<'_>,
    queue: QueueId,
    draft: &QueuedSend,
) -> rusqlite::Result<Result<SentMessage, ItemError>> {
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
        Ok((id, seq)) => SentMessage { id, seq },
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

fn sent_before(
    turn: &Turn<'_>,
    queue: QueueId,
    key: &str,
) -> rusqlite::Result<Option<SentMessage>> {
    turn.connection
        .prepare_cached("SELECT id, seq FROM sent_before WHERE queue = ?1 AND key = ?2")?
        .query_row(params![queue, key], |row| {
            Ok(SentMessage {
                id: row.get(0)?,
                seq: row.get(1)?,
            })
        })
        .optional()
}
