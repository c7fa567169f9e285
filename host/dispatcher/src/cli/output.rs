//! Prints data to stdout and notes to stderr. A closed pipe ends the command silently.

use crate::error::{Exit, Failure};
use dispatcher_core::telemetry::escape::escape_json;
use std::io::{ErrorKind, Write};

/// Prints one line.
pub(super) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    bytes(format!("{}\n", text.as_ref()).as_bytes())
}

/// Prints a value as one line of JSON that steers no terminal.
pub(super) fn json(value: &serde_json::Value) -> Result<(), Failure> {
    line(escape_json(&value.to_string()))
}

/// Prints bytes as they are.
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

/// Tells a person one line, on stderr.
pub(super) fn note(text: impl AsRef<str>) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
}
