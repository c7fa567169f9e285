//! Tasks on Redis that never end: one live attempt of each, kept by its lease, moved when its holder
//! dies, ended by a cancel. And what can be seen of workers and queues.

use crate::backends::redis::scene::{RedisScene, begins};
use crate::scene::{field, guest};
use dispatcher_tests::child::{RunningProgram, Signal};
use dispatcher_tests::redis::RedisServer;

const TASK: &str = "sleep:3600000";

fn options() -> [&'static str; 6] {
    [
        "--visibility",
        "2",
        "--timeout",
        "10h",
        "--log-level",
        "debug",
    ]
}

/// Returns once the task's lease has been extended so often.
async fn extended(scene: &RedisScene, id: &str, times: usize) {
    let mut server = scene.server.connect();
    let leases = format!("{{dispatcher:{}}}:leases", scene.name);
    let mut until = || {
        server
            .call(&["ZSCORE", &leases, id])
            .expect("an answer")
            .text()
    };
    let mut last = until();
    let mut changes = 0;
    let looking = async {
        while changes < times {
            let now = until();
            assert!(!now.is_empty(), "the lease is given up");
            if now != last {
                changes += 1;
                last = now;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(dispatcher_tests::PATIENCE, looking)
        .await
        .expect("the lease is extended");
}

#[tokio::test]
async fn endless_task_has_one_live_attempt_and_moves_when_its_holder_dies() {
    let scene = RedisScene::plain();
    let mut dispatchers: Vec<RunningProgram> = (0..2)
        .map(|_| scene.run("verdicts", &options()).start())
        .collect();
    for dispatcher in &dispatchers {
        dispatcher.wait_for_line(|line| line.contains("\"running\""));
    }
    let ids = scene.send([TASK.to_owned()]).await;
    scene.until_depth(|depth| depth.in_flight == 1).await;
    // Three visibilities of two seconds.
    extended(&scene, &ids[0], 6).await;
    let begun: Vec<usize> = dispatchers.iter().map(|d| d.lines(begins).len()).collect();
    assert_eq!(begun.iter().sum::<usize>(), 1, "{begun:?}");
    let mut holder = dispatchers.remove(begun.iter().position(|n| *n == 1).expect("one"));
    let heir = dispatchers.remove(0);
    holder.signal(Signal::KILL);
    let line = heir.wait_for_line(begins);
    assert_eq!(holder.wait_exit(), 137);
    assert_eq!(field(&line, "message_id"), ids[0]);
    assert_eq!(field(&line, "receive_count"), "2");
    extended(&scene, &ids[0], 2).await;
    assert_eq!(heir.lines(begins).len(), 1);
}

#[tokio::test]
async fn cancelled_running_task_is_stopped_and_deleted() {
    let scene = RedisScene::plain();
    let running = scene.run("verdicts", &options()).start();
    scene.send([TASK.to_owned()]).await;
    running.wait_for_line(begins);
    let ended = scene.command(&["cancel", &scene.full(), TASK]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stdout, "0 waiting removed, 1 running stopped\n");
    running.wait_for_line(|line| line.contains("message cancelled"));
    let depth = scene.until_depth(|_| true).await;
    assert_eq!(depth, Default::default());
    let again = scene.command(&["cancel", &scene.full(), TASK]);
    assert_eq!(again.code, 1);
    assert!(again.stderr.contains("has no message"), "{}", again.stderr);
}

#[tokio::test]
async fn cancelled_waiting_tasks_are_deleted_and_others_stay() {
    let scene = RedisScene::plain();
    let bodies = ["a", "b", "a", "c"].map(String::from);
    let ids = scene.send(bodies).await;
    let ended = scene.command(&["cancel", &scene.full(), "a"]);
    assert_eq!(ended.stdout, "2 waiting removed, 0 running stopped\n");
    let ended = scene.command(&["cancel", &scene.full(), &ids[3]]);
    assert_eq!(ended.stdout, "1 waiting removed, 0 running stopped\n");
    let ended = scene.command(&["peek", &scene.full(), "--json"]);
    let left: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(left.as_array().map(Vec::len), Some(1));
    assert_eq!(left[0]["id"], ids[1].as_str());
}

#[tokio::test]
async fn queues_and_workers_are_listed() {
    let scene = RedisScene::plain();
    scene.send([TASK.to_owned()]).await;
    let running = scene
        .run("verdicts", &["--concurrency", "1", "--timeout", "1h"])
        .start();
    scene.until_depth(|depth| depth.in_flight == 1).await;
    let ended = scene.command(&["queues", "redis:", "--json"]);
    let queues: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(queues[0]["queue"], scene.full());
    assert_eq!(
        (&queues[0]["waiting"], &queues[0]["in_flight"]),
        (&0.into(), &1.into())
    );
    let ended = scene.command(&["workers", "redis:", "--json"]);
    let workers: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(workers.as_array().map(Vec::len), Some(1), "{workers}");
    let process = workers[0]["process"].as_str().expect("a text");
    assert!(
        process.starts_with(&format!("{}@", running.id())),
        "{process}"
    );
    assert_eq!(workers[0]["queues"][0]["queue"], scene.full());
    assert_eq!(workers[0]["queues"][0]["in_flight"], 1);
}

#[test]
fn doctor_warns_of_a_server_that_evicts_messages() {
    let warned = |policy: &str| {
        let server = ["--maxmemory", "64mb", "--maxmemory-policy", policy];
        let scene = RedisScene::new(RedisServer::start(&server));
        let hello = guest("hello");
        let queue = scene.full();
        let ended = scene.command(&["doctor", "--plugin", &hello, "--queues", &queue, "--json"]);
        assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
        let findings: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let findings = findings.as_array().expect("an array");
        findings.iter().any(|finding| {
            finding["level"] == "warn" && finding["message"].to_string().contains("noeviction")
        })
    };
    assert!(warned("allkeys-lru"));
    assert!(!warned("noeviction"));
}

#[test]
fn missing_server_is_reported() {
    let port = dispatcher_tests::servers::free_port();
    let url = format!("redis://127.0.0.1:{port}");
    for arguments in [
        ["workers", "redis:", "--redis-url", &url],
        ["queues", "redis:q", "--redis-url", &url],
        ["queues", "redis:", "--redis-url", &url],
    ] {
        let ended = dispatcher_tests::child::Program::new(arguments).run();
        assert_eq!(ended.code, 3, "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&format!("127.0.0.1:{port}")),
            "{}",
            ended.stderr
        );
    }
}
