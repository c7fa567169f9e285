//! The page about threats: each of its claims names what keeps it and tests that exist.

use super::{quoted, read, root, sources};
use std::collections::BTreeSet;

const PAGE: &str = "host/docs/threat-model.md";

/// The names of all tests.
fn tests() -> BTreeSet<String> {
    let mut code = String::new();
    for folder in ["host", "tests", "plugins/lambda-forward/src"] {
        sources(&root().join(folder), &mut code);
    }
    let mut names = BTreeSet::new();
    let mut is_test = false;
    for line in code.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, rest)) = line.split_once("fn ") {
            if is_test && let Some((name, _)) = rest.split_once('(') {
                names.insert(name.to_owned());
            }
            is_test = false;
        }
    }
    names
}

#[test]
fn every_threat_claim_names_existing_tests() {
    let tests = tests();
    assert!(tests.len() > 300, "the tests were not found");
    let page = read(PAGE);
    let mut rows = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [what, why] = cells[..] else {
            panic!("{PAGE}: not two cells: {row}");
        };
        if why == "because" || why == "---" {
            continue;
        }
        let (why, shown) = why.split_once("<!--").unwrap_or((why, ""));
        assert!(!what.is_empty() && !why.is_empty(), "{PAGE}: {row}");
        let named = quoted(shown, "");
        let named: Vec<_> = named.iter().filter(|name| name.contains('_')).collect();
        assert!(!named.is_empty(), "{PAGE}: no test shows that {what}");
        for name in named {
            assert!(
                is_there(&tests, name),
                "{PAGE} names {name}, which does not exist"
            );
        }
        rows += 1;
    }
    assert!(rows >= 30, "the rows were not found");
}

#[test]
fn every_test_named_beside_the_tables_exists() {
    let tests = tests();
    let page = read(PAGE);
    let prose: String = page.lines().filter(|line| !line.starts_with('|')).collect();
    let prose = prose.replace("<!--", "").replace("-->", "");
    let words = prose.split('`').skip(1).step_by(2);
    for name in words.filter(|word| word.contains('_') && !word.contains(['.', '/', ' '])) {
        assert!(
            is_there(&tests, name),
            "{PAGE} names {name}, which does not exist"
        );
    }
}

/// What readers see of a page.
fn visible(page: &str) -> String {
    let parts = page.split("<!--").enumerate();
    let seen = parts.map(|(number, part)| match (number, part.split_once("-->")) {
        (0, _) | (_, None) => part,
        (_, Some((_, after))) => after,
    });
    seen.collect()
}

/// The names are in comments, where these tests find them.
#[test]
fn no_page_for_users_shows_names_of_tests() {
    let tests = tests();
    for (name, page) in super::pages::pages() {
        if name.ends_with("/adding-a-backend.md") {
            continue;
        }
        let page = visible(&page);
        let shown = page.split('`').skip(1).step_by(2);
        let shown: Vec<_> = shown
            .filter(|word| word.matches('_').count() > 2 && tests.contains(*word))
            .collect();
        assert!(shown.is_empty(), "{name} shows {shown:?}");
    }
}

/// Checks of the conformance suite are functions that a macro makes tests of.
fn is_there(tests: &BTreeSet<String>, name: &str) -> bool {
    // Tests that macros make of their names.
    let made = ["main.rs", "sqs_faults.rs"].map(|file| read(&format!("tests/conformance/{file}")));
    tests.contains(name) || made.iter().any(|text| text.contains(name))
}
