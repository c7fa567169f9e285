//! What plugins are granted by name: what is shut says so, what is open is open no further.

use crate::scene::{field, guest, run, send};
use dispatcher_tests::child::{ExitedProgram, Program, Signal};
use dispatcher_tests::http::wait_for_status;
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::servers::free_port;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

/// `plugin invoke` of the guest that uses what it is granted.
pub(crate) fn invoke(body: &str, grants: &[&str]) -> Program {
    let guest = guest("capable");
    let mut arguments = vec!["plugin", "invoke", &guest, body];
    arguments.extend(grants);
    Program::new(arguments)
}

/// What the guest got.
pub(crate) fn told(ended: &ExitedProgram) -> &str {
    let told = ended.stdout.trim().strip_prefix("reject: ");
    told.unwrap_or_else(|| panic!("{ended:?}"))
}

fn folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

/// A server that answers everybody alike; where it listens.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.expect("it connects");
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(
                b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello",
            );
        }
    });
    address
}

#[test]
fn every_grant_is_a_flag_and_a_variable() {
    let data = folder();
    std::fs::write(data.path().join("menu.txt"), "soup").expect("written");
    let server = server();
    let http = format!("http GET http://{server}/");
    let here = data.path().display().to_string();
    for (body, flag, value, shut, open) in [
        (
            http.as_str(),
            "--allow-http",
            server.as_str(),
            "ErrorCode::HttpRequestDenied",
            "got 200, 5 bytes: hello",
        ),
        (
            "setting colour",
            "--setting",
            "colour=blue",
            "got Ok(None)",
            "got Ok(Some(\"blue\"))",
        ),
        (
            "exists mine k",
            "--store",
            "mine=local:b",
            "Error::AccessDenied",
            "got false",
        ),
        (
            "read /menu.txt",
            "--allow-read",
            here.as_str(),
            "No such file or directory (os error 44)",
            "got soup",
        ),
    ] {
        let says = |program: Program| told(&program.sharing(&data).run()).to_owned();
        let without = says(invoke(body, &[]));
        assert!(
            without == shut || without.contains("failed to find"),
            "{body}: {without}"
        );
        assert_eq!(says(invoke(body, &[flag, value])), open);
        let variable = format!("DISPATCHER_{}", flag[2..].replace('-', "_").to_uppercase());
        assert_eq!(says(invoke(body, &[]).env(&variable, value)), open);
    }
}

#[tokio::test]
async fn every_grant_is_a_key_of_the_file() {
    let server = server();
    let settings = format!(
        "[plugin.capable]\nfile = \"{}\"\nallow-http = [\"example.com\", \"{server}\"]\n\
         allow-read = \"menus\"\nsetting = {{ colour = \"blue\", \"a.b\" = \"1\" }}\n\
         store = {{ mine = \"local:b\" }}\n",
        guest("capable")
    );
    let data = folder();
    std::fs::create_dir(data.path().join("menus")).expect("made");
    std::fs::write(data.path().join("menus/today.txt"), "soup").expect("written");
    let mut running = Program::new(["run", "--config", "d.toml", "--log-format", "json"])
        .sharing(&data)
        .file("d.toml", &settings)
        .start();
    let bodies = [
        format!("http GET http://{server}/"),
        "settings".into(),
        "set mine k v".into(),
        "read today.txt".into(),
    ];
    send(data.path(), "default", bodies).await;
    for said in ["got 200, 5 bytes: hello", "a.b", "got done", "got soup"] {
        running.wait_for_line(|line| line.contains("dead-lettered") && line.contains(said));
    }
    // What a guest has written is there after a crash.
    running.signal(Signal::KILL);
    assert_eq!(running.wait_exit(), 137);
    let kept = invoke("get other k", &["--store", "other=local:b"])
        .sharing(&data)
        .run();
    assert_eq!(told(&kept), "got v");
}

#[tokio::test]
async fn denials_are_counted_and_logged_once() {
    let admin = format!("127.0.0.1:{}", free_port());
    let mut running = run("capable", &["--admin", &admin]).start();
    let bodies = [
        "http GET https://example.com/a",
        "http GET https://example.com/b",
        "open mine",
        "open mine",
        "open mine",
    ];
    send(running.data().path(), "default", bodies.map(String::from)).await;
    running.wait_for_lines(5, |line| line.contains("dead-lettered"));
    let metrics = wait_for_status(&format!("http://{admin}/metrics"), 200).body;
    let refused = metrics
        .lines()
        .find(|line| line.starts_with("dispatcher_capability_denials"));
    assert!(
        refused.is_some_and(|line| line.ends_with(" 5")),
        "{metrics}"
    );
    let said = running.lines(|line| line.contains("capability denied"));
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said.iter()
            .any(|line| field(line, "name") == "https://example.com:443")
    );
    assert!(
        said.iter()
            .any(|line| field(line, "granted_by").starts_with("--store "))
    );
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

fn check_bucket_commands(grants: &[&str]) {
    let data = folder();
    let says = |body: &str| told(&invoke(body, grants).sharing(&data).run()).to_owned();
    assert_eq!(says("set mine colour blue"), "got done");
    assert_eq!(says("get mine colour"), "got blue");
    assert_eq!(says("exists mine colour"), "got true");
    assert_eq!(says("increment mine n 40"), "got 40");
    assert_eq!(says("increment mine n 2"), "got 42");
    assert!(says("increment mine colour 1").contains("cannot be incremented"));
    assert_eq!(says("swap mine colour red -"), "got blue swapped");
    assert_eq!(
        says("swap mine colour blue green"),
        "got red then green swapped"
    );
    assert_eq!(says("swap mine new first -"), "got nothing swapped");
    assert_eq!(says("set-many mine a=1 b=2"), "got set");
    assert_eq!(says("get-many mine a c b"), "got a=1,nothing,b=2");
    assert_eq!(says("delete-many mine a b c"), "got deleted");
    assert_eq!(says("delete mine new"), "got done");
    assert_eq!(says("pages mine"), "got 1 pages, 2 keys");
    assert_eq!(says("fill mine 2500"), "got filled");
    let pages = says("pages mine");
    assert!(
        pages.ends_with(" pages, 2502 keys") && !pages.starts_with("got 1 "),
        "{pages}"
    );
    assert!(says("set-sized mine 1025 1").contains("wanted 1 to 1024"));
    assert_eq!(says("open theirs"), "Error::AccessDenied");
}

#[test]
fn local_bucket_returns_what_was_written() {
    check_bucket_commands(&["--store", "mine=local:b"]);
}

#[test]
fn redis_bucket_returns_what_was_written() {
    let bucket = format!("mine=redis:{}", RedisServer::fresh_name("b"));
    let url = RedisServer::shared().url();
    let data = folder();
    let says = |body: &str| {
        let asked = invoke(body, &["--store", &bucket]).sharing(&data);
        told(&asked.env("DISPATCHER_REDIS_URL", &url).run()).to_owned()
    };
    assert_eq!(says("set mine colour blue"), "got done");
    assert_eq!(says("get mine colour"), "got blue");
    assert_eq!(says("increment mine n 42"), "got 42");
    assert_eq!(
        says("swap mine colour blue green"),
        "got blue then green swapped"
    );
    assert_eq!(says("pages mine"), "got 1 pages, 2 keys");
}

#[tokio::test]
async fn pipe_in_a_granted_folder_blocks_neither_attempt_nor_stop() {
    let data = folder();
    let made = std::process::Command::new("mkfifo")
        .arg(data.path().join("pipe"))
        .status();
    assert!(made.expect("mkfifo").success());
    let here = data.path().display().to_string();
    let mut running = run("capable", &["--allow-read", &here, "--timeout", "1s"])
        .sharing(&data)
        .start();
    send(data.path(), "default", ["read /pipe".to_owned()]).await;
    running.wait_for_line(|line| line.contains("--timeout"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[test]
fn plugin_check_lists_requested_and_granted_capabilities() {
    let guest = guest("capable");
    let shut = Program::new(["plugin", "check", &guest]).run();
    assert_eq!(shut.code, 0, "{shut:?}");
    for line in [
        "  requests outgoing HTTP: denied: --allow-http HOST grants it\n",
        "  requests settings: denied: --setting K=V grants it\n",
        "  requests keys and values: denied: --store NAME=WHERE grants it\n",
        "  requests files: denied: --allow-read FOLDER grants it\n",
    ] {
        assert!(shut.stdout.contains(line), "{}", shut.stdout);
    }
    let grants = [
        "--allow-http",
        "*.example.com:8443",
        "--setting",
        "colour=secret",
        "--store",
        "mine=redis:b",
    ];
    let open = Program::new(["plugin", "check", &guest].iter().chain(&grants)).run();
    for line in [
        "  requests outgoing HTTP: granted: *.example.com:8443\n",
        "  requests settings: granted: colour\n",
        "  requests keys and values: granted: mine=redis:b\n",
    ] {
        assert!(open.stdout.contains(line), "{}", open.stdout);
    }
    let json = Program::new(["plugin", "check", &guest, "--json"].iter().chain(&grants)).run();
    let rows: Value = serde_json::from_str(&json.stdout).expect("it is JSON");
    let requests = rows[0]["requests"].as_array().expect("a list");
    let http = requests
        .iter()
        .find(|one| one["capability"] == "outgoing HTTP")
        .expect("requested");
    assert_eq!(http["granted"][0], "*.example.com:8443");
    assert_eq!(rows[0]["problems"], Value::Array(Vec::new()));
}

#[test]
fn unused_grant_is_a_notice_and_not_a_problem() {
    let verdicts = guest("verdicts");
    let granted = [
        "check",
        "--plugin",
        &verdicts,
        "--allow-http",
        "example.com",
    ];
    let ended = Program::new(granted).run();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.stderr.contains(
            "granted but not imported by the component plugin=\"verdicts\" grants=\"allow-http\""
        ),
        "{ended:?}"
    );
}

#[test]
fn invalid_grants_are_problems_at_start() {
    let capable = guest("capable");
    for (flag, value, said) in [
        ("--allow-http", "*", "`*` is not a host to send requests to"),
        (
            "--allow-http",
            "ftp://example.com",
            "wanted http:// or https://",
        ),
        (
            "--allow-http",
            "10.0.0.0/99",
            "is not a host to send requests to",
        ),
        (
            "--store",
            "mine=sqs:orders",
            "wanted local:BUCKET or redis:BUCKET",
        ),
        ("--store", "mine", "is not a name and a value"),
        ("--setting", "colour", "is not a name and a value"),
        ("--allow-read", "nowhere", "cannot be opened"),
        ("--allow-read", "", "it is empty"),
    ] {
        let ended = Program::new(["check", "--plugin", &capable, flag, value]).run();
        assert_eq!(ended.code, 2, "{flag} {value}: {ended:?}");
        assert!(
            ended.stderr.contains(said),
            "{flag} {value}: {}",
            ended.stderr
        );
    }
}
