//! Detects which of SQS's two protocols a request uses. Knows the operations by name only.

use super::fault::{Fault, FaultKind};
use super::query;
use super::service::{Body, Reply, Request, Service};
use super::test_calls;
use super::uploads::{UploadLimits, UploadedBody, Uploads};
use axum::Router;
use axum::body::{Body as Answer, Bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::Response;
use dispatcher_core::memory::HeldBytes;
use dispatcher_http as http;
use dispatcher_http::ConnectionLimits;
use serde_json::{Value, json};
use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The limits of connections. Each connection may hold a long poll. SDKs keep their connections and
/// only notice that one was closed when they use it, so a connection in occasional use should stay.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 4096,
    patience: Duration::from_mins(2),
};
/// The limits of uploads: 256 MiB of bodies at once, and half a minute for each to arrive. The
/// longest is 1 MiB of message in the longest encoding of JSON and forms, six bytes for one, and
/// the rest.
const UPLOADS: UploadLimits = UploadLimits {
    room_kib: 256 * 1024,
    longest: 8 * 1024 * 1024,
    arrival: Duration::from_secs(30),
};
const JSON: &str = "application/x-amz-json-1.0";
const FORM: &str = "application/x-www-form-urlencoded";
/// The header that names the operation of the JSON protocol.
const TARGET: &str = "x-amz-target";
/// The text for a person who opens the address.
const GREETING: &str = "This is the embedded queue of `dispatcher local`, which serves the SQS protocol: set AWS_ENDPOINT_URL_SQS to this address.\n";

/// Answers requests until `stop`, then finishes those that run, within a second at most.
pub(crate) async fn serve(listener: TcpListener, desk: Arc<Service>, stop: CancellationToken) {
    let uploads = Arc::new(Uploads::new(UPLOADS));
    serve_within(LIMITS, uploads, listener, desk, stop).await;
}

async fn serve_within(
    limits: ConnectionLimits,
    uploads: Arc<Uploads>,
    listener: TcpListener,
    desk: Arc<Service>,
    stop: CancellationToken,
) {
    let port = listener.local_addr().map_or(80, |at| at.port());
    let counter = Counter {
        desk,
        uploads,
        port,
    };
    let router = Router::new().fallback(answer).with_state(counter);
    http::serve(listener, router, limits, stop).await;
}

/// The state that every request is answered with.
#[derive(Clone)]
struct Counter {
    desk: Arc<Service>,
    uploads: Arc<Uploads>,
    /// The port that it listens on.
    port: u16,
}

/// The protocol of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Json,
    Query,
}

async fn answer(State(counter): State<Counter>, asked: axum::extract::Request) -> Response {
    let (asked, body) = asked.into_parts();
    if let Some(call) = asked.uri.path().strip_prefix(test_calls::PATH) {
        return test_calls::answer(&counter.desk, call, &asked, body).await;
    }
    let in_url = action_in(&asked.uri);
    if asked.method != Method::POST && !(asked.method == Method::GET && in_url) {
        return greeting(&asked.method, asked.uri.path());
    }
    let has_target = asked.headers.contains_key(TARGET);
    let is_query = asked.method == Method::GET || is_form(&asked.headers) || in_url && !has_target;
    let protocol = if is_query {
        Protocol::Query
    } else {
        Protocol::Json
    };
    let announced = asked
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    let UploadedBody { body, room: _room } = match counter.uploads.read(body, announced).await {
        Ok(arrived) => arrived,
        Err(status) => return refusal(status),
    };
    let request = uuid::Uuid::from_u128(fastrand::u128(..)).to_string();
    let (action, outcome) = match read(protocol, &asked, body, counter.port) {
        Ok(asked) => {
            tracing::debug!(action = asked.action, "asked");
            (asked.action.clone(), counter.desk.answer(asked).await)
        }
        Err(fault) => (String::new(), Err(fault)),
    };
    if let Err(fault) = &outcome
        && !fault.kind.is_sender()
    {
        tracing::warn!(action, error = fault.message, "cannot answer");
    }
    match protocol {
        Protocol::Json => in_json(outcome, &request),
        Protocol::Query => in_xml(&action, outcome, &request),
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    kind.starts_with(FORM)
}

/// Answers a request without an action, which only people and browsers send. SQS knows no such
/// request at the URL of a queue.
fn greeting(method: &Method, path: &str) -> Response {
    match *method {
        Method::GET if path_queue(path).is_some() => {
            let mut answer = Response::new(Answer::from("<UnknownOperationException/>\n"));
            *answer.status_mut() = StatusCode::NOT_FOUND;
            answer
        }
        Method::GET | Method::HEAD => Response::new(Answer::from(GREETING)),
        _ => refusal(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// Whether a URL names an action, as those of the Query protocol may.
fn action_in(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "Action")
}

/// Refuses requests that a web page can make a browser send. With a form, the browser sends the
/// origin of the page. With GET it does not always do so; but only a page of this very address can
/// add a signature to a request, and a page that has pointed its own name here calls the server by
/// that name.
fn check_sender(asked: &Parts) -> Result<(), Fault> {
    let headers = &asked.headers;
    if headers.contains_key(header::ORIGIN) {
        let why = "Requests of web pages, which have an Origin header, are refused.";
        return Err(Fault::new(FaultKind::AccessDenied, why));
    }
    if asked.method != Method::GET {
        return Ok(());
    }
    let signature = headers.get(header::AUTHORIZATION);
    let is_signed =
        signature.is_some_and(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256"));
    if !is_signed || headers.contains_key("sec-fetch-site") {
        let why = "A request by GET needs the header of a signature, as SDKs add it.";
        return Err(Fault::new(FaultKind::AccessDenied, why));
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    if !host.is_some_and(|host| is_private(host.host())) {
        let why = "A request by GET must call the server by an IP address or a local name.";
        return Err(Fault::new(FaultKind::AccessDenied, why));
    }
    Ok(())
}

/// Whether a host is an IP address, or a name that no web site can have.
fn is_private(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let in_brackets = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    in_brackets.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok())
        || name.parse::<Ipv4Addr>().is_ok()
        || !name.contains('.') && !name.contains(['[', ']'])
        || [".localhost", ".internal"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// Returns the answer to a request that no SDK sends.
fn refusal(status: StatusCode) -> Response {
    let mut answer = Response::new(Answer::from(GREETING));
    *answer.status_mut() = status;
    answer
}

fn read(protocol: Protocol, asked: &Parts, body: Bytes, port: u16) -> Result<Request, Fault> {
    check_sender(asked)?;
    let (uri, headers) = (&asked.uri, &asked.headers);
    let path_queue = path_queue(uri.path());
    let (action, body) = match protocol {
        Protocol::Query => {
            let in_url = uri.query().unwrap_or_default().as_bytes();
            let (action, value) = query::read(&[in_url, &body]);
            let of_no_queue = ["CreateQueue", "ListQueues"];
            if let Some(action) = &action
                && path_queue.is_some()
                && of_no_queue.contains(&action.as_str())
            {
                return Err(Fault::invalid_action(action));
            }
            (action, Body::Value(value))
        }
        Protocol::Json => {
            let target = headers.get(TARGET).and_then(|target| target.to_str().ok());
            let action = target.and_then(|target| target.strip_prefix("AmazonSQS."));
            (action.map(str::to_owned), Body::Json(body))
        }
    };
    let trace = headers
        .get("x-amzn-trace-id")
        .and_then(|trace| trace.to_str().ok());
    Ok(Request {
        action: action
            .ok_or_else(|| Fault::new(FaultKind::InvalidAction, "The request names no action."))?,
        host: host(headers, port),
        path_queue,
        trace: trace.map(str::to_owned),
        body,
    })
}

/// Returns how the caller reached the server, for URLs of queues. The `Host` header need not name
/// the port; behind a proxy, it names the proxy's.
fn host(headers: &HeaderMap, port: u16) -> String {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or("localhost");
    let after = host.rsplit_once(':').map(|(_, after)| after);
    let names_port = after.is_some_and(|after| !after.ends_with(']'));
    let of_proxy = ["forwarded", "x-forwarded-for", "x-forwarded-host"];
    let is_proxied = of_proxy.iter().any(|name| headers.contains_key(*name));
    if names_port || is_proxied || port == 80 {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    }
}

/// Returns the queue of a path `/000000000000/NAME`, to which old SDKs send requests about a queue.
fn path_queue(path: &str) -> Option<String> {
    let (account, name) = path.trim_matches('/').split_once('/')?;
    (!account.is_empty() && !name.is_empty()).then(|| name.to_owned())
}

fn in_json(outcome: Result<Reply, Fault>, request: &str) -> Response {
    let (status, text, code) = match outcome {
        Ok(Reply { value, held }) => {
            let text = match value {
                Value::Null => "{}".to_owned(),
                value => text_of(&value, &value),
            };
            (200, WrittenText { text, _held: held }, None)
        }
        Err(fault) => {
            let (name, status) = fault.kind.json();
            let text = json!({"__type": name, "message": fault.message}).to_string();
            let who = if fault.kind.is_sender() {
                "Sender"
            } else {
                "Receiver"
            };
            let code = format!("{};{who}", fault.kind.query());
            (status, text.into(), Some(code))
        }
    };
    let mut answer = written(status, JSON, text, request);
    if let Some(code) = code.and_then(|code| code.parse().ok()) {
        answer.headers_mut().insert("x-amzn-query-error", code);
    }
    answer
}

/// The bytes from which an answer is written into memory of exactly its size.
const LARGE: usize = 64 << 10;

/// A writer that counts bytes.
struct WrittenSize(usize);

impl fmt::Write for WrittenSize {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// Returns the text of an answer, as `shown` writes it. A text that grows holds up to twice its
/// size, and three times while it is copied: ten messages of a MiB would take 60 MiB.
fn text_of(answer: &Value, shown: &dyn fmt::Display) -> String {
    let messages = answer["Messages"].as_array();
    let bodies: usize = messages
        .into_iter()
        .flatten()
        .map(|message: &Value| message["Body"].as_str().map_or(0, str::len))
        .sum();
    if bodies < LARGE {
        return shown.to_string();
    }
    let mut size = WrittenSize(0);
    let counted = write!(size, "{shown}");
    let mut text = String::with_capacity(size.0);
    let written = counted.and_then(|()| write!(text, "{shown}"));
    written.expect("an answer can be written, and memory takes it");
    text
}

fn in_xml(action: &str, outcome: Result<Reply, Fault>, request: &str) -> Response {
    match outcome {
        Ok(Reply { value, held }) => {
            let text = text_of(&value, &query::answer(action, &value, request));
            let answer = WrittenText { text, _held: held };
            written(200, "text/xml", answer, request)
        }
        Err(fault) => {
            let (_, status) = fault.kind.json();
            let text = query::refusal(&fault, request).to_string().into();
            written(status, "text/xml", text, request)
        }
    }
}

/// The text of an answer, and the bytes of its messages. They are freed once the answer has been
/// written, because a client may be slow to read.
struct WrittenText {
    text: String,
    _held: Vec<HeldBytes>,
}

impl From<String> for WrittenText {
    fn from(text: String) -> Self {
        let _held = Vec::new();
        Self { text, _held }
    }
}

impl AsRef<[u8]> for WrittenText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

fn written(status: u16, kind: &'static str, text: WrittenText, request: &str) -> Response {
    let mut answer = Response::new(Answer::from(Bytes::from_owner(text)));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    if let Ok(request) = request.parse() {
        headers.insert("x-amzn-requestid", request);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_local::queue::LocalStore;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    const SHORT: Duration = Duration::from_millis(50);

    /// A separate server, for as long as what this returns is kept.
    struct RunningServer {
        at: std::net::SocketAddr,
        desk: Arc<Service>,
        uploads: Arc<Uploads>,
        _served: dispatcher_core::tasks::Task<()>,
        _folder: tempfile::TempDir,
    }

    async fn start(limits: ConnectionLimits, uploads: UploadLimits) -> RunningServer {
        let folder = tempfile::tempdir().expect("a folder");
        let store = LocalStore::open(folder.path()).expect("a store");
        let any = "127.0.0.1:0".parse().expect("an address");
        let (listener, at) = http::listen(any).await.expect("a free port");
        let stop = CancellationToken::new();
        let desk = Arc::new(Service::new(store, stop.clone()));
        let uploads = Arc::new(Uploads::new(uploads));
        let answering = (Arc::clone(&uploads), Arc::clone(&desk));
        let served = serve_within(limits, answering.0, listener, answering.1, stop);
        RunningServer {
            at,
            desk,
            uploads,
            _served: dispatcher_core::tasks::spawn(served),
            _folder: folder,
        }
    }

    /// Returns the server's answer to one who sends this, then nothing more, but keeps the
    /// connection.
    async fn said_to(words: &str) -> String {
        let limits = ConnectionLimits {
            patience: SHORT,
            ..LIMITS
        };
        let uploads = UploadLimits {
            arrival: SHORT,
            ..UPLOADS
        };
        let served = start(limits, uploads).await;
        let at = served.at;
        let mut stream = TcpStream::connect(at).await.expect("it listens");
        stream.write_all(words.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an end");
        answer
    }

    #[tokio::test]
    async fn half_a_request_is_answered_with_a_timeout() {
        let half = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{";
        let answer = said_to(half).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }

    #[tokio::test]
    async fn connection_without_a_request_is_closed() {
        for words in ["", "POST / HTTP/1.1\r\nHost"] {
            assert_eq!(said_to(words).await, "", "{words}");
        }
    }

    /// More long polls, of unknown length, than there would be room for if each took the most.
    #[tokio::test]
    async fn long_polls_hold_only_the_memory_of_their_request() {
        let served = start(LIMITS, UPLOADS).await;
        let at = served.at;
        let ask = async |action: &str, body: &str| {
            let mut stream = TcpStream::connect(at).await.expect("it listens");
            let words = format!(
                "POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.{action}\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            );
            stream.write_all(words.as_bytes()).await.expect("it reads");
            stream
        };
        let answered = async |mut stream: TcpStream| {
            let mut status = [0; 12];
            stream.read_exact(&mut status).await.expect("an answer");
            String::from_utf8(status.to_vec()).expect("text")
        };
        for name in ["q", "other"] {
            let made = ask("CreateQueue", &format!(r#"{{"QueueName":"{name}"}}"#)).await;
            assert_eq!(answered(made).await, "HTTP/1.1 200");
        }
        let poll = r#"{"QueueUrl":"http://x/000000000000/q","WaitTimeSeconds":20}"#;
        let most = UPLOADS.room_kib as usize * 1024 / UPLOADS.longest;
        let mut polls = Vec::new();
        for _ in 0..=most {
            polls.push(ask("ReceiveMessage", poll).await);
        }
        // Nothing ends the polls but their time.
        let send = r#"{"QueueUrl":"http://x/000000000000/other","MessageBody":"b"}"#;
        let sent = ask("SendMessage", send).await;
        let first = polls.swap_remove(0);
        tokio::select! {
            status = answered(sent) => assert_eq!(status, "HTTP/1.1 200"),
            _ = answered(first) => panic!("the send waited for the polls"),
        }
    }

    /// An upload that announces the longest body and has sent so many bytes of it.
    async fn half_sent(at: std::net::SocketAddr, bytes: usize) -> TcpStream {
        let mut stream = TcpStream::connect(at).await.expect("it listens");
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n\
             Content-Length: {}\r\n\r\n",
            UPLOADS.longest
        );
        stream.write_all(head.as_bytes()).await.expect("it reads");
        stream
            .write_all(&vec![b' '; bytes])
            .await
            .expect("it reads");
        stream
    }

    /// The status of a request whose body has so many bytes.
    async fn whole(at: std::net::SocketAddr, bytes: usize) -> String {
        let mut stream = TcpStream::connect(at).await.expect("it listens");
        let body = format!("{}{}", r#"{"QueueName":"q"}"#, " ".repeat(bytes));
        let words = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.CreateQueue\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(words.as_bytes()).await.expect("it reads");
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.expect("an answer");
        String::from_utf8(status.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn finding_19_uploads_are_admitted_by_the_bytes_received() {
        let served = start(LIMITS, UPLOADS).await;
        let mut uploads = Vec::new();
        for _ in 0..40 {
            uploads.push(half_sent(served.at, 100_000).await);
        }
        let mut first = uploads.swap_remove(0);
        let mut byte = [0; 1];
        tokio::select! {
            status = whole(served.at, 1_000_000) => assert_eq!(status, "HTTP/1.1 200"),
            _ = first.read(&mut byte) => panic!("the request waited until an upload ended"),
        }
    }

    #[tokio::test]
    async fn finding_19_slowest_upload_is_ended_when_no_slot_is_free() {
        let little = UploadLimits {
            room_kib: 1024,
            arrival: Duration::from_hours(1),
            ..UPLOADS
        };
        let served = start(LIMITS, little).await;
        let mut slow = half_sent(served.at, 900_000).await;
        // What is sent has not arrived yet.
        while served.uploads.received() < 900_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(whole(served.at, 500_000).await, "HTTP/1.1 200");
        let mut status = [0; 12];
        slow.read_exact(&mut status).await.expect("an answer");
        assert_eq!(&status, b"HTTP/1.1 408");
    }

    /// The status and the number of messages of an answer to one request.
    async fn call(at: std::net::SocketAddr, action: &str, body: String) -> (String, usize) {
        let mut stream = TcpStream::connect(at).await.expect("it listens");
        let words = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(words.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        (answer[9..12].to_owned(), answer.matches("\"Body\"").count())
    }

    #[tokio::test]
    async fn finding_04_receive_brings_what_unread_answers_leave_memory_for() {
        let served = start(LIMITS, UPLOADS).await;
        let queue = r#"{"QueueUrl":"http://x/000000000000/q""#;
        call(served.at, "CreateQueue", r#"{"QueueName":"q"}"#.to_owned()).await;
        for _ in 0..3 {
            let body = "x".repeat(1_000_000);
            let send = format!(r#"{queue},"MessageBody":"{body}"}}"#);
            assert_eq!(call(served.at, "SendMessage", send).await.0, "200");
        }
        let budget = &served.desk.budget;
        let free = budget.free();
        let ask = format!(r#"{queue},"MaxNumberOfMessages":10,"WaitTimeSeconds":20}}"#);
        // Of answers that nobody has read.
        let unread = budget.take(free - 1_500_000);
        let received = call(served.at, "ReceiveMessage", ask.clone()).await;
        assert_eq!(received, ("200".to_owned(), 1));
        assert_eq!(budget.free(), 1_500_000, "what was read is free again");
        let rest = budget.take(1_500_000);
        let beyond = budget.overdraw(1).expect("nobody else does");
        let freed = async {
            drop(unread);
        };
        let (received, ()) = tokio::join!(call(served.at, "ReceiveMessage", ask), freed);
        assert_eq!(received, ("200".to_owned(), 2));
        drop((rest, beyond));
        assert_eq!(budget.free(), free);
    }

    #[tokio::test]
    async fn body_beyond_all_limits_is_refused_unread() {
        let long =
            "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 99999999\r\n\r\n";
        let answer = said_to(long).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }

    #[test]
    fn large_answer_takes_no_more_memory_than_its_text() {
        let body = "\\".repeat(100_000);
        let value = json!({"Messages": [{"Body": body}, {"Body": "\u{1}é"}]});
        let xml = query::answer("ReceiveMessage", &value, "r");
        for shown in [&value as &dyn fmt::Display, &xml] {
            let text = text_of(&value, shown);
            assert_eq!(text, shown.to_string());
            assert!(text.len() > 100_000);
            assert_eq!(text.capacity(), text.len());
        }
        let text = text_of(&value, &value);
        assert!(text.len() > 200_000);
        let none = json!({"Messages": []});
        assert_eq!(text_of(&none, &none), r#"{"Messages":[]}"#);
    }

    #[test]
    fn path_names_a_queue_or_nothing() {
        assert_eq!(path_queue("/000000000000/q").as_deref(), Some("q"));
        assert_eq!(path_queue("/1/q.fifo/").as_deref(), Some("q.fifo"));
        for path in ["/", "", "/q", "//"] {
            assert_eq!(path_queue(path), None, "{path}");
        }
    }
}
