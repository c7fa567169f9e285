//! What an earlier version left on Redis is handled by this one (host/docs/upgrade.md). A server is
//! filled from the lines in `tests/released/redis`, one file for each format.

use crate::redis_scene::RedisScene;
use crate::scene::{printed, prints};
use dispatcher_tests::child::{RunningProgram, Signal};
use dispatcher_tests::redis_dump;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The format that this version writes.
const FORMAT: &str = "1";

/// So far away that no test lives to see it.
const FAR: &str = "876000h";
/// Over before the test that reads it, or soon after it begins.
const SOON: &str = "6s";

fn file(format: &str) -> PathBuf {
    let released = Path::new(env!("CARGO_MANIFEST_DIR")).join("released/redis");
    released.join(format!("{format}.txt"))
}

fn scene() -> RedisScene {
    RedisScene {
        name: "orders".to_owned(),
        ..RedisScene::plain()
    }
}

fn good(scene: &RedisScene, arguments: &[&str]) -> String {
    let ended = scene.command(arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
    ended.stdout
}

fn json(scene: &RedisScene, arguments: &[&str]) -> Value {
    let told = good(scene, &[arguments, &["--json"]].concat());
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
}

fn stop(mut running: RunningProgram) {
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

/// What the program leaves behind: messages of every kind, those of a killed process among them. It is
/// told by commands alone, so that any version can be asked.
fn write(scene: &RedisScene) -> String {
    let send = |body: &str, more: &[&str]| {
        good(scene, &[&["send", "redis:orders", body], more].concat());
    };
    for body in ["reject:bad address", "retry:6000", "sleep:3600000"] {
        send(body, &[]);
    }
    send(
        "reject:too old",
        &["--group", "g", "--attribute", "tenant=7"],
    );
    let mut killed = scene.run("verdicts", &["--timeout", "2h"]).start();
    let becomes = |key: &str, count: &str| {
        let key = format!("{{dispatcher:orders}}{key}");
        scene.server.wait_for(&["ZCARD", &key], |now| now == count);
    };
    becomes(".dead:wait", "2");
    becomes(":delayed", "1");
    becomes(":leases", "1");
    killed.signal(Signal::KILL);
    killed.wait_exit();

    send("plain", &[]);
    send("with an attribute", &["--attribute", "tenant=7"]);
    send("first of its group", &["--group", "g"]);
    send("second of its group", &["--group", "g"]);
    send("delayed", &["--delay", SOON]);
    send("far", &["--delay", FAR]);
    let add = |body: &str, when: &[&str]| {
        let words = ["schedule", "add", "redis:orders", "--body", body];
        good(scene, &[&words[..], when].concat());
    };
    add("scheduled", &["--in", SOON, "--attribute", "tenant=7"]);
    add("scheduled far", &["--in", FAR, "--group", "g"]);
    add("yearly", &["--cron", "0 3 29 2 *", "--tz", "Europe/Berlin"]);
    add("each second", &["--cron", "* * * * * *"]);
    good(scene, &["send", "redis:paused", "paused"]);
    good(scene, &["pause", "redis:paused"]);
    let limit = ["limit", "redis:orders", "--rate", "1000"];
    good(scene, &[&limit[..], &["--concurrency", "7"]].concat());
    let format = ["--redis-format", "tasks=worqr"];
    good(
        scene,
        &[&["send", "redis:tasks", "shared"][..], &format].concat(),
    );

    let set = ["send", "redis:values", "set a colour blue"];
    good(scene, &[&set[..], &["--attribute", "quiet=1"]].concat());
    let running = bucket(scene).start();
    let values = ["HGET", "{dispatcher:kv:kept}:values", "colour"];
    scene.server.wait_for(&values, |value| value == "blue");
    stop(running);
    redis_dump::dump(&scene.server)
}

fn bucket(scene: &RedisScene) -> dispatcher_tests::child::Program {
    scene.run_on("redis:values", "capable", &["--store", "a=redis:kept"])
}

/// This version is started on what another left.
fn is_handled(left: &str) {
    let scene = scene();
    redis_dump::load(&scene.server, left);
    letters_are_listed(&scene);
    let scheduled = json(&scene, &["schedule", "list", "redis:orders"]);
    let before: Vec<_> = far(&scheduled);
    assert_eq!(before.len(), 2, "{scheduled}");

    let more = ["--redis-format", "tasks=worqr"];
    let queues = "redis:orders,redis:paused,redis:tasks";
    let running = scene.run_on(queues, "hello", &more).start();
    let is_handled = |body: &str| {
        running.wait_for_line(|line| printed(line) && line.contains(body));
    };
    for body in [
        "plain",
        "with an attribute",
        "second of its group",
        // What a process had when it was killed, and what one had put off.
        "sleep:3600000",
        "retry:6000",
        "delayed",
        "scheduled",
        "each second",
        "shared",
    ] {
        is_handled(body);
    }
    let handled = prints(&running);
    let place = |body: &str| handled.iter().position(|one| one == body);
    let (first, second) = (place("first of its group"), place("second of its group"));
    assert!(first.is_some() && first < second, "{handled:?}");
    for waits in ["paused", "far", "scheduled far", "yearly"] {
        assert_eq!(place(waits), None, "{handled:?}");
    }
    let in_force = running.lines(|line| line.contains("live control in force at start"));
    for queue in ["redis:paused", "redis:orders"] {
        assert!(
            in_force.iter().any(|line| line.contains(queue)),
            "{in_force:?}"
        );
    }
    good(&scene, &["resume", "redis:paused"]);
    is_handled("paused");
    let moved = json(&scene, &["redrive", "redis:orders.dead", "--apply"]);
    assert_eq!(moved["moved"], 2, "{moved}");
    is_handled("reject:bad address");
    is_handled("reject:too old");
    stop(running);

    let scheduled = json(&scene, &["schedule", "list", "redis:orders"]);
    assert_eq!(far(&scheduled), before);
    let delayed = left
        .lines()
        .filter(|line| line.starts_with("ZADD {dispatcher:orders}:delayed "));
    let latest = delayed.max().expect("what is delayed");
    let words: Vec<&str> = latest.split(' ').collect();
    let score = ["ZSCORE", words[1], words[3]];
    scene.server.wait_for(&score, |score| score == words[2]);
    good(&scene, &["send", "redis:values", "get a colour"]);
    let running = bucket(&scene).start();
    running.wait_for_line(|line| line.contains("got blue"));
    stop(running);
}

/// What is scheduled and not due for years.
fn far(scheduled: &Value) -> Vec<Value> {
    let jobs = scheduled.as_array().expect("an array").iter();
    let far = jobs.filter(|job| {
        ["scheduled far", "yearly"]
            .iter()
            .any(|body| job["body"] == *body)
    });
    far.cloned().collect()
}

fn letters_are_listed(scene: &RedisScene) {
    let letters = json(scene, &["peek", "redis:orders.dead"]);
    for (body, reason) in [
        ("reject:bad address", "bad address"),
        ("reject:too old", "too old"),
    ] {
        let mut of_body = letters.as_array().expect("an array").iter();
        let letter = of_body.find(|letter| letter["body"] == body);
        let letter = letter.unwrap_or_else(|| panic!("no {body} among {letters}"));
        assert!(letter.to_string().contains(reason), "{letter}");
    }
}

#[test]
fn content_on_redis_of_format_1_is_handled() {
    is_handled(&fs::read_to_string(file("1")).expect("what was kept"));
}

/// So the next format is kept with as little effort: `UPDATE=RELEASED` writes the file, and
/// `DISPATCHER_BINARY` names the program of an earlier commit, if it is to be that one.
#[test]
fn content_on_redis_of_this_version_is_written_and_handled() {
    let left = write(&scene());
    if std::env::var("UPDATE").is_ok_and(|what| what == "RELEASED") {
        fs::write(file(FORMAT), &left).expect("written");
    }
    is_handled(&left);
}
