//! Maps errors of the server and of the connection to what callers can do about them.

use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::queue::ItemError;
use dispatcher_core::telemetry::error_text::with_sources;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Converts an error of a statement. `place` names the server.
pub(crate) fn call_error(error: &Error, place: &str) -> CallError {
    let Some(refusal) = error.as_db_error() else {
        return CallError {
            kind: ErrorKind::Unreachable,
            message: format!("PostgreSQL at {place}: {}", with_sources(error)),
        };
    };
    let code = refusal.code();
    let mut message = format!("PostgreSQL at {place}: {}", refusal.message());
    if let Some(detail) = refusal.detail() {
        message.push_str(&format!(" ({})", detail.trim_end_matches('.')));
    }
    if let Some(remedy) = refusal.hint().map(str::to_owned).or_else(|| remedy(code)) {
        message.push_str(&format!("; {}", remedy.trim_end_matches('.')));
    }
    CallError {
        kind: kind(code),
        message,
    }
}

fn kind(code: &SqlState) -> ErrorKind {
    match *code {
        SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_FUNCTION
        | SqlState::INVALID_SCHEMA_NAME
        | SqlState::INVALID_CATALOG_NAME => ErrorKind::NotFound,
        SqlState::INSUFFICIENT_PRIVILEGE => ErrorKind::AccessDenied,
        _ => match &code.code()[..2] {
            // Of the connection, the resources, a shutdown, the system and the transaction: a
            // serialisation failure or a deadlock.
            "08" | "40" | "53" | "55" | "57" | "58" | "25" | "XX" => ErrorKind::Transient,
            "28" => ErrorKind::AccessDenied,
            _ => ErrorKind::Invalid,
        },
    }
}

/// Returns what helps, where the server does not say it.
fn remedy(code: &SqlState) -> Option<String> {
    let text = match *code {
        SqlState::UNDEFINED_FUNCTION
        | SqlState::UNDEFINED_TABLE
        | SqlState::INVALID_SCHEMA_NAME => {
            "run `dispatcher postgres init` as the owner of the database"
        }
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "run `dispatcher postgres init --worker-role ROLE` as the owner of the database, or \
             --producer-role for a role that only sends"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// Whether a statement failed because of a value in it, not because of the server.
pub(crate) fn is_about_values(error: &Error) -> bool {
    let code = error.code().map(SqlState::code).unwrap_or_default();
    ["22", "54"].contains(&&code[..code.len().min(2)]) || ["23502", "23514"].contains(&code)
}

/// Converts the failure of a whole call to the answer to one of its items. It says nothing about the
/// item: a table that is missing may be there again after a restore, and a right may be granted.
pub(crate) fn item(error: &CallError) -> ItemError {
    ItemError::Transient(error.message.clone())
}

/// Returns the failure of a whole call as the answer to each item.
pub(crate) fn all<T>(error: &CallError, count: usize) -> Vec<Result<T, ItemError>> {
    std::iter::repeat_with(|| Err(item(error)))
        .take(count)
        .collect()
}
