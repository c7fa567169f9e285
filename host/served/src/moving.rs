//! Starts and stops the tasks that move dead letters, as in SQS. The background work runs their
//! steps.

use super::fault::{Fault, FaultKind};
use super::input::Moves;
use super::service::Service;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dispatcher_local::queue::{Move, Status, arn, named_by};
use serde_json::{Map, Value, json};

/// SQS's limits.
const MOST_RATE: i64 = 500;
const MOST_LISTED: i64 = 10;
/// The suffix of the default dead-letter queues of the embedded queue.
const DEAD: &str = ".dead";

impl Service {
    pub(super) async fn start_move(&self, asked: Moves) -> Result<Value, Fault> {
        let source = self.source(asked.source_arn).await?;
        let has_source = !self.store.sources(&source).await?.is_empty();
        if !has_source && !source.ends_with(DEAD) {
            return Err(Fault::new(
                FaultKind::InvalidParameterValue,
                "Source queue must be configured as a Dead Letter Queue.",
            ));
        }
        let target = match asked.destination_arn {
            None => None,
            Some(arn) => {
                let name = named_by(&arn).ok_or_else(|| not_there("DestinationArn"))?;
                if name == source {
                    return Err(Fault::new(
                        FaultKind::InvalidParameterValue,
                        "Source queue and destination queue must not be the same.",
                    ));
                }
                Some(self.existing(name, "DestinationArn").await?)
            }
        };
        let rate = match asked.max_number_of_messages_per_second {
            None => None,
            Some(rate) if (1..=MOST_RATE).contains(&rate) => u32::try_from(rate).ok(),
            Some(rate) => {
                return Err(Fault::value(
                    rate,
                    "MaxNumberOfMessagesPerSecond",
                    "Must be between 1 and 500.",
                ));
            }
        };
        let handle = uuid::Uuid::new_v4().to_string();
        if !self
            .store
            .start_move(&handle, &source, target, rate)
            .await?
        {
            return Err(Fault::new(
                FaultKind::InvalidParameterValue,
                "There is already a task running. Only one active task is allowed for a source \
                 queue arn at a given time.",
            ));
        }
        self.moves.notify_one();
        Ok(json!({"TaskHandle": task_handle(&handle, &source)}))
    }

    pub(super) async fn list_moves(&self, asked: Moves) -> Result<Value, Fault> {
        let source = self.source(asked.source_arn).await?;
        let max = asked.max_results.unwrap_or(1);
        if !(1..=MOST_LISTED).contains(&max) {
            return Err(Fault::value(max, "MaxResults", "Must be between 1 and 10."));
        }
        let max = usize::try_from(max).unwrap_or(1);
        let tasks = self.store.moves(&source, max).await?;
        let shown: Vec<Value> = tasks.iter().map(show).collect();
        Ok(json!({"Results": shown}))
    }

    pub(super) async fn cancel_move(&self, asked: Moves) -> Result<Value, Fault> {
        let handle = asked
            .task_handle
            .filter(|handle| !handle.is_empty())
            .ok_or_else(|| Fault::missing("TaskHandle"))?;
        let Some((id, arn)) = read_handle(&handle) else {
            return Err(Fault::new(
                FaultKind::InvalidParameterValue,
                "Value for parameter TaskHandle is invalid.",
            ));
        };
        let source = self.source(Some(arn)).await?;
        let known = self.store.moves(&source, usize::MAX).await?;
        let stopped = if known.iter().any(|task| task.handle == id) {
            self.store.cancel_move(&id).await?
        } else {
            None
        };
        match stopped {
            None => Err(Fault::new(
                FaultKind::ResourceNotFoundException,
                "Task does not exist.",
            )),
            Some(task) if task.status != Status::Running => Err(Fault::new(
                FaultKind::UnsupportedOperation,
                "Only active tasks can be cancelled.",
            )),
            Some(task) => Ok(json!({"ApproximateNumberOfMessagesMoved": task.moved})),
        }
    }

    async fn source(&self, arn: Option<String>) -> Result<String, Fault> {
        let arn = arn.ok_or_else(|| Fault::missing("SourceArn"))?;
        let name = named_by(&arn).ok_or_else(|| not_there("SourceArn"))?;
        self.existing(name, "SourceArn").await
    }

    async fn existing(&self, name: &str, parameter: &str) -> Result<String, Fault> {
        match self.named(name).await {
            Ok(known) => Ok(known.name.clone()),
            Err(fault) if fault.kind == FaultKind::QueueDoesNotExist => Err(not_there(parameter)),
            Err(fault) => Err(fault),
        }
    }
}

/// Returns a task's handle in SQS's form: the id and the source in base 64.
fn task_handle(id: &str, source: &str) -> String {
    STANDARD.encode(json!({"taskId": id, "sourceArn": arn(source)}).to_string())
}

/// Reads the id and the ARN of the source from a handle.
fn read_handle(handle: &str) -> Option<(String, String)> {
    let bytes = STANDARD.decode(handle).ok()?;
    let named: Value = serde_json::from_slice(&bytes).ok()?;
    let task = named["taskId"].as_str()?;
    let source = named["sourceArn"].as_str()?;
    Some((task.to_owned(), source.to_owned()))
}

fn not_there(parameter: &str) -> Fault {
    Fault::new(
        FaultKind::ResourceNotFoundException,
        format!("The resource that you specified for the {parameter} parameter doesn't exist."),
    )
}

fn show(task: &Move) -> Value {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    add("SourceArn", arn(&task.source).into());
    add("Status", task.status.word().into());
    add("ApproximateNumberOfMessagesMoved", task.moved.into());
    add("ApproximateNumberOfMessagesToMove", task.total.into());
    add("StartedTimestamp", task.started.0.into());
    if task.status == Status::Running {
        add("TaskHandle", task_handle(&task.handle, &task.source).into());
    }
    if let Some(target) = &task.target {
        add("DestinationArn", arn(target).into());
    }
    if let Some(rate) = task.rate {
        add("MaxNumberOfMessagesPerSecond", rate.into());
    }
    if let Some(failure) = &task.failure {
        add("FailureReason", failure.clone().into());
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_handle_names_the_task_and_its_source() {
        let handle = task_handle("id", "q");
        assert_eq!(read_handle(&handle), Some(("id".to_owned(), arn("q"))));
        for bad in ["foobared", "", "e30="] {
            assert_eq!(read_handle(bad), None, "{bad}");
        }
    }
}
