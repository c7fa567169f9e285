//! Wires one route: intake, scheduler, executor, settlement. No business rule.

use super::ProcessContext;
use super::build::Built;
use crate::config::{Route, WeightedQueue};
use dispatcher_core::clock;
use dispatcher_core::control::QueueControl;
use dispatcher_core::executor::downstream::Downstream;
use dispatcher_core::executor::opening::Opening;
use dispatcher_core::executor::{Executor, OutcomePreview, Workers};
use dispatcher_core::filter::Filter;
use dispatcher_core::idempotency::Records;
use dispatcher_core::idempotency::guard::Guard;
use dispatcher_core::intake::{Arrivals, Intake, Source};
use dispatcher_core::job::{Job, JobEnding};
use dispatcher_core::lease::book::SHORTEST_VISIBILITY;
use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::{DeadLettered, Identity, Queue};
use dispatcher_core::scheduler::lane::LaneRules;
use dispatcher_core::scheduler::live::{RouteControl, effective};
use dispatcher_core::scheduler::permits::Permits;
use dispatcher_core::scheduler::ready::Sequence;
use dispatcher_core::scheduler::shared::SharedScheduler;
use dispatcher_core::scheduler::{Rules, Scheduler, SchedulerLimits};
use dispatcher_core::settlement::decide::Policy;
use dispatcher_core::settlement::{OrderPort, Settlement};
use dispatcher_core::spans::{QueueSpans, SpanTerms};
use dispatcher_core::tasks;
use dispatcher_core::tasks::{Group, Task};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;

/// A route at work.
pub struct RunningRoute {
    /// What is waiting and running.
    pub scheduler: Arc<SharedScheduler<Job>>,
    /// Ends after the stop, when the last poll was answered.
    pub intake: Task<()>,
    /// End when the last job is settled and no stage can send another.
    pub settlements: Group<()>,
    /// Held until nothing runs any more: its end lets the settlements end.
    pub executor: Arc<Executor>,
    /// The route's name.
    pub name: String,
}

impl RunningRoute {
    /// What of it can be changed while it runs.
    pub(crate) fn adjustable(&self) -> Adjustable {
        Adjustable {
            scheduler: self.scheduler.clone(),
            executor: Arc::downgrade(&self.executor),
        }
    }
}

/// What can be changed of a route at work.
pub(crate) struct Adjustable {
    scheduler: Arc<SharedScheduler<Job>>,
    /// Not held: its end ends the settlements.
    executor: Weak<Executor>,
}

impl Adjustable {
    /// Other limits from now on.
    pub(crate) fn adjust(&self, limits: &SchedulerLimits) {
        self.scheduler.lock().set_limits(limits, clock::now());
        self.scheduler.replan.notify_one();
        if let Some(executor) = self.executor.upgrade() {
            executor.start_workers();
        }
    }
}

/// Starts a route whose queues are in the keeper's list from `place` on, on the present runtime.
pub fn start(
    built: Built,
    place: usize,
    shared: &ProcessContext,
    workers: Workers,
) -> RunningRoute {
    let Built {
        route,
        queues,
        loaded,
        records,
    } = built;
    let name = route.name.clone();
    let guard = guard(&route, records, shared);
    let rules = rules(&route, &queues, &shared.controls);
    let scheduler = Arc::new(SharedScheduler::new(Scheduler::new(rules)));
    let spans = spans(&route, &queues, shared);
    let order = (&scheduler, &*spans);
    let settlements = settlements(&route, &queues, order, guard.as_ref(), shared);
    let mut outbox = Vec::new();
    let mut running = Group::new();
    for settlement in &settlements {
        let (sender, finished) = unbounded_channel();
        outbox.push(sender);
        let settling = settlement.clone().run(finished);
        running.spawn(tasks::watched(&shared.broken, settling));
    }
    let executor = Arc::new(Executor {
        scheduler: scheduler.clone(),
        handler: Opening::before(loaded.handler, route.settings.envelope),
        timeout: loaded.timeout,
        outbox: outbox.clone(),
        workers,
        control: Handle::current(),
        halt: shared.halt.clone(),
        counters: shared.counters.clone(),
        meters: queues.iter().map(|queue| shared.meter(queue)).collect(),
        downstream: Downstream::new(&route.name, shared.readiness.clone()),
        preview: Arc::new(SettlementPreview(settlements.clone())),
        running: Arc::default(),
        spans: spans.clone(),
    });
    let watched = scheduler.clone();
    let figures = move || watched.lock().figures();
    shared.routes.add(&route.name, figures);
    let source = |(at, queue): (usize, &Arc<dyn Queue>)| Source {
        visibility: visibility(&route, queue.identity()),
        queue: queue.clone(),
        place: place + at,
        newest_first: route.settings.sequence == Sequence::Lifo,
        max_age: route.settings.max_age,
        meter: shared.meter(queue),
        group_by: route.settings.group_by.clone(),
        envelope: route.settings.envelope,
        spans: spans[at].clone(),
    };
    let intake = Intake {
        route: name.clone(),
        scheduler: scheduler.clone(),
        sources: queues.iter().enumerate().map(source).collect(),
        ledger: shared.ledger.clone(),
        outbox,
        arrivals: Arc::new(Next {
            settlements,
            executor: executor.clone(),
        }),
        stop: shared.stop.clone(),
        guard,
        counters: shared.counters.clone(),
        readiness: shared.readiness.clone(),
        budget: shared.budget.clone(),
    };
    RunningRoute {
        scheduler,
        intake: tasks::spawn(tasks::watched(&shared.broken, intake.run())),
        settlements: running,
        executor,
        name,
    }
}

/// What makes the spans of each queue, in the route's order.
fn spans(route: &Route, queues: &[Arc<dyn Queue>], shared: &ProcessContext) -> Vec<QueueSpans> {
    let one = |(weighted, queue): (&WeightedQueue, &Arc<dyn Queue>)| {
        let identity = queue.identity();
        let system = weighted.name.backend.messaging_system();
        let terms = SpanTerms {
            route: &route.name,
            visibility: visibility(route, identity),
            envelope: route.settings.envelope,
            queue_url: queue.url(),
        };
        QueueSpans::new(&shared.tracer, system, identity, &terms)
    };
    route.queues.iter().zip(queues).map(one).collect()
}

/// Creates one settlement per queue, which reports to the scheduler if groups are kept in order
/// here.
fn settlements(
    route: &Route,
    queues: &[Arc<dyn Queue>],
    (scheduler, spans): (&Arc<SharedScheduler<Job>>, &[QueueSpans]),
    guard: Option<&Arc<Guard>>,
    shared: &ProcessContext,
) -> Vec<Arc<Settlement>> {
    let in_order = |lane| {
        let by_queue = route.settings.group_by.is_none();
        if !by_queue {
            scheduler.lock().keep_sending_order(lane);
        } else if !scheduler.lock().orders_groups(lane) {
            return None;
        }
        Some(OrderPort::new(scheduler.clone(), lane, by_queue))
    };
    let filters: Arc<[Filter]> = route.settings.filter.clone().into();
    let one = |(lane, queue): (usize, &Arc<dyn Queue>)| {
        let room = scheduler.lock().permits().clone();
        let settlement = settlement(route, queue, room, shared);
        let settlement = settlement
            .filtered(Arc::clone(&filters))
            .opening(route.settings.envelope, route.s3_pointers())
            .traced(spans[lane].clone());
        Arc::new(settlement.guarded(guard.cloned()).in_order(in_order(lane)))
    };
    queues.iter().enumerate().map(one).collect()
}

/// What settlement makes of failed attempts, as the executor asks it.
struct SettlementPreview(Vec<Arc<Settlement>>);

impl OutcomePreview for SettlementPreview {
    fn preview(&self, lane: usize, job: &Job, ending: &JobEnding) -> Option<Outcome> {
        self.0[lane].preview(&job.message, job.tries, ending)
    }

    fn tries_again(&self, lane: usize, job: &Job, ending: &JobEnding, pause: Duration) {
        self.0[lane].tries_again(job, ending, pause);
    }
}

/// The stages after intake, as intake sees them.
struct Next {
    settlements: Vec<Arc<Settlement>>,
    executor: Arc<Executor>,
}

impl Arrivals for Next {
    fn ending(&self, lane: usize, message: &Message) -> Option<JobEnding> {
        self.settlements[lane].on_arrival(message)
    }

    fn prefers_finishing(&self, lane: usize, message: &Message) -> bool {
        self.settlements[lane].prefers_finishing(message)
    }

    fn first_attempt(&self, lane: usize, message: &Message) -> u32 {
        self.settlements[lane].first_attempt(message)
    }

    fn dead_lettered(&self, lane: usize, letter: &DeadLettered) {
        self.settlements[lane].dead_lettered(letter);
    }

    fn arrived(&self) {
        // Once attempts must end, nothing begins any more: what a late receive brings is released.
        match self.executor.halt.is_cancelled() {
            true => self.executor.give_back(),
            false => self.executor.start_workers(),
        }
    }
}

/// How long what is received of a queue stays invisible.
fn visibility(route: &Route, identity: &Identity) -> Duration {
    let visibility = route.settings.visibility.unwrap_or(identity.visibility);
    visibility.max(SHORTEST_VISIBILITY)
}

fn rules(
    route: &Route,
    queues: &[Arc<dyn Queue>],
    controls: &BTreeMap<String, QueueControl>,
) -> Rules {
    let lane = |identity: &Identity| LaneRules {
        batch: identity.batch,
        poll_for: route.settings.poll_for.min(identity.longest_wait),
        proof_wait: identity.proof_wait,
        sleep: route.settings.sleep,
        ordered_groups: identity.ordered_groups || route.settings.group_by.is_some(),
        sequence: route.settings.sequence,
    };
    let names = route.queues.iter().map(|queue| queue.name.to_string());
    let control = |name: String| controls.get(&name).copied().unwrap_or_default();
    let set: Vec<QueueControl> = names.map(control).collect();
    let visibilities = queues
        .iter()
        .map(|queue| visibility(route, queue.identity()));
    Rules {
        // A lease is extended at half of its visibility.
        horizon: match route.settings.sequence {
            Sequence::Fifo => visibilities.min().unwrap_or_default() / 2,
            // What is held ahead is the choice of the newest: all that is allowed.
            Sequence::Lifo => Duration::MAX,
        },
        lanes: queues.iter().map(|queue| lane(queue.identity())).collect(),
        weights: route
            .queues
            .iter()
            .map(|queue| Some(queue.weight?.get()))
            .collect(),
        batch: route.settings.batch_size,
        limits: effective(
            &route.limits(),
            route.settings.concurrency,
            &RouteControl::default(),
            &set,
        ),
    }
}

fn settlement(
    route: &Route,
    queue: &Arc<dyn Queue>,
    permits: Permits,
    shared: &ProcessContext,
) -> Settlement {
    let policy = Policy {
        first: route.retry.first,
        most: route.retry.most,
        attempts: route.retry.attempts.map(std::num::NonZero::get),
        dead_letters: queue.identity().dead_letters,
        receives: receives(queue.identity()),
        shedding: route.settings.shedding(),
        unmatched: route.settings.unmatched,
    };
    Settlement::new(
        queue.clone(),
        policy,
        permits,
        shared.halt.clone(),
        shared.counters.clone(),
        shared.meter(queue),
    )
}

/// The receives that the queue's redrive policy allows, where they are the attempts of a message.
fn receives(identity: &Identity) -> Option<u32> {
    let takes = identity.dead_letters || identity.redrive_target;
    identity
        .most_receives
        .filter(|_| identity.ordered_groups && takes)
}

/// What keeps the route from doing twice what it remembers, if it is to.
fn guard(
    route: &Route,
    records: Option<Arc<dyn Records>>,
    shared: &ProcessContext,
) -> Option<Arc<Guard>> {
    let (counters, readiness) = (shared.counters.clone(), shared.readiness.clone());
    let guard = Guard::new(
        records?,
        route.settings.idempotency?,
        &route.name,
        counters,
        readiness,
    );
    Some(Arc::new(guard))
}
