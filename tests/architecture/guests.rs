//! The shipped components belong to the sources beside them, and every fixture is used by a test.

use crate::tree::{files, nothing_wrong, read, root, sources};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::Path;

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn digest_of(path: &Path) -> String {
    digest(&std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The digest of what a guest is built from, as `plugins/README.md` defines it.
fn source_digest(crate_folder: &str) -> String {
    let mut inputs = files(&format!("plugins/{crate_folder}"), |_| true);
    for folder in ["guest-sdk/macros", "guest-sdk/src"] {
        inputs.extend(files(folder, |_| true));
    }
    inputs.extend(files("wit", |name| name.ends_with(".wit")));
    for single in [
        "guest-sdk/Cargo.toml",
        "plugins/Cargo.toml",
        "plugins/Cargo.lock",
    ] {
        inputs.push((single.into(), root().join(single)));
    }
    inputs.sort();
    let lines: String = inputs
        .iter()
        .map(|(name, path)| format!("{}  {name}\n", digest_of(path)))
        .collect();
    digest(lines.as_bytes())
}

#[test]
fn shipped_components_match_their_sources() {
    let mut complaints = Vec::new();
    let mut known = BTreeSet::new();
    for line in read(&root().join("plugins/prebuilt/DIGESTS")).lines() {
        let [name, sources, component, folder] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("plugins/prebuilt/DIGESTS: not NAME SOURCES COMPONENT CRATE: {line}");
        };
        known.insert(folder.to_owned());
        if source_digest(folder) != sources {
            complaints.push(format!(
                "plugins/{folder} changed and its component did not: run plugins/build and commit"
            ));
        }
        if digest_of(&root().join(format!("plugins/prebuilt/{name}.wasm"))) != component {
            complaints.push(format!(
                "plugins/prebuilt/{name}.wasm is not what plugins/build made"
            ));
        }
    }
    for crate_folder in guest_crates() {
        if !known.contains(&crate_folder) {
            complaints.push(format!(
                "plugins/{crate_folder} is not shipped: run plugins/build and commit"
            ));
        }
    }
    nothing_wrong(&complaints);
}

fn guest_crates() -> Vec<String> {
    let manifests = files("plugins", |name| {
        name.ends_with("/Cargo.toml") && name.matches('/').count() == 3
    });
    let folder = |(name, _): (String, _)| {
        let name: &str = name.as_ref();
        name.trim_start_matches("plugins/")
            .trim_end_matches("/Cargo.toml")
            .to_owned()
    };
    let crates: Vec<String> = manifests.into_iter().map(folder).collect();
    assert!(crates.len() >= 10, "the guests were not found: {crates:?}");
    crates
}

#[test]
fn every_guest_has_a_test() {
    let mut tests = sources("tests");
    tests.extend(
        sources("host")
            .into_iter()
            .filter(|(name, _)| name.contains("test")),
    );
    tests.extend(sources("host/benches"));
    let unused: Vec<String> = guest_crates()
        .into_iter()
        .filter_map(|folder| folder.split('/').next_back().map(str::to_owned))
        .filter(|name| {
            !tests.iter().any(|(_, text)| {
                text.contains(&format!("\"{name}\"")) || text.contains(&format!("{name}.wasm"))
            })
        })
        .map(|name| format!("no test or benchmark uses the guest `{name}`"))
        .collect();
    nothing_wrong(&unused);
}
