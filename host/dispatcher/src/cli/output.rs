//! Prints data to stdout and notes to stderr. A closed pipe ends the command silently.

use crate::error::{Exit, Failure};
use dispatcher_core::telemetry::escape::{escape_json, escape_lines};
use std::io::{ErrorKind, Write};

/// Prints one or more lines. Control characters of quoted text are escaped, so that they cannot
/// control the terminal.
pub(super) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    bytes(format!("{}\n", escape_lines(text.as_ref())).as_bytes())
}

/// Prints a text of whole lines, escaped like `line`.
pub(super) fn text(text: &str) -> Result<(), Failure> {
    bytes(escape_lines(text).as_bytes())
}

/// Prints a value as one line of JSON, without control characters.
pub(super) fn json(value: &serde_json::Value) -> Result<(), Failure> {
    line(escape_json(&value.to_string()))
}

/// Prints bytes unchanged.
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure {
            exit: Exit::Failed,
            lines: Vec::new(),
        },
        _ => Failure::new(Exit::Failed, format!("stdout: {error}")),
    })
}

/// Prints a note for the user to stderr, escaped like `line`.
pub(super) fn note(text: impl AsRef<str>) {
    // If this fails, it cannot be reported.
    let _ = writeln!(std::io::stderr(), "{}", escape_lines(text.as_ref()));
}
