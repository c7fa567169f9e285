//! Messages become requests to an HTTP service that people already have, and the response's status
//! is their outcome.

use crate::lambda::scene::{admin, queue, queue_with_redrive};
use crate::scene::{depth, field, send, until_depth};
use aws_sdk_sqs::types::MessageAttributeValue;
use dispatcher_core::message::{Attribute, AttributeValue, OutgoingMessage};
use dispatcher_core::queue::{Depth, Queue};
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::servers::{MiniStack, free_port};
use dispatcher_tests::service::{JobService, PostedRequest, ServiceAnswer, ServiceStep};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// `dispatcher run --forward` with log lines that a test can read.
fn forward(url: &str, more: &[&str]) -> Program {
    let mut arguments = vec!["run", "--log-format", "json", "--forward", url];
    arguments.extend(more);
    Program::new(arguments)
}

fn stop(mut running: RunningProgram) -> Arc<tempfile::TempDir> {
    running.stop();
    Arc::clone(running.data())
}

/// Waits until the default queue is empty, and stops.
async fn finish(running: RunningProgram) -> Arc<tempfile::TempDir> {
    let data = Arc::clone(running.data());
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    stop(running)
}

/// Answers the first request as its body says, `STATUS` or `STATUS AFTER`, and others with 200.
fn told(request: &PostedRequest) -> ServiceStep {
    let mut words = request.body.split(' ');
    let status = words.next().and_then(|status| status.parse().ok());
    let status = status.filter(|_| request.index == 0);
    let answer = ServiceAnswer::new(status.unwrap_or(200)).body("because");
    ServiceStep::Answer(match words.next() {
        Some(after) => answer.header("Retry-After", after),
        None => answer,
    })
}

/// What a message that the service answers in this way went through: the receive counts of its
/// requests, and its dead letters' reasons.
async fn fate(body: &str) -> (Vec<u32>, Vec<String>) {
    let service = JobService::start(told);
    let running = forward(&service.url(), &[]).start();
    send(running.data().path(), "default", [body.to_owned()]).await;
    service.wait_for(1);
    let data = finish(running).await;
    let requests = service.record().requests;
    let counts = requests.iter().map(PostedRequest::receive_count).collect();
    (counts, dead_letters(data.path()).await)
}

async fn dead_letters(data: &Path) -> Vec<String> {
    let store = LocalStore::open(data).expect("opens");
    let dead = store.queue("default.dead", None).expect("opens");
    let letters = dead.peek(10).await.expect("looks");
    let reason = |attribute: &Attribute| match &attribute.value {
        AttributeValue::Text(text) if attribute.name == "dispatcher-dead-letter-reason" => {
            Some(text.clone())
        }
        _ => None,
    };
    let attributes = letters.iter().flat_map(|letter| &letter.attributes);
    attributes.filter_map(reason).collect()
}

#[tokio::test]
async fn success_ends_the_message() {
    for status in ["200", "202", "204"] {
        assert_eq!(fate(status).await, (vec![1], vec![]), "{status}");
    }
}

#[tokio::test]
async fn client_error_dead_letters_the_message_with_the_response() {
    for status in ["400", "404", "422"] {
        let reason = format!("HTTP status {status}: because");
        assert_eq!(fate(status).await, (vec![1], vec![reason]), "{status}");
    }
}

#[tokio::test]
async fn message_that_no_request_can_carry_is_dead_lettered_and_the_next_is_forwarded() {
    let service = JobService::start(|_| ServiceStep::status(200));
    let running = forward(&service.url(), &["--concurrency", "1"]).start();
    let store = LocalStore::open(running.data().path()).expect("opens");
    let queue = store.queue("default", None).expect("opens");
    let message = |body: &str, size| OutgoingMessage {
        body: body.into(),
        attributes: vec![Attribute::text("big", "x".repeat(size))],
        ..OutgoingMessage::default()
    };
    for (body, size) in [("poison", 33_000), ("good", 1)] {
        let sent = queue.send(&[message(body, size)]).await.remove(0);
        sent.expect("sent");
    }
    let data = finish(running).await;
    let requests = service.record().requests;
    let bodies: Vec<_> = requests.iter().map(|request| &request.body).collect();
    assert_eq!(bodies, ["good"]);
    let letters = dead_letters(data.path()).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    let why = "no request can carry the message and its attributes: ";
    assert!(letters[0].starts_with(why), "{letters:?}");
    assert!(letters[0].contains("x-aws-sqsd-attr-big"), "{letters:?}");
}

#[tokio::test]
async fn server_error_is_retried_and_costs_an_attempt() {
    for status in ["500", "502", "403", "408", "425 1", "301"] {
        assert_eq!(fate(status).await, (vec![1, 2], vec![]), "{status}");
    }
}

#[tokio::test]
async fn retry_has_the_status_and_the_response_as_its_reason() {
    let service = JobService::start(told);
    let running = forward(&service.url(), &[]).start();
    send(running.data().path(), "default", ["502".to_owned()]).await;
    let line = running.wait_for_line(|line| line.contains("message retried"));
    let reason = "HTTP status 502: because";
    assert_eq!(field(&line, "reason"), reason);
    finish(running).await;
}

#[tokio::test]
async fn status_of_a_long_response_is_the_outcome() {
    let service = JobService::start(|request| {
        let status = request.body.parse().expect("a status");
        let long = ServiceAnswer::new(status).body("x".repeat(1 << 20));
        ServiceStep::Answer(long)
    });
    let running = forward(&service.url(), &[]).start();
    let bodies = ["200", "422"].map(str::to_owned);
    send(running.data().path(), "default", bodies).await;
    let data = finish(running).await;
    assert_eq!(service.record().requests.len(), 2);
    let letters = dead_letters(data.path()).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert!(
        letters[0].starts_with("HTTP status 422: xxx"),
        "{letters:?}"
    );
    assert!(letters[0].len() < 300, "{letters:?}");
}

#[tokio::test]
async fn busy_service_gets_the_message_again_without_another_receive() {
    for status in ["429", "503", "429 1", "503 1"] {
        assert_eq!(fate(status).await, (vec![1, 1], vec![]), "{status}");
    }
}

#[tokio::test]
async fn service_may_say_when_to_retry_by_its_own_clock() {
    let service = JobService::start(|request| match request.index {
        // Its clock has stood still since 1994.
        0 => ServiceStep::Answer(
            ServiceAnswer::new(500)
                .header("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
                .header("Retry-After", "Sun, 06 Nov 1994 08:49:39 GMT"),
        ),
        _ => ServiceStep::status(200),
    });
    let running = forward(&service.url(), &[]).start();
    send(running.data().path(), "default", ["job".to_owned()]).await;
    let line = running.wait_for_line(|line| line.contains("message retried"));
    assert_eq!(field(&line, "delay_ms"), "2000", "{line}");
    finish(running).await;
}

#[tokio::test]
async fn refused_credential_holds_the_route_and_spends_no_receive() {
    assert_eq!(fate("401").await, (vec![1, 1], vec![]));
}

#[tokio::test]
async fn slow_service_keeps_the_message_leased_and_gets_it_once() {
    let service = JobService::start(|request| match request.body.as_str() {
        "slow" => ServiceStep::Hold(ServiceAnswer::new(200)),
        _ => ServiceStep::status(200),
    });
    let running = forward(&service.url(), &["--visibility", "2"]).start();
    send(running.data().path(), "default", ["slow".to_owned()]).await;
    service.wait_for(1);
    // Twice the visibility timeout passes before this is received.
    let later = Program::new(["send", "local:default", "later", "--delay", "4s"]);
    assert_eq!(later.sharing(running.data()).run().code, 0);
    let requests = service.wait_for(2);
    assert_eq!(requests[1].body, "later");
    service.release();
    finish(running).await;
    assert_eq!(service.record().requests.len(), 2);
}

#[tokio::test]
async fn dead_service_spends_no_receive_and_gets_everything_once_it_is_back() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/jobs");
    let running = forward(&url, &["--max-attempts", "2"]).start();
    let bodies = (0..20).map(|n| format!("n{n}"));
    send(running.data().path(), "default", bodies).await;
    let line = running.wait_for_line(|line| line.contains("downstream busy"));
    assert!(line.contains("connection refused"), "{line}");
    let service = JobService::start_at(port, |_| ServiceStep::status(204));
    let requests = service.wait_for(20);
    let data = finish(running).await;
    assert!(requests.iter().all(|request| request.receive_count() == 1));
    assert_eq!(depth(data.path(), "default.dead").await, Depth::default());
}

/// What may have been handled is not sent again before its attempt's time is over: a line says so,
/// and the second request is another receive.
/// A connection takes an open file, and here there are fewer of those than attempts. Whatever cannot
/// be connected was not sent: it costs no attempt, and the log names the reason.
#[tokio::test]
async fn messages_without_an_open_file_left_for_them_are_forwarded_later() {
    const MESSAGES: usize = 150;
    let is_full = Arc::new(AtomicBool::new(false));
    let was_full = Arc::clone(&is_full);
    let service = JobService::start(move |_| {
        if was_full.load(Ordering::SeqCst) {
            ServiceStep::status(200)
        } else {
            ServiceStep::Hold(ServiceAnswer::new(200))
        }
    });
    let more = ["--concurrency", "200", "--max-attempts", "3"];
    let running = forward(&service.url(), &more).after("ulimit -n 64").start();
    let bodies = (0..MESSAGES).map(|number| number.to_string());
    send(running.data().path(), "default", bodies).await;
    let line = running.wait_for_line(|line| line.contains("\"connection not opened"));
    assert!(field(&line, "error").contains("open files"), "{line}");
    is_full.store(true, Ordering::SeqCst);
    service.release();
    let data = finish(running).await;
    assert_eq!(dead_letters(data.path()).await, Vec::<String>::new());
    let requests = service.record().requests;
    let counts: Vec<u32> = requests.iter().map(PostedRequest::receive_count).collect();
    assert_eq!(counts, vec![1; MESSAGES]);
}

async fn may_have_run(first: ServiceStep) {
    let service = JobService::start(move |request| match request.receive_count() {
        1 => first.clone(),
        _ => ServiceStep::status(200),
    });
    let running = forward(&service.url(), &["--timeout", "3s"]).start();
    send(running.data().path(), "default", ["job".to_owned()]).await;
    let line = running.wait_for_line(|line| line.contains("may have handled it"));
    let requests = service.wait_for(2);
    assert!(
        line.contains(requests[0].header("x-aws-sqsd-msgid").unwrap_or("none")),
        "{line}"
    );
    finish(running).await;
    let counts: Vec<_> = requests.iter().map(PostedRequest::receive_count).collect();
    assert_eq!(counts, [1, 2]);
    let keys = requests
        .iter()
        .map(|request| request.header("idempotency-key"));
    let keys: Vec<_> = keys.collect();
    assert!(keys[0].is_some() && keys[0] == keys[1], "{keys:?}");
}

#[tokio::test]
async fn response_that_is_cut_off_may_mean_that_the_message_was_handled() {
    may_have_run(ServiceStep::Cut(
        ServiceAnswer::new(200).body("x".repeat(999)),
    ))
    .await;
}

#[tokio::test]
async fn connection_that_is_reset_may_mean_that_the_message_was_handled() {
    may_have_run(ServiceStep::Reset).await;
}

#[tokio::test]
async fn missing_response_may_mean_that_the_message_was_handled() {
    may_have_run(ServiceStep::Never).await;
}

#[tokio::test]
async fn gateway_that_gave_up_may_mean_that_the_message_was_handled() {
    may_have_run(ServiceStep::status(504)).await;
}

#[tokio::test]
async fn thousand_messages_are_in_flight_at_once_and_connections_are_used_again() {
    const MANY: usize = 1_000;
    let service = JobService::start(|_| ServiceStep::Hold(ServiceAnswer::new(200)));
    let more = ["--concurrency", "1000", "--admin", "127.0.0.1:0"];
    let running = forward(&service.url(), &more).start();
    let data = running.data().clone();
    send(data.path(), "default", (0..MANY).map(|n| n.to_string())).await;
    service.wait(|record| record.in_flight == MANY);
    // It finds all answers at once.
    running.signal(Signal::STOP);
    service.release();
    service.wait(|record| record.in_flight == 0);
    running.signal(Signal::CONT);
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    send(
        data.path(),
        "default",
        (0..MANY).map(|n| format!("again {n}")),
    )
    .await;
    let record = service.wait(|record| record.requests.len() == 2 * MANY);
    finish(running).await;
    assert_eq!(record.most_in_flight, MANY);
    assert!(
        record.connections <= MANY + MANY / 10,
        "{} connections",
        record.connections
    );
    assert_eq!(depth(data.path(), "default.dead").await, Depth::default());
}

/// JSON that many libraries refuse.
fn odd_json() -> [String; 3] {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    [r#""\ud83d""#.to_owned(), "1e400".to_owned(), deep]
}

#[tokio::test]
async fn response_names_failed_messages_beside_any_json() {
    for odd in odd_json() {
        let service = JobService::start(move |request| {
            let batch: serde_json::Value = serde_json::from_str(&request.body).expect("JSON");
            let messages = batch["messages"].as_array().expect("a list");
            let bad = messages
                .iter()
                .filter(|message| message["body"] == "bad" && message["receive_count"] == 1)
                .map(|message| serde_json::json!({ "itemIdentifier": message["id"] }));
            let failures = serde_json::Value::from_iter(bad);
            let body = format!(r#"{{"x":{odd},"batchItemFailures":{failures}}}"#);
            ServiceStep::Answer(ServiceAnswer::new(200).body(body))
        });
        let batch = ["--batch-size", "10", "--batch-window", "1"];
        let running = forward(&service.url(), &batch).start();
        send(
            running.data().path(),
            "default",
            ["one", "bad"].map(String::from),
        )
        .await;
        finish(running).await;
        let requests = service.record().requests;
        assert_eq!(requests.len(), 2, "{requests:?}");
        let again: serde_json::Value = serde_json::from_str(&requests[1].body).expect("JSON");
        assert_eq!(
            again["messages"].as_array().map(Vec::len),
            Some(1),
            "{again}"
        );
        assert_eq!(again["messages"][0]["body"], "bad");
    }
}

#[tokio::test]
async fn batch_is_one_request_and_only_the_messages_it_names_are_retried() {
    let service = JobService::start(|request| {
        let batch: serde_json::Value = serde_json::from_str(&request.body).expect("JSON");
        let messages = batch["messages"].as_array().expect("a list");
        let bad = messages
            .iter()
            .filter(|message| message["body"] == "bad" && message["receive_count"] == 1)
            .map(|message| serde_json::json!({ "itemIdentifier": message["id"] }));
        let failures: Vec<_> = bad.collect();
        let body = serde_json::json!({ "batchItemFailures": failures });
        ServiceStep::Answer(ServiceAnswer::new(200).body(body.to_string()))
    });
    let batch = ["--batch-size", "10", "--batch-window", "1"];
    let running = forward(&service.url(), &batch).start();
    let bodies = ["one", "bad", "two"].map(String::from);
    send(running.data().path(), "default", bodies).await;
    finish(running).await;
    let requests = service.record().requests;
    let bodies = |request: &PostedRequest| -> Vec<String> {
        let batch: serde_json::Value = serde_json::from_str(&request.body).expect("JSON");
        let messages = batch["messages"].as_array().expect("a list").iter();
        let body = |message: &serde_json::Value| message["body"].as_str().map(String::from);
        messages.filter_map(body).collect()
    };
    assert_eq!(requests.len(), 2, "{requests:#?}");
    assert_eq!(bodies(&requests[0]), ["one", "bad", "two"]);
    assert_eq!(bodies(&requests[1]), ["bad"]);
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
}

/// HMAC-SHA256 in hexadecimal, written out: the service's side of the signature.
pub(crate) fn hmac(key: &[u8], text: &str) -> String {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |byte: u8| block.map(|of_key| of_key ^ byte);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text);
    let outer = Sha256::new()
        .chain_update(pad(0x5c))
        .chain_update(inner.finalize());
    let digest = outer.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn signature_of_the_key_in_a_file_can_be_checked() {
    let service = JobService::start(|_| ServiceStep::status(200));
    let settings = format!(
        "[plugin.api]\nforward = \"{}\"\nforward-key-file = \"key\"\n\
         forward-header = {{ authorization = \"Bearer t0ken\", user-agent = \"aws-sqsd/3.0\" }}\n",
        service.url()
    );
    let running = Program::new(["run", "--config", "d.toml", "--log-format", "json"])
        .file("d.toml", &settings)
        .file("key", "s3cret\n")
        .start();
    send(running.data().path(), "default", ["{\"a\":1}".to_owned()]).await;
    let request = service.wait_for(1).remove(0);
    finish(running).await;
    let signature = request.header("x-dispatcher-signature").expect("signed");
    let (time, of) = signature
        .strip_prefix("t=")
        .and_then(|rest| rest.split_once(",v1="))
        .expect("t=SECONDS,v1=HEX");
    assert_eq!(of, hmac(b"s3cret", &format!("{time}.{{\"a\":1}}")));
    assert_eq!(request.header("authorization"), Some("Bearer t0ken"));
    assert_eq!(request.header("user-agent"), Some("aws-sqsd/3.0"));
}

#[test]
fn key_that_cannot_be_read_is_refused_at_the_start() {
    let url = "http://127.0.0.1:1/";
    let refused = forward(url, &["--forward-key-file", "nowhere"]).run();
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("--forward-key-file: the key in `nowhere`: no such file"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn message_and_its_attributes_are_the_request() {
    let service = JobService::start(|_| ServiceStep::status(200));
    let running = forward(&service.url(), &["--queues", "local:orders"]).start();
    let store = LocalStore::open(running.data().path()).expect("opens");
    let orders = store.queue("orders", None).expect("opens");
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let message = OutgoingMessage {
        body: "{\"n\":1}".into(),
        attributes: vec![
            Attribute::text("kind", "Zürich"),
            Attribute::text("TraceParent", trace),
            Attribute {
                name: "raw".into(),
                data_type: "Binary".into(),
                value: AttributeValue::Binary(vec![0, 255]),
            },
        ],
        group: Some("customer-1".into()),
        ..OutgoingMessage::default()
    };
    let sent = orders.send(&[message]).await.remove(0).expect("sent");
    let request = service.wait_for(1).remove(0);
    until_depth(running.data().path(), "orders", |depth| {
        depth == Depth::default()
    })
    .await;
    stop(running);
    assert_eq!(request.line, "POST /jobs");
    assert_eq!(request.body, "{\"n\":1}");
    // Two queues may have messages of the same id.
    let key: String = Sha256::digest(format!("local:orders\n{sent}"))
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-aws-sqsd-msgid", sent.as_str()),
        ("idempotency-key", key.as_str()),
        ("x-aws-sqsd-queue", "orders"),
        ("x-dispatcher-queue", "local:orders"),
        ("x-aws-sqsd-receive-count", "1"),
        ("x-aws-sqsd-attr-kind", "Z%C3%BCrich"),
        ("x-aws-sqsd-attr-raw", "AP8="),
        ("x-dispatcher-group", "customer-1"),
        ("traceparent", trace),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}: {request:#?}");
    }
}

#[tokio::test]
async fn kill_while_requests_are_in_flight_loses_nothing() {
    let service = JobService::start(|request| match request.receive_count() {
        1 => ServiceStep::Hold(ServiceAnswer::new(200)),
        _ => ServiceStep::status(200),
    });
    let more = ["--visibility", "2"];
    let mut running = forward(&service.url(), &more).start();
    let data = running.data().clone();
    send(data.path(), "default", (0..10).map(|n| n.to_string())).await;
    service.wait_for(10);
    running.signal(Signal::KILL);
    assert_eq!(running.wait_exit(), 137);
    let again = forward(&service.url(), &more).sharing(&data).start();
    let record = service.wait(|record| record.requests.len() == 20);
    finish(again).await;
    let mut counts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for request in &record.requests {
        let count = request.receive_count();
        counts.entry(&request.body).or_default().push(count);
    }
    assert_eq!(counts.len(), 10);
    assert!(
        counts.values().all(|counts| counts == &[1, 2]),
        "{counts:?}"
    );
    assert_eq!(depth(data.path(), "default.dead").await, Depth::default());
}

#[tokio::test]
async fn stop_waits_for_requests_in_flight() {
    let service = JobService::start(|_| ServiceStep::Hold(ServiceAnswer::new(200)));
    let mut running = forward(&service.url(), &[]).start();
    let data = running.data().clone();
    send(data.path(), "default", ["job".to_owned()]).await;
    service.wait_for(1);
    running.signal(Signal::TERM);
    running.wait_for_line(|line| line.contains("stop"));
    service.release();
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(depth(data.path(), "default").await, Depth::default());
}

#[tokio::test]
async fn request_that_outlasts_a_stop_is_not_sent_to_others_meanwhile() {
    let service = JobService::start(|_| ServiceStep::Hold(ServiceAnswer::new(200)));
    let more = ["--timeout", "1h", "--shutdown-grace", "1s"];
    let mut running = forward(&service.url(), &more).start();
    let data = running.data().clone();
    send(data.path(), "default", ["job".to_owned()]).await;
    service.wait_for(1);
    running.signal(Signal::TERM);
    let line = running.wait_for_line(|line| line.contains("\"message abandoned\""));
    assert_eq!(field(&line, "reason_kind"), "stopped");
    assert_eq!(field(&line, "may_have_been_handled"), "true");
    let now = humantime::format_rfc3339(std::time::SystemTime::now()).to_string();
    let again = field(&line, "comes_again_at");
    assert!(again > now, "{again}: when its hour is over");
    running.wait_exit();
    let sum = running.wait_for_line(|line| line.contains("attempts abandoned by the stop"));
    let counts = ["messages", "interrupted", "may_have_been_handled"];
    assert_eq!(counts.map(|name| field(&sum, name)), ["1", "0", "1"]);
    assert_eq!(field(&sum, "comes_again_by"), again);
    let left = depth(data.path(), "default").await;
    // Invisible until the attempt would have been over.
    assert_eq!((left.waiting, left.delayed + left.in_flight), (0, 1));
}

#[tokio::test]
async fn doctor_warns_of_a_deploy_that_cuts_off_what_runs_now() {
    let service = JobService::start(|_| ServiceStep::Hold(ServiceAnswer::new(200)));
    let grace = ["--timeout", "1h", "--shutdown-grace", "0s"];
    let running = forward(
        &service.url(),
        &[&grace[..], &["--admin", "127.0.0.1:0"]].concat(),
    );
    let mut running = running.start();
    let address = admin(&running).trim_start_matches("http://").to_owned();
    let doctor = |grace: &str| {
        let words = ["doctor", "--forward", &service.url(), "--admin", &address];
        let limits = ["--timeout", "1h", "--shutdown-grace", grace];
        Program::new([&words[..], &limits[..]].concat())
            .sharing(running.data())
            .run()
            .stdout
    };
    let unmeasured = "an attempt may take 1h and a stop waits 10s: longer ones are abandoned";
    let found = doctor("10s");
    assert!(found.contains(unmeasured), "{found}");
    send(running.data().path(), "default", ["job".to_owned()]).await;
    service.wait_for(1);
    let found = doctor("0s");
    assert!(
        found.contains("warn  deploys of route ") && found.contains(": one has run for"),
        "{found}"
    );
    assert!(
        found.contains("though the other side may have finished"),
        "{found}"
    );
    let found = doctor("50m");
    assert!(
        found.contains("ok    deploys of route ") && found.contains(": one has run for"),
        "{found}"
    );
    service.release();
    running.stop();
}

#[tokio::test]
async fn messages_of_sqs_are_forwarded_and_settled_by_the_status() {
    let ((server, name, url), dead) = queue_with_redrive("forward", 2, "2").await;
    let service = JobService::start(|request| match request.body.as_str() {
        "bad" => ServiceStep::status(422),
        "again" if request.receive_count() == 1 => ServiceStep::status(500),
        _ => ServiceStep::status(200),
    });
    let more = ["--queues", &name, "--poll-for", "1"];
    let aws = MiniStack::shared().url();
    let running = forward(&service.url(), &more).aws(&aws).start();
    let colour = MessageAttributeValue::builder();
    let colour = colour.data_type("String").string_value("blue").build();
    let call = server.client.send_message().queue_url(&url);
    let call = call
        .message_body("first")
        .message_attributes("colour", colour.expect("a type"));
    call.send().await.expect("sent");
    server
        .send_many(&url, ["again", "bad"].map(String::from))
        .await;
    server.wait_until_empty(&url).await;
    stop(running);
    let requests = service.record().requests;
    let of = |body: &'static str| requests.iter().filter(move |request| request.body == body);
    let first = of("first").next().expect("it came");
    assert_eq!(first.header("x-aws-sqsd-attr-colour"), Some("blue"));
    assert_eq!(first.header("x-aws-sqsd-queue"), Some(name.as_str()));
    assert!(first.header("x-aws-sqsd-first-received-at").is_some());
    assert!(first.header("x-aws-sqsd-sender-id").is_some());
    let counts: Vec<_> = of("again").map(PostedRequest::receive_count).collect();
    assert_eq!(counts, [1, 2]);
    assert_eq!(server.counts(&dead).await.waiting, 1);
}

#[tokio::test]
async fn thousand_messages_of_sqs_are_forwarded_once_each() {
    let (server, name, url) = queue("forward-many", &[]).await;
    let service = JobService::start(|_| ServiceStep::status(200));
    server
        .send_many(&url, (0..1_000).map(|n| n.to_string()))
        .await;
    let more = ["--queues", &name, "--poll-for", "1", "--concurrency", "200"];
    let aws = MiniStack::shared().url();
    let running = forward(&service.url(), &more).aws(&aws).start();
    server.wait_until_empty(&url).await;
    stop(running);
    let requests = service.record().requests;
    let bodies: std::collections::BTreeSet<_> =
        requests.iter().map(|request| &request.body).collect();
    assert_eq!((requests.len(), bodies.len()), (1_000, 1_000));
}

#[test]
fn what_cannot_be_forwarded_is_refused_with_a_hint() {
    for (flags, says) in [
        (
            &["--forward", "127.0.0.1:80/x"][..],
            "did you mean `http://127.0.0.1:80/x`?",
        ),
        (
            &["--forward", "http://h/", "--plugin", "p.wasm"],
            "wanted one of a component, a function and a service",
        ),
        (
            &["--forward", "http://h/", "--allow-http", "h"],
            "HTTP requests for a plugin that forwards to a service",
        ),
        (
            &["--function", "f", "--forward-header", "a=b"],
            "`forward-header` says how a service is called, and this is a function",
        ),
        (
            &["--forward", "http://h/", "--forward-header", "host=b"],
            "the header `host`, which dispatcher sets itself",
        ),
        (
            &["--forward", "http://h/", "--invocation", "sync"],
            "`invocation` says how a function is invoked, and this is a service",
        ),
        (
            &["--forward", "http://h/", "--canary", "c.wasm"],
            "a trial of a plugin that forwards to a service",
        ),
    ] {
        let arguments = ["check"].iter().chain(flags);
        let refused = Program::new(arguments).run();
        assert_eq!(refused.code, 2, "{flags:?}: {refused:?}");
        assert!(refused.stderr.contains(says), "{flags:?}: {refused:?}");
    }
}
