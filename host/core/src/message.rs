//! The types of messages: what a message is, what happened to it, and its outcome. Pure data; knows
//! no backend, no runtime and no WebAssembly.

mod trace;

pub use trace::SendSpan;

use crate::clock::Timestamp;
use crate::telemetry::events::ReasonKind;
use std::time::Duration;

/// One delivery of one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The backend's id; the same on every redelivery.
    pub id: String,
    /// The queue as the configuration writes it, without its weight: `local:default`.
    pub queue: String,
    /// The payload, unaltered.
    pub body: String,
    /// An ARN, or the backend's own name for the queue.
    pub source: String,
    /// The token with which this delivery is extended and settled.
    pub receipt: Receipt,
    /// How often it has been received, this time included; 1 on the first delivery.
    pub receive_count: u32,
    /// When it was sent, if the backend reports it.
    pub sent_at: Option<Timestamp>,
    /// When it was received first, if the backend reports it.
    pub first_received_at: Option<Timestamp>,
    /// The FIFO group.
    pub group: Option<String>,
    /// The backend's own attributes, as it names them.
    pub system_attributes: Vec<(String, String)>,
    /// The sender's attributes.
    pub attributes: Vec<Attribute>,
    /// MD5 of the body in hexadecimal, if the backend reports it.
    pub body_md5: Option<String>,
    /// MD5 of the sender's attributes in hexadecimal, if the backend reports it.
    pub attributes_md5: Option<String>,
    /// Why there is no content for a handler. Such a message is dead-lettered without an attempt;
    /// `body` and `attributes` hold what could be read of it.
    pub unreadable: Option<ContentError>,
}

/// Why a message has no content that a handler can be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// It is not there, or is not what was sent.
    #[error("content missing or unreadable: {0}")]
    Unreadable(String),
    /// It has more bytes than the process may hold, and was not loaded.
    #[error("too large to be handled: {bytes} bytes, and message-memory is {most}")]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The longest that is handled.
        most: u64,
    },
    /// It is in S3, where an extended client library put it.
    #[error(
        "the body is in S3 (bucket {bucket}, key {key}), where an extended client library put it, and is not fetched from there; with `s3-pointers = \"pass\"` the handler gets the pointer"
    )]
    InS3 {
        /// The bucket's name.
        bucket: String,
        /// The object's key.
        key: String,
    },
}

impl ContentError {
    /// For labels.
    pub fn kind(&self) -> ReasonKind {
        match self {
            Self::Unreadable(_) | Self::InS3 { .. } => ReasonKind::Unreadable,
            Self::TooLarge { .. } => ReasonKind::TooLarge,
        }
    }
}

/// The token of one delivery. Opaque to all but its own backend.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Receipt(pub String);

/// A delivery that the backend has ended before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Which delivery.
    pub receipt: Receipt,
    /// Whether the message was cancelled, and so is not delivered again.
    pub cancelled: bool,
}

impl Loss {
    /// Given to others, or about to be.
    pub fn taken(receipt: Receipt) -> Self {
        Self {
            receipt,
            cancelled: false,
        }
    }

    /// Its message was cancelled.
    pub fn cancelled(receipt: Receipt) -> Self {
        Self {
            receipt,
            cancelled: true,
        }
    }
}

/// One attribute of the sender's.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Attribute {
    /// Unique within its message.
    pub name: String,
    /// `String`, `Number` or `Binary`, with an optional custom suffix.
    pub data_type: String,
    /// The value, in the shape that the data type asks for.
    pub value: AttributeValue,
}

impl Attribute {
    /// A `String` attribute.
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            data_type: "String".into(),
            value: AttributeValue::Text(value.into()),
        }
    }
}

impl Message {
    /// The bytes of memory that its content takes.
    pub fn held_bytes(&self) -> u64 {
        let system = self.system_attributes.iter();
        let system: usize = system.map(|(name, value)| name.len() + value.len()).sum();
        (bytes(&self.body, &self.attributes) + system) as u64
    }
}

/// Bytes of a message as SQS counts them: its body, and each attribute's name, type and value.
pub fn bytes(body: &str, attributes: &[Attribute]) -> usize {
    body.len() + attributes.iter().map(Attribute::bytes).sum::<usize>()
}

impl Attribute {
    /// The bytes that it adds to its message.
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
    /// For `String` and `Number`.
    Text(String),
    /// For `Binary`.
    Binary(Vec<u8>),
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outgoing {
    /// The payload.
    pub body: String,
    /// The sender's attributes.
    pub attributes: Vec<Attribute>,
    /// How long before it may be received.
    pub delay: Duration,
    /// The FIFO group.
    pub group: Option<String>,
    /// The schedule's id of this sending, the same at every attempt. A queue that deduplicates
    /// uses it instead of the body; and `delay` is used as it is, zero too, instead of the queue's
    /// own default.
    pub scheduled: Option<String>,
    /// By what a queue that drops what it was sent before tells this message from others, in place of
    /// its body and of anything else. Where there is no such queue it has no effect.
    pub deduplication: Option<String>,
    /// The trace header of X-Ray. A backend without system attributes carries it as an attribute of
    /// the name `TRACE_HEADER`.
    pub trace_header: Option<String>,
}

/// The name under which the trace header of X-Ray travels: on SQS a system attribute.
pub const TRACE_HEADER: &str = "AWSTraceHeader";

impl Outgoing {
    /// The sender's attributes and the trace header, for a backend without system attributes.
    pub fn attributes_with_trace(&self) -> Vec<Attribute> {
        let header = self.trace_header.as_ref();
        let header = header.map(|header| Attribute::text(TRACE_HEADER, header));
        let own = self.attributes.iter();
        let own = own.filter(|one| header.is_none() || one.name != TRACE_HEADER);
        own.cloned().chain(header.clone()).collect()
    }
}

/// What a handler answered, or what happened to the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Handled.
    Done,
    /// Not handled; again later.
    Retry {
        /// How long to wait; without it, as the route's policy says.
        after: Option<Duration>,
        /// What happened to it.
        why: FailureReason,
    },
    /// Never again, and the handler's reason.
    Reject(String),
    /// Not begun, since something downstream is busy: its lease is kept and it is retried.
    Busy {
        /// How long to wait at least; without it, as the back-off says.
        after: Option<Duration>,
        /// What is busy, in the handler's words.
        why: String,
    },
    /// Not begun, and no message of the route would be until somebody acts: its lease is kept,
    /// and the route receives nothing more until an attempt shows that it is open again.
    Closed(String),
}

/// Why an attempt asks for a retry, in words a person can act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureReason {
    /// The handler asked for it.
    Requested,
    /// The handler requested it, with this reason.
    RequestedWith(String),
    /// The Lambda function that the handler invoked failed, or reported the message as failed.
    Function(String),
    /// Nobody knows whether the Lambda function that the handler invoked ran.
    FunctionUnknown(String),
    /// The handler ended with a failure.
    Failed(String),
    /// The guest trapped or exited; the engine's words.
    Trapped(String),
    /// The attempt ran longer than it may.
    TimedOut(Duration),
    /// The guest wanted more memory than it may have, in bytes.
    OutOfMemory(usize),
    /// The host itself failed: no instance, or a panic of the host.
    Host(String),
}

impl FailureReason {
    /// What it is for labels.
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
            Self::RequestedWith(why) => write!(out, "the handler asked for a retry: {why}"),
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

/// What we tell the queue about one delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done: delete it.
    Delete,
    /// Deliver it again after this long.
    Release(Duration),
    /// Move it to the dead-letter queue, with this reason as an attribute.
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
