//! Calls that a test suite makes between two tests: they delete everything, or move the clock
//! ahead. Only a server that stores nothing on disk answers them.

use super::service::Service;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use dispatcher_core::clock;
use dispatcher_core::queue::QueueError;
use serde_json::{Value, json};
use std::time::Duration;

/// The prefix of their paths.
pub(crate) const PATH: &str = "/_dispatcher/";
/// The maximum number of bytes of a call's body.
const LONGEST: usize = 4_096;

/// The status and the reason of a refused call.
type RefusedCall = (StatusCode, String);

/// Answers a call; `call` is its name without `PATH`.
pub(crate) async fn answer(desk: &Service, call: &str, asked: &Parts, body: Body) -> Response {
    let (status, kind, answer) = match run(desk, call, asked, body).await {
        Ok(answer) => (StatusCode::OK, "application/json", answer),
        Err((status, detail)) => {
            let title = status.canonical_reason().unwrap_or_default();
            let problem = json!({"title": title, "status": status.as_u16(), "detail": detail});
            (status, "application/problem+json", problem)
        }
    };
    let mut response = Response::new(Body::from(answer.to_string()));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn run(desk: &Service, call: &str, asked: &Parts, body: Body) -> Result<Value, RefusedCall> {
    let Some(declared) = &desk.tests else {
        let detail =
            "reset and clock are answered by `dispatcher local --memory` at a loopback address";
        return Err((StatusCode::NOT_FOUND, detail.to_owned()));
    };
    if asked.headers.contains_key(header::ORIGIN) {
        let detail = "requests of web pages, which carry an Origin header, are not answered";
        return Err((StatusCode::FORBIDDEN, detail.to_owned()));
    }
    if asked.method != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "wanted POST".to_owned()));
    }
    match call {
        "reset" => {
            desk.store.reset().await.map_err(failed)?;
            desk.forget_all();
            let made = desk.store.declare(declared.clone()).await;
            made.map_err(failed)?;
            tracing::info!("reset: every queue and message deleted");
            Ok(json!({"queues": declared.iter().map(|queue| &queue.name).collect::<Vec<_>>()}))
        }
        "clock" => {
            let body = axum::body::to_bytes(body, LONGEST).await;
            let by = advance(&body.unwrap_or_default())
                .map_err(|detail| (StatusCode::BAD_REQUEST, detail))?;
            clock::advance(by);
            // Messages whose retention is over are gone when this is answered.
            while desk.store.drop_old().await.map_err(failed)? {}
            desk.store.wake();
            desk.moves.notify_one();
            let by = humantime::format_duration(by).to_string();
            tracing::info!(by, "clock moved ahead");
            Ok(json!({"now_ms": clock::wall_clock_now().0}))
        }
        other => Err((
            StatusCode::NOT_FOUND,
            format!("there is no call `{other}`; wanted reset or clock"),
        )),
    }
}

fn failed(error: QueueError) -> RefusedCall {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// Returns how far a body moves the clock: `{"advance":"15m"}`.
fn advance(body: &[u8]) -> Result<Duration, String> {
    let wanted = "wanted {\"advance\":\"15m\"}";
    let body: Value = match serde_json::from_slice(body) {
        Ok(body) => body,
        Err(error) => return Err(format!("the body is not JSON ({error}); {wanted}")),
    };
    let members = body.as_object().into_iter().flatten();
    let unknown = members
        .map(|(name, _)| name)
        .find(|name| *name != "advance");
    if let Some(unknown) = unknown {
        return Err(format!("`{unknown}` is not known; {wanted}"));
    }
    let Some(text) = body["advance"].as_str() else {
        return Err(format!("`advance` is missing or not a text; {wanted}"));
    };
    let parsed = humantime::parse_duration(text);
    parsed.map_err(|error| format!("`advance`: `{text}` is not a duration ({error}); {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_how_far_or_what_is_wrong_with_it() {
        let quarter = Duration::from_secs(900);
        assert_eq!(advance(br#"{"advance":"15m"}"#), Ok(quarter));
        for (body, found) in [
            ("", "the body is not JSON"),
            ("{}", "`advance` is missing"),
            (r#"{"advance":900}"#, "`advance` is missing or not a text"),
            (r#"{"advance":"-1s"}"#, "`-1s` is not a duration"),
            (r#"{"by":"1s"}"#, "`by` is not known"),
        ] {
            let refused = advance(body.as_bytes()).expect_err("refused");
            assert!(refused.contains(found), "{refused}");
            assert!(
                refused.ends_with(r#"wanted {"advance":"15m"}"#),
                "{refused}"
            );
        }
    }
}
