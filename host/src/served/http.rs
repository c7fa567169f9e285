//! The wire: connections, and which of SQS's two protocols a request speaks. Knows the operations
//! by name only.

use super::desk::{Body, Desk, Request};
use super::fault::{Fault, Kind};
use super::query;
use crate::clock;
use crate::tasks::Group;
use axum::Router;
use axum::body::{Body as Answer, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::Response;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How long answers under way may take after the stop.
const LAST: Duration = Duration::from_secs(1);
/// So many connections at once, each of which may hold a long poll; others wait.
const MOST: usize = 4096;
/// 1 MiB of message in the worst writing that JSON and forms know, six bytes for one, and the rest.
const LONGEST_BODY: usize = 8 * 1024 * 1024;
const JSON: &str = "application/x-amz-json-1.0";
const FORM: &str = "application/x-www-form-urlencoded";
/// What a person sees who opens the address.
const GREETING: &str = "This is the embedded queue of `dispatcher local`, which speaks the SQS \
    protocol: set AWS_ENDPOINT_URL_SQS to this address.\n";

/// Answers until `stop`, then for a second at most to finish what is under way.
pub async fn serve(listener: TcpListener, desk: Arc<Desk>, stop: CancellationToken) {
    let router = Router::new()
        .fallback(answer)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .with_state(desk);
    let mut connections: Group<()> = Group::new();
    let accepted = async {
        loop {
            tokio::select! {
                connection = listener.accept(), if connections.len() < MOST => match connection {
                    Ok((stream, _)) => {
                        connections.spawn(converse(stream, router.clone(), stop.clone()));
                    }
                    // Of one connection, or of all the files that may be open: it passes.
                    Err(_) => clock::sleep_until(Some(clock::now() + LAST)).await,
                },
                () = connections.next() => {}
            }
        }
    };
    tokio::select! {
        () = accepted => {}
        () = stop.cancelled() => {}
    }
    // Nobody new is let in by a socket that nobody reads.
    drop(listener);
    let finished = async {
        while !connections.is_empty() {
            connections.next().await;
        }
    };
    tokio::select! {
        () = finished => {}
        () = clock::sleep_until(Some(clock::now() + LAST)) => {}
    }
}

/// Answers what one connection asks until it is closed; after the stop, what it has asked already.
async fn converse(stream: TcpStream, router: Router, stop: CancellationToken) {
    // Answers are small and waited for. A connection that cannot be set so works as well.
    let _ = stream.set_nodelay(true);
    let mut server = auto::Builder::new(TokioExecutor::new());
    // Clients keep connections for as long as they like; no timer then ends a half-sent request
    // but the client itself.
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    // What goes wrong with one connection ends that connection.
    tokio::select! {
        _ = &mut connection => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Which protocol an answer is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Json,
    Query,
}

async fn answer(
    State(desk): State<Arc<Desk>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let protocol = match is_form(&headers) {
        true => Protocol::Query,
        false => Protocol::Json,
    };
    let request = uuid::Uuid::from_u128(fastrand::u128(..)).to_string();
    if method != Method::POST {
        return greeting(&method);
    }
    let read = read(protocol, &uri, &headers, body);
    let (action, outcome) = match read {
        Ok(asked) => {
            tracing::debug!(action = asked.action, "asked");
            (asked.action.clone(), desk.answer(asked).await)
        }
        Err(fault) => (String::new(), Err(fault)),
    };
    if let Err(fault) = &outcome
        && !fault.kind.is_sender()
    {
        tracing::warn!(action, error = fault.message, "cannot answer");
    }
    match protocol {
        Protocol::Json => in_json(&outcome, &request),
        Protocol::Query => in_xml(&action, &outcome, &request),
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.starts_with(FORM)
}

/// Only people and browsers ask so. Nothing is done for them: a page must not reach a queue.
fn greeting(method: &Method) -> Response {
    let status = match *method {
        Method::GET | Method::HEAD => StatusCode::OK,
        _ => StatusCode::METHOD_NOT_ALLOWED,
    };
    let mut answer = Response::new(Answer::from(GREETING));
    *answer.status_mut() = status;
    answer
}

fn read(protocol: Protocol, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Result<Request, Fault> {
    // A page in a browser can make it send forms here; the browser then says for whom.
    if headers.contains_key(header::ORIGIN) {
        return Err(Fault::new(
            Kind::AccessDenied,
            "Requests of web pages, which carry an Origin header, are not answered.",
        ));
    }
    let no_action = || Fault::new(Kind::InvalidAction, "The request names no action.");
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

fn in_json(outcome: &Result<Value, Fault>, request: &str) -> Response {
    let (status, text, code) = match outcome {
        Ok(Value::Null) => (200, "{}".to_owned(), None),
        Ok(value) => (200, value.to_string(), None),
        Err(fault) => {
            let (name, status) = fault.kind.json();
            let text = json!({"__type": name, "message": fault.message}).to_string();
            let who = match fault.kind.is_sender() {
                true => "Sender",
                false => "Receiver",
            };
            (status, text, Some(format!("{};{who}", fault.kind.query())))
        }
    };
    let mut answer = written(status, JSON, text, request);
    if let Some(code) = code.and_then(|code| code.parse().ok()) {
        answer.headers_mut().insert("x-amzn-query-error", code);
    }
    answer
}

fn in_xml(action: &str, outcome: &Result<Value, Fault>, request: &str) -> Response {
    match outcome {
        Ok(value) => written(
            200,
            "text/xml",
            query::answer(action, value, request),
            request,
        ),
        Err(fault) => {
            let (_, status) = fault.kind.json();
            written(status, "text/xml", query::refusal(fault, request), request)
        }
    }
}

fn written(status: u16, kind: &'static str, text: String, request: &str) -> Response {
    let mut answer = Response::new(Answer::from(text));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    if let Ok(request) = request.parse() {
        headers.insert("x-amzn-requestid", request);
    }
    answer
}

/// Listens on `address`, and says where: port 0 is any that is free.
///
/// # Errors
/// One line that names the address, if it cannot be had.
pub async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let at = listener.local_addr()?;
        std::io::Result::Ok((listener, at))
    };
    bound
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_queue_or_none() {
        assert_eq!(path_queue("/000000000000/q").as_deref(), Some("q"));
        assert_eq!(path_queue("/1/q.fifo/").as_deref(), Some("q.fifo"));
        for path in ["/", "", "/q", "//"] {
            assert_eq!(path_queue(path), None, "{path}");
        }
    }
}
