//! Tracks the results of a guest's invocations: one log line for each that did not succeed, and the
//! cause of a retry. Makes no invocations, and does not depend on queues.

use super::functions::InvokeDenial;
use crate::causes::Causes;
use dispatcher_core::json;
use dispatcher_core::lambda::{Invocation, InvokeError, Response};
use dispatcher_core::message::{FailureReason, Message};
use dispatcher_core::telemetry::events::{FunctionEvent, FunctionFailure, function_failed};
use std::borrow::Cow;
use std::collections::HashSet;

/// The text before a message's ID in an event in Lambda's SQS format. The body is a JSON text in
/// which quotes are escaped, so it does not match there.
const ID: &str = "\"messageId\":\"";
/// The name in a response that lists failed messages.
const LISTS_FAILURES: &str = "batchItemFailures";
/// The maximum number of characters of a response in a reason.
const SHOWN: usize = 300;

/// The record of a running invocation.
pub(super) struct SentInvocation {
    function: String,
    waits: bool,
    /// The messages that its event names.
    ids: Vec<String>,
}

impl SentInvocation {
    /// Creates the record of an invocation with this payload.
    pub(super) fn of(function: &str, invocation: Invocation, payload: &[u8]) -> Self {
        let text = std::str::from_utf8(payload).unwrap_or_default();
        Self {
            function: function.to_owned(),
            waits: invocation == Invocation::RequestResponse,
            ids: text
                .match_indices(ID)
                .filter_map(|(at, _): (usize, &str)| {
                    let id = &text[at + ID.len()..];
                    Some(id[..id.find('"')?].to_owned())
                })
                .collect(),
        }
    }

    /// Returns the function that is invoked.
    pub(super) fn function(&self) -> &str {
        &self.function
    }

    /// Returns the ID of one of its messages, if its event names any.
    pub(super) fn first_id(&self) -> Option<&str> {
        self.ids.first().map(String::as_str)
    }

    /// Returns the messages of an attempt that it is about: all of them if its event names none.
    fn about<'a>(&self, messages: &'a [Message]) -> Vec<&'a Message> {
        let named: HashSet<&str> = self.ids.iter().map(String::as_str).collect();
        messages
            .iter()
            .filter(|message: &&Message| named.is_empty() || named.contains(&*message.id))
            .collect()
    }
}

/// Records the result of an invocation for the messages of the attempt that made it. Returns what
/// to log if it did not succeed.
pub(super) fn note(
    causes: &mut Causes,
    sent: &SentInvocation,
    messages: &[Message],
    answer: &Result<Response, InvokeDenial>,
) -> Option<FailedInvocation> {
    let found = match answer {
        Ok(response) => match &response.function_error {
            Some(_) => Some(FailedInvocation::of_function(&sent.function, response)),
            None => {
                if let Some(cause) = listed(sent, response) {
                    causes.note(&sent.about(messages), &cause);
                }
                None
            }
        },
        Err(InvokeDenial::Failed(error)) => FailedInvocation::of_invocation(error),
        Err(InvokeDenial::Forbidden(_)) => None,
    };
    let failed = found?;
    causes.note(&sent.about(messages), &failed.cause);
    Some(failed)
}

/// Returns the cause for messages that fail, if the response lists failed messages.
fn listed(sent: &SentInvocation, response: &Response) -> Option<FailureReason> {
    let answer = std::str::from_utf8(&response.payload).ok()?;
    if !sent.waits || !answer.contains(LISTS_FAILURES) {
        return None;
    }
    let answer: String = answer.chars().take(SHOWN).collect();
    let function = &sent.function;
    Some(FailureReason::Function(format!(
        "function {function} reported a failure: {answer}"
    )))
}

/// Returns the beginning of a response that tries to list failed messages in a form that Lambda
/// ignores: `BatchItemFailures` in other capitals, or a list that is not at the top level. Lambda
/// then counts all messages as done.
pub(super) fn overlooked(
    sent: &SentInvocation,
    answer: &Result<Response, InvokeDenial>,
) -> Option<String> {
    let Ok(response) = answer else {
        return None;
    };
    if !sent.waits || sent.ids.is_empty() || response.function_error.is_some() {
        return None;
    }
    let mut parts = response.payload.windows(LISTS_FAILURES.len());
    if !parts.any(|part| part.eq_ignore_ascii_case(LISTS_FAILURES.as_bytes())) {
        return None;
    }
    let answer = std::str::from_utf8(&response.payload).ok()?;
    let is_overlooked = json::is_valid(answer) && !json::has_member(answer, LISTS_FAILURES);
    is_overlooked.then(|| answer.chars().take(SHOWN).collect())
}

/// Removes the request ID that Lambda puts into an error: `RequestId: ID Error: …` or
/// `TIME ID Task timed out …`. It is in the log line, and equal failures should have equal reasons.
fn without_request_id(error: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for word in error.split(' ') {
        match kept.last() {
            Some(label) if is_uuid(word) && (*label == "RequestId:" || label.ends_with('Z')) => {
                kept.pop();
            }
            _ => kept.push(word),
        }
    }
    kept.join(" ")
}

fn is_uuid(word: &str) -> bool {
    let lengths = word.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && word.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// An invocation that did not succeed.
pub(super) struct FailedInvocation {
    event: FunctionEvent,
    cause: FailureReason,
    error_type: Option<String>,
    error: String,
}

impl FailedInvocation {
    /// Reads the function's description of its error, in the format of Lambda's runtimes.
    fn of_function(function: &str, response: &Response) -> Self {
        let details = std::str::from_utf8(&response.payload).unwrap_or_default();
        let error_type = json::text_at(details, "/errorType").map(Cow::into_owned);
        let error = json::text_at(details, "/errorMessage")
            .map_or_else(|| "no message".to_owned(), Cow::into_owned);
        let what = error_type.as_deref().unwrap_or("an error without a type");
        let shown = without_request_id(&error);
        Self {
            event: FunctionEvent::Failed,
            cause: FailureReason::Function(format!("function {function} failed: {what}: {shown}")),
            error_type,
            error,
        }
    }

    /// Returns `None` if the function did not run and its messages are held: that is reported for
    /// the route, not for each message.
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
        sent: &SentInvocation,
        messages: &[Message],
        answer: &Result<Response, InvokeDenial>,
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

    fn sent(payload: &str) -> SentInvocation {
        SentInvocation::of("f:live", Invocation::RequestResponse, payload.as_bytes())
    }

    fn asked() -> Verdict {
        Verdict::Retry {
            after: None,
            why: FailureReason::Requested,
        }
    }

    fn response(payload: &str, function_error: Option<&str>) -> Result<Response, InvokeDenial> {
        Ok(Response {
            payload: payload.into(),
            function_error: function_error.map(str::to_owned),
            request_id: Some("r-1".into()),
            ..Response::default()
        })
    }

    /// The reasons of two messages that the event named, or not, after this answer.
    fn reasons(payload: &str, answer: Result<Response, InvokeDenial>) -> [String; 2] {
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
    fn list_of_failures_that_lambda_ignores_is_found() {
        let event = format!("{ID}a\"");
        let long = format!(r#"{{"x":"{}","Batchitemfailures":[]}}"#, "é".repeat(SHOWN));
        for payload in [
            r#"{"BatchItemFailures":[{"ItemIdentifier":"a"}]}"#,
            r#"{"batchitemfailures":[],"x":"\ud83d"}"#,
            r#""{\"batchItemFailures\":[{\"itemIdentifier\":\"a\"}]}""#,
            r#"{"statusCode":200,"body":"{\"batchItemFailures\":[]}"}"#,
            r#"[{"batchItemFailures":[]}]"#,
            r#"{"x":{"batchItemFailures":[]}}"#,
            &long,
        ] {
            let shown: String = payload.chars().take(SHOWN).collect();
            let found = overlooked(&sent(&event), &response(payload, None));
            assert_eq!(found, Some(shown), "{payload}");
        }
        for payload in [
            "",
            "null",
            "{}",
            r#"{"batchItemFailures":[]}"#,
            r#"{"BatchItemFailures":[],"batchItemFailures":[]}"#,
            r#"{"batchItemFailures":"#,
        ] {
            let found = overlooked(&sent(&event), &response(payload, None));
            assert_eq!(found, None, "{payload}");
        }
        let failed = response(
            r#"{"errorMessage":"no BatchItemFailures"}"#,
            Some("Unhandled"),
        );
        assert_eq!(overlooked(&sent(&event), &failed), None);
        let other = response(r#"{"BatchItemFailures":[]}"#, None);
        assert_eq!(overlooked(&sent("{}"), &other), None);
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
    fn request_id_of_lambda_is_not_in_a_reason() {
        let id = "8f2e6c1a-0b7d-4e55-9a3b-1c2d3e4f5a6b";
        for (error, shown) in [
            (
                format!("RequestId: {id} Error: Runtime exited with error: exit status 1"),
                "Error: Runtime exited with error: exit status 1",
            ),
            (
                format!("2026-11-28T08:00:00.123Z {id} Task timed out after 3.00 seconds"),
                "Task timed out after 3.00 seconds",
            ),
            (format!("no order {id}"), &*format!("no order {id}")),
        ] {
            assert_eq!(without_request_id(&error), shown);
        }
    }

    #[test]
    fn finding_05_retry_after_a_function_error_carries_its_cause() {
        let error = r#"{"errorType":"KeyError","errorMessage":"'id'"}"#;
        let event = format!("{ID}a\"");
        let why = "function f:live failed: KeyError: 'id'";
        assert_eq!(
            reasons(&event, response(error, Some("Unhandled"))),
            [why, "the handler asked for a retry"],
            "the other was not in the event"
        );
        assert_eq!(
            reasons("{}", response(error, Some("Unhandled"))),
            [why, why],
            "an event of its own form"
        );
        let listed = reasons("{}", response(r#"{"batchItemFailures":[{}]}"#, None));
        assert_eq!(
            listed[0],
            r#"function f:live reported a failure: {"batchItemFailures":[{}]}"#
        );
        let unknown = InvokeError::MayHaveRun("no answer in 5s".into());
        assert_eq!(
            reasons("{}", Err(InvokeDenial::Failed(unknown)))[0],
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
