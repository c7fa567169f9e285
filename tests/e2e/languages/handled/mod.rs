//! Finding 01: no language acknowledges a message that its handler did not handle. Each language's
//! template is built as its users would, with a handler that does what the body names; the wrong
//! ways that a build can see are refused by it. Finding 24: what it refuses it explains.

use crate::languages::{NAME, call, calls};
use crate::scene::{depth, send};
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::{MOST_PATIENCE, toolchains};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const JAVASCRIPT: &str = include_str!("cases.js");
const PYTHON: &str = include_str!("cases.py");
const FAKE_OF_PYTHON: &str = include_str!("fake.py");
const GO: &str = include_str!("cases.go");
const C: &str = include_str!("cases.c");

/// A new project of a language.
struct Project {
    data: Arc<TempDir>,
}

impl Project {
    fn new(language: &str) -> Self {
        let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        calls(&data, &["plugin", "new", "--lang", language, NAME]);
        Self { data }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.data.path().join(NAME).join(file)
    }

    fn write(&self, file: &str, text: &str) -> &Self {
        std::fs::write(self.path(file), text).expect("the project is ours");
        self
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).expect("the project is ours")
    }

    /// Builds it, which must end well.
    #[track_caller]
    fn build(&self) -> String {
        calls(&self.data, &["plugin", "build", NAME])
            .0
            .trim()
            .to_owned()
    }

    /// Builds it, which must be refused with exit code 1 and these words.
    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let ended = call(&self.data, &["plugin", "build", NAME]);
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{told}");
        for word in words {
            assert!(told.contains(word), "{word:?} is not in: {told}");
        }
    }

    /// The verdict of `plugin invoke` on a body, and what it logged.
    #[track_caller]
    fn invoke(&self, component: &str, body: &str) -> (String, String) {
        let ended = call(&self.data, &["plugin", "invoke", component, body, "--json"]);
        let log = String::from_utf8_lossy(&ended.stderr).into_owned();
        let answer: serde_json::Value = serde_json::from_slice(&ended.stdout)
            .unwrap_or_else(|why| panic!("{body}: {why}: {log}"));
        let verdict = answer["verdict"].as_str().expect("it has one").to_owned();
        // A failure is told by the exit code, too.
        let cause = answer["cause"].as_str();
        let is_failed = cause.is_some_and(|cause| cause != "asked");
        assert_eq!(ended.status.success(), !is_failed, "{body}: {answer}");
        (verdict, log)
    }

    /// That the exception is the reason of the retry, which a dead letter has then.
    #[track_caller]
    fn assert_reason(&self, component: &str, body: &str, wanted: &str) {
        let ended = call(&self.data, &["plugin", "invoke", component, body, "--json"]);
        let answer: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
        let wanted = format!("uncaught {wanted}");
        assert_eq!(answer["why"], wanted, "{answer}");
    }

    /// Each case by `plugin invoke`, and all of them from a queue.
    async fn answers(&self, component: &str, cases: &Cases) {
        for (body, words) in cases.done {
            let (verdict, log) = self.invoke(component, body);
            assert_eq!(verdict, "done", "{body}: {log}");
            assert!(log.contains(words), "{body}: {log}");
        }
        let asked = cases.retry.iter().map(|body| (body, "retry", ""));
        let asked = asked.chain(cases.reject.iter().map(|body| (body, "reject", "")));
        let failed = cases
            .failed
            .iter()
            .map(|(body, words)| (body, "retry", *words));
        for (body, wanted, words) in asked.chain(failed) {
            let (verdict, log) = self.invoke(component, body);
            assert_eq!(verdict, wanted, "{body}: {log}");
            assert!(log.contains(words), "{body}: {log}");
        }
        self.runs(component, cases).await;
    }

    /// Of all cases on a queue, with one attempt each, those that are not done are dead-lettered.
    async fn runs(&self, component: &str, cases: &Cases) {
        let run = ["run", "--plugin", component, "--queues", "local:cases"];
        let once = ["--max-attempts", "1", "--log-format", "json"];
        let run = Program::new(run.into_iter().chain(once)).sharing(&self.data);
        let mut running = run.start();
        let failed = cases.failed.iter().map(|(body, _)| *body);
        let not_done = failed.chain(cases.retry.iter().chain(cases.reject).copied());
        let not_done: BTreeSet<_> = not_done.map(str::to_owned).collect();
        let done = cases.done.iter().map(|(body, _)| (*body).to_owned());
        let all = not_done.iter().cloned().chain(done);
        send(self.data.path(), "cases", all).await;
        // Nothing is logged while an interpreter is compiled, which takes minutes on a busy machine.
        let ended = async {
            loop {
                let depth = depth(self.data.path(), "cases").await;
                if (depth.waiting, depth.in_flight, depth.delayed) == (0, 0, 0) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = tokio::time::timeout(MOST_PATIENCE, ended).await;
        ended.expect("every message is done or dead-lettered");
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
        let store = LocalStore::open(self.data.path()).expect("opens");
        let dead = store.queue("cases.dead", None).expect("opens");
        let letters = dead.peek(100).await.expect("looks");
        let letters: BTreeSet<_> = letters.into_iter().map(|one| one.body).collect();
        assert_eq!(letters, not_done);
    }
}

/// Bodies by what must become of them, some with words that the log has.
struct Cases {
    done: &'static [(&'static str, &'static str)],
    retry: &'static [&'static str],
    reject: &'static [&'static str],
    failed: &'static [(&'static str, &'static str)],
}

const OF_JAVASCRIPT: Cases = Cases {
    done: &[
        ("done", ""),
        ("doneLater", "worked later"),
        ("doneByPromise", ""),
        ("doneCaught", ""),
        ("doneCaughtLate", ""),
        ("doneAll", ""),
        ("doneUnawaited", "worked unawaited"),
        ("unawaitedNever", ""),
        ("raceWithNever", ""),
        ("raceWithSleep", ""),
        ("signalNeverAborted", ""),
    ],
    retry: &["retryLater", "retryRounded", "retryByPolicy"],
    reject: &["rejectLater"],
    failed: &[
        ("asyncThrows", "uncaught Error: boom"),
        ("rejected", "uncaught Error: rejected"),
        ("allThrow", "uncaught Error: boom"),
        ("unawaited", "nobody awaits was rejected: Error: boom"),
        (
            "unawaitedInAsync",
            "nobody awaits was rejected: Error: boom",
        ),
        ("unawaitedChain", "nobody awaits was rejected: Error: boom"),
        ("never", "the handler does not end"),
        ("throwsString", "the handler threw \"text\""),
        ("throwsNumber", "the handler threw 7"),
        ("throwsUndefined", "the handler threw undefined"),
        ("throwsNull", "the handler threw null"),
        ("throwsObject", "the handler threw {\"code\":1}"),
        ("throwsError", "uncaught TypeError: wrong"),
        ("throwsBadRetry", "wanted an Error or a failure"),
        ("throwsNegativeRetry", "wanted an Error or a failure"),
        ("throwsBadReject", "wanted an Error or a failure"),
        ("throwsPayload", "wanted an Error or a failure"),
        ("returnsFailure", "the handler returned {\"tag\""),
        ("returnsString", "the handler returned \"ok\""),
        ("returnsFalse", "the handler returned false"),
        ("returnsNull", "the handler returned null"),
        ("returnsLater", "the handler returned \"ok\""),
        ("generator", "the handler returned {}"),
        ("asyncGenerator", "the handler returned {}"),
        ("thenable", "uncaught Error: thenable"),
        ("thenableNever", "the handler does not end"),
        ("noSuchCase", "uncaught TypeError"),
    ],
};

const BY_BODY: &str = r#"import { cases } from "./cases.js";
export const handler = { handle: (message) => cases[message.body]() };
"#;

#[tokio::test]
async fn finding_01_javascript_reports_done_only_after_handling() {
    if !toolchains::has(&["node", "npm"], "the handler in JavaScript") {
        return;
    }
    let project = Project::new("js");
    project
        .write("cases.js", JAVASCRIPT)
        .write("handler.js", BY_BODY);
    let component = project.build();
    project.answers(&component, &OF_JAVASCRIPT).await;
    project.assert_reason(&component, "asyncThrows", "Error: boom");
}

#[test]
fn finding_01_javascript_without_a_handler_is_not_built() {
    if !toolchains::has(&["node", "npm"], "the handler in JavaScript") {
        return;
    }
    let project = Project::new("js");
    let refused = |text: &str, words: &[&str]| project.write("handler.js", text).refused(words);
    refused("throw new Error('at import');", &["at import"]);
    refused(
        "export function handle() {}",
        &["no export handler: it exports handle"],
    );
    refused(
        "export const handlers = {};",
        &["no export handler: it exports handlers"],
    );
    refused(
        "export const handler = { handler() {} };",
        &["no function handle"],
    );
    refused("export const handler = () => {};", &["no function handle"]);
    refused(
        "export const handler = { handle(event, context, callback) { callback(); } };",
        &["takes 3 parameters", "no callback"],
    );
    refused(
        "import fs from 'node:fs';\nexport const handler = { handle() { fs.open(); } };",
        &[
            "handler.js:1: import fs from 'node:fs': a component does not have the module node:fs",
            "a component has no files",
        ],
    );
    // What cannot work is explained beside the tool's own line.
    refused(
        "import it from 'missing';\nexport const handler = { handle() { it(); } };",
        &["Could not resolve \"missing\"", "install what is missing"],
    );
    refused(
        "process.env.KEY;\nexport const handler = { handle() {} };",
        &["process is not defined", "without the globals of Node.js"],
    );
    refused(
        "await null;\nexport const handler = { handle() {} };",
        &["Top-level await", "into `handle`"],
    );
}

#[test]
fn javascript_that_logs_while_it_is_loaded_is_refused_with_its_line() {
    if !toolchains::has(&["node", "npm"], "the handler in JavaScript") {
        return;
    }
    let project = Project::new("javascript");
    let handler = project.read("handler.js");
    let logs = format!("console.log(\"loading\");\n{handler}");
    project.write("handler.js", &logs);
    project.refused(&["within `handle` only", "it is at handler.js:1"]);
}

#[test]
fn finding_24_javascript_that_needs_http_gets_instructions() {
    if !toolchains::has(&["node", "npm"], "the handler in JavaScript") {
        return;
    }
    let project = Project::new("javascript");
    let world = project.read("wit/world.wit");
    let with = "import wasi:http/types@0.2.0;\n    import dispatcher:plugin/context@0.1.0;";
    let world = world.replace("import dispatcher:plugin/context@0.1.0;", with);
    project.write("wit/world.wit", &world);
    let hint = "call HTTP with `fetch`";
    project.refused(&["package 'wasi:http@0.2.0' not found", hint]);
    std::fs::create_dir_all(project.path("wit/deps/wasi-http")).expect("the project is ours");
    // As much of the interface as makes it one of wasi:http that holds a stream.
    let http = "package wasi:http@0.2.0;\ninterface types {\n    use wasi:io/streams@0.2.0.{output-stream};\n    \
                resource outgoing-body { write: func() -> result<output-stream>; }\n}\n";
    project.write("wit/deps/wasi-http/http.wit", http);
    std::fs::create_dir_all(project.path("wit/deps/wasi-io")).expect("the project is ours");
    let io = "package wasi:io@0.2.0;\ninterface streams { resource output-stream; }\n";
    project.write("wit/deps/wasi-io/io.wit", io);
    project.refused(&["mismatched resource types", hint, "Remove the import"]);
}

#[tokio::test]
async fn finding_01_typescript_reports_done_only_after_handling() {
    if !toolchains::has(&["node", "npm"], "the handler in TypeScript") {
        return;
    }
    let project = Project::new("ts");
    let handler = |body: &str| {
        format!(
            "import {{ cases }} from \"./cases.js\";\nimport type {{ Handler }} from \"dispatcher-guest\";\nconst all: Record<string, () => any> = cases;\n\
             export const handler: Handler = {{ {body} }};\n"
        )
    };
    project.write("cases.js", JAVASCRIPT);
    for wrong in [
        "handle: () => 'ok'",
        "handle: () => ({ tag: 'reject', val: 'no' })",
        "handle: async () => 'ok'",
        "handle: (message, context) => {}",
        "handle: function* () {}",
    ] {
        project
            .write("handler.ts", &handler(wrong))
            .refused(&["tsc failed"]);
    }
    let late = "async handle(message) { const run = all[String(message.body)]; if (!run) throw new TypeError(); return run(); }";
    project.write("handler.ts", &handler(late));
    let component = project.build();
    project.answers(&component, &OF_JAVASCRIPT).await;
}

const OF_PYTHON: Cases = Cases {
    done: &[
        ("done", "worked"),
        ("imports_inside", "imported inside: 2024"),
        ("time_zone", "in Berlin: 14:00"),
        ("logs", "careful"),
    ],
    retry: &["retry", "retry_by_policy"],
    reject: &["reject", "forbidden"],
    failed: &[
        ("coroutine", "returned a coroutine"),
        ("unawaited", "coroutine 'work' was never awaited"),
        ("async_generator", "handle returned <async_generator"),
        ("generator", "handle returned <generator"),
        ("returns_reject", "handle returned Reject('no')"),
        ("returns_text", "handle returned 'ok'"),
        ("returns_false", "handle returned False"),
        ("raises_err", "raised Err("),
        ("raises_bad_retry", "wanted milliseconds, got 'soon'"),
        ("raises_negative_retry", "wanted milliseconds, got -1"),
        ("raises_text", "TypeError"),
        ("imports_too_late", "import the module at the top"),
        ("exits", "exit(0)"),
        ("exits_at_once", "exit(0)"),
        ("stops", "StopIteration"),
        ("error", "ValueError: wrong"),
        ("no_such_case", "AttributeError"),
    ],
};

#[tokio::test]
async fn finding_01_python_reports_done_only_after_handling() {
    if !toolchains::has(&["python3"], "the handler in Python") {
        return;
    }
    let project = Project::new("py");
    project.write("app.py", PYTHON);
    let packages = project.read("requirements.txt") + "tzdata==2026.1\n";
    project.write("requirements.txt", &packages);
    let component = project.build();
    project.answers(&component, &OF_PYTHON).await;
    fake_answers_in_python(&project);
    project.assert_reason(&component, "error", "ValueError: wrong");
}

/// The fake of the SDK says the same of each case.
fn fake_answers_in_python(project: &Project) {
    // Ends the very process.
    const NOT_HERE: &str = "exits_at_once";
    let failed = OF_PYTHON.failed.iter().map(|(name, _)| (*name, "failed"));
    let done = OF_PYTHON.done.iter().map(|(name, _)| (*name, "done"));
    let all = failed.chain(done);
    let all = all.chain(OF_PYTHON.retry.iter().map(|name| (*name, "retry")));
    let all = all.chain(OF_PYTHON.reject.iter().map(|name| (*name, "reject")));
    let wanted: BTreeMap<_, _> = all.filter(|(name, _)| *name != NOT_HERE).collect();
    project.write("fake.py", FAKE_OF_PYTHON);
    let ended = std::process::Command::new(project.path(".venv/bin/python"))
        .args(["-B", "fake.py"])
        .args(wanted.keys())
        .current_dir(project.path(""))
        .output()
        .expect("the project's Python starts");
    let out = String::from_utf8_lossy(&ended.stdout);
    let last = out.lines().last().unwrap_or_default();
    let found: BTreeMap<&str, &str> =
        serde_json::from_str(last).unwrap_or_else(|why| panic!("{why}: {ended:?}"));
    assert_eq!(found, wanted);
}

const PLAIN: &str = "def handle(message):\n    pass\n";

#[test]
fn finding_01_python_without_a_handler_is_not_built() {
    if !toolchains::has(&["python3"], "the handler in Python") {
        return;
    }
    let project = Project::new("python");
    // One build takes ten seconds and more; most checks are looked at without it, below. Finding 24: the language's own line, and what to do.
    let inside = "def handle(message):\n    import yaml\n";
    let words = ["app.py:2: import yaml", "requirements.txt"];
    project.write("app.py", inside).refused(&words);
    let tls = format!("import ssl\n{PLAIN}");
    let words = [
        "app.py:1: import ssl",
        "cannot call out over the network",
        "from dispatcher_guest import http",
    ];
    project.write("app.py", &tls).refused(&words);
}

/// The SDK, and stubs of the modules that componentize-py generates.
const MODULES: [&str; 2] = ["../guest-sdk/python", "e2e/languages/handled/stubs"];

/// Loads the adapter for this `app.py` without componentize-py: whether it takes it, and its words.
fn load_in_python(text: &str) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("app.py"), text).expect("the folder is ours");
    let compiled = folder.path().join("site/compiled");
    std::fs::create_dir_all(&compiled).expect("the folder is ours");
    std::fs::write(compiled.join("__init__.py"), "from . import _core").expect("it is ours");
    std::fs::write(compiled.join("_core.cpython-399-other.so"), "").expect("it is ours");
    let here = env!("CARGO_MANIFEST_DIR");
    let mut path = vec![
        folder.path().display().to_string(),
        folder.path().join("site").display().to_string(),
        format!("{here}/../host/dispatcher/src/cli/plugin/build/adapter"),
    ];
    path.extend(MODULES.iter().map(|one| format!("{here}/{one}")));
    let mut python = std::process::Command::new("python3");
    python.args(["-B", "-c", "import dispatcher_entry"]);
    let ended = python.env("PYTHONPATH", path.join(":")).output();
    let ended = ended.expect("python3 starts");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.success(), told)
}

/// A handler whose `handle` has these lines.
fn handle_of(lines: &str) -> String {
    format!("def handle(message):\n{lines}")
}

#[test]
fn finding_24_unsupported_python_is_found_before_the_build() {
    if !toolchains::has(&["python3"], "the adapter in Python") {
        return;
    }
    let after = |line: &str| format!("{line}\n{PLAIN}");
    let one = "cannot be called with one argument";
    for (text, words) in [
        ("raise ValueError('at import')".into(), "at import"),
        ("class Handler: pass".into(), "no function handle"),
        (format!("async {PLAIN}"), "handle is async"),
        (handle_of("    yield"), "is a generator"),
        ("def handle(): pass".into(), one),
        ("def handle(event, context): pass".into(), one),
        (
            handle_of("    import no_such_module"),
            "app.py:2: import no_such_module\n  No module named 'no_such_module'",
        ),
        (
            handle_of("    def deep():\n        from email import nothing"),
            "app.py:3: from email import nothing",
        ),
        (
            handle_of("    import compiled"),
            "the package compiled is compiled code",
        ),
        (
            after("import compiled"),
            "the package compiled is compiled code",
        ),
        (
            after("import urllib.request"),
            "app.py:1: import urllib.request",
        ),
        (after("from urllib import request"), "cannot call out"),
        (after("import http.client as c"), "cannot call out"),
        (
            format!("import asyncio\n{}", handle_of("    asyncio.run(None)")),
            "app.py:3: asyncio.run(None)\n  the Python within a component has no event loop",
        ),
        (
            after("import subprocess"),
            "has no threads and no processes",
        ),
        (
            after("import threading\nthreading.Thread(target=print)"),
            "app.py:2: threading.Thread(target=print)",
        ),
    ] {
        let (is_loaded, told) = load_in_python(&text);
        assert!(!is_loaded, "{text}");
        assert!(told.contains(words), "{text}: {told}");
    }
}

#[test]
fn finding_24_supported_python_is_not_refused() {
    if !toolchains::has(&["python3"], "the adapter in Python") {
        return;
    }
    // What functions import is taken in, however they name it.
    let is_in =
        "import atexit, sys\natexit.register(lambda: sys.exit('colorsys' not in sys.modules))";
    for sound in [
        PLAIN.to_owned(),
        "def handle(message, more=None): pass".into(),
        format!("{is_in}\n{}", handle_of("    import colorsys")),
        handle_of("    from email import charset\n    from email.charset import Charset"),
        handle_of("    import importlib\n    importlib.import_module('colorsys')"),
        // Expected to fail.
        handle_of("    try:\n        import no_such_module\n    except ImportError:\n        pass"),
        format!("try:\n    import ssl\nexcept ImportError:\n    pass\n{PLAIN}"),
        format!("import urllib.parse, threading\nlock = threading.Lock()\n{PLAIN}"),
    ] {
        let (is_loaded, told) = load_in_python(&sound);
        assert!(is_loaded, "{sound}: {told}");
    }
}

const OF_GO: Cases = Cases {
    done: &[("done", "worked"), ("done-beside", "worked beside")],
    retry: &["retry", "error", "nil-of-a-type", "waits-beside"],
    reject: &["reject"],
    failed: &[
        ("nil-failure", "nil pointer"),
        ("panics", "panic: wrong"),
        ("panics-with-error", "panic"),
        ("panics-beside", "panic: wrong beside"),
        ("waits", ""),
        ("ends-goroutine", ""),
        ("exits", "exit(0)"),
    ],
};

#[tokio::test]
async fn finding_01_go_reports_done_only_after_handling() {
    if !toolchains::has(&["python3"], "the handler in Go") {
        return;
    }
    let project = Project::new("golang");
    let sound = project.read("main.go");
    let wrong = sound.replace(
        "func handle(message plugin.Message) error {",
        "func handle() error {",
    );
    assert_ne!(wrong, sound);
    project.write("main.go", &wrong).refused(&["go failed"]);
    project.write("main.go", GO);
    let component = project.build();
    project.answers(&component, &OF_GO).await;
    let none = sound.replace("plugin.Handle(handle)", "_ = handle");
    assert_ne!(none, sound);
    let component = project.write("main.go", &none).build();
    let (verdict, log) = project.invoke(&component, "any");
    assert_eq!(verdict, "retry", "{log}");
    assert!(log.contains("call plugin.Handle in an init"), "{log}");
}

const OF_C: Cases = Cases {
    done: &[("done", "")],
    retry: &[],
    reject: &["reject"],
    failed: &[("aborts", ""), ("exits", "exit(0)"), ("traps", "")],
};

#[tokio::test]
async fn finding_01_c_reports_done_only_after_handling() {
    if !toolchains::has(&["python3"], "the handler in C") {
        return;
    }
    let project = Project::new("c");
    project.write("handler.c", C);
    let component = project.build();
    project.answers(&component, &OF_C).await;
    // A failure that was not filled in is whatever lay there, and never done.
    for body in ["no-failure", "bad-tag", "no such case"] {
        let (verdict, log) = project.invoke(&component, body);
        assert_ne!(verdict, "done", "{body}: {log}");
    }
    let header = "#include \"bindings/plugin.h\"\n";
    let name = "bool exports_dispatcher_plugin_handler_handle";
    let message = "exports_dispatcher_plugin_handler_message_t *message";
    let failure = "exports_dispatcher_plugin_handler_failure_t *failure";
    let refused = |text: &str| project.write("handler.c", text).refused(&[]);
    // No return: whatever is in a register would be the answer.
    refused(&format!("{header}{name}({message}, {failure}) {{}}\n"));
    refused(&format!("{header}{name}({message}) {{ return true; }}\n"));
    refused(&format!(
        "{header}bool handle({message}, {failure}) {{ return true; }}\n"
    ));
    // Without the header the linker alone can tell, and what it makes of that is a trap.
    let component = project
        .write(
            "handler.c",
            "_Bool exports_dispatcher_plugin_handler_handle(void) { return 1; }\n",
        )
        .build();
    let (verdict, log) = project.invoke(&component, "any");
    assert_eq!(verdict, "retry", "{log}");
}

/// The SDK as cargo compiled it for this very run, beside this test.
fn sdk() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let folder = test.parent().expect("a file is in a folder");
    let is_sdk = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libdispatcher_guest-") && name.ends_with(".rlib")
    };
    let files = std::fs::read_dir(folder).expect("cargo's folder").flatten();
    let newest = files.map(|file| file.path()).filter(is_sdk);
    let newest = newest.max_by_key(|path| {
        std::fs::metadata(path)
            .and_then(|file| file.modified())
            .ok()
    });
    newest.expect("the SDK is a dependency of the tests")
}

#[test]
fn finding_01_rust_that_does_not_await_does_not_compile() {
    let project = Project::new("rs");
    assert!(
        project
            .read("Cargo.toml")
            .contains("unused_must_use = \"deny\"")
    );
    // Natively, and by the compiler itself: the macro checks the function's type wherever it is
    // compiled, and no test starts cargo, which would wait for the one that runs the tests.
    let sdk = sdk();
    let check = || {
        let mut command = std::process::Command::new("rustc");
        let dependencies = sdk.parent().expect("a file is in a folder");
        let command = command
            .args([
                "--edition",
                "2024",
                "--crate-type",
                "lib",
                "--emit",
                "metadata",
            ])
            .args(["-D", "unused_must_use", "--out-dir"])
            .arg(project.path("target"))
            .arg("-L")
            .arg(dependencies)
            .arg("--extern")
            .arg(format!("dispatcher_guest={}", sdk.display()))
            .arg(project.path("src/lib.rs"));
        let ended = command.output().expect("rustc starts");
        (
            ended.status.success(),
            String::from_utf8_lossy(&ended.stderr).into_owned(),
        )
    };
    let with = |code: &str| {
        let text = format!(
            "use dispatcher_guest::{{Failure, Message, handler}};\n{code}\nhandler!(handle);\n"
        );
        project.write("src/lib.rs", &text);
        check()
    };
    for (code, words) in [
        (
            "async fn handle(_: Message) -> Result<(), Failure> { Ok(()) }",
            "a handler cannot answer",
        ),
        (
            "fn handle(_: Message) -> Result<bool, Failure> { Ok(true) }",
            "a handler cannot answer",
        ),
        (
            "fn handle(_: Message) -> bool { true }",
            "a handler cannot answer",
        ),
        ("fn handle(_: Message, _: u8) {}", "function"),
        (
            "async fn work() {}\nfn handle(_: Message) { work(); }",
            "unused implementer of `Future` that must be used",
        ),
        (
            "fn work() -> Result<(), Failure> { Err(Failure::retry()) }\nfn handle(_: Message) { work(); }",
            "unused `Result` that must be used",
        ),
    ] {
        let (is_good, told) = with(code);
        assert!(!is_good, "{code}");
        assert!(told.contains(words), "{code}: {told}");
    }
    let (is_good, told) = with("fn handle(_: Message) -> Result<(), Failure> { Ok(()) }");
    assert!(is_good, "{told}");
}
