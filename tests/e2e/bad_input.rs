//! Bad input gets a plain error, exit code 2, every problem at once, before any message is
//! received; what does not answer gets 3.

use crate::scene::{guest, run, send};
use dispatcher_tests::child::Program;
use dispatcher_tests::servers::{MiniStack, free_port};
use dispatcher_tests::sqs::SqsServer;

/// Runs to its end and wants every one of these words on stderr.
fn refused(program: Program, code: i32, words: &[&str]) {
    let ended = program.run();
    assert_eq!(ended.code, code, "{ended:?}");
    for word in words {
        assert!(
            ended.stderr.contains(word),
            "no `{word}` in {}",
            ended.stderr
        );
    }
}

#[test]
fn unknown_flag_suggests_the_nearest() {
    refused(
        Program::new(["run", "--plugni", "x.wasm"]),
        2,
        &["--plugni", "did you mean `--plugin`"],
    );
    refused(Program::new(["snd", "local:default"]), 2, &["send"]);
}

#[test]
fn every_problem_is_reported_at_once() {
    let program = Program::new([
        "run",
        "--plugin",
        "nope.wasm",
        "--queues",
        "local:a:3,local:b,local:c:0",
        "--concurrency",
        "zero",
    ]);
    refused(
        program,
        2,
        &["nope.wasm", "local:a:3", "`0` is not a weight", "`zero`"],
    );
}

#[test]
fn unknown_key_names_its_line_and_the_nearest() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dispatcher.toml");
    let text =
        "[dispatcher]\nconcurency = 3\n\n[[route]]\nqueues = [\"local:q\"]\nplugin = \"x\"\n";
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("UTF-8");
    refused(
        Program::new(["check", "--config", file]),
        2,
        &[":2", "concurency", "did you mean `concurrency`", "`x`"],
    );
}

#[test]
fn file_that_is_no_plugin_is_described() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    refused(Program::new(["run", "--plugin", file]), 2, &["WebAssembly"]);
    for (name, words) in [
        ("core-module", &["core module", "wasm32-wasip2"][..]),
        (
            "wrong-world",
            &["dispatcher:plugin/handler", "0.2.0-rc.1"][..],
        ),
        ("wrong-version", &["0.9.0", "0.1.0 and 0.2.0-rc.1"][..]),
        (
            "forbidden",
            &["dispatcher:plugin/lambda@0.1.0", "--allow-lambda"][..],
        ),
    ] {
        refused(run(name, &[]), 2, words);
        refused(Program::new(["plugin", "check", &guest(name)]), 2, words);
    }
}

#[tokio::test]
async fn missing_queue_lists_the_existing_ones() {
    let server = MiniStack::shared();
    let known = SqsServer::fresh_name("known");
    SqsServer::at(&server.url()).create(&known, &[]).await;
    let program = run("hello", &["--queues", "nosuch"]).aws(&server.url());
    refused(program, 2, &["nosuch", "does not exist", &known]);
}

#[test]
fn unreachable_endpoint_exits_with_3() {
    let url = format!("http://127.0.0.1:{}", free_port());
    refused(
        run("hello", &["--queues", "orders"]).aws(&url),
        3,
        &["orders", &url],
    );
}

#[test]
fn unwritable_data_folder_is_reported() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml/inside");
    refused(run("hello", &["--data", file]), 2, &[file]);
}

#[tokio::test]
async fn nothing_is_received_before_start_up_succeeds() {
    let program = run("hello", &["--queues", "local:default,local:default:2"]);
    let started = program.start();
    send(started.data().path(), "default", ["x".into()]).await;
    let mut started = started;
    assert_eq!(started.wait_exit(), 2);
    let depth = crate::scene::depth(started.data().path(), "default").await;
    assert_eq!((depth.waiting, depth.in_flight), (1, 0));
}

#[test]
fn settings_without_effect_are_refused_at_start() {
    refused(
        run("hello", &["--batch-size", "5"]),
        2,
        &["batch-size 5", "single messages"],
    );
}
