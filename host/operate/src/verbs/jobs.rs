//! The operations on running or ended jobs.

use super::{
    ActionEntry, Form, NoFields, Operation, OperationDeclaration, Target, VerbCall, VerbResult,
};
use crate::messages::JobView;

/// Stops a job.
pub struct CancelJobVerb;

#[async_trait::async_trait]
impl Operation for CancelJobVerb {
    type Request = NoFields;
    type Answer = JobView;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new("cancel-job", Target::Job, "Stop this job?", "Stop").destructive()],
        ..OperationDeclaration::new(
            "/api/v1/jobs/{id}/cancel",
            "Stops a redrive, a move or a purge after its current batch.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<JobView> {
        let job = call.site.messages().cancel(call.target)?;
        Ok((job, ActionEntry::new(call.target, 1)))
    }
}

/// Continues with the rest of a job.
pub struct RestartJobVerb;

#[async_trait::async_trait]
impl Operation for RestartJobVerb {
    type Request = NoFields;
    type Answer = JobView;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        starts_job: true,
        forms: &[Form::new(
            "restart-job",
            Target::Job,
            "Start this job again?",
            "Start",
        )],
        ..OperationDeclaration::new(
            "/api/v1/jobs/{id}/restart",
            "Starts a job again that ended early: it continues with the rest.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<JobView> {
        let messages = call.site.messages();
        let job = messages.restart(call.target, call.by).await?;
        Ok((job, ActionEntry::default()))
    }
}
