//! The admin API, `/api/v1`: one table of endpoints, from which the router and the OpenAPI document
//! follow. What an endpoint answers with comes from the port `Operations`.

mod actions;
mod objects;
mod openapi;
mod query;
mod reads;
mod stream;

use super::ServedState;
use super::access::{Caller, Role};
use super::operations::Operations;
use super::problem::CallProblem;
use super::schema::{Components, Schema};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{RawPathParams, RawQuery, Request, State as From};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodFilter, MethodRouter};
use dispatcher_http::ServedConnection;
use http_body_util::{BodyExt, LengthLimitError, Limited};
pub(super) use openapi::document;
use query::{Parameter, Query};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

/// The most bytes of a request: none needs more than a few hundred.
const LONGEST_REQUEST: usize = 64 * 1_024;

/// Whether an endpoint reads or acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// `GET`: it changes nothing.
    Get,
    /// `POST`: an action, which is logged.
    Post,
}

type Running = Pin<Box<dyn Future<Output = Result<Response, CallProblem>> + Send>>;

/// One endpoint.
pub(super) struct Endpoint {
    verb: Verb,
    /// With its parameters in braces.
    path: &'static str,
    role: Role,
    /// In one sentence.
    summary: &'static str,
    query: &'static [Parameter],
    request: Option<fn(&mut Components) -> Value>,
    response: Answer,
    run: fn(Call) -> Running,
}

/// What an endpoint answers with.
enum Answer {
    /// JSON of this schema.
    Json(fn(&mut Components) -> Value),
    /// A stream of server-sent events.
    Events,
    /// The OpenAPI document.
    Document,
}

/// A request as endpoints see it.
struct Call {
    state: ServedState,
    operations: Arc<dyn Operations>,
    path: BTreeMap<String, String>,
    query: Query,
    body: Bytes,
    caller: Caller,
    connection: Option<ServedConnection>,
}

/// How many things an action was about, and which; for the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Audited {
    pub target: String,
    pub count: u64,
}

const fn get(
    path: &'static str,
    summary: &'static str,
    query: &'static [Parameter],
    response: Answer,
    run: fn(Call) -> Running,
) -> Endpoint {
    Endpoint {
        verb: Verb::Get,
        path,
        role: Role::Read,
        summary,
        query,
        request: None,
        response,
        run,
    }
}

const fn post(
    path: &'static str,
    summary: &'static str,
    request: Option<fn(&mut Components) -> Value>,
    response: fn(&mut Components) -> Value,
    run: fn(Call) -> Running,
) -> Endpoint {
    Endpoint {
        verb: Verb::Post,
        path,
        role: Role::Operate,
        summary,
        query: &[],
        request,
        response: Answer::Json(response),
        run,
    }
}

/// Makes a function of an endpoint out of an `async` one.
macro_rules! run {
    ($function:path) => {
        |call| Box::pin($function(call))
    };
}

/// All endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    get(
        "/api/v1/openapi.json",
        "This description.",
        &[],
        Answer::Document,
        run!(reads::openapi),
    ),
    get(
        "/api/v1/overview",
        "The process, its counters, and what is paused.",
        &[],
        Answer::Json(objects::Overview::schema),
        run!(reads::overview),
    ),
    get(
        "/api/v1/routes",
        "The routes with their limits, configured and live.",
        query::PAGED,
        Answer::Json(objects::Routes::schema),
        run!(reads::routes),
    ),
    get(
        "/api/v1/queues",
        "The queues that this process receives from.",
        query::QUEUES,
        Answer::Json(objects::Queues::schema),
        run!(reads::queues),
    ),
    get(
        "/api/v1/queues/{queue}",
        "One queue, with its depth.",
        &[],
        Answer::Json(objects::OneQueue::schema),
        run!(reads::queue),
    ),
    get(
        "/api/v1/running",
        "The attempts under way, those of each route with the oldest first.",
        query::PAGED,
        Answer::Json(objects::RunningList::schema),
        run!(reads::running),
    ),
    get(
        "/api/v1/running/{id}",
        "One attempt; with the content of its messages where `admin-bodies` permits it.",
        &[],
        Answer::Json(super::operations::RunningView::schema),
        run!(reads::attempt),
    ),
    get(
        "/api/v1/outcomes",
        "The last 1,000 deliveries that ended otherwise than done, the newest first.",
        query::OUTCOMES,
        Answer::Json(objects::Outcomes::schema),
        run!(reads::outcomes),
    ),
    get(
        "/api/v1/plugins",
        "The versions of the routes' plugins.",
        query::PAGED,
        Answer::Json(objects::Plugins::schema),
        run!(reads::plugins),
    ),
    get(
        "/api/v1/schedules",
        "The first messages that wait for their time and go to one queue.",
        query::SCHEDULES,
        Answer::Json(objects::Schedules::schema),
        run!(reads::schedules),
    ),
    get(
        "/api/v1/processes",
        "The processes that receive from the servers of this process's queues.",
        query::LIMITED,
        Answer::Json(objects::Processes::schema),
        run!(reads::processes),
    ),
    get(
        "/api/v1/findings",
        "What `dispatcher doctor` finds; looked for at most once a minute.",
        &[],
        Answer::Json(objects::Findings::schema),
        run!(reads::findings),
    ),
    get(
        "/api/v1/events",
        "Follows deliveries that end and states that change.",
        &[],
        Answer::Events,
        run!(stream::events),
    ),
    post(
        "/api/v1/queues/{queue}/pause",
        "Pauses a queue: nothing more is received, and what waits is given back.",
        Some(objects::NoFields::schema),
        super::operations::ControlResult::schema,
        run!(actions::pause_queue),
    ),
    post(
        "/api/v1/queues/{queue}/resume",
        "Resumes a queue.",
        Some(objects::NoFields::schema),
        super::operations::ControlResult::schema,
        run!(actions::resume_queue),
    ),
    post(
        "/api/v1/queues/{queue}/limits",
        "Changes limits of a queue; `null` is the configured one again.",
        Some(objects::QueueLimits::schema),
        super::operations::ControlResult::schema,
        run!(actions::limit_queue),
    ),
    post(
        "/api/v1/queues/{queue}/cancel",
        "Cancels a message: it is deleted, and its attempt is stopped.",
        Some(objects::CancelMessage::schema),
        super::operations::CancelResult::schema,
        run!(actions::cancel_message),
    ),
    post(
        "/api/v1/routes/{route}/pause",
        "Pauses all queues of a route in this process.",
        Some(objects::NoFields::schema),
        super::operations::ControlResult::schema,
        run!(actions::pause_route),
    ),
    post(
        "/api/v1/routes/{route}/resume",
        "Resumes a route; queues that are paused themselves stay so.",
        Some(objects::NoFields::schema),
        super::operations::ControlResult::schema,
        run!(actions::resume_route),
    ),
    post(
        "/api/v1/routes/{route}/limits",
        "Changes limits of a route in this process; `null` is the configured one again.",
        Some(objects::RouteLimits::schema),
        super::operations::ControlResult::schema,
        run!(actions::limit_route),
    ),
    post(
        "/api/v1/running/{id}/cancel",
        "Stops an attempt; its messages are deleted.",
        Some(objects::NoFields::schema),
        super::operations::CancelResult::schema,
        run!(actions::cancel_attempt),
    ),
    post(
        "/api/v1/plugins/reload",
        "Looks at the files of all plugins again, and runs what is new.",
        Some(objects::NoFields::schema),
        objects::Reloaded::schema,
        run!(actions::reload),
    ),
    post(
        "/api/v1/process/drain",
        "Stops this process, as SIGTERM does.",
        Some(objects::NoFields::schema),
        objects::Draining::schema,
        run!(actions::drain),
    ),
];

/// The routes of all endpoints. Without a running program behind them there are none.
pub(super) fn router() -> Router<ServedState> {
    let mut by_path: BTreeMap<&str, MethodRouter<ServedState>> = BTreeMap::new();
    for endpoint in ENDPOINTS {
        let filter = match endpoint.verb {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
        };
        let handle = async move |From(state): From<ServedState>,
                                 path: RawPathParams,
                                 query: RawQuery,
                                 request: Request| {
            answer(endpoint, state, &path, query, request)
                .await
                .unwrap_or_else(CallProblem::into_response)
        };
        let routed = by_path.remove(endpoint.path).unwrap_or_default();
        by_path.insert(endpoint.path, routed.on(filter, handle));
    }
    let mut router = Router::new();
    for (path, methods) in by_path {
        router = router.route(path, methods);
    }
    router
}

async fn answer(
    endpoint: &'static Endpoint,
    state: ServedState,
    path: &RawPathParams,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, CallProblem> {
    let operations = state.admin.operations.get().cloned().ok_or_else(|| {
        let why = "The program is starting. Try again later.";
        CallProblem::new(StatusCode::SERVICE_UNAVAILABLE, why)
    })?;
    let query = Query::read(query.as_deref().unwrap_or_default(), endpoint.query)?;
    let caller = request.extensions().get::<Caller>().cloned();
    let connection = request.extensions().get::<ServedConnection>().cloned();
    let body = body(request).await?;
    let call = Call {
        state,
        operations,
        path: path
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        query,
        body,
        caller: caller.unwrap_or_default(),
        connection,
    };
    (endpoint.run)(call).await
}

/// The body of a request, which is small.
async fn body(request: Request) -> Result<Bytes, CallProblem> {
    let limited = Limited::new(request.into_body(), LONGEST_REQUEST);
    match limited.collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(CallProblem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The body has more than {LONGEST_REQUEST} bytes. Nothing was done."),
        )),
        Err(_) => Err(CallProblem::new(
            StatusCode::BAD_REQUEST,
            "The body ended before its time. Nothing was done.",
        )),
    }
}

impl Call {
    /// A parameter of the path; the router has matched it.
    fn named(&self, parameter: &str) -> &str {
        self.path.get(parameter).map_or("", String::as_str)
    }
}

fn json(answer: &impl Serialize) -> Result<Response, CallProblem> {
    match serde_json::to_value(answer) {
        Ok(answer) => Ok(Json(answer).into_response()),
        Err(error) => Err(CallProblem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("The answer cannot be written: {error}"),
        )),
    }
}

/// The same of an action, with what the log says of it.
fn done(
    answer: &impl Serialize,
    target: impl Into<String>,
    count: u64,
) -> Result<Response, CallProblem> {
    let mut response = json(answer)?;
    response.extensions_mut().insert(Audited {
        target: target.into(),
        count,
    });
    Ok(response)
}
