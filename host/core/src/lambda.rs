//! The port to functions: one call, never retried implicitly. Knows no AWS.

use async_trait::async_trait;
use std::time::Duration;

/// Whether the caller waits for the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Invocation {
    /// The answer is the function's.
    #[default]
    RequestResponse,
    /// Lambda queues the event and answers at once, with an empty payload.
    Event,
}

/// One invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// A name, `name:qualifier`, or an ARN; taken as is.
    pub function: String,
    /// Whether to wait for the function.
    pub invocation: Invocation,
    /// The event, JSON. At most 6 MB, or 1 MB for `Event`; Lambda checks.
    pub payload: Vec<u8>,
    /// Whether the end of the function's log is wanted; only with `RequestResponse`.
    pub log_tail: bool,
    /// How long to wait for the answer, connecting included.
    pub patience: Duration,
    /// The trace header of X-Ray, which the function continues.
    pub trace_header: Option<String>,
}

/// An answer of Lambda. The function may still have failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// What the function returned, or a description of its failure; JSON, or empty.
    pub payload: Vec<u8>,
    /// `Handled` or `Unhandled` if the function failed.
    pub function_error: Option<String>,
    /// The last 4 KB of the function's log, if asked for.
    pub log_tail: Option<String>,
    /// The version that ran.
    pub executed_version: Option<String>,
    /// Lambda's id of the invocation, as its logs have it.
    pub request_id: Option<String>,
}

/// Why there is no answer. Each text is one line for a person and names the function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The function did not run for this call; asking again, later, is safe and of use.
    #[error("{reason}")]
    DidNotRun {
        /// AWS's error message, or why it was not reached.
        reason: String,
        /// The retry delay that AWS asks for, if any.
        retry_after: Option<Duration>,
    },
    /// The function may have run, may be running, or may have run in part.
    #[error("{0}")]
    MayHaveRun(String),
    /// Lambda refuses this payload, for its size or its content, and the function did not run; a
    /// part of it may be taken.
    #[error("{0}")]
    Refused(String),
    /// The function did not run, and the same request will fail again until somebody changes the
    /// function, a permission or the credentials.
    #[error("{0}")]
    Permanent(String),
}

/// Invokes functions.
#[async_trait]
pub trait Invoke: Send + Sync + 'static {
    /// The AWS region of the functions, where one is known. Cheap.
    fn region(&self) -> Option<&str> {
        None
    }

    /// A URL of the server that calls are made to, once one was. Cheap.
    fn endpoint(&self) -> Option<&str> {
        None
    }

    /// Makes one call, once: whether to retry is the caller's to decide, from the error's
    /// kind. Returns within `request.patience`. Dropping the future abandons the call; the
    /// function may run on.
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError>;
}
