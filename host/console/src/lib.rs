//! The admin address of a running program, over HTTP: liveness, readiness, metrics, the admin API
//! and the dashboard. Knows counters and readiness; everything else comes through the port
//! `operations`.

pub mod access;
mod api;
pub mod audit;
mod dashboard;
mod depths;
mod host;
mod problem;
mod session;
pub mod state;

use access::{Access, Caller, Refusal, WrongTokens};
use audit::{ActionRequest, Audit, AuditedByJob};
use axum::body::Body;
use axum::extract::{Request, State as From};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get};
use dashboard::Dashboard;
pub use depths::DepthAsker;
use dispatcher_config::Admin;
use dispatcher_config::prices::Prices;
use dispatcher_config::tokens;
use dispatcher_core::clock;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Group;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use dispatcher_core::telemetry::readiness::Readiness;
use dispatcher_http as http;
pub use dispatcher_http::reached_here;
use dispatcher_http::{ConnectionLimits, Peer, PieceBody};
use dispatcher_operate::objects::ReloadResult;
use dispatcher_operate::operations::Operations;
use dispatcher_operate::problem::CallProblem;
use dispatcher_operate::verbs::ActionEntry;
use dispatcher_telemetry::prometheus::{TextFormat, TextPieces};
use dispatcher_telemetry::registry::Registry;
use parking_lot::Mutex;
use problem::{problem, respond};
use serde_json::{Value, json};
use state::StateChanges;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 64,
    patience: Duration::from_secs(10),
};
/// The number of requests besides probes that are answered at the same time; the remaining
/// connections are for probes, which are answered at once and occupy a connection only briefly.
const OTHERS: usize = 16;

/// The number of sign-ins at the same time: clients without a token cannot block clients with one.
const SIGN_INS: usize = 4;

/// The number of requests that send messages at the same time: producers cannot block operators.
const SENDERS: usize = 8;

/// How long a request waits for a free place, and how long the program waits for actions when it
/// stops.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum number of open streams of the API. Their connections do not count as connections of
/// the server.
const STREAMS: usize = 32;
/// The maximum number of open streams of pages, which buffer less for a slow client.
const PAGE_STREAMS: usize = 256;

/// The headers of every response that does not set them: the response is data that must not be run,
/// framed or stored. There is no CORS header, so pages of other sites cannot read it.
const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
];
/// The accepted schemes for the token.
const SCHEMES: [&str; 2] = [
    "Bearer realm=\"dispatcher\"",
    "Basic realm=\"dispatcher\", charset=\"UTF-8\"",
];

/// Checks the plugins for new versions, and reports the result.
pub type Reload = Arc<dyn Fn() -> RunningReload + Send + Sync>;
/// A running reload.
pub type RunningReload =
    Pin<Box<dyn Future<Output = Result<(u64, ReloadResult), CallProblem>> + Send>>;

/// The state that requests read. Cheap to clone.
#[derive(Clone, Default)]
pub struct AdminState {
    /// All metrics.
    pub metrics: Registry,
    /// The reasons why the process is not ready.
    pub readiness: Arc<Readiness>,
    /// Replaces plugins.
    pub reload: Option<Reload>,
    /// The access rules of everything besides probes and metrics.
    pub access: Arc<Access>,
    /// The operations of the API, once the routes run.
    pub operations: Arc<OnceLock<Arc<dyn Operations>>>,
    /// The number of leases.
    pub held: Arc<AtomicUsize>,
    /// The settings of the dashboard.
    pub pages: PageSettings,
    /// The prices of calls.
    pub prices: Prices,
}

/// The settings of the dashboard.
#[derive(Debug, Clone, Default)]
pub struct PageSettings {
    /// The path below which a proxy serves this address, such as `/dispatcher`; empty without a
    /// proxy prefix.
    pub prefix: String,
    /// The name of the environment, such as `production`.
    pub environment: Option<String>,
}

impl PageSettings {
    /// Returns the settings from the configuration.
    pub fn of(settings: &Admin) -> Self {
        Self {
            prefix: settings.prefix.clone(),
            environment: settings.environment.clone(),
        }
    }
}

/// The state while it is served. Cheap to clone.
#[derive(Clone)]
struct ServedState {
    admin: AdminState,
    /// The changes of state by operators.
    changes: StateChanges,
    streams: Streams,
    page_streams: Streams,
    dashboard: Arc<Dashboard>,
    depths: Arc<DepthAsker>,
    /// Cancelled when the server stops answering.
    stop: CancellationToken,
}

/// A limit on the number of open streams. Cheap to clone.
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

/// Listens on `address` and logs the actual address: port 0 stands for any free port. With
/// `or_any_port`, uses a free port if another process uses the requested one.
///
/// # Errors
/// Returns one line that names the address, if it is not available.
pub async fn listen(address: SocketAddr, or_any_port: bool) -> Result<TcpListener, String> {
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

/// Logs the address that signs a browser in with the token of a file. The token is in the fragment,
/// which browsers do not send and the page removes.
pub fn print_sign_in(listener: &TcpListener, token_file: Option<&Path>) {
    let token = token_file.and_then(|file| std::fs::read_to_string(file).ok());
    let tokens = token.as_deref().and_then(|text| tokens::parse(text).ok());
    let first = tokens.and_then(|tokens| tokens.into_iter().next());
    if let (Some(first), Ok(at)) = (first, listener.local_addr()) {
        let at = reached_here(at);
        let url = format!("http://{at}/ui/sign-in#{}", first.token);
        tracing::info!(url, "dashboard ready; this address signs you in");
    }
}

/// Answers until `stop`, and then for at most a second to finish what is running. For everyone:
///
/// - `GET /healthz`: 200 `ok` as long as the program runs;
/// - `GET /readyz`: 200 `{"ready":true}`, or 503 `{"ready":false,"why":[{"what","reason"}]}`;
/// - `GET /metrics`: metrics in the text format of OpenMetrics or Prometheus, depending on
///   `Accept`.
///
/// For callers that `Access` admits (others get 401, 403 or 421):
///
/// - `GET /plugins`: 200 `{"plugins":[{"route","plugin","current":{"file","sha256"},…}]}`;
/// - `POST /plugins`: checks their files again; 200, or 422 if one is refused,
///   `{"plugins":[{"route","replaced":[…],"refused":[…]}]}`;
/// - `/ui`: the dashboard, to which `/` leads;
/// - `/api/v1/…`: the admin API, see `host/docs/openapi.json`.
///
/// Errors are problem details (RFC 9457).
pub async fn serve(listener: TcpListener, state: AdminState, stop: CancellationToken) {
    serve_within(LIMITS, listener, state, stop).await;
}

async fn serve_within(
    limits: ConnectionLimits,
    listener: TcpListener,
    state: AdminState,
    stop: CancellationToken,
) {
    let dashboard = Arc::new(Dashboard::new(&state));
    let sampling = tasks::spawn(Arc::clone(&dashboard).run(state.clone(), stop.clone()));
    let depths = DepthAsker::new(state.metrics.clone(), Arc::clone(&state.operations));
    let asking = tasks::spawn(Arc::clone(&depths).run(stop.clone()));
    let keys = tasks::spawn(Arc::clone(&state.access).keep_proxy_keys(stop.clone()));
    let prefix = state.pages.prefix.clone();
    let door = AdminService {
        dashboard: Arc::clone(&dashboard),
        access: Arc::clone(&state.access),
        others: Arc::new(Semaphore::new(OTHERS)),
        sign_ins: Arc::new(Semaphore::new(SIGN_INS)),
        senders: Arc::new(Semaphore::new(SENDERS)),
        actions: Arc::default(),
        audit: Arc::default(),
        wrong_tokens: Arc::default(),
        proxy_tokens: Arc::default(),
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
    // A proxy may keep or remove the prefix.
    let router = if prefix.is_empty() {
        router
    } else {
        router.clone().nest(&prefix, router)
    };
    http::serve(listener, router, limits, stop).await;
    finish(&actions).await;
    sampling.finished().await;
    asking.finished().await;
    keys.finished().await;
}

/// The checks that every request passes.
#[derive(Clone)]
struct AdminService {
    dashboard: Arc<Dashboard>,
    access: Arc<Access>,
    /// Limits requests that are neither probes nor sign-ins.
    others: Arc<Semaphore>,
    /// Limits sign-ins.
    sign_ins: Arc<Semaphore>,
    /// Limits requests that send messages.
    senders: Arc<Semaphore>,
    /// The running actions, including those whose client has disconnected.
    actions: Arc<Mutex<Group<()>>>,
    audit: Arc<Audit>,
    wrong_tokens: Arc<WrongTokens>,
    /// The last log line about a refused token of the trusted proxy.
    proxy_tokens: Arc<Mutex<LogThrottle>>,
}

async fn enter(From(door): From<AdminService>, request: Request, next: Next) -> Response {
    let mut answer = if is_probe(&request) {
        next.run(request).await
    } else {
        door.admit(request, next).await
    };
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    answer
}

/// Returns whether a request is a probe by kubelet or Prometheus. They name the pod's address or
/// something else as the host, and have no token.
fn is_probe(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && ["/healthz", "/readyz", "/metrics"].contains(&request.uri().path())
}

impl AdminService {
    async fn admit(&self, request: Request, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        let asked = ActionRequest {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            peer: peer(&parts),
        };
        let acts = !parts.method.is_safe();
        let signs_in = dashboard::signs_in(&parts);
        let offers = signs_in || self.access.offers_token(&parts.headers);
        let offered_by = if offers {
            parts.extensions.get::<Peer>().map(|peer| peer.0.ip())
        } else {
            None
        };
        let wait = offered_by.and_then(|from| self.wrong_tokens.wait(from, clock::now()));
        if let Some(wait) = wait {
            return self.too_many(wait, &asked, &parts);
        }
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
                match &refusal {
                    Refusal::Unauthorized => self.note_wrong_token(offered_by),
                    Refusal::InvalidProxyToken(why) => self.note_proxy_token(why),
                    _ => {}
                }
                self.note_refusal(&asked, &refusal, &parts);
                return self.refused(&refusal, &asked, &parts);
            }
        };
        if dashboard::is_asset(&asked.path) {
            return next.run(Request::from_parts(parts, body)).await;
        }
        let (free, most) = if dashboard::needs_no_token(&asked.path) {
            (&self.sign_ins, SIGN_INS)
        } else if access::sends(&parts) {
            (&self.senders, SENDERS)
        } else {
            (&self.others, OTHERS)
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
            if signs_in && answer.status() == StatusCode::UNAUTHORIZED {
                door.note_wrong_token(offered_by);
            }
            door.note_action(&asked, &caller, &answer);
            drop(permit);
            answer
        })
        .await
    }

    /// Runs an action to its end and logs it, even if the client disconnects.
    async fn to_the_end(
        &self,
        action: impl Future<Output = Response> + Send + 'static,
    ) -> Response {
        let (answer, answered) = oneshot::channel();
        {
            let mut actions = self.actions.lock();
            actions.take_finished();
            actions.spawn(async move {
                // The client may have disconnected.
                let _ = answer.send(action.await);
            });
        }
        answered.await.unwrap_or_else(|_| {
            let why = "The program is stopping. The action may have been taken.";
            problem(StatusCode::SERVICE_UNAVAILABLE, why)
        })
    }

    fn refused(&self, refusal: &Refusal, asked: &ActionRequest, request: &Parts) -> Response {
        if dashboard::is_page(&asked.path) {
            note_refused(refusal, asked);
            return self.dashboard.refused(refusal, request);
        }
        refused(refusal, asked)
    }

    /// Refuses a request with a token from an address that has sent too many wrong ones.
    fn too_many(&self, wait: Duration, asked: &ActionRequest, request: &Parts) -> Response {
        let seconds = wait.as_secs() + 1;
        let status = StatusCode::TOO_MANY_REQUESTS;
        if !request.method.is_safe() {
            self.audit.refused_stranger(asked, status.as_u16());
        }
        let why = format!("Too many wrong tokens from this address. Try again in {seconds} s.");
        let mut answer = if dashboard::is_page(&asked.path) {
            self.dashboard
                .wrong(request, &CallProblem::new(status, why))
        } else {
            problem(status, &why)
        };
        let headers = answer.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        answer
    }

    fn note_wrong_token(&self, address: Option<IpAddr>) {
        if let Some(address) = address
            && self.wrong_tokens.record(address, clock::now())
        {
            tracing::warn!(peer = %address, "too many wrong tokens: tokens of this address wait");
        }
    }

    /// Logs why a token of the trusted proxy is refused, at most once a minute.
    fn note_proxy_token(&self, reason: &str) {
        if self.proxy_tokens.lock().should_log(clock::now()) {
            tracing::warn!(reason, "token of the trusted proxy refused");
        }
    }

    fn busy(&self, why: &str, asked: &ActionRequest, request: &Parts) -> Response {
        if dashboard::is_page(&asked.path) {
            let problem = CallProblem::new(StatusCode::SERVICE_UNAVAILABLE, why);
            return self.dashboard.wrong(request, &problem);
        }
        problem(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// Logs that an action was refused, and to whom, if that is known.
    fn note_refusal(&self, asked: &ActionRequest, refusal: &Refusal, request: &Parts) {
        if request.method.is_safe() {
            return;
        }
        let status = refusal.status().as_u16();
        match refusal {
            Refusal::OtherSite(_) | Refusal::NoPage => match self.access.identify(&request.headers)
            {
                Some(caller) => self.audit.refused(asked, &caller, status),
                None => self.audit.refused_stranger(asked, status),
            },
            Refusal::ReadOnly(caller) | Refusal::SendOnly(caller) | Refusal::NoRole(caller) => {
                self.audit.refused(asked, caller, status)
            }
            _ => self.audit.refused_stranger(asked, status),
        }
    }

    fn note_action(&self, asked: &ActionRequest, caller: &Caller, answer: &Response) {
        let status = answer.status().as_u16();
        if answer.extensions().get::<AuditedByJob>().is_some() {
            return;
        }
        // A sign-in tells who it was.
        let caller = answer.extensions().get::<Caller>().unwrap_or(caller);
        match answer.extensions().get::<ActionEntry>() {
            Some(done) => self.audit.taken(asked, caller, status, done),
            // A page's form is answered with a redirect to another page.
            None if answer.status().is_success() || answer.status().is_redirection() => {
                self.audit
                    .taken(asked, caller, status, &ActionEntry::default());
            }
            None => self.audit.refused(asked, caller, status),
        }
    }
}

/// Waits for the running actions, up to a limit.
async fn finish(actions: &Mutex<Group<()>>) {
    let mut actions = std::mem::take(&mut *actions.lock());
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

/// Logs a refused request at debug level, because anyone who reaches the address can cause any
/// number of these lines.
fn note_refused(refusal: &Refusal, asked: &ActionRequest) {
    tracing::debug!(
        method = asked.method,
        path = asked.path,
        peer = asked.peer,
        status = refusal.status().as_u16(),
        "admin request refused"
    );
}

fn refused(refusal: &Refusal, asked: &ActionRequest) -> Response {
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
    let (is_ready, reasons) = (state.readiness.is_ready(), state.readiness.reasons());
    if reasons.is_empty() {
        return Json(json!({"ready": true})).into_response();
    }
    let why: Vec<_> = reasons
        .into_iter()
        .map(|(what, reason)| json!({"what": what, "reason": reason}))
        .collect();
    let body = Json(json!({"ready": is_ready, "why": why}));
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, body).into_response()
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
    match reload().await {
        Ok((replaced, came)) => {
            let mut answer = Json(came).into_response();
            answer
                .extensions_mut()
                .insert(ActionEntry::new("plugins", replaced));
            answer
        }
        Err(problem) => respond(problem),
    }
}

#[cfg(test)]
mod tests;
