//! What an upgrade promises (host/docs/upgrade.md): the kept data folder and configuration are taken, data
//! of a later version is refused by name and left as it is.

use crate::scene::{guest, printed};
use dispatcher_tests::child::{ExitedProgram, Program, Signal};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A folder of `tests/released`.
fn kept(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("released")
        .join(path)
}

/// The format of `local.db` in the kept data folder.
const FORMAT: &str = "4";

/// A copy of the data folder that is kept.
fn data_folder() -> Arc<tempfile::TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(kept("data").join(FORMAT)).expect("the data") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("copied");
    }
    Arc::new(folder)
}

/// What SQLite says of a file, or does to it.
fn sql(file: &Path, statement: &str) -> String {
    let script = "import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as file: print(*(file.execute(sys.argv[2]).fetchone() or ()))";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(file)
        .arg(statement)
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The format of each database file of a folder.
fn formats(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let files = files.filter(|file| file.extension().is_some_and(|kind| kind == "db"));
    files
        .map(|file| {
            let name = file.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), sql(&file, "PRAGMA user_version"))
        })
        .collect()
}

fn call(folder: &Arc<tempfile::TempDir>, arguments: &[&str]) -> ExitedProgram {
    Program::new(arguments).sharing(folder).run()
}

/// Everything that opens a file of the data folder.
fn all_files_used(folder: &Arc<tempfile::TempDir>) -> ExitedProgram {
    let plugin = guest("hello");
    let flags = ["--queues", "local:orders", "--store", "a=local:kept"];
    let run = ["check", "--plugin", &plugin, "--idempotency", "1h"];
    call(folder, &[&run[..], &flags].concat())
}

/// The formats that this version writes.
fn current_formats() -> BTreeMap<String, String> {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let scheduled = [
        "schedule",
        "add",
        "local:orders",
        "--cron",
        "@yearly",
        "--body",
        "x",
    ];
    assert_eq!(call(&folder, &scheduled).code, 0);
    let ended = all_files_used(&folder);
    assert_eq!(ended.code, 0, "{ended:?}");
    formats(folder.path())
}

#[test]
fn messages_of_a_kept_data_folder_are_handled() {
    let folder = data_folder();
    let before = formats(folder.path());
    let plugin = guest("hello");
    let queues = "local:orders,local:orders.dead";
    let run = [
        "run",
        "--log-format",
        "json",
        "--plugin",
        &plugin,
        "--queues",
        queues,
    ];
    let mut running = Program::new(run).sharing(&folder).start();
    let bodies = ["plain of", "first of", "second of", "dead of"];
    for body in bodies {
        let wanted = format!("{body} version {FORMAT}");
        running.wait_for_line(|line| printed(line) && line.contains(&wanted));
    }
    let order = running.lines(|line| printed(line) && line.contains(" of version"));
    let place = |body: &str| order.iter().position(|line| line.contains(body));
    assert!(place("first of") < place("second of"), "{order:?}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    for used in [
        all_files_used(&folder),
        call(&folder, &["schedule", "list", "local:orders"]),
    ] {
        assert_eq!(used.code, 0, "{used:?}");
    }
    let current = current_formats();
    for (file, format) in formats(folder.path()) {
        if file.starts_with("fleet-") {
            continue; // only a run opens it
        }
        assert_eq!(current.get(&file), Some(&format), "{file}, from {before:?}");
    }
}

#[test]
fn scheduled_messages_and_buckets_of_a_kept_data_folder_are_there() {
    let folder = data_folder();
    let scheduled = call(&folder, &["schedule", "list", "local:orders"]);
    assert_eq!(scheduled.code, 0, "{scheduled:?}");
    assert!(
        scheduled.stdout.contains("0 3 29 2 *"),
        "{}",
        scheduled.stdout
    );
    let plugin = guest("capable");
    let flags = ["--queues", "local:kv", "--store", "a=local:kept"];
    let run = ["run", "--log-format", "json", "--plugin", &plugin];
    let mut running = Program::new([&run[..], &flags].concat())
        .sharing(&folder)
        .start();
    assert_eq!(call(&folder, &["send", "local:kv", "get a colour"]).code, 0);
    running.wait_for_line(|line| line.contains("got blue"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[test]
fn data_of_a_later_version_is_refused_and_left_as_it_is() {
    let current = current_formats();
    assert_eq!(current.len(), 4, "{current:?}");
    for file in current.keys() {
        let folder = data_folder();
        // As this version writes it, and then one further.
        assert_eq!(all_files_used(&folder).code, 0);
        let listed = call(&folder, &["schedule", "list", "local:orders"]);
        assert_eq!(listed.code, 0, "{listed:?}");
        let path = folder.path().join(file);
        sql(&path, "PRAGMA user_version = 99");
        let bytes = fs::read(&path).expect("readable");
        let refused = if file == "schedule.db" {
            call(&folder, &["schedule", "list", "local:orders"])
        } else {
            all_files_used(&folder)
        };
        assert_eq!(refused.code, 2, "{file}: {refused:?}");
        let wanted = "written by a newer dispatcher (format 99; this one reads up to ";
        assert!(
            refused.stderr.contains(wanted),
            "{file}: {}",
            refused.stderr
        );
        assert!(
            bytes == fs::read(&path).expect("readable"),
            "{file} was changed"
        );
    }
}

#[test]
fn page_lists_the_formats_that_this_version_writes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("host/docs/upgrade.md")).expect("the page");
    for (file, format) in current_formats() {
        let row = format!("| `{file}` | {format} |");
        assert!(page.contains(&row), "no row {row}");
    }
}

#[test]
fn kept_configurations_are_accepted() {
    let mut tried = 0;
    for entry in fs::read_dir(kept("config")).expect("the configurations") {
        let path = entry.expect("an entry").path();
        let file = path.to_str().expect("UTF-8");
        let ended = Program::new(["doctor", "--iam", "--config", file]).run();
        assert_eq!(ended.code, 0, "{file}: {ended:?}");
        let unknown = ended.stderr.contains("unknown") && ended.stderr.contains("key");
        assert!(!unknown, "{file}: {}", ended.stderr);
        tried += 1;
    }
    assert!(tried >= 1, "the configurations were not found");
}
