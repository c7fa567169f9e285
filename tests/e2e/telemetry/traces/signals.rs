//! What goes to a collector beside the program's own spans: those of guests, metrics and logs.

use crate::scene::{field, run, until_depth};
use crate::telemetry::traces::{X_RAY, of, place, send, traced};
use dispatcher_core::queue::Depth;
use dispatcher_tests::collector::{Collector, named};
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::sqs::SqsServer;
use serde_json::{Value, json};
use std::sync::Arc;

#[tokio::test]
async fn spans_of_a_guest_are_below_its_attempt_and_bounded() {
    let collector = Collector::start();
    let mut running = traced(run("capable", &["--allow-spans", "3"]), &collector).start();
    let data = Arc::clone(running.data());
    let mut attempts = 0;
    let mut attempt = async |body: &str| {
        send(data.path(), "default", &[body], None).await;
        attempts += 1;
        collector
            .wait_for("process local:default", attempts)
            .remove(attempts - 1)
    };
    let process = attempt("spans nested").await;
    let (trace, id) = place(&process);
    let seen = format!("got {trace} {id}");
    assert_eq!(of(&process, "dispatcher.reason"), seen.as_str());
    let load = collector.wait_for("load", 1).remove(0);
    let read = collector.wait_for("read", 1).remove(0);
    for span in [&load, &read] {
        assert_eq!(span["trace"], process["trace"]);
        assert_eq!(
            (&span["kind"], &span["scope"]),
            (&json!("internal"), &json!("capable"))
        );
        assert_eq!(span["events"][0]["name"], "cache miss");
    }
    assert_eq!(
        (&load["parent"], &load["ok"]),
        (&process["id"], &json!(true))
    );
    assert_eq!(
        (&read["parent"], &read["error"]),
        (&load["id"], &json!("no such page"))
    );
    for (name, value) in [
        ("text", json!("order")),
        ("number", json!(7)),
        ("flag", json!(true)),
        ("share", json!(0.5)),
        ("list", json!("[1,2]")),
    ] {
        assert_eq!(of(&load, name), &value, "{name} of {load:#}");
    }
    let process = attempt("spans many 5").await;
    assert_eq!(of(&process, "dispatcher.dropped_spans"), 2);
    collector.wait_for("one", 3);
    attempt("spans large").await;
    let large = collector.wait_for("large", 1).remove(0);
    let kept = large["attributes"].as_object().expect("a map").len() - 1;
    assert_eq!(of(&large, "dispatcher.cut_attributes"), kept);
    assert_eq!(large["dropped_attributes"], 1_000 - kept);
    assert_eq!(of(&large, "key-0").as_str().map(str::len), Some(4_096));
    let process = attempt("spans foreign").await;
    assert_eq!(of(&process, "dispatcher.dropped_spans"), 1);
    let all = collector.wait(|_| true);
    assert_eq!(named(&all, "foreign"), Vec::<&Value>::new());
    running.stop();
}

#[tokio::test]
async fn spans_of_a_guest_are_dropped_without_a_grant() {
    let collector = Collector::start();
    let mut running = traced(run("capable", &[]), &collector).start();
    send(running.data().path(), "default", &["spans nested"], None).await;
    let process = collector.wait_for("process local:default", 1).remove(0);
    let nowhere = format!("got {} {}", "0".repeat(32), "0".repeat(16));
    assert_eq!(of(&process, "dispatcher.reason"), nowhere.as_str());
    let line = running.wait_for_line(|line| line.contains("capability denied"));
    assert_eq!(field(&line, "granted_by"), "--allow-spans N", "{line}");
    let all = collector.wait(|_| true);
    assert_eq!(named(&all, "load"), Vec::<&Value>::new());
    running.stop();
}

#[tokio::test]
async fn start_warns_of_spans_that_are_dropped_since_attempts_share_an_instance() {
    let spans = ["--allow-spans", "3", "--allow-lambda", "none"];
    let shared = [&spans[..], &["--instance-concurrency", "2"]].concat();
    let mut running = run("commands", &shared).start();
    let line = running.wait_for_line(|line| line.contains("spans of the handler are dropped"));
    assert_eq!(field(&line, "plugin"), "commands", "{line}");
    assert_eq!(field(&line, "instance_concurrency"), "2", "{line}");
    running.wait_for_line(|line| line.contains("\"running\""));
    running.stop();
}

/// The points of this metric.
fn points<'a>(metrics: &'a [Value], name: &str) -> Vec<&'a Value> {
    metrics.iter().filter(|one| one["name"] == name).collect()
}

#[tokio::test]
async fn metrics_are_exported_with_the_names_of_the_conventions() {
    let collector = Collector::start();
    let mut running = traced(run("verdicts", &[]), &collector)
        .env("OTEL_METRIC_EXPORT_INTERVAL", "200")
        .env("OTEL_SERVICE_NAME", "orders")
        .start();
    send(
        running.data().path(),
        "default",
        &["done", "reject:no"],
        None,
    )
    .await;
    let processed = |metrics: &[Value], error: Value| {
        let mut all = points(metrics, "messaging.process.duration");
        all.retain(|one| *of(one, "error.type") == error && one["count"] == 1);
        all.pop().cloned()
    };
    let metrics = collector.wait_for_metrics(|metrics| {
        processed(metrics, Value::Null).is_some() && processed(metrics, json!("rejected")).is_some()
    });
    let last = &processed(&metrics, Value::Null).expect("it came");
    assert_eq!(
        (&last["kind"], &last["unit"]),
        (&json!("histogram"), &json!("s"))
    );
    for (name, value) in [
        ("messaging.system", "dispatcher_local"),
        ("messaging.destination.name", "local:default"),
        ("messaging.operation.name", "process"),
        ("queue", "local:default"),
    ] {
        assert_eq!(of(last, name), value, "{name}");
    }
    assert_eq!(last["resource"]["service.name"], "orders");
    // Without, replicas would overwrite each other's series.
    let instance = last["resource"]["service.instance.id"].as_str();
    assert_eq!(instance.map(str::len), Some(36), "{last}");
    // Traced attempts, too.
    let attempts = collector.wait_for("process local:default", 2);
    let exemplars = last["spans"].as_array().expect("a list");
    assert!(!exemplars.is_empty(), "{last}");
    for span in exemplars {
        assert!(
            attempts.iter().any(|attempt| attempt["id"] == *span),
            "{last}"
        );
    }
    let build = |metrics: &[Value]| {
        let build = points(metrics, "dispatcher_build_info").pop();
        build.is_some_and(|one| one["kind"] == "gauge" && one["value"] == 1.0)
    };
    collector.wait_for_metrics(build);
    // The depths of queues are asked for as by whoever scrapes.
    let dead = |metrics: &[Value]| {
        let all = points(metrics, "dispatcher_queue_dead_letter_queue_messages");
        all.iter().any(|one| one["value"] == 1.0)
    };
    collector.wait_for_metrics(dead);
    let events = |metrics: &[Value]| {
        let all = points(metrics, "dispatcher_queue_events");
        let dead = all.iter().find(|one| of(one, "event") == "dead-lettered");
        dead.is_some_and(|one| one["kind"] == "sum" && one["value"] == 1)
    };
    collector.wait_for_metrics(events);
    running.stop();
}

#[tokio::test]
async fn exported_metrics_have_depths_and_costs_without_an_admin_address() {
    let collector = Collector::start();
    let server = LocalServer::start();
    let name = SqsServer::fresh_name("pushed");
    SqsServer::at(server.url()).create(&name, &[]).await;
    let more = [
        "--queues",
        &name,
        "--poll-for",
        "1",
        "--metrics-depths",
        "all",
    ];
    let mut running = traced(run("verdicts", &more), &collector)
        .env("OTEL_METRIC_EXPORT_INTERVAL", "200")
        .aws(server.url())
        .start();
    let is_there = |metrics: &[Value], metric: &str| {
        let all = points(metrics, metric);
        all.iter().any(|one| of(one, "queue") == name.as_str())
    };
    collector.wait_for_metrics(|metrics| {
        is_there(metrics, "dispatcher_queue_messages")
            && is_there(metrics, "dispatcher_queue_cost_dollars")
    });
    running.stop();
}

#[tokio::test]
async fn stop_exports_metrics_that_were_due_in_an_hour() {
    let collector = Collector::start();
    let mut running = traced(run("verdicts", &[]), &collector)
        .env("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
        .env("OTEL_TRACES_EXPORTER", "none")
        .start();
    send(running.data().path(), "default", &["print:it ran"], None).await;
    running.wait_for_line(|line| line.contains("it ran"));
    until_depth(running.data().path(), "default", |depth| {
        depth == Depth::default()
    })
    .await;
    running.stop();
    let metrics = collector.wait_for_metrics(|metrics| !metrics.is_empty());
    let done = points(&metrics, "messaging.process.duration");
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!(done[0]["count"], 1);
    assert_eq!(collector.wait(|_| true), Vec::<Value>::new());
}

#[tokio::test]
async fn logs_are_exported_on_request_with_the_span_of_their_attempt() {
    let collector = Collector::start();
    let mut running = traced(run("verdicts", &[]), &collector)
        .env("OTEL_LOGS_EXPORTER", "otlp")
        .env("OTEL_BLRP_SCHEDULE_DELAY", "20")
        .start();
    send(
        running.data().path(),
        "default",
        &["print:hello", "reject:no customer"],
        Some(X_RAY),
    )
    .await;
    let said = |logs: &[Value], body: &str| {
        let found = logs.iter().find(|one| one["body"] == body);
        found.cloned()
    };
    let attempts = collector.wait_for("process local:default", 2);
    let logs = collector.wait_for_logs(|logs| {
        said(logs, "hello").is_some() && said(logs, "message dead-lettered").is_some()
    });
    let of_attempt = |line: &Value| {
        let is_its = |attempt: &&Value| attempt["id"] == line["span"];
        attempts.iter().find(is_its).cloned().expect("an attempt")
    };
    let hello = said(&logs, "hello").expect("it came");
    assert_eq!(
        (&hello["level"], &hello["severity"]),
        (&json!("INFO"), &json!(9))
    );
    assert_eq!(
        (of(&hello, "target"), &hello["event"]),
        (&json!("guest"), &Value::Null)
    );
    assert_eq!(of(&of_attempt(&hello), "dispatcher.outcome"), "done");
    let dead = said(&logs, "message dead-lettered").expect("it came");
    assert_eq!(of(&dead, "queue"), "local:default");
    assert_eq!(dead["event"], "message dead-lettered");
    assert_eq!(of(&dead, "receive_count"), 1);
    assert_eq!(of(&of_attempt(&dead), "dispatcher.reason"), "no customer");
    running.stop();
    // The last line as well.
    let stopping = |logs: &[Value]| logs.iter().any(|one| one["body"] == "stopped");
    collector.wait_for_logs(stopping);
}
