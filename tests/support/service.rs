//! An HTTP service that answers posted messages as a script tells it, keeps what it was sent, and
//! breaks connections on request. Knows neither the program nor what a status means to it.

use crate::{MOST_PATIENCE, PATIENCE};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostedRequest {
    /// The method, and the target with its query.
    pub line: String,
    /// Names in lower case and values, in their order.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
    /// How many requests the service had before.
    pub index: usize,
    /// Which connection it came on, from 0.
    pub connection: usize,
}

impl PostedRequest {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// How often its message was received, as its header says.
    pub fn receive_count(&self) -> u32 {
        let count = self.header("x-aws-sqsd-receive-count");
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceStep {
    /// It is answered.
    Answer(ServiceAnswer),
    /// It is answered once the test releases it.
    Hold(ServiceAnswer),
    /// It is answered after this time.
    After(Duration, ServiceAnswer),
    /// Its connection ends in the middle of the answer.
    Cut(ServiceAnswer),
    /// Its connection is reset without an answer.
    Reset,
    /// It is never answered.
    Never,
    /// It is answered by a byte now and then, without an end.
    Drip,
}

impl ServiceStep {
    /// An answer without a body.
    pub fn status(status: u16) -> Self {
        Self::Answer(ServiceAnswer::new(status))
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAnswer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl ServiceAnswer {
    /// Without a body.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let length = self.body.len();
        let mut text = format!("HTTP/1.1 {} x\r\ncontent-length: {length}\r\n", self.status);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(&self.body);
        text.into_bytes()
    }
}

type ServiceScript = Box<dyn Fn(&PostedRequest) -> ServiceStep + Send + Sync>;

/// What the service has seen.
#[derive(Debug, Clone, Default)]
pub struct ServiceRecord {
    /// All requests, in the order of their arrival.
    pub requests: Vec<PostedRequest>,
    /// How many connections were made.
    pub connections: usize,
    /// How many requests are not yet answered.
    pub in_flight: usize,
    /// The most there were at once.
    pub most_in_flight: usize,
}

/// A running service. Ends when dropped.
pub struct JobService {
    address: SocketAddr,
    shared: Arc<SharedService>,
    runtime: Option<Runtime>,
}

struct SharedService {
    script: ServiceScript,
    record: Mutex<ServiceRecord>,
    changed: Condvar,
    /// Counts releases of what is held.
    releases: watch::Sender<u64>,
}

impl JobService {
    /// Starts one on a free port.
    pub fn start(script: impl Fn(&PostedRequest) -> ServiceStep + Send + Sync + 'static) -> Self {
        Self::start_at(0, script)
    }

    /// Starts one on this port.
    pub fn start_at(
        port: u16,
        script: impl Fn(&PostedRequest) -> ServiceStep + Send + Sync + 'static,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = {
            let _inside = runtime.enter();
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_reuseaddr(true).expect("a socket");
            let at = (Ipv4Addr::LOCALHOST, port).into();
            socket.bind(at).expect("a free port");
            // Thousands may connect at once.
            socket.listen(4_096).expect("it is bound")
        };
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(SharedService {
            script: Box::new(script),
            record: Mutex::default(),
            changed: Condvar::new(),
            releases: watch::Sender::new(0),
        });
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            runtime: Some(runtime),
        }
    }

    /// `http://127.0.0.1:PORT/jobs`.
    pub fn url(&self) -> String {
        format!("http://{}/jobs", self.address)
    }

    /// Everything so far.
    pub fn record(&self) -> ServiceRecord {
        self.shared.lock().clone()
    }

    /// Lets all be answered that are held now, and all that follow.
    pub fn release(&self) {
        self.shared.releases.send_modify(|count| *count += 1);
    }

    /// Waits until this holds. Panics with all it knows when nothing comes for too long.
    pub fn wait(&self, holds: impl Fn(&ServiceRecord) -> bool) -> ServiceRecord {
        let end = Instant::now() + MOST_PATIENCE;
        let mut deadline = Instant::now() + PATIENCE;
        let mut record = self.shared.lock();
        let mut seen = record.requests.len();
        loop {
            if holds(&record) {
                return record.clone();
            }
            if record.requests.len() > seen {
                seen = record.requests.len();
                deadline = (Instant::now() + PATIENCE).min(end);
            }
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.unwrap_or_else(|| panic!("the service waits in vain: {record:#?}"));
            (record, _) = self
                .shared
                .changed
                .wait_timeout(record, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for this many requests.
    pub fn wait_for(&self, count: usize) -> Vec<PostedRequest> {
        self.wait(|record| record.requests.len() >= count).requests
    }
}

impl Drop for JobService {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl SharedService {
    fn lock(&self) -> MutexGuard<'_, ServiceRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, change: impl FnOnce(&mut ServiceRecord) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }
}

/// A request under way; counted until it is answered, however that ends.
struct InFlight<'a>(&'a SharedService);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.update(|record| record.in_flight -= 1);
    }
}

async fn accept(listener: TcpListener, shared: Arc<SharedService>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let connection = shared.update(|record| {
            record.connections += 1;
            record.connections - 1
        });
        // A broken connection is what this is for: the test sees it from the other side.
        tokio::spawn(async move { talk(stream, connection, &shared).await });
    }
}

/// Answers the requests of one connection until it ends.
async fn talk(mut stream: TcpStream, connection: usize, shared: &SharedService) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some(mut request) = next(&mut stream, &mut buffer).await? {
        // The subscription is before the request can be seen, so that no release is missed.
        let mut releases = shared.releases.subscribe();
        shared.update(|record| {
            request.index = record.requests.len();
            request.connection = connection;
            record.requests.push(request.clone());
            record.in_flight += 1;
            record.most_in_flight = record.most_in_flight.max(record.in_flight);
        });
        let under_way = InFlight(shared);
        match (shared.script)(&request) {
            ServiceStep::Answer(answer) => stream.write_all(&answer.bytes()).await?,
            ServiceStep::Hold(answer) => {
                if *releases.borrow_and_update() == 0 {
                    drop(releases.changed().await);
                }
                stream.write_all(&answer.bytes()).await?;
            }
            ServiceStep::After(time, answer) => {
                tokio::time::sleep(time).await;
                stream.write_all(&answer.bytes()).await?;
            }
            ServiceStep::Cut(answer) => {
                let bytes = answer.bytes();
                stream.write_all(&bytes[..bytes.len() / 2]).await?;
                return stream.shutdown().await;
            }
            ServiceStep::Drip => {
                let head = b"HTTP/1.1 200 x\r\ncontent-length: 1000000000\r\n\r\n";
                stream.write_all(head).await?;
                loop {
                    stream.write_all(b"x").await?;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            // What is closed without waiting for what was sent is reset by the system.
            ServiceStep::Reset => return stream.set_zero_linger(),
            ServiceStep::Never => {
                let mut rest = [0; 1_024];
                while let Ok(1..) = stream.read(&mut rest).await {}
                return Ok(());
            }
        }
        drop(under_way);
    }
    Ok(())
}

/// The next request; `None` at the end of the connection.
async fn next(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<PostedRequest>> {
    loop {
        if let Some((request, length)) = parse(buffer)? {
            buffer.drain(..length);
            return Ok(Some(request));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// A whole request and its length, once it is there.
fn parse(bytes: &[u8]) -> io::Result<Option<(PostedRequest, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed.parse(bytes);
    let status = status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let httparse::Status::Complete(head) = status else {
        return Ok(None);
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = parsed.headers.iter();
    let headers: Vec<_> = headers
        .map(|header| (header.name.to_ascii_lowercase(), text(header.value)))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length
        .map_or(Ok(0), |(_, length)| length.parse())
        .unwrap_or(0);
    let Some(body) = bytes.get(head..head + length) else {
        return Ok(None);
    };
    let request = PostedRequest {
        line: format!(
            "{} {}",
            parsed.method.unwrap_or_default(),
            parsed.path.unwrap_or_default()
        ),
        headers,
        body: text(body),
        index: 0,
        connection: 0,
    };
    Ok(Some((request, head + length)))
}
