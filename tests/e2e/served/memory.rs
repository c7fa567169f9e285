//! Queues that the file declares, and `dispatcher local --memory`, which test suites reset and whose
//! clock they move.

use crate::scene::{guest, run};
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_types::timeout::TimeoutConfig;
use dispatcher_core::tasks::Group;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::http;
use dispatcher_tests::limited::MemoryLimit;
use dispatcher_tests::served::{LocalServer, Sdk};
use dispatcher_tests::sqs::SqsServer;
use std::path::Path;
use std::time::Duration;

const FILE: &str = "\
[queue.orders]
visibility = '15m'
redrive = { dead-letter = 'orders-dead', max-receives = 2 }

[queue.orders-dead]

[queue.short]
retention = '1m'

[queue.'one.fifo']
fifo = true
";

const LOCAL: [&str; 3] = ["local", "--listen", "127.0.0.1:0"];

fn declaring(more: &[&str], file: &str) -> Program {
    let arguments = [&LOCAL[..], &["--config", "dispatcher.toml"], more].concat();
    Program::new(arguments).file("dispatcher.toml", file)
}

fn checking() -> Program {
    let plugin = guest("verdicts");
    let arguments = ["check", "--config", "dispatcher.toml", "--plugin", &plugin];
    Program::new([&arguments[..], &["--queues", "local:orders"]].concat())
}

#[test]
fn a_test_suite_finds_declared_queues_and_moves_the_clock_and_resets() {
    let server = LocalServer::of(declaring(&["--memory"], FILE).compiling());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/served/memory.py");
    let output = Sdk::Boto3.run(&script, server.url()).expect("python");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(out.contains("all is well"), "{out}\n{err}");
    let files = std::fs::read_dir(server.data().path()).expect("the folder is there");
    let names: Vec<_> = files
        .map(|file| file.expect("a file").file_name())
        .collect();
    assert_eq!(names, ["dispatcher.toml"], "nothing is kept on disk");
}

#[test]
fn calls_of_tests_are_refused_unless_everything_about_them_is_right() {
    let kept = LocalServer::start();
    let in_memory = LocalServer::of(Program::new([&LOCAL[..], &["--memory"]].concat()));
    let page = ("Origin", "http://example.com");
    for (server, call, headers, body, status, words) in [
        (&kept, "reset", &[][..], "", 404, "local --memory"),
        (
            &kept,
            "clock",
            &[],
            r#"{"advance":"1s"}"#,
            404,
            "local --memory",
        ),
        (&in_memory, "reset", &[page], "", 403, "Origin"),
        (&in_memory, "rest", &[], "", 404, "wanted reset or clock"),
        (
            &in_memory,
            "clock",
            &[],
            r#"{"advance":900}"#,
            400,
            "`advance`",
        ),
        (&in_memory, "reset", &[], "", 200, r#"{"queues":[]}"#),
    ] {
        let url = format!("{}/_dispatcher/{call}", server.url());
        let answer = http::post(&url, headers, body);
        assert_eq!(answer.status, status, "{call}: {}", answer.body);
        assert!(answer.body.contains(words), "{}", answer.body);
    }
    let got = http::get(&format!("{}/_dispatcher/reset", in_memory.url()));
    assert_eq!(got.status, 405, "{}", got.body);
}

/// Many clients receive the largest messages at once: more than the server's memory has room for.
/// One for whom no room came free in time is refused, and asks again.
#[tokio::test]
async fn finding_04_large_receives_of_many_clients_stay_within_the_memory_limit() {
    const MESSAGES: usize = 150;
    // Enough for some of the refused to have asked again.
    const RECEIVED: usize = 60;
    let Some(limit) = MemoryLimit::new(160 * 1024 * 1024) else {
        return;
    };
    let mut local = LocalServer::of(limit.run(Program::new(LOCAL)));
    let sdk = SqsServer::at(local.url());
    let url = sdk.create("large", &[("VisibilityTimeout", "3600")]).await;
    let body = "\\".repeat(1_000_000);
    for _ in 0..MESSAGES {
        let send = sdk.client.send_message().queue_url(&url);
        send.message_body(&body).send().await.expect("sent");
    }
    let mut receives = Group::new();
    let receive = || {
        let receive = sdk.client.receive_message().queue_url(&url);
        let receive = receive.max_number_of_messages(10).wait_time_seconds(1);
        // A client that gives up hides its messages for an hour.
        let patient = TimeoutConfig::builder()
            .read_timeout(Duration::from_secs(300))
            .operation_attempt_timeout(Duration::from_secs(300));
        let patient = aws_sdk_sqs::config::Builder::new().timeout_config(patient.build());
        let receive = receive.customize().config_override(patient);
        async move { receive.send().await.map(|some| some.messages().len()) }
    };
    for _ in 0..MESSAGES / 10 {
        receives.spawn(receive());
    }
    let mut received = 0;
    while received < RECEIVED {
        match receives.next().await {
            Ok(messages) => received += messages,
            Err(error) => {
                let status = error.raw_response().map(|answer| answer.status().as_u16());
                assert_eq!(status, Some(503), "{error:?}");
            }
        }
        receives.spawn(receive());
    }
    drop(receives);
    local.process().signal(Signal::TERM);
    assert_eq!(local.process().wait_exit(), 0);
}

#[test]
fn a_server_in_memory_refuses_a_folder() {
    let refused = Program::new([&LOCAL[..], &["--memory", "--data", "there"]].concat()).run();
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.stderr.contains("--data names a folder"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_declaration_that_would_lose_messages_ends_the_start_with_its_line() {
    let mut local = LocalServer::start();
    let sdk = SqsServer::at(local.url());
    let url = sdk.create("orders", &[("VisibilityTimeout", "0")]).await;
    sdk.send_many(&url, ["print:kept".to_owned()]).await;
    for _ in 0..2 {
        let received = sdk.client.receive_message().queue_url(&url).send().await;
        assert_eq!(received.expect("an answer").messages().len(), 1);
    }
    let folder = local.data().clone();
    local.process().signal(Signal::TERM);
    assert_eq!(local.process().wait_exit(), 0);

    let wanted = "dispatcher.toml:1: 1 of the messages in `local:orders` were received 2 times";
    let serving = declaring(&[], "")
        .sharing(&folder)
        .file("dispatcher.toml", FILE);
    let handling = run(
        "verdicts",
        &["--config", "dispatcher.toml", "--queues", "local:orders"],
    );
    for program in [
        serving,
        checking().sharing(&folder),
        handling.sharing(&folder),
    ] {
        let refused = program.run();
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains(wanted), "{refused:?}");
    }
}

#[test]
fn a_check_changes_no_queue() {
    let made = LocalServer::of(declaring(&[], "[queue.orders]\nvisibility = '2m'\n"));
    let checked = checking()
        .sharing(made.data())
        .file("dispatcher.toml", FILE)
        .run();
    assert_eq!(checked.code, 0, "{checked:?}");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let set_to = |name: &str| {
        let asked = format!(
            "Action=GetQueueAttributes&AttributeName.1=VisibilityTimeout&QueueUrl={}/0/{name}",
            made.url()
        );
        http::post(made.url(), &[form], &asked).body
    };
    assert!(set_to("orders").contains("<Value>120</Value>"));
    assert!(set_to("short").contains("NonExistentQueue"));
}

#[tokio::test]
async fn a_run_makes_the_queues_that_its_file_declares() {
    let mut running = run(
        "verdicts",
        &["--config", "dispatcher.toml", "--queues", "local:orders"],
    )
    .file("dispatcher.toml", FILE)
    .start();
    let sending = Program::new(["send", "local:orders", "print:handled"]);
    let folder = running.data().clone();
    running.wait_for_line(|line| line.contains("running"));
    assert_eq!(sending.sharing(&folder).run().code, 0);
    running.wait_for_line(|line| line.contains("handled"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);

    let local = LocalServer::sharing(&folder);
    let sdk = SqsServer::at(local.url());
    for (queue, name, value) in [
        ("orders", QueueAttributeName::VisibilityTimeout, "900"),
        ("short", QueueAttributeName::MessageRetentionPeriod, "60"),
        ("one.fifo", QueueAttributeName::FifoQueue, "true"),
    ] {
        let asked = sdk.client.get_queue_attributes();
        let asked = asked.queue_url(format!("{}/000000000000/{queue}", local.url()));
        let answer = asked.attribute_names(QueueAttributeName::All).send().await;
        let answer = answer.expect("the queue is there");
        let found = answer.attributes().and_then(|all| all.get(&name));
        assert_eq!(found.map(String::as_str), Some(value), "{queue}");
    }
}
