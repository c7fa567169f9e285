//! Messages for later on Redis: listed, taken back, delivered in time by any number of dispatchers,
//! whichever of them is killed; periodic ones once for each time; also for queues of npm `worqr`.

use crate::backends::redis::scene::RedisScene;
use crate::scene::{field, prints, run, send};
use dispatcher::app::build::Backends;
use dispatcher::app::build::outlet::OpenedQueues;
use dispatcher::app::build::schedule::Schedules;
use dispatcher_config::StoreConfig;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use dispatcher_core::schedule;
use dispatcher_core::schedule::ScheduleStore;
use dispatcher_redis::schedule::{Redis, Schedule};
use dispatcher_tests::child::{RunningProgram, Signal};
use dispatcher_tests::relay::Relay;
use dispatcher_wasm::capability::queues::Deliver;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn good(scene: &RedisScene, arguments: &[&str]) -> (String, String) {
    let ended = scene.command(arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
    (ended.stdout.trim().to_owned(), ended.stderr)
}

fn list(scene: &RedisScene) -> Vec<Value> {
    let (listed, _) = good(scene, &["schedule", "list", &scene.full(), "--json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    listed.as_array().expect("an array").clone()
}

fn store(scene: &RedisScene) -> Schedule {
    let server = Redis::new(&scene.server.url(), "dispatcher").expect("an address");
    server.schedule(&scene.name)
}

async fn add(scene: &RedisScene, body: &str, due: Timestamp) {
    let message = OutgoingMessage {
        body: format!("print:{body}"),
        ..OutgoingMessage::default()
    };
    let job = schedule::job(&scene.full(), due, message, None);
    assert_eq!(store(scene).add(&job).await, Ok(true));
}

/// How many scheduled messages these say that they sent.
fn logged_sends(both: &[RunningProgram; 2]) -> usize {
    let said = both
        .iter()
        .flat_map(|one| one.lines(|line| line.contains("scheduled messages sent")));
    said.map(|line| field(&line, "sent").parse::<usize>().expect("a number"))
        .sum()
}

/// Returns once so much was printed by all of them together.
async fn until_printed(all: &[&RunningProgram], count: usize) {
    let looking = async {
        let sum = || all.iter().map(|one| prints(one).len()).sum::<usize>();
        while sum() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(dispatcher_tests::PATIENCE, looking).await;
    found.expect("all are handled");
}

#[tokio::test]
async fn scheduled_message_is_listed_and_can_be_cancelled() {
    let scene = RedisScene::plain();
    let full = scene.full();
    let words = ["schedule", "add", &full, "--in", "36h", "--body", "milk"];
    let (id, said) = good(&scene, &words);
    assert!(id.starts_with(&format!("{full}/")), "{id}");
    assert!(said.contains("due in 36h, at 2"), "{said}");
    let cron = ["--cron", "0 9 * * *", "--tz", "Europe/Berlin"];
    let words = ["schedule", "add", &full, "--body", "wake up"];
    let (daily, _) = good(&scene, &[&words[..], &cron].concat());
    let listed = list(&scene);
    let ids: Vec<_> = listed.iter().map(|one| one["id"].as_str()).collect();
    assert_eq!(ids, [Some(&*daily), Some(&*id)]);
    assert_eq!(listed[1]["body"], "milk");
    assert_eq!(listed[0]["tz"], "Europe/Berlin");
    for one in [&id, &daily] {
        good(&scene, &["schedule", "cancel", one]);
        let again = scene.command(&["schedule", "cancel", one]);
        assert_eq!(again.code, 1, "{again:?}");
        assert!(
            again.stderr.contains("no scheduled message with this id"),
            "{again:?}"
        );
    }
    assert!(list(&scene).is_empty());
    let init = scene.command(&["schedule", "init", &full]);
    assert!(init.stderr.contains("needs no table"), "{init:?}");
}

#[tokio::test]
async fn message_due_soon_is_handled_and_one_due_later_is_not() {
    let scene = RedisScene::plain();
    let full = scene.full();
    let add = |within: &str, body: &str, more: &[&str]| {
        let words = ["schedule", "add", &full, "--in", within, "--body", body];
        good(&scene, &[&words[..], more].concat())
    };
    add("10m", "print:far", &["--group", "g"]);
    add("3s", "print:near", &["--group", "g"]);
    add("3s", "print:near too", &[]);
    let (_, said) = add("1s", "print:at once", &[]);
    assert!(said.contains("no longer be cancelled"), "{said}");
    // What is later delays nothing of its group.
    good(&scene, &["send", &full, "print:now", "--group", "g"]);
    let mut running = scene.run("verdicts", &[]).start();
    until_printed(&[&running], 4).await;
    running.stop();
    let mut bodies = prints(&running);
    bodies.sort();
    assert_eq!(bodies, ["at once", "near", "near too", "now"]);
    assert_eq!(list(&scene).len(), 1);
}

#[tokio::test]
async fn two_dispatchers_send_each_job_once() {
    const JOBS: u64 = 300;
    let scene = RedisScene::plain();
    let start = || scene.run("verdicts", &[]).start();
    let mut both = [start(), start()];
    for running in &both {
        running.wait_for_line(|line| line.contains("\"running\""));
    }
    // Both know them before they may be sent, and so wake for them at the same moment.
    let due = clock::wall_clock_now() + Duration::from_secs(5);
    for number in 0..JOBS {
        add(&scene, &format!("{number:03}"), due).await;
    }
    until_printed(&[&both[0], &both[1]], 300).await;
    both.iter_mut().for_each(RunningProgram::stop);
    // What was sent twice may still be in the queue.
    assert_eq!(logged_sends(&both), 300);
    let mut bodies: Vec<String> = both.iter().flat_map(prints).collect();
    bodies.sort();
    let wanted: Vec<String> = (0..JOBS).map(|number| format!("{number:03}")).collect();
    assert_eq!(bodies, wanted);
    assert!(list(&scene).is_empty());
}

#[tokio::test]
async fn two_dispatchers_fire_each_tick_of_a_periodic_message_once() {
    let scene = RedisScene::plain();
    let full = scene.full();
    let words = ["schedule", "add", &full, "--cron", "* * * * * *"];
    let (id, _) = good(&scene, &[&words[..], &["--body", "print:tick"]].concat());
    let due = || list(&scene)[0]["due_ms"].as_u64().expect("a date");
    let first = due();
    let start = || scene.run("verdicts", &[]).start();
    let mut both = [start(), start()];
    until_printed(&[&both[0], &both[1]], 4).await;
    both.iter_mut().for_each(RunningProgram::stop);
    let times = (due() - first) / 1_000;
    good(&scene, &["schedule", "cancel", &id]);
    // What was sent ahead and was not yet due waits in the queue.
    let mut rest = start();
    scene
        .until_depth(|depth| depth.in_flight + depth.waiting + depth.delayed == 0)
        .await;
    rest.stop();
    let count = prints(&rest).len() + both.iter().map(|one| prints(one).len()).sum::<usize>();
    assert_eq!(count, logged_sends(&both), "what was sent was handled once");
    // A time that both were too late for is not made up for.
    assert!(count as u64 <= times, "{count} of {times} times");
}

#[tokio::test]
async fn jobs_claimed_by_a_killed_dispatcher_are_sent_by_another() {
    const JOBS: usize = 20;
    let scene = RedisScene::plain();
    for number in 0..JOBS {
        add(&scene, &format!("{number:02}"), clock::wall_clock_now()).await;
    }
    let relay = Relay::before(scene.server.address());
    // The call that sends them gets stuck when they are claimed already.
    let stuck = relay.stall_at("\r\nprint:07\r\n");
    let url = format!("redis://{}", relay.address());
    let arguments = ["--queues", &scene.full(), "--redis-url", &url];
    let mut killed = run("verdicts", &arguments).start();
    let waiting =
        tokio::task::spawn_blocking(move || stuck.recv_timeout(dispatcher_tests::PATIENCE));
    waiting.await.expect("no panic").expect("it is stuck");
    killed.signal(Signal::KILL);
    killed.wait_exit();
    let listed = list(&scene);
    assert_eq!(listed.len(), JOBS);
    assert!(listed.iter().all(|one| one["sending"] == true));
    let id = listed[0]["id"].as_str().expect("an id");
    let cancelled = scene.command(&["schedule", "cancel", id]);
    assert!(cancelled.stderr.contains("is sending it"), "{cancelled:?}");
    // Two minutes go by.
    let claims = format!("{{dispatcher:{}}}:schedule:claim", scene.name);
    let mut plain = scene.server.connect();
    for id in plain.call(&["HKEYS", &claims]).expect("an answer").texts() {
        plain.call(&["HSET", &claims, &id, "1 gone"]).expect("set");
    }
    let mut running = scene.run("verdicts", &[]).start();
    until_printed(&[&running], JOBS).await;
    running.stop();
    let mut bodies = prints(&running);
    bodies.sort();
    let wanted: Vec<String> = (0..JOBS).map(|number| format!("{number:02}")).collect();
    assert_eq!(bodies, wanted);
    assert!(list(&scene).is_empty());
}

#[tokio::test]
async fn worqr_queue_gets_jobs_when_due() {
    let scene = RedisScene::plain();
    let full = scene.full();
    let format = format!("{}=worqr", scene.name);
    let words = ["schedule", "add", &full, "--redis-format", &format];
    let soon = ["--in", "1s", "--body", "print:soon"];
    let (id, _) = good(&scene, &[&words[..], &soon].concat());
    assert_eq!(list(&scene)[0]["id"], *id, "it can be cancelled until then");
    let grouped = scene.command(&[&words[..], &soon, &["--group", "g"]].concat());
    assert_eq!(grouped.code, 2, "{grouped:?}");
    assert!(
        grouped.stderr.contains("neither attributes nor groups"),
        "{grouped:?}"
    );
    let mut running = scene.run("verdicts", &["--redis-format", &format]).start();
    until_printed(&[&running], 1).await;
    running.stop();
    assert_eq!(prints(&running), ["soon"]);
    assert!(list(&scene).is_empty());
}

#[tokio::test]
async fn delayed_send_of_a_plugin_uses_the_delay_of_the_queue() {
    let scene = RedisScene::plain();
    let full = scene.full();
    let url = scene.server.url();
    // The component imports functions as well, and calls none here.
    let grants = ["--allow-send", &full, "--allow-lambda", "none"];
    let more = [&grants[..], &["--redis-url", &url]].concat();
    let nowhere = "http://127.0.0.1:1";
    let mut running = run("granted-sends", &more).aws(nowhere).start();
    let data = running.data().path();
    let sends = [false, true].map(|waits| {
        let send =
            json!({"do": "send", "queue": full, "value": 1, "delay_ms": 3_600_000, "waits": waits});
        send.to_string()
    });
    send(data, "default", sends).await;
    let lines = running.wait_for_lines(2, |line| line.contains("message dead-lettered"));
    for line in lines {
        assert!(
            field(&line, "reason").starts_with("got "),
            "it is sent: {line}"
        );
    }
    let depth = scene.queue().await.depth().await.expect("a depth");
    assert_eq!((depth.delayed, depth.waiting), (2, 0));
    assert!(list(&scene).is_empty(), "no store of jobs has them");
    running.stop();
}

/// Nobody here looks for what is scheduled: only the queue itself can hand it out.
#[tokio::test]
async fn delayed_messages_with_and_without_a_group_use_the_delay_of_the_queue() {
    let scene = RedisScene::plain();
    let stores = StoreConfig {
        data: "unused".into(),
        sections: BTreeMap::from([("redis", BTreeMap::from([("url", vec![scene.server.url()])]))]),
        ..StoreConfig::default()
    };
    let backends = Arc::new(Backends::new(stores));
    let queues = OpenedQueues(Arc::new(Schedules::new(backends, None)));
    let message = |group: Option<&str>| OutgoingMessage {
        delay: Duration::from_secs(3_600),
        group: group.map(str::to_owned),
        ..OutgoingMessage::default()
    };
    for group in [None, Some("g")] {
        let sent = queues.deliver(&scene.full(), message(group)).await;
        assert!(sent.is_ok(), "{sent:?}");
    }
    let depth = scene.queue().await.depth().await.expect("a depth");
    assert_eq!((depth.delayed, depth.waiting), (2, 0));
    assert!(list(&scene).is_empty());
}
