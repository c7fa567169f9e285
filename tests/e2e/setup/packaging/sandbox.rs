//! The system call filters of the unit, on the program while it does its main work: a call that they
//! do not allow kills it. `sandbox.py` loads them as systemd does, so that no systemd is needed.

use crate::backends::dynamodb::{self, send as send_tasks};
use crate::backends::redis::tls::Secure;
use crate::lambda::scene::{admin, queue};
use crate::scene::{field, guest, printed, tls_file};
use dispatcher_tests::child::{Program, Signal, binary};
use dispatcher_tests::debian::DebianProgram;
use dispatcher_tests::http;
use dispatcher_tests::lambda::Function;
use dispatcher_tests::packaging::script;
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::service::{JobService, ServiceAnswer, ServiceStep};
use dispatcher_tests::sqs::SqsServer;
use std::path::Path;

const LIBRARY: DebianProgram = DebianProgram {
    program: "libseccomp",
    packages: &["libseccomp2"],
    libraries: &[],
};

/// A program under the filters of the unit, with these arguments.
fn sandboxed(program: &Path, arguments: &[&str]) -> Program {
    let machine = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let library = LIBRARY.folder().join(machine).join("libseccomp.so.2");
    let loader = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/setup/packaging/sandbox.py");
    let unit = script("debian/dispatcher.service");
    let mut words = vec!["python3".into(), loader, library, unit, program.to_owned()];
    words.extend(arguments.iter().map(|word| (*word).into()));
    if !rustix::process::geteuid().is_root() {
        return Program::of(&words[0], &words[1..]);
    }
    // The service is no root, who makes calls that nobody else does; what is root's is its own here.
    let user = ["--user", "--map-user=64321", "--map-group=64321"];
    let user = user.map(Into::into);
    Program::of("unshare", [&user[..], &words].concat())
}

fn dispatcher(arguments: &[&str]) -> Program {
    sandboxed(&binary(), arguments).aws(&MiniStack::shared().url())
}

#[test]
fn call_that_the_unit_does_not_allow_kills() {
    let after = |call: &str| {
        let program = format!("import os; os.{call}");
        let python = sandboxed(Path::new("python3"), &["-c", &program]);
        python.run().code
    };
    assert_eq!(after("getpid()"), 0);
    // Its own priority may be lowered, its scheduler may not be changed.
    assert_eq!(after("setpriority(os.PRIO_PROCESS, 0, 3)"), 0);
    assert_eq!(after("sched_setaffinity(0, [0])"), 128 + 31);
}

/// A configuration with a queue of every backend.
fn every_backend(redis: &str, mail: &str, tasks: &str) -> String {
    format!(
        r#"
        [backend.redis]
        url = "{redis}"
        ca-file = "{authority}"
        [plugin.verdicts]
        file = "{plugin}"
        allow-connect = ["127.0.0.1:1"]
        [[route]]
        plugin = "verdicts"
        queues = ["local:default", "redis:orders", "{mail}", "{tasks}"]
        idempotency = "1h"
        "#,
        authority = tls_file("ca.pem"),
        plugin = guest("verdicts")
    )
}

#[tokio::test]
async fn main_work_is_done_under_the_filters_of_the_unit() {
    let (server, mail, url) = queue("sandboxed", &[]).await;
    let (_tables, table, tasks) = dynamodb::table("sandboxed").await;
    let redis = Secure::of_anyone();
    let file = every_backend(&redis.url(""), &mail, &tasks);
    let options = ["--config", "dispatcher.toml", "--admin", "127.0.0.1:0"];
    let json = ["run", "--log-format", "json", "--metrics-depths", "all"];
    let run = dispatcher(&[&json[..], &options].concat());
    // A plugin is compiled, and the result kept.
    let mut running = run.compiling().file("dispatcher.toml", &file).start();
    let call = |words: &[&str]| {
        let words = [words, &["--config", "dispatcher.toml"]].concat();
        let ended = dispatcher(&words).sharing(running.data()).run();
        assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
        ended.stdout
    };
    running.wait_for_line(|line| line.contains("\"running\""));
    call(&["send", "local:default", "print:from local"]);
    call(&["send", "redis:orders", "print:from redis"]);
    server.send_many(&url, ["print:from sqs".to_owned()]).await;
    send_tasks(&table, ["print:from dynamodb".to_owned()]).await;
    for body in ["local", "redis", "sqs", "dynamodb"] {
        let wanted = format!("from {body}");
        running.wait_for_line(|line| printed(line) && field(line, "message") == wanted);
    }
    for body in ["connect:127.0.0.1:1", "random", "time"] {
        call(&["send", "local:default", body]);
    }
    running.wait_for_lines(3, |line| line.contains("\"message dead-lettered\""));
    call(&[
        "schedule",
        "add",
        "local:default",
        "--in",
        "2s",
        "--body",
        "print:due",
    ]);
    running.wait_for_line(|line| printed(line) && field(line, "message") == "due");
    let admin = admin(&running);
    for page in ["/metrics", "/healthz", "/ui", "/api/v1/queues"] {
        assert_eq!(http::get(&format!("{admin}{page}")).status, 200, "{page}");
    }
    for words in [
        &["queues", "local:"][..],
        &["peek", "local:default.dead"],
        &["redrive", "local:default.dead"],
        &["check"],
        &["doctor"],
    ] {
        call(words);
    }
    let copy = tempfile::tempdir().expect("a folder");
    call(&["backup", &copy.path().display().to_string()]);
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("settings reloaded"));
    call(&["send", "local:default", "print:after the reload"]);
    running.wait_for_line(|line| line.contains("after the reload"));
    running.stop();
}

#[tokio::test]
async fn forwarding_and_serving_are_done_under_the_filters_of_the_unit() {
    let (server, name, url) = queue("sandboxed", &[]).await;
    server.send_many(&url, ["done".to_owned()]).await;
    let function = Function::create(&MiniStack::shared().url(), "sandboxed").await;
    let forward = ["run", "--queues", &name, "--poll-for", "1", "--function"];
    let mut running = dispatcher(&[&forward[..], &[&function.name]].concat()).start();
    function.wait_for_calls(1).await;
    running.stop();

    let service = JobService::start(|_| ServiceStep::Answer(ServiceAnswer::new(200)));
    let forward = ["run", "--forward", &service.url()];
    let mut running = dispatcher(&forward).start();
    let send = ["send", "local:default", "{}"];
    assert_eq!(dispatcher(&send).sharing(running.data()).run().code, 0);
    service.wait_for(1);
    running.stop();

    let served = LocalServer::of(dispatcher(&["local", "--listen", "127.0.0.1:0"]));
    let sqs = SqsServer::at(served.url());
    let url = sqs.create("served", &[]).await;
    sqs.send_many(&url, ["one".to_owned()]).await;
    assert_eq!(sqs.counts(&url).await.waiting, 1);
}
