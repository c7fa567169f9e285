//! HTTP requests to the hosts that the configuration grants to this plugin. A component that sends
//! one imports `dispatcher:plugin/http`, or `dispatcher:plugin/http-async`.
//!
//! ```
//! use dispatcher_guest::http::{Request, Response};
//! use dispatcher_guest::{Failure, Message, handler, testing};
//!
//! fn handle(message: Message) -> Result<(), Failure> {
//!     let answer = Request::post("https://api.example.com/orders")
//!         .header("x-idempotency-key", &message.id)
//!         .json(&message.body)?
//!         .send()?
//!         .succeeded()?;
//!     println!("{}", answer.text());
//!     Ok(())
//! }
//!
//! handler!(handle);
//! # fn main() {
//! let granted = testing::grant().http(|request| match request.url.as_str() {
//!     "https://api.example.com/orders" => Ok(Response::new(201).with_body("o-1")),
//!     _ => Ok(Response::new(404)),
//! });
//! assert_eq!(testing::run(handle, testing::message("two shoes")), Ok(()));
//! assert_eq!(granted.requests()[0].body, br#""two shoes""#);
//! # }
//! ```
//!
//! The configuration grants hosts with `--allow-http`. A request to another host, or to a private
//! address that is not named, fails with [`Error::Refused`]. Redirects are not followed.
//!
//! [`Request::send`] blocks the instance until there is a response, even in an `async` handler: the
//! other messages of the instance wait. With [`Request::send_async`], the instance handles them
//! meanwhile.

use crate::lambda::written;
use crate::{Failure, Retry};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

#[cfg(target_family = "wasm")]
mod wire;

/// The default maximum size of a response body: 4 MiB. [`Request::limit`] sets another one.
pub const LIMIT: usize = 4 << 20;

/// An HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The method, in upper case.
    pub method: String,
    /// The URL: `http://` or `https://`, a host, an optional port, a path and a query.
    pub url: String,
    /// The names and values of the headers, in order.
    pub headers: Vec<(String, String)>,
    /// The body. It is empty by default.
    pub body: Vec<u8>,
    /// The time limit for the request and the whole response. Without it, nine tenths of the
    /// attempt's remaining time. It never exceeds the attempt's deadline.
    pub timeout: Option<Duration>,
    /// The maximum size of the response body, in bytes.
    pub limit: usize,
    /// Whether a larger body is cut at the limit. Otherwise the request fails with
    /// [`Error::TooLarge`].
    pub truncate: bool,
}

/// An HTTP response with any status.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The status code, such as 200.
    pub status: u16,
    /// The names in lower case and the values of the headers, in order. Bytes of a value that are
    /// not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// The meaning of a response's status for the message.
enum Advice {
    /// The request succeeded.
    Done,
    /// A later request may succeed, after this delay if the server gives one.
    Retry(Option<Duration>),
    /// No later request will succeed.
    Reject,
}

/// The reason why there is no response.
///
/// `?` converts it to the [`Failure`] that each variant describes. For this reason the type does
/// not implement [`std::error::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The configuration does not grant this host to this plugin, or its name resolves to an
    /// address that is not granted. `?` retries by policy: the URL may come from the message, and
    /// one message must not stop the others of its route.
    Refused(String),
    /// The request is invalid: the URL cannot be parsed or is longer than 8 KiB, or a header is not
    /// allowed. `?` rejects the message, because a retry would fail, too.
    Invalid(String),
    /// Too many requests are running at once. `?` returns [`Failure::Busy`], which costs no
    /// receive. If the handler has already done something for the message, return
    /// [`Failure::retry`] instead.
    Busy(String),
    /// The server could not be reached: the name does not resolve, or the connection or the TLS
    /// handshake failed. Nothing was sent. `?` retries by policy.
    Unreachable(String),
    /// The time was over before the response was complete. The server may have carried out the
    /// request. `?` retries by policy.
    TimedOut(String),
    /// The connection broke, or the response is not valid. The server may have carried out the
    /// request. `?` retries by policy.
    Broken(String),
    /// The response body is larger than this many bytes. `?` retries by policy.
    TooLarge(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(out, "not granted: {why}"),
            Self::Invalid(why) => write!(out, "not a valid request: {why}"),
            Self::Busy(why) => write!(out, "too many requests at once: {why}"),
            Self::Unreachable(why) => write!(out, "no connection: {why}"),
            Self::TimedOut(why) => write!(out, "timed out: {why}"),
            Self::Broken(why) => write!(out, "the response broke off: {why}"),
            Self::TooLarge(limit) => write!(out, "the response has more than {limit} bytes"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let said = error.to_string();
        match error {
            Error::Invalid(_) => Self::reject(said),
            Error::Busy(_) => Self::busy(said),
            Error::Refused(_)
            | Error::Unreachable(_)
            | Error::TimedOut(_)
            | Error::Broken(_)
            | Error::TooLarge(_) => Self::retry_because(said),
        }
    }
}

/// Builds a request and sends it.
impl Request {
    /// Creates a request with this method, without headers or a body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into().to_ascii_uppercase(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout: None,
            limit: LIMIT,
            truncate: false,
        }
    }

    /// Creates a `GET` request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// Creates a `POST` request.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// Creates a `PUT` request.
    pub fn put(url: impl Into<String>) -> Self {
        Self::new("PUT", url)
    }

    /// Creates a `DELETE` request.
    pub fn delete(url: impl Into<String>) -> Self {
        Self::new("DELETE", url)
    }

    /// Adds a header. The host sets `Host` and the headers about the connection.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to this value as JSON, and adds the header `content-type`.
    ///
    /// # Errors
    /// Returns [`Failure::Reject`] if the value cannot be written as JSON.
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Result<Self, Failure> {
        let body = written(value)?;
        Ok(self.header("content-type", "application/json").body(body))
    }

    /// Sets the time limit for the request and the whole response. The attempt's own deadline still
    /// applies.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the maximum size of the response body, in bytes. The default is [`LIMIT`].
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Cuts a response body that is larger than [`limit`](Self::limit), instead of failing with
    /// [`Error::TooLarge`].
    #[must_use]
    pub fn truncated(mut self) -> Self {
        self.truncate = true;
        self
    }

    /// Sends the request and returns the whole response.
    ///
    /// # Errors
    /// Returns an [`Error`] if there is no response. A response with any status is not an error:
    /// see [`Response::succeeded`].
    pub fn send(&self) -> Result<Response, Error> {
        #[cfg(target_family = "wasm")]
        return wire::response(wire::http::send(&wire::request(self)));
        #[cfg(not(target_family = "wasm"))]
        return crate::testing::fakes::http(self);
    }

    /// Like [`send`](Self::send), for `async` handlers: while it waits, the instance can handle
    /// other messages.
    ///
    /// # Errors
    /// Returns an [`Error`] if there is no response, like [`send`](Self::send).
    #[cfg_attr(not(target_family = "wasm"), allow(clippy::unused_async))]
    pub async fn send_async(&self) -> Result<Response, Error> {
        #[cfg(target_family = "wasm")]
        return wire::response(wire::http_async::send(wire::request(self)).await);
        #[cfg(not(target_family = "wasm"))]
        return crate::testing::fakes::http(self);
    }
}

/// Reads a response, or builds one for a test.
impl Response {
    /// Creates a response with this status, without headers or a body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into().to_ascii_lowercase();
        self.headers.push((name, value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Returns the value of the first header with this name. Case does not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    /// Returns the body as text. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    /// Returns [`Failure::Retry`] with the reason if the body cannot be parsed as a `T`. The
    /// message is not at fault, so it is not rejected.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Failure::retry_because(format!("the response's body: {error}")))
    }

    /// Returns the response if its status is 2xx.
    ///
    /// # Errors
    /// Returns [`Failure::Retry`] for 401, 403, 408, 425, 429 and 5xx: for example, an expired
    /// credential is not the message's fault. The delay is the number of seconds in the header
    /// `retry-after`, if the response has one and it is not 0. Returns [`Failure::Reject`] for any
    /// other status, including redirects. The reason has the status and the beginning of the body.
    pub fn succeeded(self) -> Result<Self, Failure> {
        match self.advice() {
            Advice::Done => Ok(self),
            Advice::Retry(after) => Err(Failure::Retry(Retry {
                after,
                reason: Some(self.beginning()),
            })),
            Advice::Reject => Err(Failure::reject(self.beginning())),
        }
    }

    fn advice(&self) -> Advice {
        match self.status {
            200..=299 => Advice::Done,
            401 | 403 | 408 | 425 | 429 | 500..=599 => {
                let after = self.header("retry-after");
                let after_s = after.and_then(|text| text.trim().parse().ok());
                // A delay of 0 would use up all attempts at once.
                let after_s = after_s.filter(|after_s| *after_s > 0);
                Advice::Retry(after_s.map(Duration::from_secs))
            }
            _ => Advice::Reject,
        }
    }

    fn beginning(&self) -> String {
        let text: String = self.text().trim().chars().take(200).collect();
        let status = self.status;
        format!("the response: {status} {text}")
            .trim_end()
            .to_owned()
    }
}

#[cfg(test)]
mod tests;
