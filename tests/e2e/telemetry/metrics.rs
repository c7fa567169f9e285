//! What CloudWatch is told: per queue and in total, once an interval, the last one at the stop; and
//! a CloudWatch that is not there changes nothing else. Or lines for a log to be read from.

use crate::scene::{field, run, send, until_depth};
use dispatcher_tests::child::{RunningProgram, Stream};
use dispatcher_tests::cloudwatch::{CloudWatch, Metric};
use dispatcher_tests::proxy::{Mode, Proxy};
use dispatcher_tests::servers::{MiniStack, free_port};
use dispatcher_tests::sqs::SqsServer;
use serde_json::Value;

const PUT: &str = "PutMetricData";

fn start(name: &str, interval: &str, cloudwatch: &str) -> RunningProgram {
    let more = ["--name", name, "--metrics-interval", interval];
    run("verdicts", &more)
        .aws(&MiniStack::shared().url())
        .env("AWS_ENDPOINT_URL_CLOUDWATCH", cloudwatch)
        .start()
}

async fn work(running: &RunningProgram, count: usize) {
    let data = running.data().path();
    send(data, "default", (0..count).map(|n| format!("print:{n}"))).await;
    until_depth(data, "default", |depth| depth == Default::default()).await;
}

/// Of the metrics with this name, the one by queue or the total.
fn of<'a>(metrics: &'a [Metric], name: &str, by_queue: bool) -> Option<&'a Metric> {
    metrics.iter().find(|metric| {
        let queue = metric.dimensions.values().any(|of| of.contains("default"));
        metric.name == name && queue == by_queue
    })
}

/// Counts are whole numbers, which are exact.
fn sum(metrics: &[Metric], name: &str, by_queue: bool) -> f64 {
    of(metrics, name, by_queue).map_or(0.0, |metric| metric.sum)
}

#[tokio::test]
async fn every_interval_is_published_by_queue_and_in_total() {
    let name = SqsServer::fresh_name("app");
    let server = MiniStack::shared().url();
    let mut running = start(&name, "1", &server);
    work(&running, 20).await;
    let namespace = format!("Dispatcher-{name}");
    let cloudwatch = CloudWatch::at(&server);
    let handled = |metrics: &[Metric]| {
        sum(metrics, "Messages", true) == 20.0
            && of(metrics, "Duration", true).is_some_and(|metric| metric.count >= 20.0)
    };
    let metrics = cloudwatch.wait_until(&namespace, handled).await;
    for each in [
        "Messages",
        "Failures",
        "Duration",
        "Age",
        "InFlight",
        "CallsPerMessage",
        "DeadLetters",
    ] {
        for by_queue in [true, false] {
            assert!(
                of(&metrics, each, by_queue).is_some(),
                "{each}: {metrics:?}"
            );
        }
    }
    assert_eq!(sum(&metrics, "Messages", false), 20.0);
    assert_eq!(sum(&metrics, "Failures", true), 0.0);
    let circuit = |route: Option<&str>| {
        let mut circuits = metrics.iter().filter(|metric| metric.name == "CircuitOpen");
        circuits.find(|metric| metric.dimensions.get("Route").map(String::as_str) == route)
    };
    for route in [Some("verdicts"), None] {
        let circuit = circuit(route).unwrap_or_else(|| panic!("{route:?}: {metrics:?}"));
        assert_eq!(circuit.sum, 0.0, "{route:?}");
    }
    let age = of(&metrics, "Age", true).expect("it was just there");
    assert!(age.least >= 0.0 && age.count == 20.0, "{age:?}");
    // What comes later is counted once more, and nothing twice.
    work(&running, 5).await;
    running.stop();
    let metrics = cloudwatch.metrics(&namespace);
    assert_eq!(sum(&metrics, "Messages", true), 25.0);
}

#[tokio::test]
async fn last_interval_is_published_at_the_stop_in_one_call() {
    let name = SqsServer::fresh_name("app");
    let proxy = Proxy::before(MiniStack::shared().address());
    let mut running = start(&name, "1h", &proxy.url());
    work(&running, 30).await;
    assert_eq!(proxy.seen(PUT), 0);
    running.stop();
    assert_eq!(proxy.seen(PUT), 1);
    let cloudwatch = CloudWatch::at(&MiniStack::shared().url());
    let metrics = cloudwatch.metrics(&format!("Dispatcher-{name}"));
    assert_eq!(sum(&metrics, "Messages", true), 30.0);
}

fn is_not_published(line: &str) -> bool {
    line.contains("\"metrics are not published\"") && line.contains("WARN")
}

#[tokio::test]
async fn unreachable_cloudwatch_is_logged_and_stops_no_message() {
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let mut running = start(&SqsServer::fresh_name("app"), "1", &nowhere);
    work(&running, 100).await;
    let line = running.wait_for_line(is_not_published);
    assert!(field(&line, "reason").contains("PutMetricData"), "{line}");
    assert_eq!(
        (field(&line, "waiting"), field(&line, "lost")),
        ("1".into(), "0".into())
    );
    work(&running, 100).await;
    running.stop();
    let lost = running.lines(|line| line.contains("metrics were not published before the stop"));
    assert_eq!(lost.len(), 1, "{lost:?}");
}

#[tokio::test]
async fn refusal_of_cloudwatch_is_logged_until_it_takes_metrics_again() {
    let proxy = Proxy::before(MiniStack::shared().address());
    // The data are what it does not take, so they are not sent again.
    proxy.answer_next(1, PUT, 413, "{}");
    let name = SqsServer::fresh_name("app");
    let mut running = start(&name, "1", &proxy.url());
    let line = running.wait_for_line(is_not_published);
    assert!(field(&line, "reason").contains("413"), "{line}");
    assert_eq!(field(&line, "lost"), "1", "{line}");
    running.wait_for_line(|line| line.contains("metrics are published again"));
    work(&running, 10).await;
    running.stop();
    let cloudwatch = CloudWatch::at(&MiniStack::shared().url());
    let metrics = cloudwatch.metrics(&format!("Dispatcher-{name}"));
    assert_eq!(sum(&metrics, "Messages", true), 10.0);
}

#[tokio::test]
async fn hanging_cloudwatch_delays_neither_messages_nor_the_stop() {
    let proxy = Proxy::before(MiniStack::shared().address());
    proxy.set(Mode::Hold);
    let mut running = start(&SqsServer::fresh_name("app"), "1", &proxy.url());
    proxy.wait_until_seen(1, PUT);
    work(&running, 100).await;
    running.stop();
}

#[tokio::test]
async fn nothing_is_published_without_a_name() {
    let proxy = Proxy::before(MiniStack::shared().address());
    let mut running = run("verdicts", &["--metrics-interval", "1"])
        .aws(&proxy.url())
        .start();
    work(&running, 5).await;
    running.stop();
    assert_eq!(proxy.seen(PUT), 0);
}

/// One line of Embedded Metric Format within the format's limits; its values under one queue.
fn emf_line(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let meta = &value["_aws"];
    assert!(
        meta["Timestamp"].as_u64() > Some(1_700_000_000_000),
        "in ms: {meta}"
    );
    let directives = meta["CloudWatchMetrics"].as_array().expect("directives");
    assert!(!directives.is_empty() && line.len() < 1 << 20);
    for directive in directives {
        let metrics = directive["Metrics"].as_array().expect("metrics");
        assert!(
            (1..=100).contains(&metrics.len()),
            "{} metrics",
            metrics.len()
        );
        for metric in metrics {
            let name = metric["Name"].as_str().expect("a name");
            match &value[name] {
                Value::Number(_) => {}
                Value::Array(values) => assert!((1..=100).contains(&values.len())),
                Value::Object(members) => {
                    let values = members["Values"].as_array().expect("values");
                    let counts = members["Counts"].as_array().expect("counts");
                    assert!((1..=100).contains(&values.len()) && values.len() == counts.len());
                }
                other => panic!("{name} is {other}"),
            }
        }
        for set in directive["Dimensions"].as_array().expect("sets") {
            let set = set.as_array().expect("a set");
            assert!(set.len() <= 30);
            for name in set {
                let name = name.as_str().expect("a name");
                assert!(value[name].is_string(), "{name} is at the root: {line}");
            }
        }
    }
    value
}

#[tokio::test]
async fn embedded_metric_format_is_one_json_object_per_line() {
    let more = [
        "--name",
        "app",
        "--metrics",
        "emf",
        "--metrics-interval",
        "1h",
    ];
    let mut running = run("verdicts", &more).start();
    work(&running, 40).await;
    running.stop();
    let text = running.text(Stream::Out);
    let lines: Vec<Value> = text.lines().map(emf_line).collect();
    assert!(!lines.is_empty());
    let messages: Vec<f64> = lines
        .iter()
        .filter(|line| {
            line["Queue"]
                .as_str()
                .is_some_and(|of| of.contains("default"))
        })
        .filter_map(|line| line["Messages"].as_f64())
        .collect();
    assert_eq!(messages, [40.0], "{text}");
    for line in &lines {
        assert_eq!(
            line["_aws"]["CloudWatchMetrics"][0]["Namespace"],
            "Dispatcher-app"
        );
    }
}
