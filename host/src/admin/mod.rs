//! What operators and their machines ask a running program over HTTP: is it alive, is it ready,
//! what has it counted. Knows counters and readiness, nothing of what they are about.

use crate::http::{self, Limits};
use crate::tasks;
use crate::telemetry::counters::Counters;
use crate::telemetry::metrics::Meters;
use crate::telemetry::prometheus;
use crate::telemetry::readiness::Readiness;
use crate::telemetry::routes::Routes;
use axum::extract::State as From;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const LIMITS: Limits = Limits {
    connections: 64,
    patience: Duration::from_secs(10),
};

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
    let (listener, at) = http::listen(address).await?;
    tracing::info!(address = %at, "health and metrics at http://{at}");
    Ok(listener)
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
    http::serve(listener, router, LIMITS, stop).await;
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
