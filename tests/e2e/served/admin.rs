//! The admin API of `dispatcher local`: queues and their messages, without a route.

use crate::lambda::scene::admin;
use crate::operator::admin_api::until_ended;
use crate::operator::page_http::follow_view;
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::{Ask, DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, Queue};
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::http;
use dispatcher_tests::sqs::configuration;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// What precedes the address in the line that it prints for a shell.
const EXPORT: &str = "export AWS_ENDPOINT_URL_SQS=";
const OPERATE: (&str, &str) = ("Authorization", "Bearer operator");

/// `dispatcher local` with an admin address.
struct ServedScene {
    running: RunningProgram,
    url: String,
    /// Where SDKs find the queues.
    sqs: String,
    _token: tempfile::TempDir,
}

impl ServedScene {
    /// Without a queue.
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let token = folder.path().join("token");
        std::fs::write(&token, "operator").expect("written");
        let token = token.display().to_string();
        let arguments = [
            "local",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--admin-token-file",
            &token,
            "--admin-bodies",
        ];
        let running = Program::new([&arguments, more].concat()).start();
        let url = admin(&running);
        let line = running.wait_for_line(|line| line.starts_with(EXPORT));
        let sqs = line.trim_start_matches(EXPORT).trim().to_owned();
        Self {
            running,
            url,
            sqs,
            _token: folder,
        }
    }

    /// With a letter in `orders-dlq`, sent as an SDK does.
    async fn with_letter(more: &[&str]) -> Self {
        let scene = Self::start(more);
        let server = dispatcher_tests::sqs::SqsServer::at(&scene.sqs);
        for name in ["orders", "orders-dlq"] {
            server.create(name, &[]).await;
        }
        let client = Sqs::connect(&configuration(&scene.sqs));
        let queue = client.open("orders-dlq", None).await;
        let letter = OutgoingMessage {
            body: "hello".into(),
            attributes: vec![
                Attribute::text(DEAD_LETTER_REASON, "trap"),
                Attribute::text(DEAD_LETTER_SOURCE, "local:orders"),
            ],
            ..OutgoingMessage::default()
        };
        let queue = queue.expect("it is there");
        queue.send(&[letter]).await.remove(0).expect("sent");
        scene
    }

    fn page(&self, path: &str) -> String {
        let answer = http::get_with(&format!("{}{path}", self.url), &[OPERATE]);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    fn get(&self, path: &str) -> Value {
        let answer = http::get_with(&format!("{}{path}", self.url), &[OPERATE]);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        serde_json::from_str(&answer.body).expect("JSON")
    }

    fn act(&self, path: &str, body: &Value) -> Value {
        let answer = http::post(
            &format!("{}{path}", self.url),
            &[OPERATE],
            &body.to_string(),
        );
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// Starts a job, and shows it once it has ended.
    fn run_job(&self, path: &str, order: &Value) -> Value {
        until_ended(&self.act(path, order), |path| self.get(path))
    }
}

async fn look_and_act(more: &[&str]) {
    let mut scene = ServedScene::with_letter(more).await;
    let apply = json!({"apply": true});
    let queues = scene.get("/api/v1/queues?depth=true");
    let mut listed = queues["items"].as_array().expect("a list").iter();
    let dead = listed.find(|one| one["queue"] == "local:orders-dlq");
    assert_eq!(dead.expect("listed")["depth"]["waiting"], 1, "{queues}");
    let messages = scene.get("/api/v1/queues/local%3Aorders-dlq/messages");
    assert_eq!(messages["items"][0]["content"]["body"], "hello");
    let job = scene.run_job("/api/v1/queues/local%3Aorders-dlq/redrive", &apply);
    assert_eq!(
        (&job["state"], &job["report"]["moved"]),
        (&json!("done"), &json!(1)),
        "{job}"
    );
    let orders = scene.get("/api/v1/queues/local%3Aorders");
    assert_eq!(orders["queue"]["depth"]["waiting"], 1);
    let purged = scene.run_job("/api/v1/queues/local%3Aorders/purge", &apply);
    assert_eq!(purged["report"]["removed"], 1);
    for path in [
        "overview",
        "routes",
        "running",
        "outcomes",
        "plugins",
        "processes",
        "findings",
    ] {
        scene.get(&format!("/api/v1/{path}"));
    }
    let page = http::get_with(&format!("{}/ui", scene.url), &[OPERATE]);
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("local:orders-dlq"), "{}", page.body);
    assert!(
        !page.body.contains(">Rate<"),
        "nothing is handled: {}",
        page.body
    );
    for (path, wanted) in [
        ("/ui/plugins", "serves queues and runs no plugin"),
        ("/ui/doctor", "This process has no routes"),
        (
            "/ui/queue?name=local%3Aorders",
            "handles none of its messages",
        ),
    ] {
        let page = http::get_with(&format!("{}{path}", scene.url), &[OPERATE]);
        assert_eq!(page.status, 200, "{path}: {page:?}");
        assert!(page.body.contains(wanted), "{path}: {}", page.body);
        assert!(
            !page.body.contains("Nothing is wrong"),
            "{path}: {}",
            page.body
        );
        assert!(!page.body.contains("Received"), "{path}: {}", page.body);
    }
    let letters = format!("{}/ui/dead-letters?queue=local%3Aorders", scene.url);
    assert_eq!(http::get_with(&letters, &[OPERATE]).status, 200);
    let unknown = format!("{}/api/v1/queues/local%3Aothers/messages", scene.url);
    let unknown = http::get_with(&unknown, &[OPERATE]);
    assert_eq!(unknown.status, 404, "a look makes no queue: {unknown:?}");
    assert_eq!(
        http::get(&format!("{}/api/v1/queues", scene.url)).status,
        401
    );
    scene.act("/api/v1/process/drain", &json!({}));
    assert_eq!(scene.running.wait_exit(), 0, "it was drained");
    let audited = |line: &str| line.contains("admin action");
    assert_eq!(scene.running.lines(audited).len(), 3);
}

#[tokio::test]
async fn the_overview_shows_queues_as_they_are_created_and_deleted_and_counts_all() {
    let mut scene = ServedScene::start(&[]);
    let text = scene.page("/ui");
    assert!(text.contains("There are no queues yet."), "{text}");
    let token = "Authorization: Bearer operator";
    let mut lines = follow_view(&scene.url, "overview&q=&after=0", token);
    let server = dispatcher_tests::sqs::SqsServer::at(&scene.sqs);
    let orders = server.create("orders", &[]).await;
    let shown = |line: &String| line.contains("id=\"queue-local:orders\"");
    assert!(lines.any(|line| shown(&line)), "the open page shows it");
    let deletion = server.client.delete_queue().queue_url(orders);
    deletion.send().await.expect("it is deleted");
    assert!(lines.any(|line| line.contains("There are no queues yet.")));
    for number in 0..101 {
        server.create(&format!("q{number}"), &[]).await;
    }
    let counts = |line: &String| line.contains("id=\"queue-count\"") && line.contains(">101<");
    assert!(
        lines.any(|line| counts(&line)),
        "those of other pages count"
    );
    drop(lines);
    let text = scene.page("/ui?q=none-like-it");
    assert!(text.contains("has “none-like-it” in its name"), "{text}");
    scene.running.stop();
}

#[tokio::test]
async fn the_served_queues_are_looked_at_redriven_and_purged() {
    look_and_act(&[]).await;
}

#[tokio::test]
async fn queues_in_memory_are_looked_at_and_redriven_as_well() {
    look_and_act(&["--memory"]).await;
}

#[tokio::test]
async fn a_served_queue_shows_what_is_set_on_it_and_its_delayed_message_is_cancelled() {
    let mut scene = ServedScene::with_letter(&[]).await;
    let words = ["send", "local:orders", "later", "--delay", "1h"];
    let sent = Program::new(words).sharing(scene.running.data()).run();
    assert_eq!(sent.code, 0, "{sent:?}");
    let orders = "/api/v1/queues/local%3Aorders";
    let message = json!({"message": sent.stdout.trim()});
    let done = scene.act(&format!("{orders}/cancel"), &message);
    assert_eq!(done, json!({"waiting": 1, "running": 0}));
    scene.act(&format!("{orders}/limits"), &json!({"concurrency": 3}));
    scene.act(&format!("{orders}/pause"), &json!({}));
    scene.act(&format!("{orders}/pause"), &json!({}));
    let shown = scene.get(orders)["queue"].clone();
    assert_eq!(shown["concurrency"]["value"], 3, "{shown}");
    assert_eq!(
        (&shown["paused"], &shown["paused_by"]),
        (&json!(true), &json!("queue"))
    );
    let listed = scene.get("/api/v1/queues");
    let mut items = listed["items"].as_array().expect("a list").iter();
    assert!(items.any(|one| one["paused"] == true), "{listed}");
    let unknown = format!("{}/api/v1/queues/local%3Aodrers/pause", scene.url);
    let refused = http::post(&unknown, &[OPERATE], "{}");
    assert_eq!(refused.status, 404, "{refused:?}");
    scene.act("/api/v1/process/drain", &json!({}));
    assert_eq!(scene.running.wait_exit(), 0, "it was drained");
    let lines = scene.running.lines(|line| line.contains("admin action"));
    let counts = lines.iter().map(|line| {
        let count = line.split_once("count=").map(|(_, rest)| rest);
        count.map(|rest| rest.split(' ').next().unwrap_or_default().to_owned())
    });
    let counts: Vec<Option<String>> = counts.collect();
    let wanted = ["1", "1", "1", "0"].map(|count| Some(count.to_owned()));
    assert_eq!(counts[..4], wanted, "{lines:?}");
}

/// What an SDK receives at once.
async fn received(scene: &ServedScene, queue: &str) -> Vec<String> {
    let client = Sqs::connect(&configuration(&scene.sqs));
    let queue = client.open(queue, None).await.expect("it is there");
    let ask = Ask {
        visibility: Duration::ZERO,
        wait: Duration::from_secs(1),
        ..Ask::PLAIN
    };
    let received = queue.receive(ask, &CancellationToken::new()).await;
    let messages = received.expect("an answer").messages;
    messages.into_iter().map(|one| one.body).collect()
}

#[tokio::test]
async fn a_paused_queue_hands_out_nothing_until_it_is_resumed() {
    for more in [&[][..], &["--memory"]] {
        let mut scene = ServedScene::with_letter(more).await;
        let letters = "/api/v1/queues/local%3Aorders-dlq";
        let paused = scene.act(&format!("{letters}/pause"), &json!({}));
        assert_eq!(paused["affects"], "all-processes", "{paused}");
        let within = Duration::from_secs(paused["within_s"].as_u64().expect("a number"));
        let deadline = Instant::now() + within;
        while !received(&scene, "orders-dlq").await.is_empty() {
            assert!(Instant::now() < deadline, "it is handed out still");
        }
        assert_eq!(received(&scene, "orders-dlq").await, [""; 0]);
        scene.act(&format!("{letters}/resume"), &json!({}));
        let deadline = Instant::now() + dispatcher_tests::PATIENCE;
        while received(&scene, "orders-dlq").await != ["hello"] {
            assert!(Instant::now() < deadline, "it is not handed out again");
        }
        let url = format!("{}{letters}/limits", scene.url);
        let limited = http::post(&url, &[OPERATE], r#"{"rate": 5}"#);
        let wanted = if more.is_empty() { 200 } else { 409 };
        assert_eq!(limited.status, wanted, "{limited:?}");
        scene.act("/api/v1/process/drain", &json!({}));
        assert_eq!(scene.running.wait_exit(), 0, "it was drained");
    }
}

#[test]
fn the_admin_address_of_the_file_is_that_of_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dispatcher.toml");
    std::fs::write(&file, "[dispatcher]\nadmin = \"127.0.0.1:1\"\n").expect("written");
    let file = file.display().to_string();
    let mut running = Program::new(["local", "--listen", "127.0.0.1:0", "--config", &file]).start();
    running.wait_for_line(|line| line.starts_with(EXPORT));
    assert_eq!(
        running
            .lines(|line| line.contains("health and metrics"))
            .len(),
        0
    );
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}
