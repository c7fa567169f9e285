//! A span that has ended, as data. Pure.

use super::context::{SpanContext, SpanId};
use super::guest::GuestDetails;
use std::sync::Arc;

/// A step of a message's life that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its place.
    pub context: SpanContext,
    /// The span that it is below, if there is one.
    pub parent: Option<SpanId>,
    /// What it is, with few different values: `process orders`.
    pub name: Arc<str>,
    /// Its part in the exchange.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since the Unix epoch.
    pub began_ns: u64,
    /// When it ended, in nanoseconds since the Unix epoch.
    pub ended_ns: u64,
    /// What many spans have in common.
    pub shared: Arc<[SpanAttribute]>,
    /// What only this span has.
    pub attributes: Vec<SpanAttribute>,
    /// Spans that it follows from without being below them.
    pub links: Vec<SpanLink>,
    /// Links that are missing.
    pub dropped_links: u32,
    /// What is known of each message of a batch.
    pub events: Vec<SpanEvent>,
    /// Events that are missing.
    pub dropped_events: u32,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// The rest of a span that a guest has made.
    pub guest: Option<Box<GuestDetails>>,
}

impl Span {
    /// About how many bytes of memory it takes.
    pub(super) fn size(&self) -> usize {
        let of_links = self.links.iter();
        let of_links = of_links.map(|link| size_of::<SpanLink>() + bytes(&link.attributes));
        let of_events = self.events.iter();
        let of_events = of_events.map(|event| size_of::<SpanEvent>() + bytes(&event.attributes));
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

/// The kinds of OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A call to a server.
    Client,
    /// A message was sent.
    Producer,
    /// A message was handled.
    Consumer,
    /// A request was answered.
    Server,
    /// Anything else.
    Internal,
}

/// A name of the semantic conventions or one that begins with `dispatcher.`, and its value.
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
    /// Yes or no.
    Flag(bool),
}

/// A span that another follows from.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanLink {
    /// Its place.
    pub context: SpanContext,
    /// What the link is about.
    pub attributes: Vec<SpanAttribute>,
}

/// Something that happened while a span lasted.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// What it was.
    pub name: &'static str,
    /// When, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// What is known of it.
    pub attributes: Vec<SpanAttribute>,
}

/// As many of these as a span may have, and how many more there are.
pub fn bounded_list<T>(mut all: impl Iterator<Item = T>, most: usize) -> (Vec<T>, u32) {
    let list = all.by_ref().take(most).collect();
    (list, u32::try_from(all.count()).unwrap_or(u32::MAX))
}

/// The attributes `server.address` and `server.port` of a call to this URL; none if it names no host.
pub fn server_attributes(url: &str) -> Vec<SpanAttribute> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Vec::new();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        // A colon inside of an address of IPv6 is none before a port.
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

/// The most links of one span, as the specification has it.
pub const MOST_LINKS: usize = 128;
/// The most events of one span, as the specification has it.
pub const MOST_EVENTS: usize = 128;
/// The longest text of an attribute, in bytes; the rest is cut.
pub const LONGEST_TEXT: usize = 4_096;

impl SpanValue {
    /// The bytes of the text that it allocated.
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
        let of = |url: &str| {
            let [address, port] = &server_attributes(url)[..] else {
                panic!("{url}");
            };
            assert_eq!((address.0, port.0), ("server.address", "server.port"));
            (address.1.clone(), port.1.clone())
        };
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
            assert_eq!(
                of(url),
                (host.to_owned().into(), SpanValue::Number(port)),
                "{url}"
            );
        }
        for none in ["", "orders", "http://", "http:///path"] {
            assert_eq!(server_attributes(none), [], "{none}");
        }
    }
}
