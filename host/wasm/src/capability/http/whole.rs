//! Whole requests and responses, as the contract has them: not streamed. The same grants, limits,
//! connections and denials as those of `wasi:http`. Knows no version of the contract.

use super::client::ResponseBody;
use super::granted::{GrantedHttp, Outgoing};
use crate::capability::caller::GrantedTo;
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

/// Maximum bytes of a response's body where the guest names no other.
const BODY: u64 = 4 << 20;
/// The fraction of its time that a request leaves to the attempt, so that it can still answer.
const REST: u32 = 10;

/// A request, its body included.
pub(super) struct WholeRequest {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// How long the whole may take.
    pub(super) timeout: Option<Duration>,
    /// Maximum bytes of the response's body.
    pub(super) max_body: Option<u64>,
}

/// A response, its body included.
pub(super) struct WholeResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Why there is none, by what that proves.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    /// Not granted.
    Forbidden(String),
    /// No request.
    Invalid(String),
    /// As much is under way as may be.
    Busy(String),
    /// No connection was made.
    Unreachable(String),
    /// The time is over; the request may have been carried out.
    TimedOut(String),
    /// No whole response; the request may have been carried out.
    Interrupted(String),
    /// The response's body has more bytes than this.
    TooLarge(u64),
}

/// A caller that may be granted hosts.
pub(super) trait HttpCaller: GrantedTo<Outgoing> {}

impl<C: GrantedTo<Outgoing>> HttpCaller for C {}

/// Sends a request of a guest. Holds nothing of the caller while it waits.
pub(super) fn sending<C: HttpCaller>(
    caller: &C,
    request: WholeRequest,
) -> impl Future<Output = Result<WholeResponse, RequestError>> + Send + use<C> {
    let granted = caller.granted().clone();
    let most = request.max_body.unwrap_or(BODY);
    let most = most.min(caller.budget().call as u64);
    let deadline = caller.deadline();
    let held = caller.hold(request.bytes());
    let attempt = trace::active();
    async move {
        let Some(granted) = granted else {
            return Err(of_error(&Error::HttpRequestDenied, &request.url));
        };
        let held = held.map_err(|Full| busy())?;
        let now = clock::now();
        let left = deadline.map_or(granted.longest(), |end| end.since(now));
        let usual = left - left / REST;
        let end = now + request.timeout.unwrap_or(usual).min(left);
        let url = request.url.clone();
        exchange(&granted, request, held, (end, most), attempt)
            .await
            .map_err(|error| match error {
                Failed::Here(error) => error,
                Failed::There(error) => of_error(&error, &url),
            })
    }
}

enum Failed {
    Here(RequestError),
    There(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::There(error)
    }
}

async fn exchange(
    granted: &GrantedHttp,
    request: WholeRequest,
    held: InvocationPermit,
    (end, most): (BootInstant, u64),
    attempt: Option<ActiveSpan>,
) -> Result<WholeResponse, Failed> {
    let request = request.into_http().map_err(Failed::Here)?;
    let target = granted.judge(&request)?;
    let options = RequestOptions::default();
    let response = granted.send(target, request, options, end, attempt).await?;
    read(response, held, most).await
}

impl WholeRequest {
    /// The host memory that it takes.
    fn bytes(&self) -> usize {
        let headers = self.headers.iter();
        let headers: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
        self.method.len() + self.url.len() + self.body.len() + headers
    }

    fn into_http(self) -> Result<Request<WasiBody>, RequestError> {
        let invalid = |what: String| Err(RequestError::Invalid(what));
        let fields = self.headers.iter();
        let fields: usize = fields.map(|(name, value)| name.len() + value.len()).sum();
        if fields > HTTP_FIELDS {
            return invalid(format!("{fields} bytes of headers; at most {HTTP_FIELDS}"));
        }
        if self.method.len() > HTTP_WORD || self.url.len() > HTTP_WORD {
            return invalid(format!("a method or URL of more than {HTTP_WORD} bytes"));
        }
        let Ok(method) = Method::from_bytes(self.method.as_bytes()) else {
            return invalid(format!("the method `{}`", self.method.escape_debug()));
        };
        let without_fragment = self.url.split('#').next().unwrap_or_default();
        let Ok(url) = without_fragment.parse::<Uri>() else {
            let url = self.url.escape_debug();
            return invalid(format!("the URL `{url}`; wanted http://… or https://…"));
        };
        let body = Bytes::from(self.body);
        let body = http_body_util::Full::new(body).map_err(|never| match never {});
        let mut request = Request::new(body.boxed_unsync());
        *request.method_mut() = method;
        *request.uri_mut() = url;
        for (name, value) in &self.headers {
            let shown = name.escape_debug();
            let Ok(field) = HeaderName::from_bytes(name.as_bytes()) else {
                return invalid(format!("the header name `{shown}`"));
            };
            if DEFAULT_FORBIDDEN_HEADERS.contains(&field) {
                return invalid(format!("the header `{shown}`, which the host sets"));
            }
            let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else {
                return invalid(format!("the value of the header `{shown}`"));
            };
            // The client knows it better.
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
    most: u64,
) -> Result<WholeResponse, Failed> {
    let too_large = || Failed::Here(RequestError::TooLarge(most));
    let (head, body) = response.into_parts();
    let headers = head.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect();
    let mut read = Vec::new();
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if (read.len() + data.len()) as u64 > most {
            return Err(too_large());
        }
        held.grow(data.len()).map_err(|Full| Failed::Here(busy()))?;
        read.extend_from_slice(&data);
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

fn of_error(error: &Error, url: &str) -> RequestError {
    let url: String = url.escape_debug().take(HTTP_WORD).collect();
    match error {
        Error::HttpRequestDenied => RequestError::Forbidden(format!(
            "the configuration does not allow this plugin to send requests to {url}"
        )),
        Error::DestinationIpProhibited => RequestError::Forbidden(format!(
            "the configuration does not allow this plugin to connect to the private address of {url}"
        )),
        Error::HttpRequestMethodInvalid => {
            RequestError::Invalid("the method CONNECT is refused".to_owned())
        }
        Error::HttpRequestUriInvalid => RequestError::Invalid(format!(
            "the URL `{url}`; wanted http://HOST… or https://HOST… without a user"
        )),
        Error::ConnectionLimitReached => {
            RequestError::Busy("the plugin has too many open connections".to_owned())
        }
        Error::ConnectionRefused => unreachable_host("connection refused", &url),
        Error::ConnectionTimeout => unreachable_host("no connection in time", &url),
        Error::DnsError { .. } => unreachable_host("the name has no address", &url),
        Error::DestinationIpUnroutable => unreachable_host("no route to the address", &url),
        Error::TlsCertificateError => unreachable_host("the certificate is not trusted", &url),
        Error::TlsProtocolError => unreachable_host("TLS failed", &url),
        Error::TlsAlertReceived { alert_message, .. } => {
            let why = alert_message.as_deref().unwrap_or("TLS was refused");
            unreachable_host(why, &url)
        }
        Error::HttpResponseTimeout | Error::ConnectionReadTimeout => {
            RequestError::TimedOut(format!("no whole response in time: {url}"))
        }
        Error::ConnectionTerminated | Error::HttpResponseIncomplete => {
            RequestError::Interrupted(format!("the connection ended: {url}"))
        }
        other => RequestError::Interrupted(format!("{other:?}: {url}")),
    }
}

fn unreachable_host(why: &str, url: &str) -> RequestError {
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
        let of = |error: Error| of_error(&error, "http://a\n");
        assert!(
            matches!(of(Error::HttpRequestDenied), RequestError::Forbidden(why) if why.ends_with("http://a\\n"))
        );
        assert!(matches!(
            of(Error::ConnectionTimeout),
            RequestError::Unreachable(_)
        ));
        assert!(matches!(
            of(Error::HttpResponseTimeout),
            RequestError::TimedOut(_)
        ));
        assert!(matches!(
            of(Error::ConnectionTerminated),
            RequestError::Interrupted(_)
        ));
        assert!(matches!(
            of(Error::HttpProtocolError),
            RequestError::Interrupted(_)
        ));
    }
}
