//! Reads Lambda's response to an Invoke: the function's result or the error. Pure.

use super::{InvokeError, Response, sort};
use aws_sdk_lambda::config::http::HttpResponse;
use aws_sdk_lambda::operation::RequestId;
use aws_sdk_lambda::operation::invoke::InvokeOutput;
use aws_sdk_lambda::primitives::Blob;
use aws_smithy_runtime_api::http::Headers;
use dispatcher_core::clock;
use dispatcher_core::clock::retry_after;

/// Returns the result of a successful invocation. `waits` is true for a synchronous invocation.
///
/// # Errors
/// Returns an error if nothing shows that the response is Lambda's: Lambda responds with `null` for
/// a function that returns nothing, with 202 for an event, and with a request id in each case.
pub(super) fn response(
    output: InvokeOutput,
    function: &str,
    waits: bool,
) -> Result<Response, InvokeError> {
    let request_id = output.request_id().map(str::to_owned);
    let payload = output.payload.map(Blob::into_inner).unwrap_or_default();
    let is_silent = payload.is_empty() && output.executed_version.is_none();
    let is_accepted_event = !waits && output.status_code == 202;
    if is_silent && request_id.is_none() && !is_accepted_event {
        return Err(InvokeError::MayHaveRun(format!(
            "Invoke of function `{function}`: an empty answer without the headers of Lambda (HTTP {})",
            output.status_code
        )));
    }
    Ok(Response {
        payload,
        function_error: output.function_error,
        log_tail: output.log_result.map(|tail| log_text(&tail)),
        executed_version: output.executed_version,
        request_id,
    })
}

/// An error response of Lambda or of a server in between.
#[derive(Debug)]
pub(super) struct RefusedInvocation<'a> {
    pub status: u16,
    pub headers: &'a Headers,
    pub body: &'a [u8],
}

impl<'a> RefusedInvocation<'a> {
    pub(super) fn of(raw: &'a HttpResponse) -> Self {
        Self {
            status: raw.status().as_u16(),
            headers: raw.headers(),
            body: raw.body().bytes().unwrap_or_default(),
        }
    }

    /// Returns whether the function ran. Lambda's errors have a header with their name; any server
    /// may have written the body.
    pub(super) fn classify(&self, function: &str) -> InvokeError {
        let body: Body = serde_json::from_slice(self.body).unwrap_or_default();
        let named = match self.headers.get("x-amzn-errortype").unwrap_or_default() {
            "" => body.code.as_deref().unwrap_or_default(),
            named => named,
        };
        let in_body = body.retry_after_seconds.to_string().replace('"', "");
        let today = clock::wall_clock_now();
        let in_header = self.headers.get("retry-after").unwrap_or_default();
        let waits = [in_header, &in_body];
        let retry_after = waits.into_iter().find_map(|text| retry_after(text, today));
        let message = body.message.or(body.capital_message).or(body.error_message);
        let answer = sort::ErrorAnswer {
            status: self.status,
            code: bare(named),
            message: message.as_deref().unwrap_or_default(),
            reason: body.reason.as_deref().unwrap_or_default(),
            retry_after,
        };
        sort::sort(function, &answer)
    }
}

/// Returns an error's name without the namespace before it and the address after it.
fn bare(name: &str) -> &str {
    let name = name.split(':').next().unwrap_or_default();
    name.rsplit('#').next().unwrap_or_default().trim()
}

/// Decodes the tail of the log, which may begin in the middle of a character.
fn log_text(base64: &str) -> String {
    match aws_smithy_types::base64::decode(base64) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(a log tail that is not base64: {error})"),
    }
}

/// The members of an error's body that are used. Some responses contain the message twice.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Body {
    #[serde(rename = "__type")]
    code: Option<String>,
    message: Option<String>,
    #[serde(rename = "Message")]
    capital_message: Option<String>,
    #[serde(rename = "errorMessage")]
    error_message: Option<String>,
    #[serde(rename = "Reason")]
    reason: Option<String>,
    /// The retry delay: AWS sends a string, emulators a number.
    #[serde(rename = "retryAfterSeconds")]
    retry_after_seconds: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_lambda::operation::invoke::builders::InvokeOutputBuilder;

    fn refusal(status: u16, body: &str) -> String {
        let refused = RefusedInvocation {
            status,
            headers: &Headers::new(),
            body: body.as_bytes(),
        };
        refused.classify("f").to_string()
    }

    #[test]
    fn error_type_drops_namespace_and_url() {
        assert_eq!(bare("a.b#ServiceException:http://x/"), "ServiceException");
        assert_eq!(bare("ServiceException"), "ServiceException");
        assert_eq!(bare(""), "");
    }

    #[test]
    fn error_type_is_read_from_the_body_without_a_header() {
        let wanted = "Invoke of function `f`: ServiceException (HTTP 500): so";
        let body = r#"{"__type":"a#ServiceException","message":"so","Message":"so too"}"#;
        assert_eq!(refusal(500, body), wanted);
        assert_eq!(
            refusal(500, "<h1>no</h1>"),
            "Invoke of function `f`: HTTP 500"
        );
    }

    fn output(status: i32, version: Option<&str>) -> InvokeOutputBuilder {
        InvokeOutput::builder()
            .status_code(status)
            .set_executed_version(version.map(str::to_owned))
    }

    #[test]
    fn an_empty_answer_counts_only_with_a_sign_of_lambda() {
        let null = output(200, None).payload(Blob::new("null")).build();
        assert!(response(null, "f", true).is_ok());
        assert!(response(output(200, Some("7")).build(), "f", true).is_ok());
        assert!(response(output(202, None).build(), "f", false).is_ok());
        for (status, waits) in [(200, true), (202, true), (204, true), (200, false)] {
            let read = response(output(status, None).build(), "f", waits);
            let wanted = format!(
                "Invoke of function `f`: an empty answer without the headers of Lambda (HTTP {status})"
            );
            assert_eq!(read, Err(InvokeError::MayHaveRun(wanted)));
        }
    }
}
