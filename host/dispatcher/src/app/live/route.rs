//! One running route: what operators see of it, and the limits that apply to it now.

use super::super::build::fleet::{hides_tenants, shown_tenant};
use super::super::drain;
use super::super::messages::known::redaction;
use super::super::route::RunningRoute;
use dispatcher_config::Route;
use dispatcher_config::name::QueueName;
use dispatcher_core::clock;
use dispatcher_core::control::QueueControl;
use dispatcher_core::executor::Executor;
use dispatcher_core::executor::running::RunningAttempts;
use dispatcher_core::job::Job;
use dispatcher_core::lease::Ledger;
use dispatcher_core::queue::Queue;
use dispatcher_core::scheduler::SchedulerLimits;
use dispatcher_core::scheduler::figures::Figures;
use dispatcher_core::scheduler::lane::LaneLimits;
use dispatcher_core::scheduler::live::{RouteControl, effective};
use dispatcher_core::scheduler::shared::SharedScheduler;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_trials::recording::redact::Rule;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// A running route with its live settings. Does not keep the route from ending.
pub(crate) struct LiveRoute {
    /// Its number: each route that is started has a higher one.
    pub number: u64,
    /// The settings that it was started with.
    pub config: Route,
    pub queues: Vec<LiveQueue>,
    /// Whether the names of its tenants are shown as their hashes.
    pub hides_tenants: bool,
    pub scheduler: Arc<SharedScheduler<Job>>,
    /// Its attempts.
    pub running: Arc<RunningAttempts>,
    /// The leases of its messages.
    pub ledger: Arc<Ledger>,
    /// The redaction rules of its messages.
    pub redact: Vec<Rule>,
    /// Weak, because dropping the executor ends the settlements.
    executor: Weak<Executor>,
    state: Mutex<LiveState>,
}

/// One queue of a route.
pub(crate) struct LiveQueue {
    pub name: QueueName,
    pub text: String,
    pub meter: Arc<Meter>,
    pub queue: Arc<dyn Queue>,
    /// The task that leaves the queue after a pause.
    leaving: Mutex<Option<Task<()>>>,
}

impl LiveQueue {
    /// Leaves the queue, since nothing is received from it until it is resumed. Needs the control
    /// runtime.
    fn leave(&self) {
        let queue = Arc::clone(&self.queue);
        let leaving = tasks::spawn(async move { drain::leave(&*queue).await });
        *self.leaving.lock() = Some(leaving);
    }
}

/// The configured limits and the settings of operators.
#[derive(Debug, Clone)]
pub(crate) struct LiveState {
    pub configured: SchedulerLimits,
    pub route: RouteControl,
    /// The weights of tenants that replace the configured ones.
    pub weights: BTreeMap<String, u32>,
    /// The controls of each queue's backend and of the fleet together.
    pub queues: Vec<QueueControl>,
    /// The controls of each queue in its backend, and in the fleet.
    parts: Vec<[QueueControl; 2]>,
}

/// The place of a control in `LiveState::parts`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Backend,
    Fleet,
}

impl LiveState {
    /// Creates the state of a route that starts: what operators have set on the route, on its
    /// tenants, and on its queues in their backends and in the fleet.
    pub(super) fn new(
        route: &Route,
        control: RouteControl,
        weights: BTreeMap<String, u32>,
        parts: Vec<[QueueControl; 2]>,
    ) -> Self {
        let both = parts.iter().map(|[backend, fleet]| backend.or(*fleet));
        Self {
            configured: route.limits(),
            route: control,
            weights,
            queues: both.collect(),
            parts,
        }
    }

    /// Returns the controls of a queue in its backend, and in the fleet.
    pub(super) fn parts(&self, lane: usize) -> [QueueControl; 2] {
        self.parts[lane]
    }

    pub(super) fn part(&self, lane: usize, part: Part) -> QueueControl {
        self.parts[lane][part as usize]
    }

    /// Returns the limits that apply now to a route that was created for at most `most` attempts.
    pub(crate) fn limits(&self, most: usize) -> SchedulerLimits {
        let mut limits = effective(&self.configured, most, &self.route, &self.queues);
        limits.weights.extend(self.weights.clone());
        limits
    }

    pub(super) fn set_part(&mut self, lane: usize, part: Part, control: QueueControl) {
        self.parts[lane][part as usize] = control;
        let [of_backend, of_fleet] = self.parts[lane];
        self.queues[lane] = of_backend.or(of_fleet);
    }
}

/// The configured limits and the settings of operators for one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueState {
    pub configured: LaneLimits,
    pub route: RouteControl,
    pub queue: QueueControl,
}

impl LiveRoute {
    /// Creates the view of a route that was started with these live settings.
    pub(super) fn new(running: &RunningRoute, state: LiveState, meters: &Meters) -> Self {
        let config = running.route.clone();
        let named = config.queues.iter().zip(&running.queues);
        let queues = named.map(|(queue, open)| {
            let text = queue.name.to_string();
            LiveQueue {
                name: queue.name.clone(),
                meter: meters.of(&text).unwrap_or_default(),
                text,
                queue: open.clone(),
                leaving: Mutex::default(),
            }
        });
        Self {
            number: running.number,
            queues: queues.collect(),
            hides_tenants: hides_tenants(&config),
            redact: redaction(&config),
            scheduler: running.scheduler.clone(),
            running: running.executor.running.clone(),
            ledger: running.ledger.clone(),
            executor: Arc::downgrade(&running.executor),
            state: Mutex::new(state),
            config,
        }
    }

    /// Returns the gauges of its control loop.
    pub(crate) fn figures(&self) -> Figures {
        self.scheduler.lock().figures()
    }

    /// Returns the id of one of its attempts.
    pub(crate) fn attempt_id(&self, attempt: u64) -> String {
        format!("{}-{attempt}", self.number)
    }

    /// Returns the index of a queue.
    pub(crate) fn lane(&self, queue: &str) -> Option<usize> {
        self.queues.iter().position(|one| one.text == queue)
    }

    /// Returns the current settings of the route and its queues.
    pub(crate) fn state(&self) -> LiveState {
        self.lock().clone()
    }

    /// Returns the current settings of one of its queues. A route may have thousands.
    pub(crate) fn queue_state(&self, lane: usize) -> QueueState {
        let state = self.lock();
        let configured = state.configured.lanes.get(lane);
        QueueState {
            configured: configured.copied().unwrap_or_default(),
            route: state.route,
            queue: state.queues[lane],
        }
    }

    /// Returns the limits that apply now.
    pub(crate) fn limits(&self, state: &LiveState) -> SchedulerLimits {
        state.limits(self.config.settings.concurrency)
    }

    fn adjust(&self, limits: &SchedulerLimits) {
        self.scheduler.lock().set_limits(limits, clock::now());
        self.scheduler.replan.notify_one();
        if let Some(executor) = self.executor.upgrade() {
            executor.start_workers();
        }
    }

    /// Changes the settings and applies them. Returns the queues whose limits changed.
    pub(super) fn change(&self, change: impl FnOnce(&mut LiveState)) -> Vec<String> {
        let mut state = self.lock();
        let before = self.limits(&state);
        change(&mut state);
        let after = self.limits(&state);
        if before == after {
            return Vec::new();
        }
        self.adjust(&after);
        let all = (before.attempts, before.prefetch, before.window)
            != (after.attempts, after.prefetch, after.window);
        if all {
            let (concurrency, prefetch) = (after.attempts, after.prefetch);
            tracing::info!(
                route = self.config.name,
                concurrency,
                prefetch,
                "route limits changed"
            );
        }
        let weighs = before.weights != after.weights;
        if weighs {
            let both = before.weights.keys().chain(after.weights.keys());
            let changed = both
                .map(|tenant| (tenant, after.weights.get(tenant)))
                .filter(|(tenant, weight)| before.weights.get(*tenant) != *weight)
                .map(|(tenant, weight)| (tenant.clone(), weight.copied().unwrap_or(1)));
            let weights = weights_text(&changed.collect(), self.hides_tenants);
            tracing::info!(
                route = self.config.name,
                weights,
                "weights of tenants changed"
            );
        }
        let mut changed = Vec::new();
        for (at, queue) in self.queues.iter().enumerate() {
            let (old, new) = (&before.lanes[at], &after.lanes[at]);
            if !all && !weighs && old == new {
                continue;
            }
            changed.push(queue.text.clone());
            queue.meter.paused.store(new.paused, Relaxed);
            if new.paused && !old.paused {
                queue.leave();
            }
            let (route, queue) = (&self.config.name, &queue.text);
            match (old.paused, new.paused) {
                (false, true) => tracing::info!(queue, route, "queue paused"),
                (true, false) => tracing::info!(queue, route, "queue resumed"),
                _ => {}
            }
            if (old.attempts, old.rate) != (new.attempts, new.rate) {
                let (concurrency, rate) = (new.attempts, new.rate);
                tracing::info!(queue, route, concurrency, rate, "queue limits changed");
            }
        }
        changed
    }

    /// Shows the queues that were paused from the start.
    pub(super) fn show(&self) {
        let limits = self.limits(&self.lock());
        for (queue, lane) in self.queues.iter().zip(&limits.lanes) {
            queue.meter.paused.store(lane.paused, Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }
}

/// Describes weights of tenants, as in `acme=4, globex=2`; `None` if there are none.
pub(crate) fn weights_text(weights: &BTreeMap<String, u32>, is_private: bool) -> Option<String> {
    let named: Vec<String> = weights
        .iter()
        .map(|(tenant, weight)| format!("{}={weight}", shown_tenant(tenant, is_private)))
        .collect();
    (!named.is_empty()).then(|| named.join(", "))
}
