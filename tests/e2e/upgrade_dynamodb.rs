//! What an earlier version left in tables of DynamoDB is handled by this one (host/docs/upgrade.md).
//! Tables are filled from the items in `tests/released/dynamodb`, one file for each format.

use crate::scene::{printed, prints, run};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::dynamodb::{Dates, Tables};
use dispatcher_tests::http;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The format that this version writes.
const FORMAT: &str = "1";

/// So far away that no test lives to see it.
const FAR: &str = "876000h";
/// Over before the test that reads it, or soon after it begins.
const SOON: &str = "6s";

/// Tables of tasks; the last is one of scheduled messages, of a queue of its name.
const TABLES: [&str; 4] = ["orders", "letters", "paused", "reminders"];

/// Tasks live as long as the files do, and are spread over two keys of the index.
const CONFIG: &str = "[backend.dynamodb]\ntime-to-live = \"876000h\"\nshards = 2\n";

fn file(format: &str) -> PathBuf {
    let released = Path::new(env!("CARGO_MANIFEST_DIR")).join("released/dynamodb");
    released.join(format!("{format}.json"))
}

/// A server with the tables, which are empty.
async fn server() -> MiniStack {
    let server = MiniStack::start();
    let tables = Tables::at(&server.url());
    for name in &TABLES[..3] {
        tables.create_named(name, Dates::Number).await;
    }
    SqsServer::at(&server.url()).create("reminders", &[]).await;
    good(&server, &["schedule", "init", "reminders"]);
    server
}

/// A call as the service's own protocol has it, in which items are JSON.
fn call(server: &MiniStack, action: &str, request: &Value) -> Value {
    let target = format!("DynamoDB_20120810.{action}");
    let headers = [
        ("content-type", "application/x-amz-json-1.0"),
        ("x-amz-target", target.as_str()),
        (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request, \
             SignedHeaders=host, Signature=0",
        ),
    ];
    let answer = http::post(&server.url(), &headers, &request.to_string());
    assert_eq!(answer.status, 200, "{action}: {answer:?}");
    serde_json::from_str(&answer.body).expect("JSON")
}

fn items(server: &MiniStack, table: &str) -> Vec<Value> {
    let scanned = call(server, "Scan", &json!({ "TableName": table }));
    let mut items = scanned["Items"].as_array().expect("a list").clone();
    items.sort_by_key(Value::to_string);
    items
}

/// All items of all tables, one a line.
fn dump(server: &MiniStack) -> String {
    let tables = TABLES.map(|table| {
        let items = items(server, table);
        let lines: Vec<String> = items.iter().map(|item| format!("    {item}")).collect();
        format!("  {}: [\n{}\n  ]", json!(table), lines.join(",\n"))
    });
    format!("{{\n{}\n}}\n", tables.join(",\n"))
}

fn load(server: &MiniStack, left: &str) {
    let left: Value = serde_json::from_str(left).expect("JSON");
    for (table, items) in left.as_object().expect("tables") {
        for item in items.as_array().expect("items") {
            let put = json!({ "TableName": table, "Item": item });
            call(server, "PutItem", &put);
        }
    }
}

fn good(server: &MiniStack, arguments: &[&str]) -> String {
    let program = Program::new(arguments).aws(&server.url());
    let ended = program.file("dispatcher.toml", CONFIG).run();
    assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
    ended.stdout
}

fn report(server: &MiniStack, arguments: &[&str]) -> Value {
    let told = good(server, &[arguments, &["--json"]].concat());
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
}

fn start(server: &MiniStack, guest: &str, more: &[&str]) -> RunningProgram {
    let program = run(guest, more).aws(&server.url());
    program.file("dispatcher.toml", CONFIG).start()
}

fn stop(mut running: RunningProgram) {
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

/// How many tasks of a table have this column, or this value in it.
fn count(server: &MiniStack, column: &str, value: Option<&str>) -> usize {
    let items = items(server, "orders");
    let has = |item: &&Value| match value {
        Some(value) => item[column]["S"]
            .as_str()
            .is_some_and(|text| text.starts_with(value)),
        None => !item[column].is_null(),
    };
    items.iter().filter(has).count()
}

/// What the program leaves behind: tasks of every kind, those of a killed process among them. It is
/// told by commands alone, so that any version can be asked.
async fn write(server: &MiniStack) -> String {
    let with = ["--config", "dispatcher.toml"];
    let send = |table: &str, body: &str, more: &[&str]| {
        let queue = format!("dynamodb:{table}");
        good(server, &[&["send", &queue, body], more, &with].concat());
    };
    let tables = Tables::at(&server.url());
    let queues = ["--queues", "dynamodb:orders"];
    let moves = ["--dead-letter", "dynamodb:letters"];
    send("orders", "reject:too old", &["--attribute", "tenant=7"]);
    send("orders", "print:done", &[]);
    let moving = start(server, "verdicts", &[&queues[..], &moves, &with].concat());
    let ended = |name: &str, wanted| {
        let name = name.to_owned();
        move |statuses: &std::collections::BTreeMap<String, usize>| {
            let of = statuses
                .iter()
                .filter(|(status, _)| status.starts_with(&name));
            of.map(|(_, count)| count).sum::<usize>() == wanted
        }
    };
    tables.until("letters", ended("PENDING", 1)).await;
    tables.until("orders", ended("SUCCESS", 1)).await;
    stop(moving);
    for body in ["reject:bad address", "retry:6000", "sleep:3600000"] {
        send("orders", body, &[]);
    }
    let long = ["--timeout", "2h", "--visibility", "5"];
    let mut killed = start(server, "verdicts", &[&queues[..], &long, &with].concat());
    tables.until("orders", ended("FAILURE", 2)).await;
    tables
        .until("orders", |_| {
            count(server, "dispatcherNotBefore", None) == 1
        })
        .await;
    tables.until("orders", ended("TAKEN", 1)).await;
    killed.signal(Signal::KILL);
    killed.wait_exit();

    send("orders", "plain", &["--attribute", "tenant=7"]);
    send("orders", r#"{"device":"d-1","ip":"10.0.0.1"}"#, &[]);
    send("orders", "delayed", &["--delay", SOON]);
    send("orders", "far", &["--delay", FAR]);
    send("paused", "paused", &[]);
    good(server, &["pause", "dynamodb:paused"]);
    let limit = ["limit", "dynamodb:orders", "--rate", "1000"];
    good(server, &[&limit[..], &["--concurrency", "7"]].concat());
    let add = |body: &str, when: &[&str]| {
        let words = ["schedule", "add", "reminders", "--body", body];
        good(server, &[&words[..], when].concat());
    };
    add("scheduled", &["--in", "20m", "--attribute", "tenant=7"]);
    add("scheduled far", &["--in", FAR]);
    add("yearly", &["--cron", "0 3 29 2 *", "--tz", "Europe/Berlin"]);
    dump(server)
}

/// This version is started on what another left.
async fn is_handled(left: &str) {
    let server = server().await;
    load(&server, left);
    let letters = report(&server, &["peek", "dynamodb:orders/FAILURE"]);
    assert_eq!(letters[0]["body"], "reject:bad address", "{letters}");
    assert!(
        letters[0].to_string().contains("\"bad address\""),
        "{letters}"
    );
    assert_eq!(letters.as_array().map(Vec::len), Some(1), "{letters}");
    let scheduled = report(&server, &["schedule", "list", "reminders"]);
    let before = far(&scheduled);
    assert_eq!(before.len(), 2, "{scheduled}");

    // Without the number of shards, which the table tells.
    let queues = "dynamodb:orders,dynamodb:paused,reminders";
    let look = ["--poll-for", "1", "--schedule-interval", "1"];
    let running = start(
        &server,
        "hello",
        &[&["--queues", queues], &look[..]].concat(),
    );
    let is_handled = |body: &str| {
        running.wait_for_line(|line| printed(line) && line.contains(body));
    };
    for body in [
        "plain",
        "10.0.0.1",
        // What a process had when it was killed, and what one had put off.
        "sleep:3600000",
        "retry:6000",
        "delayed",
        "scheduled",
    ] {
        is_handled(body);
    }
    let handled = prints(&running);
    assert!(handled.contains(&r#"{"device":"d-1","ip":"10.0.0.1"}"#.to_owned()));
    for waits in ["paused", "far", "scheduled far", "yearly", "print:done"] {
        assert!(!handled.contains(&waits.to_owned()), "{handled:?}");
    }
    let in_force = running.lines(|line| line.contains("live control in force at start"));
    for queue in ["dynamodb:paused", "dynamodb:orders"] {
        assert!(
            in_force.iter().any(|line| line.contains(queue)),
            "{in_force:?}"
        );
    }
    good(&server, &["resume", "dynamodb:paused"]);
    is_handled("paused");
    for (letters, body) in [
        ("dynamodb:orders/FAILURE", "reject:bad address"),
        ("dynamodb:letters", "reject:too old"),
    ] {
        let moved = report(&server, &["redrive", letters, "--apply"]);
        assert_eq!(moved["moved"], 1, "{letters}: {moved}");
        is_handled(body);
    }
    stop(running);
    let scheduled = report(&server, &["schedule", "list", "reminders"]);
    assert_eq!(far(&scheduled), before);
    assert_eq!(
        count(&server, "taskStatus", Some("PENDING")),
        1,
        "the far one"
    );
}

/// Twenty minutes later: what is due sooner than that waits in the queue itself.
fn after_a_while(left: &str) -> String {
    let mut left: Value = serde_json::from_str(left).expect("JSON");
    for job in left["reminders"].as_array_mut().expect("jobs") {
        if job["sqs_message_body"]["S"] == "scheduled" {
            job["perform_at"] = json!({ "N": "1" });
        }
    }
    left.to_string()
}

/// What is scheduled and not due for years.
fn far(scheduled: &Value) -> Vec<Value> {
    let jobs = scheduled.as_array().expect("an array").iter();
    let far = jobs.filter(|job| {
        ["scheduled far", "yearly"]
            .iter()
            .any(|body| job["body"] == *body)
    });
    far.cloned().collect()
}

#[tokio::test]
async fn content_in_dynamodb_of_format_1_is_handled() {
    is_handled(&fs::read_to_string(file("1")).expect("what was kept")).await;
}

/// So the next format is kept with as little effort: `UPDATE=RELEASED` writes the file, and
/// `DISPATCHER_BINARY` names the program of an earlier commit, if it is to be that one.
#[tokio::test]
async fn content_in_dynamodb_of_this_version_is_written_and_handled() {
    let left = write(&server().await).await;
    if std::env::var("UPDATE").is_ok_and(|what| what == "RELEASED") {
        fs::write(file(FORMAT), &left).expect("written");
    }
    is_handled(&after_a_while(&left)).await;
}
