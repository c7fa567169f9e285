//! The operation `redrive`: moves dead letters back to their source queues.

use super::{
    ActionEntry, Command, FieldKind, Form, FormField, Operation, OperationDeclaration, Target,
    TypedRequest, VerbCall, VerbResult,
};
use crate::messages::{JobView, Work};
use crate::problem::FieldProblem;
use crate::redrive::SCANNED;
use crate::request::{
    AtLeastOne, Bodies, PerSecond, PluginText, QueueText, Scan, Share, ShellCommand,
};
use crate::requests;
use crate::select::Select;
use serde_json::{Value, json};

requests! {
    /// Dead letters to be moved back. All given conditions must hold.
    pub struct RedriveRequest {
        ..select: Select,
        /// The queue that all of them go to; without it each goes back to where it came from.
        to: QueueText,
        /// Maximum messages to move: the first ones.
        first: AtLeastOne,
        /// Maximum messages moved per second.
        rate: PerSecond,
        /// Maximum messages to inspect, if the queue cannot be listed; the default is 10,000.
        scan: Scan,
        /// Stop when the share of moved messages that failed again exceeds this; the default is
        /// 0.5.
        stop_at: Share,
        /// New bodies by message id. Each id must also be listed in `messages`.
        edits: Bodies,
        /// A shell command that reads each body and prints the new one. It runs where you type the
        /// command; a running process and the API refuse it.
        edit: ShellCommand,
        /// A plugin that is run on each message first, without any grant: with `--admin` the name of
        /// a plugin of the running process, without it a file. Only messages for which it is done are
        /// moved.
        r#try: PluginText,
        /// Moves them; without it they are only counted.
        apply: bool,
    }
}

impl RedriveRequest {
    /// Returns whether anything is moved.
    pub fn applies(&self) -> bool {
        self.apply.unwrap_or_default()
    }

    /// Returns the maximum number of messages that are moved: at most as many as ids were given.
    pub fn most(&self) -> Option<u64> {
        let first = self.first.map(|first| first.0 as u64);
        let ids = self.select.messages.as_ref().map(|ids| ids.0.len() as u64);
        match (first, ids) {
            (Some(first), Some(ids)) => Some(first.min(ids)),
            (first, ids) => first.or(ids),
        }
    }

    /// Returns the maximum number of messages per second.
    pub fn rate(&self) -> Option<f64> {
        self.rate.map(|PerSecond(rate)| rate)
    }

    /// Returns the maximum number of messages that are inspected.
    pub fn scan(&self) -> u64 {
        self.scan.map_or(SCANNED, |Scan(scan)| scan)
    }

    /// Returns the share of the moved messages that may fail again.
    pub fn stop_at(&self) -> f64 {
        self.stop_at.map_or(0.5, |Share(share)| share)
    }
}

/// The operation `redrive`.
pub struct RedriveVerb;

/// The form field of the destination queue.
const TO: FormField = FormField {
    name: "to",
    label: "To",
    help: "The queue that all of them go to. Empty: each goes back to where it came from.",
    kind: FieldKind::Optional,
};
const RATE: FormField = FormField {
    name: "rate",
    label: "Rate",
    help: "Maximum messages moved per second. Empty: as fast as possible.",
    kind: FieldKind::Number,
};
const FIRST: FormField = FormField {
    name: "first",
    label: "First",
    help: "Maximum messages to move. Empty: all.",
    kind: FieldKind::Number,
};

#[async_trait::async_trait]
impl Operation for RedriveVerb {
    type Request = RedriveRequest;
    type Answer = JobView;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        carries_bodies: true,
        starts_job: true,
        forms: &[Form {
            fields: &[TO, RATE, FIRST],
            request: |reason, mut typed| {
                if !reason.is_empty() {
                    typed.insert("reason_is".to_owned(), json!(reason));
                }
                typed.insert("apply".to_owned(), json!(true));
                typed
            },
            ..Form::new(
                "redrive",
                Target::Messages,
                "Redrive these messages?",
                "Redrive",
            )
        }],
        command: Some(Command {
            target: ("QUEUE", "The dead-letter queue"),
            json: "Print the report as JSON",
            ..Command::new(
                "redrive",
                "Move dead letters back to where they came from",
                HELP,
            )
        }),
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/redrive",
            "Moves dead letters back to where they came from; without `apply` it only counts them.",
        )
    };

    fn problems(request: &RedriveRequest) -> Vec<FieldProblem> {
        let selected = request.select.messages.as_ref();
        let edits = request.edits.iter().flat_map(|edits| &edits.0);
        let unselected = edits.filter(|(id, _)| !selected.is_some_and(|ids| ids.0.contains(id)));
        let problems = unselected.map(|(id, _)| {
            let found = format!("`{id}` is not one of `messages`");
            FieldProblem::new("edits", &found, "bodies of messages that `messages` names")
        });
        problems.collect()
    }

    async fn run(request: RedriveRequest, call: &VerbCall<'_>) -> VerbResult<JobView> {
        let messages = call.site.messages();
        let job = messages
            .start(call.target, Work::Redrive(Box::new(request)), call.by)
            .await?;
        Ok((job, ActionEntry::default()))
    }

    fn lines(_: &TypedRequest<'_>, job: &JobView) -> Vec<String> {
        job.lines()
    }

    fn printed(_: &TypedRequest<'_>, job: &JobView) -> Value {
        job.printed()
    }
}

const HELP: &str = "\
Examples:
  dispatcher redrive local:orders.dead                      count, move nothing
  dispatcher redrive local:orders.dead --apply
  dispatcher redrive orders-dlq --reason 'time.?out' --first 10 --apply
  dispatcher redrive orders-dlq --where /customer/country=CH --older 1h \\
                     --rate 10/s --apply
  dispatcher redrive redis:orders.dead --edit 'jq -c .version=2' \\
                     --try handler.wasm --apply
  dispatcher redrive orders-dlq --apply --admin 127.0.0.1:9090 \\
                     --admin-token-file token    by a running process

Without --apply nothing is moved: the messages are counted by reason and destination. A message goes
to --to, else to the queue whose redrive policy moved it, else to the queue that its attribute
dispatcher-dead-letter-source names; if none is known, it stays and is reported. It is sent, and deleted once the send is confirmed; a message
whose move a crash interrupts is sent twice at most, and never lost. Run it again to go on.

SQS cannot list messages. To inspect them, redrive receives up to --scan of them: this raises their
receive count and hides them from other consumers until it ends.

Exits with 1 if a selected message stays (without --apply: would stay), or if the run ended early.";
