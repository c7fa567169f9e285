//! The dashboard: pages that show what the admin API shows and does. The server renders the pages,
//! and they work without JavaScript; with JavaScript each follows one stream. The data comes from
//! the port `operations`, from counters, and from the sampler, whose requests do not grow with the
//! number of viewers.

mod actions;
mod assets;
mod confirm;
mod format;
mod history;
mod links;
mod looks;
mod sampler;
mod scene;
mod view;
mod visit;

use super::access::{Access, Refusal};
use super::api;
use super::session::LASTS;
use super::{AdminState, PageSettings, ServedState};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State as From};
use axum::http::header::{self, HeaderMap};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use dispatcher_core::clock;
use dispatcher_http::{StreamBody, StreamWriter};
use dispatcher_operate::messages::LookTerms;
use dispatcher_operate::operations::{Operations, RecentWork};
use dispatcher_operate::problem::{CallProblem, StatusCode};
use dispatcher_operate::request::{AtLeastOne, Scan};
use dispatcher_operate::select::Select;
use dispatcher_operate::verbs::ActionEntry;
use dispatcher_operate::verbs::scan::ScanRequest;
use dispatcher_telemetry::registry::Registry;
use history::Span;
use links::Links;
use looks::{Frame, View};
use maud::Markup;
use sampler::{EVERY, Sampler};
use scene::Scene;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use view::Section;
use visit::{Parameters, Visit};

/// The time limit for listing and counting the messages of a page; a link leads to the rest.
const LOOKING: Duration = Duration::from_millis(100);
/// The time limit when the previous page found nothing and the user continues.
const LOOKING_ON: Duration = Duration::from_secs(2);
/// How long a page waits for depths that were not requested before.
const DEPTH_PATIENCE: Duration = Duration::from_millis(400);
/// The interval of keep-alive comments on an idle stream.
const ALIVE: Duration = Duration::from_secs(15);
/// The maximum number of messages that are received to be shown.
const LOOKED_AT: u64 = 1_000;
/// The time after which a client that reads nothing is dropped.
const SLOW: Duration = Duration::from_secs(30);
/// The maximum number of items in a list without pages.
const LISTED: usize = 200;

/// The maximum size of the sign-in form, in bytes.
const LONGEST_FORM: usize = 16 * 1_024;

type PageResult = Result<Response, Response>;

/// The dashboard of a process.
pub(super) struct Dashboard {
    links: Links,
    environment: Option<String>,
    sampler: Sampler,
}

impl Dashboard {
    pub(super) fn new(state: &AdminState) -> Self {
        let PageSettings {
            prefix,
            environment,
        } = &state.pages;
        Self {
            links: Links::below(prefix),
            environment: environment.clone(),
            sampler: Sampler::new(&state.metrics.meters, &state.prices),
        }
    }

    /// Returns the work of all queues together over the last minute.
    pub(super) fn recent(&self) -> Option<RecentWork> {
        let minute = self.sampler.last_minute()?;
        Some(minute.work(self.sampler.is_billed()))
    }

    /// Keeps the content of pages current until `stop`.
    pub(super) async fn run(self: Arc<Self>, state: AdminState, stop: CancellationToken) {
        let readings = async {
            let mut next = clock::now();
            loop {
                self.sampler.sample(clock::now());
                // Samples missed during a stall are skipped.
                next = (next + EVERY).max(clock::now());
                clock::sleep_until(Some(next)).await;
            }
        };
        let frames = async {
            loop {
                if let Some(operations) = state.operations.get() {
                    self.publish(&**operations, &state.metrics).await;
                }
                clock::sleep_until(Some(clock::now() + EVERY)).await;
            }
        };
        let depths = async {
            loop {
                if let Some(operations) = state.operations.get() {
                    self.sampler.ask(&**operations, clock::now()).await;
                }
                self.sampler.looked().await;
            }
        };
        tokio::select! {
            () = readings => {}
            () = frames => {}
            () = depths => {}
            () = stop.cancelled() => {}
        }
    }

    /// Renders each followed view once for all its followers.
    async fn publish(&self, operations: &dyn Operations, metrics: &Registry) {
        for seen in self.sampler.followed() {
            let scene = Scene {
                dashboard: self,
                operations,
                metrics,
                why_not: seen.why_not,
            };
            let parts = scene.parts(&seen.view).await;
            self.sampler.publish(&seen, parts);
        }
    }

    /// Answers a refused request with a page, or with the sign-in if a token is missing.
    pub(super) fn refused(&self, refusal: &Refusal, request: &Parts) -> Response {
        // The script of a page cannot use another page.
        let by_script = visit::is_by_script(&request.headers);
        let is_page = request.method.is_safe() && request.uri.path() != "/ui/live" && !by_script;
        if *refusal == Refusal::Unauthorized && is_sign_out(request.uri.path()) {
            // The session has already expired.
            return visit::see_other(&self.links.to("/ui/sign-in", &[]));
        }
        if *refusal == Refusal::Unauthorized && is_page {
            let here = own_address(&self.links, &request.uri);
            let site = request.headers.get("sec-fetch-site");
            if site.is_some_and(|site| site == "cross-site" || site == "same-site") {
                return visit::html(StatusCode::OK, view::sign_in::again(&here));
            }
            return visit::see_other(&self.links.to("/ui/sign-in", &[("back", &here)]));
        }
        if *refusal != Refusal::Unauthorized {
            let problem = CallProblem::new(refusal.status(), refusal.detail());
            return self.wrong(request, &problem);
        }
        let back = visit::from_page(&self.links, &request.headers);
        let sign_in = self.links.to("/ui/sign-in", &[("back", &back)]);
        let is_form = by_script && !request.method.is_safe();
        let page = if is_form {
            view::sign_in::over(&sign_in)
        } else {
            view::sign_in::needed(&self.links, &sign_in)
        };
        let mut answer = visit::html(StatusCode::UNAUTHORIZED, page);
        // A form stays on the page, with its input.
        if by_script && !is_form {
            visit::redirect_script(&mut answer, &sign_in);
        }
        answer
    }

    /// Answers with a problem: as a page, or as a part of a page for a form that a script sent.
    pub(super) fn wrong(&self, request: &Parts, problem: &CallProblem) -> Response {
        if visit::is_by_script(&request.headers) && !request.method.is_safe() {
            return visit::refusal(problem);
        }
        visit::wrong(&self.links, problem)
    }

    /// Answers that the page does not exist.
    pub(super) fn unknown(&self) -> Response {
        visit::wrong(
            &self.links,
            &CallProblem::not_found("There is no such page."),
        )
    }

    /// Answers that the address only accepts forms.
    pub(super) fn wrong_method(&self) -> Response {
        let why = "This address only accepts what a page sends. Open the page, and act there.";
        visit::wrong(
            &self.links,
            &CallProblem::new(StatusCode::METHOD_NOT_ALLOWED, why),
        )
    }

    /// Redirects to the overview.
    pub(super) fn enter(&self) -> Response {
        visit::see_other(&self.links.to("/ui", &[]))
    }
}

fn own_address(links: &Links, uri: &Uri) -> String {
    let path = uri.path_and_query().map_or("/ui", |path| path.as_str());
    let at = path.find("/ui").unwrap_or_default();
    links.own(&links.to(&path[at..], &[]))
}

/// Returns whether a path belongs to the dashboard.
pub(super) fn is_page(path: &str) -> bool {
    path == "/ui" || path.starts_with("/ui/")
}

/// Returns whether a path needs no token: the files that every page loads, the sign-in page, and
/// the bare address, which leads there.
pub(super) fn needs_no_token(path: &str) -> bool {
    is_asset(path) || ["/", "/ui/sign-in"].contains(&path)
}

/// Returns whether a request has a token that a user entered.
pub(super) fn signs_in(request: &Parts) -> bool {
    request.method == Method::POST && request.uri.path() == "/ui/sign-in"
}

/// Returns whether a path ends the session, which needs no further permission.
pub(super) fn is_sign_out(path: &str) -> bool {
    path == "/ui/sign-out"
}

/// Returns whether a path is an embedded file.
pub(super) fn is_asset(path: &str) -> bool {
    path.starts_with("/ui/assets/")
}

/// Returns the routes of all pages.
pub(super) fn router() -> Router<ServedState> {
    Router::new()
        .route("/ui", get(overview))
        .route("/ui/queue", get(queue))
        .route("/ui/running", get(running))
        .route("/ui/attempt", get(attempt))
        .route("/ui/dead-letters", get(dead_letters))
        .route("/ui/message", get(message))
        .route("/ui/job", get(job))
        .route("/ui/schedules", get(schedules))
        .route("/ui/fleet", get(fleet))
        .route("/ui/plugins", get(plugins))
        .route("/ui/processes", get(processes))
        .route("/ui/doctor", get(doctor))
        .route("/ui/confirm/{action}", get(confirmation))
        .route("/ui/act/{action}", post(act))
        .route("/ui/sign-in", get(sign_in).post(signed_in))
        .route("/ui/sign-out", post(sign_out))
        .route("/ui/live", get(live))
        .route("/ui/points", get(points))
        .route("/ui/assets/{name}", get(asset))
}

async fn asset(From(state): From<ServedState>, Path(name): Path<String>) -> Response {
    assets::answer(&name).unwrap_or_else(|| state.dashboard.unknown())
}

/// Returns the address of the stream of a view.
fn stream_of(links: &Links, view: &View) -> String {
    let after;
    let parameters: Vec<(&str, &str)> = match view {
        View::Overview {
            filter,
            after: first,
        } => {
            after = first.to_string();
            vec![("view", "overview"), ("q", filter), ("after", &after)]
        }
        View::DeadLetters {
            filter,
            after: first,
        } => {
            after = first.to_string();
            vec![("view", "dead-letters"), ("q", filter), ("after", &after)]
        }
        View::Queue(queue) => vec![("view", "queue"), ("name", queue)],
        View::Running { after: None } => vec![("view", "running")],
        View::Running { after: Some(after) } => vec![("view", "running"), ("after", after)],
        View::Fleet => vec![("view", "fleet")],
        View::Plugins => vec![("view", "plugins")],
        View::Letters(queue) => vec![("view", "letters"), ("queue", queue)],
        View::Job(id) => vec![("view", "job"), ("id", id)],
    };
    links.to("/ui/live", &parameters)
}

/// Returns the view that the address of a stream names.
async fn view_of(visit: &Visit) -> Result<View, CallProblem> {
    let parameters = &visit.parameters;
    match parameters.get("view") {
        "overview" => Ok(View::Overview {
            filter: parameters.get("q").to_owned(),
            after: parameters.number("after"),
        }),
        "dead-letters" => Ok(View::DeadLetters {
            filter: parameters.get("q").to_owned(),
            after: parameters.number("after"),
        }),
        "queue" => {
            let queue = known_queue(visit, parameters.get("name")).await?;
            Ok(View::Queue(queue.queue))
        }
        "running" => Ok(View::Running {
            after: Some(parameters.get("after").to_owned()).filter(|after| !after.is_empty()),
        }),
        "fleet" => Ok(View::Fleet),
        "plugins" => Ok(View::Plugins),
        "letters" => Ok(View::Letters(parameters.get("queue").to_owned())),
        "job" => Ok(View::Job(parameters.get("id").to_owned())),
        other => Err(CallProblem::not_found(format!(
            "There is no view `{other}`."
        ))),
    }
}

async fn known_queue(
    visit: &Visit,
    name: &str,
) -> Result<dispatcher_operate::operations::QueueView, CallProblem> {
    visit.operations.queue(name).await.ok_or_else(|| {
        CallProblem::not_found(format!(
            "This process receives from no queue `{name}`. The overview lists its queues."
        ))
    })
}

fn span(visit: &Visit) -> Span {
    Span::read(visit.parameters.get("span")).unwrap_or_default()
}

async fn overview(visit: Visit) -> Response {
    let filter = visit.parameters.get("q").trim().to_owned();
    let after = visit.parameters.number("after");
    let view = View::Overview {
        filter: filter.clone(),
        after,
    };
    visit.glance(&view).await;
    let content = view::overview::page(&visit, &filter, after, span(&visit)).await;
    let live = stream_of(visit.links(), &view);
    visit.page(Some(Section::Overview), "Overview", Some(live), content)
}

async fn queue(visit: Visit) -> PageResult {
    let name = visit.parameters.get("name");
    let found = known_queue(&visit, name)
        .await
        .map_err(|problem| visit.wrong(&problem))?;
    let view = View::Queue(found.queue.clone());
    visit.glance(&view).await;
    let content = view::queue::page(&visit, &found, span(&visit));
    let live = stream_of(visit.links(), &view);
    Ok(visit.page(None, name, Some(live), content))
}

async fn running(visit: Visit) -> Response {
    let after = Some(visit.parameters.get("after").to_owned()).filter(|after| !after.is_empty());
    let content = view::attempts::page(&visit, after.as_deref());
    let live = stream_of(visit.links(), &View::Running { after });
    visit.page(Some(Section::Running), "Running", Some(live), content)
}

async fn attempt(visit: Visit) -> PageResult {
    let id = visit.parameters.get("id");
    let Some(found) = visit.operations.attempt(id) else {
        let why = format!(
            "No attempt `{id}` runs here: it may have ended. Running lists those that run."
        );
        return Err(visit.wrong(&CallProblem::not_found(why)));
    };
    let content = view::attempts::attempt(&visit, &found);
    Ok(visit.page(None, &format!("Attempt {id}"), None, content))
}

async fn dead_letters(visit: Visit) -> PageResult {
    let queue = visit.parameters.get("queue").trim();
    let (view, content) = if queue.is_empty() {
        let filter = visit.parameters.get("q").trim().to_owned();
        let after = visit.parameters.number("after");
        let view = View::DeadLetters {
            filter: filter.clone(),
            after,
        };
        visit.glance(&view).await;
        let content = view::letters::queues(&visit, &filter, after).await;
        (view, content)
    } else {
        let content = letters(&visit, queue).await?;
        (View::Letters(queue.to_owned()), content)
    };
    let live = stream_of(visit.links(), &view);
    Ok(visit.page(
        Some(Section::DeadLetters),
        "Dead letters",
        Some(live),
        content,
    ))
}

/// Renders the messages of a queue, if the queue can list them.
async fn letters(visit: &Visit, queue: &str) -> Result<Markup, Response> {
    visit.glance(&View::Letters(queue.to_owned())).await;
    let reason = visit.parameters.get("reason");
    let after = Some(visit.parameters.get("after")).filter(|after| !after.is_empty());
    let request = ScanRequest {
        select: Select {
            reason_is: (!reason.is_empty()).then(|| reason.to_owned()),
            ..Select::default()
        },
        limit: Some(AtLeastOne(LISTED)),
        // The time limit bounds the scan.
        scan: Some(Scan(u64::MAX)),
    };
    let terms = LookTerms {
        after: after.map(str::to_owned),
        receives: false,
        within: Some(match visit.parameters.get("look") {
            "longer" => LOOKING_ON,
            _ => LOOKING,
        }),
    };
    let messages = visit.operations.messages();
    match messages.look(queue, &request, &terms).await {
        Ok(found) => Ok(view::letters::letters(visit, &found, reason)),
        // This queue shows messages only when they are received.
        Err(problem) if problem.status == StatusCode::CONFLICT => {
            Ok(view::letters::unlisted(visit, queue))
        }
        Err(problem) => Err(visit.wrong(&problem)),
    }
}

async fn message(visit: Visit) -> PageResult {
    let (queue, id) = (visit.parameters.get("queue"), visit.parameters.get("id"));
    let found = visit
        .operations
        .messages()
        .message(queue, id)
        .await
        .map_err(|problem| visit.wrong(&problem))?;
    let content = view::letters::message(&visit, queue, &found);
    Ok(visit.page(Some(Section::DeadLetters), "Message", None, content))
}

async fn job(visit: Visit) -> PageResult {
    let id = visit.parameters.get("id");
    let found =
        visit.operations.messages().job(id).ok_or_else(|| {
            visit.wrong(&CallProblem::not_found(format!("There is no job `{id}`.")))
        })?;
    let content = view::letters::job(&visit, &found);
    let live = stream_of(visit.links(), &View::Job(found.id.clone()));
    Ok(visit.page(Some(Section::DeadLetters), "Job", Some(live), content))
}

async fn schedules(visit: Visit) -> PageResult {
    let chosen = visit.parameters.get("queue").trim();
    let queues: Vec<String> = visit
        .state
        .admin
        .metrics
        .meters
        .all()
        .iter()
        .map(|(name, _)| name.to_string())
        .take(LISTED)
        .collect();
    let shown = match chosen {
        "" => None,
        queue => {
            let items = visit.operations.schedules(queue, LISTED).await;
            Some(view::lists::ShownSchedules {
                items: items.map_err(|problem| visit.wrong(&problem))?,
                is_of_own_queue: visit.operations.queue(queue).await.is_some(),
            })
        }
    };
    let content = view::lists::schedules(&visit, &queues, chosen, shown.as_ref());
    Ok(visit.page(Some(Section::Schedules), "Schedules", None, content))
}

async fn fleet(visit: Visit) -> PageResult {
    let content = view::fleet::fleet(&visit).await;
    let content = content.map_err(|problem| visit.wrong(&problem))?;
    let live = stream_of(visit.links(), &View::Fleet);
    Ok(visit.page(Some(Section::Fleet), "Fleet", Some(live), content))
}

async fn plugins(visit: Visit) -> Response {
    let content = view::lists::plugins(&visit);
    let live = stream_of(visit.links(), &View::Plugins);
    visit.page(Some(Section::Plugins), "Plugins", Some(live), content)
}

async fn processes(visit: Visit) -> PageResult {
    let found = visit
        .operations
        .workers(LISTED)
        .await
        .map_err(|problem| visit.wrong(&problem))?;
    let content = view::lists::processes(&visit, &found);
    Ok(visit.page(Some(Section::Processes), "Processes", None, content))
}

async fn doctor(visit: Visit) -> PageResult {
    let found = visit.operations.findings().await;
    let (findings, looked_s_ago) = found.map_err(|problem| visit.wrong(&problem))?;
    let has_routes = visit.scene().has_routes();
    let content = view::lists::doctor(&findings, looked_s_ago, has_routes);
    Ok(visit.page(Some(Section::Doctor), "Doctor", None, content))
}

async fn confirmation(Path(name): Path<String>, visit: Visit) -> PageResult {
    let asked = async { confirm::confirmation(&visit, actions::find(&name)?).await };
    let content = asked.await.map_err(|problem| visit.wrong(&problem))?;
    Ok(visit.page(None, "Confirm", None, content))
}

async fn act(Path(name): Path<String>, visit: Visit, request: Request) -> Response {
    let by_script = visit::is_by_script(request.headers());
    let done = async {
        let form = Parameters::read(&api::body(request, api::LONGEST_WITH_BODIES).await?);
        let action = actions::find(&name)?;
        if action.form.name == "look" {
            return look(&visit, form.get("target")).await;
        }
        actions::act(&visit, action, &form).await
    };
    match done.await {
        Ok(answer) if by_script => visit::for_script(answer),
        Ok(answer) => answer,
        Err(problem) if by_script => visit::refusal(&problem),
        Err(problem) => visit.wrong(&problem),
    }
}

/// Receives messages of a queue that cannot be listed, and shows them.
async fn look(visit: &Visit, queue: &str) -> Result<Response, CallProblem> {
    let request = ScanRequest {
        limit: Some(AtLeastOne(LISTED)),
        scan: Some(Scan(LOOKED_AT)),
        ..ScanRequest::default()
    };
    let terms = LookTerms {
        receives: true,
        ..LookTerms::default()
    };
    let messages = visit.operations.messages();
    let found = messages.look(queue, &request, &terms).await?;
    let content = view::letters::letters(visit, &found, "");
    let mut answer = visit.page(Some(Section::DeadLetters), "Dead letters", None, content);
    // The extension is for the log.
    let done = ActionEntry::new(queue, found.received.0);
    answer.extensions_mut().insert(done);
    Ok(answer)
}

async fn sign_in(From(state): From<ServedState>, RawQuery(query): RawQuery) -> Response {
    let links = &state.dashboard.links;
    let parameters = Parameters::read(query.unwrap_or_default().as_bytes());
    if !state.admin.access.needs_token() {
        return visit::see_other(&links.to("/ui", &[]));
    }
    let back = links.own(parameters.get("back"));
    visit::html(StatusCode::OK, view::sign_in::page(links, &back, false))
}

async fn signed_in(From(state): From<ServedState>, request: Request) -> Response {
    let links = &state.dashboard.links;
    let (parts, body) = request.into_parts();
    let form = match api::body(Request::new(body), LONGEST_FORM).await {
        Ok(form) => Parameters::read(&form),
        Err(problem) => return visit::wrong(links, &problem),
    };
    let back = links.own(form.get("back"));
    let access = &state.admin.access;
    let signed_in = access.sign_in(&parts, form.get("token"), form.get("user"));
    let Some((caller, name, value)) = signed_in else {
        return visit::html(
            StatusCode::UNAUTHORIZED,
            view::sign_in::page(links, &back, true),
        );
    };
    let mut answer = visit::see_other(&back);
    let lasts = LASTS.as_secs();
    let cookie = session_cookie(
        links,
        &parts.headers,
        &format!("{name}={value}; Max-Age={lasts}"),
    );
    visit::set_cookie(&mut answer, &cookie);
    answer.extensions_mut().insert(caller);
    answer
}

async fn sign_out(visit: Visit, headers: HeaderMap) -> Response {
    let links = visit.links();
    visit.state.admin.access.sign_out(&headers);
    let mut answer = visit::see_other(&links.to("/ui/sign-in", &[]));
    let name = super::access::session_cookie(&headers);
    let cookie = session_cookie(links, &headers, &format!("{name}=; Max-Age=0"));
    visit::set_cookie(&mut answer, &cookie);
    answer
}

/// Returns a cookie that scripts cannot read and that requests from other sites do not carry. If
/// the browser uses TLS to a proxy, the cookie is only sent over TLS.
fn session_cookie(links: &Links, headers: &HeaderMap, pair: &str) -> String {
    let origin = headers
        .get(header::ORIGIN)
        .and_then(|origin| origin.to_str().ok());
    let is_tls = origin.is_some_and(|origin| origin.starts_with("https://"));
    let secure = if is_tls { "; Secure" } else { "" };
    format!(
        "{pair}; Path={}; HttpOnly; SameSite=Strict{secure}",
        links.cookie_path()
    )
}

/// Returns the points of charts as JSON.
async fn points(visit: Visit) -> PageResult {
    let queue = Some(visit.parameters.get("queue")).filter(|queue| !queue.is_empty());
    let Some(points) = visit.sampler().points(queue, span(&visit)) else {
        return Err(visit.wrong(&CallProblem::not_found("This queue has no history.")));
    };
    let now = clock::wall_clock_now().0 / 1_000;
    let at = points
        .into_iter()
        .map(|(ago, point)| (now.saturating_sub(ago), point));
    Ok(Json(json!(sampler::columns(&at.collect::<Vec<_>>()))).into_response())
}

/// Follows a view: all followers share its frames. If no stream is possible, the script of the page
/// shows the reason.
async fn live(visit: Visit, request: Request) -> PageResult {
    let view = view_of(&visit)
        .await
        .map_err(|problem| (problem.status, problem.detail).into_response())?;
    let allowance = visit
        .state
        .page_streams
        .take()
        .ok_or_else(|| busy("Too many streams are open. Close a tab."))?;
    let connection = visit
        .connection
        .as_ref()
        .ok_or_else(|| busy("This connection cannot stream."))?;
    let frames = visit
        .sampler()
        .follow(&visit.seen(view))
        .ok_or_else(|| busy("Too many different views are open. Close a tab."))?;
    let stop = visit.state.stop.clone();
    let follower = Follower {
        access: visit.state.admin.access.clone(),
        request: request.into_parts().0,
        _allowance: allowance,
    };
    let body = StreamBody::new(connection.detach(), |writer| {
        follow(writer, frames, stop, follower)
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // A detached connection no longer counts as a connection of the server.
        (header::CONNECTION, "close"),
    ];
    Ok((headers, Body::new(body)).into_response())
}

fn busy(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, why.to_owned()).into_response()
}

/// The client that follows a view.
struct Follower {
    access: Arc<Access>,
    request: Parts,
    _allowance: OwnedSemaphorePermit,
}

impl Follower {
    /// Returns whether the token or session of the request is still valid.
    fn is_admitted(&self) -> bool {
        self.access.judge_of_any_role(&self.request).is_ok()
    }
}

/// Sends the changes of each frame until the client disconnects, is too slow or loses its
/// permission, or the program stops.
async fn follow(
    writer: StreamWriter,
    mut frames: watch::Receiver<Frame>,
    stop: CancellationToken,
    follower: Follower,
) {
    if !writer.send("retry: 2000\n\n".to_owned()) {
        return;
    }
    frames.mark_changed();
    let mut sent = Frame::default();
    loop {
        let alive = clock::now() + ALIVE;
        let text = tokio::select! {
            () = stop.cancelled() => {
                writer.send("event: stopped\ndata:\n\n".to_owned());
                return;
            }
            changed = frames.changed() => {
                if changed.is_err() {
                    return;
                }
                // Skips the frames that arrive meanwhile.
                if !writer.until_taken(SLOW).await {
                    return;
                }
                let frame = frames.borrow_and_update().clone();
                let text = frame.events_after(&sent);
                sent = frame;
                text
            }
            () = clock::sleep_until(Some(alive)) => ": alive\n\n".to_owned(),
        };
        if !follower.is_admitted() || !text.is_empty() && !writer.send(text) {
            return;
        }
    }
}
