//! As much of HTTP/1.1 as the AWS SDKs speak to a JSON service: POST with a length, connections
//! that stay open. Knows no queue.

use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One call.
pub(crate) struct Request {
    /// What stands after the dot of `X-Amz-Target`.
    pub action: String,
    /// JSON.
    pub body: Vec<u8>,
}

/// What is answered.
pub(crate) struct HttpAnswer {
    pub status: u16,
    /// The old name of an error, which SDKs look for beside the one in the body.
    pub error: Option<String>,
    pub body: Vec<u8>,
}

/// One connection.
pub(crate) struct HttpConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl HttpConnection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::with_capacity(64 << 10),
        }
    }

    /// The next request; `None` at the end of the connection.
    pub(super) async fn request(&mut self) -> io::Result<Option<Request>> {
        let head = loop {
            let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                break end + 4;
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        };
        let text = String::from_utf8_lossy(&self.buffer[..head]);
        let header = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.trim().to_owned())
        };
        let length: usize = header("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or_default();
        let target = header("x-amz-target").unwrap_or_default();
        while self.buffer.len() < head + length {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
        let body = self.buffer[head..head + length].to_vec();
        self.buffer.drain(..head + length);
        Ok(Some(Request {
            action: target.rsplit('.').next().unwrap_or_default().to_owned(),
            body,
        }))
    }

    pub(super) async fn respond(&mut self, answer: &HttpAnswer) -> io::Result<()> {
        let reason = if answer.status == 200 {
            "OK"
        } else {
            "Bad Request"
        };
        let error = match &answer.error {
            Some(error) => format!("x-amzn-query-error: {error};Sender\r\n"),
            None => String::new(),
        };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\ncontent-type: application/x-amz-json-1.0\r\n{error}content-length: {}\r\n\r\n",
            answer.status,
            answer.body.len()
        );
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&answer.body);
        self.stream.write_all(&bytes).await
    }
}
