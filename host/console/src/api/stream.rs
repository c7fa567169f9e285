//! The event stream: server-sent events for the outcomes of deliveries and changes of state.

use super::{Call, reads};
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dispatcher_core::clock;
use dispatcher_core::telemetry::events::outcomes::OutcomeStream;
use dispatcher_http::{StreamBody, StreamWriter};
use dispatcher_operate::problem::CallProblem;
use serde::Serialize;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, broadcast};
use tokio_util::sync::CancellationToken;

/// The interval of keep-alive comments on an idle stream: they detect a client that disconnected,
/// and prevent a proxy from closing the stream.
const ALIVE: Duration = Duration::from_secs(15);

/// The events that one client follows.
struct FollowedEvents {
    /// Only deliveries of this queue are sent.
    queue: Option<String>,
    outcomes: OutcomeStream,
    changes: broadcast::Receiver<String>,
    stop: CancellationToken,
    _allowance: OwnedSemaphorePermit,
}

pub(super) async fn events(call: Call) -> Result<Response, CallProblem> {
    let allowance = call.state.streams.take().ok_or_else(|| {
        let most = call.state.streams.most;
        busy(format!(
            "{most} streams are open already. Close one, or try again later."
        ))
    })?;
    let connection = call
        .connection
        .as_ref()
        .ok_or_else(|| busy("This connection cannot stream.".to_owned()))?;
    let followed = FollowedEvents {
        queue: call.query.text("queue").map(str::to_owned),
        outcomes: call.state.admin.metrics.meters.outcomes().follow(),
        changes: call.state.changes.follow(),
        stop: call.state.stop.clone(),
        _allowance: allowance,
    };
    let hello = call.operations.process();
    let body = StreamBody::new(connection.detach(), |writer| async move {
        if writer.send(event("hello", &hello)) {
            forward(writer, followed).await;
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // A detached connection no longer counts as a connection of the server.
        (header::CONNECTION, "close"),
    ];
    Ok((headers, Body::new(body)).into_response())
}

fn busy(why: String) -> CallProblem {
    CallProblem::new(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Sends events until the client disconnects or is too slow, or the program stops.
async fn forward(writer: StreamWriter, mut followed: FollowedEvents) {
    let queue = followed.queue.take();
    let mut alive = clock::now() + ALIVE;
    loop {
        let text = tokio::select! {
            () = followed.stop.cancelled() => {
                writer.send(event("stopped", &serde_json::json!({})));
                return;
            }
            outcome = followed.outcomes.next() => match outcome {
                Some(outcome) => {
                    if queue.as_ref().is_some_and(|queue| outcome.queue != *queue) {
                        continue;
                    }
                    event("outcome", &reads::view(&outcome))
                }
                None => {
                    writer.send(event("too-slow", &serde_json::json!({})));
                    return;
                }
            },
            change = followed.changes.recv() => match change {
                Ok(change) => format!("event: state\ndata: {change}\n\n"),
                Err(_) => return,
            },
            () = clock::sleep_until(Some(alive)) => ": alive\n\n".to_owned(),
        };
        if !writer.send(text) {
            return;
        }
        alive = clock::now() + ALIVE;
    }
}

/// Formats one event. JSON contains no line breaks.
fn event(name: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}
