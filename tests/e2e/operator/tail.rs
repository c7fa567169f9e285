//! `dispatcher tail` follows how the messages of one queue end.

use crate::operator::admin_api::ApiScene;
use crate::scene::send;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use serde_json::Value;

fn tail(scene: &ApiScene, more: &[&str]) -> RunningProgram {
    let token = scene.data().join("token");
    std::fs::write(&token, "reader").expect("written");
    let (url, token) = (scene.url.clone(), token.display().to_string());
    let arguments = [
        "tail",
        "local:a",
        "--admin",
        &url,
        "--admin-token-file",
        &token,
    ];
    Program::new([&arguments, more].concat()).start()
}

#[tokio::test]
async fn tail_prints_each_end_with_its_attempt_duration_and_reason() {
    let queues = ["--queues", "local:a:2,local:b:1"];
    let mut scene = ApiScene::verdicts(&queues);
    let (mut plain, mut json) = (tail(&scene, &[]), tail(&scene, &["--json"]));
    for one in [&plain, &json] {
        one.wait_for_line(|line| line.starts_with("following "));
    }
    send(scene.data(), "b", ["print:of another queue".to_owned()]).await;
    let bodies = ["print:good", "reject:no such customer", "retry:600000"];
    send(scene.data(), "a", bodies.map(str::to_owned)).await;
    let good = plain.wait_for_line(|line| line.contains("  done  "));
    let parts: Vec<&str> = good.split("  ").collect();
    assert!(humantime_like(parts[0]) && parts[1].len() > 8, "{good}");
    assert_eq!(parts[3], "#1", "{good}");
    assert!(parts[4].ends_with("ms"), "{good}");
    plain.wait_for_line(|line| {
        line.contains("  dead-lettered  ") && line.ends_with("no such customer")
    });
    plain.wait_for_line(|line| line.contains("  retried  #1  "));
    let line = json.wait_for_line(|line| line.contains("\"event\":\"dead-lettered\""));
    let outcome: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(outcome["queue"], "local:a");
    assert!(
        outcome["took_s"].as_f64().is_some_and(|took| took > 0.0),
        "{outcome}"
    );
    json.signal(Signal::TERM);
    assert_eq!(json.wait_exit(), 0, "a signal is the usual end");
    scene.running.stop();
    assert_eq!(plain.wait_exit(), 0, "the process stops");
    assert!(plain.lines(|line| line.contains("the process stops")).len() == 1);
    assert_eq!(plain.lines(|line| line.contains("local:b")).len(), 0);
}

fn humantime_like(text: &str) -> bool {
    text.len() == "2026-11-23T10:00:00.000Z".len() && text.ends_with('Z')
}

#[test]
fn tail_refuses_a_queue_that_the_process_does_not_have() {
    let mut scene = ApiScene::verdicts(&[]);
    let mut other = tail(&scene, &[]);
    assert_eq!(other.wait_exit(), 2);
    other.wait_for_line(|line| line.contains("no queue `local:a`"));
    let nowhere = Program::new(["tail", "local:a"]).run();
    assert_eq!(nowhere.code, 2, "{nowhere:?}");
    scene.running.stop();
    let gone = Program::new(["tail", "local:a", "--admin", &scene.url]).run();
    assert_eq!(gone.code, 3, "{gone:?}");
}
