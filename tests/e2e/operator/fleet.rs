//! The settings that operators make for a fleet hold for all its processes and outlive restarts, and
//! any process shows all.

use crate::operator::admin_api::ApiScene;
use crate::scene::{printed, prints, run, send};
use dispatcher_tests::child::Program;
use dispatcher_tests::redis::RedisServer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Folder = Arc<tempfile::TempDir>;

/// A process of the fleet of a data folder.
fn join(data: &Folder) -> ApiScene {
    ApiScene::of(|flags| run("verdicts", flags).sharing(data), &[])
}

/// Three processes of the fleet of a data folder.
fn three() -> (Folder, [ApiScene; 3]) {
    let first = ApiScene::verdicts(&[]);
    let data = first.running.data().clone();
    let more = [join(&data), join(&data)];
    let [second, third] = more;
    (data, [first, second, third])
}

/// The fleet as a process shows it, once it is as wanted.
fn fleet(scene: &ApiScene, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + dispatcher_tests::PATIENCE;
    loop {
        let shown = scene.get("/api/v1/fleet");
        if wanted(&shown) {
            return shown;
        }
        assert!(Instant::now() < deadline, "{shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn processes(shown: &Value) -> usize {
    shown["processes"].as_array().map_or(0, Vec::len)
}

fn paused(line: &str) -> bool {
    line.contains("\"message\":\"queue paused\"")
}

fn in_force(line: &str) -> bool {
    line.contains("live control in force at start")
}

fn log_level(line: &str) -> bool {
    line.contains("\"message\":\"log level replaced\"")
}

#[tokio::test]
async fn pause_by_one_process_acts_on_all_and_outlives_their_restart() {
    let (data, mut scenes) = three();
    let told = scenes[1].act("/api/v1/routes/verdicts/pause", "");
    assert_eq!(told["affects"], "this-machine", "{told}");
    assert_eq!(told["until"], "changed", "{told}");
    for scene in &mut scenes {
        scene.running.wait_for_line(paused);
        scene.running.stop();
    }
    let [again, later] = [join(&data), join(&data)];
    let findings = again.get("/api/v1/findings").to_string();
    assert!(findings.contains("it is paused until POST"), "{findings}");
    for scene in [&again, &later] {
        scene.running.wait_for_line(in_force);
        let routes = scene.get("/api/v1/routes");
        assert_eq!(routes["items"][0]["paused"], true, "{routes}");
    }
    send(data.path(), "default", ["print:1".to_owned()]).await;
    let limited = again.act("/api/v1/routes/verdicts/limits", r#"{"concurrency": 1}"#);
    assert_eq!(limited["affects"], "this-machine", "{limited}");
    later
        .running
        .wait_for_line(|line| line.contains("route limits changed"));
    for scene in [&again, &later] {
        assert_eq!(prints(&scene.running), [""; 0], "it is paused");
    }
    later.act("/api/v1/routes/verdicts/resume", "");
    again
        .running
        .wait_for_line(|line| line.contains("\"message\":\"queue resumed\""));
    let handled = || prints(&again.running).len() + prints(&later.running).len();
    let deadline = Instant::now() + dispatcher_tests::PATIENCE;
    while handled() == 0 {
        assert!(Instant::now() < deadline, "it is not handled");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn any_process_shows_all_and_what_differs() {
    let (data, scenes) = three();
    let shown = fleet(&scenes[2], |shown| processes(shown) == 3);
    assert_eq!(shown["scope"], "this-machine", "{shown}");
    assert_eq!(shown["old_since"], Value::Null, "{shown}");
    assert_eq!(shown["differences"], json!([]), "{shown}");
    assert_eq!(shown["queues"][0]["queue"], "local:default", "{shown}");
    assert_eq!(shown["queues"][0]["processes"], 3, "{shown}");
    let other = ["--concurrency", "3"];
    let other = ApiScene::of(|flags| run("verdicts", flags).sharing(&data), &other);
    let shown = fleet(&scenes[0], |shown| processes(shown) == 4);
    let difference = &shown["differences"][0];
    assert_eq!(difference["what"], "configuration", "{shown}");
    let said = scenes[0].command(&["fleet"]).run();
    assert_eq!(said.code, 0, "{said:?}");
    for part in ["This machine only: 4 processes", "configuration differs"] {
        assert!(said.stdout.contains(part), "{part} in {said:?}");
    }
    drop(other);
    let mut scenes = scenes;
    scenes[1].running.stop();
    let gone = format!("{}@", scenes[1].running.id());
    fleet(&scenes[0], |shown| !shown.to_string().contains(&gone));
}

#[tokio::test]
async fn log_level_is_that_of_the_fleet_until_it_is_reset() {
    let (data, scenes) = three();
    scenes[0].act("/api/v1/fleet/log-level", r#"{"level": "debug"}"#);
    for scene in &scenes {
        scene.running.wait_for_line(log_level);
    }
    let later = join(&data);
    later.running.wait_for_line(log_level);
    let (status, refused) = later.ask("/api/v1/fleet/log-level", r#"{"level": "loud"}"#);
    assert_eq!(
        (status, &refused["errors"][0]["field"]),
        (422, &json!("level"))
    );
    later.act("/api/v1/fleet/log-level", r#"{"level": null}"#);
    scenes[1].running.wait_for_lines(2, log_level);
    let (status, _) = later.ask("/api/v1/fleet/limits/none", r#"{"concurrency": 1}"#);
    assert_eq!(status, 404);
}

#[tokio::test]
async fn message_that_another_process_runs_is_found_and_cancelled() {
    let (data, scenes) = three();
    fleet(&scenes[0], |shown| processes(shown) == 3);
    for path in ["fleet/cancel", "queues/local%3Adefault/cancel"] {
        send(data.path(), "default", ["sleep:600000".to_owned()]).await;
        let (runs, id) = runner(&scenes);
        let asker = &scenes[(runs + 1) % scenes.len()];
        let asked = json!({"message": id}).to_string();
        let found = asker.act("/api/v1/fleet/find", &asked);
        let process = format!("{}@", scenes[runs].running.id());
        let said = found["items"][0]["process"].as_str().unwrap_or_default();
        assert!(said.starts_with(&process), "{found}");
        assert_eq!(found["items"][0]["cancelled"], false, "{found}");
        let cancelled = asker.act(&format!("/api/v1/{path}"), &asked);
        let is_cancelled = cancelled["items"][0]["cancelled"] == true || cancelled["running"] == 1;
        assert!(is_cancelled, "{cancelled}");
        let ended = format!("\"message_id\":\"{id}\"");
        scenes[runs]
            .running
            .wait_for_line(|line| line.contains("message cancelled") && line.contains(&ended));
    }
    let nowhere = scenes[0].act("/api/v1/fleet/find", r#"{"message": "none"}"#);
    assert_eq!(nowhere["items"], json!([]), "{nowhere}");
    assert_eq!(nowhere["answered"], 3, "{nowhere}");
}

/// The process that runs a message, and the message's id.
fn runner(scenes: &[ApiScene]) -> (usize, String) {
    let deadline = Instant::now() + dispatcher_tests::PATIENCE;
    loop {
        for (at, scene) in scenes.iter().enumerate() {
            let running = scene.get("/api/v1/running");
            let message = &running["items"][0]["messages"][0];
            if let (Some(id), Some(false)) =
                (message["id"].as_str(), message["cancelled"].as_bool())
            {
                return (at, id.to_owned());
            }
        }
        assert!(Instant::now() < deadline, "no process runs it");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn machines_share_a_store_and_go_on_while_it_is_away() {
    let mut server = RedisServer::durable();
    let url = server.url();
    let name = RedisServer::fresh_name("fleet");
    let start = || {
        let store = format!("redis:{name}");
        let more = ["--fleet-store", &store, "--redis-url", &url];
        ApiScene::of(|flags| run("verdicts", &[flags, &more].concat()), &[])
    };
    let [one, other] = [start(), start()];
    let shown = fleet(&one, |shown| processes(shown) == 2);
    assert_eq!(shown["scope"], "all-processes", "{shown}");
    let told = other.act("/api/v1/routes/verdicts/pause", "");
    assert_eq!(told["affects"], "all-processes", "{told}");
    one.running.wait_for_line(paused);
    other.act("/api/v1/routes/verdicts/resume", "");
    one.running
        .wait_for_line(|line| line.contains("\"message\":\"queue resumed\""));
    server.kill();
    let shown = fleet(&one, |shown| shown["old_since"] != Value::Null);
    assert_eq!(processes(&shown), 2, "those that were known: {shown}");
    one.running
        .wait_for_line(|line| line.contains("store of the fleet failed"));
    let (status, refused) = one.ask("/api/v1/routes/verdicts/pause", "");
    assert_eq!(status, 503, "{refused}");
    send(one.data(), "default", ["print:1".to_owned()]).await;
    one.running.wait_for_line(printed);
    let _server = server.again();
    let shown = fleet(&one, |shown| {
        shown["old_since"] == Value::Null && processes(shown) == 2
    });
    assert_eq!(shown["error"], Value::Null, "{shown}");
}

#[test]
fn process_without_a_writable_store_is_its_own_fleet() {
    let folder = tempfile::tempdir().expect("a folder");
    // A folder in the file's place.
    std::fs::create_dir(folder.path().join("fleet-default.db")).expect("made");
    let data = Arc::new(folder);
    let scene = join(&data);
    scene
        .running
        .wait_for_line(|line| line.contains("store of the fleet not opened"));
    let shown = scene.get("/api/v1/fleet");
    assert_eq!(shown["scope"], "this-process", "{shown}");
    let told = scene.act("/api/v1/routes/verdicts/pause", "");
    assert_eq!(told["affects"], "this-process", "{told}");
    assert_eq!(told["until"], "process-ends", "{told}");
    scene.running.wait_for_line(paused);
    let said = Program::new(["fleet"]).run();
    assert_eq!(said.code, 2, "{said:?}");
}

#[test]
fn limit_of_the_fleet_is_changed_by_the_command_and_one_key_of_it() {
    let text = "[limit.api]\nkey = \"customer\"\nconcurrency = 1\noverride.acme = { concurrency = 50 }\n\
                [plugin.p]\nforward = \"http://127.0.0.1:9/\"\n\
                [[route]]\nqueues = [\"local:default\"]\nlimits = [\"api\"]\n";
    let start = |flags: &[&str]| {
        let words = ["run", "--log-format", "json", "--config", "dispatcher.toml"];
        Program::new([&words, flags].concat()).file("dispatcher.toml", text)
    };
    let scene = ApiScene::of(start, &[]);
    let concurrency = |wanted: u64| {
        fleet(&scene, |shown| shown["limits"][0]["concurrency"] == wanted);
    };
    concurrency(1);
    let command = |words: &[&str], code: i32, wanted: &str| {
        let said = scene.command(&[&["limit"], words].concat()).run();
        assert_eq!(said.code, code, "{words:?}: {said:?}");
        let told = format!("{}{}", said.stdout, said.stderr);
        assert!(told.contains(wanted), "{words:?}: {said:?}");
    };
    let changed = "limit api changed for the processes of this machine only";
    command(&["api", "--concurrency", "3"], 0, changed);
    concurrency(3);
    let one = ["api", "--key", "acme", "--concurrency", "2"];
    command(&one, 0, "limit api/acme changed");
    command(&["api", "--reset"], 0, changed);
    concurrency(1);
    command(
        &["local:default", "--rate", "9"],
        0,
        "local:default limited",
    );
    command(&["none", "--rate", "5"], 1, "no limit");
    let mixed = ["api", "--prefetch", "1", "--burst", "2"];
    command(&mixed, 2, "of different operations");
}
