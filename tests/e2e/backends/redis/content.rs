//! Messages on Redis whose content is missing, unreadable or cancelled: none is handled as something
//! else, and the log says what became of each.

use crate::backends::redis::scene::{RedisScene, begins};
use crate::lambda::scene::admin;
use crate::scene::{field, guest, printed, prints};
use dispatcher_core::clock;
use dispatcher_core::message::{Attribute, AttributeValue, OutgoingMessage};
use dispatcher_core::queue::Queue;
use dispatcher_core::schedule;
use dispatcher_core::schedule::ScheduleStore as _;
use dispatcher_redis::queue::Redis;
use dispatcher_tests::child::Signal;
use dispatcher_tests::http;
use dispatcher_tests::redis::{Plain, RedisServer};
use std::collections::BTreeSet;

impl RedisScene {
    /// A key of the queue on the server.
    fn key(&self, what: &str) -> String {
        format!("{{dispatcher:{}}}:{what}", self.name)
    }

    /// The ids and reasons of its dead letters.
    async fn dead(&self) -> Vec<(String, String)> {
        let server = Redis::new(&self.server.url(), "dispatcher").expect("an address");
        let name = format!("{}.dead", self.name);
        let queue = server.queue(&name, None).await.expect("it is there");
        let letters = queue.peek(100).await.expect("it looks");
        let reason = |attributes: &[Attribute]| {
            let of = |attribute: &Attribute| match &attribute.value {
                AttributeValue::Text(text) => text.clone(),
                AttributeValue::Binary(_) => String::new(),
            };
            let mut named = attributes.iter();
            named
                .find(|attribute| attribute.name == "dispatcher-dead-letter-reason")
                .map(of)
        };
        letters
            .into_iter()
            .map(|letter| (letter.id, reason(&letter.attributes).unwrap_or_default()))
            .collect()
    }
}

fn ask(server: &mut Plain, words: &[&str]) -> i64 {
    server.call(words).expect("an answer").number()
}

#[tokio::test]
async fn finding_03_message_without_body_is_dead_lettered_and_never_handled() {
    let scene = RedisScene::plain();
    let bodies = ["print:a", "print:b", "print:c"].map(String::from);
    let ids = scene.send(bodies).await;
    let mut server = scene.server.connect();
    assert_eq!(ask(&mut server, &["HDEL", &scene.key("body"), &ids[1]]), 1);
    let mut running = scene.run("verdicts", &[]).start();
    scene.until_depth(|depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let mut handled = prints(&running);
    handled.sort();
    assert_eq!(handled, ["a", "c"]);
    let [(id, reason)] = &scene.dead().await[..] else {
        panic!("one dead letter");
    };
    assert_eq!(id, &ids[1]);
    assert!(reason.contains("missing or unreadable"), "{reason}");
    let said = running.lines(|line| line.contains("missing or unreadable"));
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(field(&said[0], "message_id"), ids[1]);
}

#[tokio::test]
async fn letters_that_share_a_place_are_all_listed() {
    let scene = RedisScene::plain();
    scene.send(["first".to_owned()]).await;
    let mut server = scene.server.connect();
    // As queues that share a dead-letter queue may give them: one microsecond, other ends.
    let place = "1763764000000000";
    for number in 0..350 {
        let id = format!("{place}-{number:08x}");
        let body = ["HSET", &scene.key("body"), &id, "again"];
        assert_eq!(ask(&mut server, &body), 1);
        let waits = ["ZADD", &scene.key("wait"), place, &id];
        assert_eq!(ask(&mut server, &waits), 1);
    }
    let queue = scene.queue().await;
    let (mut seen, mut after) = (BTreeSet::new(), None);
    loop {
        let page = queue.browse(after.as_ref(), 100).await.expect("a page");
        assert_ne!(page.next, after, "it goes on");
        seen.extend(page.messages.into_iter().map(|one| one.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 351);
}

#[tokio::test]
async fn finding_03_messages_with_evicted_content_are_never_handled() {
    let scene = RedisScene::plain();
    let queue = scene.queue().await;
    let with = |body: &str, group: Option<&str>| OutgoingMessage {
        body: body.to_owned(),
        attributes: vec![Attribute::text("tenant", "7")],
        group: group.map(str::to_owned),
        ..OutgoingMessage::default()
    };
    let plain = OutgoingMessage {
        body: "print:plain".to_owned(),
        ..OutgoingMessage::default()
    };
    let items = [with("print:a", None), with("print:b", Some("g")), plain];
    let sent = queue.send(&items).await;
    let ids: Vec<String> = sent.into_iter().map(|sent| sent.expect("sent")).collect();
    // As an eviction does: the whole key, and the delivery of a group's head stays.
    let mut server = scene.server.connect();
    assert_eq!(ask(&mut server, &["DEL", &scene.key("attributes")]), 1);
    let mut running = scene.run("verdicts", &[]).start();
    scene.until_depth(|depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(prints(&running), ["plain"]);
    let dead = scene.dead().await;
    let dead: Vec<&str> = dead.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(dead, [&ids[0], &ids[1]]);
}

#[tokio::test]
async fn finding_03_grouped_message_without_body_unblocks_its_group() {
    let scene = RedisScene::plain();
    let queue = scene.queue().await;
    let grouped = |body: &str| OutgoingMessage {
        body: body.to_owned(),
        group: Some("g".to_owned()),
        ..OutgoingMessage::default()
    };
    let sent = queue.send(&[grouped("print:a"), grouped("print:b")]).await;
    let first = sent[0].clone().expect("sent");
    let mut server = scene.server.connect();
    assert_eq!(ask(&mut server, &["HDEL", &scene.key("body"), &first]), 1);
    let mut running = scene.run("verdicts", &[]).start();
    running.wait_for_line(printed);
    scene.until_depth(|depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(prints(&running), ["b"]);
    let dead = scene.dead().await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].0, first);
}

#[tokio::test]
async fn finding_03_body_that_is_not_text_is_dead_lettered_unchanged() {
    let scene = RedisScene::plain();
    let ids = scene.send(["print:a".to_owned()]).await;
    let mut server = scene.server.connect();
    // A script writes bytes that the test's own client cannot.
    let write = "return redis.call('HSET', KEYS[1], ARGV[1], 'print:\\255')";
    let wrote = ["EVAL", write, "1", &scene.key("body"), &ids[0]];
    assert_eq!(ask(&mut server, &wrote), 0);
    let mut running = scene.run("verdicts", &[]).start();
    running.wait_for_line(|line| line.contains("missing or unreadable"));
    scene.until_depth(|depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(prints(&running), Vec::<String>::new());
    let same = "return redis.call('HGET', KEYS[1], ARGV[1]) == 'print:\\255' and 1 or 0";
    let dead = format!("{{dispatcher:{}}}.dead:body", scene.name);
    assert_eq!(ask(&mut server, &["EVAL", same, "1", &dead, &ids[0]]), 1);
}

#[tokio::test]
async fn finding_04_body_beyond_message_memory_is_dead_lettered_and_others_handled() {
    let scene = RedisScene::plain();
    let queue = scene.queue().await;
    let large = OutgoingMessage {
        body: format!("print:{}", "x".repeat(3_000_000)),
        attributes: vec![Attribute::text("tenant", "7")],
        ..OutgoingMessage::default()
    };
    let sent = queue.send(&[large]).await;
    let id = sent[0].clone().expect("sent");
    scene.send(["print:a", "print:b"].map(String::from)).await;
    let options = ["--message-memory", "2MiB"];
    let mut running = scene.run("verdicts", &options).start();
    let line = running.wait_for_line(|line| line.contains("\"message dead-lettered\""));
    scene.until_depth(|depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(field(&line, "message_id"), id);
    assert_eq!(field(&line, "reason_kind"), "too-large");
    let reason = field(&line, "reason");
    let wanted = "too large to be handled: 3000006 bytes, and message-memory is 2097152";
    assert_eq!(reason, wanted);
    let mut handled = prints(&running);
    handled.sort();
    assert_eq!(handled, ["a", "b"]);
    assert_eq!(scene.dead().await, [(id.clone(), wanted.to_owned())]);
    // Its body and its attributes have moved with it.
    let mut server = scene.server.connect();
    let dead = |key: &str| format!("{{dispatcher:{}}}.dead:{key}", scene.name);
    assert_eq!(
        ask(&mut server, &["HSTRLEN", &dead("body"), &id]),
        3_000_006
    );
    let letters = Redis::new(&scene.server.url(), "dispatcher").expect("an address");
    let letters = letters.queue(&format!("{}.dead", scene.name), None).await;
    let letters = letters.expect("it is there").peek(1).await.expect("a look");
    assert!(
        letters[0]
            .attributes
            .contains(&Attribute::text("tenant", "7"))
    );
}

#[tokio::test]
async fn finding_06_cancel_is_one_event_without_a_redelivery() {
    let scene = RedisScene::plain();
    let options = ["--timeout", "1h", "--log-level", "debug"];
    let mut running = scene.run("verdicts", &options).start();
    let ids = scene.send(["sleep:3600000".to_owned()]).await;
    running.wait_for_line(begins);
    let ended = scene.command(&["cancel", &scene.full(), &ids[0]]);
    assert_eq!(ended.stdout, "0 waiting removed, 1 running stopped\n");
    scene.send(["print:next".to_owned()]).await;
    running.wait_for_line(printed);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let said = running.lines(|line| line.contains("message cancelled"));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("\"INFO\""), "{}", said[0]);
    assert_eq!(field(&said[0], "message_id"), ids[0]);
    assert_eq!(field(&said[0], "queue"), scene.full());
    let wrong = running.lines(|line| line.contains("delivers"));
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn finding_03_run_warns_of_a_server_that_evicts_keys() {
    let warned = |policy: &str| {
        let server = ["--maxmemory", "64mb", "--maxmemory-policy", policy];
        let scene = RedisScene::new(RedisServer::start(&server));
        let mut running = scene.run("hello", &[]).start();
        running.wait_for_line(|line| line.contains("\"running\""));
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
        let check = ["check", "--plugin", &guest("hello"), "--queues"];
        let checked = scene.command(&[&check[..], &[&scene.full()]].concat());
        assert_eq!(checked.code, 0, "{}", checked.stderr);
        let of_run = running.lines(|line| line.contains("noeviction")).len();
        (of_run, checked.stderr.contains("noeviction"))
    };
    assert_eq!(warned("allkeys-lru"), (1, true));
    assert_eq!(warned("noeviction"), (0, false));
}

#[tokio::test]
async fn finding_03_scheduled_job_without_its_message_is_one_event_and_one_count() {
    let scene = RedisScene::plain();
    let _queue = scene.queue().await;
    let server = dispatcher_redis::schedule::Redis::new(&*scene.server.url(), "dispatcher");
    let store = server.expect("an address").schedule(&scene.name);
    let message = OutgoingMessage {
        body: "print:lost".to_owned(),
        ..OutgoingMessage::default()
    };
    let job = schedule::job(&scene.full(), clock::wall_clock_now(), message, None);
    assert_eq!(store.add(&job).await, Ok(true));
    let mut plain = scene.server.connect();
    let jobs = scene.key("schedule:job");
    assert_eq!(ask(&mut plain, &["HDEL", &jobs, &job.id]), 1);
    let mut running = scene.run("verdicts", &["--admin", "127.0.0.1:0"]).start();
    let line = running.wait_for_line(|line| line.contains("scheduled message dead-lettered"));
    assert_eq!(field(&line, "queue"), scene.full());
    assert_eq!(field(&line, "job"), job.id);
    assert_eq!(field(&line, "reason_kind"), "unreadable");
    let metrics = http::get(&format!("{}/metrics", admin(&running))).body;
    assert!(
        metrics.contains("\ndispatcher_scheduled_messages_dead_lettered_total 1\n"),
        "{metrics}"
    );
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let said = running.lines(|line| line.contains("missing or unreadable"));
    assert_eq!(said.len(), 1, "{said:?}");
}

#[tokio::test]
async fn finding_29_peek_shows_unreadable_messages_with_the_reason() {
    let scene = RedisScene::plain();
    let ids = scene.send(["print:a", "print:b"].map(String::from)).await;
    let mut server = scene.server.connect();
    assert_eq!(ask(&mut server, &["HDEL", &scene.key("body"), &ids[1]]), 1);
    let full = scene.full();
    let peek = |more: &[&str]| {
        let ended = scene.command(&[&["peek", &*full], more].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout
    };
    let text = peek(&[]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].contains("print:a") && !lines[0].contains("unreadable"),
        "{text}"
    );
    assert!(lines[1].contains("unreadable: no body"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&peek(&["--json"])).expect("JSON");
    assert!(json[0]["unreadable"].is_null(), "{json}");
    let why = json[1]["unreadable"].as_str().expect("a text");
    assert!(why.contains("no body"), "{json}");
}
