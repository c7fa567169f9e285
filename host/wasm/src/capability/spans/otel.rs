//! The bindings of `wasi:otel`, and the conversion to spans below the span of the attempt.

use super::SpanGrant;
use crate::capability::caller::{Grant, GrantedTo, View, ViewOf, view};
use crate::capability::refusals::Denial;
use bindings::wasi::clocks::wall_clock::{self, Datetime};
use bindings::wasi::otel::tracing::{self, SpanData, Status, TraceFlags};
use bindings::wasi::otel::types::{self, KeyValue};
use dispatcher_core::telemetry::trace::{
    self, GuestAttribute, GuestDetails, GuestEvent, GuestSpan, LONGEST_TEXT, SpanContext, SpanId,
    SpanKind, SpanValue, TraceId,
};
use serde_json::Value;
use wasmtime::component::Linker;

/// The version that is granted: a release candidate, which is not compatible with other versions.
pub(super) const VERSION: &str = "0.2.0-rc.2";

/// The maximum number of bytes of a JSON text that are read. For a string, this includes at least
/// one character more than is kept, so that it counts as cut. JSON takes up to six bytes for one.
const LONGEST_JSON: usize = 6 * (LONGEST_TEXT + 4) + 2;

static REFUSED: Denial = Denial::ungranted(&SpanGrant::DESCRIPTION, "export spans");
/// The denial where the attempt of a span is unknown.
static SHARED: Denial = Denial::always(
    &SpanGrant::DESCRIPTION,
    "export spans where many attempts share an instance",
);

mod bindings {
    wasmtime::component::bindgen!({
        path: "src/capability/spans/wit",
        inline: "
            package dispatcher:host;
            world traced {
                import wasi:otel/tracing@0.2.0-rc.2;
            }
        ",
        world: "dispatcher:host/traced",
        imports: { default: tracing | verbose_tracing },
    });
}

/// Adds the interfaces to a linker. Each call checks the grant of its guest.
pub(super) fn link<C: GrantedTo<SpanGrant>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    types::add_to_linker::<_, ViewOf<C>>(linker, view)?;
    tracing::add_to_linker::<_, ViewOf<C>>(linker, view)
}

impl<C: GrantedTo<SpanGrant>> wall_clock::Host for View<'_, C> {}
impl<C: GrantedTo<SpanGrant>> types::Host for View<'_, C> {}

impl<C: GrantedTo<SpanGrant>> tracing::Host for View<'_, C> {
    fn on_start(&mut self, context: tracing::SpanContext) {
        if let (SpanGrant(Some(most)), Some(context)) = (self.0.granted(), place(&context)) {
            trace::with_active(|attempt| attempt.begin_guest_span(&context, *most));
        }
    }

    fn on_end(&mut self, span: SpanData) {
        let SpanGrant(granted) = *self.0.granted();
        let most = match most_spans(granted, self.0.is_shared()) {
            Ok(most) => most,
            Err(denial) => {
                self.0.refusals().refuse(denial, &span.name);
                return;
            }
        };
        trace::with_active(|attempt| {
            if attempt.is_exported() && span.span_context.trace_flags.contains(TraceFlags::SAMPLED)
            {
                attempt.end_guest_span(most, || guest_span(span));
            }
        });
    }

    /// Returns an invalid context if spans are not granted or traces are not recorded.
    fn outer_span_context(&mut self) -> tracing::SpanContext {
        let context = if self.0.granted().0.is_some() {
            trace::active_context()
        } else {
            None
        };
        let (trace_id, span_id, sampled) = match context {
            Some(context) => (
                context.trace_id.to_string(),
                context.span_id.to_string(),
                context.sampled,
            ),
            None => ("0".repeat(32), "0".repeat(16), false),
        };
        tracing::SpanContext {
            trace_id,
            span_id,
            trace_flags: if sampled {
                TraceFlags::SAMPLED
            } else {
                TraceFlags::empty()
            },
            is_remote: true,
            trace_state: Vec::new(),
        }
    }
}

/// Returns how many spans of an attempt are exported, or the reason why none are.
fn most_spans(granted: Option<usize>, is_shared: bool) -> Result<usize, &'static Denial> {
    match granted {
        None => Err(&REFUSED),
        Some(_) if is_shared => Err(&SHARED),
        Some(most) => Ok(most),
    }
}

/// Returns `None` if the IDs are not valid.
fn place(context: &tracing::SpanContext) -> Option<SpanContext> {
    Some(SpanContext {
        trace_id: TraceId::read(&context.trace_id)?,
        span_id: SpanId::read(&context.span_id)?,
        sampled: context.trace_flags.contains(TraceFlags::SAMPLED),
    })
}

fn guest_span(span: SpanData) -> Option<GuestSpan> {
    let (is_ok, failure) = match span.status {
        Status::Unset => (false, None),
        Status::Ok => (true, None),
        Status::Error(why) => (false, Some(why)),
    };
    let events = span.events.into_iter().map(|event| GuestEvent {
        name: event.name,
        at_ns: nanoseconds(event.time),
        attributes: attributes(event.attributes),
        dropped_attributes: 0,
    });
    let links = span.links.iter();
    Some(GuestSpan {
        context: place(&span.span_context)?,
        parent: SpanId::read(&span.parent_span_id),
        name: span.name,
        kind: match span.span_kind {
            tracing::SpanKind::Client => SpanKind::Client,
            tracing::SpanKind::Server => SpanKind::Server,
            tracing::SpanKind::Producer => SpanKind::Producer,
            tracing::SpanKind::Consumer => SpanKind::Consumer,
            tracing::SpanKind::Internal => SpanKind::Internal,
        },
        began_ns: nanoseconds(span.start_time),
        ended_ns: nanoseconds(span.end_time),
        links: links.filter_map(|link| place(&link.span_context)).collect(),
        failure,
        details: GuestDetails {
            scope: span.instrumentation_scope.name,
            attributes: attributes(span.attributes),
            events: events.collect(),
            is_ok,
            cut_attributes: 0,
            dropped_attributes: span.dropped_attributes,
            dropped_events: span.dropped_events,
            dropped_links: span.dropped_links,
        },
    })
}

fn nanoseconds(time: Datetime) -> u64 {
    let seconds = time.seconds.saturating_mul(1_000_000_000);
    seconds.saturating_add(time.nanoseconds.into())
}

fn attributes(all: Vec<KeyValue>) -> Vec<GuestAttribute> {
    let all = all.into_iter();
    all.map(|one| (one.key, value(one.value))).collect()
}

/// Converts a JSON text to a value. Lists, maps and texts that are not JSON stay text. A list is
/// not parsed, because that takes many times the memory that the guest needs to write it. A long
/// string is parsed only as far as it is kept.
fn value(json: String) -> SpanValue {
    let kept = match json.trim_start().as_bytes().first() {
        Some(b'"') if json.len() > LONGEST_JSON => serde_json::from_str(&beginning(&json)),
        Some(b'"') => serde_json::from_str(&json),
        Some(b'[' | b'{') | None => return SpanValue::Text(json),
        Some(_) if json.len() > LONGEST_JSON => return SpanValue::Text(json),
        Some(_) => serde_json::from_str(&json),
    };
    match kept {
        Ok(Value::String(text)) => SpanValue::Text(text),
        Ok(Value::Bool(flag)) => SpanValue::Flag(flag),
        Ok(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => SpanValue::Number(whole),
            (None, Some(fraction)) => SpanValue::Fraction(fraction),
            (None, None) => SpanValue::Text(json),
        },
        Ok(Value::Null | Value::Array(_) | Value::Object(_)) | Err(_) => SpanValue::Text(json),
    }
}

/// Returns the beginning of a long JSON string, up to the last character within the bound, as JSON.
fn beginning(json: &str) -> String {
    let json = json.trim_start();
    let bytes = json.as_bytes();
    let mut end = 1;
    while let Some(byte) = bytes.get(end).filter(|byte| **byte != b'"') {
        let length = match (byte, bytes.get(end + 1), bytes.get(end + 2..end + 4)) {
            // The first half of a character that JSON writes as two escapes.
            (b'\\', Some(b'u'), Some([b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B'])) => 12,
            (b'\\', Some(b'u'), _) => 6,
            (b'\\', _, _) => 2,
            _ => 1,
        };
        if end + length > LONGEST_JSON {
            break;
        }
        end += length;
    }
    let end = json.floor_char_boundary(end);
    format!("{}\"", &json[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_denied_without_a_grant_and_where_attempts_share_an_instance() {
        assert_eq!(most_spans(Some(3), false).ok(), Some(3));
        for is_shared in [false, true] {
            let ungranted = most_spans(None, is_shared).expect_err("it is denied");
            assert!(std::ptr::eq(ungranted, &REFUSED));
        }
        let shared = most_spans(Some(3), true).expect_err("it is denied");
        assert!(std::ptr::eq(shared, &SHARED));
    }

    #[test]
    fn value_of_an_attribute_is_read_from_json_and_other_texts_are_kept() {
        for (json, wanted) in [
            ("\"a\"", SpanValue::Text("a".to_owned())),
            ("7", SpanValue::Number(7)),
            ("0.5", SpanValue::Fraction(0.5)),
            ("true", SpanValue::Flag(true)),
            ("[1,2]", SpanValue::Text("[1,2]".to_owned())),
            ("no JSON", SpanValue::Text("no JSON".to_owned())),
        ] {
            assert_eq!(value(json.to_owned()), wanted, "{json}");
        }
    }

    #[test]
    fn long_text_is_read_as_far_as_it_is_kept() {
        for (one, read) in [
            ("x", "x"),
            ("é", "é"),
            ("\\n", "\n"),
            ("\\u0001", "\u{1}"),
            ("\\ud83d\\ude00", "😀"),
            ("\\\"", "\""),
        ] {
            let SpanValue::Text(text) = value(format!("\"{}\"", one.repeat(100_000))) else {
                panic!("{one}");
            };
            assert!(text.len() > LONGEST_TEXT, "{one}: {}", text.len());
            assert!(text.len() <= LONGEST_JSON, "{one}: {}", text.len());
            assert_eq!(text, read.repeat(text.len() / read.len()), "{one}");
        }
    }
}
