//! The calls of a message's life, and those that open a queue, before a server that answers what a test
//! says: it stands in place of the SDK's HTTP client.

use crate::queue::{Sqs, SqsQueue};
use aws_sdk_sqs::config::http::{HttpRequest, HttpResponse};
use aws_sdk_sqs::config::{Credentials, Region, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::DateTime;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::date_time::Format;
use dispatcher_aws as aws;
use dispatcher_core::clock;
use dispatcher_core::message::{Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::{Ask, ErrorKind, ItemError, Queue, QueueError};
use dispatcher_core::tasks;
use md5::{Digest, Md5};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Answers a request of this operation: `None` as SQS does.
type Answers = dyn Fn(&str, &Value) -> Option<Value> + Send + Sync;

#[derive(Clone)]
struct CannedServer {
    answers: Arc<Answers>,
    /// How many seconds its clock is ahead of ours.
    ahead: i64,
    requests: Arc<Mutex<Vec<SentRequest>>>,
}

#[derive(Clone)]
struct SentRequest {
    operation: String,
    body: Value,
    uri: String,
    /// The region that it is signed for.
    region: String,
}

impl std::fmt::Debug for CannedServer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("CannedServer")
    }
}

impl HttpConnector for CannedServer {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").expect("an operation");
        let operation = target.trim_start_matches("AmazonSQS.").to_owned();
        let body = request.body().bytes().expect("in memory");
        let body: Value = serde_json::from_slice(body).expect("JSON");
        let answer = (self.answers)(&operation, &body);
        let answer = answer.unwrap_or_else(|| answer_of_sqs(&operation, &body));
        let header = |name| request.headers().get(name).expect("it is signed");
        let region = header("authorization").split('/').nth(2);
        self.requests.lock().unwrap().push(SentRequest {
            operation,
            body,
            uri: request.uri().to_owned(),
            region: region.expect("a scope").to_owned(),
        });
        let now = DateTime::from_secs(seconds_now() + self.ahead);
        if seconds_of(header("x-amz-date")).abs_diff(now.secs()) > 300 {
            return HttpConnectorFuture::ready(Ok(expired(now)));
        }
        let text = match answer {
            Value::String(text) => text,
            answer => answer.to_string(),
        };
        let status = StatusCode::try_from(200).expect("a status");
        HttpConnectorFuture::ready(Ok(HttpResponse::new(status, SdkBody::from(text))))
    }
}

impl HttpClient for CannedServer {
    fn http_connector(
        &self,
        _: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

fn seconds_now() -> i64 {
    i64::try_from(clock::wall_clock_now().0 / 1_000).expect("it is this century")
}

/// Of `20261127T120000Z`.
fn seconds_of(date: &str) -> i64 {
    let (day, time) = date.split_once('T').expect("a date");
    let iso = format!(
        "{}-{}-{}T{}:{}:{}Z",
        &day[..4],
        &day[4..6],
        &day[6..],
        &time[..2],
        &time[2..4],
        &time[4..6]
    );
    let date = DateTime::from_str(&iso, Format::DateTime);
    date.expect("a date").secs()
}

/// The answer to a signature of another time.
fn expired(now: DateTime) -> HttpResponse {
    let body =
        r#"{"__type":"com.amazonaws.sqs#SignatureDoesNotMatch","message":"Signature expired"}"#;
    let status = StatusCode::try_from(403).expect("a status");
    let mut answer = HttpResponse::new(status, SdkBody::from(body));
    let date = now.fmt(Format::HttpDate).expect("a date");
    answer.headers_mut().insert("date", date);
    answer
}

fn answer_of_sqs(operation: &str, body: &Value) -> Value {
    let name = body["QueueName"].as_str().unwrap_or_default();
    let url = body["QueueUrl"].as_str().unwrap_or_default();
    let entries = body["Entries"].as_array().cloned().unwrap_or_default();
    match operation {
        "GetQueueUrl" => json!({ "QueueUrl": format!("http://sqs.test/000000000000/{name}") }),
        "GetQueueAttributes" => {
            let name = url.rsplit('/').next().unwrap_or_default();
            let arn = format!("arn:aws:sqs:eu-west-1:000000000000:{name}");
            json!({ "Attributes": { "QueueArn": arn, "ApproximateNumberOfMessages": "3" } })
        }
        "SendMessageBatch" => {
            let sent = entries.iter().map(|entry| {
                let digest = Md5::digest(entry["MessageBody"].as_str().unwrap_or_default());
                let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                json!({ "Id": entry["Id"], "MessageId": "new", "MD5OfMessageBody": digest })
            });
            json!({ "Successful": sent.collect::<Vec<_>>() })
        }
        _ => {
            let done = entries.iter().map(|entry| json!({ "Id": entry["Id"] }));
            json!({ "Successful": done.collect::<Vec<_>>() })
        }
    }
}

impl CannedServer {
    fn answering(answers: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static) -> Self {
        Self {
            answers: Arc::new(answers),
            ahead: 0,
            requests: Arc::default(),
        }
    }

    /// The configuration of a client that reaches nothing else.
    fn config(&self) -> aws::SdkConfig {
        let credentials = Credentials::new("id", "secret", None, None, "test");
        aws::SdkConfig::builder()
            .behavior_version(aws::BehaviorVersion::latest())
            .region(Region::from_static("eu-west-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(self.clone())
            .build()
    }

    async fn open(&self, name: &str, dead: Option<&str>) -> Result<SqsQueue, QueueError> {
        let config = aws::for_endpoint(&self.config(), Some("http://sqs.test"));
        Sqs::connect(&config).open(name, dead).await
    }

    fn all_requests(&self) -> Vec<SentRequest> {
        self.requests.lock().unwrap().clone()
    }

    fn requests(&self, operation: &str) -> Vec<Value> {
        let all = self.all_requests().into_iter();
        let found = all.filter(|request| request.operation == operation);
        found.map(|request| request.body).collect()
    }
}

fn message(id: &str) -> Message {
    Message {
        id: id.into(),
        body: format!("body of {id}"),
        receipt: Receipt(format!("receipt of {id}")),
        receive_count: 1,
        ..Message::default()
    }
}

fn entry(body: &Value, at: usize) -> Value {
    body["Entries"][at]["Id"].clone()
}

/// The results of two deletions of one call that is answered so.
async fn deletions(
    answer: impl Fn(&Value) -> Value + Send + Sync + 'static,
) -> Vec<Result<(), ItemError>> {
    let server = CannedServer::answering(move |operation, body| {
        (operation == "DeleteMessageBatch").then(|| answer(body))
    });
    let queue = server.open("q", None).await.expect("the server has it");
    let items = ["a", "b"].map(|id| (message(id), Outcome::Delete));
    queue.settle(&items).await
}

fn is_retried(result: &Result<(), ItemError>) -> bool {
    matches!(result, Err(ItemError::Transient(_)))
}

#[tokio::test]
async fn answer_that_does_not_name_each_entry_once_fails_the_others() {
    let done = |id: Value| json!({ "Id": id });
    let failed = |id: Value| json!({ "Id": id, "Code": "InternalError", "SenderFault": false });
    // No entry at all, in all the ways of saying so, and those of another call.
    let empty: [fn(&Value) -> Value; 6] = [
        |_| json!({}),
        |_| json!(""),
        |_| json!({ "Successful": null, "Failed": null }),
        |_| json!({ "Successful": [], "Failed": [] }),
        |_| json!({ "Successful": [{ "Id": "0" }, { "Id": "1" }] }),
        |_| json!({ "Successful": [{ "Id": "" }, {}] }),
    ];
    for answer in empty {
        let results = deletions(answer).await;
        assert!(results.iter().all(is_retried), "{results:?}");
    }
    let results = deletions(move |body| json!({ "Successful": [done(entry(body, 1))] })).await;
    assert!(is_retried(&results[0]) && results[1].is_ok(), "{results:?}");
    let results = deletions(move |body| {
        let twice = [entry(body, 0), entry(body, 0), entry(body, 1)].map(done);
        json!({ "Successful": twice })
    });
    let results = results.await;
    assert!(is_retried(&results[0]) && results[1].is_ok(), "{results:?}");
    let results = deletions(move |body| {
        let both = [entry(body, 0), entry(body, 1)].map(done);
        json!({ "Successful": both, "Failed": [failed(entry(body, 1))] })
    });
    let results = results.await;
    assert!(results[0].is_ok() && is_retried(&results[1]), "{results:?}");
}

#[tokio::test]
async fn no_two_calls_share_an_entry_id() {
    let server = CannedServer::answering(|_, _| None);
    let queue = server.open("q", None).await.expect("the server has it");
    let mut ids = HashSet::new();
    for _ in 0..3 {
        let items = [
            (message("a"), Outcome::Delete),
            (message("b"), Outcome::Delete),
            (message("c"), Outcome::Release(Duration::from_secs(1))),
        ];
        assert_eq!(queue.settle(&items).await, [Ok(()), Ok(()), Ok(())]);
        let sent = queue.send(&[OutgoingMessage::default(), body("d")]).await;
        assert_eq!(sent[1], Ok("new".into()));
    }
    for operation in [
        "DeleteMessageBatch",
        "ChangeMessageVisibilityBatch",
        "SendMessageBatch",
    ] {
        for request in server.requests(operation) {
            for entry in request["Entries"].as_array().expect("entries") {
                let id = entry["Id"].as_str().expect("an id").to_owned();
                let legal = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
                assert!(id.len() <= 80 && id.chars().all(legal), "{id}");
                assert!(ids.insert(id));
            }
        }
    }
    assert_eq!(ids.len(), 3 * 4);
}

fn body(text: &str) -> OutgoingMessage {
    OutgoingMessage {
        body: text.into(),
        ..OutgoingMessage::default()
    }
}

#[tokio::test]
async fn original_is_deleted_only_after_an_answer_about_its_copy() {
    let answers: [fn(&Value) -> Value; 5] = [
        // Of a deletion.
        |body| json!({ "Successful": [{ "Id": entry(body, 0) }] }),
        |body| json!({ "Successful": [{ "Id": entry(body, 0), "MessageId": "m" }] }),
        |body| {
            let digest = "00000000000000000000000000000000";
            let sent =
                json!({ "Id": entry(body, 0), "MessageId": "m", "MD5OfMessageBody": digest });
            json!({ "Successful": [sent] })
        },
        |_| json!({ "Successful": [{ "Id": "0", "MessageId": "m" }] }),
        |_| json!({}),
    ];
    for answer in answers {
        let server = CannedServer::answering(move |operation, body| {
            (operation == "SendMessageBatch").then(|| answer(body))
        });
        let queue = server.open("q", Some("dead")).await.expect("both exist");
        let items = [(message("a"), Outcome::DeadLetter("why".into()))];
        let results = queue.settle(&items).await;
        assert!(is_retried(&results[0]), "{results:?}");
        assert!(server.requests("DeleteMessageBatch").is_empty());
    }
    let server = CannedServer::answering(|_, _| None);
    let queue = server.open("q", Some("dead")).await.expect("both exist");
    let items = [(message("a"), Outcome::DeadLetter("why".into()))];
    assert_eq!(queue.settle(&items).await, [Ok(())]);
    assert_eq!(server.requests("DeleteMessageBatch").len(), 1);
}

/// A server that answers the first `times` calls of an operation with this.
fn at_first(operation: &'static str, times: usize, answer: Value) -> CannedServer {
    let left = Mutex::new(times);
    CannedServer::answering(move |called, _| {
        let mut left = left.lock().unwrap();
        if called != operation || *left == 0 {
            return None;
        }
        *left -= 1;
        Some(answer.clone())
    })
}

#[tokio::test]
async fn queue_is_asked_for_again_while_the_answers_are_not_about_it() {
    let foreign = json!({ "Attributes": { "QueueArn": "arn:aws:sqs:eu-west-1:0:other" } });
    let cases = [
        ("GetQueueAttributes", json!({})),
        ("GetQueueAttributes", json!("")),
        ("GetQueueAttributes", json!("<html>hello</html>")),
        (
            "GetQueueAttributes",
            json!({ "Attributes": { "VisibilityTimeout": "30" } }),
        ),
        ("GetQueueAttributes", foreign),
        ("GetQueueUrl", json!({})),
        ("GetQueueUrl", json!("nonsense")),
        (
            "GetQueueUrl",
            json!({ "QueueUrl": "http://sqs.test/0/other" }),
        ),
    ];
    let opened = cases.map(async |(operation, answer)| {
        let server = at_first(operation, 2, answer.clone());
        let queue = server.open("orders.fifo", None).await;
        let queue = queue.expect("the third answer is about it");
        assert!(queue.identity().ordered_groups, "{operation} {answer}");
        assert_eq!(server.requests(operation).len(), 3, "{operation} {answer}");

        let server = at_first(operation, 99, answer.clone());
        let error = server.open("orders.fifo", None).await;
        let error = error.expect_err("no answer is about it");
        assert_eq!(error.kind, ErrorKind::Transient, "{error}");
        assert!(error.message.contains("its answer"), "{error}");
        assert_eq!(server.requests(operation).len(), 4, "{operation} {answer}");
    });
    tasks::all(opened.into()).await;
}

#[tokio::test]
async fn name_alone_says_whether_a_queue_is_fifo() {
    for (name, is_fifo) in [("q.fifo", true), ("q", false), ("fifo", false)] {
        for said in ["true", "false"] {
            let server = CannedServer::answering(move |operation, _| {
                let arn = format!("arn:aws:sqs:eu-west-1:000000000000:{name}");
                let attributes = json!({ "QueueArn": arn, "FifoQueue": said });
                (operation == "GetQueueAttributes").then(|| json!({ "Attributes": attributes }))
            });
            let queue = server.open(name, None).await.expect("the server has it");
            assert_eq!(queue.identity().ordered_groups, is_fifo, "{name} {said}");
        }
    }
}

#[tokio::test]
async fn depth_is_unknown_where_the_answer_does_not_tell_it() {
    let server = CannedServer::answering(|_, _| None);
    let queue = server.open("q", None).await.expect("the server has it");
    assert_eq!(queue.depth().await.expect("it tells").waiting, 3);
    let server = CannedServer::answering(|operation, body| {
        let is_depth = operation == "GetQueueAttributes"
            && !body["AttributeNames"].to_string().contains("All");
        is_depth.then(|| json!({}))
    });
    let queue = server.open("q", None).await.expect("the server has it");
    let error = queue.depth().await.expect_err("it does not tell");
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
}

#[tokio::test]
async fn answer_that_is_not_of_sqs_is_a_failed_receive() {
    for answer in [
        "[]",
        "nonsense",
        r#"{"Messages": 7}"#,
        r#"{"Messages": [{"Body": 7}]}"#,
    ] {
        let server = CannedServer::answering(move |operation, _| {
            (operation == "ReceiveMessage").then(|| json!(answer))
        });
        let queue = server.open("q", None).await.expect("the server has it");
        let received = queue.receive(Ask::PLAIN, &CancellationToken::new()).await;
        let error = received.expect_err(answer);
        assert_eq!(error.kind, ErrorKind::Transient, "{error}");
        assert!(
            error
                .message
                .contains("its answer cannot be read (HTTP 200): "),
            "{error}"
        );
    }
}

#[tokio::test]
async fn queue_url_is_called_at_its_own_endpoint_and_signed_for_its_own_region() {
    for (host, region) in [
        ("sqs.us-west-2.amazonaws.com", "us-west-2"),
        ("sqs-fips.us-west-2.amazonaws.com", "us-west-2"),
        ("sqs.us-west-2.api.aws", "us-west-2"),
        ("sqs-fips.us-west-2.api.aws", "us-west-2"),
        ("us-west-2.queue.amazonaws.com", "us-west-2"),
        ("queue.amazonaws.com", "us-east-1"),
        ("vpce-0a-b.sqs.us-west-2.vpce.amazonaws.com", "us-west-2"),
        ("sqs.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("sqs.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("sqs.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
        ("sqs.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"),
        ("sqs.us-isob-east-1.sc2s.sgov.gov", "us-isob-east-1"),
        ("sqs.eu-isoe-west-1.cloud.adc-e.uk", "eu-isoe-west-1"),
        ("sqs.us-isof-south-1.csp.hci.ic.gov", "us-isof-south-1"),
        // Not at AWS, where a URL states no region.
        ("sqs.test", "eu-west-1"),
    ] {
        let server = CannedServer::answering(|_, _| None);
        let url = format!("https://{host}/000000000000/q");
        let sqs = Sqs::connect(&server.config());
        let queue = sqs.open(&url, None).await.expect(host);
        queue.send(&[body("b")]).await[0].as_ref().expect(host);
        let received = queue.receive(Ask::PLAIN, &CancellationToken::new()).await;
        received.expect(host);
        let requests = server.all_requests();
        assert_eq!(requests.len(), 3, "{host}");
        for request in requests {
            assert_eq!(request.uri, format!("https://{host}/"), "{host}");
            assert_eq!(request.region, region, "{host}");
        }
    }
}

#[tokio::test]
async fn queues_beside_one_with_its_own_endpoint_are_reached_there() {
    let host = "https://vpce-0a.sqs.us-west-2.vpce.amazonaws.com";
    let server = CannedServer::answering(|operation, body| {
        let url = body["QueueUrl"].as_str().unwrap_or_default();
        let name = url.rsplit('/').next().unwrap_or_default();
        let arn = |name: &str| format!("arn:aws:sqs:us-west-2:000000000000:{name}");
        match operation {
            "GetQueueAttributes" if name == "q.fifo" => {
                let policy =
                    json!({ "deadLetterTargetArn": arn("dead.fifo"), "maxReceiveCount": 3 });
                let attributes =
                    json!({ "QueueArn": arn(name), "RedrivePolicy": policy.to_string() });
                Some(json!({ "Attributes": attributes }))
            }
            "ListDeadLetterSourceQueues" => {
                let url = "https://sqs.us-west-2.amazonaws.com/000000000000/source";
                Some(json!({ "queueUrls": [url] }))
            }
            _ => None,
        }
    });
    let url = format!("{host}/000000000000/q.fifo");
    let queue = Sqs::connect(&server.config()).open(&url, None).await;
    let queue = queue.expect("the server has it");
    assert!(queue.identity().redrive_target);
    let sources = queue.redrive_sources().await.expect("it tells");
    assert_eq!(sources, [format!("{host}/000000000000/source")]);
    for request in server.all_requests() {
        assert_eq!(request.uri, format!("{host}/"), "{}", request.operation);
    }
}

#[tokio::test]
async fn host_whose_clock_is_wrong_receives_and_deletes() {
    for ahead in [-1_200, 1_200] {
        let server = CannedServer {
            ahead,
            ..CannedServer::answering(|operation, _| {
                let message = json!({ "MessageId": "m", "ReceiptHandle": "r", "Body": "b" });
                (operation == "ReceiveMessage").then(|| json!({ "Messages": [message] }))
            })
        };
        let queue = server.open("q", None).await.expect("the server has it");
        for _ in 0..2 {
            let received = queue.receive(Ask::PLAIN, &CancellationToken::new()).await;
            let messages = received.expect("the SDK signs again").messages;
            let items = [(messages[0].clone(), Outcome::Delete)];
            assert_eq!(queue.settle(&items).await, [Ok(())]);
        }
        // The first of each of two clients is refused.
        let operations = server.all_requests().into_iter().map(|it| it.operation);
        let operations: Vec<String> = operations.collect();
        assert_eq!(
            operations,
            [
                "GetQueueUrl",
                "GetQueueUrl",
                "GetQueueAttributes",
                "ReceiveMessage",
                "ReceiveMessage",
                "DeleteMessageBatch",
                "ReceiveMessage",
                "DeleteMessageBatch",
            ]
        );
    }
}
