//! The operations that pause a queue or change its limits while processes receive from it.

use super::{
    ActionEntry, Command, FieldKind, Form, FormField, OperationDeclaration, TypedRequest, VerbCall,
    VerbResult,
};
use super::{NoFields, Operation, Target};
use crate::operations::ControlResult;
use crate::problem::{CallProblem, FieldProblem};
use crate::request::AtLeastOne;
use crate::requests;
use dispatcher_core::control::ControlChange;
use serde_json::{Value, json};

requests! {
    /// Limits of a queue.
    pub struct QueueLimits {
        /// Maximum concurrent attempts at its messages, in each process that it affects.
        concurrency: Option<AtLeastOne>,
        /// Maximum messages of it started per second, in each process that it affects.
        rate: Option<f64>,
        /// Maximum messages that its route holds beyond those that run, in each process that it
        /// affects.
        prefetch: Option<usize>,
    }
}

/// Pauses a queue.
pub struct PauseVerb;
/// Resumes a queue.
pub struct ResumeVerb;
/// Changes limits of a queue.
pub struct LimitVerb;

/// The fields of limits in forms.
pub(super) const CONCURRENCY: FormField = FormField {
    name: "concurrency",
    label: "Concurrency",
    help: "Maximum concurrent attempts. Empty: as configured.",
    kind: FieldKind::Limit,
};
pub(super) const PREFETCH: FormField = FormField {
    name: "prefetch",
    label: "Prefetch",
    help: "Maximum messages held beyond those that run. Empty: as configured.",
    kind: FieldKind::Limit,
};
const RATE: FormField = FormField {
    name: "rate",
    label: "Rate",
    help: "Maximum messages started per second. Empty: as configured.",
    kind: FieldKind::Limit,
};

/// Declares a command that changes a setting of a queue.
const fn control(name: &'static str, about: &'static str, help: &'static str) -> Command {
    Command {
        json: "Print JSON: {\"target\",\"affects\",\"until\",\"within_s\",\"process\"}",
        ..Command::new(name, about, help)
    }
}

/// The command that changes limits of a queue, or a limit of all processes.
pub(super) const LIMIT_COMMAND: Command = Command {
    more: SHARED,
    target: ("NAME", "The queue, or the limit of all processes"),
    reset: Some("Reset all limits to the configured ones, except those given with it"),
    ..control(
        "limit",
        "Change limits of a queue, or a limit of all processes, without restarting them",
        LIMIT,
    )
};

#[async_trait::async_trait]
impl Operation for PauseVerb {
    type Request = NoFields;
    type Answer = ControlResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new(
            "pause-queue",
            Target::Queue,
            "Pause this queue?",
            "Pause",
        )],
        command: Some(Command {
            more: SHARED,
            ..control(
                "pause",
                "Stop receiving from a queue without stopping processes",
                PAUSE,
            )
        }),
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/pause",
            "Pauses a queue: no more messages are received, and held ones that have not started \
             are given back.",
        )
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<ControlResult> {
        change(call, &paused(true), "queue paused").await
    }

    fn lines(asked: &TypedRequest<'_>, answer: &ControlResult) -> Vec<String> {
        vec![line(asked.target, "paused", "read", answer)]
    }

    fn printed(_: &TypedRequest<'_>, answer: &ControlResult) -> Value {
        printed(answer)
    }
}

#[async_trait::async_trait]
impl Operation for ResumeVerb {
    type Request = NoFields;
    type Answer = ControlResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form::new(
            "resume-queue",
            Target::Queue,
            "Resume this queue?",
            "Resume",
        )],
        command: Some(control(
            "resume",
            "Receive from a paused queue again",
            "Examples:\n  dispatcher resume redis:payments",
        )),
        ..OperationDeclaration::new("/api/v1/queues/{queue}/resume", "Resumes a queue.")
    };

    async fn run(_: NoFields, call: &VerbCall<'_>) -> VerbResult<ControlResult> {
        change(call, &paused(false), "queue resumed").await
    }

    fn lines(asked: &TypedRequest<'_>, answer: &ControlResult) -> Vec<String> {
        vec![line(asked.target, "resumed", "read", answer)]
    }

    fn printed(_: &TypedRequest<'_>, answer: &ControlResult) -> Value {
        printed(answer)
    }
}

#[async_trait::async_trait]
impl Operation for LimitVerb {
    type Request = QueueLimits;
    type Answer = ControlResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form {
            fields: &[CONCURRENCY, RATE, PREFETCH],
            ..Form::new(
                "limit-queue",
                Target::Queue,
                "Change limits of this queue",
                "Change",
            )
        }],
        command: Some(Command {
            needs_one_of: &["concurrency", "rate", "prefetch"],
            ..LIMIT_COMMAND
        }),
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/limits",
            "Changes limits of a queue; `null` resets one to the configured value.",
        )
    };

    async fn run(request: QueueLimits, call: &VerbCall<'_>) -> VerbResult<ControlResult> {
        let QueueLimits {
            concurrency,
            rate,
            prefetch,
        } = request;
        let limits = ControlChange {
            paused: None,
            concurrency: concurrency.map(|limit| limit.map(|limit| limit.0)),
            rate,
            prefetch,
        };
        if limits == ControlChange::default() {
            return Err(nothing("concurrency, rate or prefetch"));
        }
        change(call, &limits, "queue limited").await
    }

    fn lines(asked: &TypedRequest<'_>, answer: &ControlResult) -> Vec<String> {
        vec![line(asked.target, "limited", "read", answer)]
    }

    fn printed(_: &TypedRequest<'_>, answer: &ControlResult) -> Value {
        printed(answer)
    }
}

/// The change of a pause.
pub(super) fn paused(paused: bool) -> ControlChange {
    ControlChange {
        paused: Some(paused),
        ..ControlChange::default()
    }
}

async fn change(
    call: &VerbCall<'_>,
    change: &ControlChange,
    what: &'static str,
) -> VerbResult<ControlResult> {
    let result = call.site.change_queue(call.target, change).await?;
    Ok(controlled(what, result))
}

/// Returns the log entry of a change.
pub(super) fn controlled(
    what: &'static str,
    result: ControlResult,
) -> (ControlResult, ActionEntry) {
    let done = ActionEntry {
        change: Some((what, result.target.clone())),
        ..ActionEntry::new(&result.target, result.queues.len() as u64)
    };
    (result, done)
}

/// Returns the problem of a request that changes nothing.
pub(super) fn nothing(wanted: &str) -> CallProblem {
    CallProblem::fields(vec![FieldProblem::new("", "it changes nothing", wanted)])
}

/// Describes which processes apply a change: those that, as in `read`, use the target.
pub(super) fn line(target: &str, done: &str, read: &str, answer: &ControlResult) -> String {
    let (within, process) = (answer.within_s, &answer.process);
    match &*answer.affects {
        "all-processes" => format!(
            "{target} {done} for all processes that {read} it, within {within} s, until it is changed"
        ),
        "this-machine" => format!(
            "{target} {done} for the processes of this machine only, within {within} s, until it is \
             changed: [fleet] has the store of this machine"
        ),
        _ => format!("{target} {done} for process {process} alone, until it ends"),
    }
}

/// Returns the JSON output. It names no process if processes apply the change through a store.
pub(super) fn printed(answer: &ControlResult) -> Value {
    let process = if answer.affects == "this-process" {
        Some(&answer.process)
    } else {
        None
    };
    json!({
        "target": answer.target,
        "affects": answer.affects,
        "until": answer.until,
        "within_s": answer.within_s,
        "process": process,
    })
}

const SHARED: &str = "\
On Redis, DynamoDB and local queues it is stored with the queue: it applies to all processes that
read the queue, within 2 seconds, and to those that start later, until it is changed again. SQS
cannot store it, so it is stored for the fleet of --config, if one of its processes reads the queue;
otherwise name a process with --admin. By default the fleet is the processes of one machine; the
store of [fleet] makes it larger.";

const PAUSE: &str = "\
Examples:
  dispatcher pause redis:payments
  dispatcher pause payments --admin 127.0.0.1:9090 --admin-token-file token
      the fleet of this process, on SQS
  dispatcher pause payments --config dispatcher.toml
      the fleet of this file, on SQS

No more messages are received. Running attempts finish. Held messages that have not started are
given back without counting an attempt.";

const LIMIT: &str = "\
Examples:
  dispatcher limit redis:payments --rate 5
  dispatcher limit local:mail --concurrency 2 --prefetch 0
  dispatcher limit redis:payments --reset
  dispatcher limit payments-api --rate 50 --admin 127.0.0.1:9090
  dispatcher limit per-customer --key acme --rate 5 --admin 127.0.0.1:9090

Each process that reads the queue has these limits, in place of the configured ones. If no queue has
the name, it is that of a [limit.NAME], whose numbers all processes keep to together. Only limits
have --burst and --key, only queues --prefetch.";
