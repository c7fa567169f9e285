//! Messages that `run --record` kept, what it leaves alone, and that they can be run again by
//! `plugin replay`: alike, otherwise, one of them, and with a debugger.

use crate::scene::{guest, printed, run};
use dispatcher_tests::child::{ExitedProgram, Program, RunningProgram, Signal};
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// An order that is taken, and one that is not.
const ORDERS: [&str; 2] = [
    r#"{"id":"o-1","amount":250,"customer":{"email":"jo@example.org"}}"#,
    r#"{"id":"o-2","amount":0,"customer":{"email":"jo@example.org"}}"#,
];

/// What a run of the orders left behind.
pub(crate) struct RecordedRun {
    pub(crate) folder: tempfile::TempDir,
    /// The ids of the messages.
    pub(crate) ids: Vec<String>,
}

impl RecordedRun {
    /// The folder that was recorded to.
    pub(crate) fn path(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// The only file in it, and what it says.
    pub(crate) fn file(&self) -> (String, String) {
        let mut files = std::fs::read_dir(&self.folder).expect("a folder");
        let file = files.next().expect("a recording").expect("an entry").path();
        assert!(files.next().is_none(), "one run writes one file");
        let text = std::fs::read_to_string(&file).expect("a text");
        (file.display().to_string(), text)
    }
}

/// Records what `order-check` does with both orders, without what is secret.
pub(crate) fn record() -> RecordedRun {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    let more = [
        "--record",
        &path,
        "--record-redact",
        "/customer/email",
        "--record-redact",
        "attribute:token",
    ];
    let mut running = run("order-check", &more).start();
    // One after the other: a queue promises no order.
    let mut ids = Vec::new();
    for (body, said) in ORDERS.iter().zip(["order o-1: 250 cents", "dead-lettered"]) {
        let arguments = ["send", "local:default", body, "--attribute", "token=s3cret"];
        let sent = Program::new(arguments).sharing(running.data()).run();
        ids.push(sent.stdout.trim().to_owned());
        running.wait_for_line(|line| line.contains(said));
    }
    // All is written once it has ended.
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    RecordedRun { folder, ids }
}

fn replay(name: &str, recorded: &RecordedRun, more: &[&str]) -> ExitedProgram {
    let (guest, path) = (guest(name), recorded.path());
    let arguments = ["plugin", "replay", &guest, &path];
    Program::new(arguments.iter().chain(more)).run()
}

#[test]
fn same_component_answers_recordings_alike() {
    let recorded = record();
    let (file, text) = recorded.file();
    assert!(file.ends_with(".recording.jsonl"), "{file}");
    assert!(text.contains("o-1") && text.contains("token"), "{text}");
    assert!(
        !text.contains("jo@example.org") && !text.contains("s3cret"),
        "{text}"
    );
    assert!(!text.contains("wanted more"), "the guest's words: {text}");
    let replayed = replay("order-check", &recorded, &[]);
    assert_eq!(
        (replayed.code, replayed.stdout.as_str()),
        (0, "2 answers equal, 0 different\n"),
        "{replayed:?}"
    );
}

#[test]
fn different_answers_are_shown_and_set_the_exit_code() {
    let recorded = record();
    let rejected = &recorded.ids[1];
    let replayed = replay("hello", &recorded, &[]);
    assert_eq!(
        (replayed.code, replayed.stdout),
        (
            1,
            format!(
                "{rejected}\n  was: reject: [redacted]\n  is:  done\n\
                 1 answers equal, 1 different\n"
            )
        )
    );
    // One that is alike is enough where only that is asked for.
    let taken = ["--only", recorded.ids[0].as_str()];
    let replayed = replay("hello", &recorded, &taken);
    assert_eq!(
        (replayed.code, replayed.stdout.as_str()),
        (0, "1 answers equal, 0 different\n")
    );
    let replayed = replay("hello", &recorded, &["--only", "another"]);
    assert_eq!(replayed.code, 2);
    assert!(replayed.stderr.contains("nothing to run"), "{replayed:?}");
}

#[test]
fn replay_result_is_available_as_json() {
    let recorded = record();
    let replayed = replay("hello", &recorded, &["--json"]);
    let lines = replayed.stdout.lines();
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| (&line["id"], &line["alike"], &line["was"]["verdict"]))
        .collect();
    let (ids, wanted) = (&recorded.ids, ["done", "reject"].map(Value::from));
    assert_eq!(
        told,
        [
            (&ids[0].clone().into(), &true.into(), &wanted[0]),
            (&ids[1].clone().into(), &false.into(), &wanted[1]),
        ]
    );
    assert_eq!(lines[1]["is"]["verdict"], "done");
}

#[test]
fn check_leaves_the_recording_folder_unchanged_and_reports_an_unusable_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = folder.path().join("old.recording.jsonl");
    std::fs::write(&old, vec![b' '; 3 << 20]).expect("written");
    let new = folder.path().join("new/er").display().to_string();
    let (guest, here) = (guest("hello"), folder.path().display().to_string());
    let check = |place: &str| {
        let arguments = ["check", "--plugin", &guest, "--record", place];
        let bound = ["--record-most", "1MiB"];
        Program::new(arguments.iter().chain(&bound)).run()
    };
    for place in [&here, &new] {
        let checked = check(place);
        assert_eq!(checked.code, 0, "{checked:?}");
    }
    let left = std::fs::read_dir(&folder).expect("a folder");
    let left: Vec<_> = left.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(left, [old.as_path()]);
    let refused = check(&old.display().to_string());
    assert_eq!(refused.code, 2, "{refused:?}");
    let stderr = &refused.stderr;
    assert!(
        stderr.contains("old.recording.jsonl: not a directory"),
        "{stderr}"
    );
}

#[test]
fn heavy_recorder_deletes_no_file_of_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    let more = ["--record", &path, "--record-most", "1MiB"];
    let start = || run("verdicts", &more).start();
    let (mut quiet, mut loud) = (start(), start());
    let handle = |running: &RunningProgram, word: &str, handled: usize| {
        let body = format!("print:{word}");
        let send = Program::new(["send", "local:default", &body]);
        assert_eq!(send.sharing(running.data()).run().code, 0);
        running.wait_for_lines(handled, printed);
    };
    handle(&quiet, "first", 1);
    // Its file is the oldest from here on.
    let large = "x".repeat(100_000);
    for handled in 1..=20 {
        handle(&loud, &large, handled);
    }
    handle(&quiet, "second", 2);
    for running in [&mut quiet, &mut loud] {
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
    }
    let files = std::fs::read_dir(&folder).expect("a folder");
    let texts: Vec<String> = files
        .map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).expect("a text"))
        .collect();
    assert!(texts.iter().map(String::len).sum::<usize>() <= 1 << 20);
    assert!(
        texts
            .iter()
            .any(|text| text.contains("print:first") && text.contains("print:second"))
    );
}

#[test]
fn interrupted_replay_names_its_position() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("made.recording.jsonl");
    std::fs::write(&file, entry("m-1", "panic:no price")).expect("written");
    let recorded = RecordedRun {
        folder,
        ids: Vec::new(),
    };
    let replayed = replay("verdicts", &recorded, &[]);
    assert_eq!(replayed.code, 1);
    assert!(
        replayed
            .stdout
            .contains("  was: done\n  is:  retry: the plugin trapped"),
        "{replayed:?}"
    );
    for part in ["message m-1", "verdicts::obey", "stderr: no price"] {
        assert!(replayed.stderr.contains(part), "{part}: {replayed:?}");
    }
}

/// A recorded message that was done.
fn entry(id: &str, body: &str) -> String {
    let entry = serde_json::json!({
        "at": 0, "plugin": "verdicts", "version": "1", "took_us": 1,
        "message": {"id": id, "queue": "local:default", "body": body, "receive_count": 1},
        "answer": {"verdict": "done"},
    });
    format!("{entry}\n")
}

#[test]
fn debug_waits_for_enter_before_the_first_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("made.recording.jsonl");
    std::fs::write(&file, entry("m-1", "print:under way")).expect("written");
    let (guest, path) = (guest("verdicts"), folder.path().display().to_string());
    let (input, mut enter) = std::io::pipe().expect("a pipe");
    let program = Program::new(["plugin", "replay", &guest, &path, "--debug"]);
    let mut running = program.start_reading(input);
    let attach = format!("gdb {} {}", program_file(), running.id());
    running.wait_for_line(|line| line.contains("press Enter"));
    running.wait_for_line(|line| line.trim() == attach);
    assert!(running.lines(|line| line.contains("under way")).is_empty());
    enter.write_all(b"\n").expect("it listens");
    assert_eq!(running.wait_exit(), 0);
    running.wait_for_line(|line| line.contains("under way"));
    running.wait_for_line(|line| line.contains("1 answers equal"));
}

fn program_file() -> String {
    let file = dispatcher_tests::child::binary();
    let file = Path::new(&file).canonicalize().expect("it is there");
    file.display().to_string()
}
