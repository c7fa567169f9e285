//! What operators install beside the program: a Prometheus scrapes it, every query of the dashboard and
//! of the alerts returns data, every alert fires in its situation and has a section that says what to
//! do. And an autoscaler gets a number.

use crate::lambda::scene::admin;
use crate::scene::{guest, run, send, until_depth};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::http;
use dispatcher_tests::prometheus::{Prometheus, lint, promtool};
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::service::{JobService, ServiceStep};
use dispatcher_tests::sqs::SqsServer;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
/// The call that asks SQS how much a queue holds.
const DEPTH: &str = "GetQueueAttributes";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/docs")
}

fn read(name: &str) -> String {
    let path = docs().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("monitoring/grafana-dashboard.json")).expect("JSON")
}

/// The queries of the dashboard's panels and variables, each with what is selected and the interval
/// that Grafana would put in.
fn dashboard_queries() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let of_panels = targets
        .flatten()
        .map(|target| target["expr"].as_str().expect("an expression").to_owned());
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let of_variables = variables.iter().filter_map(|variable| {
        let query = variable["query"]["query"].as_str()?;
        let inside = query.strip_prefix("label_values(")?.strip_suffix(')')?;
        let (series, label) = inside.rsplit_once(", ")?;
        Some(format!("count by ({label}) ({series})"))
    });
    let all = of_panels.chain(of_variables).map(|query| {
        let mut query = query.replace("$__rate_interval", "1m");
        for variable in ["$job", "$instance", "$queue", "$route"] {
            query = query.replace(variable, ".*");
        }
        assert!(!query.contains('$'), "{query}");
        query
    });
    all.collect()
}

/// The alerts by name, with their expressions.
fn alerts() -> Vec<(String, String)> {
    let text = read("monitoring/alerts.yml");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let alerts = lines.windows(2).filter_map(|pair| {
        let name = pair[0].strip_prefix("- alert: ")?;
        let query = pair[1].strip_prefix("expr: ")?;
        Some((name.to_owned(), query.to_owned()))
    });
    alerts.collect()
}

#[test]
fn every_alert_is_valid_fires_in_its_situation_and_has_a_runbook() {
    let folder = docs().join("monitoring");
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let (good, said) = promtool(&arguments, &folder);
        assert!(good, "{arguments:?}: {said}");
    }
    let (alerts, tests, page) = (
        alerts(),
        read("monitoring/alerts_test.yml"),
        read("alerts.md"),
    );
    assert!(alerts.len() >= 15, "the alerts were not found");
    let rules = read("monitoring/alerts.yml");
    assert_eq!(rules.matches("- alert:").count(), alerts.len());
    for (name, _) in alerts {
        let fires = tests
            .split("  - name: ")
            .find(|test| test.starts_with(&format!("{name}\n")));
        assert!(
            fires.is_some_and(|test| test.contains("exp_alerts")),
            "{name} is not tested"
        );
        assert!(
            page.contains(&format!("\n## {name}\n")),
            "{name} has no section"
        );
        let healthy = tests.split_once("  - name: healthy\n");
        let silent =
            healthy.is_some_and(|(_, test)| test.contains(&format!("alertname: {name}\n")));
        assert!(silent, "{name} may fire while all is well");
        let runbook = format!("runbook: host/docs/alerts.md#{}\n", name.to_lowercase());
        assert!(rules.contains(&runbook), "{name} does not name its section");
    }
}

#[test]
fn every_panel_has_its_place_its_data_source_and_a_description() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64()), "{title} has another's id");
        let at = |name: &str| panel["gridPos"][name].as_u64().expect("a place");
        for x in at("x")..at("x") + at("w") {
            assert!(x < 24, "{title} is wider than the page");
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{title} covers another panel");
            }
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            assert!(panel["description"].is_string(), "{title}");
        }
    }
}

/// A local queue and one of SQS, with the settings that nobody has to know of.
fn start(billed: &str) -> RunningProgram {
    let text = format!(
        "[dispatcher]\n\
         admin = \"127.0.0.1:0\"\n\
         metrics-depths-interval = 1\n\
         call-price = [\"sqs=0.30\"]\n\
         [plugin.verdicts]\n\
         file = \"{}\"\n\
         [account.billing]\n\
         role = \"arn:aws:iam::000000000000:role/any\"\n\
         queues = [\"{billed}\"]\n\
         [limit.api]\n\
         concurrency = 1\n\
         rate = \"100/s\"\n\
         [[route]]\n\
         queues = [\"local:default\"]\n\
         plugin = \"verdicts\"\n\
         limits = [\"api\"]\n\
         [[route]]\n\
         name = \"billed\"\n\
         queues = [\"{billed}\"]\n\
         plugin = \"verdicts\"\n\
         poll-for = 1\n",
        guest("verdicts")
    );
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    std::fs::write(folder.path().join("dispatcher.toml"), text).expect("written");
    let arguments = ["run", "--config", "dispatcher.toml", "--log-format", "json"];
    let program = Program::new(arguments).sharing(&folder);
    program.aws(&MiniStack::shared().url()).start()
}

fn has_numbers(series: &[Value]) -> bool {
    series.iter().any(|one| one["value"][1] != "NaN")
}

/// Waits until each alert's expression has numbers, and those of depths have some of the queue of SQS and
/// of its dead-letter queue.
fn every_alert_has_data(prometheus: &Prometheus, billed: &str, letters: &str) {
    for (name, query) in alerts() {
        let asked = query
            .replace("absent_over_time(", "last_over_time(")
            .replace(" > ", " > bool ")
            .replace(" == ", " == bool ");
        assert_ne!(asked, query, "{name} compares nothing");
        prometheus.wait_for(&asked, |at| has_numbers(&at.query(&asked)).then_some(()));
        let of_depths = [
            ("DispatcherQueueStalled", "queue", billed),
            ("DispatcherOldestMessageTooOld", "queue", billed),
            ("DispatcherBacklogDrainsSlowly", "queue", billed),
            (
                "DispatcherDeadLetterQueueNotEmpty",
                "dead_letter_queue",
                letters,
            ),
        ];
        let of_sqs = of_depths.iter().find(|(alert, ..)| *alert == name);
        if let Some((_, label, of)) = of_sqs {
            // A dead-letter queue that a redrive policy names is known by its ARN.
            let is_of = |one: &Value| {
                let name = one["metric"][label].as_str();
                name.is_some_and(|name| name.ends_with(*of))
            };
            prometheus.wait_for(&format!("{asked} of {of}"), |at| {
                at.query(&asked).iter().any(is_of).then_some(())
            });
        }
    }
}

#[tokio::test]
async fn every_query_of_the_dashboard_and_of_the_alerts_returns_data() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let [billed, letters] = ["billed", "letters"].map(SqsServer::fresh_name);
    server.create(&letters, &[]).await;
    let policy = redrive_policy(&letters);
    let url = server.create(&billed, &[("RedrivePolicy", &*policy)]).await;
    let mut running = start(&billed);
    let at = admin(&running);
    let target = at.trim_start_matches("http://");
    let rules = docs().join("monitoring/alerts.yml");
    let prometheus = Prometheus::start(target, &rules.canonicalize().expect("it is there"));
    // What comes from now on is seen as an increase.
    let scraped = "dispatcher_queue_messages_done_total == 0";
    prometheus.wait_for("the first scrape", |at| {
        (at.query(scraped).len() == 2).then_some(())
    });
    let data = running.data();
    let bodies = (0..20).map(|n| format!("print:{n}"));
    send(
        data.path(),
        "default",
        // The last ones are seen while they run and wait.
        bodies.chain(["reject:no", "sleep:1500", "sleep:1500"].map(str::to_owned)),
    )
    .await;
    let traceparent = format!("traceparent=00-{TRACE}-b7ad6b7169203331-01");
    let traced = [
        "send",
        "local:default",
        "print:traced",
        "--attribute",
        &traceparent,
    ];
    assert_eq!(Program::new(traced).sharing(data).run().code, 0);
    server
        .send_many(&url, (0..20).map(|n| format!("print:{n}")))
        .await;
    server.wait_until_empty(&url).await;
    let queries = dashboard_queries();
    assert!(queries.len() > 40, "the queries were not found");
    for query in queries {
        prometheus.wait_for(&query, |at| has_numbers(&at.query(&query)).then_some(()));
    }
    every_alert_has_data(&prometheus, &billed, &letters);
    let loaded = prometheus.api("rules", &[]);
    let loaded = loaded["groups"][0]["rules"]
        .as_array()
        .expect("rules")
        .len();
    assert_eq!(loaded, alerts().len());
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let (from, to) = (
        (now.as_secs() - 600).to_string(),
        (now.as_secs() + 60).to_string(),
    );
    let exemplars = [
        ("query", "messaging_process_duration_seconds_bucket"),
        ("start", &from),
        ("end", &to),
    ];
    prometheus.wait_for("the exemplar", |at| {
        let found = at.api("query_exemplars", &exemplars).to_string();
        found.contains(TRACE).then_some(())
    });
    running.stop();
}

/// A policy that dead-letters to this queue of the emulator's account.
fn redrive_policy(dead_letters: &str) -> String {
    let target = format!("arn:aws:sqs:us-east-1:000000000000:{dead_letters}");
    json!({"deadLetterTargetArn": target, "maxReceiveCount": 5}).to_string()
}

#[tokio::test]
async fn dead_letters_of_a_queue_that_several_share_are_counted_once() {
    let more = [
        "--queues",
        "local:orders,local:invoices",
        "--dead-letter",
        "local:letters",
        "--metrics-depths-interval",
        "1",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut running = run("verdicts", &more).start();
    let at = admin(&running);
    let data = running.data().path();
    for queue in ["orders", "invoices"] {
        send(data, queue, (0..4).map(|_| "reject:no".to_owned())).await;
    }
    until_depth(data, "letters", |depth| depth.waiting == 8).await;
    let rules = docs().join("monitoring/alerts.yml");
    let rules = rules.canonicalize().expect("it is there");
    let prometheus = Prometheus::start(at.trim_start_matches("http://"), &rules);
    let is_shown = |line: &&String| line.contains("dead_letter_queue_messages");
    let queries = dashboard_queries();
    let sums = queries.iter().filter(is_shown);
    let sums: Vec<String> = sums.map(|query| format!("sum({query})")).collect();
    assert_eq!(sums.len(), 2, "a figure and a graph: {sums:?}");
    for query in sums {
        prometheus.wait_for(&format!("8 of {query}"), |at| {
            let answer = at.query(&query);
            answer
                .iter()
                .any(|one| one["value"][1] == "8")
                .then_some(())
        });
    }
    running.stop();
}

/// Reads `/metrics` until this metric of the one route has this value.
fn wait_for_gauge(admin: &str, name: &str, value: &str) {
    let (start, end) = (format!("{name}{{"), format!("}} {value}"));
    let deadline = Instant::now() + dispatcher_tests::PATIENCE;
    loop {
        let metrics = http::get(&format!("{admin}/metrics")).body;
        let is_it = |line: &str| line.starts_with(&start) && line.ends_with(&end);
        if metrics.lines().any(is_it) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "no {name} of {value} in {metrics}"
        );
        // Nothing tells of a gauge.
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn open_circuit_is_a_gauge_of_its_route_until_a_probe_succeeds() {
    let is_open = Arc::new(AtomicBool::new(true));
    let refuses = Arc::clone(&is_open);
    let service = JobService::start(move |_| {
        if refuses.load(Ordering::Relaxed) {
            ServiceStep::status(401)
        } else {
            ServiceStep::status(200)
        }
    });
    let url = service.url();
    let arguments = ["run", "--log-format", "json", "--forward", &url];
    let program = Program::new([&arguments[..], &["--admin", "127.0.0.1:0"]].concat());
    let mut running = program.start();
    let at = admin(&running);
    let wait_until = |value| wait_for_gauge(&at, "dispatcher_route_circuit_open", value);
    wait_until("0");
    send(running.data().path(), "default", ["job".to_owned()]).await;
    wait_until("1");
    is_open.store(false, Ordering::Relaxed);
    wait_until("0");
    running.stop();
}

#[tokio::test]
async fn metrics_are_written_as_the_client_prefers_and_pass_the_lint() {
    let mut running = run("verdicts", &["--admin", "127.0.0.1:0"]).start();
    let url = format!("{}/metrics", admin(&running));
    let data = running.data().path();
    send(data, "default", ["print:x".to_owned()]).await;
    until_depth(data, "default", |depth| depth == Default::default()).await;
    let plain = http::get(&url).body;
    assert!(!plain.contains("# EOF"), "{plain}");
    let accept = [("Accept", "application/openmetrics-text; version=1.0.0")];
    let open = http::get_with(&url, &accept).body;
    assert!(open.ends_with("\n# EOF\n"), "{open}");
    // For one version both names have the same value.
    for line in [
        "dispatcher_queue_messages_received_total{queue=\"local:default\"} 1",
        "dispatcher_queue_messages_received_total{queue=\"local:default\"} 1",
        "dispatcher_messages_done_total 1",
        "dispatcher_messages_done_total 1",
        "dispatcher_queue_messages{queue=\"local:default\",state=\"waiting\"} 0",
    ] {
        for text in [&plain, &open] {
            assert!(text.lines().any(|one| one == line), "{line} not in\n{text}");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("metrics"), &plain).expect("written");
    let (good, said) = lint(&folder.path().join("metrics"));
    assert!(good && said.is_empty(), "{said}");
    running.stop();
}

/// How often SQS is asked for depths through the proxy, beyond what `before` were.
fn asked(proxy: &Proxy, before: usize) -> usize {
    proxy.seen(DEPTH) - before
}

#[tokio::test]
async fn billed_depths_are_asked_unless_refused_and_once_an_interval_whoever_looks() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name("billed");
    server.create(&name, &[]).await;
    for (terms, calls) in [
        (&["--metrics-depths", "free"][..], 0),
        (&["--metrics-depths", "all"], 1),
        (&[], 1),
    ] {
        let proxy = Proxy::before(MiniStack::shared().address());
        let more = [
            &[
                "--queues",
                &name,
                "--poll-for",
                "1",
                "--admin",
                "127.0.0.1:0",
            ],
            terms,
        ];
        let mut running = run("hello", &more.concat()).aws(&proxy.url()).start();
        let at = admin(&running);
        http::wait_for_status(&format!("{at}/api/v1/overview"), 200);
        let before = proxy.seen(DEPTH);
        let scrape = || http::get(&format!("{at}/metrics")).body;
        for _ in 0..5 {
            scrape();
        }
        assert_eq!(asked(&proxy, before), calls, "{terms:?}");
        let spent = format!("dispatcher_queue_depth_calls_total{{queue=\"{name}\"}} 1");
        assert_eq!(scrape().contains(&spent), calls == 1, "{terms:?}");
        // The API and the autoscaler are answered with the same.
        for path in ["queues?depth=true", "scale"] {
            let answer = http::get(&format!("{at}/api/v1/{path}"));
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        assert_eq!(asked(&proxy, before), 1, "{terms:?}");
        assert!(scrape().contains(&spent), "what others asked is shown");
        running.stop();
    }
}

#[test]
fn one_call_asks_many_embedded_queues_for_their_depths() {
    let names: Vec<String> = (0..200).map(|n| format!("local:q{n}")).collect();
    let queues = names.join(",");
    let more = ["--queues", &queues, "--admin", "127.0.0.1:0"];
    let mut running = run("hello", &more).start();
    let at = admin(&running);
    http::wait_for_status(&format!("{at}/api/v1/overview"), 200);
    let answer = http::get(&format!("{at}/api/v1/queues?depth=true&limit=500"));
    let body: Value = serde_json::from_str(&answer.body).expect("JSON");
    // 200 queues and as many dead-letter queues, 256 in a call.
    assert_eq!(body["calls"], 2, "{body}");
    let items = body["items"].as_array().expect("queues");
    assert_eq!(items.len(), 200);
    for item in items {
        let waiting = [
            &item["depth"]["waiting"],
            &item["dead_letter_depth"]["waiting"],
        ];
        assert_eq!(waiting, [0, 0], "{item}");
    }
    // Each was asked once, and that is shown to whoever reads metrics.
    let metrics = http::get(&format!("{at}/metrics")).body;
    for name in names {
        for line in [
            format!("dispatcher_queue_messages{{queue=\"{name}\",state=\"waiting\"}} 0"),
            format!("dispatcher_queue_dead_letter_queue_messages{{queue=\"{name}\"}} 0"),
            format!("dispatcher_queue_depth_calls_total{{queue=\"{name}\"}} 1"),
        ] {
            assert!(
                metrics.lines().any(|one| one == line),
                "{line} not in\n{metrics}"
            );
        }
    }
    running.stop();
}

#[tokio::test]
async fn an_autoscaler_gets_the_replicas_that_the_backlog_wants() {
    let more = ["--concurrency", "1", "--admin", "127.0.0.1:0"];
    let mut running = run("verdicts", &more).start();
    let scale = |query: &str| {
        let answer = http::get(&format!("{}/api/v1/scale?{query}", admin(&running)));
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        (answer.status, body)
    };
    http::wait_for_status(&format!("{}/api/v1/overview", admin(&running)), 200);
    let (status, idle) = scale("");
    assert_eq!(
        (status, idle["replicas"].as_u64()),
        (200, Some(0)),
        "{idle}"
    );
    assert_eq!(idle["items"][0]["reason"], "idle");
    let (status, problem) = scale("drain=0&route=verdicts");
    assert_eq!(status, 400, "{problem}");
    assert_eq!(scale("route=none").0, 404);
    // One runs until the end of the test; the others wait for it.
    let data = running.data().path();
    send(data, "default", (0..10).map(|_| "sleep:600000".to_owned())).await;
    // Nobody knows yet how long they take, and they are more than one replica handles.
    let (status, problem) = wait_for_scale(&running, |(status, _)| *status != 200).await;
    assert_eq!(status, 503, "{problem}");
    let why = problem["detail"].as_str().expect("words");
    assert!(
        why.contains("How long messages of `verdicts` take"),
        "{why}"
    );
    running.signal(Signal::KILL);
    running.wait_exit();
}

/// What an autoscaler is answered, once it is this: depths are kept for some seconds.
async fn wait_for_scale(
    running: &RunningProgram,
    holds: impl Fn(&(u16, Value)) -> bool,
) -> (u16, Value) {
    let url = format!("{}/api/v1/scale?drain=3600", admin(running));
    let asking = async {
        loop {
            let answer = http::get(&url);
            let body = serde_json::from_str(&answer.body).unwrap_or_default();
            let answer = (answer.status, body);
            if holds(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let answered = tokio::time::timeout(dispatcher_tests::PATIENCE, asking).await;
    answered.expect("a depth is not kept for long")
}

#[tokio::test]
async fn messages_that_came_singly_occupy_an_attempt_each() {
    let service = JobService::start(|_| ServiceStep::Never);
    let url = service.url();
    let program = Program::new([
        "run",
        "--log-format",
        "json",
        "--forward",
        &url,
        "--concurrency",
        "4",
        "--batch-size",
        "10",
        "--admin",
        "127.0.0.1:0",
    ]);
    let mut running = program.start();
    let data = running.data().path();
    for number in 1..=4 {
        send(data, "default", ["job".to_owned()]).await;
        service.wait_for(number);
    }
    send(data, "default", (0..4).map(|_| "job".to_owned())).await;
    let all_came = |(_, answer): &(u16, Value)| answer["items"][0]["in_flight"] == 8;
    let (_, answer) = wait_for_scale(&running, all_came).await;
    assert_eq!(answer["replicas"], 2, "{answer}");
    assert_eq!(answer["items"][0]["at_once"], 40, "{answer}");
    running.signal(Signal::KILL);
    running.wait_exit();
}

#[tokio::test]
async fn messages_that_are_only_prefetched_want_no_replicas_of_their_own() {
    let more = [
        "--concurrency",
        "2",
        "--prefetch",
        "100",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut running = run("verdicts", &more).start();
    let data = running.data().path();
    send(data, "default", (0..10).map(|_| "done".to_owned())).await;
    until_depth(data, "default", |depth| depth == Default::default()).await;
    send(data, "default", (0..200).map(|_| "sleep:600000".to_owned())).await;
    // Depths are some seconds old.
    let all_held = |(_, answer): &(u16, Value)| {
        let route = &answer["items"][0];
        route["held"] == 100 && route["in_flight"] == 102
    };
    let (_, answer) = wait_for_scale(&running, all_held).await;
    assert_eq!(answer["replicas"], 1, "{answer}");
    running.signal(Signal::KILL);
    running.wait_exit();
}

#[tokio::test]
async fn messages_that_wait_for_their_retry_on_sqs_want_no_replicas() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name("retried");
    let url = server.create(&name, &[]).await;
    server
        .send_many(&url, (0..10).map(|_| "retry:3600000".to_owned()))
        .await;
    let more = [
        "--queues",
        &name,
        "--concurrency",
        "1",
        "--poll-for",
        "1",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut running = run("verdicts", &more)
        .aws(&MiniStack::shared().url())
        .start();
    let all_wait = |(_, answer): &(u16, Value)| answer["items"][0]["released"] == 10;
    let (_, answer) = wait_for_scale(&running, all_wait).await;
    let route = &answer["items"][0];
    assert_eq!(
        (&answer["replicas"], &route["in_flight"], &route["reason"]),
        (&json!(0), &json!(0), &json!("idle")),
        "{answer}"
    );
    running.stop();
}

#[tokio::test]
async fn every_call_that_sqs_bills_is_counted() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let [name, dead] = ["billed", "dead"].map(SqsServer::fresh_name);
    let url = server.create(&name, &[]).await;
    server.create(&dead, &[]).await;
    let bodies = ["done", "reject:no", "retry:0"];
    let bodies = (0..60).map(|number| bodies[number % 3].to_owned());
    server.send_many(&url, bodies).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let more = [
        "--queues",
        &name,
        "--dead-letter",
        &dead,
        "--max-attempts",
        "2",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut running = run("verdicts", &more).aws(&proxy.url()).start();
    server.wait_until_empty(&url).await;
    let seen = || {
        [
            "ReceiveMessage",
            "SendMessageBatch",
            "DeleteMessageBatch",
            "ChangeMessageVisibilityBatch",
        ]
        .map(|call| proxy.seen(call))
    };
    let metrics = format!("{}/metrics", admin(&running));
    let wanted = |calls: usize| format!("dispatcher_queue_calls_total{{queue=\"{name}\"}} {calls}");
    // A poll may begin between the two looks.
    let counting = async {
        loop {
            let calls = seen().iter().sum();
            let shown = http::get(&metrics).body;
            if shown.lines().any(|line| line == wanted(calls)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let counted = tokio::time::timeout(dispatcher_tests::PATIENCE, counting).await;
    let [receives, sends, deletes, changes] = seen();
    let shown = || http::get(&metrics).body;
    assert!(
        counted.is_ok(),
        "{:?} in\n{}",
        (receives, sends, deletes, changes),
        shown()
    );
    assert!(sends > 0 && deletes > 0 && changes > 0);
    running.stop();
}
