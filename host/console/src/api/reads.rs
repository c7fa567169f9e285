//! Endpoints that show the state of the process.

use super::{Call, as_json, document};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use dispatcher_core::clock;
use dispatcher_core::telemetry::events::outcomes::RecentOutcome;
use dispatcher_core::telemetry::events::{EventKind, ReasonKind};
use dispatcher_operate::fleet::FleetView;
use dispatcher_operate::objects::{
    Findings, MessageTotals, OneQueue, Outcomes, Overview, Plugins, Processes, Queues, RouteScale,
    Routes, RunningList, Scale, Schedules,
};
use dispatcher_operate::operations::{
    OutcomeCount, OutcomeView, Page, PluginView, QueueView, RouteView,
};
use dispatcher_operate::problem::{CallProblem, FieldProblem};
use dispatcher_operate::scale::{LimitedLoad, RouteLoad};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long the other processes of the fleet are asked for. Autoscalers wait 3 seconds.
const FLEET_PATIENCE: Duration = Duration::from_secs(1);

type ApiResult = Result<Response, CallProblem>;

pub(super) async fn openapi(_: Call) -> ApiResult {
    Ok(Json(document()).into_response())
}

pub(super) async fn overview(call: Call) -> ApiResult {
    let all = Page::everything();
    let (routes, _) = call.operations.routes(&all)?;
    let (queues, _) = call.operations.queues(&all).await?;
    let paused = queues.iter().filter(|queue| queue.paused);
    let counters = call.state.admin.metrics.counters.snapshot();
    as_json(&Overview {
        process: call.operations.process(),
        routes: routes.len().into(),
        queues: queues.len().into(),
        paused: paused.map(|queue| queue.queue.clone()).take(100).collect(),
        running: counters.running.into(),
        leases: call.state.admin.held.load(Relaxed).into(),
        messages: MessageTotals {
            received: counters.received.into(),
            done: counters.done.into(),
            retried: counters.retried.into(),
            dead_lettered: counters.dead.into(),
            shed: counters.shed.into(),
            cancelled: counters.cancelled.into(),
            lost: counters.lost.into(),
            released: counters.returned.into(),
            not_settled: counters.not_settled.into(),
        },
        recent: call.state.dashboard.recent(),
        streams: call.state.streams.open().into(),
    })
}

pub(super) async fn routes(call: Call) -> ApiResult {
    let (items, next) = call.operations.routes(&call.query.page())?;
    as_json(&Routes { items, next })
}

pub(super) async fn queues(call: Call) -> ApiResult {
    let (mut items, next) = call.operations.queues(&call.query.page()).await?;
    let mut calls = 0;
    if call.query.is_on("depth") {
        calls = call.operations.add_depths(&mut items).await.calls;
        call.operations.add_backlogs(&mut items).await;
    }
    let calls = calls.into();
    as_json(&Queues { items, next, calls })
}

pub(super) async fn queue(call: Call) -> ApiResult {
    let name = call.named("queue");
    let queue = call.operations.queue(name).await;
    let mut queues = vec![queue.ok_or_else(|| no_queue(name))?];
    let calls = call.operations.add_depths(&mut queues).await.calls;
    let queue = queues.remove(0);
    let calls = calls.into();
    as_json(&OneQueue { queue, calls })
}

/// Reports that the process has no queue of this name.
pub(super) fn no_queue(name: &str) -> CallProblem {
    CallProblem::not_found(format!(
        "This process receives from no queue `{name}`. GET /api/v1/queues lists its queues; in a \
         path, write a slash as %2F."
    ))
}

pub(super) async fn running(call: Call) -> ApiResult {
    let queue = call.query.text("queue");
    let (items, next) = call.operations.running(queue, &call.query.page())?;
    as_json(&RunningList { items, next })
}

pub(super) async fn attempt(call: Call) -> ApiResult {
    let id = call.named("id");
    match call.operations.attempt(id) {
        Some(attempt) => as_json(&attempt),
        None => Err(no_attempt(id)),
    }
}

/// Reports that no attempt of this id is running.
pub(super) fn no_attempt(id: &str) -> CallProblem {
    CallProblem::not_found(format!(
        "No attempt `{id}` runs here: it may have ended. GET /api/v1/running lists those that run."
    ))
}

pub(super) async fn outcomes(call: Call) -> ApiResult {
    let queue = call.query.text("queue").map(str::to_owned);
    let mut problems = Vec::new();
    let events: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.label()).collect();
    let reasons: Vec<&str> = ReasonKind::ALL.iter().map(|kind| kind.label()).collect();
    let mut choice = |name: &str, known: &[&'static str]| {
        let given = call.query.text(name)?;
        let found = known.iter().find(|one| **one == given).copied();
        if found.is_none() {
            let why = format!("`{given}` is unknown");
            problems.push(FieldProblem::new(name, &why, &known.join(", ")));
        }
        found
    };
    let (event, reason) = (choice("event", &events), choice("reason", &reasons));
    let before = call.query.text("cursor").map(str::parse);
    if let Some(Err(_)) = before {
        problems.extend(call.query.page().bad_cursor().errors);
    }
    if !problems.is_empty() {
        return Err(CallProblem {
            status: StatusCode::BAD_REQUEST,
            ..CallProblem::fields(problems)
        });
    }
    let limit = call.query.limit();
    let meters = &call.state.admin.metrics.meters;
    let found = meters.outcomes().recent(
        before.and_then(Result::ok),
        limit + 1,
        |one: &RecentOutcome| {
            queue.as_ref().is_none_or(|queue| one.queue == *queue)
                && event.is_none_or(|event| one.event.label() == event)
                && reason.is_none_or(|reason| reason_kind(one) == Some(reason))
        },
    );
    let next = found.get(limit).and(found.get(limit - 1));
    let counts = meters.outcomes().counts().counted();
    as_json(&Outcomes {
        next: next.map(|one| one.sequence.to_string()),
        items: found.iter().take(limit).map(|one| view(one)).collect(),
        counts: counts
            .map(|(event, reason_kind, count)| OutcomeCount {
                event: event.label().into(),
                reason_kind: reason_kind.into(),
                messages: count.into(),
            })
            .collect(),
    })
}

fn reason_kind(outcome: &RecentOutcome) -> Option<&'static str> {
    Some(outcome.reason.as_ref()?.kind.label())
}

/// Converts the outcome of a delivery to its form in the API.
pub(crate) fn view(outcome: &RecentOutcome) -> OutcomeView {
    OutcomeView {
        sequence: outcome.sequence.into(),
        at: outcome.at.to_string(),
        queue: outcome.queue.clone(),
        event: outcome.event.label().into(),
        reason_kind: reason_kind(outcome).map(Into::into),
        reason: outcome.reason.as_ref().map(|one| one.text().to_owned()),
        messages: outcome.messages.into(),
        ids: outcome.ids.clone(),
        receive_count: outcome.receive_count.map(Into::into),
        attempt: outcome.attempt.map(Into::into),
        took_s: outcome.took.map(|took| took.as_secs_f64()),
        to: outcome.to.clone(),
    }
}

pub(super) async fn plugins(call: Call) -> ApiResult {
    let page = call.query.page();
    let figures = call.state.admin.metrics.plugins.figures();
    let (items, next) = page.of(figures.len(), |at| {
        let (route, plugin) = figures.get(at)?;
        Some(PluginView {
            route: route.clone(),
            plugin: serde_json::json!(plugin),
        })
    })?;
    as_json(&Plugins { items, next })
}

pub(super) async fn schedules(call: Call) -> ApiResult {
    let queue = call.query.text("queue").unwrap_or_default();
    let items = call.operations.schedules(queue, call.query.limit()).await?;
    as_json(&Schedules { items })
}

pub(super) async fn processes(call: Call) -> ApiResult {
    let items = call.operations.workers(call.query.limit()).await?;
    as_json(&Processes { items })
}

pub(super) async fn fleet(call: Call) -> ApiResult {
    as_json(&call.operations.fleet().await?)
}

pub(super) async fn scale(call: Call) -> ApiResult {
    let all = Page::everything();
    let (mut routes, _) = call.operations.routes(&all)?;
    if let Some(wanted) = call.query.text("route") {
        routes.retain(|route| route.route == wanted);
    }
    if routes.is_empty() {
        return Err(CallProblem::not_found(
            "This process has no such route. GET /api/v1/routes lists its routes.".to_owned(),
        ));
    }
    let (mut queues, _) = call.operations.queues(&all).await?;
    queues.retain(|queue| routes.iter().any(|route| route.route == queue.route));
    let calls = call.operations.add_depths(&mut queues).await.calls;
    let fleet = tokio::select! {
        fleet = call.operations.fleet() => fleet.unwrap_or_default(),
        () = clock::sleep_until(Some(clock::now() + FLEET_PATIENCE)) => FleetView::default(),
    };
    let drain = call.query.drain();
    let mut items = Vec::new();
    for route in &routes {
        let of_route = queues.iter().filter(|queue| queue.route == route.route);
        let elsewhere = fleet.waiting_elsewhere(&route.route);
        let load = load(route, of_route, elsewhere, |queue| {
            call.operations.released(queue)
        })?;
        let Some((replicas, reason)) = load.replicas(drain) else {
            return Err(CallProblem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "How long messages of `{}` take is not known: no attempt of this process has \
                     ended, and more messages wait or are in flight than it handles at once.",
                    route.route
                ),
            ));
        };
        items.push(RouteScale {
            route: route.route.clone(),
            replicas: replicas.into(),
            reason: reason.label().into(),
            backlog: load.backlog.into(),
            in_flight: load.in_flight.into(),
            released: load.released.into(),
            held: load.held.into(),
            at_once: load.at_once().into(),
            median_attempt_s: route.median_attempt_s,
        });
    }
    let most = items.iter().map(|item| item.replicas.0).max();
    as_json(&Scale {
        replicas: most.unwrap_or_default().into(),
        drain_s: drain.as_secs().into(),
        items,
        calls: calls.into(),
    })
}

/// Returns the load of a route, of which other processes hold `elsewhere` messages that have not
/// started. An unknown number is an error, because it would lead to a wrong scale.
fn load<'a>(
    route: &RouteView,
    queues: impl Iterator<Item = &'a QueueView>,
    elsewhere: u64,
    released: impl Fn(&str) -> u64,
) -> Result<RouteLoad, CallProblem> {
    let mut load = RouteLoad {
        concurrency: route.concurrency.value.map_or(1, |value| value.0),
        batch_size: route.batch_size.0,
        running: (route.attempts.0, 0),
        median: route.median_attempt_s.map(Duration::from_secs_f64),
        fleet_per_second: route.fleet_per_second,
        ..RouteLoad::default()
    };
    for queue in queues {
        let depth = queue.depth.as_ref();
        let known = depth.and_then(|depth| depth.waiting.zip(depth.in_flight));
        let Some((waiting, in_flight)) = known else {
            let why = depth.and_then(|depth| depth.error.as_deref());
            return Err(CallProblem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "The depth of `{}` is not known: {}.",
                    queue.queue,
                    why.unwrap_or("it was not asked")
                ),
            ));
        };
        if !queue.paused {
            load.backlog = load.backlog.saturating_add(waiting.0);
            load.limited.push(LimitedLoad {
                backlog: waiting.0,
                rate: queue.rate.value,
                concurrency: queue.concurrency.value.map(|most| most.0),
            });
        }
        load.add_in_flight(in_flight.0, released(&queue.queue));
        load.running.1 = load.running.1.saturating_add(queue.in_flight.0);
    }
    // Depths are some seconds old, but the numbers of this process are current.
    let held = route.in_flight.0.saturating_sub(load.running.1);
    load.held = held.saturating_add(elsewhere).min(load.in_flight);
    Ok(load)
}

pub(super) async fn findings(call: Call) -> ApiResult {
    let (items, looked_s_ago) = call.operations.findings().await?;
    as_json(&Findings {
        items,
        looked_s_ago,
    })
}
