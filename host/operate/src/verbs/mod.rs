//! The operations of operators and producers. Each is declared once: one file for each operation or
//! pair of them, and one line in `VERBS`. The endpoint, its entry in the OpenAPI document, the log
//! line, the sub-command and the form on a page are derived from that.

pub mod cancel;
pub mod control;
pub mod delete;
pub mod fleet;
pub mod jobs;
pub mod move_messages;
pub mod process;
pub mod purge;
pub mod redrive;
pub mod resend;
pub mod routes;
pub mod scan;
pub mod schedules;
pub mod send;

use crate::problem::{CallProblem, FieldProblem, StatusCode};
use crate::request::{Field, Request, UnreadFields, read_given};
use crate::requester::Requester;
use crate::requests;
use crate::schema::{Components, Schema};
use crate::site::Site;
use dispatcher_core::tasks;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::pin::Pin;

/// All operations, in the order of the documentation.
pub static VERBS: &[Verb] = &[
    Verb::of::<send::SendVerb>(),
    Verb::of::<control::PauseVerb>(),
    Verb::of::<control::ResumeVerb>(),
    Verb::of::<control::LimitVerb>(),
    Verb::of::<cancel::CancelVerb>(),
    Verb::of::<scan::ScanVerb>(),
    Verb::of::<delete::DeleteVerb>(),
    Verb::of::<resend::ResendVerb>(),
    Verb::of::<redrive::RedriveVerb>(),
    Verb::of::<move_messages::MoveVerb>(),
    Verb::of::<purge::PurgeVerb>(),
    Verb::of::<jobs::CancelJobVerb>(),
    Verb::of::<jobs::RestartJobVerb>(),
    Verb::of::<routes::PauseRouteVerb>(),
    Verb::of::<routes::ResumeRouteVerb>(),
    Verb::of::<routes::LimitRouteVerb>(),
    Verb::of::<routes::ChangeWeightVerb>(),
    Verb::of::<cancel::CancelAttemptVerb>(),
    Verb::of::<schedules::RunScheduleVerb>(),
    Verb::of::<schedules::CancelScheduleVerb>(),
    Verb::of::<process::ReloadVerb>(),
    Verb::of::<routes::RollBackVerb>(),
    Verb::of::<process::ReloadSettingsVerb>(),
    Verb::of::<process::DrainVerb>(),
    Verb::of::<fleet::ChangeLimitVerb>(),
    Verb::of::<fleet::LogLevelVerb>(),
    Verb::of::<fleet::FindVerb>(),
    Verb::of::<fleet::CancelAnywhereVerb>(),
];

/// An operation.
#[async_trait::async_trait]
pub trait Operation: 'static {
    /// The type of its request.
    type Request: Request + Send + Sync + 'static;
    /// The type of its answer.
    type Answer: Schema + Serialize + DeserializeOwned + Send;

    /// The rest of its declaration.
    const DECLARED: OperationDeclaration;

    /// Returns the problems of a request beyond its single fields.
    fn problems(_request: &Self::Request) -> Vec<FieldProblem> {
        Vec::new()
    }

    /// Runs the operation. Returns its answer and its log entry. A job logs its own end.
    async fn run(request: Self::Request, call: &VerbCall<'_>) -> VerbResult<Self::Answer>;

    /// Returns the output of a command for people. Without any, the command prints its JSON.
    fn lines(_asked: &TypedRequest<'_>, _answer: &Self::Answer) -> Vec<String> {
        Vec::new()
    }

    /// Returns the JSON output of a command.
    fn printed(_asked: &TypedRequest<'_>, answer: &Self::Answer) -> Value {
        json!(answer)
    }
}

/// The declaration of an operation besides its request, its answer and its code.
#[derive(Debug, Clone, Copy)]
pub struct OperationDeclaration {
    /// The path of its endpoint, with the target in braces.
    pub path: &'static str,
    /// The description, in one sentence.
    pub summary: &'static str,
    /// Whether producers may request it. Its idempotency key makes it safe to repeat.
    pub is_for_producers: bool,
    /// Whether its requests may contain message bodies.
    pub carries_bodies: bool,
    /// Whether its answer is a job, which continues after the answer.
    pub starts_job: bool,
    /// Its forms on pages.
    pub forms: &'static [Form],
    /// Its sub-command, if it has one.
    pub command: Option<Command>,
}

impl OperationDeclaration {
    /// Declares an operation that only the API has.
    pub const fn new(path: &'static str, summary: &'static str) -> Self {
        Self {
            path,
            summary,
            is_for_producers: false,
            carries_bodies: false,
            starts_job: false,
            forms: &[],
            command: None,
        }
    }

    /// Returns the parameter of its path.
    pub fn parameter(&self) -> Option<&'static str> {
        let (_, rest) = self.path.split_once('{')?;
        rest.split_once('}').map(|(name, _)| name)
    }
}

/// A sub-command.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// The name.
    pub name: &'static str,
    /// The description, in one line.
    pub about: &'static str,
    /// The examples and notes.
    pub help: &'static str,
    /// The additional text of the long help.
    pub more: &'static str,
    /// The target: its name in the help, and its description.
    pub target: (&'static str, &'static str),
    /// The field that is a positional argument after the target, with its name in the help.
    pub placed: Option<(&'static str, &'static str)>,
    /// The description of the output of `--json`.
    pub json: &'static str,
    /// The fields of which at least one is required.
    pub needs_one_of: &'static [&'static str],
    /// The switch that sets all of them to `null`, with its description.
    pub reset: Option<&'static str>,
    /// Whether the command runs the operation itself if the process cannot be reached or does not
    /// know the target.
    pub goes_on_by_itself: bool,
}

impl Command {
    /// Declares a command with a queue as the target.
    pub const fn new(name: &'static str, about: &'static str, help: &'static str) -> Self {
        Self {
            name,
            about,
            help,
            more: "",
            target: ("QUEUE", "The queue"),
            placed: None,
            json: "Print the answer as JSON",
            needs_one_of: &[],
            reset: None,
            goes_on_by_itself: false,
        }
    }
}

/// The kind of target of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A queue.
    Queue,
    /// A route.
    Route,
    /// A running attempt.
    Attempt,
    /// The messages in a queue: all, those with a reason, or one by its id.
    Messages,
    /// A job.
    Job,
    /// A scheduled message.
    Schedule,
    /// The whole process.
    Program,
}

/// A form on a page that asks for confirmation before an operation.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// The name in its address.
    pub name: &'static str,
    /// The kind of target.
    pub target: Target,
    /// The title, which is a question.
    pub title: &'static str,
    /// The label of its button.
    pub button: &'static str,
    /// Whether its operation cannot be undone.
    pub is_destructive: bool,
    /// The input fields.
    pub fields: &'static [FormField],
    /// Builds the request from the selected part of the target and the input.
    pub request: fn(&str, Map<String, Value>) -> Map<String, Value>,
}

impl Form {
    /// Declares a form without fields.
    pub const fn new(
        name: &'static str,
        target: Target,
        title: &'static str,
        button: &'static str,
    ) -> Self {
        Self {
            name,
            target,
            title,
            button,
            is_destructive: false,
            fields: &[],
            request: |_, typed| typed,
        }
    }

    /// Marks the form as one whose operation cannot be undone.
    #[must_use]
    pub const fn destructive(self) -> Self {
        Self {
            is_destructive: true,
            ..self
        }
    }
}

/// A field of a form.
#[derive(Debug, Clone, Copy)]
pub struct FormField {
    /// The name of the field in the request.
    pub name: &'static str,
    /// The label.
    pub label: &'static str,
    /// The description, including the meaning of an empty field.
    pub help: &'static str,
    /// The kind of value.
    pub kind: FieldKind,
}

/// The kind of value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A number; empty for the configured one.
    Limit,
    /// A number, or empty.
    Number,
    /// A required text.
    Text,
    /// A text, or empty.
    Optional,
    /// The body of a message.
    Body,
}

/// A call of an operation.
#[derive(Clone, Copy)]
pub struct VerbCall<'a> {
    /// The site where it runs.
    pub site: &'a dyn Site,
    /// The target in its path; empty without one.
    pub target: &'a str,
    /// The requester.
    pub by: &'a Requester,
    /// The key that identifies a repeated call.
    pub key: Option<&'a str>,
}

/// The request of a command.
#[derive(Debug, Clone, Copy)]
pub struct TypedRequest<'a> {
    /// The target.
    pub target: &'a str,
    /// The request.
    pub request: &'a Value,
}

impl TypedRequest<'_> {
    /// Returns a text of the request.
    pub fn text(&self, name: &str) -> &str {
        self.request[name].as_str().unwrap_or_default()
    }
}

/// The log entry of an operation that was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionEntry {
    /// The target.
    pub target: String,
    /// The number of changed items.
    pub count: u64,
    /// The change of state and its target, for followers of the event stream.
    pub change: Option<(&'static str, String)>,
}

impl ActionEntry {
    /// Creates an entry for `count` items of a target.
    pub fn new(target: impl Into<String>, count: u64) -> Self {
        Self {
            target: target.into(),
            count,
            change: None,
        }
    }
}

/// An answer and its log entry.
pub type VerbResult<T> = Result<(T, ActionEntry), CallProblem>;

/// A running operation.
pub type RunningVerb<'a> =
    Pin<Box<dyn Future<Output = Result<(Value, ActionEntry), CallProblem>> + Send + 'a>>;

/// The output of a command: for people, and as JSON.
pub type CommandOutput = (Vec<String>, Value);

/// An operation in the table.
pub struct Verb {
    /// The declaration.
    pub declared: OperationDeclaration,
    /// Returns the fields of its request.
    pub fields: fn() -> Vec<Field>,
    /// Returns the schema of its request.
    pub request: fn(&mut Components) -> Value,
    /// Returns the schema of its answer.
    pub answer: fn(&mut Components) -> Value,
    /// Checks a request, and returns its normalized form.
    pub check: fn(UnreadFields) -> Result<Value, Vec<FieldProblem>>,
    /// Runs the operation.
    pub run: for<'a> fn(UnreadFields, VerbCall<'a>) -> RunningVerb<'a>,
    /// Formats the answer as the output of a command: for people, and as JSON.
    pub print: fn(&TypedRequest<'_>, Value) -> serde_json::Result<CommandOutput>,
}

impl Verb {
    const fn of<O: Operation>() -> Self {
        Self {
            declared: O::DECLARED,
            fields: <O::Request as Request>::fields,
            request: <O::Request as Schema>::schema,
            answer: <O::Answer as Schema>::schema,
            check: |given| Ok(read_given(given, O::problems)?.json()),
            run: |given, call| Box::pin(run::<O>(given, call)),
            print: |asked, answer| {
                let answer = serde_json::from_value(answer)?;
                Ok((O::lines(asked, &answer), O::printed(asked, &answer)))
            },
        }
    }
}

async fn run<O: Operation>(
    given: UnreadFields,
    call: VerbCall<'_>,
) -> Result<(Value, ActionEntry), CallProblem> {
    let request = if O::DECLARED.carries_bodies {
        // Reading a large request takes a while.
        tasks::blocking(move || read::<O>(given)).finished().await?
    } else {
        read::<O>(given)?
    };
    let (answer, done) = O::run(request, &call).await?;
    let answer = serde_json::to_value(answer).map_err(|error| {
        let why = format!("The answer cannot be written: {error}");
        CallProblem::new(StatusCode::INTERNAL_SERVER_ERROR, why)
    })?;
    Ok((answer, done))
}

fn read<O: Operation>(given: UnreadFields) -> Result<O::Request, CallProblem> {
    read_given(given, O::problems).map_err(CallProblem::fields)
}

requests! {
    /// A request without fields; the body may be empty.
    pub struct NoFields {}
}

/// Returns the problem of a missing field.
fn missing(field: &str, wanted: &str) -> CallProblem {
    CallProblem::fields(vec![FieldProblem::new(field, "it is missing", wanted)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn forms_and_commands_name_fields_of_their_requests() {
        let mut names = BTreeSet::new();
        for verb in VERBS {
            let declared = (verb.fields)();
            let fields: Vec<&str> = declared.iter().map(|field| field.name).collect();
            for form in verb.declared.forms {
                assert!(names.insert(form.name), "{} is there twice", form.name);
                let typed = form
                    .fields
                    .iter()
                    .map(|one| (one.name.to_owned(), json!(1)));
                let request = (form.request)("part", typed.collect());
                for name in request.keys() {
                    assert!(fields.contains(&name.as_str()), "{}: {name}", form.name);
                }
            }
            let Some(command) = verb.declared.command else {
                continue;
            };
            let placed = command.placed.map(|(name, _)| name);
            for name in command.needs_one_of.iter().copied().chain(placed) {
                assert!(fields.contains(&name), "{}: {name}", command.name);
            }
        }
    }
}
