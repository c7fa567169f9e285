//! Builds the parts that settings name. Receives nothing; finds every problem at once.

pub mod backends;
pub mod grants;
pub mod later;
pub mod outlet;
pub mod plugins;
pub mod records;
pub mod schedule;
mod service;
pub mod versions;

pub use backends::{Backends, OpenTerms};
pub use dispatcher_wasm::runtime::Spawn;

use crate::config::problem::Problem;
use crate::config::{MetricsSink, Route, Settings, Shed, Unmatched};
use crate::name::QueueName;
use dispatcher_aws as aws;
use dispatcher_core::idempotency::Records;
use dispatcher_core::memory;
use dispatcher_core::memory::Budget;
use dispatcher_core::queue::Queue;
use dispatcher_core::telemetry::counters::Counters;
use plugins::{Loaded, Loader};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A route with its parts made.
pub struct Built {
    /// What it was made from.
    pub route: Route,
    /// In the route's order.
    pub queues: Vec<Arc<dyn Queue>>,
    /// What handles its messages.
    pub loaded: Loaded,
    /// Where it is remembered what is done, if the route wants that.
    pub records: Option<Arc<dyn Records>>,
}

/// All that settings name.
pub struct Parts {
    /// In the settings' order.
    pub routes: Vec<Built>,
    /// Loads other versions of their plugins.
    pub loader: Loader,
    /// How many bytes of messages may be held.
    pub budget: Arc<Budget>,
}

/// Opens every queue and loads every plugin of the settings, or says all that is wrong. `spawn` runs
/// instances that take many attempts at once; `over` ends what runs beside the messages' attempts.
pub async fn parts(
    settings: &Settings,
    backends: &Arc<Backends>,
    counters: Arc<Counters>,
    spawn: Spawn,
    over: CancellationToken,
) -> Result<Parts, Vec<Problem>> {
    let bytes = settings.program.message_memory;
    let bytes = bytes.unwrap_or_else(|| memory::default_budget(memory::limit()));
    let budget = Budget::new(bytes);
    let mut problems = contradictions(settings, backends).await;
    let mut opened = Vec::new();
    // Of all routes at once: of each by itself it would be a transaction for each.
    let names = settings.routes.iter().flat_map(|route| &route.queues);
    let names: Vec<&QueueName> = names.map(|queue| &queue.name).collect();
    backends.make(&names).await;
    for route in &settings.routes {
        opened.push(open_queues(backends, route, &budget, &mut problems).await);
    }
    let records = records::open(settings, backends, &mut problems).await;
    let mut handlers = Vec::new();
    let loader = Loader::start(settings, backends.clone(), counters, spawn, over);
    let loader = loader.map_err(|problem| problems.push(problem)).ok();
    if let Some(loader) = &loader {
        for route in &settings.routes {
            handlers.push(loader.load(route, &mut problems).await);
        }
    }
    let routes = settings.routes.iter();
    let endless = routes
        .zip(&opened)
        .filter(|(route, queues)| is_endless(route, queues));
    problems.extend(endless.map(|(route, _)| needs_dead_letters(route)));
    let routes = settings.routes.iter().zip(&opened);
    problems.extend(routes.flat_map(|(route, queues)| missing_dead_letter_queues(route, queues)));
    problems.extend(has_no_region_for_metrics(settings).await);
    let Some(loader) = loader.filter(|_| problems.is_empty()) else {
        return Err(problems);
    };
    let parts = settings.routes.iter().zip(opened).zip(handlers);
    let routes = parts
        .filter_map(|((route, queues), loaded)| {
            Some(Built {
                route: route.clone(),
                queues,
                loaded: loaded?,
                records: records
                    .clone()
                    .filter(|_| route.settings.idempotency.is_some()),
            })
        })
        .collect();
    Ok(Parts {
        routes,
        loader,
        budget,
    })
}

/// Makes the embedded queues that the settings declare, unless one contradicts what is there: what
/// keeps them from being made is among the problems of `parts`.
pub async fn declare(settings: &Settings, backends: &Backends) {
    if !settings.queues.is_empty()
        && let Err(error) = backends.declare(&settings.queues).await
    {
        tracing::debug!(%error, "declared queues not made");
    }
}

/// Which of the queues that the settings declare contradict what is there.
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

/// Metrics that are to go to CloudWatch and could reach none: every publication would fail.
async fn has_no_region_for_metrics(settings: &Settings) -> Option<Problem> {
    let metrics = settings
        .metrics
        .filter(|_| settings.program.name.is_some())?;
    if metrics.sink != MetricsSink::CloudWatch {
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
            Err(error) => problems.push(backends.problem(&queue.at, &queue.name, &error).await),
        }
    }
    queues
}

/// Whether a route limits attempts and no queue of it has a dead-letter queue. Of queues that could
/// not be opened nothing is known.
fn is_endless(route: &Route, queues: &[Arc<dyn Queue>]) -> bool {
    let endless = !queues.is_empty() && queues.iter().all(|queue| !queue.identity().dead_letters);
    route.retry.attempts.is_some() && endless
}

fn needs_dead_letters(route: &Route) -> Problem {
    let found = "a limit of attempts without a dead-letter queue, where it has no effect";
    let problem = Problem::new(&route.at, found, "a dead-letter queue as well");
    problem.hint("or leave the limit to the queue's own redrive policy")
}

/// The queues of a route whose old or unmatched messages are to become dead letters, and cannot.
fn missing_dead_letter_queues<'a>(
    route: &'a Route,
    queues: &'a [Arc<dyn Queue>],
) -> impl Iterator<Item = Problem> + 'a {
    let dead_letters = route
        .settings
        .shedding()
        .is_some_and(|shedding| shedding.shed == Shed::DeadLetter);
    let unmatched = route.settings.unmatched == Unmatched::DeadLetter;
    let queues = queues.iter().map(|queue| queue.identity());
    let without = queues.filter(|queue| !queue.dead_letters);
    without.flat_map(move |queue| {
        let problem = |what: &str, whose: &str, hint: &str| {
            let name = &queue.name;
            let found = format!("{what}, and `{name}` has no dead-letter queue for {whose}");
            Problem::new(&route.at, found, "a dead-letter queue as well").hint(hint)
        };
        let of_shed = dead_letters.then(|| {
            let hint = "or `shed = \"drop\"`, which deletes messages that are too old";
            problem("a max-age", "older messages", hint)
        });
        let of_unmatched = unmatched.then(|| {
            let hint = "or `unmatched = \"delete\"`, which deletes what no filter matches";
            problem("`unmatched = \"dead-letter\"`", "them", hint)
        });
        of_shed.into_iter().chain(of_unmatched)
    })
}
