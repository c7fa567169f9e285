//! How spans reach a collector: compressed, again after its wait, with a certificate.

use crate::scene::{field, run};
use crate::telemetry::traces::{send, traced};
use dispatcher_tests::collector::Collector;
use dispatcher_tests::service::{JobService, PostedRequest, ServiceAnswer, ServiceStep};

#[tokio::test]
async fn busy_collector_gets_the_batch_again_when_it_wants_it() {
    let collector = JobService::start(|request: &PostedRequest| match request.index {
        0 => ServiceStep::Answer(ServiceAnswer::new(503).header("Retry-After", "0")),
        _ => ServiceStep::status(200),
    });
    let mut running = run("verdicts", &[])
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &collector.url())
        .env("OTEL_BSP_SCHEDULE_DELAY", "20")
        .start();
    send(running.data().path(), "default", &["done"], None).await;
    let requests = collector.wait_for(2);
    assert_eq!(requests[0].body, requests[1].body);
    running.stop();
}

#[tokio::test]
async fn what_a_collector_does_not_take_is_counted_as_lost() {
    // What answers is no collector; and one that rejects one span of each request.
    let rejects = "\n\x02\x08\x01";
    for (body, reason, lost) in [
        ("<html>", "not as a collector of OTLP does: <html>", None),
        (rejects, "the collector rejected 1 of it", Some("1")),
    ] {
        let collector =
            JobService::start(move |_| ServiceStep::Answer(ServiceAnswer::new(200).body(body)));
        let mut running = run("verdicts", &[])
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &collector.url())
            .env("OTEL_BSP_SCHEDULE_DELAY", "20")
            .start();
        send(running.data().path(), "default", &["done"], None).await;
        let line = running.wait_for_line(|line| line.contains("traces are not exported"));
        assert!(field(&line, "reason").contains(reason), "{line}");
        let counted = field(&line, "lost");
        assert!(
            lost.map_or(counted != "0", |lost| counted == lost),
            "{line}"
        );
        running.stop();
    }
}

#[tokio::test]
async fn last_metrics_are_exported_though_the_collector_wanted_to_be_left_alone() {
    let collector = JobService::start(|request: &PostedRequest| match request.index {
        0 => ServiceStep::Answer(ServiceAnswer::new(503).header("Retry-After", "600")),
        _ => ServiceStep::status(200),
    });
    let mut running = run("verdicts", &[])
        .env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &collector.url())
        .env("OTEL_METRIC_EXPORT_INTERVAL", "50")
        .start();
    running.wait_for_line(|line| line.contains("metrics are not exported"));
    running.stop();
    assert_eq!(collector.record().requests.len(), 2);
}

#[tokio::test]
async fn exports_are_compressed_on_request() {
    let collector = Collector::start();
    let mut running = traced(run("verdicts", &[]), &collector)
        .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        .start();
    send(running.data().path(), "default", &["done"], None).await;
    let process = collector.wait_for("process local:default", 1).remove(0);
    assert_eq!(process["encoding"], "gzip");
    running.stop();
}

#[tokio::test]
async fn client_certificate_that_cannot_be_used_is_refused_at_the_start() {
    let ended = run("verdicts", &[])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1")
        .env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "client.pem")
        .env("OTEL_EXPORTER_OTLP_CLIENT_KEY", "client.key")
        .file("client.pem", "none")
        .file("client.key", "none")
        .run();
    assert_ne!(ended.code, 0, "{ended:?}");
    let why = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: `client.pem` and `client.key` are not a \
               certificate and its key";
    assert!(ended.stderr.contains(why), "{ended:?}");
    for (name, file) in [
        ("CERTIFICATE", "/nope"),
        ("METRICS_CERTIFICATE", "none.pem"),
    ] {
        let name = format!("OTEL_EXPORTER_OTLP_{name}");
        let ended = run("verdicts", &[])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1")
            .env(&name, file)
            .file("none.pem", "none")
            .run();
        assert_ne!(ended.code, 0, "{ended:?}");
        let wanted = "wanted a file with certificates in PEM";
        for words in [&*format!("{name}: "), file, wanted] {
            assert!(ended.stderr.contains(words), "{words}: {ended:?}");
        }
    }
}
