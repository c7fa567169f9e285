//! The attributes of a queue of the file, and their row. Pure data and two steps, independent of
//! messages and the protocol.

use super::turn::{QueueId, Turn};
use dispatcher_core::clock::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The prefix of the ARN of a queue of the file. SDKs need this shape, but there is neither a
/// region nor an account to name.
const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:";

/// The default maximum of bytes of one message: SQS's 1 MiB.
pub const LONGEST_MESSAGE: u64 = 1_048_576;

/// Returns the ARN by which policies name a queue.
pub fn arn(name: &str) -> String {
    format!("{ARN}{name}")
}

/// Returns the name of the queue in an ARN of any region and account.
pub fn named_by(arn: &str) -> Option<&str> {
    let mut parts = arn.splitn(6, ':');
    let sqs = parts.next() == Some("arn") && parts.nth(1) == Some("sqs");
    parts.nth(2).filter(|name| sqs && !name.is_empty())
}

/// The settings of a queue. A queue that was merely opened by its name has the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSettings {
    /// The delay of messages that have no delay of their own, in seconds.
    pub delay_s: u64,
    /// The maximum number of bytes of one message, attributes included.
    pub longest: u64,
    /// The retention in seconds; `None` keeps messages forever.
    pub retention_s: Option<u64>,
    /// The wait of receives that do not set one, in seconds.
    pub wait_s: u64,
    /// The visibility timeout of receives that do not set one, in seconds.
    pub visibility_s: u64,
    /// The redrive policy.
    pub redrive: Option<Redrive>,
    /// Whether the queue is FIFO: groups in order, and no deduplication id twice within five
    /// minutes.
    pub fifo: bool,
    /// Whether a message without a deduplication id has the digest of its body as one.
    pub ids_from_content: bool,
    /// Whether deduplication ids count within their group only.
    pub ids_by_group: bool,
    /// Attributes that are only stored and returned.
    pub other: BTreeMap<String, String>,
    /// The tags of the queue.
    pub tags: BTreeMap<String, String>,
    /// The time of its creation.
    pub created: Timestamp,
    /// The time of its last change.
    pub changed: Timestamp,
    /// A number that tells the queue from an earlier one of its name; 0 if it was opened before it
    /// was created.
    pub incarnation: u32,
}

/// A redrive policy: when a message is dead-lettered, and to which queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redrive {
    /// The maximum number of receives.
    pub most_receives: u32,
    /// The bare name of the dead-letter queue, in the same file. Files of all versions call it
    /// `grave`.
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
            incarnation: 0,
        }
    }
}

/// Reads the settings of a queue; `None` if none are written.
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

/// Writes all settings of a queue anew.
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

/// The settings that every receive needs.
#[derive(Debug, Default)]
pub(super) struct DeliverySettings {
    /// The redrive policy.
    pub redrive: Option<Redrive>,
    /// The retention; `None` keeps messages forever.
    pub retention: Option<Duration>,
    /// A number that tells the queue from an earlier one of its name.
    pub incarnation: u32,
}

/// Reads the settings that every receive needs, without the others.
pub(super) fn of_delivery(turn: &Turn<'_>, queue: QueueId) -> rusqlite::Result<DeliverySettings> {
    let found = turn
        .connection
        .prepare_cached(
            "SELECT most_receives, grave, settings ->> 'retention_s', settings ->> 'incarnation'
             FROM queue_settings WHERE queue = ?1",
        )?
        .query_row(params![queue], |row| {
            let target: Option<String> = row.get(1)?;
            let most_receives: Option<u32> = row.get(0)?;
            let redrive = target.zip(most_receives);
            Ok(DeliverySettings {
                redrive: redrive.map(|(dead_letter_queue, most_receives)| Redrive {
                    most_receives,
                    dead_letter_queue,
                }),
                retention: row
                    .get::<_, Option<i64>>(2)?
                    .map(|seconds| Duration::from_secs(seconds.unsigned_abs())),
                incarnation: row.get::<_, Option<u32>>(3)?.unwrap_or_default(),
            })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
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
