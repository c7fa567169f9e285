//! The operation `resend`: moves one message back, optionally with another body.

use super::{
    ActionEntry, FieldKind, Form, FormField, Operation, OperationDeclaration, Target, VerbCall,
    VerbResult, missing,
};
use crate::messages::{JobView, Work};
use crate::request::{Bodies, MessageId, QueueText, Scan};
use crate::requests;
use crate::select::Select;
use crate::verbs::redrive::RedriveRequest;
use serde_json::{Map, Value, json};

requests! {
    /// A message to be sent again.
    pub struct ResendMessage {
        /// Its id.
        message: MessageId,
        /// The body to send; its own without it.
        body: String,
        /// The queue that it goes to; without it, the queue that it came from.
        to: QueueText,
        /// Maximum messages to inspect to find it, if the queue cannot be listed; the default is
        /// 10,000.
        scan: Scan,
    }
}

/// The operation `resend`.
pub struct ResendVerb;

/// Adds the message of a form to its request.
pub(super) fn of_message(id: &str, mut typed: Map<String, Value>) -> Map<String, Value> {
    typed.insert("message".to_owned(), json!(id));
    typed
}

#[async_trait::async_trait]
impl Operation for ResendVerb {
    type Request = ResendMessage;
    type Answer = JobView;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        carries_bodies: true,
        starts_job: true,
        forms: &[
            Form {
                request: of_message,
                ..Form::new(
                    "resend-message",
                    Target::Messages,
                    "Redrive this message?",
                    "Redrive",
                )
            },
            Form {
                fields: &[FormField {
                    name: "body",
                    label: "Body",
                    help: "The body to send instead of its own.",
                    kind: FieldKind::Body,
                }],
                request: of_message,
                ..Form::new(
                    "edit-message",
                    Target::Messages,
                    "Edit and redrive this message",
                    "Redrive",
                )
            },
        ],
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/resend",
            "Sends one message again, with another body if one is given, and deletes the original.",
        )
    };

    async fn run(request: ResendMessage, call: &VerbCall<'_>) -> VerbResult<JobView> {
        let ResendMessage {
            message,
            body,
            to,
            scan,
        } = request;
        let MessageId(id) = message.ok_or_else(|| missing("message", "the id of a message"))?;
        let messages = call.site.messages();
        messages.must_wait(call.target, &id).await?;
        let work = Work::Redrive(Box::new(RedriveRequest {
            select: Select::of_ids(vec![id.clone()]),
            to,
            scan,
            edits: body.map(|body| Bodies(vec![(id, body)])),
            apply: Some(true),
            ..RedriveRequest::default()
        }));
        let started = messages.start(call.target, work, call.by).await;
        let job = started.map_err(|mut problem| {
            // The request has one `message`, but a redrive has a list of `messages`.
            for error in &mut problem.errors {
                if error.field == "messages" {
                    error.field = "message".to_owned();
                }
            }
            problem
        })?;
        Ok((job, ActionEntry::default()))
    }
}
