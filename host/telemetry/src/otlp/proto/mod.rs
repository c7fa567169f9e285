//! The messages of OTLP that are sent, with the field numbers of `opentelemetry-proto` 1.x. The
//! parts that all signals share are here; each signal has its own file.

pub(super) mod logs;
pub(super) mod metrics;
pub(super) mod traces;

use super::Resource as ResourceAttributes;
use dispatcher_core::telemetry::trace::SpanContext;
use prost::{Message, Oneof};

/// The scope of everything that is sent.
const SCOPE: &str = "dispatcher";
/// The flag of a sampled trace.
const FLAG_SAMPLED: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
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
    #[prost(oneof = "AnyValueKind", tags = "1, 2, 3, 4, 5, 6")]
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
    #[prost(message, tag = "5")]
    List(ValueList),
    #[prost(message, tag = "6")]
    Map(ValueMap),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueList {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueMap {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<KeyValue>,
}

impl AnyValueKind {
    /// Returns a list of texts.
    pub(super) fn list(texts: impl IntoIterator<Item = String>) -> Self {
        let values = texts.into_iter().map(|text| AnyValue {
            value: Some(Self::Text(text)),
        });
        Self::List(ValueList {
            values: values.collect(),
        })
    }

    /// Returns a map of names to texts.
    pub(super) fn map(texts: impl IntoIterator<Item = (String, String)>) -> Self {
        let texts = texts.into_iter();
        let values = texts.map(|(name, text)| entry(&name, Self::Text(text)));
        Self::Map(ValueMap {
            values: values.collect(),
        })
    }
}

/// The response of a collector, which contains the number of rejected spans, or items of another
/// signal.
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

/// Returns the description of this process, which all signals contain.
fn resource(attributes: &ResourceAttributes) -> Option<ResourceMessage> {
    let attributes = attributes
        .iter()
        .map(|(key, value)| entry(key, AnyValueKind::Text(value.clone())));
    Some(ResourceMessage {
        attributes: attributes.collect(),
    })
}

fn flags(context: SpanContext) -> u32 {
    if context.sampled { FLAG_SAMPLED } else { 0 }
}

/// Returns the scope of this program's own telemetry.
fn own_scope() -> Option<Scope> {
    Some(Scope {
        name: SCOPE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

pub(super) fn entry(key: &str, value: AnyValueKind) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}
