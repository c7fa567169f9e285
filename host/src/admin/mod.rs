//! What operators and their machines ask a running program over HTTP: is it alive, is it ready,
//! what has it counted. Knows counters and readiness, nothing of what they are about.

use crate::telemetry::counters::Counters;
use crate::telemetry::metrics::Meters;
use crate::telemetry::prometheus;
use crate::telemetry::readiness::Readiness;
use axum::extract::State as From;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get};
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long answers under way may take after the stop.
const LAST: Duration = Duration::from_secs(1);

/// What is told. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The counts of the process.
    pub counters: Arc<Counters>,
    /// What is measured by queue.
    pub meters: Arc<Meters>,
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
    let serving =
        axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST).await;
    };
    tokio::select! {
        // Serving never fails: what goes wrong with one connection ends that connection.
        _ = serving => {}
        () = late => {}
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
    let text = prometheus::text(&state.counters.snapshot(), &state.meters);
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response()
}

#[cfg(test)]
mod tests;
