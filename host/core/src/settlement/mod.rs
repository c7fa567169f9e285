//! The last stage: converts endings into outcomes and settles them, in batches and off the hot
//! path; retries failed settlements until the lease ends. Does not depend on any other stage or
//! backend.

pub mod batch;
mod call;
pub mod decide;
mod end;
pub mod memory;
mod order;
mod record;
mod returns;

use crate::backoff;
use crate::clock;
use crate::clock::BootInstant;
use crate::envelope::{Envelope, S3Pointers};
use crate::filter;
use crate::filter::Filter;
use crate::idempotency::guard::Guard;
use crate::job::{Arrival, FinishedJob, Hold, Job, JobEnding};
use crate::lambda;
use crate::message::place::MessageKey;
use crate::message::{ContentError, Message, Outcome, Verdict};
use crate::queue::origin::first_id;
use crate::queue::{DeadLettered, ItemError, Queue, all_failed, first_failure};
use crate::scheduler::permits::Permits;
use crate::spans::QueueSpans;
use crate::tasks::Group;
use crate::telemetry::counters::Counters;
use crate::telemetry::events::{
    Delivery, MessageEvent, MessageEvents, Reason, ReasonKind, ShedTo, bounded,
};
use crate::telemetry::metrics::meter::Meter;
use crate::throttle::median::Median;
use batch::Batcher;
use call::{CallResult, SettleItem, SettleRest, in_time, settle};
use decide::{Policy, decide};
use end::{DeliveryEnd, end};
use memory::Memory;
pub use order::OrderPort;
use parking_lot::Mutex;
use returns::GroupReturns;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

/// The time that an outcome waits for others to share its call.
const LINGER: Duration = Duration::from_millis(5);
/// The maximum time that a deletion waits for others while more are to come. It waits for twice the
/// duration of such a call, up to this. No work waits for a deletion, but each costs a call unless
/// it shares one. A process that is killed before the call repeats at most one call's worth of
/// messages.
const LONGEST_LINGER: Duration = Duration::from_millis(100);
/// A deletion waits for others only if more than this is left of its lease.
const LEASE_LEFT: Duration = Duration::from_secs(1);
/// The first and the maximum pause before a settlement is retried.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// The maximum number of concurrent calls of one queue. While they are all outstanding, finished
/// messages keep their permits: a queue that cannot be settled is not polled for more either.
const MOST_CALLS: usize = 32;

/// The reason why a message was not settled.
const TOO_LATE: &str = "the lease ended before the message was settled";

/// The settlement of one queue.
pub struct Settlement {
    queue: Arc<dyn Queue>,
    policy: Policy,
    permits: Permits,
    memory: Arc<Mutex<Memory>>,
    halt: CancellationToken,
    counters: Arc<Counters>,
    meter: Arc<Meter>,
    events: MessageEvents,
    /// The record of done messages outside the process, if the route uses one.
    guard: Option<Arc<Guard>>,
    /// The port that reports settlements to the scheduler, if groups wait for them.
    order: Option<OrderPort>,
    /// The filters of the messages that are handled; without filters, all are.
    filters: Arc<[Filter]>,
    /// The envelope that the filters look into.
    envelope: Envelope,
    s3_pointers: S3Pointers,
    /// Where messages name the tenant that a Lambda function is told, if one is.
    tenant_id: Option<MessageKey>,
    spans: QueueSpans,
}

impl Settlement {
    /// Creates the settlement of `queue` with `policy`. Once `halt` is set, nothing is retried.
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
            memory: Arc::default(),
            halt,
            counters,
            meter,
            guard: None,
            order: None,
            filters: Arc::default(),
            envelope: Envelope::None,
            s3_pointers: S3Pointers::Pass,
            tenant_id: None,
            spans: QueueSpans::default(),
        }
    }

    /// Shares a memory with earlier versions of the route.
    pub fn remembering(self, memory: Arc<Mutex<Memory>>) -> Self {
        Self { memory, ..self }
    }

    /// Adds a guard, which records done messages before they are deleted.
    pub fn guarded(self, guard: Option<Arc<Guard>>) -> Self {
        Self { guard, ..self }
    }

    /// Adds filters, if there are any: a message that none of them matches is not handled.
    pub fn filtered(self, filters: Arc<[Filter]>) -> Self {
        Self { filters, ..self }
    }

    /// Looks into this envelope, and dead-letters messages whose content is in S3 if `s3_pointers`
    /// demands it.
    pub fn opening(self, envelope: Envelope, s3_pointers: S3Pointers) -> Self {
        Self {
            envelope,
            s3_pointers,
            ..self
        }
    }

    /// Dead-letters messages that name no tenant that a Lambda function can be told, if one is told it.
    pub fn telling_tenants(self, tenant_id: Option<MessageKey>) -> Self {
        Self { tenant_id, ..self }
    }

    /// Traces its calls.
    pub fn traced(self, spans: QueueSpans) -> Self {
        Self { spans, ..self }
    }

    /// Reports settlements to `order`.
    pub fn in_order(self, order: Option<OrderPort>) -> Self {
        Self { order, ..self }
    }

    /// Returns what is known of a message that has just arrived.
    pub fn arrival(&self, message: &Message) -> Arrival {
        let (is_done, attempts) = {
            let memory = self.memory();
            (memory.is_done(&message.id), memory.attempts(message))
        };
        Arrival {
            ending: self.ending_on_arrival(message, is_done, attempts),
            // Attempts of earlier deliveries count, as far as they are known here; deliveries
            // without an attempt do not.
            first_attempt: attempts,
            last_chance: self.prefers_finishing(message, attempts),
        }
    }

    /// Returns the ending of a message that need not run: it was handled before, is unreadable,
    /// matches no filter, or has no attempts left.
    fn ending_on_arrival(
        &self,
        message: &Message,
        is_done: bool,
        attempts: u32,
    ) -> Option<JobEnding> {
        if is_done {
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
        let tenant = self.tenant_id.as_ref();
        if let Some(Err(error)) = tenant.map(|key| lambda::tenant_of(content, key)) {
            return Some(JobEnding::Unreadable(ContentError::NoTenant(error)));
        }
        self.policy.on_arrival(attempts)
    }

    /// Whether a message that was not started should be finished rather than released at a stop.
    fn prefers_finishing(&self, message: &Message, attempts: u32) -> bool {
        let max_receive_count = self.queue.identity().most_receives;
        // The queue itself counts every receive, even one without an attempt.
        max_receive_count.is_some_and(|most| message.receive_count >= most)
            || self.policy.next_receive_is_fatal(attempts)
    }

    /// Returns the outcome of an ending if the next message of the group may start only once it is
    /// settled: if attempts are limited, it is a dead letter, or this process keeps the order and
    /// the queue's redrive policy permits more receives. Else `None`.
    pub fn preview(&self, message: &Message, tries: u32, ending: &JobEnding) -> Option<Outcome> {
        let attempts = attempts(&self.memory(), message, tries);
        let outcome = decide(ending, attempts, &self.policy, fastrand::u64(..));
        let kept_here = self.order.as_ref().is_some_and(OrderPort::is_kept_here);
        let max_receive_count = self.queue.identity().most_receives;
        let group_waits = self.policy.limit().is_some()
            || matches!(outcome, Some(Outcome::DeadLetter(_)))
            || (kept_here && max_receive_count.is_some_and(|most| attempts < most));
        if group_waits { outcome } else { None }
    }

    /// Emits that an attempt ended this way and is followed by another in the same delivery, after
    /// `pause`, because others of its group wait behind it.
    pub fn tries_again(&self, job: &Job, ending: &JobEnding, pause: Duration) {
        let made = attempts(&self.memory(), &job.message, job.hold.tries);
        let retried = end(ending, &Outcome::Release(pause), made, None);
        if let DeliveryEnd::Retried {
            attempt,
            delay,
            reason,
        } = &retried
        {
            self.events.emit(MessageEvent::Retried {
                of: delivery(&job.message, &job.hold),
                attempt: *attempt,
                delay: *delay,
                reason,
            });
        }
    }

    /// Emits that the queue has dead-lettered a message instead of delivering it.
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
            first_id: None,
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
                dead_letter_id: None,
                reason,
            },
        });
    }

    fn memory(&self) -> parking_lot::MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// Settles messages until the senders are gone and every message is settled or its lease is
    /// over.
    pub async fn run(self: Arc<Self>, mut finished: UnboundedReceiver<FinishedJob>) {
        let mut pending = PendingOutcomes::new(self.queue.identity().batch);
        let mut calls: Group<CallResult> = Group::new();
        let mut call_times = Median::default();
        let mut open = true;
        while open || !pending.is_empty() || !calls.is_empty() {
            let now = clock::now();
            let patience = self.patience(call_times.get());
            pending.batch.set_patience(patience);
            while calls.len() < MOST_CALLS
                && let Some(items) = pending.take(now, !open, calls.is_empty())
            {
                let (items, late) = in_time(items, now);
                for item in &late {
                    self.not_settled(item, TOO_LATE, now);
                    pending.ended(item, now);
                }
                let (queue, guard) = (self.queue.clone(), self.guard.clone());
                calls.spawn(settle(queue, guard, self.spans.clone(), items));
            }
            let may_call = calls.len() < MOST_CALLS;
            let due = if may_call {
                pending.batch.next_due()
            } else {
                None
            };
            tokio::select! {
                biased; // for simulations; answers are few, finished jobs are many
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
                    self.note(answer, &mut pending);
                }
                item = pending.overtaken.next() => pending.batch.push(item, false, clock::now()),
                next = finished.recv(), if open => match next {
                    None => open = false,
                    Some(finished) => self.admit(finished, &mut pending, &mut calls),
                },
                () = clock::sleep_until(due) => {}
            }
        }
    }

    /// Returns how long deletions wait for others to share their call, given its duration: longer
    /// while messages are in flight or requested, because their deletions will follow.
    fn patience(&self, call_time: Option<Duration>) -> Duration {
        let ordered = self.policy.ordered_groups || self.order.is_some();
        match call_time {
            Some(took) if !ordered && self.permits.used() > 0 => {
                took.saturating_mul(2).min(LONGEST_LINGER)
            }
            _ => LINGER,
        }
    }

    /// Decides on one finished job and queues its outcome.
    fn admit(
        &self,
        finished: FinishedJob,
        pending: &mut PendingOutcomes,
        calls: &mut Group<CallResult>,
    ) {
        if finished.is_awaited {
            pending.batch.await_next();
        }
        let ending = finished.ending;
        let Job {
            message,
            lease,
            mut hold,
        } = finished.job;
        if lease.is_cancelled() {
            self.comes_again(&message.id, lease.hidden().latest());
            self.cancelled(&message, &hold);
            return;
        }
        let attempts = self.remember(&message, hold.tries, &ending);
        let unrecorded = self.guard.is_some() && ending == JobEnding::Verdict(Verdict::Done);
        let outcome = decide(&ending, attempts, &self.policy, fastrand::u64(..));
        let latest = lease.hidden().latest();
        let Some(outcome) = outcome.map(legible) else {
            self.lost(&message, &hold, false);
            self.comes_again(&message.id, latest);
            return;
        };
        let Some(claim) = lease.settle() else {
            let handled = ending == JobEnding::Verdict(Verdict::Done);
            self.lost(&message, &hold, handled);
            self.comes_again(&message.id, latest);
            if unrecorded && let Some(guard) = self.guard.clone() {
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
            // A message to be dead-lettered is not remembered: otherwise its redelivery would be
            // deleted.
            self.memory().handled(&message.id);
        }
        if calls.len() < MOST_CALLS {
            hold.permit = None;
        }
        let rest = SettleRest {
            end,
            claim,
            tries: 0,
            unrecorded,
            hold,
        };
        let item = SettleItem {
            message,
            outcome,
            rest,
        };
        let in_order =
            self.policy.ordered_groups && !self.order.as_ref().is_some_and(OrderPort::is_kept_here);
        let waits = if in_order {
            item.returning().map(str::to_owned)
        } else {
            None
        };
        let item = match waits {
            Some(group) => pending.returns.admit(&group, item),
            None => Some(item),
        };
        if let Some(item) = item {
            pending.send(item, clock::now());
        }
    }

    /// Records what matters if the id comes back. Returns the number of attempts so far.
    fn remember(&self, message: &Message, tries: u32, ending: &JobEnding) -> u32 {
        let mut memory = self.memory();
        let attempts = attempts(&memory, message, tries);
        match ending {
            JobEnding::Verdict(Verdict::Done) => memory.handled(&message.id),
            JobEnding::Verdict(Verdict::Retry { .. } | Verdict::Reject(_))
            | JobEnding::Returned
            | JobEnding::Behind(_)
            | JobEnding::Deferred(_)
            | JobEnding::Interrupted
            | JobEnding::Abandoned(_)
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

    /// Returns the number of receives that the queue's redrive policy permits, if this receive is
    /// the last.
    fn last_receive(&self, message: &Message) -> Option<u32> {
        let policy = self.queue.identity().most_receives;
        policy.filter(|most| message.receive_count >= *most)
    }

    /// Emits that the lease was lost, whether or not the handler was done. At the last receive, the
    /// queue's redrive policy dead-letters the message; a queue that reports redrives itself does
    /// so when it happens.
    fn lost(&self, message: &Message, hold: &Hold, handled: bool) {
        let of = delivery(message, hold);
        let last_receive = if self.queue.facts().reports_redrives {
            None
        } else {
            self.last_receive(message)
        };
        let Some(max_receive_count) = last_receive else {
            self.events.emit(MessageEvent::Lost { of, handled });
            return;
        };
        let why = if handled {
            "its lease was lost at the last permitted receive, after it was handled"
        } else {
            "its lease was lost at the last permitted receive"
        };
        let to = self.queue.redrive_policy_target();
        self.events.emit(MessageEvent::DeadLetteredByPolicy {
            of,
            max_receive_count,
            to: to.as_deref(),
            reason: &Reason::new(ReasonKind::LeaseLost, why),
        });
    }

    /// Emits how the deliveries ended whose outcomes the queue has accepted.
    fn emit_ends(&self, ended: &[SettleItem]) {
        let mut released: Lots<'_> = Vec::new();
        let mut shed: GivenUpLots<'_> = Vec::new();
        let mut filtered: GivenUpLots<'_> = Vec::new();
        for SettleItem { message, rest, .. } in ended {
            let (of, id) = (delivery(message, &rest.hold), message.id.as_str());
            match &rest.end {
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
                    let dead_letter_id = self.queue.dead_letter_id(id);
                    self.events.emit(MessageEvent::DeadLettered {
                        of,
                        attempts: *attempts,
                        to: to.as_deref(),
                        dead_letter_id: dead_letter_id.as_deref(),
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
                DeliveryEnd::Abandoned {
                    attempt,
                    delay,
                    may_have_been_handled,
                    reason,
                } => self.events.emit(MessageEvent::Abandoned {
                    of,
                    attempt: *attempt,
                    may_have_been_handled: *may_have_been_handled,
                    visible_at: clock::wall_clock_now() + *delay,
                    reason,
                }),
                DeliveryEnd::Released { reason } => {
                    match released.iter_mut().find(|(same, _)| *same == reason) {
                        Some((_, ids)) => ids.push(id),
                        None => released.push((reason, vec![id])),
                    }
                }
                DeliveryEnd::Shed { reason, deleted } => add(&mut shed, reason, *deleted, id),
                DeliveryEnd::Filtered { reason, deleted } => {
                    add(&mut filtered, reason, *deleted, id);
                }
            }
        }
        self.emit_lots(released, shed, filtered);
    }

    /// Logs releases, shed and filtered messages: one event for all with the same reason.
    fn emit_lots(&self, released: Lots<'_>, shed: GivenUpLots<'_>, filtered: GivenUpLots<'_>) {
        for (reason, ids) in released {
            let ids = &ids;
            self.events.emit(MessageEvent::Released { ids, reason });
        }
        let queue = self.queue.dead_letter_queue();
        for (reason, deleted, ids) in shed {
            let (ids, to) = (&ids, given_up_to(deleted, queue.as_deref()));
            self.events.emit(MessageEvent::Shed { ids, to, reason });
        }
        for (reason, deleted, ids) in filtered {
            let (ids, to) = (&ids, given_up_to(deleted, queue.as_deref()));
            self.events.emit(MessageEvent::Filtered { ids, to, reason });
        }
    }

    /// Emits that the message was cancelled while it was held here. Its queue has removed it.
    fn cancelled(&self, message: &Message, hold: &Hold) {
        let of = delivery(message, hold);
        self.events.emit(MessageEvent::Cancelled { of });
    }

    /// Emits that the message was not settled in time, or that the queue did not accept its
    /// outcome. The queue redelivers it.
    fn not_settled(&self, item: &SettleItem, error: &str, now: BootInstant) {
        let latest = item.latest(now);
        self.events.emit(MessageEvent::NotSettled {
            of: delivery(&item.message, &item.rest.hold),
            wanted: item.rest.end.kind(),
            outcome: match item.outcome {
                Outcome::Delete => "delete",
                Outcome::Release(_) => "release",
                Outcome::DeadLetter(_) => "dead-letter",
            },
            visible_by: clock::wall_clock_now() + latest.since(now),
            error,
        });
        self.comes_again(&item.message.id, latest);
    }

    /// Processes a call's results. Transient failures are retried while the lease lasts.
    fn note(&self, answer: CallResult, pending: &mut PendingOutcomes) {
        let now = clock::now();
        for item in &answer.late {
            self.not_settled(item, TOO_LATE, now);
            pending.ended(item, now);
        }
        let mut ended = Vec::with_capacity(answer.items.len());
        let results = answer.results.into_iter().chain(std::iter::repeat_with(|| {
            Err(ItemError::Transient(
                "the queue's answer did not contain it".into(),
            ))
        }));
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
                    pending.ended(&item, now);
                    ended.push(item);
                }
                Err(ItemError::Transient(why)) => self.again(item, &why, now, pending),
                Err(ItemError::Cancelled) => {
                    self.cancelled(&item.message, &item.rest.hold);
                    self.comes_again(&item.message.id, item.latest(now));
                    pending.ended(&item, now);
                }
                Err(error) => {
                    self.not_settled(&item, &error.to_string(), now);
                    pending.ended(&item, now);
                }
            }
        }
        self.emit_ends(&ended);
    }

    fn again(
        &self,
        mut item: SettleItem,
        why: &str,
        now: BootInstant,
        pending: &mut PendingOutcomes,
    ) {
        item.rest.tries += 1;
        let permit = &mut item.rest.hold.permit;
        permit.get_or_insert_with(|| self.permits.overdraw(1));
        let at = now + backoff::full_jitter(AGAIN.0, AGAIN.1, item.rest.tries, fastrand::u64(..));
        if at < item.rest.claim.until() && !self.halt.is_cancelled() {
            pending.batch.push_later(item, at);
        } else {
            self.not_settled(&item, &format!("{TOO_LATE}; last error: {why}"), now);
            pending.ended(&item, now);
        }
    }

    /// Reports that the queue redelivers the message without a settlement, at `due` at the latest.
    fn comes_again(&self, id: &str, due: BootInstant) {
        if let Some(order) = &self.order {
            order.comes_again(id, due);
        }
    }
}

/// The outcomes that no call has taken yet.
struct PendingOutcomes {
    batch: Batcher<SettleItem>,
    /// Releases whose last extension is not answered yet.
    overtaken: Group<SettleItem>,
    /// Releases that go after others of their groups.
    returns: GroupReturns<SettleItem>,
}

impl PendingOutcomes {
    fn new(size: usize) -> Self {
        Self {
            batch: Batcher::new(size, LINGER),
            overtaken: Group::new(),
            returns: GroupReturns::default(),
        }
    }

    /// Whether no outcome is left. Releases that wait for others of their group wait for one of
    /// these, or for a call.
    fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.overtaken.is_empty()
    }

    /// Takes the items of the next call; all of them if no more come, or if they are awaited and no
    /// call runs.
    fn take(&mut self, now: BootInstant, ends: bool, is_idle: bool) -> Option<Vec<SettleItem>> {
        let flush = ends || self.batch.is_awaited() && is_idle;
        self.batch.take(now, flush)
    }

    /// Queues an outcome for the next call.
    fn send(&mut self, item: SettleItem, now: BootInstant) {
        // Only a release can be undone by an extension that overtakes it.
        if matches!(item.outcome, Outcome::Release(_)) && !item.rest.claim.is_quiet() {
            self.overtaken.spawn(async move {
                item.rest.claim.quiet().await;
                item
            });
            return;
        }
        let patient = self.batch.has_patience()
            && item.outcome == Outcome::Delete
            && item.rest.claim.until() > now + LEASE_LEFT;
        self.batch.push(item, patient, now);
    }

    /// Sends the releases that waited for an outcome that was accepted or given up.
    fn ended(&mut self, item: &SettleItem, now: BootInstant) {
        let Some(group) = item.returning() else {
            return;
        };
        for next in self.returns.ended(group) {
            self.send(next, now);
        }
    }
}

/// The ids of messages that ended for the same reason.
type Lots<'a> = Vec<(&'a Reason, Vec<&'a str>)>;
/// The ids of messages that were given up for the same reason, and whether they were deleted.
type GivenUpLots<'a> = Vec<(&'a Reason, bool, Vec<&'a str>)>;

/// Adds an id to the messages that were given up for the same reason and had the same fate.
fn add<'a>(lots: &mut GivenUpLots<'a>, reason: &'a Reason, deleted: bool, id: &'a str) {
    match lots
        .iter_mut()
        .find(|(why, gone, _)| *why == reason && *gone == deleted)
    {
        Some((_, _, ids)) => ids.push(id),
        None => lots.push((reason, deleted, vec![id])),
    }
}

/// Returns where given-up messages went.
fn given_up_to(deleted: bool, dead_letters: Option<&str>) -> ShedTo<'_> {
    if deleted {
        ShedTo::Deleted
    } else {
        ShedTo::DeadLetters(dead_letters)
    }
}

fn delivery<'a>(message: &'a Message, hold: &Hold) -> Delivery<'a> {
    Delivery {
        id: &message.id,
        first_id: first_id(message),
        receive_count: message.receive_count,
        took: hold.took,
        trace: hold.trace,
    }
}

/// Bounds the reason of a dead letter and removes its control characters, as in the log.
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
