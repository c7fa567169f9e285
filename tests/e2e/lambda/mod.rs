//! A message of a queue reaches a Lambda function as AWS itself would send it, and its fate is what
//! the function answers.

mod answers;
mod faults;
mod rate;
pub(crate) mod scene;
mod tenants;
mod ways;

use crate::lambda::scene::{forward, queue, queue_with_redrive};
use crate::scene::{send, until_depth};
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use dispatcher_tests::lambda::Function;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{Counts, SqsServer};
use serde_json::{Value, json};

async fn function(hint: &str) -> Function {
    Function::create(&MiniStack::shared().url(), hint).await
}

fn texts<'a>(records: &'a [Value], name: &str) -> Vec<&'a str> {
    let text = |record: &'a Value| record[name].as_str().unwrap_or_default();
    records.iter().map(text).collect()
}

async fn send_with_attributes(server: &SqsServer, url: &str) {
    let attribute = |kind: &str| MessageAttributeValue::builder().data_type(kind);
    let text = attribute("String").string_value("blue").build();
    let binary = attribute("Binary").binary_value(Blob::new(b"\x00\xff"));
    let call = server.client.send_message().queue_url(url);
    call.message_body("{\"order\": 1}")
        .message_attributes("colour", text.expect("a type"))
        .message_attributes("bytes", binary.build().expect("a type"))
        .send()
        .await
        .expect("sent");
}

#[tokio::test]
async fn function_receives_the_event_of_sqs_and_the_message_is_deleted() {
    let function = function("whole").await;
    let (server, name, url) = queue("whole", &[]).await;
    send_with_attributes(&server, &url).await;
    let mut running = forward(&function.name, &name, &[]).start();
    let calls = function.wait_for_calls(1).await;
    server.wait_until_empty(&url).await;
    running.stop();
    let record = &calls[0].records()[0];
    let members = record.as_object().expect("an object");
    let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "attributes",
            "awsRegion",
            "body",
            "eventSource",
            "eventSourceARN",
            "md5OfBody",
            "md5OfMessageAttributes",
            "messageAttributes",
            "messageId",
            "receiptHandle",
        ]
    );
    assert_eq!(record["body"], "{\"order\": 1}");
    assert_eq!(record["eventSource"], "aws:sqs");
    assert_eq!(record["awsRegion"], "us-east-1");
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    assert_eq!(record["eventSourceARN"], arn);
    assert_eq!(record["attributes"]["ApproximateReceiveCount"], "1");
    for attribute in [
        "SentTimestamp",
        "SenderId",
        "ApproximateFirstReceiveTimestamp",
    ] {
        assert!(record["attributes"][attribute].is_string(), "{record}");
    }
    let own = json!({
        "colour": {"stringValue": "blue", "stringListValues": [], "binaryListValues": [], "dataType": "String"},
        "bytes": {"binaryValue": "AP8=", "stringListValues": [], "binaryListValues": [], "dataType": "Binary"},
    });
    assert_eq!(record["messageAttributes"], own);
    assert_eq!(function.calls().len(), 1);
}

#[tokio::test]
async fn ten_messages_are_one_event() {
    let function = function("batch").await;
    let (server, name, url) = queue("batch", &[]).await;
    server
        .send_many(&url, (0..10).map(|n| format!("n{n}")))
        .await;
    let more = ["--batch-size", "10", "--batch-window", "2s"];
    let mut running = forward(&function.name, &name, &more).start();
    server.wait_until_empty(&url).await;
    running.stop();
    let calls = function.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let mut bodies = calls[0].bodies();
    bodies.sort_unstable();
    let wanted: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
    assert_eq!(bodies, wanted);
    // As of a mapping with a window; without one the member is absent.
    for record in calls[0].records() {
        let digest = record.get("md5OfMessageAttributes");
        assert_eq!(digest, Some(&Value::Null), "{record}");
    }
}

#[tokio::test]
async fn only_listed_batch_item_failures_are_redelivered() {
    let function = function("partial").await;
    let (server, name, url) = queue("partial", &[]).await;
    let bodies = ["one", "fail-until:2", "two"].map(String::from);
    server.send_many(&url, bodies).await;
    let batch = ["--batch-size", "10", "--batch-window", "2s"];
    let more = [&batch[..], &["--partial-failures"]].concat();
    let mut running = forward(&function.name, &name, &more).start();
    server.wait_until_empty(&url).await;
    running.stop();
    let calls = function.calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(calls[0].records().len(), 3);
    assert_eq!(calls[1].bodies(), ["fail-until:2"]);
    let again = &calls[1].records()[0]["attributes"];
    assert_eq!(again["ApproximateReceiveCount"], "2");
}

#[tokio::test]
async fn failure_list_is_ignored_without_partial_failures() {
    let function = function("unread").await;
    let (server, name, url) = queue("unread", &[]).await;
    server.send_many(&url, ["fail-until:9".to_owned()]).await;
    let mut running = forward(&function.name, &name, &[]).start();
    server.wait_until_empty(&url).await;
    running.stop();
    assert_eq!(function.calls().len(), 1);
}

#[tokio::test]
async fn raising_function_is_retried_and_the_reason_logged() {
    let function = function("raises").await;
    let (server, name, url) = queue("raises", &[]).await;
    server.send_many(&url, ["raise-until:2".to_owned()]).await;
    let mut running = forward(&function.name, &name, &[]).start();
    // Its type, its message, and the end of the function's own log.
    for said in ["HandlerError", "not before 2", "about to raise at 1"] {
        running.wait_for_line(|line| line.contains(said));
    }
    server.wait_until_empty(&url).await;
    running.stop();
    let calls = function.calls();
    let counts: Vec<&Value> = calls
        .iter()
        .map(|call| &call.records()[0]["attributes"]["ApproximateReceiveCount"])
        .collect();
    assert_eq!(counts, ["1", "2"]);
}

#[tokio::test]
async fn asynchronous_invocation_is_done_when_lambda_accepts_the_event() {
    let function = function("event").await;
    let (server, name, url) = queue("event", &[]).await;
    server.send_many(&url, ["sleep:2000".to_owned()]).await;
    let more = ["--invocation", "async"];
    let mut running = forward(&function.name, &name, &more).start();
    server.wait_until_empty(&url).await;
    let calls = function.wait_for_calls(1).await;
    running.stop();
    assert_eq!(calls[0].bodies(), ["sleep:2000"]);
    assert_eq!(function.calls().len(), 1);
}

#[tokio::test]
async fn alias_is_invoked_by_its_name() {
    let function = function("alias").await;
    let version = function.alias("live").await;
    let (server, name, url) = queue("alias", &[]).await;
    server.send_many(&url, ["x".to_owned()]).await;
    let target = format!("{}:live", function.name);
    let mut running = forward(&target, &name, &[]).start();
    server.wait_until_empty(&url).await;
    running.stop();
    let call = &function.calls()[0];
    assert_eq!(call.version, version);
    assert!(call.arn.ends_with(":live"), "{}", call.arn);
}

#[tokio::test]
async fn missing_function_is_a_problem_at_start() {
    let (server, name, url) = queue("nowhere", &[]).await;
    server.send_many(&url, ["x".to_owned()]).await;
    let ended = forward("no-such-function", &name, &[]).run();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("no-such-function"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    let left = server.counts(&url).await;
    assert_eq!(
        (left.waiting, left.in_flight),
        (1, 0),
        "nothing was received"
    );
}

#[tokio::test]
async fn messages_of_a_local_queue_are_forwarded() {
    let function = function("local").await;
    let mut running = forward(&function.name, "local:orders", &[]).start();
    let data = running.data().clone();
    send(data.path(), "orders", ["hello".to_owned()]).await;
    let calls = function.wait_for_calls(1).await;
    until_depth(data.path(), "orders", |depth| depth == Default::default()).await;
    running.stop();
    let record = &calls[0].records()[0];
    assert_eq!(record["body"], "hello");
    assert_eq!(record["attributes"]["ApproximateReceiveCount"], "1");
    assert_eq!(record["messageAttributes"], json!({}));
    let source = record["eventSourceARN"].as_str().unwrap_or_default();
    assert!(
        source.starts_with("arn:") && source.contains("orders"),
        "{source}"
    );
    assert_ne!(record["eventSource"], "aws:sqs", "it is not of SQS");
}

async fn send_in_group(server: &SqsServer, url: &str, bodies: &[&str]) {
    let entry = |(at, body): (usize, &&str)| {
        SendMessageBatchRequestEntry::builder()
            .id(at.to_string())
            .message_group_id("g")
            .message_deduplication_id(at.to_string())
            .message_body(*body)
            .build()
            .expect("id and body are set")
    };
    let entries: Vec<_> = bodies.iter().enumerate().map(entry).collect();
    let call = server.client.send_message_batch().queue_url(url);
    call.set_entries(Some(entries)).send().await.expect("sent");
}

#[tokio::test]
async fn lesson_19_messages_behind_a_failure_in_their_group_are_redelivered_with_it() {
    let function = function("group").await;
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = format!("{}.fifo", SqsServer::fresh_name("group"));
    let url = server.create(&name, &[("FifoQueue", "true")]).await;
    // The function lists the second only; the third must not be done before it.
    send_in_group(&server, &url, &["first", "fail-until:2", "last"]).await;
    let more = ["--batch-size", "10", "--partial-failures"];
    let mut running = forward(&function.name, &name, &more).start();
    server.wait_until_empty(&url).await;
    running.stop();
    let calls = function.calls();
    let handled: Vec<&str> = calls.iter().flat_map(|call| call.bodies()).collect();
    let again = handled.iter().rposition(|body| *body == "fail-until:2");
    let last = handled.iter().rposition(|body| *body == "last");
    assert!(again.is_some() && last > again, "{handled:?}");
    assert_eq!(handled.iter().filter(|body| **body == "first").count(), 1);
}

#[tokio::test]
async fn throttled_function_spends_no_receive() {
    let function = function("throttled").await;
    let ((server, name, url), dead) = queue_with_redrive("throttled", 1, "30").await;
    function.reserve(0).await;
    server
        .send_many(&url, (0..5).map(|n| format!("n{n}")))
        .await;
    let mut running = forward(&function.name, &name, &[]).start();
    let reason = "ReservedFunctionConcurrentInvocationLimitExceeded";
    running.wait_for_line(|line| line.contains(reason));
    assert_eq!(function.calls().len(), 0);
    function.unreserve().await;
    let calls = function.wait_for_calls(5).await;
    server.wait_until_empty(&url).await;
    running.stop();
    for call in &calls {
        let counts = &call.records()[0]["attributes"]["ApproximateReceiveCount"];
        assert_eq!(counts, "1");
    }
    let ids: std::collections::BTreeSet<_> = calls
        .iter()
        .flat_map(|call| texts(call.records(), "messageId"))
        .collect();
    assert_eq!((calls.len(), ids.len()), (5, 5), "each ran once");
    assert_eq!(server.counts(&dead).await, Counts::default());
}
