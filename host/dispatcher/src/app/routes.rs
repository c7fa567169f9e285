//! The routes of a run: starts them, ends them and replaces them by new versions, while the others
//! go on. A new version receives as soon as the earlier one leaves it some of the attempts; if the
//! route keeps groups in order, as soon as the earlier one has finished.

use super::ProcessContext;
use super::build::plugins::Loader;
use super::build::{Built, Parts};
use super::drain::{StoppedRoutes, finish};
use super::handover;
use super::handover::EarlierVersion;
use super::live::Live;
use super::replace;
use super::replace::{ReloadRequests, Replaceable};
use super::route;
use super::route::{RunningRoute, earlier_version, leave_attempts};
use super::stop::StopPlan;
use dispatcher_config::{Code, Route, Settings};
use dispatcher_core::clock;
use dispatcher_core::control::QueueControl;
use dispatcher_core::executor::Workers;
use dispatcher_core::executor::pool::Spawner;
use dispatcher_core::job::Job;
use dispatcher_core::queue::Queue;
use dispatcher_core::scheduler::shared::SharedScheduler;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::readiness::Readiness;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The routes of a run.
pub(crate) struct RouteSet {
    shared: Arc<ProcessContext>,
    live: Arc<Live>,
    plugins: ReloadRequests,
    spawner: Spawner,
    /// The number of threads for attempts.
    threads: usize,
    /// The time that a stop leaves to running attempts.
    grace: Duration,
    versions: Mutex<RouteVersions>,
}

/// The versions of all routes.
#[derive(Default)]
struct RouteVersions {
    /// The versions that receive messages, by route.
    running: BTreeMap<String, RunningVersion>,
    /// The versions that start once earlier ones permit it, by route.
    next: BTreeMap<String, NextVersion>,
    /// The versions that finish their messages, the earliest first.
    ending: Vec<EndingVersion>,
    /// Whether the process stops, and nothing is started any more.
    is_stopped: bool,
}

/// The route and the queues of a version. Versions that have one of them in common depend on each
/// other.
#[derive(Clone)]
struct VersionScope {
    route: String,
    queues: BTreeSet<String>,
}

/// A version that receives messages.
struct RunningVersion {
    scope: VersionScope,
    running: RunningRoute,
}

/// A version that was built and has not started.
struct NextVersion {
    scope: VersionScope,
    built: Built,
    /// Whether another version had its route or one of its queues.
    is_later: bool,
    loader: Arc<Loader>,
    /// The settings of operators on its queues, in the queues' backends.
    controls: Arc<BTreeMap<String, QueueControl>>,
}

/// A version that finishes its messages.
struct EndingVersion {
    scope: VersionScope,
    number: u64,
    route: Route,
    queues: Vec<Arc<dyn Queue>>,
    scheduler: Arc<SharedScheduler<Job>>,
    finishing: Task<()>,
}

impl RouteSet {
    /// Creates a set without routes. `spawner` runs their attempts.
    pub(crate) fn new(
        settings: &Settings,
        shared: &Arc<ProcessContext>,
        live: &Arc<Live>,
        plugins: &ReloadRequests,
        spawner: Spawner,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared: shared.clone(),
            live: live.clone(),
            plugins: plugins.clone(),
            spawner,
            threads: settings.program.workers.get(),
            grace: settings.program.shutdown_grace,
            versions: Mutex::default(),
        })
    }

    /// Whether routes may have limits that hold for all processes.
    pub(crate) fn has_limits(&self) -> bool {
        self.shared.fleet.is_some()
    }

    /// Returns the readiness of the process.
    pub(crate) fn readiness(&self) -> &Readiness {
        &self.shared.readiness
    }

    /// Starts routes, or replaces those that run by these versions. `controls` are what operators
    /// have set on their queues, in the queues' backends. Returns the routes for `announce`.
    pub(crate) fn start(
        self: &Arc<Self>,
        parts: Parts,
        controls: BTreeMap<String, QueueControl>,
    ) -> Vec<String> {
        let controls = Arc::new(controls);
        let mut versions = self.versions.lock();
        if versions.is_stopped {
            return Vec::new();
        }
        for built in &parts.routes {
            self.end_running(&mut versions, &built.route.name);
        }
        let scopes: Vec<VersionScope> = parts.routes.iter().map(VersionScope::of).collect();
        for (scope, built) in scopes.iter().zip(parts.routes) {
            let mut ending = versions.ending.iter();
            let next = NextVersion {
                scope: scope.clone(),
                built,
                is_later: ending.any(|one| one.scope.meets(scope)),
                loader: parts.loader.clone(),
                controls: controls.clone(),
            };
            versions.next.insert(scope.route.clone(), next);
        }
        versions.share_attempts();
        let started = scopes.iter();
        let replaceable = started.filter_map(|scope| self.advance(&mut versions, &scope.route));
        self.plugins.add(replaceable.collect());
        self.live.arrange();
        scopes.into_iter().map(|scope| scope.route).collect()
    }

    /// Logs that these routes run, if they do not wait for earlier versions.
    pub(crate) fn announce(&self, routes: &[String]) {
        let versions = self.versions.lock();
        for version in routes.iter().filter_map(|name| versions.running.get(name)) {
            announce(&version.running, self.threads);
        }
    }

    /// Ends a route: it receives nothing any more, and finishes its messages.
    pub(crate) fn end(self: &Arc<Self>, name: &str) {
        let mut versions = self.versions.lock();
        versions.next.remove(name);
        self.end_running(&mut versions, name);
        self.live.end(name);
        tracing::info!(route = name, "route removed: its running attempts finish");
    }

    /// Returns the routes whose new versions have not started yet.
    pub(crate) fn waiting(&self) -> Vec<String> {
        self.versions.lock().next.keys().cloned().collect()
    }

    /// Returns all routes for the stop. None is started afterwards.
    pub(crate) fn stop(&self) -> StoppedRoutes {
        let mut versions = self.versions.lock();
        let plan = versions.plan(self.grace);
        versions.is_stopped = true;
        versions.next.clear();
        let running = std::mem::take(&mut versions.running).into_values();
        let ending = std::mem::take(&mut versions.ending).into_iter();
        StoppedRoutes {
            running: running.map(|one| one.running).collect(),
            ending: ending.map(|one| one.finishing).collect(),
            plan,
        }
    }

    /// Plans a stop that begins now.
    pub(crate) fn plan(&self) -> StopPlan {
        self.versions.lock().plan(self.grace)
    }

    /// Ends the running version of a route, if there is one.
    fn end_running(self: &Arc<Self>, versions: &mut RouteVersions, name: &str) {
        let Some(RunningVersion { scope, running }) = versions.running.remove(name) else {
            return;
        };
        running.stop.cancel();
        let (number, route) = (running.number, running.route.clone());
        let (queues, scheduler) = (running.queues.clone(), running.scheduler.clone());
        let plan = StopPlan::new(self.grace, [(&route, &*queues)]);
        let latest = clock::now() + plan.receives();
        let routes = self.clone();
        let finishing = async move {
            let halt = routes.shared.halt.clone();
            finish(running, halt, latest, || routes.progressed(number)).await;
            routes.ended(number);
        };
        versions.ending.push(EndingVersion {
            scope,
            number,
            route,
            queues,
            scheduler,
            finishing: tasks::spawn(tasks::watched(&self.shared.broken, finishing)),
        });
    }

    /// Records that an ending version may need fewer attempts than before.
    fn progressed(self: &Arc<Self>, number: u64) {
        let mut versions = self.versions.lock();
        let mut ending = versions.ending.iter();
        let Some(version) = ending.find(|one| one.number == number) else {
            return;
        };
        let scope = version.scope.clone();
        self.advance_related(&mut versions, &scope);
    }

    /// Records that a version has finished all its messages.
    fn ended(self: &Arc<Self>, number: u64) {
        let mut versions = self.versions.lock();
        let Some(at) = versions.ending.iter().position(|one| one.number == number) else {
            return;
        };
        let ended = versions.ending.remove(at);
        let name = &ended.scope.route;
        // A later version takes over what operators have set on this one.
        self.advance_related(&mut versions, &ended.scope);
        self.live.remove(number);
        for queue in &ended.scope.queues {
            if !versions.uses(queue) {
                self.shared.meters.remove(queue);
                self.shared.memories.remove(queue);
                self.shared.depths.remove(queue);
            }
        }
        if !versions.has(name) {
            self.shared.routes.remove(name);
            self.shared.plugins.remove(name);
            self.plugins.remove(name);
            tracing::info!(route = name, "removed route has finished");
        }
    }

    /// Starts the versions that depend on one which needs less than before, if they may start now,
    /// and leaves it as much as it still needs.
    fn advance_related(&self, versions: &mut RouteVersions, scope: &VersionScope) {
        let running = versions.running.values().map(|one| &one.scope);
        let next = versions.next.values().map(|one| &one.scope);
        let related = running.chain(next).filter(|other| other.meets(scope));
        versions.share_attempts();
        let names: BTreeSet<String> = related.map(|other| other.route.clone()).collect();
        for name in names {
            let is_waiting = versions.next.contains_key(&name);
            self.plugins
                .add(self.advance(versions, &name).into_iter().collect());
            if let Some(version) = versions.running.get(&name)
                && is_waiting
            {
                self.live.arrange();
                announce(&version.running, self.threads);
            }
        }
    }

    /// Starts the next version of a route, if the earlier ones permit it, and leaves them as many
    /// attempts as they need. Returns the plugin of a version that was started.
    fn advance(&self, versions: &mut RouteVersions, name: &str) -> Option<Replaceable> {
        let running = versions.running.get(name).map(|one| &one.scope);
        let scope = versions.next.get(name).map(|one| &one.scope).or(running)?;
        let earlier = needs(&versions.ending, scope);
        let next = versions.next.get(name).map(|next| &next.built.route);
        let replaceable = match next {
            Some(route) if !handover::may_start(route, &earlier) => return None,
            Some(_) => {
                let next = versions.next.remove(name)?;
                let scope = next.scope.clone();
                let (running, replaceable) = self.begin(next, &earlier);
                let version = RunningVersion { scope, running };
                versions.running.insert(name.to_owned(), version);
                replaceable
            }
            None => None,
        };
        if let Some(version) = versions.running.get(name) {
            version.running.leave_attempts(&earlier);
        }
        replaceable
    }

    fn begin(
        &self,
        next: NextVersion,
        earlier: &[EarlierVersion],
    ) -> (RunningRoute, Option<Replaceable>) {
        let NextVersion {
            scope: _,
            built,
            is_later,
            loader,
            controls,
        } = next;
        let (shared, route) = (&self.shared, built.route.clone());
        let name = &route.name;
        let rollout = built.loaded.rollout.clone();
        let state = self.live.state_of(&route, &controls);
        let limits = state.limits(route.settings.concurrency);
        let workers = Workers::Pool(self.spawner.clone());
        let running = route::start(built, limits, is_later.then_some(earlier), shared, workers);
        self.live.add(&running, state, &shared.meters);
        match &rollout {
            Some(rollout) => {
                let asked = rollout.clone();
                shared.plugins.add(name, move || replace::figures(&asked));
            }
            None => {
                shared.plugins.remove(name);
                self.plugins.remove(name);
            }
        }
        let replaceable = rollout.map(|rollout| Replaceable {
            route,
            wanted: None,
            rollout,
            loader,
        });
        (running, replaceable)
    }
}

impl VersionScope {
    fn of(built: &Built) -> Self {
        let queues = built.queues.iter();
        Self {
            route: built.route.name.clone(),
            queues: queues.map(|queue| queue.identity().name.clone()).collect(),
        }
    }

    fn meets(&self, other: &Self) -> bool {
        self.route == other.route || !self.queues.is_disjoint(&other.queues)
    }
}

/// Returns what a version must leave to the earlier ones: of another route, only what concerns the
/// queues that it has now.
fn needs(ending: &[EndingVersion], scope: &VersionScope) -> Vec<EarlierVersion> {
    let related = ending.iter().filter(|one| one.scope.meets(scope));
    related
        .map(|one| {
            let mut earlier = earlier_version(&one.route, &one.queues, &one.scheduler);
            if one.scope.route != scope.route {
                let concerned: Vec<String> = scope.queues.iter().cloned().collect();
                earlier.left.all = earlier.attempts_of(&concerned);
            }
            earlier
        })
        .collect()
}

impl RouteVersions {
    /// Lets each ending version leave attempts to the earlier ones.
    fn share_attempts(&self) {
        for (at, version) in self.ending.iter().enumerate() {
            let earlier = needs(&self.ending[..at], &version.scope);
            if leave_attempts(&version.scheduler, &version.queues, &earlier) {
                version.scheduler.retired.notify_one();
            }
        }
    }

    /// Whether a route has any version.
    fn has(&self, name: &str) -> bool {
        self.running.contains_key(name)
            || self.next.contains_key(name)
            || self.ending.iter().any(|one| one.scope.route == name)
    }

    /// Whether any version receives from a queue, or will.
    fn uses(&self, queue: &str) -> bool {
        let running = self.running.values().map(|one| &one.scope);
        let next = self.next.values().map(|one| &one.scope);
        let ending = self.ending.iter().map(|one| &one.scope);
        let mut all = running.chain(next).chain(ending);
        all.any(|scope| scope.queues.contains(queue))
    }

    fn plan(&self, grace: Duration) -> StopPlan {
        let running = self.running.values().map(|one| &one.running);
        let routes = running
            .map(|one| (&one.route, &*one.queues))
            .chain(self.ending.iter().map(|one| (&one.route, &*one.queues)));
        StopPlan::new(grace, routes)
    }
}

/// Logs that a route runs.
fn announce(running: &RunningRoute, threads: usize) {
    let route = &running.route;
    let queues = running.queues.iter();
    let names: Vec<&str> = queues.map(|queue| queue.identity().name.as_str()).collect();
    let (mut path, mut function, mut url, mut send_to) = (None, None, None, None);
    match &route.plugin.code {
        Code::Component(source) => path = Some(source.to_string()),
        Code::Forward(forward) => function = Some(forward.function.as_str()),
        Code::Http(forward) => url = Some(forward.url.to_string()),
        Code::Relay(target) => send_to = Some(target.to_string()),
        Code::Missing => {}
    }
    tracing::info!(
        route = route.name,
        queues = names.join(","),
        plugin = route.plugin.name,
        path,
        function,
        url,
        send_to,
        concurrency = route.settings.concurrency,
        workers = threads,
        "running"
    );
}
