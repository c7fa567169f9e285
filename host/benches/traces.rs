//! What tracing costs for one message: its attempt begins, is polled, ends and is settled; without the
//! code that traces, with tracing off, with a trace that is not sampled, and with two spans that are, in
//! one run.
//! `cargo bench --bench traces`. Nothing is exported; prints and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use dispatcher_core::clock;
use dispatcher_core::envelope::Envelope;
use dispatcher_core::job::{Job, JobEnding, samples};
use dispatcher_core::message::{Attribute, Verdict};
use dispatcher_core::queue::Identity;
use dispatcher_core::spans::{QueueSpans, SettledItem, SpanTerms};
use dispatcher_core::telemetry::events::EventKind;
use dispatcher_core::telemetry::trace::{Sampler, SpanReceiver, TraceTerms, Tracer, within};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Messages of one measurement.
const MESSAGES: u32 = 100_000;
/// The quickest of so many counts.
const ROUNDS: usize = 5;
/// More spans than wait at once.
const CAPACITY: usize = 4_096;
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn spans(tracer: &Tracer) -> QueueSpans {
    let identity = Identity {
        name: "local:orders".into(),
        source: "local:orders".into(),
        visibility: Duration::from_secs(30),
        batch: 10,
        longest_wait: Duration::from_secs(20),
        proof_wait: Duration::ZERO,
        ordered_groups: false,
        deduplicates: false,
        dead_letters: false,
        most_receives: None,
        redrive_target: false,
    };
    let visibility = Duration::from_secs(30);
    let terms = SpanTerms {
        route: "orders",
        visibility,
        envelope: Envelope::None,
        queue_url: None,
    };
    QueueSpans::new(tracer, "local", &identity, &terms)
}

fn tracer(share: f64) -> (Tracer, SpanReceiver) {
    let sampler = Sampler {
        share,
        follows_parent: true,
    };
    let terms = TraceTerms {
        sampler,
        ..TraceTerms::default()
    };
    Tracer::new(terms, CAPACITY)
}

/// A message through an attempt and its settlement.
fn message(spans: &QueueSpans, job: Job) -> Job {
    let jobs = [job];
    let began = clock::now();
    let mut active = spans.begin_process(&jobs, began);
    within(&mut active, || black_box(&jobs));
    let mut ended = jobs.map(|job| (job, JobEnding::Verdict(Verdict::Done)));
    spans.end_process(active, began, &mut ended);
    let ok = Ok(());
    let settled = ended.iter().map(|(job, _)| SettledItem {
        message: &job.message,
        attempt: job.hold.trace,
        end: EventKind::Done,
        result: Some(&ok),
    });
    spans.settled(began, settled);
    let [(job, _)] = ended;
    job
}

/// The same without anything that traces.
fn bare(job: Job) -> Job {
    let jobs = [job];
    black_box(clock::now());
    black_box(&jobs);
    let ended = jobs.map(|job| (job, JobEnding::Verdict(Verdict::Done)));
    black_box(&ended);
    let [(job, _)] = ended;
    job
}

/// Nanoseconds a message with this tracer.
fn traced(tracer: &Tracer, receiver: Option<SpanReceiver>) -> f64 {
    let spans = spans(tracer);
    measure(|job| message(&spans, job), receiver)
}

/// Nanoseconds a message.
fn measure(step: impl Fn(Job) -> Job, mut receiver: Option<SpanReceiver>) -> f64 {
    let mut job = samples::job("5f0c7a52-58a9-4c27-9d7c-5ce0a2f6a7b1");
    job.message.attributes = vec![Attribute::text("traceparent", PARENT)];
    job.hold.took = Some(Duration::from_millis(1));
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut took = Duration::ZERO;
        for _ in 0..MESSAGES / 1_000 {
            let begun = Instant::now();
            for _ in 0..1_000 {
                job = step(job);
            }
            took += begun.elapsed();
            if let Some(receiver) = &mut receiver {
                drop(receiver.take(usize::MAX));
                assert_eq!(receiver.take_dropped(), 0, "all spans are kept");
            }
        }
        best = best.min(took);
    }
    best.as_secs_f64() * 1e9 / f64::from(MESSAGES)
}

fn main() {
    let without = measure(bare, None);
    let off = traced(&Tracer::default(), None);
    let (unsampled, receiver) = tracer(0.0);
    let unsampled = traced(&unsampled, Some(receiver));
    let (sampled, receiver) = tracer(1.0);
    let sampled = traced(&sampled, Some(receiver));
    println!("without    {without:8.1} ns a message");
    println!(
        "off        {off:8.1} ns a message, {:8.1} more",
        off - without
    );
    println!(
        "unsampled  {unsampled:8.1} ns a message, {:8.1} more",
        unsampled - off
    );
    let spans = (sampled - off) / 2.0;
    println!("sampled    {sampled:8.1} ns a message, {spans:8.1} for each of two spans");
}
