//! Documents tell the truth: every path that they name exists.

use crate::tree::{files, nothing_wrong, read, root};

/// Words in back quotes that begin like a path of this repository.
fn paths(text: &str) -> Vec<String> {
    let tops = [
        "host/",
        "guest-sdk/",
        "plugins/",
        "tests/",
        "wit/",
        ".ci/",
        ".github/",
    ];
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|quoted| tops.iter().any(|top| quoted.starts_with(top)))
        .map(|quoted| {
            quoted
                .split([' ', ':'])
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .filter(|path| {
            !path.contains(['*', '<', '{', '…', '$'])
                && !path.contains("NAME")
                && !path.contains("CRATE")
        })
        .collect()
}

/// Targets of links that are not addresses.
fn links(text: &str) -> Vec<String> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .map(|target| target.split('#').next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn every_path_in_the_documents_exists() {
    let mut complaints = Vec::new();
    let documents = files(".", |name| name.ends_with(".md"));
    assert!(documents.len() >= 4, "the documents were not found");
    for (name, path) in documents {
        let text = read(&path);
        let here = path.parent().expect("a file has a folder");
        for quoted in paths(&text) {
            if !root().join(&quoted).exists() {
                complaints.push(format!("{name} names `{quoted}`, which does not exist"));
            }
        }
        for link in links(&text) {
            if !here.join(&link).exists() {
                complaints.push(format!("{name} links to {link}, which does not exist"));
            }
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn the_check_sees_a_path() {
    let text = "see `host/src/nowhere.rs:12` and [a](b.md) and [c](https://x.y/)";
    assert_eq!(paths(text), ["host/src/nowhere.rs"]);
    assert_eq!(links(text), ["b.md"]);
}
