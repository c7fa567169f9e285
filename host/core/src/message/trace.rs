//! The trace that a message belongs to. It is read from the trace header of X-Ray, or else from W3C
//! Trace Context in the sender's attributes, and is written as an X-Ray header. Also the span of a
//! call that sends messages outside of an attempt: for a schedule or a redrive.

use super::{Attribute, AttributeValue, Message, OutgoingMessage, TRACE_HEADER};
use crate::clock;
use crate::clock::BootInstant;
use crate::telemetry::trace::{
    MOST_LINKS, RemoteContext, Span, SpanContext, SpanKind, SpanLink, Tracer, bounded_list,
};
use std::sync::Arc;

/// The name of the attribute with the context in the format of W3C Trace Context.
const TRACEPARENT: &str = "traceparent";

impl Message {
    /// Returns the position of the sender's span, if the message carries it.
    pub fn remote_context(&self) -> Option<RemoteContext> {
        context(self.trace_header(), &self.attributes)
    }

    /// Returns the trace header of X-Ray, whether its backend carries it as a system attribute or
    /// not.
    pub fn trace_header(&self) -> Option<&str> {
        let mut system = self.system_attributes.iter();
        let header = system
            .find(|(name, _)| name == TRACE_HEADER)
            .map(|(_, value)| value.as_str());
        header.or_else(|| text(&self.attributes, TRACE_HEADER))
    }

    /// Returns the backend's own attributes and the trace header, even if the backend carries the
    /// header among the sender's attributes. So callers find it in one place on every backend.
    pub fn system_attributes_with_trace(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.system_attributes.iter();
        let carried = (!self
            .system_attributes
            .iter()
            .any(|(name, _): &(String, String)| name == TRACE_HEADER))
        .then(|| text(&self.attributes, TRACE_HEADER))
        .flatten();
        own.map(|(name, value)| (&**name, &**value))
            .chain(carried.map(|header| (TRACE_HEADER, header)))
    }

    /// Returns the text of one of the sender's attributes. The case of the name does not matter.
    pub fn text_attribute(&self, name: &str) -> Option<&str> {
        text(&self.attributes, name)
    }
}

impl OutgoingMessage {
    /// Returns the position of the span that the message belongs to, if the message carries it.
    pub fn remote_context(&self) -> Option<RemoteContext> {
        let header = self
            .trace_header
            .as_deref()
            .or_else(|| text(&self.attributes, TRACE_HEADER));
        context(header, &self.attributes)
    }

    /// Moves the trace header from the attributes to its field. A backend without system
    /// attributes, or a store of scheduled messages, carries it among the attributes.
    #[must_use]
    pub fn with_trace_header_in_place(mut self) -> Self {
        if self.trace_header.is_none()
            && let Some(AttributeValue::Text(header)) = self
                .attributes
                .iter()
                .find(|one| one.name == TRACE_HEADER)
                .map(|one| one.value.clone())
        {
            self.trace_header = Some(header);
            self.attributes.retain(|one| one.name != TRACE_HEADER);
        }
        self
    }

    /// Attaches the message to this span, unless its sender has chosen another.
    pub fn trace(&mut self, context: SpanContext) {
        if self.remote_context().is_none() {
            self.trace_header = Some(context.x_ray());
        }
    }
}

/// The span of a call under way that sends messages to one queue.
#[derive(Debug)]
pub struct SendSpan {
    tracer: Tracer,
    context: SpanContext,
    began: BootInstant,
    links: Vec<SpanLink>,
    dropped_links: u32,
    messages: usize,
}

impl SendSpan {
    /// Begins the span, if tracing is on. Messages without a trace are attached to this span; it is
    /// linked to the spans of the others.
    pub fn begin(tracer: &Tracer, messages: &mut [OutgoingMessage]) -> Option<Self> {
        let began = tracer.is_on().then(clock::now)?;
        let context = tracer.begin(None, began)?;
        let mut linked = Vec::new();
        for message in &mut *messages {
            match message.remote_context() {
                None => message.trace(context),
                Some(remote) if context.sampled => linked.extend(remote.span()),
                Some(_) => {}
            }
        }
        let links = linked.into_iter().map(|context| SpanLink {
            context,
            attributes: Vec::new(),
        });
        let (links, dropped_links) = bounded_list(links, MOST_LINKS);
        Some(Self {
            tracer: tracer.clone(),
            context,
            began,
            links,
            dropped_links,
            messages: messages.len(),
        })
    }

    /// Ends the span. `failures` has the errors of the messages that were not sent, as `error.type`
    /// and in words. `reason` is the purpose of the messages.
    pub fn end(self, queue: &str, reason: &'static str, failures: &[(&'static str, String)]) {
        if !self.context.sampled {
            return;
        }
        let mut attributes = self.tracer.destination(queue);
        attributes.extend([
            ("messaging.operation.name", "send".into()),
            ("messaging.operation.type", "send".into()),
            ("messaging.batch.message_count", self.messages.into()),
            ("dispatcher.send.reason", reason.into()),
        ]);
        if let Some((kind, _)) = failures.first() {
            attributes.push(("dispatcher.failed_messages", failures.len().into()));
            attributes.push(("error.type", (*kind).into()));
        }
        self.tracer.record(Span {
            context: self.context,
            parent: None,
            name: format!("send {queue}").into(),
            kind: SpanKind::Producer,
            began_ns: clock::unix_nanos(self.began),
            ended_ns: clock::unix_nanos(clock::now()),
            shared: Arc::default(),
            attributes,
            links: self.links,
            dropped_links: self.dropped_links,
            events: Vec::new(),
            dropped_events: 0,
            failure: failures.first().map(|(_, why)| why.clone()),
            guest: None,
        });
    }
}

/// Returns the context of the trace header, or else of `traceparent`. A header without a span comes
/// last, because `traceparent` names a span.
fn context(header: Option<&str>, attributes: &[Attribute]) -> Option<RemoteContext> {
    let of_header = header.and_then(RemoteContext::from_x_ray);
    of_header
        .filter(|remote: &RemoteContext| remote.parent.is_some())
        .or_else(|| RemoteContext::from_traceparent(text(attributes, TRACEPARENT)?))
        .or(of_header)
}

fn text<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a str> {
    let mut attributes = attributes.iter();
    let found = attributes.find(|one| one.name.eq_ignore_ascii_case(name))?;
    match &found.value {
        AttributeValue::Text(text) => Some(text),
        AttributeValue::Binary(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::telemetry::trace::SpanValue;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const X_RAY: &str =
        "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

    #[test]
    fn trace_header_comes_before_traceparent() {
        let mut message = samples::message("a");
        assert_eq!(message.remote_context(), None);
        message.attributes = vec![Attribute::text("Traceparent", PARENT)];
        assert_eq!(
            message.remote_context(),
            RemoteContext::from_traceparent(PARENT)
        );
        message.system_attributes = vec![(TRACE_HEADER.into(), X_RAY.into())];
        assert_eq!(message.remote_context(), RemoteContext::from_x_ray(X_RAY));
        let root = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1";
        for without_a_span in ["Root=1", root] {
            message.system_attributes = vec![(TRACE_HEADER.into(), without_a_span.into())];
            assert_eq!(
                message.remote_context(),
                RemoteContext::from_traceparent(PARENT)
            );
        }
        message.attributes.clear();
        assert_eq!(message.remote_context(), RemoteContext::from_x_ray(root));
    }

    fn listed(message: &Message) -> Vec<String> {
        let all = message.system_attributes_with_trace();
        all.map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn trace_header_is_a_system_attribute_wherever_it_is_carried() {
        let mut message = samples::message("a");
        message.system_attributes = vec![("SenderId".into(), "AIDA".into())];
        assert_eq!(listed(&message), ["SenderId=AIDA"]);
        message.attributes = vec![Attribute::text("awstraceheader", "carried")];
        assert_eq!(
            listed(&message),
            ["SenderId=AIDA", "AWSTraceHeader=carried"]
        );
        message.system_attributes = vec![(TRACE_HEADER.into(), "own".into())];
        assert_eq!(listed(&message), ["AWSTraceHeader=own"]);
    }

    #[test]
    fn call_that_sends_is_linked_to_traces_and_begins_one_for_other_messages() {
        let (tracer, mut receiver) = Tracer::naming(Default::default(), 9, |_| "aws_sqs");
        let traced = OutgoingMessage {
            trace_header: Some(X_RAY.to_owned()),
            ..OutgoingMessage::default()
        };
        let mut messages = [traced, OutgoingMessage::default()];
        let span = SendSpan::begin(&tracer, &mut messages).expect("it is on");
        span.end("local:a", "schedule", &[("refused", "no room".to_owned())]);
        let span = receiver.take(9).remove(0);
        assert_eq!(messages[0].trace_header.as_deref(), Some(X_RAY));
        assert_eq!(messages[1].trace_header, Some(span.context.x_ray()));
        let linked = messages[0]
            .remote_context()
            .and_then(|remote| remote.span());
        assert_eq!(span.links.len(), 1);
        assert_eq!(Some(span.links[0].context), linked);
        assert_eq!(span.failure.as_deref(), Some("no room"));
        for attribute in [("messaging.system", "aws_sqs"), ("error.type", "refused")] {
            let (name, value) = attribute;
            let attribute = (name, SpanValue::Word(value));
            assert!(span.attributes.contains(&attribute), "{span:?}");
        }
        assert!(SendSpan::begin(&Tracer::default(), &mut messages).is_none());
    }

    #[test]
    fn trace_header_that_was_carried_among_attributes_is_put_in_its_place() {
        let sent = OutgoingMessage {
            attributes: vec![Attribute::text("a", "1")],
            trace_header: Some(X_RAY.to_owned()),
            ..OutgoingMessage::default()
        };
        let carried = OutgoingMessage {
            attributes: sent.attributes_with_trace(),
            ..OutgoingMessage::default()
        };
        assert_eq!(carried.with_trace_header_in_place(), sent);
        let plain = OutgoingMessage::default();
        assert_eq!(plain.clone().with_trace_header_in_place(), plain);
    }

    #[test]
    fn context_that_a_sender_chose_is_kept() {
        let remote = RemoteContext::from_x_ray(X_RAY).expect("it is one");
        let own = remote.span().expect("it names a span");
        let mut plain = OutgoingMessage::default();
        plain.trace(own);
        assert_eq!(plain.trace_header.as_deref(), Some(X_RAY));
        let mut chosen = OutgoingMessage {
            attributes: vec![Attribute::text("traceparent", PARENT)],
            ..OutgoingMessage::default()
        };
        chosen.trace(own);
        assert_eq!(chosen.trace_header, None);
    }
}
