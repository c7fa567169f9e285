//! The operations on all processes of the fleet.

use super::cancel::MESSAGE;
use super::control::{LIMIT_COMMAND, controlled, line, nothing, printed};
use super::{
    ActionEntry, Command, FieldKind, Form, FormField, Operation, OperationDeclaration, Target,
    TypedRequest, VerbCall, VerbResult, missing,
};
use crate::fleet::{FoundMessages, LogLevelResult};
use crate::operations::ControlResult;
use crate::request::{AtLeastOne, LimitKeyText, MessageId, QueueText};
use crate::requests;
use dispatcher_core::fleet::control::{FleetRequest, LimitChange};
use serde_json::Value;

requests! {
    /// Numbers of a limit, for each key or for one.
    pub struct FleetLimitNumbers {
        /// The only key of a limit of all processes whose numbers change.
        key: LimitKeyText,
        /// Maximum messages that run at the same time in all processes.
        concurrency: Option<AtLeastOne>,
        /// Maximum messages that all processes start per second.
        rate: Option<f64>,
        /// How many messages may start at once after a pause.
        burst: Option<AtLeastOne>,
    }

    /// A filter of log lines.
    pub struct LogFilter {
        /// A level or directives, as `--log-level` takes them.
        level: Option<String>,
    }

    /// A message that runs in some process.
    pub struct RunningMessageId {
        /// Its id.
        message: MessageId,
        /// Its queue; the default is any.
        queue: QueueText,
    }
}

/// Changes the numbers of a limit.
pub struct ChangeLimitVerb;
/// Changes the log level.
pub struct LogLevelVerb;
/// Finds the process that runs a message.
pub struct FindVerb;
/// Cancels a message that runs in any process.
pub struct CancelAnywhereVerb;

#[async_trait::async_trait]
impl Operation for ChangeLimitVerb {
    type Request = FleetLimitNumbers;
    type Answer = ControlResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        command: Some(Command {
            needs_one_of: &["concurrency", "rate", "burst"],
            ..LIMIT_COMMAND
        }),
        ..OperationDeclaration::new(
            "/api/v1/fleet/limits/{limit}",
            "Changes the numbers of a limit, or of one of its keys, for all processes; `null` resets one to the configured value.",
        )
    };

    async fn run(request: FleetLimitNumbers, call: &VerbCall<'_>) -> VerbResult<ControlResult> {
        let change = LimitChange {
            concurrency: request.concurrency.map(whole_number),
            rate: request.rate,
            burst: request.burst.map(whole_number),
        };
        if change == LimitChange::default() {
            return Err(nothing("concurrency, rate or burst"));
        }
        let key = request.key.map(|key| key.0);
        let result = call.site.change_limit(call.target, key, &change).await?;
        Ok(controlled("limit changed", result))
    }

    fn lines(_: &TypedRequest<'_>, answer: &ControlResult) -> Vec<String> {
        let limit = format!("limit {}", answer.target);
        vec![line(&limit, "changed", "keep to", answer)]
    }

    fn printed(_: &TypedRequest<'_>, answer: &ControlResult) -> Value {
        printed(answer)
    }
}

#[async_trait::async_trait]
impl Operation for LogLevelVerb {
    type Request = LogFilter;
    type Answer = LogLevelResult;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form {
            fields: &[FormField {
                name: "level",
                label: "Log level",
                help: "A level such as debug, or directives such as info,guest=debug. Empty: as configured.",
                kind: FieldKind::Limit,
            }],
            ..Form::new(
                "log-level",
                Target::Program,
                "Change the log level of all processes?",
                "Change",
            )
        }],
        ..OperationDeclaration::new(
            "/api/v1/fleet/log-level",
            "Changes the log level of all processes; `null` resets it to the configured one.",
        )
    };

    async fn run(request: LogFilter, call: &VerbCall<'_>) -> VerbResult<LogLevelResult> {
        let level = request
            .level
            .ok_or_else(|| missing("level", "a level, as in debug, or null"))?;
        let result = call.site.change_log_level(level).await?;
        Ok((result, ActionEntry::new("log level", 1)))
    }
}

#[async_trait::async_trait]
impl Operation for FindVerb {
    type Request = RunningMessageId;
    type Answer = FoundMessages;

    const DECLARED: OperationDeclaration = OperationDeclaration::new(
        "/api/v1/fleet/find",
        "Finds the process that runs a message; waits up to 3 seconds for the answers of all.",
    );

    async fn run(request: RunningMessageId, call: &VerbCall<'_>) -> VerbResult<FoundMessages> {
        find(request, call, false).await
    }
}

#[async_trait::async_trait]
impl Operation for CancelAnywhereVerb {
    type Request = RunningMessageId;
    type Answer = FoundMessages;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        forms: &[Form {
            fields: &[MESSAGE],
            ..Form::new(
                "cancel-anywhere",
                Target::Program,
                "Cancel a message that runs in any process?",
                "Cancel the message",
            )
            .destructive()
        }],
        ..OperationDeclaration::new(
            "/api/v1/fleet/cancel",
            "Cancels a message in the process that runs it: its attempt is stopped, and it is deleted.",
        )
    };

    async fn run(request: RunningMessageId, call: &VerbCall<'_>) -> VerbResult<FoundMessages> {
        find(request, call, true).await
    }
}

/// Converts a number, which is at most 1,000,000.
fn whole_number(limit: Option<AtLeastOne>) -> Option<u32> {
    limit.and_then(|limit| u32::try_from(limit.0).ok())
}

async fn find(
    request: RunningMessageId,
    call: &VerbCall<'_>,
    cancels: bool,
) -> VerbResult<FoundMessages> {
    let message = request.message;
    let MessageId(message) = message.ok_or_else(|| missing("message", "the id of a message"))?;
    let asked = FleetRequest {
        message: message.clone(),
        queue: request.queue.map(|queue| queue.0),
        cancels,
        ..FleetRequest::default()
    };
    let found = call.site.find_message(asked).await?;
    let cancelled = found.items.iter().filter(|item| cancels && item.cancelled);
    let done = ActionEntry::new(message, cancelled.count() as u64);
    Ok((found, done))
}
