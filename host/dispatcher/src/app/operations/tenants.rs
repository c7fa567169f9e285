//! The tenants that share the queues of a run. Queues are asked for what waits only where one queue
//! or a list with depths is shown.

use super::super::ProcessContext;
use super::super::build::fleet::{hides_tenants, shown_tenant};
use super::super::live::route::{LiveRoute, LiveState};
use super::depths::ABREAST;
use super::{RunOperations, within};
use dispatcher_config::Route;
use dispatcher_core::clock;
use dispatcher_core::job::Job;
use dispatcher_core::scheduler::shared::SharedScheduler;
use dispatcher_core::scheduler::tenants::TenantFigures;
use dispatcher_core::tasks;
use dispatcher_operate::operations::{LiveWeight, QueueView, TenantView};
use std::sync::Arc;
use std::time::Duration;

/// The most tenants of a queue that are shown.
const MOST: usize = 10;
/// How long a queue is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

impl RunOperations {
    /// Returns the busiest tenants of a queue.
    pub(super) fn tenants(&self, route: &LiveRoute, lane: usize) -> Vec<TenantView> {
        let figures = tenant_figures(route, lane);
        let views = figures
            .into_iter()
            .map(|one| view(one, route.hides_tenants));
        views.collect()
    }

    /// Adds what waits in the queues to these tenants. Asks several queues at the same time.
    pub(super) async fn ask_tenants(&self, queues: &mut [QueueView]) {
        let shared = queues.iter_mut().filter(|queue| !queue.tenants.is_empty());
        let table = self.live.table();
        let mut found: Vec<_> = shared
            .filter_map(|queue| Some((table.find(&queue.queue)?, queue)))
            .collect();
        for some in found.chunks_mut(ABREAST) {
            let asked = some
                .iter()
                .map(|((route, lane), _)| tenants_and_backlogs(route, *lane));
            let answers = tasks::all(asked.collect()).await;
            for ((_, queue), tenants) in some.iter_mut().zip(answers) {
                queue.tenants = tenants;
            }
        }
    }
}

fn tenant_figures(route: &LiveRoute, lane: usize) -> Vec<TenantFigures> {
    if route.config.settings.tenant.is_none() {
        return Vec::new();
    }
    route.scheduler.lock().tenants(lane, MOST, clock::now())
}

/// Returns the busiest tenants of a queue, with what waits in the queue if it tells that soon.
async fn tenants_and_backlogs(route: &LiveRoute, lane: usize) -> Vec<TenantView> {
    let figures = tenant_figures(route, lane);
    if figures.is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = figures.iter().map(|one| one.tenant.to_string()).collect();
    let asked = within(PATIENCE, route.queues[lane].queue.backlogs(&names)).await;
    // A queue that does not answer is shown without them: its depth tells why.
    let known = asked.ok().and_then(Result::ok).unwrap_or_default();
    let backlogs = known.into_iter().map(Some).chain(std::iter::repeat(None));
    let tenants = figures.into_iter().zip(backlogs);
    let views = tenants.map(|(one, backlog)| TenantView {
        waiting: backlog.map(|backlog| backlog.waiting.into()),
        oldest_s: backlog.and_then(|backlog| Some(backlog.oldest?.as_secs_f64())),
        ..view(one, route.hides_tenants)
    });
    views.collect()
}

/// Returns the weights that operators have set on a route's tenants.
pub(super) fn live_weights(route: &LiveRoute, state: &LiveState) -> Vec<LiveWeight> {
    let weights = state.weights.iter().map(|(tenant, value)| {
        let configured = state.configured.weights.get(tenant).copied();
        LiveWeight {
            tenant: shown_tenant(tenant, route.hides_tenants),
            value: u64::from(*value).into(),
            configured: u64::from(configured.unwrap_or(1)).into(),
        }
    });
    weights.collect()
}

/// Adds the tenants of a route to the metrics.
pub(crate) fn measure(
    route: &Route,
    scheduler: &Arc<SharedScheduler<Job>>,
    shared: &ProcessContext,
) {
    if route.settings.tenant.is_none() {
        return;
    }
    let queues: Vec<String> = route
        .queues
        .iter()
        .map(|queue| queue.name.to_string())
        .collect();
    let (scheduler, is_private) = (scheduler.clone(), hides_tenants(route));
    shared.routes.add_tenants(&route.name, move || {
        let scheduler = scheduler.lock();
        let named = queues.iter().enumerate().map(|(lane, queue)| {
            let mut tenants = scheduler.tenants(lane, MOST, clock::now());
            for one in &mut tenants {
                one.tenant = shown_tenant(&one.tenant, is_private).into();
            }
            (queue.clone(), tenants)
        });
        named.collect()
    });
}

fn view(figures: TenantFigures, is_private: bool) -> TenantView {
    TenantView {
        weight: u64::from(figures.weight).into(),
        running: figures.running.into(),
        held: figures.held.into(),
        limited: figures.limited.into(),
        started: u64::from(figures.per_second).into(),
        share: figures.share,
        parked: figures.is_parked,
        waiting: None,
        oldest_s: None,
        tenant: shown_tenant(&figures.tenant, is_private),
    }
}
