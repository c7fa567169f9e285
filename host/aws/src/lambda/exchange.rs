//! One HTTP request on one connection, and its response whole. While the response is awaited no
//! buffer is held: with thousands of requests under way that is most of their memory. Knows neither
//! the pool of connections nor Lambda.

use aws_smithy_types::body::SdkBody;
use bytes::Buf;
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{Method, Request, Response};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use ureq_proto::client::state::{Cleanup, RecvBody, RecvResponse, SendRequest};
use ureq_proto::client::{Call, RecvBodyResult, RecvResponseResult, SendRequestResult};
use ureq_proto::{BodyMode, Error};

/// Maximum bytes of a response's head. 4 KiB of a function's log may be in it.
const LONGEST_HEAD: usize = 64 << 10;
/// Bytes of one read.
const READ: usize = 16 << 10;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("the connection was closed before the response was complete")]
    Closed,
    #[error("the head of the response is longer than {} KiB", LONGEST_HEAD >> 10)]
    LongHead,
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error("not HTTP/1.1: {0}")]
    Protocol(#[from] Error),
}

/// A POST, as it is written.
pub(super) struct SerializedPost {
    head: Vec<u8>,
    body: SdkBody,
}

/// A write that failed.
#[derive(Debug)]
pub(super) struct FailedWrite {
    /// Whether any byte of the request was written.
    pub began: bool,
    /// Why.
    pub error: io::Error,
}

impl SerializedPost {
    /// Of a request whose body is in memory.
    pub(super) fn new(mut request: Request<SdkBody>) -> Result<Self, ExchangeError> {
        let length = request.body().bytes().unwrap_or_default().len();
        // All of the request is written at once.
        request.headers_mut().remove(EXPECT);
        request.headers_mut().insert(CONTENT_LENGTH, length.into());
        let (parts, body) = request.into_parts();
        let mut call = Call::new(Request::from_parts(parts, ()))?.proceed();
        let head = head(&mut call)?;
        Ok(Self { head, body })
    }

    /// Writes all of it.
    pub(super) async fn write(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), FailedWrite> {
        let body = self.body.bytes().unwrap_or_default();
        let mut unsent = self.head.chain(body);
        let all = unsent.remaining();
        let written = match stream.write_all_buf(&mut unsent).await {
            Ok(()) => stream.flush().await,
            failed => failed,
        };
        written.map_err(|error| FailedWrite {
            began: unsent.remaining() < all,
            error,
        })
    }
}

/// The head of a request.
fn head(call: &mut Call<SendRequest>) -> Result<Vec<u8>, Error> {
    let (mut head, mut room) = (Vec::new(), 1 << 10);
    while !call.can_proceed() {
        let start = head.len();
        head.resize(start + room, 0);
        let count = match call.write(&mut head[start..]) {
            // The next line is longer.
            Err(Error::OutputOverflow) => {
                room *= 2;
                0
            }
            written => written?,
        };
        head.truncate(start + count);
    }
    Ok(head)
}

/// Waits for the response to a POST and reads all of it; whether the connection can be used again.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(Response<Vec<u8>>, bool), ExchangeError> {
    let mut unread = Vec::new();
    more(stream, &mut unread).await?;
    // In its own box: it is large, and not there while we wait for the first byte.
    Box::pin(rest(stream, unread)).await
}

/// Reads a response that has begun.
async fn rest(
    stream: &mut (impl AsyncRead + Unpin),
    mut unread: Vec<u8>,
) -> Result<(Response<Vec<u8>>, bool), ExchangeError> {
    let mut call = written()?;
    let head = loop {
        let (used, head) = call.try_response(&unread, false)?;
        unread.drain(..used);
        match head {
            Some(head) => break head,
            // One that informs, before the response.
            None if used > 0 => {}
            None if unread.len() > LONGEST_HEAD => return Err(ExchangeError::LongHead),
            None => more(stream, &mut unread).await?,
        }
    };
    let (body, end) = match call.proceed() {
        Some(RecvResponseResult::RecvBody(call)) => body(call, stream, &mut unread).await?,
        Some(RecvResponseResult::Redirect(call)) => (Vec::new(), call.proceed()),
        Some(RecvResponseResult::Cleanup(call)) => (Vec::new(), call),
        None => return Err(ExchangeError::Closed),
    };
    let is_reusable = !end.must_close_connection() && unread.is_empty();
    Ok((head.map(|()| body), is_reusable))
}

/// What reads the response to a POST. Of the request it needs no more than that, so those that wait
/// need not keep theirs.
fn written() -> Result<Call<RecvResponse>, Error> {
    let mut post = Request::new(());
    *post.method_mut() = Method::POST;
    post.headers_mut().insert(CONTENT_LENGTH, 0.into());
    let mut call = Call::new(post)?.proceed();
    head(&mut call)?;
    match call.proceed()? {
        Some(SendRequestResult::RecvResponse(call)) => Ok(call),
        _ => Err(Error::OutputOverflow),
    }
}

/// Reads a body to its end.
async fn body(
    mut call: Call<RecvBody>,
    stream: &mut (impl AsyncRead + Unpin),
    unread: &mut Vec<u8>,
) -> Result<(Vec<u8>, Call<Cleanup>), ExchangeError> {
    let until_closed = call.body_mode() == BodyMode::CloseDelimited;
    let mut body = Vec::new();
    loop {
        let start = body.len();
        body.resize(start + unread.len(), 0);
        let (used, made) = call.read(unread, &mut body[start..])?;
        body.truncate(start + made);
        unread.drain(..used);
        if call.can_proceed() && !until_closed {
            break;
        }
        if used > 0 {
            continue;
        }
        match more(stream, unread).await {
            Err(ExchangeError::Closed) if until_closed => break,
            read => read?,
        }
    }
    let end = match call.proceed() {
        Some(RecvBodyResult::Cleanup(call)) => call,
        Some(RecvBodyResult::Redirect(call)) => call.proceed(),
        None => return Err(ExchangeError::Closed),
    };
    Ok((body, end))
}

/// Waits for more and adds it.
async fn more(
    stream: &mut (impl AsyncRead + Unpin),
    into: &mut Vec<u8>,
) -> Result<(), ExchangeError> {
    poll_fn(|context| {
        // On the stack of this poll: whoever waits holds no buffer.
        let mut space = [MaybeUninit::uninit(); READ];
        let mut read = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut read))?;
        into.extend_from_slice(read.filled());
        Poll::Ready(match read.filled() {
            [] => Err(ExchangeError::Closed),
            _ => Ok(()),
        })
    })
    .await
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
