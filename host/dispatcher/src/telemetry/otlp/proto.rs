//! The messages of OTLP that are sent, as `opentelemetry-proto` 1.x numbers their fields, and spans
//! as such messages.

use super::Resource as ResourceAttributes;
use dispatcher_core::telemetry::trace::{
    GuestAttribute, GuestEvent, Span, SpanAttribute, SpanContext, SpanKind, SpanValue,
};
use prost::{Message, Oneof};
use std::collections::BTreeMap;

/// The scope of everything that is sent.
const SCOPE: &str = "dispatcher";
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: i32 = 2;
/// `STATUS_CODE_OK`.
const STATUS_OK: i32 = 1;
/// That the span's trace is sampled.
const FLAG_SAMPLED: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraces {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "10")]
    pub dropped_attributes_count: u32,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<EventMessage>,
    #[prost(uint32, tag = "12")]
    pub dropped_events_count: u32,
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<LinkMessage>,
    #[prost(uint32, tag = "14")]
    pub dropped_links_count: u32,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventMessage {
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    pub dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinkMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed32, tag = "6")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(int32, tag = "3")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 2, 3, 4")]
    pub value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum AnyValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(double, tag = "4")]
    Fraction(f64),
}

/// What a collector answers: of traces the rejected spans, and likewise of other signals.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportAnswer {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// Spans as the body of a request.
pub(super) fn traces(resource: &ResourceAttributes, spans: Vec<Span>) -> Vec<u8> {
    let attributes = resource.iter();
    let attributes = attributes.map(|(key, value)| entry(key, AnyValueKind::Text(value.clone())));
    let (of_guests, own): (Vec<Span>, Vec<Span>) =
        spans.into_iter().partition(|span| span.guest.is_some());
    let version = env!("CARGO_PKG_VERSION");
    let mut scopes = BTreeMap::<String, Vec<SpanMessage>>::new();
    for span in of_guests {
        let scope = span.guest.as_ref().map(|guest| guest.scope.clone());
        let spans = scopes.entry(scope.unwrap_or_default()).or_default();
        spans.push(span_message(span));
    }
    let of_guests = scopes
        .into_iter()
        .map(|(scope, spans)| scope_spans(scope, "", spans));
    let own = own.into_iter().map(span_message).collect();
    let own = scope_spans(SCOPE.to_owned(), version, own);
    let all = ResourceSpans {
        resource: Some(ResourceMessage {
            attributes: attributes.collect(),
        }),
        scope_spans: std::iter::once(own)
            .chain(of_guests)
            .filter(|all| !all.spans.is_empty())
            .collect(),
    };
    let request = ExportTraces {
        resource_spans: vec![all],
    };
    request.encode_to_vec()
}

fn scope_spans(name: String, version: &str, spans: Vec<SpanMessage>) -> ScopeSpans {
    let version = version.to_owned();
    ScopeSpans {
        scope: Some(Scope { name, version }),
        spans,
    }
}

fn span_message(span: Span) -> SpanMessage {
    let guest = span.guest.map(|details| *details).unwrap_or_default();
    let attributes = span.shared.iter().cloned().chain(span.attributes);
    let attributes = attributes
        .map(key_value)
        .chain(guest_attributes(guest.attributes));
    let links = span.links.into_iter().map(|link| LinkMessage {
        trace_id: link.context.trace_id.0.to_vec(),
        span_id: link.context.span_id.0.to_vec(),
        attributes: link.attributes.into_iter().map(key_value).collect(),
        flags: flags(link.context),
    });
    SpanMessage {
        trace_id: span.context.trace_id.0.to_vec(),
        span_id: span.context.span_id.0.to_vec(),
        parent_span_id: span.parent.map(|id| id.0.to_vec()).unwrap_or_default(),
        name: span.name.to_string(),
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
            SpanKind::Producer => 4,
            SpanKind::Consumer => 5,
        },
        start_time_unix_nano: span.began_ns,
        end_time_unix_nano: span.ended_ns.max(span.began_ns),
        attributes: attributes.collect(),
        dropped_attributes_count: guest.dropped_attributes,
        events: guest.events.into_iter().map(event_message).collect(),
        dropped_events_count: guest.dropped_events,
        links: links.collect(),
        dropped_links_count: guest.dropped_links,
        status: match (span.failure, guest.is_ok) {
            (Some(message), _) => Some(Status {
                message,
                code: STATUS_ERROR,
            }),
            (None, true) => Some(Status {
                message: String::new(),
                code: STATUS_OK,
            }),
            (None, false) => None,
        },
        flags: flags(span.context),
    }
}

fn event_message(event: GuestEvent) -> EventMessage {
    EventMessage {
        time_unix_nano: event.at_ns,
        name: event.name,
        attributes: guest_attributes(event.attributes).collect(),
        dropped_attributes_count: event.dropped_attributes,
    }
}

fn guest_attributes(all: Vec<GuestAttribute>) -> impl Iterator<Item = KeyValue> {
    all.into_iter().map(|(key, value)| entry(&key, kind(value)))
}

fn flags(context: SpanContext) -> u32 {
    if context.sampled { FLAG_SAMPLED } else { 0 }
}

fn key_value((key, value): SpanAttribute) -> KeyValue {
    entry(key, kind(value))
}

fn kind(value: SpanValue) -> AnyValueKind {
    match value {
        SpanValue::Word(word) => AnyValueKind::Text(word.to_owned()),
        SpanValue::Shared(text) => AnyValueKind::Text(text.to_string()),
        SpanValue::Text(text) => AnyValueKind::Text(text),
        SpanValue::Number(number) => AnyValueKind::Number(number),
        SpanValue::Fraction(number) => AnyValueKind::Fraction(number),
        SpanValue::Flag(flag) => AnyValueKind::Flag(flag),
    }
}

fn entry(key: &str, value: AnyValueKind) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}
