//! The handler that `host/docs/example.md` shows in each language, taken from the page, built in a new
//! project and run on a queue against a real HTTP server. Where there is an SDK or a contract to
//! install, it comes from its package.

use crate::languages::call;
use crate::languages::sdk_packages::NewProject;
use crate::scene::{depth, send, until_depth};
use dispatcher_core::message::AttributeValue;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::service::{JobService, PostedRequest, ServiceAnswer, ServiceStep};
use dispatcher_tests::toolchains;
use std::sync::Arc;

const PAGE: &str = include_str!("../../../host/docs/example.md");
/// The project's name, which the page has in Go's imports.
const ORDERS: &str = "orders";

/// The only block of the page in this language.
fn block(language: &str) -> &'static str {
    let fence = format!("```{language}\n");
    let mut parts = PAGE.split(&fence);
    let text = parts
        .nth(1)
        .unwrap_or_else(|| panic!("no {language} on the page"));
    assert!(parts.next().is_none(), "one block of {language}");
    text.split("\n```").next().expect("a split has a part")
}

/// The API: fails once for `o-2`, and refuses `o-4`.
fn api() -> JobService {
    let is_first = std::sync::atomic::AtomicBool::new(true);
    JobService::start(move |request: &PostedRequest| {
        let failed = ServiceAnswer::new(503).header("retry-after", "1");
        if request.body.contains("o-2") && is_first.swap(false, std::sync::atomic::Ordering::SeqCst)
        {
            return ServiceStep::Answer(failed);
        }
        ServiceStep::status(if request.body.contains("o-4") {
            422
        } else {
            200
        })
    })
}

/// A new project in this language with the page's handler.
fn project(language: &str, file: &str) -> NewProject {
    let project = NewProject::of(language, ORDERS);
    project.write(file, &format!("{}\n", block(language)));
    match language {
        "rust" => {
            let serde = "serde = { version = \"1\", features = [\"derive\"] }";
            assert!(PAGE.contains(serde));
            project.change("Cargo.toml", |manifest| {
                manifest.replace("serde_json = ", &format!("{serde}\nserde_json = "))
            });
        }
        "javascript" | "typescript" | "python" => {
            let start = "world plugin {\n";
            let with = format!("{start}{}\n", block("wit"));
            project.change("wit/world.wit", |world| world.replace(start, &with));
        }
        _ => {}
    }
    project
}

/// Builds the handler, and runs it on a queue.
async fn works(project: &NewProject, has_key: bool) {
    let data = &project.data;
    let built = call(data, &["plugin", "build", ORDERS]);
    let told = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{told}");
    let component = String::from_utf8_lossy(&built.stdout).trim().to_owned();

    let api = api();
    let setting = format!("api={}", api.url());
    let host = api.url().replace("http://", "").replace("/jobs", "");
    let order = |id: u8, amount: u8| format!(r#"{{"id": "o-{id}", "amount": {amount}}}"#);
    let grants = ["--allow-http", &host, "--allow-send", "local:reminders"];
    let more = ["--store", "seen=local:orders", "--setting", &setting];
    let run = ["run", "--plugin", &component, "--log-format", "json"];
    let run = run.into_iter().chain(grants).chain(more);
    let mut running = Program::new(run).sharing(data).start();
    running.wait_for_line(|line| line.contains("running"));
    let bodies = [order(1, 250), order(2, 7), order(3, 0), order(4, 1)];
    send(data.path(), "default", bodies).await;
    let is_over = |depth: dispatcher_core::queue::Depth| {
        (depth.waiting, depth.in_flight, depth.delayed) == (0, 0, 0)
    };
    until_depth(data.path(), "default", is_over).await;
    // What comes again is known.
    send(data.path(), "default", [order(1, 250)]).await;
    running.wait_for_line(|line| line.contains("order o-1: known"));
    until_depth(data.path(), "default", is_over).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);

    let requests = api.record().requests;
    let of = |id: &str| requests.iter().filter(|one| one.body.contains(id)).count();
    let counts = ["o-1", "o-2", "o-3", "o-4"].map(of);
    assert_eq!(counts, [1, 2, 0, 1], "{requests:?}");
    for request in &requests {
        assert_eq!(request.line, "POST /jobs");
        assert_eq!(request.header("content-type"), Some("application/json"));
        let key = request.header("idempotency-key");
        assert_eq!(key.is_some_and(|key| key.len() == 32), has_key, "{key:?}");
    }
    let reminders = depth(data.path(), "reminders").await;
    assert_eq!((reminders.waiting, reminders.delayed), (0, 2));
    assert_eq!(
        reasons(data).await,
        ["`amount`: wanted more than nothing", "the response: 422"]
    );
}

/// Why messages were dead-lettered.
async fn reasons(data: &Arc<tempfile::TempDir>) -> Vec<String> {
    let store = LocalStore::open(data.path()).expect("opens");
    let dead = store.queue("default.dead", None).expect("opens");
    let letters = dead.peek(10).await.expect("looks");
    let mut reasons = Vec::new();
    for letter in letters {
        let mut attributes = letter.attributes.iter();
        let reason = attributes.find(|one| one.name == "dispatcher-dead-letter-reason");
        if let Some(AttributeValue::Text(why)) = reason.map(|one| one.value.clone()) {
            reasons.push(why.trim().to_owned());
        }
    }
    reasons.sort();
    reasons
}

#[tokio::test]
async fn example_in_rust_runs_with_the_crates_from_their_archives() {
    let project = project("rust", "src/lib.rs");
    project.installs_crates();
    works(&project, true).await;
}

/// A test of the page's handler, with the fake host of the package.
const OF_JAVASCRIPT: &str = r#"
import assert from "node:assert/strict";
import test from "node:test";
import { Response, fakeHost, run } from "dispatcher-guest/testing";
import { handler } from "./handler.js";

test("an overloaded API is called again, and then a reminder is sent", async () => {
  const answers = [new Response("", { status: 503, headers: { "retry-after": "7" } }), new Response("")];
  const grants = { queues: ["local:reminders"], stores: ["seen"], settings: { api: "https://api.example.com/orders" } };
  const host = fakeHost({ http: () => answers.shift(), ...grants });
  const order = { id: "o-1", amount: 250 };
  assert.equal((await run(handler, order)).retry.afterMs, 7000);
  assert.deepEqual(await run(handler, order), { done: true });
  assert.equal(host.sent.length, 1);
  assert.ok(host.stores.seen.has("o-1"));
  assert.deepEqual(await run(handler, order), { done: true });
  assert.equal(host.requests.length, 2);
});
"#;

#[tokio::test]
async fn example_in_javascript_runs_with_the_sdk_from_an_npm_archive() {
    if toolchains::has(&["node", "npm"], "the example in JavaScript") {
        let project = project("javascript", "handler.js");
        project.installs_npm_package();
        project.write("order.test.js", OF_JAVASCRIPT);
        works(&project, true).await;
        project.runs("npm", &["test"]);
    }
}

#[tokio::test]
async fn example_in_typescript_runs_with_the_contract_from_a_registry() {
    if toolchains::has(&["node", "npm"], "the example in TypeScript") {
        let project = project("typescript", "handler.ts");
        project.installs_contract();
        works(&project, true).await;
    }
}

#[tokio::test]
async fn example_in_python_runs_with_the_sdk_from_a_wheel() {
    if toolchains::has(&["python3"], "the example in Python") {
        let project = project("python", "app.py");
        let sources = project.installs_wheel();
        works(&project, true).await;
        // The archive of the sources holds the same, and passes the SDK's own tests.
        let own = project.folder.join(".venv/bin/python");
        let again = ["-m", "pip", "install", "--quiet", "--force-reinstall"];
        project.runs(&own, &[&again[..], &[&sources]].concat());
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-sdk/python/tests");
        let test = ["-B", "-m", "pytest", "-p", "no:cacheprovider", tests];
        project.runs(&own, &test);
    }
}

#[tokio::test]
async fn example_in_go_does_what_the_page_says() {
    if toolchains::has(&["python3"], "the example in Go") {
        works(&project("go", "main.go"), true).await;
    }
}

#[tokio::test]
async fn example_in_c_does_what_the_page_says() {
    if toolchains::has(&["python3"], "the example in C") {
        works(&project("c", "handler.c"), false).await;
    }
}

#[test]
fn table_of_the_page_names_what_each_handler_calls() {
    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let head = rows
        .iter()
        .position(|row| row.get(2) == Some(&"JavaScript"));
    let head = head.expect("the page has the table");
    let languages: Vec<String> = rows[head][2..8]
        .iter()
        .map(|one| one.to_lowercase())
        .collect();
    // Between them is the line that makes it a table.
    let steps = &rows[head + 2..];
    assert!(steps.len() >= 5, "{steps:?}");
    for step in steps {
        for (language, cell) in languages.iter().zip(&step[2..8]) {
            let code = cell.trim_matches('`');
            assert!(block(language).contains(code), "{language}: {code}");
        }
    }
}
