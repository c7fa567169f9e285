//! A span that has ended, as data. Pure.

use super::context::{SpanContext, SpanId};
use super::guest::GuestDetails;
use std::sync::Arc;

/// An ended step of a message's life.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The position.
    pub context: SpanContext,
    /// The parent span, if there is one.
    pub parent: Option<SpanId>,
    /// The name, of few different values: `process orders`.
    pub name: Arc<str>,
    /// The kind.
    pub kind: SpanKind,
    /// The start, in nanoseconds since the Unix epoch.
    pub began_ns: u64,
    /// The end, in nanoseconds since the Unix epoch.
    pub ended_ns: u64,
    /// The attributes that many spans share.
    pub shared: Arc<[SpanAttribute]>,
    /// The attributes of only this span.
    pub attributes: Vec<SpanAttribute>,
    /// Spans that this span follows from but that are not its parents.
    pub links: Vec<SpanLink>,
    /// The number of dropped links.
    pub dropped_links: u32,
    /// The events of each message of a batch.
    pub events: Vec<SpanEvent>,
    /// The number of dropped events.
    pub dropped_events: u32,
    /// The reason for the failure, if it failed.
    pub failure: Option<String>,
    /// The other data of a span that a guest made.
    pub guest: Option<Box<GuestDetails>>,
}

impl Span {
    /// Returns the approximate number of bytes of memory that the span takes.
    pub(super) fn size(&self) -> usize {
        let of_links = self
            .links
            .iter()
            .map(|link| size_of::<SpanLink>() + bytes(&link.attributes));
        let of_events = self
            .events
            .iter()
            .map(|event| size_of::<SpanEvent>() + bytes(&event.attributes));
        let failure = self.failure.as_ref().map_or(0, String::len);
        let guest = self.guest.as_ref().map_or(0, |guest| guest.size());
        size_of::<Self>()
            + self.name.len()
            + bytes(&self.attributes)
            + of_links.sum::<usize>()
            + of_events.sum::<usize>()
            + failure
            + guest
    }
}

fn bytes(attributes: &[SpanAttribute]) -> usize {
    let attributes = attributes.iter();
    attributes
        .map(|(_, value)| size_of::<SpanAttribute>() + value.text_bytes())
        .sum()
}

/// The kind of a span in OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A call to a server.
    Client,
    /// The sending of a message.
    Producer,
    /// The handling of a message.
    Consumer,
    /// The answer to a request.
    Server,
    /// Anything else.
    Internal,
}

/// A name of the semantic conventions, or one that begins with `dispatcher.`, and its value.
pub type SpanAttribute = (&'static str, SpanValue);

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum SpanValue {
    /// One of few texts.
    Word(&'static str),
    /// A text that many spans share.
    Shared(Arc<str>),
    /// Any other text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Any other number.
    Fraction(f64),
    /// True or false.
    Flag(bool),
}

/// A link to a span that another span follows from.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanLink {
    /// The position of the linked span.
    pub context: SpanContext,
    /// The attributes of the link.
    pub attributes: Vec<SpanAttribute>,
}

/// An event during a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// The name.
    pub name: &'static str,
    /// The time, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// The attributes of the event.
    pub attributes: Vec<SpanAttribute>,
}

/// Returns the first `most` items and the number of the others.
pub fn bounded_list<T>(mut all: impl Iterator<Item = T>, most: usize) -> (Vec<T>, u32) {
    let list = all.by_ref().take(most).collect();
    (list, u32::try_from(all.count()).unwrap_or(u32::MAX))
}

/// Returns the attributes `server.address` and `server.port` of a call to this URL; empty if it
/// names no host.
pub fn server_attributes(url: &str) -> Vec<SpanAttribute> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Vec::new();
    };
    let authority = rest
        .split(['/', '?', '#'])
        .next()
        .unwrap_or_default()
        .rsplit('@')
        .next()
        .unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        // A colon inside an IPv6 address does not precede a port.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (authority, None),
    };
    let host = host.trim_matches(['[', ']']);
    if host.is_empty() {
        return Vec::new();
    }
    let port: Option<u32> = port.or(match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    });
    let address = ("server.address", host.to_owned().into());
    let port = port.map(|port| ("server.port", port.into()));
    [address].into_iter().chain(port).collect()
}

/// The maximum number of links of one span, by the specification.
pub const MOST_LINKS: usize = 128;
/// The maximum number of events of one span, by the specification.
pub const MOST_EVENTS: usize = 128;
/// The maximum length of an attribute's text, in bytes; the rest is cut.
pub const LONGEST_TEXT: usize = 4_096;

impl SpanValue {
    /// Returns the number of bytes of text that the value owns.
    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            _ => 0,
        }
    }
}

impl From<&'static str> for SpanValue {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl From<String> for SpanValue {
    fn from(mut text: String) -> Self {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
        Self::Text(text)
    }
}

impl From<u32> for SpanValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for SpanValue {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_of_a_call_is_the_host_and_port_of_its_url() {
        for (url, host, port) in [
            (
                "https://lambda.eu-west-1.amazonaws.com/2015-03-31/x",
                "lambda.eu-west-1.amazonaws.com",
                443,
            ),
            ("http://127.0.0.1:9324/000000000000/a:b", "127.0.0.1", 9_324),
            ("http://user:word@host?a=b@c", "host", 80),
            ("http://[::1]:4318", "::1", 4_318),
            ("http://[::1]/", "::1", 80),
        ] {
            let wanted = [
                ("server.address", host.to_owned().into()),
                ("server.port", SpanValue::Number(port)),
            ];
            assert_eq!(server_attributes(url), wanted, "{url}");
        }
        for none in ["", "orders", "http://", "http:///path"] {
            assert_eq!(server_attributes(none), [], "{none}");
        }
    }
}
