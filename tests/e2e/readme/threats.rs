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
        let [what, why, shown] = cells[..] else {
            panic!("{PAGE}: not three cells: {row}");
        };
        if shown == "shown by" || shown == "---" {
            continue;
        }
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
    let words = prose.split('`').skip(1).step_by(2);
    for name in words.filter(|word| word.contains('_') && !word.contains(['.', '/', ' '])) {
        assert!(
            is_there(&tests, name),
            "{PAGE} names {name}, which does not exist"
        );
    }
}

/// Checks of the conformance suite are functions that a macro makes tests of.
fn is_there(tests: &BTreeSet<String>, name: &str) -> bool {
    tests.contains(name) || read("tests/conformance/main.rs").contains(name)
}
