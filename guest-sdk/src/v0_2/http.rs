//! HTTP by the contract itself, under the same grants as [`crate::http`] (`--allow-http`): whole requests
//! and responses, without the imports of `wasi:http`, and failures with their reasons.
//!
//! ```
//! use dispatcher_guest::v0_2::http::{Request, Response, send, succeeded};
//! use dispatcher_guest::v0_2::{self, Delivery, Failure, Retry, handler};
//! use dispatcher_guest::testing;
//! use std::time::Duration;
//!
//! fn order(delivery: Delivery) -> Result<(), Failure> {
//!     let request = Request::post("https://api.example.com/orders")
//!         .header("idempotency-key", &delivery.idempotency_key)
//!         .json(&delivery.body)?;
//!     println!("{}", succeeded(send(&request)?)?.text());
//!     Ok(())
//! }
//!
//! handler!(order);
//! # fn main() {
//! let _granted = testing::grant().http(|_| Ok(Response::new(503).with_header("retry-after", "7")));
//! let retry = Retry::after(Duration::from_secs(7)).because("the answer: 503");
//! assert_eq!(v0_2::run(order, Delivery::of(testing::message("shoes"))), Err(retry.into()));
//! # }
//! ```
//!
//! Redirects are not followed. A body of a response has at most 32 MiB, whatever
//! [`Request::limit`] allows.

pub use crate::http::{Error, Request, Response};

use super::{Failure, Retry};
use crate::http::Advice;

/// Sends a request and waits for the whole response; the instance handles nothing else meanwhile.
///
/// # Errors
/// Why there is no response. One of any status is no error: see [`succeeded`].
pub fn send(request: &Request) -> Result<Response, Error> {
    #[cfg(target_family = "wasm")]
    return wire::of(wire::http::send(&wire::request(request)));
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::http(request);
}

/// The same for `async` handlers: the instance handles other messages meanwhile.
///
/// # Errors
/// As [`send`].
#[cfg_attr(
    not(target_family = "wasm"),
    allow(clippy::unused_async, reason = "a fake answers at once")
)]
pub async fn send_async(request: &Request) -> Result<Response, Error> {
    #[cfg(target_family = "wasm")]
    return wire::of(wire::http_async::send(wire::request(request)).await);
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::http(request);
}

/// The response, if its status is 2xx.
///
/// # Errors
/// As [`Response::succeeded`]: a retry for 401, 403, 408, 425, 429 and 5xx, a rejection for any other
/// status; both with the status and the beginning of the body as the reason.
pub fn succeeded(response: Response) -> Result<Response, Failure> {
    let why = || format!("the answer: {}", response.beginning());
    match response.advice() {
        Advice::Done => Ok(response),
        Advice::Reject => Err(Failure::Reject(why())),
        Advice::Retry(after) => Err(Failure::Retry(Retry {
            after,
            reason: Some(why()),
        })),
    }
}

#[cfg(target_family = "wasm")]
mod wire {
    //! The contract's own words.

    pub(super) use super::super::bindings::imports::dispatcher::plugin::{http, http_async};

    use super::{Error, Request, Response};
    use crate::v0_2::bindings::imports::dispatcher::plugin::http_types::{
        HttpError, Request as WireRequest, Response as WireResponse,
    };

    pub(super) fn request(request: &Request) -> WireRequest {
        let timeout = request.timeout.map(|timeout| timeout.as_millis());
        WireRequest {
            method: request.method.clone(),
            url: request.url.clone(),
            headers: request.headers.clone(),
            body: request.body.clone(),
            timeout: timeout.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
            max_body: Some(request.limit as u64),
        }
    }

    pub(super) fn of(answer: Result<WireResponse, HttpError>) -> Result<Response, Error> {
        match answer {
            Ok(answer) => Ok(Response {
                status: answer.status,
                headers: answer.headers,
                body: answer.body,
            }),
            Err(error) => Err(match error {
                HttpError::Forbidden(why) => Error::Refused(why),
                HttpError::Invalid(why) => Error::Invalid(why),
                HttpError::Busy(why) => Error::Busy(why),
                HttpError::Unreachable(why) => Error::Unreachable(why),
                HttpError::TimedOut(why) => Error::TimedOut(why),
                HttpError::Interrupted(why) => Error::Broken(why),
                HttpError::TooLarge(bytes) => {
                    Error::TooLarge(usize::try_from(bytes).unwrap_or(usize::MAX))
                }
            }),
        }
    }
}
