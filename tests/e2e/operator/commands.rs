//! The small commands.

use crate::scene::{depth, guest};
use dispatcher_tests::child::{ExitedProgram, Program};
use serde_json::Value;
use std::sync::Arc;

fn call(data: &Arc<tempfile::TempDir>, arguments: &[&str]) -> ExitedProgram {
    let ended = Program::new(arguments).sharing(data).run();
    assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
    ended
}

fn folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

#[tokio::test]
async fn send_reads_an_argument_a_file_or_standard_input() {
    let data = folder();
    call(&data, &["send", "local:q", "first"]);
    let file = data.path().join("body.txt");
    std::fs::write(&file, "second").expect("written");
    call(
        &data,
        &["send", "local:q", "--file", file.to_str().expect("UTF-8")],
    );
    let piped = Program::new(["send", "local:q", "-"])
        .sharing(&data)
        .stdin("third\nline")
        .run();
    assert_eq!(piped.code, 0, "{piped:?}");
    let peeked = call(&data, &["peek", "local:q", "-n", "5", "--json"]);
    let peeked: Value = serde_json::from_str(&peeked.stdout).expect("JSON");
    let bodies: Vec<&str> = peeked
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|m| m["body"].as_str())
        .collect();
    assert_eq!(bodies, ["first", "second", "third\nline"]);
}

#[tokio::test]
async fn delay_may_be_longer_than_sqs_allows() {
    let data = folder();
    let sent = call(&data, &["send", "local:q", "later", "--delay", "36h"]);
    assert_eq!(depth(data.path(), "q").await.delayed, 1);
    call(&data, &["cancel", "local:q", sent.stdout.trim()]);
    assert_eq!(depth(data.path(), "q").await.delayed, 0);
}

#[test]
fn cancel_prints_json_for_scripts() {
    let data = folder();
    let sent = call(&data, &["send", "local:q", "x"]);
    let id = sent.stdout.trim();
    let cancelled = call(&data, &["cancel", "local:q", id, "--json"]);
    let printed: Value = serde_json::from_str(&cancelled.stdout).expect("JSON");
    let wanted = serde_json::json!({"queue": "local:q", "task": id, "waiting": 1, "running": 0});
    assert_eq!(printed, wanted);
    let again = Program::new(["cancel", "local:q", id, "--json"]);
    let again = again.sharing(&data).run();
    assert_eq!((again.code, &*again.stdout), (1, ""), "{again:?}");
}

#[test]
fn a_move_of_a_queue_to_itself_is_refused_before_it_is_applied() {
    let data = folder();
    call(&data, &["send", "local:q", "x"]);
    for more in [&[][..], &["--apply"]] {
        let words = [&["move", "local:q", "local:q"], more].concat();
        let ended = Program::new(words).sharing(&data).run();
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.contains("to itself"), "{ended:?}");
    }
}

#[test]
fn queues_prints_a_table_for_people_and_json_for_scripts() {
    let data = folder();
    call(&data, &["send", "local:q", "x", "--count", "250"]);
    let table = call(&data, &["queues"]);
    assert!(
        table.stdout.contains("local:q") && table.stdout.contains("250"),
        "{table:?}"
    );
    let array = call(&data, &["queues", "local:q", "--json"]);
    let array: Value = serde_json::from_str(&array.stdout).expect("JSON");
    assert_eq!(array[0]["queue"], "local:q");
    assert_eq!(array[0]["waiting"], 250);
    assert_eq!(array[0]["in_flight"], 0);
    assert_eq!(array[0]["delayed"], 0);
    assert!(array[0]["oldest_s"].is_number());
}

#[test]
fn inspecting_creates_no_queue_and_lists_the_existing_ones() {
    let data = folder();
    call(&data, &["send", "local:orders", "x"]);
    for arguments in [["queues", "local:ordres"], ["peek", "local:ordres"]] {
        let ended = Program::new(arguments).sharing(&data).run();
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(
            ended.stderr.contains("did you mean `local:orders`?"),
            "{ended:?}"
        );
    }
    assert!(!call(&data, &["queues"]).stdout.contains("ordres"));
    call(&data, &["peek", "local:orders.dead"]);
}

#[test]
fn body_that_is_not_text_is_refused() {
    let data = folder();
    let file = data.path().join("bytes");
    std::fs::write(&file, [0xff, 0xfe]).expect("written");
    let ended = Program::new(["send", "local:q", "--file", file.to_str().expect("UTF-8")]).run();
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("UTF-8"), "{ended:?}");
}

#[test]
fn check_succeeds_or_lists_every_problem() {
    let data = folder();
    let file = data.path().join("dispatcher.toml");
    let text = format!(
        "[plugin.p]\nfile = \"{}\"\n\n[[route]]\nqueues = [\"local:q\"]\nplugin = \"p\"\n",
        guest("hello")
    );
    std::fs::write(&file, &text).expect("written");
    call(&data, &["check", "--config", file.to_str().expect("UTF-8")]);
    let wrong = text
        .replace("local:q", "local:q:0")
        .replace("hello", "nosuch");
    std::fs::write(&file, wrong).expect("written");
    let checked = Program::new(["check", "--config", file.to_str().expect("UTF-8")]).run();
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(
        checked.stderr.contains("`0` is not a weight") && checked.stderr.contains("nosuch"),
        "{checked:?}"
    );
}

#[test]
fn relative_data_folder_and_dead_letter_queue_are_accepted() {
    let plugin = guest("hello");
    let queues = "local:default.dead";
    call(
        &folder(),
        &[
            "check", "--data", "here", "--queues", queues, "--plugin", &plugin,
        ],
    );
}

#[test]
fn plugin_check_describes_a_component() {
    let shown = call(&folder(), &["plugin", "check", &guest("hello")]).stdout;
    assert!(
        shown.contains("exports dispatcher:plugin/handler@0.1.0"),
        "{shown}"
    );
}

#[test]
fn every_command_has_help_and_completions() {
    let data = folder();
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            call(&data, &["completions", shell])
                .stdout
                .contains("dispatcher")
        );
    }
    for command in ["run", "send", "queues", "peek", "check", "plugin"] {
        let help = call(&data, &[command, "--help"]).stdout;
        assert!(help.contains("Usage"), "{help}");
    }
    assert!(call(&data, &["--help"]).stdout.contains("Exit codes"));
}
