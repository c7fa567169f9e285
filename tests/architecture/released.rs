//! Names that were released stay.

use crate::events::listed;
use crate::tree::{nothing_wrong, read, root};
use serde_json::Value;
use std::collections::BTreeSet;

/// The names of the metrics of their page, each with its labels.
fn metrics(page: &str) -> BTreeSet<String> {
    let table = page.split("## All metrics").nth(1).expect("the table");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let names = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        format!("{} {}", cells[1], cells[4])
    });
    names.collect()
}

/// What a client of the admin API relies on, a line each: endpoints, their parameters, and the fields of
/// what is sent and answered, with their types.
fn api(document: &Value) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let kind = |schema: &Value| match &schema["$ref"] {
        Value::String(name) => name.clone(),
        _ => schema["type"].to_string(),
    };
    for (path, verbs) in members(&document["paths"]) {
        for (verb, endpoint) in members(&verbs) {
            lines.insert(format!("{verb} {path}"));
            for one in endpoint["parameters"].as_array().into_iter().flatten() {
                let (name, kind) = (&one["name"], kind(&one["schema"]));
                lines.insert(format!("{verb} {path} {name} {kind}"));
            }
        }
    }
    for (name, schema) in members(&document["components"]["schemas"]) {
        for (field, of) in members(&schema["properties"]) {
            lines.insert(format!("{name} {field} {}", kind(&of)));
        }
    }
    lines
}

/// `UPDATE=RELEASED` writes what is promised from a release on.
#[test]
fn names_that_were_released_are_still_there() {
    let page = |name: &str| read(&root().join("host/docs").join(name));
    let (events, _) = listed(&page("events.md"));
    let events: BTreeSet<String> = events.into_keys().collect();
    let document = serde_json::from_str(&page("openapi.json")).expect("it is JSON");
    let mut complaints = Vec::new();
    for (name, now) in [
        ("api", api(&document)),
        ("events", events),
        ("metrics", metrics(&page("metrics.md"))),
    ] {
        let path = root().join(format!("tests/released/names/{name}.txt"));
        if std::env::var("UPDATE").is_ok_and(|what| what == "RELEASED") {
            let lines: Vec<_> = now.iter().map(String::as_str).collect();
            std::fs::write(&path, lines.join("\n") + "\n").expect("written");
        }
        let released = read(&path);
        assert!(released.lines().count() > 50, "{name} was not read");
        let gone = released.lines().filter(|line| !now.contains(*line));
        complaints.extend(gone.map(|line| {
            format!("{line} was released ({name}), and host/docs has it no more: clients, dashboards and searches rely on it")
        }));
    }
    nothing_wrong(&complaints);
}
