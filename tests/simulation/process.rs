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
use dispatcher::app::drain::{StoppedRoutes, drain};
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
use dispatcher_core::message::place::{MessageKey, MessagePlace};
use dispatcher_core::queue::sharing::Priority;
use dispatcher_core::queue::{Identity, Queue};
use dispatcher_core::scheduler::SchedulerLimits;
use dispatcher_core::scheduler::ready::Sequence;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
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
    shared: ProcessContext,
    /// Its permits of the limits that hold for all processes.
    permits: Option<KeptLimits>,
    routes: Vec<RunningRoute>,
    route: Route,
    queues: Vec<Arc<dyn Queue>>,
    /// What operators have made of its limits.
    limits: SchedulerLimits,
}

impl At {
    fn obey(&self) {
        let route = &self.routes[0];
        route
            .scheduler
            .lock()
            .set_limits(&self.limits, clock::now());
        route.scheduler.replan.notify_one();
        route.executor.start_workers();
    }
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
        let limits = keep_limits(sim, life, &scenario, &shared);
        shared.fleet = limits.as_ref().map(|limits| limits.fleet().clone());
        let workers: Arc<Mutex<JoinSet<()>>> = Arc::default();
        let route = settings(&scenario);
        let built = Built {
            route: route.clone(),
            queues: queues.clone(),
            loaded: LoadedHandler {
                rollout: None,
                handler: Arc::new(Actor {
                    sim: sim.clone(),
                    life,
                    batch: scenario.route.batch,
                }),
                timeout: Duration::from_millis(scenario.route.timeout_ms).into(),
            },
            records: records(sim, life, &scenario),
        };
        let workers_of = spawner(sim.clone(), workers.clone());
        let running = route::start(built, route.limits(), &shared, workers_of);
        {
            let mut world = sim.lock();
            world.lives[life].room = Some(running.scheduler.lock().permits().clone());
            world.lives[life].scheduler = Some(running.scheduler.clone());
        }
        Self {
            life,
            broken: shared.broken.clone(),
            running: Some(At {
                shared,
                permits: limits,
                routes: vec![running],
                limits: route.limits(),
                route,
                queues,
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
            self.running = None;
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
        if queue < at.limits.lanes.len() {
            at.limits.lanes[queue].paused = paused;
            sim.lock().operator_pauses(self.life, queue, paused);
            at.obey();
        }
    }

    /// An operator sets the most attempts at once.
    pub(crate) fn limit(&mut self, sim: &Sim, attempts: usize) {
        let Some(at) = &mut self.running else { return };
        at.limits.attempts = attempts.min(at.route.settings.concurrency);
        sim.lock().operator_limits(self.life, at.limits.attempts);
        at.obey();
    }

    /// An operator sets the weight of a tenant.
    pub(crate) fn weigh(&mut self, sim: &Sim, tenant: u16, weight: u32) {
        let Some(at) = &mut self.running else { return };
        at.limits.weights.insert(tenant.to_string(), weight);
        sim.lock().operator_weighs(self.life, tenant, weight);
        at.obey();
    }

    /// Nothing is paused or limited any more.
    pub(crate) fn resume_all(&mut self, sim: &Sim) {
        let queues = self.running.as_ref().map_or(0, |at| at.limits.lanes.len());
        (0..queues).for_each(|queue| self.pause(sim, queue, false));
        self.limit(sim, usize::MAX);
    }

    /// Asks it to stop; what follows happens by itself.
    pub(crate) fn stop(&mut self, sim: &Sim, grace: Duration) {
        let Some(at) = self.running.take() else {
            return;
        };
        let life = self.life;
        let plan = StopPlan::new(grace, [(&at.route, &*at.queues)]);
        {
            let mut world = sim.lock();
            world.lives[life].stopping = true;
            world.lives[life].stops_in_quiet = world.quiet;
            world.lives[life].patient_until = clock::now() + plan.receives();
            world.note("is asked to stop", life, NONE, vec![]);
        }
        let sim = sim.clone();
        let stopping = async move {
            let At {
                shared,
                permits,
                routes,
                ..
            } = at;
            let stopped = async {
                let stopped = StoppedRoutes {
                    running: routes,
                    ending: Vec::new(),
                    plan,
                };
                let ended = drain(&shared, stopped).await;
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
            let held = shared.held.load(Relaxed);
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
        at: String::new(),
    };
    Route {
        name: "route".into(),
        at: String::new(),
        queues: scenario.queues.iter().enumerate().map(queue).collect(),
        plugin: PluginConfig {
            name: "actor".into(),
            at: String::new(),
            code: Code::Missing,
            trials: dispatcher_config::Trials::default(),
            reuse: None,
            settings: PluginSettings::default(),
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
