//! Tracks the results of a guest's invocations: one log line for each that did not succeed, and the
//! cause of a retry. Knows no queue and makes no invocation.

use super::functions::Denied;
use crate::causes::Causes;
use dispatcher_core::lambda::{Invocation, InvokeError, Response};
use dispatcher_core::message::{FailureReason, Message};
use dispatcher_core::telemetry::events::{FunctionEvent, FunctionFailure, function_failed};
use serde_json::Value;
use std::collections::HashSet;

/// What is before a message's id in an event of Lambda's own SQS form. In a body, which is a
/// JSON text, the quotes are escaped.
const ID: &str = "\"messageId\":\"";
/// What is in an answer that lists messages that failed.
const LISTS_FAILURES: &str = "batchItemFailures";
/// Maximum characters of an answer in a reason.
const SHOWN: usize = 300;

/// What is kept of an invocation while it is running.
pub(super) struct Sent {
    function: String,
    waits: bool,
    /// The messages that its event names.
    ids: Vec<String>,
}

impl Sent {
    /// Creates the record of an invocation with this payload.
    pub(super) fn of(function: &str, invocation: Invocation, payload: &[u8]) -> Self {
        let text = std::str::from_utf8(payload).unwrap_or_default();
        let id = |(at, _): (usize, &str)| {
            let id = &text[at + ID.len()..];
            Some(id[..id.find('"')?].to_owned())
        };
        Self {
            function: function.to_owned(),
            waits: invocation == Invocation::RequestResponse,
            ids: text.match_indices(ID).filter_map(id).collect(),
        }
    }

    /// One of the messages that it is about, where its event names any.
    pub(super) fn first_id(&self) -> Option<&str> {
        self.ids.first().map(String::as_str)
    }

    /// Those of an attempt that it is about: all of them where its event names none.
    fn about<'a>(&self, messages: &'a [Message]) -> Vec<&'a Message> {
        let named: HashSet<&str> = self.ids.iter().map(String::as_str).collect();
        let is_named = |message: &&Message| named.is_empty() || named.contains(&*message.id);
        messages.iter().filter(is_named).collect()
    }
}

/// Notes what came of an invocation for the messages of the attempt that made it. What to log, if
/// it did not succeed.
pub(super) fn note(
    causes: &mut Causes,
    sent: &Sent,
    messages: &[Message],
    answer: &Result<Response, Denied>,
) -> Option<FailedInvocation> {
    let failed = match answer {
        Ok(response) => match &response.function_error {
            Some(_) => Some(FailedInvocation::of_function(&sent.function, response)),
            None => {
                if let Some(cause) = listed(sent, response) {
                    causes.note(&sent.about(messages), &cause);
                }
                None
            }
        },
        Err(Denied::Failed(error)) => FailedInvocation::of_invocation(error),
        Err(Denied::Forbidden(_)) => None,
    };
    let failed = failed?;
    causes.note(&sent.about(messages), &failed.cause);
    Some(failed)
}

/// An answer that lists messages as failed: a cause for those that are.
fn listed(sent: &Sent, response: &Response) -> Option<FailureReason> {
    let answer = std::str::from_utf8(&response.payload).ok()?;
    if !sent.waits || !answer.contains(LISTS_FAILURES) {
        return None;
    }
    let answer: String = answer.chars().take(SHOWN).collect();
    let function = &sent.function;
    let request = request(response);
    Some(FailureReason::Function(format!(
        "function {function} reported a failure{request}: {answer}"
    )))
}

fn request(response: &Response) -> String {
    let id = response.request_id.as_deref();
    id.map_or_else(String::new, |id| format!(" (request id {id})"))
}

/// An invocation that did not succeed.
pub(super) struct FailedInvocation {
    event: FunctionEvent,
    cause: FailureReason,
    error_type: Option<String>,
    error: String,
}

impl FailedInvocation {
    /// The function's own description of its error, as Lambda's runtimes write it.
    fn of_function(function: &str, response: &Response) -> Self {
        let details: Value = serde_json::from_slice(&response.payload).unwrap_or_default();
        let text = |name: &str| details.get(name).and_then(Value::as_str).map(str::to_owned);
        let error_type = text("errorType");
        let error = text("errorMessage").unwrap_or_else(|| "no message".to_owned());
        let what = error_type.as_deref().unwrap_or("an error without a type");
        let request = request(response);
        Self {
            event: FunctionEvent::Failed,
            cause: FailureReason::Function(format!(
                "function {function} failed{request}: {what}: {error}"
            )),
            error_type,
            error,
        }
    }

    /// None where the function did not run and its messages are held: that is reported for the
    /// route, not for each message.
    fn of_invocation(error: &InvokeError) -> Option<Self> {
        let (event, cause) = match error {
            InvokeError::MayHaveRun(why) => (
                FunctionEvent::Unknown,
                FailureReason::FunctionUnknown(format!("unknown whether the function ran: {why}")),
            ),
            InvokeError::Refused(why) => (
                FunctionEvent::Refused,
                FailureReason::Function(format!("Lambda refused the event: {why}")),
            ),
            InvokeError::DidNotRun { .. } | InvokeError::Permanent(_) => return None,
        };
        Some(Self {
            event,
            cause,
            error_type: None,
            error: error.to_string(),
        })
    }

    pub(super) fn log(
        &self,
        plugin: &str,
        sent: &Sent,
        messages: &[Message],
        answer: &Result<Response, Denied>,
    ) {
        let response = answer.as_ref().ok();
        let about = sent.about(messages);
        let ids: Vec<String> = about.iter().map(|message| message.id.clone()).collect();
        let failure = FunctionFailure {
            plugin,
            queue: about.first().map(|message| message.queue.as_str()),
            message_ids: &ids,
            function: &sent.function,
            version: response.and_then(|response| response.executed_version.as_deref()),
            request_id: response.and_then(|response| response.request_id.as_deref()),
            error_type: self.error_type.as_deref(),
            error: &self.error,
            log: response.and_then(|response| response.log_tail.as_deref()),
        };
        function_failed(self.event, &failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::message::{Verdict, samples};

    fn sent(payload: &str) -> Sent {
        Sent::of("f:live", Invocation::RequestResponse, payload.as_bytes())
    }

    fn asked() -> Verdict {
        Verdict::Retry {
            after: None,
            why: FailureReason::Requested,
        }
    }

    fn response(payload: &str, function_error: Option<&str>) -> Result<Response, Denied> {
        Ok(Response {
            payload: payload.into(),
            function_error: function_error.map(str::to_owned),
            request_id: Some("r-1".into()),
            ..Response::default()
        })
    }

    /// The reasons of two messages that the event named, or not, after this answer.
    fn reasons(payload: &str, answer: Result<Response, Denied>) -> [String; 2] {
        let messages = ["a", "b"].map(samples::message);
        let mut causes = Causes::default();
        note(&mut causes, &sent(payload), &messages, &answer);
        let mut verdicts = [asked(), asked()];
        causes.explain(&messages, &mut verdicts);
        let mut again = [asked(), asked()];
        causes.explain(&messages, &mut again);
        assert_eq!(again, [asked(), asked()], "they are forgotten");
        verdicts.map(|verdict| match verdict {
            Verdict::Retry { why, .. } => why.to_string(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn log_event_names_its_messages_and_ignores_bodies() {
        let body = serde_json::json!({"messageId": "forged"}).to_string();
        let event = serde_json::json!({"Records": [
            {"messageId": "a", "body": body},
            {"messageId": "b", "body": "x"},
        ]});
        assert_eq!(sent(&event.to_string()).ids, ["a", "b"]);
        assert_eq!(sent("[1]").ids, [""; 0]);
        assert_eq!(sent(ID).ids, [""; 0]);
    }

    #[test]
    fn finding_05_retry_after_a_function_error_carries_its_cause() {
        let error = r#"{"errorType":"KeyError","errorMessage":"'id'"}"#;
        let event = format!("{ID}a\"");
        let unhandled = || response(error, Some("Unhandled"));
        let why = "function f:live failed (request id r-1): KeyError: 'id'";
        assert_eq!(
            reasons(&event, unhandled()),
            [why, "the handler asked for a retry"],
            "the other was not in the event"
        );
        assert_eq!(
            reasons("{}", unhandled()),
            [why, why],
            "an event of its own form"
        );
        let listed = reasons("{}", response(r#"{"batchItemFailures":[{}]}"#, None));
        assert_eq!(
            listed[0],
            r#"function f:live reported a failure (request id r-1): {"batchItemFailures":[{}]}"#
        );
        let unknown = InvokeError::MayHaveRun("no answer in 5s".into());
        assert_eq!(
            reasons("{}", Err(Denied::Failed(unknown)))[0],
            "unknown whether the function ran: no answer in 5s"
        );
        let done = reasons("{}", response("null", None));
        assert_eq!(done[0], "the handler asked for a retry");
    }

    #[test]
    fn verdict_with_a_reason_keeps_it() {
        let messages = [samples::message("a")];
        let mut causes = Causes::default();
        let answer = response("{}", Some("Handled"));
        assert!(note(&mut causes, &sent(""), &messages, &answer).is_some());
        let mut verdicts = [Verdict::Reject("its own".into())];
        causes.explain(&messages, &mut verdicts);
        assert_eq!(verdicts, [Verdict::Reject("its own".into())]);
    }
}
