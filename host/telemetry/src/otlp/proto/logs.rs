//! The OTLP messages of log records.

use super::{
    AnyValue, AnyValueKind, KeyValue, ResourceAttributes, ResourceMessage, Scope, own_scope,
    resource,
};
use dispatcher_core::telemetry::trace::SpanContext;
use prost::Message;

/// The target of lines that guests print.
const GUEST: &str = "guest";

#[derive(Clone, PartialEq, Message)]
struct ExportLogs {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<LogRecord>,
}

/// A line of the log.
#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct LogRecord {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    severity_number: i32,
    #[prost(string, tag = "3")]
    severity_text: String,
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
    #[prost(fixed32, tag = "8")]
    flags: u32,
    #[prost(bytes = "vec", tag = "9")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    span_id: Vec<u8>,
    #[prost(fixed64, tag = "11")]
    observed_time_unix_nano: u64,
    #[prost(string, tag = "12")]
    event_name: String,
}

impl LogRecord {
    /// Creates a record of this time, in nanoseconds since the Unix epoch, and this span. The lines
    /// of the host are events with `message` as their name; a guest may print any text.
    pub(in super::super) fn new(
        at_ns: u64,
        severity: i32,
        level: &str,
        message: String,
        attributes: Vec<KeyValue>,
        (target, context): (&str, Option<SpanContext>),
    ) -> Self {
        let event_name = match target {
            GUEST => String::new(),
            _ => message.clone(),
        };
        let ids = context.map(|context| (context.trace_id.0.to_vec(), context.span_id.0.to_vec()));
        let (trace_id, span_id) = ids.unwrap_or_default();
        Self {
            time_unix_nano: at_ns,
            severity_number: severity,
            severity_text: level.to_owned(),
            body: Some(AnyValue {
                value: Some(AnyValueKind::Text(message)),
            }),
            attributes,
            flags: context.map(super::flags).unwrap_or_default(),
            trace_id,
            span_id,
            observed_time_unix_nano: at_ns,
            event_name,
        }
    }

    /// Returns the encoded size of the record in bytes.
    pub(in super::super) fn size(&self) -> usize {
        self.encoded_len()
    }
}

/// Encodes records as the body of a request.
pub(in super::super) fn request(
    attributes: &ResourceAttributes,
    log_records: Vec<LogRecord>,
) -> Vec<u8> {
    let request = ExportLogs {
        resource_logs: vec![ResourceLogs {
            resource: resource(attributes),
            scope_logs: vec![ScopeLogs {
                scope: own_scope(),
                log_records,
            }],
        }],
    };
    request.encode_to_vec()
}
