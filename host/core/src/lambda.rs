//! The port to Lambda functions: one call, never retried implicitly. Knows no AWS.

use crate::message::Message;
use crate::message::place::MessageKey;
use async_trait::async_trait;
use std::time::Duration;

/// Whether the caller waits for the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Invocation {
    /// The caller waits and gets the function's answer.
    #[default]
    RequestResponse,
    /// Lambda queues the event and answers immediately, with an empty payload.
    Event,
}

/// One invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// A name, `name:qualifier`, or an ARN; passed on as is.
    pub function: String,
    /// Whether the caller waits for the function.
    pub invocation: Invocation,
    /// The event as JSON. At most 6 MB, or 1 MB for `Event`; Lambda checks this.
    pub payload: Vec<u8>,
    /// Whether to return the end of the function's log; only with `RequestResponse`.
    pub log_tail: bool,
    /// The maximum wait for the answer, connecting included.
    pub patience: Duration,
    /// The trace header of X-Ray; the function continues this trace.
    pub trace_header: Option<String>,
    /// The tenant for a function with tenant isolation.
    pub tenant: Option<String>,
}

/// An answer of Lambda. The function itself may have failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// The function's result, or a description of its failure: JSON, or empty.
    pub payload: Vec<u8>,
    /// `Handled` or `Unhandled` if the function failed.
    pub function_error: Option<String>,
    /// The last 4 KB of the function's log, if requested.
    pub log_tail: Option<String>,
    /// The version that ran.
    pub executed_version: Option<String>,
    /// Lambda's id of the invocation, as in its logs.
    pub request_id: Option<String>,
}

/// The reason why there is no answer. Each text is one line for a person and names the function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The function did not run for this call. Retrying later is safe and may succeed.
    #[error("{reason}")]
    DidNotRun {
        /// AWS's error message, or why AWS was not reached.
        reason: String,
        /// The retry delay that AWS asks for, if any.
        retry_after: Option<Duration>,
    },
    /// The function may have run, wholly or in part, or may still be running.
    #[error("{0}")]
    MayHaveRun(String),
    /// Lambda refused this payload for its size or content, and the function did not run. A part of
    /// the payload may be accepted.
    #[error("{0}")]
    Refused(String),
    /// The function did not run, and the same request will fail until someone changes the function,
    /// a permission or the credentials.
    #[error("{0}")]
    Permanent(String),
}

/// Returns the tenant id that a message names for a function with tenant isolation.
///
/// # Errors
/// Returns an error if it names none, or one that Lambda refuses (*Invoke* in its API reference).
pub fn tenant_of(message: &Message, key: &MessageKey) -> Result<String, String> {
    let named = key.text(message, message.group.as_deref());
    let tenant = named.ok_or_else(|| {
        format!("it names no tenant at `{key}`, and `tenant-id` passes the tenant to the function")
    })?;
    // It is sent in a header, which keeps no spaces at its ends.
    let is_whole = tenant == tenant.trim() && (1..=256).contains(&tenant.len());
    if is_whole && tenant.chars().all(is_tenant_letter) {
        Ok(tenant)
    } else {
        Err(format!(
            "the tenant that it names at `{key}` is no tenant id of Lambda: 1 to 256 letters, digits, \
             spaces within and ._:/=+-@"
        ))
    }
}

fn is_tenant_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._:/=+-@ ".contains(letter)
}

/// A client that invokes functions.
#[async_trait]
pub trait Invoke: Send + Sync + 'static {
    /// Returns the AWS region of a function, if it is known. Cheap.
    fn region(&self, _function: &str) -> Option<String> {
        None
    }

    /// Returns a URL of the server that gets the calls of a function, once a call was made. Cheap.
    fn endpoint(&self, _function: &str) -> Option<String> {
        None
    }

    /// Makes one call. Never retries: the caller decides by the kind of the error. Returns within
    /// `request.patience`. Dropping the future abandons the call; the function may continue to run.
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::samples;

    #[test]
    fn tenant_id_is_what_lambda_accepts_and_a_header_keeps() {
        fn of(group: Option<&str>) -> Result<String, String> {
            let mut message = samples::message("m");
            message.group = group.map(str::to_owned);
            tenant_of(&message, &MessageKey::Group)
        }
        let longest = "a".repeat(256);
        for good in ["acme", "a b", "A1._:/=+-@", &longest] {
            assert_eq!(of(Some(good)), Ok(good.to_owned()));
        }
        let long = "a".repeat(257);
        for bad in [
            None,
            Some(""),
            Some("a,b"),
            Some("ä"),
            Some(" "),
            Some("a "),
            Some(&*long),
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
