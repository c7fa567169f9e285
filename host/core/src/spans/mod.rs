//! The spans of one queue's messages, by the messaging conventions of OpenTelemetry: `receive` for
//! a call that brought messages, `process` for an attempt, `settle` for a call that settles. A
//! message that is only held has no span. Makes no decision about messages; does nothing if tracing
//! is off.

use crate::clock;
use crate::clock::BootInstant;
use crate::envelope::Envelope;
use crate::job::{Job, JobEnding};
use crate::message::{Message, Verdict};
use crate::queue::{Identity, ItemError, QueueError};
use crate::telemetry::events::{EventKind, ReasonKind, bounded};
use crate::telemetry::trace::{
    ActiveSpan, MOST_EVENTS, MOST_LINKS, RemoteContext, Span, SpanAttribute, SpanContext,
    SpanEvent, SpanKind, SpanLink, SpanValue, Tracer, bounded_list, server_attributes,
};
use std::sync::Arc;
use std::time::Duration;

/// The maker of one queue's spans; by default it makes none. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct QueueSpans(Option<Arc<SpanNames>>);

/// The common parts of all spans of a queue.
#[derive(Debug)]
struct SpanNames {
    tracer: Tracer,
    receive: SpanForm,
    process: SpanForm,
    settle: SpanForm,
    visibility_s: u64,
    envelope: Envelope,
}

/// The terms of a route that the spans of its queue's messages need.
#[derive(Debug, Clone, Copy)]
pub struct SpanTerms<'a> {
    /// The route's name.
    pub route: &'a str,
    /// The visibility timeout that the route receives with.
    pub visibility: Duration,
    /// The envelope of the bodies, which may contain a trace context.
    pub envelope: Envelope,
    /// The URL of an SQS queue.
    pub queue_url: Option<&'a str>,
}

#[derive(Debug)]
struct SpanForm {
    name: Arc<str>,
    kind: SpanKind,
    shared: Arc<[SpanAttribute]>,
}

/// One item of a call that settles.
#[derive(Debug, Clone, Copy)]
pub struct SettledItem<'a> {
    /// The message.
    pub message: &'a Message,
    /// The attempt's span, if one was made.
    pub attempt: Option<SpanContext>,
    /// The end of the delivery if the queue accepts the outcome.
    pub end: EventKind,
    /// The answer of the queue; `None` if its answer did not contain the item.
    pub result: Option<&'a Result<(), ItemError>>,
}

impl QueueSpans {
    /// Creates the spans of a queue of the messaging system that the conventions call `system`,
    /// from which a route receives on these terms.
    pub fn new(
        tracer: &Tracer,
        system: &'static str,
        identity: &Identity,
        terms: &SpanTerms<'_>,
    ) -> Self {
        if !tracer.is_on() {
            return Self::default();
        }
        let queue: Arc<str> = identity.name.as_str().into();
        let route: Arc<str> = terms.route.into();
        let url: Option<Arc<str>> = terms.queue_url.map(Arc::from);
        let form = |operation: &'static str, kind| {
            let mut shared = vec![
                ("messaging.system", system.into()),
                (
                    "messaging.destination.name",
                    SpanValue::Shared(queue.clone()),
                ),
                ("messaging.operation.name", operation.into()),
                ("messaging.operation.type", operation.into()),
                ("dispatcher.route", SpanValue::Shared(route.clone())),
            ];
            if let (SpanKind::Client, Some(url)) = (kind, terms.queue_url) {
                shared.extend(server_attributes(url));
            }
            let url = url.clone().map(SpanValue::Shared);
            shared.extend(url.map(|url| ("aws.sqs.queue.url", url)));
            SpanForm {
                name: format!("{operation} {queue}").into(),
                kind,
                shared: shared.into(),
            }
        };
        Self(Some(Arc::new(SpanNames {
            tracer: tracer.clone(),
            receive: form("receive", SpanKind::Client),
            process: form("process", SpanKind::Consumer),
            settle: form("settle", SpanKind::Client),
            visibility_s: terms.visibility.as_secs(),
            envelope: terms.envelope,
        })))
    }

    /// Records a call that brought these messages, or failed.
    pub(crate) fn received(&self, called: BootInstant, received: Result<&[Message], &QueueError>) {
        let Some(names) = &self.0 else { return };
        if matches!(received, Ok([])) {
            return;
        }
        let sampled = names.tracer.begin(None, called).filter(|root| root.sampled);
        let Some(context) = sampled else { return };
        let (messages, failure) = match received {
            Ok(messages) => (messages, None),
            Err(error) => (&[][..], Some(bounded(&error.to_string()))),
        };
        let mut attributes = vec![("messaging.batch.message_count", messages.len().into())];
        if let Err(error) = received {
            attributes.push(("error.type", error.kind.label().into()));
        }
        names.record(&names.receive, context, called, |span| {
            span.attributes = attributes;
            (span.links, span.dropped_links) = names.links(messages.iter());
            span.failure = failure;
        });
    }

    /// Begins the span of an attempt at these messages at `now`.
    pub fn begin_process(&self, jobs: &[Job], now: BootInstant) -> Option<ActiveSpan> {
        let names = self.0.as_deref()?;
        let continues = names.tracer.terms()?.continues_trace;
        let parent = match jobs {
            [only] if continues || names_no_span(&only.message) => names
                .remote_context(&only.message)
                .filter(|remote| continues || remote.parent.is_none()),
            _ => None,
        };
        let context = names.tracer.begin(parent.as_ref(), now)?;
        Some(ActiveSpan::new(&names.tracer, context))
    }

    /// Ends the span of an attempt, and stores its context in the jobs. If failures are kept, a
    /// failed attempt is kept even if its trace is not sampled.
    pub fn end_process(
        &self,
        span: Option<ActiveSpan>,
        began: BootInstant,
        ended: &mut [(Job, JobEnding)],
    ) {
        let (Some(names), Some(active)) = (&self.0, span) else {
            return;
        };
        let mut context = active.context();
        let keeps_failures = names
            .tracer
            .terms()
            .is_some_and(|terms| terms.keeps_failures);
        let is_begun = ended.iter().any(|(job, _)| job.hold.took.is_some());
        if !context.sampled && keeps_failures {
            let mut ends = ended.iter().map(|(_, ending)| attempt_end(ending));
            context.sampled = is_begun && ends.any(|end| end.failure.is_some());
        }
        for (job, _) in &mut *ended {
            job.hold.trace = Some(context);
        }
        if context.sampled && is_begun {
            names.record(&names.process, context, began, |span| {
                names.describe_attempt(span, &active, ended);
            });
        }
    }

    /// Records a call that settled these items.
    pub fn settled<'a>(
        &self,
        called: BootInstant,
        items: impl Iterator<Item = SettledItem<'a>> + Clone,
    ) {
        let Some(names) = &self.0 else { return };
        let mut attempts = items.clone().filter_map(|item| item.attempt);
        let first = attempts.next();
        // Checked before anything is built for the span.
        let is_sampled = first.is_some_and(|first| first.sampled)
            || attempts.clone().any(|attempt| attempt.sampled);
        if first.is_some() && !is_sampled {
            return;
        }
        let parent = first.filter(|first| attempts.all(|other| other == *first));
        let place = match (parent, first) {
            (Some(parent), _) => Some(parent.child()),
            (None, Some(_)) => names.tracer.begin(None, called).map(|root| SpanContext {
                sampled: true,
                ..root
            }),
            (None, None) => names.tracer.begin(None, called),
        };
        let Some(context) = place.filter(|place| place.sampled) else {
            return;
        };
        names.record(&names.settle, context, called, |span| {
            span.parent = parent.map(|parent| parent.span_id);
            if parent.is_none() {
                let followed = items.clone().filter_map(|item| {
                    Some(link(
                        item.message,
                        item.attempt
                            .or_else(|| names.remote_context(item.message)?.span())?,
                    ))
                });
                (span.links, span.dropped_links) = bounded_list(followed, MOST_LINKS);
            }
            describe_settlement(span, items);
        });
    }
}

impl SpanNames {
    /// Records a root span that ends now, after `describe` has filled it.
    fn record(
        &self,
        form: &SpanForm,
        context: SpanContext,
        began: BootInstant,
        describe: impl FnOnce(&mut Span),
    ) {
        let mut span = Span {
            context,
            parent: None,
            name: form.name.clone(),
            kind: form.kind,
            began_ns: clock::unix_nanos(began),
            ended_ns: clock::unix_nanos(clock::now()),
            shared: form.shared.clone(),
            attributes: Vec::new(),
            links: Vec::new(),
            dropped_links: 0,
            events: Vec::new(),
            dropped_events: 0,
            failure: None,
            guest: None,
        };
        describe(&mut span);
        self.tracer.record(span);
    }

    /// Returns the context of the sender's span, which the message or the content of its envelope
    /// names.
    fn remote_context(&self, message: &Message) -> Option<RemoteContext> {
        let own = message.remote_context();
        own.or_else(|| self.envelope.open(message)?.remote_context())
    }

    /// Returns links to the senders' spans, for messages that name one, and the number of further
    /// links.
    fn links<'a>(&self, messages: impl Iterator<Item = &'a Message>) -> (Vec<SpanLink>, u32) {
        let linked = messages
            .filter_map(|message| Some(link(message, self.remote_context(message)?.span()?)));
        bounded_list(linked, MOST_LINKS)
    }

    fn describe_attempt(&self, span: &mut Span, active: &ActiveSpan, ended: &[(Job, JobEnding)]) {
        let mut attributes = Vec::with_capacity(10);
        if let [(job, _)] = ended {
            let message = &job.message;
            match self.remote_context(message) {
                Some(remote) if remote.trace_id == span.context.trace_id => {
                    span.parent = remote.parent;
                }
                remote => {
                    let of_sender = remote.and_then(|remote| remote.span());
                    span.links
                        .extend(of_sender.map(|sender| link(message, sender)));
                }
            }
            attributes.push(("messaging.message.body.size", message.body.len().into()));
            attributes.extend(of_delivery(job));
            if let Some(group) = &message.group {
                attributes.push(("dispatcher.message.group", group.clone().into()));
            }
        } else {
            let messages = ended.iter().map(|(job, _)| &job.message);
            (span.links, span.dropped_links) = self.links(messages);
            attributes.push(("messaging.batch.message_count", ended.len().into()));
        }
        attributes.push(("dispatcher.lease.seconds", self.visibility_s.into()));
        if let Some(version) = &active.version {
            attributes.push((
                "dispatcher.plugin.version",
                SpanValue::Shared(version.clone()),
            ));
        }
        let dropped = active.dropped_guest_spans();
        if dropped > 0 {
            attributes.push(("dispatcher.dropped_spans", dropped.into()));
        }
        let ends: Vec<AttemptEnding> = ended
            .iter()
            .map(|(_, ending)| attempt_end(ending))
            .collect();
        if ended.len() > 1 {
            let at_ns = span.ended_ns;
            let events = ended.iter().zip(&ends).map(|((job, _), end)| SpanEvent {
                name: "message",
                at_ns,
                attributes: of_delivery(job)
                    .into_iter()
                    .chain(end.attributes())
                    .collect(),
            });
            (span.events, span.dropped_events) = bounded_list(events, MOST_EVENTS);
        }
        let outcome = common(ends.iter().map(|end| end.outcome));
        attributes.push(("dispatcher.outcome", outcome.into()));
        let failed = ends.iter().filter(|end| end.failure.is_some()).count();
        if ended.len() > 1 {
            attributes.push(("dispatcher.failed_messages", failed.into()));
        }
        if let Some((kind, why)) = ends.into_iter().find_map(|end| end.failure) {
            attributes.push(("error.type", kind.label().into()));
            attributes.push(("dispatcher.reason", why.clone().into()));
            span.failure = Some(why);
        }
        span.attributes = attributes;
    }
}

/// Returns the id of the message, and how often it was received and attempted.
fn of_delivery(job: &Job) -> [SpanAttribute; 3] {
    let message = &job.message;
    [
        ("messaging.message.id", message.id.clone().into()),
        (
            "dispatcher.message.receive_count",
            message.receive_count.into(),
        ),
        ("dispatcher.attempt", job.hold.attempt().into()),
    ]
}

fn describe_settlement<'a>(span: &mut Span, items: impl Iterator<Item = SettledItem<'a>> + Clone) {
    let errors = items.clone().filter_map(|item| match item.result {
        Some(Ok(())) => None,
        Some(Err(error)) => Some((error.label(), error.to_string())),
        None => Some((
            "no-answer",
            "the queue's answer did not contain it".to_owned(),
        )),
    });
    let refused: Vec<(&str, String)> = errors.collect();
    let count = items.clone().count();
    let outcome = common(items.clone().map(|item| item.end.label()));
    span.attributes
        .push(("messaging.batch.message_count", count.into()));
    span.attributes.push(("dispatcher.outcome", outcome.into()));
    let mut one = items;
    if let (Some(item), None) = (one.next(), one.next()) {
        let id = item.message.id.clone();
        span.attributes.push(("messaging.message.id", id.into()));
    }
    if let Some((kind, why)) = refused.first() {
        let why = bounded(why);
        span.attributes
            .push(("dispatcher.failed_messages", refused.len().into()));
        span.attributes.push(("error.type", (*kind).into()));
        span.failure = Some(why);
    }
}

/// Returns the common value of these, or `mixed`.
fn common(mut outcomes: impl Iterator<Item = &'static str>) -> &'static str {
    let first = outcomes.next().unwrap_or("none");
    if outcomes.all(|other| other == first) {
        first
    } else {
        "mixed"
    }
}

/// Whether a message has an X-Ray trace header that names a trace and no span in it. A link cannot
/// lead there, so an attempt belongs to that trace.
fn names_no_span(message: &Message) -> bool {
    let header = message.trace_header();
    header.is_some_and(|header| !header.contains("Parent="))
}

fn link(message: &Message, context: SpanContext) -> SpanLink {
    SpanLink {
        context,
        attributes: vec![("messaging.message.id", message.id.clone().into())],
    }
}

struct AttemptEnding {
    outcome: &'static str,
    failure: Option<(ReasonKind, String)>,
}

impl AttemptEnding {
    /// Returns the attributes of one message of a batch.
    fn attributes(&self) -> Vec<SpanAttribute> {
        let mut attributes = vec![("dispatcher.outcome", self.outcome.into())];
        if let Some((kind, why)) = &self.failure {
            attributes.push(("error.type", kind.label().into()));
            attributes.push(("dispatcher.reason", why.clone().into()));
        }
        attributes
    }
}

/// Returns how an attempt ended. An attempt that the downstream throttled did not fail: the message
/// is attempted again.
fn attempt_end(ending: &JobEnding) -> AttemptEnding {
    let (outcome, failure) = match ending {
        JobEnding::Verdict(Verdict::Done) => ("done", None),
        JobEnding::Verdict(Verdict::Retry { why, .. }) => {
            ("retried", Some((why.kind(), why.to_string())))
        }
        JobEnding::Verdict(Verdict::Reject(why)) => {
            ("rejected", Some((ReasonKind::Rejected, why.clone())))
        }
        JobEnding::Verdict(Verdict::Busy { .. }) => ("throttled", None),
        JobEnding::Verdict(Verdict::Closed(_)) => ("closed", None),
        JobEnding::Lost => (
            "lost",
            Some((ReasonKind::LeaseLost, "the lease was lost".to_owned())),
        ),
        JobEnding::Cancelled => ("cancelled", None),
        JobEnding::Interrupted | JobEnding::Abandoned(_) => ("stopped", None),
        JobEnding::Returned
        | JobEnding::Behind(_)
        | JobEnding::Deferred(_)
        | JobEnding::AlreadyDone
        | JobEnding::Exhausted(_)
        | JobEnding::Unreadable(_)
        | JobEnding::Shed
        | JobEnding::Filtered => ("released", None),
    };
    AttemptEnding {
        outcome,
        failure: failure.map(|(kind, why)| (kind, bounded(&why))),
    }
}

#[cfg(test)]
mod tests;
