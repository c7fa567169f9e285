//! What fails has `error.type`, in spans and in the metrics that the messaging conventions name.

use crate::lambda::scene::forward_to;
use crate::scene::{field, run};
use crate::telemetry::traces::{place, send, traced};
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::collector::Collector;
use dispatcher_tests::faulty_lambda::{FaultyLambda, LambdaStep};
use dispatcher_tests::guests::guest;
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::service::{JobService, ServiceStep};
use dispatcher_tests::sqs::SqsServer;
use serde_json::{Value, json};

/// The last point of this metric with these attributes.
fn point(metrics: &[Value], name: &str, wanted: &[(&str, Value)]) -> Option<Value> {
    let mut points = metrics.iter().rev().filter(|one| one["name"] == name);
    let is_it = |one: &&Value| {
        let mut wanted = wanted.iter();
        wanted.all(|(name, value)| &one["attributes"][name] == value)
    };
    points.find(is_it).cloned()
}

#[tokio::test]
async fn failing_function_is_an_error_of_its_invocation_and_of_the_attempt() {
    let collector = Collector::start();
    let lambda = FaultyLambda::start();
    lambda.script(|_| LambdaStep::Fail {
        kind: "KeyError".to_owned(),
        message: "customer".to_owned(),
        log: String::new(),
    });
    let program = forward_to(&lambda, "local:default", &["--max-attempts", "1"]);
    let mut running = traced(program, &collector).start();
    send(running.data().path(), "default", &["order"], None).await;
    let process = collector.wait_for("process local:default", 1).remove(0);
    let invoke = collector.wait_for("invoke f", 1).remove(0);
    for (span, why) in [(&process, "KeyError: customer"), (&invoke, "Unhandled")] {
        assert_eq!(span["attributes"]["error.type"], "function-error");
        let error = span["error"].as_str().expect("it failed");
        assert!(error.contains(why), "{span:#}");
    }
    // Many attempts share the instance, and the line has the ids of its attempt.
    let line = running.wait_for_line(|line| line.contains("function failed"));
    let of_line = (field(&line, "trace_id"), field(&line, "span_id"));
    assert_eq!(of_line, place(&process), "{line}");
    running.stop();
}

#[tokio::test]
async fn request_that_a_stop_cuts_off_is_a_span_and_the_release_names_its_attempt() {
    let collector = Collector::start();
    let service = JobService::start(|_| ServiceStep::Never);
    let url = service.url();
    let host = url.trim_start_matches("http://").trim_end_matches("/jobs");
    let grace = ["--shutdown-grace", "200ms", "--timeout", "1h"];
    let arguments = [&["--allow-http", host][..], &grace].concat();
    let mut running = traced(run("capable", &arguments), &collector).start();
    let body = format!("http GET {url}");
    send(running.data().path(), "default", &[&body], None).await;
    service.wait_for(1);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let process = collector.wait_for("process local:default", 1).remove(0);
    let get = collector.wait_for("GET", 1).remove(0);
    assert_eq!(get["attributes"]["error.type"], "cut-off", "{get:#}");
    assert_eq!(get["attributes"]["url.full"], url);
    assert_eq!(get["parent"], process["id"]);
    let line = running.wait_for_line(|line| line.contains("message abandoned"));
    let of_line = (field(&line, "trace_id"), field(&line, "span_id"));
    assert_eq!(of_line, place(&process), "{line}");
}

#[tokio::test]
async fn status_of_a_failed_request_is_its_error() {
    let collector = Collector::start();
    let service = JobService::start(|_| ServiceStep::status(500));
    let url = service.url();
    let words = ["run", "--log-format", "json", "--forward", &url];
    let program = Program::new([&words[..], &["--max-attempts", "1"]].concat());
    let mut running = traced(program, &collector).start();
    send(running.data().path(), "default", &["order"], None).await;
    let process = collector.wait_for("process local:default", 1).remove(0);
    let post = collector.wait_for("POST", 1).remove(0);
    assert_eq!(post["attributes"]["error.type"], "500");
    assert_eq!(post["parent"], process["id"]);
    assert!(process["error"].is_string() && post["error"].is_string());
    assert!(process["attributes"]["error.type"].is_string());
    running.stop();
}

#[tokio::test]
async fn failed_receive_is_an_error_of_its_span_and_of_the_operation() {
    let collector = Collector::start();
    let server = LocalServer::start();
    let name = SqsServer::fresh_name("gone");
    SqsServer::at(server.url()).create(&name, &[]).await;
    let mut running = traced(run("verdicts", &["--queues", &name]), &collector)
        .env("OTEL_METRIC_EXPORT_INTERVAL", "200")
        .aws(server.url())
        .start();
    running.wait_for_line(|line| line.contains("\"running\""));
    drop(server);
    let receive = collector.wait_for(&format!("receive {name}"), 1).remove(0);
    let error = &receive["attributes"]["error.type"];
    assert_eq!(error, "unreachable", "{receive:#}");
    assert!(receive["error"].is_string());
    let wanted = [
        ("messaging.operation.name", json!("receive")),
        ("messaging.destination.name", json!(name)),
        ("messaging.system", json!("aws_sqs")),
        ("error.type", error.clone()),
    ];
    let operation = "messaging.client.operation.duration";
    collector.wait_for_metrics(|metrics| point(metrics, operation, &wanted).is_some());
    running.signal(Signal::KILL);
    running.wait_exit();
}

#[tokio::test]
async fn what_a_handler_sends_and_what_is_settled_are_operations() {
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
    let mut running = traced(program, &collector)
        .env("OTEL_METRIC_EXPORT_INTERVAL", "200")
        .start();
    let bodies = ["local:out done", "local:out reject:no"];
    send(running.data().path(), "in", &bodies, None).await;
    let of = |operation: &str, queue: &str, error: Value| {
        [
            ("messaging.operation.name", json!(operation)),
            ("messaging.destination.name", json!(queue)),
            ("messaging.system", json!("dispatcher_local")),
            ("error.type", error),
        ]
    };
    let sends = of("send", "local:out", Value::Null);
    let settles = of("settle", "local:out", Value::Null);
    let rejected = of("process", "local:out", json!("rejected"));
    let metrics = collector.wait_for_metrics(|metrics| {
        let is = |name: &str, wanted: &[(&str, Value)], what: &str, number: u64| {
            point(metrics, name, wanted).is_some_and(|one| one[what] == number)
        };
        is("messaging.client.sent.messages", &sends, "value", 2)
            && is("messaging.client.operation.duration", &sends, "count", 2)
            && is("messaging.process.duration", &rejected, "count", 1)
            && point(metrics, "messaging.client.operation.duration", &settles)
                .is_some_and(|one| one["count"].as_u64() > Some(0))
    });
    let sent = point(&metrics, "messaging.client.sent.messages", &sends).expect("it came");
    assert_eq!(
        (&sent["kind"], &sent["unit"]),
        (&json!("sum"), &json!("{message}"))
    );
    let took = point(&metrics, "messaging.client.operation.duration", &sends);
    let took = took.expect("it came");
    assert_eq!(
        (&took["kind"], &took["unit"]),
        (&json!("histogram"), &json!("s"))
    );
    running.stop();
}
