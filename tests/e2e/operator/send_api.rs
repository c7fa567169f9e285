//! Messages that an application enqueues by the admin API: on every backend, each answered by itself, by
//! producers who may do nothing else; and the examples of the page.

use crate::backends::redis::scene::RedisScene;
use crate::http::forward_examples::ruby;
use crate::languages::page_examples::shown;
use crate::operator::admin_api::ApiScene;
use crate::scene::{printed, run, until_depth};
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::dynamodb::{Dates, Tables};
use dispatcher_tests::http;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use dispatcher_tests::toolchains::has;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const PAGE: &str = "host/docs/enqueue.md";

/// Sends a request with this token; the status and the answer.
fn post(url: &str, queue: &str, (token, key): (&str, Option<&str>), body: &Value) -> (u16, Value) {
    let path = queue.replace(':', "%3A");
    let url = format!("{url}/api/v1/queues/{path}/messages");
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("Authorization", bearer.as_str())];
    headers.extend(key.map(|key| ("Idempotency-Key", key)));
    let answer = http::post(&url, &headers, &body.to_string());
    let value = serde_json::from_str(&answer.body).unwrap_or_default();
    (answer.status, value)
}

/// The file of a token for sending, whose text is `producer`.
fn token(folder: &Path) -> String {
    let file = folder.join("send-token");
    std::fs::write(&file, "producer").expect("written");
    file.display().to_string()
}

/// Sends three messages, one of them with all that a message can have at once, and has them handled.
fn messages_are_sent_and_handled(scene: &mut ApiScene, queue: &str) {
    let messages = json!({"messages": [
        {"body": "done one"},
        {"body": "done two", "attributes": {"kind": "order", "n": 7, "raw": {"base64": "AAE="}}},
        {"body": "done three"},
    ]});
    let (status, report) = post(&scene.url, queue, ("producer", None), &messages);
    assert_eq!(status, 200, "{report}");
    assert_eq!((&report["sent"], &report["failed"]), (&json!(3), &json!(0)));
    assert_eq!(report["deduplicates"], false);
    let items = report["items"].as_array().expect("a list");
    let ids: std::collections::BTreeSet<_> = items.iter().map(|one| one["id"].as_str()).collect();
    assert!(ids.len() == 3 && !ids.contains(&None), "{report}");
    for body in ["done one", "done two", "done three"] {
        scene
            .running
            .wait_for_line(|line| printed(line) && line.contains(body));
    }
    scene.running.stop();
}

#[test]
fn messages_are_sent_to_an_embedded_queue() {
    let tokens = tempfile::tempdir().expect("a folder");
    let file = token(tokens.path());
    let more = ["--queues", "local:jobs", "--admin-send-token-file", &file];
    let mut scene = ApiScene::of(|flags| run("hello", flags), &more);
    messages_are_sent_and_handled(&mut scene, "local:jobs");
}

#[test]
fn messages_are_sent_to_redis() {
    let tokens = tempfile::tempdir().expect("a folder");
    let file = token(tokens.path());
    let redis = RedisScene::plain();
    let more = ["--admin-send-token-file", &*file];
    let mut scene = ApiScene::of(|flags| redis.run("hello", flags), &more);
    messages_are_sent_and_handled(&mut scene, &redis.full());
}

#[tokio::test]
async fn messages_are_sent_to_sqs() {
    let tokens = tempfile::tempdir().expect("a folder");
    let file = token(tokens.path());
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name("enqueued");
    server.create(&name, &[]).await;
    let more = [
        "--queues",
        &name,
        "--poll-for",
        "1",
        "--admin-send-token-file",
        &file,
    ];
    let aws = MiniStack::shared().url();
    let mut scene = ApiScene::of(|flags| run("hello", flags).aws(&aws), &more);
    messages_are_sent_and_handled(&mut scene, &name);
}

#[tokio::test]
async fn messages_are_sent_to_a_table_of_dynamodb() {
    let tokens = tempfile::tempdir().expect("a folder");
    let file = token(tokens.path());
    let aws = MiniStack::shared().url();
    let table = SqsServer::fresh_name("enqueued");
    Tables::at(&aws).create_named(&table, Dates::Number).await;
    let queue = format!("dynamodb:{table}");
    let more = ["--queues", &queue, "--admin-send-token-file", &file];
    let mut scene = ApiScene::of(|flags| run("hello", flags).aws(&aws), &more);
    messages_are_sent_and_handled(&mut scene, &queue);
}

#[test]
fn a_producer_may_send_to_these_queues_and_do_nothing_else() {
    let tokens = tempfile::tempdir().expect("a folder");
    let file = token(tokens.path());
    let data = Arc::new(tempfile::tempdir().expect("a folder"));
    let store = LocalStore::open(data.path()).expect("the store opens");
    for name in ["jobs", "listed", "others"] {
        drop(store.queue(name, None).expect("the queue opens"));
    }
    let more = [
        "--queues",
        "local:jobs",
        "--admin-send-token-file",
        &file,
        "--admin-send-queues",
        "local:listed",
    ];
    let mut scene = ApiScene::of(|flags| run("hello", flags).sharing(&data), &more);
    let secret = json!({"messages": [{"body": "a secret", "group": "secret too"}]});
    for (queue, token, wanted) in [
        ("local:jobs", "producer", 200),
        ("local:jobs", "operator", 200),
        ("local:listed", "producer", 200),
        ("local:others", "producer", 404),
        ("local:jobs.dead", "producer", 404),
        ("local:jobs", "reader", 403),
        ("local:jobs", "wrong", 401),
    ] {
        let (status, answer) = post(&scene.url, queue, (token, None), &secret);
        assert_eq!(status, wanted, "{queue} by {token}: {answer}");
    }
    let producer = [("Authorization", "Bearer producer")];
    for path in ["overview", "queues", "queues/local%3Ajobs/messages"] {
        let answer = http::get_with(&format!("{}/api/v1/{path}", scene.url), &producer);
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        assert!(
            answer.body.contains("only permits sending messages"),
            "{answer:?}"
        );
    }
    let purge = format!("{}/api/v1/queues/local%3Ajobs/purge", scene.url);
    assert_eq!(
        http::post(&purge, &producer, "{\"apply\": true}").status,
        403
    );
    scene.running.stop();
    let taken = scene.audit("admin action", 3);
    assert_eq!(taken.len(), 3, "{taken:?}");
    let by_producer = taken.iter().filter(|line| line["role"] == "send");
    assert_eq!(by_producer.count(), 2, "{taken:?}");
    for line in &taken {
        assert_eq!(line["count"], 1, "{line}");
        assert!(!line.to_string().contains("secret"), "{line}");
    }
}

#[test]
fn a_token_for_sending_is_replaced_while_the_process_runs() {
    let tokens = tempfile::tempdir().expect("a folder");
    let file = token(tokens.path());
    let program = run(
        "hello",
        &["--admin", "127.0.0.1:0", "--admin-send-token-file", &file],
    );
    let mut running = program.start();
    let url = crate::lambda::scene::admin(&running);
    running.wait_for_line(|line| line.contains("\"message\":\"running\""));
    let one = json!({"messages": [{"body": "by the old"}]});
    let sent = |token: &str| post(&url, "local:default", (token, None), &one).0;
    let deadline = std::time::Instant::now() + dispatcher_tests::MOST_PATIENCE;
    while sent("producer") == 503 {
        assert!(std::time::Instant::now() < deadline, "it does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::write(&file, "another").expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("admin token replaced"));
    assert_eq!((sent("producer"), sent("another")), (401, 200));
    running.stop();
}

#[test]
fn a_server_that_is_gone_leaves_the_rest_of_a_request_untried() {
    let tokens = tempfile::tempdir().expect("a folder");
    let file = token(tokens.path());
    let mut redis = RedisScene::plain();
    let more = ["--admin-send-token-file", &*file];
    let mut scene = ApiScene::of(|flags| redis.run("hello", flags), &more);
    let queue = redis.full();
    let (status, _) = post(
        &scene.url,
        &queue,
        ("producer", None),
        &json!({"messages": [{"body": "x"}]}),
    );
    assert_eq!(status, 200);
    redis.server.kill();
    let many = json!({"messages": vec![json!({"body": "y"}); 1_000]});
    let (status, report) = post(&scene.url, &queue, ("producer", None), &many);
    assert_eq!(
        (status, &report["failed"]),
        (200, &json!(1_000)),
        "{status}"
    );
    let last = &report["items"][999];
    let error = last["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("not tried: "), "{last}");
    assert_eq!(last["retryable"], true, "{last}");
    scene.running.stop();
}

#[tokio::test]
async fn a_repeated_request_sends_once_on_a_queue_that_deduplicates() {
    let data = Arc::new(tempfile::tempdir().expect("a folder"));
    let config = "[queue.\"jobs.fifo\"]\nfifo = true\n";
    let program = |flags: &[&str]| {
        Program::new([&["local"], flags].concat())
            .sharing(&data)
            .file("dispatcher.toml", config)
    };
    let tokens = tempfile::tempdir().expect("a folder");
    let operator = tokens.path().join("operator");
    std::fs::write(&operator, "operator").expect("written");
    let operator = operator.display().to_string();
    let running = program(&[
        "--listen",
        "127.0.0.1:0",
        "--config",
        "dispatcher.toml",
        "--admin",
        "127.0.0.1:0",
        "--admin-token-file",
        &operator,
        "--log-format",
        "json",
    ])
    .start();
    let url = crate::lambda::scene::admin(&running);
    let messages = json!({"messages": [
        {"body": "one", "group": "g"},
        {"body": "one", "group": "g"},
        {"body": "two", "group": "g", "deduplication_id": "mine"},
    ]});
    let mut first = None;
    for key in ["first", "first", "second"] {
        let sent = post(&url, "local:jobs.fifo", ("operator", Some(key)), &messages);
        let (status, report) = sent;
        assert_eq!(
            (status, &report["deduplicates"]),
            (200, &json!(true)),
            "{report}"
        );
        assert_eq!(report["failed"], 0, "{report}");
        let ids = |report: &Value| {
            let items = report["items"].as_array().expect("a list").clone();
            items
                .iter()
                .map(|one| one["id"].clone())
                .collect::<Vec<_>>()
        };
        let ids = ids(&report);
        match key {
            "first" => assert_eq!(first.get_or_insert_with(|| ids.clone()), &ids),
            // Its third message is known by an id of its own.
            _ => assert_eq!(first.as_ref().map(|first| &first[2]), Some(&ids[2])),
        }
    }
    until_depth(data.path(), "jobs.fifo", |depth| depth.waiting == 5).await;
    // A message that the queue refuses is answered by itself.
    let messages = json!({"messages": [{"body": "no group"}, {"body": "three", "group": "g"}]});
    let (status, report) = post(&url, "local:jobs.fifo", ("operator", None), &messages);
    assert_eq!(
        (status, &report["sent"], &report["failed"]),
        (200, &json!(1), &json!(1)),
        "{report}"
    );
    let refused = &report["items"][0];
    let error = refused["error"].as_str().unwrap_or_default();
    assert!(error.contains("wanted a message group"), "{report}");
    assert_eq!(refused["retryable"], false, "{report}");
    // A delay goes by way of the schedule, which knows no deduplication ids.
    let later = json!({"messages": [{"body": "later", "group": "g", "delay": "1h"}]});
    let (status, report) = post(&url, "local:jobs.fifo", ("operator", Some("k")), &later);
    let told = (status, &report["sent"], &report["deduplicates"]);
    assert_eq!(told, (200, &json!(1), &json!(false)), "{report}");
    // A queue that nobody has made is not made by a name that is misspelt.
    let (status, problem) = post(&url, "local:jbos.fifo", ("operator", None), &messages);
    assert_eq!(status, 404, "{problem}");
    let (status, problem) = post(&url, "local:jobs.fifo", ("operator", Some(" ")), &messages);
    assert_eq!(status, 400, "{problem}");
}

#[test]
fn messages_for_later_are_scheduled() {
    let mut scene = ApiScene::of(|flags| run("hello", flags), &["--queues", "local:jobs"]);
    let messages = json!({"messages": [
        {"body": "at once"},
        {"body": "late", "at": "2099-12-24T18:00:00+01:00"},
        {"body": "daily", "cron": "0 9 * * *", "tz": "Europe/Berlin"},
        {"body": "in a while", "delay": 86_400},
    ]});
    let sent = post(&scene.url, "local:jobs", ("operator", None), &messages);
    let (status, report) = sent;
    assert_eq!((status, &report["sent"]), (200, &json!(4)), "{report}");
    let items = report["items"].as_array().expect("a list");
    assert_eq!(items[1]["due"], "2099-12-24T17:00:00.000Z", "{report}");
    let listed = scene.get("/api/v1/schedules?queue=local%3Ajobs");
    let ids: Vec<_> = listed["items"].as_array().expect("a list").iter().collect();
    for item in [&items[1], &items[2]] {
        assert!(
            ids.iter().any(|one| one["id"] == item["id"]),
            "{item} in {listed}"
        );
    }
    scene
        .running
        .wait_for_line(|line| printed(line) && line.contains("at once"));
    scene.running.stop();
}

#[test]
fn wrong_request_sends_nothing_and_names_every_problem() {
    let mut scene = ApiScene::of(|flags| run("hello", flags), &["--queues", "local:jobs"]);
    let send = |body: &Value| post(&scene.url, "local:jobs", ("operator", None), body);
    let (status, problem) = send(&json!({"messages": [
        {"body": "good"},
        {"body": 7, "delay": "soon"},
        {"bod": "x"},
    ]}));
    assert_eq!(status, 422, "{problem}");
    let errors = problem["errors"].as_array().expect("a list");
    let fields: Vec<_> = errors
        .iter()
        .filter_map(|one| one["field"].as_str())
        .collect();
    assert_eq!(
        fields,
        ["messages[1].body", "messages[1].delay", "messages[2].bod"]
    );
    let many = vec![json!({"body": "x"}); 1_001];
    assert_eq!(send(&json!({ "messages": many })).0, 422);
    let large = "x".repeat(9 << 20);
    assert_eq!(send(&json!({"messages": [{"body": large}]})).0, 413);
    let queue = scene.get("/api/v1/queues/local%3Ajobs");
    assert_eq!(queue["queue"]["totals"]["received"], 0, "{queue}");
    scene.running.stop();
}

#[test]
fn command_sends_by_a_running_process_without_access_to_the_queue() {
    let (mut scene, folder) = mail();
    let file = folder.path().join("send-token").display().to_string();
    let by = ["--admin", &scene.url, "--admin-token-file", &file];
    let elsewhere = |words: &[&str]| Program::new([&["send"], words, &by].concat()).run();
    let sent = elsewhere(&["local:mail", "one", "--attribute", "kind=order"]);
    assert_eq!((sent.code, sent.stdout.lines().count()), (0, 1), "{sent:?}");
    let many = elsewhere(&["local:mail", "more", "--count", "2500"]);
    assert_eq!(many.stdout, "2500 sent to local:mail\n", "{many:?}");
    let refused = elsewhere(&["local:others", "x"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("does not send to queue `local:others`"),
        "{refused:?}"
    );
    scene
        .running
        .wait_for_line(|line| printed(line) && line.contains("\"one\""));
    scene
        .running
        .wait_for_lines(2_500, |line| printed(line) && line.contains("\"more\""));
    scene.running.stop();
}

/// A process on `local:mail` whose producers have the token `producer`.
fn mail() -> (ApiScene, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = token(folder.path());
    let more = ["--queues", "local:mail", "--admin-send-token-file", &file];
    (ApiScene::of(|flags| run("hello", flags), &more), folder)
}

/// Runs an example of the page to its end: what it sends is handled, and what is for later is scheduled.
fn example_sends(program: Program, scene: &mut ApiScene, body: &str) {
    let ended = program
        .env("ADMIN", &scene.url)
        .env("SEND_TOKEN", "producer")
        .run();
    assert_eq!(ended.code, 0, "{ended:?}");
    scene
        .running
        .wait_for_line(|line| printed(line) && line.contains(body));
    let listed = scene.get("/api/v1/schedules?queue=local%3Amail");
    assert_eq!(
        listed["items"].as_array().map(Vec::len),
        Some(1),
        "{listed}"
    );
    scene.running.stop();
}

#[test]
fn python_of_the_page_enqueues() {
    if !has(&["python3"], "the page about enqueuing") {
        return;
    }
    let (mut scene, folder) = mail();
    let file = folder.path().join("enqueue.py");
    std::fs::write(&file, shown(PAGE, "python", "def enqueue")).expect("written");
    let program = Program::of("python3", [file.as_os_str()]);
    example_sends(program, &mut scene, "from Python");
}

#[test]
fn javascript_of_the_page_enqueues() {
    if !has(&["node"], "the page about enqueuing") {
        return;
    }
    let (mut scene, folder) = mail();
    let file = folder.path().join("enqueue.mjs");
    std::fs::write(&file, shown(PAGE, "js", "function enqueue")).expect("written");
    let program = Program::of("node", [file.as_os_str()]);
    example_sends(program, &mut scene, "from Node");
}

#[test]
fn ruby_of_the_page_enqueues() {
    let (mut scene, folder) = mail();
    let file = folder.path().join("enqueue.rb");
    std::fs::write(&file, shown(PAGE, "ruby", "def enqueue")).expect("written");
    let program = ruby([], [file.into_os_string()]);
    example_sends(program, &mut scene, "from Ruby");
}

#[test]
fn curl_of_the_page_enqueues() {
    if !has(&["curl"], "the page about enqueuing") {
        return;
    }
    let (mut scene, folder) = mail();
    let lines = shown(PAGE, "sh", "curl -X POST").replace("redis%3Amail", "local%3Amail");
    let program = Program::of(
        "sh",
        ["-euc", &format!("cd {}\n{lines}", folder.path().display())],
    );
    let ended = program.env("ADMIN", &scene.url).run();
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(report["sent"], 1, "{report}");
    scene
        .running
        .wait_for_line(|line| printed(line) && line.contains("hello"));
    scene.running.stop();
}
