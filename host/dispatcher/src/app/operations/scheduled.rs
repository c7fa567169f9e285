//! Lists and changes scheduled messages for the admin API.

use super::{PATIENCE, within};
use crate::app::build::schedule::{LaterError, ListedJob, Schedules};
use dispatcher_config::name::QueueName;
use dispatcher_core::schedule::JobCancellation;
use dispatcher_operate::operations::{ScheduleResult, ScheduleView};
use dispatcher_operate::problem::{CallProblem, FieldProblem, StatusCode};

/// Returns the first scheduled messages for a queue.
pub(in crate::app) async fn list(
    schedules: &Schedules,
    queue: &str,
    limit: usize,
) -> Result<Vec<ScheduleView>, CallProblem> {
    let name: QueueName = queue.parse().map_err(|found: String| CallProblem {
        status: StatusCode::BAD_REQUEST,
        ..CallProblem::fields(vec![FieldProblem::new("queue", &found, "a queue")])
    })?;
    let asked = within(PATIENCE, schedules.first(&name, limit)).await?;
    let found = asked.map_err(|error| failed(&error))?;
    let view = found.into_iter().map(|ListedJob { id, job }| ScheduleView {
        id,
        due: job.due.to_string(),
        every: job
            .every
            .map(|every| format!("{} {}", every.pattern, every.zone)),
        queue: job.queue,
    });
    Ok(view.collect())
}

/// Makes a message due at once.
pub(in crate::app) async fn run_now(
    schedules: &Schedules,
    id: &str,
) -> Result<ScheduleResult, CallProblem> {
    let (name, job) = place(id)?;
    let asked = within(PATIENCE, schedules.run_now(&name, job)).await?;
    if asked.map_err(|error| failed(&error))? {
        return Ok(result(id, &name));
    }
    Err(CallProblem::not_found(format!(
        "No message `{id}` waits in a schedule, or it is being sent at this moment. A message that \
         its queue delays by itself cannot be sent early."
    )))
}

/// Cancels a message.
pub(in crate::app) async fn cancel(
    schedules: &Schedules,
    id: &str,
) -> Result<ScheduleResult, CallProblem> {
    let (name, job) = place(id)?;
    let asked = within(PATIENCE, schedules.cancel(&name, job)).await?;
    match asked.map_err(|error| failed(&error))? {
        JobCancellation::Yes => Ok(result(id, &name)),
        JobCancellation::Unknown => Err(CallProblem::not_found(format!(
            "There is no scheduled message `{id}`: it was sent, was cancelled, or never existed."
        ))),
        JobCancellation::BeingSent => {
            let why = format!("Message `{id}` is being sent at this moment. Nothing was done.");
            Err(CallProblem::new(StatusCode::CONFLICT, why))
        }
    }
}

/// Splits an id into the queue and the rest.
fn place(id: &str) -> Result<(QueueName, &str), CallProblem> {
    let parts = id.rsplit_once('/').filter(|(_, job)| !job.is_empty());
    let parsed = parts.and_then(|(queue, job)| Some((queue.parse().ok()?, job)));
    parsed.ok_or_else(|| {
        let found = format!("`{id}` is not the id of a scheduled message");
        let wanted = "QUEUE/JOB, as GET /api/v1/schedules lists it";
        CallProblem::fields(vec![FieldProblem::new("schedule", &found, wanted)])
    })
}

fn result(id: &str, name: &QueueName) -> ScheduleResult {
    ScheduleResult {
        schedule: id.to_owned(),
        queue: name.to_string(),
    }
}

fn failed(error: &LaterError) -> CallProblem {
    let status = if error.passing {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::CONFLICT
    };
    CallProblem::new(status, format!("{error}."))
}
