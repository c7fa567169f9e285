//! The child process itself: its output is kept, its end and its code are told.

use super::*;
use std::time::Duration;

fn shell(script: &str) -> Program {
    Program::of("/bin/sh", ["-c", script])
}

#[test]
fn streams_input_and_exit_code_are_separate() {
    let program = shell("read line; echo got $line; echo $KEY >&2; exit 3");
    let ended = program.stdin("word\n").env("KEY", "value").run();
    assert_eq!(ended.code, 3);
    assert_eq!((&*ended.stdout, &*ended.stderr), ("got word\n", "value\n"));
}

#[test]
fn signal_reaches_the_program() {
    let mut running = shell("echo up; exec sleep 1000").start();
    assert_eq!(running.wait_for_line(|line| line.contains("up")), "up");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 143);
}

#[test]
#[should_panic(expected = "no such line")]
fn missing_line_is_reported_with_the_output() {
    shell("echo something else")
        .start()
        .wait_for_line(|line| line.contains("up"));
}

#[test]
fn program_older_than_a_source_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let hour = Duration::from_secs(3_600);
    let now = std::time::SystemTime::now();
    for (name, modified) in [
        ("older.rs", now - hour),
        ("program", now),
        ("a newer.rs", now + hour),
    ] {
        let file = fs::File::create(at(name)).expect("a new file");
        file.set_modified(modified).expect("it is ours");
    }
    let escaped = |name| at(name).display().to_string().replace(' ', "\\ ");
    let listed = |name| {
        format!(
            "{}: {} {}\n",
            escaped("program"),
            escaped("older.rs"),
            escaped(name)
        )
    };
    let newer = |name| newer_source(&at("program"), &listed(name)).expect("the program is there");
    assert_eq!(newer("older.rs"), None);
    assert_eq!(newer("a newer.rs"), Some(at("a newer.rs")));
    assert!(newer_source(&at("nothing"), "").is_err());
}
