//! A version of the contract that was released does not change, and components of it are kept.

use crate::tree::{files, nothing_wrong, read, root};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

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
