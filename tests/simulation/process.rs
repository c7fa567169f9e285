//! One process of the program: its real stages, with the world's queues and handlers at their ends.

use crate::scenario::{
    Flavour, LimitPlan, QueuePlan, Scenario, SharingPlan, TenantPlan, WeightPlan,
};
use crate::world::handler::Actor;
use crate::world::limit_store::LimitStore;
use crate::world::limits::{holder_name, key_attribute, limit_name};
use crate::world::port::{PRIORITY, Port, SIZE, TAG, TENANT};
use crate::world::records::RecordsStore;
use crate::world::{NONE, Sim};
use dispatcher::app::ProcessContext;
use dispatcher::app::build::Built;
use dispatcher::app::build::plugins::LoadedHandler;
use dispatcher::app::drain::{StoppedRoutes, drain, finish};
use dispatcher::app::handover;
use dispatcher::app::handover::EarlierVersion;
use dispatcher::app::route;
use dispatcher::app::route::RunningRoute;
use dispatcher::app::stop::StopPlan;
use dispatcher_config::backends;
use dispatcher_config::name::QueueName;
use dispatcher_config::{
    Code, PluginConfig, PluginSettings, Retry, Route, RouteSettings, ShedAction, WeightedQueue,
};
use dispatcher_core::clock;
use dispatcher_core::executor::Workers;
use dispatcher_core::fleet::WhenAway;
use dispatcher_core::fleet::keeper::{Fleet, KeptLimits};
use dispatcher_core::fleet::limit::{Limit, LimitNumbers, LimitWeight, Rate};
use dispatcher_core::idempotency::Records;
use dispatcher_core::job::Job;
use dispatcher_core::message::place::{MessageKey, MessagePlace};
use dispatcher_core::queue::sharing::Priority;
use dispatcher_core::queue::{Identity, Queue};
use dispatcher_core::scheduler::SchedulerLimits;
use dispatcher_core::scheduler::ready::Sequence;
use dispatcher_core::scheduler::shared::SharedScheduler;
use dispatcher_core::tasks;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// How much longer than its grace a stop may take: the polls and outstanding calls, and what they
/// are retried for.
const STOPS_WITHIN: Duration = Duration::from_secs(25 + 60 + 60);

/// Waits for `time`, in which the machine does not stand still.
async fn too_long(sim: &Sim, time: Duration) {
    let began = clock::now();
    let stood = sim.lock().stood;
    loop {
        let until = began + time + (sim.lock().stood - stood);
        if until <= clock::now() {
            return;
        }
        clock::sleep_until(Some(until)).await;
    }
}

/// A process at work, or stopping.
pub(crate) struct Process {
    pub life: usize,
    pub broken: CancellationToken,
    running: Option<At>,
    stopping: Option<AbortHandle>,
    workers: Arc<Mutex<JoinSet<()>>>,
}

/// Keeps the permits of a process, if limits hold for all processes.
fn keep_limits(
    sim: &Sim,
    life: usize,
    scenario: &Scenario,
    shared: &ProcessContext,
) -> Option<KeptLimits> {
    let plan = scenario.fleet.as_ref()?;
    let limits = plan.limits.iter().enumerate().map(limit).collect();
    let fleet = Fleet::new(holder_name(life), limits, WhenAway::Closed);
    let longest = Duration::from_secs(plan.longest_wait_s);
    let fleet = Arc::new(fleet.with_waits(plan.most_waiting, longest));
    let sim = sim.clone();
    let store = Arc::new(LimitStore { sim, life });
    Some(KeptLimits::start(fleet, store, &shared.broken))
}

fn limit((at, plan): (usize, &LimitPlan)) -> Limit {
    let place = |name: String| MessagePlace::Attribute(name);
    Limit {
        name: limit_name(at),
        numbers: LimitNumbers {
            concurrency: plan.concurrency,
            rate: plan
                .rate
                .map(|(per_second, burst)| Rate { per_second, burst }),
        },
        key: (plan.keys.is_some() || plan.by_tenant)
            .then(|| MessageKey::Place(place(key_attribute(at)))),
        overrides: HashMap::new(),
        weight: match plan.weight {
            WeightPlan::Fixed(weight) => LimitWeight::Fixed(weight),
            WeightPlan::OfMessage => LimitWeight::Place(place(SIZE.into())),
        },
        shadow: false,
        hides_keys: false,
    }
}

/// What runs of it.
struct At {
    /// Its permits of the limits that hold for all processes.
    permits: Option<KeptLimits>,
    maker: Arc<VersionMaker>,
    versions: Arc<Mutex<Versions>>,
}

/// Makes versions of the route.
struct VersionMaker {
    sim: Sim,
    life: usize,
    scenario: Arc<Scenario>,
    shared: ProcessContext,
    queues: Vec<Arc<dyn Queue>>,
    route: Route,
    workers: Arc<Mutex<JoinSet<()>>>,
}

/// The versions of the route.
struct Versions {
    running: Option<RunningRoute>,
    /// A new one starts once the earlier ones permit it.
    waits: bool,
    ending: Vec<EndingVersion>,
    finishing: JoinSet<()>,
    /// What operators have made of its limits.
    limits: SchedulerLimits,
}

/// A version that finishes its messages.
struct EndingVersion {
    number: u64,
    scheduler: Arc<SharedScheduler<Job>>,
}

impl VersionMaker {
    fn start(&self, limits: SchedulerLimits, earlier: Option<&[EarlierVersion]>) -> RunningRoute {
        let plan = &self.scenario.route;
        let built = Built {
            route: self.route.clone(),
            queues: self.queues.clone(),
            loaded: LoadedHandler {
                rollout: None,
                handler: Arc::new(Actor {
                    sim: self.sim.clone(),
                    life: self.life,
                    batch: plan.batch,
                }),
                timeout: Duration::from_millis(plan.timeout_ms).into(),
            },
            records: records(&self.sim, self.life, &self.scenario),
        };
        let workers = spawner(self.sim.clone(), self.workers.clone());
        let running = route::start(built, limits, earlier, &self.shared, workers);
        let mut world = self.sim.lock();
        world.lives[self.life].room = Some(running.scheduler.lock().permits().clone());
        world.lives[self.life].scheduler = Some(running.scheduler.clone());
        drop(world);
        running
    }

    /// As the program does it, with the rules of the program.
    fn advance(&self, versions: &mut Versions) {
        let earlier: Vec<EarlierVersion> = versions
            .ending
            .iter()
            .map(|one| route::earlier_version(&self.route, &self.queues, &one.scheduler))
            .collect();
        for (at, version) in versions.ending.iter().enumerate() {
            if route::leave_attempts(&version.scheduler, &self.queues, &earlier[..at]) {
                version.scheduler.retired.notify_one();
            }
        }
        if versions.waits && handover::may_start(&self.route, &earlier) {
            versions.waits = false;
            versions.running = Some(self.start(versions.limits.clone(), Some(&earlier)));
        }
        if let Some(running) = &versions.running {
            running.leave_attempts(&earlier);
        }
    }
}

impl Versions {
    fn obey(&self) {
        let Some(route) = &self.running else { return };
        route
            .scheduler
            .lock()
            .set_limits(&self.limits, clock::now());
        route.scheduler.replan.notify_one();
        route.executor.start_workers();
    }
}

fn locked(versions: &Mutex<Versions>) -> MutexGuard<'_, Versions> {
    versions.lock().expect("nothing panics with it")
}

impl Process {
    /// Starts one.
    pub(crate) fn start(sim: &Sim) -> Self {
        let (life, scenario) = {
            let mut world = sim.lock();
            (world.born(), world.scenario.clone())
        };
        let plans = scenario.queues.iter().enumerate();
        let queues: Vec<Arc<dyn Queue>> = plans
            .map(|(queue, plan)| -> Arc<dyn Queue> {
                Arc::new(Port::new(sim, life, queue, identity(queue, plan)))
            })
            .collect();
        let mut shared = ProcessContext::new(Arc::default());
        let permits = keep_limits(sim, life, &scenario, &shared);
        shared.fleet = permits.as_ref().map(|limits| limits.fleet().clone());
        let workers: Arc<Mutex<JoinSet<()>>> = Arc::default();
        let route = settings(&scenario);
        let (broken, limits) = (shared.broken.clone(), route.limits());
        let maker = VersionMaker {
            sim: sim.clone(),
            life,
            scenario,
            shared,
            queues,
            route,
            workers: workers.clone(),
        };
        let versions = Versions {
            running: Some(maker.start(limits.clone(), None)),
            waits: false,
            ending: Vec::new(),
            finishing: JoinSet::new(),
            limits,
        };
        Self {
            life,
            broken,
            running: Some(At {
                permits,
                maker: Arc::new(maker),
                versions: Arc::new(Mutex::new(versions)),
            }),
            stopping: None,
            workers,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// It is gone at once: nothing of it is polled any more.
    pub(crate) fn crash(&mut self, sim: &Sim) {
        let over = {
            let mut world = sim.lock();
            let over = world.lives[self.life].dead;
            if !over {
                world.dies(self.life, "crashes");
            }
            over
        };
        if !over {
            if let Some(at) = self.running.take() {
                let mut versions = locked(&at.versions);
                versions.finishing.abort_all();
                versions.running = None;
            }
            if let Some(stopping) = self.stopping.take() {
                stopping.abort();
            }
            self.workers
                .lock()
                .expect("nothing panics with it")
                .abort_all();
        }
    }

    /// An operator pauses one of its queues, or resumes it. A process that stops takes no notice.
    pub(crate) fn pause(&mut self, sim: &Sim, queue: usize, paused: bool) {
        let Some(at) = &mut self.running else { return };
        let mut versions = locked(&at.versions);
        if queue < versions.limits.lanes.len() {
            versions.limits.lanes[queue].paused = paused;
            sim.lock().operator_pauses(self.life, queue, paused);
            versions.obey();
        }
    }

    /// An operator sets the most attempts at once.
    pub(crate) fn limit(&mut self, sim: &Sim, attempts: usize) {
        let Some(at) = &mut self.running else { return };
        let mut versions = locked(&at.versions);
        let most = attempts.min(at.maker.route.settings.concurrency);
        versions.limits.attempts = most;
        sim.lock().operator_limits(self.life, most);
        versions.obey();
    }

    /// An operator sets the weight of a tenant.
    pub(crate) fn weigh(&mut self, sim: &Sim, tenant: u16, weight: u32) {
        let Some(at) = &mut self.running else { return };
        let mut versions = locked(&at.versions);
        versions.limits.weights.insert(tenant.to_string(), weight);
        sim.lock().operator_weighs(self.life, tenant, weight);
        versions.obey();
    }

    /// A new version of the route takes the place of the running one.
    pub(crate) fn reload(&mut self, sim: &Sim) {
        let Some(at) = &self.running else { return };
        let (maker, life) = (at.maker.clone(), self.life);
        let mut versions = locked(&at.versions);
        let Some(running) = versions.running.take() else {
            return; // the next one has not started yet
        };
        let plan = StopPlan::new(Duration::ZERO, [(&maker.route, &*maker.queues)]);
        let latest = clock::now() + plan.receives();
        sim.lock().operator_reloads(life, latest);
        running.stop.cancel();
        let number = running.number;
        versions.waits = true;
        versions.ending.push(EndingVersion {
            number,
            scheduler: running.scheduler.clone(),
        });
        let halt = maker.shared.halt.clone();
        let all = at.versions.clone();
        versions.finishing.spawn(async move {
            finish(running, halt, latest, || maker.advance(&mut locked(&all))).await;
            let mut versions = locked(&all);
            versions.ending.retain(|one| one.number != number);
            maker.advance(&mut versions);
        });
    }

    /// Nothing is paused or limited any more.
    pub(crate) fn resume_all(&mut self, sim: &Sim) {
        let queues = self.running.as_ref().map_or(0, |at| at.maker.queues.len());
        (0..queues).for_each(|queue| self.pause(sim, queue, false));
        self.limit(sim, usize::MAX);
    }

    /// Asks it to stop; what follows happens by itself.
    pub(crate) fn stop(&mut self, sim: &Sim, grace: Duration) {
        let Some(at) = self.running.take() else {
            return;
        };
        let life = self.life;
        let At {
            permits,
            maker,
            versions,
        } = at;
        let plan = StopPlan::new(grace, [(&maker.route, &*maker.queues)]);
        {
            let mut world = sim.lock();
            world.lives[life].stopping = true;
            world.lives[life].stops_in_quiet = world.quiet;
            let one = &mut world.lives[life];
            let until = clock::now() + plan.receives();
            one.patient_until = if one.was_reloaded {
                until.min(one.patient_until)
            } else {
                until
            };
            world.note("is asked to stop", life, NONE, vec![]);
        }
        let sim = sim.clone();
        let stopping = async move {
            let (running, mut finishing) = {
                let mut versions = locked(&versions);
                versions.waits = false;
                versions.ending.clear();
                (
                    versions.running.take(),
                    std::mem::take(&mut versions.finishing),
                )
            };
            let stopped = async {
                let ending =
                    tasks::spawn(async move { while finishing.join_next().await.is_some() {} });
                let stopped = StoppedRoutes {
                    running: running.into_iter().collect(),
                    ending: vec![ending],
                    plan,
                };
                let ended = drain(&maker.shared, stopped).await;
                if let Some(permits) = permits {
                    permits.leave().await;
                }
                ended
            };
            let ended = tokio::select! {
                biased;
                ended = stopped => Some(ended),
                () = too_long(&sim, grace + STOPS_WITHIN) => None,
            };
            let held = maker.shared.held.load(Relaxed);
            let mut world = sim.lock();
            world.dies(life, "has stopped");
            match ended {
                None => world.fails("stop-hangs", format!("process {life}, grace {grace:?}")),
                Some(Err(problems)) => world.fails("broken", format!("{problems:?}")),
                Some(Ok(())) if held > 0 => world.fails("leases-left", format!("{held}")),
                Some(Ok(())) => world.check_stopped(life),
            }
        };
        self.stopping = Some(tokio::spawn(stopping).abort_handle());
    }
}

/// Runs workers in this thread, some a little late, as threads do.
fn spawner(sim: Sim, workers: Arc<Mutex<JoinSet<()>>>) -> Workers {
    Workers::Elsewhere(Arc::new(move |worker| {
        let late = {
            let mut world = sim.lock();
            let late = world.rng.u32(0..4) == 0;
            late.then(|| world.between(Duration::ZERO, Duration::from_millis(2)))
        };
        let mut workers = workers.lock().expect("nothing panics with it");
        while workers.try_join_next().is_some() {}
        workers.spawn(async move {
            if let Some(late) = late {
                clock::sleep_until(Some(clock::now() + late)).await;
            }
            worker.await;
        });
    }))
}

/// The one store of all processes, where the route remembers.
fn records(sim: &Sim, life: usize, scenario: &Scenario) -> Option<Arc<dyn Records>> {
    scenario.route.remembers_s?;
    let sim = sim.clone();
    Some(Arc::new(RecordsStore { sim, life }))
}

fn identity(queue: usize, plan: &QueuePlan) -> Identity {
    let exact = plan.flavour.is_exact();
    Identity {
        name: format!("q{queue}"),
        source: format!("q{queue}"),
        visibility: Duration::from_secs(plan.visibility_s),
        batch: if exact { 100 } else { 10 },
        longest_wait: Duration::from_secs(20),
        proof_wait: Duration::from_secs(u64::from(!exact)),
        ordered_groups: plan.flavour.orders_groups(),
        deduplicates: false,
        dead_letters: plan.dead_letters,
        most_receives: plan.redrive,
        redrive_target: plan.takes_dead(),
    }
}

fn tenant_place(plan: &SharingPlan) -> Option<MessageKey> {
    match plan.tenants {
        TenantPlan::Nowhere => None,
        TenantPlan::Group => Some(MessageKey::Group),
        TenantPlan::Attribute => Some(MessageKey::Place(MessagePlace::Attribute(TENANT.into()))),
    }
}

fn tenant_weights(plan: &SharingPlan) -> Vec<(String, u32)> {
    let weights = plan.weights.iter().enumerate();
    weights
        .map(|(tenant, weight)| (tenant.to_string(), *weight))
        .collect()
}

fn priority_place(plan: &SharingPlan) -> Option<MessagePlace> {
    plan.priorities
        .then(|| MessagePlace::Attribute(PRIORITY.into()))
}

fn max_wait(plan: &SharingPlan) -> Vec<(Priority, Duration)> {
    let waits = plan.max_wait.iter().filter(|_| plan.priorities);
    waits
        .filter_map(|(priority, ms)| {
            let priority = Priority::new(u64::from(*priority))?;
            Some((priority, Duration::from_millis(*ms)))
        })
        .collect()
}

/// The backend whose rules hold for a queue where they follow from its name.
fn backend(queue: &QueuePlan) -> &'static str {
    match queue.flavour {
        Flavour::Fifo => "sqs",
        _ => "local",
    }
}

#[allow(
    clippy::needless_update,
    reason = "a setting that the plan does not draw has its default"
)]
fn settings(scenario: &Scenario) -> Route {
    let plan = &scenario.route;
    let limits = scenario.fleet.as_ref();
    let limits = limits.map_or(0, |plan| plan.limits.len());
    let queue = |(at, queue): (usize, &QueuePlan)| WeightedQueue {
        name: QueueName {
            backend: backends::find(backend(queue)).expect("it is built in"),
            name: format!("q{at}"),
        },
        weight: NonZeroU32::new(queue.weight).filter(|_| scenario.weighted),
        rate: queue.rate,
        concurrency: queue.concurrency,
        found_by: None,
        at: String::new(),
    };
    Route {
        name: "route".into(),
        at: String::new(),
        queues: scenario.queues.iter().enumerate().map(queue).collect(),
        patterns: Vec::new(),
        plugin: PluginConfig {
            name: "actor".into(),
            at: String::new(),
            queue_prefix: dispatcher_core::queue::prefix::QueuePrefix::default(),
            code: Code::Missing,
            trials: dispatcher_config::Trials::default(),
            reuse: None,
            settings: PluginSettings {
                tenant_id: scenario
                    .sharing
                    .as_ref()
                    .is_some_and(|plan| plan.one_tenant),
                ..PluginSettings::default()
            },
        },
        settings: RouteSettings {
            batch_size: plan.batch,
            batch_window: Duration::from_millis(plan.window_ms),
            prefetch: plan.prefetch,
            sequence: if plan.newest_first {
                Sequence::Lifo
            } else {
                Sequence::Fifo
            },
            group_by: plan.group_by.then(|| MessagePlace::Attribute(TAG.into())),
            idempotency: plan.remembers_s.map(Duration::from_secs),
            tenant: scenario.sharing.as_ref().and_then(tenant_place),
            weight: scenario
                .sharing
                .as_ref()
                .map_or_else(Vec::new, tenant_weights),
            priority: scenario.sharing.as_ref().and_then(priority_place),
            max_wait: scenario.sharing.as_ref().map_or_else(Vec::new, max_wait),
            concurrency: plan.concurrency,
            visibility: plan.visibility_s.map(Duration::from_secs),
            poll_for: Duration::from_secs(plan.poll_for_s),
            sleep: Duration::from_millis(plan.sleep_ms),
            max_age: plan.max_age_ms.map(Duration::from_millis),
            shed: if plan.drops {
                ShedAction::Drop
            } else {
                ShedAction::DeadLetter
            },
            ..RouteSettings::default()
        },
        retry: Retry {
            first: Duration::from_millis(plan.first_ms),
            most: Duration::from_millis(plan.most_ms),
            attempts: plan.attempts.and_then(NonZeroU32::new),
        },
        dead_letter: None,
        limits: (0..limits).collect(),
    }
}
