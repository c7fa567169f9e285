//! What operators and their machines ask a running program over HTTP: is it alive, is it ready,
//! what has it counted. Knows counters and readiness, nothing of what they are about.

use crate::http::{self, Limits};
use crate::tasks;
use crate::telemetry::counters::Counters;
use crate::telemetry::metrics::Meters;
use crate::telemetry::plugins::Plugins;
use crate::telemetry::prometheus;
use crate::telemetry::readiness::Readiness;
use crate::telemetry::routes::Routes;
use axum::extract::State as From;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const LIMITS: Limits = Limits {
    connections: 64,
    patience: Duration::from_secs(10),
};

/// Has plugins looked at again: whether all that is new was taken, and what came of it.
pub type Reload = Arc<dyn Fn() -> Reloading + Send + Sync>;
/// The same, under way.
pub type Reloading = Pin<Box<dyn Future<Output = (bool, Value)> + Send>>;

/// What is told. Cheap to clone.
#[derive(Clone, Default)]
pub struct State {
    /// The counts of the process.
    pub counters: Arc<Counters>,
    /// What is measured by queue.
    pub meters: Arc<Meters>,
    /// How the control of each route stands.
    pub routes: Arc<Routes>,
    /// How the versions of each plugin stand.
    pub plugins: Arc<Plugins>,
    /// What is wrong, if anything is.
    pub readiness: Arc<Readiness>,
    /// How plugins are replaced.
    pub reload: Option<Reload>,
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
/// - `GET /metrics`: counts in the text format of Prometheus;
/// - `GET /plugins`: 200 `{"plugins":[{"route","plugin","current":{"file","sha256"},…}]}`;
/// - `POST /plugins`: looks at their files again; 200, or 422 where one is refused,
///   `{"plugins":[{"route","replaced":[…],"refused":[…]}]}`.
pub async fn serve(listener: TcpListener, state: State, stop: CancellationToken) {
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/plugins", get(plugins).post(reload))
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
    text.push_str(&state.plugins.text());
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response()
}

async fn plugins(From(state): From<State>) -> Response {
    let shown = state.plugins.figures().into_iter().map(|(route, figures)| {
        let mut shown = json!(figures);
        shown["route"] = Value::String(route);
        shown
    });
    Json(json!({ "plugins": shown.collect::<Vec<_>>() })).into_response()
}

async fn reload(From(state): From<State>) -> Response {
    let Some(reload) = &state.reload else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let (good, came) = reload().await;
    let status = match good {
        true => StatusCode::OK,
        false => StatusCode::UNPROCESSABLE_ENTITY,
    };
    (status, Json(came)).into_response()
}

#[cfg(test)]
mod tests;
