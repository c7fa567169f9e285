//! Positions in traces, in the formats of X-Ray and W3C Trace Context. Pure.

use std::fmt;

/// The id of a trace; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// The position of a span in its trace, and whether the span is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The id of the trace.
    pub trace_id: TraceId,
    /// The id of the span.
    pub span_id: SpanId,
    /// Whether the span is exported; its children follow its decision.
    pub sampled: bool,
}

/// The context of an incoming message or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteContext {
    /// The sender's trace.
    pub trace_id: TraceId,
    /// The sender's span. X-Ray may name only the trace, as services do that make no span
    /// themselves.
    pub parent: Option<SpanId>,
    /// Whether the sender's span is exported.
    pub sampled: bool,
    /// Whether the sender decided on sampling; X-Ray may leave it to the receiver.
    pub is_decided: bool,
}

impl RemoteContext {
    /// Returns the position of the sender's span, if the context names it.
    pub fn span(&self) -> Option<SpanContext> {
        Some(SpanContext {
            trace_id: self.trace_id,
            span_id: self.parent?,
            sampled: self.sampled,
        })
    }
}

impl TraceId {
    /// Reads 32 hexadecimal digits in lower case.
    pub fn read(text: &str) -> Option<Self> {
        is_lower(text).then(|| Self::of(hex(text, 32)?))?
    }

    /// Makes an id, unless it is all zeros.
    fn of(number: u128) -> Option<Self> {
        (number != 0).then(|| Self(number.to_be_bytes()))
    }
}

impl SpanId {
    /// Reads 16 hexadecimal digits in lower case.
    pub fn read(text: &str) -> Option<Self> {
        is_lower(text).then(|| Self::of(hex(text, 16)?))?
    }

    /// Makes an id, unless it is all zeros.
    fn of(number: u128) -> Option<Self> {
        let number = u64::try_from(number).ok().filter(|number| *number != 0)?;
        Some(Self(number.to_be_bytes()))
    }
}

/// Reads a number with exactly `digits` hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok())?
}

/// Whether the text has no upper-case letters. W3C Trace Context requires lower case, X-Ray does
/// not.
fn is_lower(text: &str) -> bool {
    !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

impl fmt::Display for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl SpanContext {
    /// Formats the trace header of X-Ray:
    /// `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=…;Sampled=1`.
    pub fn x_ray(&self) -> String {
        let trace = self.trace_id.to_string();
        let (epoch, rest) = trace.split_at(8);
        let sampled = u8::from(self.sampled);
        format!(
            "Root=1-{epoch}-{rest};Parent={};Sampled={sampled}",
            self.span_id
        )
    }

    /// Formats a `traceparent` of W3C Trace Context: `00-TRACE-SPAN-FLAGS`.
    pub fn traceparent(&self) -> String {
        let flags = u8::from(self.sampled);
        format!("00-{}-{}-{flags:02x}", self.trace_id, self.span_id)
    }
}

impl RemoteContext {
    /// Reads a trace header of X-Ray.
    pub fn from_x_ray(header: &str) -> Option<Self> {
        let root = part_of(header, "Root")?;
        let (epoch, rest) = root.strip_prefix("1-")?.split_once('-')?;
        let trace_id = TraceId::of(hex(epoch, 8)? << 96 | hex(rest, 24)?)?;
        let parent = match part_of(header, "Parent") {
            Some(parent) => Some(SpanId::of(hex(parent, 16)?)?),
            None => None,
        };
        let sampled = part_of(header, "Sampled");
        Some(Self {
            trace_id,
            parent,
            sampled: sampled == Some("1"),
            is_decided: matches!(sampled, Some("0" | "1")),
        })
    }

    /// Reads a `traceparent`. Versions later than 00 may have more parts.
    pub fn from_traceparent(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut next = || parts.next().unwrap_or_default();
        let (version, trace, span, flags) = (next(), next(), next(), next());
        let is_first = version == "00";
        if !is_byte(version) || version == "ff" || !is_byte(flags) {
            return None;
        }
        if is_first && parts.next().is_some() {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self {
            trace_id: TraceId::read(trace)?,
            parent: Some(SpanId::read(span)?),
            sampled: flags & 1 == 1,
            is_decided: true,
        })
    }
}

/// Returns a part of a trace header of X-Ray: `NAME=PART`.
fn part_of<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let mut parts = header.split(';').map(str::trim);
    parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// Whether this is a byte in two hexadecimal digits in lower case.
fn is_byte(part: &str) -> bool {
    part.len() == 2
        && part
            .bytes()
            .all(|byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
    const X_RAY: &str =
        "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

    #[test]
    fn both_formats_name_the_same_position() {
        let of_x_ray = RemoteContext::from_x_ray(X_RAY).expect("it is one");
        assert_eq!(RemoteContext::from_traceparent(PARENT), Some(of_x_ray));
        let span = of_x_ray.span().expect("it names a span");
        assert_eq!(span.traceparent(), PARENT);
        assert_eq!(span.x_ray(), X_RAY);
        assert!(of_x_ray.is_decided && of_x_ray.sampled);
        let upper = X_RAY.replace("bd862e3f", "BD862E3F");
        assert_eq!(RemoteContext::from_x_ray(&upper), Some(of_x_ray));
    }

    #[test]
    fn header_of_x_ray_without_a_parent_names_the_trace_alone() {
        let whole = RemoteContext::from_x_ray(X_RAY).expect("it is one");
        let root = X_RAY.replace(";Parent=53995c3f42cd8ad8", "");
        let read = RemoteContext::from_x_ray(&root).expect("it names a trace");
        assert_eq!((read.trace_id, read.span()), (whole.trace_id, None));
        assert!(read.sampled && read.is_decided);
    }

    #[test]
    fn sampling_that_x_ray_leaves_open_is_undecided() {
        for open in [
            "",
            ";Sampled=?",
            ";Self=1-5759e988-bd862e3fe1be46a994272793",
        ] {
            let header = X_RAY.replace(";Sampled=1", open);
            let read = RemoteContext::from_x_ray(&header).expect("it is one");
            assert!(!read.is_decided && !read.sampled, "{header}");
        }
        let not = RemoteContext::from_x_ray(&X_RAY.replace("Sampled=1", "Sampled=0"));
        assert!(not.is_some_and(|read| read.is_decided && !read.sampled));
    }

    #[test]
    fn what_is_no_context_is_none() {
        for wrong in [
            "",
            "Root=1-5759e988-bd862e3f",
            "Root=1-00000000-000000000000000000000000",
            "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=0000000000000000",
            "Root=2-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8",
            "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01-more",
            "ff-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01",
            "00-00000000000000000000000000000000-53995c3f42cd8ad8-01",
            "00-5759E988BD862E3FE1BE46A994272793-53995c3f42cd8ad8-01",
            "00-é759e988bd862e3fe1be46a99427279-53995c3f42cd8ad8-01",
        ] {
            assert_eq!(RemoteContext::from_x_ray(wrong), None, "{wrong}");
            assert_eq!(RemoteContext::from_traceparent(wrong), None, "{wrong}");
        }
        let later = "01-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01-more";
        assert!(RemoteContext::from_traceparent(later).is_some());
    }
}
