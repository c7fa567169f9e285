//! What happens to a plugin is said so that a person can act on it: where it was, by the names of its
//! functions, its last output, which message it was, which limit it hit and what sets that.

use crate::scene::{field, guest, run, send};
use dispatcher_tests::child::{ExitedProgram, Program, RunningProgram, Signal};
use serde_json::Value;

/// What a guest does, and what a person reads of it.
const MISDEEDS: [(&str, &[&str]); 7] = [
    (
        "panic:no price",
        &[
            "the plugin trapped: wasm `unreachable` instruction executed",
            "0: verdicts::obey\n    1: dispatcher:plugin/handler@0.1.0#handle",
            "its last output:\n    stderr: thread ",
            "stderr: no price\n",
        ],
    ),
    ("trap", &["the plugin trapped", "0: verdicts::obey\n"]),
    (
        "loop",
        &[
            "stopped after 300ms, the limit that --timeout sets",
            "0: verdicts::obey\n",
        ],
    ),
    (
        "sleep:3600000",
        &[
            "stopped after 300ms, the limit that --timeout sets",
            "it was waiting for a call to the host",
        ],
    ),
    (
        "eat",
        &[
            "exceeded 16777216 bytes of memory, the limit that --max-memory sets",
            ": verdicts::harm::eat\n",
            "stderr: memory allocation of 1048576 bytes failed",
        ],
    ),
    (
        "recurse",
        &[
            "call stack exhausted in verdicts::harm::dig × 64 (512 KiB, which no option changes)",
            "0: verdicts::harm::dig × ",
        ],
    ),
    (
        "exit:3",
        &[
            "the handler called exit(1) instead of returning",
            ": verdicts::obey\n",
        ],
    ),
];

const LIMITS: [&str; 4] = ["--timeout", "300ms", "--max-memory", "16MiB"];

fn invoke(name: &str, body: &str, more: &[&str]) -> ExitedProgram {
    let guest = guest(name);
    let arguments = ["plugin", "invoke", &guest, body];
    Program::new(arguments.iter().chain(&LIMITS).chain(more)).run()
}

#[test]
fn invoke_shows_the_stack_and_the_last_output_of_a_plugin() {
    for (body, said) in MISDEEDS {
        let ended = invoke("verdicts", body, &["--log-level", "error"]);
        assert_eq!(ended.code, 1, "{body}: {ended:?}");
        for part in said.iter().chain(&["\n  message 0", ", queue invoke\n"]) {
            assert!(ended.stderr.contains(part), "{body}, {part}: {ended:?}");
        }
    }
}

#[test]
fn regular_verdict_has_no_trace() {
    for body in ["done", "retry", "reject:no", "error:odd"] {
        let ended = invoke("verdicts", body, &[]);
        assert_eq!(ended.code, 0, "{body}: {ended:?}");
        assert!(!ended.stderr.contains("queue invoke"), "{ended:?}");
    }
}

#[test]
fn functions_without_names_are_numbered() {
    let ended = invoke("batch-verdicts", "panic", &["--log-level", "error"]);
    assert!(ended.stderr.contains("\n    0: function "), "{ended:?}");
}

#[test]
fn stack_trace_is_available_as_json() {
    let ended = invoke("verdicts", "panic:no price", &["--json"]);
    let told: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(told["cause"], "trapped");
    assert_eq!(told["trace"][0], "verdicts::obey");
    assert_eq!(told["printed"][1], "stderr: no price");
}

#[test]
fn failed_program_is_reported_with_its_output() {
    let ended = invoke(
        "command",
        "fail:the till is shut",
        &["--log-level", "error"],
    );
    let last = "its last output:\n    stderr: Error: Custom { kind: Other, error: \"the till";
    assert!(ended.stderr.contains(last), "{ended:?}");
}

/// The line of a run that says where an attempt broke off.
fn line(running: &RunningProgram, why: &str) -> String {
    running.wait_for_line(|line| {
        line.contains("\"target\":\"dispatcher_wasm::scene\"") && field(line, "why").contains(why)
    })
}

#[tokio::test]
async fn log_has_one_line_with_the_whole_trap_in_fields() {
    let mut running = run("verdicts", &LIMITS).start();
    let bodies = ["panic:no price", "loop", "eat", "sleep:3600000"];
    send(running.data().path(), "default", bodies.map(str::to_owned)).await;
    let trapped = line(&running, "the plugin trapped");
    assert_eq!(
        field(&trapped, "trace"),
        "verdicts::obey ← dispatcher:plugin/handler@0.1.0#handle"
    );
    assert!(
        field(&trapped, "printed").contains(" | stderr: no price | "),
        "{trapped}"
    );
    assert_eq!(field(&trapped, "queue"), "local:default");
    assert_eq!(field(&trapped, "plugin"), "verdicts");
    assert_eq!(field(&trapped, "level"), "WARN");
    // The line of the settlement has the same id. No other has what the guest printed of its panic.
    let id = field(&trapped, "message_id");
    running.wait_for_line(|line| line.contains("\"target\":\"message\"") && line.contains(&id));
    let printed = running.lines(|line| line.contains("\"target\":\"guest\""));
    let of_panic = printed.iter().find(|line| line.contains("no price"));
    assert_eq!(of_panic, None);
    let eaten = line(&running, "--max-memory");
    assert!(
        field(&eaten, "trace").contains("verdicts::harm::eat ← verdicts::obey"),
        "{eaten}"
    );
    let stopped = running.wait_for_lines(2, |line| {
        line.contains("dispatcher_wasm::scene") && line.contains("--timeout")
    });
    let waited = |line: &&String| field(line, "waited") == "true";
    let waiting = stopped.iter().find(waited).expect("one waited");
    assert_eq!(field(waiting, "trace"), "null");
    let computing = stopped.iter().find(|line| !waited(line));
    let computing = computing.expect("one computed");
    assert!(
        field(computing, "trace").starts_with("verdicts::obey"),
        "{computing}"
    );
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}
