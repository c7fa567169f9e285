//! Tables of DynamoDB as queues, in the layout of AWS's LIFO sample: what people do with them, and
//! what becomes of the sample's own tasks.

mod example;
mod failed;
mod fleet;

use crate::scene::{printed, prints, run};
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::dynamodb::{Dates, Tables, text};
use dispatcher_tests::queues;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::configuration;

/// A new table on the shared server, and how commands name it.
pub(crate) async fn table(hint: &str) -> (Tables, String, String) {
    let tables = Tables::at(&MiniStack::shared().url());
    let table = tables.create(hint, Dates::Number).await;
    let queue = format!("dynamodb:{table}");
    (tables, table, queue)
}

pub(crate) fn start(queue: &str, guest: &str, more: &[&str]) -> RunningProgram {
    let arguments = [&["--queues", queue], more].concat();
    run(guest, &arguments)
        .aws(&MiniStack::shared().url())
        .start()
}

/// Sends bodies as another process would.
pub(crate) async fn send(table: &str, bodies: impl IntoIterator<Item = String>) {
    let config = configuration(&MiniStack::shared().url());
    let queue = Dynamo::connect(&config, Options::default())
        .open(table, None)
        .await
        .expect("it was just made");
    queues::send(&queue, bodies).await;
}

fn only(wanted: &str, count: usize) -> impl Fn(&std::collections::BTreeMap<String, usize>) -> bool {
    move |statuses| statuses.len() == 1 && statuses.get(wanted) == Some(&count)
}

#[tokio::test]
async fn table_is_handled_from_the_newest_task_to_the_oldest() {
    let (tables, table, queue) = table("newest").await;
    send(&table, (0..30).map(|n| format!("print:{n}"))).await;
    let mut running = start(&queue, "verdicts", &["--concurrency", "1"]);
    running.wait_for_lines(30, printed);
    tables.until(&table, only("SUCCESS", 30)).await;
    running.stop();
    let wanted: Vec<String> = (0..30).rev().map(|n| n.to_string()).collect();
    assert_eq!(prints(&running), wanted);
}

#[tokio::test]
async fn task_created_by_the_sample_is_handled_and_ends_as_success() {
    let (tables, table, queue) = table("sample").await;
    let plain = tables.put_as_sample(&table, &[]).await;
    let columns = [("ip", "10.0.0.1"), ("device", "d-1")];
    tables.put_as_sample(&table, &columns).await;
    let mut running = start(&queue, "hello", &[]);
    tables.until(&table, only("SUCCESS", 2)).await;
    running.stop();
    let mut bodies = prints(&running);
    bodies.sort();
    assert_eq!(bodies, [r#"{"device":"d-1","ip":"10.0.0.1"}"#, "{}"]);
    let item = tables.item(&table, &plain).await.expect("it stays");
    assert_eq!(text(&item, "dispatcherReceives"), "1");
    assert!(!item.contains_key("dispatcherUntil"), "nobody holds it");
}

#[tokio::test]
async fn configured_column_is_the_body() {
    let (tables, table, queue) = table("column").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dispatcher.toml");
    std::fs::write(&file, "[backend.dynamodb]\nbody-attribute = \"command\"\n").expect("written");
    let file = file.display().to_string();
    let rejected = tables
        .put_as_sample(&table, &[("command", "reject:bad address")])
        .await;
    let retried = tables
        .put_as_sample(&table, &[("command", "retry-until:3")])
        .await;
    tables
        .put_as_sample(&table, &[("command", "print:hello")])
        .await;
    let mut running = start(&queue, "verdicts", &["--config", &file]);
    let ended = tables
        .until(&table, |statuses| {
            statuses.get("SUCCESS") == Some(&2) && statuses.len() == 2
        })
        .await;
    assert_eq!(ended["FAILURE"], 1);
    running.stop();
    assert_eq!(prints(&running), ["hello"]);
    let rejected = tables.item(&table, &rejected).await.expect("it stays");
    assert_eq!(text(&rejected, "dispatcherReason"), "bad address");
    let retried = tables.item(&table, &retried).await.expect("it stays");
    assert_eq!(text(&retried, "dispatcherReceives"), "3");
}

#[tokio::test]
async fn tasks_of_a_killed_dispatcher_are_handled_by_another() {
    let (tables, table, queue) = table("killed").await;
    send(&table, ["sleep:2000".to_owned()]).await;
    let lease = ["--visibility", "2"];
    let mut first = start(&queue, "verdicts", &lease);
    tables.until(&table, only("TAKEN", 1)).await;
    first.signal(Signal::KILL);
    first.wait_exit();
    assert_eq!(
        tables.statuses(&table).await["TAKEN"],
        1,
        "it is still held"
    );
    let mut second = start(&queue, "verdicts", &lease);
    second.wait_for_line(|line| line.contains("released tasks of dead workers"));
    tables.until(&table, only("SUCCESS", 1)).await;
    second.stop();
    let items = tables.all(&table).await;
    assert_eq!(text(&items[0], "dispatcherReceives"), "2");
}

#[tokio::test]
async fn slow_work_keeps_its_lease() {
    let (tables, table, queue) = table("slow").await;
    send(&table, ["sleep:7000".to_owned()]).await;
    let mut running = start(&queue, "verdicts", &["--visibility", "2"]);
    // Another dispatcher that sweeps finds nothing to put back.
    let mut other = start(&queue, "verdicts", &["--visibility", "2"]);
    tables.until(&table, only("SUCCESS", 1)).await;
    running.stop();
    other.stop();
    let items = tables.all(&table).await;
    assert_eq!(text(&items[0], "dispatcherReceives"), "1");
}

#[tokio::test]
async fn stop_leaves_no_task_taken() {
    let (tables, table, queue) = table("stop").await;
    send(&table, (0..40).map(|_| "sleep:200".to_owned())).await;
    let mut running = start(
        &queue,
        "verdicts",
        &["--concurrency", "4", "--prefetch", "10"],
    );
    tables
        .until(&table, |statuses| statuses.contains_key("SUCCESS"))
        .await;
    running.stop();
    let left = tables.statuses(&table).await;
    assert_eq!(left.get("TAKEN"), None, "{left:?}");
    assert_eq!(left.values().sum::<usize>(), 40);
}

#[tokio::test]
async fn commands_work_with_tables() {
    let (tables, table, queue) = table("commands").await;
    let endpoint = MiniStack::shared().url();
    let call = |arguments: &[&str]| Program::new(arguments).aws(&endpoint).run();
    let sent = call(&["send", &queue, "hello", "--attribute", "colour=blue"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    let delayed = call(&["send", &queue, "later", "--delay", "36h"]);
    assert_eq!(delayed.code, 0, "{delayed:?}");
    let queues = call(&["queues", &queue, "--json"]);
    assert!(queues.stdout.contains("\"waiting\":1"), "{queues:?}");
    assert!(queues.stdout.contains("\"delayed\":1"), "{queues:?}");
    let peek = call(&["peek", &queue, "--json"]);
    let hello = peek.stdout.find("\"hello\"");
    assert!(
        hello.is_some() && hello < peek.stdout.find("\"later\""),
        "{peek:?}"
    );
    let all = call(&["queues", "dynamodb:"]);
    assert!(all.stdout.contains(&queue), "{all:?}");
    let id = sent.stdout.trim();
    let item = tables.item(&table, id).await.expect("it was sent");
    assert_eq!(text(&item, "taskStatus"), "PENDING");
    for column in ["taskCreated", "taskUpdated", "ttl"] {
        assert!(text(&item, column).parse::<u64>().is_ok(), "{item:?}");
    }
}

#[test]
fn missing_table_is_reported_with_the_command_to_create_it() {
    let ended = run("hello", &["--queues", "dynamodb:no-such-table"])
        .aws(&MiniStack::shared().url())
        .run();
    assert_eq!(ended.code, 2, "{ended:?}");
    for words in [
        "there is no table `no-such-table`",
        "aws dynamodb create-table",
    ] {
        assert!(ended.stderr.contains(words), "{ended:?}");
    }
}
