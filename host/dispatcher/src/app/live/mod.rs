//! Settings that operators change while the program runs: pauses and limits of routes and queues,
//! and the log level. If a queue's backend shares them, they are stored there, otherwise in the
//! control record of the fleet; every process applies them within two intervals. Without a store for
//! the fleet they apply to this process and end with it. A reload changes the configured values below
//! them.

pub(crate) mod route;
pub(crate) mod table;

use super::build::Backends;
use super::build::fleet::hides_tenants;
use super::build::schedule::Schedules;
use super::fleet_link;
use super::fleet_link::{FleetLink, Reach};
use super::route::RunningRoute;
use dispatcher_config::name::QueueName;
use dispatcher_config::{Route, Settings, backends};
use dispatcher_core::backend::Backend;
use dispatcher_core::clock;
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::error_kind::CallError;
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::fleet::control::FleetControl;
use dispatcher_core::fleet::keeper::Fleet;
use dispatcher_core::queue::QueueError;
use dispatcher_core::scheduler::SchedulerLimits;
use dispatcher_core::scheduler::live::RouteControl;
use dispatcher_core::tasks;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_telemetry::log;
use parking_lot::{Mutex, RwLock};
pub(crate) use route::weights_text;
use route::{LiveQueue, LiveRoute, LiveState, Part};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use table::{QueuePlace, RouteTable};
use tokio_util::sync::CancellationToken;

/// The interval at which a process reads the shared settings, once for each backend.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time in which all processes apply a change.
pub(crate) const APPLIED_WITHIN: Duration = Duration::from_secs(2);
/// The time limit for a store, at the start and later.
const PATIENCE: Duration = Duration::from_secs(3);

/// The routes of the process, and their live settings.
pub(crate) struct Live {
    pub fleet: Arc<FleetLink>,
    schedules: Arc<Schedules>,
    table: RwLock<Arc<RouteTable>>,
    /// The settings of the routes. The other settings are those of the start.
    settings: RwLock<Arc<Settings>>,
    /// One lock for each backend that shares settings, held while they are read or written and
    /// applied, so that values read before a write are not applied after it.
    turns: BTreeMap<&'static str, tokio::sync::Mutex<()>>,
    /// The configured log level, and the one in force.
    levels: Mutex<(String, String)>,
}

/// Returns the settings that operators made on queues before the process started, where backends
/// share them. If a backend does not answer in time, its queues run as configured.
pub(crate) async fn read<'a>(
    backends: &Backends,
    queues: impl IntoIterator<Item = &'a QueueName>,
) -> BTreeMap<String, QueueControl> {
    let (controls, errors) = shared(backends, queues).await;
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
    /// Creates the live settings of a process that has no routes yet.
    pub(crate) fn new(
        schedules: &Arc<Schedules>,
        settings: &Settings,
        fleet: &Arc<FleetLink>,
    ) -> Self {
        let sharing = backends::all().iter();
        let sharing = sharing.filter(|backend| backend.facts().shares_controls);
        let level = settings.log.level.clone();
        let live = Self {
            fleet: fleet.clone(),
            schedules: schedules.clone(),
            table: RwLock::default(),
            settings: RwLock::new(Arc::new(settings.clone())),
            turns: sharing
                .map(|backend| (backend.name(), tokio::sync::Mutex::default()))
                .collect(),
            levels: Mutex::new((level.clone(), level)),
        };
        live.apply_level();
        live
    }

    /// Returns the routes that run now.
    pub(crate) fn table(&self) -> Arc<RouteTable> {
        self.table.read().clone()
    }

    /// Returns the schedules.
    pub(crate) fn schedules(&self) -> &Schedules {
        &self.schedules
    }

    /// Returns the settings in force.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    /// Replaces the settings of the routes.
    pub(crate) fn set_settings(&self, settings: Settings) {
        *self.settings.write() = Arc::new(settings);
    }

    /// Changes the table, which is copied only if it is being read.
    fn change_table(&self, change: impl FnOnce(&mut RouteTable)) {
        change(Arc::make_mut(&mut self.table.write()));
    }

    /// Sorts the routes as in the settings, once some were added.
    pub(crate) fn arrange(&self) {
        let settings = self.settings();
        self.change_table(|table| table.arrange(&settings));
    }

    /// Returns the live settings with which a route starts. `controls` are those of its queues'
    /// backends. A setting that no store keeps is taken over from the routes that run now.
    pub(crate) fn state_of(
        &self,
        route: &Route,
        controls: &BTreeMap<String, QueueControl>,
    ) -> LiveState {
        let (table, record) = (self.table(), self.fleet.control());
        let is_kept = self.fleet.reach() != Reach::ThisProcess;
        let before = table.latest(&route.name).map(|route| route.state());
        let (control, weights) = match before {
            _ if is_kept => (
                route_control(record.route(&route.name)),
                record.weights(&route.name),
            ),
            Some(before) => (before.route, before.weights),
            None => Default::default(),
        };
        let parts: Vec<[QueueControl; 2]> = route
            .queues
            .iter()
            .map(|queue| {
                let name = queue.name.to_string();
                let place = table.latest_with(&name);
                let known = place.map(|(route, lane)| route.state().parts(lane));
                // What is followed is newer than what was read before.
                let of_backend = known
                    .map(|[backend, _]| backend)
                    .or(controls.get(&name).copied());
                let of_fleet = if is_kept {
                    record.queue(&name)
                } else {
                    known.map(|[_, fleet]| fleet).unwrap_or_default()
                };
                [of_backend.unwrap_or_default(), of_fleet]
            })
            .collect();
        LiveState::new(route, control, weights, parts)
    }

    /// Adds a route that was started with these live settings. It takes the place of an earlier
    /// version, which only finishes its messages.
    pub(crate) fn add(&self, route: &RunningRoute, state: LiveState, meters: &Meters) {
        let added = Arc::new(LiveRoute::new(route, state, meters));
        added.show();
        self.change_table(|table| table.add(added.clone()));
        // The record may have changed since the state was made.
        if self.fleet.reach() != Reach::ThisProcess {
            apply_record(&self.fleet.control(), &added);
        }
    }

    /// Records that a route receives nothing any more and finishes its messages.
    pub(crate) fn end(&self, route: &str) {
        self.change_table(|table| table.end(route));
    }

    /// Removes a route that has finished.
    pub(crate) fn remove(&self, number: u64) {
        self.change_table(|table| table.remove(number));
    }

    /// Replaces the configured limits of a route.
    pub(crate) fn configure(&self, route: &str, limits: &SchedulerLimits) {
        if let Some(route) = self.table().route(route) {
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
        for route in &self.table().routes {
            changed.extend(apply_record(&record, route));
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
        let (name, decided) = (&route.config.name, change);
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
            control.change_weight(&route.config.name, tenant, weight);
            Ok(())
        });
        Ok((reach, changed.await?.1))
    }

    /// Changes a setting of a queue: in its store if processes share it there, otherwise in the
    /// fleet. What the fleet has set for a queue with such a store changes as well. Returns who
    /// obeys, and the queues whose limits changed here.
    pub(crate) async fn change_queue(
        &self,
        (route, lane): &QueuePlace,
        change: &ControlChange,
    ) -> Result<(Reach, Vec<String>), QueueError> {
        let lane = *lane;
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
        let sharing = backends::all().iter();
        let sharing = sharing.filter(|backend| backend.facts().shares_controls);
        // Each backend is read separately, so that a slow store does not delay the others.
        let following = sharing.map(|backend| self.follow_one(*backend, &stop));
        tasks::all(following.collect()).await;
    }

    async fn follow_one(&self, backend: &'static dyn Backend, stop: &CancellationToken) {
        let mut throttle = LogThrottle::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep_until(Some(clock::now() + INTERVAL)) => {}
            }
            let read = tokio::select! {
                () = stop.cancelled() => return,
                read = self.read_again(backend) => read,
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

    async fn read_again(&self, backend: &'static dyn Backend) -> Result<(), QueueError> {
        let table = self.table();
        let names: Vec<&QueueName> = table
            .queues()
            .map(|queue| &queue.name)
            .filter(|name| name.backend == backend)
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let _turn = self.turn(backend).await;
        let asked = ask(self.schedules.backends(), backend, &names).await?;
        let mut found = asked.into_iter();
        for route in &table.routes {
            let lanes = route.queues.iter().enumerate();
            let own = lanes.filter(|(_, queue)| queue.name.backend == backend);
            let controls: Vec<(usize, QueueControl)> =
                own.map(|(lane, _)| lane).zip(found.by_ref()).collect();
            if controls.is_empty() {
                continue;
            }
            route.change(|state| {
                for (lane, control) in controls {
                    state.set_part(lane, Part::Backend, control);
                }
            });
        }
        Ok(())
    }
}

/// Applies the control record of the fleet to a route. Returns the queues whose limits changed.
fn apply_record(record: &FleetControl, route: &LiveRoute) -> Vec<String> {
    let name = &route.config.name;
    route.change(|state| {
        state.route = route_control(record.route(name));
        state.weights = record.weights(name);
        for (lane, queue) in route.queues.iter().enumerate() {
            state.set_part(lane, Part::Fleet, record.queue(&queue.text));
        }
    })
}
