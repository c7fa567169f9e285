//! Secrets come from files: their values are never shown, and a reload takes new ones.

use crate::http::forward::hmac;
use crate::scene::{field, guest, run, send};
use dispatcher_tests::PATIENCE;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::service::{JobService, PostedRequest, ServiceStep};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A file with a plugin whose setting `token` and variable `TOKEN` are the text of `token`.
fn settings() -> String {
    format!(
        "[plugin.capable]\nfile = \"{}\"\nsetting-file = {{ token = \"token\" }}\n\
         env-file = {{ TOKEN = \"token\" }}\n",
        guest("capable")
    )
}

#[tokio::test]
async fn new_secret_holds_after_a_reload_and_none_is_shown() {
    let arguments = ["run", "--config", "d.toml", "--log-format", "json"];
    let running = Program::new(arguments)
        .file("d.toml", &settings())
        .file("token", "first-secret\n")
        .start();
    let data = running.data().path().to_owned();
    send(&data, "default", ["setting token".to_owned()]).await;
    running.wait_for_line(|line| line.contains("dead-lettered") && line.contains("first-secret"));
    // Whoever asks is shown what he is granted; nobody else is.
    let others = |line: &str| line.contains("first-secret") && !line.contains("dead-lettered");
    assert_eq!(running.lines(others), [""; 0]);

    std::fs::remove_file(data.join("token")).expect("removed");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| {
        line.contains("the value of `token` in") && line.contains("no such file")
    });
    running.wait_for_line(|line| line.contains("settings not reloaded"));

    std::fs::write(data.join("token"), "second-secret").expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("replaced: new attempts run this version"));
    send(&data, "default", ["setting token".to_owned()]).await;
    running.wait_for_line(|line| line.contains("dead-lettered") && line.contains("second-secret"));
}

#[tokio::test]
async fn variable_from_a_file_is_new_after_a_reload() {
    let settings = format!(
        "[plugin.verdicts]\nfile = \"{}\"\nenv-file = {{ TOKEN = \"token\" }}\n",
        guest("verdicts")
    );
    let arguments = ["run", "--config", "d.toml", "--log-format", "json"];
    let running = Program::new(arguments)
        .file("d.toml", &settings)
        .file("token", "first-secret\n")
        .start();
    let data = running.data().path().to_owned();
    send(&data, "default", ["env".to_owned()]).await;
    running.wait_for_line(|line| line.contains("TOKEN=first-secret"));
    std::fs::write(data.join("token"), "second-secret").expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("replaced: new attempts run this version"));
    send(&data, "default", ["env".to_owned()]).await;
    running.wait_for_line(|line| line.contains("TOKEN=second-secret"));
}

#[tokio::test]
async fn new_header_of_a_forwarder_holds_at_once_and_a_new_key_after_a_reload() {
    let service = JobService::start(|_| ServiceStep::status(200));
    let settings = format!(
        "[plugin.api]\nforward = \"{}\"\nforward-key-file = \"key\"\n\
         forward-header-file = {{ authorization = \"token\" }}\n",
        service.url()
    );
    let arguments = ["run", "--config", "d.toml", "--log-format", "json"];
    let mut running = Program::new(arguments)
        .file("d.toml", &settings)
        .file("token", "first-secret\n")
        .file("key", "first-key\n")
        .start();
    let data = Arc::clone(running.data());
    send(data.path(), "default", ["job".to_owned()]).await;
    let first = service.wait_for(1).remove(0);
    assert_eq!(first.header("authorization"), Some("first-secret"));
    assert!(is_signed_by(&first, "first-key"), "{first:?}");
    std::fs::write(data.path().join("token"), "second-secret").expect("written");
    std::fs::write(data.path().join("key"), "second-key").expect("written");
    let second = until_authorized(&service, data.path(), "second-secret").await;
    assert!(is_signed_by(&second, "first-key"), "{second:?}");
    let lines = running.lines(|line| line.contains("forward header replaced"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(field(&lines[0], "header"), "authorization");
    // A file without a value changes nothing.
    std::fs::write(data.path().join("token"), "").expect("written");
    let refused = |line: &str| line.contains("forward header not replaced");
    let deadline = Instant::now() + PATIENCE;
    while running.lines(refused).is_empty() {
        assert!(Instant::now() < deadline, "the file was not read");
        post_one(&service, data.path()).await;
    }
    let kept = post_one(&service, data.path()).await;
    assert_eq!(kept.header("authorization"), Some("second-secret"));
    std::fs::write(data.path().join("token"), "second-secret").expect("written");
    running.signal(Signal::HUP);
    // The key is no part of a request that changes: a new version of the route has it.
    let line = running.wait_for_line(|line| line.contains("route replaced by a new version"));
    assert_eq!(field(&line, "settings"), "forward-key-file");
    running.wait_for_lines(2, |line| line.contains("\"message\":\"running\""));
    let third = post_one(&service, data.path()).await;
    assert!(is_signed_by(&third, "second-key"), "{third:?}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let restarted = Program::new(arguments).sharing(&data).start();
    let last = post_one(&service, data.path()).await;
    assert_eq!(last.header("authorization"), Some("second-secret"));
    assert!(is_signed_by(&last, "second-key"), "{last:?}");
    for program in [&running, &restarted] {
        assert_eq!(program.lines(|line| line.contains("-secret")), [""; 0]);
    }
}

/// Sends a job and returns the request that brought it.
async fn post_one(service: &JobService, data: &Path) -> PostedRequest {
    let before = service.record().requests.len();
    send(data, "default", ["job".to_owned()]).await;
    service.wait_for(before + 1).remove(before)
}

/// Sends jobs until a request has this header: the file is read again in its time.
async fn until_authorized(service: &JobService, data: &Path, wanted: &str) -> PostedRequest {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let request = post_one(service, data).await;
        if request.header("authorization") == Some(wanted) {
            return request;
        }
        assert!(Instant::now() < deadline, "{request:?}");
    }
}

fn is_signed_by(request: &PostedRequest, key: &str) -> bool {
    let signature = request.header("x-dispatcher-signature").expect("signed");
    let (time, of) = signature
        .strip_prefix("t=")
        .and_then(|rest| rest.split_once(",v1="))
        .expect("t=SECONDS,v1=HEX");
    of == hmac(key.as_bytes(), &format!("{time}.{}", request.body))
}

#[test]
fn secret_file_that_others_may_read_is_named_in_a_warning() {
    let step = "umask 022 && echo s3cret > token && chmod 644 token";
    let running = run("hello", &["--setting-file", "token=token"])
        .after(step)
        .start();
    let line = running.wait_for_line(|line| line.contains("secret file is readable by every user"));
    assert!(
        line.contains("\"mode\":\"644\"") && !line.contains("s3cret"),
        "{line}"
    );
}

#[test]
fn secret_that_cannot_be_read_or_is_there_twice_is_refused() {
    let check = |more: &[&str]| {
        let plugin = guest("hello");
        let arguments = [&["check", "--plugin", &plugin][..], more].concat();
        let refused = Program::new(arguments)
            .file("token", "s3cret")
            .file("empty", "\n")
            .run();
        assert_eq!(refused.code, 2, "{refused:?}");
        refused.stderr
    };
    let stderr = check(&["--setting-file", "a=nowhere", "--env-file", "B=empty"]);
    assert!(
        stderr.contains("--setting-file: the value of `a` in `nowhere`: no such file"),
        "{stderr}"
    );
    assert!(
        stderr.contains("--env-file: the value of `B` in `empty`: it is empty"),
        "{stderr}"
    );
    let stderr = check(&["--setting-file", "a=token", "--setting", "a=1"]);
    let says = "--setting-file: `a`, which `setting` of --setting also sets; wanted one of them";
    assert!(stderr.contains(says), "{stderr}");
}
