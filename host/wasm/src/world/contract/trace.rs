//! Passes the trace of a message to guests, in the format of W3C Trace Context. Pure.

use dispatcher_core::message::Message;
use dispatcher_core::telemetry::trace::RemoteContext;

/// A position in a trace, as W3C Trace Context writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceContext {
    pub(super) traceparent: String,
    pub(super) tracestate: Option<String>,
}

impl TraceContext {
    /// Returns the position of a message, if its sender set one that can be read.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let header = message.trace_header();
        let remote = header.and_then(RemoteContext::from_x_ray);
        if let Some(span) = remote.and_then(|remote| remote.span()) {
            return Some(Self {
                traceparent: span.traceparent(),
                tracestate: None,
            });
        }
        let traceparent = message
            .text_attribute("traceparent")
            .filter(|text| RemoteContext::from_traceparent(text).is_some())?;
        Some(Self {
            traceparent: traceparent.to_owned(),
            tracestate: message.text_attribute("tracestate").map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::message::{Attribute, TRACE_HEADER, samples};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const X_RAY: &str =
        "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

    fn message(attributes: &[(&str, &str)]) -> Message {
        let attributes = attributes.iter();
        Message {
            attributes: attributes
                .map(|(name, value)| Attribute::text(*name, *value))
                .collect(),
            ..samples::message("a")
        }
    }

    fn parent(message: &Message) -> Option<String> {
        TraceContext::of(message).map(|trace| trace.traceparent)
    }

    #[test]
    fn trace_context_of_attributes_is_passed_on() {
        let with_state = message(&[("traceparent", PARENT), ("tracestate", "a=1")]);
        let trace = TraceContext::of(&with_state).expect("it has one");
        assert_eq!(trace.traceparent, PARENT);
        assert_eq!(trace.tracestate.as_deref(), Some("a=1"));
        assert_eq!(
            parent(&message(&[("Traceparent", PARENT)])).as_deref(),
            Some(PARENT)
        );
    }

    #[test]
    fn trace_header_of_x_ray_is_converted_and_comes_first() {
        let converted = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
        let mut both = message(&[("traceparent", PARENT)]);
        both.system_attributes = vec![(TRACE_HEADER.into(), X_RAY.into())];
        assert_eq!(parent(&both).as_deref(), Some(converted));
        let carried = message(&[(TRACE_HEADER, &X_RAY.replace("Sampled=1", "Sampled=0"))]);
        let unsampled = converted.replace("-01", "-00");
        assert_eq!(parent(&carried), Some(unsampled));
        both.system_attributes[0].1 = "Root=1-5759e988-bd862e3fe1be46a994272793".into();
        assert_eq!(parent(&both).as_deref(), Some(PARENT));
    }

    #[test]
    fn what_is_no_trace_context_is_none() {
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "Root=1-é",
        ] {
            let of_both = message(&[("traceparent", wrong), (TRACE_HEADER, wrong)]);
            assert_eq!(TraceContext::of(&of_both), None, "{wrong}");
        }
        let later = PARENT.replace("00-0af", "01-0af") + "-more";
        assert_eq!(parent(&message(&[("traceparent", &later)])), Some(later));
    }
}
