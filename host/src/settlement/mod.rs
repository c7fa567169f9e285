//! The last stage: turns endings into outcomes and tells the queue, in batches and off the hot
//! path; tries again what was not taken until the lease ends. Knows no other stage and no backend
//! by name.

pub mod batch;
mod call;
pub mod decide;
pub mod memory;
mod order;
mod record;
mod sheds;

use crate::backoff;
use crate::clock::{self, Moment};
use crate::idempotency::guard::Guard;
use crate::job::{Ending, Finished};
use crate::message::{Message, Mishap, Outcome, Verdict};
use crate::queue::{ItemError, Queue};
use crate::scheduler::room::Room;
use crate::tasks::Group;
use crate::telemetry::counters::Counters;
use crate::telemetry::harmless::harmless;
use crate::telemetry::metrics::meter::Meter;
use batch::Batcher;
use call::{Answer, Item, in_time, settle};
use decide::{Policy, decide};
use memory::Memory;
pub use order::Order;
use sheds::Sheds;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

/// How long an outcome waits for others to share its call.
const LINGER: Duration = Duration::from_millis(5);
/// The first and the longest pause before an outcome is told again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// So many calls of one queue at once. While they are all under way, what is finished keeps its
/// place in the room: a queue that cannot be told is not asked for more either.
const MOST_CALLS: usize = 32;

/// One queue's settlement.
pub struct Settlement {
    queue: Arc<dyn Queue>,
    policy: Policy,
    room: Room,
    memory: Mutex<Memory>,
    sheds: Mutex<Sheds>,
    halt: CancellationToken,
    counters: Arc<Counters>,
    meter: Arc<Meter>,
    /// Remembers beyond the process what is done, where the route wants it.
    guard: Option<Arc<Guard>>,
    /// Who waits for what is told, where groups are kept in order here.
    order: Option<Order>,
}

impl Settlement {
    /// Settles on `queue` by `policy`. Once `halt` is set nothing is tried again.
    pub fn new(
        queue: Arc<dyn Queue>,
        policy: Policy,
        room: Room,
        halt: CancellationToken,
        counters: Arc<Counters>,
        meter: Arc<Meter>,
    ) -> Self {
        Self {
            queue,
            policy,
            room,
            memory: Mutex::default(),
            sheds: Mutex::default(),
            halt,
            counters,
            meter,
            guard: None,
            order: None,
        }
    }

    /// The same with a guard that is told what is done before the queue is.
    pub fn guarded(self, guard: Option<Arc<Guard>>) -> Self {
        Self { guard, ..self }
    }

    /// Tells `order` what the queue was told.
    pub fn in_order(self, order: Option<Order>) -> Self {
        Self { order, ..self }
    }

    /// How a message ends that need not run: handled before, or out of attempts.
    pub fn on_arrival(&self, message: &Message) -> Option<Ending> {
        let memory = self.memory();
        if memory.is_done(&message.id) {
            return Some(Ending::AlreadyDone);
        }
        self.policy.on_arrival(memory.attempts(message))
    }

    /// Whether a message that was not started is better finished than given back at a stop.
    pub fn prefers_finishing(&self, message: &Message) -> bool {
        let redrive = self.queue.identity().most_receives;
        // The queue itself counts every receive, whether or not an attempt came of it.
        redrive.is_some_and(|most| message.receive_count >= most)
            || self
                .policy
                .next_receive_is_fatal(self.memory().attempts(message))
    }

    /// What the queue will be told of an ending, where groups must wait for it: a failed attempt at
    /// a message whose attempts are limited, and what goes to the dead letters.
    pub fn outlook(&self, message: &Message, tries: u32, ending: &Ending) -> Option<Outcome> {
        let attempts = attempts(&self.memory(), message, tries);
        let outcome = decide(ending, attempts, &self.policy, fastrand::u64(..));
        let kept_here = self.order.as_ref().is_some_and(Order::is_kept_here);
        let policy = self.queue.identity().most_receives;
        let counts = self.policy.limit().is_some()
            || matches!(outcome, Some(Outcome::DeadLetter(_)))
            || (kept_here && policy.is_some_and(|most| attempts < most));
        outcome.filter(|_| counts)
    }

    /// An attempt ended so and is followed by another in the same delivery, after `pause`.
    pub fn tries_again(&self, message: &Message, tries: u32, ending: &Ending, pause: Duration) {
        self.report(message, tries, ending);
        self.counters.retried.one();
        let Message { queue, id, .. } = message;
        tracing::debug!(
            queue,
            message_id = id,
            attempt = attempts(&self.memory(), message, tries),
            ?pause,
            "retried within its lease, since others of its group wait behind it"
        );
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles what comes until the senders are gone and everything is told or its lease over.
    pub async fn run(self: Arc<Self>, mut finished: UnboundedReceiver<Finished>) {
        let mut batch = Batcher::new(self.queue.identity().batch, LINGER);
        let mut calls: Group<Answer> = Group::new();
        let mut overtaken: Group<Item> = Group::new();
        let mut open = true;
        while open || !batch.is_empty() || !calls.is_empty() || !overtaken.is_empty() {
            let now = clock::now();
            while calls.len() < MOST_CALLS
                && let Some(items) = batch.take(now, !open)
            {
                let (items, late) = in_time(items, now);
                late.iter()
                    .for_each(|item| self.comes_again(&item.message.id, item.latest(now)));
                if !items.is_empty() {
                    self.counters.settle_calls.one();
                    self.meter.calls.one();
                }
                calls.spawn(settle(self.queue.clone(), self.guard.clone(), items));
            }
            let due = batch.next_due().filter(|_| calls.len() < MOST_CALLS);
            tokio::select! {
                biased; // for simulations; of answers there are few, of what is finished many
                answer = calls.next() => self.note(answer, &mut batch),
                item = overtaken.next() => batch.push(item, clock::now()),
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

    /// Decides on one finished job and queues its outcome.
    fn admit(
        &self,
        finished: Finished,
        batch: &mut Batcher<Item>,
        calls: &mut Group<Answer>,
        overtaken: &mut Group<Item>,
    ) {
        let Finished {
            message,
            lease,
            permit,
            tries,
            ending,
        } = finished;
        let crowded = calls.len() >= MOST_CALLS;
        let attempts = self.remember(&message, tries, &ending);
        let unrecorded = self.guard.is_some() && ending == Ending::Verdict(Verdict::Done);
        self.report(&message, tries, &ending);
        let outcome = decide(&ending, attempts, &self.policy, fastrand::u64(..));
        let latest = lease.hidden().latest();
        let Some(outcome) = outcome else {
            self.comes_again(&message.id, latest);
            return;
        };
        let Some(claim) = lease.settle() else {
            self.comes_again(&message.id, latest);
            self.counters.lost.one();
            self.meter.lost.one();
            tracing::warn!(
                queue = message.queue,
                message_id = message.id,
                "the lease was lost before the message was settled; the queue delivers it again"
            );
            if let Some(guard) = self.guard.clone().filter(|_| unrecorded) {
                calls.spawn(record::alone(guard, message));
            }
            return;
        };
        self.count(&outcome, &ending);
        if (&outcome, &ending) == (&Outcome::Delete, &Ending::Shed) {
            // What is to be buried is not remembered: it would be deleted instead.
            self.memory().handled(&message.id);
        }
        let item = Item {
            message,
            outcome,
            claim,
            tries: 0,
            unrecorded,
            seat: crowded.then_some(permit),
        };
        // Only a release can be undone by an extension that overtakes it.
        if !matches!(item.outcome, Outcome::Release(_)) || item.claim.is_quiet() {
            batch.push(item, clock::now());
        } else {
            overtaken.spawn(async move {
                item.claim.quiet().await;
                item
            });
        }
    }

    /// Notes what will matter when the id comes back. Answers with the attempts so far.
    fn remember(&self, message: &Message, tries: u32, ending: &Ending) -> u32 {
        let mut memory = self.memory();
        let attempts = attempts(&memory, message, tries);
        match ending {
            Ending::Verdict(Verdict::Done) => memory.handled(&message.id),
            Ending::Verdict(Verdict::Retry { .. } | Verdict::Reject(_))
            | Ending::Returned
            | Ending::Behind(_)
            | Ending::Stopped(_)
            | Ending::Lost => memory.given_back(&message.id, tries),
            Ending::Verdict(_) | Ending::AlreadyDone | Ending::Shed => {}
        }
        attempts
    }

    fn count(&self, outcome: &Outcome, ending: &Ending) {
        if *ending == Ending::AlreadyDone {
            self.counters.recognised.one();
        }
        if *ending == Ending::Shed {
            self.counters.shed.one();
            self.meter.shed.one();
        }
        match (outcome, ending) {
            (Outcome::Delete, Ending::Shed) => {}
            (Outcome::Delete, _) => self.counters.done.one(),
            (Outcome::DeadLetter(_), _) => {
                self.counters.dead.one();
                self.meter.dead.one();
            }
            (Outcome::Release(_), Ending::Returned | Ending::Stopped(_) | Ending::Behind(_)) => {
                self.counters.returned.one();
            }
            (Outcome::Release(_), _) => self.counters.retried.one(),
        }
    }

    /// Says once, here, what went wrong with a message.
    fn report(&self, message: &Message, tries: u32, ending: &Ending) {
        let Message {
            queue,
            id,
            receive_count,
            ..
        } = message;
        match ending {
            Ending::Verdict(Verdict::Retry {
                why: Mishap::Asked,
                after,
            }) => {
                tracing::debug!(
                    queue,
                    message_id = id,
                    receive_count,
                    ?after,
                    "the handler asked for a retry"
                );
            }
            Ending::Verdict(Verdict::Retry { why, .. }) => {
                let why = harmless(&why.to_string());
                tracing::warn!(queue, message_id = id, receive_count, "{why}");
            }
            Ending::Verdict(Verdict::Reject(why)) => {
                let what = match self.policy.dead_letters {
                    true => "dead-lettered",
                    false => "rejected, and released since there is no dead-letter queue",
                };
                let why = harmless(why);
                tracing::warn!(queue, message_id = id, receive_count, "{what}: {why}");
            }
            Ending::Lost => {
                self.counters.lost.one();
                self.meter.lost.one();
                tracing::warn!(
                    queue,
                    message_id = id,
                    receive_count,
                    "the lease was lost, so the attempt was stopped; the queue delivers the message again"
                );
            }
            Ending::Shed => {
                tracing::debug!(queue, message_id = id, receive_count, "too old: shed");
                self.report_sheds(queue);
            }
            Ending::AlreadyDone => {
                tracing::info!(
                    queue,
                    message_id = id,
                    receive_count,
                    "handled before and delivered again; deleted without running"
                );
            }
            Ending::Returned | Ending::Behind(_)
                if tries == 0 && self.prefers_finishing(message) =>
            {
                tracing::warn!(
                    queue,
                    message_id = id,
                    receive_count,
                    "given back without an attempt; the next receive may dead-letter it"
                );
            }
            // A busy downstream is reported for the route, not for each message.
            Ending::Verdict(Verdict::Done | Verdict::Busy { .. } | Verdict::Closed(_))
            | Ending::Returned
            | Ending::Stopped(_)
            | Ending::Behind(_) => {}
        }
    }

    /// Says now and then how many messages were too old.
    fn report_sheds(&self, queue: &str) {
        let mut sheds = self.sheds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(messages) = sheds.one(clock::now()) {
            let what = "too old and shed, since this was said last";
            tracing::warn!(queue, messages, "{what}");
        }
    }

    /// Reads a call's answers; what may pass is told again while its lease lasts.
    fn note(&self, answer: Answer, batch: &mut Batcher<Item>) {
        let now = clock::now();
        for item in &answer.late {
            self.comes_again(&item.message.id, item.latest(now));
        }
        let missing = || {
            Err(ItemError::Passing(
                "the queue's answer did not mention it".into(),
            ))
        };
        let results = answer
            .results
            .into_iter()
            .chain(std::iter::repeat_with(missing));
        for (item, result) in answer.items.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    if item.outcome == Outcome::Delete {
                        self.memory().deleted(&item.message.id);
                    }
                    if let Some(order) = &self.order {
                        order.told(&item.message.id, &item.outcome, item.unheard(now), now);
                    }
                }
                Err(ItemError::Passing(why)) => self.again(item, &why, now, batch),
                Err(error) => {
                    let Message { queue, id, .. } = &item.message;
                    tracing::warn!(queue, message_id = id, outcome = ?item.outcome, %error, "not settled; the queue delivers the message again");
                    self.comes_again(id, item.latest(now));
                }
            }
        }
    }

    fn again(&self, mut item: Item, why: &str, now: Moment, batch: &mut Batcher<Item>) {
        item.tries += 1;
        item.seat.get_or_insert_with(|| self.room.overdraw(1));
        let at = now + backoff::full_jitter(AGAIN.0, AGAIN.1, item.tries, fastrand::u64(..));
        if at < item.claim.until() && !self.halt.is_cancelled() {
            batch.push_later(item, at);
        } else {
            let Message { queue, id, .. } = &item.message;
            tracing::warn!(queue, message_id = id, outcome = ?item.outcome, "not settled before its lease ended; the queue delivers the message again: {why}");
            self.comes_again(id, item.latest(now));
        }
    }

    /// The queue delivers it again without having been told, from `due` on at the latest.
    fn comes_again(&self, id: &str, due: Moment) {
        if let Some(order) = &self.order {
            order.comes_again(id, due);
        }
    }
}

/// How many attempts a message has had, so many of them in this delivery.
fn attempts(memory: &Memory, message: &Message, tries: u32) -> u32 {
    let more = tries.saturating_sub(1);
    memory.attempts(message).saturating_add(more)
}
