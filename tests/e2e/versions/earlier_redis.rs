//! What an earlier version left on a Redis server: today's program handles all of it.

use crate::backends::redis::scene::RedisScene;
use crate::scene::{field, printed, prints};
use crate::versions::earlier_content::{compare, controls_are_obeyed, lines};
use dispatcher_core::queue::Depth;
use dispatcher_redis::queue::Redis;
use dispatcher_tests::child::{RunningProgram, Signal};
use dispatcher_tests::queues;
use dispatcher_tests::redis::{Plain, RedisServer};
use serde_json::{Value, json};

/// The format that today's program writes.
const FORMAT: u32 = 1;
const QUEUES: &str = "redis:orders,redis:held,redis:limited,redis:ticks";
/// Longer than anybody waits for it here.
const CENTURY: &str = "876000h";

fn call(scene: &RedisScene, words: &[&str]) -> String {
    let ended = scene.command(words);
    assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
    ended.stdout
}

fn report(scene: &RedisScene, words: &[&str]) -> Value {
    let text = call(scene, &[words, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

async fn until(scene: &RedisScene, queue: &str, wanted: impl Fn(Depth) -> bool) {
    let server = Redis::new(&scene.server.url(), "dispatcher").expect("an address");
    let queue = server.queue(queue, None).await.expect("it is there");
    queues::until_depth(&queue, wanted).await;
}

fn kill(running: &mut RunningProgram) {
    running.signal(Signal::KILL);
    running.wait_exit();
}

/// Leaves every kind of key behind, by the program alone: also one of an earlier version does it.
async fn content_is_left(scene: &RedisScene) {
    let capable = ["--store", "a=redis:kept"];
    let mut running = scene.run_on("redis:kv", "capable", &capable).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    call(scene, &["send", "redis:kv", "set a colour blue"]);
    until(scene, "kv.dead", |depth| depth.waiting == 1).await;
    running.stop();

    let mut running = scene.run_on(QUEUES, "verdicts", &[]).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    let send = |words: &[&str]| call(scene, &[&["send"], words].concat());
    let refused = ["redis:orders", "reject:no such order"];
    send(&[&refused[..], &["--attribute", "tenant=7"]].concat());
    until(scene, "orders.dead", |depth| depth.waiting == 1).await;
    send(&["redis:orders", "retry:60000"]);
    until(scene, "orders", |depth| depth.delayed == 1).await;
    send(&["redis:orders", "sleep:3000", "--group", "g"]);
    until(scene, "orders", |depth| depth.in_flight == 1).await;
    kill(&mut running);

    send(&["redis:orders", "print:next of its group", "--group", "g"]);
    send(&["redis:orders", "print:plain"]);
    send(&["redis:orders", "print:attributed", "--attribute", "kind=x"]);
    send(&["redis:orders", "print:delayed", "--delay", "60s"]);
    send(&["redis:orders", "print:much later", "--delay", CENTURY]);
    send(&["redis:held", "print:held"]);
    send(&["redis:limited", "print:limited"]);
    call(scene, &["pause", "redis:held"]);
    let limit = ["limit", "redis:limited", "--rate", "50"];
    call(scene, &[&limit[..], &["--concurrency", "1"]].concat());
    let schedule = |queue: &str, when: &[&str], body: &str| {
        let words = [&["schedule", "add", queue, "--body", body], when].concat();
        call(scene, &words);
    };
    schedule("redis:orders", &["--in", "60s"], "print:scheduled");
    let daily = ["--cron", "0 9 1 1 *", "--tz", "Europe/Berlin"];
    schedule("redis:orders", &daily, "print:yearly");
    let far = ["--at", "2100-01-01T00:00:00Z", "--attribute", "kind=x"];
    schedule("redis:orders", &far, "print:far");
    schedule("redis:ticks", &["--cron", "* * * * * *"], "print:tick");
}

/// The commands that make what a server holds, without what expires by itself.
fn content(plain: &mut Plain) -> Vec<Value> {
    let mut ask = |words: &[&str]| plain.call(words).expect("an answer");
    let mut keys = ask(&["KEYS", "*"]).texts();
    keys.sort();
    let mut commands = Vec::new();
    for key in keys {
        if ask(&["PTTL", &key]).number() != -1 {
            continue;
        }
        let kind = ask(&["TYPE", &key]).text();
        let (read, write): (&[&str], _) = match &*kind {
            "string" => (&["GET"], "SET"),
            "hash" => (&["HGETALL"], "HSET"),
            "set" => (&["SMEMBERS"], "SADD"),
            "zset" => (&["ZRANGE", "0", "-1", "WITHSCORES"], "ZADD"),
            other => panic!("{key} is a {other}"),
        };
        let found = ask(&[&read[..1], &[&key], &read[1..]].concat()).texts();
        let pairs = matches!(write, "HSET" | "ZADD");
        let mut members: Vec<Vec<String>> = found
            .chunks(if pairs { 2 } else { 1 })
            .map(<[String]>::to_vec)
            .collect();
        members.sort();
        for mut member in members {
            if write == "ZADD" {
                member.reverse();
            }
            let start = [write.to_owned(), key.clone()];
            commands.push(json!([&start[..], &member].concat()));
        }
    }
    commands
}

fn loaded(format: u32) -> RedisScene {
    let scene = RedisScene {
        server: RedisServer::start(&[]),
        name: "orders".to_owned(),
    };
    let mut plain = scene.server.connect();
    for line in lines("redis", format) {
        let words = line.as_array().expect("a command").iter();
        let words: Vec<&str> = words.map(|word| word.as_str().expect("a text")).collect();
        let answer = plain.call(&words).expect("an answer");
        let refused = matches!(answer, dispatcher_tests::redis::RedisReply::Error(_));
        assert!(!refused, "{words:?}: {answer:?}");
    }
    scene
}

#[tokio::test]
async fn program_leaves_content_of_the_kept_format_on_redis() {
    let scene = RedisScene::plain();
    content_is_left(&scene).await;
    compare("redis", FORMAT, &content(&mut scene.server.connect()));
}

#[tokio::test]
async fn content_of_format_1_on_redis_is_handled() {
    let scene = loaded(1);
    let dead = report(&scene, &["peek", "redis:orders.dead"]);
    assert_eq!(dead[0]["body"], "reject:no such order", "{dead}");
    assert!(dead[0].to_string().contains("tenant"), "{dead}");
    let scheduled = report(&scene, &["schedule", "list", "redis:orders"]);
    assert_eq!(scheduled.as_array().map(Vec::len), Some(3), "{scheduled}");

    // The second attempt is the last: the count of a retried message has stayed.
    let options = ["--max-attempts", "2"];
    let mut running = scene.run_on(QUEUES, "verdicts", &options).start();
    controls_are_obeyed(&running, "redis");
    for body in [
        "plain",
        "attributed",
        "delayed",
        "next of its group",
        "scheduled",
        "limited",
        "tick",
    ] {
        running.wait_for_line(|line| printed(line) && field(line, "message") == body);
    }
    let retried = running.wait_for_line(|line| line.contains("\"message dead-lettered\""));
    assert_eq!(field(&retried, "attempts"), "2", "{retried}");
    until(&scene, "orders", |depth| {
        (depth.waiting, depth.in_flight, depth.delayed) == (0, 0, 1)
    })
    .await;
    let left = report(&scene, &["schedule", "list", "redis:orders"]);
    let bodies: Vec<_> = (0..2).map(|at| left[at]["body"].clone()).collect();
    assert_eq!(bodies, ["print:yearly", "print:far"], "{left}");
    let quiet = ["held", "much later", "far"];
    let heard = prints(&running);
    assert!(
        !heard.iter().any(|body| quiet.contains(&&**body)),
        "{heard:?}"
    );

    call(&scene, &["resume", "redis:held"]);
    running.wait_for_line(|line| printed(line) && field(line, "message") == "held");
    let all = ["redrive", "redis:orders.dead", "--reason", "no such order"];
    let moved = report(&scene, &[&all[..], &["--apply"]].concat());
    assert_eq!(moved["moved"], 1, "{moved}");
    running.wait_for_lines(2, |line| line.contains("\"message dead-lettered\""));
    running.stop();
}

#[tokio::test]
async fn buckets_of_format_1_on_redis_are_read() {
    let scene = loaded(1);
    let store = ["--store", "a=redis:kept"];
    let mut running = scene.run_on("redis:kv", "capable", &store).start();
    call(&scene, &["send", "redis:kv", "get a colour"]);
    running.wait_for_line(|line| line.contains("got blue"));
    running.stop();
}
