//! Instances of a plugin: how many there are is told, and those that were made
//! ahead are taken.

use crate::lambda::scene::admin;
use crate::scene::{run, send, until_depth};
use dispatcher_tests::child::RunningProgram;
use dispatcher_tests::{PATIENCE, http};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Returns once `/plugins` says this of the only plugin's instances.
fn until(running: &RunningProgram, wanted: impl Fn(&Value) -> bool) {
    let url = format!("{}/plugins", admin(running));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown: Value = serde_json::from_str(&http::get(&url).body).expect("it is JSON");
        let instances = &shown["plugins"][0]["instances"];
        if wanted(instances) {
            return;
        }
        assert!(Instant::now() < deadline, "{shown}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn instances_are_prewarmed_and_reported() {
    let more = ["--warm", "3", "--admin", "127.0.0.1:0"];
    let running = run("verdicts", &more).start();
    let data = running.data().path().to_owned();
    let rests = |instances: &Value| {
        let bytes = instances["idle_memory_bytes"].as_u64().unwrap_or_default();
        instances["idle"] == 3 && instances["running"] == 0 && bytes >= 3 * (64 << 10)
    };
    until(&running, rests);
    send(&data, "default", ["sleep:600000".into(), "done".into()]).await;
    until_depth(&data, "default", |depth| {
        (depth.waiting, depth.in_flight) == (0, 1)
    })
    .await;
    until(&running, |instances| {
        instances["running"] == 1 && instances["idle"] == 3
    });
    let metrics = http::get(&format!("{}/metrics", admin(&running))).body;
    for (state, wanted) in [("running", 1), ("idle", 3)] {
        let end = format!("state=\"{state}\"}} {wanted}");
        let mut lines = metrics.lines();
        let told =
            |line: &str| line.starts_with("dispatcher_plugin_instances{") && line.ends_with(&end);
        assert!(lines.any(told), "{metrics}");
    }
    // Dropped, it is killed: what sleeps would hold a stop up.
    drop(running);
}
