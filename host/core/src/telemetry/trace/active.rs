//! The span for which the current thread works. Log lines contain its ids, and spans that begin in
//! the meantime are its children. It is set for each poll of an attempt, so it need not be passed
//! on.

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
    /// The tracer that records child spans; off if the span is not sampled.
    tracer: Tracer,
    /// Whether calls continue the trace, even if it is not sampled.
    is_traced: bool,
    context: SpanContext,
    /// The version of the plugin that works on it, if it is known.
    pub version: Option<Arc<str>>,
    guest: GuestSpans,
}

thread_local! {
    static ACTIVE: RefCell<Option<ActiveSpan>> = const { RefCell::new(None) };
}

/// Returns the span for which this thread works.
pub fn active() -> Option<ActiveSpan> {
    ACTIVE.with_borrow(Clone::clone)
}

/// Changes the span for which this thread works.
pub fn with_active(change: impl FnOnce(&mut ActiveSpan)) {
    ACTIVE.with_borrow_mut(|active| {
        if let Some(active) = active {
            change(active);
        }
    });
}

/// Returns the position of the span for which this thread works.
pub fn active_context() -> Option<SpanContext> {
    // A log line may be written while the thread ends.
    ACTIVE
        .try_with(|active| Some(active.try_borrow().ok()?.as_ref()?.context))
        .ok()?
}

/// Records the version of the plugin that works on the active span.
pub fn note_version(version: &Arc<str>) {
    with_active(|active| active.version = Some(version.clone()));
}

/// Runs `work` with this span as the active one, if there is one.
pub fn within<T>(span: &mut Option<ActiveSpan>, work: impl FnOnce() -> T) -> T {
    if span.is_none() {
        return work();
    }
    exchange(span);
    let _entered = EnteredSpan(span);
    work()
}

fn exchange(span: &mut Option<ActiveSpan>) {
    ACTIVE.with_borrow_mut(|active| std::mem::swap(active, span));
}

/// Restores the previous active span when dropped, also after a panic.
struct EnteredSpan<'a>(&'a mut Option<ActiveSpan>);

impl Drop for EnteredSpan<'_> {
    fn drop(&mut self) {
        exchange(self.0);
    }
}

impl ActiveSpan {
    /// Makes an active span of this tracer.
    pub fn new(tracer: &Tracer, context: SpanContext) -> Self {
        // A span that is not sampled records nothing, and cloning the tracer's `Arc` would cost
        // more than everything else here.
        let own = context.sampled.then(|| tracer.clone());
        Self {
            tracer: own.unwrap_or_default(),
            is_traced: tracer.is_on(),
            ..Self::of(context)
        }
    }

    /// Makes a span that only provides ids for log lines.
    pub fn of(context: SpanContext) -> Self {
        Self {
            tracer: Tracer::default(),
            is_traced: false,
            context,
            version: None,
            guest: GuestSpans::default(),
        }
    }

    /// Returns the position of the span.
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Whether the span and its children are exported.
    pub fn is_exported(&self) -> bool {
        self.tracer.is_on() && self.context.sampled
    }

    /// Records that a guest begins a span. Records at most `most` of them.
    pub fn begin_guest_span(&mut self, context: &SpanContext, most: usize) {
        if self.is_exported() {
            self.guest.begin(&self.context, context, most);
        }
    }

    /// Records a span that a guest has ended. Drops and counts it if there are `most` already (then
    /// `read` is not called), if it cannot be read (`None`), or if it belongs to another trace.
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

    /// Returns the number of guest spans that were dropped.
    pub(crate) fn dropped_guest_spans(&self) -> usize {
        self.guest.dropped
    }

    /// Begins a call on behalf of this span. Calls `start` only if the span is sampled. Returns
    /// `None` if tracing is off.
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

/// The span of a call that the attempt makes: it sends a message, invokes a function or makes a
/// request. If it is dropped before its end, for example at the attempt's deadline, it is recorded
/// as cut off.
#[derive(Debug)]
pub struct CallSpan {
    tracer: Tracer,
    parent: SpanContext,
    context: SpanContext,
    began: BootInstant,
    /// The data that is not recorded yet; `None` if the span is not sampled.
    start: Option<CallStart>,
}

impl CallSpan {
    /// Returns the position of the span, for the headers of the call.
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Ends the span. Calls `answer` only if the span is sampled.
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

/// The data of a call when it begins.
#[derive(Debug)]
pub struct CallStart {
    /// The kind of the span.
    pub kind: SpanKind,
    /// The name of the span.
    pub name: String,
    /// Its attributes.
    pub attributes: Vec<SpanAttribute>,
}

/// The data of a call when it ends.
#[derive(Debug)]
pub struct CallAnswer {
    /// More attributes.
    pub attributes: Vec<SpanAttribute>,
    /// The reason for the failure, if it failed.
    pub failure: Option<String>,
}

impl CallAnswer {
    /// Makes the answer of a call that was abandoned.
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

    fn begun(tracer: &Tracer) -> Option<ActiveSpan> {
        let context = tracer.begin(None, clock::now())?;
        Some(ActiveSpan::new(tracer, context))
    }

    #[test]
    fn thread_works_for_the_innermost_span_and_then_for_the_one_before() {
        let (tracer, _receiver) = Tracer::new(TraceTerms::default(), 1);
        let (mut outer, mut inner) = (begun(&tracer), begun(&tracer));
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
        let call = unsampled
            .begin_call(|_| panic!("nobody wants it"))
            .expect("it is traced");
        assert_eq!(call.context().trace_id, context.trace_id);
        call.end(|| panic!("nobody wants them"));
        drop(unsampled.begin_call(|_| panic!("nobody wants it")));
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
