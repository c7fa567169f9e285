//! Builds the parts that settings name. Receives no messages; reports every problem at once.

pub mod backends;
pub mod fleet;
pub mod grants;
pub mod later;
pub mod outlet;
pub mod plugins;
pub mod records;
mod relay;
pub mod schedule;
mod service;
pub mod versions;

pub use backends::{Backends, OpenTerms};
pub use dispatcher_wasm::runtime::Spawn;

use dispatcher_aws as aws;
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_config::{MetricsSink, Route, Settings, ShedAction, UnmatchedAction};
use dispatcher_core::backend::QueueDeclaration;
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::idempotency::Records;
use dispatcher_core::memory;
use dispatcher_core::memory::Budget;
use dispatcher_core::queue::Queue;
use dispatcher_core::telemetry::counters::Counters;
use plugins::{LoadedHandler, Loader};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A route with its parts.
pub struct Built {
    /// The settings of the route.
    pub route: Route,
    /// The queues, in the route's order.
    pub queues: Vec<Arc<dyn Queue>>,
    /// The handler of its messages.
    pub loaded: LoadedHandler,
    /// The store of idempotency records, if the route uses one.
    pub records: Option<Arc<dyn Records>>,
}

/// The parts of routes.
pub struct Parts {
    /// The routes, in the order of the settings.
    pub routes: Vec<Built>,
    /// The loader of further versions of their plugins.
    pub loader: Arc<Loader>,
    /// The store of limits that hold for all processes together, if a route has any.
    pub fleet: Option<Arc<dyn FleetStore>>,
}

/// Builds the parts of routes of one process.
pub struct RouteBuilder {
    /// The backends of the queues.
    pub backends: Arc<Backends>,
    /// The limit on the bytes of messages that may be held.
    pub budget: Arc<Budget>,
    counters: Arc<Counters>,
    spawn: Spawn,
    over: CancellationToken,
}

impl RouteBuilder {
    /// Creates a builder. `spawn` runs instances that take many attempts at once; `over` ends the
    /// work that runs beside the messages' attempts.
    pub fn new(
        settings: &Settings,
        backends: &Arc<Backends>,
        counters: Arc<Counters>,
        spawn: Spawn,
        over: CancellationToken,
    ) -> Self {
        let bytes = settings.program.message_memory;
        Self {
            backends: backends.clone(),
            budget: Budget::new(bytes.unwrap_or_else(|| memory::default_budget(memory::limit()))),
            counters,
            spawn,
            over,
        }
    }

    /// Opens every queue and loads every plugin of the settings, with the accounts of these, or
    /// returns every problem.
    pub async fn build(&self, settings: &Settings) -> Result<Parts, Vec<Problem>> {
        let budget = &self.budget;
        let accounts = &settings.stores.accounts;
        let backends = &Arc::new(self.backends.with_accounts(accounts));
        let mut problems = contradictions(settings, backends).await;
        let mut opened = Vec::new();
        // Creates the queues of all routes in one transaction instead of one for each route.
        let names: Vec<&QueueName> = settings
            .routes
            .iter()
            .flat_map(|route| &route.queues)
            .map(|queue| &queue.name)
            .collect();
        backends.make(&names).await;
        for route in &settings.routes {
            opened.push(open_queues(backends, route, budget, &mut problems).await);
        }
        let records = records::open(settings, backends, &mut problems).await;
        let fleet = fleet::open(settings, backends, &mut problems).await;
        let mut handlers = Vec::new();
        let started = Loader::start(
            settings,
            backends.clone(),
            self.counters.clone(),
            self.spawn.clone(),
            self.over.clone(),
        );
        let loader = started.map_err(|problem| problems.push(problem)).ok();
        if let Some(loader) = &loader {
            for (route, queues) in settings.routes.iter().zip(&opened) {
                handlers.push(loader.load(route, queues, &mut problems).await);
            }
        }
        let routes = settings.routes.iter();
        let endless = routes
            .zip(&opened)
            .filter(|(route, queues)| is_endless(route, queues));
        problems.extend(endless.flat_map(|(route, _)| needs_dead_letters(route)));
        let routes = settings.routes.iter().zip(&opened);
        problems
            .extend(routes.flat_map(|(route, queues)| missing_dead_letter_queues(route, queues)));
        problems.extend(has_no_region_for_metrics(settings).await);
        let (Some(loader), true) = (loader, problems.is_empty()) else {
            return Err(problems);
        };
        let parts = settings.routes.iter().zip(opened).zip(handlers);
        let routes = parts
            .filter_map(|((route, queues), loaded)| {
                let mut route = route.clone();
                let loaded = loaded?;
                // A queue may take fewer messages at once than a relay would send.
                let batch_size = &mut route.settings.batch_size;
                *batch_size = loaded.handler.batch().min(*batch_size);
                Some(Built {
                    queues,
                    loaded,
                    records: if route.settings.idempotency.is_some() {
                        records.clone()
                    } else {
                        None
                    },
                    route,
                })
            })
            .collect();
        Ok(Parts {
            routes,
            loader: Arc::new(loader),
            fleet,
        })
    }
}

/// Creates the embedded queues that are declared, unless a declaration contradicts an existing
/// queue. `RouteBuilder::build` reports the problem.
pub async fn declare(queues: &[QueueDeclaration], backends: &Backends) {
    if !queues.is_empty()
        && let Err(error) = backends.declare(queues).await
    {
        tracing::debug!(%error, "declared queues not made");
    }
}

/// Returns the declared queues that contradict existing queues.
async fn contradictions(settings: &Settings, backends: &Backends) -> Vec<Problem> {
    let Some(first) = settings.queues.first() else {
        return Vec::new();
    };
    match backends.contradictions(&settings.queues).await {
        Ok(contradictions) => contradictions
            .into_iter()
            .map(|one| Problem::new(one.at, one.found, one.wanted))
            .collect(),
        Err(error) => vec![Problem::new(&first.at, error.to_string(), "").failed()],
    }
}

/// Returns a problem if metrics are to be published to CloudWatch but no region is configured:
/// every publication would fail.
async fn has_no_region_for_metrics(settings: &Settings) -> Option<Problem> {
    let metrics = settings.metrics?;
    if settings.program.name.is_none() || metrics.sink != MetricsSink::CloudWatch {
        return None;
    }
    let config = aws::shared_configuration(settings.stores.endpoint_url.as_deref()).await;
    if config.region().is_some() {
        return None;
    }
    let found = "metrics go to CloudWatch, and no AWS region is configured";
    let problem = Problem::new("--name", found, "AWS_REGION or a region in the profile");
    Some(problem.hint("or --metrics emf, or --metrics none"))
}

async fn open_queues(
    backends: &Backends,
    route: &Route,
    budget: &Arc<Budget>,
    problems: &mut Vec<Problem>,
) -> Vec<Arc<dyn Queue>> {
    let terms = OpenTerms {
        dead_letter: route.dead_letter.as_ref(),
        attempts: route.retry.attempts.map(std::num::NonZero::get),
        budget: Some(budget),
    };
    let mut queues = Vec::new();
    for queue in &route.queues {
        match backends.open(&queue.name, terms).await {
            Ok(opened) => queues.push(opened),
            Err(error) => {
                let problem = backends.problem(&queue.at, &queue.name, &error).await;
                problems.push(problem.of_queue(queue));
            }
        }
    }
    queues
}

/// Returns whether a route limits attempts but none of its queues has a dead-letter queue. Ignores
/// queues that could not be opened.
fn is_endless(route: &Route, queues: &[Arc<dyn Queue>]) -> bool {
    let endless = !queues.is_empty() && queues.iter().all(|queue| !queue.identity().dead_letters);
    route.retry.attempts.is_some() && endless
}

/// Returns the problem of a route without dead-letter queues; for each queue, if patterns found all.
fn needs_dead_letters(route: &Route) -> Vec<Problem> {
    let found = "a limit of attempts, which has no effect without a dead-letter queue";
    let problem = Problem::new(&route.at, found, "a dead-letter queue as well")
        .hint("or leave the limit to the queue's own redrive policy");
    if route.queues.iter().all(|queue| queue.found_by.is_some()) {
        let queues = route.queues.iter();
        queues
            .map(|queue| problem.clone().of_queue(queue))
            .collect()
    } else {
        vec![problem]
    }
}

/// Returns a problem for each queue of a route that must dead-letter old or unmatched messages but
/// has no dead-letter queue.
fn missing_dead_letter_queues<'a>(
    route: &'a Route,
    queues: &'a [Arc<dyn Queue>],
) -> impl Iterator<Item = Problem> + 'a {
    let dead_letters = route
        .settings
        .shedding()
        .is_some_and(|shedding| shedding.shed == ShedAction::DeadLetter);
    let unmatched = route.settings.unmatched == UnmatchedAction::DeadLetter;
    let queues = queues.iter().map(|queue| queue.identity());
    let without = queues.filter(|queue| !queue.dead_letters);
    without.flat_map(move |queue| {
        let mut all = route.queues.iter();
        let configured =
            all.find(|one| one.name.name == queue.name || one.name.to_string() == queue.name);
        let of_shed = dead_letters.then(|| {
            let problem = without_dead_letters(route, &queue.name, "a max-age", "older messages");
            problem.hint("or `shed = \"drop\"`, which deletes messages that are too old")
        });
        let of_unmatched = unmatched.then(|| {
            let what = "`unmatched = \"dead-letter\"`";
            let problem = without_dead_letters(route, &queue.name, what, "them");
            problem.hint("or `unmatched = \"delete\"`, which deletes what no filter matches")
        });
        let both = of_shed.into_iter().chain(of_unmatched);
        both.map(move |problem| match configured {
            Some(configured) => problem.of_queue(configured),
            None => problem,
        })
    })
}

fn without_dead_letters(route: &Route, queue: &str, what: &str, whose: &str) -> Problem {
    let found = format!("{what}, and `{queue}` has no dead-letter queue for {whose}");
    Problem::new(&route.at, found, "a dead-letter queue as well")
}
