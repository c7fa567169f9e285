//! The routes of a run: starts them, ends them and replaces them by new versions, while the others
//! go on. A new version receives as soon as the earlier one receives no more and leaves it some of
//! the attempts; if the route keeps groups in order, as soon as the earlier one has finished.

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
use super::route::{RunningRoute, leave_attempts};
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
use parking_lot::Mutex;
use std::collections::BTreeMap;
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
    running: BTreeMap<String, RunningRoute>,
    /// The versions that start once earlier ones permit it, by route.
    next: BTreeMap<String, NextVersion>,
    /// The versions that finish their messages.
    ending: Vec<EndingVersion>,
}

/// A version that was built and has not started.
struct NextVersion {
    built: Built,
    /// Whether it is not the first version of its route.
    is_later: bool,
    loader: Arc<Loader>,
    /// The settings of operators on its queues, in the queues' backends.
    controls: Arc<BTreeMap<String, QueueControl>>,
}

/// A version that finishes its messages.
struct EndingVersion {
    number: u64,
    route: Route,
    queues: Vec<Arc<dyn Queue>>,
    scheduler: Arc<SharedScheduler<Job>>,
    /// Whether a receive has not been answered yet.
    receives: bool,
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

    /// Starts routes, or replaces those that run by these versions. `controls` are what operators
    /// have set on their queues, in the queues' backends.
    pub(crate) fn start(self: &Arc<Self>, parts: Parts, controls: BTreeMap<String, QueueControl>) {
        let controls = Arc::new(controls);
        let mut versions = self.versions.lock();
        let mut replaceable = Vec::new();
        for built in parts.routes {
            let name = built.route.name.clone();
            let is_later = self.end_running(&mut versions, &name) || versions.has(&name);
            let next = NextVersion {
                built,
                is_later,
                loader: parts.loader.clone(),
                controls: controls.clone(),
            };
            versions.next.insert(name.clone(), next);
            replaceable.extend(self.advance(&mut versions, &name));
        }
        drop(versions);
        self.plugins.add(replaceable);
    }

    /// Ends a route: it receives nothing any more, and finishes its messages.
    pub(crate) fn end(self: &Arc<Self>, name: &str) {
        let mut versions = self.versions.lock();
        versions.next.remove(name);
        if self.end_running(&mut versions, name) {
            self.live.end(name);
            tracing::info!(route = name, "route removed: its running attempts finish");
        }
    }

    /// Returns all routes for the stop. None is started afterwards.
    pub(crate) fn stop(&self) -> StoppedRoutes {
        let plan = self.plan();
        let RouteVersions {
            running, ending, ..
        } = std::mem::take(&mut *self.versions.lock());
        StoppedRoutes {
            running: running.into_values().collect(),
            ending: ending.into_iter().map(|one| one.finishing).collect(),
            plan,
        }
    }

    /// Plans a stop that begins now.
    pub(crate) fn plan(&self) -> StopPlan {
        let versions = self.versions.lock();
        let (running, ending) = (versions.running.values(), versions.ending.iter());
        let routes = running
            .map(|one| (&one.route, &*one.queues))
            .chain(ending.map(|one| (&one.route, &*one.queues)));
        StopPlan::new(self.grace, routes)
    }

    /// Ends the running version of a route. Returns whether there is one.
    fn end_running(self: &Arc<Self>, versions: &mut RouteVersions, name: &str) -> bool {
        let Some(running) = versions.running.remove(name) else {
            return false;
        };
        running.stop.cancel();
        let (number, route) = (running.number, running.route.clone());
        let (queues, scheduler) = (running.queues.clone(), running.scheduler.clone());
        let plan = StopPlan::new(self.grace, [(&route, &*queues)]);
        let latest = clock::now() + plan.receives();
        let routes = self.clone();
        let finishing = async move {
            let halt = routes.shared.halt.clone();
            finish(running, halt, latest, |receives| {
                routes.progressed(number, receives);
            })
            .await;
            routes.ended(number);
        };
        versions.ending.push(EndingVersion {
            number,
            route,
            queues,
            scheduler,
            receives: true,
            finishing: tasks::spawn(tasks::watched(&self.shared.broken, finishing)),
        });
        true
    }

    /// Records that an ending version may need fewer attempts than before.
    fn progressed(self: &Arc<Self>, number: u64, receives: bool) {
        let mut versions = self.versions.lock();
        let mut ending = versions.ending.iter_mut();
        let Some(version) = ending.find(|one| one.number == number) else {
            return;
        };
        version.receives = receives;
        let name = version.route.name.clone();
        let replaceable = self.advance(&mut versions, &name);
        drop(versions);
        self.plugins.add(replaceable.into_iter().collect());
    }

    /// Records that a version has finished all its messages.
    fn ended(self: &Arc<Self>, number: u64) {
        let mut versions = self.versions.lock();
        let Some(at) = versions.ending.iter().position(|one| one.number == number) else {
            return;
        };
        let ended = versions.ending.remove(at);
        let name = &ended.route.name;
        self.live.remove(number);
        let replaceable = self.advance(&mut versions, name);
        let is_gone = !versions.has(name);
        if is_gone {
            self.shared.routes.remove(name);
            self.shared.plugins.remove(name);
        }
        for queue in ended.queues.iter().map(|queue| &queue.identity().name) {
            if !versions.uses(queue) {
                self.shared.meters.remove(queue);
                self.shared.memories.remove(queue);
                self.shared.depths.remove(queue);
            }
        }
        drop(versions);
        if is_gone {
            self.plugins.remove(name);
            tracing::info!(route = name, "removed route has finished");
        }
        self.plugins.add(replaceable.into_iter().collect());
    }

    /// Starts the next version of a route, if the earlier ones permit it, and leaves them as many
    /// attempts as they need. Returns the plugin of a version that was started.
    fn advance(&self, versions: &mut RouteVersions, name: &str) -> Option<Replaceable> {
        let ending: Vec<&EndingVersion> = versions
            .ending
            .iter()
            .filter(|one| one.route.name == name)
            .collect();
        let earlier: Vec<EarlierVersion> = ending.iter().map(|one| one.needs()).collect();
        for (at, version) in ending.iter().enumerate() {
            if leave_attempts(&version.scheduler, &version.queues, &earlier[..at]) {
                version.scheduler.retired.notify_one();
            }
        }
        let next = versions.next.get(name).map(|next| &next.built.route);
        let replaceable = match next {
            Some(route) if !handover::may_start(route, &earlier) => return None,
            Some(_) => {
                let next = versions.next.remove(name)?;
                let (running, replaceable) = self.begin(next, &earlier);
                versions.running.insert(name.to_owned(), running);
                replaceable
            }
            None => None,
        };
        if let Some(running) = versions.running.get(name) {
            running.leave_attempts(&earlier);
        }
        replaceable
    }

    fn begin(
        &self,
        next: NextVersion,
        earlier: &[EarlierVersion],
    ) -> (RunningRoute, Option<Replaceable>) {
        let NextVersion {
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
        announce(&running, self.threads);
        let replaceable = rollout.map(|rollout| Replaceable {
            route,
            wanted: None,
            rollout,
            loader,
        });
        (running, replaceable)
    }
}

impl EndingVersion {
    /// Returns what a later version must leave to it.
    fn needs(&self) -> EarlierVersion {
        let names = self
            .queues
            .iter()
            .map(|queue| queue.identity().name.clone());
        let left = self.scheduler.lock().attempts_left();
        EarlierVersion {
            receives: self.receives,
            attempts_left: names.zip(left).collect(),
            orders_groups: handover::orders_groups(&self.route),
        }
    }
}

impl RouteVersions {
    /// Whether a route has any version.
    fn has(&self, name: &str) -> bool {
        self.running.contains_key(name)
            || self.next.contains_key(name)
            || self.ending.iter().any(|one| one.route.name == name)
    }

    /// Whether any version receives from a queue, or will.
    fn uses(&self, queue: &str) -> bool {
        let running = self.running.values().flat_map(|one| &one.queues);
        let next = self.next.values().flat_map(|one| &one.built.queues);
        let ending = self.ending.iter().flat_map(|one| &one.queues);
        let mut all = running.chain(next).chain(ending);
        all.any(|one| one.identity().name == queue)
    }
}

/// Logs that a route runs.
fn announce(running: &RunningRoute, threads: usize) {
    let route = &running.route;
    let queues = running.queues.iter();
    let names: Vec<&str> = queues.map(|queue| queue.identity().name.as_str()).collect();
    let (mut path, mut function, mut url) = (None, None, None);
    match &route.plugin.code {
        Code::Component(source) => path = Some(source.to_string()),
        Code::Forward(forward) => function = Some(forward.function.as_str()),
        Code::Http(forward) => url = Some(forward.url.to_string()),
        Code::Missing => {}
    }
    tracing::info!(
        route = route.name,
        queues = names.join(","),
        plugin = route.plugin.name,
        path,
        function,
        url,
        concurrency = route.settings.concurrency,
        workers = threads,
        "running"
    );
}
