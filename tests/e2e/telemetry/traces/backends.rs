//! The trace of a message on each backend: its attempt is linked to what sent it, and what a forwarder
//! posts carries the context on.

use crate::backends::dynamodb::table;
use crate::backends::redis::scene::RedisScene;
use aws_sdk_sqs::types::{MessageSystemAttributeNameForSends, MessageSystemAttributeValue};
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::collector::Collector;
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::service::{JobService, ServiceStep};
use dispatcher_tests::sqs::{SqsServer, configuration};
use serde_json::Value;

/// The producer's span, in both notations.
const X_RAY: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
const PARENT: &str = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";

/// The forwarder on this queue.
fn forward(service: &JobService, queue: &str) -> Program {
    let url = service.url();
    Program::new([
        "run",
        "--log-format",
        "json",
        "--forward",
        &url,
        "--queues",
        queue,
    ])
}

fn outgoing() -> OutgoingMessage {
    OutgoingMessage {
        body: "order".to_owned(),
        trace_header: Some(X_RAY.to_owned()),
        ..OutgoingMessage::default()
    }
}

async fn send(queue: &dyn Queue) {
    for sent in queue.send(&[outgoing()]).await {
        sent.expect("sent");
    }
}

/// Whether this span is linked to the producer's.
fn is_linked(span: &Value) -> bool {
    let links = span["links"].as_array().expect("a list");
    let of_producer = |link: &Value| {
        link["trace"] == "5759e988bd862e3fe1be46a994272793" && link["id"] == "53995c3f42cd8ad8"
    };
    links.iter().any(of_producer)
}

/// Runs the forwarder twice on a queue that `send` sends to: with tracing, where the attempt is linked
/// to the producer and settled below it; and without, where the service gets the producer's context, and
/// that of the program itself as a producer.
async fn follows<F: Future<Output = ()>>(
    (queue, system): (&str, &str),
    program: impl Fn(Program) -> Program,
    send: impl Fn() -> F,
) {
    let service = JobService::start(|_| ServiceStep::status(200));
    let collector = Collector::start();
    let mut running = program(forward(&service, queue))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_BSP_SCHEDULE_DELAY", "20")
        .start();
    send().await;
    let process = collector.wait_for(&format!("process {queue}"), 1).remove(0);
    assert!(is_linked(&process), "{process:#}");
    assert_eq!(process["attributes"]["messaging.system"], system);
    let receive = collector.wait_for(&format!("receive {queue}"), 1).remove(0);
    assert!(is_linked(&receive), "{receive:#}");
    let settle = collector.wait_for(&format!("settle {queue}"), 1).remove(0);
    let post = collector.wait_for("POST", 1).remove(0);
    for below in [&settle, &post] {
        let place = (&below["parent"], &below["trace"]);
        assert_eq!(place, (&process["id"], &process["trace"]));
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);

    let mut running = program(forward(&service, queue)).start();
    send().await;
    let request = service.wait_for(2).remove(1);
    assert_eq!(request.header("traceparent"), Some(PARENT), "{request:?}");
    assert_eq!(
        request.header("x-amzn-trace-id"),
        Some(X_RAY),
        "{request:?}"
    );
    let sending = program(Program::new(["send", queue, "order"]))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .run();
    assert_eq!(sending.code, 0, "{sending:?}");
    let sent = collector.wait_for(&format!("send {queue}"), 1).remove(0);
    assert_eq!(sent["attributes"]["messaging.system"], system);
    let request = service.wait_for(3).remove(2);
    let id = |name: &str| sent[name].as_str().expect("an id");
    let wanted = format!("00-{}-{}-01", id("trace"), id("id"));
    let parent = request.header("traceparent");
    assert_eq!(parent, Some(&*wanted), "{request:?}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn message_of_redis_carries_its_trace() {
    let scene = RedisScene::plain();
    let url = scene.server.url();
    let queue = scene.queue().await;
    let program = |program: Program| program.env("DISPATCHER_REDIS_URL", &url);
    let send = || send(&queue);
    follows((&scene.full(), "redis"), program, send).await;
}

#[tokio::test]
async fn message_of_dynamodb_carries_its_trace() {
    let (_, table, name) = table("traced").await;
    let config = configuration(&MiniStack::shared().url());
    let opened = Dynamo::connect(&config, Options::default());
    let queue = opened.open(&table, None).await.expect("it was just made");
    let program = |program: Program| program.aws(&MiniStack::shared().url());
    let send = || send(&queue);
    follows((&name, "dynamodb"), program, send).await;
}

/// Sends to SQS as a producer that is traced.
async fn post(client: &SqsServer, url: &str, body: &str, group: Option<&str>) {
    let header = MessageSystemAttributeValue::builder();
    let header = header.data_type("String").string_value(X_RAY).build();
    let call = client.client.send_message().queue_url(url);
    call.message_body(body)
        .set_message_group_id(group.map(str::to_owned))
        .message_system_attributes(
            MessageSystemAttributeNameForSends::AwsTraceHeader,
            header.expect("a type"),
        )
        .send()
        .await
        .expect("sent");
}

#[tokio::test]
async fn message_of_sqs_carries_its_trace() {
    let server = LocalServer::start();
    let client = SqsServer::at(server.url());
    let name = SqsServer::fresh_name("traced");
    let url = client.create(&name, &[]).await;
    let program = |program: Program| program.aws(server.url());
    let send = || post(&client, &url, "order", None);
    follows((&name, "aws_sqs"), program, send).await;
}

#[tokio::test]
async fn messages_of_a_fifo_queue_carry_their_trace_and_their_group() {
    let server = LocalServer::start();
    let client = SqsServer::at(server.url());
    let name = format!("{}.fifo", SqsServer::fresh_name("traced"));
    let attributes = [("FifoQueue", "true"), ("ContentBasedDeduplication", "true")];
    let url = client.create(&name, &attributes).await;
    for body in ["first", "second"] {
        post(&client, &url, body, Some("customer-1")).await;
    }
    let service = JobService::start(|_| ServiceStep::status(200));
    let collector = Collector::start();
    let mut running = forward(&service, &name)
        .aws(server.url())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_BSP_SCHEDULE_DELAY", "20")
        .start();
    let attempts = collector.wait_for(&format!("process {name}"), 2);
    // One after the other, each linked to what sent it.
    assert!(attempts[0]["ended"].as_u64() <= attempts[1]["began"].as_u64());
    for attempt in &attempts {
        assert!(is_linked(attempt), "{attempt:#}");
        let attributes = &attempt["attributes"];
        assert_eq!(attributes["messaging.system"], "aws_sqs");
        assert_eq!(attributes["dispatcher.message.group"], "customer-1");
        assert_eq!(attributes["aws.sqs.queue.url"], url.as_str());
    }
    client.wait_until_empty(&url).await;
    let port = server.url().rsplit(':').next().expect("a port");
    for operation in ["receive", "settle"] {
        let name = format!("{operation} {name}");
        // Both messages are settled in one call or in two.
        let has_name = |span: &Value| span["name"] == name.as_str();
        let spans = collector.wait(|spans| spans.iter().any(has_name));
        let span = spans.iter().find(|span| has_name(span)).expect("it came");
        let attributes = &span["attributes"];
        assert_eq!(attributes["server.address"], "127.0.0.1", "{operation}");
        assert_eq!(attributes["server.port"].to_string(), port, "{operation}");
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}
