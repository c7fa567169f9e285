//! The operations on a route of one process.

use super::control::{CONCURRENCY, PREFETCH, controlled, nothing};
use super::{
    ActionEntry, Form, NoFields, Operation, OperationDeclaration, Target, VerbCall, VerbResult,
};
use crate::objects::RolledBack;
use crate::operations::ControlResult;
use crate::request::AtLeastOne;
use crate::requests;
use dispatcher_core::scheduler::live::RouteControl;

requests! {
    /// Limits of a route.
    pub struct RouteLimits {
        /// Maximum concurrent attempts: at most the number that the process was started with.
        concurrency: Option<AtLeastOne>,
        /// Maximum messages held beyond those that run.
        prefetch: Option<usize>,
    }
}

/// Pauses a route.
pub struct PauseRouteVerb;
/// Resumes a route.
pub struct ResumeRouteVerb;
/// Changes limits of a route.
pub struct LimitRouteVerb;
/// Rolls back the canary of a route.
pub struct RollBackVerb;

fn pause(call: &VerbCall<'_>, paused: bool, what: &'static str) -> VerbResult<ControlResult> {
    let (site, route) = (call.site, call.target);
    let result = site.change_route(route, &|control: RouteControl| RouteControl {
        paused,
        ..control
    })?;
    Ok(controlled(what, result))
}

#[async_trait::async_trait]
impl Operation for PauseRouteVerb {
    type Request = NoFields;
    type Answer = ControlResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new(
            "pause-route",
            Target::Route,
            "Pause this route?",
            "Pause",
        )],
        ..OperationDeclaration::new(
            "/api/v1/routes/{route}/pause",
            "Pauses all queues of a route in this process.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<ControlResult> {
        pause(call, true, "route paused")
    }
}

#[async_trait::async_trait]
impl Operation for ResumeRouteVerb {
    type Request = NoFields;
    type Answer = ControlResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new(
            "resume-route",
            Target::Route,
            "Resume this route?",
            "Resume",
        )],
        ..OperationDeclaration::new(
            "/api/v1/routes/{route}/resume",
            "Resumes a route; queues that are paused themselves stay so.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<ControlResult> {
        pause(call, false, "route resumed")
    }
}

#[async_trait::async_trait]
impl Operation for LimitRouteVerb {
    type Request = RouteLimits;
    type Answer = ControlResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form {
            fields: &[CONCURRENCY, PREFETCH],
            ..Form::new(
                "limit-route",
                Target::Route,
                "Change limits of this route",
                "Change",
            )
        }],
        ..OperationDeclaration::new(
            "/api/v1/routes/{route}/limits",
            "Changes limits of a route in this process; `null` resets one to the configured value.",
        )
    };

    async fn run(request: RouteLimits, call: &VerbCall<'_>) -> VerbResult<ControlResult> {
        let RouteLimits {
            concurrency,
            prefetch,
        } = request;
        if (concurrency, prefetch) == (None, None) {
            return Err(nothing("concurrency or prefetch"));
        }
        let (site, route) = (call.site, call.target);
        let result = site.change_route(route, &|control: RouteControl| RouteControl {
            concurrency: concurrency
                .map_or(control.concurrency, |limit| limit.map(|limit| limit.0)),
            prefetch: prefetch.unwrap_or(control.prefetch),
            ..control
        })?;
        Ok(controlled("route limited", result))
    }
}

#[async_trait::async_trait]
impl Operation for RollBackVerb {
    type Request = NoFields;
    type Answer = RolledBack;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new(
            "roll-back",
            Target::Route,
            "Roll the canary back?",
            "Roll back",
        )
        .destructive()],
        ..OperationDeclaration::new(
            "/api/v1/routes/{route}/rollback",
            "Rolls the canary of the route's plugin back: the current version takes all messages again.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<RolledBack> {
        let route = call.target.to_owned();
        let version = call.site.roll_back(&route).await?;
        let done = ActionEntry {
            change: Some(("canary rolled back", route.clone())),
            ..ActionEntry::new(&route, 1)
        };
        Ok((RolledBack { route, version }, done))
    }
}
