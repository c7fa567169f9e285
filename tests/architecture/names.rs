//! Who may name what: each library has its folder, each effect its file.

use crate::tree::{files, nothing_wrong, read, root, sources};
use std::collections::BTreeMap;
use syn::visit::Visit;

/// What is named, and the only places under `host` that may name it.
const HOMES: &[(&str, &[&str])] = &[
    ("wasmtime", &["wasm/", "benches/attempt.rs"]),
    ("wasmparser", &["wasm/"]),
    ("aws_config", &["aws/"]),
    ("aws_sdk_sqs", &["backends/sqs/queue/"]),
    (
        "aws_sdk_dynamodb",
        &[
            "backends/dynamodb/queue/",
            "backends/dynamodb/schedule/",
            "backends/dynamodb/fleet/",
        ],
    ),
    ("aws_sdk_lambda", &["aws/"]),
    ("aws_sdk_cloudwatch", &["aws/"]),
    (
        "aws_sdk_",
        &[
            "aws/",
            "backends/sqs/queue/",
            "backends/dynamodb/queue/",
            "backends/dynamodb/schedule/",
            "backends/dynamodb/fleet/",
        ],
    ),
    (
        "aws_smithy",
        &[
            "aws/",
            "backends/sqs/queue/",
            "backends/dynamodb/queue/",
            "backends/dynamodb/fleet/",
        ],
    ),
    (
        "hyper_util",
        &["http/lib.rs", "aws/http.rs", "wasm/capability/http/"],
    ),
    ("hyper_rustls", &["wasm/capability/http/"]),
    ("axum", &["http/lib.rs", "console/", "served/"]),
    (
        "form_urlencoded",
        &[
            "served/",
            "console/api/query.rs",
            "console/dashboard/",
            "dispatcher/cli/admin.rs",
        ],
    ),
    ("crc32fast", &["wasm/functions.rs"]),
    ("maud", &["console/dashboard/"]),
    ("hmac", &["console/session.rs"]),
    ("jsonwebtoken", &["console/access/signed_header.rs"]),
    (
        "rusqlite",
        &[
            "sqlite/lib.rs",
            "sqlite/",
            "backends/local/queue/",
            "backends/local/idempotency/",
            "backends/local/schedule/",
            "backends/local/keyvalue/",
            "backends/local/fleet/",
        ],
    ),
    ("croner", &["core/schedule/cron/mod.rs"]),
    (
        "jiff",
        &["core/schedule/cron/mod.rs", "core/schedule/when.rs"],
    ),
    (
        "notify::",
        &["backends/local/queue/", "dispatcher/app/watch.rs"],
    ),
    ("oci_client", &["dispatcher/registry.rs"]),
    (
        "reqwest",
        &[
            "console/access/proxy_keys.rs",
            "dispatcher/registry.rs",
            "dispatcher/cli/admin.rs",
            "telemetry/otlp/transport.rs",
        ],
    ),
    ("prost", &["telemetry/otlp/"]),
    ("docker_credential", &["dispatcher/registry.rs"]),
    (
        "redis::",
        &[
            "backends/redis/server/",
            "backends/redis/queue/",
            "backends/redis/schedule/",
            "backends/redis/keyvalue/",
            "backends/redis/fleet/",
        ],
    ),
    ("tokio_postgres", &["backends/postgres/"]),
    ("deadpool_postgres", &["backends/postgres/server/"]),
    (
        "rustls::",
        &[
            "backends/redis/server/",
            "backends/postgres/server/",
            "aws/trust.rs",
        ],
    ),
    ("tokio_rustls", &["backends/redis/server/"]),
    (
        "rustls_native_certs",
        &["backends/redis/server/", "backends/postgres/server/"],
    ),
    ("crossbeam", &["core/executor/pool/"]),
    ("clap", &["dispatcher/cli/"]),
    ("mimalloc", &["dispatcher/main.rs"]),
    ("indicatif", &["telemetry/"]),
    ("tracing_subscriber", &["telemetry/"]),
    ("toml::", &["config/"]),
    ("tokio::spawn", &["core/tasks.rs"]),
    ("spawn_blocking", &["core/tasks.rs"]),
    ("JoinSet", &["core/tasks.rs"]),
    ("Instant::now", &["core/clock/mod.rs"]),
    ("SystemTime::now", &["core/clock/mod.rs"]),
    ("clock_gettime", &["core/clock/mod.rs"]),
    ("setrlimit", &["core/files/mod.rs"]),
    // SQLite's busy handler is told to wait, on its own thread.
    ("thread::sleep", &["sqlite/lib.rs", "sqlite/"]),
    ("process::exit", &["dispatcher/app/drain.rs"]),
];

#[test]
fn every_library_and_effect_is_used_only_where_agreed() {
    let mut complaints = Vec::new();
    for (name, text) in sources("host") {
        let place = name.trim_start_matches("host/").replacen("/src/", "/", 1);
        if !name.contains("/src/") {
            continue;
        }
        // Tests may build what they test against.
        let test = place.contains("test");
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for (word, homes) in HOMES {
                let at_home = homes.iter().any(|home| place.starts_with(home));
                if !at_home && !test && names(code, word) {
                    complaints.push(format!(
                        "{name}:{}: only {homes:?} may name `{word}`",
                        number + 1
                    ));
                }
            }
        }
    }
    nothing_wrong(&complaints);
}

/// Whether code names a word: where it begins a word, outside of string literals.
fn names(code: &str, word: &str) -> bool {
    let outside: String = code.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    outside.match_indices(word).any(|(at, _)| {
        let before = outside[..at].chars().next_back();
        // `redis::` is the library, `queue::redis::` our folder.
        let within = word.ends_with("::") && before == Some(':');
        !within && before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
    })
}

#[test]
fn code_has_no_todo() {
    let marks = ["TO", "FIX", "XX"].map(|start| match start {
        "TO" => "TODO",
        "FIX" => "FIXME",
        _ => "XXX",
    });
    let mut complaints = Vec::new();
    for folder in ["host", "guest-sdk", "plugins", "tests"] {
        for (name, text) in sources(folder) {
            if name.ends_with("architecture/names.rs") {
                continue;
            }
            for (number, line) in text.lines().enumerate() {
                if marks.iter().any(|mark| line.contains(mark)) || line.contains("unimplemented!") {
                    complaints.push(format!("{name}:{}: {}", number + 1, line.trim()));
                }
            }
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn guests_depend_on_the_sdk_and_never_on_the_host() {
    let mut complaints = Vec::new();
    for folder in ["guest-sdk", "plugins"] {
        for (name, path) in files(folder, |name| name.ends_with("Cargo.toml")) {
            let text = read(&path);
            if text.contains("host\"") || text.contains("wasmtime") {
                complaints.push(format!("{name} depends on the host"));
            }
        }
    }
    nothing_wrong(&complaints);
}

/// Names that mean the same wherever they stand.
const CONVENTIONAL: &[&str] = &["Args", "Command", "Error", "Request", "Response"];

/// The types that a file defines; an associated type is part of its trait.
#[derive(Default)]
struct Types(Vec<String>);

impl<'a> Visit<'a> for Types {
    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.0.push(item.ident.to_string());
    }
}

#[test]
fn type_name_is_defined_at_most_three_times() {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in ["host", "guest-sdk/src", "tests"] {
        for (file, text) in sources(folder) {
            let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
            let mut types = Types::default();
            types.visit_file(&parsed);
            for name in types.0 {
                defined.entry(name).or_default().push(file.clone());
            }
        }
    }
    assert!(defined.contains_key("Scheduler"), "types are seen");
    let mut complaints = Vec::new();
    for (name, files) in defined {
        if files.len() > 3 && !CONVENTIONAL.contains(&name.as_str()) {
            complaints.push(format!("`{name}` is defined in {}", files.join(", ")));
        }
    }
    nothing_wrong(&complaints);
}

/// What a record of the log has besides its fields, and `id`, which does not say of what.
const RESERVED_FIELDS: &[&str] = &["timestamp", "level", "message", "target", "id"];

/// The fields that the log macros of a file set.
#[derive(Default)]
struct LogFields(Vec<String>);

impl<'a> Visit<'a> for LogFields {
    fn visit_macro(&mut self, call: &'a syn::Macro) {
        if call
            .path
            .segments
            .first()
            .is_none_or(|first| first.ident != "tracing")
        {
            return;
        }
        let tokens = call.tokens.clone().into_iter().map(|one| one.to_string());
        let tokens: Vec<String> = tokens.filter(|one| one != "%" && one != "?").collect();
        for argument in tokens.split(|one| one == ",") {
            if let [field] | [field, "=", ..] =
                &argument.iter().map(String::as_str).collect::<Vec<_>>()[..]
            {
                self.0.push((*field).to_owned());
            }
        }
    }
}

#[test]
fn finding_05_no_log_field_has_a_name_of_the_record() {
    let mut complaints = Vec::new();
    let mut count = 0;
    for (file, text) in sources("host") {
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut fields = LogFields::default();
        fields.visit_file(&parsed);
        count += fields.0.len();
        let reserved = fields
            .0
            .iter()
            .filter(|one| RESERVED_FIELDS.contains(&one.as_str()));
        complaints.extend(reserved.map(|field| format!("{file} logs a field `{field}`")));
    }
    assert!(count > 200, "the fields were not found: {count}");
    nothing_wrong(&complaints);
}

/// Below this version the scan finds only pages that are present, and a page that is swapped out or on
/// the move keeps what an earlier message left there.
const SOUND_SCAN: u64 = 50;

/// The oldest version of the engine that the workspace is built with.
fn engine() -> u64 {
    let lock = read(&root().join("Cargo.lock"));
    let versions = lock.split("[[package]]").filter_map(|package| {
        let (_, entry) = package.split_once("name = \"wasmtime\"\nversion = \"")?;
        entry.split('.').next()?.parse().ok()
    });
    versions.min().expect("the engine is locked")
}

#[test]
fn no_engine_below_50_scans_for_written_pages() {
    if engine() >= SOUND_SCAN {
        return;
    }
    let off = "pagemap_scan(Enabled::No)";
    let mut complaints = Vec::new();
    let mut pools = 0;
    for (name, text) in ["host", "tests"].into_iter().flat_map(sources) {
        if name.starts_with("tests/architecture/") {
            continue;
        }
        let made = text.matches("PoolingAllocationConfig::new()").count();
        let made = made + text.matches("PoolingAllocationConfig::default()").count();
        pools += made;
        if text.matches(off).count() < made {
            complaints.push(format!("{name}: turn the scan of each pool off by `{off}`"));
        }
        let others = text.replace(off, "").replace("get_pagemap_scan", "");
        if others.contains("pagemap_scan") {
            complaints.push(format!("{name}: scans for written pages, or may"));
        }
    }
    assert!(pools > 0, "the pools were not found");
    nothing_wrong(&complaints);
}
