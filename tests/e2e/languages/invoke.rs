//! `plugin invoke` as a workbench: many times, with figures, with every call to the host, and on what
//! was recorded.

use crate::handlers::replay;
use crate::scene::guest;
use dispatcher_tests::child::{ExitedProgram, Program};
use serde_json::{Value, json};

fn invoke(name: &str, more: &[&str]) -> ExitedProgram {
    let guest = guest(name);
    let arguments = ["plugin", "invoke", &guest];
    Program::new(arguments.iter().chain(more)).run()
}

#[test]
fn message_runs_count_times_and_one_failure_sets_the_exit_code() {
    // Each time in a fresh instance.
    let counted = invoke("count", &["x", "--count", "3"]);
    let said = "reject: 1\n".repeat(3);
    assert_eq!((counted.code, counted.stdout), (0, said));
    let failed = invoke("verdicts", &["trap", "--count", "2"]);
    assert_eq!((failed.code, failed.stdout.lines().count()), (1, 2));
    let none = invoke("count", &["x", "--count", "0"]);
    assert_eq!(none.code, 2);
}

#[test]
fn bench_results_are_printed_as_text_and_json() {
    let told = invoke("hello", &["spoken", "--bench", "--count", "5"]);
    assert_eq!(told.code, 0, "{told:?}");
    let begins = told
        .stdout
        .lines()
        .filter_map(|line| line.split(' ').next());
    let begins: Vec<&str> = begins.collect();
    assert_eq!(begins, ["component", "compile", "load", "cold", "warm"]);
    assert_eq!(told.stdout.matches(": 5 done").count(), 2, "{told:?}");
    // It would be measured, too.
    assert!(!told.stderr.contains("spoken"), "{told:?}");

    let told = invoke("hello", &["x", "--bench", "--count", "5", "--json"]);
    let figures: Value = serde_json::from_str(&told.stdout).expect("JSON");
    let size = std::fs::metadata(guest("hello"))
        .expect("it is there")
        .len();
    assert_eq!(
        (&figures["bytes"], &figures["count"]),
        (&size.into(), &5.into())
    );
    for way in ["cold", "warm"] {
        let figures = &figures[way];
        assert_eq!(figures["answers"], json!({"done": 5}));
        for what in ["p50_us", "p99_us", "per_second", "memory"] {
            let figure = figures[what].as_f64().expect("a number");
            assert!(figure > 0.0, "{way} {what}: {figures}");
        }
    }
}

#[test]
fn bench_of_a_failing_plugin_names_each_reason_once() {
    let told = invoke("verdicts", &["trap", "--bench", "--count", "3"]);
    assert_eq!(told.stdout.matches(": 3 retry").count(), 2, "{told:?}");
    assert_eq!(
        told.stderr.matches("stack, the innermost first").count(),
        2,
        "{told:?}"
    );
}

/// What `--trace` shows of the guest of the SDK.
fn trace(name: &str, body: &Value, grants: &[&str]) -> Vec<String> {
    let body = body.to_string();
    let told = invoke(name, &[&[body.as_str(), "--trace"], grants].concat());
    assert!(told.stdout.starts_with("reject: got"), "{told:?}");
    let calls = told
        .stderr
        .lines()
        .filter_map(|line| line.split_once(" µs  "));
    let calls = calls.map(|(took, call)| {
        assert!(took.trim().parse::<u64>().is_ok(), "{took}");
        call.to_owned()
    });
    calls.collect()
}

#[test]
fn trace_shows_every_host_call_with_arguments_and_result() {
    let setting = json!({"do": "setting", "name": "size"});
    assert_eq!(
        trace("granted", &setting, &["--setting", "size=7"]),
        [
            r#"wasi:config/store get(key: "size") → Ok(Some("7"))"#,
            r#"wasi:config/store get-all() → Ok([("size", "7")])"#,
        ]
    );
    let count = json!({"do": "store", "store": "mine", "key": "k", "to": 1});
    let calls = trace("granted", &count, &["--store", "mine=local:b"]);
    assert_eq!(
        calls[0],
        r##"wasi:keyvalue/store open(identifier: "mine") → Ok(#0)"##
    );
    let increment = r##"wasi:keyvalue/atomics increment(bucket: #0, key: "k", delta: 1) → Ok(1)"##;
    assert!(calls.iter().any(|call| call == increment), "{calls:#?}");
}

#[test]
fn trace_shows_denied_wasi_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("menu"), "soup").expect("written");
    let read = ["--trace", "--allow-read", &folder.path().to_string_lossy()];
    let rows = [
        (
            "capable",
            "read /menu",
            &read[..],
            r#"wasi:filesystem/types descriptor.open-at("menu") → Ok(#"#,
        ),
        (
            "capable",
            "remove /menu",
            &read[..],
            r#"wasi:filesystem/types descriptor.unlink-file-at("menu") → Err(ErrorCode"#,
        ),
        (
            "verdicts",
            "connect:127.0.0.1:9",
            &read[..1],
            "wasi:sockets/tcp-create-socket create-tcp-socket() → Err(ErrorCode",
        ),
        (
            "async-command",
            "resolve:localhost",
            &read[..1],
            "wasi:sockets/ip-name-lookup resolve-addresses(localhost) → Err(",
        ),
    ];
    for (name, body, more, call) in rows {
        let told = invoke(name, &[&[body], more].concat());
        assert!(told.stderr.contains(call), "{call} in {told:?}");
    }
}

#[test]
fn traced_calls_are_truncated_and_include_sends_and_clocks() {
    let body = "x".repeat(1_000);
    let send =
        json!({"do": "send", "queue": "local:out", "value": body, "delay_ms": 0, "waits": true});
    let grants = ["--allow-send", "local:out", "--allow-lambda", "none"];
    let calls = trace("granted-sends", &send, &grants);
    let clock = calls[0].split('{').next();
    assert_eq!(clock, Some("wasi:clocks/wall-clock now() → Datetime "));
    let sent = calls.last().expect("a call");
    let start = r#"dispatcher:plugin/queues-async send(queue: "local:out", message: Outgoing {"#;
    assert!(sent.starts_with(start), "{sent}");
    let (_, end) = sent.split_once("xxx…) → ").expect("it is cut");
    assert!(end.starts_with("Ok(\"local:out/"), "{sent}");
}

#[test]
fn trace_is_json_with_json_logs_and_marks_unanswered_calls() {
    let more = ["--trace", "--log-format", "json", "--timeout", "50ms"];
    let told = invoke("verdicts", &[&["sleep:3600000"], &more[..]].concat());
    let calls = told.stderr.lines().filter(|line| line.starts_with('{'));
    let calls: Vec<Value> = calls
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|line: &Value| line["target"] == "call")
        .collect();
    let last = calls.last().expect("a call");
    assert_eq!(
        (&last["interface"], &last["function"], &last["result"]),
        (
            &"wasi:io/poll".into(),
            &"pollable.block".into(),
            &Value::Null
        )
    );
    assert_eq!(told.code, 1);
}

#[test]
fn recorded_message_is_invoked_by_position_or_id() {
    let recorded = replay::record();
    let (file, _) = recorded.file();
    let of = |more: &[&str]| {
        let arguments = [&["--recorded", file.as_str()], more].concat();
        invoke("order-check", &arguments)
    };
    // Finding 29: what `replay` takes.
    let folder = invoke(
        "order-check",
        &["--recorded", &recorded.path(), "--nth", "2"],
    );
    assert_eq!(folder.stdout, of(&["--nth", "2"]).stdout, "{folder:?}");
    let empty = tempfile::tempdir().expect("a folder");
    let empty = empty.path().display().to_string();
    let none = invoke("order-check", &["--recorded", &empty]);
    assert!(none.stderr.contains("--nth: 1; wanted 1 to 0"), "{none:?}");
    assert_eq!(of(&[]).stdout, "done\n");
    let rejected = "reject: `amount`: wanted more than nothing\n";
    assert_eq!(of(&["--nth", "2"]).stdout, rejected);
    assert_eq!(of(&["--id", &recorded.ids[1]]).stdout, rejected);
    for (wrong, said) in [
        (["--nth", "3"], "--nth: 3; wanted 1 to 2"),
        (["--nth", "0"], "--nth: 0; wanted 1 to 2"),
        (["--id", "none"], "it does not contain `none`"),
    ] {
        let ended = of(&wrong);
        assert_eq!(ended.code, 2);
        assert!(ended.stderr.contains(said), "{ended:?}");
    }
}

#[test]
fn finding_29_control_characters_are_escaped_in_output() {
    let why = "\u{1b}[2J\u{9b}31m\r\u{202e}\u{7f}end";
    let body = format!("reject:{why}");
    let steers = |letter: char| {
        letter.is_control() && letter != '\n' || ('\u{202a}'..='\u{202e}').contains(&letter)
    };
    let told = invoke("verdicts", &[&body]);
    assert!(told.stdout.ends_with("end\n"), "{told:?}");
    assert_eq!(told.stdout.find(steers), None, "{told:?}");
    let told = invoke("verdicts", &[&body, "--json"]);
    assert_eq!(told.stdout.find(steers), None, "{told:?}");
    let answer: Value = serde_json::from_str(&told.stdout).expect("JSON");
    assert_eq!(answer["why"].as_str(), Some(why));

    // A recording names what it likes.
    let folder = tempfile::tempdir().expect("a folder");
    let entry = json!({
        "at": 0, "plugin": "p", "version": "v", "took_us": 1,
        "message": {"id": format!("7{why}"), "queue": why, "body": body},
        "answer": {"verdict": "reject", "why": why},
    });
    let trapped = json!({
        "at": 0, "plugin": "p", "version": "v", "took_us": 1,
        "message": {"id": format!("8{why}"), "queue": why, "body": "trap"},
        "answer": {"verdict": "reject", "why": why},
    });
    let file = folder.path().join("made.recording.jsonl");
    std::fs::write(file, format!("{entry}\n{trapped}\n")).expect("it is ours");
    let (guest, path) = (guest("verdicts"), folder.path().display().to_string());
    for more in [&[][..], &["--json"]] {
        let replay = ["plugin", "replay", &guest, &path];
        let told = Program::new(replay.iter().chain(more)).run();
        assert_eq!(told.code, 1, "one of them traps: {told:?}");
        assert!(told.stdout.contains('8'), "{told:?}");
        assert_eq!(told.stdout.find(steers), None, "{told:?}");
        assert_eq!(told.stderr.find(steers), None, "{told:?}");
    }
}
