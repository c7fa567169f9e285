//! The operation `move`: moves messages to another queue unchanged.

use super::{
    ActionEntry, Command, Operation, OperationDeclaration, TypedRequest, VerbCall, VerbResult,
};
use crate::messages::{JobView, Work};
use crate::problem::FieldProblem;
use crate::request::{AtLeastOne, PerSecond, QueueText};
use crate::requests;
use crate::verbs::redrive::RedriveRequest;
use serde_json::{Value, json};

requests! {
    /// Messages to be moved as they are.
    pub struct MoveMessages {
        /// The queue that they go to.
        to: QueueText,
        /// Maximum messages to move: the first ones.
        first: AtLeastOne,
        /// Maximum messages moved per second.
        rate: PerSecond,
        /// Moves them; without it they are only counted.
        apply: bool,
    }
}

impl MoveMessages {
    /// Returns the equivalent redrive of all messages.
    pub fn redrive(self) -> RedriveRequest {
        let Self {
            to,
            first,
            rate,
            apply,
        } = self;
        RedriveRequest {
            to,
            first,
            rate,
            apply,
            ..RedriveRequest::default()
        }
    }
}

/// The operation `move`.
pub struct MoveVerb;

#[async_trait::async_trait]
impl Operation for MoveVerb {
    type Request = MoveMessages;
    type Answer = JobView;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        starts_job: true,
        command: Some(Command {
            target: ("FROM", "The queue to take messages from"),
            placed: Some(("to", "TO")),
            json: "Print the report as JSON",
            ..Command::new("move", "Move messages from one queue to another", HELP)
        }),
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/move",
            "Moves messages to another queue as they are; without `apply` it only counts them.",
        )
    };

    fn problems(request: &MoveMessages) -> Vec<FieldProblem> {
        let is_missing = request.to.is_none();
        is_missing
            .then(|| FieldProblem::new("to", "it is missing", "the queue that they go to"))
            .into_iter()
            .collect()
    }

    async fn run(request: MoveMessages, call: &VerbCall<'_>) -> VerbResult<JobView> {
        let messages = call.site.messages();
        let job = messages
            .start(call.target, Work::Move(request), call.by)
            .await?;
        Ok((job, ActionEntry::default()))
    }

    fn lines(asked: &TypedRequest<'_>, job: &JobView) -> Vec<String> {
        if job.applied {
            return job.lines();
        }
        let (from, to) = (&job.queue, asked.text("to"));
        vec![
            format!("{from}: {} would go to {to}", would_move(asked, job)),
            "nothing was moved; add --apply to move them".to_owned(),
        ]
    }

    fn printed(asked: &TypedRequest<'_>, job: &JobView) -> Value {
        if job.applied {
            return job.printed();
        }
        json!({
            "queue": job.queue,
            "to": asked.text("to"),
            "applied": false,
            "matched": would_move(asked, job),
        })
    }
}

/// Returns how many messages would be moved.
fn would_move(asked: &TypedRequest<'_>, job: &JobView) -> u64 {
    let waiting = job.waiting.unwrap_or_default().0;
    let first = asked.request["first"].as_u64();
    first.map_or(waiting, |first| waiting.min(first))
}

const HELP: &str = "\
Examples:
  dispatcher move local:old local:new             count, move nothing
  dispatcher move local:old local:new --apply
  dispatcher move orders redis:orders --first 100 --rate 50/s --apply

Body, attributes, group and trace header stay as they are. Moves the messages that wait when it
begins; later ones stay. Each message is sent, and deleted once the send is confirmed. Run it again
to go on.";
