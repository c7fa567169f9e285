//! Problems as answers: problem details (RFC 9457), with every problem of a request at once.

pub use http::StatusCode;
use serde_json::{Map, Value, json};
use std::fmt;
use std::fmt::Write as _;

/// The maximum number of problems that an answer reports.
pub const MOST_PROBLEMS: usize = 20;
/// The maximum number of characters of the sender's text that are shown.
const SHOWN: usize = 150;

/// Returns the beginning of a long text.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A problem of one field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldProblem {
    /// The name of the field; empty for the whole body.
    pub field: String,
    /// The value that was found.
    pub found: String,
    /// The expected value.
    pub wanted: String,
    /// Advice.
    pub hint: Option<String>,
}

impl FieldProblem {
    /// Creates the problem of an invalid value.
    pub fn new(field: &str, found: &str, wanted: &str) -> Self {
        Self {
            field: shortened(field),
            found: shortened(found),
            wanted: wanted.to_owned(),
            hint: None,
        }
    }

    /// Moves the problem to a field of the object `at`.
    #[must_use]
    pub fn within(self, at: &str) -> Self {
        Self {
            field: format!("{at}.{}", self.field),
            ..self
        }
    }

    /// Creates the problem of an unknown field.
    pub fn unknown(field: &str, known: &[&str]) -> Self {
        let wanted = match known {
            [] => "no field".to_owned(),
            known => known.join(", "),
        };
        let nearest = known
            .iter()
            .map(|name| (strsim::jaro_winkler(field, name), name))
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .filter(|(likeness, _)| *likeness > 0.7);
        Self {
            hint: nearest.map(|(_, name)| format!("did you mean `{name}`?")),
            ..Self::new(field, "unknown field", &wanted)
        }
    }

    /// Returns its JSON form in answers.
    pub fn json(&self) -> Value {
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
        out.write_str(&self.found)?;
        if !self.wanted.is_empty() {
            write!(out, "; wanted {}", self.wanted)?;
        }
        match &self.hint {
            Some(hint) => write!(out, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// The reason why a call fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallProblem {
    /// The status of the answer.
    pub status: StatusCode,
    /// The problem, in a sentence.
    pub detail: String,
    /// The problems of each field.
    pub errors: Vec<FieldProblem>,
    /// Additional members of the answer.
    pub more: Map<String, Value>,
}

impl CallProblem {
    /// Creates a problem with this status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            errors: Vec::new(),
            more: Map::new(),
        }
    }

    /// Creates the problem of a missing object.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Creates the problem of an invalid request: nothing was done. Reports the first problems.
    pub fn fields(mut errors: Vec<FieldProblem>) -> Self {
        let more = errors.len().saturating_sub(MOST_PROBLEMS);
        errors.truncate(MOST_PROBLEMS);
        let each: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let mut detail = format!("Nothing was done. {}", each.join(". "));
        if more > 0 {
            let _ = write!(detail, ". And {more} more problems");
        }
        Self {
            errors,
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
        }
    }
}
