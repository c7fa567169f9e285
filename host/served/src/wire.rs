//! Detects which of SQS's two protocols a request uses. Knows the operations by name only.

use super::fault::{Fault, FaultKind};
use super::query;
use super::service::{Body, Reply, Request, Service};
use super::test_calls;
use super::uploads::{UploadLimits, UploadedBody, Uploads};
use axum::Router;
use axum::body::{Body as Answer, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::Response;
use dispatcher_core::memory::HeldBytes;
use dispatcher_http as http;
use dispatcher_http::ConnectionLimits;
use serde_json::{Value, json};
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Each connection may hold a long poll. SDKs keep their connections and find out that one was closed
/// by using it, so what is in use now and then should stay.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 4096,
    patience: Duration::from_mins(2),
};
/// 256 MiB of bodies at once, half a minute for each to arrive. The longest is 1 MiB of message in
/// the worst writing that JSON and forms know, six bytes for one, and the rest.
const UPLOADS: UploadLimits = UploadLimits {
    room_kib: 256 * 1024,
    longest: 8 * 1024 * 1024,
    arrival: Duration::from_secs(30),
};
const JSON: &str = "application/x-amz-json-1.0";
const FORM: &str = "application/x-www-form-urlencoded";
/// What a person sees who opens the address.
const GREETING: &str = "This is the embedded queue of `dispatcher local`, which serves the SQS protocol: set AWS_ENDPOINT_URL_SQS to this address.\n";

/// Answers until `stop`, then for a second at most to finish what is running.
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
    let counter = Counter { desk, uploads };
    let router = Router::new().fallback(answer).with_state(counter);
    http::serve(listener, router, limits, stop).await;
}

/// What every request is answered with.
#[derive(Clone)]
struct Counter {
    desk: Arc<Service>,
    uploads: Arc<Uploads>,
}

/// Which protocol an answer is written in.
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
    if asked.method != Method::POST {
        return greeting(&asked.method);
    }
    let protocol = match is_form(&asked.headers) {
        true => Protocol::Query,
        false => Protocol::Json,
    };
    let announced = asked.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let UploadedBody { body, room: _room } = match counter.uploads.read(body, announced).await {
        Ok(arrived) => arrived,
        Err(status) => return refusal(status),
    };
    let request = uuid::Uuid::from_u128(fastrand::u128(..)).to_string();
    let (action, outcome) = match read(protocol, &asked.uri, &asked.headers, body) {
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
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.starts_with(FORM)
}

/// Only people and browsers ask so. Nothing is done for them: a page must not reach a queue.
fn greeting(method: &Method) -> Response {
    match *method {
        Method::GET | Method::HEAD => Response::new(Answer::from(GREETING)),
        _ => refusal(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// The answer to what is no request of an SDK.
fn refusal(status: StatusCode) -> Response {
    let mut answer = Response::new(Answer::from(GREETING));
    *answer.status_mut() = status;
    answer
}

fn read(protocol: Protocol, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Result<Request, Fault> {
    // A page in a browser can make it send forms here; the browser then says for whom.
    if headers.contains_key(header::ORIGIN) {
        return Err(Fault::new(
            FaultKind::AccessDenied,
            "Requests of web pages, which have an Origin header, are refused.",
        ));
    }
    let no_action = || Fault::new(FaultKind::InvalidAction, "The request names no action.");
    let (action, body) = match protocol {
        Protocol::Query => {
            let (action, value) = query::read(&body);
            (action, Body::Value(value))
        }
        Protocol::Json => {
            let target = headers.get("x-amz-target");
            let target = target.and_then(|target| target.to_str().ok());
            let action = target.and_then(|target| target.strip_prefix("AmazonSQS."));
            (action.map(str::to_owned), Body::Json(body))
        }
    };
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    Ok(Request {
        action: action.ok_or_else(no_action)?,
        host: host.unwrap_or("localhost").to_owned(),
        path_queue: path_queue(uri.path()),
        body,
    })
}

/// `/000000000000/NAME`, to which old SDKs send what concerns a queue.
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
            let who = match fault.kind.is_sender() {
                true => "Sender",
                false => "Receiver",
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

/// Answers of more bytes are written into memory of just their size.
const LARGE: usize = 64 << 10;

/// Counts what is written.
struct WrittenSize(usize);

impl fmt::Write for WrittenSize {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// The text of an answer, as `shown` writes it. A text that grows holds up to twice its size, and three
/// times while it is copied: ten messages of a MiB would take 60.
fn text_of(answer: &Value, shown: &dyn fmt::Display) -> String {
    let body = |message: &Value| message["Body"].as_str().map_or(0, str::len);
    let messages = answer["Messages"].as_array();
    let bodies: usize = messages.into_iter().flatten().map(body).sum();
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
            let text = WrittenText { text, _held: held };
            written(200, "text/xml", text, request)
        }
        Err(fault) => {
            let (_, status) = fault.kind.json();
            let text = query::refusal(&fault, request).to_string().into();
            written(status, "text/xml", text, request)
        }
    }
}

/// The text of an answer, and the bytes of its messages, which are free again once it has been
/// written: a client may be slow to read.
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

    /// What the server says to one who sends this and then nothing more, but keeps the connection.
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
        let receive = || {
            let ask = format!(r#"{queue},"MaxNumberOfMessages":10,"WaitTimeSeconds":20}}"#);
            call(served.at, "ReceiveMessage", ask)
        };
        // Of answers that nobody has read.
        let unread = budget.take(free - 1_500_000);
        assert_eq!(receive().await, ("200".to_owned(), 1));
        assert_eq!(budget.free(), 1_500_000, "what was read is free again");
        let rest = budget.take(1_500_000);
        let beyond = budget.overdraw(1).expect("nobody else does");
        let freed = async {
            drop(unread);
        };
        let (received, ()) = tokio::join!(receive(), freed);
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
