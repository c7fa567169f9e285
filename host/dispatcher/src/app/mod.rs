//! The life of the process: builds the parts, connects them, runs until a signal, and drains.
//! Contains no business rule.

pub mod build;
pub mod doctor;
pub mod drain;
#[cfg(feature = "local")]
pub mod embedded;
mod fleet_link;
pub(crate) mod live;
mod messages;
mod observe;
mod operations;
mod redrive;
mod reload;
mod replace;
pub mod route;
pub mod sandbox;
mod schedule;
mod service_manager;
pub mod stop;
pub(crate) mod stores;
pub(crate) mod traces;
mod waiting;
pub(crate) mod watch;

pub(crate) use traces::export_logs;

use build::schedule::Schedules;
use build::{Backends, Built, Spawn};
use dispatcher_config::flags::Flags;
use dispatcher_config::problem::Problem;
use dispatcher_config::{Code, Settings};
use dispatcher_console::access::Access;
use dispatcher_core::control::QueueControl;
use dispatcher_core::executor::Workers;
use dispatcher_core::executor::pool::Pool;
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::fleet::keeper::{Fleet, KeptLimits};
use dispatcher_core::lease::{Ledger, keeper};
use dispatcher_core::memory::Budget;
use dispatcher_core::process;
use dispatcher_core::queue::Queue;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::durations::SentMessages;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_core::telemetry::readiness::Readiness;
use dispatcher_core::telemetry::trace::Tracer;
use dispatcher_operate::operations::Operations;
use dispatcher_telemetry::depths::QueueDepths;
use dispatcher_telemetry::plugins::Plugins;
use dispatcher_telemetry::routes::Routes;
use drain::Signals;
use fleet_link::FleetLink;
use live::Live;
use messages::QueueMessages;
use observe::WatchedRun;
use operations::RunOperations;
use replace::{ReloadRequests, Replaceable};
use route::RunningRoute;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use stop::{Platform, StopPlan};
use tokio_util::sync::CancellationToken;

/// The state that all routes of a process share.
pub struct ProcessContext {
    /// All leases.
    pub ledger: Arc<Ledger>,
    /// The counters of the process.
    pub counters: Arc<Counters>,
    /// The meters of each queue.
    pub meters: Arc<Meters>,
    /// The control state of each route.
    pub routes: Arc<Routes>,
    /// The versions of each plugin.
    pub plugins: Arc<Plugins>,
    /// The counts of messages sent to queues.
    pub sent: Arc<SentMessages>,
    /// The depths of queues.
    pub depths: Arc<QueueDepths>,
    /// The limit on the bytes of messages that are held; unlimited if `None`.
    pub budget: Option<Arc<Budget>>,
    /// The reasons why the program is not ready.
    pub readiness: Arc<Readiness>,
    /// Cancelled when no more messages must be received.
    pub stop: CancellationToken,
    /// Cancelled when running attempts must end.
    pub halt: CancellationToken,
    /// Cancelled when an operator requests the stop.
    pub drain: CancellationToken,
    /// Cancelled when a stage ended unexpectedly.
    pub broken: CancellationToken,
    /// Creates spans, if any are exported.
    pub tracer: Tracer,
    /// The settings that operators made on queues before the start, by queue name.
    pub controls: BTreeMap<String, QueueControl>,
    /// The limits that hold for all processes together, if a route has any.
    pub fleet: Option<Arc<Fleet>>,
    /// The connection to the fleet, whose control record was read before the start.
    pub(crate) fleet_link: Arc<FleetLink>,
}

/// Runs until a signal, and then until no message is held. `flags` are the source of the settings:
/// SIGHUP reloads their file.
pub async fn run(
    settings: Settings,
    flags: Flags,
    counters: Arc<Counters>,
) -> Result<(), Vec<Problem>> {
    let rereads = flags.file.is_some() || has_token(&settings);
    let hangup = rereads
        .then(reload::listen)
        .transpose()
        .map_err(|error| system_problem("signal handlers", &error))?;
    // Comes before anything that takes time.
    let mut signals =
        Signals::listen(!rereads).map_err(|error| system_problem("signal handlers", &error))?;
    let pool = Pool::start(settings.program.workers, "guest")
        .map_err(|error| system_problem("the guest threads", &error))?;
    let spawner = pool.spawner();
    // A closed pool drops the future, which its owner notices.
    let spawn = Arc::new(move |future| drop(spawner.spawn(future)));
    let over = CancellationToken::new();
    let backends = Arc::new(Backends::new(settings.stores.clone()));
    let making = make(&settings, &backends, counters.clone(), spawn, over.clone());
    let made = tokio::select! {
        biased; // a signal takes precedence over problems
        _ = signals.next() => {
            tracing::info!("stopped before the first receive");
            return Ok(());
        }
        made = making => made?,
    };
    let RunParts {
        access,
        parts:
            build::Parts {
                routes: built,
                loader,
                budget,
                fleet,
            },
    } = made;
    let plan = stop_plan(&settings, &built);
    warn_of_stop(plan);
    let queues = opened_queues(&built);
    let mut shared = ProcessContext::new(&queues, counters);
    shared.budget = Some(budget);
    let exporting = shared
        .trace(&settings, &backends)
        .map_err(|problem| vec![problem])?;
    let (replacing, wishes) = replace::start(loader, replaceable(&built, &shared.plugins), over);
    doctor::warnings(&settings, &backends, true).await;
    let operations: Arc<OnceLock<Arc<dyn Operations>>> = Arc::default();
    let limits = shared.keep_limits(&settings, &fleet);
    let watched = WatchedRun::new(&settings, &shared);
    let watching = observe::start(watched, wishes.clone(), &access, &operations)
        .await
        .map_err(|problem| vec![problem])?;
    let _keeper = shared.keep(&queues);
    shared.read_controls(&settings, &backends, &fleet).await;
    let schedules = Arc::new(Schedules::new(backends, settings.schedule_table.clone()));
    let scheduling = schedule::start(&settings, &schedules, &shared).await;
    let names = queue_names(&built);
    let routes = start_routes(built, &shared, &pool);
    let running = (&routes[..], queues, wishes.clone());
    let (live, lasting, operating) = operate(&settings, &shared, schedules, running, &operations);
    announce(&settings, &names);
    let reload = reload::ReloadedParts {
        started: settings,
        flags,
        live,
        plugins: wishes,
        access,
    };
    let reloading = hangup.map(|signal| tasks::spawn(reload::watch(signal, reload)));
    let until_stop = (reloading, replacing, operating);
    service_manager::ready(service_manager::RUNNING);
    let running =
        drain::until_stopped(signals, &shared, routes, until_stop, scheduling, pool, plan);
    let stopped = running.await;
    lasting.finish(&shared.fleet_link, limits).await;
    flush(stopped, plan, watching, exporting).await
}

/// Returns the queues of all routes, in the routes' order.
fn opened_queues(routes: &[Built]) -> Vec<Arc<dyn Queue>> {
    let queues = routes.iter().flat_map(|route| &route.queues);
    queues.cloned().collect()
}

/// Sends the last metrics and spans, within the remaining time of the stop.
async fn flush(
    stopped: drain::FinishedStop,
    plan: StopPlan,
    watching: observe::MonitoringTasks,
    exporting: traces::RunningExport,
) -> Result<(), Vec<Problem>> {
    let latest = stopped.began + plan.telemetry();
    tokio::join!(watching.finish(latest), exporting.finish(Some(latest)));
    stopped.ended
}

fn start_routes(built: Vec<Built>, shared: &ProcessContext, pool: &Pool) -> Vec<RunningRoute> {
    let mut place = 0;
    let mut routes = Vec::new();
    for built in built {
        let queues = built.queues.len();
        let workers = Workers::Pool(pool.spawner());
        routes.push(route::start(built, place, shared, workers));
        place += queues;
    }
    routes
}

/// The operations that go on during the stop.
struct LastingOperations {
    messages: Arc<QueueMessages>,
    /// Follows the fleet, and publishes what this process does.
    fleet: Task<()>,
}

impl LastingOperations {
    async fn finish(self, fleet_link: &FleetLink, limits: Option<KeptLimits>) {
        self.messages.finish().await;
        drop(self.fleet);
        if let Some(limits) = limits {
            limits.leave().await;
        }
        fleet_link.leave().await;
    }
}

/// Lets operators view and change the running state until the returned values are dropped.
fn operate(
    settings: &Settings,
    shared: &ProcessContext,
    schedules: Arc<Schedules>,
    (routes, queues, plugins): (&[RunningRoute], Vec<Arc<dyn Queue>>, ReloadRequests),
    operations: &OnceLock<Arc<dyn Operations>>,
) -> (Arc<Live>, LastingOperations, impl Sized + use<>) {
    let live = Arc::new(Live::new(&schedules, settings, routes, shared));
    let running = (routes, queues, plugins);
    let shown = RunOperations::new(settings, shared, schedules, live.clone(), running);
    let shown = Arc::new(shown);
    let measuring = tasks::spawn(shown.rates().measure(shared.stop.clone()));
    let following = tasks::spawn(live.clone().follow(shared.stop.clone()));
    let (followed, published) = (live.clone(), shown.clone());
    let lasting = LastingOperations {
        messages: shown.queue_messages(),
        fleet: tasks::spawn(async move {
            tokio::join!(followed.follow_fleet(), published.publish_summaries());
        }),
    };
    // Only set here, so this cannot fail.
    let _ = operations.set(shown);
    (live, lasting, (measuring, following))
}

/// Opens and loads everything but receives nothing. Returns every problem. Opens nothing if an
/// address could not be parsed: a default would mean another server.
pub async fn check(settings: &Settings) -> Vec<Problem> {
    if settings.stores.refused {
        return Vec::new();
    }
    let backends = Arc::new(Backends::new(settings.stores.clone()));
    let examined = examine(settings, &backends).await;
    doctor::warnings(settings, &backends, true).await;
    for limit in settings.unused_limits() {
        tracing::warn!(limit = limit.name, "limit not used by any route");
    }
    match examined {
        Ok(plan) => {
            warn_of_stop(plan);
            Vec::new()
        }
        Err(problems) => problems,
    }
}

/// Checks settings, and returns the plan of a stop if there is no problem.
async fn examine(settings: &Settings, backends: &Arc<Backends>) -> Result<StopPlan, Vec<Problem>> {
    // No attempts are made, so no work needs to be spawned.
    let over = CancellationToken::new();
    let made = parts(settings, backends, Arc::default(), Arc::new(drop), over).await;
    match (made, build::fleet::unlimited(settings, backends).await) {
        (Ok(made), None) => Ok(stop_plan(settings, &made.parts.routes)),
        (made, fleet) => {
            let problems = made.err().into_iter().flatten();
            Err(problems.chain(fleet).collect())
        }
    }
}

/// The parts of a run.
struct RunParts {
    access: Arc<Access>,
    parts: build::Parts,
}

/// Makes the parts of a run, after creating the queues that the settings declare.
async fn make(
    settings: &Settings,
    backends: &Arc<Backends>,
    counters: Arc<Counters>,
    spawn: Spawn,
    over: CancellationToken,
) -> Result<RunParts, Vec<Problem>> {
    build::declare(settings, backends).await;
    parts(settings, backends, counters, spawn, over).await
}

/// Makes the parts of a run, or returns every problem.
async fn parts(
    settings: &Settings,
    backends: &Arc<Backends>,
    counters: Arc<Counters>,
    spawn: Spawn,
    over: CancellationToken,
) -> Result<RunParts, Vec<Problem>> {
    let access = settings.admin.as_ref().map(Access::open).transpose();
    let parts = build::parts(settings, backends, counters, spawn, over).await;
    match (access, parts) {
        (Ok(access), Ok(parts)) => Ok(RunParts {
            access: Arc::new(access.unwrap_or_default()),
            parts,
        }),
        (access, parts) => {
            let mut problems = parts.err().unwrap_or_default();
            problems.extend(access.err().unwrap_or_default());
            Err(problems)
        }
    }
}

fn has_token(settings: &Settings) -> bool {
    let admin = settings.admin.as_ref();
    admin.is_some_and(|admin| {
        let files = [
            &admin.token_file,
            &admin.read_token_file,
            &admin.send_token_file,
        ];
        files.into_iter().any(Option::is_some)
    })
}

fn stop_plan(settings: &Settings, built: &[Built]) -> StopPlan {
    let routes = built.iter().map(|built| (&built.route, &*built.queues));
    StopPlan::new(settings.program.shutdown_grace, routes)
}

fn platform() -> Option<Platform> {
    Platform::of(|name| std::env::var_os(name).is_some())
}

fn warn_of_stop(plan: StopPlan) {
    if let Some(advice) = stop::advice(plan, platform()) {
        tracing::warn!(advice, "platform may kill a stop before its end");
    }
}

impl ProcessContext {
    /// Creates the context for all queues of a process, grouped by route.
    pub fn new(queues: &[Arc<dyn Queue>], counters: Arc<Counters>) -> Self {
        let names = queues.iter().map(|queue| queue.identity().name.as_str());
        Self {
            ledger: Arc::default(),
            counters,
            meters: Arc::new(Meters::new(names)),
            routes: Arc::default(),
            plugins: Arc::default(),
            sent: Arc::default(),
            depths: Arc::default(),
            budget: None,
            readiness: Arc::default(),
            stop: CancellationToken::new(),
            halt: CancellationToken::new(),
            drain: CancellationToken::new(),
            broken: CancellationToken::new(),
            tracer: Tracer::default(),
            controls: BTreeMap::new(),
            fleet: None,
            fleet_link: Arc::default(),
        }
    }

    /// Extends the leases on messages of these queues until dropped. A lease refers to a queue by
    /// its index.
    pub fn keep(&self, queues: &[Arc<dyn Queue>]) -> Task<()> {
        let watched = self.watched(queues);
        let keeper = keeper::keep(self.ledger.clone(), watched, self.counters.clone());
        tasks::spawn(tasks::watched(&self.broken, keeper))
    }

    /// Makes the settings' limits known to the routes, and keeps this process's permits in the
    /// store until dropped.
    fn keep_limits(
        &mut self,
        settings: &Settings,
        store: &Option<Arc<dyn FleetStore>>,
    ) -> Option<KeptLimits> {
        let store = store.clone()?;
        // A container's next process has the same label, and must not have the permits of this one.
        let holder = process::unique_name().to_owned();
        let (limits, when_away) = (build::fleet::limits(settings), settings.fleet.when_away);
        let fleet = Arc::new(Fleet::new(holder, limits, when_away));
        self.fleet = Some(fleet.clone());
        Some(KeptLimits::start(fleet, store, &self.broken))
    }

    /// Reads the settings that operators made before the start, from queues' stores and the fleet's.
    async fn read_controls(
        &mut self,
        settings: &Settings,
        backends: &Backends,
        fleet: &Option<Arc<dyn FleetStore>>,
    ) {
        (self.controls, self.fleet_link) = tokio::join!(
            live::read(backends, settings),
            live::join_fleet(backends, settings, fleet.clone(), self.fleet.clone())
        );
    }

    /// Creates spans from now on, if the settings export any, and traces and counts the messages
    /// that are sent.
    fn trace(
        &mut self,
        settings: &Settings,
        backends: &Backends,
    ) -> Result<traces::RunningExport, Problem> {
        let (tracer, exporting) = traces::start(&settings.otlp)?;
        self.tracer = tracer;
        self.sent = backends.sent();
        backends.trace(self.tracer.clone());
        Ok(exporting)
    }

    /// Returns the meter of a queue.
    fn meter(&self, queue: &Arc<dyn Queue>) -> Arc<Meter> {
        let name = &queue.identity().name;
        self.meters.of(name).unwrap_or_default()
    }

    /// Returns the queues with their meters.
    fn watched(&self, queues: &[Arc<dyn Queue>]) -> Vec<(Arc<dyn Queue>, Arc<Meter>)> {
        queues
            .iter()
            .map(|queue: &Arc<dyn Queue>| (queue.clone(), self.meter(queue)))
            .collect()
    }
}

/// Returns the routes whose plugins can be replaced, and registers them in `shown`.
fn replaceable(built: &[Built], shown: &Plugins) -> Vec<Replaceable> {
    let mut replaceable = Vec::new();
    for Built { route, loaded, .. } in built {
        if let Some(rollout) = &loaded.rollout {
            let asked = rollout.clone();
            shown.add(&route.name, move || replace::figures(&asked));
            replaceable.push(Replaceable {
                route: route.clone(),
                wanted: None,
                rollout: rollout.clone(),
            });
        }
    }
    replaceable
}

/// Returns the names of each route's queues, separated by commas.
fn queue_names(built: &[Built]) -> Vec<String> {
    let names = built.iter().map(|one| {
        let queues = one.queues.iter();
        let of_route: Vec<&str> = queues.map(|one| one.identity().name.as_str()).collect();
        of_route.join(",")
    });
    names.collect()
}

/// Logs that each route runs. The admin address can already show it.
fn announce(settings: &Settings, queue_names: &[String]) {
    for (route, queues) in settings.routes.iter().zip(queue_names) {
        let (mut path, mut function, mut url) = (None, None, None);
        match &route.plugin.code {
            Code::Component(source) => path = Some(source.to_string()),
            Code::Forward(forward) => function = Some(forward.function.as_str()),
            Code::Http(forward) => url = Some(forward.url.to_string()),
            Code::Missing => {}
        }
        tracing::info!(
            route = route.name,
            queues,
            plugin = route.plugin.name,
            path,
            function,
            url,
            concurrency = route.settings.concurrency,
            workers = settings.program.workers,
            "running"
        );
    }
}

fn system_problem(what: &str, error: &std::io::Error) -> Vec<Problem> {
    vec![Problem::new(what, error.to_string(), "").failed()]
}
