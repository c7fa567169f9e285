//! Imports go down: between crates as their manifests say, which cargo enforces, and between the
//! modules of a crate as the table here says.

use crate::tree::{files, nothing_wrong, read, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Which of our crates each crate under `host/` may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("sqlite", &["core"]),
    ("http", &["core"]),
    ("aws", &["core"]),
    ("backends/local", &["core", "sqlite"]),
    ("backends/redis", &["core"]),
    ("backends/postgres", &["core"]),
    ("backends/dynamodb", &["core", "aws"]),
    ("backends/sqs", &["core", "aws"]),
    ("backends/directory", &["core"]),
    ("wasm", &["core"]),
    ("served", &["core", "http", "backends/local"]),
    ("trials", &["core"]),
    ("telemetry", &["core", "aws"]),
    (
        "config",
        &[
            "core",
            "aws",
            "backends/local",
            "backends/redis",
            "backends/postgres",
            "backends/dynamodb",
            "backends/sqs",
            "wasm",
            "telemetry",
            "trials",
        ],
    ),
    ("operate", &["core", "trials"]),
    (
        "console",
        &["core", "http", "telemetry", "config", "operate"],
    ),
    (
        "dispatcher",
        &[
            "core",
            "sqlite",
            "aws",
            "wasm",
            "served",
            "telemetry",
            "trials",
            "config",
            "operate",
            "console",
        ],
    ),
];

/// From the top down: modules of one crate, and whether they may import each other.
type Layers = &'static [(&'static [&'static str], bool)];

/// From the top down, for the crates with many modules: a layer's modules, and whether they may
/// import each other. A line may import the lines below it.
const LAYERS: &[(&str, Layers)] = &[
    (
        "dispatcher",
        &[
            (&["main", "lib", "cli"], true),
            (&["error"], false),
            (&["app"], true),
            (&["registry"], false),
        ],
    ),
    (
        "console",
        &[
            (&["lib"], false),
            (&["dashboard"], false),
            (&["api"], false),
            (&["depths"], false),
            (&["audit"], false),
            (&["access", "session"], true),
            (&["host", "state", "problem"], false),
        ],
    ),
    (
        "core",
        &[
            (&["lib"], false),
            (&["intake", "executor", "settlement"], false),
            (&["spans"], false),
            (&["job"], false),
            (&["scheduler"], false),
            (&["throttle"], true),
            (&["lease"], false),
            (&["backend"], false),
            (&["account"], false),
            (&["fleet"], false),
            (
                &[
                    "queue",
                    "filter",
                    "envelope",
                    "idempotency",
                    "schedule",
                    "keyvalue",
                    "handler",
                    "lambda",
                    "control",
                ],
                false,
            ),
            (&["message"], false),
            (&["telemetry"], false),
            (
                &["clock", "tasks", "backoff", "files", "memory", "process"],
                false,
            ),
            (&["error_kind", "json"], false),
            // Only in tests: what fuzz targets beside the code build on.
            (&["fuzz"], false),
        ],
    ),
    (
        "wasm",
        &[
            (&["lib", "fuzz"], false),
            (&["load"], false),
            (&["inspect"], false),
            (&["diagnosis", "unawaited"], false),
            (&["skeleton"], false),
            (&["handle"], false),
            (&["ahead"], false),
            (&["plugin"], false),
            (&["shared", "idle"], false),
            (&["instance"], false),
            (&["runtime"], false),
            (&["engines"], false),
            (&["functions", "compiled"], false),
            (&["report"], false),
            (&["failure_reason"], false),
            (&["world"], false),
            (&["guest"], false),
            (&["underway", "capability"], false),
            (
                &["attempt", "causes", "problem", "scene", "layout", "wrap"],
                false,
            ),
            (
                &[
                    "limits",
                    "output",
                    "invocation_limit",
                    "admission",
                    "reuse",
                    "warm",
                    "epoch",
                    "io",
                ],
                false,
            ),
            (&["tally"], false),
            // Only in tests: what the tests of capabilities build on.
            (&["tests"], false),
        ],
    ),
];

/// The only place of the program that may name a backend's crate.
const NAMES_BACKENDS: &str = "host/config/src/backends.rs";

/// The only places of the wasm crate that may name a capability, beside its own folder, the registry and
/// tests, and which ones: an instance itself opens a folder, checks addresses, sends requests and has
/// variables.
const NAMES_CAPABILITIES: &[(&str, &[&str])] = &[
    ("caller.rs", &["http"]),
    ("guest.rs", &["folder", "http", "network", "variables"]),
    ("lib.rs", &["http", "network"]),
    ("runtime.rs", &["http"]),
];

/// Our crates that a manifest's `[dependencies]` name, by their folders under `host/`.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let part = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let part = part.split("\n[").next().unwrap_or_default();
    let named = part.lines().filter_map(|line| {
        let name = line.strip_prefix("dispatcher-")?;
        let end = name.find(|c: char| !c.is_alphanumeric())?;
        Some(folder(&name[..end]))
    });
    named.collect()
}

/// A crate's folder under `host/`, by its name without `dispatcher-`.
fn folder(name: &str) -> String {
    let backend = format!("backends/{name}");
    if CRATES.iter().any(|(folder, _)| *folder == backend) {
        return backend;
    }
    name.to_owned()
}

#[test]
fn crate_dependencies_are_as_agreed() {
    let agreed: BTreeMap<&str, BTreeSet<String>> = CRATES
        .iter()
        .map(|(name, below)| (*name, below.iter().map(|one| (*one).to_owned()).collect()))
        .collect();
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, path) in files("host", |name| name.ends_with("Cargo.toml")) {
        let own = name
            .trim_start_matches("host/")
            .trim_end_matches("/Cargo.toml");
        seen.insert(own.to_owned());
        let found = dependencies(&read(&path));
        match agreed.get(own) {
            None => complaints.push(format!("{own}: add it to the table in this file")),
            Some(agreed) if *agreed != found => complaints.push(format!(
                "{own}: its manifest names {found:?}, agreed was {agreed:?}"
            )),
            Some(_) => {}
        }
    }
    assert_eq!(seen.len(), CRATES.len(), "{seen:?}");
    nothing_wrong(&complaints);
}

fn layer(layers: Layers, module: &str) -> usize {
    let at = layers
        .iter()
        .position(|(modules, _)| modules.contains(&module));
    at.unwrap_or_else(|| panic!("`{module}` stands in no layer: add it to the table in this file"))
}

/// The first part of every path in a source that begins with `root::`, with its line. Groups at the
/// root are taken apart: `crate::{app, name::Place}`.
fn imports(text: &str, root: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (at, _) in code.match_indices(root) {
            let path = &code[at + root.len()..];
            let first = |path: &str| -> String {
                path.chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect()
            };
            let names: Vec<String> = match path.strip_prefix('{') {
                Some(group) => {
                    let group = group.split('}').next().unwrap_or_default();
                    group.split(',').map(|part| first(part.trim())).collect()
                }
                None => vec![first(path)],
            };
            let modules = names
                .into_iter()
                .filter(|name| name.starts_with(|c: char| c.is_lowercase()));
            found.extend(modules.map(|name| (number + 1, name)));
        }
    }
    found
}

/// The modules at the crate's root that a file imports by `super`, with their lines. `depth` is that
/// of the file's own module; what is indented may be in a module within it.
fn imports_by_super(text: &str, depth: usize) -> Vec<(usize, String)> {
    let root = format!("use {}", "super::".repeat(depth));
    let begins = |line: &&str| line.starts_with("use ") || line.starts_with("pub");
    let lines = text.lines();
    let lines = lines.map(|line| Some(line).filter(begins).unwrap_or_default());
    let lines: Vec<&str> = lines.collect();
    imports(&lines.join("\n"), &root)
}

#[test]
fn imports_go_down() {
    let mut complaints = Vec::new();
    for (own_crate, layers) in LAYERS {
        let folder = format!("host/{own_crate}/src");
        // What only tests share looks at everything.
        let shared_by_tests = format!("{folder}/tests/");
        let all = sources(&folder).into_iter();
        for (name, text) in all.filter(|(name, _)| !name.starts_with(&shared_by_tests)) {
            let within = name.trim_start_matches(&format!("{folder}/"));
            let module = within.trim_end_matches(".rs").trim_end_matches("/mod");
            let own = module.split('/').next().unwrap_or_default();
            let mut found = imports(&text, "crate::");
            found.extend(imports_by_super(&text, module.split('/').count()));
            for (line, other) in found {
                let (up, down) = (layer(layers, own), layer(layers, &other));
                if own != other && up >= down && !(up == down && layers[up].1) {
                    complaints.push(format!("{name}:{line}: `{own}` must not import `{other}`"));
                }
            }
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn backends_are_named_in_one_place() {
    let mut complaints = Vec::new();
    let backends: Vec<&str> = CRATES
        .iter()
        .filter_map(|(name, _)| name.strip_prefix("backends/"))
        .collect();
    for (name, text) in sources("host/dispatcher/src") {
        // Their tests may open one.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        if name == NAMES_BACKENDS {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for backend in &backends {
                if line.contains(&format!("dispatcher_{backend}::")) {
                    let number = number + 1;
                    complaints.push(format!(
                        "{name}:{number}: only {NAMES_BACKENDS} may name dispatcher_{backend}"
                    ));
                }
            }
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn capabilities_are_named_in_few_places() {
    const FOLDER: &str = "host/wasm/src/capability";
    let all = files(FOLDER, |name| name.ends_with("/mod.rs"));
    let folders: BTreeSet<&str> = all
        .iter()
        .filter_map(|(name, _)| name.strip_prefix(FOLDER)?.split('/').nth(1))
        .filter(|name| !["mod.rs", "registry"].contains(name))
        .collect();
    assert!(folders.len() >= 8, "{folders:?}");
    let mut complaints = Vec::new();
    let registry = format!("{FOLDER}/registry/mod.rs");
    let all = sources("host/wasm/src").into_iter();
    for (name, text) in all.filter(|(name, _)| *name != registry) {
        let within = name.trim_start_matches("host/wasm/src/");
        let mut found = imports(&text, "capability::");
        let own = match within.strip_prefix("capability/") {
            Some(own) => {
                let module = own.trim_end_matches(".rs").trim_end_matches("/mod");
                found.extend(imports_by_super(&text, module.split('/').count()));
                own
            }
            None => within,
        };
        let agreed = NAMES_CAPABILITIES.iter().find(|(file, _)| *file == own);
        let agreed = agreed.map_or(&[][..], |(_, agreed)| agreed);
        let own = own.split('/').next().unwrap_or_default();
        for (line, other) in found {
            let is_other = other != own && folders.contains(&*other);
            if is_other && !within.contains("tests") && !agreed.contains(&&*other) {
                complaints.push(format!("{name}:{line}: must not name capability `{other}`"));
            }
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn layer_check_detects_violations() {
    let text = "use crate::{queue, app::Shared};\nlet x = crate::lease::Lease; // crate::cli\n";
    let found: Vec<String> = imports(text, "crate::")
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    assert_eq!(found, ["queue", "app", "lease"]);
    let text = "use super::super::lease;\npub(crate) use super::super::{app, queue};\nuse super::job;\n    use super::super::tests;\n";
    let found: Vec<_> = imports_by_super(text, 2);
    let expected = [(1, "lease"), (2, "app"), (2, "queue")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
    let core = LAYERS
        .iter()
        .find(|(name, _)| *name == "core")
        .expect("it is there")
        .1;
    assert!(layer(core, "lease") > layer(core, "executor"));
    let manifest = "[dependencies]\ndispatcher-core.workspace = true\ndispatcher-sqs = { workspace = true }\n\n[dev-dependencies]\ndispatcher-wasm.workspace = true\n";
    assert_eq!(
        dependencies(manifest).into_iter().collect::<Vec<_>>(),
        ["backends/sqs", "core"]
    );
}
