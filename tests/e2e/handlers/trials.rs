//! A second version of a plugin beside the first: on a share of the messages, or only compared; and
//! messages that are kept.

use crate::lambda::scene::admin;
use crate::operator::admin_api::ApiScene;
use crate::scene::{guest, prints, run, send, until_depth};
use dispatcher_tests::child::RunningProgram;
use dispatcher_tests::{PATIENCE, http};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// What `/plugins` says of the only plugin.
fn plugin(running: &RunningProgram) -> Value {
    let url = format!("{}/plugins", admin(running));
    let shown: Value = serde_json::from_str(&http::get(&url).body).expect("it is JSON");
    shown["plugins"][0].clone()
}

/// Returns once it says what is wanted.
fn until_plugin(running: &RunningProgram, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = plugin(running);
        if wanted(&shown) {
            return shown;
        }
        assert!(Instant::now() < deadline, "{shown}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

async fn empty(data: &Path) {
    until_depth(data, "default", |depth| {
        depth.waiting + depth.in_flight + depth.delayed == 0
    })
    .await;
}

#[tokio::test]
async fn a_canary_is_rolled_back_by_the_api_and_the_page() {
    let canary = guest("verdicts");
    let more = ["--canary", &canary, "--canary-share", "100%"];
    let mut scene = ApiScene::of(|flags| run("hello", flags), &more);
    send(scene.data(), "default", ["print:by the canary".to_owned()]).await;
    scene
        .running
        .wait_for_line(|line| line.contains("by the canary"));
    let operate = ("Authorization", "Bearer operator");
    let page = |path: &str| http::get_with(&format!("{}{path}", scene.url), &[operate]).body;
    assert!(page("/ui/plugins").contains("Roll the canary of hello back"));
    let asked = page("/ui/confirm/roll-back?target=hello");
    assert!(asked.contains("takes all messages again"), "{asked}");

    let (status, problem) = scene.ask("/api/v1/routes/other/rollback", "");
    assert_eq!(status, 404, "{problem}");
    let form = [
        operate,
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    let act = format!("{}/ui/act/roll-back", scene.url);
    let done = http::post(&act, &form, "target=hello&back=/ui/plugins");
    assert!((200..400).contains(&done.status), "{done:?}");
    scene
        .running
        .wait_for_line(|line| line.contains("canary rolled back on request"));
    let shown = scene.get("/api/v1/plugins")["items"][0].clone();
    assert_eq!(shown["plugin"]["canary"]["share"], 0.0, "{shown}");
    let (status, problem) = scene.ask("/api/v1/routes/hello/rollback", "");
    assert_eq!(status, 409, "{problem}");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("No canary of route `hello`"), "{detail}");
    assert!(!page("/ui/plugins").contains("Roll the canary of hello back"));
    send(scene.data(), "default", ["print:x".to_owned()]).await;
    empty(scene.data()).await;
    scene.running.stop();
    // `hello` prints bodies as they are.
    assert!(prints(&scene.running).contains(&"print:x".to_owned()));
    assert_eq!(scene.audit("admin action", 1).len(), 1);
}

#[tokio::test]
async fn failing_canary_is_rolled_back_and_a_changed_one_starts_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("canary.wasm");
    // Whatever it is told to do, `verdicts` does; `hello` is always done.
    std::fs::copy(guest("verdicts"), &file).expect("copied");
    let canary = file.display().to_string();
    let more = [
        "--canary",
        &canary,
        "--canary-share",
        "50%",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut running = run("hello", &more).start();
    let data = running.data().path().to_owned();
    send(&data, "default", (0..20).map(|_| "done".to_owned())).await;
    empty(&data).await;
    let shown = plugin(&running);
    assert_eq!(
        (&shown["canary"]["share"], &shown["canary"]["failed"]),
        (&0.5.into(), &0.into())
    );
    assert_eq!(
        shown["canary"]["attempts"].as_u64().expect("a count")
            + shown["canary"]["current_attempts"]
                .as_u64()
                .expect("a count"),
        20
    );
    // It traps now, and what it traps on is retried until the other version has it.
    send(&data, "default", (0..60).map(|_| "trap".to_owned())).await;
    running.wait_for_line(|line| line.contains("canary rolled back"));
    let page = http::get(&format!("{}/metrics", admin(&running))).body;
    let share = page
        .lines()
        .find(|line| line.starts_with("dispatcher_plugin_canary_share"));
    assert!(share.is_some_and(|line| line.ends_with(" 0")), "{page}");
    let shown = plugin(&running);
    let (tried, failed) = (&shown["canary"]["attempts"], &shown["canary"]["failed"]);
    send(&data, "default", (0..20).map(|_| "trap".to_owned())).await;
    empty(&data).await;
    let after = plugin(&running);
    assert_eq!(
        (&after["canary"]["attempts"], &after["canary"]["failed"]),
        (tried, failed)
    );
    // Another file is another trial.
    std::fs::copy(guest("hello"), &file).expect("copied");
    running.wait_for_line(|line| line.contains("replaced: new attempts"));
    let shown = until_plugin(&running, |shown| shown["canary"]["share"] == 0.5);
    assert_eq!(shown["canary"]["attempts"], 0);
    running.stop();
}

#[tokio::test]
async fn shadow_is_compared_and_has_no_side_effects() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = [
        "--record",
        &folder.path().display().to_string(),
        "--shadow",
        &guest("reminder"),
        "--allow-send",
        "local:reminders",
        "--admin",
        "127.0.0.1:0",
    ];
    // `reminder` sends a message for every order; its shadow is refused and rejects.
    let mut running = run("reminder", &more).start();
    let data = running.data().path().to_owned();
    send(&data, "default", (0..3).map(|n| format!("order {n}"))).await;
    let shown = until_plugin(&running, |shown| shown["shadow"]["closed"] == 3);
    assert_eq!(
        (&shown["shadow"]["different"], &shown["shadow"]["same"]),
        (&0.into(), &0.into())
    );
    until_plugin(&running, |shown| shown["recorded"]["kept"] == 3);
    let page = http::get(&format!("{}/metrics", admin(&running))).body;
    let kept = |line: &str| {
        let family = line.starts_with("dispatcher_plugin_recorded_total");
        family && line.ends_with("result=\"kept\"} 3")
    };
    assert!(page.lines().any(kept), "{page}");
    empty(&data).await;
    let sent = until_depth(&data, "reminders", |_| true).await;
    assert_eq!(sent.delayed, 3, "one for each, and none of the shadow's");
    let dead = until_depth(&data, "default.dead", |_| true).await;
    assert_eq!(dead.waiting, 0);
    running.stop();
}

#[tokio::test]
async fn shadow_that_uses_a_blocked_capability_is_reported() {
    for (shadow, granted, body) in [
        (
            "verdicts",
            ["--allow-connect", "127.0.0.1:9"],
            "connect:127.0.0.1:9",
        ),
        (
            "capable",
            ["--allow-http", "127.0.0.1"],
            "http GET http://127.0.0.1:9/",
        ),
        ("capable", ["--store", "seen=local:seen"], "get seen k"),
    ] {
        let shadow = guest(shadow);
        let more = [
            "--shadow",
            &shadow,
            granted[0],
            granted[1],
            "--admin",
            "127.0.0.1:0",
        ];
        let mut running = run("hello", &more).start();
        let data = running.data().path().to_owned();
        send(&data, "default", [body.to_owned()]).await;
        let shown = until_plugin(&running, |shown| {
            let count = |what: &str| shown["shadow"][what].as_u64().unwrap_or_default();
            count("same") + count("different") + count("closed") == 1
        });
        assert_eq!(shown["shadow"]["closed"], 1, "{body}: {shown}");
        running.stop();
    }
}

#[tokio::test]
async fn differing_shadow_answers_are_counted_and_logged() {
    let more = ["--shadow", &guest("verdicts"), "--admin", "127.0.0.1:0"];
    let mut running = run("hello", &more).start();
    let data = running.data().path().to_owned();
    let bodies = ["done", "reject:no", "loop"].map(str::to_owned);
    for body in bodies {
        send(&data, "default", [body]).await;
        empty(&data).await;
    }
    let line = running.wait_for_line(|line| line.contains("shadow answer differs"));
    assert!(
        line.contains("reject: no") && line.contains("\"current\":\"done\""),
        "{line}"
    );
    let shown = until_plugin(&running, |shown| {
        (&shown["shadow"]["same"], &shown["shadow"]["different"]) == (&1.into(), &1.into())
    });
    assert_eq!(shown["shadow"]["closed"], 0);
    // Its endless loop delays neither the messages nor the stop.
    send(&data, "default", ["done".to_owned()]).await;
    empty(&data).await;
    let stopping = Instant::now();
    running.stop();
    println!(
        "stopped in {:?} with a shadow that loops",
        stopping.elapsed()
    );
}

#[tokio::test]
async fn invalid_trial_is_a_problem_at_start() {
    let wrong = guest("wrong-world");
    let ended = run("hello", &["--canary", &wrong, "--shadow", "gone.wasm"]).run();
    assert_eq!(ended.code, 2, "{ended:?}");
    for part in [
        "wrong-world.wasm: exports neither",
        "gone.wasm: no such file",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}
