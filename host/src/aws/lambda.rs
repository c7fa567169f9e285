//! Invoking AWS Lambda: the words of one invocation and the port to whoever makes it.

use async_trait::async_trait;
use std::time::Duration;

/// Whether the caller waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invocation {
    /// Wait for it.
    RequestResponse,
    /// Queue the event.
    Event,
}

/// One invocation.
#[derive(Debug, Clone)]
pub struct Request {
    /// Name, `name:alias`, or ARN.
    pub function: String,
    /// Whether to wait.
    pub invocation: Invocation,
    /// The event, as JSON text.
    pub payload: Vec<u8>,
    /// Whether to ask for the end of the function's log.
    pub log_tail: bool,
    /// How long to wait for the answer.
    pub patience: Duration,
}

/// An invocation that Lambda answered.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// The function's answer.
    pub payload: Vec<u8>,
    /// `Handled` or `Unhandled` when the function itself failed.
    pub function_error: Option<String>,
    /// The last 4 KB of the function's log.
    pub log_tail: Option<String>,
    /// The version that ran.
    pub executed_version: Option<String>,
}

/// An invocation that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvokeError {
    /// The function did not run.
    DidNotRun {
        /// Lambda's own reason.
        reason: String,
        /// Lambda's advice.
        retry_after: Option<Duration>,
    },
    /// The function may have run.
    MayHaveRun(String),
    /// The payload is more than Lambda takes.
    TooLarge(String),
    /// No retry will help.
    Permanent(String),
}

/// Whoever makes invocations.
#[async_trait]
pub trait Invoke: Send + Sync + 'static {
    /// Makes one.
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError>;
}
