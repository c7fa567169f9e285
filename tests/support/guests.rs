//! The program with a shipped guest, and what guests have printed.

use crate::child::{Program, RunningProgram, Stream, binary};
use serde_json::Value;
use std::path::Path;

/// The file of a shipped guest.
pub fn guest(name: &str) -> String {
    format!(
        "{}/../plugins/prebuilt/{name}.wasm",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// `dispatcher run` with a guest and log lines that a test can read.
pub fn run(name: &str, more: &[&str]) -> Program {
    run_of(binary(), name, more)
}

/// The same of the program in this file.
pub fn run_of(binary: impl AsRef<Path>, name: &str, more: &[&str]) -> Program {
    let plugin = guest(name);
    let mut arguments = vec!["run", "--log-format", "json", "--plugin", &plugin];
    arguments.extend(more);
    Program::of(binary, arguments)
}

/// Whether a log line is one that a guest printed.
pub fn printed(line: &str) -> bool {
    line.contains("\"target\":\"guest\"")
}

/// A field of a log line.
pub fn field(line: &str, name: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    match &line[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What the guests of a run have printed so far.
pub fn prints(running: &RunningProgram) -> Vec<String> {
    let text = running.text(Stream::Err);
    text.lines()
        .filter(|line| printed(line))
        .map(|line| field(line, "message"))
        .collect()
}
