//! Endpoints about the messages in queues and the jobs that move or remove them.

use super::{Call, as_json};
use axum::http::StatusCode;
use axum::response::Response;
use dispatcher_operate::messages::LookTerms;
use dispatcher_operate::objects::Jobs;
use dispatcher_operate::problem::CallProblem;
use dispatcher_operate::request::{AtLeastOne, UnreadFields, read_given};
use dispatcher_operate::verbs::scan::ScanRequest;
use serde_json::json;

type ApiResult = Result<Response, CallProblem>;

pub(super) async fn messages(call: Call) -> ApiResult {
    let conditions = ["reason", "reason_is", "where", "older", "scan"].into_iter();
    let typed = conditions.filter_map(|name| {
        let text = call.query.text(name)?;
        let value = match name {
            "where" => json!([text]),
            "scan" => json!(call.query.number(name)),
            _ => json!(text),
        };
        Some((name.to_owned(), value))
    });
    let request = read_given(UnreadFields::new(typed.collect()), |_: &ScanRequest| {
        Vec::new()
    })
    .map_err(|problems| of_query(CallProblem::fields(problems)))?;
    let page = call.query.page();
    let request = ScanRequest {
        limit: Some(AtLeastOne(page.limit)),
        ..request
    };
    let terms = LookTerms {
        after: page.after,
        ..LookTerms::default()
    };
    let looked = call
        .operations
        .messages()
        .look(call.named("queue"), &request, &terms)
        .await;
    as_json(&looked.map_err(of_query)?)
}

/// Changes the status of an invalid query from 422 to 400.
fn of_query(problem: CallProblem) -> CallProblem {
    match problem.status {
        StatusCode::UNPROCESSABLE_ENTITY => CallProblem {
            status: StatusCode::BAD_REQUEST,
            ..problem
        },
        _ => problem,
    }
}

pub(super) async fn message(call: Call) -> ApiResult {
    let messages = call.operations.messages();
    let found = messages.message(call.named("queue"), call.named("id"));
    as_json(&found.await?)
}

pub(super) async fn jobs(call: Call) -> ApiResult {
    let (items, next) = call.operations.messages().jobs(&call.query.page())?;
    as_json(&Jobs { items, next })
}

pub(super) async fn job(call: Call) -> ApiResult {
    let id = call.named("id");
    let job = call.operations.messages().job(id);
    as_json(&job.ok_or_else(|| no_job(id))?)
}

fn no_job(id: &str) -> CallProblem {
    CallProblem::not_found(format!(
        "There is no job `{id}`. GET /api/v1/jobs lists the last ones."
    ))
}
