//! The content of a message, as stored in `payloads`. A missing or unreadable row affects only its
//! own message; the other messages of the same receive are delivered.

use super::deliver::{decode, decode_system};
use dispatcher_core::message::Attribute;
use rusqlite::Row;
use rusqlite::types::ValueRef;

/// The content of a row.
pub(super) struct Content {
    /// The message id, or an id made of the row's number if the row has none.
    pub id: String,
    /// The body; empty if it cannot be read.
    pub body: String,
    /// The sender's attributes; empty if they cannot be read.
    pub attributes: Vec<Attribute>,
    /// The system attributes; empty if they cannot be read.
    pub system: Vec<(String, String)>,
    /// The reason why content is missing or cannot be read.
    pub unreadable: Option<String>,
}

/// Reads the columns `id`, `body`, `attributes` and `system` of `payloads`, which are at these
/// positions of the row of the entry `seq`.
pub(super) fn content(row: &Row<'_>, seq: i64, at: [usize; 4]) -> rusqlite::Result<Content> {
    let [id, body, attributes, system] = at;
    let id = match row.get_ref(id)? {
        ValueRef::Text(id) => String::from_utf8_lossy(id).into_owned(),
        _ => format!("entry-{seq}"),
    };
    let mut why = None;
    let body = match text(row, body)? {
        Ok(Some(body)) => body.to_owned(),
        Ok(None) => {
            why = Some("no body in the file".to_owned());
            String::new()
        }
        Err(error) => {
            why = Some(format!("its body cannot be read: {error}"));
            String::new()
        }
    };
    let mut read = |error: String| {
        why.get_or_insert(format!("its attributes cannot be read: {error}"));
    };
    let attributes = self::attributes(row, attributes)?.unwrap_or_else(|error| {
        read(error);
        Vec::new()
    });
    let system = self::system(row, system)?.unwrap_or_else(|error| {
        read(error);
        Vec::new()
    });
    Ok(Content {
        id,
        body,
        attributes,
        system,
        unreadable: why,
    })
}

/// Reads the sender's attributes from a column. The inner error says why they cannot be read.
pub(super) fn attributes(
    row: &Row<'_>,
    at: usize,
) -> rusqlite::Result<Result<Vec<Attribute>, String>> {
    Ok(text(row, at)?.and_then(|json| decode(json, at).map_err(|error| error.to_string())))
}

/// Reads the system attributes from a column. The inner error says why they cannot be read.
pub(super) fn system(
    row: &Row<'_>,
    at: usize,
) -> rusqlite::Result<Result<Vec<(String, String)>, String>> {
    Ok(text(row, at)?.and_then(|json| decode_system(json, at).map_err(|error| error.to_string())))
}

/// Returns a column as text. The inner error says why it is not text.
fn text<'a>(row: &'a Row<'_>, at: usize) -> rusqlite::Result<Result<Option<&'a str>, String>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(error.to_string()),
        },
        other => Err(format!(
            "found {} where text was written",
            other.data_type()
        )),
    })
}
