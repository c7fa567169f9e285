//! A request by `wasi:http`: of WASI 0.2 for who waits, of WASI 0.3 for who awaits. Here is what both
//! have; neither knows what an answer means.

mod awaiting;
mod blocking;

use super::{Error, Request};

pub(super) use awaiting::send as send_async;
pub(super) use blocking::send;

const READ_AT_ONCE: usize = 64 << 10;

/// What is wanted of the body of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// All of it; more than the limit is an error.
    Whole,
    /// As much as the limit allows.
    Beginning,
}

/// A request, taken apart.
struct Parts<'a> {
    is_https: bool,
    authority: &'a str,
    /// With its query.
    path: String,
    headers: Vec<(&'a str, String)>,
    has_body: bool,
}

fn parts(request: &Request) -> Result<Parts<'_>, Error> {
    let wanted = || Error::Invalid(format!("wanted http://… or https://…: {}", request.url));
    let (scheme, rest) = request.url.split_once("://").ok_or_else(wanted)?;
    let is_https = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(wanted()),
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    let headers = request.headers.iter();
    let mut headers: Vec<_> = headers
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    let length = request.body.len();
    let has_body = length > 0 || !["GET", "HEAD"].contains(&request.method.as_str());
    let said = |(name, _): &(&str, String)| name.eq_ignore_ascii_case("content-length");
    if has_body && !headers.iter().any(said) {
        // Without it the body goes in chunks, which not every server takes.
        headers.push(("content-length", length.to_string()));
    }
    Ok(Parts {
        is_https,
        authority,
        path,
        headers,
        has_body,
    })
}

impl Parts<'_> {
    /// One of them may not be.
    fn refused(&self, request: &Request) -> Error {
        Error::Invalid(format!("{} {}", request.method, request.url))
    }
}

fn invalid(what: &str) -> Error {
    Error::Invalid(format!("{what} is not allowed"))
}

/// The same names in each version's own type.
macro_rules! of_method {
    ($method:ty) => {
        fn method(name: &str) -> $method {
            match name {
                "GET" => <$method>::Get,
                "HEAD" => <$method>::Head,
                "POST" => <$method>::Post,
                "PUT" => <$method>::Put,
                "DELETE" => <$method>::Delete,
                "CONNECT" => <$method>::Connect,
                "OPTIONS" => <$method>::Options,
                "TRACE" => <$method>::Trace,
                "PATCH" => <$method>::Patch,
                other => <$method>::Other(other.to_owned()),
            }
        }
    };
}
use of_method;

macro_rules! of_code {
    ($code:ident) => {
        /// What an error of the host's proves.
        fn told(code: &$code, url: &str) -> Error {
            let said = format!("{url}: {code:?}");
            match code {
                $code::HttpRequestDenied | $code::DestinationIpProhibited => Error::Refused(said),
                $code::HttpRequestMethodInvalid
                | $code::HttpRequestUriInvalid
                | $code::HttpRequestUriTooLong
                | $code::HttpRequestHeaderSectionSize(_)
                | $code::HttpRequestHeaderSize(_)
                | $code::HttpRequestBodySize(_) => Error::Invalid(said),
                $code::ConnectionLimitReached => Error::Busy(said),
                $code::DnsTimeout
                | $code::DnsError(_)
                | $code::DestinationNotFound
                | $code::DestinationUnavailable
                | $code::DestinationIpUnroutable
                | $code::ConnectionRefused
                | $code::ConnectionTimeout
                | $code::TlsProtocolError
                | $code::TlsCertificateError
                | $code::TlsAlertReceived(_) => Error::Unreachable(said),
                $code::ConnectionReadTimeout
                | $code::ConnectionWriteTimeout
                | $code::HttpResponseTimeout => Error::TimedOut(said),
                _ => Error::Broken(said),
            }
        }
    };
}
use of_code;
