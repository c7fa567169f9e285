//! The operations on scheduled messages.

use super::{
    ActionEntry, Form, Operation, OperationDeclaration, Target, VerbCall, VerbResult, missing,
};
use crate::operations::ScheduleResult;
use crate::problem::CallProblem;
use crate::requests;
use serde_json::{Map, Value, json};

requests! {
    /// A scheduled message.
    pub struct OneSchedule {
        /// Its id, as the list of schedules has it.
        schedule: String,
    }
}

impl OneSchedule {
    fn id(self) -> Result<String, CallProblem> {
        let schedule = self.schedule;
        schedule.ok_or_else(|| missing("schedule", "the id of a scheduled message"))
    }
}

fn of_schedule(id: &str, mut typed: Map<String, Value>) -> Map<String, Value> {
    typed.insert("schedule".to_owned(), json!(id));
    typed
}

/// Makes a scheduled message due.
pub struct RunScheduleVerb;
/// Cancels a scheduled message.
pub struct CancelScheduleVerb;

#[async_trait::async_trait]
impl Operation for RunScheduleVerb {
    type Request = OneSchedule;
    type Answer = ScheduleResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form {
            request: of_schedule,
            ..Form::new(
                "run-schedule",
                Target::Schedule,
                "Run this scheduled message now?",
                "Run now",
            )
        }],
        ..OperationDeclaration::new(
            "/api/v1/schedules/run",
            "Makes a scheduled message due at once; one that repeats keeps its times.",
        )
    };

    async fn run(request: OneSchedule, call: &VerbCall<'_>) -> VerbResult<ScheduleResult> {
        let id = request.id()?;
        let result = call.site.run_schedule(&id).await?;
        Ok((result, ActionEntry::new(id, 1)))
    }
}

#[async_trait::async_trait]
impl Operation for CancelScheduleVerb {
    type Request = OneSchedule;
    type Answer = ScheduleResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form {
            request: of_schedule,
            ..Form::new(
                "cancel-schedule",
                Target::Schedule,
                "Cancel this scheduled message?",
                "Cancel it",
            )
            .destructive()
        }],
        ..OperationDeclaration::new("/api/v1/schedules/cancel", "Cancels a scheduled message.")
    };

    async fn run(request: OneSchedule, call: &VerbCall<'_>) -> VerbResult<ScheduleResult> {
        let id = request.id()?;
        let result = call.site.cancel_schedule(&id).await?;
        Ok((result, ActionEntry::new(id, 1)))
    }
}
