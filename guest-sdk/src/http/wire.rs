//! A request by `wasi:http` of WASI 0.2. Knows nothing of what an answer means.

use super::{Error, Request, Response};
use std::time::{Duration, Instant};
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingResponse, Method, OutgoingBody,
    OutgoingRequest, RequestOptions, Scheme,
};
use wasip2::io::streams::StreamError;

/// The most that `blocking-write-and-flush` takes at once, as `wasi:io` says.
const WRITTEN_AT_ONCE: usize = 4096;
const READ_AT_ONCE: u64 = 64 << 10;

pub(super) fn send(request: &Request) -> Result<Response, Error> {
    let patience = request.patience();
    let ends = patience.and_then(|patience| Instant::now().checked_add(patience));
    let outgoing = outgoing(request)?;
    let body = outgoing.body().map_err(|()| invalid("its body"))?;
    let options = patience.map(options).transpose()?;
    let answer = handle(outgoing, options).map_err(|code| told(&code, &request.url))?;
    write(&body, &request.body);
    // An unfinished body and a failed request are told by the answer.
    let _ = OutgoingBody::finish(body, None);
    let incoming = wait(&answer).map_err(|code| told(&code, &request.url))?;
    read(&incoming, request, ends)
}

fn invalid(what: &str) -> Error {
    Error::Invalid(format!("{what} is not allowed"))
}

fn outgoing(request: &Request) -> Result<OutgoingRequest, Error> {
    let wanted = || Error::Invalid(format!("wanted http://… or https://…: {}", request.url));
    let (scheme, rest) = request.url.split_once("://").ok_or_else(wanted)?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err(wanted()),
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    let headers = Fields::new();
    for (name, value) in &request.headers {
        let added = headers.append(name, value.as_bytes());
        added.map_err(|error| Error::Invalid(format!("the header `{name}`: {error}")))?;
    }
    let length = request.body.len();
    let bodiless = length == 0 && ["GET", "HEAD"].contains(&request.method.as_str());
    if !bodiless && !headers.has("content-length") {
        // Without it the body goes in chunks, which not every server takes.
        let added = headers.append("content-length", length.to_string().as_bytes());
        added.map_err(|error| Error::Invalid(format!("the header `content-length`: {error}")))?;
    }
    let outgoing = OutgoingRequest::new(headers);
    let set = outgoing
        .set_method(&method(&request.method))
        .and_then(|()| outgoing.set_scheme(Some(&scheme)))
        .and_then(|()| outgoing.set_authority(Some(authority)))
        .and_then(|()| outgoing.set_path_with_query(Some(&path)));
    set.map_err(|()| Error::Invalid(format!("{} {}", request.method, request.url)))?;
    Ok(outgoing)
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "CONNECT" => Method::Connect,
        "OPTIONS" => Method::Options,
        "TRACE" => Method::Trace,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    }
}

fn options(patience: Duration) -> Result<RequestOptions, Error> {
    let options = RequestOptions::new();
    let ns = Some(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
    options
        .set_connect_timeout(ns)
        .and_then(|()| options.set_first_byte_timeout(ns))
        .and_then(|()| options.set_between_bytes_timeout(ns))
        .map_err(|()| invalid("a time-out"))?;
    Ok(options)
}

/// Writes the body, as far as the other side takes it.
fn write(body: &OutgoingBody, bytes: &[u8]) {
    let Ok(stream) = body.write() else {
        return;
    };
    for piece in bytes.chunks(WRITTEN_AT_ONCE) {
        if stream.blocking_write_and_flush(piece).is_err() {
            return;
        }
    }
}

fn wait(answer: &FutureIncomingResponse) -> Result<IncomingResponse, ErrorCode> {
    answer.subscribe().block();
    let lost = || Err(ErrorCode::InternalError(Some("no answer".into())));
    match answer.get() {
        Some(Ok(answer)) => answer,
        _ => lost(),
    }
}

fn read(
    incoming: &IncomingResponse,
    request: &Request,
    ends: Option<Instant>,
) -> Result<Response, Error> {
    let entries = incoming.headers().entries().into_iter();
    let headers = entries.map(|(name, value)| {
        let value = String::from_utf8_lossy(&value).into_owned();
        (name.to_ascii_lowercase(), value)
    });
    let mut answer = Response {
        status: incoming.status(),
        headers: headers.collect(),
        body: Vec::new(),
    };
    let lost = || Error::Broken("there is no body".to_owned());
    let body = incoming.consume().map_err(|()| lost())?;
    let stream = body.stream().map_err(|()| lost())?;
    loop {
        match stream.blocking_read(READ_AT_ONCE) {
            Ok(bytes) if bytes.len() > request.limit - answer.body.len() => {
                return Err(Error::TooLarge(request.limit));
            }
            Ok(bytes) => answer.body.extend(bytes),
            Err(StreamError::Closed) => return Ok(answer),
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                return Err(match code {
                    Some(code) => told(&code, &request.url),
                    None => Error::Broken(error.to_debug_string()),
                });
            }
        }
        // The host counts between bytes; a body that drips has an end, too.
        if ends.is_some_and(|ends| Instant::now() >= ends) {
            return Err(Error::TimedOut(request.url.clone()));
        }
    }
}

/// What an error of the host's proves.
fn told(code: &ErrorCode, url: &str) -> Error {
    let said = format!("{url}: {code:?}");
    match code {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => Error::Refused(said),
        ErrorCode::HttpRequestMethodInvalid
        | ErrorCode::HttpRequestUriInvalid
        | ErrorCode::HttpRequestUriTooLong
        | ErrorCode::HttpRequestHeaderSectionSize(_)
        | ErrorCode::HttpRequestHeaderSize(_)
        | ErrorCode::HttpRequestBodySize(_) => Error::Invalid(said),
        ErrorCode::ConnectionLimitReached => Error::Busy(said),
        ErrorCode::DnsTimeout
        | ErrorCode::DnsError(_)
        | ErrorCode::DestinationNotFound
        | ErrorCode::DestinationUnavailable
        | ErrorCode::DestinationIpUnroutable
        | ErrorCode::ConnectionRefused
        | ErrorCode::ConnectionTimeout
        | ErrorCode::TlsProtocolError
        | ErrorCode::TlsCertificateError
        | ErrorCode::TlsAlertReceived(_) => Error::Unreachable(said),
        ErrorCode::ConnectionReadTimeout
        | ErrorCode::ConnectionWriteTimeout
        | ErrorCode::HttpResponseTimeout => Error::TimedOut(said),
        _ => Error::Broken(said),
    }
}
