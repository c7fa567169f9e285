//! Tasks that failed and stay in their own table are dead letters as on any other backend: they are
//! listed, looked at, redriven and purged, by command and by API.

use crate::backends::dynamodb::{send, start, table};
use crate::operator::admin_api::ApiScene;
use crate::scene::run;
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_tests::child::{ExitedProgram, Program};
use dispatcher_tests::dynamodb::{Dates, Tables};
use dispatcher_tests::http;
use dispatcher_tests::queues;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::configuration;
use serde_json::{Value, json};

fn call(arguments: &[&str]) -> ExitedProgram {
    Program::new(arguments)
        .aws(&MiniStack::shared().url())
        .run()
}

fn report(arguments: &[&str]) -> Value {
    let ended = call(&[arguments, &["--json"]].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn dynamo() -> Dynamo {
    let config = configuration(&MiniStack::shared().url());
    Dynamo::connect(&config, Options::default())
}

/// Puts tasks with these bodies into a table, where they fail with the reason.
async fn fail(table: &str, bodies: &[&str], reason: &str) {
    send(table, bodies.iter().map(|body| (*body).to_owned())).await;
    let queue = dynamo().open(table, None).await.expect("it is there");
    queues::fail_all(&queue, reason).await;
}

#[tokio::test]
async fn a_task_that_waits_is_cancelled_by_its_id() {
    let (tables, table, queue) = table("cancelled").await;
    send(&table, ["first", "second"].map(str::to_owned)).await;
    let shown = report(&["peek", &queue]);
    let id = shown[0]["id"].as_str().expect("an id");
    let cancelled = call(&["cancel", &queue, id]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let statuses = tables.statuses(&table).await;
    assert_eq!(statuses["PENDING"], 1, "{statuses:?}");
    assert_eq!(call(&["cancel", &queue, id]).code, 1, "it is gone");
}

#[tokio::test]
async fn failed_tasks_are_listed_redriven_to_their_table_and_handled() {
    let (tables, table, queue) = table("failed").await;
    fail(&table, &["print:first", "print:second"], "timeout").await;
    fail(&table, &["print:third"], "trap").await;
    let failed = format!("{queue}/FAILURE");

    let peeked = call(&["peek", &failed]);
    assert!(
        peeked.stdout.contains("print:first") && peeked.stdout.contains("trap"),
        "{peeked:?}"
    );
    let counted = report(&["redrive", &failed, "--reason", "timeout"]);
    assert_eq!(
        (&counted["scanned"], &counted["matched"], &counted["moved"]),
        (&json!(3), &json!(2), &json!(0)),
        "{counted}"
    );
    assert_eq!(tables.statuses(&table).await["FAILURE"], 3, "nothing moved");

    let moved = report(&["redrive", &failed, "--reason", "timeout", "--apply"]);
    assert_eq!(moved["moved"], 2, "{moved}");
    let statuses = tables.statuses(&table).await;
    assert_eq!((statuses["PENDING"], statuses["FAILURE"]), (2, 1));
    let mut running = start(&queue, "verdicts", &[]);
    tables
        .until(&table, |statuses| statuses.get("SUCCESS") == Some(&2))
        .await;
    running.stop();

    let purged = call(&["purge", &failed, "--apply"]);
    assert_eq!(purged.code, 0, "{purged:?}");
    let statuses = tables.statuses(&table).await;
    assert_eq!(statuses.get("FAILURE"), None, "{statuses:?}");
    assert_eq!(statuses["SUCCESS"], 2, "what succeeded stays");
}

#[tokio::test]
async fn a_failed_task_with_a_copy_in_a_dead_letter_table_is_a_letter_only_there() {
    let (tables, table, queue) = table("copied").await;
    let dead = tables.create("dead", Dates::Number).await;
    send(&table, ["print:x".to_owned()]).await;
    let open = dynamo().open(&table, Some(&dead)).await;
    queues::fail_all(&open.expect("it is there"), "trap").await;
    let statuses = tables.statuses(&table).await;
    assert_eq!(statuses["FAILURE"], 1);
    let counted = report(&["redrive", &format!("{queue}/FAILURE")]);
    assert_eq!(counted["matched"], 0, "{counted}");
    let counted = report(&["redrive", &format!("dynamodb:{dead}")]);
    assert_eq!(counted["matched"], 1, "{counted}");
    call(&["purge", &format!("{queue}/FAILURE"), "--apply"]);
    assert_eq!(tables.statuses(&table).await["FAILURE"], 1);
}

#[tokio::test]
async fn nothing_is_sent_to_failed_tasks_or_received_from_them() {
    let (_tables, table, queue) = table("refused").await;
    fail(&table, &["print:x"], "trap").await;
    let failed = format!("{queue}/FAILURE");
    for (arguments, wanted) in [
        (
            vec!["send", &*failed, "x"],
            "nothing is sent to `dynamodb:refused",
        ),
        (
            vec!["run", "--plugin", "verdicts.wasm", "--queues", &*failed],
            "is not received from",
        ),
        (
            vec!["redrive", &*queue, "--to", &*failed],
            "nothing is sent to",
        ),
    ] {
        let ended = call(&arguments);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        let empty = arguments[0] == "redrive";
        assert!(ended.code != 0 || empty, "{ended:?}");
        assert!(said.contains(wanted) || empty, "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn the_api_and_the_page_show_failed_tasks_and_redrive_them() {
    let url = MiniStack::shared().url();
    let tables = Tables::at(&url);
    let table = tables.create("page", Dates::Number).await;
    fail(&table, &["print:a", "print:b"], "bad address").await;
    let queue = format!("dynamodb:{table}");
    let program = |flags: &[&str]| run("verdicts", flags).aws(&url);
    let mut scene = ApiScene::of(program, &["--queues", &queue, "--admin-bodies"]);

    let queues = scene.get("/api/v1/queues");
    let failed = format!("{queue}/FAILURE");
    assert_eq!(queues["items"][0]["dead_letter_queue"], json!(failed));
    let name = failed.replace(':', "%3A").replace('/', "%2F");
    let path = format!("/api/v1/queues/{name}");
    let listed = scene.get(&format!("{path}/messages"));
    assert_eq!(listed["reasons"][0]["reason"], "bad address");
    assert_eq!(listed["selected"], 2, "{listed}");
    let id = listed["items"][0]["id"].as_str().expect("an id");
    let one = scene.get(&format!("{path}/messages/{id}"));
    assert_eq!(one["content"]["body"], "print:a", "{one}");
    let page = http::get_with(
        &format!("{}/ui/dead-letters?queue={name}", scene.url),
        &[("Authorization", "Bearer operator")],
    );
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("bad address"), "{}", page.body);

    let order = json!({"messages": [id], "apply": true}).to_string();
    let job = scene.run_job(&format!("{path}/redrive"), &order);
    assert_eq!(job["report"]["moved"], 1, "{job}");
    tables
        .until(&table, |statuses| statuses.get("SUCCESS") == Some(&1))
        .await;
    let order = json!({"apply": true}).to_string();
    let purged = scene.run_job(&format!("{path}/purge"), &order);
    assert_eq!(purged["report"]["removed"], 1, "{purged}");
    scene.running.stop();
    assert!(tables.item(&table, id).await.is_none());
}
