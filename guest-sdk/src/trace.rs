//! Logs `tracing` events as lines of the dispatcher's log, with their level, their fields and the
//! fields of the spans that they happen in. Requires the feature `tracing`.
//!
//! ```ignore
//! use dispatcher_guest::{Message, handler, trace};
//!
//! fn handle(message: Message) {
//!     trace::init();
//!     tracing::info!(bytes = message.body.len(), "looked at the body");
//! }
//!
//! handler!(handle);
//! ```

use crate::log::{Level, log};
use std::fmt;
use std::fmt::Write as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// A layer that logs events. It works with any registry of `tracing-subscriber`.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostLog;

/// Starts to log every event. Later calls do nothing.
pub fn init() {
    let subscriber = tracing_subscriber::registry().with(HostLog);
    // A subscriber that is already set stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// The text and the other fields of an event or a span.
#[derive(Default)]
struct Fields {
    text: String,
    named: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.text.push_str(value),
            name => self.named.push((name, value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => write!(self.text, "{value:?}").expect("a string takes everything"),
            name => self.named.push((name, format!("{value:?}"))),
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for HostLog {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        fields.named.push(("target", metadata.target().to_owned()));
        let mut spans = Vec::new();
        for span in context.event_scope(event).into_iter().flatten() {
            spans.push(span.name());
            if let Some(outer) = span.extensions().get::<Fields>() {
                for (name, value) in &outer.named {
                    // The value of the innermost span counts.
                    if fields.named.iter().all(|(known, _)| known != name) {
                        fields.named.push((name, value.clone()));
                    }
                }
            }
        }
        if !spans.is_empty() {
            spans.reverse();
            fields.named.push(("span", spans.join(":")));
        }
        let named = fields.named.iter();
        let named: Vec<_> = named.map(|(name, value)| (*name, value.as_str())).collect();
        log(level(*metadata.level()), &fields.text, &named);
    }
}

fn level(level: tracing::Level) -> Level {
    match level {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::INFO => Level::Info,
        tracing::Level::DEBUG => Level::Debug,
        tracing::Level::TRACE => Level::Trace,
    }
}
