//! Calls to AWS Lambda: one Invoke per call, never repeated by the SDK, and a look at a function's
//! settings. Knows no message, no queue and no plugin.

mod answer;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod look;
mod send;
mod sign;
mod sort;

pub use look::{Function, LookError};

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_lambda::Client;
use send::Sender;
use sign::Signer;
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
        /// What AWS said, or why it was not reached.
        reason: String,
        /// When AWS wants to be asked again, if it said so.
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
    /// Makes one call, once: whether to try again is the caller's to decide, from the error's
    /// kind. Returns within `request.patience`. Dropping the future abandons the call; the
    /// function may run on.
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError>;
}

/// AWS Lambda in one region. Cheap to clone; clones share connections. There is one connection for
/// each call under way and no limit to them but that of open files; idle ones are kept for 90 s.
#[derive(Debug, Clone)]
pub struct Lambda {
    signer: Signer,
    sender: Sender,
    /// For everything but Invoke.
    look: Client,
}

impl Lambda {
    /// Connects nothing yet: the first call does.
    pub fn connect(config: &SdkConfig) -> Self {
        Self {
            signer: Signer::new(config),
            sender: Sender::new(),
            look: Client::new(config),
        }
    }

    async fn answer(&self, mut request: Request) -> Result<Response, InvokeError> {
        // In a box of its own: it is large, and gone while we wait.
        let signed = Box::pin(self.signer.sign(&mut request)).await?;
        let answer = self.sender.send(&request.function, signed).await?;
        answer.read(&request.function)
    }
}

#[async_trait]
impl Invoke for Lambda {
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        let patience = request.patience;
        let function = request.function.clone();
        match tokio::time::timeout(patience, self.answer(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(InvokeError::MayHaveRun(format!(
                "Invoke of function `{function}`: no answer in {}",
                humantime::format_duration(patience)
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
