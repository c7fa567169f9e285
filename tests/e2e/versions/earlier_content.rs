//! What earlier versions left on servers, kept in `tests/released` as lines of JSON: how such a file
//! is read and written, and whether today's program still writes content of the same form. Knows no
//! server.

use crate::scene::field;
use dispatcher_tests::child::RunningProgram;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The content of this format of a backend.
fn file(backend: &str, format: u32) -> PathBuf {
    let released = Path::new(env!("CARGO_MANIFEST_DIR")).join("released");
    released.join(backend).join(format!("{format}.jsonl"))
}

/// Its lines, in their order.
pub(crate) fn lines(backend: &str, format: u32) -> Vec<Value> {
    let file = file(backend, format);
    let text = fs::read_to_string(&file);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let line = |line: &str| serde_json::from_str(line).expect("a line of JSON");
    text.lines().map(line).collect()
}

/// Requires that this content, which the program has just written, has the form of the kept one.
/// `UPDATE=CONTENT` keeps it instead.
pub(crate) fn compare(backend: &str, format: u32, now: &[Value]) {
    if std::env::var("UPDATE").is_ok_and(|what| what == "CONTENT") {
        let text: String = now.iter().map(|line| format!("{line}\n")).collect();
        fs::write(file(backend, format), text).expect("written");
        return;
    }
    let (kept, now) = (form(&lines(backend, format)), form(now));
    assert_eq!(
        kept, now,
        "the program writes another format than tests/released/{backend}/{format}.jsonl: is that \
         file still read? then keep it, raise the format, and write one of the new format beside it"
    );
}

/// Requires that the pause of the queue `held` and the limits of the queue `limited` are in force.
pub(crate) fn controls_are_obeyed(running: &RunningProgram, backend: &str) {
    let of_queue = |name: &str| {
        let queue = format!("{backend}:{name}");
        running
            .wait_for_line(|line| line.contains("live control in force") && line.contains(&queue))
    };
    let held = of_queue("held");
    assert_eq!(field(&held, "paused"), "true", "{held}");
    let limited = of_queue("limited");
    assert_eq!(field(&limited, "concurrency"), "1", "{limited}");
    assert_eq!(field(&limited, "rate"), "50.0", "{limited}");
}

/// The lines with `#` in the place of ids, numbers and dates, each once.
fn form(lines: &[Value]) -> BTreeSet<String> {
    lines
        .iter()
        .map(|line| formless(&line.to_string()))
        .collect()
}

/// A text with `#` for each run of hexadecimal digits, dots and dashes in which there is a digit.
fn formless(text: &str) -> String {
    let is_part = |byte: char| byte.is_ascii_hexdigit() || byte == '-' || byte == '.';
    let mut form = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if is_part(first) {
            rest.find(|byte| !is_part(byte))
        } else {
            rest.find(is_part)
        };
        let (run, after) = rest.split_at(end.unwrap_or(rest.len()));
        let varies = is_part(first) && run.contains(|byte: char| byte.is_ascii_digit());
        form.push_str(if varies { "#" } else { run });
        rest = after;
    }
    form
}

#[test]
fn form_hides_ids_and_numbers_alone() {
    let form = formless(r#"["ZADD","{dispatcher:jobs}:wait","1795607244622710","179-819c3585"]"#);
    assert_eq!(form, r##"["ZADD","{dispatcher:jobs}:wait","#","#"]"##);
}
