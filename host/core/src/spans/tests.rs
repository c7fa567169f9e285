//! The spans of messages that were received, attempted and settled.

use super::*;
use crate::job::samples::job;
use crate::message::{Attribute, FailureReason};
use crate::queue::ErrorKind;
use crate::telemetry::trace::{Sampler, SpanReceiver, TraceTerms};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn identity() -> Identity {
    Identity {
        name: "local:a".into(),
        source: "local:a".into(),
        visibility: Duration::from_secs(30),
        batch: 10,
        longest_wait: Duration::from_secs(20),
        proof_wait: Duration::ZERO,
        ordered_groups: false,
        deduplicates: false,
        dead_letters: false,
        most_receives: None,
        redrive_target: false,
    }
}

const TERMS: SpanTerms<'_> = SpanTerms {
    route: "orders",
    visibility: Duration::from_secs(30),
    envelope: Envelope::Sns,
    queue_url: Some("https://sqs/1/a"),
};

fn traced(terms: TraceTerms) -> (QueueSpans, SpanReceiver) {
    let (tracer, receiver) = Tracer::new(terms, 100);
    (
        QueueSpans::new(&tracer, "local", &identity(), &TERMS),
        receiver,
    )
}

fn never() -> TraceTerms {
    TraceTerms {
        sampler: Sampler {
            share: 0.0,
            follows_parent: true,
        },
        ..TraceTerms::default()
    }
}

fn sent(id: &str) -> Job {
    let mut job = job(id);
    job.message.attributes = vec![Attribute::text("traceparent", PARENT)];
    job
}

/// Attempts these jobs, with this ending for each.
fn attempt(spans: &QueueSpans, jobs: Vec<Job>, ending: &JobEnding) -> Vec<(Job, JobEnding)> {
    let began = clock::now();
    let active = spans.begin_process(&jobs, began);
    let took = Some(Duration::from_millis(1));
    let ended = jobs.into_iter().map(|mut job| {
        job.hold.took = took;
        (job, ending.clone())
    });
    let mut ended: Vec<_> = ended.collect();
    spans.end_process(active, began, &mut ended);
    ended
}

fn done() -> JobEnding {
    JobEnding::Verdict(Verdict::Done)
}

fn failed() -> JobEnding {
    JobEnding::Verdict(Verdict::Retry {
        after: None,
        why: FailureReason::Trapped("unreachable".into()),
    })
}

fn value<'a>(span: &'a Span, name: &str) -> Option<&'a SpanValue> {
    let all = span.shared.iter().chain(&span.attributes);
    let mut found = all.filter(|(own, _)| *own == name).map(|(_, value)| value);
    let one = found.next();
    assert!(found.next().is_none(), "{name} is there twice");
    one
}

#[test]
fn attempt_begins_a_trace_that_is_linked_to_its_message_or_continues_it() {
    for continues_trace in [false, true] {
        let terms = TraceTerms {
            continues_trace,
            ..TraceTerms::default()
        };
        let (spans, mut receiver) = traced(terms);
        let ended = attempt(&spans, vec![sent("a")], &done());
        let span = receiver.take(9).remove(0);
        let remote = RemoteContext::from_traceparent(PARENT).and_then(|remote| remote.span());
        let remote = remote.expect("it is one");
        assert_eq!(ended[0].0.hold.trace, Some(span.context));
        assert_eq!(&*span.name, "process local:a");
        assert_eq!(value(&span, "dispatcher.outcome"), Some(&"done".into()));
        assert_eq!(value(&span, "dispatcher.attempt"), Some(&1_u32.into()));
        let url = value(&span, "aws.sqs.queue.url");
        assert_eq!(url, Some(&SpanValue::Shared("https://sqs/1/a".into())));
        if continues_trace {
            assert_eq!(span.parent, Some(remote.span_id));
            assert_eq!(span.context.trace_id, remote.trace_id);
            assert!(span.links.is_empty());
        } else {
            assert_eq!(span.parent, None);
            assert_ne!(span.context.trace_id, remote.trace_id);
            assert_eq!(span.links[0].context, remote);
        }
    }
}

#[test]
fn attempt_belongs_to_a_trace_of_x_ray_that_names_no_span() {
    let (spans, mut receiver) = traced(TraceTerms::default());
    let mut rootless = job("a");
    let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1";
    rootless.message.system_attributes = vec![("AWSTraceHeader".into(), header.into())];
    attempt(&spans, vec![rootless], &done());
    let span = receiver.take(9).remove(0);
    let trace = span.context.trace_id.to_string();
    assert_eq!(trace, "5759e988bd862e3fe1be46a994272793");
    assert_eq!((span.parent, span.links), (None, Vec::new()));
}

#[test]
fn context_is_found_in_the_envelope_of_sns() {
    let (spans, mut receiver) = traced(TraceTerms::default());
    let mut wrapped = job("a");
    wrapped.message.body = serde_json::json!({
        "Type": "Notification",
        "TopicArn": "arn:aws:sns:us-east-1:1:t",
        "Message": "{}",
        "MessageAttributes": {"traceparent": {"Type": "String", "Value": PARENT}},
    })
    .to_string();
    let ended = attempt(&spans, vec![wrapped], &done());
    let sender = RemoteContext::from_traceparent(PARENT).and_then(|remote| remote.span());
    let linked = |span: &Span| span.links.first().map(|link| link.context);
    assert_eq!(linked(&receiver.take(9)[0]), sender);
    spans.received(clock::now(), Ok(&[ended[0].0.message.clone()]));
    assert_eq!(linked(&receiver.take(9)[0]), sender);
}

#[test]
fn batch_is_one_span_with_a_link_for_each_message_that_has_a_context() {
    let terms = TraceTerms {
        continues_trace: true,
        ..TraceTerms::default()
    };
    let (spans, mut receiver) = traced(terms);
    let jobs = vec![sent("a"), job("b"), sent("c")];
    let mut ended = attempt(&spans, jobs, &done());
    let span = receiver.take(9).remove(0);
    assert_eq!((span.parent, span.links.len()), (None, 2));
    let count = value(&span, "messaging.batch.message_count");
    assert_eq!(count, Some(&3_usize.into()));
    let ids: Vec<_> = ended.iter().map(|(job, _)| job.hold.trace).collect();
    assert_eq!(ids, [Some(span.context); 3]);
    ended[1].1 = failed();
    let began = clock::now();
    let active = spans.begin_process(&[], clock::now());
    spans.end_process(active, began, &mut ended);
    let span = receiver.take(9).remove(0);
    assert_eq!(value(&span, "dispatcher.outcome"), Some(&"mixed".into()));
    assert_eq!(value(&span, "error.type"), Some(&"trap".into()));
    // Each message has its own end.
    let of_message = |event: &SpanEvent| {
        let find = |name: &str| {
            let mut all = event.attributes.iter();
            all.find(|(own, _)| *own == name)
                .map(|(_, value)| value.clone())
        };
        ["messaging.message.id", "dispatcher.outcome", "error.type"].map(find)
    };
    let word = |word: &'static str| Some(SpanValue::Word(word));
    let id = |id: &str| Some(SpanValue::Text(id.to_owned()));
    let events: Vec<_> = span.events.iter().map(of_message).collect();
    assert_eq!(
        events,
        [
            [id("a"), word("done"), None],
            [id("b"), word("retried"), word("trap")],
            [id("c"), word("done"), None],
        ]
    );
    let attempt = ("dispatcher.attempt", 1_u32.into());
    assert!(span.events[1].attributes.contains(&attempt), "{span:?}");
}

#[test]
fn attempt_is_numbered_as_the_limit_of_attempts_counts() {
    let (spans, mut receiver) = traced(TraceTerms::default());
    let mut job = sent("a");
    // Three of its deliveries were released without an attempt, and this one had one already.
    job.message.receive_count = 5;
    (job.hold.first_attempt, job.hold.tries) = (2, 1);
    attempt(&spans, vec![job], &done());
    let span = receiver.take(9).remove(0);
    assert_eq!(value(&span, "dispatcher.attempt"), Some(&3_u32.into()));
    let receives = value(&span, "dispatcher.message.receive_count");
    assert_eq!(receives, Some(&5_u32.into()));
}

#[test]
fn what_a_large_batch_has_too_much_of_is_counted() {
    let (spans, mut receiver) = traced(TraceTerms::default());
    let jobs = (0..130).map(|number| sent(&number.to_string())).collect();
    attempt(&spans, jobs, &done());
    let span = receiver.take(9).remove(0);
    assert_eq!((span.links.len(), span.dropped_links), (128, 2));
    assert_eq!((span.events.len(), span.dropped_events), (128, 2));
}

#[test]
fn failed_attempt_is_exported_late_where_failures_are_kept() {
    for (keeps_failures, ending, exported) in [
        (false, failed(), 0),
        (true, failed(), 1),
        (true, JobEnding::Lost, 1),
        (true, done(), 0),
        (
            true,
            JobEnding::Verdict(Verdict::Busy {
                after: None,
                why: "throttled".into(),
            }),
            0,
        ),
    ] {
        let (spans, mut receiver) = traced(TraceTerms {
            keeps_failures,
            ..never()
        });
        let ended = attempt(&spans, vec![job("a")], &ending);
        let late = receiver.take(9);
        assert_eq!(late.len(), exported, "{ending:?}");
        // What follows is exported with it.
        let sampled = ended[0].0.hold.trace.map(|trace| trace.sampled);
        assert_eq!(sampled, Some(exported == 1));
    }
}

#[test]
fn attempt_that_did_not_begin_is_no_span() {
    let (spans, mut receiver) = traced(TraceTerms::default());
    let jobs = vec![job("a")];
    let active = spans.begin_process(&jobs, clock::now());
    let mut ended: Vec<_> = jobs
        .into_iter()
        .map(|job| (job, JobEnding::Returned))
        .collect();
    spans.end_process(active, clock::now(), &mut ended);
    assert_eq!(receiver.take(9), []);
}

#[test]
fn call_that_settles_one_attempt_is_below_it_and_of_several_linked_to_them() {
    let (spans, mut receiver) = traced(TraceTerms::default());
    let first = attempt(&spans, vec![job("a"), job("b")], &done());
    let second = attempt(&spans, vec![job("c")], &done());
    drop(receiver.take(9));
    let ok = Ok(());
    let settle = |jobs: &[&(Job, JobEnding)]| {
        let items = jobs.iter().map(|(job, _)| SettledItem {
            message: &job.message,
            attempt: job.hold.trace,
            end: EventKind::Done,
            result: Some(&ok),
        });
        spans.settled(clock::now(), items);
    };
    settle(&[&first[0], &first[1]]);
    let span = receiver.take(9).remove(0);
    let attempt = first[0].0.hold.trace.expect("it is traced");
    assert_eq!(span.parent, Some(attempt.span_id));
    assert_eq!(span.context.trace_id, attempt.trace_id);
    settle(&[&first[0], &second[0]]);
    let span = receiver.take(9).remove(0);
    let linked: Vec<_> = span.links.iter().map(|link| Some(link.context)).collect();
    assert_eq!(linked, [first[0].0.hold.trace, second[0].0.hold.trace]);
    assert_eq!((span.parent, span.failure), (None, None));
}

#[test]
fn settlement_that_a_queue_does_not_accept_says_why() {
    let (spans, mut receiver) = traced(TraceTerms::default());
    let refused = Err(ItemError::Transient("busy".into()));
    for (result, kind) in [(Some(&refused), "transient"), (None, "no-answer")] {
        let job = job("a");
        let item = SettledItem {
            message: &job.message,
            attempt: None,
            end: EventKind::DeadLettered,
            result,
        };
        spans.settled(clock::now(), [item].into_iter());
        let span = receiver.take(9).remove(0);
        assert!(span.failure.is_some());
        assert_eq!(value(&span, "error.type"), Some(&kind.into()));
        assert!(value(&span, "messaging.message.id").is_some());
    }
}

#[test]
fn receive_that_brings_nothing_is_no_span() {
    let (spans, mut receiver) = traced(TraceTerms::default());
    let now = clock::now();
    spans.received(now, Ok(&[]));
    assert_eq!(receiver.take(9), []);
    spans.received(now, Ok(&[sent("a").message, job("b").message]));
    let error = QueueError {
        kind: ErrorKind::Unreachable,
        message: "no route to host".to_owned(),
    };
    spans.received(now, Err(&error));
    let spans = receiver.take(9);
    assert_eq!((spans[0].links.len(), spans.len()), (1, 2));
    assert_eq!(spans[1].failure.as_deref(), Some("no route to host"));
    assert_eq!(value(&spans[1], "error.type"), Some(&"unreachable".into()));
}

#[test]
fn nothing_is_traced_where_tracing_is_off() {
    let spans = QueueSpans::new(&Tracer::default(), "local", &identity(), &TERMS);
    assert!(spans.0.is_none());
    let ended = attempt(&spans, vec![sent("a")], &failed());
    assert_eq!(ended[0].0.hold.trace, None);
}
