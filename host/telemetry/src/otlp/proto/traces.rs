//! The OTLP messages of spans.

use super::{
    AnyValueKind, KeyValue, ResourceAttributes, ResourceMessage, Scope, entry, flags, own_scope,
    resource,
};
use dispatcher_core::telemetry::trace::{
    GuestAttribute, GuestEvent, Span, SpanAttribute, SpanKind, SpanValue,
};
use prost::Message;
use std::collections::BTreeMap;

/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: i32 = 2;
/// `STATUS_CODE_OK`.
const STATUS_OK: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct ExportTraces {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "10")]
    dropped_attributes_count: u32,
    #[prost(message, repeated, tag = "11")]
    events: Vec<EventMessage>,
    #[prost(uint32, tag = "12")]
    dropped_events_count: u32,
    #[prost(message, repeated, tag = "13")]
    links: Vec<LinkMessage>,
    #[prost(uint32, tag = "14")]
    dropped_links_count: u32,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct EventMessage {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, Message)]
struct LinkMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    attributes: Vec<KeyValue>,
    #[prost(fixed32, tag = "6")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

/// Encodes spans as the body of a request.
pub(in super::super) fn request(attributes: &ResourceAttributes, spans: Vec<Span>) -> Vec<u8> {
    let (of_guests, own): (Vec<Span>, Vec<Span>) =
        spans.into_iter().partition(|span| span.guest.is_some());
    let mut scopes = BTreeMap::<String, Vec<SpanMessage>>::new();
    for span in of_guests {
        let scope = span.guest.as_ref().map(|guest| guest.scope.clone());
        let spans = scopes.entry(scope.unwrap_or_default()).or_default();
        spans.push(span_message(span));
    }
    let of_guests = scopes.into_iter().map(|(name, spans)| ScopeSpans {
        scope: Some(Scope {
            name,
            version: String::new(),
        }),
        spans,
    });
    let own = ScopeSpans {
        scope: own_scope(),
        spans: own.into_iter().map(span_message).collect(),
    };
    let all = ResourceSpans {
        resource: resource(attributes),
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

fn span_message(span: Span) -> SpanMessage {
    let guest = span.guest.map(|details| *details).unwrap_or_default();
    let own_attributes = span.shared.iter().cloned().chain(span.attributes);
    let attributes = own_attributes
        .map(key_value)
        .chain(guest_attributes(guest.attributes));
    let links = span.links.into_iter().map(|link| LinkMessage {
        trace_id: link.context.trace_id.0.to_vec(),
        span_id: link.context.span_id.0.to_vec(),
        attributes: link.attributes.into_iter().map(key_value).collect(),
        flags: flags(link.context),
    });
    let own_events = span.events.into_iter().map(|event| EventMessage {
        time_unix_nano: event.at_ns,
        name: event.name.to_owned(),
        attributes: event.attributes.into_iter().map(key_value).collect(),
        dropped_attributes_count: 0,
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
        events: own_events
            .chain(guest.events.into_iter().map(event_message))
            .collect(),
        dropped_events_count: guest.dropped_events.saturating_add(span.dropped_events),
        links: links.collect(),
        dropped_links_count: guest.dropped_links.saturating_add(span.dropped_links),
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
