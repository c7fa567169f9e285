//! What follows from the table, here and on the page for users.

use super::*;
use crate::capability::description::Interface;

/// The page for users.
const PAGE: &str = include_str!("../../../../docs/capabilities.md");

#[test]
fn imports_are_described_in_plain_words() {
    let imports = [
        "wasi:cli/environment@0.2.3",
        "wasi:http/types@0.2.0",
        "wasi:http/client@0.3.0",
        "wasi:sockets/types@0.3.0",
        "dispatcher:plugin/queues-types@0.1.0",
        "wasi:keyvalue/store@0.2.0-draft2",
    ]
    .map(String::from);
    let asked = Capability::of(&imports);
    let words: Vec<_> = asked.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "outgoing HTTP",
            "keys and values",
            "TCP connections",
            "environment variables"
        ]
    );
    assert_eq!(asked[0].flag(), "--allow-http HOST");
    assert!(Capability::of(&[]).is_empty());
}

#[test]
fn capabilities_share_no_key_name_or_interface() {
    fn all<T: Ord + Copy>(of: impl Fn(&Description) -> Vec<T>) {
        let mut found: Vec<T> = Capability::all()
            .flat_map(|asked| of(asked.description()))
            .collect();
        let count = found.len();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), count);
    }
    all(|one| vec![one.key]);
    all(|one| vec![one.name]);
    all(|one| {
        one.interfaces
            .iter()
            .map(|interface| interface.name)
            .collect()
    });
}

#[test]
fn capability_links_the_interfaces_it_is_requested_by() {
    for asked in Capability::all() {
        let description = asked.description();
        for name in description.requested_by {
            let links = |one: &Interface| one.name == *name;
            assert!(description.interfaces.iter().any(links), "{asked}: {name}");
        }
        assert!(!description.requested_by.is_empty(), "{asked}");
    }
}

/// The table between the heading line and the next empty line.
#[test]
fn capabilities_page_has_a_row_for_each_in_order() {
    let table = PAGE.split("| --- | --- | --- |\n").nth(1);
    let rows: Vec<_> = table
        .expect("a table of three columns")
        .lines()
        .take_while(|line| line.starts_with('|'))
        .collect();
    let all = Capability::all().map(Capability::description);
    let mut missing = Vec::new();
    let mut expected = 0;
    for description in all {
        let Description {
            key,
            documented_as,
            without_grant,
            ..
        } = description;
        let rest = format!(" | {documented_as} | {without_grant} |");
        let plain = format!("| `{key}`{rest}");
        let linked = format!("| [`{key}`](#");
        let is_here =
            |row: &&&str| **row == plain || (row.starts_with(&linked) && row.ends_with(&rest));
        expected += 1;
        if rows.iter().find(is_here).is_none() {
            missing.push(plain);
        }
    }
    assert!(
        missing.is_empty(),
        "host/docs/capabilities.md lacks\n{}",
        missing.join("\n")
    );
    assert_eq!(
        rows.len(),
        expected,
        "host/docs/capabilities.md has a row too many"
    );
}
