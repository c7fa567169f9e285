//! What operators and their machines ask a running program over HTTP: is it alive, is it ready,
//! what has it counted. Knows counters and readiness, nothing of what they are about.

use crate::tasks::{self, Group};
use crate::telemetry::counters::Counters;
use crate::telemetry::metrics::Meters;
use crate::telemetry::prometheus;
use crate::telemetry::readiness::Readiness;
use crate::telemetry::routes::Routes;
use axum::extract::State as From;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How long answers under way may take after the stop.
const LAST: Duration = Duration::from_secs(1);

/// So many connections at once; others wait until one is closed. They share the limit of open files
/// with everything else.
const MOST: usize = 64;

/// How long a connection may take to ask, the time between two questions included.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is told. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The counts of the process.
    pub counters: Arc<Counters>,
    /// What is measured by queue.
    pub meters: Arc<Meters>,
    /// How the control of each route stands.
    pub routes: Arc<Routes>,
    /// What is wrong, if anything is.
    pub readiness: Arc<Readiness>,
}

/// Listens on `address`, and says where: port 0 is any that is free.
///
/// # Errors
/// One line that names the address, if it cannot be had.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let at = listener.local_addr()?;
        io::Result::Ok((listener, at))
    };
    match bound.await {
        Ok((listener, at)) => {
            tracing::info!(address = %at, "health and metrics at http://{at}");
            Ok(listener)
        }
        Err(error) => Err(format!("cannot listen on {address}: {error}")),
    }
}

/// Answers until `stop`, and then for a second at most to finish what is under way:
///
/// - `GET /healthz`: 200 `ok` as long as the program runs;
/// - `GET /readyz`: 200 `{"ready":true}`, or 503 `{"ready":false,"why":[{"what","reason"}]}`;
/// - `GET /metrics`: counts in the text format of Prometheus.
pub async fn serve(listener: TcpListener, state: State, stop: CancellationToken) {
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(state);
    let mut connections: Group<()> = Group::new();
    let accepted = async {
        loop {
            tokio::select! {
                connection = listener.accept(), if connections.len() < MOST => match connection {
                    Ok((stream, _)) => {
                        connections.spawn(answer(stream, router.clone(), stop.clone()));
                    }
                    // Of one connection, or of all the files that may be open: it passes.
                    Err(_) => tokio::time::sleep(LAST).await,
                },
                () = connections.next() => {}
            }
        }
    };
    tokio::select! {
        () = accepted => {}
        () = stop.cancelled() => {}
    }
    let late = tokio::time::sleep(LAST);
    let finished = async {
        while !connections.is_empty() {
            connections.next().await;
        }
    };
    tokio::select! {
        () = finished => {}
        () = late => {}
    }
}

/// Answers what one connection asks, until it is closed or says nothing for too long; after the stop
/// what it has asked already.
async fn answer(stream: TcpStream, router: Router, stop: CancellationToken) {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE);
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

async fn ready(From(state): From<State>) -> Response {
    let reasons = state.readiness.reasons();
    if reasons.is_empty() {
        return Json(json!({"ready": true})).into_response();
    }
    let why = reasons.into_iter();
    let why: Vec<_> = why
        .map(|(what, reason)| json!({"what": what, "reason": reason}))
        .collect();
    let body = Json(json!({"ready": false, "why": why}));
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

async fn metrics(From(state): From<State>) -> Response {
    let mut text = prometheus::text(&state.counters.snapshot(), &state.meters, tasks::alive());
    text.push_str(&state.routes.text());
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response()
}

#[cfg(test)]
mod tests;
