//! A stop strands nothing, loses nothing, and can be forced.

use crate::lambda::scene::admin;
use crate::scene::{depth, field, guest, prints, run, send, until_depth};
use dispatcher_tests::child::{Program, RunningProgram, Signal, Stream};
use dispatcher_tests::http;
use dispatcher_tests::slow_module::slow_module;

#[tokio::test]
async fn running_attempt_finishes_within_the_grace() {
    let mut running = run("verdicts", &["--log-level", "debug"]).start();
    send(running.data().path(), "default", ["sleep:1000".into()]).await;
    // Received is not begun: what has not begun is released.
    running.wait_for_line(|line| line.contains("an attempt begins"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(
        depth(running.data().path(), "default").await,
        Default::default()
    );
}

#[tokio::test]
async fn attempt_that_outlives_the_grace_is_stopped_and_its_message_returned() {
    let mut running = run(
        "verdicts",
        &[
            "--shutdown-grace",
            "200ms",
            "--timeout",
            "1h",
            "--log-level",
            "debug",
        ],
    )
    .start();
    send(
        running.data().path(),
        "default",
        ["sleep:3600000", "loop"].map(String::from),
    )
    .await;
    running.wait_for_lines(2, |line| line.contains("an attempt begins"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let left = depth(running.data().path(), "default").await;
    assert_eq!((left.waiting, left.in_flight, left.delayed), (2, 0, 0));
    let abandoned = running.lines(|line| line.contains("\"message abandoned\""));
    assert_eq!(abandoned.len(), 2, "{abandoned:?}");
    for line in &abandoned {
        assert_eq!(field(line, "level"), "WARN");
        assert_eq!(field(line, "reason_kind"), "interrupted");
        assert_eq!(field(line, "may_have_been_handled"), "false");
    }
    let sum = running.wait_for_line(|line| line.contains("attempts abandoned by the stop"));
    let counts = ["messages", "interrupted", "may_have_been_handled"];
    assert_eq!(counts.map(|name| field(&sum, name)), ["2", "2", "0"]);
}

#[tokio::test]
async fn stop_under_load_leaves_nothing_invisible() {
    let mut running = run("verdicts", &["--concurrency", "20"]).start();
    let bodies = (0..2_000).map(|n| format!("print:{n}"));
    send(running.data().path(), "default", bodies).await;
    running.wait_for_lines(100, crate::scene::printed);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let left = depth(running.data().path(), "default").await;
    assert_eq!((left.in_flight, left.delayed), (0, 0));
    let mut handled = prints(&running);
    handled.sort();
    handled.dedup();
    assert_eq!(
        handled.len() as u64 + left.waiting,
        2_000,
        "each is handled or still there"
    );
}

#[tokio::test]
async fn second_signal_forces_the_exit() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut running = run(
            "verdicts",
            &[
                "--shutdown-grace",
                "1h",
                "--timeout",
                "1h",
                "--log-level",
                "debug",
            ],
        )
        .start();
        send(running.data().path(), "default", ["sleep:3600000".into()]).await;
        running.wait_for_line(|line| line.contains("an attempt begins"));
        running.signal(signal);
        running.wait_for_line(|line| line.contains("forces the exit from now on"));
        running.signal(signal);
        assert_eq!(running.wait_exit(), code);
        let line = running.wait_for_line(|line| line.contains("exit forced"));
        assert_eq!(
            (field(&line, "running"), field(&line, "held")),
            ("1".into(), "1".into())
        );
    }
}

#[tokio::test]
async fn lesson_02_stop_finishes_messages_at_their_last_attempt() {
    // One attempt each: released, the second message would have had its only delivery.
    let arguments = [
        "--concurrency",
        "1",
        "--max-attempts",
        "1",
        "--queues",
        "local:a,local:b",
        "--log-level",
        "debug",
    ];
    let mut running = run("verdicts", &arguments).start();
    let data = running.data().clone();
    send(data.path(), "a", ["sleep:1500".into()]).await;
    running.wait_for_line(|line| line.contains("an attempt begins"));
    // Its idle long poll brings this one although the only worker is busy.
    send(data.path(), "b", ["done".into()]).await;
    until_depth(data.path(), "b", |depth| depth.in_flight == 1).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(depth(data.path(), "a").await, Default::default());
    assert_eq!(depth(data.path(), "b").await, Default::default());
    assert_eq!(depth(data.path(), "b.dead").await, Default::default());
}

#[tokio::test]
async fn shared_instance_waiting_for_attempts_delays_no_stop() {
    let more = ["--instance-concurrency", "4", "--allow-lambda", "none"];
    let mut running = run("commands", &more).start();
    send(running.data().path(), "default", ["print here".into()]).await;
    running.wait_for_line(|line| line.contains("here"));
    until_depth(running.data().path(), "default", |depth| {
        depth == Default::default()
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn finding_14_stopping_program_is_alive_and_not_ready() {
    let more = [
        "--shutdown-grace",
        "1h",
        "--timeout",
        "1h",
        "--admin",
        "127.0.0.1:0",
    ];
    let arguments = [&more[..], &["--log-level", "debug"]].concat();
    let mut running = run("verdicts", &arguments).start();
    let url = admin(&running);
    send(running.data().path(), "default", ["sleep:3600000".into()]).await;
    running.wait_for_line(|line| line.contains("an attempt begins"));
    assert_eq!(http::get(&format!("{url}/readyz")).status, 200);
    running.signal(Signal::TERM);
    running.wait_for_line(|line| line.contains("stopping; a second signal"));
    let ready = http::get(&format!("{url}/readyz"));
    assert_eq!(ready.status, 503, "{ready:?}");
    assert!(ready.body.contains("it is stopping"), "{ready:?}");
    assert_eq!(http::get(&format!("{url}/healthz")).status, 200);
    running.wait_for_line(|line| line.contains("forces the exit from now on"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 143);
}

#[test]
fn finding_14_check_and_doctor_warn_when_the_platform_kills_before_a_stop_ends() {
    let pod = ("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    let call = |command: &str, grace: &str, (name, value): (&str, &str)| {
        let words = [
            command,
            "--plugin",
            &guest("hello"),
            "--shutdown-grace",
            grace,
        ];
        let ended = Program::new(words).env(name, value).run();
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout + &ended.stderr
    };
    for command in ["check", "doctor"] {
        let long = call(command, "60s", pod);
        let advice = "terminationGracePeriodSeconds is longer: set it to at least 64";
        assert!(long.contains(advice), "{long}");
        for (grace, platform) in [("20s", pod), ("60s", ("OTHER", "x"))] {
            let said = call(command, grace, platform);
            assert!(!said.contains("terminationGracePeriodSeconds"), "{said}");
        }
    }
    let told = call("doctor", "60s", ("OTHER", "x"));
    assert!(
        told.contains("ok    stop: the stop ends within 1m 4s of SIGTERM"),
        "{told}"
    );
}

/// A run of a component that takes seconds to compile.
fn compiling(functions: usize, more: &[&str]) -> (RunningProgram, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("slow.wasm");
    std::fs::write(&file, slow_module(functions)).expect("written");
    let file = file.display().to_string();
    let arguments = [&["run", "--log-format", "json", "--plugin", &file], more].concat();
    let running = Program::new(arguments).compiling().start();
    running.wait_for_line(|line| line.contains("compiling plugin"));
    (running, folder)
}

#[test]
fn finding_29_signal_ends_a_compilation() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (mut running, _folder) = compiling(8_000, &[]);
        running.signal(signal);
        assert_eq!(running.wait_exit(), 0, "{signal:?}");
        let text = running.text(Stream::Err);
        assert!(text.contains("stopped before the first receive"), "{text}");
        for never in ["plugin compiled", "\"message\":\"running\""] {
            assert!(!text.contains(never), "{text}");
        }
    }
}

#[test]
fn finding_29_slow_compilation_is_logged() {
    let (mut running, _folder) = compiling(1_500, &["--queues", "local:a"]);
    running.wait_for_line(|line| line.contains("\"message\":\"running\""));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let lines = running.lines(|line| line.contains("\"message\":"));
    let at = |message: &str| {
        let wanted = |line: &String| field(line, "message") == message;
        let found = lines.iter().position(wanted);
        found.unwrap_or_else(|| panic!("no {message}: {lines:?}"))
    };
    let (begins, ends) = (at("compiling plugin"), at("plugin compiled"));
    assert!(begins < ends && ends < at("running"), "{lines:?}");
    assert_eq!(field(&lines[begins], "plugin"), "slow");
    let size = slow_module(1_500).len().to_string();
    assert_eq!(field(&lines[begins], "size"), size);
    let seconds: f64 = field(&lines[ends], "seconds").parse().expect("a number");
    assert!(seconds > 0.0);
}
