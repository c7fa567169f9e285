//! Endpoints that show what is there.

use super::objects::{
    Findings, MessageTotals, OneQueue, Outcomes, Overview, Plugins, Processes, Queues, Routes,
    RunningList, Schedules,
};
use super::{Call, document, json};
use crate::admin::operations::{OutcomeCount, OutcomeView, Page, PluginView};
use crate::admin::problem::{CallProblem, FieldProblem};
use crate::admin::rfc3339;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use dispatcher_core::telemetry::events::outcomes::RecentOutcome;
use dispatcher_core::telemetry::events::{EventKind, ReasonKind};
use std::collections::BTreeMap;

type Answered = Result<Response, CallProblem>;

pub(super) async fn openapi(_: Call) -> Answered {
    Ok(Json(document()).into_response())
}

pub(super) async fn overview(call: Call) -> Answered {
    let all = |limit| Page { limit, after: None };
    let (routes, _) = call.operations.routes(&all(usize::MAX))?;
    let (queues, _) = call.operations.queues(&all(usize::MAX))?;
    let paused = queues.iter().filter(|queue| queue.paused);
    let counters = call.state.admin.metrics.counters.snapshot();
    json(&Overview {
        process: call.operations.process(),
        routes: routes.len().into(),
        queues: queues.len().into(),
        paused: paused.map(|queue| queue.queue.clone()).take(100).collect(),
        running: counters.running.into(),
        leases: call.state.admin.ledger.held().into(),
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
        streams: call.state.streams.open().into(),
    })
}

pub(super) async fn routes(call: Call) -> Answered {
    let (items, next) = call.operations.routes(&call.query.page())?;
    json(&Routes { items, next })
}

pub(super) async fn queues(call: Call) -> Answered {
    let (mut items, next) = call.operations.queues(&call.query.page())?;
    let mut calls = 0;
    if call.query.is_on("depth") {
        calls = call.operations.add_depths(&mut items).await.calls;
    }
    let calls = calls.into();
    json(&Queues { items, next, calls })
}

pub(super) async fn queue(call: Call) -> Answered {
    let name = call.named("queue");
    let queue = call.operations.queue(name);
    let mut queues = vec![queue.ok_or_else(|| no_queue(name))?];
    let calls = call.operations.add_depths(&mut queues).await.calls;
    let queue = queues.remove(0);
    let calls = calls.into();
    json(&OneQueue { queue, calls })
}

/// The process has no such queue.
pub(super) fn no_queue(name: &str) -> CallProblem {
    CallProblem::not_found(format!(
        "This process receives from no queue `{name}`. GET /api/v1/queues names its queues; in a \
         path a slash is %2F."
    ))
}

pub(super) async fn running(call: Call) -> Answered {
    let (items, next) = call.operations.running(&call.query.page())?;
    json(&RunningList { items, next })
}

pub(super) async fn attempt(call: Call) -> Answered {
    let id = call.named("id");
    match call.operations.attempt(id) {
        Some(attempt) => json(&attempt),
        None => Err(no_attempt(id)),
    }
}

/// No attempt of this id runs.
pub(super) fn no_attempt(id: &str) -> CallProblem {
    CallProblem::not_found(format!(
        "No attempt `{id}` runs here: it may have ended. GET /api/v1/running lists those that run."
    ))
}

pub(super) async fn outcomes(call: Call) -> Answered {
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
    let holds = |one: &RecentOutcome| {
        queue.as_ref().is_none_or(|queue| one.queue == *queue)
            && event.is_none_or(|event| one.event.label() == event)
            && reason.is_none_or(|reason| reason_kind(one) == Some(reason))
    };
    let limit = call.query.limit();
    let meters = &call.state.admin.metrics.meters;
    let found = meters
        .outcomes()
        .recent(before.and_then(Result::ok), limit + 1, holds);
    let next = found.get(limit).and(found.get(limit - 1));
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (_, meter) in meters.iter() {
        for (event, reason, count) in meter.events.counted() {
            *counts.entry((event.label(), reason)).or_default() += count;
        }
    }
    json(&Outcomes {
        next: next.map(|one| one.sequence.to_string()),
        items: found.iter().take(limit).map(|one| view(one)).collect(),
        counts: counts
            .into_iter()
            .map(|((event, reason_kind), count)| OutcomeCount {
                event,
                reason_kind,
                messages: count.into(),
            })
            .collect(),
    })
}

fn reason_kind(outcome: &RecentOutcome) -> Option<&'static str> {
    Some(outcome.reason.as_ref()?.kind.label())
}

/// An end of a delivery as the API shows it.
pub(super) fn view(outcome: &RecentOutcome) -> OutcomeView {
    OutcomeView {
        sequence: outcome.sequence.into(),
        at: rfc3339(outcome.at),
        queue: outcome.queue.clone(),
        event: outcome.event.label(),
        reason_kind: reason_kind(outcome),
        reason: outcome.reason.as_ref().map(|one| one.text().to_owned()),
        messages: outcome.messages.into(),
        ids: outcome.ids.clone(),
        receive_count: outcome.receive_count.map(Into::into),
        to: outcome.to.clone(),
    }
}

pub(super) async fn plugins(call: Call) -> Answered {
    let page = call.query.page();
    let figures = call.state.admin.metrics.plugins.figures();
    let (items, next) = page.of(figures.len(), |at| {
        let (route, plugin) = figures.get(at)?;
        Some(PluginView {
            route: route.clone(),
            plugin: serde_json::json!(plugin),
        })
    })?;
    json(&Plugins { items, next })
}

pub(super) async fn schedules(call: Call) -> Answered {
    let queue = call.query.text("queue").unwrap_or_default();
    let items = call.operations.schedules(queue, call.query.limit()).await?;
    json(&Schedules { items })
}

pub(super) async fn processes(call: Call) -> Answered {
    let items = call.operations.workers(call.query.limit()).await?;
    json(&Processes { items })
}

pub(super) async fn findings(call: Call) -> Answered {
    let (items, looked_s_ago) = call.operations.findings().await?;
    json(&Findings {
        items,
        looked_s_ago,
    })
}
