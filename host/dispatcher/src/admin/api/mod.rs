//! The admin API, `/api/v1`: one table of endpoints, from which the router and the OpenAPI document
//! follow. What an endpoint answers with comes from the port `Operations`.

mod actions;
mod messages;
mod objects;
mod openapi;
mod query;
mod reads;
mod stream;

use super::ServedState;
use super::access::{Caller, Role};
use super::audit::{Asked, Requester};
use super::operations::Operations;
use super::problem::CallProblem;
use super::schema::{Components, Schema};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{RawPathParams, RawQuery, Request, State as From};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodFilter, MethodRouter};
use dispatcher_core::clock;
use dispatcher_http::ServedConnection;
use http_body_util::{BodyExt, LengthLimitError, Limited};
pub(super) use openapi::document;
use query::{Parameter, Query};
pub(super) use reads::view as outcome_view;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of a request: few need more than some hundred.
const LONGEST_REQUEST: usize = 64 * 1_024;
/// The same of a request with edited bodies: SQS takes one of 1 MiB, which JSON may write longer.
pub(super) const LONGEST_WITH_BODIES: usize = 8 << 20;

/// How long the body of a request may take: meanwhile it is one of the few that are answered at once.
const SENDING: Duration = Duration::from_secs(10);

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
    /// The most bytes of a request.
    longest: usize,
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
    asked: Asked,
    connection: Option<ServedConnection>,
}

/// Marks the answer of an action that a job takes, which logs it when it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuditedByJob;

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
        longest: LONGEST_REQUEST,
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
        longest: LONGEST_REQUEST,
        response: Answer::Json(response),
        run,
    }
}

/// An action whose request may carry bodies of messages.
const fn post_with_bodies(
    path: &'static str,
    summary: &'static str,
    request: Option<fn(&mut Components) -> Value>,
    response: fn(&mut Components) -> Value,
    run: fn(Call) -> Running,
) -> Endpoint {
    Endpoint {
        longest: LONGEST_WITH_BODIES,
        ..post(path, summary, request, response, run)
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
        "/api/v1/queues/{queue}/messages",
        "The messages that wait in a queue, counted by reason, where the queue can be listed.",
        query::MESSAGES,
        Answer::Json(super::messages::MessageList::schema),
        run!(messages::messages),
    ),
    get(
        "/api/v1/queues/{queue}/messages/{id}",
        "A message that waits in a queue, where the queue can be listed.",
        &[],
        Answer::Json(super::messages::MessageView::schema),
        run!(messages::message),
    ),
    get(
        "/api/v1/jobs",
        "Redrives, moves and purges, the newest first.",
        query::PAGED,
        Answer::Json(objects::Jobs::schema),
        run!(messages::jobs),
    ),
    get(
        "/api/v1/jobs/{id}",
        "One redrive, move or purge, and how far it is.",
        &[],
        Answer::Json(super::messages::JobView::schema),
        run!(messages::job),
    ),
    get(
        "/api/v1/running",
        "The attempts under way, those of each route with the oldest first.",
        query::RUNNING,
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
        "/api/v1/scale",
        "How many replicas of this program its routes want, for an autoscaler.",
        query::SCALE,
        Answer::Json(objects::Scale::schema),
        run!(reads::scale),
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
        query::EVENTS,
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
        "/api/v1/queues/{queue}/scan",
        "Looks at the messages of a queue: receives them where it cannot be listed, and gives them back.",
        Some(objects::ScanRequest::schema),
        super::messages::MessageList::schema,
        run!(messages::scan),
    ),
    post(
        "/api/v1/queues/{queue}/delete",
        "Deletes a message that waits, where the queue can be listed.",
        Some(objects::DeleteMessage::schema),
        super::messages::DeleteResult::schema,
        run!(messages::delete),
    ),
    post_with_bodies(
        "/api/v1/queues/{queue}/resend",
        "Sends one message again, with another body if one is given, and deletes the original.",
        Some(objects::ResendMessage::schema),
        super::messages::JobView::schema,
        run!(messages::resend),
    ),
    post_with_bodies(
        "/api/v1/queues/{queue}/redrive",
        "Moves dead letters back to where they came from; without `apply` it only counts them.",
        Some(objects::RedriveMessages::schema),
        super::messages::JobView::schema,
        run!(messages::redrive),
    ),
    post(
        "/api/v1/queues/{queue}/move",
        "Moves messages to another queue as they are; without `apply` it only counts them.",
        Some(objects::MoveMessages::schema),
        super::messages::JobView::schema,
        run!(messages::move_messages),
    ),
    post(
        "/api/v1/queues/{queue}/purge",
        "Removes the messages of a queue; without `apply` it only counts them.",
        Some(objects::PurgeQueue::schema),
        super::messages::JobView::schema,
        run!(messages::purge),
    ),
    post(
        "/api/v1/jobs/{id}/cancel",
        "Stops a redrive, a move or a purge after its present batch.",
        Some(objects::NoFields::schema),
        super::messages::JobView::schema,
        run!(messages::cancel_job),
    ),
    post(
        "/api/v1/jobs/{id}/restart",
        "Starts a job again that has ended early: it goes on with what is left.",
        Some(objects::NoFields::schema),
        super::messages::JobView::schema,
        run!(messages::restart_job),
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
        "/api/v1/schedules/run",
        "Makes a scheduled message due at once; one that comes again keeps its times.",
        Some(objects::OneSchedule::schema),
        super::operations::ScheduleResult::schema,
        run!(actions::run_schedule),
    ),
    post(
        "/api/v1/schedules/cancel",
        "Cancels a scheduled message.",
        Some(objects::OneSchedule::schema),
        super::operations::ScheduleResult::schema,
        run!(actions::cancel_schedule),
    ),
    post(
        "/api/v1/plugins/reload",
        "Looks at the files of all plugins again, and runs what is new.",
        Some(objects::NoFields::schema),
        objects::Reloaded::schema,
        run!(actions::reload),
    ),
    post(
        "/api/v1/routes/{route}/rollback",
        "Rolls the canary of the route's plugin back: the current version takes all messages again.",
        Some(objects::NoFields::schema),
        objects::RolledBack::schema,
        run!(actions::roll_back),
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
    let operations = running(&state)?;
    let query = Query::read(query.as_deref().unwrap_or_default(), endpoint.query)?;
    let caller = request.extensions().get::<Caller>().cloned();
    let connection = request.extensions().get::<ServedConnection>().cloned();
    let asked = request.extensions().get::<Asked>().cloned();
    // What only reads has no request, and waits for none.
    let body = match endpoint.verb {
        Verb::Get => Bytes::new(),
        Verb::Post => body(request, endpoint.longest).await?,
    };
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
        asked: asked.unwrap_or_default(),
        connection,
    };
    (endpoint.run)(call).await
}

/// Takes the action of the endpoint at `path`, whose parameters are `named`, for a page.
pub(super) async fn act(
    state: ServedState,
    (caller, asked): (Caller, Asked),
    path: &str,
    named: &[(&str, &str)],
    request: &Value,
) -> Result<Response, CallProblem> {
    let mut endpoints = ENDPOINTS.iter();
    let endpoint = endpoints.find(|one| one.verb == Verb::Post && one.path == path);
    let endpoint = endpoint.ok_or_else(|| CallProblem::not_found("There is no such action."))?;
    let call = Call {
        operations: running(&state)?,
        state,
        path: named
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        query: Query::default(),
        body: request.to_string().into(),
        caller,
        connection: None,
        asked,
    };
    (endpoint.run)(call).await
}

/// Whether there is such an action.
#[cfg(test)]
pub(super) fn has_action(path: &str) -> bool {
    let mut endpoints = ENDPOINTS.iter();
    endpoints.any(|one| one.verb == Verb::Post && one.path == path)
}

/// What runs.
///
/// # Errors
/// Nothing does as yet.
pub(super) fn running(state: &ServedState) -> Result<Arc<dyn Operations>, CallProblem> {
    state.admin.operations.get().cloned().ok_or_else(|| {
        let why = "The program is starting. Try again later.";
        CallProblem::new(StatusCode::SERVICE_UNAVAILABLE, why)
    })
}

/// The body of a request, of so many bytes at most; it must be there within `SENDING`.
pub(super) async fn body(request: Request, longest: usize) -> Result<Bytes, CallProblem> {
    let limited = Limited::new(request.into_body(), longest);
    let late = clock::sleep_until(Some(clock::now() + SENDING));
    let read = tokio::select! {
        biased;
        read = limited.collect() => read,
        () = late => {
            let why = format!("The body did not come within {SENDING:?}. Nothing was done.");
            return Err(CallProblem::new(StatusCode::REQUEST_TIMEOUT, why));
        }
    };
    match read {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(CallProblem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The body has more than {longest} bytes. Nothing was done."),
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

    /// Who makes the request.
    fn requester(&self) -> Requester {
        Requester::new(&self.asked, &self.caller)
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
