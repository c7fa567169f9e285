//! Commands of operations that ask a running process: they need its address alone, and do what they do
//! by themselves otherwise.

use crate::operator::letters_api::{letter, mixed, scene_with};
use crate::scene::{depth, until_depth};
use dispatcher_tests::child::{ExitedProgram, Signal};
use serde_json::{Value, json};

fn printed(ended: &ExitedProgram) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[tokio::test]
async fn letters_are_redriven_moved_and_purged_by_a_process() {
    let (mut scene, _) = scene_with(&mixed(), &["--admin-bodies"]).await;
    scene.act("/api/v1/queues/local%3Aq/pause", "");
    let redrive = ["redrive", "local:q.dead", "--where", "/country=CH"];
    let counted = scene.command(&redrive).run();
    assert_eq!(counted.code, 0, "{counted:?}");
    assert!(counted.stdout.contains("2 selected"), "{counted:?}");
    assert!(counted.stdout.contains("add --apply"), "{counted:?}");
    let moved = scene.command(&[&redrive[..], &["--apply", "--json"]].concat());
    let moved = moved.run();
    let told = printed(&moved);
    assert_eq!(
        (moved.code, &told["moved"], &told["end"], &told["applied"]),
        (0, &json!(2), &json!("complete"), &json!(true)),
        "{moved:?}"
    );
    // A receive that was under way at the pause may have taken them, and gives them back.
    until_depth(scene.data(), "q", |depth| depth.waiting == 2).await;

    let words = ["move", "local:q.dead", "local:sink", "--json"];
    let counted = printed(&scene.command(&words).run());
    assert_eq!(
        (&counted["matched"], &counted["applied"]),
        (&json!(2), &json!(false)),
        "{counted}"
    );
    let moved = scene.command(&[&words[..], &["--apply"]].concat()).run();
    assert_eq!(printed(&moved)["moved"], 2, "{moved:?}");
    assert_eq!(depth(scene.data(), "sink").await.waiting, 2);
    let purged = scene.command(&["purge", "local:q", "--apply"]).run();
    assert_eq!(purged.stdout, "local:q: 2 removed\n", "{purged:?}");
    assert_eq!(depth(scene.data(), "q").await.waiting, 0);
    scene.running.stop();
}

#[tokio::test]
async fn a_queue_is_paused_limited_and_resumed_by_a_process() {
    let (mut scene, _) = scene_with(&[], &[]).await;
    let paused = || scene.get("/api/v1/queues/local%3Aq")["queue"]["paused"].clone();
    let done = scene.command(&["pause", "local:q", "--json"]).run();
    assert_eq!(printed(&done)["affects"], "all-processes", "{done:?}");
    assert_eq!(paused(), true);
    assert_eq!(scene.command(&["resume", "local:q"]).run().code, 0);
    assert_eq!(paused(), false);
    let limits = || scene.get("/api/v1/queues/local%3Aq")["queue"]["concurrency"]["live"].clone();
    let limited = scene.command(&["limit", "local:q", "--concurrency", "2"]);
    assert_eq!(limited.run().code, 0);
    assert_eq!(limits(), true);
    assert_eq!(
        scene.command(&["limit", "local:q", "--reset"]).run().code,
        0
    );
    assert_eq!(limits(), false);
    scene.running.stop();
}

#[tokio::test]
async fn what_a_process_refuses_is_told_by_the_names_of_the_command() {
    let (mut scene, _) = scene_with(&mixed(), &[]).await;
    let refused = |words: &[&str], code: i32, wanted: &str| {
        let ended = scene.command(words).run();
        assert_eq!(ended.code, code, "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(wanted), "{words:?}: {ended:?}");
    };
    let edit = ["redrive", "local:q.dead", "--edit", "cat", "--apply"];
    refused(&edit, 2, "error: --edit: it runs on this machine");
    let body = ["redrive", "local:q.dead", "--where", "/a=1"];
    refused(&body, 2, "start it with --admin-bodies");
    let unknown = ["redrive", "local:none", "--apply"];
    refused(&unknown, 1, "local:none");
    let itself = ["move", "local:q.dead", "local:q.dead"];
    refused(&itself, 2, "cannot be moved to itself");
    assert_eq!(depth(scene.data(), "q.dead").await.waiting, 4);
    scene.running.stop();
}

#[tokio::test]
async fn a_signal_stops_the_job_of_the_process() {
    let letters: Vec<_> = (0..50).map(|n| letter(&n.to_string(), "trap")).collect();
    let (mut scene, _) = scene_with(&letters, &[]).await;
    scene.act("/api/v1/queues/local%3Aq/pause", "");
    let words = ["redrive", "local:q.dead", "--rate", "1/s", "--apply"];
    let mut command = scene.command(&words).start();
    let deadline = std::time::Instant::now() + dispatcher_tests::MOST_PATIENCE;
    while scene.get("/api/v1/jobs")["items"][0]["report"]["moved"]
        .as_u64()
        .is_none_or(|moved| moved == 0)
    {
        assert!(std::time::Instant::now() < deadline, "nothing is moved");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    command.signal(Signal::INT);
    assert_eq!(command.wait_exit(), 1);
    let job = scene.get("/api/v1/jobs")["items"][0].clone();
    assert_eq!(job["state"], "cancelled", "{job}");
    scene.running.stop();
}
