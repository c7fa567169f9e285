//! What operators and their machines ask a running program over HTTP: is it alive, is it ready,
//! what has it counted, and the admin API, by which they look and act. Knows counters and readiness;
//! all else comes through the port `operations`.

pub(crate) mod access;
mod api;
pub(crate) mod audit;
mod dashboard;
mod depths;
pub(crate) mod messages;
pub(crate) mod operations;
pub(crate) mod problem;
mod scale;
mod schema;
mod session;
pub(crate) mod state;

use crate::config::Admin;
use crate::config::prices::Prices;
use crate::telemetry::prometheus::{TextFormat, TextPieces};
use crate::telemetry::registry::Registry;
use access::{Access, Caller, Refusal};
use api::{Audited, AuditedByJob};
use audit::{Asked, Audit};
use axum::body::Body;
use axum::extract::{Request, State as From};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get};
use dashboard::Dashboard;
pub(crate) use depths::DepthAsker;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::lease::Ledger;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Group;
use dispatcher_core::telemetry::readiness::Readiness;
use dispatcher_http as http;
use dispatcher_http::{ConnectionLimits, Peer, PieceBody};
use operations::Operations;
use problem::{CallProblem, problem, problem_with};
use serde_json::{Value, json};
use state::StateChanges;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 64,
    patience: Duration::from_secs(10),
};
/// Requests that are answered at once, besides probes: the other connections are for those. A probe
/// is answered at once, so it keeps none for long.
const OTHERS: usize = 16;

/// The same of sign-ins: whoever has no token keeps nobody out who has one.
const SIGN_INS: usize = 4;

/// How long a request waits for one of these to end, and the end of the program for actions.
const PATIENCE: Duration = Duration::from_secs(5);

/// Streams of the API that are open at once. Their connections are none of the others.
const STREAMS: usize = 32;
/// The same of pages, which keep less for a slow client.
const PAGE_STREAMS: usize = 256;

/// Headers of every response that does not have its own: it is data, to be neither run nor framed nor stored. There is no
/// CORS header, so no page of another site can read it.
const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
];
/// How to send the token.
const SCHEMES: [&str; 2] = [
    "Bearer realm=\"dispatcher\"",
    "Basic realm=\"dispatcher\", charset=\"UTF-8\"",
];

/// Has plugins looked at again, and says what came of it.
pub(crate) type Reload = Arc<dyn Fn() -> Reloading + Send + Sync>;
/// A running reload.
pub(crate) type Reloading = Pin<Box<dyn Future<Output = ReloadAnswer> + Send>>;

/// What came of a reload.
pub(crate) struct ReloadAnswer {
    /// Whether all that is new was taken.
    pub is_good: bool,
    /// How many plugins were replaced.
    pub replaced: u64,
    /// What came of it, for each route.
    pub came: Value,
}

/// Rolls the canary of a route back: what it is called, or why none was.
pub(crate) type RollBack = Arc<dyn Fn(String) -> RollingBack + Send + Sync>;
/// A running rollback.
pub(crate) type RollingBack = Pin<Box<dyn Future<Output = Result<String, CallProblem>> + Send>>;

/// The state that requests read. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct AdminState {
    /// All metrics.
    pub metrics: Registry,
    /// What is wrong, if anything is.
    pub readiness: Arc<Readiness>,
    /// How plugins are replaced.
    pub reload: Option<Reload>,
    /// How canaries are rolled back.
    pub roll_back: Option<RollBack>,
    /// Who may ask for more than probes and metrics.
    pub access: Arc<Access>,
    /// What the API shows and does, once the routes run.
    pub operations: Arc<OnceLock<Arc<dyn Operations>>>,
    /// All leases.
    pub ledger: Arc<Ledger>,
    /// How pages are shown.
    pub pages: PageSettings,
    /// What calls cost.
    pub prices: Prices,
}

/// How pages are shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageSettings {
    /// The path below which a proxy serves this address, as in `/dispatcher`; empty without one.
    pub prefix: String,
    /// What the environment is called, as in `production`.
    pub environment: Option<String>,
}

impl PageSettings {
    /// As configured.
    pub(crate) fn of(settings: &Admin) -> Self {
        Self {
            prefix: settings.prefix.clone(),
            environment: settings.environment.clone(),
        }
    }
}

/// The same while it is served. Cheap to clone.
#[derive(Clone)]
struct ServedState {
    admin: AdminState,
    /// The states that operators change.
    changes: StateChanges,
    streams: Streams,
    page_streams: Streams,
    dashboard: Arc<Dashboard>,
    depths: Arc<DepthAsker>,
    /// Set when no more is answered.
    stop: CancellationToken,
}

/// The streams that may be open. Cheap to clone.
#[derive(Clone)]
struct Streams {
    most: usize,
    free: Arc<Semaphore>,
}

impl Streams {
    fn new(most: usize) -> Self {
        let free = Arc::new(Semaphore::new(most));
        Self { most, free }
    }

    fn open(&self) -> usize {
        self.most - self.free.available_permits()
    }

    fn take(&self) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_owned().ok()
    }
}

/// A date as JSON has it (RFC 3339).
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at.0));
    // What is beyond all dates is as good as the last.
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let at = at.map_or(last, |at| at.min(last));
    humantime::format_rfc3339_millis(at).to_string()
}

/// Listens on `address`, and says where: port 0 is any that is free. `or_any_port` takes one of those
/// where the port belongs to another process.
///
/// # Errors
/// One line that names the address, if it cannot be had.
pub(crate) async fn listen(address: SocketAddr, or_any_port: bool) -> Result<TcpListener, String> {
    let (listener, at) = if or_any_port {
        http::listen_or_any_port(address).await?
    } else {
        http::listen(address).await?
    };
    tracing::info!(
        address = %at,
        url = format!("http://{at}"),
        dashboard = format!("http://{at}/ui"),
        "health and metrics served"
    );
    Ok(listener)
}

/// Answers until `stop`, and then for a second at most to finish what is running. To anybody:
///
/// - `GET /healthz`: 200 `ok` as long as the program runs;
/// - `GET /readyz`: 200 `{"ready":true}`, or 503 `{"ready":false,"why":[{"what","reason"}]}`;
/// - `GET /metrics`: metrics in the text format of OpenMetrics or Prometheus, as `Accept` says.
///
/// To whom `Access` admits, others getting 401, 403 or 421:
///
/// - `GET /plugins`: 200 `{"plugins":[{"route","plugin","current":{"file","sha256"},…}]}`;
/// - `POST /plugins`: looks at their files again; 200, or 422 where one is refused,
///   `{"plugins":[{"route","replaced":[…],"refused":[…]}]}`;
/// - `/ui`: the dashboard, to which `/` leads;
/// - `/api/v1/…`: the admin API, as `host/docs/openapi.json` describes it.
///
/// Errors are problem details (RFC 9457).
pub(crate) async fn serve(listener: TcpListener, state: AdminState, stop: CancellationToken) {
    serve_within(LIMITS, listener, state, stop).await;
}

async fn serve_within(
    limits: ConnectionLimits,
    listener: TcpListener,
    state: AdminState,
    stop: CancellationToken,
) {
    let dashboard = Arc::new(Dashboard::new(&state));
    let sampling = Arc::clone(&dashboard).run(state.clone(), stop.clone());
    let sampling = tasks::spawn(sampling);
    let depths = DepthAsker::new(state.metrics.clone(), Arc::clone(&state.operations));
    let asking = tasks::spawn(Arc::clone(&depths).run(stop.clone()));
    let prefix = state.pages.prefix.clone();
    let door = AdminService {
        dashboard: Arc::clone(&dashboard),
        access: Arc::clone(&state.access),
        others: Arc::new(Semaphore::new(OTHERS)),
        sign_ins: Arc::new(Semaphore::new(SIGN_INS)),
        actions: Arc::default(),
        audit: Arc::default(),
    };
    let actions = Arc::clone(&door.actions);
    let state = ServedState {
        admin: state,
        changes: StateChanges::default(),
        streams: Streams::new(STREAMS),
        page_streams: Streams::new(PAGE_STREAMS),
        dashboard,
        depths,
        stop: stop.clone(),
    };
    let router = Router::new()
        .route("/", get(enter_dashboard))
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/plugins", get(plugins).post(reload))
        .merge(api::router())
        .merge(dashboard::router())
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(door, enter))
        .with_state(state);
    // A proxy may keep the prefix or take it away.
    let router = if prefix.is_empty() {
        router
    } else {
        router.clone().nest(&prefix, router)
    };
    http::serve(listener, router, limits, stop).await;
    finish(&actions).await;
    sampling.finished().await;
    asking.finished().await;
}

/// What every request passes.
#[derive(Clone)]
struct AdminService {
    dashboard: Arc<Dashboard>,
    access: Arc<Access>,
    /// A permit is a request that is no probe and no sign-in.
    others: Arc<Semaphore>,
    /// A permit is a sign-in.
    sign_ins: Arc<Semaphore>,
    /// The actions under way, whether or not somebody waits for their answers.
    actions: Arc<Mutex<Group<()>>>,
    audit: Arc<Audit>,
}

async fn enter(From(door): From<AdminService>, request: Request, next: Next) -> Response {
    let mut answer = match is_probe(&request) {
        true => next.run(request).await,
        false => door.admit(request, next).await,
    };
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    answer
}

/// A request by kubelet and Prometheus, which name the pod's address or anything else as the host, and
/// have no token.
fn is_probe(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && ["/healthz", "/readyz", "/metrics"].contains(&request.uri().path())
}

impl AdminService {
    async fn admit(&self, request: Request, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        let asked = Asked {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            peer: peer(&parts),
        };
        let acts = !parts.method.is_safe();
        let judged = if dashboard::needs_no_token(&asked.path) {
            self.access
                .judge_without_token(&parts)
                .map(|()| Caller::default())
        } else if dashboard::is_sign_out(&asked.path) {
            self.access.judge_of_any_role(&parts)
        } else {
            self.access.judge(&parts)
        };
        let caller = match judged {
            Ok(caller) => caller,
            Err(refusal) => {
                if acts {
                    self.note_refusal(&asked, &refusal);
                }
                return self.refused(&refusal, &asked, &parts);
            }
        };
        if dashboard::is_asset(&asked.path) {
            return next.run(Request::from_parts(parts, body)).await;
        }
        let (free, most) = match dashboard::needs_no_token(&asked.path) {
            true => (&self.sign_ins, SIGN_INS),
            false => (&self.others, OTHERS),
        };
        let permit = tokio::select! {
            permit = free.clone().acquire_owned() => permit.ok(),
            () = clock::sleep_until(Some(clock::now() + PATIENCE)) => None,
        };
        let Some(permit) = permit else {
            let why = format!("{most} requests are already in progress. Try again later.");
            return self.busy(&why, &asked, &parts);
        };
        parts.extensions.insert(caller.clone());
        parts.extensions.insert(asked.clone());
        let request = Request::from_parts(parts, body);
        if !acts {
            return next.run(request).await;
        }
        let door = self.clone();
        self.to_the_end(async move {
            let answer = next.run(request).await;
            door.note_action(&asked, &caller, &answer);
            drop(permit);
            answer
        })
        .await
    }

    /// Takes an action to its end, and logs it, even if the client goes away meanwhile.
    async fn to_the_end(
        &self,
        action: impl Future<Output = Response> + Send + 'static,
    ) -> Response {
        let (answer, answered) = oneshot::channel();
        {
            let mut actions = self.actions.lock().unwrap_or_else(PoisonError::into_inner);
            actions.take_finished();
            actions.spawn(async move {
                // Whoever asked may have gone.
                let _ = answer.send(action.await);
            });
        }
        answered.await.unwrap_or_else(|_| {
            let why = "The program is stopping. The action may have been taken.";
            problem(StatusCode::SERVICE_UNAVAILABLE, why)
        })
    }

    fn refused(&self, refusal: &Refusal, asked: &Asked, request: &Parts) -> Response {
        if dashboard::is_page(&asked.path) {
            note_refused(refusal, asked);
            return self.dashboard.refused(refusal, request);
        }
        refused(refusal, asked)
    }

    fn busy(&self, why: &str, asked: &Asked, request: &Parts) -> Response {
        if dashboard::is_page(&asked.path) {
            let problem = CallProblem::new(StatusCode::SERVICE_UNAVAILABLE, why);
            return self.dashboard.wrong(request, &problem);
        }
        problem(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    fn note_refusal(&self, asked: &Asked, refusal: &Refusal) {
        let status = refusal.status().as_u16();
        match refusal {
            Refusal::ReadOnly(caller) => self.audit.refused(asked, caller, status),
            _ => self.audit.refused_stranger(asked, status),
        }
    }

    fn note_action(&self, asked: &Asked, caller: &Caller, answer: &Response) {
        let status = answer.status().as_u16();
        if answer.extensions().get::<AuditedByJob>().is_some() {
            return;
        }
        match answer.extensions().get::<Audited>() {
            Some(audited) => self.audit.taken(asked, caller, status, audited),
            // A form of a page is answered by the way to another.
            None if answer.status().is_success() || answer.status().is_redirection() => {
                self.audit.taken(asked, caller, status, &Audited::default());
            }
            None => self.audit.refused(asked, caller, status),
        }
    }
}

/// Waits for the actions under way; not for ever.
async fn finish(actions: &Mutex<Group<()>>) {
    let mut actions = {
        let mut actions = actions.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *actions)
    };
    let latest = clock::now() + PATIENCE;
    while !actions.is_empty() {
        tokio::select! {
            biased;
            () = actions.next() => {}
            () = clock::sleep_until(Some(latest)) => return,
        }
    }
}

fn peer(parts: &Parts) -> Option<String> {
    let peer = parts.extensions.get::<Peer>()?;
    Some(peer.0.to_string())
}

/// Whoever reaches the address can have this logged as often as he likes.
fn note_refused(refusal: &Refusal, asked: &Asked) {
    tracing::debug!(
        method = asked.method,
        path = asked.path,
        peer = asked.peer,
        status = refusal.status().as_u16(),
        "admin request refused"
    );
}

fn refused(refusal: &Refusal, asked: &Asked) -> Response {
    note_refused(refusal, asked);
    let status = refusal.status();
    let mut answer = problem(status, &refusal.detail());
    if status == StatusCode::UNAUTHORIZED {
        for scheme in SCHEMES {
            let scheme = HeaderValue::from_static(scheme);
            answer
                .headers_mut()
                .append(header::WWW_AUTHENTICATE, scheme);
        }
    }
    answer
}

async fn unknown(From(state): From<ServedState>, uri: Uri) -> Response {
    if dashboard::is_page(uri.path()) {
        return state.dashboard.unknown();
    }
    problem(StatusCode::NOT_FOUND, "No such path.")
}

async fn enter_dashboard(From(state): From<ServedState>) -> Response {
    state.dashboard.enter()
}

async fn not_allowed(From(state): From<ServedState>, method: Method, uri: Uri) -> Response {
    if dashboard::is_page(uri.path()) {
        return state.dashboard.wrong_method();
    }
    let why = format!("{method} is not supported at this path.");
    problem(StatusCode::METHOD_NOT_ALLOWED, &why)
}

async fn ready(From(ServedState { admin: state, .. }): From<ServedState>) -> Response {
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

async fn metrics(From(state): From<ServedState>, headers: HeaderMap) -> Response {
    let ServedState { admin, depths, .. } = state;
    depths.refresh().await;
    let accepted = headers.get_all(header::ACCEPT).iter();
    let format = TextFormat::accepted(accepted.filter_map(|value| value.to_str().ok()));
    let written = admin.metrics.written(move |families, of_plugins| {
        PieceBody::begin(format.pieces(families, of_plugins), TextPieces::is_at_end)
    });
    let body = Body::new(written.await);
    ([(header::CONTENT_TYPE, format.content_type())], body).into_response()
}

async fn plugins(From(ServedState { admin: state, .. }): From<ServedState>) -> Response {
    let shown = state
        .metrics
        .plugins
        .figures()
        .into_iter()
        .map(|(route, figures)| {
            let mut shown = json!(figures);
            shown["route"] = Value::String(route);
            shown
        });
    Json(json!({ "plugins": shown.collect::<Vec<_>>() })).into_response()
}

async fn reload(From(ServedState { admin: state, .. }): From<ServedState>) -> Response {
    let Some(reload) = &state.reload else {
        return problem(StatusCode::NOT_FOUND, "No such path.");
    };
    let ReloadAnswer {
        is_good,
        replaced,
        came,
    } = reload().await;
    if is_good {
        let mut answer = Json(came).into_response();
        answer.extensions_mut().insert(Audited {
            target: "plugins".to_owned(),
            count: replaced,
        });
        return answer;
    }
    let why = "Not every plugin was replaced; the old versions stay.";
    problem_with(StatusCode::UNPROCESSABLE_ENTITY, why, came)
}

#[cfg(test)]
mod tests;
