//! Both clients before the same server: the same requests, and of any answer the same result. The
//! server is an HTTP client of the SDK that answers what the test says.

use crate::queue::{ClientKind, Sqs, SqsQueue};
use aws_sdk_sqs::config::http::{HttpRequest, HttpResponse};
use aws_sdk_sqs::config::{Credentials, Region, SharedCredentialsProvider};
use aws_smithy_async::rt::sleep::{AsyncSleep, SharedAsyncSleep, Sleep};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::ErrorKind;
use dispatcher_aws as aws;
use dispatcher_core::message::{Message, Outcome, Receipt};
use dispatcher_core::queue::{Ask, Queue};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What is answered to each call of a message's life.
#[derive(Debug, Clone)]
enum CannedAnswer {
    Http {
        status: u16,
        query_error: Option<&'static str>,
        body: String,
    },
    /// No connection.
    Io,
    /// The connection closed before the answer.
    Closed,
    /// No answer in time.
    Timeout,
    /// The connection ends within the body.
    Cut,
}

fn ok(body: &Value) -> CannedAnswer {
    CannedAnswer::Http {
        status: 200,
        query_error: None,
        body: body.to_string(),
    }
}

#[derive(Debug, Clone)]
struct CannedServer {
    answer: CannedAnswer,
    requests: Arc<Mutex<Vec<SentRequest>>>,
}

#[derive(Debug, Clone, PartialEq)]
struct SentRequest {
    uri: String,
    headers: Vec<(String, Option<String>)>,
    body: Value,
}

impl SentRequest {
    /// Of the headers those that both clients must send, and which values they must share.
    fn of(request: &HttpRequest) -> Self {
        let header = |name: &str| request.headers().get(name).map(str::to_owned);
        let same = [
            "x-amz-target",
            "content-type",
            "x-amzn-query-mode",
            "user-agent",
        ];
        let scope = header("authorization").map(|text| {
            let (scope, _) = text.split_once(", SignedHeaders").expect("a signature");
            scope.to_owned()
        });
        let mut headers: Vec<_> = same.map(|name| (name.to_owned(), header(name))).into();
        headers.push(("authorization".into(), scope));
        headers.push((
            "x-amz-security-token".into(),
            header("x-amz-security-token"),
        ));
        Self {
            uri: request.uri().to_owned(),
            headers,
            body: serde_json::from_slice(request.body().bytes().expect("in memory")).expect("JSON"),
        }
    }
}

impl HttpConnector for CannedServer {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let operation = request
            .headers()
            .get("x-amz-target")
            .expect("the operation");
        let arn = "arn:aws:sqs:eu-west-1:000000000000:q";
        let (status, query_error, body) = match (operation, &self.answer) {
            ("AmazonSQS.GetQueueUrl", _) => {
                let url = "http://sqs.test/000000000000/q";
                (
                    200,
                    None,
                    SdkBody::from(json!({ "QueueUrl": url }).to_string()),
                )
            }
            ("AmazonSQS.GetQueueAttributes", _) => {
                let attributes = json!({ "Attributes": { "QueueArn": arn } });
                (200, None, SdkBody::from(attributes.to_string()))
            }
            (_, answer) => {
                self.requests
                    .lock()
                    .unwrap()
                    .push(SentRequest::of(&request));
                match answer {
                    CannedAnswer::Io => {
                        return failed(ConnectorError::io("no way there".into()));
                    }
                    CannedAnswer::Closed => {
                        let kind = Some(ErrorKind::TransientError);
                        return failed(ConnectorError::other("closed".into(), kind));
                    }
                    CannedAnswer::Timeout => {
                        return failed(ConnectorError::timeout("no answer".into()));
                    }
                    CannedAnswer::Cut => (200, None, SdkBody::taken()),
                    CannedAnswer::Http {
                        status,
                        query_error,
                        body,
                    } => (*status, *query_error, SdkBody::from(body.clone())),
                }
            }
        };
        let status = StatusCode::try_from(status).expect("a status");
        let mut response = HttpResponse::new(status, body);
        if let Some(error) = query_error {
            response.headers_mut().insert("x-amzn-query-error", error);
        }
        HttpConnectorFuture::ready(Ok(response))
    }
}

fn failed(error: ConnectorError) -> HttpConnectorFuture {
    HttpConnectorFuture::ready(Err(error))
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

/// Waits for nothing before a second attempt.
#[derive(Debug)]
struct NoPause;

impl AsyncSleep for NoPause {
    fn sleep(&self, duration: Duration) -> Sleep {
        // What bounds a call is far away.
        match duration < Duration::from_secs(1) {
            true => Sleep::new(std::future::ready(())),
            false => Sleep::new(std::future::pending()),
        }
    }
}

impl CannedServer {
    fn answering(answer: CannedAnswer) -> Self {
        Self {
            answer,
            requests: Arc::default(),
        }
    }

    async fn queue(&self, client: ClientKind) -> SqsQueue {
        let credentials = Credentials::new("id", "secret", Some("token".into()), None, "test");
        let config = aws::SdkConfig::builder()
            .behavior_version(aws::BehaviorVersion::latest())
            .region(Region::from_static("eu-west-1"))
            .endpoint_url("http://sqs.test")
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(self.clone())
            .sleep_impl(SharedAsyncSleep::new(NoPause))
            .build();
        let sqs = Sqs::connect(&aws::with_limits(&config)).with_client(client);
        sqs.open("q", None).await.expect("the server has it")
    }

    fn requests(&self) -> Vec<SentRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

/// What came of all three calls, as text, and the requests that they were.
async fn outcome(answer: &CannedAnswer, client: ClientKind) -> (Vec<String>, Vec<SentRequest>) {
    let server = CannedServer::answering(answer.clone());
    let queue = server.queue(client).await;
    let ask = Ask {
        max: 7,
        visibility: Duration::from_secs(31),
        wait: Duration::from_secs(2),
        ..Ask::PLAIN
    };
    let received = queue.receive(ask, &CancellationToken::new()).await;
    let received = match received {
        Ok(received) => format!("{:?} {}", received.messages, received.drained),
        Err(error) => shown(&format!("{:?} {}", error.kind, error.message)),
    };
    let message = |id: &str| Message {
        id: id.into(),
        receipt: Receipt(format!("receipt of {id} \" \u{e9}")),
        receive_count: 1,
        ..Message::default()
    };
    let settled = queue
        .settle(&[
            (message("a"), Outcome::Delete),
            (message("b"), Outcome::Release(Duration::from_secs(9))),
            (message("c"), Outcome::Delete),
        ])
        .await;
    let extended = [(Receipt("one".into()), Duration::from_secs(30))];
    let extended = queue.extend(&extended).await;
    let results = [
        received,
        shown(&format!("{settled:?}")),
        shown(&format!("{extended:?}")),
    ];
    (results.into(), server.requests())
}

/// A result without the words in which a parser or the SDK says what is wrong with an answer that is
/// none of SQS's.
fn shown(text: &str) -> String {
    match text.split_once(" failed: ") {
        Some((before, after)) if !after.contains("(HTTP ") || after.contains("status 200") => {
            before.to_owned()
        }
        _ => text.to_owned(),
    }
}

fn compare(answer: &CannedAnswer) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let direct = runtime.block_on(outcome(answer, ClientKind::Direct));
    let sdk = runtime.block_on(outcome(answer, ClientKind::Sdk));
    assert_eq!(direct.0, sdk.0, "{answer:?}");
    let order = |mut requests: Vec<SentRequest>| {
        // Releases and deletions of one slice are sent side by side.
        requests.sort_by_key(|request| request.body.to_string());
        requests
    };
    assert_eq!(order(direct.1), order(sdk.1), "{answer:?}");
}

#[test]
fn clients_agree_on_a_full_message() {
    compare(&ok(&json!({ "Messages": [{
        "MessageId": "id-1", "ReceiptHandle": "AQEB/+=", "Body": "\u{1F600} \"quoted\"\n",
        "MD5OfBody": "00", "MD5OfMessageAttributes": "ff", "Unknown": { "deep": [1, 2] },
        "Attributes": {
            "ApproximateReceiveCount": "3", "SentTimestamp": "1700000000001", "SenderId": "AIDA",
            "ApproximateFirstReceiveTimestamp": "1700000000002", "MessageGroupId": "g",
            "AWSTraceHeader": "Root=1-2-3", "New": "thing",
        },
        "MessageAttributes": {
            "text": { "DataType": "String", "StringValue": "x" },
            "number": { "DataType": "Number.int", "StringValue": "7", "BinaryValue": null },
            "bytes": { "DataType": "Binary", "BinaryValue": "AAECAw==" },
            "listed": { "DataType": "String", "StringValue": "y", "StringListValues": [] },
        },
    }] })));
}

#[test]
fn clients_agree_on_batches() {
    compare(&ok(&json!({
        "Successful": [{ "Id": "0" }],
        "Failed": [
            { "Id": "1", "Code": "ReceiptHandleIsInvalid", "SenderFault": true, "Message": "old" },
            { "Id": "2", "Code": "InternalError", "SenderFault": false },
        ],
    })));
    compare(&ok(
        &json!({ "Successful": null, "Failed": null, "Messages": null }),
    ));
    compare(&ok(&json!({})));
}

#[test]
fn clients_agree_on_errors() {
    let errors = [
        (
            400,
            None,
            r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"none"}"#,
        ),
        (
            400,
            Some("AWS.SimpleQueueService.NonExistentQueue;Sender"),
            r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"none"}"#,
        ),
        (403, None, r#"{"__type":"AccessDenied","Message":"no"}"#),
        (
            400,
            None,
            r#"{"code":"RequestThrottled:http://x","__type":"Other"}"#,
        ),
        (
            403,
            None,
            r#"{"__type":"com.amazonaws.sqs#OverLimit","message":"120,000"}"#,
        ),
        (
            400,
            None,
            r#"{"__type":"ExpiredToken","message":"the token has expired"}"#,
        ),
        (500, None, ""),
        (503, None, "<html>busy</html>"),
        (
            500,
            None,
            r#"{"__type":"InternalError","message":"on fire"}"#,
        ),
        (404, None, "{}"),
    ];
    for (status, query_error, body) in errors {
        compare(&CannedAnswer::Http {
            status,
            query_error,
            body: body.to_owned(),
        });
    }
}

#[test]
fn clients_agree_on_what_is_no_answer() {
    for body in [
        "",
        "[]",
        "nonsense",
        r#"{"Messages": 7}"#,
        r#"{"Messages": [{"Body": 7}]}"#,
    ] {
        compare(&CannedAnswer::Http {
            status: 200,
            query_error: None,
            body: body.to_owned(),
        });
    }
    for answer in [
        CannedAnswer::Io,
        CannedAnswer::Closed,
        CannedAnswer::Timeout,
        CannedAnswer::Cut,
    ] {
        compare(&answer);
    }
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => any::<String>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => (0_u64..5).prop_map(|number| number.to_string().into()),
    ]
}

fn object(
    name: &'static str,
    value: impl Strategy<Value = Value> + 'static,
) -> impl Strategy<Value = Value> {
    proptest::collection::btree_map(name, value, 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

prop_compose! {
    fn attribute()(kind in text(), string in text(), binary in any::<Option<Vec<u8>>>()) -> Value {
        use base64::Engine;
        let binary = binary.map(|bytes| base64::prelude::BASE64_STANDARD.encode(bytes));
        json!({ "DataType": kind, "StringValue": string, "BinaryValue": binary })
    }
}

prop_compose! {
    fn delivery()(
        id in text(), receipt in text(), body in text(), digest in text(), present in any::<[bool; 6]>(),
        system in object("ApproximateReceiveCount|SentTimestamp|MessageGroupId|[A-Z]{1,3}", text()),
        attributes in object("[a-z]{1,3}", attribute()),
    ) -> Value {
        let fields = [
            ("MessageId", id), ("ReceiptHandle", receipt), ("Body", body), ("MD5OfBody", digest),
            ("Attributes", system), ("MessageAttributes", attributes),
        ];
        let fields = fields.into_iter().zip(present).filter(|(_, present)| *present);
        Value::Object(fields.map(|((name, value), _)| (name.to_owned(), value)).collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn clients_agree_on_any_messages(messages in proptest::collection::vec(delivery(), 0..4)) {
        compare(&ok(&json!({ "Messages": messages })));
    }

    #[test]
    fn clients_agree_on_any_batch(
        done in proptest::collection::vec(0..4_u8, 0..4),
        failed in proptest::collection::vec((0..4_u8, any::<bool>(), "[A-Z][a-z]{1,9}", text()), 0..4),
    ) {
        let done: Vec<Value> = done.iter().map(|id| json!({ "Id": id.to_string() })).collect();
        let failed: Vec<Value> = failed.into_iter().map(|(id, fault, code, message)| {
            json!({ "Id": id.to_string(), "SenderFault": fault, "Code": code, "Message": message })
        }).collect();
        compare(&ok(&json!({ "Successful": done, "Failed": failed })));
    }

    #[test]
    fn clients_agree_on_any_error(status in 400_u16..600, code in "[A-Za-z.]{0,12}", message in text()) {
        compare(&CannedAnswer::Http {
            status,
            query_error: None,
            body: json!({ "__type": code, "message": message }).to_string(),
        });
    }
}
