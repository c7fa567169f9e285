//! A server that does what a test says: one act per request, in order. Knows nothing of AWS.

use aws_config::SdkConfig;
use aws_sdk_lambda::config::{Credentials, Region, SharedCredentialsProvider};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The behaviour of the server after it has read a request.
#[derive(Debug)]
pub(crate) enum Act {
    /// Sends this; then waits for the next request.
    Answer(String),
    /// Sends this and closes.
    Say(String),
    /// Closes in good order, without a word.
    Close,
    /// Sends this as far as the client reads it.
    Pour(Vec<u8>),
    /// Drops the connection.
    Reset,
    /// Nothing, forever.
    Silence,
}

/// A whole answer. `headers` end with line breaks.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Act {
    let length = body.len();
    Act::Answer(format!(
        "HTTP/1.1 {status} As Told\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    ))
}

/// Returns a configuration that reaches it, with made-up credentials.
pub(crate) fn configuration(address: SocketAddr) -> SdkConfig {
    let credentials = Credentials::new("id", "secret", None, None, "test");
    without_credentials(address)
        .to_builder()
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build()
}

/// Returns a configuration without credentials.
pub(crate) fn without_credentials(address: SocketAddr) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .endpoint_url(format!("http://{address}"))
        .http_client(crate::http::client())
        .build()
}

#[derive(Debug, Default)]
struct SeenRequest {
    acts: VecDeque<Act>,
    requests: Vec<String>,
    connections: usize,
}

/// Listens on a free port of the loopback interface until it is dropped.
#[derive(Debug)]
pub(crate) struct TestServer {
    address: SocketAddr,
    seen: Arc<Mutex<SeenRequest>>,
    _tasks: JoinSet<()>,
}

impl TestServer {
    pub(crate) async fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Mutex::new(SeenRequest {
            acts: acts.into(),
            ..SeenRequest::default()
        }));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&seen)));
        Self {
            address,
            seen,
            _tasks: tasks,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests so far, each with its body.
    pub(crate) fn requests(&self) -> Vec<String> {
        lock(&self.seen).requests.clone()
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.seen).connections
    }
}

fn lock(seen: &Mutex<SeenRequest>) -> MutexGuard<'_, SeenRequest> {
    seen.lock()
}

async fn accept(listener: TcpListener, seen: Arc<Mutex<SeenRequest>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        lock(&seen).connections += 1;
        connections.spawn(serve(stream, Arc::clone(&seen)));
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Mutex<SeenRequest>>) {
    while let Some(request) = read(&mut stream).await {
        let act = {
            let mut seen = lock(&seen);
            seen.requests.push(request);
            seen.acts.pop_front().expect("an act for each request")
        };
        match act {
            Act::Answer(text) => stream.write_all(text.as_bytes()).await.expect("a reader"),
            Act::Say(text) => return stream.write_all(text.as_bytes()).await.expect("a reader"),
            Act::Close => return,
            Act::Pour(bytes) => {
                // The client may have gone: that is what is tested.
                let _ = stream.write_all(&bytes).await;
            }
            Act::Reset => {
                // What lingers for no time at all is reset.
                return stream.set_zero_linger().expect("a socket's option");
            }
            Act::Silence => std::future::pending().await,
        }
    }
}

/// One request; nothing if the client has gone.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.ok()?;
        if count == 0 {
            return None;
        }
        request.extend_from_slice(&bytes[..count]);
        let end = request.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end
            && request.len() - end - 4 >= length(&String::from_utf8_lossy(&request[..end]))
        {
            return Some(String::from_utf8_lossy(&request).into_owned());
        }
    }
}

fn length(head: &str) -> usize {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.trim().parse().expect("a number"))
}
