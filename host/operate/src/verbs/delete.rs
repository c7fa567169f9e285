//! The operation `delete`: removes a waiting message.

use super::resend::of_message;
use super::{
    ActionEntry, Form, Operation, OperationDeclaration, Target, VerbCall, VerbResult, missing,
};
use crate::messages::DeleteResult;
use crate::request::MessageId;
use crate::requests;

requests! {
    /// A message to be deleted.
    pub struct DeleteMessage {
        /// Its id.
        message: MessageId,
    }
}

/// The operation `delete`.
pub struct DeleteVerb;

#[async_trait::async_trait]
impl Operation for DeleteVerb {
    type Request = DeleteMessage;
    type Answer = DeleteResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form {
            request: of_message,
            ..Form::new(
                "delete-message",
                Target::Messages,
                "Delete this message?",
                "Delete",
            )
            .destructive()
        }],
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/delete",
            "Deletes a message that waits, where the queue can be listed.",
        )
    };

    async fn run(request: DeleteMessage, call: &VerbCall<'_>) -> VerbResult<DeleteResult> {
        let message = request.message;
        let MessageId(id) = message.ok_or_else(|| missing("message", "the id of a message"))?;
        let deleted = call.site.messages().delete(call.target, &id).await?;
        Ok((
            deleted,
            ActionEntry::new(format!("{} {id}", call.target), 1),
        ))
    }
}
