//! The first stage: receives what the scheduler asks for, and turns messages into jobs. Knows no
//! other stage and no backend by name.

pub mod group;
mod recall;
pub(crate) mod receive_failures;

use crate::clock;
use crate::clock::{BootInstant, Timestamp};
use crate::envelope::Envelope;
use crate::idempotency::guard::Guard;
use crate::job::{Job, JobEnding, Outbox, hand_on};
use crate::lease::Ledger;
use crate::lease::book::LeaseTerms;
use crate::memory::{Budget, HeldBytes};
use crate::message::Message;
use crate::queue::{Ask, DeadLettered, GroupShare, Queue, QueueError, Received};
use crate::scheduler::Poll;
use crate::scheduler::ready::Waiting as _;
use crate::scheduler::shared::SharedScheduler;
use crate::spans::QueueSpans;
use crate::tasks::Group;
use crate::telemetry::counters::Counters;
use crate::telemetry::metrics::meter::Meter;
use crate::telemetry::readiness::Readiness;
use group::GroupBy;
use receive_failures::ReceiveFailures;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a queue waits for bytes before one of its messages goes beyond what may be held.
const SHORT_OF_BYTES: Duration = Duration::from_secs(1);

/// One queue of a route, to be received from.
pub struct Source {
    /// The queue.
    pub queue: Arc<dyn Queue>,
    /// Its index in the keeper's list.
    pub place: usize,
    /// How long what is received stays invisible.
    pub visibility: Duration,
    /// Whether it is asked for the newest messages.
    pub newest_first: bool,
    /// What was sent longer ago is too old to be started.
    pub max_age: Option<Duration>,
    /// What is measured of it.
    pub meter: Arc<Meter>,
    /// Where messages say which group they belong to, unless the queue does.
    pub group_by: Option<GroupBy>,
    /// What bodies are wrapped in, for `group_by`.
    pub envelope: Envelope,
    /// Makes the spans of receives.
    pub spans: QueueSpans,
}

/// What the stages after this one say about a message that has just arrived.
pub trait Arrivals: Send + Sync {
    /// How a message of the queue `lane` ends that need not run; `None`: it runs.
    fn ending(&self, lane: usize, message: &Message) -> Option<JobEnding>;
    /// Whether a message that was not started is better finished than released at a stop.
    fn prefers_finishing(&self, lane: usize, message: &Message) -> bool;
    /// The number of the first attempt of a message's new delivery, from 1.
    fn first_attempt(&self, lane: usize, message: &Message) -> u32;
    /// The queue `lane` has dead-lettered a message instead of handing it out.
    fn dead_lettered(&self, lane: usize, letter: &DeadLettered);
    /// Jobs have arrived or may start now, or a queue turned out to be empty.
    fn arrived(&self);
}

/// The intake of one route.
pub struct Intake {
    /// The route's name.
    pub route: String,
    /// The route's scheduler.
    pub scheduler: Arc<SharedScheduler<Job>>,
    /// The route's queues, in the order of its lanes.
    pub sources: Vec<Source>,
    /// Where leases are entered.
    pub ledger: Arc<Ledger>,
    /// Where jobs go that need not run.
    pub outbox: Outbox,
    /// The stages after this one.
    pub arrivals: Arc<dyn Arrivals>,
    /// Set when nothing more is to be asked for.
    pub stop: CancellationToken,
    /// Knows what was done before, in other processes as well, where the route wants it.
    pub guard: Option<Arc<Guard>>,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// Red while a queue cannot be received from.
    pub readiness: Arc<Readiness>,
    /// How many bytes of messages the process may hold; any number without.
    pub budget: Option<Arc<Budget>>,
}

struct ReceiveResult {
    poll: Poll,
    called: BootInstant,
    answered: BootInstant,
    received: Result<Received, QueueError>,
    /// What of it was done before, by the route's guard; may be empty where that is nothing.
    known: Vec<bool>,
}

impl Intake {
    /// Polls until the stop, then until the last outstanding poll was answered.
    pub async fn run(self) {
        let mut polls: Group<ReceiveResult> = Group::new();
        let mut troubles: Vec<ReceiveFailures> = self
            .sources
            .iter()
            .map(|_| ReceiveFailures::default())
            .collect();
        let permits = self.scheduler.lock().permits().clone();
        let (mut stopping, mut awaited) = (false, false);
        while !stopping || !polls.is_empty() {
            let now = clock::now();
            let (plan, next) = {
                let mut scheduler = self.scheduler.lock();
                (scheduler.plan(now), scheduler.next_attention(now))
            };
            for poll in plan {
                polls.spawn(self.receive(poll));
            }
            tokio::select! {
                biased; // for simulations; every round plans, whatever woke it
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.release_waiting();
                    awaited = self.report_outstanding();
                }
                answer = polls.next() => {
                    // Thousands of queues answer together: one round for all of them.
                    self.take(answer, &mut troubles);
                    for other in polls.take_finished() {
                        self.take(other, &mut troubles);
                    }
                    self.arrivals.arrived();
                }
                () = clock::sleep_until(next) => self.arrivals.arrived(),
                () = permits.freed() => {}
                () = self.scheduler.replan.notified() => self.arrivals.arrived(),
            }
        }
        if awaited {
            tracing::info!(route = self.route, "outstanding receives answered");
        }
    }

    /// Logs which receives a stop must wait for, and how long at most. Whether there are any.
    fn report_outstanding(&self) -> bool {
        let mut outstanding = self.scheduler.lock().outstanding();
        outstanding.retain(|(lane, _)| !self.sources[*lane].queue.ends_waits());
        let latest = outstanding.iter().map(|(_, answered_by)| *answered_by);
        let Some(latest) = latest.max() else {
            return false;
        };
        let queues = outstanding.iter();
        let queues = queues.map(|(lane, _)| self.sources[*lane].queue.identity().name.as_str());
        tracing::info!(
            route = self.route,
            queues = queues.collect::<Vec<_>>().join(","),
            at_most_s = clock::whole_seconds(latest.since(clock::now())),
            "waiting for outstanding receives: if cut off, their messages would stay invisible"
        );
        true
    }

    fn receive(&self, poll: Poll) -> impl Future<Output = ReceiveResult> + Send + 'static {
        let source = &self.sources[poll.lane];
        let queue = source.queue.clone();
        let ask = Ask {
            max: poll.max,
            visibility: source.visibility,
            wait: poll.wait,
            newest_first: source.newest_first,
            groups: GroupShare::Spread(self.scheduler.lock().group_share()),
            overdraw: false,
            idle: poll.is_idle,
        };
        let budget = self.budget.clone();
        let stop = self.stop.clone();
        let guard = self.guard.clone();
        let (spans, meter) = (source.spans.clone(), source.meter.clone());
        self.counters.receive_calls.one();
        source.meter.calls.one();
        async move {
            let called = clock::now();
            let received = receive(&*queue, ask, budget.as_deref(), &stop).await;
            let answered = clock::now();
            let error = received.as_ref().err().map(|error| error.kind.label());
            meter.receives.record(answered.since(called), error);
            match &received {
                Ok(received) => spans.received(called, Ok(&received.messages)),
                Err(error) => spans.received(called, Err(error)),
            }
            let known = match (guard, &received) {
                (Some(guard), Ok(received)) => {
                    recall::known(&guard, &received.messages, ask.visibility).await
                }
                _ => Vec::new(),
            };
            ReceiveResult {
                poll,
                called,
                answered,
                received,
                known,
            }
        }
    }

    fn take(&self, answer: ReceiveResult, troubles: &mut [ReceiveFailures]) {
        let ReceiveResult {
            mut poll,
            called,
            answered,
            received,
            known,
        } = answer;
        let lane = poll.lane;
        let visibility = self.sources[lane].visibility;
        let name = &self.sources[lane].queue.identity().name;
        let now = clock::now();
        match received {
            Err(error) => {
                let rest = troubles[lane].failed(name, &error, now);
                if troubles[lane].lasts() {
                    self.readiness
                        .set(format!("queue {name}"), error.to_string());
                }
                self.counters.failed_calls.one();
                self.scheduler.lock().failed(poll, rest, now);
            }
            Ok(Received {
                mut messages,
                drained,
                taken,
                held,
                short_of: _,
                dead_lettered,
            }) => {
                for letter in &dead_lettered {
                    self.arrivals.dead_lettered(lane, letter);
                }
                if troubles[lane].passed(name) {
                    self.readiness.clear(&format!("queue {name}"));
                }
                self.counters.received.many(messages.len());
                self.measure(lane, &messages);
                self.group(lane, &mut messages);
                let taken = handed_out(called, taken, visibility, answered);
                let jobs = self.jobs(&mut poll, taken, messages, held);
                let jobs = self.sort_out(lane, jobs, &known);
                let surplus = {
                    let mut scheduler = self.scheduler.lock();
                    scheduler.answered(poll, jobs, drained, now);
                    scheduler.surplus(lane)
                };
                for (job, after) in surplus {
                    hand_on(&self.outbox, lane, job.finish(JobEnding::Behind(after)));
                }
            }
        }
    }

    /// Says of what has arrived which group it belongs to, where its queue does not.
    fn group(&self, lane: usize, messages: &mut [Message]) {
        let source = &self.sources[lane];
        let Some(by) = &source.group_by else { return };
        let own = source.queue.identity().ordered_groups;
        for message in messages {
            if !(own && message.group.is_some()) {
                let opened = source.envelope.open(message);
                message.group = by.group(opened.as_ref().unwrap_or(message));
            }
        }
    }

    fn measure(&self, lane: usize, messages: &[Message]) {
        let meter = &self.sources[lane].meter;
        meter.received.many(messages.len());
        let today = clock::wall_clock_now();
        for sent in messages.iter().filter_map(|message| message.sent_at) {
            meter.aged(today.since(sent));
        }
    }

    fn jobs(
        &self,
        poll: &mut Poll,
        received: BootInstant,
        messages: Vec<Message>,
        held: Vec<HeldBytes>,
    ) -> Vec<Job> {
        let source = &self.sources[poll.lane];
        let answered = clock::now();
        let terms = messages.iter().map(|message| LeaseTerms {
            queue: source.place,
            receipt: message.receipt.clone(),
            received,
            answered,
            visibility: source.visibility,
        });
        let leases = self.ledger.open(terms);
        let (now, today) = (clock::now(), clock::wall_clock_now());
        let expires = |(sent, max_age): (Timestamp, Duration)| now + (sent + max_age).since(today);
        let counted = held.into_iter().map(Some).chain(std::iter::repeat(None));
        let count = |message: &Message| Some(self.budget.as_ref()?.take(message.held_bytes()));
        let seated = messages.into_iter().zip(leases).zip(counted);
        seated
            .map(|((message, lease), counted)| Job {
                held: counted.or_else(|| count(&message)),
                last_chance: self.arrivals.prefers_finishing(poll.lane, &message),
                first_attempt: self.arrivals.first_attempt(poll.lane, &message),
                sent_at: message.sent_at.unwrap_or(today),
                expires: message.sent_at.zip(source.max_age).map(expires),
                message,
                lease,
                permit: poll.seat(),
                holds: 0,
                tries: 0,
                took: None,
                not_before: None,
                trace: None,
            })
            .collect()
    }

    /// Sends on what need not run, and what comes after the stop and is better released.
    fn sort_out(&self, lane: usize, jobs: Vec<Job>, known: &[bool]) -> Vec<Job> {
        let stopping = self.stop.is_cancelled();
        let now = clock::now();
        let ordered = self.scheduler.lock().orders_groups(lane);
        let ending = |(at, job): (usize, &Job)| {
            let done = known.get(at).is_some_and(|known| *known);
            let too_old = job.expires.is_some_and(|at| at <= now);
            done.then_some(JobEnding::AlreadyDone)
                .or_else(|| self.arrivals.ending(lane, &job.message))
                .or_else(|| too_old.then_some(JobEnding::Shed))
        };
        let mut endings: Vec<Option<JobEnding>> = jobs.iter().enumerate().map(ending).collect();
        if stopping {
            let arrived = jobs.iter().map(|job| {
                let group = job.message.group.as_deref().filter(|_| ordered);
                (group, job.last_chance)
            });
            give_back(&arrived.collect::<Vec<_>>(), &mut endings);
        }
        if ordered {
            self.pass_by(lane, &jobs, &endings);
        }
        let mut run = Vec::with_capacity(jobs.len());
        for (job, ending) in jobs.into_iter().zip(endings) {
            match ending {
                None => run.push(job),
                Some(ending) => hand_on(&self.outbox, lane, job.finish(ending)),
            }
        }
        run
    }

    /// What follows in the groups of those that need not run waits until they are settled.
    fn pass_by(&self, lane: usize, jobs: &[Job], endings: &[Option<JobEnding>]) {
        let now = clock::now();
        let kept_here = self.sources[lane].group_by.is_some();
        let mut scheduler = self.scheduler.lock();
        for (job, ending) in jobs.iter().zip(endings) {
            let waits = match ending {
                None | Some(JobEnding::AlreadyDone) => false,
                // Only where the order is kept here does what is released overtake nothing.
                Some(
                    JobEnding::Verdict(_) | JobEnding::Exhausted(_) | JobEnding::Unreadable(_),
                ) => true,
                Some(_) => kept_here,
            };
            if waits {
                scheduler.passed_by(lane, job, now);
            }
        }
    }

    fn release_waiting(&self) {
        let chosen = |_, job: &Job| job.may_be_given_back();
        let now = clock::now();
        let released = self.scheduler.lock().stop(chosen, now);
        for (lane, job) in released {
            let ending = job.given_back(now);
            hand_on(&self.outbox, lane, job.finish(ending));
        }
    }
}

/// Receives as far as the process may hold what comes: what is too much waits until other messages
/// are settled. Those may wait in turn for an answer of this queue, so after a while one message goes
/// beyond what may be held.
async fn receive(
    queue: &dyn Queue,
    mut ask: Ask,
    budget: Option<&Budget>,
    stop: &CancellationToken,
) -> Result<Received, QueueError> {
    loop {
        let received = queue.receive(ask, stop).await?;
        let (Some(bytes), Some(budget)) = (received.short_of, budget) else {
            return Ok(received);
        };
        let nothing = received.messages.is_empty() && received.dead_lettered.is_empty();
        if !nothing || stop.is_cancelled() {
            return Ok(received);
        }
        tokio::select! {
            () = budget.available(bytes) => ask.overdraw = false,
            () = clock::sleep_until(Some(clock::now() + SHORT_OF_BYTES)) => ask.overdraw = true,
            () = stop.cancelled() => {}
        }
    }
}

/// What arrives after the stop is released, unless its next receive may dead-letter it; and unless
/// something behind it in its group must run for that reason, which it cannot before this has.
/// `arrived` is the group, if its order is kept, and whether it is the last chance, of each.
fn give_back(arrived: &[(Option<&str>, bool)], endings: &mut [Option<JobEnding>]) {
    let mut needed: Vec<&str> = Vec::new();
    for ((group, last_chance), ending) in arrived.iter().zip(endings).rev() {
        if ending.is_some() {
            continue;
        }
        match group {
            Some(group) if needed.contains(group) => {}
            Some(group) if *last_chance => needed.push(group),
            None if *last_chance => {}
            _ => *ending = Some(JobEnding::Returned),
        }
    }
}

/// When what a poll brought was delivered. A backend that does not tell may have waited long
/// before; then the answer is taken to have been under way for a quarter of the visibility at
/// most. The first extension, at half of it, makes sure.
fn handed_out(
    called: BootInstant,
    taken: Option<BootInstant>,
    visibility: Duration,
    answered: BootInstant,
) -> BootInstant {
    let slowest = answered.since(called).min(visibility / 4);
    taken.unwrap_or(called + (answered.since(called) - slowest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_02_stop_does_not_return_messages_ahead_of_a_last_attempt_in_their_group() {
        let (a, b) = (Some("a"), Some("b"));
        let arrived = [
            (a, false),
            (b, false),
            (a, true),
            (None, false),
            (a, false),
            (None, true),
            (b, false),
        ];
        let mut endings = vec![None; arrived.len()];
        endings[6] = Some(JobEnding::AlreadyDone);
        give_back(&arrived, &mut endings);
        let back = Some(JobEnding::Returned);
        let done = Some(JobEnding::AlreadyDone);
        assert_eq!(
            endings,
            [None, back.clone(), None, back.clone(), back, None, done]
        );
    }

    #[test]
    fn message_arriving_late_in_a_long_poll_has_most_of_its_lease_left() {
        let at = |seconds| BootInstant::from_boot(Duration::from_secs(seconds));
        let counted_from =
            |answered| handed_out(at(100), None, Duration::from_secs(8), at(answered));
        assert_eq!(counted_from(100), at(100));
        assert_eq!(counted_from(101), at(100));
        assert_eq!(counted_from(119), at(117));
        let told = handed_out(at(100), Some(at(118)), Duration::from_secs(8), at(119));
        assert_eq!(told, at(118));
    }
}
