//! A version of the contract that was released does not change, and components of it are kept. Names that
//! were released stay.

use crate::events::listed;
use crate::tree::{files, nothing_wrong, read, root};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// `RELEASED` by version: the digest of its folder.
fn released() -> BTreeMap<String, String> {
    let text = read(&root().join("wit/RELEASED"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(version, digest)| (version.to_owned(), digest.to_owned()))
        .collect()
}

/// SHA-256 of the names and contents of a version's files, in the order of their names.
fn digest(version: &str) -> String {
    let mut sum = Sha256::new();
    let folder = format!("wit/{version}");
    let mut all = files(&folder, |name| name.ends_with(".wit"));
    all.sort();
    for (name, path) in all {
        sum.update(format!("{name}\n").as_bytes());
        sum.update(std::fs::read(path).expect("a readable file"));
    }
    let sum = sum.finalize();
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn released_contract_does_not_change() {
    let released = released();
    assert!(!released.is_empty(), "wit/RELEASED was not read");
    let mut complaints = Vec::new();
    for (version, wanted) in &released {
        let found = digest(version);
        if found != *wanted {
            complaints.push(format!(
                "wit/{version} was released and is another now, {found}: take the change back, and make a new version beside it"
            ));
        }
        let kept = files(&format!("tests/released/{version}"), |name| {
            name.ends_with(".wasm")
        });
        if kept.is_empty() {
            complaints.push(format!("tests/released/{version} keeps no component of it"));
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn released_components_are_kept_unchanged() {
    let mut complaints = Vec::new();
    let released = released();
    for (name, path) in files("tests/released", |name| name.ends_with(".wasm")) {
        let version = path.parent().and_then(|folder| folder.file_name());
        let version = version.expect("a folder").to_string_lossy();
        if !released.contains_key(&*version) {
            complaints.push(format!("{name}: {version} is not in wit/RELEASED"));
        }
        let sum = Sha256::digest(std::fs::read(&path).expect("a readable file"));
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        let listed = read(&root().join("tests/released/DIGESTS"));
        if !listed.contains(&sum) {
            complaints.push(format!(
                "{name}: it is not what was kept, see tests/released/DIGESTS"
            ));
        }
    }
    nothing_wrong(&complaints);
}

/// The names of the metrics of their page, each with its labels.
fn metrics(page: &str) -> BTreeSet<String> {
    let table = page.split("## All metrics").nth(1).expect("the table");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let names = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        format!("{} {}", cells[1], cells[5])
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
