//! Sends whole requests and returns whole responses, as the contract defines them: without
//! streaming. Uses the same grants, limits, connections and denials as `wasi:http`. Does not depend
//! on the contract's version.

use super::client::ResponseBody;
use super::failure::SendFailure;
use super::granted::{AllowedHosts, GrantedHttp};
use super::host::RequestTarget;
use crate::capability::caller::{Grant, GrantedTo};
use crate::invocation_limit::{Full, InvocationPermit};
use crate::limits::{HTTP_FIELDS, HTTP_WORD};
use bytes::Bytes;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::trace::{self, ActiveSpan};
use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt;
use std::pin::pin;
use std::time::Duration;
use wasmtime_wasi_http::{DEFAULT_FORBIDDEN_HEADERS, Error, RequestOptions, WasiBody};

/// The maximum size of a response's body in bytes, if the guest sets none.
const BODY: u64 = 4 << 20;
/// The divisor of an attempt's remaining time that gives the time that a request leaves to it, so
/// that the guest can still return a verdict.
const REST: u32 = 10;

/// A request with its body.
pub(super) struct WholeRequest {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// The time limit of the request, including the response.
    pub(super) timeout: Option<Duration>,
    /// The maximum size of the response's body, in bytes.
    pub(super) max_body: Option<u64>,
    /// Whether a longer body is cut there. Otherwise the request fails.
    pub(super) truncate: bool,
}

/// The limit of a response's body.
#[derive(Clone, Copy)]
struct BodyLimit {
    /// The maximum size in bytes.
    most: u64,
    /// Whether a longer body is cut there. Otherwise the request fails.
    truncate: bool,
}

/// A response with its body.
pub(super) struct WholeResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// The reason why there is no response. It tells whether the request may have been carried out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    /// The request is not granted.
    Forbidden(String),
    /// The request is not valid.
    Invalid(String),
    /// The maximum number of requests or connections is reached.
    Busy(String),
    /// No connection was made.
    Unreachable(String),
    /// The time is over; the request may have been carried out.
    TimedOut(String),
    /// The response is incomplete; the request may have been carried out.
    Interrupted(String),
    /// The body of the response has more bytes than this.
    TooLarge(u64),
}

/// A caller that may be granted hosts.
pub(super) trait HttpCaller: GrantedTo<AllowedHosts> {}

impl<C: GrantedTo<AllowedHosts>> HttpCaller for C {}

/// Sends a request of a guest. Does not borrow the caller while it waits.
pub(super) fn sending<C: HttpCaller>(
    caller: &C,
    request: WholeRequest,
) -> impl Future<Output = Result<WholeResponse, RequestError>> + Send + use<C> {
    let granted = caller.granted().clone();
    let most = request
        .max_body
        .unwrap_or(BODY)
        .min(caller.budget().call as u64);
    let limit = BodyLimit {
        most,
        truncate: request.truncate,
    };
    let deadline = caller.deadline();
    let held = caller.hold(request.bytes());
    let attempt = trace::active();
    async move {
        let Some(granted) = granted else {
            let denied = SendFailure::refused(Error::HttpRequestDenied);
            return Err(of_failure(&denied, &request.url));
        };
        let held = held.map_err(|Full| busy())?;
        let now = clock::now();
        let left = deadline.map_or(granted.longest(), |end| end.since(now));
        let usual = left - left / REST;
        let end = now + request.timeout.unwrap_or(usual).min(left);
        let url = request.url.clone();
        exchange(&granted, request, held, (end, limit), attempt)
            .await
            .map_err(|error| match error {
                RequestFailure::Here(error) => error,
                RequestFailure::There(failure) => of_failure(&failure, &url),
            })
    }
}

enum RequestFailure {
    Here(RequestError),
    There(SendFailure),
}

impl From<SendFailure> for RequestFailure {
    fn from(failure: SendFailure) -> Self {
        Self::There(failure)
    }
}

async fn exchange(
    granted: &GrantedHttp,
    request: WholeRequest,
    held: InvocationPermit,
    (end, limit): (BootInstant, BodyLimit),
    attempt: Option<ActiveSpan>,
) -> Result<WholeResponse, RequestFailure> {
    let request = request.into_http().map_err(RequestFailure::Here)?;
    let target = granted.judge(&request).map_err(SendFailure::refused)?;
    let options = RequestOptions::default();
    let response = granted.send(target, request, options, end, attempt).await?;
    read(response, held, limit).await
}

impl WholeRequest {
    /// Returns the host memory that it takes, in bytes.
    fn bytes(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        self.method.len() + self.url.len() + self.body.len() + headers
    }

    fn into_http(self) -> Result<Request<WasiBody>, RequestError> {
        let fields: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if fields > HTTP_FIELDS {
            let longest = self.headers.iter().max_by_key(|(_, value)| value.len());
            let longest = longest.map_or("", |(name, _)| name.as_str());
            let what = format!(
                "{fields} bytes of headers, the longest is `{}`; at most {HTTP_FIELDS}",
                longest.escape_debug()
            );
            return Err(RequestError::Invalid(what));
        }
        if self.method.len() > HTTP_WORD || self.url.len() > HTTP_WORD {
            let what = format!("a method or URL of more than {HTTP_WORD} bytes");
            return Err(RequestError::Invalid(what));
        }
        let Ok(method) = Method::from_bytes(self.method.as_bytes()) else {
            let what = format!("the method `{}`", self.method.escape_debug());
            return Err(RequestError::Invalid(what));
        };
        let without_fragment = self.url.split('#').next().unwrap_or_default();
        let Ok(url) = without_fragment.parse::<Uri>() else {
            let url = self.url.escape_debug();
            let what = format!("the URL `{url}`; wanted http://… or https://…");
            return Err(RequestError::Invalid(what));
        };
        let bytes = Bytes::from(self.body);
        let body = http_body_util::Full::new(bytes).map_err(|never| match never {});
        let mut request = Request::new(body.boxed_unsync());
        *request.method_mut() = method;
        *request.uri_mut() = url;
        for (name, value) in &self.headers {
            let shown = name.escape_debug();
            let Ok(field) = HeaderName::from_bytes(name.as_bytes()) else {
                let what = format!("the header name `{shown}`");
                return Err(RequestError::Invalid(what));
            };
            if DEFAULT_FORBIDDEN_HEADERS.contains(&field) {
                let what = format!("the header `{shown}`, which the host sets");
                return Err(RequestError::Invalid(what));
            }
            let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else {
                let what = format!("the value of the header `{shown}`");
                return Err(RequestError::Invalid(what));
            };
            // The client sets the length itself.
            if field != CONTENT_LENGTH {
                request.headers_mut().append(field, value);
            }
        }
        Ok(request)
    }
}

async fn read(
    response: Response<ResponseBody>,
    mut held: InvocationPermit,
    limit: BodyLimit,
) -> Result<WholeResponse, RequestFailure> {
    let (head, body) = response.into_parts();
    let headers: Vec<_> = head
        .headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect();
    let mut read = Vec::new();
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        let Ok(mut data) = frame.map_err(SendFailure::MayBeSent)?.into_data() else {
            continue;
        };
        let left = limit.most.saturating_sub(read.len() as u64);
        let is_cut = data.len() as u64 > left;
        if is_cut && !limit.truncate {
            return Err(RequestFailure::Here(RequestError::TooLarge(limit.most)));
        }
        if is_cut {
            data.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        }
        held.grow(data.len())
            .map_err(|Full| RequestFailure::Here(busy()))?;
        read.extend_from_slice(&data);
        if is_cut {
            break;
        }
    }
    Ok(WholeResponse {
        status: head.status.as_u16(),
        headers,
        body: read,
    })
}

fn busy() -> RequestError {
    RequestError::Busy("the plugin has too many pending requests".to_owned())
}

/// Converts a failure by what it proves: nothing was sent, or the server may have acted.
fn of_failure(failure: &SendFailure, url: &str) -> RequestError {
    // A query may have a secret, and it tells messages apart whose failure is the same.
    let shown = url.split(['?', '#']).next().unwrap_or_default();
    let url: String = shown.escape_debug().take(HTTP_WORD).collect();
    match failure {
        SendFailure::NotSent {
            code,
            words,
            is_shortage,
        } => match code {
            Error::ConnectionLimitReached if *is_shortage => RequestError::Busy(format!(
                "the process has no room for another connection: {words}"
            )),
            code => not_sent(code, words, &url),
        },
        SendFailure::MayBeSent(code) => match code {
            Error::HttpResponseTimeout | Error::ConnectionReadTimeout => {
                RequestError::TimedOut(format!("no complete response in time: {url}"))
            }
            Error::ConnectionTerminated | Error::HttpResponseIncomplete => {
                RequestError::Interrupted(format!("the connection ended: {url}"))
            }
            other => RequestError::Interrupted(format!("{other:?}: {url}")),
        },
    }
}

fn not_sent(code: &Error, words: &str, url: &str) -> RequestError {
    let why = match code {
        Error::HttpRequestDenied => {
            let target = url.parse().ok().as_ref().and_then(RequestTarget::of);
            let flag = target.map(|target| AllowedHosts::DESCRIPTION.flag_for(&target.to_string()));
            let grants = flag.map(|flag| format!("; {flag} grants it"));
            return RequestError::Forbidden(format!(
                "the configuration does not allow this plugin to send requests to {url}{}",
                grants.unwrap_or_default()
            ));
        }
        Error::DestinationIpProhibited => {
            return RequestError::Forbidden(format!(
                "the configuration does not allow this plugin to connect to the private address of {url}"
            ));
        }
        Error::HttpRequestMethodInvalid => {
            return RequestError::Invalid("the method CONNECT is refused".to_owned());
        }
        Error::HttpRequestUriInvalid => {
            return RequestError::Invalid(format!(
                "the URL `{url}`; wanted http://HOST… or https://HOST… without a user"
            ));
        }
        Error::ConnectionLimitReached => {
            let why = "the plugin has too many open connections";
            return RequestError::Busy(why.to_owned());
        }
        Error::ConnectionRefused => "connection refused",
        Error::ConnectionTimeout => "no connection in time",
        Error::DnsError { .. } => "the name has no address",
        Error::DestinationIpUnroutable => "no route to the address",
        Error::TlsCertificateError => "the certificate is not trusted",
        Error::TlsProtocolError => "TLS failed",
        Error::TlsAlertReceived { alert_message, .. } => {
            alert_message.as_deref().unwrap_or("TLS was refused")
        }
        _ => words,
    };
    RequestError::Unreachable(format!("{why}: {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, url: &str, headers: &[(&str, &str)]) -> WholeRequest {
        let headers = headers.iter();
        WholeRequest {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            body: b"hello".to_vec(),
            timeout: None,
            max_body: None,
            truncate: false,
        }
    }

    #[test]
    fn request_is_converted_and_its_length_left_to_the_client() {
        let headers = [("X-A", "1"), ("x-a", "2"), ("Content-Length", "99")];
        let url = "http://example.com/a?b=c#d";
        let made = request("PATCH", url, &headers).into_http();
        let Ok(made) = made else {
            panic!("it is sound");
        };
        assert_eq!(made.method(), "PATCH");
        assert_eq!(made.uri(), "http://example.com/a?b=c");
        let values: Vec<_> = made.headers().get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert!(made.headers().get("content-length").is_none());
    }

    #[test]
    fn impossible_requests_are_refused_with_the_reason() {
        let long = "x".repeat(HTTP_FIELDS);
        for (made, words) in [
            (request("G T", "http://a", &[]), "the method `G T`"),
            (request("GET", "http://a b", &[]), "the URL `http://a b`"),
            (request("GET", "", &[]), "the URL ``"),
            (
                request("GET", "http://a", &[("a b", "c")]),
                "the header name `a b`",
            ),
            (
                request("GET", "http://a", &[("a", "b\nc")]),
                "the value of the header `a`",
            ),
            (
                request("GET", "http://a", &[("Host", "b")]),
                "the header `Host`",
            ),
            (
                request("GET", "http://a", &[("a", &long)]),
                "bytes of headers",
            ),
            (
                request("GET", &"x".repeat(HTTP_WORD + 1), &[]),
                "more than 8192 bytes",
            ),
        ] {
            let Err(RequestError::Invalid(why)) = made.into_http() else {
                panic!("{words}");
            };
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn errors_tell_whether_a_request_may_have_been_carried_out() {
        let denied = SendFailure::refused(Error::HttpRequestDenied);
        let forbidden = of_failure(&denied, "http://a\n?key=secret");
        assert!(matches!(forbidden, RequestError::Forbidden(why) if why.ends_with("http://a\\n")));
        for code in [
            Error::ConnectionTimeout,
            Error::ConnectionTerminated,
            Error::DestinationUnavailable,
            Error::InternalError(None),
        ] {
            let not_sent = of_failure(&SendFailure::refused(code), "http://a");
            assert!(matches!(not_sent, RequestError::Unreachable(_)));
        }
        let shortage = SendFailure::NotSent {
            code: Error::ConnectionLimitReached,
            words: "Too many open files".to_owned(),
            is_shortage: true,
        };
        assert!(
            matches!(of_failure(&shortage, "http://a"), RequestError::Busy(why) if why.contains("open files"))
        );
        let late = SendFailure::MayBeSent(Error::HttpResponseTimeout);
        assert!(matches!(
            of_failure(&late, "http://a"),
            RequestError::TimedOut(_)
        ));
        for code in [
            Error::ConnectionTerminated,
            Error::HttpProtocolError,
            Error::ConnectionRefused,
            Error::TlsProtocolError,
        ] {
            let maybe_sent = of_failure(&SendFailure::MayBeSent(code), "http://a");
            assert!(matches!(maybe_sent, RequestError::Interrupted(_)));
        }
    }
}
