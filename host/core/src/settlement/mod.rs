//! The last stage: converts endings into outcomes and settles them, in batches and off the hot
//! path; retries failed settlements until the lease ends. Knows no other stage and no backend by
//! name.

pub mod batch;
mod call;
pub mod decide;
mod end;
pub mod memory;
mod order;
mod record;

use crate::backoff;
use crate::clock;
use crate::clock::BootInstant;
use crate::envelope::{Envelope, S3Pointers};
use crate::filter;
use crate::filter::Filter;
use crate::idempotency::guard::Guard;
use crate::job::{Finished, Job, JobEnding};
use crate::message::{Message, Outcome, Verdict};
use crate::queue::{DeadLettered, ItemError, Queue, all_failed, first_failure};
use crate::scheduler::permits::Permits;
use crate::spans::QueueSpans;
use crate::tasks::Group;
use crate::telemetry::counters::Counters;
use crate::telemetry::events::{
    Delivery, MessageEvent, MessageEvents, Reason, ReasonKind, ShedTo, bounded,
};
use crate::telemetry::metrics::meter::Meter;
use crate::telemetry::trace::SpanContext;
use crate::throttle::median::Median;
use batch::Batcher;
use call::{AttemptNote, CallResult, SettleItem, in_time, settle};
use decide::{Policy, decide};
use end::{DeliveryEnd, end};
use memory::Memory;
pub use order::OrderPort;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

/// How long an outcome waits for others to share its call.
const LINGER: Duration = Duration::from_millis(5);
/// The longest that a deletion waits for others while more are to come: twice as long as such a call
/// takes, but no longer than this. Nobody waits for a deletion, but each costs a call unless it
/// shares one; and a process that is killed before does at most a call's worth again.
const LONGEST_LINGER: Duration = Duration::from_millis(100);
/// It waits only if its lease lasts so much longer.
const LEASE_LEFT: Duration = Duration::from_secs(1);
/// The first and the longest pause before a settlement is retried.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Maximum concurrent calls of one queue. While they are all outstanding, finished messages keep
/// their permits: a queue that cannot be settled is not asked for more either.
const MOST_CALLS: usize = 32;

/// Why a message was not settled.
const TOO_LATE: &str = "the lease ended before";

/// One queue's settlement.
pub struct Settlement {
    queue: Arc<dyn Queue>,
    policy: Policy,
    permits: Permits,
    memory: Mutex<Memory>,
    halt: CancellationToken,
    counters: Arc<Counters>,
    meter: Arc<Meter>,
    events: MessageEvents,
    /// Remembers beyond the process what is done, where the route wants it.
    guard: Option<Arc<Guard>>,
    /// Who waits for settlements, if groups are kept in order here.
    order: Option<OrderPort>,
    /// Which messages are handled; all without.
    filters: Arc<[Filter]>,
    /// What the filters look into.
    envelope: Envelope,
    s3_pointers: S3Pointers,
    spans: QueueSpans,
}

impl Settlement {
    /// Settles on `queue` by `policy`. Once `halt` is set nothing is retried.
    pub fn new(
        queue: Arc<dyn Queue>,
        policy: Policy,
        permits: Permits,
        halt: CancellationToken,
        counters: Arc<Counters>,
        meter: Arc<Meter>,
    ) -> Self {
        let name = &queue.identity().name;
        Self {
            events: MessageEvents::new(name, counters.clone(), meter.clone()),
            queue,
            policy,
            permits,
            memory: Mutex::default(),
            halt,
            counters,
            meter,
            guard: None,
            order: None,
            filters: Arc::default(),
            envelope: Envelope::None,
            s3_pointers: S3Pointers::Pass,
            spans: QueueSpans::default(),
        }
    }

    /// Adds a guard, which records done messages before they are deleted.
    pub fn guarded(self, guard: Option<Arc<Guard>>) -> Self {
        Self { guard, ..self }
    }

    /// Ends what none of these filters matches, if there are any.
    pub fn filtered(self, filters: Arc<[Filter]>) -> Self {
        Self { filters, ..self }
    }

    /// Looks into this envelope, and dead-letters what is in S3 where that is wanted.
    pub fn opening(self, envelope: Envelope, s3_pointers: S3Pointers) -> Self {
        Self {
            envelope,
            s3_pointers,
            ..self
        }
    }

    /// Traces its calls.
    pub fn traced(self, spans: QueueSpans) -> Self {
        Self { spans, ..self }
    }

    /// Reports settlements to `order`.
    pub fn in_order(self, order: Option<OrderPort>) -> Self {
        Self { order, ..self }
    }

    /// How a message ends that need not run: handled before, of no interest, or out of attempts.
    pub fn on_arrival(&self, message: &Message) -> Option<JobEnding> {
        let memory = self.memory();
        if memory.is_done(&message.id) {
            return Some(JobEnding::AlreadyDone);
        }
        if let Some(error) = &message.unreadable {
            return Some(JobEnding::Unreadable(error.clone()));
        }
        let opened = self.envelope.open(message);
        let content = opened.as_ref().unwrap_or(message);
        if let Some(error) = self.s3_pointers.refuse(content) {
            return Some(JobEnding::Unreadable(error));
        }
        if !filter::accepts(&self.filters, content) {
            return Some(JobEnding::Filtered);
        }
        self.policy.on_arrival(memory.attempts(message))
    }

    /// The number of the first attempt of this delivery, from 1. Attempts of earlier deliveries count,
    /// as far as they are known here, and deliveries without one do not.
    pub fn first_attempt(&self, message: &Message) -> u32 {
        self.memory().attempts(message)
    }

    /// Whether a message that was not started is better finished than released at a stop.
    pub fn prefers_finishing(&self, message: &Message) -> bool {
        let redrive = self.queue.identity().most_receives;
        // The queue itself counts every receive, whether or not an attempt came of it.
        redrive.is_some_and(|most| message.receive_count >= most)
            || self
                .policy
                .next_receive_is_fatal(self.memory().attempts(message))
    }

    /// Returns the outcome of an ending, if groups must wait for it: a failed attempt at a message
    /// whose attempts are limited, and dead letters.
    pub fn preview(&self, message: &Message, tries: u32, ending: &JobEnding) -> Option<Outcome> {
        let attempts = attempts(&self.memory(), message, tries);
        let outcome = decide(ending, attempts, &self.policy, fastrand::u64(..));
        let kept_here = self.order.as_ref().is_some_and(OrderPort::is_kept_here);
        let policy = self.queue.identity().most_receives;
        let counts = self.policy.limit().is_some()
            || matches!(outcome, Some(Outcome::DeadLetter(_)))
            || (kept_here && policy.is_some_and(|most| attempts < most));
        outcome.filter(|_| counts)
    }

    /// An attempt ended so and is followed by another in the same delivery, after `pause`, since others
    /// of its group wait behind it.
    pub fn tries_again(&self, job: &Job, ending: &JobEnding, pause: Duration) {
        let made = attempts(&self.memory(), &job.message, job.tries);
        let retried = end(ending, &Outcome::Release(pause), made, None);
        if let DeliveryEnd::Retried {
            attempt,
            delay,
            reason,
        } = &retried
        {
            self.events.emit(MessageEvent::Retried {
                of: delivery(
                    &job.message,
                    AttemptNote {
                        took: job.took,
                        trace: job.trace,
                    },
                ),
                attempt: *attempt,
                delay: *delay,
                reason,
            });
        }
    }

    /// Emits that the queue has dead-lettered a message instead of handing it out.
    pub fn dead_lettered(&self, letter: &DeadLettered) {
        let DeadLettered {
            id,
            receive_count,
            to,
            reason,
            max_receive_count,
        } = letter;
        let of = Delivery {
            id,
            receive_count: *receive_count,
            took: None,
            trace: None,
        };
        let to = Some(to.as_str());
        self.events.emit(match *max_receive_count {
            Some(max_receive_count) => MessageEvent::DeadLetteredByPolicy {
                of,
                max_receive_count,
                to,
                reason,
            },
            None => MessageEvent::DeadLettered {
                of,
                attempts: *receive_count,
                to,
                reason,
            },
        });
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles messages until the senders are gone and everything is settled or its lease over.
    pub async fn run(self: Arc<Self>, mut finished: UnboundedReceiver<Finished>) {
        let mut batch = Batcher::new(self.queue.identity().batch, LINGER);
        let mut calls: Group<CallResult> = Group::new();
        let mut overtaken: Group<SettleItem> = Group::new();
        let mut call_times = Median::default();
        let mut open = true;
        while open || !batch.is_empty() || !calls.is_empty() || !overtaken.is_empty() {
            let now = clock::now();
            batch.set_patience(self.patience(call_times.get()));
            while calls.len() < MOST_CALLS
                && let Some(items) =
                    batch.take(now, !open || batch.is_awaited() && calls.is_empty())
            {
                let (items, late) = in_time(items, now);
                late.iter()
                    .for_each(|item| self.not_settled(item, TOO_LATE, now));
                let (queue, guard) = (self.queue.clone(), self.guard.clone());
                calls.spawn(settle(queue, guard, self.spans.clone(), items));
            }
            let due = batch.next_due().filter(|_| calls.len() < MOST_CALLS);
            tokio::select! {
                biased; // for simulations; of answers there are few, of what is finished many
                answer = calls.next() => {
                    self.counters.settle_calls.many(answer.calls);
                    self.meter.calls.many(answer.calls);
                    if let Some(took) = answer.took {
                        call_times.note(took);
                        self.meter.settlements.record(took, first_failure(&answer.results));
                    }
                    if all_failed(&answer.results) {
                        self.counters.failed_calls.one();
                    }
                    self.note(answer, &mut batch);
                }
                item = overtaken.next() => batch.push(item, false, clock::now()),
                next = finished.recv(), if open => match next {
                    None => open = false,
                    Some(finished) => {
                        self.admit(finished, &mut batch, &mut calls, &mut overtaken);
                    }
                },
                () = clock::sleep_until(due) => {}
            }
        }
    }

    /// How long deletions wait for others to share their call, given its duration: longer while
    /// messages are in flight or requested, because theirs will follow.
    fn patience(&self, call_time: Option<Duration>) -> Duration {
        let ordered = self.queue.identity().ordered_groups || self.order.is_some();
        match call_time.filter(|_| !ordered && self.permits.used() > 0) {
            Some(took) => took.saturating_mul(2).min(LONGEST_LINGER),
            None => LINGER,
        }
    }

    /// Decides on one finished job and queues its outcome.
    fn admit(
        &self,
        finished: Finished,
        batch: &mut Batcher<SettleItem>,
        calls: &mut Group<CallResult>,
        overtaken: &mut Group<SettleItem>,
    ) {
        let Finished {
            message,
            lease,
            permit,
            held,
            tries,
            took,
            trace,
            ending,
            is_awaited,
        } = finished;
        let attempt = AttemptNote { took, trace };
        if is_awaited {
            batch.await_next();
        }
        if lease.is_cancelled() {
            self.comes_again(&message.id, lease.hidden().latest());
            self.cancelled(&message, attempt);
            return;
        }
        let attempts = self.remember(&message, tries, &ending);
        let unrecorded = self.guard.is_some() && ending == JobEnding::Verdict(Verdict::Done);
        let outcome = decide(&ending, attempts, &self.policy, fastrand::u64(..));
        let latest = lease.hidden().latest();
        let Some(outcome) = outcome.map(legible) else {
            self.lost((&message, attempt), false);
            self.comes_again(&message.id, latest);
            return;
        };
        let Some(claim) = lease.settle() else {
            let handled = ending == JobEnding::Verdict(Verdict::Done);
            self.lost((&message, attempt), handled);
            self.comes_again(&message.id, latest);
            if let Some(guard) = self.guard.clone().filter(|_| unrecorded) {
                calls.spawn(record::alone(guard, message));
            }
            return;
        };
        let last_receive = self.last_receive(&message);
        let end = end(&ending, &outcome, attempts, last_receive);
        let is_given_up = matches!(
            ending,
            JobEnding::Shed | JobEnding::Filtered | JobEnding::Cancelled
        );
        if outcome == Outcome::Delete && is_given_up {
            // What is to be dead-lettered is not remembered: it would be deleted instead.
            self.memory().handled(&message.id);
        }
        let item = SettleItem {
            message,
            outcome,
            end,
            claim,
            tries: 0,
            attempt,
            unrecorded,
            seat: (calls.len() >= MOST_CALLS).then_some(permit),
            held,
        };
        // Only a release can be undone by an extension that overtakes it.
        if !matches!(item.outcome, Outcome::Release(_)) || item.claim.is_quiet() {
            let now = clock::now();
            let patient = batch.has_patience()
                && item.outcome == Outcome::Delete
                && item.claim.until() > now + LEASE_LEFT;
            batch.push(item, patient, now);
        } else {
            overtaken.spawn(async move {
                item.claim.quiet().await;
                item
            });
        }
    }

    /// Notes what will matter when the id comes back. Answers with the attempts so far.
    fn remember(&self, message: &Message, tries: u32, ending: &JobEnding) -> u32 {
        let mut memory = self.memory();
        let attempts = attempts(&memory, message, tries);
        match ending {
            JobEnding::Verdict(Verdict::Done) => memory.handled(&message.id),
            JobEnding::Verdict(Verdict::Retry { .. } | Verdict::Reject(_))
            | JobEnding::Returned
            | JobEnding::Behind(_)
            | JobEnding::Stopped(_)
            | JobEnding::Lost => memory.given_back(&message.id, tries),
            JobEnding::Verdict(_)
            | JobEnding::AlreadyDone
            | JobEnding::Exhausted(_)
            | JobEnding::Unreadable(_)
            | JobEnding::Shed
            | JobEnding::Filtered
            | JobEnding::Cancelled => {}
        }
        attempts
    }

    /// What the queue's redrive policy permits, where it permits no receive after this one.
    fn last_receive(&self, message: &Message) -> Option<u32> {
        let policy = self.queue.identity().most_receives;
        policy.filter(|most| message.receive_count >= *most)
    }

    /// The lease was lost, whether or not the handler was done. At the last receive the queue's redrive
    /// policy dead-letters the message; a queue that reports that itself does so when it happens.
    fn lost(&self, (message, attempt): (&Message, AttemptNote), handled: bool) {
        let of = delivery(message, attempt);
        let last_receive = self.last_receive(message);
        let last_receive = last_receive.filter(|_| !self.queue.reports_redrives());
        let Some(max_receive_count) = last_receive else {
            self.events.emit(MessageEvent::Lost { of, handled });
            return;
        };
        let why = match handled {
            true => "its lease was lost at the last permitted receive, after it was handled",
            false => "its lease was lost at the last permitted receive",
        };
        let to = self.queue.redrive_policy_target();
        self.events.emit(MessageEvent::DeadLetteredByPolicy {
            of,
            max_receive_count,
            to: to.as_deref(),
            reason: &Reason::new(ReasonKind::LeaseLost, why),
        });
    }

    /// Emits how deliveries ended whose outcomes the queue has accepted.
    fn emit_ends(&self, ended: &[(Message, DeliveryEnd, AttemptNote)]) {
        let mut released: Vec<ReleasedLot<'_>> = Vec::new();
        let mut shed: Vec<(&Reason, bool, Vec<&str>)> = Vec::new();
        let mut filtered: Vec<(&Reason, bool, Vec<&str>)> = Vec::new();
        for (message, end, attempt) in ended {
            let (of, id) = (delivery(message, *attempt), message.id.as_str());
            match end {
                DeliveryEnd::Done => self.events.emit(MessageEvent::Done { of }),
                DeliveryEnd::Duplicate => self.events.emit(MessageEvent::Duplicate { of }),
                DeliveryEnd::Cancelled => self.events.emit(MessageEvent::Cancelled { of }),
                DeliveryEnd::Retried {
                    attempt,
                    delay,
                    reason,
                } => self.events.emit(MessageEvent::Retried {
                    of,
                    attempt: *attempt,
                    delay: *delay,
                    reason,
                }),
                DeliveryEnd::DeadLettered { attempts, reason } => {
                    let to = self.queue.dead_letter_queue();
                    self.events.emit(MessageEvent::DeadLettered {
                        of,
                        attempts: *attempts,
                        to: to.as_deref(),
                        reason,
                    });
                }
                DeliveryEnd::DeadLetteredByPolicy {
                    max_receive_count,
                    reason,
                } => {
                    let to = self.queue.redrive_policy_target();
                    self.events.emit(MessageEvent::DeadLetteredByPolicy {
                        of,
                        max_receive_count: *max_receive_count,
                        to: to.as_deref(),
                        reason,
                    });
                }
                DeliveryEnd::Released { reason } => {
                    // The line of an attempt that was cut off names its span.
                    let of = (reason, attempt.trace);
                    match released.iter_mut().find(|(same, _)| *same == of) {
                        Some((_, ids)) => ids.push(id),
                        None => released.push((of, vec![id])),
                    }
                }
                DeliveryEnd::Shed { reason, deleted } => add(&mut shed, reason, *deleted, id),
                DeliveryEnd::Filtered { reason, deleted } => {
                    add(&mut filtered, reason, *deleted, id);
                }
            }
        }
        for ((reason, trace), ids) in released {
            let ids = &ids;
            self.events
                .emit(MessageEvent::Released { ids, reason, trace });
        }
        let queue = self.queue.dead_letter_queue();
        let to = |deleted: bool| match deleted {
            true => ShedTo::Deleted,
            false => ShedTo::DeadLetters(queue.as_deref()),
        };
        for (reason, deleted, ids) in shed {
            let (ids, to) = (&ids, to(deleted));
            self.events.emit(MessageEvent::Shed { ids, to, reason });
        }
        for (reason, deleted, ids) in filtered {
            let (ids, to) = (&ids, to(deleted));
            self.events.emit(MessageEvent::Filtered { ids, to, reason });
        }
    }

    /// The message was cancelled while it was held here, and its queue has removed it.
    fn cancelled(&self, message: &Message, attempt: AttemptNote) {
        let of = delivery(message, attempt);
        self.events.emit(MessageEvent::Cancelled { of });
    }

    /// The message was not settled in time, or the queue did not accept its outcome; the queue
    /// redelivers it.
    fn not_settled(&self, item: &SettleItem, error: &str, now: BootInstant) {
        self.events.emit(MessageEvent::NotSettled {
            of: delivery(&item.message, item.attempt),
            wanted: item.end.kind(),
            outcome: match item.outcome {
                Outcome::Delete => "delete",
                Outcome::Release(_) => "release",
                Outcome::DeadLetter(_) => "dead-letter",
            },
            error,
        });
        self.comes_again(&item.message.id, item.latest(now));
    }

    /// Reads a call's results; transient failures are retried while the lease lasts.
    fn note(&self, answer: CallResult, batch: &mut Batcher<SettleItem>) {
        let now = clock::now();
        for item in &answer.late {
            self.not_settled(item, TOO_LATE, now);
        }
        let mut ended = Vec::with_capacity(answer.items.len());
        let missing = || {
            Err(ItemError::Transient(
                "the queue's answer did not contain it".into(),
            ))
        };
        let results = answer
            .results
            .into_iter()
            .chain(std::iter::repeat_with(missing));
        for (item, result) in answer.items.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    match item.outcome {
                        Outcome::Delete => self.memory().deleted(&item.message.id),
                        Outcome::Release(delay) => self.meter.released.note(now, delay),
                        Outcome::DeadLetter(_) => {}
                    }
                    if let Some(order) = &self.order {
                        order.settled(&item.message.id, &item.outcome, item.unanswered(now), now);
                    }
                    ended.push((item.message, item.end, item.attempt));
                }
                Err(ItemError::Transient(why)) => self.again(item, &why, now, batch),
                Err(ItemError::Cancelled) => {
                    self.cancelled(&item.message, item.attempt);
                    self.comes_again(&item.message.id, item.latest(now));
                }
                Err(error) => self.not_settled(&item, &error.to_string(), now),
            }
        }
        self.emit_ends(&ended);
    }

    fn again(
        &self,
        mut item: SettleItem,
        why: &str,
        now: BootInstant,
        batch: &mut Batcher<SettleItem>,
    ) {
        item.tries += 1;
        item.seat.get_or_insert_with(|| self.permits.overdraw(1));
        let at = now + backoff::full_jitter(AGAIN.0, AGAIN.1, item.tries, fastrand::u64(..));
        if at < item.claim.until() && !self.halt.is_cancelled() {
            batch.push_later(item, at);
        } else {
            self.not_settled(&item, &format!("{TOO_LATE}: {why}"), now);
        }
    }

    /// The queue redelivers it without a settlement, from `due` on at the latest.
    fn comes_again(&self, id: &str, due: BootInstant) {
        if let Some(order) = &self.order {
            order.comes_again(id, due);
        }
    }
}

/// Messages that were released for the same reason, after the same attempt if it was traced.
type ReleasedLot<'a> = ((&'a Reason, Option<SpanContext>), Vec<&'a str>);

/// Adds an id to those that were deleted, or were not, for the same reason.
fn add<'a>(
    lots: &mut Vec<(&'a Reason, bool, Vec<&'a str>)>,
    reason: &'a Reason,
    deleted: bool,
    id: &'a str,
) {
    match lots.iter_mut().find(|(_, same, _)| *same == deleted) {
        Some((_, _, ids)) => ids.push(id),
        None => lots.push((reason, deleted, vec![id])),
    }
}

fn delivery(message: &Message, attempt: AttemptNote) -> Delivery<'_> {
    Delivery {
        id: &message.id,
        receive_count: message.receive_count,
        took: attempt.took,
        trace: attempt.trace,
    }
}

/// With a reason that is bounded and without control characters, as the log has it.
fn legible(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::DeadLetter(why) => Outcome::DeadLetter(bounded(&why)),
        other => other,
    }
}

/// Returns how many attempts a message has had, `tries` of them in this delivery.
fn attempts(memory: &Memory, message: &Message, tries: u32) -> u32 {
    let more = tries.saturating_sub(1);
    memory.attempts(message).saturating_add(more)
}
