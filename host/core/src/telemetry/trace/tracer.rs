//! Creates spans and passes ended ones to the exporter through a bounded queue. Nothing waits for
//! an exporter.

use super::context::{RemoteContext, SpanContext, SpanId, TraceId};
use super::sampler::Sampler;
use super::span::{Span, SpanAttribute};
use crate::clock;
use crate::clock::BootInstant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The settings of tracing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TraceTerms {
    /// The sampler, which decides which traces are exported.
    pub sampler: Sampler,
    /// Whether failed attempts are exported even if their traces are not sampled.
    pub keeps_failures: bool,
    /// Whether the attempt at a single message is a child of the span that sent the message, in its
    /// trace. Otherwise the attempt begins a trace that is linked to that span.
    pub continues_trace: bool,
}

/// A creator of spans; the default one creates none. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<SpanQueue>>);

/// A function that returns the conventions' name of the messaging system of a queue, or an empty
/// text if it is unknown.
pub type SystemOfQueue = fn(&str) -> &'static str;

#[derive(Debug)]
struct SpanQueue {
    terms: TraceTerms,
    systems: SystemOfQueue,
    date: CachedDate,
    sender: Sender<Span>,
    capacity: usize,
    shared: Arc<QueueState>,
}

/// The maximum number of bytes of waiting spans.
const MOST_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
struct QueueState {
    /// The approximate number of bytes of the waiting spans.
    bytes: AtomicUsize,
    dropped: AtomicU64,
    half_full: Notify,
}

/// The receiver of ended spans.
#[derive(Debug)]
pub struct SpanReceiver {
    receiver: Receiver<Span>,
    shared: Arc<QueueState>,
}

impl Tracer {
    /// Makes a tracer that keeps at most `capacity` spans, and at most 8 MiB of them, for the
    /// receiver. More spans are dropped and counted.
    pub fn new(terms: TraceTerms, capacity: usize) -> (Self, SpanReceiver) {
        Self::naming(terms, capacity, |_| "")
    }

    /// Makes a tracer that also knows the names of the messaging systems of queues.
    pub fn naming(
        terms: TraceTerms,
        capacity: usize,
        systems: SystemOfQueue,
    ) -> (Self, SpanReceiver) {
        let capacity = capacity.max(1);
        let (sender, receiver) = channel(capacity);
        let shared = Arc::<QueueState>::default();
        let tracer = SpanQueue {
            terms,
            systems,
            date: CachedDate::default(),
            sender,
            capacity,
            shared: shared.clone(),
        };
        (
            Self(Some(Arc::new(tracer))),
            SpanReceiver { receiver, shared },
        )
    }

    /// Whether tracing is on.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the settings; `None` if tracing is off.
    pub fn terms(&self) -> Option<&TraceTerms> {
        self.0.as_deref().map(|queue| &queue.terms)
    }

    /// Returns the attributes that name the destination of messages.
    pub fn destination(&self, queue: &str) -> Vec<SpanAttribute> {
        let system = self.0.as_deref().map_or("", |own| (own.systems)(queue));
        let mut attributes = vec![("messaging.destination.name", queue.to_owned().into())];
        if !system.is_empty() {
            attributes.push(("messaging.system", system.into()));
        }
        attributes
    }

    /// Returns the position of a span that begins at `now`, as a child of `parent` if there is one.
    /// Decides on sampling.
    pub fn begin(&self, parent: Option<&RemoteContext>, now: BootInstant) -> Option<SpanContext> {
        let own = self.0.as_deref()?;
        let trace_id = match parent {
            Some(parent) => parent.trace_id,
            None => new_trace_id(own.date.seconds(now)),
        };
        Some(SpanContext {
            trace_id,
            span_id: new_span_id(),
            sampled: own.terms.sampler.samples(parent, trace_id),
        })
    }

    /// Records a span that has ended. Never waits.
    pub fn record(&self, span: Span) {
        let Some(queue) = &self.0 else { return };
        let shared = &queue.shared;
        let size = span.size();
        let bytes = shared.bytes.fetch_add(size, Relaxed).saturating_add(size);
        if bytes > MOST_BYTES || queue.sender.try_send(span).is_err() {
            shared.bytes.fetch_sub(size, Relaxed);
            shared.dropped.fetch_add(1, Relaxed);
        }
        if queue.sender.capacity() <= queue.capacity / 2 || bytes >= MOST_BYTES / 2 {
            shared.half_full.notify_one();
        }
    }
}

impl SpanContext {
    /// Makes the position of a child span, which is sampled as this span is.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            span_id: new_span_id(),
            ..*self
        }
    }
}

impl SpanReceiver {
    /// Waits until half of the capacity is used.
    pub async fn half_full(&self) {
        self.shared.half_full.notified().await;
    }

    /// Takes up to `most` spans.
    pub fn take(&mut self, most: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        while spans.len() < most
            && let Ok(span) = self.receiver.try_recv()
        {
            self.shared.bytes.fetch_sub(span.size(), Relaxed);
            spans.push(span);
        }
        spans
    }

    /// Returns how many spans were dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.shared.dropped.swap(0, Relaxed)
    }
}

/// The date in whole seconds. The system clock is read once a second, because reading it takes
/// longer than all other steps to begin a trace.
#[derive(Debug, Default)]
struct CachedDate(AtomicU64);

impl CachedDate {
    /// Returns the seconds since the Unix epoch at `now`.
    fn seconds(&self, now: BootInstant) -> u32 {
        // The upper half is the second at which the date was read. It is never zero, because zero
        // means that the date was not read yet.
        let second = now.since(BootInstant::default()).as_secs() + 1;
        let cached = self.0.load(Relaxed);
        if cached >> 32 == second & 0xffff_ffff {
            return (cached & 0xffff_ffff) as u32;
        }
        let date = clock::wall_clock_now().0 / 1_000;
        self.0.store(second << 32 | date & 0xffff_ffff, Relaxed);
        (date & 0xffff_ffff) as u32
    }
}

/// Makes a trace id. It begins with the date, as X-Ray requires; the rest is random, as samplers
/// require.
fn new_trace_id(seconds: u32) -> TraceId {
    // The id is not zero: the date never is, and 96 random bits hardly ever are.
    let random = fastrand::u128(..) >> 32;
    TraceId((u128::from(seconds) << 96 | random).to_be_bytes())
}

fn new_span_id() -> SpanId {
    SpanId(fastrand::u64(..).max(1).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::span::SpanKind;
    use super::*;

    fn span(context: SpanContext) -> Span {
        Span {
            context,
            parent: None,
            name: "process a".into(),
            kind: SpanKind::Consumer,
            began_ns: 1,
            ended_ns: 2,
            shared: Arc::new([]),
            attributes: Vec::new(),
            links: Vec::new(),
            dropped_links: 0,
            events: Vec::new(),
            dropped_events: 0,
            failure: None,
            guest: None,
        }
    }

    #[test]
    fn spans_beyond_the_capacity_are_dropped_and_counted() {
        let (tracer, mut receiver) = Tracer::new(TraceTerms::default(), 4);
        let context = tracer.begin(None, clock::now()).expect("it is on");
        for _ in 0..7 {
            tracer.record(span(context));
        }
        assert_eq!(receiver.take(3).len(), 3);
        assert_eq!(receiver.take(3).len(), 1);
        assert_eq!([receiver.take_dropped(), receiver.take_dropped()], [3, 0]);
    }

    #[test]
    fn spans_beyond_the_bytes_are_dropped_and_counted() {
        let (tracer, mut receiver) = Tracer::new(TraceTerms::default(), 4_096);
        let context = tracer.begin(None, clock::now()).expect("it is on");
        let large = Span {
            failure: Some("x".repeat(MOST_BYTES / 4)),
            ..span(context)
        };
        for _ in 0..5 {
            tracer.record(large.clone());
        }
        assert_eq!(
            receiver.take(9).len(),
            3,
            "the fourth is a little too large"
        );
        assert_eq!(receiver.take_dropped(), 2);
        tracer.record(large);
        assert_eq!(receiver.take(9).len(), 1, "what was taken makes room");
    }

    #[tokio::test]
    async fn receiver_is_woken_when_half_of_the_room_is_taken() {
        let (tracer, receiver) = Tracer::new(TraceTerms::default(), 4);
        let context = tracer.begin(None, clock::now()).expect("it is on");
        tracer.record(span(context));
        let mut woken = std::pin::pin!(receiver.half_full());
        let mut poll = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(woken.as_mut().poll(&mut poll).is_pending());
        tracer.record(span(context));
        woken.await;
    }

    #[test]
    fn trace_ids_begin_with_the_date_and_children_stay_in_their_trace() {
        let (tracer, _receiver) = Tracer::new(TraceTerms::default(), 1);
        let root = tracer.begin(None, clock::now()).expect("it is on");
        let [a, b, c, d, ..] = root.trace_id.0;
        let seconds = u64::from(u32::from_be_bytes([a, b, c, d]));
        assert!(seconds.abs_diff(clock::wall_clock_now().0 / 1_000) < 60);
        let child = root.child();
        assert_eq!(child.trace_id, root.trace_id);
        assert!(child.span_id != root.span_id && child.sampled);
        let remote = RemoteContext {
            trace_id: root.trace_id,
            parent: Some(root.span_id),
            sampled: true,
            is_decided: true,
        };
        let below = tracer.begin(Some(&remote), clock::now()).expect("it is on");
        assert_eq!(below.trace_id, root.trace_id);
        assert!(Tracer::default().begin(None, clock::now()).is_none());
    }
}
