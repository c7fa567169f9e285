//! Calls to AWS Lambda: one Invoke per call, never repeated by the SDK, and a look at a function's
//! settings. Knows no message, no queue and no plugin.

mod look;
mod sort;

pub use look::{Function, LookError};

use super::words;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::http::HttpResponse;
use aws_sdk_lambda::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_lambda::operation::invoke::{InvokeError as Refusal, InvokeOutput};
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::{InvocationType, LogType};
use sort::Answer;
use std::time::Duration;

/// How long to wait for a connection: longer than elsewhere, since thousands may be made at once,
/// and agreeing on TLS with each takes this machine's time as well. What is not connected has not
/// run, so waiting costs nothing but time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// For Invoke: no second attempts, no time-out for reading.
    invoke: Client,
    /// For everything else.
    look: Client,
}

impl Lambda {
    /// Connects nothing yet: the first call does.
    pub fn connect(config: &SdkConfig) -> Self {
        // Answers come whole; the SDK's watch over them costs a timer and an allocation a call,
        // and takes a function that computes for a minute for a stalled connection.
        let invoke = aws_sdk_lambda::config::Builder::from(config)
            .retry_config(RetryConfig::disabled())
            .timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(CONNECT_TIMEOUT)
                    .disable_read_timeout()
                    .disable_operation_timeout()
                    .disable_operation_attempt_timeout()
                    .build(),
            )
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Self {
            invoke: Client::from_conf(invoke),
            look: Client::new(config),
        }
    }
}

#[async_trait]
impl Invoke for Lambda {
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        let Request {
            function,
            invocation,
            payload,
            log_tail,
            patience,
        } = request;
        let waits = invocation == Invocation::RequestResponse;
        let call = self
            .invoke
            .invoke()
            .function_name(&function)
            .invocation_type(match invocation {
                Invocation::RequestResponse => InvocationType::RequestResponse,
                Invocation::Event => InvocationType::Event,
            })
            .set_log_type((log_tail && waits).then_some(LogType::Tail))
            .payload(Blob::new(payload))
            .send();
        match tokio::time::timeout(patience, call).await {
            Ok(Ok(output)) => Ok(response(output)),
            Ok(Err(error)) => Err(failure(&function, &error)),
            Err(_) => Err(InvokeError::MayHaveRun(format!(
                "Invoke of function `{function}`: no answer in {}",
                humantime::format_duration(patience)
            ))),
        }
    }
}

fn response(output: InvokeOutput) -> Response {
    Response {
        payload: output.payload.map(Blob::into_inner).unwrap_or_default(),
        function_error: output.function_error,
        log_tail: output.log_result.map(|tail| log_text(&tail)),
        executed_version: output.executed_version,
    }
}

/// The log's text. A tail begins anywhere, also inside of a character.
fn log_text(base64: &str) -> String {
    match aws_smithy_types::base64::decode(base64) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(a log tail that is not base64: {error})"),
    }
}

fn failure(function: &str, error: &SdkError<Refusal, HttpResponse>) -> InvokeError {
    let unanswered = || format!("Invoke of function `{function}`: {}", words::chain(error));
    match error {
        SdkError::ServiceError(answer) => refused(function, answer.err(), answer.raw()),
        // Nothing left this machine, and the same request would not the next time.
        SdkError::ConstructionFailure(_) => without_credentials_or(unanswered()),
        _ if never_connected(error) => InvokeError::DidNotRun {
            reason: unanswered(),
            retry_after: None,
        },
        // Between building and sending stand only credentials, signing and the endpoint.
        SdkError::DispatchFailure(broken) if !broken.is_io() && !broken.is_timeout() => {
            let words = unanswered();
            match broken.is_user() || words::is_about_credentials(&words) {
                true => without_credentials_or(words),
                false => InvokeError::MayHaveRun(words),
            }
        }
        _ => InvokeError::MayHaveRun(unanswered()),
    }
}

fn without_credentials_or(words: String) -> InvokeError {
    InvokeError::Permanent(match words::is_about_credentials(&words) {
        true => format!(
            "no usable AWS credentials: {words}; wanted a profile, a role or AWS_ACCESS_KEY_ID"
        ),
        false => words,
    })
}

/// Whether the call failed because there was no connection for it: refused, no address, no answer
/// in time, no agreement on TLS. Then not a byte of it was sent.
fn never_connected(error: &SdkError<Refusal, HttpResponse>) -> bool {
    words::links(error)
        .filter_map(|link| link.downcast_ref::<hyper_util::client::legacy::Error>())
        .any(hyper_util::client::legacy::Error::is_connect)
}

/// What Lambda, or something on the way to it, answered. The SDK gives up on an error whose body
/// is not as the service describes it; the code is then in the header, and the status remains.
fn refused(function: &str, error: &Refusal, raw: &HttpResponse) -> InvokeError {
    let header = |name| raw.headers().get(name).unwrap_or_default();
    let named = header("x-amzn-errortype").split([':', '#']).next();
    let body: Body = raw
        .body()
        .bytes()
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .unwrap_or_default();
    let code = error.code().or(named).unwrap_or_default();
    let retry_after = sort::seconds(header("retry-after"))
        .or_else(|| sort::seconds(&body.retry_after_seconds.to_string().replace('"', "")));
    let answer = Answer {
        status: raw.status().as_u16(),
        code,
        message: error
            .message()
            .or(body.message.as_deref())
            .unwrap_or_default(),
        reason: body.reason.as_deref().unwrap_or_default(),
        retry_after,
    };
    sort::sort(function, &answer)
}

/// The members of an error's body that are of use to us.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Body {
    #[serde(alias = "Message", alias = "errorMessage")]
    message: Option<String>,
    #[serde(rename = "Reason")]
    reason: Option<String>,
    /// AWS sends a string, emulators a number.
    #[serde(rename = "retryAfterSeconds")]
    retry_after_seconds: serde_json::Value,
}

#[cfg(test)]
mod tests;
