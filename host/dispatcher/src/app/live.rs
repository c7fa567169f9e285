//! Settings that operators change while the program runs: pauses and limits of routes and queues,
//! and the log level. If a queue's backend shares them, they are stored there, otherwise in the
//! control record of the fleet; every process applies them within two intervals. Without a store for
//! the fleet they apply to this process and end with it. A reload changes the configured values below
//! them.

use super::ProcessContext;
use super::build::Backends;
use super::build::fleet::{hides_tenants, shown_tenant};
use super::build::schedule::Schedules;
use super::drain;
use super::fleet_link;
use super::fleet_link::{FleetLink, Reach};
use super::route::{Adjustable, RunningRoute};
use dispatcher_config::Settings;
use dispatcher_config::name::QueueName;
use dispatcher_core::backend::Backend;
use dispatcher_core::clock;
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::error_kind::CallError;
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::fleet::control::FleetControl;
use dispatcher_core::fleet::keeper::Fleet;
use dispatcher_core::queue::{Queue, QueueError};
use dispatcher_core::scheduler::SchedulerLimits;
use dispatcher_core::scheduler::lane::LaneLimits;
use dispatcher_core::scheduler::live::{RouteControl, effective};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_telemetry::log;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The interval at which a process reads the shared settings, once for each backend.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time in which all processes apply a change.
pub(crate) const APPLIED_WITHIN: Duration = Duration::from_secs(2);
/// The time limit for a store, at the start and later.
const PATIENCE: Duration = Duration::from_secs(3);

/// The live settings of all routes of the process.
pub(crate) struct Live {
    pub fleet: Arc<FleetLink>,
    schedules: Arc<Schedules>,
    routes: Vec<LiveRoute>,
    by_queue: BTreeMap<String, (usize, usize)>,
    /// One lock for each backend, held while shared settings are read or written and applied, so
    /// that values read before a write are not applied after it.
    turns: BTreeMap<&'static str, tokio::sync::Mutex<()>>,
    /// The configured log level, and the one in force.
    levels: Mutex<(String, String)>,
}

/// The live settings of one route.
pub(crate) struct LiveRoute {
    pub name: String,
    pub plugin: String,
    pub queues: Vec<LiveQueue>,
    /// The maximum number of attempts that it was created for.
    pub most: usize,
    /// Whether the names of its tenants are shown as their hashes.
    pub hides_tenants: bool,
    adjustable: Adjustable,
    state: Mutex<LiveState>,
}

/// One queue of a route.
pub(crate) struct LiveQueue {
    pub name: QueueName,
    pub text: String,
    pub meter: Arc<Meter>,
    queue: Arc<dyn Queue>,
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
enum Part {
    Backend,
    Fleet,
}

impl LiveState {
    fn part(&self, lane: usize, part: Part) -> QueueControl {
        self.parts[lane][part as usize]
    }

    fn set_part(&mut self, lane: usize, part: Part, control: QueueControl) {
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

/// Returns the settings that operators made on queues before the process started, where backends
/// share them. If a backend does not answer in time, its queues run as configured.
pub(crate) async fn read(
    backends: &Backends,
    settings: &Settings,
) -> BTreeMap<String, QueueControl> {
    let (controls, errors) = shared(backends, settings.queue_names()).await;
    for (backend, error) in errors {
        tracing::warn!(backend, %error, "pauses and live limits not read; its queues run as configured until they are");
    }
    for (queue, control) in &controls {
        if *control != QueueControl::default() {
            log_control(queue, control);
        }
    }
    controls
}

/// Returns the settings of operators on these queues, where backends share them, and the backends
/// that did not answer.
pub(crate) async fn shared<'a>(
    backends: &Backends,
    queues: impl IntoIterator<Item = &'a QueueName>,
) -> (
    BTreeMap<String, QueueControl>,
    Vec<(&'static str, QueueError)>,
) {
    let mut shared: BTreeMap<&'static dyn Backend, Vec<&QueueName>> = BTreeMap::new();
    let queues = queues.into_iter();
    for name in queues.filter(|name| name.backend.facts().shares_controls) {
        shared.entry(name.backend).or_default().push(name);
    }
    let (mut controls, mut errors) = (BTreeMap::new(), Vec::new());
    for (backend, names) in shared {
        match ask(backends, backend, &names).await {
            Ok(found) => {
                let named = names.iter().map(ToString::to_string);
                controls.extend(named.zip(found));
            }
            Err(error) => errors.push((backend.name(), error)),
        }
    }
    (controls, errors)
}

async fn ask(
    backends: &Backends,
    backend: &dyn Backend,
    names: &[&QueueName],
) -> Result<Vec<QueueControl>, QueueError> {
    let bare: Vec<&str> = names.iter().map(|name| name.name.as_str()).collect();
    let asked = async { backends.client(backend).await?.controls(&bare).await };
    tokio::select! {
        found = asked => found,
        () = clock::sleep_until(Some(clock::now() + PATIENCE)) => Err(QueueError {
            kind: dispatcher_core::queue::ErrorKind::Unreachable,
            message: format!("no answer within {} s", PATIENCE.as_secs()),
        }),
    }
}

/// Connects to the fleet, and reads what operators have set for all its processes.
pub(crate) async fn join_fleet(
    backends: &Backends,
    settings: &Settings,
    opened: Option<Arc<dyn FleetStore>>,
    limits: Option<Arc<Fleet>>,
) -> Arc<FleetLink> {
    let place = settings.fleet.store.as_ref();
    let fleet = FleetLink::open(backends, place, opened, limits).await;
    fleet.look(&mut fleet.turn().await).await;
    let control = fleet.control();
    for queue in settings.queue_names().map(ToString::to_string) {
        if control.has_queue(&queue) {
            log_control(&queue, &control.queue(&queue));
        }
    }
    for configured in &settings.routes {
        let route = &configured.name;
        let weights = weights_text(&control.weights(route), hides_tenants(configured));
        let QueueControl {
            paused,
            concurrency,
            prefetch,
            ..
        } = control.route(route);
        if paused || concurrency.is_some() || prefetch.is_some() || weights.is_some() {
            tracing::warn!(
                route,
                paused,
                concurrency,
                prefetch,
                weights,
                "live control in force at start"
            );
        }
    }
    Arc::new(fleet)
}

/// Returns the part of controls that a route has.
pub(crate) fn route_control(control: QueueControl) -> RouteControl {
    RouteControl {
        paused: control.paused,
        concurrency: control.concurrency,
        prefetch: control.prefetch,
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

fn log_control(queue: &str, control: &QueueControl) {
    let QueueControl {
        paused,
        concurrency,
        rate,
        prefetch,
    } = control;
    tracing::warn!(
        queue,
        paused,
        concurrency,
        rate,
        prefetch,
        "live control in force at start"
    );
}

impl Live {
    /// Creates the live settings of running routes, from the controls that were read before they
    /// started.
    pub(crate) fn new(
        schedules: &Arc<Schedules>,
        settings: &Settings,
        running: &[RunningRoute],
        shared: &ProcessContext,
    ) -> Self {
        let record = shared.fleet_link.control();
        let live_routes = settings.routes.iter().zip(running).map(|(route, running)| {
            let queues: Vec<LiveQueue> = route
                .queues
                .iter()
                .zip(&running.queues)
                .map(|(queue, open)| {
                    let text = queue.name.to_string();
                    LiveQueue {
                        name: queue.name.clone(),
                        meter: shared.meters.of(&text).unwrap_or_default(),
                        text,
                        queue: open.clone(),
                        leaving: Mutex::default(),
                    }
                })
                .collect();
            let parts: Vec<[QueueControl; 2]> = queues
                .iter()
                .map(|queue| {
                    let of_backend = shared.controls.get(&queue.text).copied();
                    [of_backend.unwrap_or_default(), record.queue(&queue.text)]
                })
                .collect();
            let both = parts.iter().map(|[backend, fleet]| backend.or(*fleet));
            LiveRoute {
                name: route.name.clone(),
                plugin: route.plugin.name.clone(),
                most: route.settings.concurrency,
                hides_tenants: hides_tenants(route),
                adjustable: running.adjustable(),
                state: Mutex::new(LiveState {
                    configured: route.limits(),
                    route: route_control(record.route(&route.name)),
                    weights: record.weights(&route.name),
                    queues: both.collect(),
                    parts,
                }),
                queues,
            }
        });
        let routes: Vec<LiveRoute> = live_routes.collect();
        let (mut by_queue, mut turns) = (BTreeMap::new(), BTreeMap::new());
        for (at, route) in routes.iter().enumerate() {
            for (lane, queue) in route.queues.iter().enumerate() {
                turns.entry(queue.name.backend.name()).or_default();
                by_queue.insert(queue.text.clone(), (at, lane));
            }
        }
        let level = settings.log.level.clone();
        let live = Self {
            fleet: shared.fleet_link.clone(),
            schedules: schedules.clone(),
            routes,
            by_queue,
            turns,
            levels: Mutex::new((level.clone(), level)),
        };
        live.routes.iter().for_each(LiveRoute::show);
        live.apply_level();
        live
    }

    /// Returns all routes.
    pub(crate) fn routes(&self) -> &[LiveRoute] {
        &self.routes
    }

    /// Returns the index of a queue's route, and the index of the queue in it.
    pub(crate) fn find(&self, queue: &str) -> Option<(usize, usize)> {
        self.by_queue.get(queue).copied()
    }

    /// Replaces the configured limits of a route.
    pub(crate) fn configure(&self, route: &str, limits: &SchedulerLimits) {
        if let Some(route) = self.routes.iter().find(|one| one.name == route) {
            route.change(|state| state.configured = limits.clone());
        }
    }

    /// Replaces the configured log level.
    pub(crate) fn configure_level(&self, level: &str) {
        level.clone_into(&mut self.levels.lock().0);
        self.apply_level();
    }

    /// Applies the live log level, or the configured one.
    fn apply_level(&self) {
        let control = self.fleet.control();
        let level = control.log_level.as_ref();
        let live = level.filter(|level| log::filter(level).is_ok());
        let mut levels = self.levels.lock();
        let level = live.unwrap_or(&levels.0).clone();
        if level != levels.1 && log::set_level(&level) {
            tracing::info!(filter = level, "log level replaced");
            levels.1 = level;
        }
    }

    /// Changes the control record of the fleet, and applies it here. Returns the queues whose limits
    /// changed here.
    pub(crate) async fn change_fleet<T>(
        &self,
        decide: impl Fn(&mut FleetControl, u64) -> Result<T, CallError> + Sync,
    ) -> Result<(T, Vec<String>), CallError> {
        let mut turn = self.fleet.turn().await;
        let decided = self.fleet.change(&mut turn, decide).await?;
        Ok((decided, self.apply_fleet()))
    }

    /// Applies the control record of the fleet. Returns the queues whose limits changed.
    fn apply_fleet(&self) -> Vec<String> {
        self.apply_level();
        let record = self.fleet.control();
        let mut changed = Vec::new();
        for route in &self.routes {
            changed.extend(route.change(|state| {
                state.route = route_control(record.route(&route.name));
                state.weights = record.weights(&route.name);
                for (lane, queue) in route.queues.iter().enumerate() {
                    state.set_part(lane, Part::Fleet, record.queue(&queue.text));
                }
            }));
        }
        changed
    }

    /// Changes a setting of a route in the fleet. Returns who obeys, and the queues whose limits
    /// changed here.
    pub(crate) async fn change_route(
        &self,
        route: &LiveRoute,
        change: &ControlChange,
    ) -> Result<(Reach, Vec<String>), CallError> {
        let reach = self.fleet.reach();
        if reach == Reach::ThisProcess {
            let changed = route.change(|state| {
                let RouteControl {
                    paused,
                    concurrency,
                    prefetch,
                } = state.route;
                let before = QueueControl {
                    paused,
                    concurrency,
                    prefetch,
                    rate: None,
                };
                state.route = route_control(before.changed(change));
            });
            return Ok((reach, changed));
        }
        let (name, decided) = (&route.name, change);
        let changed = self.change_fleet(|control, _| {
            control.change_route(name, decided);
            Ok(())
        });
        Ok((reach, changed.await?.1))
    }

    /// Changes the weight of a route's tenant; `None` resets it to the configured one. Returns who
    /// obeys, and the queues that are shared out otherwise here.
    pub(crate) async fn change_weight(
        &self,
        route: &LiveRoute,
        tenant: &str,
        weight: Option<u32>,
    ) -> Result<(Reach, Vec<String>), CallError> {
        let reach = self.fleet.reach();
        if reach == Reach::ThisProcess {
            let changed = route.change(|state| {
                match weight {
                    Some(weight) => state.weights.insert(tenant.to_owned(), weight),
                    None => state.weights.remove(tenant),
                };
            });
            return Ok((reach, changed));
        }
        let changed = self.change_fleet(|control, _| {
            control.change_weight(&route.name, tenant, weight);
            Ok(())
        });
        Ok((reach, changed.await?.1))
    }

    /// Changes a setting of a queue: in its store if processes share it there, otherwise in the
    /// fleet. What the fleet has set for a queue with such a store changes as well. Returns who
    /// obeys, and the queues whose limits changed here.
    pub(crate) async fn change_queue(
        &self,
        (route, lane): (usize, usize),
        change: &ControlChange,
    ) -> Result<(Reach, Vec<String>), QueueError> {
        let route = &self.routes[route];
        let LiveQueue { name, text, .. } = &route.queues[lane];
        let reach = self.fleet.reach();
        let mut changed = Vec::new();
        if !name.backend.facts().shares_controls {
            if reach == Reach::ThisProcess {
                let changed = route.change(|state| {
                    let control = state.part(lane, Part::Fleet).changed(change);
                    state.set_part(lane, Part::Fleet, control);
                });
                return Ok((reach, changed));
            }
        } else {
            let _turn = self.turn(name.backend).await;
            let client = self.schedules.backends().client(name.backend).await?;
            client.change_control(&name.name, change).await?;
            changed = route.change(|state| {
                let control = state.part(lane, Part::Backend).changed(change);
                state.set_part(lane, Part::Backend, control);
            });
            if !self.fleet.control().has_queue(text) {
                return Ok((Reach::AllProcesses, changed));
            }
        }
        let in_fleet = self.change_fleet(|control, _| {
            control.change_queue(text, change);
            Ok(())
        });
        let (_, more) = in_fleet.await?;
        changed.extend(
            more.into_iter()
                .filter(|one| !changed.contains(one))
                .collect::<Vec<_>>(),
        );
        Ok((reach, changed))
    }

    /// Applies the control record of the fleet until dropped.
    pub(crate) async fn follow_fleet(&self) {
        loop {
            clock::sleep_until(Some(clock::now() + fleet_link::INTERVAL)).await;
            let mut turn = self.fleet.turn().await;
            if self.fleet.look(&mut turn).await {
                self.apply_fleet();
            }
        }
    }

    /// Applies the settings that backends share until `stop`.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut shared: BTreeMap<&'static dyn Backend, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, route) in self.routes.iter().enumerate() {
            for (lane, queue) in route.queues.iter().enumerate() {
                if queue.name.backend.facts().shares_controls {
                    shared
                        .entry(queue.name.backend)
                        .or_default()
                        .push((at, lane));
                }
            }
        }
        // Each backend is read separately, so that a slow store does not delay the others.
        let shared = shared.iter();
        let following = shared.map(|(backend, places)| self.follow_one(*backend, places, &stop));
        tasks::all(following.collect()).await;
    }

    async fn follow_one(
        &self,
        backend: &'static dyn Backend,
        places: &[(usize, usize)],
        stop: &CancellationToken,
    ) {
        let mut throttle = LogThrottle::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep_until(Some(clock::now() + INTERVAL)) => {}
            }
            let read = tokio::select! {
                () = stop.cancelled() => return,
                read = self.read_again(backend, places) => read,
            };
            if let Err(error) = read
                && throttle.should_log(clock::now())
            {
                let backend = backend.name();
                tracing::warn!(backend, %error, "pauses and live limits not read; those known before stay in force");
            }
        }
    }

    async fn turn(&self, backend: &dyn Backend) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        Some(self.turns.get(backend.name())?.lock().await)
    }

    async fn read_again(
        &self,
        backend: &dyn Backend,
        places: &[(usize, usize)],
    ) -> Result<(), QueueError> {
        let names: Vec<&QueueName> = places
            .iter()
            .map(|(at, lane)| &self.routes[*at].queues[*lane].name)
            .collect();
        let _turn = self.turn(backend).await;
        let found = ask(self.schedules.backends(), backend, &names).await?;
        let mut by_route: BTreeMap<usize, Vec<(usize, QueueControl)>> = BTreeMap::new();
        for ((at, lane), control) in places.iter().zip(found) {
            by_route.entry(*at).or_default().push((*lane, control));
        }
        for (at, controls) in by_route {
            self.routes[at].change(|state| {
                for (lane, control) in controls {
                    state.set_part(lane, Part::Backend, control);
                }
            });
        }
        Ok(())
    }
}

impl LiveRoute {
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
        let mut limits = effective(&state.configured, self.most, &state.route, &state.queues);
        limits.weights.extend(state.weights.clone());
        limits
    }

    /// Changes the settings and applies them. Returns the queues whose limits changed.
    fn change(&self, change: impl FnOnce(&mut LiveState)) -> Vec<String> {
        let mut state = self.lock();
        let before = self.limits(&state);
        change(&mut state);
        let after = self.limits(&state);
        if before == after {
            return Vec::new();
        }
        self.adjustable.adjust(&after);
        let all = (before.attempts, before.prefetch, before.window)
            != (after.attempts, after.prefetch, after.window);
        if all {
            let (concurrency, prefetch) = (after.attempts, after.prefetch);
            tracing::info!(
                route = self.name,
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
            tracing::info!(route = self.name, weights, "weights of tenants changed");
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
            let (route, queue) = (&self.name, &queue.text);
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
    fn show(&self) {
        let limits = self.limits(&self.lock());
        for (queue, lane) in self.queues.iter().zip(&limits.lanes) {
            queue.meter.paused.store(lane.paused, Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }
}
