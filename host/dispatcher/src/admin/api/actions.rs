//! Endpoints that act. Each reads its whole request first: nothing is done unless all of it is
//! understood.

use super::objects::{
    CancelMessage, Draining, NoFields, OneSchedule, QueueLimits, RolledBack, RouteLimits,
};
use super::{Call, done};
use crate::admin::ReloadAnswer;
use crate::admin::operations::{CancelResult, ControlResult};
use crate::admin::problem::problem_with;
use crate::admin::problem::{CallProblem, FieldProblem};
use crate::admin::schema::{ReadRequest, read, read_and_check};
use crate::admin::state::StateChange;
use axum::http::StatusCode;
use axum::response::Response;
use dispatcher_core::control::ControlChange;
use dispatcher_core::scheduler::live::RouteControl;

type Answered = Result<Response, CallProblem>;

impl Call {
    pub(super) fn request<T: ReadRequest>(&self) -> Result<T, CallProblem> {
        read(&self.body).map_err(CallProblem::fields)
    }

    /// The same, with what `check` finds wrong in it.
    pub(super) fn checked_request<T: ReadRequest>(
        &self,
        check: impl FnOnce(&T) -> Vec<FieldProblem>,
    ) -> Result<T, CallProblem> {
        read_and_check(&self.body, check).map_err(CallProblem::fields)
    }
}

fn controlled(call: &Call, action: &'static str, result: &ControlResult) -> Answered {
    call.state.changes.publish(&StateChange {
        what: action,
        target: &result.target,
        by: call.caller.name(),
    });
    done(result, &result.target, result.queues.len() as u64)
}

pub(super) async fn pause_queue(call: Call) -> Answered {
    pause(call, true, "queue paused").await
}

pub(super) async fn resume_queue(call: Call) -> Answered {
    pause(call, false, "queue resumed").await
}

async fn pause(call: Call, paused: bool, action: &'static str) -> Answered {
    let NoFields {} = call.request()?;
    let change = ControlChange {
        paused: Some(paused),
        ..ControlChange::default()
    };
    let queue = call.named("queue");
    let result = call.operations.change_queue(queue, &change).await?;
    controlled(&call, action, &result)
}

pub(super) async fn limit_queue(call: Call) -> Answered {
    let QueueLimits {
        concurrency,
        rate,
        prefetch,
    } = call.request()?;
    let change = ControlChange {
        paused: None,
        concurrency: concurrency.map(|limit| limit.map(|limit| limit.0)),
        rate,
        prefetch,
    };
    if change == ControlChange::default() {
        return Err(nothing("concurrency, rate or prefetch"));
    }
    let queue = call.named("queue");
    let result = call.operations.change_queue(queue, &change).await?;
    controlled(&call, "queue limited", &result)
}

fn nothing(wanted: &str) -> CallProblem {
    CallProblem::fields(vec![FieldProblem::new("", "it changes nothing", wanted)])
}

/// A field that a request must have.
pub(super) fn missing(field: &str, wanted: &str) -> CallProblem {
    CallProblem::fields(vec![FieldProblem::new(field, "it is missing", wanted)])
}

pub(super) async fn pause_route(call: Call) -> Answered {
    let NoFields {} = call.request()?;
    let change = |control| RouteControl {
        paused: true,
        ..control
    };
    let result = call.operations.change_route(call.named("route"), &change)?;
    controlled(&call, "route paused", &result)
}

pub(super) async fn resume_route(call: Call) -> Answered {
    let NoFields {} = call.request()?;
    let change = |control| RouteControl {
        paused: false,
        ..control
    };
    let result = call.operations.change_route(call.named("route"), &change)?;
    controlled(&call, "route resumed", &result)
}

pub(super) async fn limit_route(call: Call) -> Answered {
    let RouteLimits {
        concurrency,
        prefetch,
    } = call.request()?;
    if (concurrency, prefetch) == (None, None) {
        return Err(nothing("concurrency or prefetch"));
    }
    let change = |control: RouteControl| RouteControl {
        concurrency: concurrency.map_or(control.concurrency, |limit| limit.map(|limit| limit.0)),
        prefetch: prefetch.unwrap_or(control.prefetch),
        ..control
    };
    let result = call.operations.change_route(call.named("route"), &change)?;
    controlled(&call, "route limited", &result)
}

fn cancelled(target: &str, result: &CancelResult) -> Answered {
    done(result, target, result.waiting.0 + result.running.0)
}

pub(super) async fn cancel_attempt(call: Call) -> Answered {
    let NoFields {} = call.request()?;
    let id = call.named("id");
    let result = call.operations.cancel_attempt(id)?;
    cancelled(id, &result)
}

pub(super) async fn cancel_message(call: Call) -> Answered {
    let CancelMessage { message } = call.request()?;
    let message = message.ok_or_else(|| missing("message", "the id of a message"))?;
    let queue = call.named("queue");
    let result = call.operations.cancel_message(queue, &message).await?;
    cancelled(&format!("{queue} {message}"), &result)
}

pub(super) async fn run_schedule(call: Call) -> Answered {
    let OneSchedule { schedule } = call.request()?;
    let id = schedule.ok_or_else(|| missing("schedule", "the id of a scheduled message"))?;
    let result = call.operations.run_schedule(&id).await?;
    done(&result, id, 1)
}

pub(super) async fn cancel_schedule(call: Call) -> Answered {
    let OneSchedule { schedule } = call.request()?;
    let id = schedule.ok_or_else(|| missing("schedule", "the id of a scheduled message"))?;
    let result = call.operations.cancel_schedule(&id).await?;
    done(&result, id, 1)
}

pub(super) async fn reload(call: Call) -> Answered {
    let NoFields {} = call.request()?;
    let Some(reload) = &call.state.admin.reload else {
        return Err(CallProblem::not_found("No plugin can be replaced here."));
    };
    let ReloadAnswer {
        is_good,
        replaced,
        came,
    } = reload().await;
    if is_good {
        return done(&came, "plugins", replaced);
    }
    let why = "Not every plugin was replaced; the old versions stay.";
    Ok(problem_with(StatusCode::UNPROCESSABLE_ENTITY, why, came))
}

pub(super) async fn roll_back(call: Call) -> Answered {
    let NoFields {} = call.request()?;
    let route = call.named("route").to_owned();
    let Some(roll_back) = &call.state.admin.roll_back else {
        return Err(CallProblem::not_found("No plugin runs here."));
    };
    let version = roll_back(route.clone()).await?;
    call.state.changes.publish(&StateChange {
        what: "canary rolled back",
        target: &route,
        by: call.caller.name(),
    });
    let rolled_back = RolledBack {
        route: route.clone(),
        version,
    };
    done(&rolled_back, &route, 1)
}

pub(super) async fn drain(call: Call) -> Answered {
    let NoFields {} = call.request()?;
    let started = call.operations.drain();
    call.state.changes.publish(&StateChange {
        what: "process draining",
        target: &call.operations.process().id,
        by: call.caller.name(),
    });
    done(&Draining { started }, "process", u64::from(started))
}
