//! Tenants that share a queue, and priorities: on the embedded queue exactly, on SQS among what is
//! held.

use crate::operator::admin_api::ApiScene;
use crate::ordering::prefetch::until_come;
use crate::scene::{guest, printed, prints, run, until_depth};
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::{Depth, Queue};
use dispatcher_local::queue::LocalStore;
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::service::{JobService, PostedRequest, ServiceAnswer, ServiceStep};
use dispatcher_tests::sqs::{SqsServer, configuration};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A message of a tenant, by its group and by an attribute, that the guest prints.
fn message(tenant: &str, number: usize) -> OutgoingMessage {
    OutgoingMessage {
        body: format!("print:{tenant} {number}"),
        group: Some(tenant.to_owned()),
        attributes: vec![Attribute::text("customer", tenant)],
        ..OutgoingMessage::default()
    }
}

fn messages(tenant: &str, count: usize) -> Vec<OutgoingMessage> {
    (0..count).map(|number| message(tenant, number)).collect()
}

async fn send_to(queue: &dyn Queue, messages: &[OutgoingMessage]) {
    for batch in messages.chunks(10) {
        for sent in queue.send(batch).await {
            sent.expect("sent");
        }
    }
}

async fn send(data: &Path, messages: &[OutgoingMessage]) {
    let store = LocalStore::open(data).expect("opens");
    send_to(&store.queue("default", None).expect("opens"), messages).await;
}

fn folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

/// How many of the first prints are of a tenant.
fn of(running: &RunningProgram, tenant: &str, first: usize) -> usize {
    let order = prints(running);
    let first = order.iter().take(first);
    first.filter(|line| line.starts_with(tenant)).count()
}

#[tokio::test]
async fn small_tenants_do_not_wait_for_a_big_one() {
    let data = folder();
    send(data.path(), &messages("big", 400)).await;
    for number in 0..4 {
        send(data.path(), &messages(&format!("small-{number}"), 3)).await;
    }
    let more = ["--tenant", "group", "--concurrency", "1"];
    let mut running = run("verdicts", &more).sharing(&data).start();
    running.wait_for_lines(412, printed);
    running.stop();
    // Each tenant has one of five turns, while it has messages.
    let small = of(&running, "small", 20);
    assert_eq!(small, 12, "{:?}", &prints(&running)[..20]);
    let order = prints(&running);
    let big: Vec<&String> = order
        .iter()
        .filter(|line| line.starts_with("big"))
        .collect();
    assert!(big.is_sorted_by_key(|line| line[4..].parse::<u32>().unwrap_or_default()));
}

#[tokio::test]
async fn groups_that_are_tenants_run_several_messages_at_a_time() {
    let service = JobService::start(|_| ServiceStep::Hold(ServiceAnswer::new(200)));
    let text = format!(
        "[plugin.api]\nforward = \"{}\"\n[[route]]\nqueues = [\"local:default\"]\n\
         plugin = \"api\"\ntenant = \"group\"\nconcurrency = 8\n",
        service.url()
    );
    let program = Program::new(["run", "--log-format", "json", "--config", "d.toml"]);
    let mut running = program.file("d.toml", &text).start();
    send(running.data().path(), &messages("one", 20)).await;
    service.wait(|record| record.in_flight == 8);
    service.release();
    service.wait_for(20);
    running.stop();
}

/// Handles one message at a time: the first once all are held, then the others. Returns the order
/// of the bodies.
async fn handled_once_all_are_held(
    count: usize,
    start: impl FnOnce(&str) -> RunningProgram,
) -> Vec<String> {
    let service = JobService::start(|_| ServiceStep::Hold(ServiceAnswer::new(200)));
    let mut running = start(&service.url());
    // What a queue has handed out may not have come yet.
    until_come(&running, count as u64);
    service.release();
    let requests = service.wait_for(count);
    running.stop();
    requests.into_iter().map(|request| request.body).collect()
}

/// How many of the first bodies after the very first are of the small tenant.
fn small_of(bodies: &[String], first: usize) -> usize {
    let first = bodies.iter().skip(1).take(first);
    first.filter(|body| body.starts_with("print:small")).count()
}

#[tokio::test]
async fn tenant_of_an_attribute_is_shared_among_what_is_held() {
    let data = folder();
    let without_groups = |tenant, count| {
        let mut all = messages(tenant, count);
        all.iter_mut().for_each(|one| one.group = None);
        all
    };
    let queue = LocalStore::open(data.path()).expect("opens");
    let queue = queue.queue("default", None).expect("opens");
    send_to(&queue, &without_groups("big", 60)).await;
    send_to(&queue, &without_groups("small", 4)).await;
    let bodies = handled_once_all_are_held(64, |url| {
        let sharing = ["--tenant", "customer", "--weight", "small=2"];
        let limits = ["--prefetch", "100", "--concurrency", "1"];
        let words = [
            "run",
            "--log-format",
            "json",
            "--forward",
            url,
            "--admin",
            "127.0.0.1:0",
        ];
        Program::new([&words[..], &sharing, &limits].concat())
            .sharing(&data)
            .start()
    });
    let bodies = bodies.await;
    assert_eq!(small_of(&bodies, 7), 4, "{bodies:?}");
}

#[tokio::test]
async fn tenants_share_what_is_held_of_an_sqs_queue() {
    let url = MiniStack::shared().url();
    let server = SqsServer::at(&url);
    let name = SqsServer::fresh_name("tenants");
    server.create(&name, &[("VisibilityTimeout", "30")]).await;
    let queue = Sqs::connect(&configuration(&url)).open(&name, None).await;
    let queue = queue.expect("it was just made");
    send_to(&queue, &messages("big", 80)).await;
    send_to(&queue, &messages("small", 4)).await;
    let bodies = handled_once_all_are_held(84, |handler| {
        let sharing = ["--queues", &name, "--tenant", "group"];
        let limits = ["--prefetch", "200", "--concurrency", "1"];
        let words = [
            "run",
            "--log-format",
            "json",
            "--forward",
            handler,
            "--admin",
            "127.0.0.1:0",
        ];
        Program::new([&words[..], &sharing, &limits].concat())
            .aws(&url)
            .start()
    });
    let bodies = bodies.await;
    assert_eq!(small_of(&bodies, 9), 4, "{bodies:?}");
}

#[tokio::test]
async fn urgent_messages_start_before_all_others() {
    let data = folder();
    let of_priority = |priority: &str, number| {
        let mut one = message(&format!("p{priority}"), number);
        let priority = Attribute::text("priority", priority);
        one.attributes.push(priority);
        one.group = None;
        one
    };
    let mut all: Vec<OutgoingMessage> = (0..200).map(|number| of_priority("5", number)).collect();
    all.extend((0..10).map(|number| of_priority("none", number)));
    all.extend((0..10).map(|number| of_priority("1", number)));
    send(data.path(), &all).await;
    let more = ["--priority-by", "priority", "--concurrency", "1"];
    let mut running = run("verdicts", &more).sharing(&data).start();
    running.wait_for_lines(220, printed);
    let typed = ["send", "local:default", "print:typed", "--priority", "9"];
    let refused = Program::new(typed).run();
    assert_eq!(refused.code, 2, "{refused:?}");
    running.stop();
    let order = prints(&running);
    assert!(
        order[..10].iter().all(|line| line.starts_with("p1")),
        "{order:?}"
    );
    assert!(
        order[10..20].iter().all(|line| line.starts_with("pnone")),
        "{order:?}"
    );
}

#[tokio::test]
async fn command_sends_a_priority() {
    let data = folder();
    for (body, priority) in [("print:later", "4"), ("print:sooner", "2")] {
        let words = ["send", "local:default", body, "--priority", priority];
        assert_eq!(Program::new(words).sharing(&data).run().code, 0);
    }
    let more = ["--priority-by", "priority", "--concurrency", "1"];
    let mut running = run("verdicts", &more).sharing(&data).start();
    running.wait_for_lines(2, printed);
    running.stop();
    assert_eq!(prints(&running), ["sooner", "later"]);
}

/// Answers the messages of a full tenant only when released.
fn holding(request: &PostedRequest) -> ServiceStep {
    if request.body.starts_with("print:full") {
        ServiceStep::Hold(ServiceAnswer::new(200))
    } else {
        ServiceStep::status(200)
    }
}

#[tokio::test]
async fn tenant_at_its_limit_is_parked_and_its_share_goes_to_others() {
    let service = JobService::start(holding);
    let text = format!(
        "[limit.each]\nkey = \"group\"\nconcurrency = 2\n\
         [plugin.api]\nforward = \"{}\"\n[[route]]\nqueues = [\"local:default\"]\n\
         plugin = \"api\"\ntenant = \"group\"\nlimits = [\"each\"]\nconcurrency = 8\n",
        service.url()
    );
    let words = ["run", "--log-format", "json", "--config", "d.toml"];
    let program = |flags: &[&str]| {
        let words = [&words[..], flags].concat();
        Program::new(words).file("d.toml", &text)
    };
    let mut scene = ApiScene::of(program, &[]);
    let data = scene.running.data().clone();
    send(data.path(), &messages("full", 500)).await;
    service.wait(|record| record.in_flight == 2);
    send(data.path(), &messages("other", 100)).await;
    let others = |request: &&PostedRequest| request.body.starts_with("print:other");
    service.wait(|record| record.requests.iter().filter(others).count() == 100);
    let queue = loop {
        let answer = scene.get("/api/v1/queues/local%3Adefault");
        if answer["queue"]["tenants"][0]["parked"] == true {
            break answer["queue"].clone();
        }
        tokio::task::yield_now().await;
    };
    let full = &queue["tenants"][0];
    assert_eq!(
        (&full["tenant"], &full["running"]),
        (&"full".into(), &2.into())
    );
    assert!(
        full["waiting"].as_u64() >= Some(400),
        "the queue keeps the rest: {full}"
    );
    assert!(full["oldest_s"].as_f64() > Some(0.0), "{full}");
    service.release();
    service.wait_for(600);
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    scene.running.stop();
    assert_eq!(service.record().requests.len(), 600, "each once");
}

#[tokio::test]
async fn weight_that_operators_set_holds_at_once() {
    let data = folder();
    send(data.path(), &messages("a", 900)).await;
    send(data.path(), &messages("b", 900)).await;
    let more = ["--tenant", "group", "--concurrency", "1"];
    let mut scene = ApiScene::of(|flags| run("verdicts", flags).sharing(&data), &more);
    scene.running.wait_for_lines(20, printed);
    let weight = r#"{"tenant": "b", "weight": 9}"#;
    let (status, answer) = scene.ask("/api/v1/routes/verdicts/weights", weight);
    assert_eq!(status, 200, "{answer}");
    let changed = scene
        .running
        .wait_for_line(|line| line.contains("weights of tenants changed"));
    let line: Value = serde_json::from_str(&changed).expect("JSON");
    assert_eq!(
        (&line["route"], &line["weights"]),
        (&json!("verdicts"), &json!("b=9"))
    );
    let audited = &scene.audit("admin action", 1)[0];
    let queues = (&audited["target_name"], &audited["count"]);
    assert_eq!(queues, (&json!("verdicts"), &json!(1)));
    let live = json!([{"tenant": "b", "value": 9, "configured": 1}]);
    assert_eq!(scene.get("/api/v1/routes")["items"][0]["weights"], live);
    let from = prints(&scene.running).len() + 50;
    scene.running.wait_for_lines(from + 200, printed);
    scene.running.stop();
    let order = prints(&scene.running);
    let after = order[from..from + 200].iter();
    let of_b = after.filter(|line| line.starts_with("b ")).count();
    assert!((170..=190).contains(&of_b), "nine of ten: {of_b}");
    // The weight outlives the process.
    let mut later = run("verdicts", &more).sharing(&data).start();
    let warned = later.wait_for_line(|line| line.contains("live control in force at start"));
    assert!(warned.contains("\"weights\":\"b=9\""), "{warned}");
    later.stop();
    let doctor = Program::new([
        "doctor",
        "--plugin",
        &guest("verdicts"),
        "--tenant",
        "group",
    ]);
    let found = doctor.sharing(&data).run();
    assert!(found.stdout.contains("live weights b=9"), "{found:?}");
}

#[test]
fn rules_that_are_lost_from_redis_are_logged_once_and_messages_still_run() {
    let server = RedisServer::start(&[]);
    let url = server.url();
    let redis = ["--redis-url", &url];
    let more = ["--queues", "redis:jobs", "--tenant", "group"];
    let mut running = run("verdicts", &[&redis[..], &more].concat()).start();
    let mut beside = server.connect();
    for body in ["print:first", "print:second", "print:third"] {
        let words = ["send", "redis:jobs", body, "--group", "acme"];
        assert_eq!(Program::new([&words[..], &redis].concat()).run().code, 0);
        running.wait_for_line(|line| line.contains(&body["print:".len()..]));
        let lost = beside.call(&["DEL", "{dispatcher:jobs}:sharing"]);
        let had_rules = lost.expect("an answer").number() == 1;
        assert_eq!(had_rules, body == "print:first", "rules are sent once");
    }
    let lost = "rules of tenants and priorities replaced or lost";
    running.wait_for_line(|line| line.contains(lost));
    running.stop();
    assert_eq!(running.lines(|line| line.contains(lost)).len(), 1);
}

#[test]
fn list_of_queues_waits_once_for_a_server_that_does_not_answer() {
    let server = RedisServer::start(&[]);
    let (url, names) = (
        server.url(),
        (0..12).map(|number| format!("redis:q{number}")),
    );
    let names: Vec<String> = names.collect();
    for name in &names {
        let words = [
            "send",
            name,
            "sleep:600000",
            "--group",
            "acme",
            "--redis-url",
            &url,
        ];
        assert_eq!(Program::new(words).run().code, 0);
    }
    let queues = names.join(",");
    let (queues, url) = (["--queues", &queues], ["--redis-url", &url]);
    let more = [
        "--tenant",
        "group",
        "--concurrency",
        "12",
        "--timeout",
        "10m",
    ];
    let scene = ApiScene::verdicts(&[&queues[..], &url, &more].concat());
    while scene.get("/api/v1/overview")["running"] != 12 {
        std::thread::yield_now();
    }
    let list = || scene.get("/api/v1/queues?depth=true");
    assert_eq!(list()["items"][11]["tenants"][0]["waiting"], 0);
    let mut beside = server.connect();
    beside
        .call(&["CLIENT", "PAUSE", "600000"])
        .expect("an answer");
    let began = Instant::now();
    let tenant = &list()["items"][11]["tenants"][0];
    assert_eq!(
        (&tenant["running"], &tenant["waiting"]),
        (&json!(1), &json!(null))
    );
    // A second for the tenants and three for the depths, not a second for each queue.
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
    scene.running.signal(Signal::KILL);
}

#[tokio::test]
async fn processes_that_are_killed_starve_no_tenant_and_lose_nothing() {
    let data = folder();
    let tenants = ["a", "b", "c", "d"];
    for tenant in tenants {
        send(data.path(), &messages(tenant, 150)).await;
    }
    let more = [
        "--tenant",
        "group",
        "--concurrency",
        "4",
        "--visibility",
        "2",
    ];
    let start = || run("verdicts", &more).sharing(&data).start();
    let (mut killed, mut one, mut two) = (start(), start(), start());
    killed.wait_for_lines(20, printed);
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait_exit(), 137);
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    one.stop();
    two.stop();
    let all = [&killed, &one, &two].map(prints).concat();
    for tenant in tenants {
        for number in 0..150 {
            let wanted = format!("{tenant} {number}");
            assert!(all.contains(&wanted), "{wanted}");
        }
    }
}
