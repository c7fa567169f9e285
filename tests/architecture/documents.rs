//! Documents tell the truth: every path that they name exists, and every test target.

use crate::tree::{files, nothing_wrong, read, root};
use std::collections::{BTreeMap, BTreeSet};

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

/// The test targets of each package, by its manifest.
fn test_targets() -> BTreeMap<String, BTreeSet<String>> {
    let name = |line: &str| {
        let quoted = line.strip_prefix("name = \"")?.strip_suffix('"')?;
        Some(quoted.to_owned())
    };
    let mut targets = BTreeMap::new();
    for (_, path) in files(".", |name| name.ends_with("Cargo.toml")) {
        let text = read(&path);
        let package = text.split("[package]").nth(1).unwrap_or_default();
        let Some(package) = package.lines().find_map(name) else {
            continue;
        };
        let tests = text.split("[[test]]").skip(1);
        let tests = tests.filter_map(|test| test.lines().find_map(name));
        targets.insert(package, tests.collect());
    }
    targets
}

#[test]
fn commands_name_test_targets_that_exist() {
    let targets = test_targets();
    let is_text = |name: &str| [".md", ".rs"].iter().any(|end| name.ends_with(end));
    let (mut complaints, mut named) = (Vec::new(), 0);
    for (name, path) in files(".", is_text) {
        let text = read(&path);
        for command in text.split("cargo test ").skip(1) {
            let words: Vec<&str> = command
                .split(['`', '\n'])
                .next()
                .unwrap_or_default()
                .split(' ')
                .collect();
            let after = |flag: &str| {
                let at = words.iter().position(|word| *word == flag)?;
                words.get(at + 1).copied()
            };
            let Some(target) = after("--test").filter(|target| !target.contains('{')) else {
                continue;
            };
            named += 1;
            let exists = match after("-p") {
                Some(package) => targets.get(package).is_some_and(|all| all.contains(target)),
                None => targets.values().any(|all| all.contains(target)),
            };
            if !exists {
                complaints.push(format!(
                    "{name}: there is no target of `cargo test {}`",
                    words.join(" ")
                ));
            }
        }
    }
    assert!(named > 8, "the commands were not found");
    nothing_wrong(&complaints);
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
        // Its links are chapters, of which some are made when the book is built; that checks them.
        let is_summary = name.ends_with("/SUMMARY.md");
        for link in links(&text).into_iter().filter(|_| !is_summary) {
            if !here.join(&link).exists() {
                complaints.push(format!("{name} links to {link}, which does not exist"));
            }
        }
    }
    nothing_wrong(&complaints);
}

/// Names of tests: words in back quotes with two underscores or more.
fn tests(text: &str) -> BTreeSet<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let names = quoted.filter(|quoted| {
        quoted.matches('_').count() >= 2 && quoted.chars().all(|c| c.is_lowercase() || c == '_')
    });
    names.map(str::to_owned).collect()
}

#[test]
fn table_of_backends_names_every_common_conformance_check() {
    let suite = read(&root().join("tests/conformance/checks.rs"));
    let list = suite.split("macro_rules! with_checks").nth(1);
    let list = list.expect("the list of checks");
    let checks: BTreeSet<String> = list
        .split([' ', ',', '\n', '[', ']'])
        .filter(|word| word.matches('_').count() >= 2)
        .map(str::to_owned)
        .collect();
    assert!(checks.len() > 20, "{checks:?}");
    let told = tests(&read(&root().join("host/docs/backends.md")));
    assert_eq!(told, checks);
}

/// A block is a file, or the statements of a function.
fn is_rust(text: &str) -> bool {
    syn::parse_file(text).is_ok() || syn::parse_file(&format!("fn f() {{{text}}}")).is_ok()
}

#[test]
fn every_block_of_rust_in_the_documents_parses() {
    let mut count = 0;
    for (name, path) in files(".", |name| name.ends_with(".md")) {
        let text = read(&path);
        for block in text.split("```").skip(1).step_by(2) {
            if let Some(block) = block.strip_prefix("rust\n") {
                assert!(is_rust(block), "{name}: {block}");
                count += 1;
            }
        }
    }
    assert!(count >= 6, "the blocks were not found");
    assert!(!is_rust("fn f( {"));
}

#[test]
fn path_check_finds_paths() {
    let text = "see `host/core/src/nowhere.rs:12` and [a](b.md) and [c](https://x.y/)";
    assert_eq!(paths(text), ["host/core/src/nowhere.rs"]);
    assert_eq!(links(text), ["b.md"]);
}

/// A tag can be moved to other code; a digest cannot.
#[test]
fn finding_21_workflows_pin_their_actions_by_digest() {
    let mut complaints = Vec::new();
    let workflows = files(".github", |name| name.ends_with(".yml"));
    assert!(!workflows.is_empty());
    for (name, path) in workflows {
        for line in read(&path).lines() {
            let Some((_, action)) = line.split_once("uses:") else {
                continue;
            };
            let digest = action.trim().split(['@', ' ']).nth(1).unwrap_or_default();
            if digest.len() != 40 || !digest.chars().all(|c| c.is_ascii_hexdigit()) {
                complaints.push(format!(
                    "{name}: `{}` is not pinned by a digest",
                    action.trim()
                ));
            }
        }
    }
    nothing_wrong(&complaints);
}

/// A package by itself chooses other features of the dependencies: they would be compiled again.
#[test]
fn no_page_selects_a_package() {
    let mut complaints = Vec::new();
    for (name, path) in files(".", |name| name.ends_with(".md")) {
        for (number, line) in read(&path).lines().enumerate() {
            if line.contains("cargo ") && line.contains(" -p dispatcher ") {
                complaints.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
            if line.contains("-p dispatcher-tests") {
                complaints.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    nothing_wrong(&complaints);
}
