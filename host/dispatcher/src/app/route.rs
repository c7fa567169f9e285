//! Connects the stages of one route: intake, scheduler, executor, settlement. Contains no business
//! rule.

use super::ProcessContext;
use super::build::Built;
use super::handover;
use super::handover::EarlierVersion;
use super::operations::tenants;
use dispatcher_config::Route;
use dispatcher_config::name::QueueName;
use dispatcher_core::clock;
use dispatcher_core::envelope::Envelope;
use dispatcher_core::executor::downstream::Downstream;
use dispatcher_core::executor::opening::EnvelopeOpener;
use dispatcher_core::executor::{Executor, OutcomePreview, Workers};
use dispatcher_core::filter::Filter;
use dispatcher_core::fleet::keeper::RouteLimits;
use dispatcher_core::idempotency::Records;
use dispatcher_core::idempotency::guard::Guard;
use dispatcher_core::intake::{Arrivals, Intake, Source};
use dispatcher_core::job::{Arrival, Job, JobEnding, Outbox};
use dispatcher_core::lease::book::SHORTEST_VISIBILITY;
use dispatcher_core::lease::{Ledger, keeper};
use dispatcher_core::message::place::MessageKey;
use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::sharing::{PRIORITIES, SharingPlaces};
use dispatcher_core::queue::{DeadLettered, Identity, Queue};
use dispatcher_core::scheduler::lane::LaneRules;
use dispatcher_core::scheduler::permits::Permits;
use dispatcher_core::scheduler::ready::Sequence;
use dispatcher_core::scheduler::shared::SharedScheduler;
use dispatcher_core::scheduler::{AttemptsLeft, Rules, Scheduler, SchedulerLimits};
use dispatcher_core::settlement::decide::Policy;
use dispatcher_core::settlement::{OrderPort, Settlement};
use dispatcher_core::spans::{QueueSpans, SpanTerms};
use dispatcher_core::tasks;
use dispatcher_core::tasks::{Group, Task};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;

/// A running route.
pub struct RunningRoute {
    /// Its number: each route that is started has a higher one.
    pub number: u64,
    /// The settings that it was started with.
    pub route: Route,
    /// Its queues, in the route's order.
    pub queues: Vec<Arc<dyn Queue>>,
    /// Cancelled when it must receive no more messages.
    pub stop: CancellationToken,
    /// The waiting and running messages.
    pub scheduler: Arc<SharedScheduler<Job>>,
    /// Ends after the stop, when the last poll was answered.
    pub intake: Task<()>,
    /// End when the last job is settled and no stage can send another one.
    pub settlements: Group<()>,
    /// Held until nothing runs: dropping it lets the settlements end.
    pub executor: Arc<Executor>,
    /// Starts messages that wait for limits of the fleet, if the route has limits.
    pub limits: Option<Task<()>>,
    /// The leases of its messages.
    pub ledger: Arc<Ledger>,
    /// Extends them until dropped.
    pub keeper: Task<()>,
}

impl RunningRoute {
    /// Leaves attempts to earlier versions of the route.
    pub fn leave_attempts(&self, earlier: &[EarlierVersion]) {
        if leave_attempts(&self.scheduler, &self.queues, earlier) {
            self.scheduler.replan.notify_one();
            self.executor.start_workers();
        }
    }
}

/// Lets a version of a route leave attempts to earlier ones. Returns whether it leaves others than
/// before.
pub fn leave_attempts(
    scheduler: &SharedScheduler<Job>,
    queues: &[Arc<dyn Queue>],
    earlier: &[EarlierVersion],
) -> bool {
    let left = handover::left_attempts(&names(queues), earlier);
    let mut scheduler = scheduler.lock();
    scheduler.leave_attempts(&left)
}

/// Lowers the limits of a version that finishes, and returns what a newer one must know of it.
pub fn earlier_version(
    route: &Route,
    queues: &[Arc<dyn Queue>],
    scheduler: &SharedScheduler<Job>,
) -> EarlierVersion {
    let orders_groups = handover::orders_groups(route);
    EarlierVersion {
        queues: names(queues),
        left: if orders_groups {
            // No other version runs beside it, so it needs none of its limits lowered.
            AttemptsLeft::default()
        } else {
            scheduler.lock().lower_to_attempts_left()
        },
        orders_groups,
    }
}

fn names(queues: &[Arc<dyn Queue>]) -> Vec<String> {
    let names = queues.iter().map(|queue| queue.identity().name.clone());
    names.collect()
}

/// Starts a route on the current runtime, with the limits that apply now. `earlier` has the versions
/// that still finish if it is not the first one.
pub fn start(
    built: Built,
    limits: SchedulerLimits,
    earlier: Option<&[EarlierVersion]>,
    shared: &ProcessContext,
    workers: Workers,
) -> RunningRoute {
    let Built {
        route,
        queues,
        loaded,
        records,
    } = built;
    let guard = guard(&route, records, shared);
    let scheduler = Scheduler::new(rules(&route, &queues, limits));
    let scheduler = Arc::new(SharedScheduler::new(beside(scheduler, &queues, earlier)));
    let common = common_limits(&route, shared);
    if let Some(common) = &common {
        scheduler.lock().limit(&common.fleet);
    }
    let spans = spans(&route, &queues, shared);
    let order = (&scheduler, &*spans);
    let settlements = settlements(&route, &queues, order, guard.as_ref(), shared);
    let (outbox, running) = run_settlements(&settlements, shared);
    let executor = Arc::new(Executor {
        scheduler: scheduler.clone(),
        handler: EnvelopeOpener::before(loaded.handler, route.settings.envelope),
        timeout: loaded.timeout,
        outbox: outbox.clone(),
        workers,
        control: Handle::current(),
        halt: shared.halt.clone(),
        counters: shared.counters.clone(),
        meters: queues.iter().map(|queue| shared.meter(queue)).collect(),
        downstream: Downstream::new(&route.name, queues.len(), shared.readiness.clone()),
        preview: Arc::new(SettlementPreview(settlements.clone())),
        running: Arc::default(),
        spans: spans.clone(),
    });
    let (routes, watched) = (&shared.routes, scheduler.clone());
    routes.add(&route.name, move || watched.lock().figures());
    tenants::measure(&route, &scheduler, shared);
    let ledger = Arc::new(Ledger::counted_in(shared.held.clone()));
    let stop = shared.stop.child_token();
    let intake = Intake {
        route: route.name.clone(),
        scheduler: scheduler.clone(),
        sources: sources(&route, &queues, &spans, shared),
        ledger: ledger.clone(),
        outbox,
        arrivals: Arc::new(Next {
            settlements,
            executor: executor.clone(),
        }),
        stop: stop.clone(),
        guard,
        counters: shared.counters.clone(),
        readiness: shared.readiness.clone(),
        budget: shared.budget.clone(),
    };
    let watching = common.map(|common| {
        let executor = Arc::downgrade(&executor);
        let watching = Executor::watch_limits(executor, common.fleet.grants());
        tasks::spawn(tasks::watched(&shared.broken, watching))
    });
    RunningRoute {
        number: shared.started.fetch_add(1, Relaxed),
        keeper: keep(&ledger, &queues, shared),
        limits: watching,
        intake: tasks::spawn(tasks::watched(&shared.broken, intake.run())),
        settlements: running,
        route,
        queues,
        stop,
        scheduler,
        executor,
        ledger,
    }
}

/// Returns a scheduler that leaves earlier versions of the route what they need.
fn beside(
    mut scheduler: Scheduler<Job>,
    queues: &[Arc<dyn Queue>],
    earlier: Option<&[EarlierVersion]>,
) -> Scheduler<Job> {
    if let Some(earlier) = earlier {
        let left = handover::left_attempts(&names(queues), earlier);
        scheduler.leave_attempts(&left);
        scheduler.skip_bursts(clock::now());
    }
    scheduler
}

/// Runs the settlements until no stage can send them another job.
fn run_settlements(
    settlements: &[Arc<Settlement>],
    shared: &ProcessContext,
) -> (Outbox, Group<()>) {
    let (mut outbox, mut running) = (Vec::new(), Group::new());
    for settlement in settlements {
        let (sender, finished) = unbounded_channel();
        outbox.push(sender);
        let settling = settlement.clone().run(finished);
        running.spawn(tasks::watched(&shared.broken, settling));
    }
    (outbox, running)
}

/// Extends the leases on messages of a route's queues until dropped.
fn keep(ledger: &Arc<Ledger>, queues: &[Arc<dyn Queue>], shared: &ProcessContext) -> Task<()> {
    let metered = queues
        .iter()
        .map(|queue: &Arc<dyn Queue>| (queue.clone(), shared.meter(queue)));
    let keeping = keeper::keep(ledger.clone(), metered.collect(), shared.counters.clone());
    tasks::spawn(tasks::watched(&shared.broken, keeping))
}

fn sources(
    route: &Route,
    queues: &[Arc<dyn Queue>],
    spans: &[QueueSpans],
    shared: &ProcessContext,
) -> Vec<Source> {
    let queues_and_spans = queues.iter().zip(spans);
    queues_and_spans
        .map(|(queue, spans)| Source {
            visibility: visibility(route, queue.identity()),
            queue: queue.clone(),
            newest_first: route.settings.sequence == Sequence::Lifo,
            max_age: route.settings.max_age,
            meter: shared.meter(queue),
            group_by: route.settings.group_by.clone(),
            envelope: route.settings.envelope,
            spans: spans.clone(),
            limits: common_limits(route, shared),
            sharing: sharing(route),
        })
        .collect()
}

/// Returns the limits of the fleet that the messages of a route need, if there are any.
fn common_limits(route: &Route, shared: &ProcessContext) -> Option<RouteLimits> {
    let fleet = shared.fleet.as_ref()?;
    (!route.limits.is_empty()).then(|| RouteLimits {
        fleet: fleet.clone(),
        limits: route.limits.clone(),
    })
}

/// Returns the span factory of each queue, in the route's order.
fn spans(route: &Route, queues: &[Arc<dyn Queue>], shared: &ProcessContext) -> Vec<QueueSpans> {
    let weighted_queues = route.queues.iter().zip(queues);
    let spans = weighted_queues.map(|(weighted, queue)| {
        let identity = queue.identity();
        let system = weighted.name.backend.facts().messaging_system;
        let terms = SpanTerms {
            route: &route.name,
            visibility: visibility(route, identity),
            envelope: route.settings.envelope,
            queue_url: queue.url(),
        };
        QueueSpans::new(&shared.tracer, system, identity, &terms)
    });
    spans.collect()
}

/// Creates one settlement per queue. It reports to the scheduler if groups are kept in order here.
fn settlements(
    route: &Route,
    queues: &[Arc<dyn Queue>],
    (scheduler, spans): (&Arc<SharedScheduler<Job>>, &[QueueSpans]),
    guard: Option<&Arc<Guard>>,
    shared: &ProcessContext,
) -> Vec<Arc<Settlement>> {
    let filters: Arc<[Filter]> = route.settings.filter.clone().into();
    queues
        .iter()
        .enumerate()
        .map(|(lane, queue): (usize, &Arc<dyn Queue>)| {
            let room = scheduler.lock().permits().clone();
            let settlement = settlement(route, queue, room, shared)
                .filtered(Arc::clone(&filters))
                .opening(route.settings.envelope, route.s3_pointers())
                .telling_tenants(route.tenant_id().cloned())
                .traced(spans[lane].clone())
                .remembering(shared.memories.of(&queue.identity().name));
            let order = order_port(route, scheduler, lane);
            Arc::new(settlement.guarded(guard.cloned()).in_order(order))
        })
        .collect()
}

/// Returns the port of a queue whose groups are kept in order here.
fn order_port(
    route: &Route,
    scheduler: &Arc<SharedScheduler<Job>>,
    lane: usize,
) -> Option<OrderPort> {
    let by_queue = route.settings.group_by.is_none();
    if !by_queue {
        scheduler.lock().keep_sending_order(lane);
    } else if !scheduler.lock().orders_groups(lane) {
        return None;
    }
    Some(OrderPort::new(scheduler.clone(), lane, by_queue))
}

/// Previews for the executor how settlement would treat failed attempts.
struct SettlementPreview(Vec<Arc<Settlement>>);

impl OutcomePreview for SettlementPreview {
    fn preview(&self, lane: usize, job: &Job, ending: &JobEnding) -> Option<Outcome> {
        self.0[lane].preview(&job.message, job.hold.tries, ending)
    }

    fn tries_again(&self, lane: usize, job: &Job, ending: &JobEnding, pause: Duration) {
        self.0[lane].tries_again(job, ending, pause);
    }
}

/// The stages after intake.
struct Next {
    settlements: Vec<Arc<Settlement>>,
    executor: Arc<Executor>,
}

impl Arrivals for Next {
    fn arrival(&self, lane: usize, message: &Message) -> Arrival {
        self.settlements[lane].arrival(message)
    }

    fn dead_lettered(&self, lane: usize, letter: &DeadLettered) {
        self.settlements[lane].dead_lettered(letter);
    }

    fn arrived(&self) {
        // Once attempts must end, no new one begins: messages of a late receive are released.
        if self.executor.halt.is_cancelled() {
            self.executor.give_back()
        } else {
            self.executor.start_workers()
        }
    }
}

/// Returns the visibility timeout of messages received from a queue.
fn visibility(route: &Route, identity: &Identity) -> Duration {
    let visibility = route.settings.visibility.unwrap_or(identity.visibility);
    visibility.max(SHORTEST_VISIBILITY)
}

fn rules(route: &Route, queues: &[Arc<dyn Queue>], limits: SchedulerLimits) -> Rules {
    let names_and_queues = route.queues.iter().zip(queues);
    let visibilities = queues
        .iter()
        .map(|queue| visibility(route, queue.identity()));
    Rules {
        // The keeper extends a lease at half of the visibility timeout.
        horizon: match route.settings.sequence {
            Sequence::Fifo if sharing(route).is_none() => {
                visibilities.min().unwrap_or_default() / 2
            }
            // The process holds as many messages as allowed, to choose the newest, or among tenants.
            Sequence::Fifo | Sequence::Lifo => Duration::MAX,
        },
        lanes: names_and_queues
            .map(|(named, queue)| lane_rules(route, &named.name, &**queue, &limits.weights))
            .collect(),
        weights: route
            .queues
            .iter()
            .map(|queue| Some(queue.weight?.get()))
            .collect(),
        batch: route.settings.batch_size,
        limits,
    }
}

/// Whether the queue keeps the messages of a group in order: not if each group is a tenant.
fn is_ordered_by_queue(route: &Route, identity: &Identity) -> bool {
    identity.ordered_groups && route.settings.tenant != Some(MessageKey::Group)
}

fn lane_rules(
    route: &Route,
    name: &QueueName,
    queue: &dyn Queue,
    weights: &BTreeMap<String, u32>,
) -> LaneRules {
    let identity = queue.identity();
    let rules = sharing(route).map(|places| places.rules(weights.clone()));
    LaneRules {
        batch: identity.batch,
        poll_for: route.settings.poll_for.min(identity.longest_wait),
        proof_wait: identity.proof_wait,
        sleep: route.settings.sleep,
        ordered_groups: is_ordered_by_queue(route, identity) || route.settings.group_by.is_some(),
        // Other backends only deliver later messages of a group if that costs no receive.
        most_receives: if identity.ordered_groups && name.backend.facts().has_fifo_queues {
            identity.most_receives
        } else {
            None
        },
        sequence: route.settings.sequence,
        queue_shares_out: queue.facts().shares_out,
        sharing: rules.map(Arc::new),
    }
}

/// Returns where the messages of a route name their tenant and priority, if these share the route.
fn sharing(route: &Route) -> Option<SharingPlaces> {
    let settings = &route.settings;
    let mut longest_waits = [None; PRIORITIES];
    for (priority, wait) in &settings.max_wait {
        longest_waits[priority.index()] = Some(*wait);
    }
    let places = SharingPlaces {
        tenant: settings.tenant.clone(),
        priority: settings.priority.clone(),
        longest_waits,
        is_wrapped: settings.envelope != Envelope::None,
        one_tenant: route.tenant_id().is_some(),
    };
    places.share_out().then_some(places)
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
        ordered_groups: is_ordered_by_queue(route, queue.identity()),
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

/// Returns the number of receives that the queue's redrive policy allows, if they are the attempts
/// of a message.
fn receives(identity: &Identity) -> Option<u32> {
    let takes = identity.dead_letters || identity.redrive_target;
    if identity.ordered_groups && takes {
        identity.most_receives
    } else {
        None
    }
}

/// Returns the guard that prevents handling remembered messages twice, if the route has idempotency
/// records.
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
