//! Bad input gets a plain error, exit code 2, every problem at once, before any message is
//! received; what does not answer gets 3.

use crate::scene::{field, guest, run, send, until_depth};
use dispatcher_tests::PATIENCE;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::servers::{MiniStack, free_port};
use dispatcher_tests::sqs::SqsServer;
use serde_json::{Value, json};
use std::time::Instant;

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
        ("wrong-world", &["dispatcher:plugin/handler", "0.1.0"][..]),
        ("wrong-version", &["0.9.0", "0.1.0"][..]),
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
    // The error lists the first queues by name, and tests share the server.
    let known = SqsServer::fresh_name("0-known");
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

/// Each line of stderr is a log line; those of the problems, with the exit code.
fn problems_in_json(program: Program, code: i32) -> Vec<String> {
    let ended = program.run();
    assert_eq!(ended.code, code, "{ended:?}");
    let lines = ended.stderr.lines().map(|line| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let errors = lines.filter(|line| line["message"] == "ended with an error");
    let problems: Vec<String> = errors
        .map(|line| {
            assert_eq!(
                (&line["level"], &line["exit_code"]),
                (&json!("ERROR"), &json!(code))
            );
            assert!(line["timestamp"].is_string(), "{line}");
            line["problem"].as_str().expect("words").to_owned()
        })
        .collect();
    assert!(!problems.is_empty(), "{ended:?}");
    problems
}

#[test]
fn problems_of_the_start_are_json_where_the_log_is() {
    let json = ["--log-format", "json"];
    let bad = ["run", "--plugin", "nope.wasm", "--queues", "local:a:0"];
    let problems = problems_in_json(Program::new([&bad[..], &json].concat()), 2);
    assert!(problems.len() >= 2, "one for each: {problems:?}");
    assert!(
        problems
            .iter()
            .any(|one| one.contains("`0` is not a weight")),
        "{problems:?}"
    );
    // A filter drops other lines alone.
    let silent = [&bad[..], &["--log-level", "off"], &json].concat();
    assert_eq!(problems_in_json(Program::new(silent), 2), problems);
    let of_variable = Program::new(bad).env("DISPATCHER_LOG_FORMAT", "json");
    assert_eq!(problems_in_json(of_variable, 2), problems);
    let settings = "[dispatcher]\nlog-format = \"json\"\nconcurency = 3\n";
    let of_file = Program::new(["check", "--config", "d.toml"]).file("d.toml", settings);
    let problems = problems_in_json(of_file, 2);
    assert!(
        problems.iter().any(|one| one.contains("concurency")),
        "{problems:?}"
    );
    // Also where the words cannot be read as flags, and where a server is away.
    let unfinished = Program::new(["run", "--log-format=json", "--concurrency"]);
    let problems = problems_in_json(unfinished, 2);
    assert!(problems[0].contains("--concurrency"), "{problems:?}");
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let away = run("hello", &["--queues", "orders"]).aws(&nowhere);
    let problems = problems_in_json(away, 3);
    assert!(problems[0].contains("orders"), "{problems:?}");
}

#[tokio::test]
async fn a_reload_changes_what_is_logged_from_then_on() {
    let file = |level: &str| {
        format!(
            "[dispatcher]\nlog-level = \"{level}\"\n\n[plugin.p]\nfile = \"{}\"\n\n\
             [[route]]\nname = \"r\"\nqueues = [\"local:q\"]\nplugin = \"p\"\n",
            guest("verdicts")
        )
    };
    let program = Program::new(["run", "--config", "dispatcher.toml", "--log-format", "json"]);
    let mut running = program.file("dispatcher.toml", &file("info")).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    let data = running.data().path().to_owned();
    let done = |line: &str| line.contains("\"message done\"");
    send(&data, "q", ["done".to_owned()]).await;
    until_depth(&data, "q", |depth| depth == Default::default()).await;
    assert_eq!(running.lines(done), [""; 0], "it is logged at debug");
    std::fs::write(data.join("dispatcher.toml"), file("info,message=debug")).expect("written");
    running.signal(Signal::HUP);
    let line = running.wait_for_line(|line| line.contains("log level replaced"));
    assert_eq!(field(&line, "filter"), "info,message=debug");
    assert_eq!(
        running.lines(|line| line.contains("needs a restart")),
        [""; 0]
    );
    send(&data, "q", ["done".to_owned()]).await;
    running.wait_for_line(done);
    // Less is logged as well: the next reload says nothing.
    std::fs::write(data.join("dispatcher.toml"), file("error")).expect("written");
    running.signal(Signal::HUP);
    let guest_prints = |line: &str| line.contains("still-logged");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = running.lines(guest_prints).len();
        send(&data, "q", ["print:still-logged".to_owned()]).await;
        until_depth(&data, "q", |depth| depth == Default::default()).await;
        if running.lines(guest_prints).len() == before {
            break;
        }
        assert!(Instant::now() < deadline, "it is logged on");
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

/// A reload that changes nothing says nothing of settings; one that does names each once.
#[test]
fn finding_26_reload_reports_each_changed_setting_once_in_a_sentence() {
    let file = |workers: u32| {
        format!(
            "[dispatcher]\nworkers = {workers}\n\n[plugin.p]\nfile = \"{}\"\n\n\
             [[route]]\nname = \"r\"\nqueues = [\"local:q\"]\nplugin = \"p\"\n",
            guest("hello")
        )
    };
    let program = Program::new(["run", "--config", "dispatcher.toml", "--log-format", "json"]);
    let mut running = program.file("dispatcher.toml", &file(1)).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    let restart = |line: &str| line.contains("needs a restart");
    let reloaded = |line: &str| line.contains("settings reloaded");
    running.signal(Signal::HUP);
    running.wait_for_line(reloaded);
    assert_eq!(running.lines(restart), Vec::<String>::new());
    let path = running.data().path().join("dispatcher.toml");
    std::fs::write(path, file(2)).expect("written");
    running.signal(Signal::HUP);
    running.wait_for_lines(2, reloaded);
    let lines = running.lines(restart);
    let [line] = &lines[..] else {
        panic!("one line: {lines:?}");
    };
    assert_eq!(
        field(line, "change"),
        "`workers` of [dispatcher] has changed"
    );
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn finding_27_hints_name_what_helps_and_nothing_else() {
    // A missing body is no misspelt word.
    let ended = Program::new(["send", "local:p"]).run();
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(!ended.stderr.contains("did you mean"), "{ended:?}");
    assert!(ended.stderr.contains("--file FILE"), "{ended:?}");

    // The embedded queue is named where there is one of the name.
    let url = format!("http://127.0.0.1:{}", free_port());
    let looked = |queue: &str, more: &[&str]| {
        let (_, data) = Program::new(["queues"]).into_command();
        if !more.is_empty() {
            assert_eq!(Program::new(more).sharing(&data).run().code, 0);
        }
        let looking = Program::new(["queues", queue]).sharing(&data).aws(&url);
        looking.run().stderr
    };
    let hint = "the embedded queue of that name is local:orders";
    assert!(!looked("orders", &[]).contains("embedded queue"));
    assert!(looked("orders", &["send", "local:orders", "x"]).contains(hint));

    // A FIFO queue has no delay of one message, and the table that is missing says why it is wanted.
    let server = MiniStack::shared();
    let fifo = format!("{}.fifo", SqsServer::fresh_name("late"));
    let made = SqsServer::at(&server.url());
    made.create(&fifo, &[("FifoQueue", "true")]).await;
    let words = ["send", &fifo, "x", "--group", "g", "--delay", "5s"];
    let ended = Program::new(words).aws(&server.url()).run();
    assert_ne!(ended.code, 0);
    for words in [
        "one for a FIFO queue not at all",
        "dispatcher schedule init",
    ] {
        assert!(ended.stderr.contains(words), "{ended:?}");
    }

    // Metrics need a region, and the start says so.
    let named = run("hello", &["--name", "app"]).env("AWS_EC2_METADATA_DISABLED", "true");
    refused(named, 2, &["--name", "AWS_REGION", "--metrics none"]);
}
