//! The handlers that the pages show, taken from them, built in a new project of their language and run
//! to what the page says of each. The six of `host/docs/example.md` are run by `example.rs`, services by
//! `forward_examples.rs`, what speaks to a local queue by `packaging/suites.rs`.

use crate::languages::call;
use crate::languages::sdk_packages::NewProject;
use crate::scene::{depth, printed, send, until_depth};
use dispatcher_core::message::AttributeValue;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::service::{JobService, PostedRequest, ServiceAnswer, ServiceStep};
use dispatcher_tests::toolchains;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// The project's name.
const ORDERS: &str = "orders";
/// Before the template's dependency of nearly the same name.
const SERDE: &str = "serde = { version = \"1\", features = [\"derive\"] }\nserde_json = ";

/// The only block of a page in this language that has these words.
pub(crate) fn shown(page: &str, language: &str, words: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let text = std::fs::read_to_string(&file).expect("a page");
    let blocks = text.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.split_once('\n'));
    let mut found = blocks.filter(|(named, code)| *named == language && code.contains(words));
    let (_, code) = found
        .next()
        .unwrap_or_else(|| panic!("{page}: no {language} with {words}"));
    assert_eq!(found.next(), None, "{page}: {words}");
    code.to_owned()
}

/// The API of the pages: fails once for `o-2`, and refuses `o-3`.
fn api() -> JobService {
    let is_first = AtomicBool::new(true);
    JobService::start(move |request: &PostedRequest| {
        if request.body.contains("o-3") {
            return ServiceStep::status(422);
        }
        if request.body.contains("o-2") && is_first.swap(false, Ordering::SeqCst) {
            return ServiceStep::Answer(ServiceAnswer::new(503).header("retry-after", "1"));
        }
        ServiceStep::status(200)
    })
}

fn host_of(api: &JobService) -> String {
    api.url().replace("http://", "").replace("/jobs", "")
}

/// A handler that calls the API as the pages write it, calling this one.
fn calling(code: &str, api: &JobService) -> String {
    let called = code.replace("https://api.example.com/orders", &api.url());
    assert_ne!(called, code, "it calls the API");
    called
}

fn build(project: &NewProject) -> String {
    let built = call(&project.data, &["plugin", "build", ORDERS]);
    let told = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{told}");
    String::from_utf8_lossy(&built.stdout).trim().to_owned()
}

/// Runs a component on `local:default`.
fn run(project: &NewProject, component: &str, flags: &[&str]) -> RunningProgram {
    let run = ["run", "--plugin", component, "--log-format", "json"];
    let run = run.into_iter().chain(flags.iter().copied());
    let running = Program::new(run).sharing(&project.data).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    running
}

async fn until_empty(project: &NewProject) {
    until_depth(project.data.path(), "default", |depth| {
        (depth.waiting, depth.in_flight, depth.delayed) == (0, 0, 0)
    })
    .await;
}

/// The reasons of the dead letters of `local:default`.
async fn reasons(project: &NewProject) -> Vec<String> {
    let store = LocalStore::open(project.data.path()).expect("opens");
    let dead = store.queue("default.dead", None).expect("opens");
    let mut reasons = Vec::new();
    for letter in dead.peek(10).await.expect("looks") {
        let mut attributes = letter.attributes.iter();
        let reason = attributes.find(|one| one.name == "dispatcher-dead-letter-reason");
        if let Some(AttributeValue::Text(why)) = reason.map(|one| one.value.clone()) {
            reasons.push(why.trim().to_owned());
        }
    }
    reasons
}

/// A handler that calls the API does so once for each message, again after a 503, and rejects by a 422.
async fn calls_the_api_once(project: &NewProject, api: &JobService, refused: &str) {
    let component = build(project);
    let mut running = run(project, &component, &["--allow-http", &host_of(api)]);
    let order = |id| format!(r#"{{"id": "{id}"}}"#);
    send(
        project.data.path(),
        "default",
        ["o-1", "o-2", "o-3"].map(order),
    )
    .await;
    until_empty(project).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let requests = api.record().requests;
    let of = |id: &str| requests.iter().filter(|one| one.body.contains(id)).count();
    assert_eq!(["o-1", "o-2", "o-3"].map(of), [1, 2, 1], "{requests:?}");
    for request in &requests {
        assert_eq!(request.header("content-type"), Some("application/json"));
        let key = request.header("idempotency-key");
        assert!(key.is_some_and(|key| key.len() == 32), "{key:?}");
    }
    assert_eq!(reasons(project).await, [refused]);
}

#[tokio::test]
async fn javascript_of_the_page_calls_its_api_once() {
    if !toolchains::has(&["node", "npm"], "the handler in JavaScript") {
        return;
    }
    let api = api();
    let code = shown("host/docs/languages.md", "js", "AbortSignal.timeout");
    let project = NewProject::of("javascript", ORDERS);
    project.write("handler.js", &calling(&code, &api));
    calls_the_api_once(&project, &api, "the API: 422").await;
}

#[tokio::test]
async fn python_of_the_pages_calls_its_api_once_and_passes_its_test() {
    if !toolchains::has(&["python3"], "the handler in Python") {
        return;
    }
    let page = "host/docs/languages.md";
    let code = shown(page, "python", "http.post");
    let project = NewProject::of("python", ORDERS);
    // The template's own, of what is no longer there.
    std::fs::remove_file(project.folder.join("order.py")).expect("the project has it");
    project.write("app.py", &code);
    project.write("test_app.py", &shown(page, "python", "fake_host"));
    build(&project);
    let own = project.folder.join(".venv/bin/python");
    project.runs(&own, &["-m", "pytest", "-p", "no:cacheprovider"]);
    let first = api();
    project.write("app.py", &calling(&code, &first));
    calls_the_api_once(&project, &first, "the response: 422").await;
    invoice_is_sent(&project).await;
}

/// The handler in the README of the SDK: rejects an order of nothing, and sends an invoice for any other.
async fn invoice_is_sent(project: &NewProject) {
    let api = api();
    let code = shown(
        "guest-sdk/python/README.md",
        "python",
        "nothing was ordered",
    );
    project.write("app.py", &calling(&code, &api));
    let start = "world plugin {\n";
    let queues = format!("{start}    import dispatcher:plugin/queues@0.1.0;\n");
    project.change("wit/world.wit", |world| world.replace(start, &queues));
    let component = build(project);
    let host = host_of(&api);
    let grants = ["--allow-http", &host, "--allow-send", "local:invoices"];
    let mut running = run(project, &component, &grants);
    let bodies = [
        r#"{"id": "o-1", "amount": 2}"#,
        r#"{"id": "o-4", "amount": 0}"#,
    ];
    send(project.data.path(), "default", bodies.map(String::from)).await;
    until_empty(project).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(api.record().requests.len(), 1);
    let invoices = depth(project.data.path(), "invoices").await;
    assert_eq!((invoices.waiting, invoices.delayed), (0, 1));
    assert!(
        reasons(project)
            .await
            .contains(&"nothing was ordered".into())
    );
}

/// A verdict as `plugin invoke` prints it, and what the handler printed.
fn invoke(project: &NewProject, component: &str, body: &str, flags: &[&str]) -> (String, String) {
    let mut words = vec!["plugin", "invoke", component, body];
    words.extend(flags);
    let ended = call(&project.data, &words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&ended.stdout), text(&ended.stderr))
}

/// What a reader of the tutorial and of the README does with the handler that greets.
async fn greets(project: &NewProject) {
    let greeting = shown("README.md", "rust", "nobody to greet");
    assert_eq!(
        greeting,
        shown("host/docs/tutorial.md", "rust", "nobody to greet")
    );
    project.write("src/lib.rs", &greeting);
    let component = build(project);
    let (verdict, log) = invoke(project, &component, "world", &[]);
    assert_eq!(verdict, "done");
    assert!(log.contains("hello, world"), "{log}");
    let (verdict, _) = invoke(project, &component, "", &[]);
    assert_eq!(verdict, "reject: nobody to greet");

    let mut running = run(project, &component, &[]);
    send(project.data.path(), "default", [String::new()]).await;
    running.wait_for_line(|line| line.contains("message dead-lettered"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(reasons(project).await, ["nobody to greet"]);

    // The correction, and the redrive.
    let (start, _) = greeting.split_once("    if message").expect("it rejects");
    let correction = shown("host/docs/tutorial.md", "rust,ignore", "stranger");
    let corrected = format!("{start}{correction}}}\n\nhandler!(greet);\n");
    project.write("src/lib.rs", &corrected);
    let mut running = run(project, &build(project), &[]);
    let redriven = call(&project.data, &["redrive", "local:default.dead", "--apply"]);
    assert!(redriven.status.success(), "{redriven:?}");
    running.wait_for_line(|line| printed(line) && line.contains("hello, stranger"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn rust_of_the_pages_does_what_they_say() {
    let project = NewProject::of("rust", ORDERS);
    std::fs::remove_file(project.folder.join("src/tests.rs")).expect("the project has it");
    project.change("Cargo.toml", |text| text.replace("serde_json = ", SERDE));
    greets(&project).await;

    let order = r#"{"id": "o-1", "amount": 250}"#;
    let nothing = r#"{"id": "o-1", "amount": 0}"#;
    let cents = ["--setting", "CENTS_PER_POINT=5"];
    for (page, words, body, flags, verdict, output) in [
        ("plugins/README.md", "fn hello", "x", &[][..], "done", "x"),
        (
            "guest-sdk/README.md",
            "Json<Order>",
            order,
            &cents,
            "done",
            "o-1: 50 points, attempt 1",
        ),
        (
            "guest-sdk/README.md",
            "Json<Order>",
            nothing,
            &cents,
            "reject: nothing was ordered",
            "",
        ),
        (
            "guest-sdk/README.md",
            "#[plugin]",
            order,
            &[],
            "done",
            "o-1: 250 cents, attempt 1",
        ),
    ] {
        project.write("src/lib.rs", &shown(page, "rust", words));
        let component = build(&project);
        let (said, log) = invoke(&project, &component, body, flags);
        assert_eq!(said, verdict, "{page}: {log}");
        assert!(log.contains(output), "{page}: {log}");
    }
}

/// The test in the README of the SDK passes natively, for the handler that it tests.
#[test]
fn test_in_rust_of_the_page_passes() {
    let enrich = include_str!("../../../plugins/examples/enrich/src/lib.rs");
    let (handler, _) = enrich.split_once("#[cfg(test)]").expect("it has tests");
    let test = shown("guest-sdk/README.md", "rust,ignore", "an_unknown_customer");
    let project = NewProject::of("rust", ORDERS);
    project.change("Cargo.toml", |text| text.replace("serde_json = ", SERDE));
    let module = format!("#[cfg(test)]\nmod page {{\nuse super::enrich;\n{test}}}\n");
    project.write("src/lib.rs", &format!("{handler}{module}"));
    project.runs("cargo", &["test", "--quiet"]);
}

#[test]
fn command_in_c_of_the_page_exits_as_it_says() {
    if !toolchains::has(&["python3"], "the command in C") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let code = shown("host/docs/ways-in.md", "c", "return length == 0 ? 75 : 0;");
    std::fs::write(folder.path().join("order.c"), code).expect("the folder is ours");
    let mut zig = Command::new("python3");
    zig.args([
        "-m",
        "ziglang",
        "cc",
        "--target=wasm32-wasi",
        "order.c",
        "-o",
        "order.wasm",
    ]);
    let compiled = zig
        .envs(toolchains::environment())
        .current_dir(&folder)
        .output()
        .expect("zig starts");
    assert!(compiled.status.success(), "{compiled:?}");
    let component = folder.path().join("order.wasm").display().to_string();
    let invoke = |body| Program::new(["plugin", "invoke", &component, body]).run();
    let (order, nothing) = (invoke("seven b"), invoke(""));
    assert_eq!(order.stdout.trim(), "done", "{order:?}");
    assert!(order.stderr.contains("an order of 7 bytes"), "{order:?}");
    assert!(nothing.stdout.starts_with("retry"), "{nothing:?}");
}
