//! The contract on a queue: what a handler logs, measures and requests is there for
//! people to see.

use crate::lambda::scene::admin;
use crate::scene::{run, send, until_depth};
use dispatcher_tests::http;
use dispatcher_tests::service::{JobService, ServiceAnswer, ServiceStep};
use serde_json::Value;

#[tokio::test]
async fn handler_logs_measures_and_gets_more_time() {
    let overloaded = ServiceAnswer::new(503).body("too much");
    let service = JobService::start(move |_| ServiceStep::Answer(overloaded.clone()));
    let host = service.url().replace("http://", "").replace("/jobs", "");
    let more = [
        "--admin",
        "127.0.0.1:0",
        "--allow-http",
        &host,
        "--timeout",
        "1s",
        "--max-timeout",
        "1h",
        "--max-attempts",
        "1",
    ];
    let mut running = run("contract", &more).start();
    let admin = admin(&running);
    // It computes for longer than an attempt may take without a request.
    let bodies = [
        "log",
        "metric orders 2.5",
        "extend 60000 2500",
        "error broken",
        "trace o-7",
        "send GET http://192.0.2.7/",
    ];
    let called = format!("send POST {}", service.url());
    let bodies = bodies.map(String::from).into_iter().chain([called]);
    let folder = running.data().path().to_owned();
    send(&folder, "default", bodies).await;
    let line = running.wait_for_line(|line| line.contains("priced"));
    let line: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["fields"]["order"], "o 1");
    assert!(line["message_id"].is_string(), "{line}");
    let traced = running.wait_for_line(|line| line.contains("weighed"));
    let traced: Value = serde_json::from_str(&traced).expect("JSON");
    assert_eq!(traced["level"], "WARN");
    for (name, value) in [
        ("order", "o-7"),
        ("cents", "250"),
        ("attempt", "1"),
        ("span", "pricing"),
        ("target", "contract"),
    ] {
        assert_eq!(traced["fields"][name], value, "{traced}");
    }
    let reasons = [
        "extended true",
        "broken",
        "not granted",
        "the response: 503 too much",
    ];
    for reason in reasons {
        running.wait_for_line(|line| line.contains("dead-lettered") && line.contains(reason));
    }
    until_depth(&folder, "default", |depth| depth.in_flight == 0).await;
    let page = http::get(&format!("{admin}/metrics")).body;
    for wanted in [
        "plugin_orders_total{kind=\"new\",plugin=\"contract\"} 2.5",
        "plugin_orders_now{plugin=\"contract\"} 2.5",
    ] {
        assert!(page.contains(wanted), "{wanted} is not in {page}");
    }
    running.stop();
}

#[test]
fn longest_attempt_below_the_usual_one_is_refused() {
    let more = ["--timeout", "10s", "--max-timeout", "5s"];
    let refused = run("contract", &more).run();
    assert_eq!(refused.code, 2, "{refused:?}");
    let told = "--max-timeout: `5s` is less than the timeout; wanted at least 10s";
    assert!(refused.stderr.contains(told), "{refused:?}");
}
