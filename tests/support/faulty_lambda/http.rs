//! As much of HTTP/1.1 as Lambda's clients speak: requests with a length on connections that stay
//! open, and the ways to break them. Knows of Lambda only where things are in a request.

use serde_json::Value;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// One request.
pub(super) struct Request {
    /// Without what follows the question mark.
    pub path: String,
    pub query: String,
    pub body: Vec<u8>,
    /// Whether the caller does not wait for the function.
    pub event: bool,
    /// Whether it asks for the end of the function's log.
    pub tail: bool,
    /// The trace that it continues.
    pub trace_header: Option<String>,
    /// The tenant that it is for.
    pub tenant: Option<String>,
}

impl Request {
    /// The function's name, with `:alias` where one was asked for.
    pub(super) fn function(&self) -> String {
        let name = self.path.split('/').nth(3).unwrap_or_default();
        let name = name.replace("%3A", ":").replace("%3a", ":");
        let qualifier = self
            .query
            .split('&')
            .find_map(|part| part.strip_prefix("Qualifier="));
        match qualifier {
            Some(qualifier) => format!("{name}:{qualifier}"),
            None => name,
        }
    }
}

/// What is answered.
pub(super) struct Response {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

impl Response {
    pub(super) fn new(status: u16, body: String) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body,
        }
    }

    pub(super) fn error(status: u16, kind: &str, body: &Value) -> Self {
        Self::new(status, body.to_string()).with("x-amzn-ErrorType", kind.to_owned())
    }

    pub(super) fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut text = format!(
            "HTTP/1.1 {} As told\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            self.status,
            self.body.len()
        );
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(&self.body);
        text.into_bytes()
    }
}

/// What a connection is made of.
pub(super) trait LambdaStream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Below TLS.
    fn tcp(&self) -> &TcpStream;
}

impl LambdaStream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl LambdaStream for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// One connection.
pub(super) struct LambdaConnection {
    stream: Box<dyn LambdaStream>,
    buffer: Vec<u8>,
}

impl LambdaConnection {
    pub(super) fn new(stream: Box<dyn LambdaStream>) -> Self {
        // Answers are small and must not wait for each other.
        let _ = stream.tcp().set_nodelay(true);
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next request; `None` at the end of the connection.
    pub(super) async fn request(&mut self) -> io::Result<Option<Request>> {
        loop {
            if let Some((head, mut request, length)) = parse(&self.buffer)? {
                while self.buffer.len() < head + length {
                    if self.stream.read_buf(&mut self.buffer).await? == 0 {
                        return Ok(None);
                    }
                }
                request.body = self.buffer[head..head + length].to_vec();
                self.buffer.drain(..head + length);
                // Thousands of connections wait at once; none needs what a large event took.
                self.buffer.shrink_to_fit();
                return Ok(Some(request));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    pub(super) async fn respond(&mut self, response: &Response) -> io::Result<()> {
        self.stream.write_all(&response.bytes()).await
    }

    /// All but the last bytes of it, and then the end.
    pub(super) async fn respond_half(&mut self, response: &Response) -> io::Result<()> {
        let bytes = response.bytes();
        let most = bytes.len() - response.body.len().div_ceil(2).max(1);
        self.stream.write_all(&bytes[..most]).await?;
        self.stream.shutdown().await
    }

    /// Ends it with a reset.
    pub(super) fn reset(&mut self) -> io::Result<()> {
        // What is closed without waiting for what was sent is reset by the system.
        self.stream.tcp().set_zero_linger()
    }

    /// Waits for the caller to end it.
    pub(super) async fn until_closed(&mut self) {
        let mut rest = [0; 1_024];
        while let Ok(1..) = self.stream.read(&mut rest).await {}
    }
}

/// The length of the head, the request without its body, and the length of that.
fn parse(bytes: &[u8]) -> io::Result<Option<(usize, Request, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed.parse(bytes);
    let status = status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let httparse::Status::Complete(head) = status else {
        return Ok(None);
    };
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| {
        let mut headers = parsed.headers.iter();
        let found = headers.find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let length = header("content-length").and_then(|length| length.parse().ok());
    let request = Request {
        path: path.to_owned(),
        query: query.to_owned(),
        body: Vec::new(),
        event: header("x-amz-invocation-type") == Some("Event"),
        trace_header: header("x-amzn-trace-id").map(str::to_owned),
        tenant: header("x-amz-tenant-id").map(str::to_owned),
        tail: header("x-amz-log-type") == Some("Tail"),
    };
    Ok(Some((head, request, length.unwrap_or(0))))
}
