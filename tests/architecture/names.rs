//! Who may name what: each library has its folder, each effect its file.

use crate::tree::{files, nothing_wrong, read, sources};

/// What is named, and the only places under `host/src` that may name it.
const HOMES: &[(&str, &[&str])] = &[
    ("wasmtime", &["plugin/"]),
    ("wasmparser", &["plugin/"]),
    ("aws_config", &["aws/"]),
    ("aws_sdk_sqs", &["queue/sqs/"]),
    (
        "aws_sdk_dynamodb",
        &["queue/dynamodb/", "schedule/dynamodb/"],
    ),
    ("aws_sdk_lambda", &["aws/"]),
    ("aws_sdk_cloudwatch", &["aws/"]),
    (
        "aws_sdk_",
        &[
            "aws/",
            "queue/sqs/",
            "queue/dynamodb/",
            "schedule/dynamodb/",
        ],
    ),
    ("aws_smithy", &["aws/", "queue/sqs/", "queue/dynamodb/"]),
    (
        "hyper_util",
        &["aws/", "http.rs", "plugin/capability/http/"],
    ),
    ("hyper_rustls", &["plugin/capability/http/"]),
    ("axum", &["http.rs", "admin/", "served/"]),
    ("form_urlencoded", &["served/"]),
    (
        "rusqlite",
        &[
            "sqlite.rs",
            "sqlite/",
            "queue/local/",
            "idempotency/local/",
            "schedule/local/",
            "keyvalue/local/",
        ],
    ),
    ("croner", &["schedule/cron.rs"]),
    ("jiff", &["schedule/cron.rs", "schedule/when.rs"]),
    ("notify::", &["queue/local/", "app/replace/watch.rs"]),
    ("oci_client", &["image/registry.rs"]),
    ("reqwest", &["image/registry.rs"]),
    ("docker_credential", &["image/registry.rs"]),
    (
        "redis::",
        &[
            "redis/",
            "queue/redis/",
            "schedule/redis/",
            "keyvalue/redis/",
        ],
    ),
    ("rustls::", &["redis/"]),
    ("tokio_rustls", &["redis/"]),
    ("rustls_native_certs", &["redis/"]),
    ("crossbeam", &["executor/pool/"]),
    ("clap", &["cli/"]),
    ("mimalloc", &["main.rs"]),
    ("indicatif", &["telemetry/"]),
    ("tracing_subscriber", &["telemetry/"]),
    ("toml::", &["config/"]),
    ("tokio::spawn", &["tasks.rs"]),
    ("spawn_blocking", &["tasks.rs"]),
    ("JoinSet", &["tasks.rs"]),
    ("Instant::now", &["clock.rs"]),
    ("SystemTime::now", &["clock.rs"]),
    ("clock_gettime", &["clock.rs"]),
    ("setrlimit", &["files.rs"]),
    // SQLite's busy handler is told to wait, on a thread of its own.
    ("thread::sleep", &["sqlite.rs", "sqlite/"]),
    ("process::exit", &["app/drain.rs"]),
];

#[test]
fn every_library_and_effect_has_its_place() {
    let mut complaints = Vec::new();
    for (name, text) in sources("host/src") {
        let place = name.trim_start_matches("host/src/");
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
        // `redis::` is the library, `queue::redis::` a folder of ours.
        let within = word.ends_with("::") && before == Some(':');
        !within && before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
    })
}

#[test]
fn nothing_is_left_for_later_in_the_code() {
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
fn guests_know_the_sdk_and_never_the_host() {
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
