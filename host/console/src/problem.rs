//! Converts problems to responses: problem details (RFC 9457), with every problem of a request at
//! once.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dispatcher_operate::problem::{CallProblem, FieldProblem};
use serde_json::{Value, json};

/// Converts a problem to a response.
pub(super) fn respond(problem: CallProblem) -> Response {
    let mut members = Value::Object(problem.more);
    if !problem.errors.is_empty() {
        members["errors"] = problem.errors.iter().map(FieldProblem::json).collect();
    }
    problem_with(problem.status, &problem.detail, members)
}

/// Returns a response for a problem without details of fields.
pub(super) fn problem(status: StatusCode, detail: &str) -> Response {
    problem_with(status, detail, json!({}))
}

/// Returns a response for a problem with additional members.
pub(super) fn problem_with(status: StatusCode, detail: &str, mut members: Value) -> Response {
    members["title"] = json!(status.canonical_reason());
    members["status"] = json!(status.as_u16());
    members["detail"] = json!(detail);
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, kind, members.to_string()).into_response()
}

/// Returns the schema of a problem.
pub(super) fn schema() -> Value {
    let error = json!({
        "type": "object",
        "required": ["field", "found", "wanted", "hint"],
        "additionalProperties": false,
        "properties": {
            "field": {"type": "string", "description": "The field; empty for the whole body."},
            "found": {"type": "string", "description": "What was found."},
            "wanted": {"type": "string", "description": "What would be right."},
            "hint": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    });
    json!({
        "type": "object",
        "description": "What is wrong (RFC 9457).",
        "required": ["title", "status", "detail"],
        "properties": {
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What is wrong and what to do about it."},
            "errors": {
                "type": "array",
                "description": "Every problem of the request.",
                "items": error,
            },
        },
    })
}
