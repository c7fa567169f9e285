//! Traces: sampling, spans, and the active span of a thread. Knows neither messages nor the
//! destination of spans.

mod active;
mod context;
mod guest;
mod sampler;
mod span;
mod tracer;

pub use active::{
    ActiveSpan, CallAnswer, CallSpan, CallStart, active, active_context, note_version, with_active,
    within,
};
pub use context::{RemoteContext, SpanContext, SpanId, TraceId};
pub use guest::{GuestAttribute, GuestDetails, GuestEvent, GuestSpan};
pub use sampler::Sampler;
pub use span::{
    LONGEST_TEXT, MOST_EVENTS, MOST_LINKS, Span, SpanAttribute, SpanEvent, SpanKind, SpanLink,
    SpanValue, bounded_list, server_attributes,
};
pub use tracer::{SpanReceiver, SystemOfQueue, TraceTerms, Tracer};
