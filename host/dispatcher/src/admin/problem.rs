//! Answers that say what is wrong: problem details (RFC 9457), with every problem of a request at
//! once.

pub(crate) use axum::http::StatusCode;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::fmt;

/// What is wrong with one field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldProblem {
    /// Its name; empty for the whole body.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What would be right.
    pub wanted: String,
    hint: Option<String>,
}

impl FieldProblem {
    /// A value that cannot be used.
    pub(crate) fn new(field: &str, found: &str, wanted: &str) -> Self {
        Self {
            field: field.to_owned(),
            found: found.to_owned(),
            wanted: wanted.to_owned(),
            hint: None,
        }
    }

    /// A field that there is none of.
    pub(super) fn unknown(field: &str, known: &[&str]) -> Self {
        let wanted = match known {
            [] => "no field".to_owned(),
            known => known.join(", "),
        };
        let nearest = known
            .iter()
            .map(|name| (strsim::jaro_winkler(field, name), name))
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let nearest = nearest.filter(|(likeness, _)| *likeness > 0.7);
        Self {
            hint: nearest.map(|(_, name)| format!("did you mean `{name}`?")),
            ..Self::new(field, "unknown field", &wanted)
        }
    }

    fn json(&self) -> Value {
        json!({
            "field": self.field,
            "found": self.found,
            "wanted": self.wanted,
            "hint": self.hint,
        })
    }
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(out, "{}: ", self.field)?;
        }
        write!(out, "{}; wanted {}", self.found, self.wanted)?;
        match &self.hint {
            Some(hint) => write!(out, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Why a call is not answered as it asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallProblem {
    /// The status of the answer.
    pub status: StatusCode,
    /// What is wrong, in a sentence.
    pub detail: String,
    /// What is wrong with each field.
    pub errors: Vec<FieldProblem>,
}

impl CallProblem {
    /// One with this status.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            errors: Vec::new(),
        }
    }

    /// There is no such thing.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// A request that is not understood: nothing was done.
    pub(crate) fn fields(errors: Vec<FieldProblem>) -> Self {
        let each: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let detail = format!("Nothing was done. {}", each.join(". "));
        Self {
            errors,
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
        }
    }
}

impl IntoResponse for CallProblem {
    fn into_response(self) -> Response {
        let members = if self.errors.is_empty() {
            json!({})
        } else {
            let errors = self.errors.iter().map(FieldProblem::json);
            json!({"errors": errors.collect::<Vec<_>>()})
        };
        problem_with(self.status, &self.detail, members)
    }
}

/// An answer that says what is wrong.
pub(super) fn problem(status: StatusCode, detail: &str) -> Response {
    problem_with(status, detail, json!({}))
}

/// The same, with these members besides.
pub(super) fn problem_with(status: StatusCode, detail: &str, mut members: Value) -> Response {
    members["title"] = json!(status.canonical_reason());
    members["status"] = json!(status.as_u16());
    members["detail"] = json!(detail);
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, kind, members.to_string()).into_response()
}

/// The schema of such an answer.
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
