//! The attributes of a queue of the file, and their row. Pure data and two steps; knows neither
//! messages nor the protocol.

use super::turn::{QueueId, Turn};
use dispatcher_core::clock::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an ARN of a queue of the file begins with: SDKs want one of this shape, and there is
/// neither a region nor an account to name.
const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:";

/// Maximum bytes of one message where nothing else is set: SQS's own 1 MiB.
pub const LONGEST_MESSAGE: u64 = 1_048_576;

/// The ARN by which a queue is named in policies.
pub fn arn(name: &str) -> String {
    format!("{ARN}{name}")
}

/// The queue that an ARN names, whatever its region and account.
pub fn named_by(arn: &str) -> Option<&str> {
    let mut parts = arn.splitn(6, ':');
    let sqs = parts.next() == Some("arn") && parts.nth(1) == Some("sqs");
    parts.nth(2).filter(|name| sqs && !name.is_empty())
}

/// What a queue is set to. A queue that was merely opened by its name has the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSettings {
    /// How long a message waits before it may be received, unless it says so itself; seconds.
    pub delay_s: u64,
    /// Maximum bytes of one message, attributes included.
    pub longest: u64,
    /// After so many seconds a message is dropped; without it, never.
    pub retention_s: Option<u64>,
    /// How long a receive waits that does not say; seconds.
    pub wait_s: u64,
    /// How long what is received stays invisible if the receive does not say; seconds.
    pub visibility_s: u64,
    /// When a message is given up, and where it goes then.
    pub redrive: Option<Redrive>,
    /// Groups in order, and nothing taken twice within five minutes.
    pub fifo: bool,
    /// A message without a deduplication id has the digest of its body as one.
    pub ids_from_content: bool,
    /// Deduplication ids count within their group only.
    pub ids_by_group: bool,
    /// What is only kept and shown again.
    pub other: BTreeMap<String, String>,
    /// What people mark the queue with.
    pub tags: BTreeMap<String, String>,
    /// When it was made.
    pub created: Timestamp,
    /// When it was changed last.
    pub changed: Timestamp,
}

/// When a message is given up, and where it goes then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redrive {
    /// It is received this many times at most.
    pub most_receives: u32,
    /// The queue of the same file that it goes to, by its bare name; `grave` in files of all versions.
    #[serde(rename = "grave")]
    pub dead_letter_queue: String,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            delay_s: 0,
            longest: LONGEST_MESSAGE,
            retention_s: None,
            wait_s: 0,
            visibility_s: 30,
            redrive: None,
            fifo: false,
            ids_from_content: false,
            ids_by_group: false,
            other: BTreeMap::new(),
            tags: BTreeMap::new(),
            created: Timestamp::default(),
            changed: Timestamp::default(),
        }
    }
}

/// What is written about a queue, if anything is.
pub(super) fn read(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<Option<QueueSettings>> {
    let text: Option<String> = turn
        .connection
        .prepare_cached("SELECT settings FROM queue_settings WHERE queue = ?1")?
        .query_row(params![queue], |row| row.get(0))
        .optional()?;
    text.map(|text| {
        serde_json::from_str(&text).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
        })
    })
    .transpose()
}

/// Writes all of it anew.
pub(super) fn write(
    turn: &Turn<'_>,
    queue: QueueId,
    settings: &QueueSettings,
) -> rusqlite::Result<()> {
    let text = serde_json::to_string(settings)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let redrive = settings.redrive.as_ref();
    turn.connection
        .prepare_cached(
            "INSERT OR REPLACE INTO queue_settings (queue, settings, most_receives, grave)
             VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            queue,
            text,
            redrive.map(|redrive| redrive.most_receives),
            redrive.map(|redrive| &redrive.dead_letter_queue)
        ])
        .map(drop)
}

/// The part that every receive asks for.
pub(super) fn redrive(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<Option<Redrive>> {
    turn.connection
        .prepare_cached(
            "SELECT most_receives, grave FROM queue_settings
             WHERE queue = ?1 AND grave IS NOT NULL",
        )?
        .query_row(params![queue], |row| {
            Ok(Redrive {
                most_receives: row.get(0)?,
                dead_letter_queue: row.get(1)?,
            })
        })
        .optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arn_contains_the_queue_name() {
        assert_eq!(named_by(&arn("q.fifo")), Some("q.fifo"));
        assert_eq!(named_by("arn:aws:sqs:eu-west-1:1:other"), Some("other"));
        for strange in ["", "q", "arn:aws:sns:eu-west-1:1:topic", "arn:aws:sqs:r:1:"] {
            assert_eq!(named_by(strange), None, "{strange}");
        }
    }

    #[test]
    fn settings_of_an_older_version_are_read() {
        let settings: QueueSettings = serde_json::from_str("{\"delay_s\":3}").unwrap();
        assert_eq!((settings.delay_s, settings.visibility_s), (3, 30));
    }
}
