//! Parses Lambda's HTTP response: the function's result, or why there is none. Pure.

use super::{InvokeError, Response, sort};
use aws_smithy_runtime_api::http::Headers;
use dispatcher_core::clock;
use dispatcher_core::clock::retry_after;

/// A whole HTTP answer.
#[derive(Debug)]
pub(super) struct InvokeAnswer {
    pub status: u16,
    pub headers: Headers,
    pub body: Vec<u8>,
}

impl InvokeAnswer {
    /// The function's result where Lambda answered with success.
    pub(super) fn read(self, function: &str) -> Result<Response, InvokeError> {
        if !(200..300).contains(&self.status) {
            return Err(self.refusal(function));
        }
        let header = |name| self.headers.get(name).map(str::to_owned);
        Ok(Response {
            function_error: header("x-amz-function-error"),
            log_tail: header("x-amz-log-result").map(|tail| log_text(&tail)),
            executed_version: header("x-amz-executed-version"),
            request_id: header("x-amzn-requestid"),
            payload: self.body,
        })
    }

    /// What Lambda, or something on the way to it, answered instead: its header names the error;
    /// the body may be of anybody.
    fn refusal(&self, function: &str) -> InvokeError {
        let header = |name| self.headers.get(name).unwrap_or_default();
        let body: Body = serde_json::from_slice(&self.body).unwrap_or_default();
        let named = match header("x-amzn-errortype") {
            "" => body.code.as_deref().unwrap_or_default(),
            named => named,
        };
        let in_body = body.retry_after_seconds.to_string().replace('"', "");
        let today = clock::wall_clock_now();
        let waits = [header("retry-after"), &in_body];
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

/// An error's name without the namespace before it and the address behind it.
fn bare(name: &str) -> &str {
    let name = name.split(':').next().unwrap_or_default();
    name.rsplit('#').next().unwrap_or_default().trim()
}

/// The log's text. A tail begins anywhere, also inside of a character.
fn log_text(base64: &str) -> String {
    match aws_smithy_types::base64::decode(base64) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(a log tail that is not base64: {error})"),
    }
}

/// The members of an error's body that are of use to us. Some answers have a message twice.
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
    /// AWS sends a string, emulators a number.
    #[serde(rename = "retryAfterSeconds")]
    retry_after_seconds: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str) -> String {
        let answer = InvokeAnswer {
            status,
            headers: Headers::new(),
            body: body.into(),
        };
        answer.read("f").expect_err("no success").to_string()
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
}
