//! The operations on a route.

use super::control::{CONCURRENCY, PREFETCH, controlled, nothing, paused};
use super::{
    ActionEntry, FieldKind, Form, FormField, NoFields, Operation, OperationDeclaration, Target,
    VerbCall, VerbResult, missing,
};
use crate::objects::RolledBack;
use crate::operations::ControlResult;
use crate::request::{AtLeastOne, RequestField, TenantName, Weight};
use crate::requests;
use dispatcher_core::control::ControlChange;

requests! {
    /// Limits of a route.
    pub struct RouteLimits {
        /// Maximum concurrent attempts: at most the number that the process was started with.
        concurrency: Option<AtLeastOne>,
        /// Maximum messages held beyond those that run.
        prefetch: Option<usize>,
    }

    /// The weight of a tenant.
    pub struct TenantWeight {
        /// The tenant.
        tenant: TenantName,
        /// How many times the share of another tenant it gets.
        weight: Option<Weight>,
    }
}

/// Pauses a route.
pub struct PauseRouteVerb;
/// Resumes a route.
pub struct ResumeRouteVerb;
/// Changes limits of a route.
pub struct LimitRouteVerb;
/// Changes the weight of a tenant of a route.
pub struct ChangeWeightVerb;
/// Rolls back the canary of a route.
pub struct RollBackVerb;

async fn change(
    call: &VerbCall<'_>,
    change: &ControlChange,
    what: &'static str,
) -> VerbResult<ControlResult> {
    let result = call.site.change_route(call.target, change).await?;
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
            "Pauses all queues of a route.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<ControlResult> {
        change(call, &paused(true), "route paused").await
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
        change(call, &paused(false), "route resumed").await
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
            "Changes limits of a route; `null` resets one to the configured value.",
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
        let limits = ControlChange {
            concurrency: concurrency.map(|limit| limit.map(|limit| limit.0)),
            prefetch,
            ..ControlChange::default()
        };
        change(call, &limits, "route limited").await
    }
}

#[async_trait::async_trait]
impl Operation for ChangeWeightVerb {
    type Request = TenantWeight;
    type Answer = ControlResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form {
            fields: &[
                FormField {
                    name: "tenant",
                    label: "Tenant",
                    help: "Its name, as the page of the queue shows it.",
                    kind: FieldKind::Text,
                },
                FormField {
                    name: "weight",
                    label: "Weight",
                    help: "How many times the share of another tenant it gets, 1 to 1000. Empty: as configured.",
                    kind: FieldKind::Limit,
                },
            ],
            ..Form::new(
                "weigh-tenant",
                Target::Route,
                "Change the weight of a tenant",
                "Change",
            )
        }],
        ..OperationDeclaration::new(
            "/api/v1/routes/{route}/weights",
            "Changes the weight of a tenant; `null` resets it to the configured value.",
        )
    };

    async fn run(request: TenantWeight, call: &VerbCall<'_>) -> VerbResult<ControlResult> {
        let TenantName(tenant) = request
            .tenant
            .ok_or_else(|| missing("tenant", TenantName::WANTED))?;
        let weight = request
            .weight
            .ok_or_else(|| missing("weight", Weight::WANTED))?
            .map(|Weight(weight)| weight);
        let result = call
            .site
            .change_weight(call.target, &tenant, weight)
            .await?;
        Ok(controlled("weight changed", result))
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
