//! Components that were built against released versions of the contract still run as they did.

use dispatcher_tests::child::Program;
use serde_json::{Value, json};

/// Components as they were built with a version of the contract; they are never built again.
fn component(version: &str, name: &str) -> String {
    let here = env!("CARGO_MANIFEST_DIR");
    format!("{here}/released/{version}/{name}.wasm")
}

fn invoke(version: &str, name: &str, body: &str, more: &[&str]) -> Value {
    let component = component(version, name);
    let mut arguments = vec!["plugin", "invoke", &component, body, "--json"];
    arguments.extend(more);
    let ended = Program::new(arguments).aws("http://127.0.0.1:9").run();
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn components_of_version_0_1_still_run() {
    let verdicts = |name, body| invoke("v0.1", name, body, &[]);
    assert_eq!(verdicts("verdicts", "done"), json!({ "verdict": "done" }));
    let retry = verdicts("verdicts", "retry:1500");
    assert_eq!(
        (&retry["verdict"], &retry["after_ms"]),
        (&json!("retry"), &json!(1500))
    );
    let reject = json!({ "verdict": "reject", "why": "no" });
    assert_eq!(verdicts("verdicts", "reject:no"), reject);
    assert_eq!(verdicts("batch-verdicts", "reject:no"), reject);
    assert_eq!(
        verdicts("batch-verdicts", "done"),
        json!({ "verdict": "done" })
    );
    // Asynchronous, with the twins that are. Nothing is invoked.
    let asynchronous = invoke("v0.1", "commands", "done", &["--allow-lambda", "none"]);
    assert_eq!(asynchronous, json!({ "verdict": "done" }));
    let echo = verdicts("verdicts", "echo-message")["why"].to_string();
    for known in [
        "receive-count: 1",
        "queue: \\\"invoke\\\"",
        "attributes: []",
    ] {
        assert!(echo.contains(known), "{known}: {echo}");
    }
    // What was granted is granted in the same words.
    let more = ["--allow-send", "local:reminders"];
    let order = r#"{"id":"1","customer":"ann"}"#;
    let sent = invoke("v0.1", "reminder", order, &more);
    assert_ne!(sent["verdict"], "busy", "{sent}");
    let not_granted = invoke("v0.1", "reminder", order, &["--allow-send", "local:others"]);
    assert_ne!(not_granted["verdict"], "done", "{not_granted}");
}
