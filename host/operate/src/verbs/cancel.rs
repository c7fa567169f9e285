//! The operations that cancel messages: waiting ones, and those in attempts.

use super::{
    ActionEntry, Command, FieldKind, Form, FormField, NoFields, OperationDeclaration, TypedRequest,
    VerbCall, VerbResult,
};
use super::{Operation, Target, missing};
use crate::operations::CancelResult;
use crate::request::MessageId;
use crate::requests;
use serde_json::{Value, json};

requests! {
    /// A message to be cancelled.
    pub struct CancelMessage {
        /// Its id, or on Redis the body of any number of messages.
        message: MessageId,
    }
}

/// Cancels a message.
pub struct CancelVerb;

/// The id of a message, in a form.
pub(super) const MESSAGE: FormField = FormField {
    name: "message",
    label: "Message id",
    help: "As in the log and in the list of running attempts.",
    kind: FieldKind::Text,
};

#[async_trait::async_trait]
impl Operation for CancelVerb {
    type Request = CancelMessage;
    type Answer = CancelResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form {
            fields: &[MESSAGE],
            ..Form::new(
                "cancel-message",
                Target::Queue,
                "Cancel a message of this queue?",
                "Cancel the message",
            )
            .destructive()
        }],
        command: Some(Command {
            placed: Some(("message", "TASK")),
            goes_on_by_itself: true,
            json: "Print JSON: {\"queue\",\"task\",\"waiting\",\"running\"}",
            ..Command::new(
                "cancel",
                "Remove a message from a queue, and stop its attempt if it is running",
                HELP,
            )
        }),
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/cancel",
            "Cancels a message: it is deleted, and its attempt is stopped.",
        )
    };

    async fn run(request: CancelMessage, call: &VerbCall<'_>) -> VerbResult<CancelResult> {
        let message = request.message;
        let MessageId(id) = message.ok_or_else(|| missing("message", "the id of a message"))?;
        let result = call.site.cancel_message(call.target, &id).await?;
        Ok(cancelled(format!("{} {id}", call.target), result))
    }

    fn lines(_: &TypedRequest<'_>, answer: &CancelResult) -> Vec<String> {
        let CancelResult { waiting, running } = answer;
        vec![format!(
            "{waiting} waiting removed, {running} running stopped"
        )]
    }

    fn printed(asked: &TypedRequest<'_>, answer: &CancelResult) -> Value {
        json!({
            "queue": asked.target, "task": asked.text("message"),
            "waiting": answer.waiting, "running": answer.running,
        })
    }
}

fn cancelled(target: String, result: CancelResult) -> (CancelResult, ActionEntry) {
    let count = result.waiting.0 + result.running.0;
    (result, ActionEntry::new(target, count))
}

/// Stops an attempt.
pub struct CancelAttemptVerb;

#[async_trait::async_trait]
impl Operation for CancelAttemptVerb {
    type Request = NoFields;
    type Answer = CancelResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new(
            "cancel-attempt",
            Target::Attempt,
            "Cancel this attempt?",
            "Cancel the attempt",
        )
        .destructive()],
        ..OperationDeclaration::new(
            "/api/v1/running/{id}/cancel",
            "Stops an attempt; its messages are deleted.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<CancelResult> {
        let result = call.site.cancel_attempt(call.target)?;
        Ok(cancelled(call.target.to_owned(), result))
    }
}

const HELP: &str = "\
Examples:
  dispatcher cancel redis:feeds wss://example.net/1        each of these tasks
  dispatcher cancel redis:default 1763764000123456-0123abcd   one message, by id
  dispatcher cancel local:orders 01999d1c-5f3e-7c40-8f7a-2f1f3a1b2c3d
  dispatcher cancel orders 5fea7756-0ea4-451a-a703-a558b933e274 \\
                    --admin 127.0.0.1:9090 --admin-token-file token
      one that runs in this process

Removes a waiting message, also one that waits for a delay or a retry. On Redis a running message is
removed as well, and its attempt is stopped: `cancelled` becomes true for the handler. Other
backends find messages only by id, and only the process that runs a message can cancel it: give the
address of that process with --admin. If the process cannot be reached or does not know the message,
only the queue is searched. An address in the file or in DISPATCHER_ADMIN is not used. SQS cannot
find a waiting message by its id. Prints how many waiting and running messages were cancelled, and
fails if there were none.";
