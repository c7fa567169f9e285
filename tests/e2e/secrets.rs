//! Secrets come from files: their values are never shown, and a reload takes new ones.

use crate::forward::hmac;
use crate::scene::{guest, run, send};
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::service::{JobService, PostedRequest, ServiceStep};
use std::sync::Arc;

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
async fn new_secrets_of_a_forwarder_are_named_at_a_reload_and_hold_after_a_restart() {
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
    running.signal(Signal::HUP);
    for name in ["forward-header-file", "forward-key-file"] {
        let change = format!("\"change\":\"`{name}`");
        running.wait_for_line(|line| line.contains("needs a restart") && line.contains(&change));
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let restarted = Program::new(arguments).sharing(&data).start();
    send(data.path(), "default", ["job".to_owned()]).await;
    let second = service.wait_for(2).remove(1);
    assert_eq!(second.header("authorization"), Some("second-secret"));
    assert!(is_signed_by(&second, "second-key"), "{second:?}");
    for program in [&running, &restarted] {
        assert_eq!(program.lines(|line| line.contains("-secret")), [""; 0]);
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
    let says = "--setting-file: `a`, which `setting` of --setting has as well; wanted one of them";
    assert!(stderr.contains(says), "{stderr}");
}
