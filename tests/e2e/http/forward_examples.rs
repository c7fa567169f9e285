//! The examples of services in `plugins/services`, and those of the page for people who move from another
//! library, each run by what its users have, behind `dispatcher run --forward`.

use crate::languages::page_examples::shown;
use crate::scene::{field, send};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::debian::DebianProgram;
use dispatcher_tests::servers::free_port;
use dispatcher_tests::toolchains::{has, node_packages, python};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

const RUBY: DebianProgram = DebianProgram {
    program: "ruby3.1",
    packages: &["ruby3.1", "libruby3.1", "ruby-rack", "ruby-webrick"],
    libraries: &["libyaml-0-2", "libgmp10", "libffi8"],
};

fn example(name: &str) -> PathBuf {
    let services = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/services");
    services.join(name)
}

/// The versions that a file of the example names, as `NAME==VERSION` lines.
fn requirements(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("the example has it");
    text.lines().map(String::from).collect()
}

/// Starts the service with a port and a key, waits for `listening`, and has it handle a good message
/// and a bad one.
async fn handles_messages(service: impl FnOnce(u16) -> Program, listening: &str) {
    let port = free_port();
    let service = service(port)
        .env("PORT", &port.to_string())
        .env("SIGNING_KEY", "s3cret")
        .start();
    service.wait_for_line(|line| line.contains(listening));
    let url = format!("http://127.0.0.1:{port}/jobs");
    let mut running = forward(&url, "s3cret");
    let bodies = [r#"{"order":1}"#, r#"{"order":"x"}"#, "[]"].map(String::from);
    send(running.data().path(), "default", bodies).await;
    service.wait_for_line(|line| line == "order 1, attempt 1");
    for line in running.wait_for_lines(2, |line| line.contains("dead-lettered")) {
        let reason = field(&line, "reason");
        assert!(reason.starts_with("HTTP status 422: "), "{reason}");
        assert!(reason.contains("wanted"), "{reason}");
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    // Who does not know the key is refused, and nothing is lost by it.
    let stranger = forward(&url, "another");
    send(
        stranger.data().path(),
        "default",
        [r#"{"order":2}"#.to_owned()],
    )
    .await;
    stranger.wait_for_line(|line| line.contains("circuit open"));
    assert!(service.lines(|line| line.contains("order 2")).is_empty());
}

fn forward(url: &str, key: &str) -> RunningProgram {
    let arguments = ["run", "--log-format", "json", "--forward", url];
    Program::new(arguments)
        .env("DISPATCHER_FORWARD_KEY_FILE", "key")
        .file("key", key)
        .start()
}

#[tokio::test]
async fn express_example_handles_messages() {
    let package = fs::read_to_string(example("express/package.json")).expect("it is there");
    let package: serde_json::Value = serde_json::from_str(&package).expect("JSON");
    let version = package["dependencies"]["express"]
        .as_str()
        .expect("a version");
    let Some(folder) = node_packages(&[&format!("express@{version}")]) else {
        return;
    };
    // A script finds its packages beside itself.
    let script = folder.join("server.mjs");
    fs::copy(example("express/server.mjs"), &script).expect("the folder is ours");
    handles_messages(|_| Program::of("node", [script]), "listening at").await;
}

#[tokio::test]
async fn fastapi_example_handles_messages() {
    let packages = requirements(&example("fastapi/requirements.txt"));
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let python = python(&packages);
    let script = example("fastapi/main.py");
    handles_messages(|_| Program::of(python, [script]), "Uvicorn running").await;
}

/// Ruby's server for Rack with this file, as Debian's packages have it.
/// Debian's Ruby with its standard library, and with these libraries besides.
pub(crate) fn ruby(
    libraries: impl IntoIterator<Item = PathBuf>,
    arguments: impl IntoIterator<Item = OsString>,
) -> Program {
    let root = RUBY.folder();
    let machine = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let own = [root.join("usr/lib/ruby/3.1.0"), machine.join("ruby/3.1.0")];
    let libraries = std::env::join_paths(own.into_iter().chain(libraries));
    let libraries = libraries.expect("paths without colons");
    let arguments = std::iter::once(OsString::from("--disable-gems")).chain(arguments);
    Program::of(root.join("usr/bin/ruby3.1"), arguments)
        .env("RUBYLIB", &libraries.to_string_lossy())
        .env("LD_LIBRARY_PATH", &machine.to_string_lossy())
}

fn rackup(port: u16, config: &Path) -> Program {
    let gems = RUBY
        .folder()
        .join("usr/share/rubygems-integration/all/gems");
    let gem = |name: &str| {
        let folders = fs::read_dir(&gems).expect("the packages hold gems");
        let mut folders = folders.flatten().map(|entry| entry.path());
        let is_it = |folder: &PathBuf| {
            let found = folder.file_name().unwrap_or_default().to_string_lossy();
            found.starts_with(&format!("{name}-"))
        };
        folders.find(is_it).expect("it was unpacked")
    };
    let arguments = [
        gem("rack").join("bin/rackup").into(),
        "-s".into(),
        "webrick".into(),
        "-o".into(),
        "127.0.0.1".into(),
        "-p".into(),
        port.to_string().into(),
        config.into(),
    ];
    ruby(
        [gem("rack").join("lib"), gem("webrick").join("lib")],
        arguments,
    )
}

#[tokio::test]
async fn rack_example_handles_messages() {
    let config = example("rack/config.ru");
    handles_messages(|port| rackup(port, &config), "HTTPServer#start").await;
}

const PAGE: &str = "host/docs/moving-libraries.md";

/// A service of the page handles a good message once, which it prints, and a bad one fails with this
/// reason. Nothing waits for the service: a message that finds none comes again without an attempt.
async fn replaces_a_worker(
    service: &RunningProgram,
    url: &str,
    (good, line): (&str, &str),
    (bad, reason): (&str, &str),
) {
    let arguments = [
        "run",
        "--log-format",
        "json",
        "--max-attempts",
        "1",
        "--forward",
        url,
    ];
    let mut running = Program::new(arguments).start();
    let bodies = [good, bad].map(String::from);
    send(running.data().path(), "default", bodies).await;
    service.wait_for_line(|printed| printed == line);
    let dead = running.wait_for_line(|line| line.contains("dead-lettered"));
    let found = field(&dead, "reason");
    assert!(found.contains(reason), "{found}");
    crate::scene::until_depth(running.data().path(), "default", |depth| {
        (depth.waiting, depth.in_flight, depth.delayed) == (0, 0, 0)
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(service.lines(|printed| printed == line).len(), 1);
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("the folder is ours");
    }
    folder
}

#[tokio::test]
async fn service_that_replaces_a_worker_of_sqs_consumer_works_as_its_page_says() {
    if !has(&["node"], "the service in Node.js") {
        return;
    }
    let port = free_port();
    let code = shown(PAGE, "js", "createServer(");
    let here = code.replace("8080", &port.to_string());
    assert_ne!(here, code);
    let bill = "export async function bill(order) {\n  if (!order.id) throw new Error(\"no id\");\n  \
                console.log(`billed ${order.id}`);\n}\n";
    let files = [
        ("service.mjs", &*here),
        ("bill.js", bill),
        ("package.json", r#"{"type":"module"}"#),
    ];
    let folder = folder(&files);
    let service = Program::of("node", [folder.path().join("service.mjs")]).start();
    let url = format!("http://127.0.0.1:{port}/");
    let good = (r#"{"id":"o-1"}"#, "billed o-1");
    replaces_a_worker(
        &service,
        &url,
        good,
        ("{}", "HTTP status 500: Error: no id"),
    )
    .await;
}

#[tokio::test]
async fn service_that_replaces_a_worker_of_celery_works_as_its_page_says() {
    let packages = requirements(&example("fastapi/requirements.txt"));
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let folder = folder(&[("main.py", &shown(PAGE, "python", "FastAPI()"))]);
    let port = free_port();
    let path = folder.path().display().to_string();
    let arguments = [
        "-u",
        "-m",
        "uvicorn",
        "main:app",
        "--app-dir",
        &path,
        "--port",
    ];
    let arguments = arguments
        .into_iter()
        .map(String::from)
        .chain([port.to_string()]);
    let service = Program::of(python(&packages), arguments).start();
    let url = format!("http://127.0.0.1:{port}/charge");
    let good = (r#"{"id":"o-1"}"#, "charged o-1");
    replaces_a_worker(&service, &url, good, ("{}", "HTTP status 422: ")).await;
}

#[tokio::test]
async fn service_that_replaces_a_worker_of_sidekiq_works_as_its_page_says() {
    let worker = "class InvoiceWorker\n  def perform(id, amount)\n    \
                  puts \"invoice #{id}: #{amount}\"\n    $stdout.flush\n  end\nend\n";
    let config = shown(PAGE, "ruby", "InvoiceWorker.new");
    let folder = folder(&[("config.ru", &config), ("invoice_worker.rb", worker)]);
    let port = free_port();
    let service = rackup(port, &folder.path().join("config.ru")).start();
    let url = format!("http://127.0.0.1:{port}/");
    let good = (r#"["i-1", 7]"#, "invoice i-1: 7");
    replaces_a_worker(&service, &url, good, ("[]", "HTTP status 500")).await;
}
