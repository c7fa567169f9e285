//! The admin API, `/api/v1`: the table of endpoints that only read, and the operations. The router
//! and the OpenAPI document are derived from both.

mod messages;
mod openapi;
mod query;
mod reads;
mod stream;

use super::ServedState;
use super::access::Caller;
use super::audit::{ActionRequest, AuditedByJob};
use super::problem::respond;
use super::state::StateChange;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, RawQuery, Request, State as From};
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodFilter, MethodRouter};
use dispatcher_core::clock;
use dispatcher_core::tasks;
use dispatcher_http::ServedConnection;
use dispatcher_operate::objects;
use dispatcher_operate::operations::Operations;
use dispatcher_operate::problem::{CallProblem, FieldProblem};
use dispatcher_operate::request::UnreadFields;
use dispatcher_operate::schema::{Components, Schema};
use dispatcher_operate::verbs;
use dispatcher_operate::verbs::{OperationDeclaration, VERBS, Verb};
use http_body_util::BodyExt;
pub(super) use openapi::document;
use query::{Parameter, Query};
pub(super) use reads::view as outcome_view;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The maximum size of a request, in bytes: few need more than some hundred.
const LONGEST_REQUEST: usize = 64 * 1_024;
/// The maximum size of a request with edited bodies, in bytes: SQS accepts a body of 1 MiB, which
/// may be longer in JSON.
pub(super) const LONGEST_WITH_BODIES: usize = 8 << 20;

/// The number of bytes beyond the maximum that are read and dropped.
const DROPPED: usize = 8 << 20;

/// The time limit for the body of a request: until then the request occupies one of the few places.
const SENDING: Duration = Duration::from_secs(10);

type RunningAction = Pin<Box<dyn Future<Output = Result<Response, CallProblem>> + Send>>;

/// An endpoint that only reads. Endpoints that act are in `VERBS`.
pub(super) struct Endpoint {
    /// The path, with its parameters in braces.
    path: &'static str,
    /// The description, in one sentence.
    summary: &'static str,
    query: &'static [Parameter],
    response: Answer,
    run: fn(Call) -> RunningAction,
}

/// The header that identifies a repeated request.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// The maximum length of that header, in characters.
const LONGEST_KEY: usize = 100;

/// The kind of response of an endpoint.
enum Answer {
    /// JSON of this schema.
    Json(fn(&mut Components) -> Value),
    /// A stream of server-sent events.
    Events,
    /// The OpenAPI document.
    Document,
}

/// A request as endpoints receive it.
struct Call {
    state: ServedState,
    operations: Arc<dyn Operations>,
    path: BTreeMap<String, String>,
    query: Query,
    connection: Option<ServedConnection>,
}

const fn get(
    path: &'static str,
    summary: &'static str,
    query: &'static [Parameter],
    response: Answer,
    run: fn(Call) -> RunningAction,
) -> Endpoint {
    Endpoint {
        path,
        summary,
        query,
        response,
        run,
    }
}

/// Makes the `run` function of an endpoint from an `async` function.
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
        Answer::Json(dispatcher_operate::messages::MessageList::schema),
        run!(messages::messages),
    ),
    get(
        "/api/v1/queues/{queue}/messages/{id}",
        "A message that waits in a queue, where the queue can be listed.",
        &[],
        Answer::Json(dispatcher_operate::messages::MessageView::schema),
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
        Answer::Json(dispatcher_operate::messages::JobView::schema),
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
        "One attempt; with the content of its messages if `admin-bodies` permits it.",
        &[],
        Answer::Json(dispatcher_operate::operations::RunningView::schema),
        run!(reads::attempt),
    ),
    get(
        "/api/v1/outcomes",
        "The last 1,000 deliveries that did not succeed, the newest first.",
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
        "The scheduled messages of one queue, the next due first.",
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
        "/api/v1/fleet",
        "All processes of the fleet: what each does, what differs between them, and sums.",
        &[],
        Answer::Json(dispatcher_operate::fleet::FleetView::schema),
        run!(reads::fleet),
    ),
    get(
        "/api/v1/scale",
        "How many replicas of this program its routes need, for an autoscaler.",
        query::SCALE,
        Answer::Json(objects::Scale::schema),
        run!(reads::scale),
    ),
    get(
        "/api/v1/findings",
        "The findings of `dispatcher doctor`; they are renewed at most once a minute.",
        &[],
        Answer::Json(objects::Findings::schema),
        run!(reads::findings),
    ),
    get(
        "/api/v1/events",
        "Streams outcomes of deliveries and changes of state.",
        query::EVENTS,
        Answer::Events,
        run!(stream::events),
    ),
];

/// Returns the routes of all endpoints. They answer 503 until the program runs.
pub(super) fn router() -> Router<ServedState> {
    let mut by_path: BTreeMap<&str, MethodRouter<ServedState>> = BTreeMap::new();
    for endpoint in ENDPOINTS {
        let handle = async move |From(state): From<ServedState>,
                                 path: RawPathParams,
                                 query: RawQuery,
                                 request: Request| {
            let answer = read(endpoint, state, &path, query, request).await;
            answer.unwrap_or_else(respond)
        };
        let routed = by_path.remove(endpoint.path).unwrap_or_default();
        by_path.insert(endpoint.path, routed.on(MethodFilter::GET, handle));
    }
    for verb in VERBS {
        let handle = async move |From(state): From<ServedState>,
                                 path: RawPathParams,
                                 query: RawQuery,
                                 request: Request| {
            let answer = act(verb, state, &path, query, request).await;
            answer.unwrap_or_else(respond)
        };
        let routed = by_path.remove(verb.declared.path).unwrap_or_default();
        by_path.insert(verb.declared.path, routed.on(MethodFilter::POST, handle));
    }
    let mut router = Router::new();
    for (path, methods) in by_path {
        router = router.route(path, methods);
    }
    router
}

/// Answers an endpoint that only reads.
async fn read(
    endpoint: &'static Endpoint,
    state: ServedState,
    path: &RawPathParams,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, CallProblem> {
    let operations = running(&state)?;
    let query = Query::read(query.as_deref().unwrap_or_default(), endpoint.query)?;
    let path = path
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let call = Call {
        state,
        operations,
        path: path.collect(),
        query,
        connection: request.extensions().get().cloned(),
    };
    (endpoint.run)(call).await
}

/// Runs an operation and answers with its result.
async fn act(
    verb: &'static Verb,
    state: ServedState,
    path: &RawPathParams,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, CallProblem> {
    let OperationDeclaration {
        is_for_producers,
        carries_bodies,
        ..
    } = verb.declared;
    Query::read(query.as_deref().unwrap_or_default(), &[])?;
    let key = if is_for_producers {
        idempotency_key(request.headers())?
    } else {
        None
    };
    let caller: Caller = request.extensions().get().cloned().unwrap_or_default();
    let asked: ActionRequest = request.extensions().get().cloned().unwrap_or_default();
    // The router has matched the parameter.
    let target = path.iter().next().map_or("", |(_, value)| value);
    let longest = if carries_bodies {
        LONGEST_WITH_BODIES
    } else {
        LONGEST_REQUEST
    };
    let body = body(request, longest).await?;
    let parsed = if carries_bodies {
        // Parsing megabytes here would delay the lease keeper, which shares this thread.
        let parsing = tasks::blocking(move || UnreadFields::of_body(&body));
        parsing.finished().await
    } else {
        UnreadFields::of_body(&body)
    };
    let given = parsed.map_err(CallProblem::fields)?;
    let by = asked.requester(&caller);
    let call = verbs::VerbCall {
        site: &*running(&state)?,
        target,
        by: &by,
        key: key.as_deref(),
    };
    let (answer, extensions) = done(verb, &state, given, call).await?;
    let mut response = Json(answer).into_response();
    *response.extensions_mut() = extensions;
    Ok(response)
}

/// Runs an operation. Returns its answer and the extensions for the log.
pub(super) async fn done(
    verb: &'static Verb,
    state: &ServedState,
    given: UnreadFields,
    call: verbs::VerbCall<'_>,
) -> Result<(Value, Extensions), CallProblem> {
    let (answer, done) = (verb.run)(given, call).await?;
    if let Some((what, target)) = &done.change {
        state.changes.publish(&StateChange {
            what,
            target,
            by: &call.by.user,
        });
    }
    let mut extensions = Extensions::new();
    if verb.declared.starts_job {
        extensions.insert(AuditedByJob);
    } else {
        extensions.insert(done);
    }
    Ok((answer, extensions))
}

/// Returns the idempotency key of a request, if it has one.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, CallProblem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().map(str::trim).unwrap_or_default();
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_one = values.next().is_none();
    if text.is_empty() || text.len() > LONGEST_KEY || !is_visible || !is_one {
        let wanted = format!("one value of 1 to {LONGEST_KEY} visible characters of ASCII");
        let problem = FieldProblem::new(IDEMPOTENCY_KEY, "it cannot be used", &wanted);
        return Err(CallProblem {
            status: StatusCode::BAD_REQUEST,
            ..CallProblem::fields(vec![problem])
        });
    }
    Ok(Some(text.to_owned()))
}

/// Returns the operations of the running program.
///
/// # Errors
/// Returns a problem if the program is still starting.
pub(super) fn running(state: &ServedState) -> Result<Arc<dyn Operations>, CallProblem> {
    state.admin.operations.get().cloned().ok_or_else(|| {
        let why = "The program is starting. Try again later.";
        CallProblem::new(StatusCode::SERVICE_UNAVAILABLE, why)
    })
}

/// Reads the body of a request, up to `longest` bytes. It must arrive within `SENDING`.
pub(super) async fn body(request: Request, longest: usize) -> Result<Bytes, CallProblem> {
    let late = clock::sleep_until(Some(clock::now() + SENDING));
    let read = tokio::select! {
        biased;
        read = read_body(request.into_body(), longest) => read,
        () = late => {
            let why = format!("The body did not arrive within {SENDING:?}. Nothing was done.");
            return Err(CallProblem::new(StatusCode::REQUEST_TIMEOUT, why));
        }
    };
    match read {
        Ok(Some(body)) => Ok(body),
        Ok(None) => Err(CallProblem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The body has more than {longest} bytes. Nothing was done."),
        )),
        Err(_) => Err(CallProblem::new(
            StatusCode::BAD_REQUEST,
            "The body ended too early. Nothing was done.",
        )),
    }
}

/// Returns the whole body, or `None` if it is longer than `longest`. Reads on past the limit for a
/// while and drops the bytes: a client that is still sending would not see the answer.
async fn read_body(mut body: Body, longest: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut kept = Vec::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        length += data.len();
        if length <= longest {
            kept.extend_from_slice(&data);
        } else {
            kept = Vec::new();
        }
        if length > longest.saturating_add(DROPPED) {
            break;
        }
    }
    Ok((length <= longest).then(|| kept.into()))
}

impl Call {
    /// Returns a parameter of the path. The router has matched it.
    fn named(&self, parameter: &str) -> &str {
        self.path.get(parameter).map_or("", String::as_str)
    }
}

fn as_json(answer: &impl Serialize) -> Result<Response, CallProblem> {
    match serde_json::to_value(answer) {
        Ok(answer) => Ok(Json(answer).into_response()),
        Err(error) => Err(CallProblem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("The answer cannot be written: {error}"),
        )),
    }
}
