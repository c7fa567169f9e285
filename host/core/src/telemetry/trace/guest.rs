//! The spans that a guest makes of its work. They are below the span of its attempt, in its trace,
//! and bounded in number and size.

use super::context::{SpanContext, SpanId};
use super::span::{LONGEST_TEXT, MOST_EVENTS, MOST_LINKS, SpanKind, SpanValue};

/// The maximum number of attributes of a span or an event, by the specification.
const MOST_ATTRIBUTES: usize = 128;
/// The maximum length of an attribute's key, in bytes.
const LONGEST_KEY: usize = 256;
/// The maximum number of bytes of one span's texts, because as many spans may wait for a collector
/// as the queue has room for.
const LARGEST: usize = 32 << 10;

/// A span as described by a guest.
#[derive(Debug)]
pub struct GuestSpan {
    /// The position, chosen by the guest.
    pub context: SpanContext,
    /// The parent span: one of the guest's own, or else the attempt's.
    pub parent: Option<SpanId>,
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: SpanKind,
    /// The start, in nanoseconds since the Unix epoch.
    pub began_ns: u64,
    /// The end, in nanoseconds since the Unix epoch.
    pub ended_ns: u64,
    /// Spans that this span follows from.
    pub links: Vec<SpanContext>,
    /// The reason for the failure, if it failed.
    pub failure: Option<String>,
    /// The other data.
    pub details: GuestDetails,
}

/// The data that only spans of guests have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GuestDetails {
    /// The library that made the span.
    pub scope: String,
    /// Its attributes.
    pub attributes: Vec<GuestAttribute>,
    /// The events of the span.
    pub events: Vec<GuestEvent>,
    /// Whether the guest marked the span as a success.
    pub is_ok: bool,
    /// The number of attributes, including those of events, that were too long and were cut.
    pub cut_attributes: u32,
    /// The number of dropped attributes.
    pub dropped_attributes: u32,
    /// The number of dropped events.
    pub dropped_events: u32,
    /// The number of dropped links.
    pub dropped_links: u32,
}

impl GuestDetails {
    /// Returns the approximate number of bytes of memory that the data takes.
    pub(super) fn size(&self) -> usize {
        let events = self.events.iter().map(|event| {
            size_of::<GuestEvent>() + event.name.len() + size_of_all(&event.attributes)
        });
        size_of::<Self>() + self.scope.len() + size_of_all(&self.attributes) + events.sum::<usize>()
    }
}

fn size_of_all(attributes: &[GuestAttribute]) -> usize {
    let texts: usize = attributes
        .iter()
        .map(|(key, value)| key.len() + value.text_bytes())
        .sum();
    texts + size_of_val(attributes)
}

/// A key and its value.
pub type GuestAttribute = (String, SpanValue);

/// An event during a span.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestEvent {
    /// The name.
    pub name: String,
    /// The time, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// Its attributes.
    pub attributes: Vec<GuestAttribute>,
    /// The number of dropped attributes.
    pub dropped_attributes: u32,
}

/// The spans that a guest has begun and ended in one attempt.
#[derive(Debug, Clone, Default)]
pub(super) struct GuestSpans {
    begun: Vec<SpanId>,
    taken: usize,
    pub(super) dropped: usize,
}

impl GuestSpans {
    /// Records that a span begins. Records at most `most` of them.
    pub(super) fn begin(&mut self, attempt: &SpanContext, context: &SpanContext, most: usize) {
        if context.trace_id == attempt.trace_id && self.begun.len() < most {
            self.begun.push(context.span_id);
        }
    }

    /// Whether another span is accepted.
    pub(super) fn has_room(&self, most: usize) -> bool {
        self.taken < most
    }

    /// Accepts a span that has ended, within its bounds, and returns its parent and the span. Drops
    /// it and returns `None` if it belongs to another trace or there are `most` already.
    pub(super) fn end(
        &mut self,
        attempt: &SpanContext,
        mut span: GuestSpan,
        most: usize,
    ) -> Option<(SpanId, GuestSpan)> {
        let own = span.context;
        let is_here = own.trace_id == attempt.trace_id && own.span_id != attempt.span_id;
        if !is_here || !self.has_room(most) {
            self.dropped += 1;
            return None;
        }
        self.taken += 1;
        let parent = span
            .parent
            .filter(|parent: &SpanId| self.begun.contains(parent) && *parent != own.span_id)
            .unwrap_or(attempt.span_id);
        span.bound();
        Some((parent, span))
    }
}

impl GuestSpan {
    /// Cuts texts that are too long, drops items beyond the limits, and counts both.
    fn bound(&mut self) {
        let mut left = LARGEST;
        cut(&mut self.name, LONGEST_KEY);
        if let Some(failure) = &mut self.failure {
            cut(failure, LONGEST_TEXT);
            left -= failure.len();
        }
        let details = &mut self.details;
        cut(&mut details.scope, LONGEST_KEY);
        more(
            &mut details.dropped_links,
            beyond(&mut self.links, MOST_LINKS),
        );
        let mut all = Attributes { left, cut: 0 };
        let dropped = all.bound(&mut details.attributes);
        more(&mut details.dropped_attributes, dropped);
        let dropped = beyond(&mut details.events, MOST_EVENTS);
        more(&mut details.dropped_events, dropped);
        for event in &mut details.events {
            cut(&mut event.name, LONGEST_KEY);
            more(
                &mut event.dropped_attributes,
                all.bound(&mut event.attributes),
            );
        }
        details.cut_attributes = all.cut;
    }
}

/// The attributes of one span.
struct Attributes {
    /// The number of bytes left for further attributes.
    left: usize,
    /// The number of attributes that were cut.
    cut: u32,
}

impl Attributes {
    /// Cuts long texts. Drops attributes beyond the limit, with keys that are too long, or for
    /// which no bytes are left. Returns the number of dropped attributes.
    fn bound(&mut self, attributes: &mut Vec<GuestAttribute>) -> u32 {
        let mut dropped = beyond(attributes, MOST_ATTRIBUTES);
        attributes.retain_mut(|(key, value)| {
            let mut needed = key.len();
            let mut is_cut = false;
            if let SpanValue::Text(text) = value {
                is_cut = text.len() > LONGEST_TEXT;
                cut(text, LONGEST_TEXT);
                needed += text.len();
            }
            let fits = key.len() <= LONGEST_KEY && needed <= self.left;
            if fits {
                self.left -= needed;
                self.cut += u32::from(is_cut);
            } else {
                dropped += 1;
            }
            fits
        });
        dropped
    }
}

fn beyond<T>(all: &mut Vec<T>, most: usize) -> u32 {
    let dropped = all.len().saturating_sub(most);
    all.truncate(most);
    all.shrink_to_fit();
    count(dropped)
}

/// Adds to a count. It comes from the guest and may have any value.
fn more(count: &mut u32, dropped: u32) {
    *count = count.saturating_add(dropped);
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn cut(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::super::context::TraceId;
    use super::*;

    fn context(trace: u8, span: u8) -> SpanContext {
        SpanContext {
            trace_id: TraceId([trace; 16]),
            span_id: SpanId([span; 8]),
            sampled: true,
        }
    }

    fn span(context: SpanContext, parent: Option<SpanId>) -> GuestSpan {
        GuestSpan {
            context,
            parent,
            name: "load".to_owned(),
            kind: SpanKind::Internal,
            began_ns: 1,
            ended_ns: 2,
            links: Vec::new(),
            failure: None,
            details: GuestDetails::default(),
        }
    }

    #[test]
    fn span_is_below_one_that_the_guest_began_or_else_below_the_attempt() {
        let attempt = context(1, 1);
        let mut spans = GuestSpans::default();
        spans.begin(&attempt, &context(1, 2), 9);
        spans.begin(&attempt, &context(2, 3), 9);
        let mut parent = |parent: u8| {
            let span = span(context(1, 9), Some(SpanId([parent; 8])));
            spans.end(&attempt, span, 9).map(|(parent, _)| parent)
        };
        assert_eq!(parent(2), Some(SpanId([2; 8])));
        for other in [1, 3, 7] {
            assert_eq!(parent(other), Some(attempt.span_id), "{other}");
        }
    }

    #[test]
    fn span_of_another_trace_and_more_than_granted_are_dropped_and_counted() {
        let attempt = context(1, 1);
        let mut spans = GuestSpans::default();
        let mut is_taken = |context| spans.end(&attempt, span(context, None), 2).is_some();
        let taken = [context(2, 2), context(1, 1), context(1, 2)].map(&mut is_taken);
        assert_eq!(taken, [false, false, true]);
        assert_eq!([context(1, 3), context(1, 4)].map(is_taken), [true, false]);
        assert_eq!(spans.dropped, 3);
    }

    #[test]
    fn counts_that_a_guest_gives_do_not_overflow() {
        let mut full = span(context(1, 2), None);
        full.links = vec![context(3, 3); MOST_LINKS + 1];
        full.details.attributes =
            vec![("key".to_owned(), SpanValue::Flag(true)); MOST_ATTRIBUTES + 1];
        for count in [
            &mut full.details.dropped_links,
            &mut full.details.dropped_attributes,
            &mut full.details.dropped_events,
        ] {
            *count = u32::MAX;
        }
        let ended = GuestSpans::default().end(&context(1, 1), full, 1);
        let details = ended.expect("it is taken").1.details;
        assert_eq!(
            (details.dropped_links, details.dropped_attributes),
            (u32::MAX, u32::MAX)
        );
    }

    #[test]
    fn span_is_cut_to_its_bounds_and_what_is_dropped_is_counted() {
        let attributes: Vec<GuestAttribute> = (0..200)
            .map(|number| (format!("key-{number}"), "x".repeat(100).into()))
            .collect();
        let mut large = span(context(1, 2), None);
        large.name = "é".repeat(1_000);
        large.links = vec![context(3, 3); 200];
        large.details.attributes = attributes.clone();
        large.details.attributes[0].0 = "k".repeat(300);
        large.details.attributes[1].1 = SpanValue::Text("x".repeat(10_000));
        let event = GuestEvent {
            name: "e".to_owned(),
            at_ns: 1,
            attributes,
            dropped_attributes: 0,
        };
        large.details.events = vec![event; 200];
        let ended = GuestSpans::default().end(&context(1, 1), large, 1);
        let (_, bounded) = ended.expect("it is taken");
        assert_eq!((bounded.name.len(), bounded.links.len()), (256, 128));
        let details = bounded.details;
        assert_eq!(
            (details.attributes.len(), details.dropped_attributes),
            (127, 73)
        );
        assert_eq!((details.events.len(), details.dropped_events), (128, 72));
        assert_eq!(details.cut_attributes, 1);
        let of_events = details.events.iter().flat_map(|event| &event.attributes);
        let sizes = details.attributes.iter().chain(of_events);
        let all: usize = sizes
            .map(|(key, value)| match value {
                SpanValue::Text(text) => key.len() + text.len(),
                other => panic!("{other:?}"),
            })
            .sum();
        assert!((LARGEST - 200..=LARGEST).contains(&all), "{all}");
        assert_eq!(details.dropped_links, 72);
    }
}
