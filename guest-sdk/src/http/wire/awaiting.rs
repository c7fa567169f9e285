//! A request by `wasi:http` of WASI 0.3, for who awaits.

use super::{Body, READ_AT_ONCE, invalid, parts};
use crate::bindings::wasi_http::wasi::http::client;
use crate::bindings::wasi_http::wasi::http::types::{
    self, ErrorCode, Fields, Method, RequestOptions, Scheme,
};
use crate::bindings::wasi_http::{wit_future, wit_stream};
use crate::http::{Error, Request, Response};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::{Duration, Instant};
use wit_bindgen::{StreamReader, StreamResult, StreamWriter};

pub(in crate::http) async fn send(request: &Request, wanted: Body) -> Result<Response, Error> {
    let patience = request.patience();
    let ends = patience.and_then(|patience| Instant::now().checked_add(patience));
    let (outgoing, body) = outgoing(request, patience)?;
    let mut writing = pin!(write(body, &request.body));
    let mut sending = pin!(client::send(outgoing));
    let mut is_written = false;
    // The body goes out while the answer is waited for, which may come before its end.
    let answer = poll_fn(|context| {
        if !is_written {
            is_written = writing.as_mut().poll(context).is_ready();
        }
        sending.as_mut().poll(context)
    });
    let incoming = answer.await.map_err(|code| told(&code, &request.url))?;
    read(incoming, request, wanted, ends).await
}

type Outgoing = (types::Request, Option<StreamWriter<u8>>);

fn outgoing(request: &Request, patience: Option<Duration>) -> Result<Outgoing, Error> {
    let parts = parts(request)?;
    let headers = Fields::new();
    for (name, value) in &parts.headers {
        let added = headers.append(name, value.as_bytes());
        added.map_err(|error| Error::Invalid(format!("the header `{name}`: {error:?}")))?;
    }
    let (body, contents) = match parts.has_body {
        true => {
            let (body, contents) = wit_stream::new();
            (Some(body), Some(contents))
        }
        false => (None, None),
    };
    let (_no_more, trailers) = wit_future::new(|| Ok(None));
    let options = patience.map(options).transpose()?;
    let (outgoing, _sent) = types::Request::new(headers, contents, trailers, options);
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
    Ok((outgoing, body))
}

fn options(patience: Duration) -> Result<RequestOptions, Error> {
    let options = RequestOptions::new();
    let ns = Some(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
    options
        .set_connect_timeout(ns)
        .and_then(|()| options.set_first_byte_timeout(ns))
        .and_then(|()| options.set_between_bytes_timeout(ns))
        .map_err(|_| invalid("a time-out"))?;
    Ok(options)
}

/// Writes the body, as far as the other side takes it.
async fn write(body: Option<StreamWriter<u8>>, bytes: &[u8]) {
    if let Some(mut body) = body {
        body.write_all(bytes.to_vec()).await;
    }
}

async fn read(
    incoming: types::Response,
    request: &Request,
    wanted: Body,
    ends: Option<Instant>,
) -> Result<Response, Error> {
    let entries = incoming.get_headers().copy_all().into_iter();
    let headers = entries.map(|(name, value)| {
        let value = String::from_utf8_lossy(&value).into_owned();
        (name.to_ascii_lowercase(), value)
    });
    let mut answer = Response {
        status: incoming.get_status_code(),
        headers: headers.collect(),
        body: Vec::new(),
    };
    let (_read, done) = wit_future::new(|| Ok(()));
    let (mut body, whole): (StreamReader<u8>, _) = types::Response::consume_body(incoming, done);
    loop {
        let (result, bytes) = body.read(Vec::with_capacity(READ_AT_ONCE)).await;
        let left = request.limit - answer.body.len();
        if bytes.len() > left {
            if wanted == Body::Whole {
                return Err(Error::TooLarge(request.limit));
            }
            answer.body.extend_from_slice(&bytes[..left]);
            return Ok(answer);
        }
        answer.body.extend(bytes);
        if !matches!(result, StreamResult::Complete(_)) {
            break;
        }
        // The host counts between bytes; a body that drips has an end, too.
        if ends.is_some_and(|ends| Instant::now() >= ends) {
            return Err(Error::TimedOut(request.url.clone()));
        }
    }
    match whole.await {
        Ok(_) => Ok(answer),
        Err(code) => Err(told(&code, &request.url)),
    }
}

super::of_method!(Method);
super::of_code!(ErrorCode);
