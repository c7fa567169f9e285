//! The AWS Lambda functions that the configuration grants to this plugin. A component that calls
//! this module imports `dispatcher:plugin/lambda`, or `dispatcher:plugin/lambda-async`.
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
//! The configuration grants functions with `--allow-lambda`. Invoking another function fails with
//! [`InvokeError::Forbidden`].

use crate::bindings::imports::dispatcher::plugin as wire;
use crate::{Failure, attempt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

pub use wire::lambda_types::{DidNotRun, Invocation, Request, Response};

/// The reason why an invocation failed. The variants say whether the function may have run.
///
/// `?` converts it with [`Failure::of_invocation`]. For this reason the type does not implement
/// [`std::error::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvokeError {
    /// The function did not run. It can be invoked again, after the given delay if Lambda gave one.
    DidNotRun(DidNotRun),
    /// The function may have run: the request timed out, the connection was reset, or Lambda
    /// answered with a 5xx status.
    MayHaveRun(String),
    /// Lambda refuses this payload because of its size or its content, and the function did not
    /// run. Lambda may accept a part of it.
    Refused(String),
    /// No invocation can succeed until someone acts: the function does not exist, or access is
    /// denied.
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

/// Invokes a function and returns its response. It blocks the instance until there is one.
///
/// # Errors
/// Returns an [`InvokeError`] if there is no response. If the function ran and failed, that is not
/// an error here: see [`Response::succeeded`].
pub fn invoke(request: impl Borrow<Request>) -> Result<Response, InvokeError> {
    #[cfg(target_family = "wasm")]
    return wire::lambda::invoke(request.borrow()).map_err(InvokeError::from);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::invoke(request.borrow());
}

/// Like [`invoke`], for `async` handlers: while it waits, the instance can handle other messages.
///
/// # Errors
/// Returns an [`InvokeError`] if there is no response, like [`invoke`].
pub async fn invoke_async(request: Request) -> Result<Response, InvokeError> {
    #[cfg(target_family = "wasm")]
    return wire::lambda_async::invoke(request)
        .await
        .map_err(InvokeError::from);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::invoke(&request);
}

/// Builds an invocation.
impl Request {
    /// Creates an invocation of this function (a name, `name:alias` or an ARN) that waits for the
    /// response. The event is `{}`. Within a handler, the invocation is not started if it cannot be
    /// waited for until the attempt's deadline.
    pub fn new(function: impl Into<String>) -> Self {
        Self {
            function: function.into(),
            invocation: Invocation::RequestResponse,
            payload: b"{}".to_vec(),
            log_tail: false,
            deadline: attempt::end_ms(),
        }
    }

    /// Sets the event to this value as JSON. It has at most 6 MB, or 1 MB if the invocation does
    /// not wait.
    ///
    /// # Errors
    /// Returns [`Failure::Reject`] if the value cannot be written as JSON.
    pub fn json(self, event: &(impl Serialize + ?Sized)) -> Result<Self, Failure> {
        Ok(self.payload(written(event)?))
    }

    /// Sets the event as it is. It must be JSON.
    #[must_use]
    pub fn payload(mut self, event: impl Into<Vec<u8>>) -> Self {
        self.payload = event.into();
        self
    }

    /// Makes Lambda queue the event. The invocation does not wait for the function.
    #[must_use]
    pub fn event(mut self) -> Self {
        self.invocation = Invocation::Event;
        self
    }

    /// Requests the end of the function's log in the response.
    #[must_use]
    pub fn log_tail(mut self) -> Self {
        self.log_tail = true;
        self
    }

    /// Sets the caller's deadline, such as [`Message::deadline`](crate::Message::deadline), in
    /// milliseconds since the Unix epoch.
    #[must_use]
    pub fn deadline(mut self, end_ms: u64) -> Self {
        self.deadline = Some(end_ms);
        self
    }
}

/// Reads a response, or builds one for a test.
impl Response {
    /// Creates the response of a function that succeeded.
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            payload: payload.into(),
            function_error: None,
            log_tail: None,
            executed_version: None,
        }
    }

    /// Creates the response of a function that ran and failed. The payload has the details.
    pub fn failed(details: impl Into<Vec<u8>>) -> Self {
        Self {
            function_error: Some("Unhandled".into()),
            ..Self::new(details)
        }
    }

    /// Returns the response if the function did not fail.
    ///
    /// # Errors
    /// Returns [`Failure::Retry`] if the function ran and failed. The host adds the function's
    /// error as the reason.
    pub fn succeeded(self) -> Result<Self, Failure> {
        if self.function_error.is_none() {
            Ok(self)
        } else {
            // The host adds the reason.
            Err(Failure::retry())
        }
    }

    /// Parses the payload as JSON if the function did not fail.
    ///
    /// # Errors
    /// Returns [`Failure::Retry`] if the function failed, or if the payload cannot be parsed as a
    /// `T`. The message is not at fault, so it is not rejected.
    pub fn json<T: DeserializeOwned>(self) -> Result<T, Failure> {
        let answer = self.succeeded()?;
        serde_json::from_slice(&answer.payload)
            .map_err(|error| Failure::retry_because(format!("the function's answer: {error}")))
    }
}

/// Returns the value as JSON. A value that cannot be written is a rejection, because a retry would
/// fail, too.
pub(crate) fn written(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value)
        .map_err(|error| Failure::reject(format!("cannot be written as JSON: {error}")))
}

impl Failure {
    /// Converts a failed invocation to the failure of the message that it was made for:
    ///
    /// - [`InvokeError::DidNotRun`] is [`Failure::Busy`]: the message is tried again and no receive
    ///   is spent.
    /// - [`InvokeError::MayHaveRun`] is a retry by policy, so the function may run twice.
    /// - [`InvokeError::Refused`] rejects the message.
    /// - [`InvokeError::Permanent`] closes the route until someone acts.
    /// - [`InvokeError::Forbidden`] is a retry by policy: the function's name may come from the
    ///   message, and one message must not stop the others of its route.
    ///
    /// If the configuration grants a pattern and messages name the function, check the name first.
    #[must_use]
    pub fn of_invocation(error: InvokeError) -> Self {
        match error {
            InvokeError::DidNotRun(why) => Self::Busy {
                after: why.retry_after.map(Duration::from_millis),
                reason: why.reason,
            },
            // The host adds the reason.
            InvokeError::MayHaveRun(_) => Self::retry(),
            InvokeError::Forbidden(why) => Self::retry_because(why),
            InvokeError::Refused(why) => Self::Reject(why),
            InvokeError::Permanent(why) => Self::Closed(why),
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
        let retry = Failure::retry_because("not granted");
        assert_eq!(Failure::of_invocation(not_lent), retry);
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
        let other = Response::new("x").json::<u8>();
        assert!(matches!(other, Err(Failure::Retry(_))), "{other:?}");
    }
}
