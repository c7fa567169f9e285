//! The life of the process: builds the parts, connects them, runs until a signal, and drains.
//! Contains no business rule.

mod accounts;
pub mod build;
mod discovery;
pub mod doctor;
pub mod drain;
#[cfg(feature = "local")]
pub mod embedded;
mod fleet_link;
pub mod handover;
pub(crate) mod live;
mod messages;
mod observe;
mod operations;
mod redrive;
mod reload;
mod replace;
pub mod route;
mod routes;
pub mod sandbox;
mod schedule;
mod service_manager;
pub mod stop;
pub(crate) mod stores;
pub(crate) mod traces;
mod waiting;
pub(crate) mod watch;

pub(crate) use traces::export_logs;

use accounts::LeftOut;
use build::schedule::Schedules;
use build::{Backends, Built, RouteBuilder};
use discovery::Discovery;
use dispatcher_aws as aws;
use dispatcher_config::discovery::FoundQueues;
use dispatcher_config::problem::Problem;
use dispatcher_config::signed_header::KeyPlace;
use dispatcher_config::{Settings, SettingsSource};
use dispatcher_console::access::Access;
use dispatcher_core::control::QueueControl;
use dispatcher_core::executor::pool::Pool;
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::fleet::keeper::{Fleet, KeptLimits};
use dispatcher_core::memory::Budget;
use dispatcher_core::process;
use dispatcher_core::queue::Queue;
use dispatcher_core::settlement::memory::QueueMemories;
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
use reload::{ReloadCalls, ReloadedParts};
use routes::RouteSet;
use schedule::RunningMovers;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use stop::{Platform, StopPlan};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// The state that all routes of a process share.
pub struct ProcessContext {
    /// The number of leases.
    pub held: Arc<AtomicUsize>,
    /// The number of routes that were started.
    pub started: AtomicU64,
    /// The counters of the process.
    pub counters: Arc<Counters>,
    /// The meters of each queue.
    pub meters: Arc<Meters>,
    /// The memories of each queue's settlement.
    pub memories: QueueMemories,
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
    /// The limits that hold for all processes together, if a route has any.
    pub fleet: Option<Arc<Fleet>>,
    /// The connection to the fleet, whose control record was read before the start.
    pub(crate) fleet_link: Arc<FleetLink>,
}

/// Runs until a signal, and then until no message is held. SIGHUP reloads the file of the settings'
/// source.
pub async fn run(
    settings: Settings,
    source: SettingsSource,
    counters: Arc<Counters>,
) -> Result<(), Vec<Problem>> {
    let flags = source.flags().clone();
    let rereads = flags.file.is_some() || has_access_file(&settings);
    let hangup = rereads
        .then(reload::listen)
        .transpose()
        .map_err(|error| system_problem("signal handlers", &error))?;
    // Comes before anything that takes time.
    let mut signals =
        Signals::listen(!rereads).map_err(|error| system_problem("signal handlers", &error))?;
    let pool = Pool::start(settings.program.workers, "guest")
        .map_err(|error| system_problem("the guest threads", &error))?;
    let (spawn, over) = (spawn_on(&pool), CancellationToken::new());
    let backends = Arc::new(Backends::new(settings.stores.clone()));
    let builder = RouteBuilder::new(&settings, &backends, counters.clone(), spawn, over.clone());
    let Some(made) = make_unless_stopped(settings, source, &builder, &mut signals).await? else {
        return Ok(());
    };
    let (settings, left_out) = (made.settings, made.left_out);
    let RunParts { access, parts } = made.run;
    warn_of_stop(stop_plan(&settings, &parts.routes));
    let mut shared = ProcessContext {
        readiness: left_out.readiness(settings.program.ready_when),
        budget: Some(builder.budget.clone()),
        ..ProcessContext::new(counters)
    };
    let exporting = shared
        .trace(&settings, &backends)
        .map_err(|problem| vec![problem])?;
    let (replacing, plugins) = replace::start(over);
    doctor::warnings(&settings, &backends, true).await;
    let operations: Arc<OnceLock<Arc<dyn Operations>>> = Arc::default();
    let limits = shared.keep_limits(&left_out.wanted, &parts.fleet);
    show_early(&parts.routes, &shared);
    let watched = WatchedRun::new(&settings, &shared);
    let watching = observe::start(watched, plugins.clone(), &access, &operations)
        .await
        .map_err(|problem| vec![problem])?;
    let controls = shared
        .read_controls(&settings, &backends, &parts.fleet)
        .await;
    let shared = Arc::new(shared);
    let schedules = Arc::new(Schedules::new(backends, settings.schedule_table.clone()));
    let live = Arc::new(Live::new(&schedules, &settings, &shared.fleet_link));
    let routes = RouteSet::new(&settings, &shared, &live, &plugins, pool.spawner());
    let mut movers = RunningMovers::new(&settings, &schedules, &shared);
    movers.serve(&settings.queue_names().collect()).await;
    let movers = Arc::new(Mutex::new(movers));
    let started = routes.start(parts, controls);
    let (calls, reload_calls) = ReloadCalls::new();
    let replacement = (plugins.clone(), flags.file.is_some().then_some(calls));
    let shown = RunOperations::new(&settings, &shared, schedules, live.clone(), replacement);
    let (lasting, operating) = operate(&shared, &live, shown, &operations);
    // The admin address can show the routes now.
    routes.announce(&started);
    let reload = ReloadedParts {
        started: left_out.wanted.clone(),
        left_out,
        flags,
        discovery: made.discovery,
        live,
        routes: routes.clone(),
        movers: movers.clone(),
        builder,
        plugins,
        access,
    };
    let reloading = reload::start(hangup, reload_calls, reload);
    let until_stop = (reloading, replacing, operating);
    service_manager::ready(service_manager::RUNNING);
    let running = drain::until_stopped(signals, &shared, &routes, until_stop, &movers, pool);
    let stopped = running.await;
    lasting.finish(&shared.fleet_link, limits).await;
    flush(stopped, watching, exporting).await
}

/// Returns a function that spawns futures on a pool.
fn spawn_on(pool: &Pool) -> build::Spawn {
    let spawner = pool.spawner();
    // A closed pool drops the future, which its owner notices.
    Arc::new(move |future| drop(spawner.spawn(future)))
}

/// Makes the queues and plugins visible in metrics before their routes start.
fn show_early(routes: &[Built], shared: &ProcessContext) {
    for Built {
        route,
        queues,
        loaded,
        ..
    } in routes
    {
        queues.iter().for_each(|queue| drop(shared.meter(queue)));
        if let Some(rollout) = loaded.rollout.clone() {
            shared
                .plugins
                .add(&route.name, move || replace::figures(&rollout));
        }
    }
}

/// Sends the last metrics and spans, within the remaining time of the stop.
async fn flush(
    stopped: drain::FinishedStop,
    watching: observe::MonitoringTasks,
    exporting: traces::RunningExport,
) -> Result<(), Vec<Problem>> {
    let latest = stopped.began + stopped.plan.telemetry();
    tokio::join!(watching.finish(latest), exporting.finish(Some(latest)));
    stopped.ended
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
    shared: &ProcessContext,
    live: &Arc<Live>,
    shown: RunOperations,
    operations: &OnceLock<Arc<dyn Operations>>,
) -> (LastingOperations, impl Sized + use<>) {
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
    (lasting, (measuring, following))
}

/// Returns settings with the queues that their patterns find now, and a problem for each pattern
/// whose queues cannot be looked up.
pub async fn with_found_queues(
    source: SettingsSource,
    settings: Settings,
) -> (Settings, Vec<Problem>) {
    let backends = Backends::new(settings.stores.clone());
    let unusable = accounts::of_patterns(&settings).await;
    let mut discovery = Discovery::new(source);
    let none = FoundQueues::new();
    let looked = discovery.first_look(settings.clone(), &backends, &unusable, &none);
    match looked.await {
        Ok(found) => (found, Vec::new()),
        Err(problems) => (settings, problems),
    }
}

/// Opens and loads everything but receives nothing. Returns every problem. Opens nothing if an
/// address could not be parsed: a default would mean another server.
pub async fn check(settings: &Settings) -> Vec<Problem> {
    if settings.stores.refused {
        return Vec::new();
    }
    let backends = Arc::new(Backends::new(settings.stores.clone()));
    let examined = examine(settings, &backends).await;
    // Their queues are not looked up.
    let unusable = accounts::of_patterns(settings).await.into_iter();
    let unusable = unusable.map(|(account, reason)| {
        let at = format!("account {}", account.name);
        Problem::new(at, format!("no credentials: {reason}"), "").failed()
    });
    doctor::warnings(settings, &backends, true).await;
    for limit in settings.unused_limits() {
        tracing::warn!(limit = limit.name, "limit not used by any route");
    }
    match examined {
        Ok(plan) => {
            warn_of_stop(plan);
            unusable.collect()
        }
        Err(problems) => problems.into_iter().chain(unusable).collect(),
    }
}

/// Checks settings, and returns the plan of a stop if there is no problem.
async fn examine(settings: &Settings, backends: &Arc<Backends>) -> Result<StopPlan, Vec<Problem>> {
    // No attempts are made, so no work needs to be spawned.
    let over = CancellationToken::new();
    let builder = RouteBuilder::new(settings, backends, Arc::default(), Arc::new(drop), over);
    let made = parts(settings, &builder).await;
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

/// The parts of a run that starts, with the settings in force.
struct StartedParts {
    settings: Settings,
    discovery: Discovery,
    left_out: LeftOut,
    run: RunParts,
}

/// Makes the parts of a run, unless a signal arrives before.
async fn make_unless_stopped(
    settings: Settings,
    source: SettingsSource,
    builder: &RouteBuilder,
    signals: &mut Signals,
) -> Result<Option<StartedParts>, Vec<Problem>> {
    tokio::select! {
        biased; // a signal takes precedence over problems
        _ = signals.next() => {
            tracing::info!("stopped before the first receive");
            Ok(None)
        }
        made = make(settings, source, builder) => made.map(Some),
    }
}

/// Makes the parts of a run, after creating the queues that the settings declare. Leaves out the
/// queues of accounts that give no credentials.
async fn make(
    written: Settings,
    source: SettingsSource,
    builder: &RouteBuilder,
) -> Result<StartedParts, Vec<Problem>> {
    build::declare(&written.queues, &builder.backends).await;
    let unusable = accounts::unusable(&written, |_| true).await;
    let mut discovery = Discovery::new(source);
    let (backends, none) = (&builder.backends, FoundQueues::new());
    let looked = discovery.first_look(written, backends, &unusable, &none);
    let mut wanted = looked.await?;
    let mut run = loop {
        match parts(&accounts::usable(&wanted, &unusable), builder).await {
            Ok(run) => break run,
            Err(problems) if discovery::refuse(&mut wanted, &problems, false) => {}
            Err(problems) => return Err(problems),
        }
    };
    // Those without a queue start with the first one.
    let routes = &mut run.parts.routes;
    routes.retain(|built| !built.queues.is_empty());
    let settings = accounts::without(&wanted, &unusable);
    aws::accounts::put_in_force(&wanted.stores.accounts);
    if run.parts.fleet.is_none() {
        // Routes that are left out may have the only limits.
        let mut problems = Vec::new();
        run.parts.fleet = build::fleet::open(&wanted, &builder.backends, &mut problems).await;
        if !problems.is_empty() {
            return Err(problems);
        }
    }
    Ok(StartedParts {
        settings,
        discovery,
        left_out: LeftOut { wanted, unusable },
        run,
    })
}

/// Makes the parts of a run, or returns every problem.
async fn parts(settings: &Settings, builder: &RouteBuilder) -> Result<RunParts, Vec<Problem>> {
    let access = settings.admin.as_ref().map(Access::open).transpose();
    match (access, builder.build(settings).await) {
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

/// Whether a file with tokens or keys of the admin address is read again at SIGHUP.
fn has_access_file(settings: &Settings) -> bool {
    settings.admin.as_ref().is_some_and(|admin| {
        let files = [
            &admin.token_file,
            &admin.read_token_file,
            &admin.send_token_file,
        ];
        let keys = admin.proxy.as_ref().map(|proxy| &proxy.keys);
        files.into_iter().any(Option::is_some) || matches!(keys, Some(KeyPlace::File(_)))
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
    /// Creates the context of a process that has no routes yet.
    pub fn new(counters: Arc<Counters>) -> Self {
        Self {
            held: Arc::default(),
            started: AtomicU64::default(),
            counters,
            meters: Arc::default(),
            memories: QueueMemories::default(),
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
            fleet: None,
            fleet_link: Arc::default(),
        }
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
    /// Returns those of the queues' stores.
    async fn read_controls(
        &mut self,
        settings: &Settings,
        backends: &Backends,
        fleet: &Option<Arc<dyn FleetStore>>,
    ) -> BTreeMap<String, QueueControl> {
        let controls;
        (controls, self.fleet_link) = tokio::join!(
            live::read(backends, settings.queue_names()),
            live::join_fleet(backends, settings, fleet.clone(), self.fleet.clone())
        );
        controls
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
        self.meters.add(queue.identity().name.as_str())
    }
}

fn system_problem(what: &str, error: &std::io::Error) -> Vec<Problem> {
    vec![Problem::new(what, error.to_string(), "").failed()]
}
