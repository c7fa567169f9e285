//! Endpoints about the messages in queues: what lies there, and the jobs that move or remove it.

use super::actions::missing;
use super::objects::{
    DeleteMessage, Jobs, MoveMessages, NoFields, PurgeQueue, RedriveMessages, ResendMessage,
    ScanRequest,
};
use super::query::MOST;
use super::{AuditedByJob, Call, done, json};
use crate::admin::messages::{
    BodyEdit, JobKind, JobOrder, JobView, LookOrder, MessageList, SelectionText,
};
use crate::admin::operations::Page;
use crate::admin::problem::{CallProblem, FieldProblem};
use crate::admin::schema::{AtLeastOne, Texts};
use axum::http::StatusCode;
use axum::response::Response;

type Answered = Result<Response, CallProblem>;

/// How many messages are shown where the request does not say.
const SHOWN: usize = 100;

pub(super) async fn messages(call: Call) -> Answered {
    let text = |name: &str| call.query.text(name).map(str::to_owned);
    let order = LookOrder {
        select: SelectionText {
            reason: text("reason"),
            conditions: text("where").into_iter().collect(),
            older: text("older"),
            messages: None,
        },
        page: call.query.page(),
        scan: call.query.number("scan"),
        receives: false,
        within: None,
    };
    let looked = call.operations.messages();
    let looked = looked.look(call.named("queue"), &order).await;
    json(&looked.map_err(of_query)?)
}

/// What is wrong with a query is answered as such.
fn of_query(problem: CallProblem) -> CallProblem {
    match problem.status {
        StatusCode::UNPROCESSABLE_ENTITY => CallProblem {
            status: StatusCode::BAD_REQUEST,
            ..problem
        },
        _ => problem,
    }
}

pub(super) async fn scan(call: Call) -> Answered {
    let ScanRequest {
        reason,
        r#where,
        older,
        limit,
        scan,
    } = call.checked_request(scan_problems)?;
    let AtLeastOne(limit) = limit.unwrap_or(AtLeastOne(SHOWN));
    let order = LookOrder {
        select: SelectionText {
            reason,
            conditions: r#where.map(|texts| texts.0).unwrap_or_default(),
            older,
            messages: None,
        },
        page: Page { limit, after: None },
        scan: scan.map(|scan| scan.0),
        receives: true,
        within: None,
    };
    let queue = call.named("queue");
    let looked: MessageList = call.operations.messages().look(queue, &order).await?;
    done(&looked, queue, looked.received.0)
}

/// What is wrong with a scan beside its fields.
fn scan_problems(request: &ScanRequest) -> Vec<FieldProblem> {
    let select = SelectionText {
        reason: request.reason.clone(),
        conditions: texts(request.r#where.as_ref()),
        older: request.older.clone(),
        messages: None,
    };
    let mut problems = select.selection().err().unwrap_or_default();
    if let Some(AtLeastOne(limit)) = request.limit
        && limit > MOST
    {
        let found = format!("{limit} cannot be used");
        let wanted = format!("a whole number from 1 to {MOST}");
        problems.push(FieldProblem::new("limit", &found, &wanted));
    }
    problems
}

fn texts(given: Option<&Texts>) -> Vec<String> {
    given.map(|texts| texts.0.clone()).unwrap_or_default()
}

pub(super) async fn message(call: Call) -> Answered {
    let messages = call.operations.messages();
    let found = messages.message(call.named("queue"), call.named("id"));
    json(&found.await?)
}

pub(super) async fn delete(call: Call) -> Answered {
    let DeleteMessage { message } = call.request()?;
    let message = message.ok_or_else(|| missing("message", "the id of a message"))?;
    let queue = call.named("queue");
    let deleted = call.operations.messages().delete(queue, &message).await?;
    done(&deleted, format!("{queue} {message}"), 1)
}

pub(super) async fn redrive(call: Call) -> Answered {
    let RedriveMessages {
        to,
        reason,
        r#where,
        older,
        messages,
        first,
        rate,
        scan,
        stop_at,
        edits,
        r#try,
        apply,
    } = call.checked_request(redrive_problems)?;
    let edits = edits.map(|edits| edits.0).unwrap_or_default();
    let has_edits = !edits.is_empty();
    let messages = messages.map(|texts| texts.0);
    let edits = edits
        .into_iter()
        .map(|(message, body)| BodyEdit { message, body });
    let order = JobOrder {
        to,
        select: SelectionText {
            reason,
            conditions: r#where.map(|texts| texts.0).unwrap_or_default(),
            older,
            messages,
        },
        first: first.map(|first| first.0 as u64),
        rate,
        scan: scan.map(|scan| scan.0),
        stop_at: stop_at.map(|share| share.0),
        edits: edits.collect(),
        has_edits,
        plugin: r#try,
        apply: apply.unwrap_or_default(),
        ..JobOrder::new(JobKind::Redrive, call.named("queue"))
    };
    start(&call, order).await
}

/// What is wrong with a redrive beside its fields.
fn redrive_problems(request: &RedriveMessages) -> Vec<FieldProblem> {
    let select = SelectionText {
        reason: request.reason.clone(),
        conditions: texts(request.r#where.as_ref()),
        older: request.older.clone(),
        messages: None,
    };
    let mut problems = select.selection().err().unwrap_or_default();
    let named = texts(request.messages.as_ref());
    let edits = request.edits.iter().flat_map(|edits| &edits.0);
    let unnamed = edits.filter(|(id, _)| !named.contains(id));
    problems.extend(unnamed.map(|(id, _)| {
        let found = format!("`{id}` is not one of `messages`");
        FieldProblem::new("edits", &found, "bodies of messages that `messages` names")
    }));
    problems
}

pub(super) async fn resend(call: Call) -> Answered {
    let ResendMessage {
        message,
        body,
        to,
        scan,
    } = call.request()?;
    let message = message.ok_or_else(|| missing("message", "the id of a message"))?;
    let messages = call.operations.messages();
    messages.must_wait(call.named("queue"), &message).await?;
    let edit = body.map(|body| BodyEdit {
        message: message.clone(),
        body,
    });
    let order = JobOrder {
        to,
        select: SelectionText {
            messages: Some(vec![message]),
            ..SelectionText::default()
        },
        scan: scan.map(|scan| scan.0),
        has_edits: edit.is_some(),
        edits: edit.into_iter().collect(),
        apply: true,
        ..JobOrder::new(JobKind::Redrive, call.named("queue"))
    };
    let started = start(&call, order).await;
    started.map_err(|mut problem| {
        // It names one message where a redrive names many.
        for error in &mut problem.errors {
            if error.field == "messages" {
                error.field = "message".to_owned();
            }
        }
        problem
    })
}

pub(super) async fn move_messages(call: Call) -> Answered {
    let MoveMessages {
        to,
        first,
        rate,
        apply,
    } = call.checked_request(|request: &MoveMessages| {
        let is_missing = request.to.is_none();
        let missing = || FieldProblem::new("to", "it is missing", "the queue that they go to");
        is_missing.then(missing).into_iter().collect()
    })?;
    let order = JobOrder {
        to,
        first: first.map(|first| first.0 as u64),
        rate,
        apply: apply.unwrap_or_default(),
        ..JobOrder::new(JobKind::Move, call.named("queue"))
    };
    start(&call, order).await
}

pub(super) async fn purge(call: Call) -> Answered {
    let PurgeQueue { apply } = call.request()?;
    let order = JobOrder {
        apply: apply.unwrap_or_default(),
        ..JobOrder::new(JobKind::Purge, call.named("queue"))
    };
    start(&call, order).await
}

async fn start(call: &Call, order: JobOrder) -> Answered {
    let messages = call.operations.messages();
    started(messages.start(order, call.requester()).await?)
}

fn started(job: JobView) -> Answered {
    let mut response = json(&job)?;
    response.extensions_mut().insert(AuditedByJob);
    Ok(response)
}

pub(super) async fn restart_job(call: Call) -> Answered {
    let NoFields {} = call.request()?;
    let messages = call.operations.messages();
    started(messages.restart(call.named("id"), call.requester()).await?)
}

pub(super) async fn cancel_job(call: Call) -> Answered {
    let NoFields {} = call.request()?;
    let id = call.named("id");
    let job = call.operations.messages().cancel(id)?;
    done(&job, id, 1)
}

pub(super) async fn jobs(call: Call) -> Answered {
    let (items, next) = call.operations.messages().jobs(&call.query.page())?;
    json(&Jobs { items, next })
}

pub(super) async fn job(call: Call) -> Answered {
    let id = call.named("id");
    let job = call.operations.messages().job(id);
    json(&job.ok_or_else(|| no_job(id))?)
}

fn no_job(id: &str) -> CallProblem {
    CallProblem::not_found(format!(
        "There is no job `{id}`. GET /api/v1/jobs lists the last ones."
    ))
}
