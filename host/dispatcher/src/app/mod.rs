//! The life of the process, as a table of contents: build the parts, wire them, run until a signal,
//! drain. Knows no business rule.

pub mod build;
pub mod doctor;
pub mod drain;
#[cfg(feature = "local")]
pub mod embedded;
pub(crate) mod live;
mod messages;
mod observe;
mod operations;
pub mod redrive;
mod reload;
mod replace;
pub mod route;
pub mod sandbox;
mod schedule;
mod service_manager;
pub mod stop;
pub(crate) mod traces;
mod waiting;
pub(crate) mod watch;

pub(crate) use messages::backlog;
pub(crate) use traces::export_logs;

use crate::admin::access::Access;
use crate::admin::operations::Operations;
use crate::config::flags::Flags;
use crate::config::problem::Problem;
use crate::config::{Code, Settings};
use crate::telemetry::depths::QueueDepths;
use crate::telemetry::plugins::Plugins;
use crate::telemetry::routes::Routes;
use build::schedule::Schedules;
use build::{Backends, Built, Spawn};
use dispatcher_core::control::QueueControl;
use dispatcher_core::executor::Workers;
use dispatcher_core::executor::pool::Pool;
use dispatcher_core::lease::{Ledger, keeper};
use dispatcher_core::memory::Budget;
use dispatcher_core::queue::Queue;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::durations::SentMessages;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_core::telemetry::readiness::Readiness;
use dispatcher_core::telemetry::trace::Tracer;
use drain::Signals;
use live::Live;
use messages::QueueMessages;
use observe::Watched;
use operations::RunOperations;
use replace::Replaceable;
use route::RunningRoute;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use stop::{Platform, StopPlan};
use tokio_util::sync::CancellationToken;

/// What every route of a process shares.
pub struct ProcessContext {
    /// All leases.
    pub ledger: Arc<Ledger>,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// What is measured, by queue.
    pub meters: Arc<Meters>,
    /// How the control of each route stands.
    pub routes: Arc<Routes>,
    /// How the versions of each plugin stand.
    pub plugins: Arc<Plugins>,
    /// What was sent to queues.
    pub sent: Arc<SentMessages>,
    /// How much queues hold.
    pub depths: Arc<QueueDepths>,
    /// How many bytes of messages may be held; any number without.
    pub budget: Option<Arc<Budget>>,
    /// What keeps the program from being ready.
    pub readiness: Arc<Readiness>,
    /// Set when nothing more is to be received.
    pub stop: CancellationToken,
    /// Set when running attempts must end.
    pub halt: CancellationToken,
    /// Set when an operator asks for the stop.
    pub drain: CancellationToken,
    /// Set when a stage has ended that should not have.
    pub broken: CancellationToken,
    /// Makes spans, if any are exported.
    pub tracer: Tracer,
    /// What operators had set on queues, by their names, before the start.
    pub controls: BTreeMap<String, QueueControl>,
}

/// Runs until a signal, and then until no message is held any more. `flags` are the source of the
/// settings: SIGHUP reloads their file.
pub async fn run(
    settings: Settings,
    flags: Flags,
    counters: Arc<Counters>,
) -> Result<(), Vec<Problem>> {
    let system = |what: &str, error: &std::io::Error| vec![system_problem(what, error)];
    let rereads = flags.file.is_some() || has_token(&settings);
    let hangup = rereads.then(reload::listen).transpose();
    let hangup = hangup.map_err(|error| system("signal handlers", &error))?;
    // Before anything that takes time.
    let mut signals =
        Signals::listen(!rereads).map_err(|error| system("signal handlers", &error))?;
    let pool = Pool::start(settings.program.workers, "guest")
        .map_err(|error| system("the guest threads", &error))?;
    let spawner = pool.spawner();
    // A future that a closed pool refuses is dropped, which is what its owner is told.
    let spawn = Arc::new(move |future| drop(spawner.spawn(future)));
    let over = CancellationToken::new();
    let backends = Arc::new(Backends::new(settings.stores.clone()));
    let making = make(&settings, &backends, counters.clone(), spawn, over.clone());
    let made = tokio::select! {
        biased; // a signal beside problems is obeyed
        _ = signals.next() => {
            tracing::info!("stopped before the first receive");
            return Ok(());
        }
        made = making => made?,
    };
    let Made {
        access,
        parts:
            build::Parts {
                routes: built,
                loader,
                budget,
            },
    } = made;
    let plan = stop_plan(&settings, &built);
    warn_of_stop(plan);
    let queues = built.iter().flat_map(|route| route.queues.iter().cloned());
    let queues: Vec<Arc<dyn Queue>> = queues.collect();
    let mut shared = ProcessContext::new(&queues, counters);
    shared.budget = Some(budget);
    let (tracer, exporting) = traces::start(&settings.otlp).map_err(|problem| vec![problem])?;
    shared.tracer = tracer;
    shared.sent = backends.sent();
    backends.trace(shared.tracer.clone());
    let replaceable = replaceable(&built, &shared.plugins);
    let (replacing, wishes) = replace::start(loader, replaceable, over);
    doctor::warnings(&settings, &backends, true).await;
    let operations: Arc<OnceLock<Arc<dyn Operations>>> = Arc::default();
    let watched = Watched::new(&settings, &shared);
    let watching = observe::start(watched, wishes.clone(), &access, &operations)
        .await
        .map_err(|problem| vec![problem])?;
    let _keeper = shared.keep(&queues);
    shared.controls = live::read(&backends, &settings).await;
    let schedules = Arc::new(Schedules::new(backends, settings.schedule_table.clone()));
    let scheduling = schedule::start(&settings, &schedules, &shared).await;
    let names = queue_names(&built);
    let routes = start_routes(built, &shared, &pool);
    let (live, messages, operating) =
        operate(&settings, &shared, schedules, &routes, queues, &operations);
    announce(&settings, &names);
    let reload = reload::Reloaded {
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
    messages.finish().await;
    flush(stopped, plan, watching, exporting).await
}

/// Sends the last metrics and spans, within what is left of the time of the stop.
async fn flush(
    stopped: drain::Stopped,
    plan: StopPlan,
    watching: observe::Watching,
    exporting: traces::Exporting,
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

/// From now on operators see what runs and can change it, until what this answers with is dropped.
fn operate(
    settings: &Settings,
    shared: &ProcessContext,
    schedules: Arc<Schedules>,
    routes: &[RunningRoute],
    queues: Vec<Arc<dyn Queue>>,
    operations: &OnceLock<Arc<dyn Operations>>,
) -> (Arc<Live>, Arc<QueueMessages>, impl Sized + use<>) {
    let live = Arc::new(Live::new(&schedules, settings, routes, shared));
    let shown = RunOperations::new(settings, shared, schedules, live.clone(), routes, queues);
    let measuring = tasks::spawn(shown.rates().measure(shared.stop.clone()));
    let following = tasks::spawn(live.clone().follow(shared.stop.clone()));
    let messages = shown.queue_messages();
    // It is set here alone.
    let _ = operations.set(Arc::new(shown));
    (live, messages, (measuring, following))
}

/// Opens and loads everything and receives nothing. Answers with all that is wrong. Opens nothing
/// where an address could not be read: a default would be another server.
pub async fn check(settings: &Settings) -> Vec<Problem> {
    if settings.stores.refused {
        return Vec::new();
    }
    let backends = Arc::new(Backends::new(settings.stores.clone()));
    let examined = examine(settings, &backends).await;
    doctor::warnings(settings, &backends, true).await;
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
    // Nothing is attempted, so nothing needs to be run.
    let over = CancellationToken::new();
    let made = parts(settings, backends, Arc::default(), Arc::new(drop), over).await?;
    Ok(stop_plan(settings, &made.parts.routes))
}

/// What a run is made of.
struct Made {
    access: Arc<Access>,
    parts: build::Parts,
}

/// Makes it for a run: the queues that the settings declare come first.
async fn make(
    settings: &Settings,
    backends: &Arc<Backends>,
    counters: Arc<Counters>,
    spawn: Spawn,
    over: CancellationToken,
) -> Result<Made, Vec<Problem>> {
    build::declare(settings, backends).await;
    parts(settings, backends, counters, spawn, over).await
}

/// Makes it, or says all that is wrong.
async fn parts(
    settings: &Settings,
    backends: &Arc<Backends>,
    counters: Arc<Counters>,
    spawn: Spawn,
    over: CancellationToken,
) -> Result<Made, Vec<Problem>> {
    let access = settings.admin.as_ref().map(Access::open).transpose();
    let parts = build::parts(settings, backends, counters, spawn, over).await;
    match (access, parts) {
        (Ok(access), Ok(parts)) => Ok(Made {
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
    admin.is_some_and(|admin| admin.token_file.is_some() || admin.read_token_file.is_some())
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
    /// For all queues of a process, those of each route together.
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
        }
    }

    /// Extends the leases on messages of these queues, which leases name by their place, until
    /// dropped.
    pub fn keep(&self, queues: &[Arc<dyn Queue>]) -> Task<()> {
        let watched = self.watched(queues);
        let keeper = keeper::keep(self.ledger.clone(), watched, self.counters.clone());
        tasks::spawn(tasks::watched(&self.broken, keeper))
    }

    /// The meter of a queue.
    fn meter(&self, queue: &Arc<dyn Queue>) -> Arc<Meter> {
        let name = &queue.identity().name;
        self.meters.of(name).unwrap_or_default()
    }

    /// Queues with their meters.
    fn watched(&self, queues: &[Arc<dyn Queue>]) -> Vec<(Arc<dyn Queue>, Arc<Meter>)> {
        let pair = |queue: &Arc<dyn Queue>| (queue.clone(), self.meter(queue));
        queues.iter().map(pair).collect()
    }
}

/// The routes whose plugins can be replaced; they are shown from now on.
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

/// The names of each route's queues, with commas.
fn queue_names(built: &[Built]) -> Vec<String> {
    let names = built.iter().map(|one| {
        let queues = one.queues.iter();
        let names: Vec<&str> = queues.map(|one| one.identity().name.as_str()).collect();
        names.join(",")
    });
    names.collect()
}

/// Says of each route that it runs. By then the admin address can show it.
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

fn system_problem(what: &str, error: &std::io::Error) -> Problem {
    Problem::new(what, error.to_string(), "").failed()
}
