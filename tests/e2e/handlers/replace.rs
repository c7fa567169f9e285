//! A plugin is replaced while it runs: nothing is lost, nothing is run by half a plugin, and what is
//! no plugin changes nothing.

use crate::lambda::scene::admin;
use crate::scene::{field, guest, printed, prints, send, until_depth};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::http;
use dispatcher_tests::slow_module::slow_module;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MARK: &[u8] = b"version-000000";
/// Different versions; what was compiled once is not compiled again.
const VERSIONS: usize = 21;
const SWAPS: usize = 100;
/// Functions of a component that is still compiled when the test has done what it does meanwhile.
const SLOW: usize = 8_000;

/// Version `number` of the fixture `version`.
fn version(number: usize) -> Vec<u8> {
    let mut bytes = std::fs::read(guest("version")).expect("the fixture");
    let at = bytes.windows(MARK.len()).position(|part| part == MARK);
    let at = at.expect("its mark");
    let mark = format!("version-{number:06}");
    bytes[at..at + MARK.len()].copy_from_slice(mark.as_bytes());
    bytes
}

/// Puts a file in the place of another in one step.
fn replace(file: &Path, bytes: &[u8]) {
    let beside = file.with_extension("new");
    std::fs::write(&beside, bytes).expect("written");
    std::fs::rename(&beside, file).expect("renamed");
}

fn started(file: &Path, more: &[&str]) -> RunningProgram {
    let plugin = file.display().to_string();
    let mut arguments = vec!["run", "--log-format", "json", "--plugin", &plugin];
    arguments.extend(more);
    let running = Program::new(arguments).start();
    // What is put in the file's place before is no replacement but what it begins with.
    running.wait_for_line(|line| line.contains("\"message\":\"running\""));
    running
}

/// The file of a plugin that may be replaced, in its own folder.
fn place(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plugin.wasm");
    std::fs::write(&file, bytes).expect("written");
    (folder, file)
}

fn shipped(name: &str) -> Vec<u8> {
    std::fs::read(guest(name)).expect("the fixture")
}

fn replaced(line: &str) -> bool {
    line.contains("replaced: new attempts run this version")
}

fn refused(line: &str) -> bool {
    line.contains("not replaced, the old version stays")
}

/// A run that compiles what it loads, and the file of its plugin.
fn compiling(more: &[&str]) -> (tempfile::TempDir, PathBuf, RunningProgram) {
    let (folder, file) = place(&version(1));
    let plugin = file.display().to_string();
    let arguments = [&["run", "--log-format", "json", "--plugin", &plugin], more].concat();
    let running = Program::new(arguments).compiling().start();
    running.wait_for_line(|line| line.contains("\"message\":\"running\""));
    (folder, file, running)
}

/// Puts a component in the file's place that takes many seconds to compile, and returns once that has
/// begun.
fn replace_slowly(running: &RunningProgram, file: &Path) {
    let slow = slow_module(SLOW);
    replace(file, &slow);
    let size = slow.len().to_string();
    running.wait_for_line(|line| line.contains("compiling plugin") && field(line, "size") == size);
}

/// What version had which body, from the lines about dead letters.
fn handled(running: &RunningProgram) -> Vec<(usize, String)> {
    let dead = running.lines(|line| line.contains("message dead-lettered"));
    let tell = |line: &String| {
        let reason = field(line, "reason");
        let (mark, body) = reason
            .strip_prefix("version-")
            .and_then(|rest| rest.split_once(' '))
            .unwrap_or_else(|| panic!("by no version: {reason}"));
        (mark.parse().expect("a number"), body.to_owned())
    };
    dead.iter().map(tell).collect()
}

/// The most that wait: a machine that is busy otherwise must not be flooded.
const BACKLOG: u64 = 2_000;

/// Sends a thousand messages a second until told to end, and counts them.
async fn load(data: PathBuf, over: Arc<AtomicBool>, sent: Arc<AtomicU64>) {
    let mut next = tokio::time::interval(Duration::from_millis(100));
    while !over.load(Ordering::SeqCst) {
        next.tick().await;
        until_depth(&data, "default", |depth| depth.waiting < BACKLOG).await;
        let first = sent.load(Ordering::SeqCst);
        send(
            &data,
            "default",
            (first..first + 100).map(|n| format!("n{n}")),
        )
        .await;
        sent.store(first + 100, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lesson_23_hundred_swaps_under_load_lose_nothing_and_mix_no_versions() {
    let (_folder, file) = place(&version(0));
    let mut running = started(&file, &[]);
    let data = running.data().path().to_owned();
    let over = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU64::new(0));
    let loading = tokio::spawn(load(data.clone(), over.clone(), sent.clone()));
    let began = Instant::now();
    for number in 1..=SWAPS {
        let bytes = version(number % VERSIONS);
        if number % 10 == 0 {
            // Written slowly, in place: half of it is there for a while, and is told about.
            std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("written");
            running.wait_for_lines(number / 10, refused);
            std::fs::write(&file, &bytes).expect("written");
        } else {
            replace(&file, &bytes);
        }
        running.wait_for_lines(number, replaced);
    }
    over.store(true, Ordering::SeqCst);
    loading.await.expect("the sender");
    // What comes after a swap is run by the new version.
    send(&data, "default", ["last".to_owned()]).await;
    until_depth(&data, "default", |depth| {
        depth.waiting + depth.in_flight == 0
    })
    .await;
    running.stop();
    let sent = sent.load(Ordering::SeqCst) + 1;
    let took = began.elapsed().as_secs_f64();
    println!(
        "{sent} messages in {took:.1} s, {:.0} a second",
        sent as f64 / took
    );
    let mut by_body = BTreeMap::new();
    for (version, body) in handled(&running) {
        let again = by_body.insert(body.clone(), version);
        assert_eq!(again, None, "{body} was handled twice");
    }
    assert_eq!(by_body.len() as u64, sent);
    assert_eq!(by_body["last"], SWAPS % VERSIONS);
    let versions: BTreeSet<_> = by_body.values().collect();
    assert_eq!(versions.len(), VERSIONS, "{versions:?}");
}

#[tokio::test]
async fn lesson_23_running_attempts_finish_on_their_version_and_new_ones_use_the_next() {
    let (_folder, file) = place(&shipped("verdicts"));
    let mut running = started(&file, &["--timeout", "5m", "--log-level", "debug"]);
    let data = running.data().path().to_owned();
    // Ends when it is told that it is cancelled, which a stop does: it outlives the swap.
    send(&data, "default", ["print:begun".into(), "cancelled".into()]).await;
    running.wait_for_lines(2, |line| line.contains("\"an attempt begins\""));
    running.wait_for_line(|line| printed(line) && line.contains("begun"));
    replace(&file, &version(7));
    running.wait_for_line(replaced);
    send(&data, "default", ["new".to_owned()]).await;
    running.wait_for_line(|line| line.contains("version-000007 new"));
    until_depth(&data, "default", |depth| {
        (depth.waiting, depth.in_flight) == (0, 1)
    })
    .await;
    stop_at_once(&mut running);
    until_depth(&data, "default", |depth| depth.waiting == 1).await;
}

/// The grace of a run that has an endless attempt is not waited for.
fn stop_at_once(running: &mut RunningProgram) {
    running.signal(Signal::TERM);
    // What follows the first signal sooner is the same.
    running.wait_for_line(|line| line.contains("a second signal forces the exit from now on"));
    running.signal(Signal::TERM);
    running.wait_exit();
}

#[tokio::test]
async fn the_old_version_serves_while_a_big_one_is_compiled() {
    let (_folder, file, mut running) = compiling(&[]);
    let data = running.data().path().to_owned();
    replace_slowly(&running, &file);
    send(&data, "default", ["meanwhile".to_owned()]).await;
    running.wait_for_line(|line| line.contains("version-000001 meanwhile"));
    assert!(running.lines(replaced).is_empty(), "it is compiled by now");
    running.wait_for_line(replaced);
    send(&data, "default", ["after".to_owned()]).await;
    until_depth(&data, "default", |depth| {
        depth.waiting + depth.in_flight == 0
    })
    .await;
    running.stop();
    assert_eq!(handled(&running), [(1, "meanwhile".to_owned())]);
}

#[tokio::test]
async fn the_old_version_serves_while_a_reload_compiles_a_big_one() {
    let (folder, file) = place(&version(1));
    let slow = folder.path().join("slow.wasm");
    std::fs::write(&slow, slow_module(SLOW)).expect("written");
    let config = folder.path().join("dispatcher.toml");
    let write = |file: &Path| {
        let text = format!(
            "[plugin.p]\nfile = \"{}\"\n[[route]]\nplugin = \"p\"\nqueues = [\"local:default\"]\n",
            file.display()
        );
        std::fs::write(&config, text).expect("written");
    };
    write(&file);
    let path = config.display().to_string();
    let program = Program::new(["run", "--log-format", "json", "--config", &path]);
    let mut running = program.compiling().start();
    let data = running.data().path().to_owned();
    running.wait_for_line(|line| line.contains("\"message\":\"running\""));
    write(&slow);
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("compiling plugin") && line.contains("slow.wasm"));
    send(&data, "default", ["meanwhile".to_owned()]).await;
    running.wait_for_line(|line| line.contains("version-000001 meanwhile"));
    assert!(running.lines(replaced).is_empty(), "it is compiled by now");
    // A stop does not wait for what is compiled.
    running.stop();
    assert!(running.lines(replaced).is_empty());
    assert_eq!(handled(&running), [(1, "meanwhile".to_owned())]);
}

#[test]
fn a_canary_is_rolled_back_at_once_while_a_version_is_compiled() {
    let secrets = tempfile::tempdir().expect("a folder");
    let secret = secrets.path().join("token");
    std::fs::write(&secret, "secret").expect("written");
    let (secret, canary) = (secret.display().to_string(), guest("hello"));
    let more = [
        "--canary",
        &canary,
        "--canary-share",
        "50%",
        "--admin",
        "127.0.0.1:0",
        "--admin-token-file",
        &secret,
    ];
    let (_folder, file, mut running) = compiling(&more);
    replace_slowly(&running, &file);
    let url = format!("{}/api/v1/routes/plugin/rollback", admin(&running));
    let told = http::post(&url, &[("Authorization", "Bearer secret")], "{}");
    assert_eq!(told.status, 200, "{told:?}");
    assert!(running.lines(replaced).is_empty(), "it did not wait");
    running.stop();
}

#[tokio::test]
async fn file_that_is_no_plugin_is_refused_and_reported() {
    let (folder, file) = place(&version(1));
    let secret = folder.path().join("token");
    std::fs::write(&secret, "secret").expect("written");
    let secret = secret.display().to_string();
    let more = ["--admin", "127.0.0.1:0", "--admin-token-file", &secret];
    let mut running = started(&file, &more);
    let data = running.data().path().to_owned();
    let url = format!("{}/plugins", admin(&running));
    let bearer = [("Authorization", "Bearer secret")];
    let show = || -> Value {
        serde_json::from_str(&http::get_with(&url, &bearer).body).expect("it is JSON")
    };
    let before = show()["plugins"][0]["current"]["sha256"].clone();
    for (bad, why) in [
        (b"nonsense".to_vec(), "not WebAssembly"),
        (shipped("wrong-world"), "elsewhere:clock"),
        (shipped("forbidden"), "--allow-lambda"),
        (version(2)[..500].to_vec(), "not a valid component"),
    ] {
        replace(&file, &bad);
        let told = http::post(&url, &bearer, "");
        assert_eq!(told.status, 422, "{told:?}");
        assert!(told.body.contains(why), "{why}: {told:?}");
    }
    std::fs::remove_file(&file).expect("removed");
    let told = http::post(&url, &bearer, "");
    assert!(
        told.status == 422 && told.body.contains("no such file"),
        "{told:?}"
    );
    assert_eq!(show()["plugins"][0]["current"]["sha256"], before);
    send(&data, "default", ["still".to_owned()]).await;
    running.wait_for_line(|line| line.contains("version-000001 still"));
    replace(&file, &version(3));
    let told = http::post(&url, &bearer, "");
    // Who watches the file may have been faster.
    assert_eq!(told.status, 200, "{told:?}");
    assert_ne!(show()["plugins"][0]["current"]["sha256"], before);
    send(&data, "default", ["now".to_owned()]).await;
    running.wait_for_line(|line| line.contains("version-000003 now"));
    let told = http::post(&url, &bearer, "");
    assert_eq!(
        told.body,
        r#"{"plugins":[{"refused":[],"replaced":[],"route":"plugin"}]}"#
    );
    running.stop();
}

#[tokio::test]
async fn reload_swaps_the_plugin_and_its_grants() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("dispatcher.toml");
    let write = |plugin: &str, word: &str| {
        let text = format!(
            "[plugin.p]\nfile = \"{}\"\nenv = {{ WORD = \"{word}\" }}\n[[route]]\nplugin = \"p\"\nqueues = [\"local:default\"]\n",
            guest(plugin)
        );
        std::fs::write(&config, text).expect("written");
    };
    write("verdicts", "first");
    let path = config.display().to_string();
    let mut running = Program::new(["run", "--log-format", "json", "--config", &path]).start();
    let data = running.data().path().to_owned();
    send(&data, "default", ["env".to_owned()]).await;
    running.wait_for_line(|line| line.contains("WORD=first"));
    write("verdicts", "second");
    running.signal(Signal::HUP);
    running.wait_for_line(replaced);
    send(&data, "default", ["env".to_owned()]).await;
    running.wait_for_line(|line| line.contains("WORD=second"));
    write("hello", "third");
    running.signal(Signal::HUP);
    running.wait_for_lines(2, replaced);
    send(&data, "default", ["env".to_owned()]).await;
    running.wait_for_line(|line| printed(line) && line.contains("\"env\""));
    // What cannot be loaded changes nothing, and is taken once it is there.
    let later = folder.path().join("later.wasm");
    let text = std::fs::read_to_string(&config).expect("it is there");
    let text = text.replace(&guest("hello"), &later.display().to_string());
    std::fs::write(&config, text).expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(refused);
    send(&data, "default", ["print:on".to_owned()]).await;
    running.wait_for_line(|line| printed(line) && line.contains("print:on"));
    assert!(
        prints(&running).contains(&"print:on".to_owned()),
        "it is still hello"
    );
    replace(&later, &version(5));
    running.wait_for_lines(3, replaced);
    send(&data, "default", ["late".to_owned()]).await;
    running.wait_for_line(|line| line.contains("version-000005 late"));
    // A line more is no other plugin.
    let text = std::fs::read_to_string(&config).expect("it is there");
    std::fs::write(&config, format!("# a comment\n{text}")).expect("written");
    running.signal(Signal::HUP);
    running.wait_for_lines(4, |line| line.contains("settings reloaded"));
    running.stop();
    assert_eq!(running.lines(replaced).len(), 3);
}

#[tokio::test]
async fn refused_reload_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("dispatcher.toml");
    let write = |plugin: &str, more: &str| {
        let text = format!(
            "[plugin.p]\nfile = \"{}\"\n{more}\n[[route]]\nplugin = \"p\"\nqueues = [\"local:default\"]\n",
            guest(plugin)
        );
        std::fs::write(&config, text).expect("written");
    };
    let canary = format!("canary = {{ file = \"{}\", share = 0.5 }}", guest("hello"));
    write("verdicts", &canary);
    let path = config.display().to_string();
    let arguments = ["run", "--config", &path, "--admin", "127.0.0.1:0"];
    let mut running = Program::new(arguments).start();
    let url = format!("{}/plugins", admin(&running));
    let before = http::get(&url).body;
    assert!(before.contains("\"share\":0.5"), "{before}");
    write("gone", "");
    running.signal(Signal::HUP);
    running.wait_for_line(refused);
    let after = http::get(&url).body;
    assert_eq!(after, before.replace("\"refused\":0", "\"refused\":1"));
    running.stop();
}
