//! HTTP requests to the hosts that the configuration grants to this plugin. Sending one makes the
//! component import `wasi:http`; knows nothing of messages.
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
//! The configuration grants hosts by `--allow-http`. Any other, and a private address that is not
//! named, is [`Error::Refused`]. No redirect is followed.
//!
//! [`Request::send`] holds the instance until there is an answer, in an `async` handler, too: the other
//! messages of the instance wait meanwhile. With [`Request::send_async`] they go on.

use crate::lambda::written;
use crate::{Failure, attempt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

#[cfg(target_family = "wasm")]
mod wire;

/// The longest body of an answer that is taken, unless [`Request::limit`] says otherwise: 4 MiB, which
/// fits into an instance's memory several times.
pub const LIMIT: usize = 4 << 20;

/// What is left of an attempt's time after a request was given up: a tenth of it, and at most so much.
const MOST_SPARE: Duration = Duration::from_secs(10);

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The method, in upper case.
    pub method: String,
    /// `http://` or `https://`, a host, perhaps a port, a path and a query.
    pub url: String,
    /// Names and values, in their order.
    pub headers: Vec<(String, String)>,
    /// The body, empty unless it is set.
    pub body: Vec<u8>,
    /// How long to wait until all of the answer is there. None is until shortly before the attempt at
    /// hand ends.
    pub timeout: Option<Duration>,
    /// The most bytes of the answer's body.
    pub limit: usize,
}

/// One answer, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// Such as 200.
    pub status: u16,
    /// Names in lower case and values, in their order. What is no text in a value is replaced.
    pub headers: Vec<(String, String)>,
    /// All of the body.
    pub body: Vec<u8>,
}

/// What the status of an answer means for the message.
pub(crate) enum Advice {
    /// It is a success.
    Done,
    /// It may change, after this long if the server says so.
    Retry(Option<Duration>),
    /// It will not change.
    Reject,
}

/// Why there is no answer.
///
/// `?` makes a [`Failure`] of it, by what it proves. For that it is no [`std::error::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The configuration does not grant this host to this plugin, or its name leads to an address that
    /// is not granted. A retry by policy: the URL may be the message's own, and no message may stop the
    /// others of its route.
    Refused(String),
    /// This is no request: a URL that cannot be read or is longer than 8 KiB, a header that may not be. The message is
    /// rejected, as this will not get better.
    Invalid(String),
    /// So many requests are under way that there is no room: busy, and no receive is spent. Who has done
    /// something for the message before says [`Failure::retry`] instead.
    Busy(String),
    /// Nobody has the request: no such name, no connection, no agreement on TLS. A retry by policy.
    Unreachable(String),
    /// There was no answer, or not all of it, when the time was over: the other side may have done
    /// what it was asked. A retry by policy.
    TimedOut(String),
    /// The connection broke, or the answer makes no sense: the other side may have done what it was
    /// asked. A retry by policy.
    Broken(String),
    /// The answer's body has more bytes than these. A retry by policy.
    TooLarge(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(out, "the host is not granted: {why}"),
            Self::Invalid(why) => write!(out, "no request: {why}"),
            Self::Busy(why) => write!(out, "too many requests at once: {why}"),
            Self::Unreachable(why) => write!(out, "nobody could be reached: {why}"),
            Self::TimedOut(why) => write!(out, "no answer in time: {why}"),
            Self::Broken(why) => write!(out, "the answer broke off: {why}"),
            Self::TooLarge(limit) => write!(out, "the answer has more than {limit} bytes"),
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
            | Error::TooLarge(_) => {
                eprintln!("{said}");
                Self::retry()
            }
        }
    }
}

/// A request, put together.
impl Request {
    /// A request by any method, without headers or a body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into().to_ascii_uppercase(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout: None,
            limit: LIMIT,
        }
    }

    /// `GET`.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// `POST`.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// `PUT`.
    pub fn put(url: impl Into<String>) -> Self {
        Self::new("PUT", url)
    }

    /// `DELETE`.
    pub fn delete(url: impl Into<String>) -> Self {
        Self::new("DELETE", url)
    }

    /// One more header. `Host` and what is about the connection is the host's to set.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The body as JSON, with its `content-type`.
    ///
    /// # Errors
    /// [`Failure::Reject`], where the value cannot be written as JSON.
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Result<Self, Failure> {
        let body = written(value)?;
        Ok(self.header("content-type", "application/json").body(body))
    }

    /// How long to wait until all of the answer is there. The attempt's own end comes first all the
    /// same.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The most bytes of the answer's body, [`LIMIT`] unless said here.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// How long to wait: what was said, or nine tenths of what the attempt at hand has left (all but
    /// 10 s where that is more), whichever is shorter. None where there is no end.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        let left = attempt::end_ms().map(attempt::left);
        // The handler has to hear of it while it still runs.
        let left = left.map(|left| left - (left / 10).min(MOST_SPARE));
        match (self.timeout, left) {
            (Some(timeout), Some(left)) => Some(timeout.min(left)),
            (timeout, left) => timeout.or(left),
        }
    }

    /// Sends it and waits for all of the answer.
    ///
    /// # Errors
    /// Why there is none; see [`Error`]. An answer of any status is no error: see
    /// [`Response::succeeded`].
    pub fn send(&self) -> Result<Response, Error> {
        #[cfg(target_family = "wasm")]
        return wire::send(self);
        #[cfg(not(target_family = "wasm"))]
        return crate::testing::fakes::http(self);
    }

    /// The same for `async` callers: an instance that awaits it can handle other messages meanwhile.
    /// It makes the component import `wasi:http` of WASI 0.3.
    ///
    /// # Errors
    /// As with [`send`](Self::send).
    #[cfg_attr(not(target_family = "wasm"), allow(clippy::unused_async))]
    pub async fn send_async(&self) -> Result<Response, Error> {
        #[cfg(target_family = "wasm")]
        return wire::send_async(self, wire::Body::Whole).await;
        #[cfg(not(target_family = "wasm"))]
        return crate::testing::fakes::http(self);
    }

    /// The same for who needs only the beginning of the answer: of a body with more bytes than
    /// [`limit`](Self::limit) those are taken, and the rest is not read.
    ///
    /// # Errors
    /// As with [`send`](Self::send), but never [`Error::TooLarge`].
    #[cfg_attr(not(target_family = "wasm"), allow(clippy::unused_async))]
    pub async fn send_for_beginning_async(&self) -> Result<Response, Error> {
        #[cfg(target_family = "wasm")]
        return wire::send_async(self, wire::Body::Beginning).await;
        #[cfg(not(target_family = "wasm"))]
        return crate::testing::fakes::http_beginning(self);
    }
}

/// An answer, read; or made for a test.
impl Response {
    /// An answer of this status, without headers or a body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// One more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into().to_ascii_lowercase();
        self.headers.push((name, value.into()));
        self
    }

    /// The body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The first header of this name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    /// The body as text; what is no UTF-8 in it is replaced.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// The body, read as JSON.
    ///
    /// # Errors
    /// [`Failure::Retry`], where it is not of this type: that is not the message's fault. Why is
    /// printed to stderr.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            eprintln!("the answer's body: {error}");
            Failure::retry()
        })
    }

    /// The answer, where its status is 2xx.
    ///
    /// # Errors
    /// For 401, 403, 408, 425, 429 and 5xx [`Failure::Retry`], after the seconds of `retry-after` where
    /// the answer has them and they are not 0, with the status on stderr: a credential that has expired
    /// is not the message's fault. For any other status, redirects included, [`Failure::Reject`] with
    /// the status and the beginning of the body.
    pub fn succeeded(self) -> Result<Self, Failure> {
        match self.advice() {
            Advice::Done => Ok(self),
            Advice::Retry(after) => {
                eprintln!("the answer: {}", self.beginning());
                Err(Failure::Retry(after))
            }
            Advice::Reject => Err(Failure::reject(format!("the answer: {}", self.beginning()))),
        }
    }

    pub(crate) fn advice(&self) -> Advice {
        match self.status {
            200..=299 => Advice::Done,
            401 | 403 | 408 | 425 | 429 | 500..=599 => {
                let after = self.header("retry-after");
                let after_s = after.and_then(|text| text.trim().parse().ok());
                // Without a pause all tries would be used up at once.
                let after_s = after_s.filter(|after_s| *after_s > 0);
                Advice::Retry(after_s.map(Duration::from_secs))
            }
            _ => Advice::Reject,
        }
    }

    pub(crate) fn beginning(&self) -> String {
        let text: String = self.text().trim().chars().take(200).collect();
        format!("{} {text}", self.status).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests;
