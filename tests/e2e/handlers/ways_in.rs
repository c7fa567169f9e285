//! What people have runs unchanged: programs of WASI and HTTP handlers, on a queue.

use crate::scene::{depth, guest, prints, run, send, until_depth};
use dispatcher_core::message::AttributeValue;
use dispatcher_core::queue::{Depth, Queue};
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, RunningProgram};

/// A program of WASI 0.1 as its compiler leaves it: copies stdin to stdout, and asks to be run again
/// unless it was given something.
const COPY: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read"
        (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write"
        (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func (export "_start") (local $all i32)
        (loop $more
            (i32.store (i32.const 0) (i32.const 64))
            (i32.store (i32.const 4) (i32.const 4096))
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
            (i32.store (i32.const 4) (i32.load (i32.const 8)))
            (local.set $all (i32.add (local.get $all) (i32.load (i32.const 8))))
            (if (i32.load (i32.const 8)) (then
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 12)))
                (br $more))))
        (if (i32.eq (local.get $all) (i32.const 5)) (then (call $exit (i32.const 75))))))"#;

/// The file of the program of WASI 0.1.
fn copy() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("copy.wasm");
    let bytes = wat::parse_str(COPY).expect("a module");
    std::fs::write(&file, bytes).expect("written");
    let path = file.to_str().expect("UTF-8").to_owned();
    (folder, path)
}

/// `dispatcher run` with a plugin of any file.
fn run_file(file: &str, more: &[&str]) -> Program {
    let mut arguments = vec!["run", "--log-format", "json", "--plugin", file];
    arguments.extend(more);
    Program::new(arguments)
}

/// The reasons of what is dead-lettered, once there are so many.
async fn reasons(running: &RunningProgram, count: u64) -> Vec<String> {
    let data = running.data().path();
    let wanted = |depth: Depth| depth.waiting == count;
    until_depth(data, "default.dead", wanted).await;
    let store = LocalStore::open(data).expect("opens");
    let dead = store.queue("default.dead", None).expect("opens");
    let letters = dead.peek(10).await.expect("looks");
    let attributes = letters.iter().flat_map(|letter| &letter.attributes);
    let reasons = attributes.filter(|one| one.name == "dispatcher-dead-letter-reason");
    let mut reasons: Vec<_> = reasons
        .map(|one| match &one.value {
            AttributeValue::Text(reason) => reason.clone(),
            AttributeValue::Binary(_) => panic!("a reason is a text"),
        })
        .collect();
    reasons.sort();
    reasons
}

async fn is_empty(running: &RunningProgram) {
    until_depth(running.data().path(), "default", |depth| {
        depth == Default::default()
    })
    .await;
}

#[tokio::test]
async fn wasi_0_1_module_handles_a_queue() {
    let (_folder, file) = copy();
    let mut running = run_file(&file, &["--max-attempts", "1"]).start();
    let bodies = ["hello from 0.1", "five!"].map(String::from);
    send(running.data().path(), "default", bodies).await;
    running.wait_for_line(|line| line.contains("hello from 0.1"));
    let reasons = reasons(&running, 1).await;
    assert!(reasons[0].contains("it printed last: five!"), "{reasons:?}");
    is_empty(&running).await;
    running.stop();
}

#[tokio::test]
async fn exit_codes_of_commands_are_their_verdicts() {
    for name in ["command", "async-command"] {
        let mut running = run(name, &["--max-attempts", "1"]).start();
        let bodies = ["done", "print:it is done", "fail", "panic:no"];
        send(running.data().path(), "default", bodies.map(String::from)).await;
        let reasons = reasons(&running, 2).await;
        assert!(reasons[0].contains("it exited with 1"), "{reasons:?}");
        assert!(reasons[1].contains("trapped"), "{reasons:?}");
        is_empty(&running).await;
        assert!(prints(&running).contains(&"it is done".to_owned()));
        running.stop();
    }
}

#[tokio::test]
async fn command_that_requests_a_retry_runs_again() {
    let mut running = run("command", &[]).start();
    send(running.data().path(), "default", ["until:2".into()]).await;
    running.wait_for_line(|line| line.contains("received 2 times"));
    is_empty(&running).await;
    assert_eq!(
        depth(running.data().path(), "default.dead").await,
        Default::default()
    );
    running.stop();
}

#[tokio::test]
async fn command_receives_bodies_of_any_size_and_may_leave_them_unread() {
    let body = "é\n".repeat(340_000);
    let sum: u64 = body.bytes().map(u64::from).sum();
    for name in [
        "command",
        "async-command",
        "http-handler",
        "async-http-handler",
    ] {
        let mut running = run(name, &[]).start();
        send(running.data().path(), "default", [body.clone()]).await;
        let said = format!("read {} bytes, the sum is {sum}", body.len());
        running.wait_for_line(|line| line.contains(&said));
        is_empty(&running).await;
        running.stop();
    }
    let mut running = run("command", &["--env", "GREETING=hello"]).start();
    let sent = Program::new([
        "send",
        "local:default",
        "--attribute",
        "verb=variables",
        "-",
    ])
    .stdin(&body)
    .sharing(running.data())
    .run();
    running.wait_for_line(|line| line.contains("GREETING=hello"));
    is_empty(&running).await;
    let id = format!("DISPATCHER_MESSAGE_ID={}", sent.stdout.trim());
    assert!(prints(&running).contains(&id), "{:?}", prints(&running));
    running.stop();
}

#[tokio::test]
async fn endless_command_is_stopped() {
    let mut running = run("command", &["--max-attempts", "1", "--timeout", "2s"]).start();
    let bodies = ["loop", "sleep:3600000"];
    send(running.data().path(), "default", bodies.map(String::from)).await;
    for reason in reasons(&running, 2).await {
        assert!(reason.contains("--timeout"), "{reason}");
    }
    is_empty(&running).await;
    running.stop();
}

#[tokio::test]
async fn lines_of_a_command_beyond_the_limit_are_dropped() {
    let mut running = run("command", &["--max-attempts", "1"]).start();
    let body = "flood:5000".to_owned();
    send(running.data().path(), "default", [body]).await;
    running.wait_for_line(|line| line.contains("4000 more lines; the limit is 1000 per attempt"));
    is_empty(&running).await;
    running.stop();
}

#[tokio::test]
async fn http_handler_serves_a_queue() {
    for name in ["http-handler", "async-http-handler"] {
        serves_a_queue(name).await;
    }
}

async fn serves_a_queue(name: &str) {
    let mut running = run(name, &["--max-attempts", "1"]).start();
    let bodies = [
        "204",
        "print:served",
        "404:no such order",
        "500:db down",
        "302",
    ];
    send(running.data().path(), "default", bodies.map(String::from)).await;
    let reasons = reasons(&running, 3).await;
    let parts = [
        "404 Not Found: no such order",
        "302 Found",
        "500 Internal Server Error: db down",
    ];
    for part in parts {
        assert!(
            reasons.iter().any(|reason| reason.contains(part)),
            "{part} in {reasons:?}"
        );
    }
    is_empty(&running).await;
    assert!(prints(&running).contains(&"served".to_owned()));
    running.stop();
}

#[tokio::test]
async fn http_handler_sets_the_retry_delay() {
    let mut running = run("http-handler", &["--log-level", "debug"]).start();
    let bodies = ["until:2", "after:429 3600"];
    send(running.data().path(), "default", bodies.map(String::from)).await;
    running.wait_for_line(|line| line.contains("received 2 times"));
    running.wait_for_line(|line| line.contains("429 Too Many Requests: not yet"));
    let wanted = |depth: Depth| depth.delayed == 1 && depth.waiting == 0;
    until_depth(running.data().path(), "default", wanted).await;
    running.stop();
}

#[tokio::test]
async fn http_handler_receives_attributes() {
    let mut running = run("http-handler", &["--max-attempts", "1"]).start();
    let attributes = [
        "--attribute",
        "colour=blue",
        "--attribute",
        "content-type=text/x-verb",
    ];
    let send = ["send", "local:default", "headers"]
        .iter()
        .chain(&attributes);
    assert_eq!(Program::new(send).sharing(running.data()).run().code, 0);
    reasons(&running, 1).await;
    let prints = prints(&running);
    for header in [
        "dispatcher-attribute-colour: blue",
        "content-type: text/x-verb",
    ] {
        assert!(
            prints.iter().any(|line| line == header),
            "{header} in {prints:?}"
        );
    }
    running.stop();
}

#[test]
fn check_names_the_kind_of_each_component() {
    let (_folder, file) = copy();
    let kinds = [
        (file, "a WASI command (p1 module)"),
        (guest("command"), "a WASI command (p2 component)"),
        (guest("async-command"), "a WASI command (p3 component)"),
        (guest("http-handler"), "a wasi:http handler (p2 component)"),
        (
            guest("async-http-handler"),
            "a wasi:http handler (p3 component)",
        ),
    ];
    for (file, kind) in kinds {
        let checked = Program::new(["plugin", "check", &file]).run();
        assert_eq!(checked.code, 0, "{checked:?}");
        assert!(checked.stdout.contains(kind), "{checked:?}");
    }
    let reused = run("command", &["--reuse", "5"]).run();
    assert_eq!(reused.code, 2, "{reused:?}");
    assert!(
        reused.stderr.contains("starts fresh for each message"),
        "{reused:?}"
    );
}
