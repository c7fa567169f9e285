//! The types of messages: their content, verdicts and outcomes. Pure data; knows no backend, no
//! runtime and no WebAssembly.

pub mod place;
mod trace;

pub use trace::SendSpan;

use crate::clock::Timestamp;
use crate::telemetry::events::ReasonKind;
use std::time::Duration;

/// One delivery of one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The backend's id; it stays the same on every redelivery.
    pub id: String,
    /// The full name of the queue, with its prefix and without its weight: `local:prod-default`.
    pub queue: String,
    /// The payload, unaltered.
    pub body: String,
    /// An ARN, or the backend's own name for the queue.
    pub source: String,
    /// The token to extend and settle this delivery.
    pub receipt: Receipt,
    /// The number of receives, this one included; 1 on the first delivery.
    pub receive_count: u32,
    /// The time at which it was sent, if the backend reports it.
    pub sent_at: Option<Timestamp>,
    /// The time at which it was first received, if the backend reports it.
    pub first_received_at: Option<Timestamp>,
    /// The FIFO group.
    pub group: Option<String>,
    /// The backend's own attributes, with the backend's names.
    pub system_attributes: Vec<(String, String)>,
    /// The sender's attributes.
    pub attributes: Vec<Attribute>,
    /// MD5 of the body in hexadecimal, if the backend reports it.
    pub body_md5: Option<String>,
    /// MD5 of the sender's attributes in hexadecimal, if the backend reports it.
    pub attributes_md5: Option<String>,
    /// The reason why there is no content for a handler. Such a message is dead-lettered without an
    /// attempt; `body` and `attributes` hold the parts that could be read.
    pub unreadable: Option<ContentError>,
}

/// The reason why a message has no content for a handler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The content is missing, or differs from what was sent.
    #[error("content missing or unreadable: {0}")]
    Unreadable(String),
    /// The content has more bytes than the process may hold, and was not loaded.
    #[error("too large to be handled: {bytes} bytes, and message-memory is {most}")]
    TooLarge {
        /// The size of the content.
        bytes: u64,
        /// The largest size that is handled.
        most: u64,
    },
    /// The content is in S3, where an extended client library put it.
    #[error(
        "the body is in S3 (bucket {bucket}, key {key}), where an extended client library put it, and is not fetched from there; with `s3-pointers = \"pass\"` the handler gets the pointer"
    )]
    InS3 {
        /// The bucket's name.
        bucket: String,
        /// The object's key.
        key: String,
    },
    /// It names no tenant that its function can be told.
    #[error("{0}")]
    NoTenant(String),
}

impl ContentError {
    /// Returns the kind for labels.
    pub fn kind(&self) -> ReasonKind {
        match self {
            Self::Unreadable(_) | Self::InS3 { .. } | Self::NoTenant(_) => ReasonKind::Unreadable,
            Self::TooLarge { .. } => ReasonKind::TooLarge,
        }
    }
}

/// The token of one delivery. Only its own backend can read it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Receipt(pub String);

/// A delivery that the backend ended before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The delivery.
    pub receipt: Receipt,
    /// Whether the message was cancelled and is therefore not delivered again.
    pub cancelled: bool,
}

impl Loss {
    /// Makes a loss whose message was given to another process, or is about to be.
    pub fn taken(receipt: Receipt) -> Self {
        Self {
            receipt,
            cancelled: false,
        }
    }

    /// Makes a loss whose message was cancelled.
    pub fn cancelled(receipt: Receipt) -> Self {
        Self {
            receipt,
            cancelled: true,
        }
    }
}

/// One attribute that the sender set.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Attribute {
    /// The name; unique within its message.
    pub name: String,
    /// `String`, `Number` or `Binary`, with an optional custom suffix.
    pub data_type: String,
    /// The value, of the variant that the data type requires.
    pub value: AttributeValue,
}

impl Attribute {
    /// Makes a `String` attribute.
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            data_type: "String".into(),
            value: AttributeValue::Text(value.into()),
        }
    }
}

impl Message {
    /// Returns the bytes of memory that the content takes.
    pub fn held_bytes(&self) -> u64 {
        let system: usize = self
            .system_attributes
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        (bytes(&self.body, &self.attributes) + system) as u64
    }

    /// Returns a message to send in place of this one: with this body and with every attribute of
    /// the sender, the group and the trace header. It has no deduplication id.
    pub fn copy_with(&self, body: String) -> OutgoingMessage {
        let mut system = self.system_attributes.iter();
        let trace_header = system.find(|(name, _)| name == TRACE_HEADER);
        OutgoingMessage {
            body,
            attributes: self.attributes.clone(),
            group: self.group.clone(),
            trace_header: trace_header.map(|(_, header)| header.clone()),
            ..OutgoingMessage::default()
        }
        .with_trace_header_in_place()
    }
}

/// Returns the bytes of a message as SQS counts them: its body, and each attribute's name, type and
/// value.
pub fn bytes(body: &str, attributes: &[Attribute]) -> usize {
    body.len() + attributes.iter().map(Attribute::bytes).sum::<usize>()
}

impl Attribute {
    /// Returns the bytes that the attribute adds to its message.
    pub fn bytes(&self) -> usize {
        let value = match &self.value {
            AttributeValue::Text(text) => text.len(),
            AttributeValue::Binary(bytes) => bytes.len(),
        };
        self.name.len() + self.data_type.len() + value
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttributeValue {
    /// The value of a `String` or `Number`.
    Text(String),
    /// The value of a `Binary`.
    Binary(Vec<u8>),
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutgoingMessage {
    /// The payload.
    pub body: String,
    /// The sender's attributes.
    pub attributes: Vec<Attribute>,
    /// The delay before it may be received.
    pub delay: Duration,
    /// The FIFO group.
    pub group: Option<String>,
    /// The schedule's id for this message, the same on every attempt to send it. A queue that
    /// deduplicates uses it instead of the body. If set, `delay` applies as it is, even if zero,
    /// instead of the queue's default.
    pub scheduled: Option<String>,
    /// The deduplication id. A queue that deduplicates uses it instead of the body and of
    /// `scheduled`; other queues ignore it.
    pub deduplication: Option<String>,
    /// The trace header of X-Ray. A backend without system attributes carries it as an attribute
    /// named `TRACE_HEADER`.
    pub trace_header: Option<String>,
}

/// The name of the trace header of X-Ray; a system attribute on SQS.
pub const TRACE_HEADER: &str = "AWSTraceHeader";

/// The name of the system attribute with the deduplication id that a message was sent with.
pub const DEDUPLICATION_ID: &str = "MessageDeduplicationId";

impl OutgoingMessage {
    /// Returns the sender's attributes and the trace header, for a backend without system
    /// attributes.
    pub fn attributes_with_trace(&self) -> Vec<Attribute> {
        let header = self
            .trace_header
            .as_ref()
            .map(|header| Attribute::text(TRACE_HEADER, header));
        let own = self
            .attributes
            .iter()
            .filter(|one| header.is_none() || one.name != TRACE_HEADER);
        own.cloned().chain(header.clone()).collect()
    }
}

/// The result of an attempt: the handler's answer, or what happened instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The message was handled.
    Done,
    /// The message was not handled and is to be retried.
    Retry {
        /// The delay; if `None`, the route's policy decides.
        after: Option<Duration>,
        /// The reason.
        why: FailureReason,
    },
    /// The handler rejected the message for this reason; it must not be retried.
    Reject(String),
    /// The message was not started because something downstream is busy. Its lease is kept and it
    /// is retried.
    Busy {
        /// The minimum delay; if `None`, the back-off decides.
        after: Option<Duration>,
        /// The busy service, in the handler's words.
        why: String,
    },
    /// The message was not started, and no message of the route can be until someone acts. Its
    /// lease is kept, and the route receives nothing more until an attempt succeeds in reaching the
    /// downstream again.
    Closed(String),
}

/// The reason for a retry, in words on which a person can act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureReason {
    /// The handler requested a retry.
    Requested,
    /// The handler requested a retry, with this reason.
    RequestedWith(String),
    /// The Lambda function that the handler invoked failed, or reported the message as failed.
    Function(String),
    /// It is unknown whether the Lambda function that the handler invoked ran.
    FunctionUnknown(String),
    /// The handler ended with a failure.
    Failed(String),
    /// The guest trapped or exited; the text is the engine's.
    Trapped(String),
    /// The attempt exceeded its time limit.
    TimedOut(Duration),
    /// The guest exceeded its memory limit, in bytes.
    OutOfMemory(usize),
    /// The host itself failed: it could make no instance, or it panicked.
    Host(String),
}

impl FailureReason {
    /// Returns the kind for labels.
    pub const fn kind(&self) -> ReasonKind {
        match self {
            Self::Requested | Self::RequestedWith(_) => ReasonKind::RetryRequested,
            Self::Function(_) => ReasonKind::FunctionError,
            Self::FunctionUnknown(_) => ReasonKind::FunctionUnknown,
            Self::Failed(_) => ReasonKind::HandlerFailed,
            Self::Trapped(_) => ReasonKind::Trap,
            Self::TimedOut(_) => ReasonKind::Timeout,
            Self::OutOfMemory(_) => ReasonKind::OutOfMemory,
            Self::Host(_) => ReasonKind::HostError,
        }
    }
}

impl std::fmt::Display for FailureReason {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Requested => write!(out, "the handler asked for a retry"),
            Self::RequestedWith(why) => out.write_str(why),
            Self::Function(why) | Self::FunctionUnknown(why) => write!(out, "{why}"),
            Self::Failed(why) => write!(out, "the handler failed: {why}"),
            Self::Trapped(why) => write!(out, "the plugin trapped: {why}"),
            Self::TimedOut(after) => {
                write!(
                    out,
                    "stopped after {after:?}, the limit that --timeout sets"
                )
            }
            Self::OutOfMemory(limit) => write!(
                out,
                "the plugin exceeded {limit} bytes of memory, the limit that --max-memory sets"
            ),
            Self::Host(why) => write!(out, "the host failed: {why}"),
        }
    }
}

/// The way in which a delivery is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Delete the message: it is done.
    Delete,
    /// Deliver the message again after this delay.
    Release(Duration),
    /// Move the message to the dead-letter queue, with this reason as an attribute.
    DeadLetter(String),
}

/// Messages for tests.
#[cfg(any(test, feature = "samples"))]
#[allow(clippy::unwrap_used, missing_docs, reason = "for tests")]
pub mod samples {
    use super::{Message, Receipt};

    /// A first delivery.
    pub fn message(id: &str) -> Message {
        Message {
            id: id.into(),
            queue: "local:test".into(),
            body: "hello".into(),
            source: "local:test".into(),
            receipt: Receipt(format!("{id}-1")),
            receive_count: 1,
            sent_at: None,
            first_received_at: None,
            group: None,
            system_attributes: Vec::new(),
            attributes: Vec::new(),
            body_md5: None,
            attributes_md5: None,
            unreadable: None,
        }
    }
}
