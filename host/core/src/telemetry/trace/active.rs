//! The span that the current thread works for: log lines have its ids, and what is begun meanwhile is
//! below it. Set for each poll of an attempt, so that nothing needs to pass it on.

use super::context::SpanContext;
use super::guest::{GuestSpan, GuestSpans};
use super::span::{Span, SpanAttribute, SpanKind, SpanLink};
use super::tracer::Tracer;
use crate::clock;
use crate::clock::BootInstant;
use std::cell::RefCell;
use std::sync::Arc;

/// A span that has not ended.
#[derive(Debug, Clone)]
pub struct ActiveSpan {
    /// Takes what is below it, if it is sampled.
    tracer: Tracer,
    /// Whether calls continue its trace, sampled or not.
    is_traced: bool,
    context: SpanContext,
    /// Which version of a plugin works on it, if that is known.
    pub version: Option<Arc<str>>,
    guest: GuestSpans,
}

thread_local! {
    static ACTIVE: RefCell<Option<ActiveSpan>> = const { RefCell::new(None) };
}

/// The span that this thread works for.
pub fn active() -> Option<ActiveSpan> {
    ACTIVE.with_borrow(Clone::clone)
}

/// Does something with the span that this thread works for.
pub fn with_active(change: impl FnOnce(&mut ActiveSpan)) {
    ACTIVE.with_borrow_mut(|active| {
        if let Some(active) = active {
            change(active);
        }
    });
}

/// Its place.
pub fn active_context() -> Option<SpanContext> {
    // A log line may be written while the thread ends.
    ACTIVE
        .try_with(|active| Some(active.try_borrow().ok()?.as_ref()?.context))
        .ok()?
}

/// Notes which version of a plugin works on the active span.
pub fn note_version(version: &Arc<str>) {
    with_active(|active| active.version = Some(version.clone()));
}

/// Does work for a span, if there is one.
pub fn within<T>(span: &mut Option<ActiveSpan>, work: impl FnOnce() -> T) -> T {
    if span.is_none() {
        return work();
    }
    exchange(span);
    let _entered = Entered(span);
    work()
}

fn exchange(span: &mut Option<ActiveSpan>) {
    ACTIVE.with_borrow_mut(|active| std::mem::swap(active, span));
}

/// Gives the thread back what it worked for before, after a panic as well.
struct Entered<'a>(&'a mut Option<ActiveSpan>);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        exchange(self.0);
    }
}

impl ActiveSpan {
    /// A span of this tracer.
    pub fn new(tracer: &Tracer, context: SpanContext) -> Self {
        // One that is not sampled records nothing, and a shared count costs more than all else of it.
        let own = context.sampled.then(|| tracer.clone());
        Self {
            tracer: own.unwrap_or_default(),
            is_traced: tracer.is_on(),
            ..Self::of(context)
        }
    }

    /// One that only names its place in log lines.
    pub fn of(context: SpanContext) -> Self {
        Self {
            tracer: Tracer::default(),
            is_traced: false,
            context,
            version: None,
            guest: GuestSpans::default(),
        }
    }

    /// Its place.
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Whether it is exported, and what is below it.
    pub fn is_exported(&self) -> bool {
        self.tracer.is_on() && self.context.sampled
    }

    /// A guest begins a span; no more than `most` are known.
    pub fn begin_guest_span(&mut self, context: &SpanContext, most: usize) {
        if self.is_exported() {
            self.guest.begin(&self.context, context, most);
        }
    }

    /// A guest has ended a span. It is dropped and counted if it is one more than `most`, which are not
    /// even read; cannot be read (`None`); or belongs to another trace.
    pub fn end_guest_span(&mut self, most: usize, read: impl FnOnce() -> Option<GuestSpan>) {
        let Some(span) = self.guest.has_room(most).then(read).flatten() else {
            self.guest.dropped += 1;
            return;
        };
        let Some((parent, span)) = self.guest.end(&self.context, span, most) else {
            return;
        };
        let mut attributes: Vec<SpanAttribute> = Vec::new();
        if span.details.cut_attributes > 0 {
            let cut = span.details.cut_attributes.into();
            attributes.push(("dispatcher.cut_attributes", cut));
        }
        let links = span.links.into_iter().map(|context| SpanLink {
            context,
            attributes: Vec::new(),
        });
        self.tracer.record(Span {
            context: span.context,
            parent: Some(parent),
            name: span.name.into(),
            kind: span.kind,
            began_ns: span.began_ns,
            ended_ns: span.ended_ns,
            shared: Arc::default(),
            attributes,
            links: links.collect(),
            dropped_links: 0,
            events: Vec::new(),
            dropped_events: 0,
            failure: span.failure,
            guest: Some(Box::new(span.details)),
        });
    }

    /// How many spans of the guest were dropped.
    pub(crate) fn dropped_guest_spans(&self) -> usize {
        self.guest.dropped
    }

    /// Begins a call that is made for this span. `start` is called only if the span is sampled.
    /// `None`: nobody traces.
    pub fn begin_call(&self, start: impl FnOnce(&Tracer) -> CallStart) -> Option<CallSpan> {
        self.is_traced.then(|| CallSpan {
            tracer: self.tracer.clone(),
            parent: self.context,
            context: self.context.child(),
            began: clock::now(),
            start: self.context.sampled.then(|| start(&self.tracer)),
        })
    }
}

/// A call of the attempt that is under way: a message is sent, a function invoked, a request made.
/// Dropped before it has ended, as at the attempt's deadline, it is recorded as cut off.
#[derive(Debug)]
pub struct CallSpan {
    tracer: Tracer,
    parent: SpanContext,
    context: SpanContext,
    began: BootInstant,
    /// What is not recorded yet; nothing of a span that is not sampled.
    start: Option<CallStart>,
}

impl CallSpan {
    /// Its place, for the headers of the call.
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Ends it. What is known of the answer is made only if the span is sampled.
    pub fn end(mut self, answer: impl FnOnce() -> CallAnswer) {
        if let Some(start) = self.start.take() {
            self.record(start, answer());
        }
    }

    fn record(&self, start: CallStart, answer: CallAnswer) {
        let mut attributes = start.attributes;
        attributes.extend(answer.attributes);
        self.tracer.record(Span {
            context: self.context,
            parent: Some(self.parent.span_id),
            name: start.name.into(),
            kind: start.kind,
            began_ns: clock::unix_nanos(self.began),
            ended_ns: clock::unix_nanos(clock::now()),
            shared: Arc::default(),
            attributes,
            links: Vec::<SpanLink>::new(),
            dropped_links: 0,
            events: Vec::new(),
            dropped_events: 0,
            failure: answer.failure,
            guest: None,
        });
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if let Some(start) = self.start.take() {
            self.record(start, CallAnswer::cut_off());
        }
    }
}

/// What is known of a call when it begins.
#[derive(Debug)]
pub struct CallStart {
    /// Its part in the exchange.
    pub kind: SpanKind,
    /// The span's name.
    pub name: String,
    /// Its attributes.
    pub attributes: Vec<SpanAttribute>,
}

/// What is known of a call when it ends.
#[derive(Debug)]
pub struct CallAnswer {
    /// More attributes.
    pub attributes: Vec<SpanAttribute>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

impl CallAnswer {
    /// Of a call whose answer nobody waits for any more.
    fn cut_off() -> Self {
        Self {
            attributes: vec![("error.type", "cut-off".into())],
            failure: Some("the attempt ended before the call".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tracer::TraceTerms;
    use super::*;

    #[test]
    fn thread_works_for_the_innermost_span_and_then_for_the_one_before() {
        let (tracer, _receiver) = Tracer::new(TraceTerms::default(), 1);
        let begin = || Some(ActiveSpan::new(&tracer, tracer.begin(None, clock::now())?));
        let (mut outer, mut inner) = (begin(), begin());
        let ids = [&outer, &inner].map(|span| span.as_ref().map(ActiveSpan::context));
        within(&mut outer, || {
            assert_eq!(active_context(), ids[0]);
            within(&mut None, || assert_eq!(active_context(), ids[0]));
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                within(&mut inner, || {
                    assert_eq!(active_context(), ids[1]);
                    panic!("of the test");
                });
            }));
            assert!(panicked.is_err());
            assert_eq!(active_context(), ids[0]);
            note_version(&"2".into());
        });
        assert_eq!(active_context(), None);
        assert_eq!(outer.and_then(|span| span.version).as_deref(), Some("2"));
        assert_eq!(inner.map(|span| span.context()), ids[1]);
    }

    fn sending(_: &Tracer) -> CallStart {
        CallStart {
            kind: SpanKind::Producer,
            name: "send a".to_owned(),
            attributes: vec![("messaging.operation.name", "send".into())],
        }
    }

    fn refused() -> CallAnswer {
        CallAnswer {
            attributes: vec![("error.type", "refused".into())],
            failure: Some("no room".to_owned()),
        }
    }

    #[test]
    fn call_of_a_sampled_span_is_a_span_below_it() {
        let (tracer, mut receiver) = Tracer::new(TraceTerms::default(), 8);
        let context = tracer.begin(None, clock::now()).expect("it is on");
        let active = ActiveSpan::new(&tracer, context);
        let call = active.begin_call(sending).expect("it is traced");
        let place = call.context();
        call.end(refused);
        let spans = receiver.take(8);
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].context, place);
        assert_eq!(spans[0].parent, Some(context.span_id));
        assert!(spans[0].began_ns <= spans[0].ended_ns);
        assert_eq!(spans[0].attributes.len(), 2);
        assert_eq!(spans[0].failure.as_deref(), Some("no room"));
        let none = ActiveSpan::of(context);
        assert!(none.begin_call(|_| panic!("nobody traces")).is_none());
        // The other side continues a trace that is not sampled.
        let sampled = false;
        let unsampled = ActiveSpan::new(&tracer, SpanContext { sampled, ..context });
        let unsampled = || unsampled.begin_call(|_| panic!("nobody wants it"));
        let call = unsampled().expect("it is traced");
        assert_eq!(call.context().trace_id, context.trace_id);
        call.end(|| panic!("nobody wants them"));
        drop(unsampled());
        assert_eq!(receiver.take(8), []);
    }

    #[test]
    fn call_that_is_dropped_before_its_end_is_a_span_that_says_so() {
        let (tracer, mut receiver) = Tracer::new(TraceTerms::default(), 8);
        let context = tracer.begin(None, clock::now()).expect("it is on");
        let active = ActiveSpan::new(&tracer, context);
        let call = active.begin_call(sending).expect("it is traced");
        let place = call.context();
        drop(call);
        let [span] = &receiver.take(8)[..] else {
            panic!("one span");
        };
        assert_eq!((span.context, &*span.name), (place, "send a"));
        assert_eq!(span.kind, SpanKind::Producer);
        let error = ("error.type", "cut-off".into());
        assert_eq!(
            span.attributes,
            [sending(&tracer).attributes, vec![error]].concat()
        );
        assert!(span.failure.is_some());
    }
}
