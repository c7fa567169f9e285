//! The operation `scan`: inspects messages. If the queue cannot be listed, it receives them.

use super::{ActionEntry, Form, Operation, OperationDeclaration, Target, VerbCall, VerbResult};
use crate::messages::{LookTerms, MessageList};
use crate::operations::MOST_ITEMS;
use crate::problem::FieldProblem;
use crate::request::{AtLeastOne, Scan};
use crate::requests;
use crate::select::Select;

requests! {
    /// Which messages of a queue to show.
    pub struct ScanRequest {
        ..select: Select,
        /// Maximum messages to show; the default is 100.
        limit: AtLeastOne,
        /// Maximum messages to inspect; the default is 10,000.
        scan: Scan,
    }
}

/// The operation `scan`.
pub struct ScanVerb;

#[async_trait::async_trait]
impl Operation for ScanVerb {
    type Request = ScanRequest;
    type Answer = MessageList;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new(
            "look",
            Target::Messages,
            "Look at the messages?",
            "Look",
        )],
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/scan",
            "Shows the messages of a queue: if it cannot be listed, receives them and gives them \
             back.",
        )
    };

    fn problems(request: &ScanRequest) -> Vec<FieldProblem> {
        let limit = request.limit.filter(|limit| limit.0 > MOST_ITEMS);
        let problem = limit.map(|AtLeastOne(limit)| {
            let found = format!("{limit} cannot be used");
            let wanted = format!("a whole number from 1 to {MOST_ITEMS}");
            FieldProblem::new("limit", &found, &wanted)
        });
        problem.into_iter().collect()
    }

    async fn run(request: ScanRequest, call: &VerbCall<'_>) -> VerbResult<MessageList> {
        let terms = LookTerms {
            receives: true,
            ..LookTerms::default()
        };
        let messages = call.site.messages();
        let found = messages.look(call.target, &request, &terms).await?;
        let received = found.received.0;
        Ok((found, ActionEntry::new(call.target, received)))
    }
}
