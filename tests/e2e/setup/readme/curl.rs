//! The calls of the admin API that pages show work as they are written.

use super::{blocks, read};
use crate::operator::admin_api::ApiScene;
use crate::scene::run;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::skip::skip;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A shell runs these lines; what was printed.
fn shell(lines: &str, folder: &Path, admin: &str) -> String {
    let ended = Command::new("sh")
        .args(["-euc", lines])
        .current_dir(folder)
        .env("ADMIN", admin)
        .output()
        .expect("sh");
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{lines}: {ended:?}");
    printed
}

#[test]
fn the_curl_examples_of_the_admin_api_are_answered() {
    if Command::new("curl").arg("--version").output().is_err() {
        skip("the examples of the admin API need curl");
        return;
    }
    let page = read("host/docs/admin-api.md");
    let data = Arc::new(tempfile::tempdir().expect("a folder"));
    let store = LocalStore::open(data.path()).expect("the store opens");
    for name in ["orders", "orders.dead"] {
        drop(store.queue(name, None).expect("the queue opens"));
    }
    std::fs::write(data.path().join("admin-token"), "operator").expect("written");
    let more = ["--queues", "local:orders"];
    let mut scene = ApiScene::of(|flags| run("verdicts", flags).sharing(&data), &more);
    let mut tried = 0;
    for block in blocks(&page, "sh") {
        let joined = block.replace("\\\n", " ");
        for line in joined.lines().filter(|line| line.starts_with("curl ")) {
            let printed = shell(&format!("{line} --fail --silent"), data.path(), &scene.url);
            let answer: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
            assert!(answer.is_object(), "{line}: {answer}");
            tried += 1;
        }
    }
    assert!(tried >= 5, "the examples were not found");
    scene.running.stop();
}
