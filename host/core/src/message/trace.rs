//! The trace that a message belongs to: read from the trace header of X-Ray, else from W3C Trace
//! Context among the sender's attributes; written as the former. And the span of a call that sends
//! messages for nobody's attempt: moved by a schedule, or redriven.

use super::{Attribute, AttributeValue, Message, Outgoing, TRACE_HEADER};
use crate::clock;
use crate::clock::BootInstant;
use crate::telemetry::trace::{
    MOST_LINKS, RemoteContext, Span, SpanContext, SpanKind, SpanLink, Tracer, bounded_list,
};
use std::sync::Arc;

/// The attribute that has the context as W3C Trace Context writes it.
const TRACEPARENT: &str = "traceparent";

impl Message {
    /// Where the sender's span is, if the message says so.
    pub fn remote_context(&self) -> Option<RemoteContext> {
        context(self.trace_header(), &self.attributes)
    }

    /// The trace header of X-Ray, wherever its backend carries it.
    pub fn trace_header(&self) -> Option<&str> {
        let mut system = self.system_attributes.iter();
        let header = system.find(|(name, _)| name == TRACE_HEADER);
        let header = header.map(|(_, value)| value.as_str());
        header.or_else(|| text(&self.attributes, TRACE_HEADER))
    }

    /// The backend's own attributes, and the trace header where its backend carries it among the
    /// sender's: so it is found in one place, whatever the backend.
    pub fn system_attributes_with_trace(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.system_attributes.iter();
        let is_header = |(name, _): &(String, String)| name == TRACE_HEADER;
        let carried = (!self.system_attributes.iter().any(is_header))
            .then(|| text(&self.attributes, TRACE_HEADER))
            .flatten();
        own.map(|(name, value)| (&**name, &**value))
            .chain(carried.map(|header| (TRACE_HEADER, header)))
    }

    /// The text of one of the sender's attributes, in whatever case its name is.
    pub fn text_attribute(&self, name: &str) -> Option<&str> {
        text(&self.attributes, name)
    }
}

impl Outgoing {
    /// Where the span is that it belongs to, if it says so.
    pub fn remote_context(&self) -> Option<RemoteContext> {
        let header = self.trace_header.as_deref();
        let header = header.or_else(|| text(&self.attributes, TRACE_HEADER));
        context(header, &self.attributes)
    }

    /// With the trace header in its place, which a backend without system attributes, or a store of
    /// scheduled messages, has carried among the attributes.
    #[must_use]
    pub fn with_trace_header_in_place(mut self) -> Self {
        let is_header = |one: &Attribute| one.name == TRACE_HEADER;
        if self.trace_header.is_none()
            && let Some(AttributeValue::Text(header)) = self
                .attributes
                .iter()
                .find(|one| is_header(one))
                .map(|one| one.value.clone())
        {
            self.trace_header = Some(header);
            self.attributes.retain(|one| !is_header(one));
        }
        self
    }

    /// Lets it belong to this span, unless its sender has chosen another.
    pub fn trace(&mut self, context: SpanContext) {
        if self.remote_context().is_none() {
            self.trace_header = Some(context.x_ray());
        }
    }
}

/// A call that sends messages to one queue, which has begun.
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
    /// Begins it, unless nobody traces. Messages that belong to no trace belong to this one; it is
    /// linked to the others' spans.
    pub fn begin(tracer: &Tracer, messages: &mut [Outgoing]) -> Option<Self> {
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

    /// Ends it; `failures`: why messages were not sent, as `error.type` and in words. `reason` is what
    /// they are sent for.
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

/// What the trace header says, else `traceparent`. A header that names the trace alone comes last: the
/// other names a span.
fn context(header: Option<&str>, attributes: &[Attribute]) -> Option<RemoteContext> {
    let of_header = header.and_then(RemoteContext::from_x_ray);
    let is_place = |remote: &RemoteContext| remote.parent.is_some();
    of_header
        .filter(is_place)
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

    #[test]
    fn trace_header_is_a_system_attribute_wherever_it_is_carried() {
        let mut message = samples::message("a");
        message.system_attributes = vec![("SenderId".into(), "AIDA".into())];
        let listed = |message: &super::Message| {
            let all = message.system_attributes_with_trace();
            all.map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        };
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
        let traced = Outgoing {
            trace_header: Some(X_RAY.to_owned()),
            ..Outgoing::default()
        };
        let mut messages = [traced, Outgoing::default()];
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
        let sent = Outgoing {
            attributes: vec![Attribute::text("a", "1")],
            trace_header: Some(X_RAY.to_owned()),
            ..Outgoing::default()
        };
        let carried = Outgoing {
            attributes: sent.attributes_with_trace(),
            ..Outgoing::default()
        };
        assert_eq!(carried.with_trace_header_in_place(), sent);
        let plain = Outgoing::default();
        assert_eq!(plain.clone().with_trace_header_in_place(), plain);
    }

    #[test]
    fn context_that_a_sender_chose_is_kept() {
        let own = RemoteContext::from_x_ray(X_RAY).and_then(|remote| remote.span());
        let own = own.expect("it is one");
        let mut plain = Outgoing::default();
        plain.trace(own);
        assert_eq!(plain.trace_header.as_deref(), Some(X_RAY));
        let mut chosen = Outgoing {
            attributes: vec![Attribute::text("traceparent", PARENT)],
            ..Outgoing::default()
        };
        chosen.trace(own);
        assert_eq!(chosen.trace_header, None);
    }
}
