//! Shows each call of a guest to the host with its arguments, result and duration. Reads the events
//! that generated bindings emit; knows no interface.

use super::log::Screen;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::escape::steers;
use std::fmt::{self, Write};
use std::io::Write as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// The name of a call's span in the bindings.
const CALL: &str = "wit-bindgen import";
/// The maximum number of characters of one call's arguments, and of its result.
const SHOWN: usize = 200;

/// A layer that writes one line for each call that ends.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) screen: Screen,
    /// Whether lines are JSON instead of text.
    pub(super) json: bool,
}

/// An outstanding call.
#[derive(Default)]
struct OpenCall {
    interface: String,
    function: String,
    arguments: String,
    result: Option<String>,
    began: BootInstant,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Calls {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        let (Some(span), true) = (context.span(id), metadata.name() == CALL) else {
            return;
        };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let interface = fields.take("module");
        span.extensions_mut().insert(OpenCall {
            interface: match package(metadata.target()) {
                Some(package) => format!("{package}/{interface}"),
                None => interface,
            },
            function: function(&fields.take("function")),
            began: clock::now(),
            ..OpenCall::default()
        });
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(span) = context.event_span(event) else {
            return;
        };
        // The host emits separate events for its work during the call.
        if span.metadata().target() != event.metadata().target() {
            return;
        }
        let mut extensions = span.extensions_mut();
        let Some(call) = extensions.get_mut::<OpenCall>() else {
            return;
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        match fields.take("message").as_str() {
            "call" => call.arguments = fields.listed(),
            _ => call.result = Some(answer(&call.interface, &fields.take("result"))),
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id);
        let call = span.and_then(|span| span.extensions_mut().remove::<OpenCall>());
        if let Some(call) = call {
            let line = self.line(&call);
            // There is no way to report a failure here.
            let _ = self.screen.make_writer().write_all(line.as_bytes());
        }
    }
}

impl Calls {
    fn line(&self, call: &OpenCall) -> String {
        let took = clock::now().since(call.began);
        let OpenCall {
            interface,
            function,
            arguments,
            result,
            ..
        } = call;
        let us = took.as_micros();
        if self.json {
            let line = serde_json::json!({
                "target": "call", "interface": interface, "function": function,
                "arguments": arguments, "result": result, "took_us": us,
            });
            return format!("{line}\n");
        }
        let result = result.as_deref().unwrap_or("no answer");
        format!("{us:>8} µs  {interface} {function}({arguments}) → {result}\n")
    }
}

/// Returns the WIT package of generated bindings by the path of their module: `wasi:clocks` for
/// `…::wasi::clocks::wall_clock`.
fn package(target: &str) -> Option<String> {
    let mut parts = target.rsplit("::").skip(1);
    let (package, namespace) = (parts.next()?, parts.next()?);
    Some(format!("{namespace}:{}", package.replace('_', "-")))
}

/// Returns the readable name of a function: `bucket.get` for `[method]bucket.get`, `new bucket` for
/// `[constructor]bucket`.
fn function(name: &str) -> String {
    match name.strip_prefix('[').and_then(|name| name.split_once(']')) {
        Some(("constructor", name)) => format!("new {name}"),
        Some((_, name)) => name.to_owned(),
        None => name.to_owned(),
    }
}

/// Returns the result that the guest received. For other interfaces than the program's own, removes
/// the outer `Ok`, which says that the host did not trap. The host never traps in the program's own
/// interfaces.
fn answer(interface: &str, result: &str) -> String {
    let own = interface.starts_with("dispatcher:");
    let opened = if !own {
        result.strip_prefix("Ok(")
    } else {
        None
    };
    let got = opened.map(|got| got.strip_suffix(')').unwrap_or(got));
    got.unwrap_or(result).to_owned()
}

/// Replaces the engine's text for a handle with a short one, for example `#3`.
fn with_short_handles(mut text: &str) -> String {
    let mut out = String::new();
    while let Some((before, after)) = text.split_once("Resource { rep: ") {
        let end = after.find(|letter: char| !letter.is_ascii_digit());
        let (number, after) = after.split_at(end.unwrap_or(after.len()));
        out += before;
        out += &format!("#{number}");
        text = after.split_once(" }").map_or("", |(_, after)| after);
    }
    out + text
}

/// The fields of a span or an event, shortened and escaped.
#[derive(Default)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn take(&mut self, name: &str) -> String {
        let at = self.0.iter().position(|(field, _)| *field == name);
        at.map(|at| self.0.remove(at).1).unwrap_or_default()
    }

    fn listed(&self) -> String {
        let all: Vec<_> = self
            .0
            .iter()
            .map(|(name, value)| match *name {
                "self_" => value.clone(),
                _ => format!("{name}: {value}"),
            })
            .collect();
        all.join(", ")
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = BoundedText::default();
        // The write fails when the limit is reached.
        let _ = write!(text, "{value:?}");
        let mut shown = with_short_handles(&text.text);
        if text.cut {
            shown.push('…');
        }
        self.0.push((field.name(), shown));
    }
}

/// The beginning of a text, with control characters escaped.
#[derive(Default)]
struct BoundedText {
    text: String,
    taken: usize,
    cut: bool,
}

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if self.taken == SHOWN {
                self.cut = true;
                return Err(fmt::Error);
            }
            self.taken += 1;
            if steers(letter) {
                self.text.extend(letter.escape_default())
            } else {
                self.text.push(letter)
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_arguments_are_bounded_and_escaped() {
        let mut text = BoundedText::default();
        assert!(write!(text, "{}", "x".repeat(SHOWN + 1)).is_err());
        assert!(text.cut && text.text.len() == SHOWN);
        let mut text = BoundedText::default();
        assert!(write!(text, "a\u{1b}[2J\u{202e}").is_ok());
        assert_eq!(text.text, "a\\u{1b}[2J\\u{202e}");
    }

    #[test]
    fn traced_call_reads_like_its_source() {
        assert_eq!(function("[method]bucket.get"), "bucket.get");
        assert_eq!(function("[constructor]fields"), "new fields");
        assert_eq!(function("now"), "now");
        let handles = r#"Some(Resource { rep: 12, state: "borrow" }), Resource { rep: 3, st"#;
        assert_eq!(with_short_handles(handles), "Some(#12), #3");
        assert_eq!(answer("wasi:clocks/wall-clock", "Ok(7)"), "7");
        assert_eq!(answer("wasi:http/types", "Ok(Ok(\"x…"), "Ok(\"x…");
        assert_eq!(answer("dispatcher:plugin/queues", "Ok(7)"), "Ok(7)");
    }

    #[test]
    fn interface_is_named_with_its_package() {
        let target = "wasmtime_wasi::p2::bindings::async_io::wasi::clocks::wall_clock";
        assert_eq!(package(target).as_deref(), Some("wasi:clocks"));
        assert_eq!(package("alone"), None);
    }
}
