//! The content of a message as its row in `payloads` has it. A missing or unreadable row affects
//! only its own message: the others of the same receive are delivered.

use super::deliver::{decode, decode_system};
use dispatcher_core::message::Attribute;
use rusqlite::Row;
use rusqlite::types::ValueRef;

/// What a row says of its message.
pub(super) struct Content {
    /// Its id; one made of the row's number where there is none.
    pub id: String,
    /// Its payload; empty where it cannot be read.
    pub body: String,
    /// The sender's attributes; none where they cannot be read.
    pub attributes: Vec<Attribute>,
    /// The queue's own attributes.
    pub system: Vec<(String, String)>,
    /// Why the content is missing or cannot be read.
    pub unreadable: Option<String>,
}

/// Reads the columns `id`, `body`, `attributes` and `system` of `payloads`, which are at these
/// places of the row of the entry `seq`.
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

/// The sender's attributes of a column; the inner error is why they cannot be read.
pub(super) fn attributes(
    row: &Row<'_>,
    at: usize,
) -> rusqlite::Result<Result<Vec<Attribute>, String>> {
    Ok(text(row, at)?.and_then(|json| decode(json, at).map_err(|error| error.to_string())))
}

/// The same of the queue's own attributes.
pub(super) fn system(
    row: &Row<'_>,
    at: usize,
) -> rusqlite::Result<Result<Vec<(String, String)>, String>> {
    Ok(text(row, at)?.and_then(|json| decode_system(json, at).map_err(|error| error.to_string())))
}

/// A column as text; the inner error is why it is none.
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
