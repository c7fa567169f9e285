//! Imports go down. A line of the table may import the lines below it, and itself unless its
//! members must not know each other.

use crate::tree::{nothing_wrong, sources};

/// From the top down: a layer's members by their path under `host/src`, and whether they may
/// import each other.
const LAYERS: &[(&[&str], bool)] = &[
    (&["main", "lib", "cli"], true),
    (&["error"], false),
    (&["app"], true),
    (&["admin", "served"], false),
    (&["config"], true),
    (&["intake", "executor", "settlement", "rollout"], false),
    (&["job"], false),
    (&["scheduler"], false),
    (&["throttle"], true),
    (&["lease"], false),
    (
        &[
            "queue/dynamodb",
            "queue/local",
            "queue/redis",
            "queue/sqs",
            "idempotency/local",
            "schedule/local",
            "schedule/dynamodb",
            "schedule/redis",
            "keyvalue/local",
            "keyvalue/redis",
            "plugin/host",
            "image/registry",
        ],
        false,
    ),
    (
        &["queue", "idempotency", "schedule", "keyvalue", "plugin"],
        false,
    ),
    // Tells receipts that were lost before their time.
    (&["redis"], false),
    // Beside the queues, not on the way of a message.
    (&["recording", "image"], false),
    (&["message"], false),
    (&["telemetry"], false),
    (&["http"], false),
    (&["sqlite"], false),
    (
        &["clock", "tasks", "backoff", "files", "memory", "aws"],
        false,
    ),
    (&["trouble"], false),
    // Only in tests: what fuzz targets beside the code stand on.
    (&["fuzz"], false),
];

/// The only places above an adapter that may name it.
const NAMES_ADAPTERS: &[&str] = &[
    "host/src/app/build",
    "host/src/cli/plugin",
    "host/src/served",
];

/// What of `plugin` is the port, and not what runs behind it.
const OF_THE_PORT: &[&str] = &["Attempt", "Handler", "HttpHost", "Peer", "Reuse", "Usage"];

/// The member that a file or an imported path belongs to.
fn member(path: &str) -> String {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let mut parts = path.split('/');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    match (first, second) {
        ("queue", Some(backend @ ("dynamodb" | "local" | "redis" | "sqs"))) => {
            format!("queue/{backend}")
        }
        ("idempotency", Some("local")) => "idempotency/local".into(),
        ("schedule", Some(store @ ("local" | "dynamodb" | "redis"))) => format!("schedule/{store}"),
        ("keyvalue", Some(store @ ("local" | "redis"))) => format!("keyvalue/{store}"),
        // The port is `plugin` itself; what runs behind it is beside it.
        ("plugin", Some(part)) if !OF_THE_PORT.contains(&part) => "plugin/host".into(),
        ("image", Some("registry")) => "image/registry".into(),
        (first, _) => first.to_owned(),
    }
}

fn layer(member: &str) -> usize {
    let at = LAYERS
        .iter()
        .position(|(members, _)| members.contains(&member));
    at.unwrap_or_else(|| panic!("`{member}` stands in no layer: add it to the table in this file"))
}

/// Every `crate::…` path in a source, as a slashed path of at most three parts, with its line.
/// Groups are taken apart one level deep: `crate::{app, queue::name}`.
fn imports(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (at, _) in code.match_indices("crate::") {
            let path = &code[at + "crate::".len()..];
            let mut push = |path: &str| {
                let end = path
                    .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                    .unwrap_or(path.len());
                let parts: Vec<&str> = path[..end]
                    .split("::")
                    .filter(|part| !part.is_empty())
                    .collect();
                if !parts.is_empty() {
                    found.push((number + 1, parts.join("/")));
                }
            };
            match path.split_once('{') {
                // `crate::plugin::{Attempt, load}`: each is named with what stands before it.
                Some((before, group))
                    if before
                        .chars()
                        .all(|c| c.is_alphanumeric() || c == '_' || c == ':') =>
                {
                    let group = group.split('}').next().unwrap_or_default();
                    group
                        .split(',')
                        .for_each(|part| push(&format!("{before}{}", part.trim())));
                }
                _ => push(path),
            }
        }
    }
    found
}

#[test]
fn imports_go_down() {
    let mut complaints = Vec::new();
    for (name, text) in sources("host/src") {
        let own = member(name.trim_start_matches("host/src/"));
        for (line, import) in imports(&text) {
            let other = member(&import);
            let adapter_at_home = NAMES_ADAPTERS.iter().any(|place| name.starts_with(place));
            let (up, down) = (layer(&own), layer(&other));
            let allowed = own == other || up < down || (up == down && LAYERS[up].1);
            if !allowed {
                complaints.push(format!(
                    "{name}:{line}: `{own}` must not import `{other}` ({import})"
                ));
            } else if other.contains('/') && own != other && !adapter_at_home {
                complaints.push(format!(
                    "{name}:{line}: only {NAMES_ADAPTERS:?} may name an adapter ({import})"
                ));
            }
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn the_check_sees_what_it_must_refuse() {
    let text = "use crate::queue::{Queue, sqs::Sqs};\nlet x = crate::app::run(); // crate::cli\n";
    let found: Vec<String> = imports(text)
        .into_iter()
        .map(|(_, path)| member(&path))
        .collect();
    assert_eq!(found, ["queue", "queue/sqs", "app"]);
    assert!(layer("lease") > layer("executor"));
}
