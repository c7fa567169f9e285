//! Every end of a message is one event: one line of the log with its reason in fields, and one
//! count. `host/docs/events.md` lists them.

use crate::lambda::scene::{admin, forward, forward_to, queue, queue_with_redrive};
use crate::scene::{run, send, until_depth};
use dispatcher_core::message::AttributeValue;
use dispatcher_core::queue::{Ask, DEAD_LETTER_REASON, Queue};
use dispatcher_local::queue::{LocalStore, QueueSettings, Redrive};
use dispatcher_tests::child::{Program, RunningProgram, Signal, Stream};
use dispatcher_tests::faulty_lambda::{FaultyLambda, LambdaStep};
use dispatcher_tests::http;
use dispatcher_tests::lambda::Function;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use serde_json::Value;
use std::path::Path;

/// The lines of the log with this message, as JSON.
fn events(running: &RunningProgram, message: &str) -> Vec<Value> {
    let text = running.text(Stream::Err);
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &Value| line["message"] == message)
        .collect()
}

/// The first of them, once it is there.
fn event(running: &RunningProgram, message: &str) -> Value {
    let quoted = format!("\"message\":\"{message}\"");
    let line = running.wait_for_line(|line| line.contains(&quoted));
    serde_json::from_str(&line).expect("JSON")
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    let value = event[field].as_str();
    value.unwrap_or_else(|| panic!("no {field} in {event}"))
}

/// What `/metrics` says after this beginning of a line, once it is this much.
fn wait_for_count(admin: &str, line: &str, count: u64) {
    let wanted = format!("\n{line} {count}\n");
    let deadline = std::time::Instant::now() + dispatcher_tests::PATIENCE;
    loop {
        let metrics = http::get(&format!("{admin}/metrics")).body;
        if metrics.contains(&wanted) {
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "no {wanted} in {metrics}"
        );
        // A count tells nobody.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The reasons of the dead letters of a local queue, by body.
async fn letters(data: &Path) -> Vec<(String, String)> {
    let store = LocalStore::open(data).expect("opens");
    let dead = store.queue("default.dead", None).expect("opens");
    let letters = dead.peek(100).await.expect("looks").into_iter();
    letters
        .map(|letter| {
            let mut attributes = letter.attributes.into_iter();
            let reason = attributes.find(|one| one.name == DEAD_LETTER_REASON);
            match reason.expect("it has a reason").value {
                AttributeValue::Text(reason) => (letter.body, reason),
                AttributeValue::Binary(_) => panic!("a reason is text"),
            }
        })
        .collect()
}

#[tokio::test]
async fn finding_05_last_attempt_is_logged_and_counted_with_its_cause() {
    let limits = ["--max-attempts", "2", "--timeout", "300ms"];
    let more = [&limits[..], &["--admin", "127.0.0.1:0"]].concat();
    let mut running = run("verdicts", &more).start();
    let admin = admin(&running);
    let bodies = ["panic:no price", "loop", "retry:0", "reject:no customer"];
    let data = running.data().path().to_owned();
    send(&data, "default", bodies.map(str::to_owned)).await;
    until_depth(&data, "default.dead", |depth| depth.waiting == 4).await;
    wait_for_count(
        &admin,
        "dispatcher_queue_messages_dead_lettered_total{queue=\"local:default\"}",
        4,
    );
    for (event, reason, count) in [
        ("retried", "trap", 1),
        ("retried", "timeout", 1),
        ("retried", "retry-requested", 1),
        ("dead-lettered", "trap", 1),
        ("dead-lettered", "timeout", 1),
        ("dead-lettered", "retry-requested", 1),
        ("dead-lettered", "rejected", 1),
    ] {
        let labels = format!("queue=\"local:default\",event=\"{event}\",reason=\"{reason}\"");
        wait_for_count(
            &admin,
            &format!("dispatcher_queue_events_total{{{labels}}}"),
            count,
        );
    }
    running.stop();
    let dead = events(&running, "message dead-lettered");
    assert_eq!(dead.len(), 4, "{dead:?}");
    let letters = letters(&data).await;
    for line in &dead {
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["queue"], "local:default");
        assert_eq!(line["to"], "local:default.dead");
        assert_eq!(line["attempts"], line["receive_count"]);
        // What one says finds the other.
        let reason = text(line, "reason");
        assert!(
            letters.iter().any(|(_, of_letter)| of_letter == reason),
            "{reason}: {letters:?}"
        );
    }
    let of = |kind: &str| {
        let mut lines = dead.iter().filter(|line| line["reason_kind"] == kind);
        text(lines.next().expect(kind), "reason").to_owned()
    };
    let trap = of("trap");
    for part in ["in 2 attempts", "verdicts::obey", "no price ("] {
        assert!(trap.contains(part), "{part}: {trap}");
    }
    assert!(of("timeout").contains("stopped after 300ms, the limit that --timeout sets"));
    assert_eq!(of("rejected"), "no customer");
    let retried = events(&running, "message retried");
    assert_eq!(retried.len(), 3, "{retried:?}");
    for line in &retried {
        assert_eq!(
            (&line["level"], &line["attempt"]),
            (&"INFO".into(), &1.into())
        );
        assert!(line["delay_ms"].is_u64(), "{line}");
    }
}

#[tokio::test]
async fn finding_05_exit_code_or_status_is_the_reason() {
    for (guest, body, wanted) in [
        (
            "command",
            "fail:the till is shut",
            "\"the till is shut\" } (it exited with 1)",
        ),
        ("http-handler", "odd", "the handler failed: it answered 500"),
    ] {
        let mut running = run(guest, &["--max-attempts", "1"]).start();
        send(running.data().path(), "default", [body.to_owned()]).await;
        let dead = event(&running, "message dead-lettered");
        let reason = text(&dead, "reason");
        assert!(reason.contains(wanted), "{reason}");
        assert_eq!(dead["reason_kind"], "handler-failed");
        running.stop();
    }
}

#[tokio::test]
async fn finding_05_messages_returned_at_a_stop_are_logged() {
    let limits = ["--concurrency", "1", "--prefetch", "10", "--order", "lifo"];
    let more = [
        &limits[..],
        &["--timeout", "1h", "--shutdown-grace", "200ms"],
        &["--log-level", "debug"],
    ]
    .concat();
    let mut running = run("verdicts", &more).start();
    let data = running.data().path().to_owned();
    send(&data, "default", (0..5).map(|_| "sleep:3600000".to_owned())).await;
    until_depth(&data, "default", |depth| depth.in_flight == 5).await;
    running.wait_for_line(|line| line.contains("an attempt begins"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let released = events(&running, "message released");
    let abandoned = events(&running, "message abandoned");
    let [attempted] = &abandoned[..] else {
        panic!("{abandoned:?}");
    };
    let mut ids: Vec<&str> = released
        .iter()
        .flat_map(|line| line["message_ids"].as_array().expect("a list"))
        .chain([&attempted["message_id"]])
        .map(|id| id.as_str().expect("an id"))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5, "{released:?} {attempted}");
    let messages = released.iter().map(|line| line["messages"].as_u64());
    assert_eq!(messages.sum::<Option<u64>>(), Some(4), "{released:?}");
    for line in &released {
        assert_eq!(
            (&line["level"], &line["reason_kind"]),
            (&"INFO".into(), &"not-attempted".into())
        );
    }
    assert_eq!(
        (
            &attempted["level"],
            &attempted["reason_kind"],
            &attempted["may_have_been_handled"]
        ),
        (&"WARN".into(), &"interrupted".into(), &false.into())
    );
}

#[tokio::test]
async fn finding_05_pending_sqs_dead_lettering_is_logged_and_counted() {
    let function = Function::create(&MiniStack::shared().url(), "policy").await;
    let ((server, name, url), dead) = queue_with_redrive("policy", 1, "30").await;
    let bodies = (0..10).map(|n| format!("raise-until:9{n}"));
    server.send_many(&url, bodies).await;
    let batch = ["--batch-size", "10", "--batch-window", "2s"];
    let more = [&batch[..], &["--admin", "127.0.0.1:0"]].concat();
    let mut running = forward(&function.name, &name, &more).start();
    let admin = admin(&running);
    let queue = format!("{{queue=\"{name}\"}}");
    wait_for_count(
        &admin,
        &format!("dispatcher_queue_messages_dead_lettered_total{queue}"),
        10,
    );
    wait_for_count(
        &admin,
        "dispatcher_messages_dead_lettered_by_redrive_policy_total",
        10,
    );
    wait_for_count(&admin, "dispatcher_function_failures_total", 1);
    // One line for the invocation, with all that is known of it.
    let failed = event(&running, "function failed");
    assert_eq!(failed["level"], "WARN");
    assert_eq!(
        (text(&failed, "queue"), text(&failed, "function")),
        (&*name, &*function.name)
    );
    assert!(
        text(&failed, "error").starts_with("not before 9"),
        "{failed}"
    );
    assert!(
        text(&failed, "log").contains("about to raise at 1"),
        "{failed}"
    );
    assert!(!text(&failed, "error_type").is_empty() && !text(&failed, "request_id").is_empty());
    let ids = failed["message_ids"].as_array().expect("a list");
    assert_eq!((ids.len(), &failed["messages"]), (10, &10.into()));
    until_letters(&server, &dead, 10, None).await;
    running.stop();
    assert_eq!(events(&running, "function failed").len(), 1);
    let left = events(&running, "message dead-lettered by redrive policy");
    assert_eq!(left.len(), 10, "{left:?}");
    let to = format!("arn:aws:sqs:us-east-1:000000000000:{}", name_of(&dead));
    for line in &left {
        assert_eq!(text(line, "to"), to);
        assert_eq!(
            (&line["level"], &line["max_receive_count"]),
            (&"WARN".into(), &1.into())
        );
        assert_eq!(line["reason_kind"], "function-error");
        assert!(ids.contains(&line["message_id"]), "{line}");
        let reason = text(line, "reason");
        for part in [&*function.name, text(&failed, "error_type"), "not before 9"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        let request_id = text(&failed, "request_id");
        assert!(
            !reason.contains(request_id),
            "equal failures have equal reasons"
        );
    }
    // Its own lines are not of interest beside that.
    assert!(!running.text(Stream::Err).contains("\"target\":\"guest\""));
}

/// Until so many have come; what is in `source` is received, which makes its policy move them.
async fn until_letters(server: &SqsServer, url: &str, count: u64, source: Option<&str>) {
    let looking = async {
        while server.counts(url).await.waiting < count {
            if let Some(source) = source {
                let call = server.client.receive_message().queue_url(source);
                call.send().await.expect("receives");
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(dispatcher_tests::PATIENCE, looking)
        .await
        .expect("they come");
}

#[tokio::test]
async fn finding_05_dead_letter_carries_the_error_of_the_function() {
    let function = Function::create(&MiniStack::shared().url(), "letter").await;
    let (server, name, url) = queue("letter", &[]).await;
    let (_, dead, dead_url) = queue("letter-dead", &[]).await;
    server.send_many(&url, ["raise-until:99".to_owned()]).await;
    let more = ["--dead-letter", &dead, "--max-attempts", "1"];
    let mut running = forward(&function.name, &name, &more).start();
    let line = event(&running, "message dead-lettered");
    assert_eq!(
        (text(&line, "to"), text(&line, "reason_kind")),
        (&*dead, "function-error")
    );
    running.stop();
    let call = server.client.receive_message().queue_url(&dead_url);
    let answer = call.message_attribute_names("All").send().await;
    let letter = answer
        .expect("received")
        .messages
        .unwrap_or_default()
        .remove(0);
    let attributes = letter.message_attributes.expect("has attributes");
    let reason = attributes[DEAD_LETTER_REASON].string_value().expect("text");
    assert_eq!(reason, text(&line, "reason"));
    assert!(reason.contains("not before 99"), "{reason}");
}

#[tokio::test]
async fn finding_28_multi_line_error_is_one_record_in_either_format() {
    let (server, name, url) = queue("lines", &[]).await;
    server.send_many(&url, ["x".to_owned()]).await;
    let lambda = FaultyLambda::start();
    lambda.script(|_| LambdaStep::Fail {
        kind: "KeyError".into(),
        message: "Traceback:\n  File \"a b\"\n\u{1b}[31mKeyError".into(),
        log: "START\nEND\n".into(),
    });
    let arguments = [
        "run",
        "--function",
        "f",
        "--queues",
        &name,
        "--poll-for",
        "1",
    ];
    let mut running = Program::new(arguments)
        .aws(&MiniStack::shared().url())
        .env("AWS_ENDPOINT_URL_LAMBDA", &lambda.url())
        .start();
    let line = running.wait_for_line(|line| line.contains("function failed"));
    assert!(line.contains(r#" error_type="KeyError""#), "{line}");
    assert!(
        line.contains(r#" error="Traceback:\n  File \"a b\"\n\u{1b}[31mKeyError""#),
        "{line}"
    );
    running.stop();
}

#[tokio::test]
async fn finding_05_possibly_run_and_listed_messages_have_their_causes() {
    for (step, kind, event_of_function, part) in [
        (
            LambdaStep::Reset { ran: true },
            "function-unknown",
            Some("function outcome unknown"),
            "unknown whether",
        ),
        (
            LambdaStep::answer(r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#),
            "function-error",
            None,
            "function f reported a failure",
        ),
    ] {
        let (server, name, url) = queue("causes", &[]).await;
        server.send_many(&url, ["x".to_owned()]).await;
        let lambda = FaultyLambda::start();
        lambda.set_timeout(1);
        lambda.script(move |_| step.clone());
        let mut running = forward_to(&lambda, &name, &["--partial-failures"]).start();
        let retried = event(&running, "message retried");
        assert_eq!(retried["reason_kind"], kind);
        assert!(text(&retried, "reason").contains(part), "{retried}");
        if let Some(words) = event_of_function {
            let of_function = event(&running, words);
            let ids = of_function["message_ids"].as_array().expect("a list");
            assert_eq!(ids[..], [retried["message_id"].clone()]);
        }
        running.stop();
    }
}

/// The last part of a queue's URL.
fn name_of(url: &str) -> &str {
    url.rsplit('/').next().expect("a URL has parts")
}

#[tokio::test]
async fn finding_05_lease_lost_at_the_last_receive_is_left_to_the_redrive_policy() {
    let ((server, name, url), dead) = queue_with_redrive("lost", 1, "30").await;
    server.send_many(&url, ["x".to_owned()]).await;
    let lambda = std::sync::Arc::new(FaultyLambda::start());
    lambda.script(|_| LambdaStep::Hold(String::new()));
    let more = ["--visibility", "2", "--admin", "127.0.0.1:0"];
    let mut running = forward_to(&lambda, &name, &more).start();
    let admin = admin(&running);
    crate::lambda::scene::wait(&lambda, |state| (!state.seen.is_empty()).then_some(())).await;
    // A process that stands still for longer than its lease has lost it when it continues.
    running.signal(Signal::STOP);
    until_letters(&server, &dead, 1, Some(&url)).await;
    running.signal(Signal::CONT);
    let line = event(&running, "message dead-lettered by redrive policy");
    assert_eq!(line["reason_kind"], "lease-lost");
    assert_eq!(
        (&line["receive_count"], &line["max_receive_count"]),
        (&1.into(), &1.into())
    );
    assert!(text(&line, "to").ends_with(name_of(&dead)), "{line}");
    wait_for_count(
        &admin,
        "dispatcher_messages_dead_lettered_by_redrive_policy_total",
        1,
    );
    wait_for_count(&admin, "dispatcher_leases_lost_total", 0);
    running.signal(Signal::KILL);
    assert_eq!(running.wait_exit(), 137);
    assert_eq!(events(&running, "lease lost").len(), 0);
}

/// Received so often from `local:default`, and never answered for.
async fn receive_unanswered(store: &LocalStore, times: usize) {
    let queue = store.queue("default", None).expect("opens");
    let ask = Ask {
        max: 10,
        visibility: std::time::Duration::ZERO,
        ..Ask::PLAIN
    };
    for _ in 0..times {
        let received = queue.receive(ask, &Default::default()).await;
        assert!(!received.expect("receives").messages.is_empty());
    }
}

#[tokio::test]
async fn finding_05_unread_dead_lettering_by_the_embedded_queue_is_one_event() {
    let (_, data) = Program::new(["queues"]).into_command();
    let store = LocalStore::open(data.path()).expect("opens");
    send(data.path(), "default", ["print:kills".to_owned()]).await;
    receive_unanswered(&store, 2).await;
    let large = format!("print:{}", "x".repeat(3 * 1024 * 1024));
    send(data.path(), "default", [large]).await;
    let limits = ["--max-attempts", "2", "--message-memory", "2MiB"];
    let more = [&limits[..], &["--admin", "127.0.0.1:0"]].concat();
    let mut running = run("verdicts", &more).sharing(&data).start();
    let admin = admin(&running);
    wait_for_count(&admin, "dispatcher_messages_dead_lettered_total", 2);
    for reason in ["no-answer", "too-large"] {
        let labels = format!("queue=\"local:default\",event=\"dead-lettered\",reason=\"{reason}\"");
        let count = format!("dispatcher_queue_events_total{{{labels}}}");
        wait_for_count(&admin, &count, 1);
    }
    running.stop();
    let dead = events(&running, "message dead-lettered");
    assert_eq!(dead.len(), 2, "{dead:?}");
    for line in &dead {
        assert_eq!(
            (text(line, "target"), text(line, "queue")),
            ("message", "local:default")
        );
        assert_eq!(text(line, "to"), "local:default.dead");
    }
}

#[tokio::test]
async fn finding_05_redrive_policy_of_the_embedded_queue_is_one_event() {
    let (_, data) = Program::new(["queues"]).into_command();
    let store = LocalStore::open(data.path()).expect("opens");
    let redrive = Redrive {
        most_receives: 2,
        dead_letter_queue: "spent".into(),
    };
    let settings = QueueSettings {
        redrive: Some(redrive),
        ..QueueSettings::default()
    };
    let made = store.create("default", settings).await;
    made.expect("it is made");
    send(data.path(), "default", ["print:kills".to_owned()]).await;
    receive_unanswered(&store, 2).await;
    let mut running = run("verdicts", &["--admin", "127.0.0.1:0"])
        .sharing(&data)
        .start();
    let admin = admin(&running);
    wait_for_count(
        &admin,
        "dispatcher_messages_dead_lettered_by_redrive_policy_total",
        1,
    );
    until_depth(data.path(), "spent", |depth| depth.waiting == 1).await;
    running.stop();
    let dead = events(&running, "message dead-lettered by redrive policy");
    let [line] = &dead[..] else {
        panic!("{dead:?}");
    };
    assert_eq!(
        (text(line, "to"), text(line, "reason_kind")),
        ("local:spent", "no-answer")
    );
    assert_eq!(
        (&line["receive_count"], &line["max_receive_count"]),
        (&2.into(), &2.into())
    );
}
