//! The files of the data folder: what happens when somebody else deletes, replaces, cuts, locks or
//! reads them, and how much of the disk they take.

use crate::lambda::scene::admin;
use crate::scene::{depth, guest, printed, run, send, until_depth};
use dispatcher_tests::child::{ExitedProgram, Program, RunningProgram, Signal, Stream, binary};
use dispatcher_tests::holder::Holder;
use dispatcher_tests::http::{self, HttpAnswer};
use dispatcher_tests::limited::may_mount;
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::skip::skip;
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOST: &str = "database file lost";

/// What an SDK posts.
fn call(local: &LocalServer, action: &str, body: &str) -> HttpAnswer {
    let target = format!("AmazonSQS.{action}");
    let headers = [
        ("content-type", "application/x-amz-json-1.0"),
        ("x-amz-target", target.as_str()),
    ];
    http::post(local.url(), &headers, body)
}

fn send_to(local: &LocalServer, body: &str) -> HttpAnswer {
    let url = format!("{}/000000000000/q", local.url());
    let request = serde_json::json!({ "QueueUrl": url, "MessageBody": body });
    call(local, "SendMessage", &request.to_string())
}

/// A server with a queue that holds one message. A limit of the file size that it exceeds is a
/// failure of the write, as on a full disk, and does not end it.
fn served() -> LocalServer {
    let program = binary().display().to_string();
    let script = "trap '' XFSZ; exec \"$0\" local --listen 127.0.0.1:0 --log-format json";
    let local = LocalServer::of(Program::of("/bin/sh", ["-c", script, &program]));
    let made = call(&local, "CreateQueue", "{\"QueueName\":\"q\"}");
    assert_eq!(made.status, 200, "{made:?}");
    let sent = send_to(&local, "first");
    assert_eq!(sent.status, 200, "{sent:?}");
    local
}

/// What somebody does to a file.
type Harm = fn(&Path);

fn delete(path: &Path) {
    fs::remove_file(path).expect("it is there");
}

/// Another file of the same content.
fn replace(path: &Path) {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).expect("copied");
    fs::rename(&copy, path).expect("renamed");
}

fn empty(path: &Path) {
    let file = File::options().write(true).open(path).expect("it is there");
    file.set_len(0).expect("cut");
}

fn overwrite(path: &Path) {
    fs::write(path, [0x5a; 4_096]).expect("written");
}

#[test]
fn finding_07_no_send_is_acknowledged_into_a_deleted_file() {
    let ways: [(&str, &str, Harm); 7] = [
        ("deleted", "local.db", delete),
        ("replaced", "local.db", replace),
        ("truncated", "local.db", empty),
        ("deleted", "local.db-wal", delete),
        ("replaced", "local.db-wal", replace),
        ("overwritten", "local.db-wal", overwrite),
        ("deleted", "local.db-shm", delete),
    ];
    for (what, file, harm) in ways {
        let mut local = served();
        harm(&local.data().path().join(file));
        let refused = send_to(&local, "second");
        let named = refused.body.contains(file) && refused.body.contains(what);
        assert!(
            refused.status >= 500 && named,
            "{file} was {what}: {refused:?}"
        );
        // As long as it runs: nothing is opened anew behind anybody's back.
        assert!(send_to(&local, "third").status >= 500, "{file} was {what}");
        let said = |line: &str| line.contains(LOST);
        let line = local.process().wait_for_line(said);
        assert!(line.contains(file) && line.contains(what), "{line}");
        local.process().signal(Signal::TERM);
        assert_eq!(local.process().wait_exit(), 0);
        assert_eq!(local.process().lines(said).len(), 1, "one line");
    }
}

#[test]
fn finding_07_idle_process_also_notices_a_deleted_file() {
    for (file, harm) in [
        ("local.db", delete as Harm),
        ("local.db", empty),
        ("local.db-wal", overwrite),
        ("idempotency.db", delete),
        ("keyvalue.db", replace),
    ] {
        let more = [
            "--admin",
            "127.0.0.1:0",
            "--idempotency",
            "1h",
            "--store",
            "s=local:b",
        ];
        let mut running = run("verdicts", &more).start();
        let ready = format!("{}/readyz", admin(&running));
        http::wait_for_status(&ready, 200);
        harm(&running.data().path().join(file));
        let line = running.wait_for_line(|line| line.contains(LOST));
        assert!(line.contains(file), "{line}");
        let answer = http::wait_for_status(&ready, 503);
        assert!(answer.body.contains(file), "{answer:?}");
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
    }
}

/// What is at the path afterwards belongs to whoever put it there.
#[tokio::test]
async fn finding_07_process_with_a_replaced_file_does_not_damage_the_new_one() {
    let mut running = run("verdicts", &["--queues", "local:other"]).start();
    let data = running.data().clone();
    until_started(&running);
    let aside = data.path().join("aside");
    fs::create_dir(&aside).expect("made");
    for name in ["local.db", "local.db-wal", "local.db-shm"] {
        fs::rename(data.path().join(name), aside.join(name)).expect("moved");
    }
    delete(&data.path().join("local.db-acknowledged"));
    running.wait_for_line(|line| line.contains(LOST));
    let second = LocalServer::sharing(&data);
    assert_eq!(
        call(&second, "CreateQueue", "{\"QueueName\":\"q\"}").status,
        200
    );
    for n in 0..20 {
        assert_eq!(send_to(&second, &n.to_string()).status, 200);
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(send_to(&second, "after").status, 200);
    let data = second.kill();
    assert_eq!(depth(data.path(), "q").await.waiting, 21);
}

fn until_started(running: &RunningProgram) {
    running.wait_for_line(|line| line.contains("\"running\""));
}

/// Runs the program in this folder.
fn command(data: &Arc<tempfile::TempDir>, arguments: &[&str]) -> ExitedProgram {
    Program::new(arguments).sharing(data).run()
}

#[test]
fn finding_07_data_after_a_crash_is_opened_whole_or_refused() {
    let ways: [(&str, Harm); 5] = [
        ("local.db-wal", overwrite),
        ("local.db", empty),
        ("local.db", delete),
        ("local.db-wal", |path| {
            let length = fs::metadata(path).expect("it is there").len();
            let mut bytes = vec![0x5a; usize::try_from(length).expect("a length")];
            let header = fs::read(path).expect("read");
            bytes[..32.min(header.len())].copy_from_slice(&header[..32.min(header.len())]);
            fs::write(path, bytes).expect("written");
        }),
        ("local.db-wal", delete),
    ];
    for (file, harm) in ways {
        let local = served();
        for n in 0..50 {
            assert_eq!(send_to(&local, &n.to_string()).status, 200);
        }
        let data = local.kill();
        harm(&data.path().join(file));
        let seen = command(&data, &["queues", "local:", "--json"]);
        let holds_all = seen.stdout.contains("\"waiting\":51");
        // An idle program has emptied its log: then there was nothing in it to lose.
        match seen.code {
            0 => assert!(holds_all, "{file}: {seen:?}"),
            2 => assert!(seen.stderr.contains("local.db"), "{file}: {seen:?}"),
            _ => panic!("{file}: {seen:?}"),
        }
        if file == "local.db" {
            assert_eq!(seen.code, 2, "{seen:?}");
        }
    }
}

#[test]
fn finding_15_foreign_lock_delays_a_send_and_ends_in_an_error() {
    let local = served();
    let data = local.data().clone();
    let holder = Holder::writing(&data.path().join("local.db"));
    let refused = send_to(&local, "x");
    assert!(
        refused.status >= 500 && refused.body.contains("local.db") && refused.body.contains("lock"),
        "{refused:?}"
    );
    drop(holder);
    assert_eq!(send_to(&local, "y").status, 200);

    // The file that is locked while the database is opened.
    let notifier = File::open(data.path().join("local.bell")).expect("it is there");
    notifier.lock().expect("a local file");
    let refused = command(&data, &["send", "local:q", "z"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("local.bell"), "{refused:?}");
    assert!(refused.stderr.contains("locked"), "{refused:?}");
    drop(notifier);
    assert_eq!(command(&data, &["send", "local:q", "z"]).code, 0);
}

#[test]
fn finding_07_locked_database_fails_readiness_until_unlocked() {
    let more = ["--admin", "127.0.0.1:0", "--visibility", "2"];
    let running = run("verdicts", &more).start();
    let data = running.data().clone();
    let ready = format!("{}/readyz", admin(&running));
    http::wait_for_status(&ready, 200);
    let sent = command(&data, &["send", "local:default", "print:before"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    running.wait_for_line(printed);
    // It works on this one when the lock comes, and cannot extend its lease.
    let sent = command(&data, &["send", "local:default", "sleep:20000"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    let holder = Holder::writing(&data.path().join("local.db"));
    let line = running.wait_for_line(|line| line.contains("database file locked"));
    assert!(line.contains("local.db"), "{line}");
    let answer = http::wait_for_status(&ready, 503);
    assert!(answer.body.contains("local.db"), "{answer:?}");
    drop(holder);
    http::wait_for_status(&ready, 200);
}

/// All that is in a folder, with its mode.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let entry = entry.expect("an entry");
        let metadata = entry.metadata().expect("it is there");
        if metadata.is_dir() {
            found.extend(modes(&entry.path()));
        }
        found.push((entry.path(), metadata.permissions().mode() & 0o777));
    }
    found
}

#[test]
fn finding_15_data_files_are_private_whatever_the_umask() {
    let plugin = guest("verdicts");
    let script = "umask 000; exec \"$0\" \"$@\"";
    let program = binary().display().to_string();
    let more = ["--idempotency", "1h", "--store", "s=local:b"];
    let words = ["-c", script, &program, "run", "--log-format", "json"];
    let words = words.into_iter().chain(["--plugin", &plugin]).chain(more);
    let mut running = Program::of("/bin/sh", words).compiling().start();
    let data = running.data().clone();
    fs::set_permissions(data.path(), Permissions::from_mode(0o755)).expect("it is ours");
    until_started(&running);
    let later = "schedule add local:default --in 1h --group g --body x";
    let later: Vec<&str> = later.split(' ').collect();
    for arguments in [&["send", "local:default", "print:1"][..], &later] {
        let ended = command(&data, arguments);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    running.wait_for_line(printed);
    let modes = modes(data.path());
    let names: Vec<_> = modes
        .iter()
        .filter_map(|(path, _)| path.file_name())
        .collect();
    for name in [
        "local.db-wal",
        "local.db-shm",
        "local.bell",
        "keyvalue.db",
        "schedule.db",
    ] {
        assert!(names.iter().any(|found| *found == name), "{names:?}");
    }
    for (path, mode) in modes {
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[test]
fn finding_15_open_permissions_of_earlier_versions_are_tightened_with_a_warning() {
    let data = Arc::new(tempfile::tempdir().expect("a folder"));
    assert_eq!(command(&data, &["send", "local:q", "x"]).code, 0);
    let open = |name: &str, mode| {
        let path = data.path().join(name);
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    };
    open("local.db", 0o644);
    open("local.bell", 0o666);
    open("", 0o777);
    let words = ["send", "local:q", "y", "--log-level", "info"];
    let sent = command(&data, &words);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(
        sent.stderr.matches("file permissions tightened").count(),
        2,
        "{sent:?}"
    );
    assert!(
        sent.stderr.contains("data folder writable by other users"),
        "{sent:?}"
    );
    for (path, mode) in modes(data.path()) {
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    open("", 0o700);
    let sent = command(&data, &words);
    assert!(
        sent.code == 0 && !sent.stderr.contains("folder"),
        "{sent:?}"
    );
}

/// Only root can act for two users.
#[test]
fn finding_15_data_folder_of_another_user_is_refused() {
    let program = binary().display().to_string();
    let user = ["--reuid", "65533", "--clear-groups", &program];
    let may = Command::new("setpriv").args(user).arg("--version").output();
    if !may.is_ok_and(|tried| tried.status.success()) {
        skip("a program of another user needs root and setpriv");
        return;
    }
    let data = Arc::new(tempfile::tempdir().expect("a folder"));
    std::os::unix::fs::chown(data.path(), Some(65_534), None).expect("this is root");
    let words = user.into_iter().chain(["send", "local:q", "x"]);
    let (mut refused, _) = Program::of("setpriv", words).sharing(&data).into_command();
    let refused = refused.current_dir("/").output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("belongs to user 65534"), "{said}");
}

/// Waits until a file is as long as wanted.
fn until_length(path: &Path, wanted: impl Fn(u64) -> bool) {
    let deadline = Instant::now() + dispatcher_tests::PATIENCE;
    loop {
        let length = fs::metadata(path).map_or(0, |file| file.len());
        if wanted(length) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{} has {length} bytes",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn finding_20_idle_program_leaves_an_empty_log_after_other_readers() {
    let mut local = served();
    let data = local.data().clone();
    let log = data.path().join("local.db-wal");
    until_length(&log, |length| length == 0);
    let reader = Holder::reading(&data.path().join("local.db"));
    let body = "x".repeat(200_000);
    for _ in 0..20 {
        assert_eq!(send_to(&local, &body).status, 200);
    }
    until_length(&log, |length| length > 4_000_000);
    drop(reader);
    until_length(&log, |length| length == 0);
    assert_eq!(send_to(&local, &body).status, 200);
    local.process().signal(Signal::TERM);
    assert_eq!(local.process().wait_exit(), 0);
    assert!(!log.exists(), "closed");
}

/// Far more goes through the queue than fits onto the disk, and more than the log holds by itself.
#[test]
fn finding_20_log_of_an_empty_queue_does_not_fill_a_small_disk() {
    if !may_mount() {
        return;
    }
    let body = format!("print:{}", "x".repeat(100_000));
    let plugin = guest("verdicts");
    let script = "mount -t tmpfs -o size=9m none \"$DISPATCHER_DATA\" && cd \"$DISPATCHER_DATA\" &&
        \"$0\" run --log-format json --plugin \"$2\" & running=$!
        read -r _
        for n in $(seq 300); do \"$0\" send local:default \"$1\" > /dev/null || echo refused >&2; done
        read -r _; kill -TERM $running; wait $running";
    let program = Program::of(
        "unshare",
        [
            "-Urm",
            "/bin/sh",
            "-c",
            script,
            &binary().display().to_string(),
            &body,
            &plugin,
        ],
    );
    let (input, mut steps) = std::io::pipe().expect("a pipe");
    let mut running = program.start_reading(input);
    until_started(&running);
    steps.write_all(b"send\n").expect("it reads");
    running.wait_for_lines(300, printed);
    steps.write_all(b"stop\n").expect("it reads");
    assert_eq!(running.wait_exit(), 0);
    let refused = running.text(Stream::Err);
    assert!(!refused.contains("refused"), "all of them were taken");
}

/// The same where no file system may be mounted: a limit of the file size stands for the disk.
#[tokio::test]
async fn finding_20_log_that_cannot_grow_is_truncated_and_the_send_accepted() {
    let mut local = served();
    let data = local.data().clone();
    let limit = rustix::process::Rlimit {
        current: Some(3_000_000),
        maximum: None,
    };
    let id = i32::try_from(local.process().id()).ok();
    let id = id.and_then(rustix::process::Pid::from_raw);
    rustix::process::prlimit(id, rustix::process::Resource::Fsize, limit).expect("our child");
    let body = "x".repeat(100_000);
    let url = format!("{}/000000000000/q", local.url());
    for n in 0..100 {
        let sent = send_to(&local, &body);
        assert_eq!(sent.status, 200, "{n}: {sent:?}");
        // The queue stays small, and so does the database.
        let request = serde_json::json!({ "QueueUrl": url });
        let received = call(&local, "ReceiveMessage", &request.to_string());
        assert_eq!(received.status, 200, "{n}: {received:?}");
        let received: Value = serde_json::from_str(&received.body).expect("JSON");
        let handle = &received["Messages"][0]["ReceiptHandle"];
        let request = serde_json::json!({ "QueueUrl": url, "ReceiptHandle": handle });
        let deleted = call(&local, "DeleteMessage", &request.to_string());
        assert_eq!(deleted.status, 200, "{n}: {deleted:?}");
    }
    local.process().signal(Signal::TERM);
    assert_eq!(local.process().wait_exit(), 0);
    send(data.path(), "q", ["after".to_owned()]).await;
    until_depth(data.path(), "q", |depth| depth.waiting == 2).await;
}
