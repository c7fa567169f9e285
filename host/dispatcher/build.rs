//! Lists what `dispatcher plugin new` writes, so that a file added to a template, the guest SDK or
//! the contract is in the program without being named. Knows where they lie, not what they say.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The contract.
const CONTRACT: &str = "wit";
/// The interfaces of WASI for keys with values and for settings.
const KEYVALUE: &str = "host/wasm/src/capability/store/wit";
const CONFIG: &str = "guest-sdk/wasi";

/// A language, a file or folder of the repository, and where it goes in a project.
const PARTS: &[(&str, &str, &str)] = &[
    ("rust", "plugins/templates/rust/README.md", "README.md"),
    ("rust", "plugins/templates/rust/.gitignore", ".gitignore"),
    // Under another name there, since it is no crate before it has its own name.
    ("rust", "plugins/templates/rust/manifest.toml", "Cargo.toml"),
    ("rust", "plugins/examples/order-check/src", "src"),
    (
        "rust",
        "guest-sdk/Cargo.toml",
        "dispatcher-guest/Cargo.toml",
    ),
    ("rust", "guest-sdk/src", "dispatcher-guest/src"),
    ("rust", "guest-sdk/macros", "dispatcher-guest/macros"),
    // For the person who reads it, and for the SDK, wherever it looks.
    ("rust", CONTRACT, "wit"),
    ("rust", CONTRACT, "dispatcher-guest/wit"),
    ("javascript", "plugins/templates/javascript", ""),
    ("javascript", "guest-sdk/javascript", "dispatcher-guest"),
    ("javascript", CONTRACT, "wit/deps/dispatcher-plugin"),
    ("javascript", KEYVALUE, "wit/deps/wasi-keyvalue"),
    ("javascript", CONFIG, "wit/deps/wasi-config"),
    ("typescript", "plugins/templates/typescript", ""),
    ("typescript", "guest-sdk/javascript", "dispatcher-guest"),
    ("typescript", "plugins/templates/javascript/wit", "wit"),
    ("typescript", CONTRACT, "wit/deps/dispatcher-plugin"),
    ("typescript", KEYVALUE, "wit/deps/wasi-keyvalue"),
    ("typescript", CONFIG, "wit/deps/wasi-config"),
    ("python", "plugins/templates/python", ""),
    (
        "python",
        "guest-sdk/python/dispatcher_guest",
        "dispatcher_guest",
    ),
    ("python", CONTRACT, "wit/deps/dispatcher-plugin"),
    ("python", KEYVALUE, "wit/deps/wasi-keyvalue"),
    ("python", CONFIG, "wit/deps/wasi-config"),
    ("go", "plugins/templates/go", ""),
    ("go", CONTRACT, "wit/deps/dispatcher-plugin"),
    ("go", KEYVALUE, "wit/deps/wasi-keyvalue"),
    ("go", CONFIG, "wit/deps/wasi-config"),
    ("c", "plugins/templates/c", ""),
    ("c", CONTRACT, "wit/deps/dispatcher-plugin"),
    ("c", KEYVALUE, "wit/deps/wasi-keyvalue"),
    ("c", CONFIG, "wit/deps/wasi-config"),
];

fn main() {
    let host = env::var("CARGO_MANIFEST_DIR").expect("cargo says where the crate is");
    let root = Path::new(&host)
        .ancestors()
        .nth(2)
        .expect("it is in the repository");
    let mut table = String::from("&[\n");
    for (language, from, to) in PARTS {
        let from = root.join(from);
        println!("cargo:rerun-if-changed={}", from.display());
        for (name, file) in files(&from) {
            let name = match (to.is_empty(), name.is_empty()) {
                (true, _) => name,
                (_, true) => (*to).to_owned(),
                _ => format!("{to}/{name}"),
            };
            writeln!(
                table,
                "File {{ language: {language:?}, path: {name:?}, bytes: include_bytes!({file:?}) }},"
            )
            .expect("a string takes everything");
        }
    }
    table.push(']');
    let out = env::var("OUT_DIR").expect("cargo says where to write");
    fs::write(Path::new(&out).join("templates.rs"), table).expect("the folder is ours");
}

/// Every file of a folder by its path in it; of a file itself, without a path.
fn files(from: &Path) -> Vec<(String, PathBuf)> {
    if from.is_file() {
        return vec![(String::new(), from.to_owned())];
    }
    let mut found = Vec::new();
    let entries = fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    for entry in entries {
        let path = entry.expect("a readable entry").path();
        let name = path
            .file_name()
            .expect("it has one")
            .to_string_lossy()
            .into_owned();
        // Python writes the first beside its sources; the page of the contract stays here.
        if name == "__pycache__" || path.ends_with("wit/README.md") {
            continue;
        }
        found.extend(files(&path).into_iter().map(|(below, file)| {
            if below.is_empty() {
                (name.clone(), file)
            } else {
                (format!("{name}/{below}"), file)
            }
        }));
    }
    found.sort();
    found
}
