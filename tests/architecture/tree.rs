//! The files of the repository, read from disk; and what may be at its top.

use std::path::{Path, PathBuf};

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every file under `folder` that passes, by its path from the root; build products left out.
pub(crate) fn files(folder: &str, wanted: impl Fn(&str) -> bool) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.strip_prefix(root()).expect("below the root");
            let name = name.to_str().expect("paths are UTF-8").to_owned();
            let built = ["target", ".git", ".tools"]
                .iter()
                .any(|part| name.split('/').any(|at| at == *part));
            if built {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else if wanted(&name) {
                found.push((name, path));
            }
        }
    }
    found.sort();
    found
}

/// The Rust sources under `folder`, with their text.
pub(crate) fn sources(folder: &str) -> Vec<(String, String)> {
    let files = files(folder, |name| name.ends_with(".rs"));
    assert!(!files.is_empty(), "no sources in {folder}");
    files
        .into_iter()
        .map(|(name, path)| (name, read(&path)))
        .collect()
}

/// A file's text.
pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails with every complaint at once.
pub(crate) fn nothing_wrong(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn top_level_is_as_agreed() {
    let agreed = [
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "host",
        "guest-sdk",
        "plugins",
        "tests",
        "wit",
    ];
    let entries = std::fs::read_dir(root()).expect("a readable root");
    let names = entries.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let strangers: Vec<String> = names
        .filter(|name| !name.starts_with('.') && !name.starts_with("LICENSE") && name != "target")
        .filter(|name| !agreed.contains(&name.as_str()))
        .collect();
    assert!(
        strangers.is_empty(),
        "not agreed at the top level: {strangers:?}"
    );
}
