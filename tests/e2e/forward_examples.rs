//! The examples of services in `plugins/services`, each run by what its users have, behind
//! `dispatcher run --forward`.

use crate::scene::{field, send};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::debian::Packaged;
use dispatcher_tests::servers::free_port;
use dispatcher_tests::toolchains::{node_packages, python};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

const RUBY: Packaged = Packaged {
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

#[tokio::test]
async fn rack_example_handles_messages() {
    let root = RUBY.folder();
    let gems = root.join("usr/share/rubygems-integration/all/gems");
    let gem = |name: &str| {
        let folders = fs::read_dir(&gems).expect("the packages hold gems");
        let mut folders = folders.flatten().map(|entry| entry.path());
        let is_it = |folder: &PathBuf| {
            let found = folder.file_name().unwrap_or_default().to_string_lossy();
            found.starts_with(&format!("{name}-"))
        };
        folders.find(is_it).expect("it was unpacked")
    };
    let machine = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let libraries = [
        root.join("usr/lib/ruby/3.1.0"),
        root.join(&machine).join("ruby/3.1.0"),
        gem("rack").join("lib"),
        gem("webrick").join("lib"),
    ];
    let libraries: OsString = std::env::join_paths(libraries).expect("paths without colons");
    let rackup = |port: u16| {
        let arguments = [
            OsString::from("--disable-gems"),
            gem("rack").join("bin/rackup").into(),
            "-s".into(),
            "webrick".into(),
            "-o".into(),
            "127.0.0.1".into(),
            "-p".into(),
            port.to_string().into(),
            example("rack/config.ru").into(),
        ];
        let library_path = root.join(&machine);
        Program::of(root.join("usr/bin/ruby3.1"), arguments)
            .env("RUBYLIB", &libraries.to_string_lossy())
            .env("LD_LIBRARY_PATH", &library_path.to_string_lossy())
    };
    handles_messages(rackup, "HTTPServer#start").await;
}
