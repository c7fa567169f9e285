//! Misbehaving guests: each is stopped, said, and hurts nobody else.

use crate::scene::{field, guest, printed, run, send, until_depth};
use dispatcher_tests::child::{Program, Signal};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;

/// What a guest does, and what the log says of it.
const MISDEEDS: [(&str, &str); 7] = [
    ("trap", "trapped"),
    ("panic", "trapped"),
    ("loop", "--timeout"),
    ("sleep:3600000", "--timeout"),
    ("eat", "--max-memory"),
    ("recurse", "trapped"),
    ("exit:0", "trapped"),
];

#[tokio::test]
async fn failing_guest_is_a_retry_with_a_reason_and_good_messages_pass() {
    let mut running = run("verdicts", &["--timeout", "2s", "--max-memory", "16MiB"]).start();
    let bad = MISDEEDS.iter().map(|(body, _)| (*body).to_owned());
    let good = (0..50).map(|n| format!("print:good {n}"));
    send(running.data().path(), "default", bad.chain(good)).await;
    running.wait_for_lines(50, |line| printed(line) && line.contains("good "));
    for (body, said) in MISDEEDS {
        running.wait_for_line(|line| line.contains(said));
        let _ = body;
    }
    running.wait_for_lines(MISDEEDS.len(), |line| {
        line.contains("\"message\":\"message retried\"") && line.contains("\"receive_count\":1,")
    });
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn guest_output_becomes_log_lines_with_its_message() {
    let mut running = run("verdicts", &[]).start();
    let sent = Program::new(["send", "local:default", "eprint:on stderr"])
        .sharing(running.data())
        .run();
    let line = running.wait_for_line(|line| line.contains("on stderr"));
    assert_eq!(field(&line, "message_id"), sent.stdout.trim());
    assert_eq!(field(&line, "stream"), "stderr");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn sandbox_denies_everything_not_granted_by_name() {
    let mut running = run("verdicts", &["--env", "OPENED=yes"])
        .env("SECRET", "no")
        .start();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let open = listener.local_addr().expect("it is bound");
    let folder = running.data().path().display().to_string();
    let tries = [
        "env".to_owned(),
        "read:/etc/passwd".to_owned(),
        format!("write:{folder}/written"),
        "list:/".to_owned(),
        format!("connect:{open}"),
        "listen:127.0.0.1:0".to_owned(),
        "resolve:localhost:80".to_owned(),
    ];
    send(running.data().path(), "default", tries.clone()).await;
    let mut reasons = BTreeMap::new();
    for line in running.wait_for_lines(tries.len(), |line| line.contains("dead-lettered")) {
        reasons.insert(field(&line, "message_id"), field(&line, "reason"));
    }
    let reasons: Vec<String> = reasons.into_values().collect();
    let all = reasons.join("\n");
    assert_eq!(reasons.len(), tries.len(), "{all}");
    let granted: Vec<_> = reasons
        .iter()
        .filter(|one| one.contains("OPENED=yes"))
        .collect();
    assert_eq!(granted.len(), 1, "{all}");
    assert!(!all.contains("SECRET") && !all.contains("PATH="), "{all}");
    // None of the others succeeded: each has the error of what it tried.
    assert!(!reasons.iter().any(|one| one.starts_with("got ")), "{all}");
    assert!(!Path::new(&folder).join("written").exists());
    listener.set_nonblocking(true).expect("it can");
    let came = listener.accept().expect_err("nobody connects");
    assert_eq!(came.kind(), std::io::ErrorKind::WouldBlock);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn instance_is_fresh_unless_reuse_is_configured() {
    for (reuse, wanted) in [
        (&[][..], ["1", "1", "1"]),
        (&["--reuse", "100"][..], ["1", "2", "3"]),
    ] {
        let mut running = run("count", &[&["--concurrency", "1"], reuse].concat()).start();
        send(
            running.data().path(),
            "default",
            (0..3).map(|n| n.to_string()),
        )
        .await;
        let said = running.wait_for_lines(3, |line| line.contains("dead-lettered"));
        let counts: Vec<String> = said.iter().map(|line| field(line, "reason")).collect();
        assert_eq!(counts, wanted);
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
    }
}

/// With one guest thread, a message is handled although two others never end.
async fn handled_beside(endless: &str) {
    let arguments = [
        "--workers",
        "1",
        "--timeout",
        "1h",
        "--shutdown-grace",
        "1ms",
    ];
    let mut running = run("verdicts", &arguments).start();
    let bodies = [endless, endless, "print:beside them"];
    send(running.data().path(), "default", bodies.map(String::from)).await;
    running.wait_for_line(|line| line.contains("beside them"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn waiting_guest_holds_no_thread() {
    handled_beside("sleep:3600000").await;
}

#[tokio::test]
async fn computing_guest_shares_its_thread() {
    handled_beside("loop").await;
}

#[tokio::test]
async fn queue_with_a_running_message_is_still_polled() {
    let mut running = run("verdicts", &["--timeout", "1h", "--shutdown-grace", "1ms"]).start();
    let data = running.data().clone();
    for endless in 1..=3 {
        send(data.path(), "default", ["sleep:3600000".into()]).await;
        until_depth(data.path(), "default", |depth| depth.in_flight == endless).await;
    }
    send(data.path(), "default", ["print:beside them".into()]).await;
    running.wait_for_line(|line| line.contains("beside them"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[test]
fn minimal_guests_run() {
    for name in ["bench-noop", "bench-bare"] {
        let ended = Program::new(["plugin", "invoke", &guest(name), "x"]).run();
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (0, "done\n"),
            "{ended:?}"
        );
    }
}

#[test]
fn invoke_prints_the_verdict_and_touches_no_queue() {
    let verdicts = guest("verdicts");
    let invoke = |body: &str| Program::new(["plugin", "invoke", &verdicts, body]).run();
    assert_eq!(invoke("done").stdout, "done\n");
    assert!(invoke("retry:1500").stdout.starts_with("retry"));
    assert_eq!(invoke("reject:bad").stdout, "reject: bad\n");
    assert_eq!(invoke("reject:bad").code, 0);
    let trapped = invoke("trap");
    assert_eq!(trapped.code, 1);
    assert!(trapped.stdout.contains("trapped"), "{trapped:?}");
}
