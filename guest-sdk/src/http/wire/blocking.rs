//! A request by `wasi:http` of WASI 0.2, for who waits.

use super::{READ_AT_ONCE, invalid, parts};
use crate::http::{Error, Request, Response};
use std::time::{Duration, Instant};
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingResponse, Method, OutgoingBody,
    OutgoingRequest, RequestOptions, Scheme,
};
use wasip2::io::streams::StreamError;

/// The most that `blocking-write-and-flush` takes at once, as `wasi:io` says.
const WRITTEN_AT_ONCE: usize = 4096;

pub(in crate::http) fn send(request: &Request) -> Result<Response, Error> {
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

fn outgoing(request: &Request) -> Result<OutgoingRequest, Error> {
    let parts = parts(request)?;
    let headers = Fields::new();
    for (name, value) in &parts.headers {
        let added = headers.append(name, value.as_bytes());
        added.map_err(|error| Error::Invalid(format!("the header `{name}`: {error}")))?;
    }
    let outgoing = OutgoingRequest::new(headers);
    let scheme = match parts.is_https {
        true => Scheme::Https,
        false => Scheme::Http,
    };
    let set = outgoing
        .set_method(&method(&request.method))
        .and_then(|()| outgoing.set_scheme(Some(&scheme)))
        .and_then(|()| outgoing.set_authority(Some(parts.authority)))
        .and_then(|()| outgoing.set_path_with_query(Some(&parts.path)));
    set.map_err(|()| parts.refused(request))?;
    Ok(outgoing)
}

super::of_method!(Method);

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
        match stream.blocking_read(READ_AT_ONCE as u64) {
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

super::of_code!(ErrorCode);
