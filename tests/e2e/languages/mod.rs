//! From nothing to a handler that runs, in every language: `plugin new`, `plugin build`,
//! `plugin check`, `plugin invoke`, and a queue with what is done, retried and rejected.

mod any;
mod dev;
mod example;
mod handled;
mod invoke;
mod npm_packages;
mod outcomes;
mod packages;
pub(crate) mod page_examples;
mod sdk;
mod sdk_packages;
mod stacks;
mod web;

use crate::scene::{printed, send, until_depth};
use dispatcher_core::message::AttributeValue;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::toolchains;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use tempfile::TempDir;

const SOUND: &str = r#"{"id": "o-1", "amount": 250}"#;
const MALFORMED: &str = r#"{"id": "o-2", "amount": "much"}"#;
const NOT_READY: &str = r#"{"id": "o-3", "amount": 1, "ready": false, "ready_in_ms": 3600000}"#;
/// Messages for one instance, and bytes of each beside its order.
const MANY: usize = 600;
const LARGE: usize = 60_000;
pub(crate) const NAME: &str = "my-orders";

/// A row of a table of packages in `host/docs/languages.md`.
struct PackageRow {
    name: String,
    version: String,
    verdict: String,
}

/// The rows of the table whose first column has this heading.
fn package_rows(heading: &str) -> Vec<PackageRow> {
    const PAGE: &str = include_str!("../../../host/docs/languages.md");
    let table = PAGE.split(&format!("| {heading} | ")).nth(1);
    let rows = table
        .expect("the table")
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (name, version) = cells[1].split_once(' ').expect("a name and a version");
        PackageRow {
            name: name.trim_matches('`').to_owned(),
            version: version.to_owned(),
            verdict: cells[2].to_owned(),
        }
    })
    .collect()
}

/// A project in its own folder, which is the program's data folder besides.
struct Project {
    data: Arc<TempDir>,
    component: String,
}

/// Calls the program where the project's folder is, with every tool at hand. What it builds may
/// say nothing for minutes, so this waits for as long as it takes.
pub(crate) fn call(data: &Arc<TempDir>, arguments: &[&str]) -> Output {
    let (mut command, _) = Program::new(arguments).sharing(data).into_command();
    command.envs(toolchains::environment());
    command.output().expect("the program starts")
}

/// The same, which must end well; what it printed to stdout and to stderr.
#[track_caller]
pub(crate) fn calls(data: &Arc<TempDir>, arguments: &[&str]) -> (String, String) {
    let output = call(data, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    (out, err)
}

impl Project {
    /// New, and built.
    fn of(language: &str) -> Self {
        let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        let (folder, next) = calls(&data, &["plugin", "new", "--lang", language, NAME]);
        assert_eq!(folder.trim(), NAME);
        let (component, said) = calls(&data, &["plugin", "build", NAME]);
        let component = component.trim().to_owned();
        assert!(said.contains("built a plugin of single messages"), "{said}");
        assert!(Path::new(&component).is_absolute(), "{component}");
        if language != "rust" {
            // Rust's lies where cargo was told to put it.
            let relative = format!("run --plugin {NAME}/build/{NAME}.wasm");
            assert!(next.contains(&relative), "{next}");
            assert!(component.ends_with(&format!("/{NAME}/build/{NAME}.wasm")));
        }
        Self { data, component }
    }

    /// Its own tests, which need no WebAssembly.
    fn passes(&self, program: &str, arguments: &[&str]) {
        let mut command = std::process::Command::new(program);
        command.envs(toolchains::environment());
        let tested = command
            .args(arguments)
            .current_dir(self.data.path().join(NAME))
            .output()
            .expect("its tool starts");
        assert!(tested.status.success(), "{tested:?}");
    }

    /// Checks it, tries it and runs it on a queue.
    async fn works(&self) {
        let component = &self.component;
        let (checked, _) = calls(&self.data, &["plugin", "check", component]);
        let handler = "exports dispatcher:plugin/handler";
        assert!(checked.contains(handler), "{checked}");
        let invoke = ["plugin", "invoke", component, SOUND, "--json"];
        let (verdict, log) = calls(&self.data, &invoke);
        assert_eq!(verdict.trim(), r#"{"verdict":"done"}"#);
        assert!(log.contains("order o-1: 250 cents"), "{log}");

        let run = ["run", "--log-level", "debug", "--log-format", "json"];
        let run = run.into_iter().chain(["--plugin", component]);
        let mut running = Program::new(run).sharing(&self.data).start();
        running.wait_for_line(|line| line.contains("running"));
        let bodies = [SOUND, MALFORMED, NOT_READY].map(String::from);
        send(self.data.path(), "default", bodies).await;
        running.wait_for_line(|line| printed(line) && line.contains("order o-1: 250 cents"));
        running.wait_for_line(|line| line.contains("dead-lettered"));
        running.wait_for_line(|line| line.contains("asked for a retry"));
        let settled = |depth: dispatcher_core::queue::Depth| {
            (depth.waiting, depth.in_flight, depth.delayed) == (0, 0, 1)
        };
        until_depth(self.data.path(), "default", settled).await;
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
        let why = self.reason().await;
        assert_eq!(why, "`amount`: wanted a whole number of cents");
        self.lasts().await;
    }

    /// One instance runs many messages, large ones, whose garbage is collected.
    async fn lasts(&self) {
        let run = ["run", "--log-format", "json", "--reuse", "100000"];
        let run = run.into_iter().chain(["--plugin", &self.component]);
        let more = ["--concurrency", "1", "--queues", "local:large"];
        let mut running = Program::new(run.chain(more)).sharing(&self.data).start();
        let note = "x".repeat(LARGE);
        let body = |n| format!(r#"{{"id": "o-{n}", "amount": 250, "note": "{note}"}}"#);
        for hundred in 0..MANY / 100 {
            let bodies = (0..100).map(|n| body(hundred * 100 + n));
            send(self.data.path(), "large", bodies).await;
        }
        let sound = |line: &str| printed(line) && line.contains(": 250 cents");
        let done = running.wait_for_lines(MANY, sound);
        assert_eq!(done.len(), MANY, "each once");
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
        let warned = running.lines(|line| line.contains("\"level\":\"WARN\""));
        assert!(warned.is_empty(), "{warned:?}");
    }

    /// Why the only dead letter is one.
    async fn reason(&self) -> String {
        let store = LocalStore::open(self.data.path()).expect("opens");
        let dead = store.queue("default.dead", None).expect("opens");
        let letters = dead.peek(10).await.expect("looks");
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].body, MALFORMED);
        let mut attributes = letters[0].attributes.iter();
        let reason = attributes.find(|one| one.name == "dispatcher-dead-letter-reason");
        match reason.map(|one| one.value.clone()) {
            Some(AttributeValue::Text(why)) => why,
            other => panic!("no reason: {other:?}"),
        }
    }
}

#[tokio::test]
async fn rust_handler_runs_on_a_queue() {
    let project = Project::of("rust");
    project.works().await;
}

#[tokio::test]
async fn javascript_handler_runs_on_a_queue() {
    if !toolchains::has(&["node", "npm"], "the handler in JavaScript") {
        return;
    }
    let project = Project::of("javascript");
    project.passes("npm", &["test"]);
    project.works().await;
}

#[tokio::test]
async fn typescript_handler_runs_on_a_queue() {
    if !toolchains::has(&["node", "npm"], "the handler in TypeScript") {
        return;
    }
    let project = Project::of("typescript");
    project.passes("npm", &["test"]);
    project.works().await;
    // The types of the contract are checked, not only left out.
    let handler = project.data.path().join(NAME).join("handler.ts");
    let text = std::fs::read_to_string(&handler).expect("it is ours");
    let wrong = text.replace("message.json()", "message.text()");
    assert_ne!(wrong, text);
    std::fs::write(&handler, wrong).expect("it is ours");
    let refused = call(&project.data, &["plugin", "build", NAME]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("tsc failed"), "{said}");
}

#[tokio::test]
async fn python_handler_runs_on_a_queue() {
    if !toolchains::has(&["python3"], "the handler in Python") {
        return;
    }
    let project = Project::of("python");
    let own = project.data.path().join(NAME).join(".venv/bin/python");
    let own = own.display().to_string();
    project.passes(&own, &["-m", "pytest"]);
    project.works().await;
}

#[tokio::test]
async fn go_handler_runs_on_a_queue() {
    if !toolchains::has(&["python3"], "the handler in Go") {
        return;
    }
    Project::of("go").works().await;
}

#[tokio::test]
async fn c_handler_runs_on_a_queue() {
    if !toolchains::has(&["python3"], "the handler in C") {
        return;
    }
    Project::of("c").works().await;
}

#[test]
fn missing_tool_is_named_with_installation_instructions() {
    let wanted = [
        (
            "rust",
            "no cargo on the PATH; install it: https://rustup.rs",
        ),
        ("javascript", "no node on the PATH; install it: Node.js 20"),
        ("typescript", "no node on the PATH; install it: Node.js 20"),
        ("python", "no python3 on the PATH; install it: Python 3.10"),
        ("go", "no go on the PATH; install it: Go 1.25"),
        ("c", "install it: python3 -m pip install ziglang"),
    ];
    let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    for (language, told) in wanted {
        let new = ["plugin", "new", "--lang", language, language];
        let made = Program::new(new).sharing(&data).run();
        assert_eq!(made.code, 0, "{made:?}");
        let (mut build, _) = Program::new(["plugin", "build", language])
            .sharing(&data)
            .into_command();
        let ended = build.env("PATH", "").env_remove("WASI_SDK_PATH").output();
        let ended = ended.expect("the program starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(3), "{language}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(told), "{said}");
        assert!(ended.stdout.is_empty());
    }
}

#[test]
fn tool_that_is_too_old_is_named_with_the_version_that_is_wanted() {
    let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let tools = tempfile::tempdir().expect("a temporary folder");
    for (language, tool, printed, told) in [
        (
            "go",
            "go",
            "go1.19.8",
            "go 1.19 is too old; install Go 1.25",
        ),
        (
            "javascript",
            "node",
            "v18.19.0",
            "node 18.19 is too old; install Node.js 20",
        ),
        (
            "python",
            "python3",
            "Python 3.9.2",
            "python3 3.9 is too old; install Python 3.10",
        ),
    ] {
        calls(&data, &["plugin", "new", "--lang", language, language]);
        let script = tools.path().join(tool);
        std::fs::write(&script, format!("#!/bin/sh\necho '{printed}'\n")).expect("it is ours");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, executable).expect("it is ours");
        let (mut build, _) = Program::new(["plugin", "build", language])
            .sharing(&data)
            .into_command();
        let ended = build.env("PATH", tools.path()).output();
        let ended = ended.expect("the program starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(3), "{language}: {said}");
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn unknown_language_lists_the_supported_ones() {
    let ended = Program::new(["plugin", "new", "--lang", "cobol", "orders"]).run();
    assert_eq!(ended.code, 2);
    let all = "rust, javascript, typescript, python, go, c";
    assert!(ended.stderr.contains(all), "{ended:?}");
}
