//! The first stage: receives as the scheduler plans, and turns messages into jobs. Does not depend
//! on any other stage or backend.

mod recall;
pub(crate) mod receive_failures;

use crate::clock;
use crate::clock::BootInstant;
use crate::envelope::Envelope;
use crate::fleet::hand::Needs;
use crate::fleet::keeper::RouteLimits;
use crate::idempotency::guard::Guard;
use crate::job::{Arrival, Hold, Job, JobEnding, Outbox, hand_on};
use crate::lease::Ledger;
use crate::lease::book::LeaseTerms;
use crate::memory::{Budget, HeldBytes};
use crate::message::Message;
use crate::message::place::{MessageKey, MessagePlace};
use crate::queue::sharing::{Priority, SharingPlaces};
use crate::queue::{
    Ask, DeadLettered, GroupShare, Queue, QueueError, ReceivedMessages, last_first,
};
use crate::scheduler::Poll;
use crate::scheduler::ready::WaitingJob as _;
use crate::scheduler::shared::SharedScheduler;
use crate::spans::QueueSpans;
use crate::tasks::Group;
use crate::telemetry::counters::Counters;
use crate::telemetry::metrics::meter::Meter;
use crate::telemetry::readiness::Readiness;
use receive_failures::ReceiveFailures;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The time that a queue waits for free memory before one of its messages may exceed the budget.
/// Without it, queues could deadlock, each waiting for the messages of another.
const SHORT_OF_BYTES: Duration = Duration::from_secs(1);

/// A queue of a route that the intake receives from.
pub struct Source {
    /// The queue.
    pub queue: Arc<dyn Queue>,
    /// The visibility timeout of received messages.
    pub visibility: Duration,
    /// Whether the newest messages are requested first.
    pub newest_first: bool,
    /// The maximum age of a message, since it was sent, at which it may be started.
    pub max_age: Option<Duration>,
    /// The meter of the queue.
    pub meter: Arc<Meter>,
    /// The place in messages that names their group, unless the queue names it.
    pub group_by: Option<MessagePlace>,
    /// The envelope of bodies, for `group_by`.
    pub envelope: Envelope,
    /// The maker of the spans of receives.
    pub spans: QueueSpans,
    /// The limits of the fleet that its messages need, if there are any.
    pub limits: Option<RouteLimits>,
    /// Where its messages name their tenant and priority, if these share the route.
    pub sharing: Option<SharingPlaces>,
}

/// A message's tenant and priority, and when it goes before all others.
type Turn = (Option<String>, Priority, Option<Duration>);

impl Source {
    fn needs(&self, message: &Message) -> Option<Needs> {
        let limits = self.limits.as_ref()?;
        let opened = self.envelope.open(message);
        let queue = &self.queue.identity().name;
        Some(limits.needs(opened.as_ref().unwrap_or(message), queue))
    }

    fn turn(&self, message: &Message) -> Turn {
        let Some(places) = &self.sharing else {
            return (None, Priority::default(), None);
        };
        let opened = self.envelope.open(message);
        let inner = opened.as_ref().unwrap_or(message);
        let priority = places.priority(inner);
        let tenant = places.tenant(inner, message.group.as_deref());
        (tenant, priority, places.longest_waits[priority.index()])
    }
}

/// The calls from the intake to the later stages. A lane is the index of a queue in its route.
pub trait Arrivals: Send + Sync {
    /// Returns what the later stages know of a message of the queue `lane`.
    fn arrival(&self, lane: usize, message: &Message) -> Arrival;
    /// Records that the queue `lane` has dead-lettered a message instead of delivering it.
    fn dead_lettered(&self, lane: usize, letter: &DeadLettered);
    /// Reports that jobs have arrived or may start now, or that a queue turned out to be empty.
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
    /// The ledger that leases are entered in.
    pub ledger: Arc<Ledger>,
    /// The channels for jobs that need not run.
    pub outbox: Outbox,
    /// The stages after this one.
    pub arrivals: Arc<dyn Arrivals>,
    /// Set when no more messages may be requested.
    pub stop: CancellationToken,
    /// The guard that knows which messages were handled before, also by other processes; `None` if
    /// the route does not use it.
    pub guard: Option<Arc<Guard>>,
    /// The counters of receives.
    pub counters: Arc<Counters>,
    /// The readiness; red while a queue cannot be received from.
    pub readiness: Arc<Readiness>,
    /// The budget of bytes of messages that the process may hold; unlimited if `None`.
    pub budget: Option<Arc<Budget>>,
}

struct ReceiveResult {
    poll: Poll,
    called: BootInstant,
    answered: BootInstant,
    received: Result<ReceivedMessages, QueueError>,
    /// Which of the messages were handled before, according to the route's guard. May be empty if
    /// none was.
    known: Vec<bool>,
}

impl Drop for Intake {
    /// A later version of the route may receive from its queues now.
    fn drop(&mut self) {
        for source in &self.sources {
            let name = &source.queue.identity().name;
            self.readiness.reopen_queue(name);
        }
    }
}

impl Intake {
    /// Polls until the stop, then waits for the answer to the last outstanding poll.
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
            let (rules, plan, next) = {
                let mut scheduler = self.scheduler.lock();
                let rules = scheduler.share_out(now);
                (rules, scheduler.plan(now), scheduler.next_attention(now))
            };
            for (lane, sharing) in rules {
                self.sources[lane].queue.share_out(&sharing);
            }
            for poll in plan {
                polls.spawn(self.receive(poll));
            }
            tokio::select! {
                biased; // for simulations; every round plans, whichever event it handles
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.release_waiting();
                    self.scheduler.retired.notify_one();
                    awaited = self.report_outstanding();
                }
                answer = polls.next() => {
                    // Thousands of queues may answer together: one round handles all of them.
                    self.take(answer, &mut troubles);
                    for other in polls.take_finished() {
                        self.take(other, &mut troubles);
                    }
                    self.arrivals.arrived();
                    if stopping {
                        self.scheduler.retired.notify_one();
                    }
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

    /// Logs which receives a stop must wait for, and the maximum wait. Returns whether there are
    /// any.
    fn report_outstanding(&self) -> bool {
        let mut outstanding = self.scheduler.lock().outstanding();
        outstanding.retain(|(lane, _)| !self.sources[*lane].queue.facts().ends_waits);
        let latest = outstanding.iter().map(|(_, answered_by)| *answered_by);
        let Some(latest) = latest.max() else {
            return false;
        };
        let queues = outstanding
            .iter()
            .map(|(lane, _)| self.sources[*lane].queue.identity().name.as_str());
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
            groups: match &source.sharing {
                Some(places) if places.tenant == Some(MessageKey::Group) => GroupShare::One,
                _ => GroupShare::Spread(self.scheduler.lock().group_share()),
            },
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
                    let reason = error.to_string();
                    self.readiness.close_queue(&self.route, name, &reason);
                }
                self.counters.failed_calls.one();
                self.scheduler.lock().failed(poll, rest, now);
            }
            Ok(ReceivedMessages {
                mut messages,
                drained,
                taken,
                held,
                short_of: _,
                dead_lettered,
                overdue,
            }) => {
                for letter in &dead_lettered {
                    self.arrivals.dead_lettered(lane, letter);
                }
                if troubles[lane].passed(name) {
                    self.readiness.reopen_queue(name);
                }
                self.counters.received.many(messages.len());
                self.sources[lane].meter.hastened.many(overdue);
                self.measure(lane, &messages);
                self.group(lane, &mut messages);
                let taken = handed_out(called, taken, visibility, answered);
                let arrived = self.jobs(&mut poll, taken, messages, held);
                let jobs = self.sort_out(lane, arrived, &known);
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

    /// Sets the group of received messages if their queue does not.
    fn group(&self, lane: usize, messages: &mut [Message]) {
        let source = &self.sources[lane];
        let Some(by) = &source.group_by else { return };
        let own = source.queue.identity().ordered_groups;
        for message in messages {
            if !(own && message.group.is_some()) {
                let opened = source.envelope.open(message);
                message.group = by.text(opened.as_ref().unwrap_or(message));
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
    ) -> Vec<(Job, Option<JobEnding>)> {
        let source = &self.sources[poll.lane];
        let answered = clock::now();
        let terms = messages.iter().map(|message| LeaseTerms {
            queue: poll.lane,
            receipt: message.receipt.clone(),
            received,
            answered,
            visibility: source.visibility,
        });
        let leases = self.ledger.open(terms);
        let (now, today) = (clock::now(), clock::wall_clock_now());
        let counted = held.into_iter().map(Some).chain(std::iter::repeat(None));
        let seated = messages.into_iter().zip(leases).zip(counted);
        seated
            .map(|((message, lease), counted)| {
                let arrival = self.arrivals.arrival(poll.lane, &message);
                let dated = message.sent_at.zip(source.max_age);
                let (tenant, priority, longest_wait) = source.turn(&message);
                let waits = message.sent_at.zip(longest_wait);
                let hold = Hold {
                    permit: Some(poll.seat()),
                    bytes: counted
                        .or_else(|| Some(self.budget.as_ref()?.take(message.held_bytes()))),
                    sent_at: message.sent_at.unwrap_or(today),
                    expires: dated.map(|(sent, max_age)| now + (sent + max_age).since(today)),
                    pauses: 0,
                    tries: 0,
                    first_attempt: arrival.first_attempt,
                    took: None,
                    not_before: None,
                    last_chance: arrival.last_chance,
                    trace: None,
                    tenant,
                    priority,
                    hastens: waits.map(|(sent, longest)| now + (sent + longest).since(today)),
                    needs: source.needs(&message),
                    limits: None,
                };
                let job = Job {
                    message,
                    lease,
                    hold,
                };
                (job, arrival.ending)
            })
            .collect()
    }

    /// Hands on the jobs that need not run, and those that arrived after the stop and should be
    /// released. Returns the others.
    fn sort_out(
        &self,
        lane: usize,
        arrived: Vec<(Job, Option<JobEnding>)>,
        known: &[bool],
    ) -> Vec<Job> {
        let stopping = self.stop.is_cancelled();
        let now = clock::now();
        let ordered = self.scheduler.lock().orders_groups(lane);
        let known = known.iter().copied().chain(std::iter::repeat(false));
        let (jobs, mut endings): (Vec<Job>, Vec<Option<JobEnding>>) = arrived
            .into_iter()
            .zip(known)
            .map(|((job, ending), is_done)| {
                let is_too_old = job.hold.expires.is_some_and(|at| at <= now);
                let ending = if is_done {
                    Some(JobEnding::AlreadyDone)
                } else {
                    ending.or(is_too_old.then_some(JobEnding::Shed))
                };
                (job, ending)
            })
            .unzip();
        if stopping {
            let arrived = jobs.iter().map(|job| {
                let group = if ordered {
                    job.message.group.as_deref()
                } else {
                    None
                };
                (group, job.hold.last_chance)
            });
            give_back(&arrived.collect::<Vec<_>>(), &mut endings);
        }
        if ordered {
            self.pass_by(lane, &jobs, &endings);
        }
        let (mut run, mut over) = (Vec::with_capacity(jobs.len()), Vec::new());
        for (job, ending) in jobs.into_iter().zip(endings) {
            match ending {
                None => run.push(job),
                Some(ending) => over.push((job, ending)),
            }
        }
        for (job, ending) in last_first(over, |(job, ending): &(Job, JobEnding)| {
            job.message.group.is_some() && *ending == JobEnding::Returned
        }) {
            hand_on(&self.outbox, lane, job.finish(ending));
        }
        run
    }

    /// Makes later messages of the same groups wait until the jobs that need not run are settled, as
    /// far as those could otherwise be overtaken.
    fn pass_by(&self, lane: usize, jobs: &[Job], endings: &[Option<JobEnding>]) {
        let now = clock::now();
        let kept_here = self.sources[lane].group_by.is_some();
        let mut scheduler = self.scheduler.lock();
        for (job, ending) in jobs.iter().zip(endings) {
            let waits = match ending {
                None | Some(JobEnding::AlreadyDone) => false,
                Some(
                    JobEnding::Verdict(_) | JobEnding::Exhausted(_) | JobEnding::Unreadable(_),
                ) => true,
                // These are released. If the queue keeps the order, it holds the later ones back.
                Some(_) => kept_here,
            };
            if waits {
                scheduler.passed_by(lane, job, now);
            }
        }
    }

    fn release_waiting(&self) {
        let now = clock::now();
        let released = self
            .scheduler
            .lock()
            .stop(|_, job: &Job| job.may_be_given_back(), now);
        for (lane, job) in last_first(released, |(_, job): &(usize, Job)| {
            job.message.group.is_some()
        }) {
            let ending = job.given_back(now);
            hand_on(&self.outbox, lane, job.finish(ending));
        }
    }
}

/// Receives messages within the process's byte budget. If there is no room, it waits until other
/// messages are settled. Those may in turn wait for an answer of this queue, so after a while one
/// message may exceed the budget.
async fn receive(
    queue: &dyn Queue,
    mut ask: Ask,
    budget: Option<&Budget>,
    stop: &CancellationToken,
) -> Result<ReceivedMessages, QueueError> {
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

/// Chooses which of the messages that arrive during a stop are released. A message at its last
/// receive is not: a release might dead-letter it without a run. Nor are the messages before it in
/// its group, which must run first. `arrived` holds, for each message, its group if the order of
/// groups is kept, and whether this is its last receive.
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

/// Returns when the queue began to count the visibility timeout. If the backend does not report it,
/// it is the time of the answer, less the duration of the call, but less at most a quarter of the
/// timeout: a long poll waits first. An answer that took longer on its way makes this too late, which
/// is safe up to half the timeout, when the first extension is sent.
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

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn message_arriving_late_in_a_long_poll_has_most_of_its_lease_left() {
        for (answered, told, counted_from) in [
            (100, None, 100),
            (101, None, 100),
            (119, None, 117),
            (119, Some(118), 118),
        ] {
            let from = handed_out(at(100), told.map(at), Duration::from_secs(8), at(answered));
            assert_eq!(from, at(counted_from), "{answered}");
        }
    }
}
