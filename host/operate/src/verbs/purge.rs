//! The operation `purge`: removes the waiting messages of a queue.

use super::{
    ActionEntry, Command, Form, Operation, OperationDeclaration, Target, TypedRequest, VerbCall,
    VerbResult,
};
use crate::messages::{JobView, Work};
use crate::requests;
use serde_json::{Value, json};

requests! {
    /// A queue to be emptied.
    pub struct PurgeQueue {
        /// Removes its messages; without it they are only counted.
        apply: bool,
    }
}

/// The operation `purge`.
pub struct PurgeVerb;

#[async_trait::async_trait]
impl Operation for PurgeVerb {
    type Request = PurgeQueue;
    type Answer = JobView;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        starts_job: true,
        forms: &[Form {
            request: |_, mut typed| {
                typed.insert("apply".to_owned(), json!(true));
                typed
            },
            ..Form::new("purge", Target::Messages, "Purge this queue?", "Purge").destructive()
        }],
        command: Some(Command {
            json: "Print JSON: {\"queue\",\"applied\",\"messages\",\"removed\"}",
            ..Command::new("purge", "Remove all messages of a queue", HELP)
        }),
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/purge",
            "Removes the messages of a queue; without `apply` it only counts them.",
        )
    };

    async fn run(request: PurgeQueue, call: &VerbCall<'_>) -> VerbResult<JobView> {
        let messages = call.site.messages();
        let job = messages
            .start(call.target, Work::Purge(request), call.by)
            .await?;
        Ok((job, ActionEntry::default()))
    }

    fn lines(_: &TypedRequest<'_>, job: &JobView) -> Vec<String> {
        let (queue, messages) = (&job.queue, job.waiting.unwrap_or_default());
        if !job.applied {
            return vec![
                format!("{queue}: {messages} would be removed"),
                "nothing was removed; add --apply to remove them".to_owned(),
            ];
        }
        vec![match job.report.removed {
            Some(removed) => format!("{queue}: {removed} removed"),
            None if job.error.is_some() => format!("{queue}: none removed"),
            None => format!(
                "{queue}: emptied within a minute, about {messages} messages, those in flight included"
            ),
        }]
    }

    fn printed(_: &TypedRequest<'_>, job: &JobView) -> Value {
        let mut printed = json!({
            "queue": job.queue,
            "applied": job.applied,
            "messages": job.waiting.unwrap_or_default(),
        });
        if job.applied {
            printed["removed"] = json!(job.report.removed);
        }
        printed
    }
}

const HELP: &str = "\
Examples:
  dispatcher purge local:orders.dead              count, remove nothing
  dispatcher purge local:orders.dead --apply

Permanently removes waiting and delayed messages. Messages in flight stay with their handlers,
except on SQS: there one call empties the queue within a minute, including messages in flight, and
SQS accepts the next such call a minute later.";
