//! What the program does with a message is one trace, as an independent collector reads it.

mod backends;
mod export;
mod failures;
mod signals;

use crate::lambda::scene::{forward_to, queue, wait};
use crate::operator::admin_api::ApiScene;
use crate::scene::{depth, field, printed, run, until_depth};
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::{Depth, Queue};
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::collector::{Collector, named};
use dispatcher_tests::faulty_lambda::{FaultyLambda, LambdaStep};
use dispatcher_tests::guests::guest;
use dispatcher_tests::service::{JobService, PostedRequest, ServiceAnswer, ServiceStep};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The producer's span, in both notations.
pub(crate) const X_RAY: &str =
    "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The program with this collector, which soon gets every span.
pub(crate) fn traced(program: Program, collector: &Collector) -> Program {
    program
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_BSP_SCHEDULE_DELAY", "20")
}

/// Sends bodies to a local queue, each with this trace header.
pub(crate) async fn send(data: &Path, queue: &str, bodies: &[&str], header: Option<&str>) {
    let outgoing = bodies.iter().map(|body| OutgoingMessage {
        body: (*body).to_owned(),
        trace_header: header.map(str::to_owned),
        ..OutgoingMessage::default()
    });
    send_all(data, queue, &outgoing.collect::<Vec<_>>()).await;
}

async fn send_all(data: &Path, queue: &str, outgoing: &[OutgoingMessage]) {
    let store = LocalStore::open(data).expect("opens");
    let queue = store.queue(queue, None).expect("opens");
    for sent in queue.send(outgoing).await {
        sent.expect("sent");
    }
}

/// An attribute of a span.
pub(crate) fn of<'a>(span: &'a Value, name: &str) -> &'a Value {
    &span["attributes"][name]
}

/// A link as trace and span, without more.
fn links(span: &Value) -> Vec<(String, String)> {
    let links = span["links"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("an id").to_owned();
    links
        .map(|link| (text(&link["trace"]), text(&link["id"])))
        .collect()
}

fn producer() -> (String, String) {
    let ids = ("5759e988bd862e3fe1be46a994272793", "53995c3f42cd8ad8");
    (ids.0.to_owned(), ids.1.to_owned())
}

pub(crate) fn place(span: &Value) -> (String, String) {
    let text = |name: &str| span[name].as_str().expect("an id").to_owned();
    (text("trace"), text("id"))
}

/// The settlements that are below this span.
fn settlements(spans: &[Value], process: &Value) -> Vec<Value> {
    let below = spans.iter().filter(|span| span["parent"] == process["id"]);
    let settles = below.filter(|span| of(span, "messaging.operation.name") == "settle");
    settles.cloned().collect()
}

/// The one settlement that is below this span, once it is there.
fn settlement(collector: &Collector, process: &Value) -> Value {
    let all = collector.wait(|spans| !settlements(spans, process).is_empty());
    let mut found = settlements(&all, process);
    assert_eq!(found.len(), 1, "{all:#?}");
    let settle = found.remove(0);
    assert_eq!(settle["trace"], process["trace"]);
    assert_eq!(settle["kind"], "client");
    settle
}

#[tokio::test]
async fn single_message_is_received_processed_and_settled() {
    let collector = Collector::start();
    let mut running = traced(run("verdicts", &["--log-level", "debug"]), &collector)
        .env("OTEL_SERVICE_NAME", "orders")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b")
        .start();
    send(
        running.data().path(),
        "default",
        &["print:hello"],
        Some(X_RAY),
    )
    .await;
    let process = collector.wait_for("process local:default", 1).remove(0);
    assert_eq!(
        (&process["kind"], &process["parent"]),
        (&json!("consumer"), &Value::Null)
    );
    assert_eq!(links(&process), [producer()]);
    assert_eq!(process["resource"]["service.name"], "orders");
    assert_eq!(process["key"], "a b");
    for (name, value) in [
        ("messaging.system", json!("dispatcher_local")),
        ("messaging.destination.name", json!("local:default")),
        ("messaging.operation.type", json!("process")),
        ("aws.sqs.queue.url", Value::Null),
        ("messaging.message.body.size", json!(11)),
        ("dispatcher.message.receive_count", json!(1)),
        ("dispatcher.attempt", json!(1)),
        ("dispatcher.outcome", json!("done")),
        ("dispatcher.lease.seconds", json!(30)),
        ("dispatcher.route", json!("verdicts")),
    ] {
        assert_eq!(of(&process, name), &value, "{name} of {process:#}");
    }
    let version = of(&process, "dispatcher.plugin.version");
    assert!(version.as_str().is_some_and(|version| !version.is_empty()));
    let settle = settlement(&collector, &process);
    assert_eq!(of(&settle, "dispatcher.outcome"), "done");
    let receive = collector.wait_for("receive local:default", 1).remove(0);
    assert_eq!(
        (links(&receive), &receive["kind"]),
        (vec![producer()], &json!("client"))
    );
    let (trace, id) = place(&process);
    for words in ["an attempt begins", "hello", "message done"] {
        let quoted = format!("\"message\":\"{words}\"");
        let line = running.wait_for_line(|line| line.contains(&quoted));
        assert_eq!(field(&line, "trace_id"), trace, "{line}");
        assert_eq!(field(&line, "span_id"), id, "{line}");
        assert_eq!(printed(&line), words == "hello");
    }
    running.stop();
}

#[tokio::test]
async fn single_message_continues_its_trace_on_request() {
    let collector = Collector::start();
    let program = run("verdicts", &["--trace-parent", "message"]);
    let mut running = traced(program, &collector).start();
    let by_attribute = OutgoingMessage {
        body: "done".to_owned(),
        attributes: vec![Attribute::text("traceparent", PARENT)],
        ..OutgoingMessage::default()
    };
    send_all(running.data().path(), "default", &[by_attribute]).await;
    let process = collector.wait_for("process local:default", 1).remove(0);
    assert_eq!(process["trace"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(process["parent"], "b7ad6b7169203331");
    assert_eq!(links(&process), []);
    settlement(&collector, &process);
    running.stop();
}

#[tokio::test]
async fn batch_is_one_span_with_links() {
    let collector = Collector::start();
    let program = run(
        "batch-verdicts",
        &["--batch-size", "3", "--batch-window", "2s"],
    );
    let mut running = traced(program, &collector).start();
    // They are there before the first receive.
    running.signal(Signal::KILL);
    running.wait_exit();
    let data = Arc::clone(running.data());
    send(data.path(), "default", &["done", "done"], Some(X_RAY)).await;
    send(data.path(), "default", &["done"], None).await;
    let program = run(
        "batch-verdicts",
        &["--batch-size", "3", "--batch-window", "2s"],
    );
    let mut running = traced(program.sharing(&data), &collector).start();
    let process = collector.wait_for("process local:default", 1).remove(0);
    assert_eq!(links(&process), [producer(), producer()]);
    let ids = process["links"].as_array().expect("a list").iter();
    let ids = ids.map(|link| &link["attributes"]["messaging.message.id"]);
    assert!(ids.clone().all(Value::is_string), "{process:#}");
    assert_eq!(of(&process, "messaging.batch.message_count"), 3);
    assert_eq!(of(&process, "dispatcher.outcome"), "done");
    let events = process["events"].as_array().expect("a list");
    assert_eq!((events.len(), &process["dropped_links"]), (3, &json!(0)));
    for event in events {
        assert_eq!(event["name"], "message");
        assert_eq!(of(event, "dispatcher.outcome"), "done");
        assert!(of(event, "dispatcher.attempt").is_number(), "{event}");
        assert!(of(event, "messaging.message.id").is_string(), "{event}");
    }
    // In one call, or in several where the first is made before all are there to be settled.
    let settled = |spans: &[Value]| -> u64 {
        let counts = settlements(spans, &process);
        let counts = counts
            .iter()
            .map(|settle| of(settle, "messaging.batch.message_count"));
        counts.map(|count| count.as_u64().expect("a number")).sum()
    };
    let all = collector.wait(|spans| settled(spans) >= 3);
    assert_eq!(settled(&all), 3, "{all:#?}");
    running.stop();
}

#[tokio::test]
async fn messages_of_a_group_are_processed_one_after_the_other() {
    let collector = Collector::start();
    let program = run("verdicts", &["--group-by", "customer"]);
    let mut running = traced(program, &collector).start();
    let of_group = |body: &str| OutgoingMessage {
        body: body.to_owned(),
        attributes: vec![Attribute::text("customer", "c1")],
        ..OutgoingMessage::default()
    };
    let all = ["sleep:20", "done"].map(of_group);
    send_all(running.data().path(), "default", &all).await;
    let attempts = collector.wait_for("process local:default", 2);
    assert!(attempts[0]["ended"].as_u64() <= attempts[1]["began"].as_u64());
    for attempt in &attempts {
        assert_eq!(of(attempt, "dispatcher.message.group"), "c1");
    }
    running.stop();
}

#[tokio::test]
async fn throttled_attempt_is_no_failure_and_holding_is_no_span() {
    let collector = Collector::start();
    let service = JobService::start(|request: &PostedRequest| match request.index {
        0 => ServiceStep::status(429),
        _ => ServiceStep::status(200),
    });
    let url = service.url();
    let program = Program::new(["run", "--log-format", "json", "--forward", &url]);
    let mut running = traced(program, &collector).start();
    send(running.data().path(), "default", &["order"], Some(X_RAY)).await;
    let attempts = collector.wait_for("process local:default", 2);
    let outcomes: Vec<_> = attempts
        .iter()
        .map(|span| of(span, "dispatcher.outcome"))
        .collect();
    assert_eq!(outcomes, ["throttled", "done"]);
    assert_eq!(
        (&attempts[0]["error"], links(&attempts[1])),
        (&Value::Null, vec![producer()])
    );
    settlement(&collector, &attempts[1]);
    let requests = collector.wait_for("POST", 2);
    for (request, attempt) in requests.iter().zip(&attempts) {
        assert_eq!(
            (&request["parent"], &request["trace"]),
            (&attempt["id"], &attempt["trace"])
        );
        assert_eq!(request["kind"], "client");
    }
    assert_eq!(of(&requests[0], "http.response.status_code"), 429);
    let port: u16 = url
        .trim_start_matches("http://127.0.0.1:")
        .trim_end_matches("/jobs")
        .parse()
        .expect("a port");
    for (name, value) in [
        ("server.address", json!("127.0.0.1")),
        ("server.port", json!(port)),
        ("url.full", json!(url)),
    ] {
        assert_eq!(of(&requests[0], name), &value, "{name}");
    }
    // The service continues the trace of the request.
    for (seen, request) in service.record().requests.iter().zip(&requests) {
        let (trace, id) = place(request);
        let wanted = format!("00-{trace}-{id}-01");
        assert_eq!(seen.header("traceparent"), Some(wanted.as_str()));
        let header = seen.header("x-amzn-trace-id").expect("it had one");
        assert!(
            header.contains(&id) && header.ends_with("Sampled=1"),
            "{header}"
        );
    }
    running.stop();
    let all = collector.wait(|_| true);
    let names = all.iter().map(|span| span["name"].as_str().expect("text"));
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let wanted = [
        "POST",
        "POST",
        "process local:default",
        "process local:default",
        "receive local:default",
        "settle local:default",
    ];
    assert_eq!(names, wanted);
}

#[tokio::test]
async fn lost_lease_is_a_failed_attempt_that_is_not_settled() {
    let collector = Collector::start();
    let lease = [
        "--visibility",
        "2",
        "--timeout",
        "1h",
        "--log-level",
        "debug",
    ];
    let mut running = traced(run("verdicts", &lease), &collector).start();
    let data = running.data().clone();
    send(data.path(), "default", &["sleep:3600000"], None).await;
    running.wait_for_line(|line| line.contains("\"message\":\"an attempt begins\""));
    // A runner that stands still longer than its lease has lost it when it wakes.
    running.signal(Signal::STOP);
    until_depth(data.path(), "default", |depth| depth.waiting == 1).await;
    running.signal(Signal::CONT);
    let process = collector.wait_for("process local:default", 1).remove(0);
    assert_eq!(of(&process, "dispatcher.outcome"), "lost");
    assert_eq!(of(&process, "error.type"), "lease-lost");
    assert_eq!(process["error"], "the lease was lost");
    let line = running.wait_for_line(|line| line.contains("lease lost"));
    assert_eq!(field(&line, "span_id"), place(&process).1);
    running.signal(Signal::KILL);
    running.wait_exit();
    let all = collector.wait(|_| true);
    assert_eq!(named(&all, "settle local:default"), Vec::<&Value>::new());
}

#[tokio::test]
async fn dead_letter_and_its_redrive_keep_the_trace_of_the_message() {
    let collector = Collector::start();
    let mut running = traced(run("verdicts", &[]), &collector).start();
    let data = Arc::clone(running.data());
    send(data.path(), "default", &["reject:no customer"], Some(X_RAY)).await;
    let process = collector.wait_for("process local:default", 1).remove(0);
    assert_eq!(of(&process, "dispatcher.outcome"), "rejected");
    assert_eq!(of(&process, "dispatcher.reason"), "no customer");
    assert_eq!(process["error"], "no customer");
    let settle = settlement(&collector, &process);
    assert_eq!(of(&settle, "dispatcher.outcome"), "dead-lettered");
    running.stop();
    assert_eq!(depth(data.path(), "default.dead").await.waiting, 1);
    let redrive = Program::new(["redrive", "local:default.dead", "--apply"]).sharing(&data);
    assert_eq!(traced(redrive, &collector).run().code, 0);
    let sent = collector.wait_for("send local:default", 1).remove(0);
    assert_eq!(of(&sent, "dispatcher.send.reason"), "redrive");
    assert_eq!(of(&sent, "messaging.system"), "dispatcher_local");
    assert_eq!(
        (&sent["kind"], links(&sent)),
        (&json!("producer"), vec![producer()])
    );
    let mut running = traced(run("verdicts", &[]).sharing(&data), &collector).start();
    let attempts = collector.wait_for("process local:default", 2);
    assert_eq!(links(&attempts[1]), [producer()]);
    running.stop();
}

#[tokio::test]
async fn message_of_the_command_and_letter_that_is_resent_are_sent_in_spans() {
    let collector = Collector::start();
    let mut scene = ApiScene::of(|flags| traced(run("verdicts", flags), &collector), &[]);
    let data = scene.running.data().clone();
    let sending = ["send", "local:default", "reject:no customer"];
    let sending = Program::new(sending).sharing(&data);
    assert_eq!(traced(sending, &collector).run().code, 0);
    let sent = collector.wait_for("send local:default", 1).remove(0);
    assert_eq!(of(&sent, "dispatcher.send.reason"), "command");
    let process = collector.wait_for("process local:default", 1).remove(0);
    assert_eq!(links(&process), [place(&sent)]);
    until_depth(data.path(), "default.dead", |depth| depth.waiting == 1).await;
    let dead = "/api/v1/queues/local%3Adefault.dead";
    let listed = scene.get(&format!("{dead}/messages"));
    let order = json!({"message": listed["items"][0]["id"]}).to_string();
    let job = scene.run_job(&format!("{dead}/resend"), &order);
    assert_eq!(job["report"]["moved"], 1, "{job}");
    let resent = collector.wait_for("send local:default", 2).remove(1);
    assert_eq!(of(&resent, "dispatcher.send.reason"), "redrive");
    assert_eq!(links(&resent), [place(&sent)]);
    scene.running.stop();
}

#[tokio::test]
async fn message_that_a_handler_sends_is_linked_to_the_send() {
    let collector = Collector::start();
    let config = format!(
        "[[route]]\nqueues = ['local:in']\nplugin = 'sends'\n[[route]]\nqueues = ['local:out']\n\
         plugin = 'ends'\n[plugin.sends]\nfile = '{}'\nallow-send = ['local:out']\n[plugin.ends]\n\
         file = '{}'\n",
        guest("contract-sends"),
        guest("verdicts")
    );
    let arguments = ["run", "--log-format", "json", "--config", "dispatcher.toml"];
    let program = Program::new(arguments).file("dispatcher.toml", &config);
    let mut running = traced(program, &collector).start();
    send(running.data().path(), "in", &["local:out done"], None).await;
    let process = collector.wait_for("process local:in", 1).remove(0);
    let sent = collector.wait_for("send local:out", 1).remove(0);
    assert_eq!(
        (&sent["parent"], &sent["trace"]),
        (&process["id"], &process["trace"])
    );
    assert_eq!(sent["kind"], "producer");
    assert_eq!(of(&sent, "messaging.system"), "dispatcher_local");
    let next = collector.wait_for("process local:out", 1).remove(0);
    assert_eq!(links(&next), [place(&sent)]);
    assert_eq!(
        of(&sent, "messaging.message.id"),
        of(&next, "messaging.message.id")
    );
    running.stop();
}

#[tokio::test]
async fn relayed_message_keeps_its_trace_or_gets_that_of_the_relay() {
    let collector = Collector::start();
    let words = ["run", "--queues", "local:in", "--send-to", "local:out"];
    let mut running = traced(Program::new(words), &collector).start();
    let data = Arc::clone(running.data());
    let store = LocalStore::open(data.path()).expect("opens");
    let out = store.queue("out", None).expect("opens");
    for (at, header) in [Some(X_RAY), None].into_iter().enumerate() {
        send(data.path(), "in", &["order"], header).await;
        let process = collector.wait_for("process local:in", at + 1).remove(at);
        let sent = collector.wait_for("send local:out", at + 1).remove(at);
        assert_eq!(
            (&sent["parent"], &sent["trace"], &sent["kind"]),
            (&process["id"], &process["trace"], &json!("producer"))
        );
        assert_eq!(of(&sent, "messaging.batch.message_count"), 1);
        assert_eq!(of(&sent, "messaging.system"), "dispatcher_local");
        let there = out.peek(10).await.expect("looks");
        let context = there[at].remote_context().expect("it has a trace");
        let parent = context.parent.expect("a span").to_string();
        match header {
            Some(_) => assert_eq!((links(&process), parent), (vec![producer()], producer().1)),
            None => assert_eq!(sent["id"], parent),
        }
    }
    running.stop();
}

#[tokio::test]
async fn scheduled_message_is_linked_to_the_move_that_sent_it() {
    let collector = Collector::start();
    let mut running = traced(run("verdicts", &[]), &collector).start();
    let every = [
        "schedule",
        "add",
        "local:default",
        "--cron",
        "* * * * * *",
        "--body",
        "done",
    ];
    let added = Program::new(every).sharing(running.data()).run();
    assert_eq!(added.code, 0, "{added:?}");
    let is_linked = |spans: &[Value]| !named(spans, "process local:default").is_empty();
    let all = collector.wait(is_linked);
    let process = named(&all, "process local:default")[0];
    let is_sent = |spans: &[Value]| {
        let sent = named(spans, "send local:default").into_iter();
        sent.map(place).any(|place| links(process).contains(&place))
    };
    let all = collector.wait(is_sent);
    let sent = named(&all, "send local:default")[0];
    assert_eq!(of(sent, "dispatcher.send.reason"), "schedule");
    running.stop();
}

/// The trace headers of a function's invocations, which all succeed.
fn trace_headers(lambda: &FaultyLambda) -> Arc<Mutex<Vec<Option<String>>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    lambda.script(move |invocation| {
        let mut kept = kept.lock().expect("no panic");
        kept.push(invocation.trace_header.clone());
        LambdaStep::answer("null")
    });
    seen
}

#[tokio::test]
async fn function_gets_the_trace_header_of_its_message_without_tracing() {
    let lambda = Arc::new(FaultyLambda::start());
    let seen = trace_headers(&lambda);
    let mut running = forward_to(&lambda, "local:default", &[]).start();
    let data = Arc::clone(running.data());
    send(data.path(), "default", &["order"], Some(X_RAY)).await;
    wait(&lambda, |state| {
        (state.seen.values().count() > 0).then_some(())
    })
    .await;
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    assert_eq!(*seen.lock().expect("no panic"), [Some(X_RAY.to_owned())]);
    running.stop();
}

#[tokio::test]
async fn function_continues_the_trace_of_its_invocation_on_sqs() {
    let collector = Collector::start();
    let (server, name, url) = queue("traced", &[]).await;
    let lambda = Arc::new(FaultyLambda::start());
    let seen = trace_headers(&lambda);
    let header = aws_sdk_sqs::types::MessageSystemAttributeValue::builder();
    let header = header.data_type("String").string_value(X_RAY).build();
    let call = server.client.send_message().queue_url(&url);
    call.message_body("order")
        .message_system_attributes(
            aws_sdk_sqs::types::MessageSystemAttributeNameForSends::AwsTraceHeader,
            header.expect("a type"),
        )
        .send()
        .await
        .expect("sent");
    let mut running = traced(forward_to(&lambda, &name, &[]), &collector).start();
    wait(&lambda, |state| {
        (state.seen.values().count() > 0).then_some(())
    })
    .await;
    server.wait_until_empty(&url).await;
    let process = collector.wait_for(&format!("process {name}"), 1).remove(0);
    assert_eq!(links(&process), [producer()]);
    assert_eq!(of(&process, "messaging.system"), "aws_sqs");
    assert_eq!(of(&process, "aws.sqs.queue.url"), url.as_str());
    let invoke = collector.wait_for("invoke f", 1).remove(0);
    assert_eq!(
        (&invoke["parent"], &invoke["trace"]),
        (&process["id"], &process["trace"])
    );
    assert_eq!(of(&invoke, "faas.invoked_name"), "f");
    assert_eq!(of(&invoke, "faas.invoked_region"), "us-east-1");
    let server = (of(&invoke, "server.address"), of(&invoke, "server.port"));
    let server = format!("http://{}:{}", server.0.as_str().expect("a host"), server.1);
    assert_eq!(server, lambda.url());
    settlement(&collector, &process);
    let (trace, id) = place(&invoke);
    let (epoch, rest) = trace.split_at(8);
    let wanted = format!("Root=1-{epoch}-{rest};Parent={id};Sampled=1");
    assert_eq!(*seen.lock().expect("no panic"), [Some(wanted)]);
    running.stop();
}

#[tokio::test]
async fn only_failures_are_exported_where_nothing_is_sampled() {
    let collector = Collector::start();
    let program = run("verdicts", &["--trace-errors", "always"]);
    let mut running = traced(program, &collector)
        .env("OTEL_TRACES_SAMPLER", "always_off")
        .start();
    let data = Arc::clone(running.data());
    send(
        data.path(),
        "default",
        &["done", "reject:why", "done"],
        Some(X_RAY),
    )
    .await;
    let process = collector.wait_for("process local:default", 1).remove(0);
    assert_eq!(
        (&process["error"], links(&process)),
        (&json!("why"), vec![producer()])
    );
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    running.stop();
    let all = collector.wait(|_| true);
    assert_eq!(named(&all, "process local:default").len(), 1, "{all:#?}");
    assert_eq!(named(&all, "receive local:default").len(), 0, "{all:#?}");
}

#[tokio::test]
async fn stop_exports_the_last_spans() {
    let collector = Collector::start();
    let program = run("verdicts", &[]).env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    let mut running = program.env("OTEL_BSP_SCHEDULE_DELAY", "3600000").start();
    let data = Arc::clone(running.data());
    send(data.path(), "default", &["done"], None).await;
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    assert_eq!(collector.wait(|_| true), Vec::<Value>::new());
    running.stop();
    collector.wait_for("process local:default", 1);
}

#[tokio::test]
async fn collector_that_refuses_or_never_answers_stops_nothing() {
    let broken = JobService::start(|_| ServiceStep::Answer(ServiceAnswer::new(400).body("no")));
    let silent = JobService::start(|_| ServiceStep::Never);
    let dead = format!(
        "http://127.0.0.1:{}",
        dispatcher_tests::servers::free_port()
    );
    let dripping = JobService::start(|_| ServiceStep::Drip);
    for url in [broken.url(), silent.url(), dripping.url(), dead] {
        let program = run("verdicts", &[])
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &url)
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")
            .env("OTEL_BSP_MAX_QUEUE_SIZE", "10")
            .env("OTEL_BSP_SCHEDULE_DELAY", "10");
        let running = program.start();
        let data = Arc::clone(running.data());
        send(data.path(), "default", &["done"], None).await;
        let line = running.wait_for_line(|line| line.contains("traces are not exported"));
        assert!(!field(&line, "reason").is_empty(), "{line}");
        send(data.path(), "default", &["done"; 100], None).await;
        until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
        running.signal(Signal::TERM);
        let lost = running.wait_for_line(|line| line.contains("traces were not exported before"));
        assert_ne!(field(&lost, "lost"), "0");
        let mut running = running;
        assert_eq!(running.wait_exit(), 0);
        // Once a minute, however often it fails.
        let said = running.lines(|line| line.contains("traces are not exported"));
        assert_eq!(said.len(), 1, "{said:?}");
    }
}

#[tokio::test]
async fn wrong_values_of_standard_variables_are_refused_together() {
    let ended = run("verdicts", &[])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .env("OTEL_TRACES_SAMPLER", "sometimes")
        .run();
    assert_eq!(ended.code, 2, "{ended:?}");
    for name in [
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_TRACES_SAMPLER",
    ] {
        assert!(ended.stderr.contains(name), "{ended:?}");
    }
    for wanted in ["http/protobuf", "parentbased_traceidratio"] {
        assert!(ended.stderr.contains(wanted), "{wanted}: {ended:?}");
    }
    // Whether or not anything is exported.
    let ended = run("verdicts", &[])
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "abc")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret")
        .env("OTEL_BSP_SCHEDULE_DELAY", "0")
        .run();
    assert_eq!(ended.code, 2, "{ended:?}");
    for wanted in [
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "OTEL_EXPORTER_OTLP_HEADERS: `a b` is not the name of a header; wanted NAME=VALUE",
        "OTEL_BSP_SCHEDULE_DELAY: `0` is out of range; wanted 1 to 3600000",
    ] {
        assert!(ended.stderr.contains(wanted), "{wanted}: {ended:?}");
    }
    assert!(!ended.stderr.contains("secret"), "{ended:?}");
}
