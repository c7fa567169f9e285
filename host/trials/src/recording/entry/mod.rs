//! Converts one recorded message to a line of JSON and back.

use super::ENDING;
use super::redact::BLOT;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use dispatcher_core::message::{
    Attribute, AttributeValue, FailureReason, Message, Receipt, Verdict,
};
use dispatcher_core::telemetry::escape::escape_control_characters;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One line of a recording: a message and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMessage {
    /// The time of the verdict, in milliseconds since the Unix epoch.
    pub at: Timestamp,
    /// The plugin's name.
    pub plugin: String,
    /// The version that handled the message.
    pub version: String,
    /// The duration of the attempt, in microseconds.
    pub took_us: u64,
    /// The message, without its receipt.
    pub message: KeptMessage,
    /// The verdict of the plugin.
    pub answer: RecordedVerdict,
}

/// The recorded fields of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "each is the field of the same name of `Message`"
)]
pub struct KeptMessage {
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub queue: String,
    /// This field has no default: a line without it must not be replayed as an empty message.
    pub body: String,
    #[serde(default)]
    pub source: String,
    #[serde(default)]
    pub receive_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_received_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system_attributes: Vec<(String, String)>,
}

/// A verdict as it appears in JSON:
/// `{"verdict":"retry","after_ms":1000,"cause":"asked","why":"…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
#[expect(missing_docs, reason = "as the verdicts are")]
pub enum RecordedVerdict {
    Done,
    Retry {
        after_ms: Option<u64>,
        cause: Cause,
        why: String,
    },
    Reject {
        why: String,
    },
    Busy {
        after_ms: Option<u64>,
        why: String,
    },
    Closed {
        why: String,
    },
}

/// The cause of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "as the mishaps are")]
pub enum Cause {
    Asked,
    Failed,
    Trapped,
    TimedOut,
    OutOfMemory,
    Host,
}

impl RecordedVerdict {
    /// Converts a verdict.
    pub fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::Done,
            Verdict::Retry { after, why } => Self::Retry {
                after_ms: after.map(ms),
                cause: match why {
                    FailureReason::Requested
                    | FailureReason::RequestedWith(_)
                    | FailureReason::Function(_)
                    | FailureReason::FunctionUnknown(_) => Cause::Asked,
                    FailureReason::Failed(_) => Cause::Failed,
                    FailureReason::Trapped(_) => Cause::Trapped,
                    FailureReason::TimedOut(_) => Cause::TimedOut,
                    FailureReason::OutOfMemory(_) => Cause::OutOfMemory,
                    FailureReason::Host(_) => Cause::Host,
                },
                why: why.to_string(),
            },
            Verdict::Reject(why) => Self::Reject { why: why.clone() },
            Verdict::Busy { after, why } => Self::Busy {
                after_ms: after.map(ms),
                why: why.clone(),
            },
            Verdict::Closed(why) => Self::Closed { why: why.clone() },
        }
    }

    /// Replaces texts of the guest or of a downstream service, which may contain parts of the
    /// message.
    pub(crate) fn without_guest_text(mut self) -> Self {
        match &mut self {
            Self::Done
            // The host itself writes these texts.
            | Self::Retry {
                cause: Cause::TimedOut | Cause::OutOfMemory,
                ..
            } => {}
            Self::Retry { why, .. }
            | Self::Reject { why }
            | Self::Busy { why, .. }
            | Self::Closed { why } => BLOT.clone_into(why),
        }
        self
    }

    /// Whether both have the same effect on a message: the same kind of verdict, with the same
    /// cause. Texts and delays may differ.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Retry { cause: one, .. }, Self::Retry { cause: two, .. }) => one == two,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// Escapes control characters in the plugin's texts, for output on a terminal.
impl std::fmt::Display for RecordedVerdict {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => out.write_str("done"),
            Self::Retry {
                after_ms: Some(ms),
                why,
                ..
            } => write!(
                out,
                "retry after {}: {}",
                pause(*ms),
                escape_control_characters(why)
            ),
            Self::Retry { why, .. } => write!(out, "retry: {}", escape_control_characters(why)),
            Self::Reject { why } => write!(out, "reject: {}", escape_control_characters(why)),
            Self::Busy {
                after_ms: Some(ms),
                why,
            } => write!(
                out,
                "busy for {}: {}",
                pause(*ms),
                escape_control_characters(why)
            ),
            Self::Busy { why, .. } => write!(out, "busy: {}", escape_control_characters(why)),
            Self::Closed { why } => write!(out, "closed: {}", escape_control_characters(why)),
        }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns milliseconds as people write them.
fn pause(ms: u64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(ms))
}

impl RecordedMessage {
    /// Creates the record of a message that has just been answered.
    pub fn new(
        plugin: &str,
        version: &str,
        message: Message,
        verdict: &Verdict,
        took: Duration,
    ) -> Self {
        Self {
            at: clock::wall_clock_now(),
            plugin: plugin.to_owned(),
            version: version.to_owned(),
            took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            message: KeptMessage {
                id: message.id,
                queue: message.queue,
                body: message.body,
                source: message.source,
                receive_count: message.receive_count,
                sent_at: message.sent_at,
                first_received_at: message.first_received_at,
                group: message.group,
                attributes: message.attributes,
                system_attributes: message.system_attributes,
            },
            answer: RecordedVerdict::of(verdict),
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let message = &self.message;
        let why = match &self.answer {
            RecordedVerdict::Done => 0,
            RecordedVerdict::Retry { why, .. }
            | RecordedVerdict::Reject { why }
            | RecordedVerdict::Busy { why, .. }
            | RecordedVerdict::Closed { why } => why.len(),
        };
        let attributes = message.attributes.iter().map(|attribute| {
            let value = match &attribute.value {
                AttributeValue::Text(text) => text.len(),
                AttributeValue::Binary(bytes) => bytes.len(),
            };
            attribute.name.len() + value
        });
        let system = message
            .system_attributes
            .iter()
            .map(|(name, value)| name.len() + value.len());
        size_of::<Self>() + message.body.len() + why + attributes.chain(system).sum::<usize>()
    }
}

impl From<KeptMessage> for Message {
    fn from(kept: KeptMessage) -> Self {
        Self {
            id: kept.id,
            queue: kept.queue,
            body: kept.body,
            source: kept.source,
            receipt: Receipt("recorded".into()),
            receive_count: kept.receive_count.max(1),
            sent_at: kept.sent_at,
            first_received_at: kept.first_received_at,
            group: kept.group,
            system_attributes: kept.system_attributes,
            attributes: kept.attributes,
            body_md5: None,
            attributes_md5: None,
            unreadable: None,
        }
    }
}

/// Reads the entries of a recording: of one file, or of all recordings in a folder in the order of
/// their names.
///
/// # Errors
/// Returns one line with the path that cannot be read, or with the file and line that is not an
/// entry.
pub fn read_all(recording: &Path) -> Result<Vec<RecordedMessage>, String> {
    let files = files(recording).map_err(|error| format!("{}: {error}", recording.display()))?;
    let mut entries = Vec::new();
    for file in files {
        entries.extend(read(&file)?);
    }
    Ok(entries)
}

fn files(recording: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !recording.is_dir() {
        return Ok(vec![recording.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(recording)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ENDING) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the entries of a file, in order. Skips an incomplete entry at the end, which a killed
/// process may leave.
///
/// # Errors
/// Returns one line with the file, and with the number of the line that is not an entry.
pub fn read(file: &Path) -> Result<Vec<RecordedMessage>, String> {
    let contents = bounded::read(file, Limits::RECORDING)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let mut lines = contents
        .strip_suffix(b"\n")
        .unwrap_or(&contents)
        .split(|byte| *byte == b'\n')
        .enumerate()
        .peekable();
    let mut entries = Vec::new();
    while let Some((number, line)) = lines.next() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(entry) => entries.push(entry),
            Err(error) if error.is_eof() && lines.peek().is_none() => {}
            Err(error) => {
                let (file, number) = (file.display(), number + 1);
                return Err(format!("{file}:{number}: not a recorded message: {error}"));
            }
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
