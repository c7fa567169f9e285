//! A fuzz target: whatever Lambda, or something that is in its place, answers. Never a panic,
//! one line without control characters, and never a proof that the function did not run where there
//! is none.

use super::answer::RefusedInvocation;
use super::{InvokeError, look};
use aws_smithy_runtime_api::http::Headers;
use dispatcher_core::clock::{Timestamp, retry_after};
use dispatcher_core::fuzz::Choices;

/// A status, some headers and a body.
pub fn answers(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let status = 100 + u16::try_from(choices.number() % 900).expect("below 1,000");
    let mut headers = Headers::new();
    for name in [
        "x-amzn-errortype",
        "retry-after",
        "x-amz-function-error",
        "x-amz-log-result",
        "x-amz-executed-version",
    ] {
        if let Some(text) = choices.option(Choices::text) {
            // What could not be a header has not come as one.
            let _ = headers.try_insert(name, text);
        }
    }
    let function = look::unqualified(&choices.text()).to_owned();
    let named = headers
        .get("x-amzn-errortype")
        .is_some_and(|name| !name.is_empty());
    let body = choices.rest().to_vec();
    let says_type = String::from_utf8_lossy(&body).contains("type");
    let refused = RefusedInvocation {
        status,
        headers: &headers,
        body: &body,
    };
    check(&refused.classify(&function), status, named || says_type);
    if let Ok(text) = std::str::from_utf8(&body) {
        let today = Timestamp::default();
        assert_eq!(retry_after(text, today), retry_after(text.trim(), today));
    }
}

/// `named`: the answer may carry the name of an error.
fn check(error: &InvokeError, status: u16, named: bool) {
    let line = error.to_string();
    assert!(!line.is_empty() && !line.contains(['\n', '\r']), "{line:?}");
    if !named {
        let did_not_run = matches!(error, InvokeError::DidNotRun { .. });
        assert_eq!(did_not_run, status == 429, "{status}: {line}");
        let may_have_run = matches!(error, InvokeError::MayHaveRun(_));
        assert_eq!(
            may_have_run,
            !(400..500).contains(&status) || status == 408,
            "{status}"
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_answers_finds_nothing() {
        dispatcher_core::fuzz::replay("answers", super::answers);
    }
}
