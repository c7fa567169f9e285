//! The AWS Lambda functions that the configuration grants to this plugin. Calling anything here
//! makes the component import `dispatcher:plugin/lambda`; knows nothing of messages.
//!
//! ```
//! use dispatcher_guest::lambda::{Request, Response, invoke};
//! use dispatcher_guest::{Failure, Message, handler, testing};
//!
//! #[derive(serde::Deserialize)]
//! struct Thumbnail { url: String }
//!
//! fn handle(message: Message) -> Result<(), Failure> {
//!     let request = Request::new("thumbnails").json(&message.body)?;
//!     let thumbnail: Thumbnail = invoke(request)?.json()?;
//!     println!("{}", thumbnail.url);
//!     Ok(())
//! }
//!
//! handler!(handle);
//! # fn main() {
//! let granted = testing::grant()
//!     .lambda("thumbnails", |_| Ok(Response::new(r#"{"url": "https://…/small.png"}"#)));
//! assert_eq!(testing::run(handle, testing::message("large.png")), Ok(()));
//! assert_eq!(granted.invoked()[0].payload, br#""large.png""#);
//! # }
//! ```
//!
//! The configuration grants functions by `--allow-lambda`. Any other is [`InvokeError::Forbidden`].

use crate::bindings::imports::dispatcher::plugin as wire;
use crate::{Failure, attempt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

pub use wire::lambda_types::{DidNotRun, Invocation, Request, Response};

/// An invocation that failed, sorted by what the error proves.
///
/// `?` makes of it what [`Failure::of_invocation`] does. For that it is no [`std::error::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvokeError {
    /// The function did not run and may be invoked again, after so many milliseconds if told.
    DidNotRun(DidNotRun),
    /// A time-out, a reset connection, a 5xx: the function may have run.
    MayHaveRun(String),
    /// Lambda refuses this payload, for its size or its content, and the function did not run;
    /// a part of it may be taken.
    Refused(String),
    /// No retry will help until somebody acts: no such function, access denied.
    Permanent(String),
    /// The configuration does not grant this function to this plugin.
    Forbidden(String),
}

impl fmt::Display for InvokeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DidNotRun(why) => write!(out, "the function did not run: {}", why.reason),
            Self::MayHaveRun(why) => write!(out, "the function may have run: {why}"),
            Self::Refused(why) => write!(out, "Lambda refuses the payload: {why}"),
            Self::Permanent(why) | Self::Forbidden(why) => out.write_str(why),
        }
    }
}

impl From<wire::lambda_types::InvokeError> for InvokeError {
    fn from(error: wire::lambda_types::InvokeError) -> Self {
        use wire::lambda_types::InvokeError as Wire;
        match error {
            Wire::DidNotRun(why) => Self::DidNotRun(why),
            Wire::MayHaveRun(why) => Self::MayHaveRun(why),
            Wire::Refused(why) => Self::Refused(why),
            Wire::Permanent(why) => Self::Permanent(why),
            Wire::Forbidden(why) => Self::Forbidden(why),
        }
    }
}

/// Runs one invocation and holds the instance until there is an answer.
///
/// # Errors
/// What became of it; see [`InvokeError`]. That the function itself failed is no error: see
/// [`Response::succeeded`].
pub fn invoke(request: impl Borrow<Request>) -> Result<Response, InvokeError> {
    #[cfg(target_family = "wasm")]
    return wire::lambda::invoke(request.borrow()).map_err(InvokeError::from);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::invoke(request.borrow());
}

/// The same for `async` callers: an instance that awaits it can handle other messages meanwhile.
///
/// # Errors
/// As with [`invoke`].
pub async fn invoke_async(request: Request) -> Result<Response, InvokeError> {
    #[cfg(target_family = "wasm")]
    return wire::lambda_async::invoke(request)
        .await
        .map_err(InvokeError::from);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::invoke(&request);
}

/// An invocation, put together.
impl Request {
    /// Invokes this function (a name, `name:alias` or an ARN) and waits for its answer, with `{}` for
    /// an event. An invocation that could not be waited for until the attempt at hand ends is not
    /// begun, where a handler runs.
    pub fn new(function: impl Into<String>) -> Self {
        Self {
            function: function.into(),
            invocation: Invocation::RequestResponse,
            payload: b"{}".to_vec(),
            log_tail: false,
            deadline: attempt::end_ms(),
        }
    }

    /// The event, as JSON; at most 6 MB, and 1 MB where nobody waits.
    ///
    /// # Errors
    /// [`Failure::Reject`], where the value cannot be written as JSON.
    pub fn json(self, event: &(impl Serialize + ?Sized)) -> Result<Self, Failure> {
        Ok(self.payload(written(event)?))
    }

    /// The event, as it is. It has to be JSON.
    #[must_use]
    pub fn payload(mut self, event: impl Into<Vec<u8>>) -> Self {
        self.payload = event.into();
        self
    }

    /// Lambda queues the event, and nobody waits for what becomes of it.
    #[must_use]
    pub fn event(mut self) -> Self {
        self.invocation = Invocation::Event;
        self
    }

    /// The answer has the end of the function's log.
    #[must_use]
    pub fn log_tail(mut self) -> Self {
        self.log_tail = true;
        self
    }

    /// When the caller's own time ends, such as [`Message::deadline`](crate::Message::deadline): in
    /// milliseconds since the Unix epoch.
    #[must_use]
    pub fn deadline(mut self, end_ms: u64) -> Self {
        self.deadline = Some(end_ms);
        self
    }
}

/// An answer, read; or made for a test.
impl Response {
    /// A function that answers so.
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            payload: payload.into(),
            function_error: None,
            log_tail: None,
            executed_version: None,
        }
    }

    /// A function that ran and failed: the details are the payload.
    pub fn failed(details: impl Into<Vec<u8>>) -> Self {
        Self {
            function_error: Some("Unhandled".into()),
            ..Self::new(details)
        }
    }

    /// The answer of a function that did not fail.
    ///
    /// # Errors
    /// [`Failure::Retry`], where the function ran and failed; its error is printed to stderr.
    pub fn succeeded(self) -> Result<Self, Failure> {
        let Some(kind) = &self.function_error else {
            return Ok(self);
        };
        let details = String::from_utf8_lossy(&self.payload);
        eprintln!("the function failed: {kind}: {details}");
        Err(Failure::retry())
    }

    /// The same, read as JSON.
    ///
    /// # Errors
    /// [`Failure::Retry`], where the function failed, or its answer is not of this type: that is not
    /// the message's fault. Either is printed to stderr.
    pub fn json<T: DeserializeOwned>(self) -> Result<T, Failure> {
        let answer = self.succeeded()?;
        serde_json::from_slice(&answer.payload).map_err(|error| {
            eprintln!("the function's answer: {error}");
            Failure::retry()
        })
    }
}

/// A value as JSON. What cannot be written will not be at the next attempt either.
pub(crate) fn written(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value)
        .map_err(|error| Failure::reject(format!("cannot be written as JSON: {error}")))
}

impl Failure {
    /// What a failed invocation means for the message it was made for. One that did not run is
    /// tried again without spending a receive; one that may have run is retried by policy, so the
    /// function may run twice; a payload that Lambda refuses is rejected; a function that Lambda does
    /// not have or does not let us invoke closes the route until somebody acts. One that is not granted is
    /// a retry by policy: its name may be the message's own, and no message may stop the others of its
    /// route. Where a pattern grants many and messages name them, look at the name first.
    #[must_use]
    pub fn of_invocation(error: InvokeError) -> Self {
        match error {
            InvokeError::DidNotRun(why) => Self::Busy {
                after: why.retry_after.map(Duration::from_millis),
                reason: why.reason,
            },
            InvokeError::MayHaveRun(why) => {
                eprintln!("the function may have run: {why}");
                Self::retry()
            }
            InvokeError::Refused(why) => Self::Reject(why),
            InvokeError::Permanent(why) => Self::Closed(why),
            InvokeError::Forbidden(why) => {
                eprintln!("{why}");
                Self::retry()
            }
        }
    }
}

impl From<InvokeError> for Failure {
    fn from(error: InvokeError) -> Self {
        Self::of_invocation(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_payload_is_a_rejection() {
        let refused = InvokeError::Refused("it is no JSON".into());
        let reject = Failure::reject("it is no JSON");
        assert_eq!(Failure::of_invocation(refused), reject);
    }

    #[test]
    fn throttled_invocation_is_busy_and_permanent_error_closes_the_route() {
        let throttled = InvokeError::DidNotRun(DidNotRun {
            reason: "busy".into(),
            retry_after: Some(20),
        });
        let later = Failure::Busy {
            after: Some(Duration::from_millis(20)),
            reason: "busy".into(),
        };
        assert_eq!(Failure::of_invocation(throttled), later);
        let missing = InvokeError::Permanent("no such function".into());
        let closed = Failure::Closed("no such function".into());
        assert_eq!(Failure::of_invocation(missing), closed);
        let not_lent = InvokeError::Forbidden("not granted".into());
        assert_eq!(Failure::of_invocation(not_lent), Failure::retry());
    }

    #[test]
    fn request_carries_the_deadline_of_its_handler() {
        let within = attempt::until(7, || Request::new("f").deadline);
        assert_eq!((within, Request::new("f").deadline), (Some(7), None));
        assert_eq!(Request::new("f").deadline(9).deadline, Some(9));
    }

    #[test]
    fn function_error_is_an_error_not_a_response() {
        let failed = Response::failed(r#"{"errorMessage": "no"}"#);
        assert_eq!(failed.json::<serde_json::Value>(), Err(Failure::retry()));
        assert_eq!(Response::new("7").json(), Ok(7));
        assert_eq!(Response::new("x").json::<u8>(), Err(Failure::retry()));
    }
}
